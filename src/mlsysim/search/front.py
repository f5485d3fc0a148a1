"""Points that nothing dominates. Smaller is better in every row; of equal points the first one stays.

A point dominates another when it is no worse in every objective and better in one. Values are kept as an array of
objectives x points. The result does not depend on the order in which points arrive or archives are merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_PENDING = 8192
_PAIRS = 4_000_000


def nondominated(values: Any, indices: Any) -> tuple[Any, Any]:
    """The points that nothing dominates, by index."""
    if indices.size == 0:
        return values, indices
    order = np.lexsort((indices, *values[::-1]))
    values, indices = values[:, order], indices[order]
    fresh = np.ones(indices.size, dtype=bool)
    fresh[1:] = (values[:, 1:] != values[:, :-1]).any(axis=0)
    values, indices = values[:, fresh], indices[fresh]
    if values.shape[0] == 2:
        keep = values[1] < np.concatenate(([np.inf], np.minimum.accumulate(values[1])[:-1]))
        values, indices = values[:, keep], indices[keep]
    else:
        values, indices = _peel(values, indices)
    order = np.argsort(indices)
    return values[:, order], indices[order]


def _scaled(values: Any) -> Any:
    """Each objective from 0 to 1."""
    low = values.min(axis=1, keepdims=True)
    span = values.max(axis=1, keepdims=True) - low
    return (values - low) / np.where(span > 0, span, 1.0)


def _peel(values: Any, indices: Any) -> tuple[Any, Any]:
    """Take the point with the smallest scaled sum, which nothing left dominates, drop what it dominates, and repeat."""
    order = np.argsort(_scaled(values).sum(axis=0), kind="stable")
    values, indices = values[:, order], indices[order]
    kept = []
    left = np.arange(indices.size)
    while left.size:
        pivot, rest = left[0], left[1:]
        kept.append(pivot)
        left = rest[(values[:, rest] < values[:, pivot : pivot + 1]).any(axis=0)]
    return values[:, kept], indices[kept]


class Archive:
    """The front of all points seen."""

    def __init__(self, objectives: int, values: Any = None, indices: Any = None) -> None:
        self.objectives = objectives
        self._values = np.empty((objectives, 0)) if values is None else np.asarray(values, dtype=np.float64)
        self._indices = np.empty(0, dtype=np.int64) if indices is None else np.asarray(indices, dtype=np.int64)
        self._waiting: list[tuple[Any, Any]] = []
        self._waiting_size = 0
        self._champions: list[int] = []
        self._choose()

    def add(self, values: Any, indices: Any) -> None:
        for number in self._champions:
            worse = indices > self._indices[number]
            for row in range(self.objectives):
                worse &= values[row] >= self._values[row, number]
            if worse.any():
                values, indices = values[:, ~worse], indices[~worse]
            if not indices.size:
                return
        self._waiting.append((values, indices))
        self._waiting_size += indices.size
        if self._waiting_size >= _PENDING:
            self._settle()

    @property
    def values(self) -> Any:
        self._settle()
        return self._values

    @property
    def indices(self) -> Any:
        self._settle()
        return self._indices

    def merge(self, other: Archive) -> Archive:
        joined = Archive(self.objectives, self.values, self.indices)
        joined._waiting = [(other.values, other.indices)]
        return joined

    def _settle(self) -> None:
        if not self._waiting:
            return
        values, indices = nondominated(
            np.concatenate([values for values, _ in self._waiting], axis=1),
            np.concatenate([indices for _, indices in self._waiting]),
        )
        self._waiting, self._waiting_size = [], 0
        if self._indices.size:
            keep = ~_covered(values, indices, self._values, self._indices)
            values, indices = values[:, keep], indices[keep]
            if not indices.size:
                return
            stay = ~_covered(self._values, self._indices, values, indices)
            values = np.concatenate([self._values[:, stay], values], axis=1)
            indices = np.concatenate([self._indices[stay], indices])
            order = np.argsort(indices)
            values, indices = values[:, order], indices[order]
        self._values, self._indices = values, indices
        self._choose()

    def _choose(self) -> None:
        """A few strong points that most newcomers can be held against."""
        if not self._indices.size:
            return
        scaled = _scaled(self._values)
        balanced = [int(scaled.sum(axis=0).argmin()), int(scaled.max(axis=0).argmin())]
        extremes = [int(np.lexsort((scaled.sum(axis=0), row))[0]) for row in scaled]
        self._champions = list(dict.fromkeys(balanced + extremes))


def _covered(values: Any, indices: Any, by: Any, by_indices: Any) -> Any:
    """Which points are dominated by one of ``by``, or equal to one with a smaller index."""
    found = np.zeros(indices.size, dtype=bool)
    step = max(1, _PAIRS // max(1, by_indices.size))
    for first in range(0, indices.size, step):
        part = slice(first, first + step)
        no_worse = np.ones((indices[part].size, by_indices.size), dtype=bool)
        better = by_indices[None, :] < indices[part][:, None]
        for row in range(values.shape[0]):
            mine, theirs = values[row, part][:, None], by[row][None, :]
            no_worse &= theirs <= mine
            better |= theirs < mine
        found[part] = (no_worse & better).any(axis=1)
    return found
