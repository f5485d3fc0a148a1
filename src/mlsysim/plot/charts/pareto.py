"""Pareto front: points of two objectives, the line of those that nothing beats, and labels for the chosen ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.plot.amounts import read_amount, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import (
    BODY,
    PAD,
    KeyEntry,
    finish,
    heading,
    in_sentence,
    key,
    linear_scale,
    log_scale,
    notes,
    x_axis,
    y_axis,
    y_ticks,
    y_title,
)
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import Box, Drawing, fit

_GOALS = ("low", "high")


def front(points: list[tuple[float, float]], goals: tuple[str, str] = ("low", "low")) -> list[int]:
    """Indices of the points that no other beats in one objective without losing in the other, along the first objective.

    Of equal points the first one stays.

    >>> front([(1, 5), (2, 2), (3, 3), (4, 1)])
    [0, 1, 3]
    """
    signs = [1 if goal == "low" else -1 for goal in goals]
    order = sorted(range(len(points)), key=lambda k: (signs[0] * points[k][0], signs[1] * points[k][1], k))
    kept: list[int] = []
    for k in order:
        if not kept or signs[1] * points[k][1] < signs[1] * points[kept[-1]][1]:
            kept.append(k)
    return kept


@dataclass(frozen=True)
class _Pareto:
    title: str
    subtitle: str
    labels: tuple[str, ...]
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    units: tuple[str, str]
    titles: tuple[str, str]
    goals: tuple[str, str]
    chosen: tuple[int, ...]

    def best(self) -> list[int]:
        return front(list(zip(self.xs, self.ys, strict=True)), self.goals)

    def name(self, k: int) -> str:
        return f"{self.labels[k]} ({amount(self.xs[k], self.units[0])}, {amount(self.ys[k], self.units[1])})"

    def describe(self) -> str:
        best = self.best()
        shown = "; ".join(self.name(k) for k in best[:12]) + (f"; and {len(best) - 12} more" if len(best) > 12 else "")
        return f"{len(self.labels)} points of {self.titles[0]} and {self.titles[1]}, {len(best)} of them on the Pareto front: {shown}."

    @staticmethod
    def _scale(values: tuple[float, ...], start: float, end: float) -> Any:
        low, high = min(values), max(values)
        if low > 0 and high / low > 50:
            return log_scale(low / 1.5, high * 1.5, start, end)
        margin = (high - low) * 0.06
        return linear_scale(max(low - margin, 0.0) if low >= 0 else low - margin, high + margin, start, end)

    def paint(self, width: float) -> Drawing:
        d = Drawing(width)
        goals = f"Better: {'lower' if self.goals[0] == 'low' else 'higher'} {in_sentence(self.titles[0])}, {'lower' if self.goals[1] == 'low' else 'higher'} {in_sentence(self.titles[1])}."
        y = heading(d, self.title, f"{self.subtitle} {goals}".strip())
        best = self.best()
        rest = len(self.labels) - len(best)
        entries = [KeyEntry(f"on the front ({len(best)})", 0, "marker")]
        y = key(d, y, entries + ([KeyEntry(f"beaten by others ({rest})", 7, "marker")] if rest else []))
        height = 300.0
        values, texts, symbol, margin = y_ticks(lambda a, b: self._scale(self.ys, a, b), self.units[1], height)
        y = y_title(d, y, self.titles[1], symbol)
        plot = Box(PAD + margin + 8, y, width - PAD, y + height)
        across, up = self._scale(self.xs, plot.left, plot.right), self._scale(self.ys, plot.bottom, plot.top)
        y = x_axis(d, across, plot, self.titles[0], self.units[0])
        y_axis(d, up, plot, values, texts)
        placer = Placer(Box(plot.left + 2, plot.top + 1, width - 4, plot.bottom - 2))
        where = {k: (across(self.xs[k]), up(self.ys[k])) for k in range(len(self.labels))}
        corners = [where[k] for k in best]
        stairs = [corners[0]]
        for px, py in corners[1:]:
            stairs += [(px, stairs[-1][1]), (px, py)]
        d.polyline(stairs, "l0")
        for one, other in pairwise(stairs):
            placer.block_line(*one, *other)
        for k in sorted(where, key=lambda k: (k in best, k)):
            on_front = k in best
            d.marker(
                0 if on_front else 7,
                *where[k],
                5 if on_front else 3.5,
                "f0 edge" if on_front else "f7 edge",
                self.name(k),
            )
            reach = 5.0
            if k in self.chosen:
                reach = 8.0
                d.marker(0, *where[k], 7, "mark")
            placer.block(Box(where[k][0] - reach, where[k][1] - reach, where[k][0] + reach, where[k][1] + reach))
        missing = [self.name(k) for k in self.chosen if not self._label(d, k, where[k], placer, plot)]
        return finish(d, notes(d, y, ["Also chosen: " + "; ".join(missing) + "."] if missing else []))

    def _label(self, d: Drawing, k: int, at: tuple[float, float], placer: Placer, plot: Box) -> bool:
        shown = fit(self.labels[k], BODY, min(230.0, (plot.right - plot.left) * 0.6))
        place = placer.place(*at, shown, BODY)
        if place is None:
            return False
        if place.leader:
            d.line(*at, *place.leader, "leader")
        d.text(place.x, place.baseline, shown, BODY, "ink halo")
        return True

    def axes(self, ax: Any) -> None:
        best = self.best()
        ax.plot(self.xs, self.ys, linestyle="none", marker=".", label="all points")
        ax.step([self.xs[k] for k in best], [self.ys[k] for k in best], where="post", marker="o", label="Pareto front")
        for k in self.chosen:
            ax.annotate(self.labels[k], (self.xs[k], self.ys[k]), xytext=(6, 4), textcoords="offset points")
        for axis, values, title, unit in (
            ("x", self.xs, self.titles[0], self.units[0]),
            ("y", self.ys, self.titles[1], self.units[1]),
        ):
            if min(values) > 0 and max(values) / min(values) > 50:
                ax.set(**{f"{axis}scale": "log"})
            ax.set(**{f"{axis}label": f"{title} ({unit})" if unit else title})
        ax.legend()


def pareto(
    points: Any,
    *,
    x_title: str,
    y_title: str,
    goals: tuple[str, str] = ("low", "low"),
    chosen: Any = None,
    title: str | None = None,
    subtitle: str = "",
    width: int = WIDE,
) -> Figure:
    """Points (label, x, y) with units, which of ``goals`` ("low" or "high") is better on each axis, labels to show.

    Without ``chosen`` the ends of the front and its middle are labelled.
    """
    read: list[tuple[str, tuple[float, str], tuple[float, str]]] = []
    for item in sequence(points, "points"):
        if isinstance(item, (str, bytes)) or not hasattr(item, "__len__") or len(item) != 3:
            raise InputError(f"A point is (label, x, y), got {item!r:.60}.")
        label = read_label(item[0])
        x, y = (read_amount(value, f"value of {label[:40]!r}", negative=True) for value in item[1:])
        read.append((label, x, y))
    units = read[0][1][1], read[0][2][1]
    for label, x, y in read:
        if (x[1], y[1]) != units:
            raise InputError(
                f"{label[:60]!r} is in other units than the first point ({units[0] or 'none'}, {units[1] or 'none'})."
            )
    if not isinstance(goals, (tuple, list)) or len(goals) != 2 or any(goal not in _GOALS for goal in goals):
        raise InputError(f"The goals of a front are two of 'low' and 'high', got {goals!r:.60}.", field="goals")
    labels = tuple(label for label, _, _ in read)
    xs, ys = tuple(x[0] for _, x, _ in read), tuple(y[0] for _, _, y in read)
    best = front(list(zip(xs, ys, strict=True)), (goals[0], goals[1]))
    if chosen is None:
        marked = sorted({best[0], best[len(best) // 2], best[-1]})
    else:
        marked = []
        for name in chosen:
            if read_label(name) not in labels:
                raise unknown_name("point of this front", name, labels)
            marked.append(labels.index(read_label(name)))
    titles = read_label(x_title), read_label(y_title)
    name = read_label(title) if title is not None else f"{titles[1].split(' (')[0]} against {in_sentence(titles[0])}"
    chart = _Pareto(name, subtitle, labels, xs, ys, units, titles, (goals[0], goals[1]), tuple(marked))
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)
