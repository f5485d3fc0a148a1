"""Iterations of a serving engine as a simulation asks for them: the case's own step, taken apart so that a step costs a look-up.

The step of :mod:`mlsysim.timing.engine_step` is separable. Its tokens cost what they cost whatever their contexts are, a sequence
that is answered adds what its own context takes, a chunk of a prompt what its own attention takes:

    t_decode(n, X) = max_i (a_i(n) + b_i X),    X = sum over sequences of phi(context)         one term; more in a pipeline, beside exchanges, without graphs
    t_mixed(n, X, chunks) = |d, l|_4 + w + h(n),    d = rows(tokens) + sampled(n + chunks) + X + sum over chunks of psi(tokens, before)

phi is concave and straight between the contexts at which a window fills or an indexer has all its keys (``breaks``), so that k steps
of the same n sequences take a k + b (k X + k (k - 1)/2 X') with X' = sum of slopes: a simulation jumps over them. All of it is read off
:class:`~mlsysim.timing.engine_step.EngineStep` by asking it, so that it is exact to the case (tests compare both at random points).

Attention ranks step together: the busiest decides. Groups of a pipeline are engines of their own (:mod:`mlsysim.cases.iterations`).
Left out: with a draft model in a pipeline the draft's own contexts are scaled as the longest stage's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from math import ceil, sqrt
from typing import Any

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.traffic import Habits
from mlsysim.cases.turns import accepted_tokens, draft_cost
from mlsysim.models.template import Core
from mlsysim.physics.operators import soft_maximum
from mlsysim.simulate.live import NEVER
from mlsysim.timing.engine_block import ALL, DECODE, PROMPT, SAMPLED
from mlsysim.timing.engine_step import EngineStep, Rows
from mlsysim.timing.tags import clocked, untagged

_FAR = 1e7
"""Beyond the longest context."""
_EQUAL = 1e-9
_PROMPTS = 64
"""Prompts of a step whose launches are at hand."""


class Contexts:
    """Seconds that a context takes in a step of its answer: straight between the ``breaks``."""

    __slots__ = ("breaks", "first", "slope", "slopes", "values")

    def __init__(self, seconds: Callable[[float], float], breaks: list[float]) -> None:
        ends = [0.0, *breaks, breaks[-1] + _FAR if breaks else _FAR]
        values = [seconds(end) for end in ends]
        pairs = list(zip(ends, values, strict=True))
        self.breaks = breaks
        self.slopes = [(v1 - v0) / (c1 - c0) for (c0, v0), (c1, v1) in pairwise(pairs)]
        self.values = pairs[:-1]
        self.first, self.slope = values[0], self.slopes[0]

    def at(self, context: float) -> tuple[float, float]:
        """Seconds, and seconds for each further token."""
        if not self.breaks:
            return self.first + self.slope * context, self.slope
        piece = bisect_right(self.breaks, context)
        begin, value = self.values[piece]
        slope = self.slopes[piece]
        return value + slope * (context - begin), slope

    def next_break(self, context: float) -> float:
        """The context at which the slope changes next."""
        piece = bisect_right(self.breaks, context)
        return self.breaks[piece] if piece < len(self.breaks) else _FAR


class _Free(dict[int, float]):
    """Products that take nothing."""

    def __missing__(self, count: int) -> float:
        return 0.0


class Steps:
    """Steps of one attention rank of an engine; see the module's text. ``gain`` tokens of a sequence come out of a step."""

    def __init__(self, iterations: Iterations, habits: Habits) -> None:
        step = self.step = iterations.step
        self.iterations, self.habits = iterations, habits
        self.ranks = step.deployment.attention_dp
        self.gain = float(accepted_tokens(habits.drafted, habits.acceptance)) if habits.drafted else 1.0
        self.drafted = int(habits.drafted)
        self._plain, self._prompted = (self._at(step, prompted) for prompted in (False, True))
        of_prompts, of_answers, of_launches = step.factors or (1.0, 1.0, 1.0)
        self._of_kinds = of_prompts, of_answers
        self._of_all, more = min(self._of_kinds), of_prompts - of_answers
        self._more_of_prompts, self._more_of_answers = max(more, 0.0), max(-more, 0.0)
        self._cost = float(draft_cost(habits))
        self._start = self._of_starts(step, self._plain)
        self.contexts = Contexts(self._attended, self._breaks(step))
        engine = step.engine
        self._operator, self._waited = engine.host_operator, engine.waited_operator
        self._host = engine.step * of_answers
        self._each = (engine.per_sequence + engine.drafted_token * self.drafted) * of_answers
        self._row = step.attended_rows * of_answers
        # Operators of a step without prompts that are not in a graph: launched one by one, and waited for.
        launched = step.launched(0.0, 0.0) if engine.answer_operator else 0.0
        self._launching, self._waiting = launched * engine.answer_operator, launched * engine.waited_operator
        base, prompt, beside = (
            step.launched(*each, 0.0) * of_launches for each in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
        )
        self._picks = [(operators * of_launches, keys) for operators, keys in step.picks]
        self._launched, self._for_prompt, self._beside = base, prompt - base, beside - base
        self._rows: dict[Any, float] = {}
        self._halved: dict[Any, Rows] = {}
        self._kinds: dict[str, dict[int, float]] = {
            kind: {} for kind in (DECODE, PROMPT, SAMPLED) if any(p.tokens == kind for p in step.blocks.products)
        }
        self._adapts = bool(step.blocks.adapters)
        self._stages = step.deployment.pp > 1 or iterations.draft is not None
        self._decodes: dict[int, tuple[tuple[float, float], ...]] = {}
        self._chunks: dict[tuple[int, int], float] = {}
        self._prompt_start = 2 * self._prompts(1.0, 1.0, 0.0) - self._prompts(2.0, 1.0, 0.0)
        self.prompted = (step.kernels.attention.ramp_tokens, *(self._prompt_form() or (0.0, 0.0, 0.0)))
        """Of attention over s tokens of a prompt after c others: S0, i, j and k of (s + S0) (i c + j s + k); j is 0 where it is not of that form."""

    def know(self, other: Steps) -> None:
        """What another one knows of products, where only the engine's own times and the factors of a model differ."""
        self._rows, self._kinds, self._chunks = other._rows, other._kinds, other._chunks

    @staticmethod
    def _at(step: EngineStep, prompted: bool) -> Any:
        if step.clocks is None:
            return untagged
        clock = step.clocks[0 if prompted else 1]
        return clocked(untagged, clock.slower, clock.streaming)

    # --- answers ----------------------------------------------------------------------------------------------

    def _of_starts(self, step: EngineStep, tag: Any) -> float:
        """What attention takes before the first sequence."""
        one, two = (step.answers_attended(n, 0.0, self.drafted, tag) for n in (1.0, 2.0))
        return float(2 * one - two)

    def _attended(self, context: float) -> float:
        step = self.step
        own = step.answers_attended(1.0, context, self.drafted, self._plain) - self._start
        seconds = own * self._cost
        draft = self.iterations.draft
        if draft is not None and self.drafted:
            far, near = (draft.time(1.0, c).total for c in (context, 0.0))
            seconds += (far - near) * self.drafted * self._cost
        return float(seconds)

    @staticmethod
    def _breaks(step: EngineStep) -> list[float]:
        """Contexts at which a kind of attention has all that it reads."""
        found = set()
        for _, kind in step.blocks.mixing[DECODE]:
            if isinstance(kind, Core):
                folded = kind.topk * kind.ratio - (0.5 if kind.halved else 1.0)
                found |= {each for each in (kind.window - 1.0, folded) if 0 < each < _FAR}
        return sorted(found)

    def decode(self, n: int) -> tuple[tuple[float, float], ...]:
        """Terms (a, b) of a step of n sequences: it takes the largest of a + b X."""
        found = self._decodes.get(n)
        if found is None:
            found = self._decodes[n] = self._decode(n)
        return found

    def _decode(self, n: int) -> tuple[tuple[float, float], ...]:
        step, many, i = self.step, float(n), self.iterations
        rows = step.rows(many * (1 + self.drafted), 0.0, many, 0.0, tag=self._plain)
        asked = many * (1 + self.drafted), 0.0, many, 0.0, self._plain
        sent = rows.exchange
        if sent is not None:
            # Either the halves' exchanges are behind what they compute, or they are all of the step; without halves both add up.
            rows = rows._replace(exchange=None, rest=rows.rest + (0.0 if rows.halves > 1 else sent))
        found = step.step_time(rows, self._start, *asked)
        drafting: Any = 0.0
        if i.draft is not None and self.drafted:
            drafting = i.draft.time(many * self.ranks, 0.0).total * self.drafted
        cost, terms = self._cost, [((found.total + drafting) * self._cost, 1.0)]
        launching, waiting = rows.halves * self._launching, rows.halves * self._waiting
        if launching:
            rest = found.total - soft_maximum(found.device, launching) + drafting
            terms = [((a + rest) * cost, b) for a, b in tangents(found.device, launching)]
        if sent is not None and rows.halves > 1:
            alone = step.step_time(Rows(sent, 0.0, 0.0), 0.0, *asked).total
            terms.append(((alone + drafting) * cost, 0.0))
        if step.deployment.pp > 1:
            groups, longest = float(i.groups), step.longest_stage
            host = self._host + self._each * many
            terms += [
                (groups * (longest * (found.device + waiting) + drafting) * cost, groups * longest),
                (groups * (longest * (launching + waiting) + host + drafting) * cost, 0.0),
            ]
        return tuple((float(a), float(b)) for a, b in terms)

    def decode_time(self, n: int, attended: float) -> float:
        """Seconds of a step of n sequences whose contexts take ``attended`` together."""
        terms = self._decodes.get(n) or self.decode(n)
        if len(terms) == 1:
            return terms[0][0] + attended
        return max(a + b * attended for a, b in terms)

    # --- prompts ----------------------------------------------------------------------------------------------

    def _prompts(self, prompts: float, tokens: float, before: float) -> float:
        return float(self.step.prompts_attended(prompts, tokens, before, self._prompted))

    def _prompt_form(self) -> tuple[float, float, float] | None:
        """Coefficients of attention over a prompt, (1 + S0/s) s (i c + j s + k), where it is of that form: no windows, no scans."""
        if self._breaks(self.step) or any(not isinstance(kind, Core) for _, kind in self.step.blocks.mixing[PROMPT]):
            return None
        ramp = self.step.kernels.attention.ramp_tokens

        def inner(tokens: float, before: float) -> float:
            return (self._prompts(1.0, tokens, before) - self._prompt_start) / (tokens + ramp)

        low, high, far = inner(1000.0, 0.0), inner(3000.0, 0.0), inner(1000.0, 4000.0)
        j = (high - low) / 2000.0
        form = (far - low) / 4000.0, j, low - 1000.0 * j
        tried = inner(517.0, 2111.0)
        same = abs(form[0] * 2111.0 + form[1] * 517.0 + form[2] - tried) <= _EQUAL * tried
        return form if same else None

    def chunk(self, tokens: int, before: int) -> float:
        """What attention takes of a chunk of a prompt after so many of its tokens."""
        ramp, by_before, by_own, by_token = self.prompted
        if by_own:
            return (tokens + ramp) * (by_before * before + by_own * tokens + by_token)
        key = tokens, before
        found = self._chunks.get(key)
        if found is None:
            found = self._chunks[key] = self._prompts(1.0, float(tokens), float(before)) - self._prompt_start
        return found

    def mixed(
        self,
        n: int,
        attended: float,
        reading: int,
        prompts: int,
        chunks: float,
        share: float = 1.0,
        longest: float = _FAR,
    ) -> float:
        """A step that writes for n sequences, whose contexts take ``attended``, and reads ``reading`` tokens of so many prompts, whose
        attention takes ``chunks`` and the ``longest`` of which has so many tokens then; ranks read ``share`` of that on average. As
        ``EngineStep.step_time`` has it, on floats."""
        decode = n * (1 + self.drafted)
        attention = self._prompt_start + chunks
        if n:
            attention += self._start + attended / self._cost
        if self.step.halves:
            asked = float(decode), float(reading), float(n), float(prompts), share
            halves = self._halved.get(asked)
            if halves is None:
                halves = self._halved[asked] = self.step.rows(*asked, self._prompted)
            return self._staged(halves, attention, decode, reading, n, prompts, longest)
        device = self._device(decode, reading, n, prompts, share) + self._row * decode
        if self._stages:
            return self._staged(Rows(device, 0.0, 0.0), attention, decode, reading, n, prompts, longest)
        launched = self._launched + self._for_prompt * prompts + (self._beside if n else 0.0)
        for operators, keys in self._picks:
            launched += operators if longest > keys else 0.0
        busy = soft_maximum(device + attention, launched * self._operator) + launched * self._waited
        return float(busy + self._host + self._each * n)

    def _device(self, decode: int, reading: int, n: int, prompts: int, share: float) -> float:
        """Kernels of the tokens whatever their contexts are; factors as in ``EngineStep.rows``."""
        if not n:
            return self._of_kinds[0] * self._by_forms(0, reading, 0, prompts, share)
        found = self._of_all * self._by_forms(decode, reading, n, prompts, share)
        if self._more_of_prompts:
            found += self._more_of_prompts * self._by_forms(0, reading, 0, prompts, share)
        elif self._more_of_answers:
            found += self._more_of_answers * self._by_forms(decode, 0, n, 0, share)
        return found

    def _by_forms(self, decode: int, reading: int, n: int, prompts: int, share: float) -> float:
        tokens = decode + reading
        key: Any = tokens if self.ranks == 1 else (decode, reading, share)
        device = self._rows.get(key)
        if device is None:
            device = self._rows[key] = self._of_tokens(decode, reading, share)
        for kind, known in self._kinds.items():
            count = decode + prompts if kind == SAMPLED else decode if kind == DECODE else reading
            if count:
                device += known.get(count) or self._of_kind(kind, count)
        if self._adapts:
            device += self.step.adapted(float(tokens), float(n + prompts), self._prompted)
        return device

    def plain(self) -> Callable[[int, float, int, int, float], float]:
        """:meth:`mixed` operation by operation, with all that does not change at hand, where nothing but tokens and prompts counts."""
        if (
            self.step.halves
            or self.ranks > 1
            or self.drafted
            or self._kinds.keys() - {SAMPLED}
            or self._adapts
            or self._stages
        ):
            return self.mixed
        own, tokens_known, sampled_known = self.mixed, self._rows, self._kinds.get(SAMPLED, _Free())
        prompt_start, start, cost = self._prompt_start, self._start, self._cost
        row, host, each = self._row, self._host, self._each
        (of_prompts, _), of_all = self._of_kinds, self._of_all
        more_of_prompts, more_of_answers = self._more_of_prompts, self._more_of_answers
        beside_answers, alone = self._launches(self._launched + self._beside), self._launches(self._launched)

        def mixed(n: int, attended: float, reading: int, prompts: int, chunks: float) -> float:
            try:
                device = tokens_known[n + reading] + sampled_known[n + prompts]
                if n:
                    device *= of_all
                    if more_of_answers:
                        device += more_of_answers * (tokens_known[n] + sampled_known[n])
                    elif more_of_prompts:
                        device += more_of_prompts * (tokens_known[reading] + sampled_known[prompts])
                    busy = device + row * n + (prompt_start + chunks + (start + attended / cost))
                    launching, waiting = beside_answers[prompts]
                else:
                    busy = of_prompts * device + (prompt_start + chunks)
                    launching, waiting = alone[prompts]
            except (KeyError, IndexError):
                return own(n, attended, reading, prompts, chunks)
            if launching:
                if busy > launching:
                    share = launching / busy
                    share *= share
                    busy *= sqrt(sqrt(1.0 + share * share))
                else:
                    share = busy / launching
                    share *= share
                    busy = launching * sqrt(sqrt(1.0 + share * share))
            return busy + waiting + host + each * n

        return mixed

    def _launches(self, base: float) -> list[tuple[float, float]]:
        """Seconds of launching a step beside so many prompts, and those that are waited for."""
        launched = [base + self._for_prompt * prompts for prompts in range(_PROMPTS)]
        return [(each * self._operator, each * self._waited) for each in launched]

    def _of_tokens(self, decode: int, reading: int, share: float) -> float:
        tokens, d = float(decode + reading), self.step.deployment
        everywhere = (decode + reading * share) * d.attention_dp
        experts, rest, _ = self.step.shared(tokens, everywhere, True, self._prompted)
        return float(self.step.products(ALL, tokens, self._prompted) + experts + rest)

    def _of_kind(self, kind: str, count: int) -> float:
        found = self._kinds[kind][count] = float(self.step.products(kind, float(count), self._prompted))
        return found

    def _staged(
        self, rows: Rows, attention: float, decode: int, reading: int, n: int, prompts: int, longest: float
    ) -> float:
        i, asked = self.iterations, (float(decode), float(reading), float(n), float(prompts))
        found = self.step.step_time(rows, attention, *asked, self._prompted, longest)
        total, stage = found.total, found.stage
        if i.draft is not None and self.drafted and n:
            drafting = i.draft.time(float(n * self.ranks), 0.0).total * self.drafted
            total, stage = total + drafting, stage + drafting
        return float(max(total, i.groups * stage) if self.step.deployment.pp > 1 else total)


def steps_within(span: float, half: float, slope: float) -> int:
    """The smallest number k of steps with k half + k^2 slope / 2 >= span, in the form that a slope of zero has too."""
    return ceil(2 * span / (half + sqrt(half * half + 2 * slope * span))) or 1


def tangents(device: float, launching: float) -> list[tuple[float, float]]:
    """Lines (a, b) whose largest a + b X is what a step takes whose device works for ``device`` + X: the norm of that and of the launches is
    convex, so that its tangents are nowhere above it. Those of points an eighth apart are 0.2 % below it at most."""
    found, x = [(device, 1.0)], max(device, launching / 8)
    while x < 4 * launching:
        norm = float(soft_maximum(x, launching))
        slope = x / norm
        slope *= slope * slope
        found.append((norm + slope * (device - x), slope))
        x *= 1.125
    return found


def same_longest(
    terms: tuple[tuple[float, float], ...], load: float, slope: float, k: int, span: float
) -> tuple[int, float]:
    """Steps whose time is the largest of several terms: as many as have the same largest one, and their mean time."""

    def largest(x: float) -> tuple[float, float]:
        return max(terms, key=lambda term: term[0] + term[1] * x)

    a, b = largest(load)
    each = a + b * load
    k = max(1, min(k, ceil(min(span, 1e18) / each))) if span < NEVER else k
    while k > 1 and largest(load + (k - 1) * slope) != (a, b):
        k //= 2
    return k, each + b * (k - 1) / 2 * slope
