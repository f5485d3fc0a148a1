"""The operations as tools of the Model Context Protocol, over standard input and output.

A tool takes what the operation takes and gives the answer as structured content and as JSON text. Plans are answered in summary
unless ``detail`` says full, since a model reads every word. What is wrong with a request comes back as an error of the tool
with the sentence, so that the model can mend it.

Schemas of tools are short: a model reads every one of them before it asks anything. They say the same as those of the HTTP face, without
what a model does not need: titles, nulls where a field may be left out, the object form of quantities, bounds that no sensible value
meets. The keys of a plan are spelled out in ``train``, ``serve`` and ``rl``, a design space in ``sweep``; other tools refer to them.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mlsysim.api.documents import Malformed, check
from mlsysim.api.limits import Limits
from mlsysim.api.requests import FlatRequest
from mlsysim.api.service import OPERATIONS, Operation
from mlsysim.api.workers import Pool
from mlsysim.errors import nearest
from mlsysim.plans.plan import Plan

_INSTRUCTIONS = (
    "Plans machine-learning systems from first principles: whether a model fits on a fleet, how fast it trains or serves, what it "
    "costs and emits, and which wall binds. Names mean entries of the zoo: look them up with `zoo` first. Quantities are "
    "text with a unit, such as '30 ms' or '5 MUSD'. Start with `train`, `serve` or `rl`; `evaluate` takes a whole plan, `explain` shows the "
    "equations behind a number, `compare` puts two plans side by side. Files are neither read nor written."
)


def create_server(limits: Limits | None = None) -> tuple[Server[Any], Pool]:
    """The server, and the pool of workers that it computes in."""
    pool = Pool(limits or Limits())
    tools = [_tool(operation) for operation in OPERATIONS.values()]

    async def listed(
        context: ServerRequestContext[Any], asked: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def called(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        if asked.name not in OPERATIONS:
            close = nearest(asked.name, OPERATIONS)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(OPERATIONS)}."
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {asked.name[:60]!r}; {hint}")
        document = dict(asked.arguments or {})
        try:
            check(document)
        except Malformed as error:
            return _failed(str(error))
        if "detail" in OPERATIONS[asked.name].request.model_fields:
            document.setdefault("detail", "summary")
        told = await pool.call(asked.name, document)
        answer = json.loads(told.text)
        if told.kind is not None:
            return _failed(answer["error"]["sentence"], answer)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=told.text.decode())], structured_content=answer
        )

    server: Server[Any] = Server(
        "mlsysim", version=version("mlsysim"), instructions=_INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )
    return server, pool


def _failed(sentence: str, answer: dict[str, Any] | None = None) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=sentence)], structured_content=answer, is_error=True
    )


def _tool(operation: Operation) -> types.Tool:
    shown = [f"{words}: {json.dumps(value, separators=(',', ':'))}" for words, value in operation.examples.items()][
        :_EXAMPLES
    ]
    return types.Tool(
        name=operation.name,
        description=f"{operation.summary}\n\nExamples:\n" + "\n".join(shown),
        input_schema=tool_schema(operation),
        # What is read only destroys nothing and may be repeated: the other hints would say no more.
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def run(limits: Limits) -> None:
    """Serve on standard input and output until the input ends."""

    async def serve() -> None:
        server, pool = create_server(limits)
        try:
            async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
                pool.start()
                send, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
                tasks.start_soon(_messages, incoming, send, outgoing)
                await server.run(messages, outgoing, server.create_initialization_options())
                tasks.cancel_scope.cancel()
        finally:
            pool.close()

    anyio.run(serve)


async def _messages(incoming: Any, send: Any, outgoing: Any) -> None:
    """Hand on what came in; a line that is no message is answered, since the library passes over it."""
    async with send:
        async for item in incoming:
            if isinstance(item, SessionMessage):
                await send.send(item)
            elif (answer := _no_message(item)) is not None:
                await outgoing.send(SessionMessage(answer))


def _no_message(error: Exception) -> types.JSONRPCError | None:
    """What a line that is no message of JSON-RPC is told; nothing where it is blank."""
    wrong = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    given = [each["input"] for each in wrong if each["type"] == "json_invalid"]
    if given and not str(given[0]).strip():
        return None
    code, sentence = (
        types.INVALID_REQUEST,
        "The line is no message of JSON-RPC 2.0: it needs jsonrpc, and method or result.",
    )
    if given:
        code, sentence = types.PARSE_ERROR, "The line is not JSON; a message is one JSON object on one line."
    asked = next(
        (each["input"]["id"] for each in wrong if isinstance(each["input"], dict) and "id" in each["input"]), None
    )
    number = asked if isinstance(asked, (str, int)) and not isinstance(asked, bool) else None
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=sentence))


# --- schemas of tools ---------------------------------------------------------------------------------------------

_KINDS = {
    "Plan": {
        "type": "object",
        "description": "keys of `train`, `serve` or `rl` and task, or parts as `schema` has them",
    },
    "Assertion": {"type": "string", "description": "such as 'mfu >= 0.4'"},
}
"""Records that a tool need not spell out."""
_LEFT_OUT = (
    *("title", "default", "x-unit", "maxLength", "minLength", "maxItems", "minItems", "examples"),
    *("minimum", "maximum", "exclusiveMinimum", "additionalProperties", "maxProperties", "minProperties", "pattern"),
)
_EXAMPLES = 2
"""Of a tool, at most."""
_SAID_ELSEWHERE = ("layout", "name", "description")
_NAMED = ("model", "on", "precision", "tp")
_OF_EVERY_STEP = ("model", "on", "prompt_tokens", "detail")


def tool_schema(operation: Operation) -> dict[str, Any]:
    """The schema of what a tool takes."""
    whole = operation.request.model_json_schema(by_alias=True)
    kinds = {**whole.pop("$defs", {}), **_KINDS}
    short: dict[str, Any] = _short({name: part for name, part in whole.items() if name != "description"}, kinds)
    named = short["properties"]
    if issubclass(operation.request, FlatRequest):
        named = {name: part for name, part in named.items() if name not in _SAID_ELSEWHERE}
        if operation.request.task == "rl":
            # What it shares with others is said there.
            own = {leaf.flat for leaf in Plan.leaves().values() if leaf.tasks == ("rl",)}
            named = {name: part for name, part in named.items() if name in own or name in _OF_EVERY_STEP}
        for leaf in Plan.leaves().values():
            if leaf.flat in named and leaf.part.count("."):
                # Figures of a hypothetical chip or model, whose names say enough.
                named[leaf.flat]["description"] = "own" if leaf.quantity is None else leaf.quantity.example
            shared = operation.name == "serve" and "training" in leaf.tasks and leaf.flat not in _NAMED
            if shared and leaf.flat in named:
                named[leaf.flat] = {"description": "as in train"}
    for part in named.values():
        # Numbers and flags say what they are; all else is text.
        if part.get("type") == "string" and ("description" in part or "enum" in part):
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
