"""The page at ``/``: the description as something to read and to try, made in the browser of /openapi.json.

Three files of this folder and the report's stylesheet, for its colours and tables; nothing is fetched from elsewhere, and the page's policy
lets nothing else run.
"""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "cache-control": "no-cache", "x-content-type-options": "nosniff", "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin",
}  # fmt: skip
_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


def routes() -> list[Route]:
    """The addresses of the page and of what it loads."""
    inside, report = files("mlsysim.api") / "page", files("mlsysim.report")
    known = {f"/docs/{name}": (inside / name).read_bytes() for name in ("page.css", "page.js", "code.js")}
    known["/docs/report.css"] = (report / "style.css").read_bytes()
    known["/"] = known["/docs"] = (inside / "index.html").read_bytes()

    async def shown(request: Request) -> Response:
        path = request.url.path
        return Response(known[path], 200, _HEADERS, _KINDS.get(path.rpartition(".")[2], _KINDS["html"]))

    return [Route(path, shown, methods=["GET"]) for path in known]
