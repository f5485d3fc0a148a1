"""What is kept of a stream of points: counts, the best k, the Pareto front, marginals and a histogram.

Memory does not grow with the number of points. Two reductions of disjoint points merge into that of both, in any order
and grouping, with the same result: values are never summed, only counted and compared, and equal values are ranked by
the number of the point. What the kind calls invalid (a layout that does not divide) is no design and no point. A feasible point without a value (something about it is not known) is counted, not ranked.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from mlsysim.search.expression import among
from mlsysim.search.front import Archive
from mlsysim.search.space import Columns, Space
from mlsysim.units.ops import taken

_BINS_PER_OCTAVE = 8
_LONGEST_MARGINAL = 4096
_COUNTS = ("points", "invalid", "feasible", "unranked")


class Reduction:
    """The state of one reduction over points of a space."""

    def __init__(self, space: Space) -> None:
        if space.goal is None:
            space = space.with_goals()
        assert space.goal is not None
        self.goal, self.pareto, self.top = space.goal, space.pareto, space.top
        self.subject_to = space.subject_to
        self.fixed = space.fixed
        self.axes = {
            axis.name: (next(iter(axis.columns)), axis.size) for axis in space.axes if axis.size <= _LONGEST_MARGINAL
        }
        self.points = self.invalid = self.feasible = self.unranked = self.ties = 0
        self.infeasible: Counter[str] = Counter()
        self.histogram: Counter[int] = Counter()
        self.best_values: Any = np.empty(0)
        self.best_indices: Any = np.empty(0, dtype=np.int64)
        self.marginal_best = {name: np.full(size, np.inf) for name, (_, size) in self.axes.items()}
        self.marginal_count = {name: np.zeros(size, dtype=np.int64) for name, (_, size) in self.axes.items()}
        self.archive = Archive(max(len(self.pareto), 1))

    def add(self, indices: Any, columns: Columns, outputs: dict[str, Any]) -> Any:
        """Take in points with what was computed for them; gives which of them are feasible."""
        valid = np.broadcast_to(outputs.get("valid", True), indices.shape)
        designs = int(np.count_nonzero(valid))
        self.points += designs
        self.invalid += indices.size - designs
        allowed = np.broadcast_to(outputs["feasible"], indices.shape) & valid
        if np.count_nonzero(allowed) < designs:
            walls = np.broadcast_to(outputs["wall"], indices.shape)[valid & ~allowed]
            for wall, count in enumerate(np.bincount(walls)):
                if count:
                    self.infeasible[str(wall)] += int(count)
        for expression in self.subject_to:
            # Over draws a constraint was decided draw by draw.
            decided = getattr(outputs, "held", {}).get(expression.text)
            held = expression(among(outputs, columns, self.fixed)) if decided is None else decided
            held = np.broadcast_to(held, indices.shape)
            lost = int(np.count_nonzero(allowed & ~held))
            if lost:
                self.infeasible[expression.text] += lost
                allowed = allowed & held
        count = int(np.count_nonzero(allowed))
        self.feasible += count
        if not count:
            return allowed
        at = None if count == indices.size else np.flatnonzero(allowed)

        def left(values: Any) -> Any:
            return values if at is None else taken(values, at)

        chosen = left(indices)

        def of(name: str) -> Any:
            return left(np.broadcast_to(np.asarray(among(outputs)(name), dtype=np.float64), indices.shape))

        raw = of(self.goal.output)
        known = np.isfinite(raw)
        missing = count - int(np.count_nonzero(known))
        self.unranked += missing
        places = {name: left(columns.positions[column]) for name, (column, _) in self.axes.items()}
        for name, place in places.items():
            self.marginal_count[name] += np.bincount(place, minlength=self.marginal_count[name].size)
        if missing:
            ranked, ranked_indices = raw[known], chosen[known]
            places = {name: place[known] for name, place in places.items()}
        else:
            ranked, ranked_indices = raw, chosen
        if ranked.size:
            self._rank(ranked * self.goal.sign, ranked_indices, places)
            self._count(ranked)
        if self.pareto:
            rows = np.stack([of(goal.output) * goal.sign for goal in self.pareto])
            whole = np.isfinite(rows).all(axis=0)
            self.archive.add(*((rows, chosen) if whole.all() else (rows[:, whole], chosen[whole])))
        return allowed

    def _rank(self, values: Any, indices: Any, places: dict[str, Any]) -> None:
        lowest = values.min()
        self._tie(lowest, int(np.count_nonzero(values == lowest)))
        for name, place in places.items():
            best = self.marginal_best[name]
            better = values < taken(best, place)
            if better.any():
                np.minimum.at(best, place[better], values[better])
        if self.best_values.size == self.top:
            last, at = self.best_values[-1], self.best_indices[-1]
            enter = (values < last) | ((values == last) & (indices < at))
            if not enter.any():
                return
            values, indices = values[enter], indices[enter]
        self._keep(values, indices)

    def _tie(self, lowest: Any, count: int) -> None:
        """Take in how many points have the lowest value of some."""
        best = self.best_values[0] if self.best_values.size else None
        if best is None or lowest <= best:
            self.ties = count + (self.ties if lowest == best else 0)

    def _keep(self, values: Any, indices: Any) -> None:
        values, indices = np.concatenate([self.best_values, values]), np.concatenate([self.best_indices, indices])
        order = np.lexsort((indices, values))[: self.top]
        self.best_values, self.best_indices = values[order], indices[order]

    def _count(self, values: Any) -> None:
        positive = values[values > 0] if values.min() <= 0 else values
        if positive.size:
            bins = np.floor(np.log2(positive) * _BINS_PER_OCTAVE).astype(np.int64)
            first = int(bins.min())
            counts = np.bincount(bins - first)
            for offset in np.flatnonzero(counts).tolist():
                self.histogram[first + offset] += int(counts[offset])

    def merge(self, other: Reduction) -> Reduction:
        """Take in the points of another reduction of the same space; gives itself."""
        for name in (*_COUNTS, "infeasible", "histogram"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.best_values.size:
            self._tie(other.best_values[0], other.ties)
            self._keep(other.best_values, other.best_indices)
        for name in self.axes:
            np.minimum(self.marginal_best[name], other.marginal_best[name], out=self.marginal_best[name])
            self.marginal_count[name] += other.marginal_count[name]
        self.archive = self.archive.merge(other.archive)
        return self

    def document(self) -> dict[str, Any]:
        """The state as JSON; every float comes back exactly."""
        return {
            **{name: getattr(self, name) for name in (*_COUNTS, "ties")},
            "infeasible": dict(sorted(self.infeasible.items())),
            "histogram": {str(key): self.histogram[key] for key in sorted(self.histogram)},
            "best": [self.best_indices.tolist(), self.best_values.tolist()],
            "marginals": {
                name: [
                    [None if math.isinf(value) else value for value in self.marginal_best[name].tolist()],
                    self.marginal_count[name].tolist(),
                ]
                for name in self.axes
            },
            "front": [self.archive.indices.tolist(), self.archive.values.tolist()],
        }

    @classmethod
    def from_document(cls, space: Space, document: dict[str, Any]) -> Reduction:
        found = cls(space)
        for name in (*_COUNTS, "ties"):
            setattr(found, name, document[name])
        found.infeasible = Counter(document["infeasible"])
        found.histogram = Counter({int(key): count for key, count in document["histogram"].items()})
        indices, values = document["best"]
        found.best_indices, found.best_values = np.array(indices, dtype=np.int64), np.array(values, dtype=np.float64)
        for name in found.axes:
            best, count = document["marginals"][name]
            found.marginal_best[name] = np.array([np.inf if v is None else v for v in best], dtype=np.float64)
            found.marginal_count[name] = np.array(count, dtype=np.int64)
        indices, values = document["front"]
        rows = np.array(values, dtype=np.float64).reshape(found.archive.objectives, len(indices))
        found.archive = Archive(found.archive.objectives, rows, indices)
        return found

    def bins(self) -> list[dict[str, float]]:
        """The histogram of the objective: eight bins for each doubling."""
        return [
            {"low": 2.0 ** (key / _BINS_PER_OCTAVE), "high": 2.0 ** ((key + 1) / _BINS_PER_OCTAVE), "count": count}
            for key, count in sorted(self.histogram.items())
        ]

    def marginals(self, space: Space) -> dict[str, list[dict[str, Any]]]:
        """For each value of each axis the best objective that it allows, and how many feasible points it has."""
        found = {}
        for axis in space.axes:
            if axis.name in self.axes:
                best, count = self.marginal_best[axis.name], self.marginal_count[axis.name]
                found[axis.name] = [
                    {
                        **{column: values[i] for column, values in axis.columns.items()},
                        "best": None if math.isinf(best[i]) else float(best[i] * self.goal.sign),
                        "feasible": int(count[i]),
                    }
                    for i in range(axis.size)
                ]
        return found
