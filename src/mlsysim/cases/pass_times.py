"""Calibrated times of one pass: the sum of its operators on measured silicon, by the form that is scored for its kind.

    language models, look-ups     operators of the lowered graph with the chip's profile     :mod:`mlsysim.timing.device_time`
    networks of fixed shape       classes of operators under a named runtime                 :mod:`mlsysim.timing.vision_time`
    denoisers                     products, attention and the rest at their own rates        :mod:`mlsysim.timing.diffusion_time`
    compiled engines              shares of the 8-bit peak by generation                     :mod:`mlsysim.timing.engine_rates`
    microcontrollers              cycles of a multiply-add                                   :mod:`mlsysim.timing.microcontroller`

No sum may beat the datasheet. What does not fit is streamed over the host link beside it. The band is that of the passes which
were measured for this form, and its words say whether this chip is among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.algebra import Algebra, ledger_of
from mlsysim.cases.assumptions import DEFAULT, INFERRED, SOFTWARE, Assumptions
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.one_pass import Device, Pass, Timed, Work, held_by, room
from mlsysim.errors import InputError
from mlsysim.hardware.profiles import Profile, profile
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.diffusion import DiffusionWorkload
from mlsysim.models.inventory import inventory_of
from mlsysim.models.recommendation import RecommendationWorkload
from mlsysim.models.vision import RowWorkload
from mlsysim.physics.power import utilised_power
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.device_time import check_known, inference_time, regime_of
from mlsysim.timing.diffusion_time import denoising_time, diffusion_time
from mlsysim.timing.engine_rates import engine_latency
from mlsysim.timing.microcontroller import Board, board_of_chip, microcontroller_pass
from mlsysim.timing.runtimes import DENOISING, ENGINE, Runtime, band_of, has_inventory, runtime_for
from mlsysim.timing.software_stacks import software
from mlsysim.timing.vision_time import inventory_time
from mlsysim.units.registry import to_si
from mlsysim.zoo.intervals import Interval, interval

__all__ = ["calibrated_pass", "joules_of", "profile_band", "refuse_runtime", "say_profile", "say_runtime", "timed_by"]

_BASIS = {"measured": "measured on this chip", "generation": "of its generation", "family": "of its family"}
_ENGINE_BYTES = 1


def calibrated_pass(
    question: Pass, work: Work, device: Device, chip: HardwareNode, runtime: str | None, assumed: Assumptions
) -> Timed:
    """A forward pass, calibrated."""
    assumed.pop("bandwidth_efficiency", None)
    target = _board(question, chip)
    if target is not None:
        return _on_board(question, work, device, chip, target, runtime, assumed)
    check_known(question.model, chip, question.precision)
    if has_inventory(question.model, chip) or runtime is not None:
        seconds, band, words = _by_runtime(question, chip, runtime, assumed)
    else:
        seconds, band, words = _by_operators(question, chip, assumed)
    assumed.say("interval", band.regime, INFERRED, words)
    held, _ = held_by(work, device)
    needed, capacity = room(work, device)
    linked = device.host_link == device.host_link
    spilled = work.moved * (1 - capacity / needed) if needed > capacity and linked else 0.0

    def case(a: Algebra) -> Any:
        # No calibrated sum may beat the datasheet.
        least = a.tag("arithmetic at the peak", 1, "peak", "T >= F / P", work.hardware_flops / device.peak)
        total = a.longest(seconds(a), least)
        if not spilled:
            return total
        over = spilled / device.host_link
        return total + a.tag("streamed from the host", 2, "host link", "T = S / L", over, moved=spilled)

    ledger = ledger_of(case, held, capacity)
    return timed_by(ledger, band, spilled, joules_of(ledger, chip, work, device))


def timed_by(ledger: Ledger, band: Interval, spilled: float, energy: float | None) -> Timed:
    """A calibrated answer, read off its ledger."""
    walls = ledger.walls()
    seconds = float(ledger.seconds)
    return Timed(
        seconds=seconds,
        compute=walls.get(1, 0.0),
        memory=walls.get(2, 0.0),
        overhead=sum(time for wall, time in walls.items() if wall not in (1, 2)),
        needed=ledger.memory,
        capacity=ledger.capacity,
        case=lambda: ledger,
        spilled=spilled,
        band=band.around(seconds),
        energy=energy,
    )


def joules_of(ledger: Ledger, chip: HardwareNode, work: Work, device: Device) -> float | None:
    """Energy of a pass from how busy arithmetic and memory are in it; None where the chip's power limit is not known."""
    if chip.tdp is None:
        return None
    seconds, p = ledger.seconds, profile(chip).power
    busy = min(work.hardware_flops / (seconds * device.peak), 1.0)
    moving = min(ledger.total("moved") / (seconds * device.bandwidth), 1.0)
    return float(utilised_power(to_si(chip.tdp, "W"), p.idle, p.arithmetic, p.memory, p.cap, busy, moving) * seconds)


# --- operators of a lowered graph -------------------------------------------------------------------------------------

_Form = Callable[[Algebra], Any]


def _by_operators(question: Pass, chip: HardwareNode, assumed: Assumptions) -> tuple[_Form, Interval, str]:
    shares, model = profile(chip), question.model
    chosen = software("torch_graph" if model.fixed_shape else "engine")

    def seconds(a: Algebra) -> Any:
        return inference_time(
            model,
            chip,
            question.phase,
            question.batch,
            question.new,
            question.context,
            question.precision,
            question.cache_precision,
            software_name=chosen.name,
            shares=shares,
            tag=a.tag,
        ).total

    say_profile(shares, assumed)
    assumed.say("software", chosen.name, SOFTWARE)
    return seconds, *profile_band(regime_of(model, question.phase, chosen), shares)


def say_profile(shares: Profile, assumed: Assumptions) -> None:
    """Note whose constants time the operators."""
    assumed["fidelity"] = f"calibrated: operator times with constants {_BASIS[shares.basis]}"
    assumed["profile"] = f"{shares.name} ({shares.basis})"


def profile_band(regime: str, shares: Profile) -> tuple[Interval, str]:
    """The band of a regime on a chip, and what it rests on, in words.

    Whole passes were measured on one chip. Another chip with measured kernels gets the band of that chip's passes when predicted
    with constants of other chips; a chip known by its class was validated on nothing.
    """
    band = interval(regime if shares.measured else "unvalidated", shares.passes_measured)
    if band.extrapolating:
        return band, f"extrapolating: {regime} was not validated on such a chip"
    if shares.passes_measured:
        return band, f"90 % of {band.rows} passes measured on this chip ({band.regime})"
    return (
        band,
        f"90 % of {band.rows} passes of another chip, predicted with constants that are not its own ({band.regime})",
    )


# --- named runtimes ---------------------------------------------------------------------------------------------------


def _by_runtime(
    question: Pass, chip: HardwareNode, name: str | None, assumed: Assumptions
) -> tuple[_Form, Interval, str]:
    model = question.model
    chosen, stack = runtime_for(model, question.phase, name)
    if not has_inventory(model, chip) and (stack != ENGINE or isinstance(model, RecommendationWorkload)):
        refuse_runtime(model, chip, name, "calibrated")
    say_runtime(chosen, name, assumed)
    band, words = band_of(stack, chip, question.batch)
    return _form(question, chip, stack), band, words


def say_runtime(chosen: Runtime, given: str | None, assumed: Assumptions) -> None:
    """Note the software, and that nobody asked for it where that is so."""
    assumed["fidelity"] = f"calibrated: classes of operators under {chosen.title}"
    if given is None:
        assumed.say("runtime", chosen.name, DEFAULT, f"{chosen.name}: {chosen.title}")


def _form(question: Pass, chip: HardwareNode, stack: str) -> _Form:
    model, batch, precision = question.model, question.batch, question.precision
    if stack == DENOISING:
        assert isinstance(model, DiffusionWorkload)
        if question.phase == "generate":
            return lambda a: diffusion_time(model, chip, batch, precision=precision, tag=a.tag)
        return lambda a: denoising_time(model, chip, batch, precision, tag=a.tag)
    inventory = inventory_of(model, None if model.fixed_shape else question.new)
    passes = model.passes_per_image if isinstance(model, DiffusionWorkload) and question.phase == "generate" else 1
    if stack == ENGINE:
        if bytes_per_element(precision) != _ENGINE_BYTES:
            raise InputError(
                f"TensorRT was measured with 8-bit arithmetic, not in {precision}; set the precision to int8 or fp8.",
                field="precision",
            )
        return lambda a: engine_latency(inventory, chip, batch, passes, tag=a.tag)
    return lambda a: passes * inventory_time(inventory, chip, batch, precision, stack, tag=a.tag).total


# --- microcontrollers -------------------------------------------------------------------------------------------------


def _board(question: Pass, chip: HardwareNode) -> Board | None:
    """The board whose cycles time the pass; None where the chip is not known by them, or the network not by its layers."""
    layers = isinstance(question.model, RowWorkload) and bool(question.model.rows) and question.phase == "inference"
    return board_of_chip(chip) if layers else None


def _on_board(
    question: Pass,
    work: Work,
    device: Device,
    chip: HardwareNode,
    target: Board,
    runtime: str | None,
    assumed: Assumptions,
) -> Timed:
    model = question.model
    assert isinstance(model, RowWorkload)
    found = microcontroller_pass(model, chip, target, question.batch, question.precision, runtime)
    for name, text in found.assumptions.items():
        assumed.say(name, found.regime if name == "interval" else text, INFERRED, text)
    held, _ = held_by(work, device)
    needed, capacity = room(work, device)
    if needed > capacity:
        assumed["spill"] = "times are given as if the model fitted"

    def case(a: Algebra) -> Any:
        flop, moved = work.hardware_flops, work.moved
        cycles = a.tag("multiply-adds", 1, "peak", "T = M / (r f)", found.time, flop=flop, moved=moved)
        least = a.tag("arithmetic at the peak", 1, "peak", "T >= F / P", work.hardware_flops / device.peak)
        return a.longest(cycles, least)

    ledger = ledger_of(case, held, capacity)
    return Timed(
        seconds=ledger.seconds,
        compute=ledger.seconds,
        memory=0.0,
        overhead=0.0,
        needed=needed,
        capacity=capacity,
        case=lambda: ledger,
        spilled=work.moved * (1 - capacity / needed) if needed > capacity else 0.0,
        band=(found.low, found.high),
        energy=found.energy,
        cycles={"macs": found.macs, "per_cycle": found.per_cycle, "clock": found.clock},
        source=found.source,
    )


def refuse_runtime(model: Workload, chip: HardwareNode, runtime: str | None, efficiency: Any) -> None:
    """One sentence where a runtime is named that changes nothing: at first order, and in the sum of a graph's operators."""
    if runtime is not None:
        raise InputError(
            f"The runtime {runtime!r} is known for calibrated passes of networks of fixed shape, which {model.name} on "
            f"{chip.name} with efficiency={efficiency!r} is not; leave it out.",
            field="runtime",
        )
