"""Robust fits of closed forms to measured times: least squares on relative errors, outliers weighted down.

The parameters are positive and fitted as logarithms inside bounds; the residual is the logarithm of predicted over measured,
with Huber's weights, so that a few odd measurements do not bend the curve. Levenberg-Marquardt from a fixed start: the same
data give the same constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_KNEE = 0.05
_STEP = 1e-4
_LARGEST = 0.7


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive constant: where the search starts and the bounds it stays in."""

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted values, relative errors of the fit, and how many points it saw."""

    values: dict[str, float]
    errors: Any

    @property
    def points(self) -> int:
        return len(self.errors)

    @property
    def median_pct(self) -> float:
        """Median absolute error in per cent."""
        return float(np.median(np.abs(self.errors)) * 100)


def summary(errors: Any) -> dict[str, float]:
    """Median, 90th percentile and bias of signed relative errors, in per cent."""
    size = np.abs(errors)
    return {
        "median": float(np.median(size) * 100),
        "p90": float(np.quantile(size, 0.9) * 100),
        "bias": float(np.median(errors) * 100),
        "points": len(size),
    }


def fit(form: Callable[..., Any], parameters: Sequence[Parameter], measured: Any, rounds: int = 200) -> Fit:
    """Fit ``form(**values)`` to the measured times."""
    low = np.log([p.low for p in parameters])
    high = np.log([p.high for p in parameters])
    point = np.log([p.start for p in parameters])
    names = [p.name for p in parameters]
    target = np.log(measured)

    def residual(x: Any) -> Any:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        return np.log(form(**values)) - target

    def cost(r: Any) -> float:
        size = np.abs(r)
        return float(np.mean(np.where(size < _KNEE, size * size / 2, _KNEE * (size - _KNEE / 2))))

    damping = 1e-2
    r = residual(point)
    best = cost(r)
    for _ in range(rounds):
        slope = np.empty((len(target), len(names)))
        for i in range(len(names)):
            moved = point.copy()
            moved[i] += _STEP
            slope[:, i] = (residual(moved) - r) / _STEP
        weight = np.minimum(1, _KNEE / np.maximum(np.abs(r), 1e-12))
        curve = slope.T @ (slope * weight[:, None])
        gradient = slope.T @ (weight * r)
        improved = False
        for _ in range(8):
            damped = curve + damping * np.diag(np.diag(curve) + 1e-9)
            step = np.clip(-np.linalg.solve(damped, gradient), -_LARGEST, _LARGEST)
            candidate = np.clip(point + step, low, high)
            found = residual(candidate)
            value = cost(found)
            if value < best:
                improved = True
                break
            damping *= 4
        if not improved:
            break
        gain = (best - value) / best
        point, r, best, damping = candidate, found, value, max(damping / 4, 1e-8)
        if gain < 1e-7:
            break
    return Fit(dict(zip(names, np.exp(point).tolist(), strict=True)), np.expm1(r))
