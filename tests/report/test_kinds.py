"""Reports of every kind of plan: simulated traffic and runs, mixed fleets, what does not fit, is late, overloaded, or fails all the time."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from mlsysim.plans.audit import AUDITED
from mlsysim.plans.plan import Plan
from mlsysim.report.build import Report, build_report
from mlsysim.report.content import sections_of
from mlsysim.report.front import asked
from mlsysim.report.html import to_html
from mlsysim.report.markdown import to_markdown

from .reading import faults, front_texts, parsed

SMALL = {"model": "Llama3_8B", "batch_size": 64, "seq_len": 4096}
ASKED = {"prompt_tokens": 1000, "output_tokens": 200}
KINDS: dict[str, dict[str, Any] | Plan] = {
    "audit": AUDITED,
    "traffic": {
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "2xH100"},
        "serving": {**ASKED, "qps": 8.0, "slo": "ttft_p99=500ms,tpot=30ms", "requests": 200, "seed": 0},
        "ops": {"region": "Quebec"},
    },
    "run": {
        "task": "training",
        "workload": {**SMALL, "tokens": "100B"},
        "hardware": {"on": "64xH100"},
        "ops": {"simulate": True, "seeds": 10, "deadline": "20 day", "budget": "50000 USD"},
    },
    "mixed": {
        "task": "training",
        "workload": {**SMALL, "batch_size": 512},
        "hardware": {"on": "64xH100+64xA100"},
        "ops": {"region": "Iowa"},
    },
    "unfit": {"task": "serving", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "1xH100"}},
    "unfit training": {
        "task": "training",
        "workload": {**SMALL, "model": "Llama3_70B"},
        "hardware": {"on": "8xH100"},
        "parallelism": {"tp": 8, "zero": 0},
        "ops": {"budget": "1 USD"},
    },
    "overloaded": {
        "workload": {"model": "Llama3_70B"},
        "hardware": {"on": "8xH100"},
        "serving": {**ASKED, "qps": 100.0},
    },
    "failing": {
        "task": "training",
        "workload": {"model": "Llama3_405B", "batch_size": 12288, "seq_len": 8192},
        "hardware": {"on": "12288xDGX_H100@Spectrum_X_400G"},
        "parallelism": {"tp": 8, "pp": 16, "virtual_stages": 8, "zero": 2, "micro_batch": 1},
        "ops": {"duration": "7 day", "mtbf": "20 min", "checkpoint_time": "15 s", "region": "Quebec"},
    },
    "late": {
        "task": "training",
        "workload": {**SMALL, "tokens": "1T"},
        "hardware": {"on": "16xH100"},
        "parallelism": {"tp": 1, "zero": 1},
        "ops": {"deadline": "10 day", "budget": "5000000 USD", "price": "2.5 USD/hour"},
    },
    "rl": {
        "task": "rl",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "16xH100"},
        "rl": {"prompts": 64, "samples": 8, "response": 1000, "generate_on": "8xH200"},
    },
    "one pass": {"workload": {"model": "ResNet50"}, "hardware": {"on": "1xA100"}},
}


def test_a_format_of_the_checkpoint_is_varied_as_a_format() -> None:
    """A network that is published in four bits has designs around it: its format is a name, not the words on where it is from."""
    plan = {"task": "inference", "model": "GPT_OSS_120B", "on": "B200", "phase": "prefill", "seq_len": 128}
    assert "mxfp4" in to_markdown(build_report(plan))


def test_thousands_of_simulated_requests_are_counted_whole() -> None:
    """The title of the percentiles has how many were played: of 1,200 it said 1."""
    plan = {
        "task": "serving",
        "model": "Llama3_8B",
        "on": "H100",
        "qps": 8.0,
        "requests": 1200,
        "slo": "ttft_p99=500ms",
    }
    report = build_report(plan)
    summaries = {section.name: section.summary for section in sections_of(report)}
    assert summaries["percentiles"] == "1,200 requests at random" and "1,200 requests at random." in asked(
        report.answer
    )


@cache
def of_kind(name: str) -> Report:
    return build_report(KINDS[name])


@pytest.mark.parametrize("name", KINDS)
def test_the_first_page_is_the_answers(name):
    report = of_kind(name)
    assert faults(report) == []
    parsed(to_html(report))
    said = to_markdown(report)
    places = [said.index(f"\n## {section.title}") for section in sections_of(report)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("name", "state", "claim"),
    [
        ("audit", "holds", "Fits."),
        ("unfit", "fails", "Does not fit."),
        ("unfit training", "fails", "Does not fit."),
        ("overloaded", "fails", "Overloaded."),
        ("failing", "holds", "Failures decide, not the chips."),
        ("late", "fails", "Does not hold: a deadline of 10 days."),
        ("one pass", "holds", "Fits."),
    ],
)
def test_what_was_asked_is_the_subject_of_the_verdict(name, state, claim):
    ruling = of_kind(name).answer.ruling
    assert ruling.state == state and ruling.claim.startswith(claim)


def test_what_does_not_fit_has_no_numbers_but_those_of_memory():
    texts = " ".join(front_texts(of_kind("unfit")))
    assert "are missing" in texts and "$" not in texts and "kWh" not in texts


def test_rent_is_named_as_such():
    texts = " ".join(front_texts(of_kind("late")))
    assert "to rent for" in texts and "to own for" not in texts


def test_percentiles_that_were_asked_for_are_on_the_first_page():
    report = of_kind("traffic")
    assert any(report.answer.metric("ttft_p99").text == text for text in front_texts(report))


def test_folds_say_what_is_in_them():
    report = of_kind("failing")
    summaries = {section.name: section.summary for section in sections_of(report)}
    assert all(summaries.values())
    assert "run" not in summaries, "the first page has the same bar"
    scored = sum(score.status != "not asked" for score in report.answer.scorecard)
    assert summaries["walls"].startswith(f"{scored} scored, ")
    assert summaries["assumptions"].startswith(f"{len(report.answer.assumptions)}, of which ")
    assert report.answer.paid.text in summaries["cost"] and "7 days" in summaries["cost"]


def test_titles_say_what_runs_on_what():
    assert of_kind("one pass").title.startswith("One pass of ResNet")
    assert (
        of_kind("rl").title
        == "Post-training of Llama-3.1-8B on 16 x NVIDIA H100 SXM5 80GB and 8 x NVIDIA H200 SXM5 141GB"
    )
    assert asked(of_kind("traffic").answer).endswith("Simulated: 200 requests at random.")
