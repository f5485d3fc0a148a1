"""Prompts of the attention rank that has most of them: a step waits for it."""

from __future__ import annotations

from typing import Any

from mlsysim.units.ops import maximum, minimum, sqrt


def fullest(count: Any, ranks: int, most: Any, cv: float) -> Any:
    """Prompts of the fullest of so many attention ranks, of ``most`` at most, where ``count`` of them are dealt out in turn: of a number that chance makes
    mean(ceil(n/R)) = n/R + (R - 1)/(2 R), and the longest of R sums of n/R lengths is sqrt(3) (R - 1)/(R + 1) deviations above their mean (exact for
    one of each, evenly spread; of normal ones 5 % more at R = 8). Those of a full step are all full."""
    if ranks == 1:
        return maximum(minimum(count, most), 1.0)
    each = count / ranks
    longer = cv * sqrt(3 * maximum(each, 1.0)) * (ranks - 1) / (ranks + 1)
    return minimum(maximum(each + (ranks - 1) / (2 * ranks), 1.0) + longer, maximum(most, 1.0))


def fullest_at_random(count: Any, ranks: int, most: Any, cv: float) -> Any:
    """The same where each prompt goes to any of the ranks: one is there, and n = (count - 1)/R others on each in the mean, as chance (Poisson) makes it. Their
    lengths' sum is sqrt(n (1 + c^2)) from its mean, and the largest of R such sums as many deviations above it as in :func:`fullest`, but where hardly
    two meet. Beside the exact sum over k of 1 - F(k)^(R - 1) F(k - 1) within 2 % up to 8 ranks, 4 % of 16, 7 % of 32."""
    if ranks == 1:
        return fullest(count, ranks, most, cv)
    others = maximum(count - 1, 0.0)
    n = others / ranks
    more = sqrt(3 * (1 + cv**2) * n) * (ranks - 1) / (ranks + 1) * others / (others + 6)
    return minimum(1 + n + more, maximum(most, 1.0))
