"""A metric of a plan along one of its keys."""

from __future__ import annotations

from mlsysim.errors import InputError, unknown_name
from mlsysim.plans.metrics import kinds
from mlsysim.plans.varied import Varied
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.figure import Figure
from mlsysim.plot.frame import in_sentence
from mlsysim.plot.titles import title_of_key


def chart_of_keys(found: Varied, metric: str | None = None) -> Figure:
    """A metric, the main one where none is named, along the key with most values; other keys have a line for each of their values."""
    if metric is not None and metric not in kinds():
        raise unknown_name("metric", metric, list(kinds()))
    answers = [point.answer for point in found.feasible if point.answer is not None]
    if not answers:
        raise InputError("No combination fits, so there is nothing to draw.")
    kind, axis = kinds()[metric or answers[0].main], max(found.axes, key=lambda key: len(found.axes[key]))
    told, across = kind.label_of(answers[0].task), title_of_key(axis)
    series: dict[str, list[tuple[float, float]]] = {}
    for point in found.feasible:
        label = ", ".join(f"{title_of_key(key)} {value}" for key, value in point.settings.items() if key != axis)
        if (value := point.value(kind.name)) is not None:
            at = float(found.axes[axis].index(point.settings[axis]))
            series.setdefault(label or told, []).append((at, value * (100 if kind.share else 1)))
    if not series:
        raise InputError(f"No combination has {kind.name!r}, so there is nothing to draw.", field="metric")
    return lines(
        [(label, sorted(points)) for label, points in series.items()],
        x_title=across,
        y_title=told,
        y_unit="percent" if kind.share else kind.unit.removesuffix("1/s"),
        names=list(map(str, found.axes[axis])),
        title=f"{told} by {in_sentence(across)}",
    )
