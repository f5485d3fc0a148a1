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

from mlsysim.calibrate.cells import chip_of, experts_of, format_of, key_of, model_of, number, whole
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Skipped, calibrated_plan, whole_nodes
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import chip_class, engine, serving_table

COLUMNS = (
    *("model", "gpu", "precision_weights", "precision_kv", "isl", "osl", "batch_or_concurrency", "scenario", "metric"),
)

_WORDS = settings("rows")["inference"]
_ONLINE_REQUESTS = 500
_MOST_SEQUENCES = 2048
_QUEUE = 2
"""Requests for each place of an engine that is to be kept full, where their number is not known."""
_FIRST = re.compile(r"qps=(\S+)", re.IGNORECASE)


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    try:
        measured = float(row["value"])
    except ValueError:
        raise Excluded(f"{row['value']!r} is a range, not a measurement") from None
    if measured <= 0:
        raise Excluded("no measured value")
    inferred: list[str] = []
    chip, model, metric, factor = chip_of(row["gpu"]), model_of(row["model"]), row["metric"], 1.0
    if row["scenario"].lower().startswith("mlperf"):
        plan, regime = _mlperf(row, chip, model, inferred)
        asked, unit = _WORDS["asked"]["output_throughput"]
    else:
        plan, regime = _run(row, chip, model, inferred)
        if metric not in _WORDS["asked"]:
            raise Skipped(f"the metric {metric!r} is not known")
        asked, unit = _WORDS["asked"][metric]
        if metric == "output_throughput" and row.get("unit", "").lower().endswith("/gpu"):
            asked += "_per_device"
        elif metric == "decode_tokens_per_s":
            assert plan.serving is not None
            factor = float(plan.serving.concurrency or 1)
        elif asked == "user_rate":
            factor = _weights_read(model, plan) / 1e9
    known = chip_class(chip) != "other"
    return [Question(metric, measured, plan, asked, unit, factor, regime, known, tuple(inferred))]


def _weights_read(model: TransformerWorkload, plan: Plan) -> float:
    """Bytes of weights that one token reads on a device, as gpt-fast counts them: active parameters without embedding,
    the output head in 16 bit."""
    size: Any = getattr(model, "active_parameters", None) or model.parameters
    parameters, head = float(size.to("param").magnitude), float(model.vocab_size or 0) * float(model.hidden_dim or 0)
    element = bytes_per_element(plan.workload.precision or "bf16")
    return ((parameters - 2 * head) * element + 2 * head) / (plan.parallelism.tp or 1)


def _plan(row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, devices: int, **parts: Any) -> Plan:
    precision = format_of(row["precision_weights"], row["model"])
    return calibrated_plan("serving", key_of(model), whole_nodes(devices, key_of(chip)), precision=precision, **parts)


def _run(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, inferred: list[str]
) -> tuple[Plan, str]:
    """A run with a layout of its own, and the kind of work that it is."""
    steady = "steady state" in row["scenario"].lower()
    tp, ep, pp = (whole(row, name, 1) for name in ("tp", "ep", "pp"))
    if steady and ep > 1 and tp == 1 and not re.search(r"dp=(?!1\b)\d+", row.get("notes", "")):
        inferred.append(f"attention on {ep} tensor-parallel devices")
        tp = ep
    cache = row.get("precision_kv") or ""
    if not cache:
        inferred.append("16-bit cache")
    serving: dict[str, Any] = {
        "engine": _engine(row, inferred),
        "cache_precision": format_of(cache) if cache else "bf16",
        "replicas": 1,
    }
    regime, load = _load(row, steady, inferred)
    mixture = experts_of(model) > 1
    split = {"tp": tp, "ep": ep if mixture and ep > 1 else None, "pp": pp if pp > 1 else None}
    devices = max(tp, ep if mixture else 1) * pp
    return _plan(row, chip, model, devices, parallelism=split, serving=serving | load), regime


def _load(row: Mapping[str, str], steady: bool, inferred: list[str]) -> tuple[str, dict[str, Any]]:
    """Kind of work, and how requests come."""
    metric, load = row["metric"], row["batch_or_concurrency"]
    if steady:
        prompt = _task_prompt(row, inferred)
        lengths = {"prompt_tokens": prompt, "output_tokens": max(1, round(number(row, "osl")))}
        return f"steady state {metric}", {**lengths, "concurrency": max(1, round(number(row, "batch_or_concurrency")))}
    prompt, answer = whole(row, "isl"), whole(row, "osl", 1)
    lengths = {"prompt_tokens": prompt, "output_tokens": answer}
    online = _FIRST.match(load)
    if online:
        endless = online[1].lower() == "inf"
        rate: dict[str, Any] = {"concurrency": _ONLINE_REQUESTS} if endless else {"qps": float(online[1])}
        return f"online {metric}", lengths | rate | {"requests": _ONLINE_REQUESTS, "max_num_seqs": _MOST_SEQUENCES}
    if load.startswith("max") or "max-throughput" in row["scenario"].lower():
        sent = serving_table("trtllm_bench")["requests"].get(f"{prompt}_{answer}")
        if sent is not None:
            inferred.append(f"{sent} requests")
        queue = sent or _QUEUE * _MOST_SEQUENCES
        full = {"concurrency": queue, "requests": sent, "max_num_seqs": _MOST_SEQUENCES, "offline": True}
        return "saturated throughput", lengths | full
    batch = max(1, round(number(row, "batch_or_concurrency")))
    kind = str(_WORDS["kinds"].get(metric, "static batch"))
    return kind, lengths | {"concurrency": batch, "requests": batch, "offline": True}


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
    devices = whole(row, "n_gpus", 0)
    if not devices:
        raise Skipped("the number of devices is not given")
    if "dual" in row["gpu"].lower():
        devices *= 2
        inferred.append(f"two chips a card: {devices}")
    prompt, answer = int(facts["prompt"]), max(1, round(number(row, "osl", float(facts["answer"]))))
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
    return _plan(row, chip, model, devices, serving=serving), f"mlperf {scenario}"


def _engine(row: Mapping[str, str], inferred: list[str]) -> str:
    text = f"{row.get('source', '')} {row['scenario']}".lower()
    for word, name in _WORDS["engines"].items():
        if word in text:
            inferred.append(f"engine {name}")
            return engine(name).name
    raise Skipped("the serving engine is not known")
