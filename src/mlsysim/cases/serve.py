"""Serving as one case: prompts are read, answers written, and requests wait for each other; either fidelity, one number or arrays.

    prefill      ceil(new / chunk) passes over the prompt, of ``together`` prompts at once
    itl          mean over the answer of the time of a token, whose cache grows by one each time
    ttft         prefill + hand-over of the cache where others write the answer + waiting for a place
    tpot         itl + prefills of the other requests of the batch, spread over the answer
    e2e          ttft + (answer - 1) tpot
    requests a second = replicas x batch / (prefills of the batch + (answer - 1) x itl)          (apart: the slower of the two pools)

At first order a pass is the roofline of :mod:`mlsysim.cases.replica`; calibrated it is a step of an engine
(:mod:`mlsysim.timing.engine_step`), and clients that come again are those of :mod:`mlsysim.cases.closed_loop`. ``a`` names the
parts: on a tape ``e2e`` gives the ledger of a request, of which :func:`mlsysim.cases.request.of_phase` reads the first token and
the answer.

Numbers of the traffic, and of replicas at first order, may be arrays; then ``total`` says how sums over a growing context are
taken at many points at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.apart import fullest_port
from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.front_end import recalled
from mlsysim.cases.machines import Machine, Sum
from mlsysim.cases.phases import sum_over_steps
from mlsysim.cases.request import (
    AHEAD,
    ANSWER,
    BATCHING,
    COMMUNICATION,
    FIRST,
    HAND_OVER,
    OTHERS,
    PLACE,
    SERVING,
    value_of,
)
from mlsysim.cases.traffic import Traffic
from mlsysim.timing.tags import Tag
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import floor, maximum, minimum, some, where
from mlsysim.units.records import dataclass


@kernel("ttft: s [1e-3, 10], itl: s [1e-3, 1], output_tokens whole [1, 1e4] -> time: s")
def service_time(ttft: Any, itl: Any, output_tokens: Any) -> Any:
    """How long a request holds its slot: the prefill, which gives the first token, then a step for each further one."""
    return ttft + itl * (output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a batch: the prefill of the prompts that go together, its longest pass, the hand-over of their caches, a token."""

    prefill: Any
    longest_pass: Any
    transfer: Any
    itl: Any
    pace: Any = 1.0
    """Share of the prefill's time after which the next one may be through."""


@dataclass(frozen=True, slots=True)
class Served:
    """What requests see; seconds and requests a second over all replicas."""

    ttft: Any
    itl: Any
    tpot: Any
    e2e: Any
    stall: Any
    requests: Any
    active: Any
    bound: str | None = None
    saturated: Any = False
    most: Any = None
    middle: Any = None
    """Of the gaps between two tokens the one in the middle."""
    span: Any = None
    """Of a number of requests that come at a rate, seconds from the first to the last answer."""


def loads(machine: Machine, t: Traffic, memories: list[DeviceMemory] | None = None) -> list[tuple[DeviceMemory, Any]]:
    """The fullest devices, and the sequences that each holds: answers of a batch, and prompts where others read them."""
    found = machine.memories(t) if memories is None else memories
    return list(zip(found, (t.batch, machine.prompts(t)), strict=False))


def _writing(tag: Tag) -> Callable[[Machine, Traffic], Callable[[Any], Any]]:
    return lambda machine, traffic: machine.writing(traffic, tag)


def batch_times(machine: Machine, t: Traffic, a: Algebra = PLAIN, total: Sum = sum_over_steps) -> Times:
    """Times of a batch that nobody disturbs."""
    prefill, longest = _prefill(machine, t, a.under(FIRST), total)
    itl = total(_writing(a.under(ANSWER)), machine, t, t.prompt, t.answer) / t.answer
    transfer: Any = 0.0
    if machine.apart:
        size = machine.cache(t.prompt) * t.together
        handed = size if t.network is not None else fullest_port(machine.reader, machine.writer, t.prompt) * t.together
        moved = machine.writer.network.hand_over(handed, t.network)
        transfer = a.tag(HAND_OVER, COMMUNICATION, "fabric", "t = KV / W + a", moved, sent=size)
    return Times(prefill, longest, transfer, itl, machine.pace(t))


def _prefill(machine: Machine, t: Traffic, tag: Tag, total: Sum) -> tuple[Any, Any]:
    """Time of a prefill in passes of at most ``chunk`` tokens, and of its longest pass."""
    new = t.new
    cached = t.prompt - new
    if t.chunk is None:
        time = machine.reading(t, new, tag)(cached)
        return time, time
    tokens = minimum(t.chunk, new)
    whole = floor(new / tokens)
    rest = new - whole * tokens

    def full(m: Machine, u: Traffic) -> Callable[[Any], Any]:
        return m.reading(u, minimum(u.chunk, u.new), tag)

    time = total(full, machine, t, cached, whole, tokens)
    # A pass takes the longer the more it finds cached, so that the last whole one is the longest of them.
    longest = full(machine, t)(cached + (whole - 1) * tokens)
    left = rest > 0
    if some(left):
        last = where(left, machine.reading(t, maximum(rest, 1), tag)(cached + whole * tokens), 0.0)
        time, longest = time + last, maximum(longest, last)
    # A chunk enters a pipeline when the one before leaves its first stage: all of them, and the rest of the way of the longest.
    pace = machine.pace(t)
    return time * pace + longest * (1.0 - pace) if some(pace < 1) else time, longest


def serve(
    machine: Machine, t: Traffic, a: Algebra = PLAIN, total: Sum = sum_over_steps, times: Times | None = None
) -> Served:
    """What requests of an admitted traffic see; ``times`` where they are known already."""
    if t.concurrency is not None or t.rate is not None:
        looped = machine.clients(t, a, total)
        if looped is not None:
            loop, copies = looped
            stall = 0.0 if machine.apart else loop.prompt_step
            e2e = loop.ttft + (t.mean_answer - 1) * loop.tpot
            active, rate = loop.active * copies, loop.request_rate * copies
            seen = loop.ttft, loop.decode_step, loop.tpot, e2e, stall, rate, active, loop.bound, loop.saturated
            return Served(*seen, None if loop.most is None else loop.most * copies, loop.middle_step, loop.span)
    times = batch_times(machine, t, a, total) if times is None else times
    ttft, more = times.prefill + times.transfer + recalled(t, a), t.answer - 1
    itl, others = value_of(times.itl), 0.0
    if machine.apart:
        reading = t.prefills * t.together / maximum(value_of(times.prefill) * times.pace, value_of(times.transfer))
        requests = minimum(reading, t.replicas * t.batch / (t.answer * itl))
    else:
        # While a request is answered, the other prompts of its batch are read too.
        behind = (t.batch / t.together - 1) * times.pace
        others = a.loss(
            OTHERS if some(more > 0) else AHEAD, SERVING, "t = (B / b - 1) T_prefill", behind * times.prefill
        )
        service = service_time(value_of(ttft) + value_of(others), itl, t.answer)
        requests = t.active / service
    tpot = times.itl + others / maximum(more, 1)
    e2e = ttft + more * tpot
    if t.concurrency is not None:
        # Little's law: of one pool those wait whom it has no place for, of two those whom the slower has no time for.
        over = t.concurrency / (t.batch * t.replicas) - 1
        waits = t.concurrency / requests - value_of(e2e) if machine.apart else over * service
        place = a.loss(PLACE, BATCHING, "t = C / X - T", e2e * (maximum(waits, 0.0) / value_of(e2e)))
        place = place + others * maximum(1 - more, 0)  # where no token follows the first, all wait for all
        ttft, e2e = ttft + place, e2e + place
        requests = minimum(requests, t.concurrency / value_of(e2e)) if machine.apart else requests
    stall = 0.0 if machine.apart else times.longest_pass
    return Served(ttft, times.itl, tpot, e2e, value_of(stall), requests, t.active)
