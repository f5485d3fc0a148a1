"""Connections of the HTTP server: nobody holds one by being slow.

The library that reads HTTP (uvicorn with h11) waits for the rest of a request's headers as long as a client likes, and for a client
that does not read its answer. Here both have a deadline. At the most connections that the server keeps, a new one takes the place
of the one that has waited longest without being computed for, so that clients which open many and finish nothing shut out each
other and not those who ask. What cannot be read as HTTP gets an error like every other.
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mlsysim.api.documents import dump
from mlsysim.api.limits import Limits
from mlsysim.api.openapi import STATUS
from mlsysim.api.service import failure
from mlsysim.errors import InputError


class Connection(H11Protocol):
    """One connection, with a deadline for the headers of a request and for an answer that the client does not take."""

    patience = 10.0
    """Seconds in which the headers must have come, and something of an answer must have been taken."""

    def __init__(self, config: uvicorn.Config, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        # The library refuses requests above this number of connections; here a connection makes room.
        self.most, self.limit_concurrency = config.limit_concurrency, None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and make room."""
        super().connection_made(transport)
        self._wait()
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        if self.most is not None and len(others) >= self.most:
            waiting = [one for one in others if not one._computing]
            min(waiting, key=lambda one: one._since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take this answer."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """An answer waits for the client to take what was sent before."""
        super().pause_writing()
        self._wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._refuse("malformed", "This is no HTTP request that can be read.")

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _computing(self) -> bool:
        """Whether a whole request has come whose answer is still to be sent."""
        return not (self._answered or self.cycle.more_body or self.flow.write_paused)

    def _wait(self, left: float = math.inf) -> None:
        self._since, self._left = self.loop.time(), left
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(self.patience, self._late)

    def _late(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left < self._left:
            self._wait(left)
        elif left:
            self.transport.abort()
        elif self._answered and self.conn.trailing_data[0]:
            self._refuse("slow", f"The headers did not arrive within {self.patience:g} s.")
        elif self._answered:
            self.transport.close()

    def _refuse(self, kind: str, sentence: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = dump(failure(kind, sentence).document)
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(text))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=STATUS[kind], headers=headers), h11.Data(text), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def bound(host: str, port: int) -> socket.socket:
    """A port of this machine to listen on, or one sentence of why it cannot be had."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        taken = f"another program has it; choose another port, such as --port {port % 65535 + 1}"
        why = {
            errno.EADDRINUSE: taken,
            errno.EACCES: "ports below 1024 belong to the administrator; choose another, such as --port 8123",
            errno.EADDRNOTAVAIL: "this is no address of this machine",
            socket.EAI_NONAME: "there is no machine of that name",
            socket.EAI_AGAIN: "nobody here knows a machine of that name",
        }.get(error.errno or 0, error.strerror)
        raise InputError(f"Nothing can be served on port {port} of {host[:60]}: {why}.", field="port") from None


def server(app: ASGIApp, limits: Limits, host: str, port: int) -> uvicorn.Server:
    """What serves an application on a port, quietly, on eight connections for each request that it takes."""
    quiet: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
    }
    times: dict[str, Any] = {"timeout_keep_alive": 5, "timeout_graceful_shutdown": 5}
    most = 8 * (limits.workers + limits.waiting)
    config = uvicorn.Config(
        app, host=host, port=port, http=Connection, ws="none", limit_concurrency=most, **quiet, **times
    )
    return uvicorn.Server(config)
