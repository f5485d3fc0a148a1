"""Beside the answer in a real browser: undo and redo, files, the design over time, other machines, and answers before Python has started."""

from __future__ import annotations

import csv
import tomllib

import pytest

from mlsysim.labs.gallery import address
from mlsysim.labs.machines import machine
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan, plan_from_text

from .conftest import expect, go, saved, settled, wait_until_ready
from .test_explorer import CONFIG

SERVING = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0},
}
MOST_BYTES = 600_000
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 5},500,100\n" for k in range(100))


@pytest.fixture(scope="module")
def page(ready_page):
    go(ready_page, SERVING)
    return ready_page


def addressed(page, words: str):
    """Wait until the answer is there and the address, which is written a moment after an edit, has these words; only then can it be undone."""
    settled(page)
    page.wait_for_function("words => location.hash.includes(words)", arg=words)


def drop(page, name: str, text: str):
    page.set_input_files("#import", {"name": name, "mimeType": "text/plain", "buffer": text.encode()})
    expect(page.locator("#imported")).to_contain_text(name)
    settled(page)


def test_undo_and_redo_by_button_and_by_key(page):
    field = page.locator("#serving-prompt-tokens")
    expect(page.get_by_role("button", name="Redo")).to_be_disabled()
    field.fill("750")
    addressed(page, "prompt_tokens=750")
    page.get_by_role("button", name="Undo").click()
    settled(page)
    expect(field).to_have_value("500")
    page.locator("h1:visible").first.focus()
    page.keyboard.press("Control+Shift+Z")
    settled(page)
    expect(field).to_have_value("750")
    page.keyboard.press("Control+Z")
    settled(page)
    expect(field).to_have_value("500")


def test_other_machines_come_one_by_one_and_one_can_be_taken(page):
    row = page.locator("#machines-table [data-chip=H200]")
    expect(row).to_be_visible()
    expected = machine(SERVING, "H200")
    expect(row).to_contain_text(expected["price"]["text"])
    expect(row.locator(".state")).to_have_text(expected["word"])
    row.get_by_role("button").click()
    addressed(page, "H200")
    page.get_by_role("button", name="Undo").click()
    settled(page)


def test_traffic_plays_and_pauses(page):
    page.wait_for_selector("html[data-live]", state="attached")
    expect(page.locator("#live-title")).to_contain_text("seconds of this traffic")
    assert page.locator("#live-charts svg[role=img]").count() == 2
    page.locator("#live-speed").select_option("1")
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("() => document.getElementById('live-time').valueAsNumber > 0.5")
    page.get_by_role("button", name="Pause", exact=True).click()
    clock = page.locator("#live-clock").inner_text()
    page.wait_for_timeout(200)
    assert page.locator("#live-clock").inner_text() == clock
    page.emulate_media(reduced_motion="reduce")
    page.locator("#live-time").focus()
    page.keyboard.press("Home")
    expect(page.locator("#live-clock")).to_contain_text("0.0 s of")
    page.emulate_media(reduced_motion="no-preference")


def test_a_trace_and_a_launch_script_are_taken_and_a_bad_file_is_told(page):
    drop(page, "busy.csv", TRACE)
    expect(page.locator("#imported")).to_contain_text("taken for a trace: 100 requests")
    drop(page, "serve.sh", "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2")
    expect(page.locator("#parallelism-tp")).to_have_value("2")
    page.set_input_files("#import", {"name": "note.txt", "mimeType": "text/plain", "buffer": b"hello"})
    expect(page.get_by_role("alert")).to_contain_text("note.txt was not taken")


def test_a_saved_scenario_brings_its_imported_model_along(page, tmp_path):
    import json

    drop(page, "config.json", json.dumps(CONFIG))
    text = saved(page, "#export-toml").decode()
    key = tomllib.loads(text)["workload"]["model"]
    assert tomllib.loads(text)["models"].keys() == {key}
    assert evaluate(plan_from_text(text), change=False).feasible
    rows = list(csv.DictReader(saved(page, "#export-csv").decode().splitlines()))
    assert len(rows) > 10 and rows[0]["unit"] == "GB"


@pytest.mark.parametrize("scenario", ["llama3-70b-512-h100", None], ids=["of an address", "the first design"])
def test_a_scenario_is_answered_before_python_has_started(fresh_page, site, scenario):
    """The runtime never comes, and the answer is there."""
    fresh_page.route("**/pyodide.asm.wasm*", lambda route: None)
    plan = AUDITED if scenario is None else load_plan(f"scenario:{scenario}")
    fresh_page.goto(f"{site}#explore" if scenario is None else f"{site}{address(plan.document())}")
    fresh_page.wait_for_selector("html[data-early]", state="attached")
    answer = evaluate(plan, change=False)
    expect(fresh_page.locator("#binding")).to_have_text(answer.binding.sentence)
    assert fresh_page.locator("html[data-engine]").count() == 0
    fresh_page.unroute_all(behavior="ignoreErrors")


def test_the_first_picture_needs_little_and_no_python(fresh_page, site):
    """What a browser has to fetch for it is what it waits for; how long that takes is a matter of the machine."""
    fresh_page.route("**/pyodide/**", lambda route: None)
    fresh_page.goto(site)
    painted = fresh_page.evaluate(
        "new Promise((done) => new PerformanceObserver((list) => done(list.getEntries().at(-1).startTime))"
        ".observe({ type: 'largest-contentful-paint', buffered: true }))"
    )
    fetched = fresh_page.evaluate(
        "performance.getEntries().reduce((sum, { encodedBodySize }) => sum + (encodedBodySize ?? 0), 0)"
    )
    assert painted > 0 and 0 < fetched < MOST_BYTES
    fresh_page.unroute_all(behavior="ignoreErrors")


def test_the_curve_is_saved_as_a_table(page):
    page.wait_for_selector("figure.hero[data-left='0']")
    with page.expect_download() as saved:
        page.locator("#save-curve").click()
    rows = list(csv.reader(saved.value.path().read_text().splitlines()))
    assert len(rows) >= 5 and rows[0][4:] == ["binds", "reason"]
    assert float(page.locator("#hero-dot").get_attribute("aria-valuemax")) + 1 == len(rows) - 1


DROP = """([name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name));
  for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: carried }));
}"""


def test_a_trace_on_the_gallery_is_played_after_a_reload_too(page):
    go(page, SERVING)
    page.get_by_role("link", name="Gallery", exact=True).click()
    expect(page.locator("#view-gallery")).to_be_visible()
    page.evaluate(DROP, ["day.csv", TRACE])
    expect(page.locator("#imported")).to_contain_text("day.csv was taken for a trace: 100 requests")
    addressed(page, "serving.trace=")
    headline = page.locator("#headline").inner_text()
    page.get_by_role("button", name="Undo").click()
    settled(page)
    assert "serving.trace=" not in page.url
    expect(page.locator("#imported")).to_be_hidden()
    page.get_by_role("button", name="Redo").click()
    settled(page)
    page.reload()
    wait_until_ready(page)
    expect(page.locator("#headline")).to_have_text(headline)


def test_what_is_printed_has_its_numbers(page):
    page.emulate_media(media="print")
    for kind in (".handle", "#gauges .why", "#time .slice"):
        expect(page.locator(kind).first).to_be_visible()
    for kind in ("#design", "#undo", "#pin"):
        expect(page.locator(kind)).to_be_hidden()
    assert page.locator("#claim").evaluate("one => getComputedStyle(one).position") == "static"
    page.emulate_media(media="screen")


def test_a_design_that_cannot_be_asked_has_no_machines_and_no_complaint(page):
    """An address that was only begun may reach the background before its own answer has refused it."""
    begun = {"task": "serving", "workload": {"model": "Llama3_8B"}}
    asked = "async plan => { await (await import('./beside.js')).deeper(plan, 600, () => true); return 'ended'; }"
    assert page.evaluate(asked, begun) == "ended"
    go(page, SERVING)
    expect(page.locator("#machines-table tbody tr").first).to_be_attached()
