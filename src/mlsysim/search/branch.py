"""Branch and bound: the optimum of spaces that are too large to walk through, exactly.

Systems are made of walls, and walls are monotone: time falls with bandwidth, cost rises with price, memory rises with the
batch. Over a box of points (a range on each axis) the objective is therefore bounded by its value at one corner, and so is
every constraint. A box whose bound is no better than a point in hand, or in which a constraint or a wall rejects even the
most favourable corner, is dropped with all its points; one whose best corner is allowed is solved by that corner; the rest
are cut in two where the bound changes most. Boxes are taken best bound first, thousands at a time on arrays.

Why this and not a general optimizer: the answer is proved, it needs no tuning, no seed and no other package, and it treats
whole-number axes and hard walls as they are, where gradients, surrogates and annealing only hope. The price: axes along which
the objective may do anything (layouts, names) are walked through one by one, so there may be a million combinations of
those; the other axes may be as long as they like. What rises or falls with what is declared in :mod:`mlsysim.search.monotone`.

Among points of equal objective it finds one, not all. A point whose objective is not known is not ranked, and a box whose corner
has none is taken to have none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.search.expression import Expression, Pair, among, enclose, unknown
from mlsysim.search.kinds import kind_named
from mlsysim.search.monotone import MONOTONE, direction
from mlsysim.search.space import Goal, Space
from mlsysim.search.tiles import TILE
from mlsysim.search.uncertainty import certain

_MOST_COMBINATIONS = 2**20
_BATCH = 2048
MOST_EVALUATIONS = 100_000_000
"""Points that a search may evaluate before it gives up."""


@dataclass
class Found:
    """The best point (None where nothing is allowed), what was evaluated, and points dropped by reason."""

    index: int | None = None
    value: float = math.inf
    evaluated: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def walked_axes(space: Space) -> list[str]:
    """Axes along which the objective or what is feasible may do anything."""
    goal = _goal(space)
    return [
        axis.name
        for number, axis in enumerate(space.axes)
        if axis.size > 1 and None in (_sign(space, number, goal.output), _sign(space, number, "feasible"))
    ]


def refusal(space: Space) -> str | None:
    """Why branch and bound cannot search a space; None where it can."""
    if space.kind not in MONOTONE:
        return f"Branch and bound knows no monotone axes of kind {space.kind!r}; it works on {', '.join(MONOTONE)}."
    walked = walked_axes(space)
    combinations = math.prod(axis.size for axis in space.axes if axis.name in walked)
    if combinations <= _MOST_COMBINATIONS:
        return None
    return (
        f"The axes {', '.join(walked)} of {space.name!r} have {combinations:,} combinations, and nothing says how "
        f"{_goal(space).output} moves along them; branch and bound takes {_MOST_COMBINATIONS:,}."
    )


def branch_and_bound(space: Space, most_evaluations: int = MOST_EVALUATIONS) -> Found:
    """The best point of a space."""
    certain(space, "Branch and bound")
    if why := refusal(space):
        raise InputError(why)
    return _Search(space, most_evaluations).run(walked_axes(space))


def _goal(space: Space) -> Goal:
    goal = space.goal or space.with_goals().goal
    assert goal is not None
    return goal


def _sign(space: Space, number: int, output: str) -> int | None:
    """How an output moves along an axis, in the order of :func:`_order`."""
    found = set()
    for column, values in space.axes[number].columns.items():
        sign = direction(space.kind, output, column)
        if sign is None or isinstance(values[0], (str, bool)):
            return None
        if sign:
            ordered = np.array(values, dtype=float)[_order(space, number)]
            steps = np.diff(ordered)
            if (steps >= 0).all():
                found.add(sign)
            elif (steps <= 0).all():
                found.add(-sign)
            else:
                return None
    return None if len(found) > 1 else next(iter(found), 0)


def _order(space: Space, number: int) -> Any:
    """Places along an axis: by value, as listed where several inputs move together or the values are text."""
    columns = space.axes[number].columns
    values = next(iter(columns.values()))
    if len(columns) > 1 or isinstance(values[0], str):
        return np.arange(len(values))
    return np.argsort(np.array(values, dtype=float), kind="stable")


@dataclass(slots=True)
class _Boxes:
    """Some boxes: lowest and highest place on every axis."""

    low: Any
    high: Any

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, index: Any) -> _Boxes:
        return _Boxes(self.low[index], self.high[index])

    @property
    def points(self) -> int:
        return int(np.prod(self.high - self.low + 1, axis=1).sum())

    def join(self, other: _Boxes) -> _Boxes:
        return _Boxes(np.concatenate([self.low, other.low]), np.concatenate([self.high, other.high]))


class _Search:
    def __init__(self, space: Space, most_evaluations: int) -> None:
        self.space, self.most = space, most_evaluations
        self.evaluate = kind_named(space.kind).evaluate
        self.goal = _goal(space)
        self.orders = [_order(space, number) for number in range(len(space.axes))]
        self.sizes = np.array([axis.size for axis in space.axes], dtype=np.int64)
        self.found = Found()
        self.signs: dict[str, list[int | None]] = {}
        self.outputs = kind_named(space.kind).outputs
        used = {name for expression in space.subject_to for name in expression.names}
        inputs = {*space.homes, *space.fixed}
        self.bounded = sorted(name for name in used if name in self.outputs or name.split(".")[0] not in inputs)

    def _indices(self, places: Any) -> Any:
        index = np.zeros(len(places), dtype=np.int64)
        for number, (order, stride) in enumerate(zip(self.orders, self.space.strides, strict=True)):
            index += order[places[:, number]] * stride
        return index

    def _outputs(self, places: Any, *names: str) -> dict[str, Any]:
        """Some outputs at these places, in tiles."""
        indices = self._indices(places)
        self.found.evaluated += len(indices)
        parts: dict[str, list[Any]] = {name: [np.empty(0)] for name in names}
        for first in range(0, len(indices), TILE):
            tile = indices[first : first + TILE]
            answers = self.evaluate(self.space, self.space.decode(tile))
            for name in names:
                parts[name].append(np.broadcast_to(np.asarray(among(answers)(name), dtype=float), tile.shape))
        return {name: np.concatenate(values) for name, values in parts.items()}

    def _allowed(self, places: Any, answers: dict[str, Any]) -> Any:
        """Which places are feasible and hold all constraints."""
        held = answers["feasible"] > 0
        columns = self.space.decode(self._indices(places))

        def value(name: str) -> Any:
            for table in (answers, columns):
                if name in table:
                    return table[name]
            return self._pair(name, _Boxes(places, places)).low

        for expression in (*self.space.constraints, *self.space.subject_to):
            held = held & np.broadcast_to(expression(value), held.shape)
        return held

    def _signs(self, output: str) -> list[int | None]:
        if output not in self.signs:
            self.signs[output] = [_sign(self.space, number, output) for number in range(len(self.sizes))]
        return self.signs[output]

    def _corner(self, boxes: _Boxes, output: str, up: bool) -> tuple[Any, Any]:
        """Places where an output is largest (or smallest), and the boxes where that is known."""
        places = boxes.low.copy()
        known = np.ones(len(boxes), dtype=bool)
        for number, sign in enumerate(self._signs(output)):
            if sign is None:
                known &= boxes.low[:, number] == boxes.high[:, number]
            elif sign and (sign > 0) == up:
                places[:, number] = boxes.high[:, number]
        return places, known

    def _bound(self, boxes: _Boxes, output: str, up: bool) -> Any:
        """The highest (or lowest) of an output over each box; infinite where nothing is known, as the corner where that is."""
        places, known = self._corner(boxes, output, up)
        values = np.full(len(boxes), np.inf if up else -np.inf)
        values[known] = self._outputs(places[known], output)[output]
        return values

    def _range(self, boxes: _Boxes, output: str) -> Pair:
        """Lowest and highest of an output over each box."""
        if output not in self.outputs:
            return unknown(len(boxes))
        low, high = (self._bound(boxes, output, up) for up in (False, True))
        return Pair(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))

    def _pair(self, name: str, boxes: _Boxes) -> Pair:
        """What an input can be over each box."""
        column, _, attribute = name.partition(".")
        if column not in self.space.homes:
            value = self.space.column(name)[0] if attribute else self.space.fixed[column]
            return Pair(value, value)
        number = self.space.homes[column]
        values = self.space.column(name)[self.orders[number]]
        low, high = boxes.low[:, number], boxes.high[:, number]
        if values.dtype.kind not in "biuf":
            first = values[low].astype(object)
            first[low != high] = None
            return Pair(first, first)
        values = values.astype(float)
        steps = np.diff(values)
        if (steps >= 0).all():
            return Pair(values[low], values[high])
        if (steps <= 0).all():
            return Pair(values[high], values[low])
        single = low == high
        return Pair(np.where(single, values[low], values.min()), np.where(single, values[low], values.max()))

    def _possible(self, boxes: _Boxes, expression: Expression, outputs: dict[str, Pair]) -> Any:
        def value(name: str) -> Pair:
            return outputs[name] if name in outputs else self._pair(name, boxes)

        return np.broadcast_to(enclose(expression, value).high, (len(boxes),))

    def run(self, walked: list[str]) -> Found:
        open_boxes, bounds = self._screen(self._start(walked))
        while len(open_boxes):
            if self.found.evaluated > self.most:
                raise InputError(
                    f"Branch and bound evaluated {self.found.evaluated:,} points of {self.space.name!r} without a proof "
                    f"(best so far {self.found.value * self.goal.sign:.6g}); use shorter axes or tighter constraints."
                )
            better = bounds < self.found.value
            open_boxes, bounds = self._kept(open_boxes, better, "bound"), bounds[better]
            if not len(open_boxes):
                break
            chosen = np.argpartition(bounds, min(_BATCH, len(bounds)) - 1)[:_BATCH]
            rest = np.ones(len(bounds), dtype=bool)
            rest[chosen] = False
            fresh, fresh_bounds = self._screen(self._halves(open_boxes[chosen], bounds[chosen]))
            open_boxes = open_boxes[rest].join(fresh)
            bounds = np.concatenate([bounds[rest], fresh_bounds])
        self.found.value *= self.goal.sign
        return self.found

    def _start(self, walked: list[str]) -> _Boxes:
        """A box for each combination of the axes that have to be walked through."""
        low = np.zeros((1, len(self.sizes)), dtype=np.int64)
        high = (self.sizes - 1)[None, :].copy()
        for number, axis in enumerate(self.space.axes):
            if axis.name in walked:
                low, high = low.repeat(axis.size, axis=0), high.repeat(axis.size, axis=0)
                low[:, number] = high[:, number] = np.tile(np.arange(axis.size), len(low) // axis.size)
        return _Boxes(low, high)

    def _kept(self, boxes: _Boxes, kept: Any, reason: str) -> _Boxes:
        """What stays of some boxes; the points of the others are counted under the reason."""
        if kept.all():
            return boxes
        self.found.dropped[reason] += boxes[~kept].points
        return boxes[kept]

    def _screen(self, boxes: _Boxes) -> tuple[_Boxes, Any]:
        """What is left of new boxes, and their bounds; the best point in hand is brought up to date."""
        for expression in self.space.constraints:
            boxes = self._kept(boxes, self._possible(boxes, expression, {}), expression.text)
        boxes = self._feasible(boxes)
        for place, expression in enumerate(self.space.subject_to):
            if not place:
                ranges = {name: self._range(boxes, name) for name in self.bounded}
            possible = self._possible(boxes, expression, ranges)
            boxes = self._kept(boxes, possible, expression.text)
            ranges = {name: Pair(low[possible], high[possible]) for name, (low, high) in ranges.items()}
        bounds = self._bound(boxes, self.goal.output, self.goal.larger) * self.goal.sign
        ranked = ~np.isnan(bounds)
        boxes, bounds = self._kept(boxes, ranked, "unranked"), bounds[ranked]
        solved = self._solved(boxes)
        self._try((boxes.low + boxes.high) // 2)
        self._try(self._corner(boxes, "feasible", True)[0])
        open_ = ~solved & (bounds < self.found.value)
        return self._kept(boxes, open_, "bound"), bounds[open_]

    def _feasible(self, boxes: _Boxes) -> _Boxes:
        """Boxes in which the most favourable corner is feasible, or could be."""
        places, known = self._corner(boxes, "feasible", True)
        answers = self._outputs(places, "feasible", "wall")
        kept = ~known | (answers["feasible"] > 0)
        for wall in np.unique(answers["wall"][~kept]).tolist():
            here = ~kept & (answers["wall"] == wall)
            self.found.dropped[str(int(wall)) if wall else "invalid"] += boxes[here].points
        return boxes[kept]

    def _solved(self, boxes: _Boxes) -> Any:
        """Boxes whose best corner is allowed: nothing in them is better."""
        best, known = self._corner(boxes, self.goal.output, self.goal.larger)
        free = [number for number, sign in enumerate(self._signs(self.goal.output)) if sign == 0]
        most, _ = self._corner(boxes, "feasible", True)
        solved = np.zeros(len(boxes), dtype=bool)
        for others in (boxes.low, boxes.high, most) if free else (boxes.low,):
            corner = best.copy()
            corner[:, free] = others[:, free]
            solved |= known & self._try(corner)
        return solved

    def _try(self, places: Any) -> Any:
        """Which of these points are allowed; the best of them is kept."""
        answers = self._outputs(places, *dict.fromkeys(("feasible", self.goal.output, *self.bounded)))
        values = answers[self.goal.output] * self.goal.sign
        allowed = self._allowed(places, answers) & np.isfinite(values)
        ranked = np.where(allowed, values, np.inf)
        lowest = ranked.min(initial=np.inf)
        if lowest < self.found.value:
            self.found.value = float(lowest)
            self.found.index = int(self._indices(places)[ranked == lowest].min())
        return allowed

    def _halves(self, boxes: _Boxes, bounds: Any) -> _Boxes:
        """Each box cut in two along the axis on which the bound depends most."""
        width = boxes.high - boxes.low
        places, _ = self._corner(boxes, self.goal.output, self.goal.larger)
        scores = np.zeros(width.shape)
        for number, sign in enumerate(self._signs(self.goal.output)):
            wide = width[:, number] > 0
            if not sign or not wide.any():
                continue
            moved = places[wide].copy()
            moved[:, number] = boxes.low[wide, number] + boxes.high[wide, number] - places[wide, number]
            change = self._outputs(moved, self.goal.output)[self.goal.output] * self.goal.sign - bounds[wide]
            scores[wide, number] = np.nan_to_num(change, nan=np.inf, posinf=np.inf, neginf=0.0)
        # Where the bound depends on no axis, the longest one is cut: it decides a constraint, or nothing.
        flat = scores.max(axis=1, keepdims=True) <= 0
        axis = np.where(width > 0, np.where(flat, width / self.sizes, scores), -1.0).argmax(axis=1)
        cut = width[np.arange(len(boxes)), axis] > 0
        boxes, axis, rows = boxes[cut], axis[cut], np.arange(int(cut.sum()))
        middle = (boxes.low[rows, axis] + boxes.high[rows, axis]) // 2
        lower, upper = _Boxes(boxes.low, boxes.high.copy()), _Boxes(boxes.low.copy(), boxes.high)
        lower.high[rows, axis] = middle
        upper.low[rows, axis] = middle + 1
        return lower.join(upper)
