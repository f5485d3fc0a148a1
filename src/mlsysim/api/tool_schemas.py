"""Schemas of tools, short: a model reads every one of them before it asks anything.

They say the same as those of the HTTP face, without what a model does not need: titles, nulls where a field may be left out,
the object form of quantities, bounds that no sensible value meets. The keys of a plan are spelled out in ``train`` and ``serve``, a
design space in ``sweep``; other tools refer to them.
"""

from __future__ import annotations

from typing import Any

from mlsysim.api.requests import FlatRequest
from mlsysim.api.service import Operation
from mlsysim.plans.plan import Plan

_KINDS = {
    "Plan": {
        "type": "object",
        "description": "the keys of `train` and `serve`, with task; or in the parts that `schema` of type plan names",
    },
    "Assertion": {"type": "string", "description": "such as 'mfu >= 0.4'"},
}
"""Records that a tool need not spell out."""
_LEFT_OUT = (
    *("title", "default", "x-unit", "maxLength", "minLength", "maxItems", "minItems", "examples"),
    *("minimum", "maximum", "exclusiveMinimum", "additionalProperties", "maxProperties", "minProperties", "pattern"),
)
_SAID_ELSEWHERE = ("layout", "name", "description")


def tool_schema(operation: Operation) -> dict[str, Any]:
    """The schema of what a tool takes."""
    whole = operation.request.model_json_schema(by_alias=True)
    kinds = {**whole.pop("$defs", {}), **_KINDS}
    short: dict[str, Any] = _short({name: part for name, part in whole.items() if name != "description"}, kinds)
    named = short["properties"]
    if issubclass(operation.request, FlatRequest):
        named = {name: part for name, part in named.items() if name not in _SAID_ELSEWHERE}
        for leaf in Plan.leaves().values():
            if leaf.flat in named and leaf.part.count("."):
                # Figures of a hypothetical chip or model, whose names say enough.
                example = "" if leaf.quantity is None else f", {leaf.quantity.example}"
                named[leaf.flat]["description"] = f"other than the zoo's{example}"
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
            kept["description"] = (
                f"{kept.get('description', '')}, such as {forms[0]['anyOf'][0]['examples'][0]!r}".lstrip(", ")
            )
        return {**inner, **kept}
    return {**kept, "anyOf": [_short(form, kinds) for form in forms]} if forms else kept
