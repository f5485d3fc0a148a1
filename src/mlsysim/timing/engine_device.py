"""What an inference engine has on the devices of one deployment: rates of its kernels, weights, caches and adapters held.

Steps that run on it are timed in :mod:`mlsysim.timing.engine_step`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.storage import kept_parts
from mlsysim.models.template import Core
from mlsysim.physics.precision import bytes_per_element, compute_precision, format_of, precision_name
from mlsysim.timing import kernels
from mlsysim.timing.engine_block import (
    ADAPTED,
    DECODE,
    PROMPT,
    SAMPLED,
    Deployment,
    StepProduct,
    add_adapters,
    step_blocks,
)
from mlsysim.timing.engines import chip_class, device_memory, engine_network, offered_memory, serving_table
from mlsysim.timing.profile import profile
from mlsysim.timing.sustained import measured_attention, measured_products, peak_rate
from mlsysim.units.ops import ceil, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si


@dataclass(frozen=True, slots=True)
class _Rates:
    rate: float
    memory_share: float
    start: float
    quantise_share: float


def present(number: Any) -> bool:
    """Whether there is any of it; arrays are taken to have some."""
    return not isinstance(number, (int, float)) or number > 0


@cache
def _workspace(engine: str, name: str) -> float:
    table = serving_table("workspace")
    own = table.get(engine, table)
    return to_si(table.get(own.get("like"), own).get(name, table[name]), "byte")


class EngineDevice:
    """The fullest device of a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        d = self.deployment = deployment
        self.engine = d.engine
        self.factors: tuple[Any, Any, Any] | None = d.engine.factors(d.model, d.precision)
        self.kernels = profile(d.chip, f"serving.{d.engine.kernels}")
        self.network = engine_network(d.chip, d.engine.reduce_scale, d.port)
        self.family = chip_class(d.chip)
        self.usable_memory = to_si(d.chip.memory.capacity, "byte") * offered_memory(d.chip)
        self.bandwidth = to_si(d.chip.memory.bandwidth, "byte/s")
        self.memory = device_memory(d.chip)
        self.stack = d.model.stack if d.engine.windows else d.model.stack.unwindowed
        self.unseen = self.stack.with_windows(0)
        self.hidden = self.stack.hidden
        self.precision = precision_name(d.precision)
        self.format = format_of(self.precision)
        self.wide = self.precision if self.format.wide else "bf16" if d.chip.compute.supports("bf16") else "fp16"
        self.peak = arithmetic_peak(d.chip, self.wide)[0] * self.kernels.rate_scale
        # Kernels of the chip itself where they were measured, unless the engine has some of its own.
        self.common = profile(d.chip, "serving")
        share, measured = self.kernels.attention.rate_share, measured_attention(d.chip)
        self.attended = self.peak * share
        if measured is not None and share == self.common.attention.rate_share:
            self.attended = measured * arithmetic_peak(d.chip, self.wide)[0] / peak_rate(d.chip, "bf16")
        self.weight = bytes_per_element(self.precision)
        self.cache, self.narrow_cache = bytes_per_element(d.cache_precision), format_of(d.cache_precision).narrow
        self.element, self.byte = bytes_per_element(self.wide), bytes_per_element("fp8")
        self.rest, self.head, self.table = self._beside_layers()
        is_narrow = self.format.narrow
        self.quantises = is_narrow and not arithmetic_peak(d.chip, self.precision)[1]
        mixture = any("moe" in block.ffn.family for block in self.stack.blocks if block.ffn is not None)
        self.scaled = (mixture and d.engine.block_scaled) or self.precision == "fp8_block"
        self.narrow = self._rates(self.precision)
        self.full = self._rates(self.wide)
        self.moe_tp = d.moe_tp if d.moe_tp is not None else max(1, d.tp * d.attention_dp // d.moe_ep)
        if mixture and self.moe_tp * d.moe_ep not in (d.tp * d.attention_dp, 1):
            raise InputError(
                f"experts over {self.moe_tp} x {d.moe_ep} devices do not match {d.tp} x {d.attention_dp} attention devices."
            )
        self.halves = d.engine.halves and d.attention_dp > 1 and d.pp == 1 and d.moe_ep > self.network.domain
        kept = kept_parts(d.model, self.precision)
        # Checkpoints of mixtures that compute in four bits leave their mixers in sixteen; weights that are stored so alone are all of them.
        experts_only = mixture and self.weight < self.byte and not self.format.weight_only
        narrow_mixers = kept == "layers" or (kept == "all" and not experts_only)
        parts = is_narrow and narrow_mixers, is_narrow and kept != "experts", self.quantises
        self.converts = self.quantises and kept != "experts"
        self.blocks = step_blocks(self.stack, d.tp, d.attention_dp, *parts)
        add_adapters(self.blocks, d)
        self.expert_constants = self._expert_constants() if mixture else None

    def _beside_layers(self) -> tuple[float, float, float]:
        """Bytes of a weight that is in no layer's narrow products, of the output head, and of the table of tokens."""
        own = self.format
        if own.whole:
            return self.weight, self.weight, self.weight
        shares = (own.rest / 16, own.head / 16) if own.narrow else (1.0, 1.0)
        return self.element * shares[0], self.element * shares[1], self.element

    def _rates(self, precision: str) -> _Rates:
        """Achieved rates of products with weights in this format; without arithmetic for it they are computed in 16 bit.

        Formats of more bits have kernels of their own where they were measured on the chip, else those of the next narrower one.
        """
        peak, note = arithmetic_peak(self.deployment.chip, precision)
        narrow = compute_precision(precision) if not note else format_of(precision).measured
        wanted = {"fp4": ("nvfp4", "fp4"), "fp8": ("fp8_block", "fp8") if self.scaled else ("fp8",)}.get(
            narrow, (narrow,)
        )
        table = self.kernels.gemm
        names = (narrow, self.wide) if note else (*wanted, "fp8", self.wide)
        found = self.kernels.gemm_for(precision)
        if format_of(precision).narrow:
            found = table[next(name for name in (*names, "bf16", "fp16") if name in table)]
        # Block-scaled inputs are quantised by a kernel of their own; other formats by the kernel before.
        extra = self.kernels.memory_bound.times[0] if narrow == "fp8" and self.scaled else 0.0
        rate = self._measured(narrow if not note else self.wide, found)
        if rate is None:
            rate = peak * self.kernels.rate_scale * (found.rate_share * found.kept)
        return _Rates(rate, found.memory_share, found.times[0] + extra, found.quantise_share)

    def _measured(self, narrow: str, found: kernels.Products) -> float | None:
        """What products of the chip were measured to sustain, where the engine has none of its own; weights scaled in blocks reach another share, as in
        the kernel tables."""
        measured = measured_products(self.deployment.chip, {"fp16": "bf16", "nvfp4": "fp4"}.get(narrow, narrow))
        if measured is None or found not in self.common.gemm.values():
            return None
        return measured * found.rate_share / self.common.gemm.get(narrow, found).rate_share

    @property
    def expert_format(self) -> str:
        """The format whose expert kernels apply; narrow weights without narrow arithmetic are computed in 16 bit."""
        if not self.format.narrow:
            return "bf16"
        if self.format.measured == "mxfp4":
            return "mxfp4"
        if self.precision in ("fp4", "nvfp4"):
            return "nvfp4" if self.quantises else "mxfp4"
        return "fp8" if self.quantises else "int4"

    def _expert_constants(self) -> kernels.Experts:
        """Those of the group: wider than a host, fed by attention ranks within one, or of a tensor-parallel layer."""
        found, name, d = self.kernels.experts, self.expert_format, self.deployment
        wide = found.get(f"{name}_wide") if d.moe_ep > self.network.hosted else None
        ranks = found.get(f"{name}_ranks") if d.attention_dp > 1 and d.moe_ep > 1 else None
        return wide or ranks or found[name]

    @property
    def small_kernels(self) -> Any:
        """Kernels of a layer beside products, attention and experts; more of them where inputs are quantised."""
        return self.engine.small_kernels + (self.engine.quantised_kernels if self.converts else 0.0)

    @property
    def attended_rows(self) -> Any:
        """Starts of a sequence's rows, one for each key head of each layer."""
        tp, kinds = self.deployment.tp, self.blocks.mixing[DECODE]
        heads = sum(n * kind.kv_heads / min(tp, kind.kv_heads) for n, kind in kinds if isinstance(kind, Core))
        return heads * self.engine.attended_row

    @property
    def picks(self) -> list[tuple[float, float]]:
        """Operators that pick keys, and the tokens beyond which prompts have them."""
        return [(operators, keys if self.engine.dense_short else 0.0) for operators, keys in self.blocks.picks]

    def launched(self, prompts: Any, answers: Any, longest: Any = math.inf) -> Any:
        """Operators of a step with so many prompts, the ``longest`` of which has so many tokens in the end, beside ``answers`` or not (1 or 0)."""
        launched: Any = self.blocks.launches
        engine = self.engine
        for operators, keys in self.picks:
            launched = launched + where(longest > keys, operators, 0.0)
        if present(engine.prompt_operators) or present(engine.answer_operators):
            more = engine.prompt_operators * prompts + engine.answer_operators * answers
            launched = launched + self.blocks.layers * more
        return launched

    @property
    def longest_stage(self) -> float:
        """The longest pipeline stage's share of the layers."""
        layers = self.stack.layers
        return math.ceil(layers / self.deployment.pp) / layers

    @property
    def device_weights(self) -> float:
        """Bytes of weights on the fullest device."""
        d = self.deployment
        total = sum(p.count * self._stored(p) for p in self.blocks.products if p.tokens != PROMPT)
        for count, routed in self.blocks.experts:
            total += count * routed.parameters * (1 + d.redundant / routed.count) / d.moe_ep / self.moe_tp * self.weight
        if self.stack.vocab and not (self.stack.tied and self.stack.head):
            total += self.stack.vocab * (self.stack.embedding or self.hidden) * self.table / d.tp
        # Towers and tables beside the layers are held as well.
        total += (self.stack.extra_parameters * self.element + self.stack.looked_up * self.table) / d.tp
        return total * self.longest_stage

    @property
    def adapter_bytes(self) -> float:
        """Bytes of all adapters on the fullest device."""
        each = sum(p.count * self._stored(p) for p in self.blocks.adapters)
        return self.deployment.adapters * each * self.longest_stage

    def _workspace(self, name: str) -> float:
        return _workspace(self.engine.like or self.engine.name, name)

    @property
    def context_bytes(self) -> float:
        """What a process has on its device before it loads a model: the driver's context and libraries, buffers of collectives."""
        alone = self.deployment.devices == 1
        return self._workspace("context") + (0.0 if alone else self._workspace("collectives"))

    def activation_bytes(self, budget: Any = None) -> Any:
        """The most that a step of ``budget`` tokens has of activations at a time, in e = 2 bytes, or those of a wider format:

            budget (h + max over layers( k + n;  dp K/ep (3 w/tp + h) )) e

        Beside the residual stream the widest product has its input of k and its output of n (gate and up: 2 w/tp), or the experts
        the rows of their K choices, of all attention ranks: both halves of the gate, their product, and the output. Layers take turns
        in the same memory. Left out: unfused attention's scores.
        """
        d, budget = self.deployment, self.engine.token_budget if budget is None else budget
        widths = [(p.k + p.n) * p.groups for p in self.blocks.products if p.tokens != SAMPLED]
        for _, e in self.blocks.experts:
            widths.append(d.attention_dp * e.per_token / d.moe_ep * (e.matrices * e.width / self.moe_tp + e.inner))
        logits = (self.stack.vocab or 0) * self._workspace("token_logit")
        return budget * ((self.hidden + max(widths, default=0.0)) * self.element + logits)

    @property
    def sampling(self) -> tuple[float, float]:
        """Bytes of the logits of a sequence and of what sampling makes of them, all the vocabulary gathered; of how many at most."""
        return (self.stack.vocab or 0) * self._workspace("logit"), serving_table("workspace")["rows"]

    def slot_bytes(self, slots: Any = None) -> Any:
        """Buffers that an engine has for each request that it is built for, whether it is there or not; ``slots`` requests of a replica,
        or as many as the engine's default."""
        each = self._workspace("slot") + (self.stack.vocab or 0) * self._workspace("slot_logit")
        return each * ceil(
            (serving_table("workspace")["slots"] if slots is None else slots) / self.deployment.attention_dp
        )

    @property
    def most_requests(self) -> float | None:
        """Requests of a replica at a time where nobody says: of the engine, or as many as have their states; None where room alone limits them."""
        engine, found = self.engine, [] if self.engine.max_num_seqs is None else [self.engine.max_num_seqs]
        if engine.state_ratio and (state := self.sequence_bytes(0)):
            room = max(engine.memory_utilisation * (self.usable_memory - self.device_weights), 0.0)
            states = engine.state_ratio / (1 + engine.state_ratio) * room // state
            found.append(max(1, int(states / engine.states_kept)))
        return min(found) * self.deployment.attention_dp if found else None

    def sequence_bytes(self, tokens: Any) -> Any:
        """Bytes of cache and state that a sequence of so many tokens keeps on the fullest device of its rank; of pools that were made before, its
        share of what was made for layers of a window too."""
        d, share = self.deployment, self.engine.window_share
        stacks = [(1.0, self.stack)] if not share else [(share, self.stack.unwindowed), (1 - share, self.unseen)]
        held = sum(part * stack.cache_bytes(tokens, self.cache, d.tp) for part, stack in stacks)
        return held / d.cp * self.longest_stage

    def port_bytes(self, tokens: Any) -> Any:
        """Bytes of a sequence's cache that go over the port of each device to another pool: its own, all of them at once."""
        d = self.deployment
        return self.stack.cache_bytes(tokens, self.cache, d.tp) / d.cp * self.longest_stage

    def cache_bytes(self, tokens: Any) -> Any:
        """Bytes of cache and state of a sequence of so many tokens, each counted once."""
        return self.stack.cache_bytes(tokens, self.cache)

    def _stored(self, p: StepProduct) -> Any:
        """Bytes of a product's weights."""
        kept = {SAMPLED: self.head, ADAPTED: self.element}.get(p.tokens, self.rest)
        return p.elements * (self.weight if p.narrow else kept)
