"""Every kind of page can be read and used: contrast in light and dark, names of what is pressed, marks, focus in the order of reading, no motion unless wanted."""

from __future__ import annotations

import pytest

from mlsysim.report.write import write_report

from ..report.reading import report_of
from .conftest import go, resized, served, visit
from .readable import CONTRAST, FOCUS, MARKS, MOVING, NAMELESS

SERVING = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 512, "output_tokens": 128, "qps": 5.0},
}
POOLS = {
    "task": "rl",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "8xH100"},
    "rl": {"prompts": 32, "samples": 8, "response": 800, "max_response": 2048, "split": "auto"},
}
TOO_LARGE = {"task": "training", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "8xH100"}}
VIEWS = ["gallery", "labs", "class", "lab/roofline"]
REPORTS = ["chatbot-llama70b-h200", "grpo-qwen3-32b-64-h100"]
DOCUMENTS = ["index.html", "charts.html", "walls/14-communication.html", "zoo/chips.html"]
OPEN = "document.querySelectorAll('main details, details.fold').forEach((fold) => { fold.open = true; })"
FEWEST = 15
"""Texts that every page has; the words of an empty class are about as many."""


def read(page) -> None:
    """Nothing that a reader would miss, as the page is now."""
    found = page.evaluate(CONTRAST)
    assert found["faint"] == [] and found["seen"] >= FEWEST
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(MARKS) == []


def test_what_is_faint_nameless_or_moving_is_found(fresh_page):
    fresh_page.set_content(
        """<html><body style="background: #000"><h2>a</h2><div style="background: #fff; transition: color 1s">
        <p style="color: #777">grey</p><p style="color: #767676">darker</p><p style="color: #949494; font-size: 24px">large</p>
        <p style="color: #000; opacity: 0.3">faded</p><button></button><button tabindex="3">b</button>
        <svg width="90" height="40"><rect width="90" height="40" fill="#222"/><text y="20" fill="#333">on a bar</text>
        <text x="60" y="20" fill="#eee">seen</text></svg></div></body></html>"""
    )
    faint = " ".join(fresh_page.evaluate(CONTRAST)["faint"])
    assert [word in faint for word in ("grey", "faded", "on a bar")] == [True, False, True], "one of a kind of element"
    assert all(word not in faint for word in ("darker", "large", "seen"))
    assert len(fresh_page.evaluate(NAMELESS)) == 1 and fresh_page.evaluate(MOVING) == ["div."]
    assert fresh_page.evaluate(MARKS) == ["not one main part", "not one first heading", "tabindex 3", "no language"]


@pytest.fixture(scope="module", params=["light", "dark"])
def themed(ready_page, request):
    """The site in a theme; it is light again in the end."""
    ready_page.emulate_media(color_scheme=request.param, reduced_motion="reduce")
    yield ready_page
    ready_page.emulate_media(color_scheme="light", reduced_motion="no-preference")


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_read(themed, view):
    visit(themed, view)
    read(themed)
    assert themed.evaluate(MOVING) == []


@pytest.mark.parametrize("plan", [None, SERVING, POOLS, TOO_LARGE], ids=["training", "serving", "rl", "too large"])
def test_the_explorer_is_read(themed, plan):
    go(themed, plan)
    themed.evaluate(OPEN)
    themed.wait_for_selector("#metrics tbody tr", state="attached")
    read(themed)
    levels = themed.locator("#metrics tbody").evaluate_all("all => all.map((body) => body.rows.length)")
    assert min(levels) > 1, "no heading stands over nothing"
    assert themed.evaluate(MOVING) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", REPORTS)
def test_reports_are_read(chromium, tmp_path, name, scheme):
    write_report(report_of(name), tmp_path / "report.html")
    page = chromium.new_context(color_scheme=scheme).new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    read(page)
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_documentation_is_read(chromium, documentation_folder, scheme):
    page = chromium.new_context(color_scheme=scheme).new_page()
    with served(documentation_folder) as address:
        for path in DOCUMENTS:
            page.goto(f"{address}{path}")
            page.wait_for_load_state("networkidle")
            read(page)
    page.context.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_the_focus_goes_in_the_order_of_reading(fresh_page, site, width):
    fresh_page.set_viewport_size({"width": width, "height": 900})
    fresh_page.goto(f"{site}index.html", wait_until="domcontentloaded")
    order = []
    for _ in range(12):
        fresh_page.keyboard.press("Tab")
        order.append(fresh_page.evaluate(FOCUS))
    assert all(shown for _, _, shown in order), "what has the focus is seen, and that it has it"
    places = [place for place, _, _ in order]
    assert places == sorted(places) and order[0][1].startswith("Skip"), order


# What is fixed to the top of a narrow window may not lie over what has the focus.
COVERED = """() => {
  const held = document.activeElement, box = held.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + Math.min(box.height, 20) / 2);
  return top && !held.contains(top) && !top.contains(held) && ![...(held.labels ?? [])].some((label) => label.contains(top));
}"""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("view", ["explore", "labs", "lab/roofline"])
def test_the_focus_stays_in_sight_on_every_view(ready_page, view, width):
    go(ready_page, POOLS) if view == "explore" else visit(ready_page, view)
    before = ready_page.viewport_size
    explored = view == "explore" and width != before["width"]
    resized(ready_page, width, 740) if explored else ready_page.set_viewport_size({"width": width, "height": 740})
    if view == "explore":  # what is drawn above the focus moves it
        ready_page.wait_for_selector("html[data-complete]", state="attached")
        ready_page.wait_for_selector("figure.hero[data-left='0']")
    ready_page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for key, many in (("Tab", 40), ("Shift+Tab", 15)):
        ready_page.evaluate("window.held = []")
        for _ in range(many):
            ready_page.keyboard.press(key)
            if ready_page.evaluate("document.activeElement === document.body"):
                break  # the last of a short page
            _, words, shown = ready_page.evaluate(FOCUS)
            assert shown and not ready_page.evaluate(COVERED), (key, words)
            ready_page.evaluate("held.push(document.activeElement)")
        # Charts that are drawn meanwhile add to the document: places are looked up together.
        order = ready_page.evaluate(
            "[...document.querySelectorAll('*')].map((each) => held.indexOf(each)).filter((at) => at >= 0)"
        )
        assert len(order) > 3 and order == sorted(order, reverse=key != "Tab")
    ready_page.set_viewport_size(before)
