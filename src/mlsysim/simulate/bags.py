"""Values without their order: as they are, or, where there are many, how many lie in each of 512 bins between two powers of two (0.1 to 0.2 % wide).

The bin of a number is the first 21 bits of its 64 (IEEE 754: sign, exponent, and the first nine of its fraction), so that thousands are put into
bins by one shift: their first halves, as one long whole number, go 11 bits to the right, and what came from the neighbours is masked.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import mul
from struct import pack
from typing import Any

FINE = 512
_FRACTION, _BINS, _BIAS = 11, (1 << 21) - 1, 1022
"""Bits of the first half of a number that its bin does not have, the largest bin, and the exponent of a number from a half to one."""

Bins = dict[int, Any]
Bag = array | Bins
"""Values as they are, or how many there are in each bin."""
Ranks = list[float] | Bins
"""The same in order."""
LATER = 1024
"""What happened so often is booked at once."""


def packed(values: list[float]) -> array:
    """The same values side by side."""
    return array("d", pack(f"{len(values)}d", *values))


def bins_of(values: array) -> array:
    """The bin of each value: by its exponent, and linear between two powers of two."""
    firsts = array("I", values.tobytes())[sys.byteorder == "little" :: 2]
    many, size = len(firsts), 4 * len(firsts)
    mask = int.from_bytes(array("I", (_BINS,)) * many, sys.byteorder)
    shifted = (int.from_bytes(firsts, sys.byteorder) >> _FRACTION) & mask
    return array("I", shifted.to_bytes(size, sys.byteorder))


def middle(key: int) -> float:
    """The value in the middle of a bin."""
    exponent, place = divmod(key, FINE)
    return math.ldexp((place + FINE + 0.5) / (2 * FINE), exponent - _BIAS) if key else 0.0


def binned(bag: Bag) -> Bins:
    """The same values by bin."""
    return bag if isinstance(bag, dict) else Counter(bins_of(bag))


def ranked(bag: Ranks, levels: Iterable[float]) -> list[float]:
    """Percentiles: of n values the one at index min(n - 1, int(p n))."""
    if isinstance(bag, list):
        return [bag[min(len(bag) - 1, int(level / 100 * len(bag)))] for level in levels]
    keys, total, found = sorted(bag), sum(bag.values()), []
    for level in levels:
        seen, key = 0.0, keys[0]
        for key in keys:
            seen += bag[key]
            if seen > level / 100 * total:
                break
        found.append(middle(key))
    return found


def above(bag: Ranks, value: float) -> float:
    """How many values are larger."""
    if isinstance(bag, list):
        return float(len(bag) - bisect_right(bag, value))
    (key,) = bins_of(array("d", (value,)))
    return sum(weight for own, weight in bag.items() if own > key)


def variance(bag: Ranks, mean: float) -> float:
    """Mean square of the distances of values from their mean."""
    if isinstance(bag, list):
        away = [value - mean for value in bag]
        return math.fsum(map(mul, away, away)) / len(bag)
    return math.fsum(weight * (middle(key) - mean) ** 2 for key, weight in bag.items()) / sum(bag.values())


def together(bags: Sequence[Ranks]) -> Ranks:
    """All values, in order."""
    lists = [bag for bag in bags if isinstance(bag, list)]
    if len(lists) == len(bags):
        return sorted(chain.from_iterable(lists))
    whole: Bins = {}
    for bag in bags:
        whole = summed(whole, binned(packed(bag) if isinstance(bag, list) else bag))
    return whole


def summed(a: Bins, b: Bins) -> Bins:
    """What both have in each bin."""
    found = a.copy()
    for key, weight in b.items():
        found[key] = found.get(key, 0.0) + weight
    return found


class Gaps:
    """How many tokens came how long after the ones before them. ``seconds`` and ``many`` are appended to side by side, and go to bins now and then."""

    __slots__ = ("bins", "many", "seconds", "total")

    def __init__(self) -> None:
        self.seconds, self.many = list[float](), list[int]()
        self.bins: dict[int, float] = {}
        self.total = 0.0

    def add(self, seconds: float, many: int) -> None:
        """So many tokens came this long after the ones before."""
        self.seconds.append(seconds)
        self.many.append(many)
        self.settle(LATER)

    def after_standing(self, step: float, still: float, many: int, late: list[tuple[float, int]]) -> None:
        """So many tokens came with a step after answers had stood still for some seconds; of ``late`` so many had their first token so far into these."""
        for when, those in late:
            self.seconds.append(step + still - when)
            self.many.append(those)
            many -= those
        late.clear()
        self.seconds.append(step + still)
        self.many.append(many)

    def settle(self, fewest: int = 1) -> None:
        """Put them into bins where there are so many."""
        seconds, many, bins = self.seconds, self.many, self.bins
        if len(seconds) < fewest:
            return
        for key, more in zip(bins_of(packed(seconds)), many, strict=True):
            try:
                bins[key] += more
            except KeyError:
                bins[key] = more
        self.total += math.fsum(map(mul, seconds, many))
        seconds.clear()
        many.clear()

    def join(self, other: Gaps) -> None:
        """Those of another replica."""
        self.settle()
        other.settle()
        self.bins, self.total = summed(self.bins, other.bins), self.total + other.total
