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
(a layer's, and further ones for each prompt and for answers beside them), and a time of each of them more that the device waits for. Active
experts are counted over the tokens of all attention ranks: E/ep (1 - (1 - k/E)^T).

Where experts are on several nodes, engines cut the batch into halves, which compute in turn while the other's tokens are on their way
(:meth:`EngineStep.halved`): each half has its own starts and reads the weights, so that of c for both halves and x for both exchanges a step takes

    max( c + s x, x )                        s: share of the multiprocessors that messages of prompts hold meanwhile

With p stages a step is one group of sequences on its way through all of them; its time is that of the whole way, and ``stage`` the part
of it in which the longest stage is busy: ceil(L/p)/L of the device's time, or of the launches and the host's own, since a host prepares
one group while its device works on another. Left out: embedding and output head, which the first and the last stage
have alone (1 to 2 % of the weights of a large model).

Products, attention and experts are those of :mod:`mlsysim.timing.engine_block`, messages of :mod:`mlsysim.timing.engine_messages`.
"""

from __future__ import annotations

import math
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.ffn import Experts
from mlsysim.models.graph import MULTIPLY_ADD
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.template import Core, Scan
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import (
    attention_time,
    cache_attention_time,
    distinct_kinds,
    experts_time,
    moving_time,
    product_time,
    soft_maximum,
)
from mlsysim.timing import kernels
from mlsysim.timing.engine_block import ALL, DECODE, PROMPT, SAMPLED, Deployment, StepProduct
from mlsysim.timing.engine_device import present
from mlsysim.timing.engine_messages import EngineMessages
from mlsysim.timing.engines import Engine, serving_table
from mlsysim.timing.operator_times import Tag, clocked, expanded_weights, expansion, started, untagged
from mlsysim.timing.power import Clock
from mlsysim.units.ops import maximum, minimum, power, sqrt, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

# Names of the times that a step is made of, and the forms.
_PRODUCTS, _WEIGHTS, _CONVERSION = "products", "weights", "conversion of inputs"
_ATTENTION, _CACHES, _SCANS, _SMALL = "attention", "caches", "scans", "norms and activations"
_EXPERTS, _EXPERT_WEIGHTS, _ROUTED = "experts", "weights of experts", "routed tokens"
FEWEST_TOKENS = 1e-12
_ENGINE, _LAUNCHES, _ADAPTERS = "engine", "launches", "adapters"
_ROOF, _MOVED, _RAMP = "t = t_0 + |F / R, B / (e W)|", "t = B / (e W)", "t = F (1 + S_0 / S) / R"


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


class EngineStep(EngineMessages):
    """Steps of one deployment. Build it with :func:`engine_step`, which keeps what was built before.

    ``clocks`` are those of steps with prompts and of others, where a limit of power lowers them.
    """

    clocks: tuple[Clock, Clock] | None = None

    def at(self, clocks: tuple[Clock, Clock]) -> EngineStep:
        """The same at lower clocks."""
        found = copy(self)
        found.clocks = clocks
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
        if tag is untagged and all(type(each) is float or type(each) is int for each in asked):
            return _timed(self, *asked)
        return self._time(tag, *asked)

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
        return self.step_time(rows, answers + prompted, decode, reading, sequences, prompts, drawn)

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
        """What the tokens of a step take whatever their contexts are: ``decode`` and ``reading`` ones of so many requests."""
        d = self.deployment
        if self.engine.graphs and not present(prompts):
            decode = padded(decode, self.engine.graphs)
        tokens, halves = decode + reading, self.halved(decode, reading)
        there = minimum(sequences, 1.0) if present(prompts) else 1.0
        counts = {ALL: tokens, DECODE: decode, PROMPT: reading, SAMPLED: decode + prompts}
        products: Any = 0.0
        for kind, m in counts.items():
            if present(m):
                products = products + (there if kind == DECODE else 1.0) * self.products(kind, m, tag, halves)
        if self.blocks.adapters:
            products = products + self.adapted(tokens, sequences + prompts, tag)
        everywhere = (decode + reading * reading_ranks) * d.attention_dp
        experts, rest, exchange = self.shared(tokens, everywhere, present(prompts), tag, halves)
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
        for count, kind in self.blocks.mixing[DECODE]:
            total = total + count * self._decoded(kind, ahead, drafted, tag)
        return total if self.deployment.cp == 1 else total + self._put_together(sequences * (1 + drafted), tag)

    def prompts_attended(self, prompts: Any, tokens: Any, context: Any, tag: Tag = untagged) -> Any:
        """Attention of prompts, of so many tokens each after ``context``."""
        ahead, total = self._pass("prefill", prompts, tokens, context), 0.0
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
    ) -> StepTime:
        """The step of these: what the host adds, and what stages are busy with."""
        d, tokens, experts = self.deployment, decode + reading, rows.experts
        device = rows.products + attention + experts + rows.rest
        if rows.exchange is not None:
            held = serving_table("exchange")["held_share"] if present(prompts) else 0.0
            beside = maximum(device + held * rows.exchange, rows.exchange)
            device = where(rows.halves > 1, beside, device + rows.exchange)
        host = tag(_ENGINE, 3, "host", "t = c_0 + c_s N", self.engine.step + self.engine.per_sequence * sequences)
        busy, launches, waited = device, 0.0, 0.0
        if present(prompts):
            # Operators that the host launches one by one: a step cannot be faster than the launches.
            launched = rows.halves * self.launched(prompts, minimum(sequences, 1.0))
            launched = launched if self.factors is None else launched * self.factors[2]
            launches = tag(_LAUNCHES, 3, "host", "t = n t_host", launched * self.engine.host_operator)
            waited = tag(_LAUNCHES, 3, "host", "t = n t_wait", launched * self.engine.waited_operator)
            busy = soft_maximum(device, launches) + waited
        total = stage = busy + host
        if d.pp > 1:
            longest = self.longest_stage
            stage = maximum(longest * device, longest * launches + host) + longest * waited
            total = total + self._sends(tokens, tag)
        found = total, stage, device, attention, experts
        if self.factors is not None:
            # What this model was measured to take on this engine, over these forms: of prompts and of answers, by their tokens in the step.
            of_prompts, of_answers, _ = self.factors
            scale = of_answers * power(of_prompts / of_answers, reading / maximum(tokens, FEWEST_TOKENS))
            found = tuple(each * scale for each in found)
        return StepTime(*found)

    def _product_time(
        self, p: StepProduct, m: Any, tag: Tag, copies: Any = 1.0, names: tuple[str, str] = (_PRODUCTS, _WEIGHTS)
    ) -> Any:
        """A product with m tokens, which reads ``copies`` of its weights."""
        r = self.narrow if p.narrow else self.full
        # Read in 16 bits, written in 8.
        quantised = (self.element + self.byte) * m * (p.k if p.narrow and self.quantises else 0.0)
        operations = MULTIPLY_ADD * m * p.n * p.k * p.groups
        moved = copies * self._stored(p) + self.element * m * (p.n + p.k) * p.groups
        expanding: Any = 0.0
        if p.narrow and not self.quantises:
            chip, once = self.deployment.chip, MULTIPLY_ADD * p.n * p.k * p.groups
            expanding = expansion(chip, self.precision, once, operations, tag)
            moved = moved + expanded_weights(self.precision, p.elements, m)
        return product_time(
            soft_maximum(tag(names[0], 1, "peak", _ROOF, operations / r.rate, flop=operations), expanding),
            tag(names[1], 2, "bandwidth", _ROOF, moved / (r.memory_share * self.bandwidth), moved=moved),
            tag(_CONVERSION, 2, "bandwidth", _MOVED, quantised / (r.quantise_share * self.bandwidth), moved=quantised),
            0.0,
            started(r.start, tag),
        )

    def _streamed(self, name: str, moved: Any, share: float, tag: Tag) -> Any:
        """Bytes at the achieved share of the bandwidth."""
        return tag(name, 2, "bandwidth", _MOVED, moved / (share * self.bandwidth), moved=moved)

    def _pass(self, phase: str, batch: Any, new: Any, context: Any) -> Pass:
        return Pass(phase, batch, new, context, self.weight, self.element, self.cache, Sharding(tp=self.deployment.tp))

    def _decoded(self, kind: Core | Scan, p: Pass, drafted: int, tag: Tag) -> Any:
        """Attention of one query a sequence against its cache, or states read and written."""
        k, narrow = self.kernels.attention, self.narrow_cache
        op, start = kind.operators(p, None)[-1], started(k.times[1], tag)
        if isinstance(kind, Scan):
            share = self._scan(kind).memory_share
            return moving_time(self._streamed(_CACHES, op.cache_bytes, share, tag), start)
        share = (k.decode_fp8_share if narrow else None) or k.decode_memory_share
        rate = self.attended
        if kind.latent:
            share = k.latent_memory_share
            rate = self.peak * k.latent_rate_share * ((k.latent_fp8_gain if narrow else None) or 1.0)
        operations = op.flops * (1 + drafted)
        computing = tag(_ATTENTION, 1, "peak", _ROOF, operations / rate, flop=operations)
        held = op.cache_bytes / self.deployment.cp
        seconds = held / (share * self.bandwidth) * self.engine.context_scale
        reading = tag(_CACHES, 2, "bandwidth", _ROOF, seconds, moved=held)
        return cache_attention_time(computing, reading, 0.0, 0.0, start)

    def _prompted(self, kind: Core | Scan, p: Pass, tag: Tag) -> Any:
        """Attention over a prompt, or a scan in chunks."""
        k = self.kernels.attention
        op, start = kind.operators(p, None)[-1], started(k.times[0], tag)
        if isinstance(kind, Scan):
            own = self._scan(kind)
            scan = tag(_SCANS, 1, "peak", "t = F / R", op.flops / (own.rate_share * self.peak), flop=op.flops)
            return scan + moving_time(self._streamed(_SCANS, op.bytes, own.memory_share, tag), start)
        rate = self.attended * (k.fp8_gain if self.narrow_cache else 1.0)
        seconds = op.flops * (1 + k.ramp_tokens / maximum(p.new, 1.0)) / rate * self.engine.prompt_scale
        return attention_time(tag(_ATTENTION, 1, "peak", _RAMP, seconds, flop=op.flops), 0.0, start)

    def _scan(self, scan: Scan) -> kernels.Scan:
        return self.kernels.scans.get(scan.name) or self.kernels.scans["other"]

    def _experts_time(self, routed: Experts, tokens: Any, tag: Tag) -> Any:
        d = self.deployment
        own = self.expert_constants
        assert own is not None
        inner, width = routed.inner, routed.width / self.moe_tp
        skew = serving_table("exchange")["imbalance"] if d.moe_ep > 1 else 1.0
        rows = tokens * routed.per_token / d.moe_ep * skew
        chosen = 1 - (1 - routed.per_token / routed.count) ** tokens
        local = routed.count / d.moe_ep
        # The step waits for the device with the most active experts: the largest of ep nearly normal counts.
        busiest = local * chosen + sqrt(2 * math.log(d.moe_ep) * local * chosen * (1 - chosen))
        active = minimum(busiest, local)
        peak = arithmetic_peak(d.chip, self.precision)[0] * self.kernels.rate_scale
        each = routed.matrices * inner * width
        operations = MULTIPLY_ADD * rows * each
        scale = getattr(self.engine, f"experts_{self.expert_format}")
        return scale * experts_time(
            tag(_EXPERTS, 1, "peak", _ROOF, operations / (peak * own.rate_share), flop=operations),
            self._streamed(_EXPERT_WEIGHTS, active * each * self.weight, own.memory_share, tag),
            self._streamed(_ROUTED, rows * (inner + width) * self.element, own.activation_share, tag),
            started(to_si(own.start, "s") + self.engine.expert_block, tag),
        )


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
