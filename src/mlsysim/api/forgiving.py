"""Requests in other words than ours, as programs that read only the name of a tool write them.

Fields of a request answer to other names, kinds and targets too (``said.toml``); a fleet may be a chip and a number, a plan a text
(``Llama3_8B@H100``, ``scenario:NAME``), several values a text with commas. What was meant is beyond doubt in each, so that it is taken; everything else
is refused with a sentence as before.
"""

from __future__ import annotations

import json
from typing import Any

from mlsysim.api.requests import file
from mlsysim.errors import InputError
from mlsysim.plans.plan import Plan
from mlsysim.plans.schema import key_named
from mlsysim.vocabulary import plain
from mlsysim.zoo.files import example, examples, is_example

_ENDINGS = {"ms": "ms", "us": "us", "s": "s", "sec": "s", "seconds": "s", "hours": "h", "days": "day", "gb": "GB"}
"""Units that people put at the end of a name: ``ttft_ms``."""
_WRAPPED = ("arguments", "params", "parameters", "input", "request", "kwargs")


def understood(operation: str, document: dict[str, Any]) -> dict[str, Any]:
    """A request in our words; what is not known stays as it is."""
    table = file("said.toml")
    rest = document.keys() - {"detail"}
    if len(rest) == 1 and rest <= {*_WRAPPED} and isinstance(inner := document[min(rest)], dict):
        document = {**{name: value for name, value in document.items() if name == "detail"}, **inner}
    own = {other: name for name, others in table["fields"].get(operation, {}).items() for other in others}
    found: dict[str, Any] = {}
    for name, value in document.items():
        meant = own.get(plain(str(name)), name)
        found[name if meant in document else meant] = value
    for name, values in table["values"].get(operation, {}).items():
        said = found.get(name)
        if isinstance(said, str):
            found[name] = next((word for word, others in values.items() if plain(said) in others), said)
    if operation in table["without_a_plan"]:
        return _listed(found) if operation == "zoo" else found
    for name in ("plan", "first", "second"):
        if isinstance(found.get(name), dict):
            found[name] = _settings(found[name])
        elif isinstance(found.get(name), str):
            found[name] = _written(found[name])
    found = _settings(found)
    return _ASKED[operation](found) if operation in _ASKED else found


def _written(text: str) -> Any:
    """The plan that a text names; a text that names none as it is."""
    if is_example(text, "scenario"):
        return examples("scenario")[example(text, "scenario").stem]
    model, mark, on = text.rpartition("@") if "@" in text else text.rpartition(" on ")
    return {"model": model.strip(), "on": on.strip()} if mark else text


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Keys of a plan: a chip and a number as a fleet, a unit at the end of a name beside its value, other names."""
    table = file("said.toml")
    found = {table["keys"].get(plain(str(name)), name): value for name, value in given.items()}
    if len(found) != len(given):
        return given
    hardware = found.get("hardware")
    held = hardware if isinstance(hardware, dict) else found
    fleet = _fleet(held, table["fleet"])
    if fleet is not None:
        names = {plain(each) for each in (*table["fleet"]["number"], *table["fleet"]["chip"])}
        rest = {name: value for name, value in held.items() if plain(str(name)) not in names}
        found = {**found, "hardware": {**rest, "on": fleet}} if held is hardware else {**rest, "on": fleet}
    if (dimensions := _described(found.get("model"), table)) is not None:
        found |= {"model": "own", "workload": {"dimensions": dimensions}}
    known = Plan.leaves()
    for name, value in [*found.items()]:
        base, _, ending = plain(str(name)).rpartition("_")
        key = key_named(base, known) if ending in _ENDINGS and key_named(str(name), known) is None else None
        plain_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if key is not None and plain_number and known[key].quantity is not None and base not in found:
            found = {base if each == name else each: kept for each, kept in found.items()}
            found[base] = f"{value} {_ENDINGS[ending]}"
    return found


def _fleet(held: dict[str, Any], words: dict[str, list[str]]) -> str | None:
    """The fleet that a chip and a number are, or a number that is a fleet itself; None where it is written as one, or not at all."""
    by_name = {plain(str(name)): value for name, value in held.items()}
    numbers = [by_name[name] for name in words["number"] if name in by_name]
    chips = [by_name[name] for name in words["chip"] if isinstance(by_name.get(name), str)]
    whole = len(numbers) == 1 and str(numbers[0]).strip().isdigit()
    if len(numbers) == 1 and not whole and not chips and isinstance(numbers[0], str):
        return numbers[0]
    if whole and len(chips) == 1 and chips[0][:1].isalpha():
        return f"{numbers[0]}x{chips[0]}"
    return chips[0] if not numbers and len(chips) == 1 and not {"on", "hardware"} & by_name.keys() else None


def _listed(found: dict[str, Any]) -> dict[str, Any]:
    """A filter that is one word is a part of a name."""
    word = found.get("filter")
    if isinstance(word, str) and word.replace("_", "").replace("-", "").isalnum() and "name" not in found:
        return {name: value for name, value in found.items() if name != "filter"} | {"name": word}
    return found


def _compared(found: dict[str, Any]) -> dict[str, Any]:
    """One key at two values is two plans."""
    if not {"first", "second", "plans"} & found.keys():
        several = [name for name, value in found.items() if isinstance(value, list) and len(value) == 2]
        if len(several) == 1:
            name = several[0]
            first, second = ({name: value} for value in found.pop(name))
            return {**found, "first": first, "second": second}
    return found


def _optimized(found: dict[str, Any]) -> dict[str, Any]:
    """What is to be best, told by what else is said."""
    if "what" not in found:
        ways = {"space": ("space",), "placement": ("carbon_tax", "objective", "regions"), "batching": ("sla", "qps")}
        told = next((what for what, names in ways.items() if {*names} & found.keys()), None)
        held = found.get("plan")
        task = found.get("task") or (held.get("task") if isinstance(held, dict) else None)
        found["what"] = told or ("batching" if task == "serving" else "parallelism")
    return found


def _varied(found: dict[str, Any]) -> dict[str, Any]:
    """A key and its values, beside each other or as text, as what a sweep varies."""
    if {"parameter", "values"} <= found.keys():
        found["over"] = {str(found.pop("parameter")): found.pop("values")}
    over = found.get("over")
    if isinstance(over, dict):
        split = {name: [e.strip() for e in v.split(",")] if isinstance(v, str) else v for name, v in over.items()}
        found["over"] = split
    return found


def _goal(found: dict[str, Any]) -> dict[str, Any]:
    """A training run of so many days has them for a deadline."""
    if "tokens" in found and not {"deadline", "qps"} & found.keys() and "days" in found:
        found["deadline"] = f"{found.pop('days')} day"
    return found


_ASKED = {"compare": _compared, "optimize": _optimized, "sweep": _varied, "plan": _goal}


def _described(model: Any, table: dict[str, Any]) -> dict[str, Any] | None:
    """The dimensions that the configuration of a dense transformer has, where it stands in the place of a name, as a table or as text."""
    if isinstance(model, str) and model.lstrip().startswith("{"):
        try:
            model = json.loads(model)
        except ValueError:
            return None
    if not isinstance(model, dict) or not {*table["dimensions"]} & model.keys():
        return None
    if other := next((name for name in model if any(word in str(name) for word in table["not_dense"])), None):
        raise InputError(
            f"A configuration with {other[:60]!r} is more than the dimensions of a dense transformer; give the name of a model of the zoo.",
            field="model",
        )
    gated = "silu" in str(model.get("hidden_act") or "silu") or str(model.get("model_type")).startswith("gemma")
    named = table["dimensions"].items()
    return {own: model[name] for name, own in named if model.get(name) is not None} | {"gated_ffn": gated}
