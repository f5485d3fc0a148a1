"""Robust fits to measured times. Nothing is random: the same data give the same constants.

fit        a closed form: its constants are positive and fitted as logarithms inside bounds. The residual is the logarithm of predicted
           over measured, with Huber's weights, so that a few odd measurements do not bend the curve (Levenberg-Marquardt)
fit_sum    a sum of terms with positive coefficients, the least absolute relative error:

               t = ( sum_g ( sum_{j in g} c_j x_j )^p )^(1/p)

           Terms of one group add; groups overlap (p > 1) or add (p = 1). What is minimised is the sum of sqrt(r^2 + k^2) with r the
           logarithm of predicted over measured (so close to the median's absolute error), plus a weak pull of each coefficient
           towards its start, which holds terms that the data do not show (Gauss-Newton steps on the logarithms)
left_out   the errors of each group of rows under constants fitted without it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.measurements import settings

Groups = Sequence[int] | None
Bounds = dict[str, tuple[float, float, float]]
"""Positive constants: where the search starts, and the bounds it stays in."""

_HUBER, _STEP, _LARGEST = 0.05, 1e-4, 0.7
_KNEE, _ROUNDS = 0.04, 120


def table_of(fit: str) -> dict[str, Any]:
    """What a fit moves, by its name in ``data/fits.toml``."""
    return settings("fits")[fit]


class Fit(NamedTuple):
    """Fitted values, the relative errors of the fit, and the standard error of each value as a factor (of rows that err independently)."""

    values: dict[str, float]
    errors: Any
    deviations: dict[str, float]


def stated(value: float, error: float, others: Iterable[float], unit: str = "") -> str:
    """A constant as files state it: with its standard error (a factor) and its range over the fits that leave something out."""
    ends = list(others)
    own, least, most = (float(f"{each:.4g}") for each in (value, min(ends), max(ends)))
    shown = [f'"{each:g} {unit}"' if unit else f"{each}" for each in (own, least, most)]
    return f"{{value = {shown[0]}, error = {error:.3g}, least = {shown[1]}, most = {shown[2]}}}"


def loose(value: float, others: Iterable[float]) -> bool:
    """Whether a constant moves by more than half over the fits that leave something out: what was known before holds it, not the rows."""
    ends = list(others)
    return max(ends) > 1.5 * value or min(ends) < value / 1.5


class Columns:
    """Columns of a table as arrays of one length, by their names."""

    def __init__(self, **columns: Any) -> None:
        self.__dict__.update(columns)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"There is no column named {name!r}.")

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]], *names: str) -> Columns:
        """Rows as columns of these names."""
        return cls(**{name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})

    def where(self, chosen: Any) -> Columns:
        """The rows that are chosen."""
        return Columns(**{name: column[chosen] for name, column in vars(self).items()})


Fitted = Callable[[Columns], Any]
"""The constants that rows give."""
Errors = Callable[[Columns, Any], Any]
"""The signed relative errors of rows under constants."""


def summary(errors: Any) -> dict[str, float]:
    """Median, 90th percentile and bias of signed relative errors, in per cent."""
    size = np.abs(errors)
    return {
        "median": float(np.median(size) * 100),
        "p90": float(np.quantile(size, 0.9) * 100),
        "bias": float(np.median(errors) * 100),
        "points": len(size),
    }


def line(errors: Any) -> str:
    """Median, 90th percentile and bias in per cent, and the number of values, as text; of errors or of their summary."""
    found = errors if isinstance(errors, dict) else summary(errors)
    return f"{found['median']:5.1f} / {found['p90']:5.1f} / {found['bias']:+5.1f}  n={found['points']}"


def left_out(rows: Columns, column: str, fitted: Fitted, errors: Errors) -> Iterator[tuple[str, Any]]:
    """Each group of rows by a column, with its errors where ``fitted`` sees only the others; none where there are no others."""
    names = getattr(rows, column)
    for name in sorted(set(names.tolist())):
        inside = names == name
        found = [] if inside.all() else errors(rows.where(inside), fitted(rows.where(~inside)))
        if len(found):
            yield name, found


Seen = Callable[[Any], Any]
Loss = Callable[[Any, Any], float]
Curved = Callable[[Any, Any], tuple[Any, Any]]
Keep = Callable[[Columns, str, Any], None]
"""What is told of rows that were left out, by which column, and their errors."""


def forgotten(rows: Columns, column: str, errors: Any) -> None:
    """Nothing is kept."""


def report(
    name: str, rows: Columns, fitted: Fitted, errors: Errors, *columns: str, text: Callable[[Any], str] = line,
    keep: Keep = forgotten,
) -> tuple[Any, Any, dict[str, Any]]:  # fmt: skip
    """Fit all rows and print the errors, in sample and with each group left out, of which ``keep`` is told; the constants, and both kinds of errors."""
    values = fitted(rows)
    found, out = errors(rows, values), {}
    print(f"{name:24s} {'in sample':32s} {text(found)}")
    for column in columns:
        groups = dict(left_out(rows, column, fitted, errors))
        for group, left in groups.items():
            keep(rows.where(getattr(rows, column) == group), column, left)
            print(f"{'':24s} {f'without {group}'[:32]:32s} {text(left)}")
        if groups:
            out[column] = np.concatenate(list(groups.values()))
            print(f"{'':24s} {f'one {column} out':32s} {text(out[column])}", flush=True)
    return values, found, out


_FLAT = 1e-9
"""Curvature that damping gives what has none, so that it stays where it is."""


def descend(
    point: Any, seen: Seen, loss: Loss, curved: Curved, *, damping: float = 1e-2, ease: float = 3.0, least: float = 0.0,
    largest: float = 1.0, ends: tuple[Any, Any] = (-np.inf, np.inf), rounds: int = 200, tries: int = 10,
    enough: Callable[[float, float], bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The point of least loss, what is seen there, and the curvature before the last step: damped Gauss-Newton steps (Levenberg and Marquardt).

    ``seen`` at a point enters its ``loss``, and its curvature and slope (``curved``). A step is at most ``largest`` along each constant and stays within
    ``ends``. Damping rises fourfold until a step helps, at most ``tries`` times, and falls by ``ease`` then; a gain that is ``enough`` beside the new loss is the last.
    """
    found = seen(point)
    best = loss(point, found)
    curve: Any = None
    for _ in range(rounds):
        curve, slope = curved(point, found)
        for _ in range(tries):
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve) + _FLAT), -slope)
            moved = np.clip(point + np.clip(step, -largest, largest), *ends)
            new = seen(moved)
            if (value := loss(moved, new)) < best:
                break
            damping *= 4
        else:
            break
        gain, best, point, found, damping = best - value, value, moved, new, max(damping / ease, least)
        if enough(gain, best):
            break
    return point, found, curve


def fit(form: Callable[..., Any], bounds: Bounds, measured: Any) -> Fit:
    """Fit ``form(**values)`` to the measured times."""
    names = list(bounds)
    start, low, high = np.log(list(bounds.values())).T
    target = np.log(measured)

    def residual(x: Any) -> Any:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        return np.log(form(**values)) - target

    def cost(_: Any, r: Any) -> float:
        size = np.abs(r)
        return float(np.mean(np.where(size < _HUBER, size * size / 2, _HUBER * (size - _HUBER / 2))))

    def weight(r: Any) -> Any:
        return np.minimum(1, _HUBER / np.maximum(np.abs(r), 1e-12))

    def sloped(point: Any, r: Any) -> tuple[Any, Any]:
        slope = np.empty((len(target), len(names)))
        for i in range(len(names)):
            moved = point.copy()
            moved[i] += _STEP
            slope[:, i] = (residual(moved) - r) / _STEP
        return slope.T @ (slope * weight(r)[:, None]), slope.T @ (weight(r) * r)

    how: dict[str, Any] = {"ease": 4.0, "least": 1e-8, "largest": _LARGEST, "ends": (low, high), "tries": 8}
    point, r, _ = descend(start, residual, cost, sloped, **how, enough=lambda gain, best: gain < 1e-7 * (best + gain))
    noise = float(np.sum(weight(r) * r * r)) / max(len(target) - len(names), 1)
    factors = np.exp(np.sqrt(noise * np.diag(np.linalg.pinv(sloped(point, r)[0])))).tolist()
    values = dict(zip(names, np.exp(point).tolist(), strict=True))
    return Fit(values, np.expm1(r), dict(zip(names, factors, strict=True)))


def _summed(terms: Any, coefficients: Any, groups: Groups, sharpness: float) -> tuple[Any, ...]:
    """Terms, columns and sum of each group, and the times."""
    kinds = np.asarray([0] * terms.shape[1] if groups is None else groups)
    members = [np.flatnonzero(kinds == g) for g in sorted(set(kinds.tolist()))]
    each = np.asarray(coefficients) * terms
    sums = [each[:, m].sum(axis=1) + 1e-30 for m in members]
    return each, members, sums, sum(s**sharpness for s in sums) ** (1 / sharpness)


def evaluate_sum(terms: Any, coefficients: Any, groups: Groups = None, sharpness: float = 1.0) -> Any:
    """Times of rows of terms."""
    return _summed(terms, coefficients, groups, sharpness)[-1]


def fit_sum(
    terms: Any, measured: Any, start: Sequence[float], pull: Any = 1.0, groups: Groups = None, sharpness: float = 1.0
) -> Any:
    """Coefficients of a sum of terms; ``pull`` is the weight that holds each near its start."""
    begin = np.log(np.asarray(start, dtype=float))
    target = np.log(measured)
    held = np.broadcast_to(np.asarray(pull, dtype=float), begin.shape)

    def seen(theta: Any) -> tuple[Any, Any]:
        """Errors and their slopes."""
        each, members, sums, time = _summed(terms, np.exp(theta), groups, sharpness)
        slope = np.zeros_like(each)
        for m, s in zip(members, sums, strict=True):
            slope[:, m] = ((s / time) ** sharpness / s)[:, None] * each[:, m]
        return np.log(time) - target, slope

    def loss(theta: Any, found: Any) -> float:
        return float(np.sum(np.sqrt(found[0] ** 2 + _KNEE**2) - _KNEE) + np.sum(held * (theta - begin) ** 2))

    def curved(theta: Any, found: Any) -> tuple[Any, Any]:
        r, slope = found
        weight = 1 / np.sqrt(r * r + _KNEE**2)
        curve = slope.T @ (slope * weight[:, None]) + 2 * np.diag(held)
        return curve, slope.T @ (weight * r) + 2 * held * (theta - begin)

    how: dict[str, Any] = {"damping": 1e-3, "least": 1e-7, "rounds": _ROUNDS}
    return np.exp(descend(begin, seen, loss, curved, **how, enough=lambda gain, best: gain < 1e-7 * best)[0])


def sums(
    start: Sequence[float], pull: Any = 1.0, groups: Groups = None, sharpness: float = 1.0
) -> tuple[Fitted, Errors]:
    """How the coefficients of rows with ``terms`` and ``measured`` times are fitted, and the relative errors of rows under them."""

    def fitted(rows: Columns) -> Any:
        return fit_sum(rows.terms, rows.measured, start, pull, groups, sharpness)

    def errors(rows: Columns, coefficients: Any) -> Any:
        return evaluate_sum(rows.terms, coefficients, groups, sharpness) / rows.measured - 1

    return fitted, errors
