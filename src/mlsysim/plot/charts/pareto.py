"""Pareto front: points of two objectives, the line of those that nothing beats, and labels for the chosen ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.plot.amounts import fields, read_amount, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import KeyEntry, in_sentence, key, note, plane, with_unit
from mlsysim.plot.labels import Placer
from mlsysim.plot.scale import amount, is_log, scale_for
from mlsysim.plot.svg import Box, Drawing
from mlsysim.units.records import dataclass

_GOALS = {"low": "lower", "high": "higher"}


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


@dataclass(frozen=True, repr=False)
class _Pareto(Figure):
    labels: list[str]
    points: list[tuple[float, float]]
    units: tuple[str, str]
    titles: tuple[str, str]
    best: list[int]
    chosen: list[int]

    def values(self, axis: int) -> list[float]:
        return [point[axis] for point in self.points]

    def name(self, k: int) -> str:
        x, y = (amount(value, unit) for value, unit in zip(self.points[k], self.units, strict=True))
        return f"{self.labels[k]} ({x}, {y})"

    @property
    def alt(self) -> str:
        best = self.best
        shown = "; ".join(self.name(k) for k in best[:12]) + (f"; and {len(best) - 12} more" if len(best) > 12 else "")
        return f"{len(self.labels)} points of {self.titles[0]} and {self.titles[1]}, {len(best)} of them on the Pareto front: {shown}."

    def _body(self, d: Drawing, y: float) -> float:
        rest = len(self.labels) - len(self.best)
        entries = [KeyEntry(f"on the front ({len(self.best)})", 0, "marker")]
        y = key(d, y, entries + ([KeyEntry(f"beaten by others ({rest})", 7, "marker")] if rest else []))
        sides = [(partial(scale_for, self.values(axis)), self.titles[axis], self.units[axis]) for axis in (0, 1)]
        plot, across, up, y = plane(d, y, 300.0, *sides)
        placer = Placer(Box(plot.left + 2, plot.top + 1, d.width - 4, plot.bottom - 2))
        where = [(across(px), up(py)) for px, py in self.points]
        stairs = [where[self.best[0]]]
        for k in self.best[1:]:
            stairs += [(where[k][0], stairs[-1][1]), where[k]]
        d.polyline(stairs, "l0")
        placer.block_path(stairs)
        for k in sorted(range(len(where)), key=lambda k: (k in self.best, k)):
            shape, radius = (0, 5) if k in self.best else (7, 3.5)
            d.marker(shape, *where[k], radius, f"f{shape} edge", self.name(k))
            if k in self.chosen:
                d.marker(0, *where[k], 7, "mark")
            placer.block(*where[k], 8.0 if k in self.chosen else 5.0)
        missing = placer.labels(d, plot, [(*where[k], self.labels[k], self.name(k)) for k in self.chosen])
        return note(d, y, f"Also chosen: {missing}." if missing else "")

    def _axes(self, ax: Any) -> None:
        xs, ys = self.values(0), self.values(1)
        ax.plot(xs, ys, linestyle="none", marker=".", label="all points")
        ax.step([xs[k] for k in self.best], [ys[k] for k in self.best], where="post", marker="o", label="Pareto front")
        for k in self.chosen:
            ax.annotate(self.labels[k], self.points[k], xytext=(6, 4), textcoords="offset points")
        for axis, values, title, unit in zip("xy", (xs, ys), self.titles, self.units, strict=True):
            if is_log(values):
                ax.set(**{f"{axis}scale": "log"})
            ax.set(**{f"{axis}label": with_unit(title, unit)})
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
    labels: list[str] = []
    read: list[tuple[float, float]] = []
    units = "", ""
    for item in sequence(points, "points"):
        label = read_label(fields(item, "A point is (label, x, y)", 3)[0])
        x, y = (read_amount(value, f"value of {label[:40]!r}", negative=True) for value in item[1:])
        units = units if labels else (x[1], y[1])
        if (x[1], y[1]) != units:
            raise InputError(
                f"{label[:60]!r} is in other units than the first point ({units[0] or 'none'}, {units[1] or 'none'})."
            )
        labels.append(label)
        read.append((x[0], y[0]))
    if not isinstance(goals, (tuple, list)) or len(goals) != 2 or any(goal not in list(_GOALS) for goal in goals):
        raise InputError(f"The goals of a front are two of 'low' and 'high', got {goals!r:.60}.", field="goals")
    best = front(read, (goals[0], goals[1]))
    marked = sorted({best[0], best[len(best) // 2], best[-1]}) if chosen is None else []
    for name in chosen or ():
        if read_label(name) not in labels:
            raise unknown_name("point of this front", name, labels)
        marked.append(labels.index(read_label(name)))
    titles = read_label(x_title), read_label(y_title)
    better = ", ".join(f"{_GOALS[goal]} {in_sentence(said)}" for goal, said in zip(goals, titles, strict=True))
    subtitle = f"{subtitle} Better: {better}.".strip()
    title = read_label(title) if title is not None else f"{titles[1].split(' (')[0]} against {in_sentence(titles[0])}"
    return _Pareto(title, subtitle, width, labels, read, units, titles, best, marked)
