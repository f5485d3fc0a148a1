"""Limits on times of requests as people write them: ``ttft_p99=500ms,tpot=30ms,e2e_p95=4s``.

Without a percentile a limit is on the mean. ``latency`` and ``e2e`` are both the time of a whole request. Percentiles are any: p75, p99.9, which
metrics call p999, as people do (digits after the second are decimals).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlsysim.errors import nearest
from mlsysim.units.registry import number_from, parse_quantity, to_si

KINDS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e", "latency": "e2e", "queue": "queue"}
TIMES = {"ttft": "first token", "tpot": "further token", "itl": "token gap", "e2e": "request", "queue": "wait"}
"""Kinds of time as tables and charts call them."""


def levels_of(held: Mapping[str, Any]) -> list[str]:
    """Mean and percentiles in a table of a kind of time."""
    return [name for name in held if name != "error"]


def percent(level: str) -> float:
    """The per cent of a percentile.

    >>> percent("p99"), percent("p999"), percent("p05")
    (99.0, 99.9, 5.0)
    """
    return float(f"{level[1:3]}.{level[3:] or 0}")


def rank_text(level: str) -> str:
    """A percentile as people say it.

    >>> rank_text("p999"), rank_text("p75"), rank_text("p92")
    ('99.9th', '75th', '92nd')
    """
    number = f"{percent(level):g}"
    last = "" if "." in number or number[:-1] == "1" else number[-1]
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")


class Target(NamedTuple):
    """A limit in seconds on the mean or a percentile of a kind of time."""

    kind: str
    level: str
    seconds: float

    @property
    def metric(self) -> str:
        """The metric of an answer that it limits."""
        return {"e2e": "latency"}.get(self.kind, self.kind) if self.level == "mean" else f"{self.kind}_{self.level}"


def parse_targets(text: str | None) -> tuple[Target, ...]:
    """The limits in a text; raises ValueError with one sentence.

    >>> parse_targets("p99_ttft=1s") == parse_targets("ttft_p99=1s")
    True
    >>> parse_targets("p99 ttft under 1 s") == parse_targets("ttft p99 <= 1s")
    True
    >>> parse_targets("ttft=500ms tpot=50ms") == parse_targets("ttft=500ms,tpot<50ms")
    True
    """
    found = []
    pieces = re.split(r",(?!\d)|;|(?<=s)\s+(?=\w+\s*[=<])", text or "")
    for piece in filter(None, map(str.strip, pieces)):
        # Either order: ttft_p99, p99_ttft.
        turned = re.sub(r"^(mean|p\d[\d.]*)[_ -]([a-z0-9]+)", r"\2_\1", piece.lower())
        turned = re.sub(r"^(\w+)\s+(p\d[\d.]*)\b", r"\1_\2", turned)
        turned = re.sub(r"\s*(?:\b(?:under|below|within|at most|less than|is)\s+|<=\s*)", "=", turned, count=1)
        written = re.fullmatch(r"([a-z0-9]+?)(?:_(mean|p\d[\d.]*))?\s*(?:=|<=?)\s*(.+)", turned)
        if written is None:
            raise ValueError(f"a limit looks like 'ttft_p99=500ms', got {piece[:40]!r}")
        kind, level, amount = written[1], written[2] or "mean", written[3]
        if kind not in KINDS:
            near = nearest(kind, KINDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "use ttft, tpot, itl, e2e or queue"
            raise ValueError(f"{kind[:20]!r} is not a time of a request; {hint}")
        if level != "mean":
            level = _level(level)
        try:
            seconds = to_si(parse_quantity(amount), "s")
        except Exception:  # units speak of many faults; all of them mean that this is no time
            raise ValueError(f"the limit on {kind} is a time such as 500ms, got {amount[:20]!r}") from None
        if not seconds > 0:
            raise ValueError(f"the limit on {kind} is a time above 0, got {amount[:20]!r}")
        found.append(Target(KINDS[kind], level, float(seconds)))
    return tuple(found)


_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400}


def per_second(value: Any) -> Any:
    """A rate of requests as a number a second; what is no rate in another time stays.

    >>> per_second("300/min"), per_second("1M per day"), per_second("5 requests per second"), per_second("5rps"), per_second("5/fortnight")
    (5.0, 11.574074074074074, 5.0, 5.0, '5/fortnight')
    """
    found = (
        re.fullmatch(
            r"([\d.,_]+ ?[kKmM]?)\s*(?:(?:req(?:uest)?s?)?\s*(?:/|per\s|an?\s)\s*|[rq]p(?=s$))(\w+)", value.strip()
        )
        if isinstance(value, str)
        else None
    )
    number = None if found is None or found[2] not in _SECONDS else number_from(found[1].strip())
    return value if number is None or found is None else number / _SECONDS[found[2]]


def _level(written: str) -> str:
    """The name of a percentile, however it is written: p99.9 is p999."""
    whole, point, part = written[1:].partition(".")
    name = f"p{whole.zfill(2)}{part}".rstrip("0" if point else "").ljust(3, "0")
    long = len(whole) > 2 and (point or not whole.startswith("99"))
    if "." in part or long or not percent(name) > 0 or len(name) > 6:
        raise ValueError(f"{written[:20]!r} is not a percentile; use p50, p99 or p99.9, say, or none for the mean")
    return name


class Every(NamedTuple):
    """Something that comes again and again: a factor where it has one, for how long and how often, in seconds."""

    factor: float
    lasts: float
    every: float


def parse_every(text: str) -> Every:
    """Such as ``4h/30day``, four hours every thirty days, or ``1.3x2h/3day`` with a factor.

    >>> parse_every("4h/30day"), parse_every("1.5x2h/1day").factor, parse_every("1.2x for 6h every 3d").lasts
    (Every(factor=1.0, lasts=14400.0, every=2592000.0), 1.5, 21600.0)
    """
    how = r"\s*(?:([\d.]+)\s*x(?:\s*for)?)?\s*([\d.]+\s*[a-z]+)\s*(?:/|\bevery)\s*([\d.]+\s*[a-z]+)\s*"
    found = re.fullmatch(how, text)
    if found is None:
        raise ValueError(f"expected how long and how often, such as 4h/30day or 1.3x2h/3day, got {text[:40]!r}")
    lasts, every = (float(to_si(parse_quantity(part), "s")) for part in found.groups()[1:])
    factor = float(found[1] or 1.0)
    if not 0 < lasts < every or factor < 1:
        raise ValueError(f"{text[:40]!r} is to be shorter than what it comes every, and a slow-down at least 1")
    return Every(factor, lasts, every)


def every_text(text: str | None) -> str | None:
    """The text, if it can be read."""
    if text is not None:
        parse_every(text)
    return text
