"""What an answer rests on, by where each value comes from: given in the plan, searched, of the software, of the chip, of the checkpoint, inferred, or assumed."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.assumptions import CHECKPOINT, CHIP, DEFAULT, INFERRED, SOFTWARE, Assumption
from mlsysim.plans.answer import Answer
from mlsysim.units.text import number

GIVEN, SEARCHED = "given", "searched"
_WORDS = {DEFAULT: "assumed", SOFTWARE: "engine", CHIP: "chip", CHECKPOINT: "checkpoint", INFERRED: "inferred"}
_ORDER = (GIVEN, SEARCHED, "engine", "chip", "checkpoint", "inferred", "assumed")
_FIRST = (
    *("layout", "precision", "cache_precision", "node", "fabric", "stack", "engine", "framework"),
    *("runtime", "clients", "recipe", "fidelity", "extrapolating", "interval", "unit_cost", "kwh_price"),
    *("pue", "mtbf", "duration", "power"),
)
"""What a reader wants to know first of what was not given."""
_UNTOLD = ("name", "description", "task", "constraints")


def origins(answer: Answer) -> list[dict[str, Any]]:
    """Chips: the origin in a word, a name, the text, and whether it is one of those that a reader wants to know first."""
    leaves = _leaves({name: part for name, part in answer.plan.document().items() if name not in _UNTOLD})
    given = [_chip(GIVEN, path, _text(value), True) for path, value in leaves]
    given += [_chip(GIVEN, "limit", check.asked, True) for check in answer.checks if check.asked]
    found = [_chip(_origin(each), each.name, each.text, each.name in _FIRST) for each in answer.assumed]
    return sorted([*given, *found], key=lambda chip: _ORDER.index(chip["origin"]))


def _chip(origin: str, name: str, text: str, first: bool) -> dict[str, Any]:
    return {"origin": origin, "name": name.rpartition(".")[2].replace("_", " "), "text": text, "first": first}


def _origin(each: Assumption) -> str:
    return SEARCHED if each.name == "layout" and "tried" in each.text else _WORDS[each.origin]


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"magnitude", "unit"}:
        return number(value["magnitude"], value["unit"])
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _leaves(part: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(part, dict) and set(part) != {"magnitude", "unit"}:
        return [leaf for name, each in part.items() for leaf in _leaves(each, f"{path}.{name}" if path else name)]
    if isinstance(part, list):
        return [leaf for each in part for leaf in _leaves(each, path)]
    return [(path, part)]
