"""Limits on times of requests as people write them: ``ttft_p99=500ms,tpot=30ms,e2e_p95=4s``.

Without a percentile a limit is on the mean. ``latency`` and ``e2e`` are both the time of a whole request.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mlsysim.errors import nearest
from mlsysim.units.registry import parse_quantity, to_si

KINDS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e", "latency": "e2e", "queue": "queue"}
LEVELS = ("mean", "p50", "p90", "p95", "p99")
TIMES = {"ttft": "first token", "tpot": "further token", "itl": "token gap", "e2e": "request", "queue": "wait"}
"""Kinds of time as tables and charts call them."""


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
    """The limits in a text; raises ValueError with one sentence."""
    found = []
    for piece in filter(None, (each.strip() for each in (text or "").split(","))):
        written = re.fullmatch(r"([a-z0-9]+?)(?:_(mean|p\d+))?\s*(?:=|<=?)\s*(.+)", piece.lower())
        if written is None:
            raise ValueError(f"a limit is such as 'ttft_p99=500ms', got {piece[:40]!r}")
        kind, level, amount = written[1], written[2] or "mean", written[3]
        if kind not in KINDS:
            near = nearest(kind, KINDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else "use ttft, tpot, itl, e2e or queue"
            raise ValueError(f"{kind[:20]!r} is no time of a request; {hint}")
        if level not in LEVELS:
            known = f"{', '.join(LEVELS[1:-1])} or {LEVELS[-1]}"
            raise ValueError(f"{level!r} is not simulated; use {known}, or no percentile for the mean")
        try:
            seconds = to_si(parse_quantity(amount), "s")
        except Exception:  # units speak of many faults; all of them mean that this is no time
            raise ValueError(f"the limit of {kind}_{level} is a time such as 500ms, got {amount[:20]!r}") from None
        if not seconds > 0:
            raise ValueError(f"the limit of {kind}_{level} is a time above 0, got {amount[:20]!r}")
        found.append(Target(KINDS[kind], level, float(seconds)))
    return tuple(found)
