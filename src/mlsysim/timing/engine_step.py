"""Calibrated fidelity of serving: the time of one step of an inference engine.

A step runs m tokens through the network: one (or, with draft tokens, a few) for each sequence that is being answered,
and any number of prompt tokens. Its time on the busiest attention rank is the sum over layers of

    matrix products      t0 + |F/(ec P), B/(eb W)|_4 + 3 m k/(0.45 W)           the last term where inputs are quantised
    decode attention     t0 + KV bytes/(ekv W), by engine and cache format; latent attention is not split by tensors
    prefill attention    t0 + F (1 + S0/S)/(eta P)
    recurrent layers     states read and written (decode), chunked scan (prefill)
    experts              t0 + imbalance (|F/(ec P), active weights/(eb W)|_2 + routed activations/(ea W))
    tensor parallelism   an all-reduce after each mixer and each feed-forward part: a + b n + bytes/bandwidth(n)
    attention ranks      dispatch and combine between the ranks' tokens and the experts
    small kernels        a fixed number per layer, and 8 passes over m x h elements

and the engine's own time c0 + cs sequences. A step with prompts in it is not captured in a graph: it takes at least the
host's time for its operators, and a constant more. Active experts are counted over the tokens of all attention ranks:
E/ep (1 - (1 - k/E)^T).

Which matrices are narrow: all of a dense model's; of a mixture in a 4-bit format the feed-forward part only, as published
checkpoints have it; router, output head and the absorbed latent projections stay 16 bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.latent_attention import CompressedAttention, LatentAttention
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.recurrent import StateSpace
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.operators import attention_time, cache_attention_time, experts_time, moving_time, product_time
from mlsysim.physics.precision import bytes_per_element, compute_precision, precision_name
from mlsysim.timing.engines import Engine, chip_class, engine_network, offered_memory, serving_table
from mlsysim.timing.kernels import Experts
from mlsysim.timing.operator_times import STARTS, Tag, untagged
from mlsysim.timing.profile import profile
from mlsysim.units.ops import maximum, minimum, sqrt
from mlsysim.units.registry import to_si

__all__ = ["Deployment", "EngineStep", "StepTime", "engine_step"]

_PASSES = 8
"""Times that a layer's norms, residuals and gates move the m x h activations."""
_HALF = 2.0
"""Bytes of an activation."""

# Names of the times that a step is made of, the wall of collectives, and the forms.
_PRODUCTS, _WEIGHTS, _CONVERSION = "products", "weights", "conversion of inputs"
_ATTENTION, _CACHES, _SCANS, _SMALL = "attention", "caches", "scans", "norms and activations"
_EXPERTS, _EXPERT_WEIGHTS, _ROUTED = "experts", "weights of experts", "routed tokens"
_TENSORS, _EXCHANGE, _ENGINE, _LAUNCHES = "tensor parallelism", "expert exchange", "engine", "launches"
_COMMUNICATION = 14
_ROOF, _MOVED, _RAMP = "t = t_0 + |F / R, B / (e W)|", "t = B / (e W)", "t = F (1 + S_0 / S) / R"


@dataclass(frozen=True)
class Deployment:
    """A model on one instance of an engine. ``attention_dp`` ranks of ``tp`` devices each; experts over all of them."""

    model: TransformerWorkload
    chip: HardwareNode
    engine: Engine
    precision: str = "bf16"
    cache_precision: str = "bf16"
    tp: int = 1
    attention_dp: int = 1
    moe_tp: int | None = None
    moe_ep: int = 1
    pp: int = 1

    @property
    def devices(self) -> int:
        return self.tp * self.attention_dp * self.pp


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step: in all, on the device, and the parts that the device's time is made of."""

    total: Any
    device: Any
    products: Any
    attention: Any
    experts: Any
    communication: Any
    small: Any
    engine: Any


@dataclass(frozen=True, slots=True)
class _Product:
    """``count`` products of an n x k weight with the tokens of a kind: all, decode, prompt or sampled ones."""

    count: float
    n: float
    k: float
    groups: float
    weight_bytes: float
    narrow: bool
    tokens: str


@dataclass(frozen=True, slots=True)
class _Rates:
    rate: float
    memory_share: float
    start: float
    quantise_share: float


class EngineStep:
    """Steps of one deployment. Build it with :func:`engine_step`, which keeps what was built before."""

    def __init__(self, deployment: Deployment) -> None:
        d = self.deployment = deployment
        self.engine = d.engine
        self.kernels = profile(d.chip, f"serving.{d.engine.kernels}")
        self.network = engine_network(d.chip, d.engine.reduce_scale)
        self.family = chip_class(d.chip)
        self.usable_memory = to_si(d.chip.memory.capacity, "byte") * offered_memory(d.chip)
        self.bandwidth = to_si(d.chip.memory.bandwidth, "byte/s")
        self.memory = to_si(d.chip.memory.capacity, "byte")
        self.stack = d.model.stack
        self.hidden = self.stack.hidden
        self.wide = "bf16" if d.chip.compute.supports("bf16") else "fp16"
        self.peak16 = arithmetic_peak(d.chip, self.wide)[0] * self.kernels.rate_scale
        self.precision = precision_name(d.precision)
        self.weight = bytes_per_element(self.precision)
        self.cache = bytes_per_element(d.cache_precision)
        self.quantises = self.weight < 2 and d.chip.compute.supports(compute_precision(self.precision))
        self.mixture = any(isinstance(b.ffn, MixtureOfExperts) for b in self.stack.blocks)
        self.blocks = self.mixture and d.engine.block_scaled
        self.narrow = self._rates(self.precision)
        self.full = self._rates(self.wide)
        self.moe_tp = d.moe_tp if d.moe_tp is not None else max(1, d.tp * d.attention_dp // d.moe_ep)
        self._check()
        self.products: list[_Product] = []
        self.mixers: list[tuple[float, Any]] = []
        self.experts: list[tuple[float, MixtureOfExperts]] = []
        self.expert_constants = self._expert_constants() if self.mixture else None
        self.layers = 0.0
        self.reductions = 0.0
        self.exchanges = 0.0
        self.operators = 0.0
        self._compile()

    # --- building -------------------------------------------------------------------------------------------------

    def _rates(self, precision: str) -> _Rates:
        """Achieved rates of products with weights in this format; without arithmetic for it they are computed in 16 bit."""
        peak, note = arithmetic_peak(self.deployment.chip, precision)
        narrow = compute_precision(precision)
        wanted = {"fp4": ("nvfp4", "fp4"), "fp8": ("fp8_block", "fp8") if self.blocks else ("fp8",)}.get(
            narrow, (narrow,)
        )
        table = self.kernels.gemm
        names = (narrow, self.wide) if note else (*wanted, "fp8", self.wide)
        found = table[next(name for name in (*names, "bf16", "fp16") if name in table)]
        # Block-scaled inputs are quantised by a kernel of their own; other formats by the kernel before.
        extra = self.kernels.memory_bound.times[0] if narrow == "fp8" and self.blocks else 0.0
        rate = peak * self.kernels.rate_scale * (found.rate_share * found.kept)
        return _Rates(rate, found.memory_share, found.times[0] + extra, found.quantise_share)

    def _check(self) -> None:
        d = self.deployment
        if self.mixture and self.moe_tp * d.moe_ep not in (d.tp * d.attention_dp, 1):
            raise InputError(
                f"experts over {self.moe_tp} x {d.moe_ep} devices do not match {d.tp} x {d.attention_dp} attention devices."
            )

    def _compile(self) -> None:
        d = self.deployment
        shard = Sharding(tp=d.tp)
        counts = serving_table("operators")
        narrow_mixer = not (self.mixture and self.weight < 1)
        for block in self.stack.blocks:
            n = float(block.count)
            parts = len(block.mixers) + (block.ffn is not None)
            self.layers += n * parts / 2
            for mixer in block.mixers:
                self._mixer(mixer, n, shard, narrow_mixer)
                latent = isinstance(mixer, (LatentAttention, CompressedAttention))
                kind = "latent" if latent else "attention" if mixer.pair_operations else "recurrent"
                sparse = getattr(mixer, "sparse", None) is not None or isinstance(mixer, CompressedAttention)
                self.operators += n * (counts[kind] + (counts["sparse"] if sparse else 0))
            if isinstance(block.ffn, MixtureOfExperts):
                self._mixture(block.ffn, n)
                self.operators += n * counts["moe"]
            elif block.ffn is not None:
                self._dense(block.ffn, n, self.weight < 2)
                self.operators += n * counts["ffn"]
            if d.tp > 1:
                self.reductions += n * parts
                self.operators += n * parts / 2 * counts["tensor"]
            if self.weight < 2:
                self.operators += n * parts / 2 * counts["quantised"]
        if self.stack.head and self.stack.vocab:
            width = self.stack.embedding or self.hidden
            self._product(1.0, self.stack.vocab / d.tp, width, False, "sampled")

    def _product(self, count: float, n: float, k: float, narrow: bool, tokens: str, groups: float = 1.0) -> None:
        bytes_ = n * k * groups * (self.weight if narrow else _HALF)
        self.products.append(_Product(count, n, k, groups, bytes_, narrow, tokens))

    def _mixer(self, mixer: Any, count: float, shard: Sharding, narrow: bool) -> None:
        self.mixers.append((count, mixer))
        passes = {phase: mixer.operators(Pass(phase, 1, 1, 1, 1.0, 1.0, 1.0, shard)) for phase in ("decode", "prefill")}
        names = {phase: {op.name for op in ops} for phase, ops in passes.items()}
        for phase, ops in passes.items():
            for op in ops:
                if op.kind not in ("gemm", "batched_gemm"):
                    continue
                shared = op.name in names["decode"] and op.name in names["prefill"]
                if shared and phase == "prefill":
                    continue
                absorbed = op.kind == "batched_gemm" and not shared
                tokens = "all" if shared else "decode" if phase == "decode" else "prompt"
                self._product(count, op.n, op.k, narrow and not absorbed and self.weight < 2, tokens, op.groups)

    def _dense(self, ffn: FeedForward, count: float, narrow: bool, share: float | None = None) -> None:
        width = ffn.width / (share or self.deployment.tp)
        self._product(count, (2 if ffn.gated else 1) * width, ffn.hidden, narrow, "all")
        self._product(count, ffn.hidden, width, narrow, "all")

    def _mixture(self, ffn: MixtureOfExperts, count: float) -> None:
        d = self.deployment
        self.experts.append((count, ffn))
        self._product(count, ffn.experts, ffn.hidden, False, "all")
        if ffn.latent:
            self._product(count, ffn.latent / d.tp, ffn.hidden, False, "all")
            self._product(count, ffn.hidden, ffn.latent / d.tp, False, "all")
        if ffn.shared_width:
            self._dense(FeedForward(ffn.hidden, ffn.shared_width, ffn.gated), count, self.weight < 2)
        if d.attention_dp > 1:
            self.exchanges += count
            self.operators += count * serving_table("operators")["data"]

    # --- memory ---------------------------------------------------------------------------------------------------

    @property
    def longest_stage(self) -> float:
        """The longest pipeline stage's share of the layers."""
        layers = sum(block.count for block in self.stack.blocks)
        return math.ceil(layers / self.deployment.pp) / layers

    @property
    def device_weights(self) -> float:
        """Bytes of weights on the fullest device."""
        d = self.deployment
        total = sum(p.count * p.weight_bytes for p in self.products if p.tokens != "prompt")
        for count, ffn in self.experts:
            matrices = 3 if ffn.gated else 2
            inner = ffn.latent or ffn.hidden
            total += count * ffn.experts / d.moe_ep * matrices * inner * ffn.width / self.moe_tp * self.weight
        if self.stack.vocab and not (self.stack.tied and self.stack.head):
            total += self.stack.vocab * (self.stack.embedding or self.hidden) * _HALF / d.tp
        return total * self.longest_stage

    def sequence_bytes(self, tokens: Any) -> Any:
        """Bytes of cache and state that a sequence of so many tokens keeps on the fullest device of its rank."""
        tp = self.deployment.tp
        total: Any = 0.0
        for count, mixer in self.mixers:
            latent = isinstance(mixer, (LatentAttention, CompressedAttention))
            split = 1 if latent else min(tp, getattr(mixer, "kv_heads", tp))
            total = total + count * mixer.cache_per_token * mixer.cache_tokens(tokens) / split * self.cache
            total = total + count * mixer.state / tp * _HALF
        return total * self.longest_stage

    # --- time -----------------------------------------------------------------------------------------------------

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
        d, k = self.deployment, self.kernels
        decode = sequences * (1 + drafted)
        reading = prompts * prompt_tokens
        tokens = decode + reading
        counts = {"all": tokens, "decode": decode, "prompt": reading, "sampled": decode + prompts}
        products: Any = 0.0
        for p in self.products:
            m = counts[p.tokens]
            if isinstance(m, (int, float)) and m <= 0:
                continue
            products = products + p.count * self._product_time(p, m, tag)
        attention: Any = 0.0
        for count, mixer in self.mixers:
            if not isinstance(sequences, (int, float)) or sequences > 0:
                attention = attention + count * self._decode_attention(mixer, sequences, context, drafted, tag)
            if not isinstance(prompts, (int, float)) or prompts > 0:
                attention = attention + count * self._prefill_attention(
                    mixer, prompts, prompt_tokens, prompt_context, tag
                )
        experts: Any = 0.0
        everywhere = (decode + reading * reading_ranks) * d.attention_dp
        for count, ffn in self.experts:
            experts = experts + count * self._experts_time(ffn, everywhere, tag)
        communication = self._communication(tokens, everywhere, tag)
        moved = _PASSES * tokens * self.hidden * _HALF
        small = self.layers * (
            tag(STARTS, 3, "start", "t = n t_0", self.engine.small_kernels * k.memory_bound.times[0])
            + self._streamed(_SMALL, moved, k.memory_bound.fused_share, tag)
        )
        device = products + attention + experts + communication + small
        host = tag(_ENGINE, 3, "host", "t = c_0 + c_s N", self.engine.step + self.engine.per_sequence * sequences)
        total = device + host
        if not isinstance(prompts, (int, float)) or prompts > 0:
            launches = tag(_LAUNCHES, 3, "host", "t = n t_host", self.operators * self.engine.host_operator)
            fixed = tag(_ENGINE, 3, "host", "t = c_p", self.engine.prefill_step)
            # Operators that the host launches one by one: a step cannot be faster than the launches.
            total = maximum(device, launches) + host + fixed
        return StepTime(total, device, products, attention, experts, communication, small, host)

    def _product_time(self, p: _Product, m: Any, tag: Tag) -> Any:
        r = self.narrow if p.narrow else self.full
        quantised = 3.0 * m * p.k if p.narrow and self.quantises else 0.0 * m
        operations = 2.0 * m * p.n * p.k * p.groups
        moved = p.weight_bytes + _HALF * m * (p.n + p.k) * p.groups
        return product_time(
            tag(_PRODUCTS, 1, "peak", _ROOF, operations / r.rate, flop=operations),
            tag(_WEIGHTS, 2, "bandwidth", _ROOF, moved / (r.memory_share * self.bandwidth), moved=moved),
            tag(_CONVERSION, 2, "bandwidth", _MOVED, quantised / (r.quantise_share * self.bandwidth), moved=quantised),
            0.0,
            tag(STARTS, 3, "start", "t = n t_0", r.start),
        )

    def _streamed(self, name: str, moved: Any, share: float, tag: Tag) -> Any:
        """Bytes at the achieved share of the bandwidth."""
        return tag(name, 2, "bandwidth", _MOVED, moved / (share * self.bandwidth), moved=moved)

    def _pass(self, phase: str, batch: Any, new: Any, context: Any) -> Pass:
        return Pass(phase, batch, new, context, self.weight, _HALF, self.cache, Sharding(tp=self.deployment.tp))

    def _decode_attention(self, mixer: Any, sequences: Any, context: Any, drafted: int, tag: Tag) -> Any:
        k = self.kernels.attention
        total: Any = 0.0
        for op in mixer.operators(self._pass("decode", sequences, 1, context)):
            if op.kind == "attention":
                latent = op.kv_heads == 1 and op.k > 256
                narrow = self.cache < 2
                share = (k.decode_fp8_share if narrow else None) or k.decode_memory_share
                rate = self.peak16 * k.rate_share
                if latent:
                    share = k.latent_memory_share
                    rate = self.peak16 * k.latent_rate_share * ((k.latent_fp8_gain if narrow else None) or 1.0)
                operations = op.flops * (1 + drafted)
                total = total + cache_attention_time(
                    tag(_ATTENTION, 1, "peak", _ROOF, operations / rate, flop=operations),
                    tag(
                        _CACHES, 2, "bandwidth", _ROOF, op.cache_bytes / (share * self.bandwidth), moved=op.cache_bytes
                    ),
                    0.0,
                    0.0,
                    tag(STARTS, 3, "start", "t = n t_0", k.times[1]),
                )
            elif op.kind == "scan":
                moved = op.cache_bytes * _HALF / self.cache
                total = total + moving_time(
                    self._streamed(_CACHES, moved, self._scan(mixer).memory_share, tag),
                    tag(STARTS, 3, "start", "t = n t_0", k.times[1]),
                )
        return total

    def _prefill_attention(self, mixer: Any, prompts: Any, new: Any, context: Any, tag: Tag) -> Any:
        k = self.kernels.attention
        total: Any = 0.0
        for op in mixer.operators(self._pass("prefill", prompts, new, context)):
            start = tag(STARTS, 3, "start", "t = n t_0", k.times[0])
            if op.kind == "attention":
                rate = self.peak16 * (k.rate_share * (k.fp8_gain if self.cache < 2 else 1.0))
                seconds = op.flops * (1 + k.ramp_tokens / maximum(new, 1.0)) / rate
                total = total + attention_time(tag(_ATTENTION, 1, "peak", _RAMP, seconds, flop=op.flops), 0.0, start)
            elif op.kind == "scan":
                kernel = self._scan(mixer)
                scan = op.flops / (kernel.rate_share * self.peak16)
                moved = moving_time(self._streamed(_SCANS, op.bytes, kernel.memory_share, tag), start)
                total = total + tag(_SCANS, 1, "peak", "t = F / R", scan, flop=op.flops) + moved
        return total

    def _scan(self, mixer: Any) -> Any:
        return self.kernels.scans["mamba" if isinstance(mixer, StateSpace) else "delta"]

    @property
    def expert_format(self) -> str:
        """The format whose expert kernels apply; 4-bit weights without 4-bit arithmetic are computed in 16 bit."""
        if self.weight >= 2:
            return "bf16"
        if self.precision in ("mxfp4", "int4"):
            return self.precision
        if self.precision in ("fp4", "nvfp4"):
            return "nvfp4" if self.quantises else "mxfp4"
        return "fp8"

    def _expert_constants(self) -> Experts:
        found, name = self.kernels.experts, self.expert_format
        return (found.get(f"{name}_wide") if self.deployment.moe_ep > self.network.node else None) or found[name]

    def _experts_time(self, ffn: MixtureOfExperts, tokens: Any, tag: Tag) -> Any:
        d = self.deployment
        constants = self.expert_constants
        assert constants is not None
        inner = ffn.latent or ffn.hidden
        matrices = 3 if ffn.gated else 2
        width = ffn.width / self.moe_tp
        skew = serving_table("exchange")["imbalance"] if d.moe_ep > 1 else 1.0
        rows = tokens * ffn.per_token / d.moe_ep * skew
        chosen = 1 - (1 - ffn.per_token / ffn.experts) ** tokens
        local = ffn.experts / d.moe_ep
        # The step waits for the device with the most active experts: the largest of ep nearly normal counts.
        busiest = local * chosen + sqrt(2 * math.log(d.moe_ep) * local * chosen * (1 - chosen))
        active = minimum(busiest, local)
        peak = arithmetic_peak(d.chip, self.precision)[0] * self.kernels.rate_scale
        operations = 2.0 * rows * matrices * inner * width
        weights = active * matrices * inner * width * self.weight
        routed = rows * (inner + width) * _HALF
        return experts_time(
            tag(_EXPERTS, 1, "peak", _ROOF, operations / (peak * constants.rate_share), flop=operations),
            self._streamed(_EXPERT_WEIGHTS, weights, constants.memory_share, tag),
            self._streamed(_ROUTED, routed, constants.activation_share, tag),
            tag(STARTS, 3, "start", "t = n t_0", to_si(constants.start, "s") + self.engine.expert_block),
            1.0,
        )

    def _communication(self, tokens: Any, everywhere: Any, tag: Tag) -> Any:
        d, net = self.deployment, self.network
        total: Any = 0.0
        token = self.hidden * _HALF
        if d.tp > 1:
            reductions = self.reductions
            if d.attention_dp > 1:
                reductions = reductions - sum(count for count, _ in self.experts)
            leg = partial(tag, _TENSORS, _COMMUNICATION)
            total = total + reductions * net.all_reduce(tokens * token, net.group(d.tp), leg)
        if d.attention_dp > 1 and self.exchanges:
            leg = partial(tag, _EXCHANGE, _COMMUNICATION)
            if d.moe_ep > 1:
                once = self._exchange(tokens, leg)
            else:
                # Tokens of all ranks are gathered for experts split by tensors, and the sums scattered: one all-reduce.
                once = net.all_reduce(everywhere * token, net.group(d.devices), leg)
            total = total + self.exchanges * once
        return total

    def _exchange(self, tokens: Any, leg: Callable[..., Any]) -> Any:
        """Dispatch (8-bit or narrower activations) and combine (16 bit) of a rank's tokens."""
        d, ffn = self.deployment, self.experts[0][1]
        group, copies = self.network.group(d.moe_ep), minimum(ffn.per_token, d.moe_ep)
        sent = tokens * (ffn.latent or ffn.hidden) / d.tp
        sizes = sent * min(maximum(self.weight, 1.0), _HALF), sent * _HALF
        return sum(self.network.exchange(size, copies, group, leg=leg) for size in sizes)


@lru_cache(maxsize=4096)
def _built(key: tuple[Any, ...]) -> EngineStep:
    model, chip, engine, *rest = (part.value if isinstance(part, _Held) else part for part in key)
    return EngineStep(Deployment(model, chip, engine, *rest))


class _Held:
    """Hashes a zoo entry by identity: entries are frozen, hold tables that cannot be hashed, and are kept alive here."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value is self.value


def engine_step(
    model: TransformerWorkload,
    chip: HardwareNode,
    engine: Engine,
    *,
    precision: str = "bf16",
    cache_precision: str = "bf16",
    tp: int = 1,
    attention_dp: int = 1,
    moe_tp: int | None = None,
    moe_ep: int = 1,
    pp: int = 1,
) -> EngineStep:
    """The steps of a deployment; equal deployments are built once."""
    rest = (precision, cache_precision, tp, attention_dp, moe_tp, moe_ep, pp)
    return _built((_Held(model), _Held(chip), engine, *rest))
