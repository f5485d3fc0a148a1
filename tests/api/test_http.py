"""The HTTP face: addresses, limits, who may ask; every limit answers with its own status and one sentence."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from multiprocessing import get_context

import pytest
from jsonschema import Draft202012Validator

from mlsysim.api import worker
from mlsysim.api.http_server import is_loopback
from mlsysim.api.limits import Limits
from mlsysim.api.openapi import STATUS, openapi
from mlsysim.api.service import OPERATIONS, call

TRAIN = {"model": "Llama3_8B", "on": "8xH100", "change": False}
SLOW = {
    "space": {
        "kind": "training",
        "fixed": {"model": "GPT3_175B", "node": "DGX_A100", "fabric": "InfiniBand_HDR", "nodes": 512},
        "axes": {
            "overlap_tp": {"range": [0, 0.99], "count": 20_000},
            "tp": {"powers_of": 2, "to": 32},
            "pp": {"divisors_of": 4096, "to": 64},
            "batch_size": [4096],
        },
    }
}
"""Some 840,000 points: seconds on one core."""


def sentence(answer, status, kind):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()["error"]
    assert told["kind"] == kind and STATUS.get(kind, status) == status
    assert told["sentence"].endswith((".", "?", ")")) and "\n" not in told["sentence"]
    return told["sentence"]


def test_an_operation_answers_what_the_service_answers(client):
    answer = client.post("train", TRAIN)
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(call("train", TRAIN).document))
    assert client.post("train", TRAIN).content == answer.content


@pytest.mark.parametrize(
    ("url", "operation", "document"),
    [
        ("/v1/zoo", "zoo", {}),
        ("/v1/zoo/hardware?filter=vendor%3DAMD&sort=memory.bandwidth&limit=3&offset=1", "zoo",
         {"kind": "hardware", "filter": ["vendor=AMD"], "sort": "memory.bandwidth", "limit": 3, "offset": 1}),
        ("/v1/zoo/models/meta-llama/Llama-3.1-8B", "zoo", {"kind": "models", "name": "Llama3_8B"}),
        ("/v1/zoo/systems/Meta_16K", "zoo", {"kind": "systems", "name": "Meta_16K"}),
        ("/v1/walls", "walls", {}),
        ("/v1/walls/14", "walls", {"number": 14}),
        ("/v1/schema/plan", "schema", {"type": "plan"}),
    ],
)  # fmt: skip
def test_addresses_to_get(client, url, operation, document):
    answer = client.get(url)
    assert answer.status_code == 200
    assert answer.json() == json.loads(json.dumps(call(operation, document).document))


def test_health_and_description(client):
    assert client.get("/health").json() == {"status": "ok", "operations": list(OPERATIONS)}
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/v1", "/v1/", "/v2/train", "/v1/train/x", "/docs/", "/v1/../etc/passwd", "/static/x"])
def test_unknown_addresses(client, url):
    assert "/v1/train" in sentence(client.get(url), 404, "not_found")


def test_unknown_operation(client):
    sentence(client.post("trian", TRAIN), 404, "not_found")


@pytest.mark.parametrize("url", ["/v1/zoo/hardware/H1000", "/v1/schema/plane", "/v1/zoo/models/..%2f..%2fetc%2fpasswd"])
def test_unknown_names_in_addresses(client, url):
    answer = client.get(url)
    assert answer.status_code == 404 and answer.json()["error"]["kind"] == "unknown_name"


@pytest.mark.parametrize("url", ["/v1/zoo/planets", "/v1/walls/99", "/v1/walls/x", "/v1/walls?x=1", "/v1/zoo/hardware?limit=x",
                                 "/v1/zoo/hardware?sort=a&sort=b", "/v1/zoo?other=1", "/v1/zoo/hardware?limit=0"])  # fmt: skip
def test_bad_values_in_addresses(client, url):
    sentence(client.get(url), 422, "input")


@pytest.mark.parametrize(
    ("method", "url"), [("GET", "/v1/train"), ("PUT", "/v1/train"), ("POST", "/health"), ("OPTIONS", "/v1/zoo")]
)
def test_other_methods(client, method, url):
    answer = client.request(method, url)
    sentence(answer, 405, "method")
    assert answer.headers["allow"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_content_types(client, kind):
    """A page of another origin can post these without asking first."""
    sentence(client.post("train", TRAIN, headers={"content-type": kind}), 415, "content_type")


def test_compressed_bodies(client):
    sentence(client.post("train", TRAIN, headers={"content-encoding": "gzip"}), 415, "content_type")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"model": NaN}', b'{"a":1,"a":1}', b"\xff\xfe", b"[" * 2000]
)
def test_malformed_bodies(client, body):
    sentence(client.post("train", body), 400, "malformed")


def test_unknown_fields(client):
    assert "did you mean 'model'" in sentence(client.post("train", {**TRAIN, "modle": 1}), 422, "input")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", "", "[::2]:80", "localhost.evil"]
)
def test_foreign_host_headers_reach_nothing(client, host):
    assert "localhost" in sentence(client.get("/health", headers={"host": host}), 421, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8123", "127.0.0.1:1", "[::1]:8123"])
def test_names_of_loopback(client, host):
    assert client.get("/health", headers={"host": host}).status_code == 200


def test_no_cross_origin_headers(client):
    answer = client.post("train", TRAIN, headers={"origin": "http://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_any_host_where_it_is_meant(clients):
    assert clients(Limits(), None).get("/health", headers={"host": "plan.example"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.1", False), ("example.com", False), ("", False), ("localhost.example.com", False)],
)  # fmt: skip
def test_what_is_loopback(host, local):
    assert is_loopback(host) == local


# --- limits -------------------------------------------------------------------------------------------------------


def test_bodies_over_the_limit(clients):
    small = clients(Limits(max_body=200))
    assert "200 bytes" in sentence(small.post("train", {"model": "x" * 300}), 413, "too_large")

    async def pieces():
        for _ in range(50):
            yield b" " * 100

    headers = {"content-type": "application/json"}
    sentence(small.request("POST", "/v1/train", content=pieces(), headers=headers), 413, "too_large")
    sentence(small.post("train", b" " * 198 + b"{}"), 422, "input")


def test_sweeps_over_the_limit(client):
    assert "at most 50,000" in sentence(client.post("sweep", SLOW), 422, "limit")


def test_an_operation_that_takes_too_long_is_ended_and_the_next_is_answered(clients):
    one = clients(Limits(workers=1, timeout=600))
    assert one.post("walls", {}).status_code == 200
    pool = one.app.state.pool
    patient, pool.limits = pool.limits, dataclasses.replace(pool.limits, timeout=0.1)
    assert "0.1 s" in sentence(one.post("sweep", SLOW), 504, "timeout")
    assert not pool._free and not pool._busy, "the late worker is gone"
    pool.limits = patient
    assert one.post("walls", {"number": 1}).status_code == 200
    assert pool.started == 2
    headers = {"content-type": "application/json"}
    pool.limits = dataclasses.replace(patient, timeout=0.5)

    async def both():
        slow = asyncio.create_task(one.http.post("/v1/sweep", content=json.dumps(SLOW), headers=headers))
        await asyncio.sleep(0.01)
        return await one.http.post("/v1/sweep", content=json.dumps(SLOW), headers=headers), await slow

    behind, slow = one.loop.run_until_complete(both())
    assert slow.status_code == 504
    assert behind.status_code in (503, 504), "it waited as long as it may"


def test_too_many_at_a_time(clients):
    one = clients(Limits(workers=1, waiting=1, timeout=600))
    headers = {"content-type": "application/json"}

    async def many():
        return await asyncio.gather(
            *(one.http.post("/v1/walls", content=b"{}", headers=headers) for _ in range(6))
        )  # fmt: skip

    statuses = sorted(answer.status_code for answer in one.loop.run_until_complete(many()))
    assert statuses == [200, 200, 429, 429, 429, 429]
    refused = [a for a in one.loop.run_until_complete(many()) if a.status_code == 429]
    assert "try again" in sentence(refused[0], 429, "busy") and refused[0].headers["retry-after"]
    assert one.post("walls", {}).status_code == 200


def test_memory_over_the_limit_and_workers_that_end(clients):
    """In 256 MiB of address space, most of which the interpreter has, a list of 300,000 values has no room."""
    one = clients(Limits(workers=1, timeout=600, worker_memory=2**28))
    space = {
        "kind": "node",
        "fixed": {"model": "Llama3_8B", "hardware": "H100"},
        "axes": {"batch_size": {"range": [1, 300_000]}},
    }
    assert "memory" in sentence(one.post("sweep", {"space": space}), 503, "memory")
    assert one.post("walls", {"number": 1}).status_code == 200
    pool = one.app.state.pool
    (free,) = pool._free
    free.process.kill()
    free.process.join()
    assert "ended" in sentence(one.post("walls", {}), 503, "memory")
    pool.limits = dataclasses.replace(pool.limits, retire_memory=2**26)
    assert one.post("walls", {}).status_code == 200
    assert pool.started == 2 and not pool._free, "a worker that has held more than it should is retired"


def test_what_the_server_holds_is_not_counted_as_a_workers():
    """Else every worker of a server that has grown would be retired after one answer."""
    held = bytearray(b"x") * 400_000_000
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(worker._held) < len(held) / 2


# --- the description ----------------------------------------------------------------------------------------------


def test_the_description_is_complete():
    told = openapi(Limits())
    assert {f"/v1/{name}" for name in OPERATIONS} <= set(told["paths"])
    names = [told["paths"][path][method]["operationId"] for path in told["paths"] for method in told["paths"][path]]
    assert len(set(names)) == len(names)
    text = json.dumps(told)
    schemas = told["components"]["schemas"]
    assert {piece.split('"')[0] for piece in text.split("#/components/schemas/")[1:]} <= set(schemas)
    assert set(schemas["Error"]["properties"]["error"]["properties"]["kind"]["enum"]) == set(STATUS)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", OPERATIONS)
def test_examples_are_valid_by_their_schemas(name):
    told = openapi(Limits())
    content = told["paths"][f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]
    whole = {**content["schema"], "components": told["components"]}
    assert content["examples"]
    for example in content["examples"].values():
        Draft202012Validator(whole).validate(example["value"])


def test_every_property_of_a_request_is_described():
    """A reader of the schema alone can use it: text, a reference or a choice says what a property means."""
    for operation in OPERATIONS.values():
        schema = operation.request.model_json_schema(by_alias=True)
        assert (
            schema["additionalProperties"] is False
            or "keys of the plan" in schema["additionalProperties"]["description"]
        )
        assert schema["description"]


@pytest.mark.parametrize(
    ("path", "near"), [("/train", "/v1/train"), ("/v1/eval", "/v1/evaluate"), ("/v1/serv", "/v1/serve")]
)
def test_an_address_that_is_none_is_told_the_nearest(client, path, near):
    assert f"did you mean {near!r}" in sentence(client.request("POST", path), 404, "not_found")
