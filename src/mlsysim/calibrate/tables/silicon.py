"""Our own H200 measurements: kernels, prefill, decode, training steps, memory and power of one chip.

A row is one measured value of one configuration (``section``, ``config`` as JSON, ``metric``, ``median``). Rates, bandwidths,
throughputs and utilisations are the time of the same configuration turned over, so only times and bytes are scored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.operators import FORMATS, LIBRARY, PRODUCT, constants, library, product, speeds
from mlsysim.calibrate.questions import WITHOUT, Excluded, Prediction, Question, Skipped, calibrated_plan
from mlsysim.cases.ledger import CONTEXT, RESERVE
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.operators import attention_decode_time, gemm_time, memory_bound_time
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.plan import Plan
from mlsysim.timing.kernels import REACH, Profile
from mlsysim.timing.profile import profile
from mlsysim.timing.runtimes import regime_of
from mlsysim.timing.stacks import software
from mlsysim.units.registry import to_si

COLUMNS = ("section", "config", "metric", "median", "unit", "reps")

Config = dict[str, Any]

_CHIP = "H200"
_WORDS = settings("rows")["silicon"]
_AUTOGRAD = 10
"""Host operators of one attention core, forward and backward, under autograd."""


def read(row: Mapping[str, str]) -> list[Question | Prediction]:
    """The time or the bytes of the row's configuration: a plan for whole passes and steps, the chip's constants for kernels."""
    metric, section, shares = row["metric"], row["section"], profile(Hardware.get(_CHIP))
    if metric in _WORDS["derived"]:
        raise Excluded(f"{metric} follows from the time of the same configuration")
    if metric in _WORDS["observed"]:
        raise Excluded(f"{metric} is an observation, not a quantity to predict")
    try:
        config = json.loads(row["config"])
        measured = float(row["median"])
    except ValueError:
        raise Skipped("the configuration or the value cannot be read") from None
    own, name = shares.measured and shares.name == _CHIP, f"{section} {metric}"
    if section in _RUNS and (metric.startswith("time") or metric in _ASKED):
        plan, asked, regime = _RUNS[section](config, metric)
        return [Question(name, measured, plan, asked, "byte" if metric.startswith("mem") else "s", 1.0, regime, own)]
    if section not in _KERNELS:
        raise Skipped(f"{section} rows have no prediction")
    kernel, regime = _KERNELS[section]
    return [Prediction(name, measured, float(kernel(config, shares)), regime, own)]


def _gemm(c: Config, shares: Profile) -> Any:
    form = FORMATS.get(c.get("dtype", ""))
    if form is None:
        raise Skipped(f"the number format {c.get('dtype')!r} is not known")
    values = constants(shares.product_for(form.precision), *PRODUCT)
    return product(_CHIP, form, c["M"], c["N"], c["K"], False, c.get("B", 1))(**values)


def _ceiling(c: Config, shares: Profile) -> Any:
    label = str(c["dtype"]).removesuffix("_fast")
    if label not in ("bf16", "fp16", "fp8", "tf32", "fp32"):
        raise Skipped(f"products in {c['dtype']} have no constants of their own")
    kernel = shares.product_for(label)
    share = kernel.rate_share * (1.0 if c["mode"] == "burst" else kernel.kept)
    n, (start, chain, _), (peak, bandwidth) = float(c["n"]), kernel.times, speeds(_CHIP, label)
    moved, walk = 3 * bytes_per_element(label) * n * n, (start, n / REACH, chain)
    return gemm_time(2 * n**3, moved, 0.0, peak * share, bandwidth, kernel.memory_share, 1.0, *walk)


def _attention(c: Config, shares: Profile) -> Any:
    kernel = _WORDS["attention"].get(c["backend"])
    if kernel is None:
        raise Skipped(f"attention by {c['backend']!r} has no constants")
    best = shares.attention.kernel_rate(kernel)
    seconds = library(_CHIP, c["B"], c["S"], c["H"], c["D"], c["causal"], best)
    return seconds(**constants(shares.attention, *LIBRARY))


def _attention_both(c: Config, shares: Profile) -> Any:
    forward, start = _attention(c, shares), shares.attention.times[0]
    device = forward + start + 2.5 * (forward - start) / shares.attention.backward_share
    return max(device, _AUTOGRAD * (software("torch").host or 0.0))


def _decode_attention(c: Config, shares: Profile) -> Any:
    if not str(c["path"]).startswith("triton"):
        raise Skipped(f"decode attention by {c['path']!r} has no constants")
    moved = 4.0 * c["B"] * c["S"] * c["KV"] * c["D"]
    operations = 4.0 * c["B"] * c["S"] * c["H"] * c["D"]
    share, start = software("engine").cache_share or 1.0, shares.attention.times[1]
    return attention_decode_time(moved, operations, *speeds(_CHIP), share, start)


def _memop(c: Config, shares: Profile) -> Any:
    bound, (_, bandwidth) = shares.memory_bound, speeds(_CHIP)
    if c["op"] == "adamw":
        if c["mode"] != "fused":
            raise Skipped("an unfused optimizer has no constants")
        share = bound.optimizer_share if c["dtype"] == "float32" else bound.optimizer_share_16bit
        return c["bytes"] / (share * bandwidth)
    known = bound.kernels.get(f"{c['op']}/{c['mode']}")
    if known is None:
        raise Skipped(f"{c['op']} in {c['mode']} mode has no constants of its own")
    return memory_bound_time(c["bytes"], bandwidth, known.share, to_si(known.start, "s"))


def _convolution(c: Config, shares: Profile) -> Any:
    k, (peak, bandwidth) = shares.convolution, speeds(_CHIP, "fp16")
    assert k is not None
    if c["groups"] > 1:
        return memory_bound_time(c["bytes"], bandwidth, k.depthwise_share, k.seconds)
    rate = peak * k.rate_share
    return gemm_time(c["flops"], c["bytes"], 0.0, rate, bandwidth, k.memory_share, 1.0, k.seconds)


_KERNELS: dict[str, tuple[Callable[[Config, Profile], Any], str]] = {
    **dict.fromkeys(("gemm", "gemm_random", "gemm_random2", "gemm_sweep", "bmm"), (_gemm, "kernel gemm")),
    "gemm_ceiling": (_ceiling, "kernel gemm"),
    "attn_fwd": (_attention, "kernel attention"),
    "attn_fwdbwd": (_attention_both, "kernel attention"),
    "attn_decode": (_decode_attention, "kernel attention"),
    "memop": (_memop, "kernel memory"),
    "conv": (_convolution, "kernel convolution"),
}
"""Sections of kernels: their seconds, and the kind of work."""


def _served(c: Config, metric: str) -> tuple[Plan, str, str]:
    name, weights = _WORDS["served"].get(c["model"]), _WORDS["weights"].get(c["wdtype"])
    mode = _WORDS["software"].get(c["mode"])
    if name is None or weights is None or mode is None:
        raise Skipped(f"the model {c['model']!r}, the format {c['wdtype']!r} or the mode {c['mode']!r} is not known")
    phase, length = ("decode", c["ctx"]) if "ctx" in c else ("prefill", c["S"])
    mode += {"flash": "_fa2"}.get(c.get("attn", ""), "")
    regime = f"{phase} {'graph' if c['mode'].startswith('graph') else 'eager'}"
    work = {"seq_len": length, "phase": phase, "batch_size": c["B"], "precision": weights}
    return _plan("inference", name, mode, c["L"], **work), "latency", regime


def _bert(c: Config, metric: str) -> tuple[Plan, str, str]:
    work = {"seq_len": c["N"], "batch_size": c["B"], "precision": "fp16"}
    return _plan("inference", "BERT_Large", _WORDS["software"][c["mode"]], **work), "latency", f"encoder {c['mode']}"


def _network(c: Config, metric: str) -> tuple[Plan, str, str]:
    name, training = _WORDS["vision"].get(c["model"]), "amp" in c["mode"]
    if name is None or metric != "time":
        raise Skipped(f"{metric} of {c['model']!r} is not predicted")
    stack = "graph" if c["mode"] == "graph" else "eager_nhwc"
    fitted = "train_nhwc" if training else stack
    work = {"batch_size": c["B"], "precision": "bf16" if training else "fp16"}
    plan = _plan("training" if training else "inference", name, stack, **work)
    return plan, "latency", regime_of(fitted, Hardware.get(_CHIP))


_STACKS = {("amp", False): "plain", ("bf16", False): "plain-16bit", ("amp", True): "plain-compiled"}
"""Software of our training runs, by mode and whether blocks were compiled."""
_ASKED = {
    "time_step": ("latency", "training dense"),
    "time_opt": ("part: optimizer update", "training part opt"),
    "mem_reserved": (f"{WITHOUT}{CONTEXT}", "memory training"),
    "mem_peak": (f"{WITHOUT}{CONTEXT}, {RESERVE}", "memory training"),
}
"""What is asked of an answer. The allocator took all of its memory but that of the driver; tensors take that without the reserve."""


def _step(c: Config, metric: str) -> tuple[Plan, str, str]:
    """A step of one accelerator. Forward and backward are no parts of an answer, whose parts are kinds of work."""
    stack = _STACKS.get((c["mode"], bool(c["compile"])))
    if stack is None:
        raise Skipped(f"no stack is {c['mode']} and compiled")
    if metric not in _ASKED:
        raise Skipped(f"{metric} is no part of an answer")
    if c["model"] not in _WORDS["trained"]:
        raise Skipped(f"the model {c['model']!r} is not known")
    work = {"batch_size": c["mb"], "seq_len": c["seq"], "precision": "bf16"}
    plan = _plan("training", _WORDS["trained"][c["model"]], stack, c["L"], c["recompute"], **work)
    return plan, *_ASKED[metric]


def _plan(task: str, model: str, stack: str, layers: int | None = None, again: str | None = None, **work: Any) -> Plan:
    own = None if layers in (None, getattr(Models.get(model), "layers", None)) else {"layers": layers}
    split = {"tp": 1, "micro_batches": 1, "recompute": again} if task == "training" else {}
    return calibrated_plan(task, model, f"1x{_CHIP}", stack=stack, parallelism=split, dimensions=own, **work)


_RUNS: dict[str, Callable[[Config, str], tuple[Plan, str, str]]] = {
    **dict.fromkeys(("e2e_decode", "e2e_prefill"), _served),
    "train": _step,
    **dict.fromkeys(("vision_inf", "vision_train"), _network),
    "bert_large": _bert,
}
"""Sections of whole passes and steps: the plan, what is asked of its answer, and the kind of work."""
