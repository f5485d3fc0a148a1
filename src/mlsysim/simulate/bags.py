"""Values without their order: as they are, or, where there are many, how many lie in each of 512 bins between two powers of two (0.1 to 0.2 % wide)."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import frexp
from operator import mul

FINE = 512
_TWICE = 2 * FINE
_ZERO = -1100 * FINE
"""The bin of nothing, below that of the smallest number."""

Bag = array | dict[int, float]
"""Values as they are, or how many there are in each bin."""


def bin_of(value: float) -> int:
    """The bin of a value: by its exponent, and linear between two powers of two."""
    share, exponent = frexp(value)
    return exponent * FINE + int(share * _TWICE) if share else _ZERO


def middle(key: int) -> float:
    """The value in the middle of a bin."""
    if key == _ZERO:
        return 0.0
    exponent, place = divmod(key, FINE)
    return math.ldexp((place + FINE + 0.5) / _TWICE, exponent - 1)


def binned(bag: Bag) -> dict[int, float]:
    """The same values by bin."""
    if isinstance(bag, dict):
        return bag
    found: dict[int, float] = {}
    for value in bag:
        key = bin_of(value)
        found[key] = found.get(key, 0.0) + 1.0
    return found


def ranked(bag: Bag, levels: Iterable[float]) -> list[float]:
    """Percentiles of a bag: of n sorted values the one at index min(n - 1, int(p n))."""
    if isinstance(bag, array):
        ordered = sorted(bag)
        return [ordered[min(len(ordered) - 1, int(level / 100 * len(ordered)))] for level in levels]
    keys, total, found = sorted(bag), sum(bag.values()), []
    for level in levels:
        seen, key = 0.0, keys[0]
        for key in keys:
            seen += bag[key]
            if seen > level / 100 * total:
                break
        found.append(middle(key))
    return found


def above(bag: Bag, value: float) -> float:
    """How many values of a bag are larger; one that is an array is sorted."""
    if isinstance(bag, array):
        return float(len(bag) - bisect_right(bag, value))
    key = bin_of(value)
    return sum(weight for own, weight in bag.items() if own > key)


def variance(bag: Bag, mean: float) -> float:
    """Mean square of the distances of a bag's values from their mean."""
    if isinstance(bag, array):
        away = [value - mean for value in bag]
        return sum(map(mul, away, away)) / len(away)
    return sum(weight * (middle(key) - mean) ** 2 for key, weight in bag.items()) / sum(bag.values())


def together(bags: Sequence[Bag]) -> Bag:
    """All values of some bags."""
    if len(bags) == 1:
        return bags[0]
    if all(isinstance(bag, array) for bag in bags):
        joined = array("d")
        for bag in bags:
            joined.extend(bag)
        return joined
    whole: dict[int, float] = {}
    for bag in bags:
        whole = summed(whole, binned(bag))
    return whole


def summed(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    """What both have in each bin."""
    found = dict(a)
    for key, weight in b.items():
        found[key] = found.get(key, 0.0) + weight
    return found
