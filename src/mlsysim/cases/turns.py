"""Steps of an engine that reads prompts and writes answers, and what a prompt waits for; shared by closed loops and open arrivals.

A step has room for M prompt tokens (the budget without the tokens that are written), K = M/I prompts of I tokens; engines that cut no prompts take
whole ones. With l prompts a step arriving at random, the share of steps that read is

    f = max(1 - e^-l, l/K),    each of them l/f prompts

The first is that of a step that takes all that came, the second a busy server's: f times what is read is l, so that **no prompt is
lost**, and f = 1 at l = K, where every step is full. For K <= 1, f = l/K is exact. Between, f is a lower bound of
the bulk queue's (at K = 2, l = 1 by 9 %).

A prompt of an open arrival, at a rate r of others, finds steps of t_d without and of s with prompts. After a step of t nobody has come
with probability e^-rt, so that the share of steps with prompts is phi = q/(q + e^-rs), q = 1 - e^-r t_d, and of the time b = phi s/T with
T = phi s + (1 - phi) t_d; a step reads r T/phi prompts (nothing is lost). It waits for the rest of the running step, goes into the
next one with those that came meanwhile, and waits for what does not fit into one,

    R = (1 - b) t_d/2 + b s (1 + c^2/count)/2,     own step with 1 + r (b s + (1 - b) t_d) prompts
    W = R + e rho^sqrt(2 (K + 1)) (1 + c^2)/(2 (1 - rho)),     e = s/K, rho = r e                 (Sakasegawa 1977 for the power)

where c is the coefficient of variation of the times of prompts, more than that of their lengths since attention goes as their square. One prompt a step (K = 1)
without decoding: the wait of M/G/1 exactly; rho near 1: the heavy-traffic limit for any K. Beside an iteration-by-iteration simulation on the same steps, TTFT is within 10 % at loads of 0.02 to 0.6 (8B and 70B, 100 to 8,000 prompt tokens, cv 0 and 1). Of replicas
that take turns each has every so manieth request (:mod:`mlsysim.cases.dealt`), whose probabilities and means stand for e^-rt and r t, and fewer queue.

**Full caches.** An engine that pages lets a request in when its prompt has room, not its answer. While requests wait, caches are full after every answer that
ends: it leaves I + O tokens, and others are let in for all of them. Until the next one ends those that write grow by O in all, for which as many tokens
of the last that were let in are put back, and read again when there is room (recomputation). So beside its I new tokens **an answer has O tokens read
again**, whatever the lengths are of those that are put back; each token is written once, so that contexts are as without it. What ends in the step in
which others grow makes room at once: with x = N/(O/g) answers that end in a step, O/(1 + x (0.4 + 1.6 cv^2)) tokens, where 0.4 and 1.6 are those of the
simulation (O 100 to 8,000, I 200 to 8,000). Full caches answer fewer requests than caches with a little room, so that between the two rates a server goes on as it is:
what comes is answered while chance does not fill the caches, and once they are full they stay so.

A prompt of a closed loop comes where an answer ended, so at the end of a step: others count by steps, not by seconds, and a long step is one step for
those who write. Of N requests a queue is at most as long as N arrivals in a window make it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.dealt import ALONE, Dealt
from mlsysim.cases.fullest_rank import fullest
from mlsysim.cases.iterations import Iterations
from mlsysim.cases.phases import speculative_tokens
from mlsysim.cases.ranks_together import gathered
from mlsysim.cases.readers import BELOW, FIXED_POINT, QUEUED, REST, Readers
from mlsysim.cases.request import FIRST, QUEUE, RUNNING, SERVING, TAIL, value_of
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.timing.engine_step import EngineStep
from mlsysim.timing.engines import serving_table
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import exp, expm1, floor, log, maximum, minimum, sqrt, where

Stepping = EngineStep | Iterations

_LEAST_ROOM = 16.0
FEWEST = 1e-12
_ENDS, _ENDS_SPREAD = 0.4, 1.6
_LONGEST, _RARELY = 50.0, 2e-22


def accepted_tokens(drafted: Any, acceptance: Any = None) -> Any:
    """Tokens that a step with ``drafted`` draft tokens gives on average, each accepted if those before it were."""
    return speculative_tokens(head_acceptance() if acceptance is None else acceptance, drafted)


def head_acceptance() -> float:
    """Share of the draft tokens of a model's own heads that are accepted, where it is not said."""
    return float(serving_table("draft")["acceptance"])


def draft_cost(h: Habits) -> Any:
    """Factor on a step in which the model's own heads draft tokens; a draft model has its own time."""
    table = serving_table("draft")
    return where(h.drafted > 0, table["base"] + table["per_token"] * h.drafted, 1.0) if h.own_heads else 1.0


class Cycle(NamedTuple):
    """Seconds of a step without prompts, with them, on average; the steps between two looks for prompts, and those until one that has room; the share of the time in
    steps with prompts; and the share of the gaps between two tokens in which prompts are read, and how many in such a gap."""

    alone: Any
    prompts: Any
    mean: Any
    poll: Any
    later: Any
    busy: Any
    share: Any
    count: Any


class Turns(Readers):
    """Steps of one replica under a traffic, whose sequences are at most ``most``."""

    def __init__(self, step: Stepping, t: Traffic, most: Any) -> None:
        engine, h = step.engine, t.habits
        self.step, self.t, self.engine, self.h = step, t, engine, h
        self.ranks, self.mixed = step.deployment.attention_dp, engine.policy == "mixed"
        self.gain = accepted_tokens(h.drafted, h.acceptance)
        self.prompt, self.answer, self.context = t.mean_new, t.mean_answer, t.mean_context
        self.cached = t.mean_prompt - self.prompt
        budget = engine.token_budget if t.chunk is None else t.chunk
        writing = minimum(most / self.ranks * (1 + h.drafted), budget / 2) if self.mixed else 0.0
        room = maximum(budget - writing, _LEAST_ROOM)
        self.at_once = minimum(self.prompt, room)
        self.chunks = self.prompt / self.at_once
        self.through = 1 + (self.chunks - 1) * step.longest_stage
        # Prompts of a step: a part of one where it is cut.
        self.full = room / self.prompt * self.ranks
        if not engine.cuts_prompts:
            self.full = where(self.chunks > 1, 1 / self.chunks, maximum(1.0, floor(room / self.prompt))) * self.ranks
        self.steps = self.answer / self.gain
        self.ahead = engine.steps_ahead
        # What is read for an answer, in prompts.
        self.reads: Any = 1.0
        # Prompts that came while a request's own was read, and the share of those beside it that are read while it is answered.
        self.met: tuple[Any, Any] = 0.0, 1.0
        # Whether prompts come while others are read, and not only where answers end.
        self.at_random = t.rate is not None
        # Whether prompts that were read in one step come together again: of clients that come again, where answers are of one length and prompts join
        # them or ranks wait for each other.
        self.together = False

    @property
    def come(self) -> Dealt:  # type: ignore[override]
        return self.t.dealt if self.at_random else ALONE

    def put_back(self, n: Any, waits: Any) -> Turns:
        """The same where caches of n sequences fill their room, with the share of the time in which others wait for it."""
        same = n / self.steps * (_ENDS + _ENDS_SPREAD * self.h.cv**2)
        self.reads = 1 + waits * self.answer / (1 + same) / self.prompt
        return self

    @property
    def most_written(self) -> Any:
        """Sequences whose answers end as fast as prompts can be read."""
        return self.steps * self.full

    def decode(self, n: Any, tag: Tag = untagged) -> Any:
        """A step that writes for n sequences."""
        h, each = self.h, maximum(n / self.ranks, minimum(n, 1.0))
        return self.step.time(each, self.context, drafted=h.drafted, tag=tag).total * draft_cost(h)

    def reading(self, count: Any, n: Any, tag: Tag = untagged, before: Any = None) -> Any:
        """A step with ``count`` prompts (over all ranks), beside the decode of n sequences where they mix; so many tokens ``before`` theirs, or as many as
        there are on average."""
        each = fullest(count, self.ranks, maximum(self.full, count) / self.ranks, self.h.cv)
        beside = n / self.ranks if self.mixed else 0.0
        some = count / self.ranks / each
        drafted = self.h.drafted if self.mixed else 0
        before = self.before if before is None else before
        return self.step.time(beside, self.context, each, self.at_once, before, drafted, some, tag).total

    @property
    def before(self) -> Any:
        """A token of a prompt follows half of it, on average over tokens, which long prompts have more of."""
        return self.cached + (self.prompt * (1 + self.h.cv**2) - self.at_once) / 2

    def varied(self, n: Any) -> Any:
        """A prompt of y times the mean length takes (1 - g) y + g y^2/v of the mean time, with v = 1 + cv^2 = <y^2> and the share g of attention to its own
        tokens: squares of lognormal lengths, <y^k> = v^(k (k - 1)/2)."""
        v = 1 + self.h.cv**2
        if v == 1:
            return 0.0
        whole = self.reading(1.0, n)
        slope = (whole - self.reading(1.0, n, before=0.0)) / self.before
        g = slope * self.prompt * v / 2 / whole
        return (1 - g) ** 2 * v + 2 * g * (1 - g) * v**2 + g**2 * v**4 - 1

    def cycle(self, n: Any, others: Any, tag: Tag = untagged) -> Cycle:
        """Steps of n sequences beside ``others`` whose answers end and whose prompts come."""
        per_step = others / self.steps
        poll: Any = max(self.h.poll_steps, 1.0)
        later: Any = 0.0
        if self.engine.gather_steps and self.ranks > 1:
            looks, later = gathered(per_step, n, self.full, self.ranks, self.engine.gather_steps)
            poll = maximum(poll, looks)
        arrivals = maximum(per_step * poll, FEWEST)
        came = self._came(arrivals, others)
        alone = self.decode(n, tag)
        read = per_step * self.reads
        if self.mixed:
            read = minimum(read, maximum(self.full, per_step))
            share = minimum(maximum(came / poll, read / self.full), 1.0)
            count = maximum(read / share, 1.0)
            prompts = self.reading(count, n, tag)
            mean = alone + share * (prompts - alone)
            return Cycle(alone, prompts, mean, poll, later, share * value_of(prompts) / value_of(mean), share, count)
        pauses = self._pauses(n, read * poll, value_of(alone) * poll) if self.at_random else came
        most = maximum(self.full, 1.0)
        prompts = self.reading(minimum(read * poll / pauses, most), n, tag)
        steps = maximum(1.0, read * poll / pauses / most) * self.chunks
        mean = alone + pauses / poll * steps * prompts
        # Of the gaps those have a pause in whose step a prompt came; what comes in a pause makes it longer, and no other gap.
        written = value_of(alone) / value_of(mean)
        paused = self.come.somebody(arrivals * written) / poll
        return Cycle(alone, prompts, mean, poll, later, 1 - written, paused, read / paused)

    def _came(self, arrivals: Any, others: Any) -> Any:
        """Share of the looks that find somebody, where so many come between two: at random, or ``together`` as many as a step reads."""
        if not self.together:
            return self.come.somebody(arrivals)
        return minimum(arrivals / self.own_group(maximum(others, 1.0)), 1.0)

    def own_group(self, n: Any) -> Any:
        """Of n requests those that come with one of them in each of its rounds, and itself."""
        return minimum(maximum(self.full, 1.0), n) if self.together else 1.0

    def _pauses(self, n: Any, read: Any, written: Any) -> Any:
        """Steps of prompts alone between so many seconds of writing, in which ``read`` prompts come at random: the first with 1 - e^-r t_d, and another after
        each of s while some came meanwhile, e^rs in all, but no more than read all of them, r s at a time. Where a step takes as long with one prompt as with
        many (a rank reads, the others wait) they come one by one, and answers wait for most of them."""
        read, most = maximum(read, FEWEST), maximum(self.full, 1.0)
        least = steps = self.come.somebody(read)
        for _ in range(FIXED_POINT):
            each = self.reading(minimum(maximum(read / steps, 1.0), most), n) * self.chunks
            # They come as fast as they are read.
            rate = read / (written + maximum(steps, read / most) * each)
            begun, over = self.come.somebody(rate * written), self.come.nobody(rate * each)
            further = minimum(begun / maximum(over, _RARELY), read / maximum(rate * each, 1.0))
            steps = sqrt(steps * maximum(further, least))
        return steps

    def middle(self, turn: Cycle, n: Any) -> Any:
        """The gap between two tokens of n sequences that as many are shorter than as longer.

        Prompts come at random and differ in length, so that a gap reads more than x of them with P = share e^(-x/count), which is 1/2 at
        x = count ln(2 share); where less than half of the gaps read, the one in the middle reads nothing. Left out: prompts of one length come whole.
        """
        alone, x = value_of(turn.alone), turn.count * log(maximum(2 * turn.share, 1.0))
        if not self.mixed:
            return alone + (value_of(turn.mean) - alone) / turn.share * (x / turn.count)
        tokens = maximum(x * self.at_once / self.ranks, 1.0)
        beside = self.step.time(n / self.ranks, self.context, 1.0, tokens, self.cached, self.h.drafted).total
        return where(turn.share > 0.5, beside, alone)

    @staticmethod
    def read(turn: Cycle) -> Any:
        """Share of the time that prompts take of those who write."""
        return 1 - value_of(turn.alone) / value_of(turn.mean)

    def scheduled(self, turn: Cycle) -> Any:
        """Seconds of the steps that are scheduled ahead of a prompt that comes, of which as many read as of all: it depends on what came before."""
        read = 0.0 if self.mixed else value_of(turn.mean - turn.alone) / value_of(turn.prompts)
        return turn.mean / (1 + read) * self.ahead

    def missed(self, turn: Cycle) -> Any:
        """Seconds of the steps that a prompt cannot join where others are answered, beside those that are scheduled ahead: half of those until the
        next look for prompts, those to the look that has room for it, and those that the engine waits for more. Of an idle engine there are none."""
        return turn.alone * ((turn.poll - 1) / 2) + turn.mean * (turn.later + self.h.wait_steps)

    def seen(self, n: Any, most: Any, tag: Tag = untagged) -> Cycle:
        """Steps as a request sees them where n are answered on average: with those and itself, of at most so many."""
        behind, share = self.met
        return self.cycle(
            minimum(1 + self.come.others(n), most), minimum(share * self.come.after(n) + behind, most), tag
        )

    def answered(self, n: Any, most: Any) -> Any:
        """Requests a second that n sequences of at most so many give."""
        return n / (self.steps * self.seen(n, most).mean)

    def outlasted(self, behind: Any, rate: Any, n: Any) -> Any:
        """Of prompts ``behind`` a request's own, those that are read while it is answered. Prompts that come at a ``rate`` leave some behind with the
        probability of the load, and those, with what comes meanwhile, take D steps (a busy period, as exponential), of O that an answer has
        after the first and, but for those that queued, after those that are scheduled ahead: <min(D, O)> = D (1 - <e^(-O/D)>), of lengths as a
        gamma distribution's."""
        cv2, load = maximum(self.h.cv**2, FEWEST), maximum(self.load(rate, n), FEWEST)
        taken = maximum(behind / load / self.full / (1 - load), FEWEST)
        left = maximum(self.steps - 1 - self.ahead * self.unqueued, 0.0)
        return behind * (1 - exp(-log(1 + cv2 * left / taken) / cv2))

    def load(self, rate: Any, n: Any) -> Any:
        """Of prompts that come at a ``rate``, below 1."""
        return minimum(rate * value_of(self.pace(n)), BELOW)

    def beside(self, behind: Any, rate: Any, n: Any, turn: Cycle) -> tuple[Any, Any]:
        """How many more than a share of n, and that share, a request meets in each gap between its tokens, with so many prompts ``behind`` its own over all of them. In the first
        are read those that came in steps before its own, of which there are none where it found nobody; and what comes in a gap is read in a
        later one, so that few gaps are no longer for their own length, but for what queued before. An answer that ends within the steps that are
        scheduled ahead meets nobody else."""
        ahead, gaps = self.ahead, maximum(self.steps - 1, 1.0)
        more = (behind * self.steps - minimum(ahead, gaps) * exp(-n) * n) / gaps
        more = more * (1 - self.load(rate, n) * minimum((ahead + 1) / gaps, 1.0) * self.unqueued)
        within = minimum(maximum(1 + floor(ahead) - gaps, 0.0), 1.0)
        return more + within * (self._next_step(rate, turn) * self.steps - more), 1 - within

    def _next_step(self, rate: Any, turn: Cycle) -> Any:
        """Prompts read after a request's own and before its second token. Of 1 + X, X at random of mean a, one is not the last with
        1 - (1 - e^-a)/a: of a step of one prompt those do not fit; with room for K, a is a/K and chance evens out (the power of Sakasegawa 1977, less
        that of one). Or they came in the last part p of the step, and miss one more: p a begin a row of steps that read, which goes on while some come,
        and of answers beside them each waits for one. Where prompts run alone all answers wait for the end of the row: it begins where some came in
        time too, b = p a (1 - e^-a), and has L = e^a steps more, so that one of all 1 + b L has b L^2/(1 + b L) before it."""
        most, part = maximum(self.full, 1.0), self.ahead - floor(self.ahead)
        came = maximum(rate * value_of(turn.prompts) * self.chunks, FEWEST)
        y = came / most
        full = most * (1 + expm1(-y) / y) * y ** (sqrt(2 * (most + 1)) - 2)
        if self.mixed:
            row = part * came * exp(minimum(came, _LONGEST))
            return turn.busy * (full + row / (1 + row) * came / -expm1(-came))
        count = 1.0
        for _ in range(FIXED_POINT):
            # A step of a row reads what came in one like it, if any did.
            a = maximum(rate * self.reading(minimum(count, most), 0.0) * self.chunks, FEWEST)
            count = a / -expm1(-a)
        length, begun = exp(minimum(a, _LONGEST)), part * a * -expm1(-a)
        # In prompts that are read one by one.
        each = a / rate / (self.reading(1.0, 0.0) * self.chunks)
        return turn.busy * full + begun * length**2 / (1 + begun * length) * each

    @property
    def unqueued(self) -> Any:
        """Of prompts those that go into the next step with others: all but one of those that a step holds."""
        return 1 - 1 / maximum(self.full, 1.0)

    def joined(self, count: Any, beside: Any, per_step: Any, waiting: Any, alone: Any, a: Algebra) -> Any:
        """Time until a prompt of a closed loop is read, of which so many a step come: answers end where steps end, so that all of
        a step go into the next one, and a step with prompts is one step for those who write. ``alone``: a step without them."""
        tag, most = a.under(FIRST), maximum(self.full, 1.0)
        load = minimum(per_step / self.full, BELOW)
        random = load ** sqrt(2 * (most + 1)) / (2 * (1 - load)) + load * (1 - 1 / self.chunks) / 2
        waited = minimum(waiting + minimum(random, sqrt(math.pi / 32 * count)), count / 2)
        step = self.reading(minimum(1 + per_step, most), beside, tag)
        # The steps that run when it comes read prompts of its own round, but for the first of them: where lengths are alike, nearly all.
        came = -expm1(-per_step)
        share = minimum(maximum(came, per_step / self.full), 1.0) if self.mixed else came / (1 + came)
        early, share = (share * maximum(1 - first * per_step / count, 0.0) for first in (2, 1))
        mean = alone + (step - alone) * share
        busy = early * value_of(step) / value_of(alone + (step - alone) * early)
        # A client's turn takes a while, after which it finds the engine within a step; an engine's own client takes none.
        rest = (alone + (step - alone) * busy) / 2 * (1.0 if self.h.server else 0.0)
        late = (rest + mean * self.engine.steps_ahead) * minimum(count, 1.0)
        queued = a.loss(QUEUE, TAIL, QUEUED, self.pace(beside, tag) * waited)
        return step * self.through + a.loss(RUNNING, SERVING, REST, late) + queued
