"""Calibrated fidelity of serving: clients in a closed loop, in closed form.

C clients send a prompt each, wait for the answer and send the next one, as serving benchmarks do. Prompts and answers have
lengths spread evenly between a fraction of the nominal length and all of it; means are I and O. N of the C requests are
being answered: as many as clients, caches, decode slots and the rate of reading prompts allow.

    time per token       T = (1 - f) t_d(N) + f t_m,    f = 1 - exp(-N g/O)      prompts join decode steps ("mixed")
                         T = t_d(N) + (1 - exp(-N g p/O)) t_p / p                 prompts run alone, every p steps
    first token          mean over rounds of: rest of the running step + own step + queue of prompts
                         + (C - N)/N O T waiting for a place + front end

t_d, t_m, t_p are steps of decode, of decode with prompts and of prompts alone (:mod:`mlsysim.timing.engine_step`), g the
tokens that a step gives a sequence (more than 1 with draft tokens). In the first round all prompts come at once; round r
of answers ends within a window of sqrt(r) times the spread of lengths (and of the burst's own duration), and its prompts
come that much closer together than on average. Benchmarks publish the mean over all rounds; ``ttft_steady`` is the last
round's. Requests that come at random (``random``) have no rounds: they come spread over the time of an answer, as many as the
clients would send. One round (``rounds=1``) is a batch that begins together.

Disaggregated: prompts queue for a pool of prefill workers, answers are written by a pool of decode workers with a limited
number of slots; the cache crosses the network in between.

Left out: the draining of the last round (TPOT 1 to 2 % low), preemption, prefix caching, router imbalance.

Concurrency, lengths and numbers of workers may be arrays, one value for each of many loops on the same deployment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.cache import engine_memory
from mlsysim.cases.iterations import Iterations
from mlsysim.cases.phases import speculative_tokens
from mlsysim.cases.request import (
    ANSWER,
    BATCHING,
    COLD_START,
    COMMUNICATION,
    FIRST,
    FRONT_END,
    HAND_OVER,
    OTHERS,
    PLACE,
    QUEUE,
    RUNNING,
    SERVING,
    SOFTWARE,
    TAIL,
    value_of,
)
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.timing.engine_step import EngineStep
from mlsysim.timing.engines import serving_table
from mlsysim.timing.operator_times import Tag, untagged
from mlsysim.units.ops import exp, floor, maximum, minimum, sqrt, where

_FIXED_POINT = 12
_REST, _QUEUED = "t = (1 - b) t_d/2 + b t_p/2", "t = N_before t_p"


@dataclass(frozen=True, slots=True)
class Loop:
    """What clients see. Times in seconds; ``active`` requests are being answered.

    ``bound`` names what limits the active requests; None for many loops at once.
    """

    tpot: Any
    ttft: Any
    ttft_steady: Any
    active: Any
    decode_step: Any
    prompt_step: Any
    request_rate: Any
    bound: str | None


Stepping = EngineStep | Iterations


def accepted_tokens(drafted: Any, acceptance: Any = None) -> Any:
    """Tokens that a step with ``drafted`` draft tokens gives on average, each accepted if those before it were."""
    return speculative_tokens(serving_table("draft")["acceptance"] if acceptance is None else acceptance, drafted)


def draft_cost(h: Habits) -> float:
    """Factor on a step in which the model's own heads draft tokens; a draft model has its own time."""
    table = serving_table("draft")
    return float(table["base"] + table["per_token"] * h.drafted) if h.own_heads and h.drafted else 1.0


def closed_loop(step: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Prompts and answers on the same devices: the clients of one replica."""
    engine, h = step.engine, t.habits
    ranks, drafted = step.deployment.attention_dp, h.drafted
    gain = accepted_tokens(drafted, h.acceptance)
    prompt, answer = t.mean_prompt, t.mean_answer
    budget = engine.token_budget if t.chunk is None else t.chunk
    mixed = engine.policy == "mixed"
    poll: Any = max(h.poll_steps, 1.0)

    limits = {"clients": t.concurrency, "memory": maximum(engine_memory(step, prompt + answer).sequences, 1.0)}
    if h.slots:
        limits["slots"] = float(h.slots)
    at_once = minimum(prompt, maximum(budget - (minimum(t.concurrency / ranks, budget / 2) if mixed else 0.0), 16.0))
    chunks = prompt / at_once
    together = where(chunks <= 1, maximum(1.0, floor(budget / prompt)), 1.0)
    if mixed:
        limits["prompts"] = maximum(ranks * answer * together / (gain * chunks), 1.0)
    active, bound = _least(limits)

    written, read = a.under(ANSWER), a.under(FIRST)

    def decode(n: Any, tag: Tag) -> Any:
        return step.time(n / ranks, prompt + answer / 2, drafted=drafted, tag=tag).total * draft_cost(h)

    def reading(count: Any, n: Any, tag: Tag) -> Any:
        """A step with ``count`` prompts (over all ranks), beside the decode of n sequences where they mix."""
        each = maximum(count / ranks, 1.0)
        beside = n / ranks if mixed else 0.0
        context, before = prompt + answer / 2, (prompt - at_once) / 2
        some = minimum(count / ranks, 1.0)
        return step.time(beside, context, each, at_once, before, drafted if mixed else 0, some, tag).total

    full = together * ranks
    step_time = decode(active, written)
    per_step = active * gain / answer
    if engine.gather_steps and ranks > 1:
        poll = maximum(poll, minimum(engine.gather_steps, ranks / per_step))
    arrivals = per_step * poll
    none = exp(-arrivals)
    batch = minimum(arrivals / (1 - none), full)
    prompt_step = reading(batch, active, written)
    if mixed:
        share = minimum((1 - none) * chunks / poll, 1.0)
        cycle = step_time + share * (prompt_step - step_time)
    else:
        steps = maximum(1.0, arrivals / (1 - none) / full) * chunks
        cycle = step_time + (1 - none) / poll * steps * prompt_step
    # A request of the first round meets the prompts behind it, one of the last those before it: half of a round each.
    met = 1.0 if h.random else (h.rounds - 0.5) / h.rounds
    disturbed = step_time + (cycle - step_time) * met
    tpot = a.grown(OTHERS, SERVING, "t = f (t_m - t_d)", step_time, disturbed) / gain

    length = answer * cycle / gain
    firsts = _rounds(
        t,
        active,
        reading(full, active / 2, read) * (chunks / full),
        full,
        reading(full, active, read) * (chunks / full),
        cycle if mixed else step_time,
        length,
        cycle / gain,
        lambda count, tag: reading(count, active, tag) * chunks,
        a,
    )
    idle = a.loss(RUNNING, SERVING, _REST, (poll - 1) / 2 * step_time + h.wait_steps * cycle)
    place = a.loss(PLACE, BATCHING, "t = (C - N)/N O T", maximum(t.concurrency - active, 0.0) / active * length)
    front = a.tag(FRONT_END, SOFTWARE, "host", "t = t_front", engine.front_end if h.server else 0.0)
    ttft = sum(firsts) / len(firsts) + idle + place + front
    if not h.warm:
        ttft = ttft + a.tag(COLD_START, SOFTWARE, "host", "t = t_cold / rounds", engine.cold_start / h.rounds)
    return _result(t, tpot, ttft, firsts[-1] + idle + place + front, active, step_time, prompt_step, bound)


def _least(limits: dict[str, Any]) -> tuple[Any, str | None]:
    """The smallest of the limits, and its name where there is one loop."""
    least: Any = math.inf
    for limit in limits.values():
        least = minimum(least, limit)
    alone = all(isinstance(limit, (int, float)) for limit in limits.values())
    return least, min(limits, key=lambda name: limits[name]) if alone else None


def _rounds(
    t: Traffic,
    active: Any,
    burst: Any,
    full: Any,
    service: Any,
    step_time: Any,
    length: Any,
    token_time: Any,
    reading: Callable[[Any, Tag], Any],
    a: Algebra,
) -> list[Any]:
    """Mean time to the first token of each round, without front end and waiting for a place.

    ``burst`` and ``service`` are seconds per prompt when many wait (in the first round, later), ``full`` how many prompts
    go together, ``length`` the time of an answer. Loads and windows are numbers: what a queue waits for is so many times the
    service.
    """
    read, h = a.under(FIRST), t.habits
    lone = reading(1.0, read)
    queued = full * burst + a.loss(QUEUE, TAIL, _QUEUED, maximum(active - full, 0.0) * burst / 2)
    firsts = [] if h.random else [where(active > full, queued, reading(minimum(active, full), read))]
    each, turn = value_of(service), value_of(step_time)
    spread = (1 - h.shortest) * t.answer * value_of(token_time)
    # Answers of one length keep the rounds as far apart as the first: all later ones are alike.
    different = 2 if h.random else h.rounds if h.shortest < 1 else min(h.rounds, 2)
    for number in range(1, different):
        window = value_of(length)
        if not h.random:
            window = minimum(sqrt(number * spread**2 + (active * value_of(burst)) ** 2), window)
        window = maximum(window, turn)
        rate = active / window
        load = rate * each
        count: Any = 1.0
        for _ in range(3):
            count = minimum(maximum(rate * reading(count, untagged), 1.0), full)
        own = where(count > 1.0, reading(count, read), lone)
        step = value_of(own)
        busy = minimum(rate / count * step, 1.0)
        rest = (1 - busy) * step_time / 2 + busy * own / 2
        most = active * each / 2
        queue = maximum(active * each - window, 0.0) / 2
        near = minimum(load, 0.98)
        random = where(load < 1, minimum(step * near / (2 * (1 - near)), most), 0.0)
        waited = minimum(queue + where(count >= full, random, 0.0), most)
        behind = a.loss(QUEUE, TAIL, _QUEUED, service * (waited / each))
        firsts.append(own + a.loss(RUNNING, SERVING, _REST, rest) + behind)
    return firsts if h.random else firsts + firsts[-1:] * (h.rounds - different)


def _result(
    t: Traffic,
    tpot: Any,
    ttft: Any,
    steady: Any,
    active: Any,
    decode_step: Any,
    prompt_step: Any,
    bound: str | None,
) -> Loop:
    rate = t.concurrency / value_of(ttft + (t.mean_answer - 1) * tpot)
    return Loop(tpot, ttft, steady, active, value_of(decode_step), value_of(prompt_step), rate, bound)


def _overflow(requests: float, slots: float, workers: int) -> float:
    """Requests that find all slots of their worker taken, when they are dealt out at random: of all the workers."""
    if workers < 2:
        return max(requests - slots, 0.0)
    mean, room = requests / workers, slots / workers
    total, weight = 0.0, math.exp(-mean) if mean < 600 else 0.0
    if not weight or room > 200:
        deviation = math.sqrt(mean)
        z = (room - mean) / deviation
        tail = math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * 0.5 * math.erfc(z / math.sqrt(2))
        return workers * deviation * max(tail, 0.0)
    for count in range(int(room) + 1):
        total += max(room - count, 0.0) * weight
        weight *= mean / (count + 1)
    return workers * max(mean - room + total, 0.0)


def disaggregated_loop(prefill: Stepping, decode: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Prompts on one pool of devices, answers on another; caches cross the network at its rate, or at the engine's."""
    prefill_workers, decode_workers = t.prefills, t.replicas
    engine, h = decode.engine, t.habits
    drafted, gain = h.drafted, accepted_tokens(h.drafted, h.acceptance)
    prompt, answer = t.mean_prompt, t.mean_answer
    groups = decode_workers * decode.deployment.attention_dp
    ranks = prefill.deployment.attention_dp
    budget = engine.prefill_budget if t.chunk is None else t.chunk
    together = maximum(1.0, budget / prompt)

    limits = {
        "clients": t.concurrency,
        "memory": maximum(engine_memory(decode, prompt + answer).sequences * decode_workers, 1.0),
    }
    if h.slots:
        slots = h.slots * decode_workers
        overflow = _overflow(t.concurrency, slots, decode_workers) * serving_table("balance")["slots"]
        limits["slots"] = min(float(slots), max(t.concurrency - overflow, 1.0))
    places, bound = _least(limits)

    def writing(n: Any, tag: Tag = untagged) -> Any:
        each = maximum(n / groups, minimum(1.0, n))
        return decode.time(each, prompt + answer / 2, drafted=drafted, tag=tag).total * draft_cost(h)

    def reading(count: Any, tag: Tag = untagged) -> Any:
        """A step of prefill workers with ``count`` prompts over all of them."""
        own = count / prefill_workers
        each = minimum(maximum(own / ranks, 1.0), together)
        some = minimum(maximum(own, 1.0) / ranks, 1.0)
        return prefill.time(0.0, 0.0, each, prompt, reading_ranks=some, tag=tag).total

    full = together * ranks * prefill_workers
    service = reading(full) / full
    devices = prefill.deployment.devices * prefill_workers + decode.deployment.devices * decode_workers
    hand_over = where(devices <= decode.network.domain, engine.hand_over, engine.hand_over_network)
    size = prefill.cache_bytes(prompt)
    move = decode.network.hand_over(size, t.network)
    active = places
    first = reading(1.0)
    slow: Any = False
    for _ in range(_FIXED_POINT):
        length = answer * writing(active) / gain
        behind = active / length > 1 / service
        slow = slow | behind
        active = where(behind, minimum(active, length / service), active)
        away = t.concurrency * (first + move + hand_over) / (first + move + hand_over + length)
        left = minimum(maximum(t.concurrency - away, 1.0), length / service)
        active = 0.5 * active + 0.5 * minimum(places, left)
    read = a.under(FIRST)
    step_time = writing(active, a.under(ANSWER))
    length = answer * step_time / gain
    pace = reading(full, read) / full
    firsts = _rounds(
        t,
        minimum(active + 1, t.concurrency),
        pace,
        full,
        pace,
        0.0 * step_time,
        length,
        step_time / gain,
        reading,
        a,
    )
    limited = slow | (places < t.concurrency)
    if bound is not None and slow:
        bound = "prompts"
    waiting = maximum(t.concurrency - active, 0.0)
    mean = sum(firsts) / len(firsts)
    span = value_of(length)
    ahead = where(limited, maximum(waiting / active * span - value_of(mean) - move, 0.0), 0.0)
    extra = (
        a.loss(PLACE, BATCHING, "t = (C - N)/N O T", length * (ahead / span))
        + a.tag(HAND_OVER, COMMUNICATION, "fabric", "t = KV / W", move, sent=size)
        + a.tag(HAND_OVER, COMMUNICATION, "host", "t = t_hand", hand_over)
        + a.tag(FRONT_END, SOFTWARE, "host", "t = t_front", engine.front_end if h.server else 0.0)
        + writing(active, read)
    )
    return _result(t, step_time / gain, mean + extra, firsts[-1] + extra, active, step_time, reading(1.0), bound)
