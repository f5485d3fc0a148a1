"""The operations as tools of the Model Context Protocol, over standard input and output.

A tool takes what the operation takes, and answers in words with the document beside them as structured content; where an operation has no
words, the text is the document. Plans are answered in summary unless ``detail`` says full, since a model reads every word. What is
wrong with a request comes back as an error of the tool with the sentence, so that the model can mend it. What a model reads of the
tools before it asks is in :mod:`mlsysim.api.tools`.
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
from mlsysim.api.service import OPERATIONS
from mlsysim.api.tools import INSTRUCTIONS, described, tool_schema
from mlsysim.api.workers import Pool
from mlsysim.errors import nearest


def create_server(limits: Limits | None = None) -> tuple[Server[Any], Pool]:
    """The server, and the pool of workers that it computes in."""
    pool = Pool(limits or Limits())
    tools = [
        types.Tool(
            name=operation.name,
            description=described(operation),
            input_schema=tool_schema(operation),
            # What is read only destroys nothing and may be repeated: the other hints would say no more.
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for operation in OPERATIONS.values()
    ]

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
        text = told.words or told.text.decode()
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=answer)

    server: Server[Any] = Server(
        "mlsysim", version=version("mlsysim"), instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )
    return server, pool


def _failed(sentence: str, answer: dict[str, Any] | None = None) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=sentence)], structured_content=answer, is_error=True
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
    """Hand on what came in; a line that is no message is answered, since the library passes over it.

    So is a request whose id is none: the library takes it for a notification, whose methods have a name of their own.
    """
    async with send:
        async for item in incoming:
            if isinstance(item, SessionMessage):
                told = item.message
                if isinstance(told, types.JSONRPCNotification) and not told.method.startswith("notifications/"):
                    sentence = f"{told.method[:60]!r} is a request: its id must be a whole number or text."
                    wrong = types.ErrorData(code=types.INVALID_REQUEST, message=sentence)
                    await outgoing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=wrong)))
                else:
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
        "The line is no message of JSON-RPC 2.0: it needs jsonrpc, method or result, and params as an object where it has any.",
    )
    if given:
        code, sentence = types.PARSE_ERROR, "The line is not JSON; a message is one JSON object on one line."
    asked = next(
        (each["input"]["id"] for each in wrong if isinstance(each["input"], dict) and "id" in each["input"]), None
    )
    number = asked if isinstance(asked, (str, int)) and not isinstance(asked, bool) else None
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=sentence))
