"""The page of the HTTP server in a real browser: it shows every operation, tries them, and writes code that runs."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from .conftest import Watch, expect
from .readable import CONTRAST, MARKS, NAMELESS
from .test_report import STICKING_OUT

pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def address():
    """A server process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlsysim", "api", "--port", str(port), "--workers", "1", "--timeout", "300"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    home = f"http://127.0.0.1:{port}"
    for _ in range(1500):
        try:
            urllib.request.urlopen(f"{home}/health", timeout=5).close()
            break
        except OSError:
            assert server.poll() is None
            time.sleep(0.2)
    yield home
    server.terminate()
    server.wait(600)


@pytest.fixture
def opened(chromium, address):
    pages = []

    def open_page(hash: str = "", width: int = 1280, **options):
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        page.watch = Watch(page, address)
        page.goto(f"{address}/{hash}")
        page.wait_for_selector("html[data-ready]", state="attached")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.watch.check()
        page.context.close()


def test_every_operation_is_shown_and_an_example_is_answered(opened, address):
    page = opened()
    with urllib.request.urlopen(f"{address}/openapi.json") as reply:
        told = json.load(reply)
    names = [each["operationId"] for methods in told["paths"].values() for each in methods.values()]
    assert sorted(page.evaluate("[...document.querySelectorAll('.operation')].map(card => card.id)")) == sorted(names)
    assert "`" not in page.inner_text("body") and page.locator(".what code").count(), "code is set as code"
    page.click("#train .try")
    expect(page.locator("#train .badge.good")).to_contain_text("200")
    asked = json.loads(page.input_value("#train textarea"))
    request = urllib.request.Request(
        f"{address}/v1/train", json.dumps(asked).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as reply:
        answer = json.load(reply)
    assert page.inner_text("#train .output .headline") == answer["headline"]
    assert json.loads(page.inner_text("#train .answer")) == answer


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_read(opened, scheme):
    page = opened(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert page.evaluate(CONTRAST)["faint"] == [] and page.evaluate(NAMELESS) == [] and page.evaluate(MARKS) == []


def test_a_mistake_is_answered_with_its_sentence(opened):
    page = opened("#train")
    page.fill("#train textarea", '{"model": "Llama3_70", "on": "8xH100"}')
    page.click("#train .try")
    expect(page.locator("#train .output .headline")).to_contain_text("did you mean 'Llama3_70B'")
    page.fill("#train textarea", '{"model": ')
    expect(page.locator("#train pre[aria-label$=code]")).to_contain_text("no JSON yet")
    page.click("#train .try")
    expect(page.locator("#train .badge.bad")).to_contain_text("The body is no JSON")
    # The refused request is the browser's complaint.
    page.watch.complaints = [said for said in page.watch.complaints if "422" not in said]


def test_addresses_are_tried_and_operations_found_by_their_keys(opened):
    page = opened("#zoo_entry")
    page.fill("#zoo_entry input[name=kind]", "hardware")
    page.fill("#zoo_entry input[name=name]", "H100")
    page.click("#zoo_entry .try")
    expect(page.locator("#zoo_entry .answer")).to_contain_text("NVIDIA")
    page.fill("#find", "ttft")
    assert page.locator(".operation:visible").count() >= 1 and page.locator("#serve").is_visible()
    assert not page.locator("#walls").is_visible()


@pytest.mark.parametrize("language", ["curl", "Python", "JavaScript"])
def test_the_code_runs_and_gets_the_answer(opened, language, tmp_path):
    page = opened("#walls")
    page.fill("#walls textarea", '{"number": 2}')
    page.click(f"#walls .language:text-is('{language}')")
    code = page.inner_text("#walls pre[aria-label$=code]")
    if language == "JavaScript":
        page.evaluate(
            f"(async () => {{ window.told = await (async () => {{ {code.replace('console.log(', 'return (')} }})(); }})()"
        )
        assert page.evaluate("told.name") == "Memory"
        return
    if language == "curl" and not shutil.which("curl"):
        pytest.skip("curl is not installed")
    command = ["sh", "-c", code] if language == "curl" else [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "Memory" in told.stdout


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (360, "light"), (1280, "dark")])
def test_nothing_sticks_out_and_everything_opens(opened, width, scheme):
    page = opened("#compare", width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('#compare details').forEach(fold => { fold.open = true; })")
    page.wait_for_selector("#compare .keys")
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_is_used_with_the_keyboard_alone(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#walls > summary")
    page.keyboard.press("Enter")
    page.focus("#walls .try")
    page.keyboard.press("Enter")
    expect(page.locator("#walls .badge.good")).to_be_visible()
    unnamed = "[...document.querySelectorAll('#walls :is(input, select, textarea)')].filter(e => !e.labels.length)"
    assert page.evaluate(f"{unnamed}.length") == 0
