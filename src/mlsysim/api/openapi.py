"""The description of the HTTP face, OpenAPI 3.1: every address, what it takes, examples, and every error."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mlsysim.api.limits import Limits
from mlsysim.api.service import OPERATIONS, Operation

STATUS = {
    "malformed": 400, "not_found": 404, "method": 405, "slow": 408, "too_large": 413, "content_type": 415,
    "host": 421, "input": 422, "unknown_name": 422, "unit": 422, "range": 422, "limit": 422, "busy": 429,
    "internal": 500, "overloaded": 503, "memory": 503, "timeout": 504,
}  # fmt: skip
"""The status of each kind of error."""

_MEANING = {
    400: "The body is no JSON object that can be used.",
    404: "There is nothing of that name at the address.",
    405: "Another method is meant for the address.",
    408: "The body did not arrive in time.",
    413: "The body is larger than the server takes.",
    415: "The body is not application/json.",
    421: "The Host header names another server.",
    422: "Something in the request cannot be used; the sentence says what, and what is expected.",
    429: "Too many requests are being answered; try again later.",
    500: "A fault of the server.",
    503: "No worker was free in time, or the operation needs more memory than allowed.",
    504: "The operation took longer than allowed and was ended.",
}
_OF_ALL = (405, 421, 429, 500, 503, 504)
_OF_BODIES = (400, 408, 413, 415, 422)


def openapi(limits: Limits) -> dict[str, Any]:
    """The whole description, for a server with these limits."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS.values():
        paths[f"/v1/{operation.name}"] = {"post": _post(operation, schemas)}
    paths["/v1/zoo"]["get"] = _get("zoo_overview", "How much the zoo has of what.", [*_LISTING])
    paths["/v1/zoo/{kind}"] = {"get": _get("zoo_list", "Entries of a part of the zoo.", [_KIND, *_LISTING])}
    paths["/v1/zoo/{kind}/{name}"] = {
        "get": _get("zoo_entry", "One entry with its sources.", [_KIND, _path("name", "Llama3_70B")])
    }
    paths["/v1/walls"]["get"] = _get("walls_list", "All walls.", [])
    number = {
        "name": "number",
        "in": "path",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
    paths["/v1/walls/{number}"] = {"get": _get("wall", "The card of one wall.", [number | {"example": 14}])}
    paths["/v1/schema/{type}"] = {"get": _get("schema_of", OPERATIONS["schema"].summary, [_path("type", "plan")])}
    for address, name, summary in (
        ("/openapi.json", "openapi", "This description."),
        ("/health", "health", "Whether the server answers."),
    ):
        paths[address] = {
            "get": {"operationId": name, "summary": summary, "responses": {"200": _ANSWER} | _errors((405, 421))}
        }
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
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _post(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = operation.request.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    schemas |= schema.pop("$defs", {})
    schemas[operation.request.__name__] = schema
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{operation.request.__name__}"},
                    "examples": {
                        name.replace(" ", "_"): {"summary": name, "value": value}
                        for name, value in operation.examples.items()
                    },
                }
            },
        },
        "responses": {"200": _ANSWER} | _errors((*_OF_BODIES, *_OF_ALL)),
    }


def _get(name: str, summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": _ANSWER} | _errors((404, 422, *_OF_ALL)),
    }


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    return {
        str(status): {
            "description": _MEANING[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status in sorted(statuses)
    }


def _path(name: str, example: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": example}


_ANSWER = {"description": "The answer.", "content": {"application/json": {"schema": {"type": "object"}}}}
_KIND = {
    "name": "kind",
    "in": "path",
    "required": True,
    "schema": {"enum": ["hardware", "models", "systems", "grids"]},
    "example": "hardware",
}
_LISTING = (
    {
        "name": "filter",
        "in": "query",
        "description": "field, comparison, value; repeatable",
        "schema": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 16},
        "example": ["vendor=NVIDIA", "memory.capacity>=80GB"],
    },
    {"name": "sort", "in": "query", "description": "field to sort by, largest first", "schema": {"type": "string"}},
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}},
    {"name": "offset", "in": "query", "schema": {"type": "integer", "minimum": 0, "default": 0}},
)
_ERROR = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["sentence", "kind"],
            "additionalProperties": False,
            "properties": {
                "sentence": {"type": "string", "description": "what was wrong and what is expected"},
                "kind": {"enum": sorted(STATUS)},
                "field": {"type": "string", "description": "what of the request it is about"},
                "suggestions": {"type": "array", "items": {"type": "string"}, "description": "the nearest valid names"},
            },
        }
    },
}
