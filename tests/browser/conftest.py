"""A built site on a loopback port and Debian's Chromium: what the browser tests share.

Where Chromium, Playwright or the pinned downloads are missing the tests are skipped with the reason, unless
``MLSYSIM_REQUIRE_BROWSER=1`` makes that a failure.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.labs.build import MANIFEST, build
from mlsysim.labs.serve import SiteHandler, in_background

_PATIENCE_MILLISECONDS = 30_000
READY_MILLISECONDS = 180_000
NAMES = ("chromium", "chromium-browser", "google-chrome")


def unavailable(reason: str):
    """Skip, or fail where a browser is required."""
    if os.environ.get("MLSYSIM_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and MLSYSIM_REQUIRE_BROWSER=1", pytrace=False)
    pytest.skip(reason)


class DumbHost(SiteHandler):
    """A static host that knows no type but the oldest ones."""

    extensions_map = {kind: name for kind, name in SiteHandler.extensions_map.items() if kind != ".wasm"}  # noqa: RUF012


def served(folder: Path):
    """A folder on a loopback port; the value of the block is the address."""
    return in_background(ThreadingHTTPServer(("127.0.0.1", 0), partial(DumbHost, directory=str(folder))))


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory) -> Path:
    """The site, built once for all workers of a test run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "host" / "below" / "a path"
    shared.joinpath("host").mkdir(exist_ok=True)
    with (shared / "host.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MANIFEST).is_file():
            try:
                build(folder)
            except InputError as error:
                unavailable(f"no site: {error}")
    return folder


@pytest.fixture(scope="session")
def site(site_folder):
    """Address of the site, below a path of its host."""
    with served(site_folder.parent.parent) as address:
        yield f"{address}below/a%20path/"


@pytest.fixture(scope="session")
def launch():
    """Start a Chromium with further switches; all are closed in the end."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("Playwright is not installed (pip install 'mlsysim[test]')")
    path = os.environ.get("MLSYSIM_CHROMIUM") or next((p for p in map(shutil.which, NAMES) if p), None)
    if path is None:
        unavailable("Chromium is not installed (apt-get install chromium)")
    with sync_playwright() as playwright:
        started = []

        def start(*switches: str):
            # Chromium's sandbox refuses to run as root, which is what containers are.
            sandbox = () if os.getuid() else ("--no-sandbox",)
            alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
            started.append(playwright.chromium.launch(executable_path=path, args=[alone, *sandbox, *switches]))
            return started[-1]

        yield start
        for browser in started:
            browser.close()


@pytest.fixture(scope="session")
def chromium(launch):
    """One Chromium for all pages of a worker."""
    return launch()


class Watch:
    """What a page asked for and complained about; :meth:`check` allows neither foreign hosts nor complaints."""

    def __init__(self, page, home: str) -> None:
        self.home = home
        self.requests: list[str] = []
        self.complaints: list[str] = []
        # Of the context, because a worker's requests are not the page's.
        page.context.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _console(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    @property
    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith((self.home, "data:", "blob:"))]

    def check(self) -> None:
        assert self.foreign == []
        assert self.complaints == []


def expect(what: Any) -> Any:
    """Playwright's assertions, which wait for what a page does by and by."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=_PATIENCE_MILLISECONDS)
    return waiting(what)


def wait_until_ready(page) -> None:
    """Until the first answer is shown, or the page says why there is none."""
    page.wait_for_selector("html[data-ready], html[data-failed]", state="attached", timeout=READY_MILLISECONDS)
    assert page.locator("html[data-failed]").count() == 0, page.locator("#status").inner_text()


# Keeps every text of the status line in window.said.
LISTEN = """addEventListener("DOMContentLoaded", () => {
  const line = document.getElementById("status");
  window.said = [];
  new MutationObserver(() => said.push(line.textContent)).observe(line, { childList: true });
})"""


@pytest.fixture(scope="module")
def ready_page(chromium, site):
    """The explorer with a running engine, shared by the tests of a module; checked for complaints in the end."""
    page = chromium.new_context().new_page()
    page.watch = Watch(page, site)
    page.add_init_script(LISTEN)
    page.goto(f"{site}#explore")
    wait_until_ready(page)
    yield page
    page.watch.check()
    page.context.close()


@pytest.fixture
def fresh_page(chromium):
    """An empty page, for tests in which complaints are expected."""
    page = chromium.new_context().new_page()
    yield page
    page.context.close()
