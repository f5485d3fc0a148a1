"""Fits of times that are sums of terms with positive coefficients: the least absolute relative error, from a fixed start.

    t = ( sum_g ( sum_{j in g} c_j x_j )^p )^(1/p)

Terms of one group add; groups overlap (p > 1) or add (p = 1). What is minimised is the sum of sqrt(r^2 + k^2) with r the
logarithm of predicted over measured (so close to the median's absolute error), plus a weak pull of each coefficient towards its
start, which holds terms that the data do not show. Gauss-Newton steps on the logarithms; the same data give the same constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_KNEE = 0.04
_ROUNDS = 120


def evaluate_sum(terms: Any, coefficients: Any, groups: Sequence[int] | None = None, sharpness: float = 1.0) -> Any:
    """Times of rows of terms."""
    parts = np.asarray(coefficients) * terms
    if groups is None:
        return parts.sum(axis=1)
    kinds = np.asarray(groups)
    sums = [parts[:, kinds == g].sum(axis=1) for g in sorted(set(groups))]
    return sum(s**sharpness for s in sums) ** (1 / sharpness)


def fit_sum(
    terms: Any,
    measured: Any,
    start: Sequence[float],
    pull: float | Sequence[float] = 1.0,
    groups: Sequence[int] | None = None,
    sharpness: float = 1.0,
) -> Any:
    """Coefficients of a sum of terms; ``pull`` is the weight that holds each near its start."""
    begin = np.log(np.asarray(start, dtype=float))
    kinds = np.zeros(len(begin), dtype=int) if groups is None else np.asarray(groups)
    members = [np.flatnonzero(kinds == g) for g in sorted(set(kinds.tolist()))]
    target = np.log(measured)
    held = np.broadcast_to(np.asarray(pull, dtype=float), begin.shape)

    def parts(theta: Any) -> tuple[Any, list[Any], Any]:
        each = np.exp(theta) * terms
        sums = [each[:, m].sum(axis=1) + 1e-30 for m in members]
        return each, sums, sum(s**sharpness for s in sums) ** (1 / sharpness)

    def loss(theta: Any) -> float:
        r = np.log(parts(theta)[2]) - target
        return float(np.sum(np.sqrt(r * r + _KNEE**2) - _KNEE) + np.sum(held * (theta - begin) ** 2))

    theta, damping = begin.copy(), 1e-3
    best = loss(theta)
    for _ in range(_ROUNDS):
        each, sums, time = parts(theta)
        r = np.log(time) - target
        slope = np.zeros_like(each)
        for m, s in zip(members, sums, strict=True):
            slope[:, m] = ((s / time) ** sharpness / s)[:, None] * each[:, m]
        weight = 1 / np.sqrt(r * r + _KNEE**2)
        curvature = slope.T @ (slope * weight[:, None]) + 2 * np.diag(held)
        gradient = slope.T @ (weight * r) + 2 * held * (theta - begin)
        for _ in range(10):
            step = np.clip(np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -gradient), -1, 1)
            value = loss(theta + step)
            if value < best:
                break
            damping *= 4
        else:
            break
        gain, best = best - value, value
        theta, damping = theta + step, max(damping / 3, 1e-7)
        if gain < 1e-7 * best:
            break
    return np.exp(theta)


def errors_of(predicted: Any, measured: Any) -> Any:
    """Signed relative errors."""
    return np.asarray(predicted) / np.asarray(measured) - 1


def line(errors: Any) -> str:
    """Median, 90th percentile and bias in per cent, and the number of values, as text."""
    size = np.abs(errors) * 100
    return f"{np.median(size):5.1f} / {np.quantile(size, 0.9):5.1f} / {np.median(errors) * 100:+5.1f}  n={len(size)}"
