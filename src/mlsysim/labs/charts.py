"""The charts of an answer, drawn by :mod:`mlsysim.plot`: the same for one answer and for two side by side."""

from __future__ import annotations

from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plot import Figure, memory_bar, roofline, scorecard, tornado, waterfall
from mlsysim.units.registry import quantity

__all__ = ["charts_of", "charts_of_both", "sensitivity_chart"]

_WHOLE = {"training": "Step", "serving": "Request", "inference": "Pass"}
_FIGURES = {
    "peak_flops": "Peak FLOP/s",
    "memory_bandwidth": "Memory bandwidth",
    "memory_capacity": "Memory capacity",
    "link_bandwidth": "Link in the node",
    "fabric_bandwidth": "Network",
}


def charts_of(answer: Answer, width: int, wide: int) -> dict[str, str]:
    """SVG texts by name: roofline, waterfall, memory, scorecard; what an answer has no data for is left out.

    The scorecard, which is mostly text, has a width of its own.
    """
    figures = {
        "roofline": _rooflines([("", answer)], width),
        "waterfall": _waterfall(answer, width),
        "memory": _memory([("Each accelerator", answer)], width),
        "scorecard": _scorecard(answer, wide),
    }
    return {name: figure.svg() for name, figure in figures.items() if figure is not None}


def charts_of_both(first: Answer, second: Answer, width: int) -> dict[str, str]:
    """Two answers: one roofline and one pair of memory bars for both, and a waterfall of each."""
    named = [("pinned", first), ("now", second)]
    figures = {
        "roofline": _rooflines(named, width),
        "memory": _memory(named, width),
        "waterfall_pinned": _waterfall(first, width, " (pinned)"),
        "waterfall_now": _waterfall(second, width, " (now)"),
    }
    return {name: figure.svg() for name, figure in figures.items() if figure is not None}


def sensitivity_chart(answer: Answer, changes: dict[str, tuple[float | None, float | None]], width: int) -> str | None:
    """The tornado of changes of the main metric, in per cent; a side on which the plan no longer fits has no bar."""
    if not changes:
        return None
    metric = answer.metric(answer.main)
    rows = []
    for name, sides in changes.items():
        lost = "" if None not in sides else " (10 % less no longer fits)"
        low, high = (0.0 if side is None else 100.0 * side for side in sides)
        rows.append((_FIGURES[name] + lost, low, high))
    return tornado(
        rows,
        base=0.0,
        unit="percent",
        axis=f"Change of {metric.label.lower()}",
        names=("10 % less of it", "10 % more of it"),
        title=f"What moves {metric.label.lower()}",
        width=width,
    ).svg()


def _rooflines(answers: list[tuple[str, Answer]], width: int) -> Figure | None:
    roofs: dict[tuple[float, float], tuple[str, Any, Any]] = {}
    points = []
    for name, answer in answers:
        for point in answer.roofline:
            label = f"{point['chip']}, {point['precision']}"
            peak, bandwidth = quantity(point["peak_flops"], "flop/s"), quantity(point["bandwidth"], "byte/s")
            roofs.setdefault((point["peak_flops"], point["bandwidth"]), (label, peak, bandwidth))
            if point["intensity"] > 0 and point["achieved"] > 0:
                where = quantity(point["intensity"], "flop/byte"), quantity(point["achieved"], "flop/s")
                points.append((f"{point['label']} ({name})" if name else point["label"], *where))
    if not roofs:
        return None
    return roofline(roofs=_distinct(list(roofs.values())), points=points, title="Roofline of one chip", width=width)


def _distinct(roofs: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """A hypothetical chip has the name of the one that it was made from; the second of a name says so."""
    seen: set[str] = set()
    out = []
    for label, peak, bandwidth in roofs:
        out.append((f"{label}, edited" if label in seen else label, peak, bandwidth))
        seen.add(label)
    return out


def _waterfall(answer: Answer, width: int, suffix: str = "") -> Figure | None:
    parts = [(part.label, part.value, "s") for part in answer.time_parts if part.value > 0]
    if not parts:
        return None
    whole = _WHOLE[answer.task]
    return waterfall(parts, total_label=whole, title=f"Where the time goes{suffix}", width=width)


def _memory(answers: list[tuple[str, Answer]], width: int) -> Figure | None:
    bars = [
        (
            name,
            [(part.label, part.value, "byte") for part in answer.memory.parts],
            quantity(answer.memory.capacity, "byte"),
        )
        for name, answer in answers
        if answer.memory is not None and answer.memory.parts
    ]
    return memory_bar(bars, title="Memory of one accelerator", width=width) if bars else None


def _scorecard(answer: Answer, width: int) -> Figure | None:
    rows = [
        (score.wall, score.load, ", ".join(filter(None, (score.value, score.note))) or "the limit")
        for score in answer.scorecard
        if score.status != "not asked"
    ]
    if not rows:
        return None
    return scorecard(rows, binding=answer.binding.wall, title="Scorecard by wall", width=width)
