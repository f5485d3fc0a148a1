"""``labs open``: a site on a loopback port, for a browser that may not start workers from ``file://``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.build import MANIFEST


class SiteHandler(SimpleHTTPRequestHandler):
    """Files of one folder, with the types that browsers insist on, and no listings."""

    # Fixed here because the tables of the operating system differ.
    extensions_map = {  # noqa: RUF012
        ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
        ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml",
        ".wasm": "application/wasm", "": "application/octet-stream",
    }  # fmt: skip

    def list_directory(self, path: Any) -> BytesIO | None:
        self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")
        return None

    def end_headers(self) -> None:
        # A site that is built anew is seen at the next load.
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """A browser that goes on to another page stops listening, which is no mistake."""
        with suppress(ConnectionError):
            super().copyfile(source, outputfile)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the address was printed, and a browser's console tells the rest."""


def site_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of a built site on 127.0.0.1; port 0 takes any that is free."""
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} holds no site; build one with `mlsysim labs build {folder}`.")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(SiteHandler, directory=str(folder)))
    except OSError as error:
        raise InputError(f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}; give another or none.") from None
    except OverflowError:
        raise InputError(f"A port is a number from 0 to 65535, not {port}.") from None


@contextmanager
def in_background(server: ThreadingHTTPServer) -> Iterator[str]:
    """Answer requests in a thread while the block runs; its value is the address."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
