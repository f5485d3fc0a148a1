"""Calibrated fidelity for convolutional networks and vision transformers: a pass as a sum over classes of operators.

    device = sum_c a_c F_c / P + sum_c b_c B_c / W_e + b_w (weights / W) + n t_k
    t = | device, n h |_p                                        h what the host (or the graph) needs to start one operator

F operations of class c at the tensor peak P (depthwise convolutions at the vector peak V), B bytes at the bandwidth W_e that
elementwise kernels reach (:func:`mlsysim.physics.vision.elementwise_bandwidth`). The coefficients belong to a named software
stack (``data/vision.toml``: eager or compiled, memory layout, inference or training), not to a chip: fitted on two chips
they carry over to others. Terms add up; one maximum over a whole network is worse. Where a card's power limit is low for its
rate, the clock falls and with it P and V.

On a CPU the same sum holds in single precision, with a latency for each operator that grows with the number of cores.
Left out: how a kernel's efficiency depends on its own shape (6 % in the median, and 25 % for one network in ten), image
decoding and copies to the device.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import Inventory, inventory_of
from mlsysim.physics.precision import bytes_per_element, compute_precision
from mlsysim.physics.vision import clock_share, elementwise_bandwidth, overlapped_time
from mlsysim.units.registry import Q_, to_si

__all__ = [
    "CPU_TERMS",
    "TERMS",
    "VisionTime",
    "clock_of",
    "constants",
    "cpu_features",
    "gpu_features",
    "inventory_time",
    "stack_constants",
    "stack_of",
    "vision_time",
]

TENSOR = {"conv": ("conv",), "dense": ("pointwise", "gemm"), "attention": ("attention",), "grouped": ("grouped",)}
MOVED = (
    "conv",
    "pointwise",
    "gemm",
    "attention",
    "softmax",
    "depthwise",
    "grouped",
    "batch_norm",
    "relu",
    "activation",
    "elementwise",
    "layer_norm",
    "group_norm",
    "copy",
    "reduction",
)
TERMS = (
    *(f"{name}_operations" for name in TENSOR),
    "depthwise_operations",
    *(f"{name}_bytes" for name in MOVED),
    "weights",
    "kernels",
)
CPU_TERMS = (
    "conv_operations",
    "pointwise_operations",
    "gemm_operations",
    "attention_operations",
    "grouped_operations",
    "depthwise_operations",
    "weights",
    "product_bytes",
    "depthwise_bytes",
    "elementwise_bytes",
    "norm_bytes",
    "copy_bytes",
    "conv_calls",
    "gemm_calls",
    "elementwise_calls",
    "copy_calls",
)
_PRECISIONS = {"amp": "fp16", "mixed": "fp16"}
_MICROSECOND = 1e-6


@cache
def constants() -> dict[str, Any]:
    """The tables of ``data/vision.toml`` and ``data/vision_engines.toml``."""
    folder = files("mlsysim.data")
    tables: dict[str, Any] = {}
    for name in ("vision.toml", "vision_engines.toml"):
        tables.update(tomllib.loads(folder.joinpath(name).read_text(encoding="utf-8")))
    return tables


@dataclass(frozen=True, slots=True)
class VisionTime:
    """Seconds of one pass over a batch, and where they go."""

    total: float
    device: float
    host: float
    parts: dict[str, float]
    stack: str
    aggregate: bool


def clock_of(chip: HardwareNode) -> float:
    """Clock under the card's power limit over that of its datasheet; 1 where the generation's usual limit is not known."""
    limits = constants()["power_limit"]
    usual = limits["usual"].get((chip.generation or "").replace(" ", "_"))
    if usual is None or chip.tdp is None:
        return 1.0
    vector = _vector_rate(chip)
    return float(clock_share(to_si(chip.tdp, "W"), vector, to_si(Q_(usual), "J/flop"), limits["exponent"]))


def _vector_rate(chip: HardwareNode) -> float:
    if chip.compute.supports("fp32"):
        return to_si(chip.compute.peak("fp32"), "flop/s")
    raise InputError(f"{chip.name} states no fp32 rate, which the times of elementwise kernels need.")


def _arithmetic(precision: str) -> str:
    return _PRECISIONS.get(precision) or compute_precision(precision)


def gpu_features(
    inventory: Inventory,
    chip: HardwareNode,
    batch: float,
    precision: str,
    intensity: float,
    clock: float | None = None,
) -> dict[str, float]:
    """Seconds of each term for one sample, at a coefficient of one."""
    width = bytes_per_element("fp32" if precision in ("tf32", "fp32") else _arithmetic(precision))
    wanted = _arithmetic(precision)
    if not chip.compute.supports(wanted) and wanted in ("tf32", "fp16", "bf16"):
        wanted = "fp32" if wanted == "tf32" else "fp16" if chip.compute.supports("fp16") else "bf16"
    clock = clock_of(chip) if clock is None else clock
    peak = to_si(chip.compute.peak(wanted), "flop/s") * clock
    vector = _vector_rate(chip) * clock
    memory = to_si(chip.memory.bandwidth, "byte/s")
    effective = elementwise_bandwidth(memory, vector, intensity)
    if inventory.aggregate:
        return {
            "total_operations": inventory.operations["total"] / peak,
            "total_bytes": width * inventory.elements["total"] / effective,
        }
    features = {
        f"{name}_operations": sum(inventory.operations.get(c, 0.0) for c in classes) / peak
        for name, classes in TENSOR.items()
    }
    features["depthwise_operations"] = inventory.operations.get("depthwise", 0.0) / vector
    for name in MOVED:
        features[f"{name}_bytes"] = width * inventory.elements.get(name, 0.0) / effective
    # Autocast reads each single-precision weight and writes its half-precision copy once a pass.
    features["weights"] = (width + 4) * inventory.parameters / memory / batch
    features["kernels"] = inventory.kernels * _MICROSECOND / batch
    return features


def cpu_features(inventory: Inventory, chip: HardwareNode, batch: float) -> dict[str, float]:
    """Seconds of each term for one sample on a CPU in single precision, at a coefficient of one."""
    peak, memory = _vector_rate(chip), to_si(chip.memory.bandwidth, "byte/s")
    width = bytes_per_element("fp32")
    if inventory.aggregate:
        return {
            "total_operations": inventory.operations["total"] / peak,
            "total_bytes": width * inventory.elements["total"] / memory,
            "total_weights": width * inventory.parameters / memory / batch,
        }

    def moved(*classes: str) -> float:
        return width * sum(inventory.elements.get(c, 0.0) for c in classes) / memory

    def calls(*classes: str) -> float:
        return _MICROSECOND * sum(inventory.calls.get(c, 0.0) for c in classes) / batch

    names = ("conv", "pointwise", "gemm", "attention", "grouped", "depthwise")
    return {
        **{f"{name}_operations": inventory.operations.get(name, 0.0) / peak for name in names},
        "weights": width * inventory.parameters / memory / batch,
        "product_bytes": moved("conv", "pointwise", "gemm", "attention", "softmax", "grouped"),
        "depthwise_bytes": moved("depthwise"),
        "elementwise_bytes": moved("batch_norm", "relu", "activation", "elementwise", "reduction", "softmax"),
        "norm_bytes": moved("layer_norm", "group_norm"),
        "copy_bytes": moved("copy"),
        "conv_calls": calls("conv", "pointwise", "grouped", "depthwise"),
        "gemm_calls": calls("gemm", "attention"),
        "elementwise_calls": calls(
            "elementwise", "activation", "reduction", "layer_norm", "group_norm", "softmax", "batch_norm", "relu"
        ),
        "copy_calls": calls("copy"),
    }


def stack_of(compiler: str, layout: str | None, training: bool) -> str:
    """The named stack for a way to run a network; ``compiler`` is eager, graph (eager kernels in a CUDA graph) or compiled."""
    how = {
        "eager": "eager",
        "": "eager",
        "graph": "graph",
        "dynamo": "compiled",
        "inductor": "compiled",
        "compiled": "compiled",
    }
    if compiler not in how:
        raise unknown_name("compiler", compiler, how)
    if layout not in (None, "", "nchw", "nhwc"):
        raise unknown_name("memory layout", layout, ("nchw", "nhwc"))
    if training:
        return f"train_{layout or 'nchw'}"
    if how[compiler] != "eager":
        return how[compiler]
    return f"eager_{layout or 'nchw'}"


def _combine(coefficients: Mapping[str, float], features: Mapping[str, float], batch: float) -> dict[str, float]:
    return {name: coefficients[name] * value * batch for name, value in features.items()}


def stack_constants(stack: str) -> tuple[dict[str, float], float]:
    """Coefficients of a named stack and its host cost of one operator (s)."""
    tables = constants()
    if stack in tables["stacks"]:
        return tables["stacks"][stack], tables["launch_us"][stack] * _MICROSECOND
    if stack not in tables["derived"]:
        raise unknown_name("software stack", stack, [*tables["stacks"], *tables["derived"]])
    derived = tables["derived"][stack]
    scale = derived.get("scale", {})
    coefficients = {name: value * scale.get(name, 1.0) for name, value in tables["stacks"][derived["like"]].items()}
    return coefficients, derived["launch_us"] * _MICROSECOND


def inventory_time(
    inventory: Inventory,
    chip: HardwareNode,
    batch: float,
    precision: str,
    stack: str,
    launch: float | None = None,
) -> VisionTime:
    """Seconds of one pass over a batch on a GPU or a CPU, run by a named stack; ``launch`` overrides its host cost (s)."""
    tables = constants()
    if chip.family == "cpu":
        cpu = tables["cpu"]
        if _arithmetic(precision) != "fp32":
            raise InputError(f"times of vision networks on {chip.name} are calibrated in fp32, not {precision}.")
        if stack.startswith("train"):
            raise InputError(f"training of vision networks is not calibrated on {chip.name}.")
        scales = cpu["classes"].get(chip.metadata.key, cpu["classes"]["default"])
        parts = _combine(cpu, cpu_features(inventory, chip, batch), batch)
        parts = {name: seconds * scales[_cpu_kind(name)] for name, seconds in parts.items()}
        device = sum(parts.values())
        return VisionTime(device, device, 0.0, parts, "compiled", inventory.aggregate)
    table, usual = stack_constants(stack)
    intensity = tables["elementwise"]["intensity"]
    parts = _combine(table, gpu_features(inventory, chip, batch, precision, intensity), batch)
    cost = usual if launch is None else launch
    device, host = sum(parts.values()), inventory.kernels * cost
    total = overlapped_time(device, host, tables["launch"]["sharpness"]) if host else device
    return VisionTime(float(total), device, host, parts, stack, inventory.aggregate)


def _cpu_kind(term: str) -> str:
    return "latency" if term.endswith("_calls") else "arithmetic" if term.endswith("_operations") else "memory"


def vision_time(
    model: Any,
    chip: HardwareNode,
    batch_size: float,
    precision: str = "fp16",
    compiler: str = "eager",
    training: bool = False,
    layout: str | None = None,
) -> float:
    """Seconds of one pass (or training step) of a network of the zoo over a batch of samples."""
    stack = stack_of(compiler, layout, training)
    return inventory_time(inventory_of(model), chip, batch_size, precision, stack).total
