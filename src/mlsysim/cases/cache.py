"""The memory of a serving replica: what its fullest device holds, whether that fits, and how many sequences do.

    weights + adapters + caches(N) + workspace + reserve <= capacity       fits(N)
    N = groups x floor( (capacity - weights - adapters - workspace - reserve) / cache of one sequence )          sequences
    workspace = context of the driver, libraries and collectives + activations of a step of the token budget + min(N, R) logits of one sequence
                + buffers of as many requests as the engine is built for

The engine is told how many sequences to expect, up to R. Since min(N, R) is concave, N is the larger of what fits with logits of each and with R.

One function for both fidelities and for every question about it: feasibility, "requests that fit", the bar of the memory, the
mask of a sweep, and the batch that an engine lets in. ``sequences`` is the largest number for which ``fits`` holds.

First order: all of the datasheet's memory, no workspace; the reserve is what a ``fraction`` below 1 keeps back. Calibrated: the
engine's rule. The driver offers U bytes, of which the engine takes a share s,

    "all"    weights, workspace and caches share s U:      reserve = capacity - s U
    "free"   caches get s of what weights leave:           reserve = capacity - U + (1 - s) (U - weights - workspace)

A sequence of a batch is held at its whole length, prompt and answer. Requests that come and go are found half answered, and engines page: caches
grow block by block, so that what they keep at a time is the mean, I + O (1 + cv^2)/2 and half a block (:meth:`mlsysim.cases.traffic.Traffic.kept`),
unless the engine reserves whole answers; one whole sequence must have room. Requests beyond ``sequences`` wait for a place. Left out: what
is computed again when requests that grow at the same time are put back.

Every number may be an array, which has one value for each of many replicas.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.ledger import CONTEXT, RESERVE, Held
from mlsysim.cases.replica import Replica
from mlsysim.timing.engine_step import EngineStep
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import ceil, floor, maximum, minimum, some, where
from mlsysim.units.records import dataclass
from mlsysim.vocabulary import Setting, listed, worded

WEIGHTS, CACHES, ACTIVATIONS, DRAFT, ADAPTERS, BUFFERS = (
    *("weights", "KV caches", "activations of a step", "draft model", "adapters", "buffers of request slots"),
)


@kernel("""
    fixed: byte [1e6, 1e12], each: byte [1e6, 1e12], sequences whole [1, 1e5], groups whole [1, 1e5],
    longest: byte [1e6, 1e12] -> held: byte
""")
def held_bytes(fixed: Any, each: Any, sequences: Any, groups: Any, longest: Any) -> Any:
    """Bytes on the fullest device: what is there without requests, and the caches of the group with most of them, of one at its
    whole length at least."""
    return fixed + maximum(each * ceil(sequences / groups), longest * minimum(sequences, 1))


@kernel("""
    capacity: byte [1e6, 1e12], fixed: byte [1e6, 1e12], each: byte [1e6, 1e12], groups whole [1, 1e5],
    longest: byte [1e6, 1e12] -> sequences
""")
def sequences_that_fit(capacity: Any, fixed: Any, each: Any, groups: Any, longest: Any) -> Any:
    """The largest number of sequences for which :func:`held_bytes` is at most ``capacity``; 0 where not even one is."""
    fitting = floor(maximum(capacity - fixed, 0 * capacity) / each)
    # The quotient is rounded: one more may fit to the last byte, or the last one miss by it.
    fitting = where(fixed + each * (fitting + 1.0) <= capacity, fitting + 1.0, fitting)
    fitting = where(fixed + each * fitting <= capacity, fitting, fitting - 1.0)
    return groups * where(fixed + longest <= capacity, maximum(fitting, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The fullest device of a replica; bytes. ``each`` is what one sequence keeps there on average, zero where that is not
    known; ``longest`` what one of them does in the end, which must have room."""

    capacity: Any
    weights: Any
    each: Any
    groups: Any = 1
    context: Any = 0.0
    activations: Any = 0.0
    reserve: Any = 0.0
    draft: Any = 0.0
    longest: Any = 0.0
    adapters: Any = 0.0
    row: Any = 0.0
    """What sampling needs for a sequence, of ``rows`` at most."""
    rows: Any = 1.0
    buffers: Any = 0.0
    """What the engine has for every request that it is built for."""

    @property
    def workspace(self) -> Any:
        """What the engine itself needs before the first request."""
        return self.context + self.activations + self.buffers

    def sampled(self, sequences: Any) -> Any:
        """Bytes of logits with so many sequences."""
        return self.row * minimum(ceil(sequences / self.groups), self.rows)

    @property
    def fixed(self) -> Any:
        """What is held before the first request."""
        return self._beside_caches(0.0)

    def _beside_caches(self, logits: Any) -> Any:
        return self.weights + self.adapters + self.draft + self.workspace + logits + self.reserve

    def used(self, sequences: Any) -> Any:
        """Bytes that are held with so many sequences, the reserve included."""
        own = self.sampled(sequences)
        lone = self.longest + self.row - own
        return held_bytes(self._beside_caches(own), self.each, sequences, self.groups, lone)

    def fits(self, sequences: Any) -> Any:
        """Whether so many sequences fit."""
        return self.used(sequences) <= self.capacity

    def _that_fit(self, bound: tuple[Any, Any, Any]) -> Any:
        fixed, each, longest = bound
        return sequences_that_fit(self.capacity, fixed, each, self.groups, longest)

    @property
    def _bounds(self) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
        """What is held before the first sequence, for each, and for the longest one: with a row of logits for each of few, and with all rows."""
        all_rows, lone = self.row * self.rows, self.longest + self.row
        return (self.fixed, self.each + self.row, lone), (self.fixed + all_rows, self.each, lone - all_rows)

    @property
    def sequences(self) -> Any:
        """The most sequences that fit; for caches whose size is known."""
        few, many = map(self._that_fit, self._bounds)
        return maximum(few, many)

    @property
    def counted(self) -> tuple[Any, Any]:
        """What is held before the first of the most sequences that fit, and for each of them."""
        return max(self._bounds, key=self._that_fit)[:2] if self.each > 0 else (self.fixed, self.each)

    @property
    def most(self) -> int | None:
        """The most sequences that fit one replica, as a whole number; None where the cache's size is not known, or nothing."""
        if self.fixed > self.capacity:
            return 0
        return int(self.sequences) if self.each > 0 else None

    def held(self, sequences: Any) -> tuple[Held, ...]:
        """What the device holds; adds up to ``used``."""
        own = self.sampled(sequences)
        lone = (self.longest + self.row - own) * minimum(sequences, 1)
        lines = (
            Held(WEIGHTS, self.weights),
            Held(ADAPTERS, self.adapters),
            Held(DRAFT, self.draft),
            Held(CONTEXT, self.context),
            Held(ACTIVATIONS, self.activations + own),
            Held(BUFFERS, self.buffers),
            Held(RESERVE, self.reserve),
            Held(CACHES, maximum(self.each * ceil(sequences / self.groups), lone)),
        )
        return tuple(line for line in lines if line.name == RESERVE or some(line.bytes > 0))


def replica_memory(
    replica: Replica, tokens: Any, draft: Replica | None = None, longest: Any = 0.0, head: float = 0.0
) -> DeviceMemory:
    """The device of a replica at first order: its memory, or a fraction of it, is for weights and caches of sequences of so
    many tokens, of which one gets ``longest`` in the end; ``head`` is the share that a head which drafts has of the model."""
    pieces = [replica] if draft is None else [replica, draft]
    each, whole = ((1 + head) * sum(piece.device_cache(1, length) for piece in pieces) for length in (tokens, longest))
    drafter = replica.device_weights * head if draft is None else draft.device_weights
    weights, groups, adapters = replica.device_weights, replica.attention_groups, replica.adapter_bytes
    room = {"reserve": replica.reserve, "draft": drafter, "longest": whole, "adapters": adapters}
    return DeviceMemory(replica.capacity, weights, each, groups, **room)


def engine_memory(
    step: EngineStep | Iterations,
    tokens: Any,
    draft: EngineStep | None = None,
    longest: Any = 0.0,
    head: float = 0.0,
    budget: Any = None,
    slots: Any = None,
) -> DeviceMemory:
    """The device of an engine's replica, whose sequences are of so many tokens, and of ``longest`` in the end; with a draft model's
    weights and caches, or a head's. A step has ``budget`` tokens, and a replica
    at most ``slots`` requests, or as many as the engine's default."""
    usable, share = step.usable_memory, step.engine.memory_utilisation
    capacity = step.memory
    weights, context, activations = step.device_weights, step.context_bytes, step.activation_bytes(budget)
    pieces = [step] if draft is None else [step, draft]
    each, whole = ((1 + head) * sum(piece.sequence_bytes(length) for piece in pieces) for length in (tokens, longest))
    drafter = weights * head
    if draft is not None:
        drafter, activations = draft.device_weights, maximum(activations, draft.activation_bytes(budget))
    buffers = step.slot_bytes(slots)
    reserve = capacity - share * usable
    if step.engine.memory_rule == "free":
        left = usable - weights - step.adapter_bytes - drafter - context - activations - buffers
        reserve = capacity - usable + (1 - share) * maximum(left, 0.0)
    held = context, activations, reserve, drafter, whole, step.adapter_bytes, *step.sampling, buffers
    return DeviceMemory(capacity, weights, each, step.deployment.attention_dp, *held)


def fullest(memories: Iterable[tuple[DeviceMemory, Any]]) -> tuple[DeviceMemory, Any]:
    """Of devices and their sequences the fuller: a pool that reads prompts beside one that writes answers."""
    return max(memories, key=lambda pair: pair[0].used(pair[1]) / pair[0].capacity)


def longest_context(memory: Callable[[int], DeviceMemory], most: int) -> int:
    """Tokens of the longest sequence that fits alone, up to ``most``; ``memory`` gives the device of sequences of a length."""
    if memory(most).fits(1):
        return most
    return bisect_left(range(1, most), True, key=lambda tokens: not memory(tokens).fits(1))


class Longest(NamedTuple):
    """The longest sequence that fits alone, no longer than the model's own context, and its cache on the fullest device."""

    longest_context: int
    context_of_the_model: int
    cache_of_a_token: Any
    cache_without_tokens: Any
    held_beside: Any


_MOST_TOKENS = 10**7
"""Longest context that is looked for where a model states none of its own."""


def longest_of(memory: Callable[[int], DeviceMemory], context: int | None) -> Longest | None:
    """That of a device whose ``memory`` is that of sequences of a length, of a model with that ``context``; None where sequences keep nothing."""
    memory, most = cache(memory), context or _MOST_TOKENS
    if not memory(most).each > 0:
        return None
    tokens = longest_context(memory, most)
    each, longer = memory(tokens).each, memory(tokens + 1)
    more = longer.each - each
    # A cache that grows no more at that length is all of it in proportion.
    more = more or each / tokens
    return Longest(tokens, most, more, max(round(each - more * tokens), 0), longer.used(1) - longer.each)


def wider_groups(model: Any, chip: Any, tp: int, ep: int) -> list[int]:
    """Tensor-parallel degrees beyond ``tp`` that divide the heads and that the chip's links reach."""
    heads = getattr(model, "heads", None) or 1
    reach = heads if chip.link is None else min(heads, chip.link.domain or heads)
    reach = tp if chip.alone else reach
    return [degree for degree in range(tp + 1, reach + 1) if heads % degree == 0 and ep == 1]


def larger(times: float) -> str:
    """What a chip that stands alone needs."""
    return f"use a smaller model or a chip with {times:.2g} times as much memory"


def remedies(
    memory: Callable[..., DeviceMemory],
    batch: int,
    degrees: Iterable[int],
    formats: Iterable[str],
    *,
    draft: bool = False,
    alone: bool = False,
) -> tuple[str, ...]:
    """The smallest changes that would make ``batch`` sequences fit, cheapest first.

    ``memory(**changes)`` is the device with other inputs (``draft``, ``cache_precision``, ``precision``, ``tp``);
    ``degrees`` are the wider groups that a replica may have, ``formats`` those that its chip stores weights in; one that is ``alone`` shares no model.
    """
    now = memory()
    found: list[str] = []
    if draft and memory(draft=None).fits(batch):
        found.append("serve without the draft model")
    if now.most:
        found.append(f"serve {now.most} sequence{'s' * (now.most > 1)} at once instead of {batch}")
    narrow = memory(cache_precision="fp8")
    if narrow.each < now.each and narrow.fits(batch):
        found.append(worded("keep the cache in fp8 (", Setting("cache_precision", "fp8"), ")"))
    for name in formats:
        stored = memory(precision=name)
        if stored.weights < now.weights and stored.fits(batch):
            found.append(f"store the weights in {name}")
            break
    wider = next((degree for degree in degrees if memory(tp=degree).fits(batch)), None)
    if wider is not None:
        found.append(worded(f"split it over {wider} devices (", Setting("tp_size", wider), ")"))
    if not found and alone:
        found.append(larger(now.used(batch) / now.capacity))
    elif not found:
        names = listed((Setting("tp_size"), Setting("pp_size")), ", ")
        found.append(worded("split it over more devices (", names, ")"))
    return tuple(found)
