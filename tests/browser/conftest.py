"""A built site on a loopback port and Debian's Chromium: what the browser tests share.

Where Chromium, Playwright or the pinned downloads are missing the tests are skipped with the reason, unless
``MLSYSIM_REQUIRE_BROWSER=1`` makes that a failure.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from mlsysim.errors import InputError
from mlsysim.labs.build import MANIFEST, build
from mlsysim.labs.serve import SiteHandler, in_background
from mlsysim.plans.audit import AUDITED

READY_MILLISECONDS = 300_000
"""How long anything is waited for: a busy machine is no defect, and what never comes fails however long it is."""
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
        page.set_default_timeout(READY_MILLISECONDS)
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

    waiting.set_options(timeout=READY_MILLISECONDS)
    return waiting(what)


def wait_until_ready(page) -> None:
    """Until the first answer is shown, or the page says why there is none."""
    page.wait_for_selector("html[data-ready=''], html[data-failed]", state="attached", timeout=READY_MILLISECONDS)
    assert page.locator("html[data-failed]").count() == 0, page.locator("#status").inner_text()


# Keeps every text of the status line in window.said.
LISTEN = """addEventListener("DOMContentLoaded", () => {
  const line = document.getElementById("status");
  window.said = [];
  new MutationObserver(() => said.push(line.textContent)).observe(line, { childList: true });
})"""


@pytest.fixture(scope="session")
def engine_page(chromium, site):
    """The site with a running engine, which takes long to start: one page for all tests, what it said meanwhile in ``said``."""
    page = chromium.new_context().new_page()
    page.watch = Watch(page, site)
    page.add_init_script(LISTEN)
    page.goto(f"{site}index.html#explore")
    wait_until_ready(page)
    page.said = page.evaluate("said")
    yield page
    page.context.close()


@pytest.fixture(scope="module")
def ready_page(engine_page):
    """The explorer at the design that it shows first, whatever modules ran before; checked for complaints in the end."""
    go(engine_page)
    yield engine_page
    engine_page.watch.check()
    engine_page.watch.complaints.clear()


def leaves(value, path=""):
    """The paths of a plan with their values as an address has them."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def settled(page) -> None:
    """Wait for the answer to the last edit; an edit takes the mark away before its event returns."""
    page.wait_for_selector("html[data-ready='']", state="attached")


# As the back button does it; an address that is the present one would be no navigation.
GO = """fragment => {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  document.documentElement.dataset.ready = "old";
  history.pushState(null, "", location.pathname + "#" + fragment);
  dispatchEvent(new PopStateEvent("popstate"));
}"""


def visit(page, fragment: str) -> None:
    """Go to a view by its address, without loading the page again."""
    page.evaluate(GO, fragment)
    settled(page)


def go(page, plan=None) -> None:
    """Show a plan by its address; nothing is the first design."""
    visit(page, urlencode(list(leaves(AUDITED.document() if plan is None else plan))))


def resized(page, width: int, height: int) -> None:
    """Another size of the window, once the explorer has drawn its charts for it; the width has to be another one."""
    page.evaluate("document.documentElement.dataset.ready = 'old'")
    page.set_viewport_size({"width": width, "height": height})
    settled(page)


def saved(page, selector: str) -> bytes:
    """What a button of the menu "Save", or another, writes."""
    if page.locator(f"#save {selector}").count():
        page.locator("#save summary").click()
    with page.expect_download() as download:
        page.locator(selector).click()
    assert not page.locator("#save").evaluate("menu => menu.open"), "what was chosen closes the menu"
    return Path(download.value.path()).read_bytes()


@pytest.fixture
def fresh_page(chromium):
    """An empty page, for tests in which complaints are expected."""
    page = chromium.new_context().new_page()
    page.set_default_timeout(READY_MILLISECONDS)
    yield page
    page.context.close()
