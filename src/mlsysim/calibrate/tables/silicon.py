"""Our own H200 measurements: kernels, prefill, decode, training steps, memory and power of one chip.

A row is one measured value of one configuration (``section``, ``config`` as JSON, ``metric``, ``median``). Rates, bandwidths,
throughputs and utilisations are the time of the same configuration turned over, so only times and bytes are scored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mlsysim.calibrate.operators import FORMATS, product_work
from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.cases.training_peak import training_peak
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import (
    attention_decode_time,
    attention_prefill_time,
    gemm_time,
    memory_bound_time,
)
from mlsysim.systems.registry import Fabrics
from mlsysim.systems.types import Fleet, Node
from mlsysim.timing.device_time import inference_time
from mlsysim.timing.kernels import REACH, Profile
from mlsysim.timing.profile import profile
from mlsysim.timing.runtimes import regime_of
from mlsysim.timing.software_stacks import software
from mlsysim.timing.vision_time import inventory_time
from mlsysim.units.registry import to_si
from mlsysim.walls.fleet.communication import DistributedModel

COLUMNS = ("section", "config", "metric", "median", "unit", "reps")

_CHIP = "H200"
_SERVED = {
    "llama3-8b": "Llama3_8B",
    "llama3.2-1b": "Llama3_2_1B",
    "llama3.2-3b": "Llama3_2_3B",
    "llama3-70b": "Llama3_70B",
    "llama3-70b-20L": "Llama3_70B",
}
_TRAINED = {"1b": "Llama3_2_1B", "3b": "Llama3_2_3B", "8b-8L": "Llama3_8B", "8b": "Llama3_8B"}
_VISION = {
    "resnet50": "ResNet50",
    "vit_b_16": "ViT_B_16",
    "mobilenet_v3_large": "MobileNetV3_Large",
    "efficientnet_b0": "EfficientNet_B0",
}
_SOFTWARE = {
    "graph_fused": "engine",
    "eager_fused": "engine_eager",
    "graph_torch": "plain_graph",
    "eager_torch": "plain",
    "graph": "torch_graph",
    "eager": "torch",
}
_WEIGHTS = {"bfloat16": "bf16", "float8_e4m3fn": "fp8"}
_AUTOGRAD = 10
"""Host operators of one attention core, forward and backward, under autograd."""
_ATTENTION = {"cudnn": "fused", "flash": "fa2"}
_DERIVED = ("rate", "bw", "mfu", "img_per_s", "tokens_per_s", "byte_rate", "flops_rate", "time_per_call")
_OBSERVED = (
    "info",
    "skip_mem",
    "oom",
    "sm_clock",
    "temp",
    "throttle_mask",
    "cuda_time",
    "mean_power_smi",
    "mem_reserved",
)


def read(row: Mapping[str, str]) -> list[Prediction]:
    """The time or the bytes of the row's configuration."""
    return predict_with(row, profile(Hardware.get(_CHIP)))


def predict_with(row: Mapping[str, str], shares: Profile) -> list[Prediction]:
    """The same with the constants of another profile."""
    metric, section = row["metric"], row["section"]
    if metric in _DERIVED:
        raise Excluded(f"{metric} follows from the time of the same configuration")
    if metric in _OBSERVED:
        raise Excluded(f"{metric} is an observation, not a quantity to predict")
    try:
        config = json.loads(row["config"])
        measured = float(row["median"])
    except ValueError:
        raise Skipped("the configuration or the value cannot be read") from None
    reader = _READERS.get(section)
    if reader is None:
        raise Skipped(f"{section} rows have no prediction")
    value, regime = reader(config, metric, Hardware.get(_CHIP), shares)
    own = shares.measured and shares.name == _CHIP
    return [Prediction(f"{section} {metric}", measured, value, regime, chip_measured=own)]


def _bandwidth(chip: HardwareNode) -> float:
    return to_si(chip.memory.bandwidth, "byte/s")


# --- kernels ------------------------------------------------------------------------------------------------------


def _gemm(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    form = FORMATS.get(c.get("dtype", ""))
    if form is None:
        raise Skipped(f"the number format {c.get('dtype')!r} is not known")
    m, n, k = c["M"], c["N"], c["K"]
    groups = c.get("B", 1)
    kernel = shares.product_for(form.precision)
    operations, moved = product_work(form, m, n, k)
    start, chain, _ = kernel.times
    seconds = gemm_time(
        groups * operations,
        groups * moved,
        0.0,
        arithmetic_peak(chip, form.arithmetic)[0] * kernel.rate_share,
        _bandwidth(chip),
        kernel.memory_share,
        1.0,
        start,
        k / REACH,
        chain,
        kernel.growth,
        kernel.corner,
    )
    return float(seconds), "kernel gemm"


def _ceiling(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    label = str(c["dtype"]).removesuffix("_fast")
    if label not in ("bf16", "fp16", "fp8", "tf32", "fp32"):
        raise Skipped(f"products in {c['dtype']} have no constants of their own")
    kernel = shares.product_for(label)
    share = kernel.rate_share
    if c["mode"] != "burst":
        share *= kernel.sustained or 1.0
    n = float(c["n"])
    start, chain, _ = kernel.times
    peak = arithmetic_peak(chip, label)[0] * share
    width = 4.0 if label in ("tf32", "fp32") else 1.0 if label == "fp8" else 2.0
    moved = 3 * width * n * n
    seconds = gemm_time(2 * n**3, moved, 0.0, peak, _bandwidth(chip), kernel.memory_share, 1.0, start, n / REACH, chain)
    return float(seconds), "kernel gemm"


def _attention(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    kernel = _ATTENTION.get(c["backend"])
    if kernel is None:
        raise Skipped(f"attention by {c['backend']!r} has no constants")
    a = shares.attention
    operations = 4.0 * c["B"] * c["H"] * c["S"] ** 2 * c["D"] * (0.5 if c["causal"] else 1.0)
    rate = arithmetic_peak(chip, "bf16")[0] * a.rate_share * a.kernel_rate(kernel)
    rate *= (min(c["D"], 128) / 128) ** a.head_exponent
    return float(attention_prefill_time(operations, c["S"], rate, a.ramp_tokens, a.times[0])), "kernel attention"


def _attention_both(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    forward, regime = _attention(c, metric, chip, shares)
    a = shares.attention
    start = a.times[0]
    device = forward + start + 2.5 * (forward - start) / a.backward_share
    return max(device, _AUTOGRAD * (software("torch").host or 0.0)), regime


def _decode_attention(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    if not str(c["path"]).startswith("triton"):
        raise Skipped(f"decode attention by {c['path']!r} has no constants")
    a = shares.attention
    moved = 4.0 * c["B"] * c["S"] * c["KV"] * c["D"]
    operations = 4.0 * c["B"] * c["S"] * c["H"] * c["D"]
    peak = arithmetic_peak(chip, "bf16")[0]
    seconds = attention_decode_time(
        moved, operations, peak, _bandwidth(chip), software("engine").cache_share or 1.0, a.times[1]
    )
    return float(seconds), "kernel attention"


def _memop(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    bound = shares.memory_bound
    if c["op"] == "adamw":
        if c["mode"] != "fused":
            raise Skipped("an unfused optimizer has no constants")
        share = bound.optimizer_share if c["dtype"] == "float32" else bound.optimizer_share_16bit
        return c["bytes"] / (share * _bandwidth(chip)), "kernel memory"
    known = bound.kernels.get(f"{c['op']}/{c['mode']}")
    if known is None:
        raise Skipped(f"{c['op']} in {c['mode']} mode has no constants of its own")
    return float(memory_bound_time(c["bytes"], _bandwidth(chip), known.share, to_si(known.start, "s"))), "kernel memory"


# --- whole passes -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _model(name: str, layers: int) -> TransformerWorkload:
    model = Models.get(name)
    assert isinstance(model, TransformerWorkload)
    return model if model.layers == layers else model.model_copy(update={"layers": layers, "parameters": None})


def _served(c: dict[str, Any], chip: HardwareNode, phase: str, shares: Profile) -> tuple[float, str]:
    name, weights, mode = _SERVED.get(c["model"]), _WEIGHTS.get(c["wdtype"]), _SOFTWARE.get(c["mode"])
    if name is None or weights is None or mode is None:
        raise Skipped(f"the model {c['model']!r}, the format {c['wdtype']!r} or the mode {c['mode']!r} is not known")
    length = c["ctx"] if phase == "decode" else c["S"]
    found = inference_time(
        _model(name, c["L"]),
        chip,
        phase,
        c["B"],
        None if phase == "decode" else length,
        length if phase == "decode" else 0,
        weights,
        "bf16",
        mode,
        _ATTENTION[c["attn"]] if "attn" in c else None,
        shares,
    )
    return found.total, found.regime


def _decode(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    return _served(c, chip, "decode", shares)


def _prefill(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    return _served(c, chip, "prefill", shares)


def _train(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    name = _TRAINED.get(c["model"])
    if name is None:
        raise Skipped(f"the model {c['model']!r} is not known")
    model = _model(name, c["L"])
    mixed = c["mode"] == "amp"
    if metric.startswith("mem"):
        found = training_peak(
            model, c["mb"], c["seq"], mixed=mixed, recompute=c["recompute"], compiled=bool(c["compile"])
        )
        assert found is not None
        values = {
            "mem_peak": found.peak,
            "mem_before": found.state,
            "mem_after_fwd": found.state + found.saved,
            "mem_after_zero": found.state,
            "mem_after_bwd": found.state + found.gradients,
            "mem_after_opt": found.state + found.gradients,
            "mem_peak_bwd": found.peak,
        }
        if metric not in values:
            raise Skipped(f"{metric} is not predicted")
        return values[metric], "memory training"
    return _step(model, c, metric, chip)


_STACKS = {("amp", False): "plain", ("bf16", False): "plain-16bit", ("amp", True): "plain-compiled"}
"""Software of our training runs, by mode and whether blocks were compiled."""


def _step(model: TransformerWorkload, c: dict[str, Any], metric: str, chip: HardwareNode) -> tuple[float, str]:
    """A step of a fleet of one, as its answer says it."""
    stack = _STACKS.get((c["mode"], bool(c["compile"])))
    if stack is None:
        raise Skipped(f"no stack is {c['mode']} and compiled")
    if metric not in ("time_step", "time_opt"):
        raise Skipped(f"{metric} is no part of an answer")
    node = Node(name=chip.name, accelerator=chip, accelerators_per_node=1, intra_node_bw="1 GB/s")
    fleet = Fleet(name=chip.name, node=node, count=1, fabric=Fabrics["Ethernet_100G"])
    step = DistributedModel().solve(
        model,
        fleet,
        c["mb"],
        "bf16",
        "calibrated",
        seq_len=c["seq"],
        activation_recomputation=c["recompute"],
        stack=stack,
    )
    assert step.ledger is not None
    seconds = step.ledger.seconds if metric == "time_step" else step.ledger.exposed("optimizer update")
    return float(seconds), "training dense" if metric == "time_step" else "training part opt"


def _train_memory(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    width = 4.0 if c["mode"] == "amp" else 2.0
    return c["params"] * width * (3.0 if metric == "mem_model_opt" else 1.0), "memory training"


def _vision(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    return _network(c, metric, chip, "graph" if c["mode"] == "graph" else "eager_nhwc", "fp16")


def _vision_train(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    return _network(c, metric, chip, "train_nhwc", "bf16")


def _network(c: dict[str, Any], metric: str, chip: HardwareNode, stack: str, precision: str) -> tuple[float, str]:
    name = _VISION.get(c["model"])
    if name is None or metric != "time":
        raise Skipped(f"{metric} of {c['model']!r} is not predicted")
    found = inventory_time(inventory_of(Models.get(name)), chip, c["B"], precision, stack)
    return float(found.total), regime_of(stack, chip, timed=True)


def _bert(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    found = inference_time(
        Models.get("BERT_Large"),
        chip,
        "prefill",
        c["B"],
        c["N"],
        precision="fp16",
        software_name=_SOFTWARE[c["mode"]],
        shares=shares,
    )
    return found.total, found.regime


def _convolution(c: dict[str, Any], metric: str, chip: HardwareNode, shares: Profile) -> tuple[float, str]:
    k = shares.convolution
    assert k is not None
    if c["groups"] > 1:
        return float(
            memory_bound_time(c["bytes"], _bandwidth(chip), k.depthwise_share, k.seconds)
        ), "kernel convolution"
    rate = arithmetic_peak(chip, "fp16")[0] * k.rate_share
    seconds = gemm_time(c["flops"], c["bytes"], 0.0, rate, _bandwidth(chip), k.memory_share, 1.0, k.seconds)
    return float(seconds), "kernel convolution"


_Reader = Callable[[dict[str, Any], str, HardwareNode, Profile], tuple[float, str]]
_READERS: dict[str, _Reader] = {
    "gemm": _gemm,
    "gemm_random": _gemm,
    "gemm_random2": _gemm,
    "gemm_sweep": _gemm,
    "bmm": _gemm,
    "gemm_ceiling": _ceiling,
    "attn_fwd": _attention,
    "attn_fwdbwd": _attention_both,
    "attn_decode": _decode_attention,
    "memop": _memop,
    "e2e_decode": _decode,
    "e2e_prefill": _prefill,
    "train": _train,
    "train_mem": _train_memory,
    "vision_inf": _vision,
    "vision_train": _vision_train,
    "bert_large": _bert,
    "conv": _convolution,
}
