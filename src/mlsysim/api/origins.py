"""Pages of other origins: none may ask, but those that whoever starts the server names (``--allow-origin``).

A browser lets a page read the answers of another origin only where the server says so (CORS, in the Fetch standard). Origins are
compared whole, scheme, host and port; there is no wildcard, because a server on loopback would then answer any page that its user opens.
A page from outside the local network also asks to cross into it (Private Network Access), which is answered like the rest of its
preflight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlsysim.errors import InputError

_ORIGIN = re.compile(r"https?://([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_PREFLIGHT_S = 600


def origins(texts: Iterable[str]) -> tuple[str, ...]:
    """Origins as browsers write them.

    >>> origins(["http://localhost:3000", "HTTPS://Plans.Example/"])
    ('http://localhost:3000', 'https://plans.example')
    """
    found = []
    for text in texts:
        origin = text.strip().lower().removesuffix("/")
        if origin in ("*", "null"):
            raise InputError(
                f"--allow-origin takes origins by name, such as http://localhost:3000; {origin!r} would let in every page that is open here.",
                field="allow_origin",
            )
        if not _ORIGIN.fullmatch(origin):
            raise InputError(
                f"--allow-origin takes a scheme, a host and a port, such as http://localhost:3000, got {text[:80]!r}.",
                field="allow_origin",
            )
        found.append(re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", origin))
    return tuple(dict.fromkeys(found))


class Origins:
    """Tells browsers that pages of some origins may read what is answered; where there are none, it adds nothing."""

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        self.app = app
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" and self.allowed else Headers()
        origin = headers.get("origin", "")

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered.add_vary_header("Origin")
                if origin in self.allowed:
                    answered["access-control-allow-origin"] = origin
                    answered["access-control-expose-headers"] = "retry-after"
            await send(message)

        if not self.allowed or scope["type"] != "http":
            await self.app(scope, receive, send)
        elif origin in self.allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            allows = {"access-control-allow-methods": "GET, POST", "access-control-allow-headers": "content-type"}
            allows["access-control-max-age"] = str(_PREFLIGHT_S)
            if headers.get("access-control-request-private-network") == "true":
                allows["access-control-allow-private-network"] = "true"
            await Response(status_code=204, headers=allows)(scope, receive, told)
        else:
            await self.app(scope, receive, told)
