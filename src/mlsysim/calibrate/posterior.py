"""Constants with physical priors, fitted to rows of several groups, together with every fit that leaves some of the rows out.

    log(predicted / measured) = noise,    predicted = f(constants, offsets of the row's group)

Constants are positive with log-normal priors (median, spread of the logarithm); so are the offsets, factors of the row's group (a model on an
engine) with median 1. The noise is Student's t with 4 degrees of freedom around each row's own spread, so that a row whose settings are not what
they say does not steer the fit. Rows of one group are not independent: a group counts as ``EFFECTIVE`` rows at most. A group has ``kinds`` (a model
with weights of one format), whose offsets come on top of its own: what runs of one format have in common is not the model's, and what those of
another say of the model holds for a format that was not seen. Neither are rows of a ``cell`` independent (a model on one chip in one setting), which
may have offsets of their own too. Predictions are without those of cells, since nothing is known of one before it was measured.

A left-out fit starts from the priors like the fit of all rows and sees nothing of what is left out. A group that is left out whole has the offsets that the
others let expect: where n of them scatter around a mean as widely as that is uncertain before (which is what the spread of their prior says), the mean is expected
at their sum over n + 1, so that few say little. Of a kind (weights in that format) it has besides what the others' of that name differ by from that mean, by the same
rule. All fits are moved at once: a row is predicted for an array of candidates, the points of all fits and a step along each constant
(Levenberg's damped Gauss-Newton steps on the logarithms). Nothing is random, so that the same rows give the same constants.

The standard error is that of the posterior (the inverse of the curvature at its maximum), as a factor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mlsysim.units.records import dataclass

EFFECTIVE = 30.0
_FREEDOM, _STEP, _WIDE, _LARGEST, _ROUNDS, _GAIN = 4.0, 1e-3, 3e-2, 0.7, 12, 1e-2


class Prior(NamedTuple):
    """What is known of a constant before the fit: its median, and the spread of its logarithm."""

    median: float
    spread: float


@dataclass(frozen=True, slots=True)
class Row:
    """Measured values of one run. ``predict(constants, offsets)`` gives a value for each, of arrays of candidates."""

    group: str
    measured: tuple[float, ...]
    spreads: tuple[float, ...]
    predict: Callable[[Mapping[str, Any], Sequence[Any]], Sequence[Any]]
    kind: str = ""
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Posterior:
    """Constants of each fit (the first is that of all rows), offsets of each group and of each kind (with its group's), those that are ``expected`` of a group
    without rows, whatever its kind and of each of the ``forms`` of kinds, and errors: log(predicted/measured) by value and fit."""

    names: tuple[str, ...]
    groups: tuple[str, ...]
    forms: tuple[str, ...]
    constants: Any
    offsets: Any
    expected: Any
    errors: Any
    owner: Any
    deviations: Any

    def table(self) -> dict[str, dict[str, float]]:
        """Each constant with its standard error (a factor) and its range over the left-out fits."""
        found = {}
        for i, name in enumerate(self.names):
            value, *others = np.exp(self.constants[:, i]).tolist()
            ends = (min(others), max(others)) if others else (value, value)
            found[name] = {
                "value": value,
                "error": float(np.exp(self.deviations[i])),
                "least": ends[0],
                "most": ends[1],
            }
        return found

    def outside(self, left: Mapping[str, Any], kind: str) -> Any:
        """Errors of each value in the fit that left it out by a ``kind`` of :func:`together`; not a number where none did."""
        found = np.full(len(self.owner), np.nan)
        for number, (what, mask) in enumerate(left.items(), 1):
            if what.startswith(f"{kind} "):
                found = np.where(np.asarray(mask)[self.owner], self.errors[:, number], found)
        return found

    def each_left_out(self, left: Mapping[str, Any]) -> Iterator[tuple[int, str, float]]:
        """Every value that a fit left out: its number, what it was left out by, and its error."""
        for number, (what, mask) in enumerate(left.items(), 1):
            for i in np.flatnonzero(np.asarray(mask)[self.owner]).tolist():
                yield i, what.split(" ")[0], float(self.errors[i, number])


def together(rows: Sequence[Any], kinds: Sequence[str], parts: int = 0, fewest: int = 1) -> dict[str, Any]:
    """Rows that are left out together: by each of ``kinds``, what they share (those of fewer than ``fewest`` as others), and each of so many ``parts``."""
    found: dict[str, Any] = {}
    for kind in kinds:
        held = [getattr(row, kind) for row in rows]
        counts = Counter(held)
        names = np.array([name if counts[name] >= fewest else "others" for name in held])
        found |= {f"{kind} {name}": names == name for name in sorted(set(names.tolist()))}
    return found | {f"part {k}": np.arange(len(rows)) % parts == k for k in range(parts)}


def posterior(
    rows: Sequence[Row],
    priors: Mapping[str, Prior],
    offsets: Sequence[float],
    left_out: Sequence[Any],
    smooth: bool = True,
    effective: float = EFFECTIVE,
    kinds: Sequence[float] = (),
    cells: Sequence[float] = (),
) -> Posterior:
    """Fit the constants of ``priors`` and the offsets (given by their spreads): of all rows, and without the rows that each mask of
    ``left_out`` names. Where predictions are not ``smooth``, slopes are taken over wide steps, and a move that does not help is no end. A group counts as
    ``effective`` rows at most. ``kinds``, ``cells``: spreads of further offsets, of each kind and of each cell."""
    return _Fits(rows, priors, offsets, left_out, smooth, effective, kinds, cells).found()


class _Fits:
    def __init__(
        self,
        rows: Sequence[Row],
        priors: Mapping[str, Prior],
        offsets: Sequence[float],
        left_out: Sequence[Any],
        smooth: bool,
        effective: float,
        kinds: Sequence[float],
        cells: Sequence[float],
    ) -> None:
        self.smooth, self.step = smooth, _STEP if smooth else _WIDE
        self.rows, self.names = rows, tuple(priors)
        self.groups = tuple(sorted({row.group for row in rows}))
        self.group = np.array([self.groups.index(row.group) for row in rows])
        self.owner = np.array([i for i, row in enumerate(rows) for _ in row.measured])
        self.measured = np.log([value for row in rows for value in row.measured])
        self.spread = np.array([value for row in rows for value in row.spreads])
        self.kept = np.stack([np.ones(len(rows), bool), *(~np.asarray(mask, bool) for mask in left_out)])
        counts = np.stack([np.bincount(self.group[kept], minlength=len(self.groups)) for kept in self.kept])
        self.seen = counts > 0
        self.seen_kinds = np.zeros((len(self.kept), 0), bool)
        share = np.minimum(1.0, effective / np.maximum(counts, 1))
        self.weight = (share[:, self.group] * self.kept)[:, self.owner]
        self.many = len(offsets)
        # Offsets of a row: those of its group, of its kind and of its cell, by their first places among all that is fitted.
        self.kinds = tuple(sorted({(row.group, row.kind) for row in rows})) if kinds else ()
        self.cells = tuple(sorted({(row.group, row.cell) for row in rows})) if cells else ()
        of_groups = len(self.names)
        self.of_kinds = of_kinds = of_groups + len(self.groups) * self.many
        self.of_cells = of_kinds + len(self.kinds) * self.many
        places = [of_groups + self.group * self.many]
        if kinds:
            kind = np.array([self.kinds.index((row.group, row.kind)) for row in rows])
            places.append(of_kinds + self.many * kind)
            self.seen_kinds = np.stack([np.bincount(kind[kept], minlength=len(self.kinds)) > 0 for kept in self.kept])
        if cells:
            places.append(self.of_cells + self.many * np.array([self.cells.index((r.group, r.cell)) for r in rows]))
        self.places = np.stack(places, 1)
        levels = (offsets, self.groups), (kinds, self.kinds), (cells, self.cells)
        spreads = np.concatenate([np.tile(widths, len(each)) for widths, each in levels])
        self.centre = np.concatenate([np.log([p.median for p in priors.values()]), np.zeros(len(spreads))])
        self.width = np.concatenate([[p.spread for p in priors.values()], spreads])

    def found(self) -> Posterior:
        fits, constants = len(self.kept), len(self.names)
        point = np.tile(self.centre, (fits, 1))
        errors, slopes = self._predicted(point)
        loss, damping = self._loss(point, errors), np.full(fits, 1e-2)
        for _ in range(_ROUNDS):
            moved = point + np.stack([self._move(f, point[f], errors, slopes, damping[f]) for f in range(fits)])
            new, new_slopes = self._predicted(moved)
            value = self._loss(moved, new)
            better = value < loss
            gain = float(np.max(np.where(better, loss - value, 0.0)))
            damping = np.where(better, damping / 4, damping * 6)
            point[better], loss[better] = moved[better], value[better]
            errors[:, better], slopes[:, better] = new[:, better], new_slopes[:, better]
            if gain < _GAIN and self.smooth:
                break
        curve = np.linalg.inv(self._curvature(0, errors, slopes)[0])
        expected = self._expected(point)
        forms = tuple(sorted({kind for _, kind in self.kinds}))
        groups, many = len(self.groups), len(self.groups) + len(self.kinds)
        offsets = point[:, constants : self.of_cells].reshape(fits, many, self.many).copy()
        offsets[:, groups:] += offsets[:, [self.groups.index(group) for group, _ in self.kinds]]
        named = self.groups + tuple(f"{group} {kind}" for group, kind in self.kinds)
        deviations = np.sqrt(np.diag(curve))[:constants]
        if self.many:
            point[:, self.of_cells :] = 0.0
            errors, _ = self._predicted(point)
        return Posterior(
            self.names, named, forms, point[:, :constants], offsets, expected, errors, self.owner, deviations
        )

    def _expected(self, point: Any) -> Any:
        """Offsets by fit that a group is expected to have, with its kinds', and is given where a fit has no rows of it; and those of each kind of it, by
        their names."""
        fits = len(point)
        if not self.many:
            return np.zeros((fits, 1, 0))
        ends = len(self.names), self.of_kinds, self.of_cells
        own, kinds = (point[:, a:b].reshape(fits, -1, self.many) for a, b in pairwise(ends))
        whole = own.copy()
        for group, name in enumerate(self.groups):
            if mine := [i for i, (of, _) in enumerate(self.kinds) if of == name]:
                whole[:, group] += kinds[:, mine].mean(1)
        seen = self.seen[:, :, None]
        found = (whole * seen).sum(1) / (seen.sum(1) + 1)
        point[:, len(self.names) : self.of_kinds] = np.where(seen, own, found[:, None]).reshape(fits, -1)
        forms = [found]
        for name in sorted({kind for _, kind in self.kinds}):
            mine = [i for i, (_, kind) in enumerate(self.kinds) if kind == name]
            of = [self.groups.index(self.kinds[i][0]) for i in mine]
            told = self.seen_kinds[:, mine, None]
            beside = ((own[:, of] + kinds[:, mine] - found[:, None]) * told).sum(1) / (told.sum(1) + 1)
            kinds[:, mine] = np.where(self.seen[:, of, None], kinds[:, mine], beside[:, None])
            forms.append(found + beside)
        point[:, self.of_kinds : self.of_cells] = kinds.reshape(fits, -1)
        return np.stack(forms, 1)

    def _predicted(self, point: Any) -> tuple[Any, Any]:
        """Errors by value and fit, and their slopes along constants and the offsets of the row's group."""
        fits, constants = len(point), len(self.names)
        wide = constants + self.many
        steps = np.vstack([np.zeros(wide), self.step * np.eye(wide)])
        errors = np.empty((len(self.measured), fits))
        slopes = np.empty((len(self.measured), fits, wide))
        moved = np.exp((point[:, None, :constants] + steps[None, :, :constants]).reshape(-1, constants))
        candidates = dict(zip(self.names, moved.T, strict=True))
        place = 0
        for i, row in enumerate(self.rows):
            offsets = sum(point[:, start : start + self.many] for start in self.places[i])
            own = offsets[:, None, :] + steps[None, :, constants:]
            values = row.predict(candidates, tuple(np.exp(own.reshape(len(moved), self.many)).T))
            for value in values:
                logs = np.log(np.broadcast_to(value, len(moved))).reshape(fits, -1)
                errors[place] = logs[:, 0] - self.measured[place]
                slopes[place] = (logs[:, 1:] - logs[:, :1]) / self.step
                place += 1
        return errors, slopes

    def _loss(self, point: Any, errors: Any) -> Any:
        scaled = (errors.T / self.spread) ** 2
        data = self.weight * ((_FREEDOM + 1) / 2 * np.log1p(scaled / _FREEDOM))
        return data.sum(1) + (((point - self.centre) / self.width) ** 2).sum(1) / 2

    def _curvature(self, fit: int, errors: Any, slopes: Any) -> tuple[Any, Any]:
        """The curvature of a fit's loss, and its slope without the priors."""
        error, constants = errors[:, fit], len(self.names)
        weight = self.weight[fit] * (_FREEDOM + 1) / (_FREEDOM + (error / self.spread) ** 2) / self.spread**2
        own = np.zeros((len(error), len(self.centre)))
        own[:, :constants] = slopes[:, fit, :constants]
        for first in self.places[self.owner].T:
            for k in range(self.many):
                own[np.arange(len(error)), first + k] = slopes[:, fit, constants + k]
        return own.T @ (own * weight[:, None]) + np.diag(self.width**-2), own.T @ (weight * error)

    def _move(self, fit: int, point: Any, errors: Any, slopes: Any, damping: float) -> Any:
        curve, slope = self._curvature(fit, errors, slopes)
        gradient = slope + (point - self.centre) / self.width**2
        damped = curve + damping * np.diag(np.diag(curve))
        return np.clip(-np.linalg.solve(damped, gradient), -_LARGEST, _LARGEST)
