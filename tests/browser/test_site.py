"""The built site in a real browser: it starts, computes what Python computes, stays at home, and says what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from mlsysim.labs import bridge
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.zoo.files import shipped_files

from .conftest import LISTEN, READY_MILLISECONDS, Watch, expect, served, wait_until_ready

DESIGN = {
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 256, "seq_len": 4096},
    "hardware": {"on": "256xH100"},
    "parallelism": {"tp": 8, "pp": 2, "zero": 1, "micro_batch": 1},
    "ops": {"region": "Quebec", "duration": "30 day"},
}


def design(**parts):
    """The design with other fields in some of its parts."""
    return DESIGN | {part: DESIGN[part] | fields for part, fields in parts.items()}


CALL = """async ([name, args]) => {
  try { return { value: await window.engine.call(name, args) }; }
  catch (error) { return { error: error.message, kind: error.kind }; }
}"""


def failure(page, address: str) -> str:
    """What the page says when it cannot start."""
    page.goto(address)
    page.wait_for_selector("html[data-failed]", state="attached")
    assert page.get_by_role("alert").count() == 1
    return page.get_by_role("alert").inner_text()


def close(ours, theirs) -> bool:
    """Equal, but for the last bits in which the two mathematical libraries may differ."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(close(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(ours, float):
        return theirs == pytest.approx(ours, rel=1e-12)
    return ours == theirs


def test_the_first_page_shows_an_answer(ready_page):
    assert "Training Llama-3.1-70B in fp16 on 512 x H100" in ready_page.locator("#verdict").inner_text()
    assert not ready_page.locator("#progress").is_visible()


def test_a_line_tells_how_far_loading_is(ready_page):
    said = ready_page.said
    stages = [line.split(":")[0] for line in said if " MB" in line]
    named = ["Loading Python", "Unpacking the engine", "Starting the engine"]
    assert [stage for stage in dict.fromkeys(stages) if stage != "Loading"] == named
    parts = [re.search(r"([\d.]+) of ([\d.]+) MB", line) for line in said if line.startswith(tuple(named))]
    loaded = [float(part[1]) for part in parts]
    assert loaded == sorted(loaded) and len(set(loaded)) > 3
    assert loaded[-1] == float(parts[-1][2]) > 10


def test_nothing_is_asked_of_another_host(ready_page, site_folder):
    asked = ready_page.watch.requests
    assert any(url.split("?")[0].endswith("pyodide.asm.wasm.bin") for url in asked), "the worker's requests are seen"
    names = {url.split("?")[0].rpartition("/")[2] for url in asked}
    there = {path.name for path in site_folder.rglob("*.bin")}
    assert {name for name in names if name.endswith(".bin")} == there - {"ordinary.bin"}, (
        "an ordinary start is elsewhere"
    )
    assert ready_page.watch.foreign == []


def test_the_browser_computes_what_python_computes(ready_page):
    small = {"task": "inference", "workload": {"model": "Llama3_8B", "seq_len": 2048}, "hardware": {"on": "1xH100"}}
    calls = [
        ("evaluate", {"plan": DESIGN}),
        ("evaluate", {"plan": design(workload={"batch_size": 2048}, hardware={"efficiency": 0.4})}),
        ("evaluate", {"plan": small}),
        ("evaluate", {"plan": small | {"workload": {"model": "Llama3_70B"}}}),
    ]
    for name, args in calls:
        ours = json.loads(bridge.call(name, json.dumps(args)))
        theirs = ready_page.evaluate(CALL, [name, args])
        assert ours["ok"], ours
        assert close(ours["value"], theirs["value"])


def test_a_browser_of_another_language_has_the_same_memory(chromium, site):
    page = chromium.new_context(locale="zh-Hant-TW").new_page()
    page.goto(f"{site}index.html", wait_until="commit")
    page.wait_for_selector("html[data-engine], html[data-failed]", state="attached", timeout=READY_MILLISECONDS)
    assert page.locator("html[data-failed]").count() == 0, page.locator("#status").inner_text()
    opened = page.evaluate("engine.call('lab_open', { name: 'nine_million' })")
    assert opened["id"] == "nine_million", "modules that are not in the memory are imported beside it"
    page.context.close()


def test_where_the_memory_does_not_fit_python_starts_from_its_modules(fresh_page, site_folder, tmp_path):
    folder = tmp_path / "site"
    shutil.copytree(site_folder, folder, copy_function=os.link)
    worker = (folder / "worker.js").read_text()
    assert worker.count('_: "python"') == 1, "what Python is told, of which all that follows in its memory depends"
    (folder / "worker.js").unlink()
    (folder / "worker.js").write_text(worker.replace('_: "python"', '_: "python in another browser"'))
    fresh_page.add_init_script(LISTEN)
    with served(folder) as address:
        watch = Watch(fresh_page, address)
        fresh_page.goto(f"{address}index.html#explore")
        wait_until_ready(fresh_page)
        for name, args in (("evaluate", {"plan": DESIGN}), ("lab_open", {"name": "nine_million"})):
            ours = json.loads(bridge.call(name, json.dumps(args)))
            assert ours["ok"] and close(ours["value"], fresh_page.evaluate(CALL, [name, args])["value"])
        watch.check()
    said = fresh_page.evaluate("said")
    assert any(line.startswith("Starting Python from its modules") for line in said)
    assert any("ordinary.bin" in url for url in watch.requests)


def test_the_folder_has_at_most_20_megabytes(site_folder):
    assert sum(path.stat().st_size for path in site_folder.rglob("*") if path.is_file()) <= 20e6


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("evaluate", {"plan": design(workload={"model": "Lama3_70B"})}, "did you mean 'Llama3_70B'"),
        ("evaluate", {"plan": design(workload={"batch_size": 0})}, "batch_size"),
        ("evalute", {}, "did you mean 'evaluate'"),
    ],
)
def test_bad_input_is_one_sentence(ready_page, name, args, sentence):
    answer = ready_page.evaluate(CALL, [name, args])
    assert answer["kind"] == "input" and sentence in answer["error"]
    assert answer["error"] == json.loads(bridge.call(name, json.dumps(args)))["error"]


@pytest.mark.parametrize(
    "lost",
    [
        "pyodide/pyodide.asm.wasm.bin",
        "pyodide/pyodide.asm.js.bin",
        "engine.bin",
        "memory.bin",
        "library.bin",
        "manifest.json",
        "worker.js",
    ],
)
def test_a_missing_file_is_named(fresh_page, site_folder, tmp_path, lost):
    folder = tmp_path / "site"
    shutil.copytree(site_folder, folder, copy_function=os.link)
    target = folder / lost
    target.unlink()
    with served(folder) as address:
        told = failure(fresh_page, address)
    assert target.name in told and "mlsysim labs build" in told


def test_a_page_from_a_file_says_how_to_serve_it(fresh_page, site_folder: Path):
    assert "mlsysim labs open" in failure(fresh_page, (site_folder / "index.html").as_uri())


def test_a_browser_without_webassembly_is_told(launch, site):
    page = launch("--js-flags=--jitless").new_page()  # V8 without a compiler has no WebAssembly
    assert "no WebAssembly" in failure(page, site)


# --- one document -----------------------------------------------------------------------------------------------------


def test_python_starts_once_for_all_views(ready_page):
    page = ready_page
    asked = sum("pyodide.asm.wasm" in url for url in page.watch.requests)
    page.evaluate("window.kept = engine")
    for name, heading in (("Labs", "Labs"), ("Gallery", "Will it fit"), ("Explore", "Explore")):
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_selector("html[data-ready]", state="attached")
        expect(page.get_by_role("heading", level=1, name=heading)).to_be_focused()
        expect(page.locator("nav [aria-current=page]")).to_have_text(name)
    assert "task=training" in page.url, "the explorer remembers the design"
    page.go_back()
    expect(page.locator("#view-gallery")).to_be_visible()
    assert page.evaluate("kept === engine") and page.title().startswith("Gallery")
    assert sum("pyodide.asm.wasm" in url for url in page.watch.requests) in (asked, asked + 1), "the second searches"


@pytest.mark.parametrize(("old", "new"), [("labs.html", "#labs"), ("lab.html?lab=roofline", "#lab/roofline")])
def test_addresses_of_former_pages_still_lead_there(fresh_page, site, old, new):
    fresh_page.goto(f"{site}{old}")
    fresh_page.wait_for_url(f"{site}index.html{new}")


def test_the_gallery_needs_no_javascript_and_no_engine(chromium, site):
    page = chromium.new_context(java_script_enabled=False).new_page()
    page.goto(site)
    cards = page.locator(".scenario")
    assert cards.count() == len(shipped_files("scenario"))
    first = page.locator("[data-scenario=llama3-70b-512-h100]")
    answer = evaluate(load_plan("scenario:llama3-70b-512-h100"), change=False)
    assert answer.binding.sentence in first.inner_text() and answer.metric("mfu").text in first.inner_text()
    assert first.locator("svg[role=img]").count() == 1
    page.context.close()


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_no_number_of_a_card_breaks_within_itself(fresh_page, site, width):
    fresh_page.set_viewport_size({"width": width, "height": 800})
    fresh_page.goto(f"{site}index.html", wait_until="domcontentloaded")
    broken = """[...document.querySelectorAll(".three dd")].filter((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      return new Set([...range.getClientRects()].map((line) => line.top)).size > one.textContent.trim().split(" ").length;
    }).map((one) => one.textContent)"""
    assert fresh_page.locator(".three dd").count() > 40
    assert fresh_page.evaluate(broken) == []
    assert fresh_page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_dark_page_is_printed_on_white(fresh_page, site):
    fresh_page.add_init_script("localStorage.setItem('mlsysim-theme', 'dark')")
    fresh_page.goto(f"{site}index.html", wait_until="domcontentloaded")
    colours = "[document.body, document.querySelector('.card')].map((part) => getComputedStyle(part).backgroundColor)"
    assert fresh_page.evaluate(colours) == ["rgb(14, 17, 20)", "rgb(21, 24, 29)"]
    fresh_page.emulate_media(media="print")
    assert fresh_page.evaluate(colours) == ["rgb(255, 255, 255)", "rgb(255, 255, 255)"]


def test_a_card_leads_to_its_design(ready_page):
    page = ready_page
    page.get_by_role("link", name="Gallery", exact=True).click()
    page.get_by_role("link", name="A chatbot on eight H200").click()
    page.wait_for_selector("html[data-ready]", state="attached")
    expect(page.locator("#sentence")).to_contain_text("Llama-3.1-70B")
    expect(page.locator("#sentence")).to_contain_text("H200")
    page.go_back()
    expect(page.locator("#view-gallery")).to_be_visible()
