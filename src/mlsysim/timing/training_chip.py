"""What a chip and its cluster bring to a training step: sustained rates, bandwidths of rings and adapters, link domain.

Rates are those of the chip's profile under the software ``training`` (``data/software/training.toml``). Network adapters
and link domain are facts of a cluster: the values here are those of the usual system and can be replaced.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import HALF, bytes_per_element, compute_precision, format_of, recipe_of, recipes
from mlsysim.systems.types import Fleet
from mlsysim.timing.collectives import Measured, collective_constants, measured_network
from mlsysim.timing.engines import strangeness
from mlsysim.timing.kernels import Products, Profile
from mlsysim.timing.network import wide_area
from mlsysim.timing.profile import constants_from, profile, software_file
from mlsysim.timing.sustained import measured_attention, peak_rate, product_rate
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_, to_si


@dataclass(frozen=True, slots=True)
class Constants:
    """What a step does on every chip: bytes, operations and launches, counted or fitted; ``data/software/training.toml``."""

    gradient_traffic: float
    attention_backward_work: float
    unfused_forward_bytes: float
    unfused_backward_bytes: float
    block_scale_cost: float
    optimizer_bytes: float
    permute_passes: float
    exchange_share: float
    overlapped_exchange: float
    moe_operations: float
    dense_operations: float
    expert_activation_bytes: float
    ungated_activation_bytes: float
    scale_loss: float
    state_bytes_reserve: float
    usable_memory: float
    host_update_share: float


@dataclass(frozen=True, slots=True)
class TrainingChip:
    """Rates in flop/s, bandwidths in byte/s. ``kernels`` is the chip's profile in training, ``product`` its part at the precision; ``unseen`` what is
    not known of it where no run was on it (:func:`mlsysim.timing.engines.strangeness`)."""

    name: str
    half_rate: float
    product_rate: float
    product_bytes: float
    converts: float
    attention_rate: float
    bandwidth: float
    network: Measured
    kernels: Profile
    product: Products
    unseen: str = "chip"

    @property
    def wide(self) -> TrainingChip:
        """The same where products compute in 16 bits; wider ones stay as they are."""
        if self.product_bytes >= HALF:
            return self
        half = self.kernels.gemm_for("bf16")
        return replace(self, product_rate=self.half_rate, product_bytes=HALF, converts=0.0, product=half)

    @property
    def bits(self) -> str:
        """What products compute in."""
        return f"{8 * self.product_bytes:g} bits"

    @property
    def element(self) -> float:
        """Bytes of an activation, and of what is sent of it: 16 bits, or those of a wider format."""
        return max(self.product_bytes, HALF)

    @property
    def full_rate(self) -> float:
        """The rate of products that no recipe narrows."""
        return self.product_rate if self.product_bytes > HALF else self.half_rate

    def measured(self, stack: str) -> bool:
        """Whether runs of this stack were measured on the chip, or on one that is built like it."""
        return self.kernels.passes_measured and stack in self.kernels.stacks


_SI = {"state_bytes_reserve": "byte"}


@cache
def constants() -> Constants:
    """The constants of every run."""
    table = {name: entry["value"] for name, entry in software_file("training")["constants"].items()}
    return Constants(**{name: to_si(Q_(table[name]), _SI[name]) if name in _SI else table[name] for name in table})


def training_chip(
    chip: HardwareNode,
    precision: str,
    *,
    adapter: float | None = None,
    domain: int | None = None,
    link: float | None = None,
    stack: str = "",
) -> TrainingChip:
    """Constants of a chip at a precision (fp16, bf16, fp8, mxfp8, nvfp4, tf32, fp32), in a cluster with these facts.

    ``adapter`` is byte/s of network per accelerator, ``link`` byte/s inside the link domain, one direction.
    """
    k, own = constants(), profile(chip, "training")
    recipe = recipe_of(precision, stack)
    wanted = compute_precision(precision)
    if wanted == "fp16":
        wanted = "bf16"
    half = product_rate(chip, "bf16")
    product = half if wanted == "bf16" else product_rate(chip, wanted)
    attention = measured_attention(chip)
    if attention is None:
        attention = peak_rate(chip, "bf16") * own.rate_scale * own.attention.rate_share
    if format_of(wanted).wide:
        # Kernels of attention were measured in 16 bits; others are taken to reach the same share of their peak.
        attention = attention * peak_rate(chip, wanted) / peak_rate(chip, "bf16")
    return TrainingChip(
        name=chip.name,
        half_rate=half,
        product_rate=product,
        product_bytes=bytes_per_element(wanted),
        converts=recipe.narrow * (k.block_scale_cost if recipe.conversion == "block" else 1.0),
        attention_rate=attention,
        bandwidth=to_si(chip.memory.bandwidth, "byte/s"),
        network=_network(chip, own, k, adapter, domain, link),
        kernels=own,
        product=own.gemm_for(wanted),
        unseen=strangeness(chip),
    )


def _network(
    chip: HardwareNode, own: Profile, k: Constants, adapter: float | None, domain: int | None, link: float | None
) -> Measured:
    """The links of the chip and the adapter of its usual cluster, where the caller has no others."""
    links = own.links
    assert links is not None
    if link is None:
        link = to_si(own.collective.unlinked if chip.link is None else chip.link.bandwidth_per_direction, "byte/s")
    if domain is None:
        # Of a chip that was measured the usual system is known; another is as it says.
        domain = (chip.link.domain if chip.link is not None and not own.passes_measured else None) or links.domain
    network = adapter if adapter is not None else (to_si(links.adapter, "byte/s") or link)
    return measured_network(
        chip,
        domain,
        link=link,
        fabric=network * collective_constants()["fabric"]["share"],
        hop=to_si(own.collective.fabric_start, "s"),
        dispatch=k.exchange_share,
    )


_NODE = 8
"""Chips of the usual node; a larger link domain is a rack of them."""


def _format(precision: str) -> str:
    found = "bf16" if precision == "fp16" or format_of(precision).weight_only else precision
    if found not in ("bf16", "tf32", "fp32") and not recipe_of(found).narrow:
        known = ", ".join(
            (
                "bf16",
                "fp16",
                *(name for each in recipes().values() for name in each.formats if not each.stack),
                "tf32",
                "fp32",
            )
        )
        text = f"a calibrated training step knows {known} and adapters on weight-only formats, not {precision}."
        raise InputError(text, field="precision")
    return found


def lone_chip(hardware: HardwareNode, precision: str) -> TrainingChip:
    """The chip's constants alone."""
    return training_chip(hardware, _format(precision))


def rated(chip: HardwareNode) -> tuple[HardwareNode, float | None]:
    """The chip with the power limit that its rates in training were measured at, and its own limit in watts where that is lower."""
    full = profile(chip, "training").power.full
    if chip.tdp is None or full is None or constants_from(chip) is not chip or not chip.tdp < full:
        return chip, None
    return chip.model_copy(update={"tdp": full}), to_si(chip.tdp, "W")


def chip_in_fleet(fleet: Fleet, precision: str, fabric: Any, stack: str = "") -> TrainingChip:
    """The chip's constants in this fleet, under a software: ``fabric`` byte/s of network for each, its link domain."""
    hardware = fleet.node.accelerator
    precision = _format(precision)
    link, domain = hardware.link, fleet.node.accelerators_per_node
    if link is not None and link.domain is not None and link.domain > max(domain, _NODE):
        domain = link.domain
    inside = to_si(fleet.node.intra_node_bw, "byte/s") / 2
    found = training_chip(hardware, precision, adapter=fabric, domain=domain, link=inside, stack=stack)
    return replace(found, network=replace(found.network, **wide_area(fleet)))
