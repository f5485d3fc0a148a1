"""A report for each file in examples/scenarios: well-formed, self-contained, and with the answer's own digits."""

from __future__ import annotations

import re

import pytest

from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plot.figure import Figure
from mlsysim.report.content import sections_of
from mlsysim.report.html import to_html
from mlsysim.report.markdown import to_markdown

from .reading import SCENARIOS, even, faults, local, parsed, report_of, unescaped, words

EVERY = pytest.mark.parametrize("name", [path.stem for path in SCENARIOS])
LOADING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "href"}


def told(report) -> list[str]:
    """What must be in a report in whatever format."""
    answer = report.answer
    found = [answer.headline, *answer.verdict, answer.binding.sentence, answer.interval]
    found += [text for metric in answer.metrics for text in (metric.label, metric.text, metric.interval)]
    found += [check.sentence for check in answer.checks]
    found += [text for name, text in answer.assumptions.items()]
    found += [text for e in answer.equations for text in (e.text, e.value, *e.inputs.values())]
    found += [cited.title for cited in report.documents]
    found += [score.value for score in answer.scorecard]
    found += [text for change in answer.changes for text in (change.words[1:], change.effects)]
    found += [answer.ruling.claim, *answer.ruling.because, *answer.risks]
    if answer.next_wall is not None:
        found.append(answer.next_wall.sentence)
    return [even(text) for text in found if text]


@EVERY
def test_the_page_is_whole(name):
    report = report_of(name)
    text = to_html(report)
    root = parsed(text)

    for element in root.iter():
        for key, value in element.attrib.items():
            key = key.rpartition("}")[2]
            if key in LOADING:
                allowed = ("#", "data:,") if local(element) != "a" else ("#", "https://", "http://")
                assert value.startswith(allowed), (local(element), key, value)
            assert not key.startswith("on"), key
    assert {local(element) for element in root.iter()}.isdisjoint(
        {"script", "iframe", "img", "object", "embed", "form"}
    )
    style = "".join(element.text or "" for element in root.iter() if local(element) == "style")
    assert "url(" not in style and "@import" not in style
    assert text.count("<style>") == 1

    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]*)"', text) + re.findall(r"url\(#([^)]*)\)", text):
        assert target in ids
    for reference in re.findall(r'aria-labelledby="([^"]*)"', text):
        assert set(reference.split()) <= set(ids)

    charts = [element for element in root.iter() if local(element) == "svg"]
    assert len(charts) == 2 * len(report.figures)
    for chart in charts:
        texts = {local(child): child.text for child in chart}
        assert texts["title"] and texts["desc"] and chart.get("role") == "img"

    shown = words(text)
    for piece in told(report):
        assert piece in shown, piece
    assert even(plan_to_toml(report.answer.plan)) in shown


@EVERY
def test_the_first_page_is_the_answers(name):
    assert faults(report_of(name)) == []


@EVERY
def test_markdown_says_the_same(name):
    report = report_of(name)
    text = to_markdown(report)
    shown = unescaped(text)
    for piece in told(report):
        assert piece in shown, piece
    assert "<" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    blocks = re.findall(r"```toml\n(.*?)\n```", text, flags=re.DOTALL)
    assert plan_from_text(blocks[0]) == report.answer.plan
    tables = re.findall(r"(?:^\|.*\|\n)+", text, flags=re.MULTILINE)
    for table in tables:
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1, table


@EVERY
def test_every_part_of_the_answer_has_its_place(name):
    report = report_of(name)
    answer = report.answer
    names = [section.name for section in sections_of(report)]
    assert names[0] == "walls" and names[-1] == "plan"
    drawn = answer.task != "rl" and answer.layout.get("pp", 1) > 1
    assert ("pipeline" in names) == drawn
    expected = {"whole", "scorecard", "time", "memory", "roofline", "designs"}
    assert expected <= set(report.figures)
    assert ("sensitivity" in report.figures) == bool(answer.sensitivities)
    assert all(isinstance(figure, Figure) and figure.title and figure.alt for figure in report.figures.values())
    assert [text for _, text, _, _ in report.assumptions] == list(answer.assumptions.values())
    assert all(name and origin for name, _, _, origin in report.assumptions)
    if answer.task == "training" and any(metric.name == "tco" for metric in answer.metrics):
        assert "cost" in report.figures
