"""``efficiency="calibrated"`` in :class:`DistributedModel`: from its inputs to a calibrated step, and back to its terms.

Software is a named stack; what the caller does not state (ZeRO stage, sequence parallelism, what overlaps) is the stack's.
Network adapter and link come from the fleet, the power cap from the caller; the rest from the chip's constants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.cases.calibrated_step import CalibratedStep, Job, calibrated_step
from mlsysim.cases.layout import Layout
from mlsysim.cases.step import StepTerms
from mlsysim.errors import InputError
from mlsysim.models.training_shape import training_shape
from mlsysim.systems.types import Fleet
from mlsysim.timing.stacks import Stack, stack
from mlsysim.timing.training_chip import TrainingChip, constants, training_chip
from mlsysim.units.registry import to_si

__all__ = ["adopt_stack", "calibrated_terms", "chip_of_fleet", "forget"]

_FORMATS = {"fp4": "nvfp4", "nvfp4": "nvfp4", "mxfp4": "nvfp4", "fp16": "bf16"}
_RACK = 8


def adopt_stack(x: Any, assumed: dict[str, str]) -> Stack:
    """The stack of the inputs; settings that the caller left out become the stack's, and say so."""
    software = stack(x.stack)
    settings: dict[str, Any] = {
        "zero_stage": software.zero,
        "sequence_parallel": software.sequence_parallel,
        "overlap_comm": software.data_overlap,
        "overlap_tp": 1 - software.tensor_exposed,
        "overlap_ep": 1 - software.exchange_exposed,
    }
    for name, value in settings.items():
        if name in assumed:
            setattr(x, name, value)
            shown = ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"
            assumed[name] = f"{shown} (stack {software.name})"
    for name in ("overlap_efficiency", "overlap_cp", "overlap_pp"):
        assumed.pop(name, None)
    x.overlap_pp = 1.0
    assumed["stack"] = f"{software.name}: {software.title} ({software.year})"
    return software


def chip_of_fleet(x: Any, share: float, assumed: dict[str, str]) -> TrainingChip:
    """The chip's constants in this fleet: its network, its link domain, a power cap, and the given slow-downs.

    The slow-downs may be arrays. Without arrays what was found is kept, as a search of layouts asks for the same chip
    thousands of times.
    """
    fleet, hardware = x.fleet, x.fleet.node.accelerator
    precision = _FORMATS.get(x.precision, x.precision)
    if precision not in ("bf16", "fp8", "nvfp4", "tf32", "fp32"):
        raise InputError(
            f"a calibrated training step knows bf16, fp16, fp8, nvfp4, tf32 and fp32, not {x.precision}.",
            field="precision",
        )
    given = (share, x.congestion_factor, x.power_cap, x.straggler_factor)
    if all(value is None or isinstance(value, (int, float)) for value in given):
        found = _kept(fleet, precision, given)
    else:
        found = _chip(fleet, precision, *given)
    if not found.measured:
        assumed["extrapolating"] = f"{hardware.name} has no measured training constants; those of its class are used"
    return found


# Fleets are told apart by identity, and held here so that none takes the identity of one that is gone.
_CHIPS: dict[tuple[Any, ...], tuple[Fleet, TrainingChip]] = {}
_KEPT = 64


def _kept(fleet: Fleet, precision: str, given: tuple[Any, ...]) -> TrainingChip:
    key = (id(fleet), precision, *given)
    found = _CHIPS.get(key)
    if found is None or found[0] is not fleet:
        if len(_CHIPS) >= _KEPT:
            _CHIPS.clear()
        found = _CHIPS[key] = (fleet, _chip(fleet, precision, *given))
    return found[1]


def forget() -> None:
    """Drop the chips that are kept, after a change of tables (fits)."""
    _CHIPS.clear()


def _chip(fleet: Fleet, precision: str, share: Any, congestion: Any, power_cap: Any, slow: Any) -> TrainingChip:
    hardware = fleet.node.accelerator
    link = hardware.link
    domain = fleet.node.accelerators_per_node
    if link is not None and link.domain is not None and link.domain > max(domain, _RACK):
        domain = link.domain
    found = training_chip(
        hardware,
        precision,
        adapter=to_si(fleet.bandwidth_per_accelerator, "byte/s") * share / congestion,
        power_cap=power_cap,
        domain=domain,
    )
    if link is not None:
        # A node with less (or more) of the link than the chip's own keeps the same share of it.
        ratio = to_si(fleet.node.intra_node_bw, "byte/s") / 2 / to_si(link.bandwidth_per_direction, "byte/s")
        found = replace(found, ring=found.ring * ratio, all_reduce=found.all_reduce * ratio)
    return replace(
        found,
        half_rate=found.half_rate / slow,
        product_rate=found.product_rate / slow,
        attention_rate=found.attention_rate / slow,
        bandwidth=found.bandwidth / slow,
    )


def calibrated_terms(
    x: Any, layout: Layout, software: Stack, share: float, imbalance: float, assumed: dict[str, str]
) -> tuple[StepTerms, CalibratedStep]:
    """The terms of a step as :class:`StepTerms` has them, and the calibrated step behind them.

    Degrees, sizes and factors may be arrays; the ZeRO stage and the recomputation mode are one for all points.

    Micro-steps of gradient accumulation are more micro-batches of the same step; the terms are those of one micro-step.
    """
    steps = x.gradient_accumulation_steps
    mode = x.activation_recomputation
    if mode == "selective" and software.recompute in ("half", "modules"):
        mode = software.recompute
    job = Job(
        seq_len=x.seq_len,
        micro_batch=layout.micro_batch,
        micro_batches=layout.micro_batches * steps,
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        dp=layout.dp,
        virtual_stages=layout.virtual_stages,
        zero=x.zero_stage,
        recompute=mode,
        frozen=x.is_lora,
        sequence_parallel=x.sequence_parallel,
        tensor_exposed=1 - x.overlap_tp,
        exchange_exposed=1 - x.overlap_ep,
        imbalance=imbalance,
    )
    chip = chip_of_fleet(x, share, assumed)
    timed = calibrated_step(training_shape(x.model), chip, software, job, constants())
    exposed = timed.scale * timed.exposed_data
    terms = StepTerms(
        compute=timed.compute / steps,
        tensor=timed.tensor / steps,
        expert=timed.expert / steps,
        context=0.0,
        pipeline=timed.pipeline / steps,
        data=timed.data,
        exposed_data=exposed,
        exposed_context=0.0,
        bubble=timed.bubble / steps,
        step=(timed.step - exposed) / steps + exposed,
    )
    return terms, timed
