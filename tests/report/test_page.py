"""What a page does with names that are markup, with what is not known, and with plans that fail."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.physics.pipeline import CHUNKED, FOLDED, SCHEDULES
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan
from mlsysim.plans.sheet import compact_time
from mlsysim.report.blocks import Chart, Table
from mlsysim.report.build import build_report
from mlsysim.report.content import sections_of
from mlsysim.report.figures import figures_of
from mlsysim.report.front import NOT_KNOWN, front_of
from mlsysim.report.html import escape, to_html
from mlsysim.report.markdown import escape as markdown_escape
from mlsysim.report.markdown import to_markdown

from .reading import SCENARIOS, local, parsed, report_of, unescaped, words

NASTY = "</title><script>alert('x')</script> & \"quotes\" | `code` $1 *bold* [link](javascript:x)"
TOO_LARGE = {
    "name": NASTY,
    "description": "<img src=x onerror=alert(1)>",
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 64, "seq_len": 4096},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 8, "zero": 0},
    "ops": {"budget": "1 USD"},
}
PIPELINE = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 4096},
    "hardware": {"on": "16xH200"},
}


@pytest.fixture(scope="module")
def failing():
    return build_report(TOO_LARGE)


def test_percentiles_of_a_simulation_are_a_table_and_charts():
    serving = {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0, "requests": 300, "seed": 0}
    plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}, "serving": serving}
    report = build_report(plan)
    assert {"percentiles", "traffic"} <= set(report.figures)
    text, held = to_markdown(report), report.answer.percentiles["ttft"]
    assert "## Percentiles of the requests" in text and f"| {compact_time(held['p99'])} ±" in text


def test_names_are_text_and_never_markup(failing):
    text = to_html(failing)
    root = parsed(text)
    assert not [element for element in root.iter() if local(element) in ("script", "img")]
    assert NASTY in words(text)
    shown = to_markdown(failing)
    assert "<script>" not in shown.split("```")[0] and "\\[link\\](javascript:x)" in shown
    assert NASTY in unescaped(shown)


def test_a_plan_that_does_not_fit_is_told_first(failing):
    assert failing.answer.exit_code == 2
    text = to_html(failing)
    assert '<p class="verdict fails"><b>Does not fit.</b>' in text
    assert "makes it fit" in text or "then it fits" in text
    assert "What would change our mind" not in words(text)
    # Nothing runs: no card, no fold of times or costs, and the memory is on the first page.
    assert 'class="cards"' not in text
    names = [section.name for section in sections_of(failing)]
    assert not {"time", "memory", "cost", "designs"} & {*names} and "walls" in names
    assert [block.name for block in front_of(failing) if isinstance(block, Chart)] == ["memory"]
    assert not re.search(r"Time of a step|Tokens a second|Cost of owning|utilisation", words(text))
    assert "> **Does not fit.**" in to_markdown(failing)
    assert "designs" not in failing.figures


def test_what_is_not_known_is_said():
    nowhere = build_report(PIPELINE)
    for text in (words(to_html(nowhere)), unescaped(to_markdown(nowhere))):
        assert f"Carbon of electricity {NOT_KNOWN}" in text or f"Carbon of electricity | {NOT_KNOWN}" in text
        assert f"arbon {NOT_KNOWN}: no region is given" in text
    laptop = words(to_html(report_of("llama3-8b-on-a-laptop")))
    assert f"Cost of owning {NOT_KNOWN}" in laptop and "Cost Not known" in laptop
    assert "unknown is not free" in laptop


def test_a_missed_limit_is_marked():
    plan = load_plan(next(p for p in SCENARIOS if p.stem == "person-detection-doorbell"))
    missed = plan.replacing(constraints={"assert": [{"metric": "throughput", "min": 1e9}]})
    report = build_report(missed)
    assert report.answer.exit_code == 3
    assert report.answer.ruling.claim.startswith("Does not hold: samples a second of at least")
    assert '<p class="verdict fails">' in to_html(report) and '<tr class="marked"><td>FAILS</td>' in to_html(report)
    assert "| **FAILS** |" in to_markdown(report)


@pytest.mark.parametrize("name", ["person-detection-doorbell", "resnet50-training-a100"])
def test_the_same_plan_gives_the_same_bytes(name):
    again = build_report(load_plan(next(p for p in SCENARIOS if p.stem == name)))
    assert to_html(again) == to_html(report_of(name))
    assert to_markdown(again) == to_markdown(report_of(name))


def test_a_plan_without_a_name_is_called_by_its_subject():
    report = build_report(Plan.model_validate({"workload": {"model": "ResNet50"}, "hardware": {"on": "1xA100"}}))
    assert report.title == f"One pass of {report.answer.subject}"
    assert f"<title>{escape(report.title)}</title>" in to_html(report)


def test_parts_of_the_cost_add_up():
    answer = report_of("resnet50-training-a100").answer
    whole = answer.value("tco").to("USD").magnitude
    assert sum(part.value for part in answer.cost_parts) == pytest.approx(whole)
    # The costs of several kinds of accelerator are those of all of them.
    mixed = report_of("mixed-generations-serving").answer
    assert sum(part.value for part in mixed.cost_parts) == pytest.approx(mixed.value("tco").to("USD").magnitude)


def test_a_large_pipeline_is_the_plans_and_says_what_is_left_out():
    report = report_of("llama3-405b-16k-h100")
    (bubble,) = (part.value for part in report.answer.time_parts if part.label == "pipeline bubble")
    shown = words(to_html(report))
    assert "16 stages, 8 virtual stages each, 16 micro-batches" in shown
    # What is drawn waits as long as the answer says, so no second figure is given.
    waits = re.search(r"the longest stage waits ([\d.]+) ms", shown)
    assert waits and float(waits[1]) / 1e3 == pytest.approx(bubble, rel=0.01)
    assert "closed form, which is within bounds here" not in shown
    assert "between the beginning and the end are left out" in shown
    assert report.figures["pipeline-memory"].alt.count("stage") > 8
    # The chunks at the ends of the model hold little more than a table; the window is not theirs.
    first, last = report.figures["pipeline"]._windows(90.0, 640.0)
    line = report.figures["pipeline"].line
    assert all(line.of(device)[0].start < first.end and line.of(device)[-1].end > last.start for device in range(16))


@pytest.mark.parametrize("name", ["chatbot-llama70b-h200", "grpo-qwen3-32b-64-h100"])
def test_a_layout_is_told_in_words_and_four_digits(name):
    rows = next(
        block.rows
        for section in sections_of(report_of(name))
        for block in section.blocks
        if isinstance(block, Table) and block.headers[0] == "How it is split"
    )
    assert all(label[0].isupper() and "_" not in label for label, _ in rows)
    assert all(len(re.sub(r"\D", "", text).lstrip("0")) <= 4 for _, text in rows)


def test_a_step_of_post_training_is_no_request():
    change = report_of("grpo-qwen3-32b-64-h100").answer.change
    assert "faster" in change.sentence and "request" not in change.sentence


def test_a_sampling_error_is_spoken_of_where_there_is_one():
    for name in ("llama3-70b-over-its-weeks", "mixed-generations-serving"):
        shown = words(to_html(report_of(name)))
        assert ("± is the sampling error" in shown) == (shown.count("±") > 1)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("count", [8, 64])
def test_every_schedule_is_drawn(name, count):
    split = {"tp": 4, "pp": 4, "schedule": name, "micro_batches": count}
    split |= {"virtual_stages": 4} if name in CHUNKED else {}
    split |= {"micro_batch_group": 8} if name == "interleaved" else {}
    answer = evaluate(PIPELINE | {"parallelism": split})
    figures = figures_of(answer, None)
    assert f"{count} micro-batches" in figures["pipeline"].subtitle
    (bubble,) = (part.value for part in answer.time_parts if part.label == "pipeline bubble")
    line, seconds = figures["pipeline"].line, figures["pipeline"].seconds
    assert line.schedule == name and line.virtual_stages == split.get("virtual_stages", 2 if name in FOLDED else 1)
    assert line.bubble * seconds == pytest.approx(bubble, abs=0.06 * line.length * seconds)
    if name in ("gpipe", "1f1b", "breadth_first"):
        assert line.bubble * seconds == pytest.approx(bubble, rel=0.01)
    # The fullest stage of the drawing holds what the memory of the plan has.
    assert max(figures["pipeline-memory"].peaks) == pytest.approx(answer.memory.used)


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_any_text_is_well_formed(text):
    root = parsed(f"<p>{escape(text)}</p>")
    kept = [ch for ch in text if ord(ch) >= 32 and ch not in "\x7f\ufffe\uffff" and not 0xD800 <= ord(ch) <= 0xDFFF]
    assert [ch for ch in (root.text or "") if ch not in "\n\t"] == kept


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_any_text_is_one_line_of_markdown(text):
    escaped = markdown_escape(text)
    assert "\n" not in escaped and "<" not in escaped
    assert unescaped(escaped).replace("*", "") == " ".join(unescaped(escaped).split()).replace("*", "")
