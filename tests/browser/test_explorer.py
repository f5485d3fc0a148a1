"""The explorer in a real browser: every control moves the numbers, and they are those of the terminal."""

from __future__ import annotations

import json
import re
import struct
import tomllib
import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.plans.audit import AUDITED

from .conftest import expect, go, leaves, resized, saved, settled, visit, wait_until_ready

MIXTRAL = {
    "task": "training",
    "workload": {"model": "Mixtral_8x7B", "batch_size": 512, "seq_len": 4096, "precision": "bf16"},
    "hardware": {"on": "64xH100"},
    "parallelism": {"tp": 2, "pp": 4, "ep": 4, "virtual_stages": 2, "micro_batch": 1, "zero": 1},
    "ops": {"region": "Quebec", "duration_days": 30},
}
FIRST_ORDER = {
    **MIXTRAL,
    "workload": {**MIXTRAL["workload"], "tokens": 1e12},
    "hardware": {"on": "64xH100", "efficiency": 0.4},
}
SERVING = {
    "task": "serving",
    "workload": {"model": "Mixtral_8x7B", "precision": "fp8"},
    "hardware": {"on": "16xH100"},
    "parallelism": {"tp": 2, "pp": 1, "ep": 2},
    "serving": {"prompt_tokens": 2048, "output_tokens": 256, "concurrency": 64, "replicas": 4},
    "ops": {"region": "Quebec"},
}
RATE = {
    **SERVING,
    "hardware": {"on": "16xH100", "efficiency": 0.5},
    "serving": {"prompt_tokens": 2048, "output_tokens": 256, "qps": 8.0},
}
PLAYED = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0, "requests": 300, "seed": 0},
}
PASS = {
    "task": "inference",
    "workload": {"model": "Llama3_8B", "batch_size": 8, "seq_len": 1024},
    "hardware": {"on": "1xH100", "efficiency": 0.5},
    "ops": {"region": "Quebec"},
}
TOO_BIG = {"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "1xH100"}}
SEVERAL = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 64},
    "hardware": {"on": "8xB200 + 8xH100"},
    "parallelism": {"tp": 8},
}
CLUSTER = {
    "name": "a text that would be read as a number: 12",
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 1024, "seq_len": 8192},
    "hardware": {"on": "Research_256"},
    "parallelism": {"tp": 8, "sequence_parallel": True},
    "ops": {"region": "Poland", "budget": "100000 USD"},
    "constraints": {"assert": [{"metric": "mfu", "min": 0.99}]},
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "_name_or_path": "someone/small-model",
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}


def shown(page) -> dict[str, str]:
    return page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#metrics [data-metric]')]"
        ".map((button) => [button.dataset.metric, button.querySelector('.text').textContent]))"
    )


def words(page) -> str:
    """Everything the answer says: numbers, sentences and the texts of the charts."""
    return page.evaluate(
        "[...document.querySelectorAll('#headline, #sentences, #binding, #metrics, #origins, #charts desc')]"
        ".map((part) => part.textContent).join('\\n')"
    )


def unfolded(page):
    """The page with the folds of its answer open: what they hold is built when they are opened."""
    page.evaluate(
        "for (const id of ['in-words', 'walls', 'numbers', 'origins-rest']) document.getElementById(id).open = true"
    )
    page.wait_for_selector("#metrics [data-metric]")
    return page


@pytest.fixture(scope="module")
def page(ready_page):
    ready_page.wait_for_selector("html[data-lists]", state="attached")
    return unfolded(ready_page)


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [None, MIXTRAL, FIRST_ORDER, SERVING, RATE, PLAYED, PASS, TOO_BIG, SEVERAL, CLUSTER],
    ids=["first", "mixtral", "first-order", "serving", "rate", "played", "pass", "too-big", "several", "cluster"],
)
def test_the_numbers_are_those_of_the_terminal(page, tmp_path, plan):
    go(page, plan)
    if plan is None:
        plan = AUDITED.document()
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    done = CliRunner().invoke(app, ["eval", str(path), "--json"])
    printed = json.loads(done.stdout)
    assert shown(page) == {path: metric["text"] for path, metric in printed["metrics"].items()}
    assert page.locator("#binding").inner_text() == printed["binding"]["sentence"]
    assert page.locator("#sentences li").all_text_contents()[: len(printed["verdict"])] == printed["verdict"]
    assert page.locator("#badge").inner_text() == printed["ruling"]["claim"]


def test_the_badge_says_whether_it_fits(page):
    near = {**PLAYED, "serving": PLAYED["serving"] | {"slo": "ttft=30ms"}}
    cases = (
        (MIXTRAL, "Fits.", "good"),
        (TOO_BIG, "Does not fit.", "bad"),
        (CLUSTER, "Does not hold: ", "bad"),
        (near, "Too close to call: ", "warn"),
    )
    for plan, badge, colour in cases:
        go(page, plan)
        assert page.locator("#badge").inner_text().startswith(badge)
        assert page.locator("#claim").get_attribute("data-state") == colour


def test_every_chart_is_drawn(page):
    go(page, MIXTRAL)
    page.evaluate("document.getElementById('walls').open = true")
    for name in ("roofline", "memory", "scorecard"):
        chart = page.locator(f"#chart-{name} svg[role=img]")
        assert chart.is_visible() and chart.locator("title").first.text_content()
    assert "Binds." in page.locator("#chart-scorecard").text_content()
    go(page, PLAYED)
    for name in ("percentiles", "traffic"):
        assert page.locator(f"#chart-{name} svg[role=img]").is_visible()


# --- controls -----------------------------------------------------------------------------------------------------

# Moves a control a little, one way or the other; false where there is no such way, or the control is not shown.
MOVE = """([path, way]) => {
  const row = document.querySelector(`[data-control="${path}"]`);
  const range = row.querySelector("input[type=range]");
  const select = row.querySelector("select");
  if (row.hidden) return false;
  if (range) {
    const next = Number(range.value) + way;
    if (next < 0 || next > Number(range.max)) return false;
    range.value = next;
    range.dispatchEvent(new Event("input", { bubbles: true }));
  } else {
    const next = select.selectedIndex + way;
    if (next < 0 || next >= select.options.length) return false;
    select.selectedIndex = next;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }
  return true;
}"""

LIVE = """[...document.querySelectorAll("#design [data-group]:not([data-group=more]) [data-control]:not([hidden])")]
  .filter((row) => row.querySelector("input:enabled, select:enabled")).map((row) => row.dataset.control)"""


def moves(page, path: str, plan) -> bool:
    """Whether some movement of the control changes the answer and is no mistake: first of the design that is there, then of the plan."""
    for start, way in enumerate((1, 1, -1, 2, -2, 3, -3, 4, -4)):
        if start or page.locator("html[data-stale]").count():
            go(page, plan)
        before = words(page)
        if page.locator(f'[data-control="{path}"] [role=combobox]').count():
            box = page.locator(f'[data-control="{path}"] input')
            box.fill("Qwen2.5 7B" if "model" in path else "A100")
            box.press("Enter")
        elif not page.evaluate(MOVE, [path, way]):
            continue
        settled(page)
        if page.locator("html[data-stale]").count() == 0 and words(page) != before:
            return True
    return False


def test_every_control_moves_the_numbers(page, site):
    controls = page.evaluate("site => import(site + 'controls.js').then(({ CONTROLS }) => CONTROLS)", site)
    # What a plain control of the last group writes is tested without a browser: some say nothing without another.
    drawn = [control for control in controls if control["kind"] != "output" and control["group"] != "more"]
    # A step of post-training is simulated, which takes seconds: its controls are the same ones.
    wanted = {(control["path"], task) for control in drawn for task in control["tasks"] if task != "rl"}
    seen: set[tuple[str, str]] = set()
    for plan in (MIXTRAL, FIRST_ORDER, SERVING, RATE, PASS):
        go(page, plan)
        for path in page.evaluate(LIVE):
            pair = (path, plan["task"])
            if pair not in seen:
                assert moves(page, path, plan), pair
                seen.add(pair)
    assert seen == wanted
    page.watch.check()


def test_the_data_parallel_degree_is_what_is_left(page):
    go(page, MIXTRAL)
    assert page.locator("#parallelism-dp").inner_text() == "8"
    page.locator("#parallelism-tp").fill("4")
    settled(page)
    assert page.locator("#parallelism-dp").inner_text() == "4"


def test_switching_the_task_keeps_model_and_chip_and_comes_back(page):
    go(page)
    before = shown(page)
    page.locator("#design").get_by_text("Serving", exact=True).click()
    settled(page)
    assert "performance.ttft" in shown(page)
    expect(page.locator("#sentence")).to_contain_text("Serving Llama-3.1-70B")
    expect(page.locator("#sentence")).to_contain_text("H100")
    page.locator("#design").get_by_text("Training", exact=True).click()
    settled(page)
    assert shown(page) == before


def test_a_mistake_is_a_sentence_and_goes_away(page):
    go(page, MIXTRAL)
    curved(page)
    before = page.locator("#chart-hero").inner_html()
    page.locator("#parallelism-tp").fill("3")
    settled(page)
    told = page.locator("#status")
    assert page.locator("#chart-hero").inner_html() == before, "a refused design leaves the curve as it was"
    assert told.get_attribute("role") == "alert" and len(told.inner_text()) > 20
    page.wait_for_timeout(1500)
    assert page.locator("html[data-complete]").count() == 0, "nothing is looked for on a design that is refused"
    page.locator("#parallelism-tp").fill("2")
    settled(page)
    assert told.get_attribute("role") == "status" and "nothing was sent" in told.inner_text()


def test_while_a_slider_moves_only_the_newest_is_computed(page):
    go(page, MIXTRAL)
    calls = page.evaluate("""async () => {
      const call = engine.call.bind(engine);
      let count = 0;
      engine.call = (name, args) => { if (name === "at_once") count += 1; return call(name, args); };
      const range = document.getElementById("workload-batch-size-range");
      for (let k = 0; k < 200; k++) {
        range.value = 6 + (k % 8);
        range.dispatchEvent(new Event("input"));
      }
      while (document.documentElement.dataset.ready === undefined) await new Promise(requestAnimationFrame);
      delete engine.call;
      return count;
    }""")
    assert 1 <= calls <= 3
    assert page.locator("#workload-batch-size").input_value() == "8192"
    last = shown(page)
    go(page, {**MIXTRAL, "workload": {**MIXTRAL["workload"], "batch_size": 8192}})
    assert shown(page) == last


def tokens(metrics):
    """Tokens a second: a change may be a narrower format, whose peak is higher and MFU lower."""
    return float(metrics["performance.tokens_per_second"].replace(",", ""))


def test_a_layout_is_found_and_the_cheapest_change_applied(page):
    go(
        page,
        {
            **PASS,
            "task": "training",
            "workload": {"model": "Llama3_8B", "batch_size": 64},
            "hardware": {"on": "8xH100"},
            "parallelism": {"tp": 8, "zero": 1},
        },
    )
    before = shown(page)
    page.wait_for_selector("html[data-complete]", state="attached")
    expect(page.locator("#chart-sensitivity svg")).to_be_visible()
    rate = tokens(before)
    page.locator("#apply").click()
    page.wait_for_function(
        "text => document.querySelector('#metrics [data-metric$=mfu] .text').textContent !== text",
        arg=before["performance.mfu"],
    )
    settled(page)
    assert tokens(shown(page)) > rate
    page.locator("#parallelism-tp").fill("8")
    settled(page)
    worse = shown(page)["performance.mfu"]
    page.locator("#auto").click()
    page.wait_for_function(
        "text => document.querySelector('#metrics [data-metric$=mfu] .text').textContent !== text",
        arg=worse,
    )
    settled(page)
    assert tokens(shown(page)) > rate
    expect(page.locator("#auto")).to_be_enabled()
    assert "parallelism.tp=" in page.url


def test_a_layout_that_took_long_to_find_stays_while_a_control_moves(page):
    searched = {**MIXTRAL, "parallelism": {"mode": "auto"}}
    go(page, searched)
    curved(page)
    assert page.locator("html[data-complete]").count() == 0, "the curve comes before what is searched"
    kept = page.evaluate("plan => engine.call('settle', { plan })", searched)["parallelism"]
    page.locator("#hero-dot").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    expect(page.locator("#status")).to_contain_text("with the layout that was found before")
    moved = tomllib.loads(saved(page, "#export-toml").decode())
    assert moved["hardware"]["on"].startswith("128")
    assert moved["parallelism"].items() <= kept.items()
    curved(page)
    assert f"128: {shown(page)['performance.tokens_per_second']}" in page.locator("#chart-hero svg").inner_html()
    page.locator("#accelerators").fill("64")
    settled(page)
    expect(page.locator("#status")).to_contain_text("with the layout that was found before")
    page.locator("#parallelism-tp").fill("4")
    settled(page)
    expect(page.locator("#status")).not_to_contain_text("found before")


# --- why ----------------------------------------------------------------------------------------------------------


def test_a_number_says_where_it_comes_from(page):
    go(page, PASS)
    page.evaluate("document.getElementById('numbers').open = true")
    page.locator("#metrics [data-metric='performance.latency']").click()
    dialog = page.get_by_role("dialog", name=re.compile("Time of a pass"))
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("T = max(T_compute, T_memory)")
    expect(dialog).to_contain_text("Sources")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#metrics [data-metric='performance.latency']")).to_be_focused()


# --- the sentence, the gauges, the curve, the bar of time ---------------------------------------------------------


def handle(page, path):
    return page.locator(f'[data-handle="{path}"]')


def curved(page):
    """Wait until the curve has all its points."""
    page.wait_for_selector('.hero[data-left="0"]')


def test_a_handle_opens_its_control_and_gives_it_back(page):
    go(page, MIXTRAL)
    home = page.locator('#design [data-control="workload.batch_size"]')
    assert home.count() == 1
    handle(page, "workload.batch_size").click()
    sheet = page.get_by_role("dialog", name="Batch")
    expect(sheet).to_be_visible()
    assert home.count() == 0 and handle(page, "workload.batch_size").get_attribute("aria-expanded") == "true"
    sheet.get_by_role("spinbutton").fill("1024")
    settled(page)
    expect(handle(page, "workload.batch_size")).to_have_text("1,024")
    sheet.get_by_role("button", name="Done").click()
    expect(sheet).to_be_hidden()
    assert home.count() == 1
    expect(handle(page, "workload.batch_size")).to_be_focused()
    handle(page, "ops.region").click()
    page.locator("#sheet select").select_option("Poland")
    settled(page)
    expect(page.locator("#sentence")).to_contain_text("in Poland")
    page.mouse.click(5, 5)
    expect(page.locator("#sheet")).to_be_hidden()


def drag(page, box, across):
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for part in range(1, 11):
        page.mouse.move(x + across * part / 10, y)
    page.mouse.up()


def test_a_handle_is_dragged_along_the_stops(page):
    go(page, MIXTRAL)
    before = shown(page)
    drag(page, handle(page, "workload.batch_size").bounding_box(), 40)
    settled(page)
    expect(handle(page, "workload.batch_size")).to_have_text("2,048")
    assert page.locator("#workload-batch-size").input_value() == "2048" and shown(page) != before
    expect(page.locator("#sheet")).to_be_hidden()
    drag(page, handle(page, "workload.batch_size").bounding_box(), -40)
    settled(page)
    assert shown(page) == before


def test_gauges_have_three_states_in_words(page):
    words = {"5 s": ("holds", "holds"), "1 ms": ("fails", "does not hold"), "29 ms": ("open", "too close to call")}
    for limit, (state, word) in words.items():
        go(page, {**PLAYED, "serving": PLAYED["serving"] | {"seed": None, "requests": None, "ttft": limit}})
        gauge = page.locator('[data-gauge="fast"]')
        assert gauge.get_attribute("data-state") == state
        row = gauge.locator('[data-row="performance.ttft"]')
        expect(row).to_contain_text(word)
        assert row.locator(".tick").count() == row.locator(".band").count() == 1
    go(page, TOO_BIG)
    expect(page.locator('[data-gauge="fits"]')).to_contain_text("does not fit")
    expect(page.locator('[data-gauge="fits"]')).to_contain_text("too much")


PLACE = """() => {
  const [chart, dot] = ["#chart-hero svg", "#hero-dot"].map((part) => document.querySelector(part).getBoundingClientRect());
  return [(dot.x + dot.width / 2 - chart.x) / chart.width, (dot.y + dot.height / 2 - chart.y) / chart.height];
}"""


def test_the_curve_follows_the_control_and_its_dot_moves_it(page):
    go(page, MIXTRAL)
    curved(page)
    assert page.locator("#hero-control").input_value() == "accelerators"
    expect(page.locator("#chart-hero desc")).to_contain_text("you are at 64")
    page.locator("#workload-batch-size").fill("1024")
    settled(page)
    curved(page)
    assert page.locator("#hero-control").input_value() == "workload.batch_size"
    expect(page.locator("#chart-hero desc")).to_contain_text("you are at 1,024")
    dot = page.get_by_role("slider", name="Batch").and_(page.locator("#hero-dot"))
    dot.focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    expect(page.locator("#workload-batch-size")).to_have_value("2048")
    curved(page)
    expect(page.locator("#chart-hero desc")).to_contain_text("you are at 2,048")
    assert dot.get_attribute("aria-valuetext") == "2,048 samples"
    box = dot.bounding_box()
    on_curve = page.evaluate(PLACE)
    page.evaluate("document.getElementById('hero').style.width = '50%'")
    assert page.evaluate(PLACE) == pytest.approx(on_curve, abs=0.01), "where the chart is drawn smaller"
    page.evaluate("document.getElementById('hero').style.width = ''")
    drag(page, box, -400)
    settled(page)
    assert int(page.locator("#workload-batch-size").input_value()) < 1024
    page.locator("#hero-metric").select_option(label="Time of a step")
    curved(page)
    expect(page.locator("#chart-hero title").first).to_have_text("Time of a step by batch")


def test_a_point_of_the_curve_is_the_answer_there(page):
    go(page, MIXTRAL)
    curved(page)
    there = page.evaluate("plan => engine.call('explore', { plan })", {**MIXTRAL, "hardware": {"on": "128xH100"}})
    text = next(metric["text"] for metric in there["metrics"] if metric["path"] == "performance.tokens_per_second")
    assert f"128: {text}" in page.locator("#chart-hero svg").inner_html()


def test_the_pinned_design_is_a_ghost_and_a_bar_on_the_same_scale(page):
    go(page, MIXTRAL)
    page.locator("#pin").click()
    page.locator("#accelerators").fill("128")
    settled(page)
    curved(page)
    expect(page.locator("#chart-hero svg")).to_contain_text("pinned")
    widths = page.evaluate("""[...document.querySelectorAll(".time-line")].map((line) =>
      [...line.querySelectorAll(".slice")].reduce((sum, slice) => sum + slice.getBoundingClientRect().width, 0))""")
    seconds = page.evaluate(
        """plans => Promise.all(plans.map(async (plan) =>
      (await engine.call("explore", { plan })).time_bar.seconds))""",
        [{**MIXTRAL, "hardware": {"on": "128xH100"}}, MIXTRAL],
    )
    assert widths[0] / widths[1] == pytest.approx(seconds[0] / seconds[1], rel=0.01)
    page.locator("#unpin").click()
    expect(page.locator(".time-line")).to_have_count(1)


def test_a_part_of_the_time_opens_into_its_operators(page):
    go(page, MIXTRAL)
    part = page.locator("#time button.slice").first
    name = part.get_attribute("aria-label")
    part.click()
    table = page.get_by_role("table", name=re.compile("Operators of"))
    expect(table).to_be_visible()
    bar = page.evaluate("plan => engine.call('explore', { plan })", MIXTRAL)["time_bar"]["parts"][0]
    assert name.startswith(bar["label"])
    assert table.locator("tbody th").all_inner_texts() == [line["label"] for line in bar["operators"]]
    page.get_by_role("button", name="Equation with its numbers").click()
    expect(page.get_by_role("dialog", name=re.compile("Time of a step"))).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#time button.slice").first.click()
    expect(table).to_be_hidden()


def test_a_name_that_does_not_fit_its_part_stands_below(page):
    size = page.viewport_size
    go(page, MIXTRAL)
    for width in (360, 800):
        resized(page, width, 740)
        cut = """[...document.querySelectorAll("#time .slice-name")].filter((name) => name.scrollWidth > name.parentElement.clientWidth)
          .map((name) => name.textContent)"""
        assert page.evaluate(cut) == []
        named = page.locator("#time .slice-name, #time .names li").all_inner_texts()
        parts = page.evaluate(
            "[...document.querySelectorAll('#time [data-wall]')].map((part) => part.title.split(' ')[0])"
        )
        assert len(named) == len(parts) > 2
        assert all(any(text.startswith(part) for text in named) for part in parts)
    resized(page, size["width"], size["height"])


# What stands on the page when the answer to another design is shown.
ONCE_READY = """() => { window.then = new Promise((resolve) => {
  const root = document.documentElement;
  new MutationObserver((_, watch) => {
    if (root.dataset.ready !== "") return;
    watch.disconnect();
    resolve(["#chart-hero", "#chart-sensitivity"].map((part) => document.querySelector(part).innerHTML)
      .concat(["#machines", "#live"].map((part) => document.querySelector(part).hidden)));
  }).observe(root, { attributeFilter: ["data-ready"] });
}); }"""


def test_another_design_shows_nothing_of_the_one_before(page):
    go(page, PASS)
    page.wait_for_selector("html[data-complete]", state="attached")
    curved(page)
    before = [page.locator(part).inner_html() for part in ("#chart-hero", "#chart-sensitivity")]
    assert all("<svg" in chart for chart in before)
    page.evaluate(ONCE_READY)
    go(page, TOO_BIG)
    curve, worth, no_machines, nothing_played = page.evaluate("then")
    assert curve != before[0] and worth == ""
    assert no_machines and nothing_played


def test_on_a_phone_the_verdict_stays_in_sight_and_no_controls_stand_before_the_numbers(page):
    go(page, MIXTRAL)
    try:
        resized(page, 360, 740)
        places = page.evaluate("""scrollTo(0, 0), ["claim", "gauges", "hero", "time", "design"].map((id) =>
          document.getElementById(id).getBoundingClientRect().top)""")
        assert places == sorted(places) and places[1] < 740
        page.locator("#accelerators").scroll_into_view_if_needed()
        assert page.evaluate("document.getElementById('claim').getBoundingClientRect().top") == 0
        page.evaluate("scrollTo(0, 0)")
        handle(page, "workload.batch_size").click()
        sheet = page.locator("#sheet").bounding_box()
        assert sheet["y"] + sheet["height"] == pytest.approx(740, abs=1) and sheet["width"] == 360
        assert page.locator("#claim").bounding_box()["y"] < sheet["y"]
        page.keyboard.press("Escape")
    finally:
        resized(page, 1280, 720)


# --- the address --------------------------------------------------------------------------------------------------


def test_who_goes_elsewhere_just_after_an_edit_gets_there(page):
    """The address of an edit is written a moment later; by then another design may have been asked for."""
    go(page, CLUSTER)
    fragment = urlencode(list(leaves(PASS)))
    page.evaluate(
        """fragment => {
          const count = document.getElementById("accelerators");
          count.value = "128";
          count.dispatchEvent(new Event("input", { bubbles: true }));
          history.pushState(null, "", location.pathname + "#" + fragment);
          dispatchEvent(new PopStateEvent("popstate"));
        }""",
        fragment,
    )
    page.wait_for_timeout(400)
    settled(page)
    assert tomllib.loads(saved(page, "#export-toml").decode()) == PASS


def test_back_and_forward(page):
    go(page, MIXTRAL)
    first = shown(page)
    page.locator("#workload-batch-size").fill("1024")
    settled(page)
    page.wait_for_url(re.compile("batch_size=1024"))
    second = shown(page)
    assert second != first
    page.evaluate("delete document.documentElement.dataset.ready")
    page.go_back()
    settled(page)
    assert shown(page) == first and page.locator("#workload-batch-size").input_value() == "512"
    page.evaluate("delete document.documentElement.dataset.ready")
    page.go_forward()
    settled(page)
    assert shown(page) == second


@pytest.mark.parametrize(
    "plan", [MIXTRAL, SERVING, SEVERAL, CLUSTER, {"name": "12", "description": "true", "a": {"b": [1, "x"]}}]
)
def test_a_state_survives_the_address(page, site, plan):
    state = {"plan": plan, "pin": plan, "models": {"Imported_x": json.dumps(CONFIG)}}
    again = page.evaluate(
        "([site, state]) => import(site + 'state.js').then(({ encode, decode }) => decode('#' + encode(state)))",
        [site, state],
    )
    assert again == state


# --- two designs --------------------------------------------------------------------------------------------------


def test_two_designs_side_by_side(page):
    go(page, MIXTRAL)
    pinned = shown(page)
    page.locator("#pin").click()
    page.locator("#accelerators").fill("128")
    settled(page)
    page.locator("#compare-all > summary").click()
    rows = {
        row.get_attribute("data-row"): row.locator("td").all_inner_texts()
        for row in page.locator("#compare-table tbody tr").all()
    }
    assert rows["macro.purchase"][2] == "2 x"
    now = shown(page)
    assert {path: cells[0] for path, cells in rows.items()}.items() <= pinned.items()
    assert {path: cells[1] for path, cells in rows.items()}.items() <= now.items()
    for name in ("roofline", "memory"):
        assert (
            page.locator(f"#{'charts' if name == 'roofline' else 'wide-charts'} figure[data-chart={name}] svg").count()
            == 1
        )
        assert "pinned" in page.locator(f"#chart-{name} svg").inner_html(), "one picture shows both"
    lines = {line.get_attribute("data-line"): line for line in page.locator(".time-line").all()}
    assert pinned["performance.latency"] in lines["pinned"].inner_text()
    assert now["performance.latency"] in lines["this design"].inner_text()
    page.locator("#swap").click()
    settled(page)
    assert shown(page) == pinned
    page.locator("#design").get_by_text("One pass", exact=True).click()
    settled(page)
    expect(page.locator("#compare-error")).to_contain_text("one task")
    page.locator("#unpin").click()
    expect(page.locator("#comparison")).to_be_hidden()
    assert "pinned" not in page.locator("#charts").inner_html()


def test_a_link_brings_its_pin_and_another_none(page):
    linked = urlencode([*leaves(MIXTRAL), *leaves(FIRST_ORDER, "pin")])
    visit(page, linked)
    expect(page.locator("#comparison")).to_be_visible()
    expect(page.locator("#pin")).to_have_text("Pin this instead")
    expect(page.locator(".time-line")).to_have_count(2)
    go(page, MIXTRAL)
    expect(page.locator("#comparison")).to_be_hidden()
    expect(page.locator("#pin")).to_have_text("Pin to compare")
    expect(page.locator(".time-line")).to_have_count(1)


# --- files --------------------------------------------------------------------------------------------------------


def test_a_design_is_saved_as_scenario_and_as_answer(page):
    go(page, CLUSTER)
    assert tomllib.loads(saved(page, "#export-toml").decode()) == CLUSTER
    go(page, PASS)
    page.wait_for_selector("html[data-complete]", state="attached")
    answer = json.loads(saved(page, "#export-json"))
    assert {path: metric["text"] for path, metric in answer["metrics"].items()} == shown(page)
    assert answer["plan"] == PASS and answer["sensitivities"]


def test_a_chart_is_saved_as_svg_and_as_png(page):
    go(page, MIXTRAL)
    drawn = ET.fromstring(saved(page, "[data-chart=roofline] [data-save=SVG] >> nth=-1"))
    width, height = (float(size) for size in drawn.get("viewBox").split()[2:])
    png = saved(page, "#charts [data-chart=roofline] [data-save=PNG]")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == pytest.approx((2 * width, 2 * height), abs=2)
    assert len(png) > 5000, "more than an empty canvas"


DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  document.documentElement.dataset.ready = "old";
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def drop(page, name: str, text: str) -> None:
    page.evaluate(DROP, [name, text])
    settled(page)


def test_a_scenario_is_dropped_or_chosen(page):
    go(page, MIXTRAL)
    toml = page.evaluate("plan => engine.call('scenario', { plan })", PASS)
    drop(page, "plan.toml", toml)
    dropped = shown(page)
    go(page, MIXTRAL)
    page.locator("#import").set_input_files(
        {"name": "p.json", "mimeType": "application/json", "buffer": json.dumps(PASS).encode()}
    )
    page.wait_for_function("() => document.getElementById('sentence').textContent.includes('8B')")
    settled(page)
    assert shown(page) == dropped


def test_an_address_that_is_no_design_says_so(page):
    go(page, {"workload": {"model": "Llama3_8B"}})
    expect(page.locator("#status[role=alert]")).to_contain_text("hardware")


def test_a_dropped_file_that_is_nothing_is_refused(page):
    page.evaluate(DROP, ["config.json", '{"model_type": "rwkv"}'])
    page.wait_for_selector("#status[role=alert]")
    expect(page.locator("#status")).to_contain_text("no workload type")
    go(page, MIXTRAL)


# --- people -------------------------------------------------------------------------------------------------------


def test_landmarks_roles_and_names(page):
    go(page, MIXTRAL)
    for role, name in (
        ("banner", None),
        ("main", None),
        ("contentinfo", None),
        ("form", "Design"),
        ("radiogroup", None),
        ("combobox", "Model"),
        ("combobox", "Hardware"),
        ("combobox", "Region"),
        ("slider", "Batch"),
        ("spinbutton", "Batch"),
        ("slider", "Fleet"),
        ("button", "Pin to compare"),
    ):
        found = page.get_by_role(role, name=name, exact=True) if name else page.get_by_role(role)
        assert found.count() >= 1 or role == "radiogroup", (role, name)
    assert page.get_by_role("radio").count() == 4
    assert page.locator("#spoken").get_attribute("aria-live") == "polite"
    nameless = page.evaluate("""[...document.querySelectorAll("input, select, button")].filter((part) =>
      !(part.labels?.length || part.getAttribute("aria-label") || part.textContent.trim())).map((part) => part.outerHTML)""")
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((part) => part.id)")
    assert len(ids) == len(set(ids))


def test_the_verdict_is_spoken_once_things_are_quiet(page):
    go(page, TOO_BIG)
    page.wait_for_function("() => document.getElementById('spoken').textContent.includes('Does not fit')")


def test_the_keyboard_is_enough(page):
    go(page, MIXTRAL)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict" and "workload.model=" in page.url
    before = shown(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.handle") == "workload.model"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "workload-model"
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("listbox", name="Model")).to_be_visible()
    page.keyboard.type("llama 3.1 8b")
    active = page.locator("#workload-model").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_contain_text("8B")
    page.keyboard.press("Enter")
    settled(page)
    expect(page.get_by_role("listbox", name="Model")).to_be_hidden()
    chosen = shown(page)
    assert chosen != before
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.handle") == "workload.model"
    while page.evaluate("document.activeElement.dataset.handle") != "workload.batch_size":
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.locator("#workload-batch-size-range").get_attribute("aria-valuetext") == "1,024 samples"
    assert page.evaluate("document.activeElement.textContent") == "1,024"
    assert shown(page) != chosen
    page.evaluate("document.getElementById('numbers').open = true")
    page.locator("#metrics [data-metric]").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name=re.compile("Memory")).wait_for()
    page.keyboard.press("Escape")


@pytest.mark.parametrize("plan", [MIXTRAL, SERVING, PASS], ids=["training", "serving", "pass"])
def test_a_phone_scrolls_in_one_direction_only(page, plan):
    go(page, plan)
    page.locator("#pin").click()
    page.evaluate("for (const box of document.querySelectorAll('details')) box.open = true")
    try:
        resized(page, 360, 740)
        assert page.evaluate("document.querySelector('#chart-scorecard svg').viewBox.baseVal.width") < 360
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        wide = page.evaluate("""[...document.querySelectorAll("body *")].filter((part) => part.checkVisibility() &&
          !part.closest(".scroll, .hidden, .skip, svg, [role=listbox]") && part.getBoundingClientRect().right > 360.5).map((part) => part.outerHTML.slice(0, 80))""")
        assert wide == []
    finally:
        resized(page, 1280, 720)
        page.locator("#unpin").click()


CONTRAST = """selectors => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (text) => {
    const [red, green, blue] = text.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (part) => {
    const colour = getComputedStyle(part).backgroundColor;
    return /, 0\\)$/.test(colour) || colour === "transparent" ? ground(part.parentElement) : colour;
  };
  return selectors.map((selector) => {
    const part = document.querySelector(selector);
    const [a, b] = [light(getComputedStyle(part).color), light(ground(part))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(page, scheme):
    go(page, MIXTRAL)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    parts = [
        "#headline",
        "#badge",
        ".handle",
        ".gauge-head h2",
        ".gauge .state",
        ".names li",
        ".slice-name",
        ".facts dt",
        ".unit",
        "#status",
        "footer p",
        "footer a",
        "#metrics th",
        ".segments input:checked + span",
    ]
    assert min(page.evaluate(CONTRAST, parts)) >= 4.5
    other = {"light": "dark", "dark": "light"}[scheme]
    while page.locator("html").get_attribute("data-theme") != other:
        page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    assert min(page.evaluate(CONTRAST, parts)) >= 4.5
    while page.locator("html").get_attribute("data-theme"):
        page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    page.emulate_media(color_scheme="light", reduced_motion="no-preference")


def test_paper_has_what_the_folds_hold(page):
    go(page, MIXTRAL)
    folds = ["in-words", "walls", "numbers", "origins-rest"]
    page.evaluate("ids => ids.forEach((id) => { document.getElementById(id).open = false; })", folds)
    page.locator("#parallelism-tp").fill("4")
    settled(page)
    page.wait_for_selector("html[data-folded]", state="attached")
    held = """() => Object.fromEntries(["#numbers td", "#chart-memory text", "#chart-scorecard text", "#sentences li", "#origins-rest .origin"].map(
      (what) => [what, [...document.querySelectorAll(what)].filter((part) => part.checkVisibility()).length]))"""
    assert set(page.evaluate(held).values()) == {0}
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert min(page.evaluate(held).values()) > 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert set(page.evaluate(held).values()) == {0}
    unfolded(page)


# --- last: this loads the page again ------------------------------------------------------------------------------


def test_a_dropped_model_is_used_and_a_reload_restores_everything(page):
    go(page, PASS)
    page.locator("#pin").click()
    drop(page, "config.json", json.dumps(CONFIG))
    expect(page.locator("#sentence")).to_contain_text("small-model")
    expect(page.locator("#imported")).to_contain_text("1.24 B parameters")
    assert page.locator("#workload-model").input_value() == "small-model"
    page.wait_for_url(re.compile("model.Imported_small_model"))
    before, compared = shown(page), page.locator("#compare-table").text_content()
    assert "Metric" in compared
    page.reload()
    wait_until_ready(page)
    assert shown(unfolded(page)) == before and page.locator("#compare-table").text_content() == compared
    page.wait_for_selector("html[data-lists]", state="attached")
    assert page.locator("#workload-model").input_value() == "small-model"


def test_an_address_as_people_write_it_is_a_design(page):
    """Numbers with a unit or a letter are numbers to controls, whoever wrote them."""
    go(page, {**MIXTRAL, "workload": {**MIXTRAL["workload"], "tokens": "2T", "seq_len": "4k"}})
    expect(page.locator("#workload-tokens")).to_have_value("2e12")
    expect(page.locator("#workload-seq-len")).to_have_value("4000")
    page.locator("#workload-seq-len").fill("8000")
    settled(page)
    moved = tomllib.loads(saved(page, "#export-toml").decode())
    assert moved["workload"]["tokens"] == 2e12 and moved["workload"]["seq_len"] == 8000


def test_a_file_that_is_nested_without_end_does_not_stop_the_engine(page):
    go(page, PASS)
    page.set_input_files("#import", {"name": "deep.json", "mimeType": "application/json", "buffer": b"[" * 5000})
    expect(page.get_by_role("alert")).to_contain_text("deep.json has brackets that are nested")
    go(page, MIXTRAL)
    assert shown(page)
