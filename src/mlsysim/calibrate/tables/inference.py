"""Published inference measurements: saturated and static-batch throughput, first tokens, batch-1 decode, steady state, MLPerf.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    engine              of the source: TensorRT-LLM's performance pages are its C++ runtime; gpt-fast; ML.ENERGY is vLLM without
                        asynchronous scheduling; MLPerf is TensorRT-LLM on NVIDIA and vLLM elsewhere
    cache format        16 bit, unless given (MLPerf: 8 bit)
    attention layout    ML.ENERGY's rows of mixtures say tp 1, ep n: attention runs on n tensor-parallel devices
    prompt lengths      ML.ENERGY: the task's mean; MLPerf: the dataset's mean
    median ITL          is that of a step without a prompt while fewer than half of the steps carry one
    MLPerf layout       replicas of as many devices as give the most tokens
    MLPerf metric       language benchmarks publish tokens a second, also where the unit says queries
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.cases.cache import engine_memory
from mlsysim.cases.offered_load import limited_rate, offered_rate, saturated, static_batch, step_with_prompts
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import precision_name
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import Engine, engine, serving_table

__all__ = ["COLUMNS", "predict"]

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
_FIRST = re.compile(r"qps=(\S+)", re.IGNORECASE)


def predict(row: Mapping[str, str], with_engine: Engine | None = None) -> list[Prediction]:
    """The measured value of a row."""
    try:
        measured = float(row["value"])
    except ValueError:
        raise Excluded(f"{row['value']!r} is a range, not a measurement") from None
    if measured <= 0:
        raise Excluded("no measured value")
    inferred: list[str] = []
    try:
        value, regime, chip_measured = _value(row, inferred, with_engine)
    except MLSysError as error:
        raise Skipped(str(error)) from None
    return [Prediction(row["metric"], measured, value, regime, chip_measured, tuple(inferred))]


def _value(row: Mapping[str, str], inferred: list[str], with_engine: Engine | None) -> tuple[float, str, bool]:
    scenario = row["scenario"].lower()
    if scenario.startswith("mlperf"):
        return _mlperf(row, inferred, with_engine)
    runner = with_engine or _engine(row, inferred)
    chip, model = _chip(row["gpu"]), _model(row["model"])
    step = _step(row, chip, model, runner, inferred)
    known = step.kernels.family != "other"
    metric = row["metric"]
    if "steady state" in scenario:
        return _steady(row, step, inferred), f"steady state {metric}", known
    prompt, answer = _number(row, "isl"), _number(row, "osl", 1.0)
    load = row["batch_or_concurrency"]
    online = _FIRST.match(load)
    if online:
        return _online(metric, step, online[1], prompt, answer), f"online {metric}", known
    if load.startswith("max") or "max-throughput" in scenario:
        requests = serving_table("trtllm_bench")["requests"].get(f"{prompt:.0f}_{answer:.0f}", math.inf)
        if math.isfinite(requests):
            inferred.append(f"{requests} requests")
        rate, _ = saturated(step, prompt, answer, requests=requests)
        return _per(row, rate, step), "saturated throughput", known
    batch = _number(row, "batch_or_concurrency")
    first, whole = static_batch(step, batch, prompt, answer)
    if metric == "ttft":
        return first * 1e3, "prefill", known
    if metric == "e2e_latency":
        return whole * 1e3, "static batch", known
    if metric in ("itl_mean", "itl_median"):
        return (whole - first) / max(answer - 1, 1.0) * 1e3, "decode", known
    if metric == "output_throughput":
        return _per(row, batch * answer / whole, step), "static batch", known
    if metric in ("decode_tokens_per_s", "achieved_weight_bandwidth_per_gpu"):
        rate = batch * max(answer - 1, 1.0) / (whole - first)
        if metric == "decode_tokens_per_s":
            return rate, "batch-1 decode", known
        return rate / batch * _weights_read(step) / 1e9, "batch-1 decode", known
    if metric in ("prefill_tokens_per_s", "prompt_tokens_per_s"):
        return batch * prompt / first, "prefill", known
    raise Skipped(f"the metric {metric!r} is not known")


def _weights_read(step: EngineStep) -> float:
    """Bytes of weights that one token reads on a device, as gpt-fast counts them: active parameters without embedding."""
    d = step.deployment
    total = sum(p.count * p.weight_bytes for p in step.products if p.tokens != "prompt")
    for count, ffn in step.experts:
        matrices = 3 if ffn.gated else 2
        total += count * ffn.per_token * matrices * ffn.hidden * ffn.width / step.moe_tp * step.weight / d.moe_ep
    return total


def _per(row: Mapping[str, str], rate: float, step: EngineStep) -> float:
    return rate / step.deployment.devices if row.get("unit", "").lower().endswith("/gpu") else rate


def _engine(row: Mapping[str, str], inferred: list[str]) -> Engine:
    text = f"{row.get('source', '')} {row['scenario']}".lower()
    for word, name in _ENGINES:
        if word in text:
            inferred.append(f"engine {name}")
            return engine(name)
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


def _step(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, runner: Engine, inferred: list[str]
) -> EngineStep:
    tp, ep, pp = (int(_number(row, name, 1.0)) for name in ("tp", "ep", "pp"))
    ranks = 1
    mixture = getattr(model, "experts", 1) > 1
    if "steady state" in row["scenario"].lower():
        given = re.search(r"dp=(\d+)", row.get("notes", ""))
        ranks = int(given[1]) if given else 1
        if ep > 1 and tp == 1 and ranks == 1:
            inferred.append(f"attention on {ep} tensor-parallel devices")
            tp = ep
    cache = row.get("precision_kv") or ""
    if not cache:
        inferred.append("16-bit cache")
    return engine_step(
        model,
        chip,
        runner,
        precision=_format(row["precision_weights"], row["model"]),
        cache_precision=_format(cache) if cache else "bf16",
        tp=tp,
        attention_dp=ranks,
        moe_tp=tp * ranks // ep if mixture else 1,
        moe_ep=ep if mixture else 1,
        pp=pp,
    )


def _steady(row: Mapping[str, str], step: EngineStep, inferred: list[str]) -> float:
    """ML.ENERGY: a steady state with a measured average batch."""
    task = row["isl"].replace("-", "_")
    prompts = serving_table("ml_energy")["prompt"]
    if row["isl"].replace(".", "").isdigit():
        prompt = float(row["isl"])
    elif task in prompts:
        prompt = float(prompts[task])
        inferred.append(f"prompts of {prompt:g} tokens")
    else:
        raise Skipped(f"the prompt length of {row['isl']!r} is not known")
    answer, batch = _number(row, "osl"), _number(row, "batch_or_concurrency")
    ranks = step.deployment.attention_dp
    mean = step_with_prompts(step, batch, prompt, answer)
    if row["metric"] == "output_throughput":
        return batch / mean
    context = prompt + answer / 2
    share = 1 - math.exp(-batch / answer)
    if share < 0.5:
        return float(step.time(batch / ranks, context).total) * 1e3
    # Most prompts are much shorter than the mean; a median step carries median prompts.
    usual = float(serving_table("ml_energy")["median_prompt"].get(task, prompt))
    count = max(min(batch / answer, (step.engine.token_budget - batch / ranks) / usual), 1.0)
    return float(step.time(batch / ranks, context, max(count / ranks, 1.0), usual).total) * 1e3


def _online(metric: str, step: EngineStep, load: str, prompt: float, answer: float) -> float:
    rate = math.inf if load.lower() == "inf" else float(load)
    seen = offered_rate(step, rate, prompt, answer, _ONLINE_REQUESTS)
    values = {
        "request_throughput": seen.request_rate,
        "output_throughput": seen.output_rate,
        "ttft_mean": seen.ttft * 1e3,
        "itl_mean": seen.tpot * 1e3,
    }
    if metric not in values:
        raise Skipped(f"the metric {metric!r} is not known")
    return values[metric]


def _layouts(model: TransformerWorkload, devices: int) -> Iterator[int]:
    tp = 1
    while tp <= min(devices, 8):
        if devices % tp == 0 and (model.heads or 1) % tp == 0:
            yield tp
        tp *= 2


def _mlperf(row: Mapping[str, str], inferred: list[str], with_engine: Engine | None) -> tuple[float, str, bool]:
    chip, model = _chip(row["gpu"]), _model(row["model"])
    name = re.sub(r"\W+", "_", row["model"].lower())
    facts = serving_table("mlperf").get(name)
    if facts is None:
        raise Skipped(f"the lengths of MLPerf's {row['model']} dataset are not known")
    scenario = row["scenario"].split()[1].lower()
    prompt = float(facts["prompt"])
    answer = _number(row, "osl", float(facts["answer"]))
    inferred += [f"prompts of {prompt:g} tokens", "8-bit cache", "layout with the most tokens"]
    devices = int(_number(row, "n_gpus", 0.0))
    if not devices:
        raise Skipped("the number of devices is not given")
    runner = with_engine or engine("TensorRT_LLM_Cpp_2025" if chip.vendor == "NVIDIA" else "vLLM")
    best = 0.0
    known = True
    for tp in _layouts(model, devices):
        mixture = getattr(model, "experts", 1) > 1
        step = engine_step(
            model,
            chip,
            runner,
            precision=_format(row["precision_weights"], row["model"]),
            cache_precision="fp8",
            tp=tp,
            moe_tp=tp if mixture else 1,
        )
        known = step.kernels.family != "other"
        if engine_memory(step, prompt + answer).sequences < 1:
            continue
        if scenario == "offline":
            rate, _ = saturated(step, prompt, answer)
        else:
            limits = facts.get(scenario)
            if limits is None:
                raise Skipped(f"the latency limits of MLPerf's {scenario} scenario are not known")
            headroom = serving_table("mlperf")["headroom"]
            rate, _ = limited_rate(step, prompt, answer, *(headroom * limit for limit in limits))
        best = max(best, rate * devices / tp)
    if not best:
        raise Skipped("no layout holds the model within the limits")
    return best, f"mlperf {scenario}", known
