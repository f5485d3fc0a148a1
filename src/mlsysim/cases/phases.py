"""The two phases of serving on a replica: prefill in one or more chunks, decode with or without a draft model."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from mlsysim.cases.replica import Passes, Replica
from mlsysim.cases.replica_pass import PassTime
from mlsysim.cases.request import value_of
from mlsysim.physics.stage_turns import pipelined_completion, pipelined_period
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, power, some, where
from mlsysim.units.records import dataclass

MAX_CHUNKS = 10_000


@kernel("acceptance [0.01, 0.99], drafted whole [1, 32] -> tokens")
def speculative_tokens(acceptance: Any, drafted: Any) -> Any:
    """Tokens that one verification yields on average: 1 + a + ... + a^K (Leviathan et al. 2023, equation 1)."""
    rejected = maximum(1.0 - acceptance, 1e-300)
    return where(acceptance >= 1.0, drafted + 1.0, (1.0 - power(acceptance, drafted + 1.0)) / rejected)


@kernel("draft_step: s [1e-5, 1], drafted whole [1, 32], verify: s [1e-4, 10] -> time: s")
def speculative_cycle(draft_step: Any, drafted: Any, verify: Any) -> Any:
    """K steps of the draft model, then one pass of the model over what they wrote."""
    return drafted * draft_step + verify


def prefill_passes(replica: Replica, batch: Any, new: Any, tag: Tag = untagged) -> Callable[[Any], Any]:
    """Time until ``new`` tokens of all sequences are read, as a function of the context that they follow."""
    groups, size = replica.groups_in_flight(batch)
    passes = replica.passes("prefill", size, new, tag)

    def completed(context: Any) -> Any:
        time = passes.at(context).total
        return pipelined_completion(time, groups, time * replica.longest_stage)

    return completed


def prefill_parts(replica: Replica, batch: int, new: int, context: int, chunk: int | None) -> tuple[PassTime, float]:
    """Parts of a prefill in passes of at most ``chunk`` tokens, summed over the passes (of one group), and the sum of what is longer in each,
    compute or memory."""
    _, group = replica.groups_in_flight(batch)
    size = min(chunk or new, new)
    parts = [replica.run("prefill", group, min(size, new - at), context + at) for at in range(0, new, size)]
    longer = math.fsum(maximum(part.compute, part.memory) for part in parts)
    if len(parts) == 1:
        return parts[0], longer
    found = (math.fsum(getattr(part, name) for part in parts) for name in PassTime.__dataclass_fields__)
    return PassTime(*found), longer


@dataclass(frozen=True)
class Decoder:
    """Decode of ``batch`` sequences on a replica, with a draft model, or with ``heads`` of the model's own that draft: each token of theirs
    takes a layer of the model (DeepSeek-V3's module for multi-token prediction is one block)."""

    replica: Replica
    batch: Any
    draft: Replica | None = None
    drafted: Any = 0
    acceptance: Any = 0.0
    tag: Tag = untagged
    heads: bool = False

    @property
    def drafts(self) -> bool:
        return self.draft is not None or self.heads

    def model_pass(self, context: Any) -> PassTime:
        """The pass of the model: one token for each sequence, or the verification of K + 1."""
        return self._passes.at(context)

    @cached_property
    def _passes(self) -> Passes:
        _, size = self.replica.groups_in_flight(self.batch)
        if not self.drafts:
            return self.replica.passes("decode", size, 1, self.tag)
        return self.replica.passes("prefill", size, self.drafted + 1, self.tag)

    @cached_property
    def _draft_passes(self) -> Passes:
        _, size = self.replica.groups_in_flight(self.batch)
        return (self.draft or self.replica).passes("decode", size, 1, of_draft(self.tag))

    def draft_step(self, context: Any) -> Any:
        """One step of the draft model or head, which writes for one group at a time."""
        share = self.replica.model.layer_share if self.heads else 1.0
        return self._draft_passes.at(context).total * share if self.drafts else 0.0

    def time_per_token(self, context: Any) -> Any:
        """Mean time between two tokens of a sequence at this context."""
        groups, _ = self.replica.groups_in_flight(self.batch)
        cycle = self.model_pass(context).total
        staged = some(self.replica.longest_stage < 1)
        stage = cycle * self.replica.longest_stage if staged else cycle
        if self.drafts:
            # The draft model is not split into stages: one of them has it.
            step = self.draft_step(context)
            cycle, stage = (speculative_cycle(step, self.drafted, time) for time in (cycle, stage))
        return (pipelined_period(cycle, groups, stage) if staged else cycle) / self.tokens_per_cycle

    @cached_property
    def tokens_per_cycle(self) -> Any:
        return speculative_tokens(self.acceptance, self.drafted) if self.drafts else 1.0


def of_draft(tag: Tag) -> Tag:
    """The same for the passes of a draft model, under its name."""

    return lambda name, *rest, **amounts: tag(f"draft {name}", *rest, **amounts)


def sum_over_steps(
    make: Callable[..., Any], machine: Any, traffic: Any, first: Any, steps: Any, stride: Any = 1
) -> Any:
    """The sum of ``make(machine, traffic)(context)`` over ``steps`` contexts first, first + stride, ...

    Exact where time is piecewise linear in the context, as a roofline over growing caches is: a stretch whose inner
    points lie on its chord is summed as an arithmetic series, others are halved.
    """
    time, steps = make(machine, traffic), int(steps)
    if steps < 1:
        return 0.0
    start = time(first)
    return _stretch(time, first, steps, stride, start, start if steps == 1 else time(first + (steps - 1) * stride))


INNER_POINTS = (0.25, 0.5, 0.809)
"""Places of a stretch at which it is compared with its chord."""
ON_CHORD = 1e-12
"""Distance from the chord, over the longest time, below which a stretch counts as straight."""


def _stretch(time: Callable[[Any], Any], first: Any, steps: int, stride: Any, start: Any, end: Any) -> Any:
    if steps <= 2:
        return start if steps == 1 else start + end
    span = steps - 1
    low, high = value_of(start), value_of(end)
    for share in INNER_POINTS:
        at = max(1, math.floor(span * share))
        chord = low + (high - low) * at / span
        if abs(value_of(time(first + at * stride)) - chord) > ON_CHORD * high + 1e-300:
            break
    else:
        return steps * (start + end) / 2
    half = steps // 2
    left, right = time(first + (half - 1) * stride), time(first + half * stride)
    below = _stretch(time, first, half, stride, start, left)
    return below + _stretch(time, first + half * stride, steps - half, stride, right, end)
