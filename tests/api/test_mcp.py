"""The tools, asked by the protocol's own client library: a server process over its standard streams, and one in this process."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import sys

import pytest

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")

from jsonschema import Draft202012Validator  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402

from mlsysim.api.limits import Limits  # noqa: E402
from mlsysim.api.mcp_server import _messages, create_server  # noqa: E402
from mlsysim.api.service import OPERATIONS, call  # noqa: E402
from mlsysim.api.tools import INSTRUCTIONS, described, tool_schema  # noqa: E402
from mlsysim.plans.plan import Plan  # noqa: E402
from mlsysim.plans.schema import SAID  # noqa: E402


def spoken(conversation, *arguments):
    """Run a conversation with a server process."""

    async def main():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "mlsysim", "mcp", "--workers", "1", "--timeout", "600", *arguments],
            env={**os.environ},
        )
        with anyio.fail_after(1800):
            async with mcp.Client(stdio_client(server)) as client:
                await conversation(client)

    anyio.run(main)


def test_a_server_process_answers_its_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')

    async def conversation(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == set(OPERATIONS)
        for name, tool in tools.items():
            schema = tool.input_schema
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            assert OPERATIONS[name].summary in tool.description and "Examples:" in tool.description
            assert tool.annotations.read_only_hint
            for example in OPERATIONS[name].examples.values():
                Draft202012Validator(schema).validate(example)

        asked = OPERATIONS["train"].examples["a given layout"]
        answer = await client.call_tool("train", asked)
        assert not answer.is_error
        expected = call("train", {**asked, "detail": "summary"})
        assert answer.structured_content == json.loads(json.dumps(expected.document))
        text = answer.content[0].text
        assert text == expected.words and expected.document["headline"] in text and len(text) < 4000
        listed = await client.call_tool("zoo", {"kind": "hardware", "limit": 2})
        assert json.loads(listed.content[0].text) == listed.structured_content
        whole = await client.call_tool("train", {**asked, "detail": "full"})
        assert "equations" in whole.structured_content and "equations" not in answer.structured_content

        for arguments, words in (
            ({"modle": "Llama3_8B", "on": "H100"}, "did you mean 'model'"),
            ({"model": "Llama3_9B", "on": "H100"}, "did you mean"),
            ({"model": "config.json", "on": "H100"}, "Paths are not read here"),
            ({"model": "../../etc/passwd", "on": "H100"}, "Paths are not read here"),
            ({"model": "Llama3_8B", "on": "/etc/passwd"}, "There is no chip"),
            ({}, "needs the 'model' field"),
        ):
            answer = await client.call_tool("train", arguments)
            assert answer.is_error and words in answer.content[0].text, answer
            assert "\n" not in answer.content[0].text
        with pytest.raises(mcp.MCPError, match="did you mean 'train'"):
            await client.call_tool("trian", {})

    spoken(conversation)


def test_limits_are_errors_of_the_tool():
    space = OPERATIONS["sweep"].examples["decode on hypothetical chips"]["space"]
    fixed = {key: value for key, value in space["fixed"].items() if key != "seq_len"}

    async def main():
        server, pool = create_server(Limits(workers=1, timeout=600, max_points=300_000))
        try:
            async with mcp.Client(server) as client:
                large = {**space, "fixed": fixed, "axes": {**space["axes"], "seq_len": {"range": [1, 100_000]}}}
                answer = await client.call_tool("sweep", {"space": large})
                assert answer.is_error and "at most 300,000" in answer.content[0].text
                pool.limits = dataclasses.replace(pool.limits, timeout=0.05)
                slow = {**space, "fixed": fixed, "axes": {**space["axes"], "seq_len": {"range": [1, 1300]}}}
                answer = await client.call_tool("sweep", {"space": slow})
                assert answer.is_error and "longer than the 0.05 s" in answer.content[0].text
        finally:
            pool.close()

    anyio.run(main)


def test_the_tools_are_short_enough_to_be_read_first():
    """All tools together, with their descriptions and examples: what a model reads before it asks anything."""
    texts = [described(each) + json.dumps(tool_schema(each)) for each in OPERATIONS.values()]
    assert sum(map(len, texts)) + len(INSTRUCTIONS) < 22_000


@pytest.mark.parametrize(("name", "task"), [("train", "training"), ("serve", "serving")])
def test_a_short_schema_still_has_every_key(name, task):
    schema = tool_schema(OPERATIONS[name])
    left_out = {*SAID, "name", "description", "parallelism.mode"}
    keys = {leaf.flat for leaf in Plan.leaves().values() if task in leaf.tasks and leaf.key not in left_out}
    named = described(OPERATIONS[name]).partition("Examples:")[0].partition("Further keys")[2]
    assert keys <= {*schema["properties"], *re.findall(r"\w+", named)}
    assert all(part.get("description") or part.get("enum") for part in schema["properties"].values())
    for example in OPERATIONS[name].examples.values():
        Draft202012Validator(schema).validate(example)


def test_lines_that_are_no_message_are_answered():
    """As the library reads them: the stream yields the error where a line is no message."""
    lines = ["{bad", " ", "[]", '{"id": 7, "method": "ping"}', '{"jsonrpc": "2.0", "id": "a"}', '{"id": true}', "42"]
    lines += [f'{{"jsonrpc": "2.0", "id": {wrong}, "method": "ping"}}' for wrong in ("true", "1.5", "null")]
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'

    async def main():
        fed = anyio.wrap_file(io.StringIO("\n".join([*lines, ping]) + "\n"))
        told = anyio.wrap_file(io.StringIO())
        async with stdio_server(fed, told) as (incoming, outgoing):
            send, messages = anyio.create_memory_object_stream(9)
            await _messages(incoming, send, outgoing)
            assert [item.message.method async for item in messages] == ["ping"]
            await outgoing.aclose()
        return [json.loads(line) for line in told.wrapped.getvalue().splitlines()]

    answers = anyio.run(main)
    assert [(one["id"], one["error"]["code"]) for one in answers] == [
        (None, -32700), (None, -32600), (7, -32600), ("a", -32600), *5 * [(None, -32600)],
    ]  # fmt: skip
    assert answers[-1]["error"]["message"] == "'ping' is a request: its id must be a whole number or text."
    assert answers[0]["error"]["message"] == "The line is not JSON; a message is one JSON object on one line."
