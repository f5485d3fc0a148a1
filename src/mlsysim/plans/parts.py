"""What an answer shows of a ledger: parts of the time, the memory bar, shares of walls, the roofline, and what binds."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from mlsysim.cases.ledger import Ledger
from mlsysim.cases.run_ledger import FRAGILITY, run_binding
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.plans.pieces import Limit, MemoryBar, Part
from mlsysim.units.registry import to_si
from mlsysim.vocabulary import worded
from mlsysim.walls.binding import AS_IF, NAMES, NEGLIGIBLE, RESOURCES, Binding, bound_text, lead, share_text
from mlsysim.walls.binding import MEMORY as MEMORY_WALL
from mlsysim.walls.catalog import TITLES

if TYPE_CHECKING:
    from mlsysim.cases.goodput import Goodput

MEMORY = "memory"
"""The limit that stops a plan which does not fit."""

_ASPECTS = {"": "lost"} | {name: told["aspect"] for name, told in RESOURCES.items() if "aspect" in told}
_SMALL = 1e-3


def time_parts(ledger: Ledger) -> tuple[Part, ...]:
    """Parts of the critical path, which add up to the time.

    A name with several resources says which; parts below a thousandth of the time are shown together, wall by wall.
    """
    small = _SMALL * ledger.seconds
    shown = {(part.label, part.resource) for part in ledger.parts if part.exposed > small}
    resources = Counter(label for label, _ in shown)
    lines: dict[tuple[str, int], float] = {}
    for part in (part for part in ledger.parts if part.exposed > 0):
        label = part.label
        if part.exposed <= small:
            label = f"small parts of {NAMES[part.wall].lower()}"
        elif resources[label] > 1:
            label = f"{label} ({_ASPECTS.get(part.resource, part.resource)})"
        lines[label, part.wall] = lines.get((label, part.wall), 0.0) + float(part.exposed)
    return tuple(Part(label=label, value=value, wall=wall) for (label, wall), value in lines.items())


def run_parts(kept: Goodput, seconds: float, share: float = 1.0) -> tuple[Part, ...]:
    """All seconds of a run: useful work first, then what failures and checkpoints take, largest first; of one that stands still in some
    hours a ``share`` is at full rate."""
    lost = {
        "restarts": kept.restarts,
        "work done again": kept.rework,
        "checkpoint writes": kept.writes,
        "waiting for repairs": kept.waiting,
    }
    taken = {name: float(each) * seconds * share for name, each in lost.items()} | {"pauses": seconds * (1 - share)}
    named = [("useful work", float(kept.ratio) * seconds * share), *sorted(taken.items(), key=lambda each: -each[1])]
    return tuple(Part(label=label, value=value, wall=FRAGILITY) for label, value in named if value > 0)


def memory_bar(ledger: Ledger) -> MemoryBar:
    """What fills the device; it adds up to the memory that is needed."""
    held = [each for each in ledger.held if each.where == "device" and each.bytes > 0]
    parts = tuple(Part(label=each.name, value=float(each.bytes), wall=2) for each in held)
    return MemoryBar(capacity=float(ledger.capacity), parts=parts)


def memory_facts(chip: HardwareNode, capacity: float) -> dict[str, Any]:
    """The memory of a chip's datasheet, and what its driver offers of it where an answer counts on more."""
    stated = to_si(chip.memory.capacity, "byte")
    return {"memory_stated": chip.memory.capacity, "memory_offered": capacity / stated if capacity > stated else None}


def roof_point(ledger: Ledger, chip: HardwareNode, precision: str, label: str) -> tuple[dict[str, Any], ...]:
    """The operations and bytes of a ledger under the chip's roof, over the time that the device is busy with them.

    What waits for the network or for others is left out, so that the point shows the device. Its time is at least what arithmetic,
    traffic and software have of the critical path, and at least the longer of the first two, hidden or not, with the third: the
    larger of both. Nothing where the ledger has no operations or no bytes.
    """
    flop, moved = ledger.total("flop"), ledger.total("moved")
    exposed, hidden = ledger.walls("exposed"), ledger.walls("hidden")
    arithmetic, traffic, software = (exposed.get(wall, 0.0) + hidden.get(wall, 0.0) for wall in (1, 2, 3))
    busy = max(max(arithmetic, traffic) + software, math.fsum(exposed.get(wall, 0.0) for wall in (1, 2, 3)))
    if not flop or not moved or not busy:
        return ()
    return (
        {
            "label": label,
            "chip": chip.name,
            "precision": precision,
            "peak_flops": arithmetic_peak(chip, precision)[0],
            "bandwidth": to_si(chip.memory.bandwidth, "byte/s"),
            "intensity": float(flop / moved),
            "achieved": float(flop / busy),
        },
    )


def binding_of(ledger: Ledger, noun: str, kept: Goodput | None = None) -> Limit:
    """The wall with most of the critical path; goodput where failures cost a run more than any wall of its step."""
    wall, _, margin = lead(ledger)
    if kept is not None and run_binding(ledger, kept) == FRAGILITY:
        name, _ = TITLES[FRAGILITY]
        lost = f"failures and checkpoints take {min(float(kept.waste), 1.0):.1%} of the run"
        more = (
            f"more than any wall of the {noun}"
            if kept.lasting
            else "and no run of this kind ends in ten times its work"
        )
        sentence = f"Wall {FRAGILITY} ({name}) binds: {lost}, {more}."
        return Limit(wall=FRAGILITY, name=name, limit="goodput", sentence=sentence)
    sentence = f"Wall {wall} ({NAMES[wall]}) binds: {bound_text(ledger, wall, noun)}."
    return Limit(wall=wall, name=NAMES[wall], margin=margin, sentence=sentence)


def too_full(binding: Binding) -> Limit:
    """The limit of what does not fit, as a resolver says it; where that gives times as if it fitted, a plan gives none."""
    return Limit(**binding.to_dict() | {"sentence": binding.sentence.removesuffix(AS_IF)}, limit=MEMORY)


def unfit(binding: Binding) -> str:
    """The headline of what does not fit: what is needed, what there is, and the smallest change that helps."""
    return worded("Does not fit: ", binding.sentence.removeprefix(MEMORY_WALL))


def next_wall(ledger: Ledger, binding: Limit, noun: str) -> Limit | None:
    """The wall with most of the time beside the one that binds; where no other has any, the one that hides most behind it."""

    def largest(kind: str) -> tuple[int, float]:
        return next((each for each in ledger.walls(kind).items() if each[0] != binding.wall), (0, 0.0))

    wall, seconds = largest("exposed")
    if seconds > NEGLIGIBLE * ledger.seconds:
        text = share_text(ledger, wall, noun)
    else:
        wall, seconds = largest("hidden")
        # What would not show in a digit is no wall that comes next.
        seconds = seconds if seconds > NEGLIGIBLE * ledger.seconds else 0.0
        text = f"hidden now, {seconds / ledger.seconds:.1%} as long as the {noun}"
    return Limit(wall=wall, name=NAMES[wall], sentence=f"Wall {wall} ({NAMES[wall]}): {text}.") if seconds > 0 else None
