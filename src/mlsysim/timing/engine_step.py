"""Calibrated fidelity of serving: the time of one step of an inference engine.

A step runs m tokens through the network: one (or, with draft tokens, a few) for each sequence that is being answered,
and any number of prompt tokens. Its time on the busiest attention rank is the sum over layers of

    matrix products      t0 + |F/(ec P), B/(eb W)|_4 + Q/(eq W)               the last term where inputs are quantised
    decode attention     t0 + KV bytes/(ekv W), by engine and cache format; latent attention is not split by tensors
    prefill attention    t0 + F (1 + S0/S)/(eta P)
    recurrent layers     states read and written (decode), chunked scan (prefill)
    experts              t0 + |F/(ec P), active weights/(eb W)|_2 + routed activations/(ea W), of the busiest device
    context parallelism  queries of c devices gathered, their partial sums and weights of c parts of each context put together: an all-reduce
                         and a start; each device reads 1/c of the caches
    tensor parallelism   an all-reduce after each mixer and each feed-forward part: a + b n + bytes/bandwidth(n)
    pipeline stages      activations sent between them: a + bytes/bandwidth, p - 1 times
    attention ranks      dispatch and combine between the ranks' tokens and the experts; over nodes, beside the other half of the batch
    adapters             two products of a low rank beside each adapted matrix, with those adapters that the requests name
    small kernels        a fixed number per layer, and passes over m x h elements
    rows                 a start for each sequence and key head of a step's graph, where an engine's kernel has one

and the engine's own time c0 + cs sequences. A step with prompts in it is not captured in a graph: it takes at least the host's time for its operators
(a layer's, and further ones for each prompt and for answers beside them), and a time of each of them more that the device waits for. So does any
step of an engine that is started without graphs (``answer_operator``), which steps of few sequences feel most. Active experts are counted over the tokens of all attention ranks: E/ep (1 - (1 - k/E)^T).

Where experts are on several nodes, engines cut the batch into halves, which compute in turn while the other's tokens are on their way
(:meth:`EngineStep.halved`): each half has its own starts and reads the weights, so that of c for both halves and x for both exchanges a step takes

    max( c + s x, x )                        s: share of the multiprocessors that messages of prompts hold meanwhile

With p stages a step is one group of sequences on its way through all of them; its time is that of the whole way, and ``stage`` the part
of it in which the longest stage is busy: ceil(L/p)/L of the device's time, or of the launches and the host's own, since a host prepares
one group while its device works on another. Left out: embedding and output head, which the first and the last stage
have alone (1 to 2 % of the weights of a large model).

Kernels are those of :mod:`mlsysim.timing.engine_kernels`, counted by :mod:`mlsysim.timing.engine_block`; messages of :mod:`mlsysim.timing.engine_messages`.
Of a model that was measured on the engine, kernels of prompts and of answers and the host's launches have a factor each (``factors``).
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from mlsysim.hardware.types import HardwareNode
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import distinct_kinds, soft_maximum
from mlsysim.timing.engine_block import ALL, DECODE, PROMPT, SAMPLED, Deployment
from mlsysim.timing.engine_device import present
from mlsysim.timing.engine_kernels import EngineKernels
from mlsysim.timing.engines import Engine, serving_table
from mlsysim.timing.operator_times import started
from mlsysim.timing.power import Clocks
from mlsysim.timing.tags import Tag, clocked, scaled, uncounted, untagged
from mlsysim.units.ops import maximum, minimum, some, taken, where
from mlsysim.units.records import dataclass

_SMALL, _ENGINE, _LAUNCHES, _ADAPTERS = "norms and activations", "engine", "launches", "adapters"


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step: in all, on the longest stage of a pipeline, on the device, and attention and experts of the latter."""

    total: Any
    stage: Any
    device: Any
    attention: Any
    experts: Any


class Rows(NamedTuple):
    """Seconds of a step's tokens whatever their contexts: matrix products, experts, and messages with small kernels."""

    products: Any
    experts: Any
    rest: Any
    exchange: Any = None
    """Of tokens with experts on other nodes, where the other half of the batch computes meanwhile."""
    halves: Any = 1.0

    def with_more(self, share: Any, more: Rows) -> Rows:
        """With a share of the seconds of ``more`` beside them."""
        exchange = None if self.exchange is None else self.exchange + share * more.exchange
        products, experts, rest = (own + share * other for own, other in zip(self[:3], more[:3], strict=True))
        return Rows(products, experts, rest, exchange, self.halves)


class EngineStep(EngineKernels):
    """Steps of one deployment. Build it with :func:`engine_step`, which keeps what was built before.

    ``clocks`` are those of steps with prompts and of others, where a limit of power lowers them.
    """

    clocks: Clocks | None = None

    def at(self, clocks: Clocks) -> EngineStep:
        """The same at lower clocks."""
        found = copy(self)
        found.clocks = clocks
        return found

    def take(self, index: int) -> EngineStep:
        """Of many that differ in clocks or in constants, as a fit's candidates do, one."""
        found = copy(self)
        found.clocks = None if self.clocks is None else self.clocks.take(index)
        found.engine = self.engine.model_copy(update={name: taken(value, index) for name, value in self.engine})
        found.network = replace(self.network, scale=taken(self.network.scale, index))
        found.factors = None if self.factors is None else taken(tuple(self.factors), index)
        return found

    def time(
        self,
        sequences: Any = 0.0,
        context: Any = 0.0,
        prompts: Any = 0.0,
        prompt_tokens: Any = 0.0,
        prompt_context: Any = 0.0,
        drafted: int = 0,
        reading_ranks: Any = 1.0,
        tag: Tag = untagged,
    ) -> StepTime:
        """A step of one attention rank.

        ``sequences`` of that rank each get 1 + ``drafted`` tokens after ``context`` tokens; ``prompts`` of
        ``prompt_tokens`` each follow ``prompt_context`` tokens that are cached already, on the share ``reading_ranks`` of
        the attention ranks (the time is that of a rank with prompts). ``tag`` names the times that the step is made of.
        """
        asked = sequences, context, prompts, prompt_tokens, prompt_context, drafted, reading_ranks
        return _timed(self, *asked) if tag is untagged and _plain(asked) else self._time(tag, *asked)

    def _time(self, tag: Tag, *asked: Any) -> StepTime:
        sequences, context, prompts, prompt_tokens, prompt_context, drafted, reading_ranks = asked
        drawn = self._tag(present(prompts), tag)
        decode = sequences * (1 + drafted)
        reading = prompts * prompt_tokens
        # Beside prompts fewer than one sequence on average are there in so many of the steps.
        there = minimum(sequences, 1.0) if present(prompts) else 1.0
        answers = there * self.answers_attended(sequences, context, drafted, drawn) if present(sequences) else 0.0
        prompted = self.prompts_attended(prompts, prompt_tokens, prompt_context, drawn) if present(prompts) else 0.0
        rows = self.rows(decode, reading, sequences, prompts, reading_ranks, drawn)
        longest = prompt_context + prompt_tokens
        return self.step_time(rows, answers + prompted, decode, reading, sequences, prompts, drawn, longest)

    def _tag(self, prompted: bool, tag: Tag) -> Tag:
        """Times at the clocks of steps with prompts, or of others."""
        if self.clocks is None:
            return tag
        clock = self.clocks[0 if prompted else 1]
        return clocked(tag, clock.slower, clock.streaming)

    def rows(
        self,
        decode: Any,
        reading: Any,
        sequences: Any,
        prompts: Any,
        reading_ranks: Any = 1.0,
        tag: Tag = untagged,
    ) -> Rows:
        """What the tokens of a step take whatever their contexts are: ``decode`` and ``reading`` ones of so many requests.

        Of a model that was measured, kernels of prompts take f_p and those of answers f_a of the forms D. Together they share weights, so that

            t = min(f_p, f_a) D(all) + |f_p - f_a| D(those with the larger factor alone)

        which is f D of either alone, and never shorter with more tokens of either kind.
        """
        if self.engine.graphs and not present(prompts):
            decode = padded(decode, self.engine.graphs)
        halves, prompted = self.halved(decode, reading), present(prompts)
        # Answers alone are there whoever they are of.
        there = sequences if prompted or self.blocks.adapters else 1.0
        asked = decode, reading, there, prompts, reading_ranks, halves
        if self.factors is None:
            return self._rows(tag, None, prompted, *asked)
        of_prompts, of_answers, _ = self.factors
        if not (prompted and present(decode)):
            return self._rows(tag, of_prompts if prompted else of_answers, prompted, *asked)
        found = self._rows(tag, minimum(of_prompts, of_answers), True, *asked)
        for more, alone in (
            (maximum(of_prompts - of_answers, 0.0), (0.0, reading, 0.0, prompts)),
            (maximum(of_answers - of_prompts, 0.0) * minimum(sequences, 1.0), (decode, 0.0, sequences, 0.0)),
        ):
            if some(more > 0):
                of_those = self._rows(uncounted(tag), None, True, *alone, reading_ranks, halves)
                found = found.with_more(more, of_those)
        return found

    def _rows(self, tag: Tag, factor: Any, prompted: bool, *asked: Any) -> Rows:
        """Of tokens of answers and of prompts, sequences and prompts by the forms alone, all ``factor`` as long; ``prompted`` is whether the step has prompts at all."""
        if tag is untagged and _plain(asked) and (factor is None or type(factor) is float):
            return _formed(self, factor, prompted, *asked)
        return self._form(tag, factor, prompted, *asked)

    def _form(self, tag: Tag, factor: Any, prompted: bool, *asked: Any) -> Rows:
        decode, reading, sequences, prompts, reading_ranks, halves = asked
        tag = tag if factor is None else scaled(tag, factor)
        d, tokens = self.deployment, decode + reading
        there = minimum(sequences, 1.0) if prompted else 1.0
        counts = {ALL: tokens, DECODE: decode, PROMPT: reading, SAMPLED: decode + prompts}
        products: Any = 0.0
        for kind, m in counts.items():
            if present(m):
                products = products + (there if kind == DECODE else 1.0) * self.products(kind, m, tag, halves)
        if self.blocks.adapters:
            products = products + self.adapted(tokens, sequences + prompts, tag)
        everywhere = (decode + reading * reading_ranks) * d.attention_dp
        experts, rest, exchange = self.shared(tokens, everywhere, prompted, tag, halves)
        if present(self.engine.attended_row) and present(decode):
            rest = rest + started(self.attended_rows * decode, tag)
        return Rows(products, experts, rest, exchange, halves)

    def halved(self, decode: Any, reading: Any) -> Any:
        """Halves of a step's batch that compute in turn: two where the engine cuts it, of so many tokens, else one."""
        if not self.halves:
            return 1.0
        least = serving_table("exchange")
        enough = (decode >= least["halved_answers"]) + (reading >= least["halved_prompts"])
        return where(enough > 0, 2.0, 1.0)

    def products(self, kind: str, tokens: Any, tag: Tag = untagged, halves: Any = 1.0) -> Any:
        """Matrix products that serve tokens of a kind."""
        total: Any = 0.0
        for p in self.blocks.products:
            if p.tokens == kind:
                total = total + halves * p.count * self._product_time(p, tokens / halves, tag)
        return total * self.engine.product_scale

    def adapted(self, tokens: Any, requests: Any, tag: Tag = untagged) -> Any:
        """Products with the adapters that so many requests name."""
        named, total = distinct_kinds(self.deployment.adapters, requests), 0.0
        for p in self.blocks.adapters:
            total = total + p.count * self._product_time(p, tokens, tag, named, (_ADAPTERS, _ADAPTERS))
        return total

    def shared(
        self, tokens: Any, everywhere: Any, prompted: bool, tag: Tag = untagged, halves: Any = 1.0
    ) -> tuple[Any, Any, Any]:
        """Experts, of the tokens of all ranks; messages and small kernels; and exchanges beside them, where there are halves of a batch."""
        k, experts = self.kernels, 0.0
        for count, routed in self.blocks.experts:
            experts = experts + halves * count * self._experts_time(routed, everywhere / halves, tag)
        moved = serving_table("small")["passes"] * tokens * self.hidden * self.element
        small = self.blocks.layers * (
            started(halves * self.small_kernels * k.memory_bound.times[0], tag)
            + self._streamed(_SMALL, moved, k.memory_bound.fused_share, tag)
        )
        sums, exchange = self._communication(tokens, everywhere, prompted, tag, halves)
        return (experts, sums + small, exchange) if self.halves else (experts, sums + exchange + small, None)

    def answers_attended(self, sequences: Any, context: Any, drafted: int = 0, tag: Tag = untagged) -> Any:
        """Attention of sequences that are answered, after ``context`` tokens each on average."""
        ahead, total = self._pass(DECODE, sequences, 1, context), 0.0
        tag = tag if self.factors is None else scaled(tag, self.factors[1])
        for count, kind in self.blocks.mixing[DECODE]:
            total = total + count * self._decoded(kind, ahead, drafted, tag)
        return total if self.deployment.cp == 1 else total + self._put_together(sequences * (1 + drafted), tag)

    def prompts_attended(self, prompts: Any, tokens: Any, context: Any, tag: Tag = untagged) -> Any:
        """Attention of prompts, of so many tokens each after ``context``."""
        ahead, total = self._pass("prefill", prompts, tokens, context), 0.0
        tag = tag if self.factors is None else scaled(tag, self.factors[0])
        for count, kind in self.blocks.mixing[PROMPT]:
            total = total + count * self._prompted(kind, ahead, tag)
        return total

    def step_time(
        self,
        rows: Rows,
        attention: Any,
        decode: Any,
        reading: Any,
        sequences: Any,
        prompts: Any,
        tag: Tag = untagged,
        longest: Any = math.inf,
    ) -> StepTime:
        """The step of these: what the host adds, and what stages are busy with. The ``longest`` prompt has so many tokens at its end."""
        d, tokens, experts = self.deployment, decode + reading, rows.experts
        device = rows.products + attention + experts + rows.rest
        if rows.exchange is not None:
            held = serving_table("exchange")["held_share"] if present(prompts) else 0.0
            beside = maximum(device + held * rows.exchange, rows.exchange)
            device = where(rows.halves > 1, beside, device + rows.exchange)
        _, of_answers, of_launches = self.factors or (1.0, 1.0, 1.0)
        runner = self.engine
        own = runner.step + runner.per_sequence * sequences + runner.drafted_token * (decode - sequences)
        host = tag(_ENGINE, 3, "host", "t = c_0 + c_s N + c_d D", of_answers * own)
        busy, launches, waited = device, 0.0, 0.0
        prompted = present(prompts)
        if prompted or present(runner.answer_operator):
            # Operators that the host launches one by one: a step cannot be faster than the launches.
            operator = runner.host_operator if prompted else runner.answer_operator
            there = minimum(sequences, 1.0) if prompted else 0.0
            launched = rows.halves * self.launched(prompts, there, longest if prompted else math.inf)
            launched = of_launches * launched if prompted else launched
            launches = tag(_LAUNCHES, 3, "host", "t = n t_host", launched * operator)
            waited = tag(_LAUNCHES, 3, "host", "t = n t_wait", launched * runner.waited_operator)
            busy = soft_maximum(device, launches) + waited
        total = stage = busy + host
        if d.pp > 1:
            longest = self.longest_stage
            stage = maximum(longest * device, longest * launches + host) + longest * waited
            total = total + self._sends(tokens, tag)
        return StepTime(total, stage, device, attention, experts)


def _plain(asked: tuple[Any, ...]) -> bool:
    """Whether all are plain numbers, and none an array."""
    return all(type(each) is float or type(each) is int for each in asked)


@lru_cache(maxsize=32768)
def _formed(step: EngineStep, factor: float | None, prompted: bool, *asked: Any) -> Rows:
    """Rows of plain numbers, which steps of other contexts have too."""
    return step._form(untagged, factor, prompted, *asked)


@lru_cache(maxsize=32768)
def _timed(step: EngineStep, *asked: Any) -> StepTime:
    """A step of plain numbers: loads that are searched, and changes of a plan, come back to the same ones."""
    return step._time(untagged, *asked)


def padded(rows: Any, sizes: tuple[int, ...]) -> Any:
    """Rows of the smallest captured graph that holds so many; beyond the largest, as they are."""
    found = rows
    for size in reversed(sizes):
        found = where(rows <= size, float(size), found)
    return found


@lru_cache(maxsize=4096)
def _built(model: _Held, chip: _Held, engine: Engine, layout: tuple[tuple[str, Any], ...]) -> EngineStep:
    return EngineStep(Deployment(model.value, chip.value, engine, **dict(layout)))


class _Held:
    """Hashes a zoo entry by identity: entries are frozen, hold tables that cannot be hashed, and are kept alive here."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value is self.value


def engine_step(model: TransformerWorkload, chip: HardwareNode, engine: Engine, **layout: Any) -> EngineStep:
    """The steps of a deployment, whose formats and degrees are those of :class:`Deployment`; equal ones are built once."""
    return _built(_Held(model), _Held(chip), engine, tuple(sorted(layout.items())))
