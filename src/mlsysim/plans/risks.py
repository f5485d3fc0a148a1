"""What would change the answer: failures at another rate, steps of production, how far it may be off, figures of the hardware.

Each sentence names an input that the answer rests on and is least sure of, or moves most with, and by how much.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlsysim.cases.failures import interruption_rate
from mlsysim.plans.answer import Answer
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.ruling import LOST
from mlsysim.plans.sensitivities import HARDWARE
from mlsysim.units.registry import to_si
from mlsysim.units.text import compact_time, listed

_MOVES = 0.005
"""What 10 % of a figure must do to the main metric to be named."""


def risks_of(answer: Answer) -> tuple[str, ...]:
    """The sentences, of what runs."""
    return tuple(_risks(answer)) if answer.runs else ()


def _risks(answer: Answer) -> Iterator[str]:
    yield from _failures(answer)
    yield from _interval(answer)
    if (steps := answer.assumptions.get("run")) is not None:
        yield f"The run: {steps}."
    if answer.feasible:
        yield from _figures(answer)
    yield from answer.warnings


def _failures(answer: Answer) -> Iterator[str]:
    """What the rates of other fleets would leave of a run."""
    held = answer.held
    if "goodput" not in held or "mtbf" not in held or held["goodput"].value > 1 - LOST:
        return
    chips = (fleet.node.accelerator for fleet in find_fleets(answer.plan.hardware).fleets)
    rests = listed(dict.fromkeys(interruption_rate(chip).basis for chip in chips))
    known = f" ({rests})" if "mtbf" in answer.assumptions else ""
    others = held["goodput"].interval
    differ = f"; fleets differ, and nine times in ten it is {others}" if others else ""
    yield f"The failure rate: with one every {compact_time(to_si(held['mtbf'].value, 's'))}{known} goodput is {held['goodput'].text}{differ}."


def _interval(answer: Answer) -> Iterator[str]:
    """How far the time that matters may be off, and what that rests on."""
    if not answer.interval:
        return
    names = ("run_time", "tokens", answer.main, "latency")
    told = next((answer.held[name] for name in names if name in answer.held and answer.held[name].interval), None)
    range_ = "" if told is None else f"{told.label}: {told.text}, nine times in ten {told.interval}. "
    yield f"{range_}{answer.interval}"


def _figures(answer: Answer) -> Iterator[str]:
    """The figure of the hardware that the main metric moves most with, and whether memory is just enough."""
    sides = answer.sensitivities
    moved = [(abs(less), name, less) for name, (less, _) in sides.items() if less is not None]
    if moved:
        size, name, less = max(moved)
        if size >= _MOVES:
            label = answer.metric(answer.main).label
            moves = f"10 % less of it than assumed changes {label[:1].lower()}{label[1:]} by {less:+.1%}"
            yield f"{HARDWARE[name]}: {moves}; no other figure of the hardware matters more."
    if sides.get("memory_capacity", (0.0,))[0] is None:
        yield "Memory is just enough: with 10 % less of it the plan does not fit."
