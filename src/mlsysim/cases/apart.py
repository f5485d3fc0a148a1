"""Calibrated fidelity of serving on two pools: prompts queue for prefill workers, answers are written by decode workers with a limited number of
slots, and the cache crosses the network in between.

    first token   a queue for the prefill pool + own step + hand-over + a first step of the decode pool (+ waiting for a place) + front end
    per token     a step of the decode pool, which no prompt disturbs
    hand-over     KV / W + t_0, and the rest of the step that the decode pool runs, half of one where it has requests

A cache goes over the ports of all devices that hold it at once, each its own part (all of a latent cache, which every device of a tensor-parallel
group keeps), over links where the pools share a domain. t_0 is what is left of it for an idle service: the request is passed on, blocks are found for it, and its
arrival is noticed. Splitwise (Patel et al. 2024, section VI) has 5 to 8 ms of it on H100 and A100. An idle service of two pools has so the first
token of one pool, the transfer, t_0 and a decode step; with W infinite the transfer is none. Left out: layers that are sent while later ones are
computed, and caches that share a port with others'.

A step of a prefill worker takes as long as its fullest attention rank (:func:`mlsysim.cases.fullest_rank.fullest`). Requests are dealt out to the
workers evenly (round robin, or to those with the fewest): one waits for a slot only where all are taken, N = min(C, S).
Of runs with a slot for each client those of four workers and four clients waited for none; at random, a third of the clients would have waited.

Clients come in rounds (:mod:`mlsysim.cases.closed_loop`), or requests at random at a rate: then the prefill pool is a queue of its own, N of the
decode pool follows from Little's law, and the slower of the two pools says which rate is too much.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.cache import engine_memory
from mlsysim.cases.closed_loop import (
    FIXED_POINT,
    READ_AGAIN,
    Loop,
    among,
    calm_of,
    crowd_of,
    in_flight,
    least,
    outgrown,
    result,
    rounds,
    window,
)
from mlsysim.cases.crowd import backlog, carried_of, endless
from mlsysim.cases.dealt import ALONE, Dealt
from mlsysim.cases.front_end import front_end
from mlsysim.cases.fullest_rank import fullest, fullest_at_random
from mlsysim.cases.passing import Passed, Server, passing, tabled
from mlsysim.cases.put_back import put_back
from mlsysim.cases.readers import Readers
from mlsysim.cases.request import (
    AGAIN,
    ANSWER,
    BATCHING,
    COMMUNICATION,
    FIRST,
    HAND_OVER,
    PLACE,
    RUNNING,
    SERVING,
    value_of,
)
from mlsysim.cases.sent import room_of
from mlsysim.cases.traffic import Traffic
from mlsysim.cases.turns import FEWEST, Stepping, Turns, accepted_tokens, draft_cost
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import exp, maximum, minimum, some, where


def fullest_port(reader: Any, writer: Any, tokens: Any) -> Any:
    """Bytes of a sequence's cache that the fullest port between two pools carries."""
    return maximum(reader.port_bytes(tokens), writer.port_bytes(tokens))


class _Pool(Readers):
    """A worker that only reads prompts, as many ``together`` as a step of one of its ranks takes."""

    def __init__(self, step: Stepping, t: Traffic, together: Any) -> None:
        self.step, self.t, self.h, self.together, self.prompt = step, t, t.habits, together, t.mean_new
        self.ranks, self.full = step.deployment.attention_dp, together * step.deployment.attention_dp
        random = step.engine.scatters
        self.dealt, self.lines = (fullest_at_random, self.ranks) if random else (fullest, 1.0)
        self.held = step.engine.steps_ahead if step.engine.overlaps_prompts else 0.0
        self.come = ALONE if t.rate is None else Dealt(t.prefills)

    def reading(self, count: Any, n: Any, tag: Tag = untagged) -> Any:
        each = self.dealt(count, self.ranks, self.together, self.h.cv)
        some = maximum(count, 1.0) / self.ranks / each
        before = self.t.mean_prompt - self.prompt
        return self.step.time(0.0, 0.0, each, self.prompt, before, reading_ranks=some, tag=tag).total


class _Apart:
    """Both pools under a traffic."""

    def __init__(self, prefill: Stepping, decode: Stepping, t: Traffic) -> None:
        engine = self.engine = decode.engine
        self.decode, self.t, self.h = decode, t, t.habits
        self.gain, self.answer = accepted_tokens(self.h.drafted, self.h.acceptance), t.mean_answer
        self.groups = t.replicas * decode.deployment.attention_dp
        budget = engine.prefill_budget if t.chunk is None else t.chunk
        self.readers = _Pool(prefill, t, maximum(1.0, budget / t.mean_new))
        self.service = value_of(self.readers.pace(0.0)) / t.prefills
        self.first = self.readers.reading(1.0, 0.0)
        devices = prefill.deployment.devices * t.prefills + decode.deployment.devices * t.replicas
        self.size = prefill.cache_bytes(t.mean_prompt)
        handed = self.size if t.network is not None else fullest_port(prefill, decode, t.mean_prompt)
        self.again: Any = 0.0
        self.move = decode.network.hand_over(handed, t.network, devices <= decode.network.domain)

    def places(self) -> dict[str, Any]:
        """What limits the requests of the decode pool, whatever clients do."""
        room = engine_memory(self.decode, self.t.kept(self.engine), slots=self.h.slots)
        found = {"memory": maximum(room.sequences * self.t.replicas, 1.0)}
        return found if self.h.slots is None else found | {"slots": self.h.slots * self.t.replicas * 1.0}

    def writing(self, n: Any, tag: Tag = untagged, context: Any = None) -> Any:
        """A step of the decode pool with n sequences in all, at least one of each group of attention that has any."""
        each, context = maximum(n / self.groups, minimum(1.0, n)), self.t.mean_context if context is None else context
        return self.decode.time(each, context, drafted=self.h.drafted, tag=tag).total * draft_cost(self.h)

    def passed(self, limits: dict[str, Any], places: float) -> Passed:
        """What a number of requests sees of both pools: those who read wait for room where the others write."""
        t, most = self.t, minimum(places, self.h.sent)
        young, old = (
            tabled(partial(self.writing, context=t.mean_prompt + written), most) for written in (0.0, t.mean_answer)
        )
        room = room_of(self.decode, t, limits["memory"])
        server = Server(
            lambda n, share, read, waits: young(n) + share * (old(n) - young(n)),
            self.answer / self.gain,
            *room,
            pace=self.service,
            slots=limits.get("slots", math.inf),
            cv=self.h.cv,
        )
        return passing(server, self.h.sent, t.rate)

    def length(self, n: Any) -> Any:
        """Seconds of an answer, with what is read again beside it."""
        return self.answer * self.writing(n) / self.gain + self.again

    def outgrows(self, limits: dict[str, Any], places: Any) -> Any:
        """Whether so many fill the caches, which are no longer than what is written."""
        return where(outgrown(limits, places, places), 0.0 if self.engine.reserves else 1.0, 0.0)

    def read_again(self, places: Any, waits: Any) -> Any:
        """Seconds of an answer in which workers read again what was put back, where others wait for such a share of the time."""
        each = places / self.t.replicas
        s = Turns(self.decode, replace(self.t, rate=None, concurrency=each), each)
        s.mixed = True
        prompt = (s.reading(s.full, each) - s.decode(each)) / s.full
        return each * (s.put_back(each, waits).reads - 1) * prompt

    def written(self, limits: dict[str, Any], places: Any) -> tuple[Any, Any]:
        """Answers a second of a decode pool that is full, and at most."""
        outgrows = self.outgrows(limits, places)
        calm = self.t.replicas * calm_of(places / self.t.replicas, outgrows, self.t)
        full = places / (self.length(places) + self.read_again(places, outgrows))
        return full, maximum(full, calm / self.length(calm))

    def after(self, n: Any, a: Algebra) -> Any:
        """What follows the prefill until the first token is with the client."""
        moved = a.tag(HAND_OVER, COMMUNICATION, "fabric", "t = KV / W", self.move, sent=self.size)
        handed = a.tag(HAND_OVER, COMMUNICATION, "host", "t = t_0", self.engine.hand_over)
        step = self.writing(maximum(n, 1.0), a.under(FIRST))
        rest = a.loss(RUNNING, SERVING, "t = (1 - e^-N) t_d/2", step * ((1 - exp(-n / self.groups)) / 2))
        return moved + handed + front_end(self.engine, self.t, a) + step + rest


def rates_apart(prefill: Stepping, decode: Stepping, t: Traffic) -> tuple[Any, Any]:
    """Requests a second that each pool does by itself while all of its workers are busy: those of the loops below where it is the slower.
    As many clients as have places fill them, which chance does not do beyond."""
    both = _Apart(prefill, decode, t)
    limits = both.places()
    places = least(limits)[0]
    written = both.written(limits, places)[1]
    if t.concurrency is not None:
        written = where(t.concurrency <= places, places / both.length(places), written)
    return 1 / both.service, written


def _passed(steps: tuple[Stepping, ...], t: Traffic, limits: dict[str, Any], places: Any) -> Passed:
    prefill, decode = steps
    return _Apart(prefill, decode, t).passed(limits, places)


def disaggregated_loop(prefill: Stepping, decode: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Clients of all workers in a closed loop."""
    both, limits = _Apart(prefill, decode, t), {"clients": t.concurrency}
    limits |= both.places()
    places, bound = least(limits)
    service, before = both.service, both.first + both.move + both.engine.hand_over
    fills = both.outgrows(limits, places) * (places < t.concurrency)
    wanted = maximum(t.concurrency - places, 0.0) * t.mean_context / t.mean_answer
    both.again = both.read_again(places, fills * minimum(wanted, 1.0)) if some(fills > 0) else 0.0
    active, slow = places, False
    for _ in range(FIXED_POINT):
        length = both.length(active)
        behind = active / length > 1 / service
        slow = slow | behind
        active = where(behind, minimum(active, length / service), active)
        written = t.concurrency * length / (before + length)
        left = minimum(maximum(written, 1.0), length / service)
        active = 0.5 * active + 0.5 * minimum(places, left)
    step_time = both.writing(active, a.under(ANSWER))
    length = both.answer * step_time / both.gain
    others = minimum(active, t.concurrency - 1)
    own = others / t.prefills
    span = value_of(length) + both.again

    def later(number: int) -> Any:
        wide = window(t, number, span, (others + 1) * service, service)
        waiting = maximum((others + 1) * service - wide, 0.0) / 2
        return both.readers.first(own / wide, 0.0, 0.0 * step_time, a, waiting, own)

    mean, last = rounds(both.readers, t, own + 1 / t.prefills, a, later)
    limited = slow | (places < t.concurrency)
    if bound is not None and some(slow):
        bound = "prompts"
    # Little's law: those of C who do not write wait, for their prompt or for a place. In the first round, of C at once, N find a place and
    # the others wait until answers end, while prompts are read: once those of C <= 2 N, (C/N - 1)/2 times in the mean beyond. No rounds are
    # answered faster than the pools can.
    waits = maximum(t.concurrency - active, 0.0) / active * span - both.move
    later_on, least_of_all = (where(limited, maximum(waits - value_of(read), 0.0), 0.0) for read in (last, mean))
    turns = maximum(t.concurrency / places, 1.0)
    at_first = maximum(span - places * service, 0.0) * (turns - 1) / minimum(turns, 2.0)
    ahead = maximum(later_on + (at_first - later_on) / both.h.rounds, least_of_all)
    tpot, further = step_time / both.gain, maximum(both.answer - 1, FEWEST)
    if some(fills > 0):
        # What is read again takes steps of those who write; what was put back waits as those do who have no place yet.
        passing = partial(put_back, _passed, (prefill, decode))
        own, token = value_of(step_time), span / both.answer
        back = minimum(further * token * (passing(t, limits, places, fills > 0, own) - 1), ahead)
        tpot = a.grown(AGAIN, BATCHING, READ_AGAIN, tpot, tpot * ((token + back / further) * both.gain / own))
        ahead = ahead - back
    extra = both.after(active, a) + a.loss(PLACE, BATCHING, "t = (C - N)/N O T", length * (ahead / value_of(length)))
    seen = mean + extra, last + extra
    return result(t, tpot, *seen, active, step_time, both.first, step_time, bound)


def disaggregated_arrivals(prefill: Stepping, decode: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Requests of all workers that come at random at ``t.rate``."""
    both = _Apart(prefill, decode, t)
    limits = both.places()
    places, bound = least(limits)

    def seen(n: Any) -> Any:
        """Those that a request finds, and itself, in its group."""
        return minimum(both.groups * (1 + Dealt(both.groups).others(n / both.groups)), places)

    def answered(n: Any) -> Any:
        return n / both.length(seen(n))

    full, highest = both.written(limits, places)
    (n, fastest), passed = in_flight(answered, t.rate, places, highest), None
    if t.habits.sent is not None:
        passed = both.passed(limits, places)
        n = among(answered, passed.step * both.answer / both.gain, places)
    readable = 1 / both.service
    full = minimum(full, readable)
    if bound is not None and readable < fastest:
        bound = "prompts"
    fastest = minimum(fastest, readable)
    step_time = both.writing(seen(n), a.under(ANSWER))
    carried = carried_of(t, fastest)
    ttft = both.readers.first(carried / t.prefills, 0.0, 0.0 * step_time, a, 0.0) + both.after(n, a)
    length = both.answer * step_time / both.gain
    crowd = crowd_of(limits, places, t, both.engine.reserves, both.writing, 0.0)
    place = crowd.waiting(crowd.waits(n), carried, fastest, length, a)
    if passed is not None:
        place = place + backlog(maximum(passed.wait - value_of(place), 0.0), length, a)
    ttft = ttft + place
    steps = value_of(step_time), both.first, value_of(step_time)
    rates = where(t.rate < fastest, t.rate, full), bound, endless(t, fastest), fastest
    span = None if passed is None else passed.span + value_of(ttft) - value_of(place) - value_of(step_time)
    return Loop(step_time / both.gain, ttft, ttft, n, *steps, *rates, span)
