"""What a model reads of the operations before it asks: which to choose, what it takes, and examples.

Texts are short, because all of them are read before anything is asked. They say the same as those of the HTTP face, without what a model does
not need: titles, nulls where a field may be left out, the object form of quantities, bounds that no sensible value meets. Of the keys of a plan
those that people set are described, where they first stand; the others are named.
"""

from __future__ import annotations

import json
from typing import Any

from mlsysim.api.requests import FlatRequest, PlanRequest, file
from mlsysim.api.service import Operation
from mlsysim.plans.plan import Plan
from mlsysim.plans.schema import COMMON, SAID

_TOLD = file("description.toml")["tools"]
INSTRUCTIONS: str = _TOLD["instructions"]
_KINDS: dict[str, Any] = _TOLD["kinds"]
"""Records that a tool need not spell out."""
_LEFT_OUT = (
    *("title", "default", "x-unit", "maxLength", "minLength", "maxItems", "minItems", "examples"),
    *("minimum", "maximum", "exclusiveMinimum", "additionalProperties", "maxProperties", "minProperties", "pattern"),
)
_EXAMPLES = 2
"""Of a tool, at most."""
_SAID_ELSEWHERE = ("layout", "name", "description", "mode")


def described(operation: Operation) -> str:
    """The text of a tool: what it answers, its further keys, and examples."""
    shown = [f"{words}: {json.dumps(value, separators=(',', ':'))}" for words, value in operation.examples.items()]
    return "\n".join([operation.summary, *_further(operation), "Examples:", *shown[:_EXAMPLES]])


def _common(operation: Operation) -> list[str] | None:
    """The keys of a plan that a tool describes; None where it takes a plan whole."""
    request = operation.request
    task = request.task if issubclass(request, FlatRequest) else "plan" if request is PlanRequest else None
    return None if task is None else COMMON[task]


def _further(operation: Operation) -> list[str]:
    known = _common(operation)
    if known is None:
        return []
    if not issubclass(operation.request, FlatRequest):
        return ["And every key of `train` or `serve`."]
    if operation.name == "rl":
        return []
    leaves = [leaf for leaf in Plan.leaves().values() if operation.request.task in leaf.tasks]
    rest = [each.flat for each in leaves if each.flat not in (*known, *_SAID_ELSEWHERE) and each.key not in SAID]
    return [f"Further keys (`schema` describes them): {', '.join(rest)}."]


def tool_schema(operation: Operation) -> dict[str, Any]:
    """The schema of what a tool takes."""
    whole = operation.request.model_json_schema(by_alias=True)
    kinds = {**whole.pop("$defs", {}), **_KINDS}
    short: dict[str, Any] = _short({name: part for name, part in whole.items() if name != "description"}, kinds)
    named = short["properties"]
    common = _common(operation)
    if common is not None:
        named = {name: named[name] for name in common if name in named}
        for name in named if operation.name in ("serve", "rl") else ():
            if name in ("price", "region", "budget", "change", "detail", "precision"):
                named[name] = {"description": "as in train"}
        if "duration_days" in named:
            named["duration_days"] = {"description": "days that costs are of; 1 in serving"}
    for part in named.values():
        # Flags and tables say what they are; numbers may be text such as 2T, and all else is text.
        if part.get("type") in ("string", "number", "integer") and ("description" in part or "enum" in part):
            del part["type"]
    if operation.name != "sweep" and "space" in named:
        named["space"] = {"type": "object", "description": f"{named['space']['description']} `sweep` takes"}
    return {**short, "properties": named}


def _short(schema: Any, kinds: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_short(item, kinds) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        held = kinds[schema["$ref"].rpartition("/")[2]]
        return _short({**held, **{name: part for name, part in schema.items() if name != "$ref"}}, kinds)
    if "properties" in schema and isinstance(schema["properties"], dict):
        named = {name: _short(part, kinds) for name, part in schema["properties"].items()}
        rest = {name: part for name, part in schema.items() if name != "properties"}
        return {**_short(rest, kinds), "properties": named}
    forms = [form for form in schema.get("anyOf", ()) if form != {"type": "null"}]
    if "x-unit" in schema:
        forms = forms[:1]
    kept = {name: _short(part, kinds) for name, part in schema.items() if name not in (*_LEFT_OUT, "anyOf")}
    if len(forms) == 1:
        # What is said of the field goes before what is said of its kind.
        inner = _short(forms[0], kinds)
        if "x-unit" in forms[0]:
            kept["description"] = f"{kept.get('description', '')}, e.g. {forms[0]['anyOf'][0]['examples'][0]}".lstrip(
                ", "
            )
            # The example says that it is text.
            inner.pop("type", None)
        if inner.get("type") == "string" and "such as" in kept.get("description", ""):
            inner.pop("type")
        return {**inner, **kept}
    if forms and all(set(form) == {"type"} for form in forms):
        return {**kept, "type": [form["type"] for form in forms]}
    return {**kept, "anyOf": [_short(form, kinds) for form in forms]} if forms else kept
