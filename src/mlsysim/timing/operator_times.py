"""Calibrated fidelity: the time of a pass as the sum of its operators' times.

The workload is lowered to operators (:meth:`Workload.lower`); each gets its closed form from
:mod:`mlsysim.physics.operators` with the constants of the chip's profile. How the software runs them is an
:class:`Execution`: launched one by one or captured in a graph, elementwise chains fused or not, which attention kernel.
Collectives are timed by the walls that know where the ranks sit.

Every form is put together from named times (:mod:`mlsysim.timing.tags`). Names are kinds of operators; arithmetic belongs to
wall 1, bytes to wall 2, the start of kernels and the walk of a tile that fills no chip to wall 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlsysim.hardware.arithmetic import arithmetic_peak, expansion_rate
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.graph import Operator
from mlsysim.physics.operators import (
    attention_time,
    cache_attention_time,
    experts_time,
    host_bound_time,
    moving_time,
    product_time,
    soft_maximum,
)
from mlsysim.physics.precision import (
    INSTRUCTIONS,
    TILE_ROWS,
    bytes_per_element,
    expanded_bytes,
    expansion_time,
    format_of,
    is_narrow,
)
from mlsysim.timing.kernels import FULL_HEAD, REACH, DecodeKernel, Products, Profile
from mlsysim.timing.stacks import Software
from mlsysim.timing.tags import Tag, untagged
from mlsysim.units.ops import minimum, power, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si

_LATENT = 256
_PRODUCT, _CACHED = "t = t_0 + |F / R, B / (e W)|", "t = t_0 + |K / (e W), F / A|"
_NAMES = {
    "gemm": "products", "batched_gemm": "products", "grouped_gemm": "experts", "conv": "convolutions",
    "depthwise_conv": "convolutions", "attention": "attention", "embedding": "embedding", "scan": "scans",
}  # fmt: skip
STARTS = "kernel starts"
"""The name of what kernels need to begin, drain and walk one tile, of whatever kind they are."""


def part_name(kind: str) -> str:
    """What operators of a kind are called on a ledger."""
    return _NAMES.get(kind, "norms and activations")


@dataclass(frozen=True, slots=True)
class Execution:
    """How software runs the operators of a pass.

    ``fine`` takes the constants that were fitted shape by shape where the chip has them. ``engine`` names a serving engine
    whose attention kernels were measured. ``convert`` says what narrowing the input of a product costs: "fused" nothing,
    "stream" its bytes, "separate" a kernel of its own. ``variant`` is a way of scaling products that was measured apart.
    """

    graph: bool = True
    fused: bool = True
    attention: str = "fused"
    sustained: bool = True
    fine: bool = False
    engine: str | None = None
    convert: str = "stream"
    variant: str | None = None
    cache_precision: str = "bf16"
    rotary: bool = False
    software: Software | None = None


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds of a pass on one device: in all, and of each operator; ``ridge`` is the chip's at the precision."""

    total: Any
    device: Any
    timed: tuple[tuple[Operator, Any], ...]
    ridge: float

    @property
    def by_layer(self) -> dict[str, Any]:
        """Seconds by layer class."""
        found: dict[str, Any] = {}
        for op, seconds in self.timed:
            found[op.layer] = found.get(op.layer, 0.0) + seconds
        return found

    @property
    def arithmetic(self) -> Any:
        """Seconds of operators whose arithmetic would take longer than their bytes on a perfect chip."""
        return sum(where(op.flops > self.ridge * op.bytes, seconds, 0.0) for op, seconds in self.timed)

    @property
    def flops(self) -> Any:
        return sum(op.count * op.flops for op, _ in self.timed)

    @property
    def moved(self) -> Any:
        return sum(op.count * op.bytes for op, _ in self.timed)


def operator_time(
    op: Operator, chip: HardwareNode, profile: Profile, precision: str, how: Execution, tag: Tag = untagged
) -> Any:
    """Seconds of one call of an operator."""
    bandwidth = to_si(chip.memory.bandwidth, "byte/s")
    kind = op.kind
    if how.fine and profile.convolution is not None and kind in ("conv", "depthwise_conv"):
        return _convolution_time(op, chip, profile, precision, how, bandwidth, tag)
    if kind in ("gemm", "batched_gemm", "conv", "grouped_gemm"):
        return _product_time(op, chip, profile, precision, how, bandwidth, tag)
    if kind == "attention":
        return _attention_time(op, chip, profile, bandwidth, how, tag)
    bound = profile.memory_bound
    start = bound.times[0]
    if kind == "embedding":
        return _streamed(kind, op.bytes, bandwidth, bound.gather_share, start, tag)
    software = how.software
    if software is None:
        share = bound.fused_share if how.fused else bound.eager_share
        return _streamed(kind, op.bytes, bandwidth, share, start, tag)
    share = bound.fused_share if software.fused else bound.eager_share
    known = bound.kernels.get(f"{op.name}/{software.experts}")
    if known is not None:
        return _streamed(kind, op.bytes, bandwidth, known.share, to_si(known.start, "s"), tag)
    cost = software.cost(op.name)
    traffic = cost.traffic * (software.backward if op.direction == "backward" else 1.0)
    return _streamed(kind, traffic * op.bytes, bandwidth, share, cost.launches * start, tag)


def _streamed(kind: str, moved: Any, bandwidth: float, share: float, start: Any, tag: Tag) -> Any:
    """Bytes at the achieved share of the bandwidth."""
    moving = tag(part_name(kind), 2, "bandwidth", "t = B / (e W)", moved / (share * bandwidth), moved=moved)
    return moving_time(moving, started(start, tag))


def started(start: Any, tag: Tag) -> Any:
    """What kernels need to begin."""
    return tag(STARTS, 3, "start", "t = n t_0", start)


def _product_constants(
    chip: HardwareNode, profile: Profile, precision: str, how: Execution
) -> tuple[Products, float, str, bool]:
    """Constants, rate, the note where arithmetic is wider than the format, and whether the format is below 16 bits."""
    peak, widened = arithmetic_peak(chip, precision)
    key = (peak, widened, precision, how.fine, how.variant, how.sustained)
    found: tuple[Products, float, str, bool] | None = profile.product_constants.get(key)
    if found is not None:
        return found
    roof = profile.gemm_for(precision)
    k: Products = profile.product_for(precision, how.variant) if how.fine else roof
    if widened and how.fine and how.variant is None:
        # Narrow weights that the chip expands: the arithmetic is 16-bit, whatever the weights are stored in.
        k = profile.product_for("bf16")
    sustained = roof.kept if k.sustained is None else k.sustained
    rate = peak * k.rate_share * (sustained * profile.rate_scale if how.sustained else 1.0)
    answer = (k, rate, widened, is_narrow(precision))
    profile.product_constants[key] = answer
    return answer


def _product_time(
    op: Operator, chip: HardwareNode, profile: Profile, precision: str, how: Execution, bandwidth: float, tag: Tag
) -> Any:
    k, rate, widened, narrow = _product_constants(chip, profile, precision, how)
    start, chain, convert_start = k.times
    name = part_name(op.kind)
    if op.kind == "grouped_gemm":
        experts = profile.experts[how.software.experts if how.software else "any"]
        weights_share, own = experts.memory_share * k.memory_share, experts.activation_share
        routed, filled = op.input_bytes + op.output_bytes, op.flops * (1 + experts.ragged / op.m)
        moved = op.weight_bytes + (routed if own is None else 0.0)
        apart = 0.0 if own is None else tag(name, 2, "bandwidth", _PRODUCT, routed / (own * bandwidth), moved=routed)
        return experts_time(
            *_roof(name, filled, rate * experts.rate_share, moved, weights_share * bandwidth, tag),
            apart,
            started(to_si(experts.start, "s"), tag),
            experts.corner,
        )
    moved = op.weight_bytes + op.input_bytes + op.output_bytes
    conversion: Any = 0.0
    expanding: Any = 0.0
    if widened:
        expanding = expansion(chip, precision, op.flops / op.m, op.flops, tag)
        moved = moved + expanded_weights(precision, op.n * op.k * op.groups, op.m)
    if how.convert != "fused" and narrow and not widened and op.kind == "gemm":
        # Read in 16 bits, written in 8.
        quantised = (bytes_per_element("bf16") + bytes_per_element("fp8")) * op.m * (op.k + k.quantise_row)
        seconds = quantised / (k.quantise_share * bandwidth)
        conversion = tag("conversions", 2, "bandwidth", "t = Q / (q W)", seconds, moved=quantised)
        if how.convert == "separate":
            start = start + convert_start
    share = k.memory_share
    if how.software is not None and not how.software.pads_vocabulary:
        rows = profile.rows_of(op.n, bytes_per_element(precision))
        rate, share = rate * rows.forward, share * rows.memory
    computing, moving = _roof(name, op.flops, rate, moved, share * bandwidth, tag)
    return product_time(
        soft_maximum(computing, expanding),
        moving,
        conversion,
        started(chain * power(op.k / REACH, k.growth), tag),
        started(start, tag),
        k.corner,
    )


def expansion(chip: HardwareNode, precision: str, once: Any, operations: Any, tag: Tag) -> Any:
    """Vector work that expands the weights of a product to 16 bits beside its arithmetic; ``once`` are its operations for a single row."""
    seconds = expansion_time(once, operations, INSTRUCTIONS, TILE_ROWS, expansion_rate(chip, precision))
    return tag("expansion of weights", 1, "vector", "t = i max(F_1, F / R) / V", seconds)


def expanded_weights(precision: str, weights: Any, rows: Any) -> Any:
    """Bytes of expanding the weights of a product in memory, where a format is expanded there."""
    if format_of(precision).expanded != "memory":
        return 0.0
    return expanded_bytes(weights, bytes_per_element("bf16"), rows)


def _convolution_time(
    op: Operator, chip: HardwareNode, profile: Profile, precision: str, how: Execution, bandwidth: float, tag: Tag
) -> Any:
    c = profile.convolution
    assert c is not None
    moved = op.weight_bytes + op.input_bytes + op.output_bytes
    if op.kind == "depthwise_conv":
        return _streamed(op.kind, moved, bandwidth, c.depthwise_share, c.seconds, tag)
    kept = profile.gemm_for(precision).kept * profile.rate_scale if how.sustained else 1.0
    rate = arithmetic_peak(chip, precision)[0] * c.rate_share * kept
    roof = _roof(part_name(op.kind), op.flops, rate, moved, c.memory_share * bandwidth, tag)
    return product_time(*roof, 0.0, 0.0, started(c.seconds, tag))


def _attention_time(
    op: Operator, chip: HardwareNode, profile: Profile, bandwidth: float, how: Execution, tag: Tag
) -> Any:
    constants = profile.attention
    peak, _ = arithmetic_peak(chip, "bf16" if chip.compute.supports("bf16") else chip.compute.headline)
    single = isinstance(op.m, (int, float)) and op.m == 1
    if how.engine is not None and how.engine in profile.engines:
        return _engine_attention_time(op, profile, peak, bandwidth, how, single, tag)
    start, decode_start = constants.times
    if single:
        latent = op.kv_heads == 1 and op.groups > 1 and op.k > _LATENT
        share = constants.latent_memory_share if latent else constants.decode_memory_share
        if how.software is not None and how.software.cache_share is not None and not latent:
            share = min(share, how.software.cache_share)
        decode_rate = peak * (constants.latent_rate_share if latent else 1.0)
        read = _roof("attention", op.flops, decode_rate, op.cache_bytes, share * bandwidth, tag, _CACHED)
        return cache_attention_time(*read, 0.0, 0.0, started(decode_start, tag))
    rate = peak * profile.rate_scale * constants.rate_share * constants.kernel_rate(how.attention)
    rate = rate * constants.head_share(op.k)
    if op.direction == "backward":
        # A fused backward pass recomputes the scores: 2.5 times the forward work where the model counts 2.
        rate = rate * constants.backward_share * 2 / 2.5
    computing = op.flops * (1 + constants.ramp_tokens / op.m) / rate
    return attention_time(_attending(computing, op.flops, tag), 0.0, started(start, tag))


def _attending(seconds: Any, operations: Any, tag: Tag) -> Any:
    return tag("attention", 1, "peak", "t = t_0 + F (1 + S_0 / S) / A", seconds, flop=operations)


def _roof(
    name: str, operations: Any, rate: Any, moved: Any, bandwidth: Any, tag: Tag, equation: str = _PRODUCT
) -> tuple[Any, Any]:
    """Arithmetic and bytes, of which the longer counts."""
    return (
        tag(name, 1, "peak", equation, operations / rate, flop=operations),
        tag(name, 2, "bandwidth", equation, moved / bandwidth, moved=moved),
    )


def _engine_attention_time(
    op: Operator, profile: Profile, peak: float, bandwidth: float, how: Execution, single: bool, tag: Tag
) -> Any:
    """Attention by the kernels of a named serving engine. ``op.groups`` over ``op.kv_heads`` is the size of a group."""
    assert how.engine is not None
    engine = profile.engines[how.engine]
    cache = "fp8" if is_narrow(how.cache_precision) else "bf16"
    if not single:
        context = engine.context.get(f"bf16/{cache}") or engine.context["bf16/bf16"]
        rate = peak * context.rate_share * (minimum(op.k, FULL_HEAD) / FULL_HEAD) ** context.head_exponent
        moved = op.input_bytes + op.output_bytes + 2 * op.cache_bytes
        streaming = moved / (context.stream_share * bandwidth)
        return attention_time(
            _attending(op.flops * (1 + context.ramp_tokens / op.m) / rate, op.flops, tag),
            tag("attention", 2, "bandwidth", "t = B / (e W)", streaming, moved=moved),
            started(to_si(context.start, "s"), tag),
            context.corner,
        )
    # Sequences times key heads: the cache holds 2 k elements of each for each of the n tokens.
    rows = op.cache_bytes / (2.0 * op.n * op.k * bytes_per_element(how.cache_precision))
    group = op.groups / rows

    def timed(shared: bool) -> Any:
        kernels = engine.grouped if shared else engine.single
        kernel = kernels.get(f"bf16/{cache}") or kernels["bf16/bf16"]
        readers = 1.0 if shared else group
        moved = op.cache_bytes * readers / group**kernel.reuse + op.input_bytes + op.output_bytes
        return decode_kernel_time(kernel, moved, op.flops, rows * readers, op.n, peak, bandwidth, tag)

    shared = (group > 1) & (group <= engine.group_limit)
    return timed(shared) if isinstance(shared, bool) else where(shared, timed(True), timed(False))


def decode_kernel_time(
    kernel: DecodeKernel,
    moved: Any,
    operations: Any,
    rows: Any,
    cached: Any,
    peak: float,
    bandwidth: float,
    tag: Tag = untagged,
) -> Any:
    """Seconds of a measured decode kernel."""
    return cache_attention_time(
        *_roof("attention", operations, peak, moved, kernel.memory_share * bandwidth, tag, _CACHED),
        started(rows * to_si(kernel.row_time, "s"), tag),
        started(to_si(kernel.chain, "s") * power(cached / REACH, kernel.growth), tag),
        started(to_si(kernel.start, "s"), tag),
    )


def _position_time(op: Operator, profile: Profile, software: Software, bandwidth: float, tag: Tag) -> Any:
    """Rotary embedding of queries and keys and the writing of the cache, which stand beside each attention core."""
    bound = profile.memory_bound
    written = op.cache_bytes / (2.0 * op.n) * op.m
    share = bound.fused_share if software.fused else bound.eager_share
    cost = software.cost("rotary")
    traffic = cost.traffic * (software.backward if op.direction == "backward" else 1.0)
    moved = traffic * 2.0 * (op.input_bytes + written)
    return _streamed("rotary", moved, bandwidth, share, cost.launches * bound.times[0], tag)


def pass_time(
    operators: Iterable[Operator],
    chip: HardwareNode,
    profile: Profile,
    precision: str,
    how: Execution,
    tag: Tag = untagged,
) -> PassTime:
    """Seconds of all operators of a pass, one after the other; collectives are left out."""
    timed: list[tuple[Operator, Any]] = []
    total: Any = 0.0
    count: Any = 0
    software = how.software
    bandwidth = to_si(chip.memory.bandwidth, "byte/s")
    _, graph_launch, launch = profile.memory_bound.times
    if how.graph:
        launch = graph_launch
    elif software is not None and software.host is not None:
        launch = software.host
    for op in operators:
        if op.is_collective:
            continue
        seconds = operator_time(op, chip, profile, precision, how, tag)
        calls: Any = 1
        if software is not None:
            calls = software.cost(op.name).launches
            if how.rotary and op.kind == "attention":
                seconds = seconds + _position_time(op, profile, software, bandwidth, tag)
                calls = calls + software.cost("rotary").launches
        seconds = op.count * seconds
        timed.append((op, seconds))
        total = total + seconds
        count = count + op.count * calls
    waited = host_bound_time(total, count, tag("launches", 3, "host", "t = max(device, n h)", launch))
    return PassTime(waited, total, tuple(timed), arithmetic_peak(chip, precision)[0] / bandwidth)
