"""``mlsysim labs build DIR`` and ``mlsysim labs open``: the engine in the browser, from static files."""

from __future__ import annotations

import threading
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["labs"]

labs = typer.Typer(
    name="labs", help="The engine in the browser: explorer and labs as static files.", no_args_is_help=True
)


@labs.command("build")
def build_site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a new or empty folder, or a site built before")],
) -> None:
    """Write the site into a folder that any static host can serve; the first build fetches pinned files."""
    from mlsysim.labs.build import build

    site = build(folder, say=typer.echo)
    typer.echo(
        f"{site.folder}: {site.files} files, {site.bytes / 1e6:.1f} MB; see it with `mlsysim labs open {folder}`"
    )


@labs.command("open")
def open_site(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="a built site; without it one is built in the user's cache")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="loopback port; 0 takes any that is free")] = 0,
    browser: Annotated[bool, typer.Option(help="open a browser at the address")] = True,
) -> None:
    """Serve a site on this machine alone and open a browser; Ctrl-C ends it."""
    from mlsysim.labs.build import build
    from mlsysim.labs.fetch import cache_folder
    from mlsysim.labs.serve import in_background, site_server

    if folder is None:
        folder = build(cache_folder() / "site").folder
    with in_background(site_server(folder, port)) as address:
        typer.echo(f"{address} serves {folder}; Ctrl-C ends it")
        if browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
