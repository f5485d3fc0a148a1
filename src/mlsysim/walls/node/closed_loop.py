"""Calibrated fidelity of serving: clients in a closed loop, in closed form.

C clients send a prompt each, wait for the answer and send the next one, as serving benchmarks do. Prompts and answers have
lengths spread evenly between a fraction of the nominal length and all of it; means are I and O. N of the C requests are
being answered: as many as clients, caches, decode slots and the rate of reading prompts allow.

    time per token       T = (1 - f) t_d(N) + f t_m,    f = 1 - exp(-N g/O)      prompts join decode steps ("mixed")
                         T = t_d(N) + (1 - exp(-N g p/O)) t_p / p                 prompts run alone, every p steps
    first token          mean over rounds of: rest of the running step + own step + queue of prompts
                         + (C - N)/N O T waiting for a place + front end

t_d, t_m, t_p are steps of decode, of decode with prompts and of prompts alone (:mod:`mlsysim.walls.node.engine_step`), g the
tokens that a step gives a sequence (more than 1 with draft tokens). In the first round all prompts come at once; round r
of answers ends within a window of sqrt(r) times the spread of lengths (and of the burst's own duration), and its prompts
come that much closer together than on average. Benchmarks publish the mean over all rounds; ``ttft_steady`` is the last
round's.

Disaggregated: prompts queue for a pool of prefill workers, answers are written by a pool of decode workers with a limited
number of slots; the cache crosses the network in between.

Left out: the draining of the last round (TPOT 1 to 2 % low), preemption, prefix caching, router imbalance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mlsysim.walls.node.engine_step import EngineStep
from mlsysim.walls.node.engines import serving_table, table_bytes

__all__ = ["Clients", "Loop", "accepted_tokens", "closed_loop", "disaggregated_loop"]

_FIXED_POINT = 6


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients in a closed loop; ``rounds`` requests each, lengths between ``shortest`` times the nominal and all of it."""

    concurrency: float
    prompt: float
    answer: float
    shortest: float = 1.0
    rounds: int = 10

    @property
    def mean_prompt(self) -> float:
        return self.prompt * (1 + self.shortest) / 2

    @property
    def mean_answer(self) -> float:
        return max(self.answer * (1 + self.shortest) / 2, 1.0)


@dataclass(frozen=True, slots=True)
class Loop:
    """What clients see. Times in seconds; ``active`` requests are being answered, ``waiting`` ones have no place."""

    tpot: float
    ttft: float
    ttft_steady: float
    active: float
    waiting: float
    decode_step: float
    prompt_step: float
    output_rate: float
    request_rate: float
    bound: str


def accepted_tokens(drafted: int, acceptance: float) -> float:
    """Tokens that a step with ``drafted`` draft tokens gives on average, each accepted if those before it were."""
    return float(sum(acceptance**i for i in range(drafted + 1)))


def _draft_cost(drafted: int) -> float:
    table = serving_table("draft")
    return float(table["base"] + table["per_token"] * drafted) if drafted else 1.0


def closed_loop(
    step: EngineStep,
    clients: Clients,
    *,
    token_budget: float | None = None,
    poll_steps: float = 1.0,
    wait_steps: float = 0.0,
    drafted: int = 0,
    acceptance: float | None = None,
    slots: float | None = None,
    warm: bool = True,
) -> Loop:
    """Prompts and answers on the same devices."""
    engine = step.engine
    ranks = step.deployment.attention_dp
    acceptance = serving_table("draft")["acceptance"] if acceptance is None else acceptance
    gain = accepted_tokens(drafted, acceptance)
    prompt, answer = clients.mean_prompt, clients.mean_answer
    budget = float(token_budget or engine.token_budget)
    mixed = engine.policy == "mixed"
    poll = max(poll_steps, 1.0)

    limits = {"clients": clients.concurrency, "memory": max(float(step.capacity(prompt + answer)), 1.0)}
    if slots:
        limits["slots"] = float(slots)
    at_once = min(prompt, max(budget - (min(clients.concurrency / ranks, budget / 2) if mixed else 0.0), 16.0))
    chunks = prompt / at_once
    together = max(1.0, math.floor(budget / prompt)) if chunks <= 1 else 1.0
    if mixed:
        limits["prompts"] = max(ranks * answer * together / (gain * chunks), 1.0)
    bound = min(limits, key=lambda name: limits[name])
    active = min(limits.values())

    def decode(n: float) -> float:
        return float(step.time(n / ranks, prompt + answer / 2, drafted=drafted).total) * _draft_cost(drafted)

    def reading(count: float, n: float) -> float:
        """A step with ``count`` prompts (over all ranks), beside the decode of n sequences where they mix."""
        each = max(count / ranks, 1.0)
        beside = n / ranks if mixed else 0.0
        context, before = prompt + answer / 2, (prompt - at_once) / 2
        some = min(count / ranks, 1.0)
        return float(step.time(beside, context, each, at_once, before, drafted if beside else 0, some).total)

    full = together * ranks
    step_time = decode(active)
    per_step = active * gain / answer
    if engine.gather_steps and ranks > 1:
        poll = max(poll, min(engine.gather_steps, ranks / per_step))
    arrivals = per_step * poll
    none = math.exp(-arrivals)
    batch = min(arrivals / (1 - none), full)
    prompt_step = reading(batch, active)
    if mixed:
        share = min((1 - none) * chunks / poll, 1.0)
        cycle = step_time + share * (prompt_step - step_time)
    else:
        steps = max(1.0, arrivals / (1 - none) / full) * chunks
        cycle = step_time + (1 - none) / poll * steps * prompt_step
    # A request of the first round meets the prompts behind it, one of the last those before it: half of a round each.
    rounds = clients.rounds
    tpot = (step_time + (cycle - step_time) * (rounds - 0.5) / rounds) / gain

    lone = reading(1.0, active)
    service = reading(full, active) * chunks / full
    burst = reading(full, active / 2) * chunks / full
    length = answer * cycle / gain
    firsts = _rounds(
        clients,
        active,
        burst,
        full,
        service,
        lone * chunks,
        cycle if mixed else step_time,
        length,
        cycle / gain,
        lambda count: reading(count, active) * chunks,
    )
    idle = (poll - 1) / 2 * step_time + wait_steps * cycle
    place = max(clients.concurrency - active, 0.0) / active * length
    ttft = sum(firsts) / len(firsts) + idle + place + engine.front_end
    ttft += 0.0 if warm else engine.cold_start / rounds
    return _result(
        clients, tpot, ttft, firsts[-1] + idle + place + engine.front_end, active, step_time, prompt_step, bound
    )


def _rounds(
    clients: Clients,
    active: float,
    burst: float,
    full: float,
    service: float,
    lone: float,
    step_time: float,
    length: float,
    token_time: float,
    reading: Any,
) -> list[float]:
    """Mean time to the first token of each round, without front end and waiting for a place.

    ``burst`` and ``service`` are seconds per prompt when many wait (in the first round, later), ``full`` how many prompts
    go together, ``lone`` the time of a single one, ``length`` the time of an answer.
    """
    started = active * burst
    firsts = [started / 2 + min(full, active) * burst / 2 if active > full else float(reading(active))]
    spread = (1 - clients.shortest) * clients.answer * token_time
    for number in range(1, clients.rounds):
        window = min(math.sqrt(number * spread**2 + started**2), length)
        window = max(window, step_time)
        rate = active / window
        load = rate * service
        count = 1.0
        for _ in range(3):
            count = min(max(rate * float(reading(count)), 1.0), full)
        own = float(reading(count)) if count > 1.0 else lone
        busy = min(rate / count * own, 1.0)
        rest = (1 - busy) * step_time / 2 + busy * own / 2
        most = active * service / 2
        queue = max(active * service - window, 0.0) / 2
        random = min(own * min(load, 0.98) / (2 * (1 - min(load, 0.98))), most) if load < 1 else 0.0
        firsts.append(own + rest + min(queue + (random if count >= full else 0.0), most))
    return firsts


def _result(
    clients: Clients,
    tpot: float,
    ttft: float,
    steady: float,
    active: float,
    decode_step: float,
    prompt_step: float,
    bound: str,
) -> Loop:
    answer = clients.mean_answer
    rate = clients.concurrency / (ttft + (answer - 1) * tpot)
    waiting = max(clients.concurrency - active, 0.0)
    return Loop(tpot, ttft, steady, active, waiting, decode_step, prompt_step, rate * answer, rate, bound)


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


def disaggregated_loop(
    prefill: EngineStep,
    prefill_workers: int,
    decode: EngineStep,
    decode_workers: int,
    clients: Clients,
    *,
    slots: float | None = None,
    drafted: int = 0,
    acceptance: float | None = None,
    token_budget: float | None = None,
) -> Loop:
    """Prompts on one pool of devices, answers on another."""
    engine = decode.engine
    acceptance = serving_table("draft")["acceptance"] if acceptance is None else acceptance
    gain = accepted_tokens(drafted, acceptance)
    prompt, answer = clients.mean_prompt, clients.mean_answer
    groups = decode_workers * decode.deployment.attention_dp
    ranks = prefill.deployment.attention_dp
    budget = float(token_budget or engine.prefill_budget)
    together = max(1.0, budget / prompt)

    limits = {
        "clients": clients.concurrency,
        "memory": max(float(decode.capacity(prompt + answer)) * decode_workers, 1.0),
    }
    if slots:
        overflow = _overflow(clients.concurrency, slots, decode_workers) * serving_table("balance")["slots"]
        limits["slots"] = min(float(slots), max(clients.concurrency - overflow, 1.0))
    places = min(limits.values())
    bound = min(limits, key=lambda name: limits[name])

    def writing(n: float) -> float:
        each = max(n / groups, min(1.0, n))
        return float(decode.time(each, prompt + answer / 2, drafted=drafted).total) * _draft_cost(drafted)

    def reading(count: float) -> float:
        """A step of prefill workers with ``count`` prompts over all of them."""
        own = count / prefill_workers
        each = min(max(own / ranks, 1.0), together)
        return float(prefill.time(0.0, 0.0, each, prompt, reading_ranks=min(max(own, 1.0) / ranks, 1.0)).total)

    full = together * ranks * prefill_workers
    service = reading(full) / full
    devices = prefill.deployment.devices * prefill_workers + decode.deployment.devices * decode_workers
    hand_over = engine.hand_over if devices <= decode.kernels.domain else engine.hand_over_network
    move = float(prefill.sequence_bytes(prompt)) * prefill.deployment.tp / table_bytes("cache_transfer", "bandwidth")
    active = places
    first = reading(1.0)
    for _ in range(_FIXED_POINT):
        length = answer * writing(active) / gain
        if active / length > 1 / service:
            active = min(active, length / service)
            bound = "prompts"
        away = clients.concurrency * (first + move + hand_over) / (first + move + hand_over + length)
        active = 0.5 * active + 0.5 * min(places, max(clients.concurrency - away, 1.0), length / service)
    step_time = writing(active)
    length = answer * step_time / gain
    firsts = _rounds(
        clients,
        min(active + 1, clients.concurrency),
        service,
        full,
        service,
        first,
        0.0 * step_time,
        length,
        step_time / gain,
        reading,
    )
    waiting = max(clients.concurrency - active, 0.0)
    queued = max(waiting / active * length - sum(firsts) / len(firsts) - move, 0.0) if bound != "clients" else 0.0
    extra = queued + move + hand_over + engine.front_end + step_time
    ttft = sum(firsts) / len(firsts) + extra
    return _result(clients, step_time / gain, ttft, firsts[-1] + extra, active, step_time, first, bound)
