"""The HTTP face: JSON in, JSON out, on loopback unless told otherwise.

    POST /v1/{operation}        every operation of :mod:`mlsysim.api.service`
    GET  /v1/zoo  /v1/zoo/{kind}  /v1/zoo/{kind}/{name}  /v1/walls  /v1/walls/{number}  /v1/schema/{type}
    GET  /openapi.json  /health  / (a page that shows and tries all of this, also at /docs)

Errors are ``{"error": {"sentence", "kind", ...}}`` whatever the status. Without ``--allow-origin`` a page of another origin can neither read
an answer nor post JSON. On loopback the ``Host`` header must name loopback, so that a foreign name which resolves to
127.0.0.1 (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mlsysim.api.documents import Malformed, dump, parse
from mlsysim.api.limits import Limits
from mlsysim.api.openapi import STATUS, openapi
from mlsysim.api.origins import Origins
from mlsysim.api.page import routes as page
from mlsysim.api.service import OPERATIONS, failure
from mlsysim.api.workers import Pool, Told
from mlsysim.errors import InputError, did_you_mean, nearest

_BODY_S = 30.0
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_ADDRESSES = ("zoo/{kind}/{name:path}", "zoo/{kind}", "walls/{number}", "schema/{type}")
_QUERY = ("filter", "sort", "limit", "offset")
_HEADERS = {
    "cache-control": "no-store", "x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'",
}  # fmt: skip


def create_app(
    limits: Limits | None = None, hosts: tuple[str, ...] | None = _LOOPBACK_NAMES, allowed: tuple[str, ...] = ()
) -> Starlette:
    """The application. ``hosts`` are the names that the ``Host`` header may have, without ports; None for any. ``allowed`` are origins whose
    pages may ask."""
    chosen = limits or Limits()
    pool = Pool(chosen)
    description = dump(openapi(chosen))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        pool.start()
        yield
        pool.close()

    async def described(request: Request) -> Response:
        return _response(200, description)

    async def health(request: Request) -> Response:
        return _response(200, dump({"status": "ok", "operations": list(OPERATIONS)}))

    async def posted(request: Request) -> Response:
        name = request.path_params.get("operation", request.url.path.removeprefix("/v1/"))
        if name not in OPERATIONS:
            raise HTTPException(404)
        document = await _document(request, chosen.max_body)
        return document if isinstance(document, Response) else _told(await pool.call(name, document))

    async def asked(request: Request) -> Response:
        operation = request.url.path.split("/")[2]
        return _told(await pool.call(operation, _question(request, operation)), found=True)

    async def either(request: Request) -> Response:
        return await (posted if request.method == "POST" else asked)(request)

    routes = [
        *page(),
        Route("/openapi.json", described, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
        *(Route(f"/v1/{address}", asked, methods=["GET"]) for address in _ADDRESSES),
        *(Route(f"/v1/{address}", either, methods=["GET", "POST"]) for address in ("zoo", "walls")),
        Route("/v1/{operation}", posted, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _refused, InputError: _bad_input, Exception: _broken}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.pool = pool
    app.add_middleware(_Door, hosts=hosts)
    app.add_middleware(Origins, allowed=allowed)
    return app


# --- answers ------------------------------------------------------------------------------------------------------


def _response(status: int, text: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, {**_HEADERS, **(headers or {})}, "application/json")


def _told(told: Told, found: bool = False) -> Response:
    """The response to an answer; ``found`` makes an unknown name of the address a 404."""
    if told.kind is None:
        return _response(200, told.text)
    status = 404 if found and told.kind == "unknown_name" else STATUS[told.kind]
    return _response(status, told.text, {"retry-after": "1"} if status in (429, 503) else None)


def _failed(kind: str, sentence: str, field: Any = None, headers: dict[str, str] | None = None) -> Response:
    return _response(STATUS[kind], dump(failure(kind, sentence, field).document), headers)


async def _refused(request: Request, error: HTTPException) -> Response:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "another method")
        return _failed("method", f"{request.method[:20]} is not for this address; it takes {allowed}.", None, headers)
    path = request.url.path[:100]
    word = _COMMANDS.get(path.rstrip("/").rpartition("/")[2], path.rstrip("/").rpartition("/")[2])
    near = [word] if word in OPERATIONS else nearest(word, list(OPERATIONS))
    known = ", ".join(f"/v1/{name}" for name in OPERATIONS)
    others = f"there are {known}, /openapi.json and /health, and a page at /."
    hint = did_you_mean([f"/v1/{name}" for name in near]) if near else others
    return _failed("not_found", f"There is nothing at {path!r}; {hint}")


_COMMANDS = {"eval": "evaluate"}
"""Commands that are called otherwise here."""


async def _bad_input(request: Request, error: InputError) -> Response:
    return _failed("input", str(error), error.details.get("field"))


async def _broken(request: Request, error: Exception) -> Response:
    return _failed("internal", "The server failed on this request; see its log.")


# --- requests -----------------------------------------------------------------------------------------------------


async def _document(request: Request, most: int) -> Any:
    """The document of a body, or the response that refuses it."""
    closed = {"connection": "close"}
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        return _failed("content_type", f"The body must be application/json, got {kind[:60] or 'no content-type'!r}.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        return _failed("content_type", "The body must not be compressed.")
    body = bytearray()
    too_large = f"The body is larger than the {most:,} bytes that this server takes."
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:18]) > most:
        return _failed("too_large", too_large, None, closed)
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    return _failed("too_large", too_large, None, closed)
    except TimeoutError:
        return _failed("slow", f"The body did not arrive within {_BODY_S:g} s.", None, closed)
    except ClientDisconnect:
        return _failed("malformed", "The body ended early.")
    try:
        return parse(bytes(body))
    except Malformed as error:
        return _failed("malformed", str(error))


def _question(request: Request, operation: str) -> dict[str, Any]:
    """What the address and its query ask."""
    asked: dict[str, Any] = dict(request.path_params)
    for key in request.query_params:
        if operation != "zoo":
            raise InputError(f"This address takes no query, got {key[:60]!r}.", field=key[:60])
        if key not in _QUERY:
            raise InputError(f"There is no query {key[:60]!r}; there are {', '.join(_QUERY)}.", field=key[:60])
    if "number" in asked:
        asked["number"] = _whole(asked["number"], "number")
    filters = request.query_params.getlist("filter")
    if filters:
        asked["filter"] = filters
    for key in ("sort", "limit", "offset"):
        given = request.query_params.getlist(key)
        if len(given) > 1:
            raise InputError(f"Give {key!r} once.", field=key)
        if given:
            asked[key] = given[0] if key == "sort" else _whole(given[0], key)
    return asked


def _whole(text: str, field: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"{field!r} must be a whole number, got {text[:40]!r}.", field=field)
    return int(text)


# --- who may ask --------------------------------------------------------------------------------------------------


class _Door:
    """Refuses requests whose ``Host`` header is none of the names, and bodies that say in two ways where they end (RFC 9112, 6.1)."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] | None) -> None:
        self.app = app
        self.hosts = None if hosts is None else {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if "content-length" in headers and "transfer-encoding" in headers:
            sentence = "A request has Content-Length or Transfer-Encoding, not both."
            await _failed("malformed", sentence, None, {"connection": "close"})(scope, receive, send)
            return
        if scope["type"] == "http" and self.hosts is not None:
            header = headers.get("host", "").strip().lower()
            name = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
            if name not in self.hosts:
                sentence = f"This server answers to {', '.join(sorted(self.hosts))} only, not to {name[:60]!r}."
                await _failed("host", sentence)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that is bound there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run(
    limits: Limits, host: str, port: int, allowed: tuple[str, ...] = (), ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until interrupted, and say so once the port is ours. Bound to loopback, the server answers to the names of loopback alone."""
    from mlsysim.api.connections import bound, server

    with suppress(KeyboardInterrupt), bound(host, port) as listening:
        ready()
        hosts = (*_LOOPBACK_NAMES, host) if is_loopback(host) else None
        server(create_app(limits, hosts, allowed), limits, host, port).run(sockets=[listening])
