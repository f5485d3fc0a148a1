"""Kernels of a step of an inference engine: products, attention to prompts and to caches, scans and experts.

The forms are those of :mod:`mlsysim.physics.operators`, rates and starts those of the chip's profile and of the engine; which of them a
step has is said in :mod:`mlsysim.timing.engine_step`.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.ffn import Experts
from mlsysim.models.graph import MULTIPLY_ADD
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.template import Core, Scan
from mlsysim.physics.operators import (
    attention_time,
    cache_attention_time,
    experts_time,
    moving_time,
    product_time,
    soft_maximum,
)
from mlsysim.timing import kernels
from mlsysim.timing.engine_block import DECODE, StepProduct
from mlsysim.timing.engine_messages import EngineMessages
from mlsysim.timing.engines import serving_table
from mlsysim.timing.operator_times import expanded_weights, expansion, started
from mlsysim.timing.tags import Tag
from mlsysim.units.ops import maximum, minimum, sqrt, where
from mlsysim.units.registry import to_si

# Names of the times, and the forms.
_PRODUCTS, _WEIGHTS, _CONVERSION = "products", "weights", "conversion of inputs"
_ATTENTION, _CACHES, _SCANS = "attention", "caches", "scans"
_EXPERTS, _EXPERT_WEIGHTS, _ROUTED = "experts", "weights of experts", "routed tokens"
_ROOF, _MOVED, _RAMP = "t = t_0 + |F / R, B / (e W)|", "t = B / (e W)", "t = F (1 + S_0 / S) / R"


class EngineKernels(EngineMessages):
    """Kernels of a step, each as often as it is asked for."""

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
        if isinstance(kind, Core) and kind.indexes:
            start = start + started(serving_table("operators")["indexed"] * self.kernels.memory_bound.times[0], tag)
        if isinstance(kind, Scan):
            share = self._scan(kind).memory_share
            return moving_time(self._streamed(_CACHES, op.cache_bytes, share, tag), start)
        share = (k.decode_fp8_share if narrow else None) or k.decode_memory_share
        rate = self.attended
        if kind.latent:
            share = k.latent_memory_share
            rate = self.peak * k.latent_rate_share * ((k.latent_fp8_gain if narrow else None) or 1.0)
        elif not self.engine.grouped and kind.heads > kind.kv_heads:
            # Each query head multiplies with its keys by itself, on vector units: what shares keys saves bytes and no work.
            rate = minimum(rate, self.engine.masked_share * arithmetic_peak(self.deployment.chip, "fp32")[0])
        operations = op.flops * (1 + drafted)
        computed = operations * self._filled_tiles(kind, p)
        computing = tag(_ATTENTION, 1, "peak", _ROOF, computed / rate, flop=operations)
        held = op.cache_bytes / self.deployment.cp
        seconds = held / (share * self.bandwidth) * self.engine.context_scale
        reading = tag(_CACHES, 2, "bandwidth", _ROOF, seconds, moved=held)
        return cache_attention_time(computing, reading, 0.0, 0.0, start)

    def _prompted(self, kind: Core | Scan, p: Pass, tag: Tag) -> Any:
        """Attention over a prompt, or a scan in chunks."""
        k = self.kernels.attention
        if isinstance(kind, Core) and kind.latent_width and not self.engine.dense_short:
            kind = kind._replace(qk=kind.latent_width, v=0.0)
        op, start = kind.operators(p, None)[-1], started(k.times[0], tag)
        if isinstance(kind, Scan):
            own = self._scan(kind)
            scan = tag(_SCANS, 1, "peak", "t = F / R", op.flops / (own.rate_share * self.peak), flop=op.flops)
            return scan + moving_time(self._streamed(_SCANS, op.bytes, own.memory_share, tag), start)
        rate = self.attended * (k.fp8_gain if self.narrow_cache else 1.0)
        computed = op.flops * self._filled_tiles(kind, p)
        seconds = computed * (1 + k.ramp_tokens / maximum(p.new, 1.0)) / rate * self.engine.prompt_scale
        return attention_time(tag(_ATTENTION, 1, "peak", _RAMP, seconds, flop=op.flops), 0.0, start)

    def _filled_tiles(self, kind: Core, p: Pass) -> Any:
        """What a kernel computes over what is asked: a query that picks its keys shares them with none, so that its heads fill the rows of a tile alone."""
        if not kind.picked:
            return 1.0
        heads, rows = kind.heads / p.shard.tp, serving_table("tile_rows")
        if p.phase == DECODE:
            return maximum(rows["other"] / heads, 1.0)
        fewer = maximum(rows.get(self.family, rows["other"]) / heads, 1.0)
        return where(p.context + p.new > (kind.window if self.engine.dense_short else 0.0), fewer, 1.0)

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
            self._streamed(
                _ROUTED, rows * (inner + width) * self.element, own.activation_share or own.memory_share, tag
            ),
            started(to_si(own.start, "s") + self.engine.expert_block, tag),
        )
