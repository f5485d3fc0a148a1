"""What the cheapest change is chosen from: a change as a plan, and those that several tasks try."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mlsysim.physics.precision import format_of
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.units.registry import to_si

WORTH_IT = 0.02
"""What helps enough to be said."""
NODE = 8
"""Accelerators of a node, of a fleet that has not one whole."""
CAVEAT = " (check the accuracy)"
EIGHTHS = (10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256)
"""Eighths of a fleet that more accelerators are, so that batches divide by them."""


class Candidate(NamedTuple):
    """A change: what it is in words (of the answer that it gives, where that chooses something), and the plan so. One that is ``risky``
    may cost what no number here says."""

    words: str | Callable[[Answer], str]
    plan: Plan
    risky: bool = False


Rounds = Iterator[list[Candidate]]
Holds = Callable[[Plan], bool]


def degrees(layout: dict[str, Any]) -> str:
    """Degrees as people write them, such as TP4 PP2 DP64."""
    widths = [(name, layout.get(name) or 1) for name in ("tp", "pp", "cp", "ep", "dp")]
    return " ".join(f"{name.upper()}{width}" for name, width in widths if width > 1 or name == "tp")


def fewest(counts: list[int], holds: Callable[[int], bool]) -> int | None:
    """The least of some numbers with which all holds, if it does with all that are larger."""
    return next(iter(counts[bisect_left(counts, True, key=holds) :]), None)


def narrower(plan: Plan, answer: Answer, what: str, formats: tuple[str, ...]) -> Iterator[Candidate]:
    """The first of some formats that all chips compute in, for a plan in sixteen bits; sixteen bits for one in more."""
    used = answer.precision
    if format_of(used).wide:
        formats = "bf16", "fp16"
    elif used not in ("bf16", "fp16"):
        return
    have = [fleet.node.accelerator.compute.precision_flops for fleet in find_fleets(plan.hardware).fleets]
    name = next((name for name in formats if all(name in each for each in have)), None)
    if name is not None:
        yield Candidate(f"{what} in {name}{CAVEAT}", plan.replacing(workload={"precision": name}), True)


_CAP = 0.75


def capped(plan: Plan, answer: Answer) -> Iterator[Candidate]:
    """A lower power limit, where electricity is so much of what is paid that it could matter."""
    held, tdp = answer.held, find_fleets(plan.hardware).fleets[0].node.accelerator.tdp
    if plan.hardware.power_cap is not None or tdp is None or answer.paid is not held.get("tco"):
        return
    if "electricity" in held and held["electricity"].value * (1 - _CAP) > held["tco"].value * WORTH_IT:
        watts = round(to_si(tdp, "W") * _CAP)
        yield Candidate(f"a power limit of {watts:,} W", plan.replacing(hardware={"power_cap": f"{watts} W"}))


SUCCESSORS = {
    "A100": ("H100", "H200"),
    "H100": ("H200", "B200"),
    "H200": ("B200",),
    "B200": ("B300",),
    "V100": ("A100", "H100"),
}


def other_chips(plan: Plan) -> Iterator[Candidate]:
    """The same number of the next generation of a family of data-centre GPUs."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key = fleet.node.accelerator.metadata.key or ""
    for name in SUCCESSORS.get(key.split("_")[0], ()) if plan.hardware.chip is None else ():
        on = {"on": f"{fleet.total_accelerators}x{name}", "fabric": None}
        yield Candidate(f"{name} instead of {spoken(key)}", plan.replacing(hardware=on))


def spoken(key: str) -> str:
    """A chip as people write it, which every command reads too: RTX_4090 is RTX 4090."""
    return key.replace("_", " ")


def fleet_of(plan: Plan, count: int) -> dict[str, Any]:
    """The hardware of a plan with another number of accelerators."""
    fleet = find_fleets(plan.hardware).fleets[0]
    key, fabric = fleet.node.accelerator.metadata.key, fleet.fabric.metadata.key
    joined = f"@{fabric}" if fleet.count > 1 and fabric and count > fleet.node.accelerators_per_node else ""
    return {"on": f"{count}x{key}{joined}", "fabric": None}


def instead(plan: Plan, count: int, beside: str = "") -> str:
    """Another number of accelerators in words."""
    fleet = find_fleets(plan.hardware).fleets[0]
    chip = fleet.node.accelerator.metadata.key or ""
    return f"{count:,} x {spoken(chip)}{beside} instead of {fleet.total_accelerators:,}"


def more(plan: Plan, asked: float = 1.0, eighths: tuple[int, ...] = (16, 32, 64)) -> Iterator[Candidate]:
    """Some times as many, at least ``asked``; and, for a rate, as few as might do, in whole nodes beyond one."""
    fleet = find_fleets(plan.hardware).fleets[0]
    total, node = fleet.total_accelerators, max(fleet.node.accelerators_per_node, NODE)
    counts = {total * each // 8 for each in eighths if each >= 8 * asked and total * each % 8 == 0}
    counts = {count for count in counts if count < node or count % node == 0 or count % total == 0}
    if eighths is EIGHTHS:
        counts = set(sorted(counts)[:4]) | {total * 8}
    elif asked > 1:
        step = 1 if total * asked < NODE else node
        least = math.ceil(total * asked / step) * step
        counts |= {least, least + step}
    if fleet.node.accelerator.metadata.key and plan.hardware.chip is None:
        for count in sorted(counts):
            yield Candidate(instead(plan, count), plan.replacing(hardware=fleet_of(plan, count)))
