"""The charts of an answer in the explorer: the same for one answer and for two side by side."""

from __future__ import annotations

from mlsysim.plans.answer import Answer
from mlsysim.plot import Figure
from mlsysim.plot.answers import memory_of, roofline_of, scorecard_of, time_of, tornado_of

_ROOFLINE, _MEMORY = "Roofline of one chip", "Memory of one accelerator"


def charts_of(answer: Answer, width: int, wide: int) -> dict[str, str]:
    """SVG texts by name: roofline, waterfall, memory, scorecard; what an answer has no data for is left out.

    The scorecard, which is mostly text, has a width of its own.
    """
    figures = {
        "roofline": roofline_of([("", answer)], title=_ROOFLINE, width=width),
        "waterfall": _waterfall(answer, width),
        "memory": memory_of([("Each accelerator", answer)], title=_MEMORY, width=width),
        "scorecard": scorecard_of(answer, title="Scorecard by wall", width=wide),
    }
    return {name: figure.svg() for name, figure in figures.items() if figure is not None}


def charts_of_both(first: Answer, second: Answer, width: int) -> dict[str, str]:
    """Two answers: one roofline and one pair of memory bars for both, and a waterfall of each."""
    named = [("pinned", first), ("now", second)]
    figures = {
        "roofline": roofline_of(named, title=_ROOFLINE, width=width),
        "memory": memory_of(named, title=_MEMORY, width=width),
        "waterfall_pinned": _waterfall(first, width, " (pinned)"),
        "waterfall_now": _waterfall(second, width, " (now)"),
    }
    return {name: figure.svg() for name, figure in figures.items() if figure is not None}


def sensitivity_chart(answer: Answer, changes: dict[str, tuple[float | None, float | None]], width: int) -> str | None:
    """The tornado of changes of the main metric."""
    title = f"What moves {answer.metric(answer.main).label.lower()}"
    figure = tornado_of(answer, changes, title=title, width=width)
    return None if figure is None else figure.svg()


def _waterfall(answer: Answer, width: int, suffix: str = "") -> Figure | None:
    return time_of(answer, title=f"Where the time goes{suffix}", width=width)
