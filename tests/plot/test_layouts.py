"""Every chart of every scenario at the widths of phones, columns and screens: no label on a line, none cut, none that overlaps or leaves."""

from __future__ import annotations

import pytest

from ..report.reading import SCENARIOS, report_of

WIDTHS = (360, 480, 720, 1000, 1280, 1600)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_labels_have_their_place(path, find_problems):
    figures = report_of(path.stem).figures
    assert {"scorecard", "time", "roofline"} <= figures.keys()
    wrong = [
        f"{name} at {width}: {problem}"
        for name, figure in figures.items()
        for width in WIDTHS
        for problem in find_problems(figure.svg(width))
    ]
    assert wrong == []
