r"""Longest paths through zero-bubble schedules and DualPipe, whose first and last stages may be longer or shorter than others.

The makespan of an order of work is the longest path through it: a path has so many passes of every kind and so many sends, and its time is
the sum of theirs. Below are the paths that are ever the longest, each by what it has of

    forward, inputs, weights    passes on any stage, of a chunk each
    first                       forward passes on the first stage, and backward ones (of inputs and of weights as many)
    last                        passes on the last stage (forward and of inputs as many), and gradients of weights
    sends                       messages from one device to another

with m micro-batches, p devices, and n = (m - 2p + 1)+, of ZB-H1 n = (m - p)+. Every one is a path of the order, so that their maximum is never longer than the
step. They were found by following the longest path back through simulated orders (:mod:`mlsysim.plot.orders`) with random times of passes,
ends and sends at some p and m, keeping what is linear in p and m, and dropping what lies within a part in ten thousand of the others; they are
compared with other points in the tests. Of ZB-H1 the second group needs a device between the ends, the third two micro-batches and the fourth three as well, the
fifth m > p and the sixth 2 < m < p. Of others a path of the second group needs a device between the ends and m > 4 (zb_h2), m >= 2p - 1 (zb_v) or m >= 2p (DualPipe),
one of DualPipe's third m <= p.

With fewer than two micro-batches a device (``_FEW``, m < 2p - 1 of zb_v and m < 2p of DualPipe) devices near the turn of the V wait for as many as there are, so that paths
have o passes there, the largest odd number that is not above m. Groups of these: always, m > 1, 1 < m <= p, 1 < m < p, p <= m and m > 1, m > p, m = p > 1.

DualPipe with p devices and m micro-batches is DualPipeV with p/2 and m/2 whose chunks are whole devices, and a send more at the turn; what is a path of
the V is one of it. With m >= 2p its sends are not in the paths: a path that is paid a send at every pair turns with p, see :func:`mlsysim.physics.pipeline._dual`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlsysim.physics.interleaving import longest
from mlsysim.units.ops import ceil, floor, maximum, minimum, where

_TABLES = {
    "zero_bubble": (
        """
    m m m m m 0 0 0, n+p m+p-1 m n+1 m 1 0 2p-2, m+p-1 m m 1 0 m m p-1, m+p-1 m+p-1 n+1 1 1 m n 2p-2""",
        "p p-1 1 1 0 1 0 2p-3",
        """
    n+p m+p-2 m n+2 m 0 0 2p-4, m+p-1 m+p-2 n+2 1 0 m n 2p-3, m+p-1 m+p-1 n+1 1 1 2 0 2m+2p-2n-6,
    m+p-1 m+p-2 n+2 1 0 2 0 2m+2p-2n-7, n+p+1 m+p-2 m 1 0 2 0 2p-3,
    p p 2 1 0 1 0 2p-3, p p-1 2 1 0 0 0 2p-5, p+1 p-1 2 1 0 1 0 2p-3, p p+1 1 1 1 1 0 2p-2""",
        """
    m+p-2 m+p-1 n+2 1 1 1 0 2m+2p-2n-8, n+p+1 m+p-2 m 1 0 1 0 2p-3, m+p-2 n+p m 1 0 0 0 m+2p-n-8,
    m+p-2 m+p-2 n+3 1 0 1 0 2m+2p-2n-9, m+p-2 n+p+1 m 1 0 1 0 m+2p-n-6, m+p-2 m+p-2 n+2 1 1 0 0 2m+2p-2n-10,
    m+p-2 m+p-3 n+3 1 0 0 0 2m+2p-2n-11""",
        """
    m+p-2 m+p-1 n+2 n+1 n+2 1 0 4p-6, m+p-1 m+p-1 n+1 n+1 n+1 2 0 4p-4, m+p-2 m+p-2 n+2 n+2 n+2 0 0 4p-8,
    m+p-1 m m n+1 n 2 p 3p-3, m+p-1 m m 1 0 n+2 m 3p-5, m+p-2 m+1 m n+1 n 1 0 3p-4,
    m+p-1 m+p-1 n+1 1 1 n+2 n 4p-6""",
        """
    m+p-1 p m 1 0 m 0 2p-m-1, m+p-1 p m 1 0 2 0 2p+m-5, m+p-2 m+p-2 2 2 2 0 0 2m+2p-10, m+p-2 m+p-1 2 1 2 1 0 2m+2p-8""",
    ),
    "zb_h2": (
        """
    m+p-1 m m 1 0 m m p-1, m m m m m 0 0 0, m+p-1 m+p-1 n+1 1 1 m n 2p-2, n+p m+p-1 m n+1 m 1 0 2p-2""",
        """
    m+p-2 m m 1 0 0 0 p-2, m+p-3 m+p-1 n+3 1 1 1 0 2p-2, m+p-3 m+1 m 1 0 1 0 p, n+p+1 m+p-2 m n+3 m 0 0 2p-4,
    m+p-2 m+p-2 n+3 1 1 0 0 2p-4, m+p-1 m+p-2 n+3 1 0 m n 2p-3, m+p-2 m+p-3 n+5 1 0 0 0 2p-5,
    m+p-2 m m 3 0 0 0 p-2, m+p-2 m+p-2 n+3 3 3 0 0 2p-4, m+p-3 m+p-1 n+3 1 3 1 0 2p-2""",
    ),
    "zb_v": (
        """
    n+m+2p-1 2m 2m n+1 m m m 2p-2, n+m+2p-1 2m+p-1 2m-p n+1 m-p+1 m m-1 4p-4, m+2p-1 m+2p-1 m+1 1 1 m m-1 4p-4,
    m+2p-1 2m+p-2 2m-p+1 1 m-p m m-1 4p-5, 2m 2m 2m m m m m 0""",
        """
    2m 2m+p-1 2m 1 0 1 0 5p-7, 2m 2m+2p-2 2m-2p+2 1 1 1 0 6p-8, 2m 2m+2p-2 2m-2p+1 1 2 2 0 6p-6,
    2m+p-2 2m+1 2m 1 0 1 0 5p-7, 2m 2m+1 2m+p-2 1 0 p-1 p-2 3p-3, 2m+p-1 2m 2m-1 1 0 2 0 5p-5,
    2m+2p-3 2m-p+2 2m 1 0 0 0 3p-5, 2m+p-1 2m+p-1 2m-2p+1 1 1 2 0 6p-6, 2m+1 2m 2m+p-2 1 0 0 0 3p-5,
    2m+2p-2 2m-p+1 2m-1 1 0 1 0 3p-3, 2m 2m+p-1 2m-1 1 1 2 0 5p-5, 2m+2p-3 2m+1 2m-2p+2 1 1 0 0 4p-6,
    2m 2m 2m+p-2 m m-p m m-1 p-1, 2m 2m 2m+p-2 m-2p+2 m-p m m-1 3p-3, 2m 2m+p-1 2m-p+1 2p-1 p 1 0 2p-2,
    2m+1 2m+p-2 2m 1 0 0 0 5p-9, 2m-p+1 2m+p-1 2m-p+1 m-1 m m-p+1 m-p 2p-2, 2m+1 2m+p-2 2m 2p-3 0 0 0 3p-5,
    2m 2m+p-1 2m-p m m-p+1 m m-1 2p-2, 2m 2m+2p-2 2m-2p+2 2p-1 1 1 0 4p-6, 2m-1 2m+1 2m-1 m-1 m m-p+1 m-p 2""",
    ),
    "dualpipe": (
        """
    2m 2m 2m m m m m, m+2p-2 2m 2m m m m m, m+2p-2 2p m+p m m m m-1, 2p-1 m+2p-1 m+p m m 1 0""",
        """
    2m+p-1 2m+2p-3 2m-p+1 m-1 m-2p+2 m-2p+3 m-2p+2, 2m 2m+p-1 2m-p+1 m m-p+1 m m, 2m+2p-2 2m+p-1 2m-p+1 1 2 1 1,
    2m+2p-3 2m 2m 1 0 0 0, 2m 2m+p-2 2m-p+2 m-2p+2 m-p m m, 2m+p-2 2m+p-1 2m m-1 m-p+1 m-2p+2 m-2p+1,
    2m+p-2 2m+2p-2 2m-p+1 1 2 2 1, 2m+2p-2 2m 2m m-2p+1 m-p+1 m-2p+1 m-2p+1, 2m+2p-3 2m+p-1 2m-p+1 1 1 0 0,
    2m+p-1 2m+p-2 2m-p+2 2 1 p+1 p+1, 2m+p-2 2m+2p-2 2m-p+1 m-1 m-2p+2 m-2p+2 m-2p+1,
    2m-1 2m+p-1 2m m-1 m m-p+1 m-p, 2m+p-2 2m+2p-4 2m-p+2 1 0 0 0, 2m+2p-2 2m 2m 1 1 1 1,
    2m 2m+p-1 2m-p+1 m-2p+2 m-p+1 m m, 2m+p-2 2m+p-2 2m 2p-3 p 0 0, 2m 2m+2p-3 2m-p+1 m-1 m-p+1 m-p+2 m-p+1,
    2m 2m 2m m-2p+2 m-p m m, 2m+p-2 2m+2p-3 2m-p+1 2p-3 1 0 0""",
        "m+2p-1 m+2p-1 2m+p-1 1 1 m m-1, m+2p-1 m+2p-2 2m+p-1 1 0 m m-1",
    ),
}

_FEW = {
    "zb_v": (
        """
    m+2p-1 m+2p-1 m+1 1 1 m m-1 4p-4, m+2p-1 2m 2m o m m m 2p-o-1, m+2p-1 2m 4m-3p 1 m-p m m-1 3p-3, m+2p-1 2m+p-2 2m-p+1 1 m-p m m-1 4p-5,
    m+2p-1 2m+p-1 2m-p 1 m-p+1 m m-1 4p-4, m+2p-1 m+2p-2 m+1 1 0 m m-1 4p-5, m+2p-1 2m 2m 1 m m m 2p-2, m+2p-1 m+2p-1 m+1 o 1 m m-1 4p-o-3,
    m+2p-1 2m+p-1 2m-p o m-p+1 m m-1 4p-o-3, 2p+o-1 2m 2m m m m m -2m+2p+o-1""",
        "m+2p-1 m+2p-2 2m 1 0 0 0 -2m+4p-3",
        """
    2p 2m+2p-2 2m o 1 1 0 4p-o-3, 2p+1 2m+2p-3 2m 1 1 0 0 4p-6, 2m+2p-o-2 -m+2p+o+2 2m o m-1 -m+o+1 0 -4m+4p+o+1, 2p 2m+2p-2 2m 1 1 1 0 4p-4,
    m+2p-1 m+2p-1 2m 1 1 0 0 -2m+4p-2, m+2p-2 -m+2p+o+1 2m-1 m m -m+o+1 0 -4m+4p+o+1, 2p 2m+2p-3 2m 1 0 1 0 4p-5,
    2p+1 2m+2p-3 2m 2m-o-2 1 0 0 -2m+4p+o-3, 2p+1 2m+2p-4 2m 1 0 0 0 4p-7""",
        """
    m+2p-1 2p 2m o m m m-1 -2m+4p-o-1, m+2p-1 2p-1 2m 1 0 m m-1 -2m+4p-3, 2p+o-1 2p 2m m m m m-1 -4m+4p+o-1, m+2p-1 2p 2m 1 1 m m-1 -2m+4p-2,
    m+2p-2 -m+2p+o 3m-o-1 m m 0 0 -4m+4p+o-1""",
        """
    2m+1 2m+2p-3 2p 1 1 0 0 2m+2p-8, 3m-o 3p+o-2 m+p o m-p+1 -m+o+1 0 -2m+4p+o-3, 2m+2p-o-2 m+o+1 2m-1 o m -p+o+1 m-p -2m+2p+o+1,
    m+2p-1 2m 2m-1 1 m-p m m-1 2p-1, 3m-p m+3p-2 2p-1 1 1 1 0 2m+2p-4, 2m 2m+2p-2 2p 1 1 1 0 2m+2p-6,
    2m-p+o+2 m+4p-o-4 m+p 2m-o-2 m-p+1 0 0 4p-o-5, 2m+1 2m+2p-3 2p 2m-o-2 1 0 0 2p+o-5, m+o+1 2m+3p-o-3 m+p 2m-o-2 m-p+1 m-o 0 4p-o-3,
    2m+2p-o-2 2m+1 2m o p-1 0 0 2p-o-1, 2m+1 4p-3 2m 2m-o-2 m-p+1 0 0 -4m+6p+o-3""",
        """
    3m-2 m+2p-1 2p+1 1 0 0 0 2m-5, 2m m+2p 3m-p-1 1 0 m-p m-p-1 3p-3, 2m 2m+2p-3 2p+1 1 0 1 0 2m+2p-7, 2p+o 3m-o 3m-p-1 4m-2p-2o-1 0 0 0 p-1,
    2m+1 2m+2p-4 2p+1 1 0 0 0 2m+2p-9, m+p+1 2m+p-1 2m-p+1 o m m-p+1 m-p 4p-o-3, 2m 2m+p-2 2m-p+1 m m+p-o m-o m-o 4p-o-5,
    2m m+3p-2 m+p 1 0 m-p m-p-1 4p-5""",
        "",
    ),
    "dualpipe_v": (
        "2p+o-1 2m 2m m m m m -2m+2p+o-1",
        """
    m+2p-1 m+2p-1 2m+p-1 1 1 0 0 4p-6, 2p+o-1 2p m+p m m m m-1 -4m+4p+o-1, 2m+2p-3 2p+1 m+p+1 1 1 0 0 4p-6,
    m+2p-1 m+2p-1 2m+p-1 2m-o-2 1 0 0 -2m+4p+o-3""",
        """
    2p 2m+2p-2 2m+p-1 1 1 1 0 2m+4p-8, 2p 2m+2p-2 2m+p-1 o 1 1 0 2m+4p-o-7, 2p+1 2m+2p-3 2m+p-1 1 1 0 0 2m+4p-10,
    m+2p-o 2m+2p-3 2m+p-1 o 1 0 0 2m+4p-o-9""",
        "m+2p-1 m+2p-1 2m+p-1 o 1 m m-1 4p-o-3, m+2p-1 m+2p-1 2m+p-1 1 1 m m-1 4p-4",
        "",
        """
    2m+p-2 2m+2p-2 3p+1 1 2 2 1 2m+4p-10, m+2p-1 2m+p-1 3p+1 1 m-p+1 m m 4p-4, 3m+p-o-2 3p+o-1 m+2p o m-p+1 -m+o+2 1 -2m+6p+o-7,
    2m+2p-3 2m+p-1 3p+1 1 1 0 0 2m+2p-10, m+2p-1 m+2p m+2p o 2m-2p m m -2m+6p-o-1, 2m+p-2 2m+2p-3 3p+1 1 1 0 0 2m+4p-14,
    m+2p-1 2m+2p-2 3p+1 o m-p+1 m-p+1 m-p 6p-o-5, 2m+2p-2 2m+p-1 3p+1 1 2 1 1 2m+2p-8, m+2p-1 2m+p-1 2m o m m-p+1 m-p 4p-o-3,
    2m+2p-3 m+2p m+2p 1 m-p 0 0 4p-6, 2m+p-3 2m+2p-2 3p+1 1 1 1 0 2m+4p-12, m+2p-1 2m+2p-2 3p+1 1 m-p+1 m-p+1 m-p 6p-6,
    2m+p-2 2m+2p-2 3p+1 o 2 2 1 2m+4p-o-9, m+2p-1 m+2p m+2p 1 2m-2p m m -2m+6p-2, 2m+p-2 2m+3p-o-2 m+2p 1 2m-p-o 2m-2o m-o 2m+6p-2o-10,
    m+p+o-1 2m+3p-o-2 m+2p 2m-o-2 m-p+1 m-o+1 1 6p-o-7""",
        """
    3m-1 3m-1 3m-1 o 1 m m 4m-o-3, 3m-1 3m-1 3m-1 1 1 m m 4m-4, 2m 2m+o-1 2m m m o-m+1 0 2m+o-3,
    m+o 4m-o-2 2m m m m-o 0 4m-o-5, 3m-2 2m 2m m m 0 0 2m-o-1""",
    ),
    "dualpipe": (
        "",
        "m+2p-1 m+2p-1 2m+p-1 1 1 0 0 m+4p-4, m+2p-1 m+2p-1 2m+p-1 2m-o-2 1 0 0 -2m+4p+o-1",
        """
    m+2p-1 m+2p-1 2m+p-1 1 1 m m-1 4p-2, 2p 2m+2p-2 2m+p-1 1 1 1 0 2m+4p-5, 2p 2m+2p-2 2m+p-1 o 1 1 0 2m+4p-o-5,
    2p+1 2m+2p-3 2m+p-1 1 1 0 0 2m+4p-6, 2p+1 2m+2p-3 2m+p-1 2m-o-2 1 0 0 4p+o-5""",
        "m+2p-1 m+2p-1 2m+p-1 o 1 m m-1 4p-o-2",
        "",
        "",
        "",
    ),
}


class Count(NamedTuple):
    """A number of passes: a m + b p + c n + e o + d."""

    m: int
    p: int
    n: int
    o: int
    d: int

    def of(self, *sizes: Any) -> Any:
        """The number, with so many micro-batches m and devices p, and their n and o."""
        parts = [times * each for times, each in zip(self[:4], sizes, strict=True) if times]
        return sum(parts, self.d)


def _count(text: str) -> Count:
    found = {"m": 0, "p": 0, "n": 0, "o": 0, "": 0}
    for sign, times, name in re.findall(r"([+-]?)(?=[\dmpno])(\d*)([mpno]?)", text):
        found[name] += int(sign + (times or "1"))
    return Count(*found.values())


def _paths(tables: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[list[list[Count]], ...]]:
    def group(text: str) -> list[list[Count]]:
        return [[_count(each) for each in path.split()] for path in text.split(",") if path]

    return {name: tuple(map(group, groups)) for name, groups in tables.items()}


PATHS, FEW = _paths(_TABLES), _paths(_FEW)


def longest_path(schedule: str, p: Any, m: Any, passes: Any, first: Any, last: Any, send: Any, *given: Any) -> Any:
    """The longest of the paths: ``passes`` are times of a chunk (forward, inputs, weights), ``first`` and ``last`` what they take longer on these stages;
    ``given`` is whether there are those of the second group, and of the third."""
    ahead = 1.0 * p if schedule == "zero_bubble" else 2.0 * p - 1
    n, groups = maximum(m - ahead, 0.0), zip(PATHS[schedule], (True, *given), strict=True)
    return _longest(groups, (m, p, n, 0.0), passes, first, last, send)


def few_micro_batches(schedule: str, p: Any, m: Any, passes: Any, first: Any, last: Any, send: Any) -> Any:
    """The longest of the paths with fewer than two micro-batches a device."""
    several, odd = m > 1, 2 * floor((m - 1) / 2) + 1
    given = True, several, several & (m <= p), several & (m < p), several & (m >= p), m > p, several & (m == p)
    return _longest(zip(FEW[schedule], given, strict=True), (m, p, 0.0, odd), passes, first, last, send)


def _longest(groups: Any, sizes: Any, passes: Any, first: Any, last: Any, send: Any) -> Any:
    found = 0.0 * send
    for group, there in groups:
        most = found
        for path in group:
            f, b, w, f_0, b_0, f_1, w_1, *sends = (count.of(*sizes) for count in path)
            time = f * passes[0] + b * passes[1] + w * passes[2]
            time = time + f_0 * first[0] + b_0 * (first[1] + first[2]) + f_1 * (last[0] + last[1]) + w_1 * last[2]
            time = time + sends[0] * send if sends else time
            most = maximum(most, time)
        found = where(there, most, found)
    return found


def shorter_end(p: Any, m: Any, t: Any, shares: Any, c: Any, first: Any, last: Any) -> Any:
    """ZB-H1 with an end that is shorter than other devices: the longest of its paths."""
    passes = [share * t for share in shares]
    ends = ([share * (end - t) for share in shares] for end in (first, last))
    inner = p > 2
    some = inner & (m > 2)
    given = inner, inner & (m > 1), some, inner & (m > p), some & (m < p)
    return longest_path("zero_bubble", p, m, passes, *ends, c, *given)


def turning_inside(p: Any, m: Any, passes: Any, more: Any, most: Any, c: Any) -> Any:
    """ZB-H2 with m < 2p micro-batches: paths that stay at a device s, half as far from the first as there are micro-batches, or drain from it; of more
    than four also without the last device, or but once with it."""
    f, b, w = passes
    once, there, none = most[0] + most[1], (p - 1) * (f + c) + more[0], 0.0 * c

    def turned(s: Any) -> Any:
        k, back = minimum(m - 1.0, 2.0 * s), (p - 1 - s) * (b + c)
        stay = there + (k + 1) * (f + b) + back + (m - 1 - k) * b + m * w
        drain = there + m * (f + b + once) + back + (k + 1) * w
        apart = maximum(stay - f - c, stay - 2 * f + b + c + once)
        found = longest(stay + (k + 1) * once, drain, where(m > 4, apart, none))
        return where(s < p - 1, found, none)

    # Two to four micro-batches turn before the last device, or before both.
    few = there + (m - 1) * f + (m + p - 3) * b + m * w + (p - 4) * c
    few = maximum(few, where(m < 4, few + b + c + m * (more[1] + more[2]), none))
    few = where((m > 1) & (m < 5) & (p > 2), few, none)
    near = _near_the_first(p, m, passes, more, most, c)
    return longest(few, near, *(turned(maximum(rounded((m - 1) / 2), 1.0)) for rounded in (floor, ceil)))


def _near_the_first(p: Any, m: Any, passes: Any, more: Any, most: Any, c: Any) -> Any:
    """ZB-H2 with m < 2p - 1: paths that come back to a first device, all the time or three times."""
    f, b, w = passes
    none, rest = 0.0 * c, more[1] + more[2]

    def path(fs: Any, bs: Any, ws: Any, first: Any, back: Any, sends: Any) -> Any:
        return fs * f + bs * b + ws * w + first * more[0] + back * rest + sends * c

    # Those that turn at the device half as far from the first as there are micro-batches, or one before.
    far, before = p - 1 - ceil((m - 1) / 2), p - 1 - floor((m - 1) / 2)
    all_of = path(m + far, m + far, m, m, m, 2 * far)
    nearly = maximum(
        path(m - 1 + before, m + before, m, m - 1, m, 2 * before),
        path(m + before, m + before, m - 1, m - 1, m - 1, 2 * before),
    )
    # Of more than four these are in the table.
    thrice = path(m + p - 2, m + p - 2, 3, 3, 3, 2 * (p - 2))
    ends = path(m + p - 3, m + p - 1, 3, 1, 3, 2 * (p - 1)) + most[0] + most[1]
    stays = path(m + p - 2, m + far, m, 3, 0, p - 2 + far)
    later = path(m + p - 2, m + before, m - 1, 3, 0, p - 2 + before)
    # Of two: on the device before the last at the first or the second.
    two = maximum(path(p, p, 2, 1, 0, 2 * p - 3), path(p + 1, p - 1, 2, 1, 0, 2 * p - 3)) + most[0] + most[1]
    inner = p > 2
    return longest(
        where(inner & (m == 2), two, none),
        where(inner & (m > 1), all_of, none),
        where(inner & (m > 2) & (far < before), nearly, none),
        where(inner & (m > 2) & (m < 5), thrice, none),
        where(inner & (m == 4), ends, none),
        where(inner & (m > 4), stays, none),
        where(inner & (m > 5) & (far < before), later, none),
    )
