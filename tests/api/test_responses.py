"""Answers are what the description says: every example of every operation, every address, every scenario, and entries of the zoo."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
from examples_answered import answered
from jsonschema import Draft202012Validator

from mlsysim.api.limits import Limits
from mlsysim.api.openapi import openapi
from mlsysim.api.service import LEFT_OUT, OPERATIONS, call
from mlsysim.plans.files import load_plan

SCENARIOS = sorted(Path(str(files("mlsysim.examples") / "scenarios")).glob("*.toml"))
TOLD = openapi(Limits())
GETS = ("/v1/zoo", "/v1/zoo/{kind}", "/v1/zoo/{kind}/{name}", "/v1/walls", "/v1/walls/{number}", "/v1/schema/{type}", "/openapi.json", "/health")  # fmt: skip


def checks(path, method="post"):
    schema = TOLD["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": TOLD["components"]})


def wrong(document, path, method="post"):
    return [f"{error.json_path}: {error.message[:200]}" for error in checks(path, method).iter_errors(document)]


@pytest.mark.parametrize(
    ("name", "words"), [(each.name, words) for each in OPERATIONS.values() for words in each.examples]
)
def test_examples_are_answered_as_described(name, words):
    reply = answered(name, words)
    assert reply.kind is None and wrong(json.loads(json.dumps(reply.document)), f"/v1/{name}") == []
    if "change" in OPERATIONS[name].request.model_fields:
        short = {key: value for key, value in reply.document.items() if key not in LEFT_OUT}
        assert short.keys() < reply.document.keys() and wrong(short, f"/v1/{name}") == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios_are_answered_as_described(path):
    plan = load_plan(path).document()
    reply = call("evaluate", {"plan": plan, "change": False})
    assert reply.kind is None, reply.document
    assert wrong(json.loads(json.dumps(reply.document)), "/v1/evaluate") == []


@pytest.mark.parametrize(
    ("url", "path"),
    [("/v1/zoo", GETS[0]), ("/v1/zoo/hardware", GETS[1]), ("/v1/zoo/grids?limit=3", GETS[1]), ("/v1/zoo/models/Llama3_70B", GETS[2]),
     ("/v1/zoo/systems/Meta_16K", GETS[2]), ("/v1/walls", GETS[3]), ("/v1/walls/14", GETS[4]), ("/v1/schema/plan", GETS[5]), ("/openapi.json", GETS[6]),
     ("/health", GETS[7])],
)  # fmt: skip
def test_addresses_are_answered_as_described(client, url, path):
    assert wrong(client.get(url).json(), path, "get") == []


def test_a_wrong_answer_would_be_found():
    document = call("train", {"model": "Llama3_8B", "on": "8xH100", "change": False}).document
    for change in (
        {"metrics": []},
        {"extra": 1},
        {"headline": None},
        {"binding": {}},
        {"memory": {"capacity": "80 GB", "parts": []}},
    ):
        assert wrong({**document, **change}, "/v1/train"), change


def test_errors_have_the_described_shape():
    for name, asked in (("train", {"model": "Llama3_70", "on": "8xH100"}), ("zoo", {"kind": "x"}), ("sweep", {})):
        reply = call(name, asked)
        assert reply.kind is not None
        Draft202012Validator(TOLD["components"]["schemas"]["Error"]).validate(reply.document)


def test_the_figures_of_an_answer_have_types():
    """Metrics, checks, parts of time and memory, and what binds are described down to their fields."""
    schemas = TOLD["components"]["schemas"]
    held = schemas["Answer"]["properties"]
    assert held["metrics"]["additionalProperties"] == {"$ref": "#/components/schemas/Metric"}
    assert held["checks"]["items"] == {"$ref": "#/components/schemas/Checked"}
    assert held["time_parts"]["items"] == {"$ref": "#/components/schemas/Part"}
    assert {"$ref": "#/components/schemas/MemoryBar"} in held["memory"]["anyOf"]
    assert set(schemas["Metric"]["required"]) == {
        "name",
        "label",
        "level",
        "value",
        "wall",
        "low",
        "high",
        "text",
        "interval",
    }
    assert schemas["Part"]["properties"]["value"] == {"type": ["number", "null"]}
    for path, methods in TOLD["paths"].items():
        for method, told in methods.items():
            schema = told["responses"]["200"]["content"]["application/json"]["schema"]
            assert schema != {"type": "object"} or path in ("/v1/schema", "/v1/schema/{type}", "/openapi.json"), (
                path,
                method,
            )
