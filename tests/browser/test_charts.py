"""Charts in a real browser, whose fonts are not those that the layout reckons with: labels stay apart, on the page and off the axes, and a long
schedule prints small."""

from __future__ import annotations

import pytest

from mlsysim.report.html import to_html

from ..report.reading import report_of
from .test_report import OVERLAPPING

NAMES = ("frontier-100k-gpus", "chatbot-llama70b-h200")
MOST_BYTES = 2_000_000

# Texts that leave the picture or lie on the line of an axis.
MISPLACED = """() => [...document.querySelectorAll("svg.mlp")].flatMap(svg => {
  const page = svg.viewBox.baseVal, lines = [...svg.querySelectorAll("line.axis, line.zero, line.limit")].map(line => line.getBBox());
  return [...svg.querySelectorAll("text")].flatMap(text => {
    const box = text.getBBox(), found = [];
    if (box.x < -0.5 || box.y < -0.5 || box.x + box.width > page.width + 0.5 || box.y + box.height > page.height + 0.5) found.push("leaves");
    if (lines.some(line => line.x < box.x + box.width && box.x < line.x + line.width + 0.01 && line.y < box.y + box.height - 3 && box.y + 3 < line.y + line.height + 0.01)) found.push("on a line");
    return found.map(what => `${svg.id}: ${text.textContent} (${what})`);
  });
})"""


@pytest.fixture(scope="module", params=NAMES)
def report(request):
    return report_of(request.param)


def test_labels_have_their_place_in_a_browser(report, fresh_page):
    for width in (360, 720, 1280):
        fresh_page.set_viewport_size({"width": width + 40, "height": 900})
        drawn = "".join(f'<div style="width:{width}px">{figure.svg(width)}</div>' for figure in report.figures.values())
        fresh_page.set_content(drawn)
        assert fresh_page.evaluate("document.querySelectorAll('svg.mlp').length") == len(report.figures)
        assert fresh_page.evaluate(OVERLAPPING) == []
        assert fresh_page.evaluate(MISPLACED) == []


def test_a_report_with_a_long_schedule_prints_small(report, fresh_page):
    fresh_page.set_content(to_html(report))
    assert len(fresh_page.pdf(format="A4")) < MOST_BYTES
