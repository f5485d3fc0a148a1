"""Calibrated fidelity for compiled inference engines: throughput of a network at large batches, and its latency at small ones.

    t = ( F_conv/(a P) + F_gemm/(b P) + F_att/(c P16) + d B/W ) / clock      for each sample, offline
    latency of k samples = kernels x start + weights/W + k t

P is the dense 8-bit peak, P16 the 16-bit peak, B the bytes of products, norms and attention (batch norms are folded away). The
shares are those of the chip's profile under TensorRT (``data/software/runtimes.toml``). Under a latency bound with
random arrivals (the MLPerf server scenario) an engine keeps a share of its offline throughput.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import Inventory
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.kernels import Profile
from mlsysim.timing.operator_times import started
from mlsysim.timing.profile import profile
from mlsysim.timing.tags import Tag, untagged
from mlsysim.timing.vision_time import clock_of, first_peak
from mlsysim.units.registry import to_si

_CONV = ("conv", "pointwise", "grouped", "depthwise")
_FUSED_AWAY = ("batch_norm", "relu", "softmax", "copy", "elementwise")


def engine_features(inventory: Inventory, chip: HardwareNode) -> dict[str, float]:
    """Seconds of each term for one sample, at a share of one and at the datasheet's clock."""
    narrow = first_peak(chip, "int8", "fp8", "bf16", "fp16")
    if narrow is None:
        raise InputError(f"{chip.name} states no 8-bit or 16-bit rate.")
    wide = first_peak(chip, "bf16", "fp16") or narrow / 2
    normed = inventory.elements.get("layer_norm", 0.0) + inventory.elements.get("group_norm", 0.0) > 0
    moved = sum(n for name, n in inventory.elements.items() if name not in _FUSED_AWAY) if normed else 0.0
    return {
        "conv": sum(inventory.operations.get(c, 0.0) for c in _CONV) / narrow,
        "gemm": inventory.operations.get("gemm", 0.0) / narrow,
        "attention": inventory.operations.get("attention", 0.0) / wide,
        "bytes": bytes_per_element("fp16") * moved / to_si(chip.memory.bandwidth, "byte/s"),
    }


def engine_profile(chip: HardwareNode) -> Profile:
    """What kernels of TensorRT reach on a chip."""
    return profile(chip, "runtimes.tensorrt")


def engine_time(inventory: Inventory, chip: HardwareNode, passes: float = 1.0, tag: Tag = untagged) -> Any:
    """Seconds for one sample offline; ``passes`` evaluations of the network make a sample."""
    own, features = engine_profile(chip), engine_features(inventory, chip)
    assert own.convolution is not None
    work = {
        "conv": ("convolutions", own.convolution.rate_share, _CONV),
        "gemm": ("products", own.gemm_for("int8").rate_share, ("gemm",)),
        "attention": ("attention", own.attention.rate_share, ("attention",)),
    }
    arithmetic = sum(
        tag(
            *(name, 1, "peak", "t = F / (a P)", features[term] / share / clock_of(chip)),
            flop=sum(inventory.operations.get(kind, 0.0) for kind in kinds),
        )
        for term, (name, share, kinds) in work.items()
    )
    moving = own.memory_bound.traffic * features["bytes"] / clock_of(chip)
    between = tag("norms and activations", 2, "bandwidth", "t = d B / W", moving)
    return passes * (arithmetic + between)


def operator_kernels(inventory: Inventory) -> float:
    """Kernels after fusion: products and attention; everything else is folded into them."""
    return sum(inventory.calls.get(name, 0.0) for name in (*_CONV, "gemm")) + inventory.calls.get("attention", 0.0) / 2


def engine_latency(
    inventory: Inventory, chip: HardwareNode, samples: float = 1.0, passes: float = 1.0, tag: Tag = untagged
) -> Any:
    """Seconds of one query of ``samples`` samples."""
    start = operator_kernels(inventory) * started(engine_profile(chip).memory_bound.times[0], tag)
    size = inventory.parameters * bytes_per_element("int8")
    weights = tag("weights", 2, "bandwidth", "t = w / W", size / to_si(chip.memory.bandwidth, "byte/s"), moved=size)
    return passes * (start + weights) + samples * engine_time(inventory, chip, passes, tag)
