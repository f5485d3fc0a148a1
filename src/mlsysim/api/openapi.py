"""The description of the HTTP face, OpenAPI 3.1: every address, what it takes, examples, and every error."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from mlsysim.api.limits import Limits
from mlsysim.api.requests import file
from mlsysim.api.responses import responses
from mlsysim.api.service import OPERATIONS, Operation

_SAID = file("description.toml")
STATUS: dict[str, int] = _SAID["status"]
"""The status of each kind of error."""
_SAID["error"]["properties"]["error"]["properties"]["kind"]["enum"] = sorted(STATUS)
_OF_HTTP = (400, 405, 408, 421)
_OF_ALL = (*_OF_HTTP, 429, 500, 503, 504)
_OF_BODIES = (413, 415, 422)


@cache
def _described() -> tuple[dict[str, Any], dict[str, Any]]:
    """Every address, and the schemas that they name: the same whatever the limits."""
    answer, answers = responses()
    schemas: dict[str, Any] = {"Error": _SAID["error"], **answers}
    paths: dict[str, Any] = {
        f"/v1/{name}": {"post": _post(each, schemas, answer(name))} for name, each in OPERATIONS.items()
    }
    for address, get in _SAID["get"].items():
        told: dict[str, Any] = {"operationId": get["name"], "tags": [get["group"]], "summary": get["summary"]}
        if "takes" in get:
            told["parameters"] = [_SAID["parameter"][name] for name in get["takes"]]
        statuses = (404, 422, *_OF_ALL) if "takes" in get else _OF_HTTP
        paths.setdefault(address, {})["get"] = told | {"responses": _responses(statuses, answer(get["name"]))}
    return paths, dict(sorted(schemas.items()))


def openapi(limits: Limits) -> dict[str, Any]:
    """The whole description, for a server with these limits."""
    paths, schemas = _described()
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "mlsysim",
            "version": version("mlsysim"),
            "summary": "Will it fit, how fast, what does it cost, what does it emit, and what binds?",
            "description": "Names mean entries of the zoo; no path of a file is taken. Quantities are text with a unit ('30 ms') or "
            "{magnitude, unit}. What is not known, or not finite, is null. "
            f"Limits: bodies of {limits.max_body:,} bytes, {limits.timeout:g} s for an operation, sweeps of {limits.max_points:,} "
            f"points, {limits.workers + limits.waiting} requests at a time.",
        },
        "tags": [{"name": name, "description": group["about"]} for name, group in _SAID["group"].items()],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _post(operation: Operation, schemas: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    name = operation.request.__name__
    schema = operation.request.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    schemas[name] = schema
    shown = {words.replace(" ", "_"): {"summary": words, "value": value} for words, value in operation.examples.items()}
    body = {"schema": {"$ref": f"#/components/schemas/{name}"}, "examples": shown}
    return {
        "operationId": operation.name,
        "tags": [next(name for name, group in _SAID["group"].items() if operation.name in group["has"])],
        "summary": operation.summary,
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": _responses((*_OF_BODIES, *_OF_ALL), answer),
    }


def _responses(errors: tuple[int, ...], answer: dict[str, Any]) -> dict[str, Any]:
    def response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"description": description, "content": {"application/json": {"schema": schema}}}

    error = {"$ref": "#/components/schemas/Error"}
    failed = {str(status): response(_SAID["meaning"][str(status)], error) for status in sorted(errors)}
    return {"200": response("The answer.", answer), **failed}
