"""Published inference measurements: saturated and static-batch throughput, first tokens, batch-1 decode, steady state, MLPerf.

Each is asked as a serving plan:

    saturated, static batch   all requests are sent at once to the engine itself (``offline``, ``requests`` = ``concurrency``)
    online at a rate          ``qps`` with so many ``requests``, or all at once where the rate is infinite
    steady state              the measured average batch as ``concurrency``
    MLPerf                    the layout is left open; limits on latency, or as many requests as keep the engine full

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    engine              of the source: TensorRT-LLM's performance pages are its C++ runtime; gpt-fast; ML.ENERGY is vLLM without
                        asynchronous scheduling; MLPerf is TensorRT-LLM on NVIDIA and vLLM elsewhere
    cache format        16 bit, unless given (MLPerf: 8 bit)
    attention layout    ML.ENERGY's rows of mixtures say tp 1, ep n: attention runs on n tensor-parallel devices
    prompt lengths      ML.ENERGY: the task's mean; MLPerf: the dataset's mean
    median ITL          is the mean time of a token
    MLPerf layout       replicas of as many devices as give the most tokens
    MLPerf limits       three quarters of the rules' limits on the 99th percentile hold for the mean
    MLPerf metric       language benchmarks publish tokens a second, also where the unit says queries
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.prediction import Excluded, Skipped
from mlsysim.calibrate.questions import Question, whole_nodes, without_none
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element, precision_name
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import chip_class, engine, serving_table

COLUMNS = (
    "model",
    "gpu",
    "precision_weights",
    "precision_kv",
    "isl",
    "osl",
    "batch_or_concurrency",
    "scenario",
    "metric",
)

_ENGINES = (
    ("trtllm-0.17", "TensorRT_LLM_Cpp_2025"),
    ("trtllm-0.19", "TensorRT_LLM_2025"),
    ("trtllm-0.2", "TensorRT_LLM_2025"),
    ("trtllm-1", "TensorRT_LLM_2025"),
    ("trtllm", "TensorRT_LLM_Cpp"),
    ("gpt-fast", "gpt_fast"),
    ("ml-energy", "vLLM_2025"),
    ("llama.cpp", "llama_cpp"),
    ("llamacpp", "llama_cpp"),
    ("vllm", "vLLM"),
    ("sglang", "SGLang"),
    ("nemo-launcher", "TensorRT_LLM_Cpp"),
)
_FORMATS = {"fp4": "nvfp4", "uint4": "int4", "int4-g32": "int4", "w4a16": "int4", "fp8": "fp8", "q8_0": "int8"}
_ONLINE_REQUESTS = 500
_MOST_SEQUENCES = 2048
_QUEUE = 2
"""Requests for each place of an engine that is to be kept full, where their number is not known."""
_FIRST = re.compile(r"qps=(\S+)", re.IGNORECASE)

_TOKENS, _REQUESTS, _DEVICE = "tokens_per_second", "requests_per_second", "tokens_per_second_per_device"


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    try:
        measured = float(row["value"])
    except ValueError:
        raise Excluded(f"{row['value']!r} is a range, not a measurement") from None
    if measured <= 0:
        raise Excluded("no measured value")
    inferred: list[str] = []
    chip, model = _chip(row["gpu"]), _model(row["model"])
    known = chip_class(chip) != "other"
    try:
        if row["scenario"].lower().startswith("mlperf"):
            plan, regime = _mlperf(row, chip, model, inferred)
            asked, unit, factor = _TOKENS, "1/s", 1.0
        else:
            plan, regime = _run(row, chip, model, inferred)
            asked, unit, factor = _asked(row, model, plan)
    except MLSysError as error:
        raise Skipped(str(error)) from None
    return [Question(row["metric"], measured, plan, asked, unit, factor, regime, known, tuple(inferred))]


# --- what is asked -------------------------------------------------------------------------------------------------------


def _asked(row: Mapping[str, str], model: TransformerWorkload, plan: Plan) -> tuple[str, str, float]:
    """Metric of the answer, its unit, and the factor to the row's."""
    metric, per_device = row["metric"], row.get("unit", "").lower().endswith("/gpu")
    if metric == "output_throughput":
        return (_DEVICE if per_device else _TOKENS), "1/s", 1.0
    if metric == "request_throughput":
        return _REQUESTS, "1/s", 1.0
    if metric in ("ttft", "ttft_mean"):
        return "ttft", "ms", 1.0
    if metric in ("itl_mean", "itl_median"):
        return "tpot", "ms", 1.0
    if metric == "e2e_latency":
        return "latency", "ms", 1.0
    assert plan.serving is not None
    batch = plan.serving.concurrency or 1
    if metric == "decode_tokens_per_s":
        return "user_rate", "1/s", float(batch)
    if metric == "achieved_weight_bandwidth_per_gpu":
        return "user_rate", "1/s", _weights_read(model, plan) / 1e9
    raise Skipped(f"the metric {metric!r} is not known")


def _weights_read(model: TransformerWorkload, plan: Plan) -> float:
    """Bytes of weights that one token reads on a device, as gpt-fast counts them: active parameters without embedding,
    the output head in 16 bit."""
    size: Any = getattr(model, "active_parameters", None) or model.parameters
    parameters, head = float(size.to("param").magnitude), float(model.vocab_size or 0) * float(model.hidden_dim or 0)
    element = bytes_per_element(plan.workload.precision or "bf16")
    return ((parameters - 2 * head) * element + 2 * head) / (plan.parallelism.tp or 1)


# --- plans -----------------------------------------------------------------------------------------------------------------


def _plan(
    row: Mapping[str, str],
    chip: HardwareNode,
    model: TransformerWorkload,
    devices: int,
    split: dict[str, Any],
    serving: dict[str, Any],
) -> Plan:
    return Plan.model_validate(
        without_none(
            task="serving",
            workload={
                "model": model.metadata.key or row["model"],
                "precision": _format(row["precision_weights"], row["model"]),
            },
            hardware={"on": whole_nodes(devices, chip.metadata.key or chip.name), "efficiency": "calibrated"},
            parallelism=split,
            serving=serving,
        )
    )


def _run(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, inferred: list[str]
) -> tuple[Plan, str]:
    """A run with a layout of its own, and the kind of work that it is."""
    scenario, metric = row["scenario"].lower(), row["metric"]
    steady = "steady state" in scenario
    tp, ep, pp = (int(_number(row, name, 1.0)) for name in ("tp", "ep", "pp"))
    if steady and ep > 1 and tp == 1 and not re.search(r"dp=(?!1\b)\d+", row.get("notes", "")):
        inferred.append(f"attention on {ep} tensor-parallel devices")
        tp = ep
    cache = row.get("precision_kv") or ""
    if not cache:
        inferred.append("16-bit cache")
    serving: dict[str, Any] = {
        "engine": _engine(row, inferred),
        "cache_precision": _format(cache) if cache else "bf16",
        "replicas": 1,
    }
    regime, load = _load(row, steady, inferred)
    mixture = getattr(model, "experts", 1) > 1
    split = {"tp": tp, "ep": ep if mixture and ep > 1 else None, "pp": pp if pp > 1 else None}
    plan = _plan(row, chip, model, max(tp, ep if mixture else 1) * pp, split, serving | load)
    return plan, regime if regime else f"online {metric}"


def _load(row: Mapping[str, str], steady: bool, inferred: list[str]) -> tuple[str, dict[str, Any]]:
    """Kind of work (none for online), and how requests come."""
    metric, load = row["metric"], row["batch_or_concurrency"]
    if steady:
        prompt = _task_prompt(row, inferred)
        lengths = {"prompt_tokens": prompt, "output_tokens": max(1, round(_number(row, "osl")))}
        return f"steady state {metric}", {**lengths, "concurrency": max(1, round(_number(row, "batch_or_concurrency")))}
    prompt, answer = int(_number(row, "isl")), int(_number(row, "osl", 1.0))
    lengths = {"prompt_tokens": prompt, "output_tokens": answer}
    online = _FIRST.match(load)
    if online:
        sent: dict[str, Any] = {"requests": _ONLINE_REQUESTS, "max_num_seqs": _MOST_SEQUENCES}
        endless = online[1].lower() == "inf"
        return "", lengths | sent | ({"concurrency": _ONLINE_REQUESTS} if endless else {"qps": float(online[1])})
    if load.startswith("max") or "max-throughput" in row["scenario"].lower():
        number = serving_table("trtllm_bench")["requests"].get(f"{prompt}_{answer}")
        if number is not None:
            inferred.append(f"{number} requests")
        queue = number or _QUEUE * _MOST_SEQUENCES
        full = {"concurrency": queue, "requests": number, "max_num_seqs": _MOST_SEQUENCES, "offline": True}
        return "saturated throughput", lengths | full
    batch = max(1, round(_number(row, "batch_or_concurrency")))
    kinds = {
        "ttft": "prefill",
        "prefill_tokens_per_s": "prefill",
        "prompt_tokens_per_s": "prefill",
        "itl_mean": "decode",
        "itl_median": "decode",
        "decode_tokens_per_s": "batch-1 decode",
        "achieved_weight_bandwidth_per_gpu": "batch-1 decode",
    }
    return kinds.get(metric, "static batch"), lengths | {"concurrency": batch, "requests": batch, "offline": True}


def _task_prompt(row: Mapping[str, str], inferred: list[str]) -> int:
    """ML.ENERGY's rows name a task where others give a length."""
    if row["isl"].replace(".", "").isdigit():
        return max(1, round(float(row["isl"])))
    task, prompts = row["isl"].replace("-", "_"), serving_table("ml_energy")["prompt"]
    if task not in prompts:
        raise Skipped(f"the prompt length of {row['isl']!r} is not known")
    inferred.append(f"prompts of {prompts[task]:g} tokens")
    return int(prompts[task])


def _mlperf(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, inferred: list[str]
) -> tuple[Plan, str]:
    facts = serving_table("mlperf").get(re.sub(r"\W+", "_", row["model"].lower()))
    if facts is None:
        raise Skipped(f"the lengths of MLPerf's {row['model']} dataset are not known")
    scenario = row["scenario"].split()[1].lower()
    devices = int(_number(row, "n_gpus", 0.0))
    if not devices:
        raise Skipped("the number of devices is not given")
    prompt, answer = int(facts["prompt"]), max(1, round(_number(row, "osl", float(facts["answer"]))))
    inferred += [f"prompts of {prompt} tokens", "8-bit cache", "layout with the most tokens"]
    serving: dict[str, Any] = {
        "engine": "TensorRT_LLM_Cpp_2025" if chip.vendor == "NVIDIA" else "vLLM",
        "cache_precision": "fp8",
        "prompt_tokens": prompt,
        "output_tokens": answer,
        "max_num_seqs": _MOST_SEQUENCES,
    }
    if scenario == "offline":
        serving |= {"concurrency": _QUEUE * _MOST_SEQUENCES * devices, "offline": True}
    else:
        limits = facts.get(scenario)
        if limits is None:
            raise Skipped(f"the latency limits of MLPerf's {scenario} scenario are not known")
        headroom = serving_table("mlperf")["headroom"]
        serving |= {name: f"{headroom * limit!r} s" for name, limit in zip(("ttft", "tpot"), limits, strict=True)}
    return _plan(row, chip, model, devices, {}, serving), f"mlperf {scenario}"


# --- words of a row --------------------------------------------------------------------------------------------------------


def _engine(row: Mapping[str, str], inferred: list[str]) -> str:
    text = f"{row.get('source', '')} {row['scenario']}".lower()
    for word, name in _ENGINES:
        if word in text:
            inferred.append(f"engine {name}")
            return engine(name).name
    raise Skipped("the serving engine is not known")


def _chip(name: str) -> HardwareNode:
    try:
        return Hardware.get(name)
    except MLSysError:
        raise Skipped(f"unknown chip: {name}") from None


def _model(name: str) -> TransformerWorkload:
    try:
        model = Models.get(name)
    except MLSysError:
        raise Skipped(f"unknown model: {name}") from None
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions:
        raise Skipped(f"{name} has no public configuration")
    return model


def _number(row: Mapping[str, str], name: str, default: float | None = None) -> float:
    text = row.get(name) or ""
    try:
        return float(text)
    except ValueError:
        if default is not None and not text:
            return default
        raise Skipped(f"{name} is not a number: {text[:40]!r}") from None


def _format(name: str, model: str = "") -> str:
    folded = name.lower()
    if folded == "fp4" and "gpt-oss" in model.lower():
        return "mxfp4"
    try:
        return _FORMATS.get(folded) or precision_name(name)
    except MLSysError:
        raise Skipped(f"unknown precision: {name}") from None
