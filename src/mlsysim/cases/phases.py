"""The two phases of serving on a replica: prefill in one or more chunks, decode with or without a draft model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlsysim.cases.replica import Passes, PassTime, Replica, pipelined_completion, pipelined_period
from mlsysim.errors import InputError
from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum, power, where

__all__ = [
    "INNER_POINTS",
    "MAX_CHUNKS",
    "ON_CHORD",
    "Decoder",
    "Prefill",
    "prefill",
    "prefill_passes",
    "speculative_cycle",
    "speculative_tokens",
    "sum_over_steps",
]

MAX_CHUNKS = 10_000


@kernel(
    inputs={"acceptance": Arg("", 0.01, 0.99), "drafted": Arg("", 1, 32, whole=True)},
    outputs={"tokens": ""},
)
def speculative_tokens(acceptance: Any, drafted: Any) -> Any:
    """Tokens that one verification yields on average: 1 + a + ... + a^K (Leviathan et al. 2023, equation 1)."""
    rejected = maximum(1.0 - acceptance, 1e-300)
    return where(acceptance >= 1.0, drafted + 1.0, (1.0 - power(acceptance, drafted + 1.0)) / rejected)


@kernel(
    inputs={"draft_step": Arg("s", 1e-5, 1.0), "drafted": Arg("", 1, 32, whole=True), "verify": Arg("s", 1e-4, 10)},
    outputs={"time": "s"},
)
def speculative_cycle(draft_step: Any, drafted: Any, verify: Any) -> Any:
    """K steps of the draft model, then one pass of the model over what they wrote."""
    return drafted * draft_step + verify


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt's prefill: passes, the longest of them, the whole, and its parts summed over passes (of one group)."""

    chunks: int
    longest_chunk: float
    time: float
    parts: PassTime


def prefill(replica: Replica, batch: int, new: int, context: int, chunk: int | None) -> Prefill:
    """``new`` prompt tokens of each sequence after ``context`` cached ones, in passes of at most ``chunk`` tokens."""
    size = min(chunk or new, new)
    chunks = math.ceil(new / size)
    if chunks > MAX_CHUNKS:
        raise InputError(
            f"prefill_chunk_tokens={size} would cut the prompt into {chunks:,} passes; "
            f"at most {MAX_CHUNKS:,} are evaluated, so use at least {math.ceil(new / MAX_CHUNKS)}.",
            field="prefill_chunk_tokens",
        )
    passes = [replica.prefill(batch, min(size, new - i * size), context + i * size) for i in range(chunks)]
    parts = [part for part, _ in passes]
    times = [time for _, time in passes]
    return Prefill(chunks, max(times), math.fsum(times), parts[0] if chunks == 1 else _added(parts))


def prefill_passes(replica: Replica, batch: Any, new: Any) -> Callable[[Any], Any]:
    """Time until ``new`` tokens of all sequences are read, as a function of the context that they follow."""
    groups, size = replica.groups_in_flight(batch)
    passes = replica.passes("prefill", size, new)
    return lambda context: pipelined_completion(passes.at(context).total, groups, replica.longest_stage)


def _added(parts: list[PassTime]) -> PassTime:
    return PassTime(*(math.fsum(getattr(part, name) for part in parts) for name in PassTime.__dataclass_fields__))


@dataclass(frozen=True)
class Decoder:
    """Decode of ``batch`` sequences on a replica, with a draft model where there is one."""

    replica: Replica
    batch: Any
    draft: Replica | None = None
    drafted: Any = 0
    acceptance: Any = 0.0

    def model_pass(self, context: Any) -> PassTime:
        """The pass of the model: one token for each sequence, or the verification of K + 1."""
        return self._passes.at(context)

    @cached_property
    def _passes(self) -> Passes:
        _, size = self.replica.groups_in_flight(self.batch)
        if self.draft is None:
            return self.replica.passes("decode", size, 1)
        return self.replica.passes("prefill", size, self.drafted + 1)

    @cached_property
    def _draft_passes(self) -> Passes:
        assert self.draft is not None
        _, size = self.replica.groups_in_flight(self.batch)
        return self.draft.passes("decode", size, 1)

    def draft_step(self, context: Any) -> Any:
        """One step of the draft model, which writes for one group at a time."""
        return 0.0 if self.draft is None else self._draft_passes.at(context).total

    def time_per_token(self, context: Any) -> Any:
        """Mean time between two tokens of a sequence at this context."""
        groups, _ = self.replica.groups_in_flight(self.batch)
        cycle = self.model_pass(context).total
        if self.draft is not None:
            cycle = speculative_cycle(self.draft_step(context), self.drafted, cycle)
        return pipelined_period(cycle, groups, self.replica.longest_stage) / self.tokens_per_cycle

    @cached_property
    def tokens_per_cycle(self) -> Any:
        return speculative_tokens(self.acceptance, self.drafted) if self.draft is not None else 1.0

    def time(self, context: float, tokens: int) -> float:
        """Time to write ``tokens`` tokens after ``context``, while the cache grows."""
        return sum_over_steps(self.time_per_token, context, tokens)


def sum_over_steps(time: Callable[[float], float], first: float, steps: int) -> float:
    """The sum of ``time(context)`` over ``steps`` contexts first, first + 1, ...

    Exact where time is piecewise linear in the context, as a roofline over growing caches is: a stretch whose inner
    points lie on its chord is summed as an arithmetic series, others are halved.
    """
    return _stretch(time, first, steps, time(first), time(first + steps - 1)) if steps > 0 else 0.0


INNER_POINTS = (0.25, 0.5, 0.809)
"""Places of a stretch at which it is compared with its chord."""
ON_CHORD = 1e-12
"""Distance from the chord, over the longest time, below which a stretch counts as straight."""


def _stretch(time: Callable[[float], float], first: float, steps: int, start: float, end: float) -> float:
    if steps <= 2:
        return start if steps == 1 else start + end
    span = steps - 1
    straight = True
    for share in INNER_POINTS:
        at = max(1, math.floor(span * share))
        chord = start + (end - start) * at / span
        if abs(time(first + at) - chord) > ON_CHORD * end + 1e-300:
            straight = False
            break
    if straight:
        return steps * (start + end) / 2
    half = steps // 2
    left, right = time(first + half - 1), time(first + half)
    return _stretch(time, first, half, start, left) + _stretch(time, first + half, steps - half, right, end)
