"""``api`` and ``mcp``: the operations for programs, over HTTP on this machine and as tools of the Model Context Protocol."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated, Any

from typer import Option

from mlsysim.errors import InputError

MaxBody = Annotated[int | None, Option("--max-body", help="bytes of a request; 1,000,000")]
Timeout = Annotated[float | None, Option("--timeout", help="seconds for one operation; 30")]
Workers = Annotated[int | None, Option("--workers", help="processes that compute; one for each core, at most 4")]
MaxPoints = Annotated[int | None, Option("--max-points", help="points of a sweep; 1,000,000")]


def _limits(**given: Any) -> Any:
    from mlsysim.api.limits import Limits

    return Limits(**{name: value for name, value in given.items() if value is not None})


def _needs(extra: str, *packages: str) -> None:
    if any(find_spec(package) is None for package in packages):
        raise InputError(
            f"This command needs packages that are not installed: pip install '.[{extra}]' in a checkout of mlsysim."
        )


def api(
    host: Annotated[str, Option(help="address to bind; another than loopback needs --allow-remote")] = "127.0.0.1",
    port: Annotated[int, Option(help="port", min=1, max=65535)] = 8123,
    allow_remote: Annotated[bool, Option("--allow-remote", help="let other machines ask")] = False,
    allow_origin: Annotated[
        list[str] | None,
        Option("--allow-origin", help="let pages of this origin ask, such as http://localhost:3000; repeatable"),
    ] = None,
    max_body: MaxBody = None,
    timeout: Timeout = None,
    workers: Workers = None,
    max_points: MaxPoints = None,
) -> None:
    """Serve the operations as a JSON API on this machine, with a page that shows and tries them. Ctrl-C ends it.

    mlsysim api --port 8123
    """
    _needs("api", "starlette", "uvicorn")
    from mlsysim.api.http_server import is_loopback, run
    from mlsysim.api.origins import origins

    allowed = origins(allow_origin or ())
    limits = _limits(max_body=max_body, timeout=timeout, workers=workers, max_points=max_points)
    if not is_loopback(host):
        if not allow_remote:
            raise InputError(
                f"{host[:60]!r} can be reached from other machines; say --allow-remote if that is meant.", field="host"
            )
        print(
            f"mlsysim: warning: {host} can be reached from other machines, and this server asks nobody who they are.",
            file=sys.stderr,
        )
    shown = f"[{host}]" if ":" in host else host
    words = f"http://{shown}:{port} is ready: try it in a browser; /openapi.json describes it; Ctrl-C ends it"
    run(limits, host, port, allowed, lambda: print(words, file=sys.stderr))


def mcp(timeout: Timeout = None, workers: Workers = None, max_points: MaxPoints = None) -> None:
    """Serve the operations as tools of the Model Context Protocol on standard input and output.

    {"mcpServers": {"mlsysim": {"command": "mlsysim", "args": ["mcp"]}}}
    """
    _needs("mcp", "mcp", "mcp_types")
    from mlsysim.api.mcp_server import run

    run(_limits(timeout=timeout, workers=workers, max_points=max_points))
