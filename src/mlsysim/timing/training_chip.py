"""What a chip and its cluster bring to a training step: sustained rates, bandwidths of rings and adapters, link domain.

Rates come from ``data/training.toml`` where it has the chip, else from the chip's efficiency profile. Network adapters,
power cap and link domain are facts of a cluster: the values here are those of the usual system and can be replaced.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.profiles import profile
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import bytes_per_element
from mlsysim.physics.training_step import capped_rate
from mlsysim.systems.types import Fleet
from mlsysim.timing.network import Pipelined
from mlsysim.units.registry import to_si

__all__ = ["Constants", "TrainingChip", "chip_in_fleet", "constants", "lone_chip", "training_chip"]

_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants that hold for every run; see ``data/training.toml``."""

    gemm_memory_share: float
    gradient_traffic: float
    attention_start: float
    attention_backward_rate: float
    attention_backward_work: float
    flash1_rate: float
    fp8_attention_gain: float
    unfused_rate: float
    unfused_forward_bytes: float
    unfused_backward_bytes: float
    quantise_share: float
    block_scale_cost: float
    optimizer_bytes: float
    optimizer_share: float
    moe_rate: float
    moe_share: float
    permute_passes: float
    exchange_share: float
    overlapped_exchange: float
    adapter_share: float
    hop_latency: float
    host_operation: float
    moe_operations: float
    expert_operations: float
    dense_operations: float
    expert_activation_bytes: float
    ungated_activation_bytes: float
    scale_loss: float
    scan_rate: float
    power_floor: float
    power_exponent: float
    state_bytes_reserve: float
    usable_memory: float


@dataclass(frozen=True, slots=True)
class TrainingChip:
    """Rates in flop/s, bandwidths in byte/s, times in seconds."""

    name: str
    measured: bool
    half_rate: float
    product_rate: float
    product_bytes: float
    converts: float
    product_start: float
    light_start: float
    attention_rate: float
    attention_ramp: float
    flash2: float
    bandwidth: float
    capacity: float
    network: Pipelined


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("mlsysim.data").joinpath("training.toml").read_text(encoding="utf-8"))


@cache
def constants() -> Constants:
    """The constants of every run."""
    return Constants(**{name: entry["value"] for name, entry in _file()["constants"].items()})


def _table(name: str) -> dict[str, Any]:
    own = dict(_file()["chips"][name])
    parent = own.pop("like", None)
    return {**_table(parent), **own} if parent else own


@cache
def _entry(key: str | None, family: str | None) -> tuple[dict[str, Any], bool]:
    chips = _file()["chips"]
    if key is not None and key in chips:
        return _table(key), True
    return _table("tpu" if family == "tpu" else "any"), False


PRODUCT_FORMATS = {"bf16": ("bf16", 0.0), "fp8": ("fp8", 1.0), "mxfp8": ("fp8", -1.0), "nvfp4": ("fp4", 1.0)}
"""Formats of products: the arithmetic, and what converting an input costs (0 nothing, 1 plain, -1 block scales)."""


def training_chip(
    chip: HardwareNode,
    precision: str,
    *,
    adapter: float | None = None,
    power_cap: float | None = None,
    domain: int | None = None,
    ring: float | None = None,
) -> TrainingChip:
    """Constants of a chip at a precision (fp16, bf16, fp8, mxfp8, nvfp4, tf32, fp32), in a cluster with these facts.

    ``adapter`` is byte/s of network per accelerator, ``power_cap`` in watts, ``ring`` byte/s inside the link domain.
    """
    entry, known = _entry(chip.metadata.key, chip.family)
    k = constants()
    shares = profile(chip)
    wanted, conversion = PRODUCT_FORMATS.get(precision, (precision, 0.0))
    if wanted == "fp16":
        wanted = "bf16"
    faster, wider = _against_zoo(chip) if known else (1.0, 1.0)
    half = _rate(chip, entry, shares, "bf16", faster)
    product = half if wanted == "bf16" else _rate(chip, entry, shares, wanted, faster)
    found = entry.get("attention")
    attention = found["rate"] * _TERA * faster if found else _peak(chip, "bf16") * shares.attention.rate_share
    ramp = found["ramp"] if found else shares.attention.ramp_tokens
    tdp = to_si(chip.tdp, "W") if chip.tdp is not None else None
    full = entry.get("full_power", tdp)
    cap = power_cap if power_cap is not None else tdp
    if cap is not None and full is not None and cap < full:
        if cap <= k.power_floor:
            raise InputError(
                f"{cap:g} W for each {chip.name} leaves nothing for arithmetic; more than {k.power_floor:g} W is expected.",
                field="power_cap",
            )
        factor = capped_rate(1.0, cap, full, k.power_floor, k.power_exponent)
        half, product, attention = half * factor, product * factor, attention * factor
    link = to_si(chip.link.bandwidth_per_direction, "byte/s") if chip.link is not None else None
    direct = (
        ring
        if ring is not None
        else entry["ring"] * _GIGA * wider
        if "ring" in entry
        else (link or 32 * _GIGA) * entry["ring_share"]
    )
    reduce = (
        entry["all_reduce"] * _GIGA * wider
        if "all_reduce" in entry
        else direct * entry["all_reduce_share"] / entry["ring_share"]
    )
    network = adapter if adapter is not None else (entry["adapter"] * _GIGA or direct)
    size = (
        domain
        if domain is not None
        else entry["domain"]
        if known
        else (chip.link.domain if chip.link is not None and chip.link.domain else entry["domain"])
    )
    return TrainingChip(
        name=chip.name,
        measured=known and entry.get("measured", True),
        half_rate=half,
        product_rate=product,
        product_bytes=bytes_per_element(wanted),
        converts=0.0 if not conversion else (k.block_scale_cost if conversion < 0 else 1.0),
        product_start=entry["start"] if "start" in entry else to_si(shares.gemm_for(wanted).start, "s"),
        light_start=shares.memory_bound.times[0],
        attention_rate=attention,
        attention_ramp=ramp,
        flash2=entry["flash2"],
        bandwidth=to_si(chip.memory.bandwidth, "byte/s"),
        capacity=to_si(chip.memory.capacity, "byte"),
        network=Pipelined(
            link=direct,
            link_latency=entry["latency"],
            fabric=network * k.adapter_share,
            fabric_latency=k.hop_latency,
            domain=size,
            reduce=reduce,
            exchange_rate=direct * k.exchange_share,
        ),
    )


_FORMATS = {"fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "nvfp4", "fp16": "bf16"}
_KNOWN = ("bf16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32")
_NODE = 8
"""Chips of the usual node; a larger link domain is a rack of them."""


def _format(precision: str) -> str:
    found = _FORMATS.get(precision, precision)
    if found not in _KNOWN:
        raise InputError(
            f"a calibrated training step knows bf16, fp16, fp8, mxfp8, nvfp4, tf32 and fp32, not {precision}.",
            field="precision",
        )
    return found


def lone_chip(hardware: HardwareNode, precision: str) -> TrainingChip:
    """The chip's constants alone."""
    return training_chip(hardware, _format(precision))


def chip_in_fleet(fleet: Fleet, precision: str, fabric: Any, power_cap: float | None = None) -> TrainingChip:
    """The chip's constants in this fleet: ``fabric`` byte/s of network for each, its link domain, a power cap."""
    hardware = fleet.node.accelerator
    precision = _format(precision)
    link, domain = hardware.link, fleet.node.accelerators_per_node
    if link is not None and link.domain is not None and link.domain > max(domain, _NODE):
        domain = link.domain
    found = training_chip(hardware, precision, adapter=fabric, power_cap=power_cap, domain=domain)
    if link is None:
        return found
    # A node with less (or more) of the link than the chip's own keeps the same share of it.
    ratio = to_si(fleet.node.intra_node_bw, "byte/s") / 2 / to_si(link.bandwidth_per_direction, "byte/s")
    net = found.network
    scaled = replace(net, link=net.link * ratio, reduce=net.reduce * ratio, exchange_rate=net.exchange_rate * ratio)
    return replace(found, network=scaled)


def _against_zoo(chip: HardwareNode) -> tuple[float, float]:
    """Peak and link of a chip over those of the zoo's entry of its name.

    Measured rates belong to the chip as it is sold; of a hypothetical one with other figures they keep their share.
    """
    key = chip.metadata.key
    if key is None or key not in Hardware:
        return 1.0, 1.0
    sold = Hardware.get(key)
    if sold is chip:
        return 1.0, 1.0
    rate = to_si(chip.compute.peak_flops, "flop/s") / to_si(sold.compute.peak_flops, "flop/s")
    if chip.link is None or sold.link is None:
        return rate, 1.0
    link = to_si(chip.link.bandwidth_per_direction, "byte/s")
    return rate, link / to_si(sold.link.bandwidth_per_direction, "byte/s")


def _peak(chip: HardwareNode, precision: str) -> float:
    name = precision if chip.compute.supports(precision) else chip.compute.headline
    return float(arithmetic_peak(chip, name)[0])


def _rate(chip: HardwareNode, entry: dict[str, Any], shares: Any, precision: str, faster: float) -> float:
    """The rate that long products sustain at a precision; ``faster`` is the chip's peak over that of the measured one."""
    gemm = shares.gemm_for(precision)
    sustained = float(entry.get("sustained", gemm.sustained))
    given = entry.get("products", {})
    if precision in given:
        return float(given[precision] * _TERA * faster * sustained)
    if precision != "bf16" and not chip.compute.supports(precision):
        raise InputError(f"{chip.name} has no {precision} arithmetic.", field="precision")
    return float(_peak(chip, precision) * gemm.rate_share * sustained)
