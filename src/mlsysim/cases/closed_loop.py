"""Calibrated fidelity of serving: clients of an engine, in closed form. What loops and open arrivals share is in :mod:`mlsysim.cases.turns`.

C clients send a prompt each, wait for the answer and send the next one, as serving benchmarks do. Prompts and answers have
lengths spread evenly between a fraction of the nominal length and all of it; means are I and O. N of the C requests are
being answered: as many as clients, caches, decode slots and the rate of reading prompts allow. A request meets the other N - 1
(the arrival theorem of closed queueing networks, Reiser and Lavenberg 1980): alone it meets nobody.

    time per token       T = (1 - f) t_d(N) + f t_m                  prompts join decode steps ("mixed")
                         T = t_d(N) + (1 - e^-l) t_p / p             prompts run alone, every p steps
    first token          mean over rounds of: rest of the running step + own step + queue of prompts
                         + (C - N)/N O T waiting for a place + front end

t_d, t_m, t_p are steps of decode, of decode with prompts and of prompts alone (:mod:`mlsysim.timing.engine_step`), g the
tokens that a step gives a sequence (more than 1 with draft tokens). In the first round all prompts come at once; round r
of answers ends within a window of sqrt(r) times the spread of lengths (and of the burst's own duration), and its prompts
come that much closer together than on average. Benchmarks publish the mean over all rounds; ``ttft_steady`` is the last
round's. One round (``rounds=1``) is a batch that begins together; of more than there is room for, those that wait do so for half of the
time that it takes. Answers of one length stay a wave.

``open_loop``: requests come at random (Poisson) at a rate that does not wait for answers. N follows from Little's law,
N = rate O T(N + 1)/g: an arrival sees the mean (PASTA) and its answer is one more. Beside its answer are read the prompts that come meanwhile, and those that came
while its own was read: an answer begins where prompts are read and ends in steps, of which few read. Where caches or slots bind, requests wait for a place
(:mod:`mlsysim.cases.crowd`). A rate that no N answers has no steady state: the loop is ``saturated``, and ``request_rate`` the rate at which the
server is full. A number of requests that are sent in all fill the server and leave it (:mod:`mlsysim.cases.passing`).

Pools of their own for prompts and answers are in :mod:`mlsysim.cases.apart`.

Where requests wait for room in the caches, those that were let in last are put back and read again (:mod:`mlsysim.cases.turns`).

Left out: the draining of the last round (TPOT 1 to 2 % low), what pools that only write answers read again, router imbalance.

Concurrency, lengths and numbers of workers may be arrays, one value for each of many loops on the same deployment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from mlsysim.cases.algebra import PLAIN, Algebra
from mlsysim.cases.cache import engine_memory
from mlsysim.cases.crowd import ALMOST, Crowd, backlog, carried_of, endless, met_by
from mlsysim.cases.dealt import ALONE
from mlsysim.cases.front_end import cold_start, front_end
from mlsysim.cases.put_back import AT_ONCE, in_waves, put_back
from mlsysim.cases.readers import QUEUED, REST, Readers
from mlsysim.cases.request import (
    AGAIN,
    ANSWER,
    BATCHING,
    FIRST,
    OTHERS,
    PLACE,
    QUEUE,
    RUNNING,
    SERVING,
    TAIL,
    value_of,
)
from mlsysim.cases.sent import passed_by, waves_of
from mlsysim.cases.traffic import CLIENT_ROUNDS, Traffic
from mlsysim.cases.turns import FEWEST, Stepping, Turns
from mlsysim.units.ops import exp, log, maximum, minimum, some, sqrt, where
from mlsysim.units.records import dataclass

FIXED_POINT, _TRIES, _SOON, _EXACT, _CLOSE, _HALVINGS, _SURE = 12, 10, 5, 1e-10, 1e-6, 24, 3.0
_PLACE, _OTHERS, READ_AGAIN = "t = (C - N)/N O T", "t = f (t_m - t_d)", "t = f O/(I + O) (t_m - t_d)"


@dataclass(frozen=True, slots=True)
class Loop:
    """What clients see. Times in seconds; ``active`` requests are being answered.

    ``bound`` names what limits the active requests; None for many loops at once. ``saturated``: more requests come than are answered, so
    that there is no steady state; ``request_rate`` is then the most that are answered, and ``ttft`` what there is of it without the queue that grows.
    """

    tpot: Any
    ttft: Any
    ttft_steady: Any
    active: Any
    decode_step: Any
    prompt_step: Any
    middle_step: Any
    request_rate: Any
    bound: str | None
    saturated: Any = False
    most: Any = None
    """Requests a second that are answered as they come, at most; more where they are than ``request_rate`` of full caches."""
    span: Any = None
    """Of a number of requests that come at a rate, seconds from the first to the last answer."""


def _room(step: Stepping, t: Traffic) -> Any:
    """The most requests that the caches of a replica hold."""
    return engine_memory(step, t.kept(step.engine), budget=t.chunk, slots=t.habits.slots).sequences


def _places(sequences: Any, t: Traffic) -> dict[str, Any]:
    """What limits the requests of a replica, whatever clients do: caches and slots."""
    limits = {"memory": maximum(sequences, 1.0)}
    return limits if t.habits.slots is None else limits | {"slots": t.habits.slots * 1.0}


def closed_loop(step: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Prompts and answers on the same devices: the clients of one replica."""
    h, room = t.habits, _room(step, t)
    limits = _places(room, t)
    # Answers of one length go on side by side, and are at their longest together.
    whole = (t.mean_prompt + t.mean_answer) / t.kept(step.engine)
    together = minimum(t.concurrency, limits.get("slots", math.inf)) * whole
    waves: Any = False
    if not step.engine.reserves and not h.cv:
        # What holds no request at all answers none.
        waves = (together > limits["memory"]) & (room >= 1)
    places, bound = least({"clients": t.concurrency, **limits})
    if h.rounds == 1 and places < t.concurrency and not step.engine.reserves:
        # A batch that outgrows its room: all come at once.
        batch = replace(h, sent=t.concurrency, rounds=CLIENT_ROUNDS)
        seen = open_loop(step, replace(t, concurrency=None, rate=AT_ONCE, habits=batch), a)
        cold = cold_start(step, t, a)
        return replace(seen, ttft=seen.ttft + cold, request_rate=t.concurrency / (seen.span + value_of(cold)))
    s = Turns(step, t, places)
    s.together = h.cv == 0 and h.rounds > 1 and (s.mixed or s.ranks > 1)
    active = minimum(places, s.most_written) if s.mixed else places
    if bound is not None and some(active < places):
        bound = "prompts"
    fills: Any = False
    if not step.engine.reserves:
        # Room that those who wait want, over what grows until the next answer ends.
        wanted = maximum(t.concurrency - places, 0.0) * t.mean_context / t.mean_answer
        fills = where(waves, False, outgrown(limits, places, active) & (places < t.concurrency))
        s.put_back(active, where(fills, minimum(wanted, 1.0), 0.0))
    # Those whose prompts a request meets: the others, as many as can be read; next to none for a client alone.
    others = maximum(minimum(places - 1, s.most_written) if s.mixed else places - 1, FEWEST)
    turn = s.cycle(maximum(active, 1.0), others, a.under(ANSWER))
    # A request of the first round meets the prompts behind it, one of the last those before it: half of a round each. Those that are read in
    # the step of its own disturb it not: of a round that comes within w steps one in w, and none where rounds follow each other without a pause;
    # where prompts run alone, those of its round that are read after its own do.
    beside = maximum(1 / window(t, 1, s.steps, _burst(s, active), 1.0) - 1 / s.steps, 0.0)
    beside = beside if s.mixed else beside * (1 + 1 / maximum(active / s.full, 1.0)) / 2
    begun, passed = (1 - 0.5 / each for each in (h.rounds, h.rounds * maximum(t.concurrency / active, 1.0)))
    # Those that always come with it are read in its own step.
    more = (turn.mean - turn.alone) * (1 - beside) * maximum((others + 1 - s.own_group(others + 1)) / others, 0.0)
    tpot = _lengthened(s, turn.alone, turn.alone + more * passed, a) / s.gain
    length = s.steps * turn.mean
    mean, last = rounds(s, t, active, a, lambda number: _joining(s, t, active, others, number, turn.alone, a))
    idle = a.loss(RUNNING, SERVING, REST, s.missed(turn) * minimum(others, 1.0))
    # Prompts that cannot be read as fast as answers end wait for that; caches and slots are waited for before.
    span = value_of(length)
    own = where(places > active, 1 / s.steps, 0.0)
    later = value_of(last) * (h.rounds - 1) / h.rounds / span
    waits, unread = maximum(t.concurrency - places, 0.0) / active, (places - active) / active + own - later
    # Those who find no place in the first round wait for half as long as all do later.
    half = where(unread > 0, (1 - begun) * (places - active) / active, 0.0)
    unread = maximum(unread - half, 0.0)
    # What is put back waits for a place as those do who have none yet.
    further = (t.mean_answer - 1) * value_of(tpot)
    passing = partial(put_back, lambda steps, *asked: passed_by(*steps, *asked), (step,))
    longer = passing(t, limits, places, fills, value_of(tpot) * s.gain)
    back = minimum(further * (longer - 1), span * begun * waits)
    # Where all of them are at their longest together has more than there is room for.
    longest, slower = in_waves(waves_of, step, t, limits, waves)
    place = a.loss(PLACE, BATCHING, _PLACE, length * maximum(begun * waits + (longest - back) / span, 0.0))
    if some(back > 0):
        tpot = a.grown(AGAIN, BATCHING, READ_AGAIN, tpot, tpot * (1 + back / maximum(further, FEWEST)))
    if some(waves):
        tpot = a.grown(AGAIN, BATCHING, READ_AGAIN, tpot, tpot * slower)
    front = front_end(step.engine, t, a)
    # What a round takes is that of clients who wait, and whose last answers meet no prompts behind them.
    further = (t.mean_answer - 1) * value_of(tpot)
    ended = (t.mean_answer - 1) * value_of(more) * (passed - begun) / s.gain
    unseen = (half + (1 - begun) * waits) * span - ended
    if not s.mixed and h.rounds > 1:
        # Devices that read or write take turns: no cycle of all clients is shorter than what it asks of them.
        written = (t.mean_answer - 1) / s.gain
        asked = t.concurrency * (value_of(s.pace(0.0)) + written * value_of(turn.alone) / active)
        unread = maximum(asked - value_of(mean + idle + place + front) - further - unseen, 0.0) / span
    idle = idle + a.loss(QUEUE, TAIL, QUEUED, length * unread)
    ttft = mean + idle + place + front + cold_start(step, t, a)
    steps = turn.alone, turn.prompts, s.middle(turn, active)
    return result(t, tpot, ttft, last + idle + place + front, active, *steps, bound, unseen if h.rounds == 1 else 0.0)


def crowd_of(
    limits: dict[str, Any], places: Any, t: Traffic, reserves: bool, decode: Callable[[Any], Any], read: Any
) -> Crowd:
    """The room that requests wait for."""
    slots = limits.get("slots", math.inf) <= limits["memory"]
    return Crowd(t, places, slots, reserves, decode(places) / decode(places / 2), read)


def outgrown(limits: dict[str, Any], places: Any, active: Any) -> Any:
    """Whether requests fill the caches, and not something else before."""
    return (limits["memory"] <= places) & (active >= places)


def calm_of(most: Any, outgrows: Any, t: Traffic) -> Any:
    """Of requests that outgrow their room those that chance does not fill it with, which are not put back: as many as leave room for three deviations of
    what they keep."""
    return maximum(most - outgrows * _SURE * sqrt(most * (1 + t.spread_of_contexts)), FEWEST * most)


def _lengthened(s: Turns, alone: Any, mean: Any, a: Algebra) -> Any:
    """A step with what is read beside it: prompts of others, and what had no room."""
    others = a.grown(OTHERS, SERVING, _OTHERS, alone, alone + (mean - alone) / s.reads)
    return a.grown(AGAIN, BATCHING, READ_AGAIN, others, mean) if some(s.reads > 1) else others


def open_loop(step: Stepping, t: Traffic, a: Algebra = PLAIN) -> Loop:
    """Prompts and answers on the same devices: requests of one replica that come at random at ``t.rate``."""
    engine, h, rate = step.engine, t.habits, t.rate
    limits = _places(_room(step, t), t)
    places, bound = least(limits)
    passed = None if h.sent is None else passed_by(step, t, limits, places)
    n: Any = 1.0
    near: Any = None
    for _ in range(2):
        s = Turns(step, t, n)
        length = 0.0 if passed is None else passed.step * s.steps
        most = minimum(places, s.most_written)
        outgrows = where(outgrown(limits, places, most), 0.0 if engine.reserves else 1.0, 0.0)
        # A full server lets in where answers end, however evenly requests come.
        full = Turns(step, replace(t, rate=None), most).put_back(most, outgrows).answered(most, most)
        calm = calm_of(most, outgrows, t)
        fastest = maximum(full, Turns(step, replace(t, dealt=ALONE), n).answered(calm, most))
        answered = partial(s.answered, most=most)
        n = in_flight(answered, rate, most, fastest, near)[0] if passed is None else among(answered, length, most)
        near = n
    carried = carried_of(t, fastest)
    crowd = crowd_of(limits, places, t, engine.reserves, s.decode, s.read(s.seen(most, most)))
    rest = 1.0 if passed is None else 1 - 1 / maximum(h.sent, 1.0)
    turn, there = s.seen(n, most), 1 - t.dealt.nobody_after(n * rest)
    waits = crowd.waits(n, s.read(turn))
    # Read beside its answer is also what came while its own prompt was read, but for what comes before the steps in which answers end.
    begun = maximum(s.first(carried, n, turn.alone * there, PLAIN, 0.0) - turn.alone * (1 + there / 2), 0.0)
    behind = t.dealt.after(carried * begun) * (1 - turn.busy) * turn.mean / turn.alone * (1 - waits)
    s.met = met = s.beside(s.outlasted(behind, carried, n), carried, n, turn)
    if passed is None:
        n, over = in_flight(partial(s.answered, most=most), rate, most, fastest, near)[0], 1.0
        s = Turns(step, t, n).put_back(most, where(n > ALMOST * most, outgrows, 0.0))
    else:
        # What is put back and read again makes steps longer than so many do, and is waited for; longer steps have more in flight.
        over = maximum(passed.step * passed.held / turn.mean, 1.0)
        n = minimum(n * s.seen(n, most).mean / turn.mean, most)
        s = Turns(step, t, n)
    s.met = met
    if bound is not None and some(most < places):
        bound = "prompts"
    turn = s.seen(n, most, a.under(ANSWER))
    tpot = _lengthened(s, turn.alone, turn.mean, a) / s.gain
    if over > 1:
        tpot = a.grown(AGAIN, BATCHING, READ_AGAIN, tpot, tpot * over)
    length = s.steps * turn.mean
    # An arrival finds the engine at work unless nobody is there. Where prompts say how many are answered, they queue as long as there are so many.
    queued = where(most < places, carried / fastest, 0.0)
    ahead = s.scheduled(turn) * there
    first = s.first(carried, n, turn.alone * there, a, 0.0, least=queued, ahead=ahead)
    place = crowd.waiting(waits, carried, fastest, length, a)
    if passed is not None:
        pace = value_of(s.pace(n))
        met = s.first(met_by(t, fastest, most, pace), n, value_of(turn.alone) * there, PLAIN, 0.0, least=queued)
        # What a steady load makes them wait, as far as a random walk gets in so many steps.
        steady, walk = maximum(met - value_of(first), 0.0), 2 / 3 * sqrt(2 / math.pi * h.sent) * pace
        chance = steady * walk / sqrt(steady**2 + walk**2)
        place = place + backlog(maximum(passed.wait * rest - value_of(place), 0.0) + chance, length, a)
    ttft = first + a.loss(RUNNING, SERVING, REST, s.missed(turn) * there) + place + front_end(engine, t, a)
    steps = value_of(turn.alone), value_of(turn.prompts), s.middle(turn, minimum(n + 1, most))
    rates = where(rate < fastest, rate, full), bound, endless(t, fastest), fastest
    span = None if passed is None else passed.span + value_of(ttft) - value_of(place) - value_of(turn.alone)
    return Loop(tpot, ttft, ttft, n, *steps, *rates, span)


def _balanced(answered: Callable[[Any], Any], rate: Any, low: Any, high: Any) -> Any:
    """How many between ``low`` and ``high`` are answered at ``rate``, to nine digits. In logarithms what is answered is nearly straight over their
    number: false position, where an end that stays counts less by as much as the other moved (Anderson and Björck, BIT 13 (1973) 253), takes four tries
    on average."""
    below, above, stays = log(answered(low) / rate), log(answered(high) / rate), 0
    for _ in range(_TRIES):
        share = where(above > below, -below / where(above > below, above - below, 1.0), 0.5)
        n = low * (high / low) ** minimum(maximum(share, 0.0), 1.0)
        off = log(answered(n) / rate)
        if not some(abs(off) > _EXACT):
            break
        less = off < 0
        moved = where(less, below, above)
        kept = 1 - off / where(moved == 0, 1.0, moved)
        kept = where(kept > 0, kept, 0.5)
        below, above = (
            where(less, off, where(stays == 1, below * kept, below)),
            where(less, where(stays == -1, above * kept, above), off),
        )
        low, high, stays = where(less, n, low), where(less, high, n), where(less, -1, 1)
    return n


def _followed(answered: Callable[[Any], Any], rate: Any, most: Any, n: Any) -> Any:
    """The same from ``n``, which is close to it: Little's law once, then secants in logarithms, the last of them from so close that what is left
    of the square is nothing; None where it is not soon there."""
    off = log(answered(n) / rate)
    moved = -off
    for _ in range(_SOON):
        before, at = off, n
        n = minimum(n * exp(moved), most)
        if not some(abs(before) > _CLOSE):
            return n
        off = log(answered(n) / rate)
        slope = (off - before) / where(n == at, 1.0, log(n / at))
        moved = -off / where(slope > 0, slope, 1.0)
    return None


def in_flight(
    answered: Callable[[Any], Any], rate: Any, most: Any, highest: Any = math.inf, near: Any = None
) -> tuple[Any, Any]:
    """Requests that are answered at once where they come at ``rate``, and the rate that no more than ``most`` of them reach, or the
    ``highest`` that is answered as it comes.

    N = rate T(N), and the time T of an answer grows with N: N lies between rate T of hardly any and rate T(most). Where it was found of nearly the same
    steps, it is ``near`` that.
    """
    full, fewest, rate = answered(most), FEWEST * most, maximum(rate, FEWEST)
    fastest, n = minimum(full, highest), most
    carried = rate < fastest
    if some(carried):
        n = None if near is None else _followed(answered, rate, most, minimum(near, most))
        if n is None:
            n = _balanced(answered, rate, rate * fewest / answered(fewest), minimum(rate * most / full, most))
    # Little's law once more: it leaves less of what is off.
    return where(carried, minimum(rate * n / answered(n), most), most), fastest


def among(answered: Callable[[Any], Any], length: Any, most: Any) -> Any:
    """How many, of at most so many, take ``length`` for an answer."""
    low, high = FEWEST * most, most
    for _ in range(_HALVINGS):
        n = sqrt(low * high)
        low, high = (n, high) if n / answered(n) < length else (low, n)
    return high


def least(limits: dict[str, Any]) -> tuple[Any, str | None]:
    """The smallest of the limits, and its name where there is one loop."""
    least: Any = math.inf
    for limit in limits.values():
        least = minimum(least, limit)
    alone = all(isinstance(limit, (int, float)) for limit in limits.values())
    return least, min(limits, key=lambda name: limits[name]) if alone else None


def rounds(s: Readers, t: Traffic, active: Any, a: Algebra, later: Callable[[int], Any]) -> tuple[Any, Any]:
    """Mean time to the first token of all rounds and of the last, without front end and waiting for a place: the first, in which all prompts
    come at once and answers begin as they are read, and ``later`` ones by their number."""
    read, h, most = a.under(FIRST), t.habits, maximum(s.full, 1.0)
    burst = s.pace(active / 2, read)
    queued = most * burst + a.loss(QUEUE, TAIL, QUEUED, maximum(active - most, 0.0) * burst / 2)
    firsts = [where(active > most, queued, s.reading(minimum(active, most), 0.0, read) * s.chunks)]
    # Answers of one length keep the rounds as far apart as the first: all later ones are alike.
    different = min(h.rounds, CLIENT_ROUNDS if h.cv else 2)
    firsts += [later(number) for number in range(1, different)]
    return (sum(firsts) + (h.rounds - different) * firsts[-1]) / h.rounds, firsts[-1]


def window(t: Traffic, number: int, answer: Any, burst: Any, least: Any) -> Any:
    """How long prompts of a round come, in whatever an ``answer`` and the first ``burst`` are counted in. Lengths that are spread evenly are
    so over sqrt(12) deviations."""
    spread = math.sqrt(12) * t.habits.cv * answer
    return maximum(minimum(sqrt(number * spread**2 + burst**2), answer), least)


def _burst(s: Turns, active: Any) -> Any:
    """Steps in which prompts of clients that begin together are read; where they run alone no answer is written meanwhile."""
    return active / s.full if s.mixed else 1.0


def _joining(s: Turns, t: Traffic, active: Any, others: Any, number: int, alone: Any, a: Algebra) -> Any:
    """The first token of a later round on devices that write too; windows are counted in steps."""
    wide = window(t, number, s.steps, _burst(s, active), 1.0)
    return s.joined(others, others, others / wide, maximum(active - wide * s.full, 0.0) / 2, alone, a)


def result(
    t: Traffic,
    tpot: Any,
    ttft: Any,
    steady: Any,
    active: Any,
    decode_step: Any,
    prompt_step: Any,
    middle_step: Any,
    bound: str | None,
    unseen: Any = 0.0,
) -> Loop:
    """What clients in a loop see; Little's law gives their rate. A batch takes ``unseen`` seconds longer than its requests do on average."""
    rate = t.concurrency / (value_of(ttft + (t.mean_answer - 1) * tpot) + unseen)
    decode, prompt, middle = (value_of(step) for step in (decode_step, prompt_step, middle_step))
    return Loop(tpot, ttft, steady, active, decode, prompt, middle, rate, bound)
