"""What the explorer asks for "what could I run it on?": the chips to try, and one row for each, so that rows come one by one."""

from __future__ import annotations

from typing import Any

from mlsysim.labs.explorer import Document, plan_of
from mlsysim.labs.rpc import offer
from mlsysim.plans.machines import Machine, chips_for, machine_for

_COLUMNS = ("time", "price", "carbon")
_WORDS = {"holds": "holds", "open": "close", "fails": "misses", "none": "no"}


@offer
def machines(plan: Document) -> Document:
    """The chips to ask for, and what is left out."""
    given = plan_of(plan)
    chips = chips_for(given)
    which = "those with memory of its size" if given.kind == "inference" else "those that fleets are mostly made of"
    left = (
        f"{len(chips)} chips were tried: this plan's own and {which}, each alone, with a layout searched for it. "
        "Not tried: the other chips in the menu, and mixed fleets."
    )
    return {"chips": list(chips), "left_out": left}


@offer
def machine(plan: Document, chip: str) -> Document:
    """One row: so many of a chip, whether that does, how fast, at what price and with how much carbon, and the plan of it."""
    found = machine_for(plan_of(plan), chip)
    row: Document = {"chip": found.chip, "name": found.name, "count": found.count, "state": found.state}
    row |= {"word": _word(found), "reason": found.reason, "plan": None, "says": ""}
    if found.answer is None:
        return row
    columns = {name: _cell(found, name) for name in _COLUMNS}
    spare = found.spare
    room = None if spare is None else {"value": -spare, "text": f"{spare:.0%}", "label": "Memory to spare"}
    says = found.answer.ruling.claim
    return row | columns | {"room": room, "plan": found.answer.plan.document(), "says": says}


def _word(found: Machine) -> str:
    if found.answer is not None and not found.answer.feasible:
        return "slow" if found.answer.overloaded else "too big"
    return _WORDS[found.state]


def _cell(found: Machine, name: str) -> Any:
    metric = found.metric(name)
    if metric is None:
        return None
    number = metric.value.to_base_units().magnitude if hasattr(metric.value, "to_base_units") else metric.value
    return {"value": float(number), "text": metric.text, "label": metric.label}
