"""Measured kernels as closed forms: for each kind one function of its shape, which gives a function of its constants.

    product, context, decode            kernels of a serving engine, rows of a public table
    library, memory_bound               attention and memory-bound kernels of our own H200

The shape is a row's numbers where it is scored, and columns of a table where the constants are fitted. What is fitted stands beside each
form: where the search starts, and the bounds that it stays in.

Rows of a public table carry chip, operator, number format and shape. Formats: ``bfloat16``; ``fp8`` and ``nvfp4`` with inputs
converted on the way in; ``fp8_block`` with a scale for each block; ``int8_wo`` with 8-bit weights and 16-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.fitting import Bounds, Fit, fit, table_of
from mlsysim.calibrate.measurements import Measurement
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.operators import (
    attention_decode_time,
    attention_prefill_time,
    experts_time,
    gemm_time,
    memory_bound_time,
)
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.kernels import REACH
from mlsysim.timing.profile import profile
from mlsysim.timing.stacks import software
from mlsysim.units.ops import minimum
from mlsysim.units.registry import Quantity, to_si

GROUP_LIMITS = {"A100": 32, "H100": 32, "H200": 32, "B200": 16}
"""Query heads that share a key head in TensorRT-LLM's grouped kernel: beyond, times jump by the size of the group."""


class Format(NamedTuple):
    """A number format of a GEMM table: what arithmetic runs in, bytes of an element, whether inputs are converted."""

    key: str
    precision: str
    arithmetic: str
    weight: float
    activation: float
    converts: bool


_FP4 = bytes_per_element("nvfp4")
FORMATS = {
    "bfloat16": Format("bf16", "bf16", "bf16", 2.0, 2.0, False),
    "bf16": Format("bf16", "bf16", "bf16", 2.0, 2.0, False),
    "fp16": Format("fp16", "fp16", "fp16", 2.0, 2.0, False),
    "fp8": Format("fp8", "fp8", "fp8", 1.0, 1.0, True),
    "fp8_block": Format("fp8_block", "fp8", "fp8", 1.0, 1.0, True),
    "nvfp4": Format("fp4", "nvfp4", "fp4", _FP4, _FP4, True),
    "int8_wo": Format("int8_weight", "int8", "bf16", 1.0, 2.0, False),
}
"""Formats by their label in the tables."""

CACHE_FORMATS = {"bfloat16/kv-bfloat16": "bf16/bf16", "bfloat16/kv-fp8": "bf16/fp8", "fp8/kv-fp8": "fp8/fp8"}

PRODUCT, CONVERSION, CONTEXT, HEADS, DECODE, REUSE, LIBRARY = (
    table_of(name) for name in ("product", "conversion", "context", "heads", "decode", "reuse", "library")
)
"""What is fitted, with the bounds."""

Form = Callable[..., Any]


def shape_of(text: str) -> dict[str, int]:
    """``m=512;n=12288;k=8192`` as numbers."""
    return {key: int(value) for key, value in (part.split("=") for part in text.split(";"))}


def cache_bytes(formats: str) -> float:
    """Bytes of a number of the cache, of formats such as "bf16/fp8"."""
    return bytes_per_element(formats.split("/")[1])


def speeds(chip: Any, precision: str = "bf16") -> tuple[float, float]:
    """Peak arithmetic rate at a precision and memory bandwidth of a chip."""
    node = Hardware.get(chip)
    return arithmetic_peak(node, precision)[0], to_si(node.memory.bandwidth, "byte/s")


def constants(kernel: Any, *names: str) -> dict[str, float]:
    """Numbers of a profile's kernel as its form takes them, times in seconds."""
    values = {name: getattr(kernel, name) for name in names}
    return {name: to_si(v, "s") if isinstance(v, Quantity) else v for name, v in values.items()}


def product(chip: Any, form: Format, m: Any, n: Any, k: Any, converts: bool, count: int = 1) -> Form:
    """``count`` equal products at once; converted inputs are read, and written narrower."""
    peak, bandwidth = speeds(chip, form.arithmetic)
    operations = count * (2.0 * m * n * k)
    moved = count * (form.weight * n * k + form.activation * m * k + 2.0 * m * n)

    def seconds(
        start: float, rate_share: float, memory_share: float, chain: float, growth: float, corner: float,
        quantise_share: float = 1.0, quantise_row: float = 0.0, quantise_start: float = 0.0,
    ) -> Any:  # fmt: skip
        quantised = 3.0 * m * (k + quantise_row) if converts else 0.0
        first = start + (quantise_start if converts else 0.0)
        rate, walk = rate_share * peak, (k / REACH, chain, growth)
        return gemm_time(
            operations, moved, quantised, rate, bandwidth, memory_share, quantise_share, first, *walk, corner
        )

    return seconds


def fit_products(chip: str, form: Format, shapes: Any, times: Any, converts: bool | None = None) -> Fit:
    """Constants of matrix products; ``shapes`` has the columns m, n, k."""
    converting = form.converts if converts is None else converts
    m, n, k = np.asarray(shapes, float).T
    return fit(product(chip, form, m, n, k, converting), PRODUCT | (CONVERSION if converting else {}), times)


def context(chip: Any, cache: float, batch: Any, length: Any, heads: Any, kv: Any, size: Any) -> Form:
    """Causal attention over a prompt: queries, results, keys and values go through memory, and the cache is written."""
    peak, bandwidth = speeds(chip)
    operations = 2.0 * batch * heads * length * (length + 1) * size
    moved = 4.0 * batch * length * heads * size + 2.0 * batch * length * kv * size * (2.0 + cache)

    def seconds(
        start: float, ramp_tokens: float, rate_share: float, stream_share: float, corner: float, head_exponent: float = 0.5
    ) -> Any:  # fmt: skip
        rate = rate_share * peak * (size / 128) ** head_exponent
        streaming = moved / (stream_share * bandwidth)
        return attention_prefill_time(operations, length, rate, ramp_tokens, start, streaming, corner)

    return seconds


def decode(chip: Any, cache: float, grouped: bool, batch: Any, cached: Any, heads: Any, kv: Any, size: Any) -> Form:
    """Attention of one query: ``grouped`` heads share the reading of the cache, others read it one by one."""
    peak, bandwidth = speeds(chip)
    group, readers = heads / kv, kv if grouped else heads
    read, own = 2.0 * batch * cached * readers * size * cache, 4.0 * batch * heads * size
    operations, rows = 4.0 * batch * heads * cached * size, batch * readers

    def seconds(
        start: float, memory_share: float, row_time: float, chain: float, growth: float, reuse: float = 0.0
    ) -> Any:
        moved, walk = read / group**reuse + own, (cached / REACH, chain, growth)
        return attention_decode_time(moved, operations, peak, bandwidth, memory_share, start, rows, row_time, *walk)

    return seconds


def library(chip: Any, batch: Any, length: Any, heads: Any, size: Any, causal: Any, of_best: float = 1.0) -> Form:
    """Attention of a library over sequences; ``of_best`` is its rate over that of the chip's best."""
    peak, _ = speeds(chip)
    operations = 4.0 * batch * heads * length**2 * size * (1.0 - 0.5 * causal)

    def seconds(start: float, ramp_tokens: float, rate_share: float, head_exponent: float) -> Any:
        rate = rate_share * peak * of_best * (minimum(size, 128) / 128) ** head_exponent
        return attention_prefill_time(operations, length, rate, ramp_tokens, start)

    return seconds


def timed(rows: Iterable[Measurement], section: str, *columns: str, **wanted: Any) -> Any:
    """Columns of the configurations of a section that are as wanted, and their times in the last."""
    table = [
        [*(r.config[name] for name in columns), r.median]
        for r in rows
        if r.section == section and r.metric == "time" and all(r.config.get(k) == v for k, v in wanted.items())
    ]
    return np.asarray(table, float).T


def fit_library_decode(chip: str, rows: Iterable[Measurement]) -> Fit:
    """The fastest path of each decode shape: start and share of the bandwidth."""
    best: dict[tuple[float, ...], float] = {}
    for *shape, time in timed(rows, "attn_decode", "B", "S", "H", "KV", "D").T.tolist():
        best[tuple(shape)] = min(best.get(tuple(shape), np.inf), time)
    batch, cached, _, kv, size = np.asarray(list(best), float).T
    moved, (_, bandwidth) = 4.0 * batch * cached * kv * size, speeds(chip)

    def seconds(decode_start: float, decode_memory_share: float) -> Any:
        return memory_bound_time(moved, bandwidth, decode_memory_share, decode_start)

    return fit(seconds, table_of("library_decode"), list(best.values()))


def fit_grouped(chip: str, rows: Iterable[Measurement], product: dict[str, float], bounds: Bounds | None = None) -> Fit:
    """Grouped products of PyTorch, over what one ``product`` sustains: two with an activation between them of a layer of experts, and single ones, whose
    groups are equal. Both products of a layer have nearly one ratio of arithmetic and bytes, so that the norm of their sums is the sum of their norms."""
    table: list[tuple[float, ...]] = []
    for c, time in ((r.config, r.median) for r in rows if r.metric == "time"):
        if c.get("what") == "experts":
            table.append(
                (2, c["T"] * c["topk"], c["active"], 3 * c["h"] * c["F"], 2 * c["h"] + 3 * c["F"], c["F"], time)
            )
        elif "experts" in c:
            table.append((1, c["rows"], min(c["experts"], c["rows"]), c["N"] * c["K"], c["N"] + c["K"], 0, time))
    calls, tokens, hit, weights, through, width, times = np.asarray(table, float).T
    (peak, bandwidth), bound = speeds(chip), profile(Hardware.get(chip)).memory_bound
    cost, element = software("torch_graph").cost("experts_activation"), bytes_per_element("bf16")
    moved = cost.traffic * 3 * element * tokens * width
    between = (calls - 1) * memory_bound_time(moved, bandwidth, bound.eager_share, cost.launches * bound.times[0])
    rate, reading = product["rate_share"] * product["sustained"] * peak, product["memory_share"] * bandwidth

    def seconds(start: float, rate_share: float, memory_share: float, ragged: float, corner: float) -> Any:
        filled = tokens + (calls - 1) * ragged * hit
        arithmetic = 2.0 * filled * weights / (rate_share * rate)
        moved = element * (hit * weights + tokens * through)
        return between + experts_time(arithmetic, moved / (memory_share * reading), 0.0, calls * start, corner)

    return fit(seconds, bounds or table_of("grouped"), times)


def fit_routing(chip: str, rows: Iterable[Measurement], values: dict[str, float]) -> Fit:
    """What PyTorch does around grouped products, in a dozen kernels: what a layer takes beyond its experts and its router, over the bytes that a fused
    sum of the chosen rows moves; ``values`` are the constants of one product."""
    of: dict[tuple[Any, ...], Measurement] = {
        (r.config["what"], r.config["model"], r.config["T"]): r
        for r in rows
        if r.section == "moe" and r.metric == "time"
    }
    layers = {key[1:]: r for key, r in of.items() if key[0] == "layer"}
    found = [(r.config, r.median - of["experts", *shape].median) for shape, r in layers.items()]
    tokens, hidden, experts, chosen = np.asarray(
        [[c[name] for name in ("T", "h", "E", "topk")] for c, _ in found], float
    ).T
    router = product(chip, FORMATS["bf16"], tokens, experts, hidden, False)(**{name: values[name] for name in PRODUCT})
    moved = bytes_per_element("bf16") * tokens * hidden * (chosen + 1)
    return fit_memory_bound(chip, moved, np.asarray([time for _, time in found]) - router)


def fit_convolutions(chip: str, rows: Iterable[Measurement]) -> tuple[Fit, float]:
    """Start, rate and bandwidth share of convolutions, and the bandwidth share of large depthwise ones."""
    operations, moved, groups, times = timed(rows, "conv", "flops", "bytes", "groups")
    peak, bandwidth = speeds(chip)
    dense = groups == 1

    def seconds(start: float, rate_share: float, memory_share: float) -> Any:
        return gemm_time(operations[dense], moved[dense], 0.0, rate_share * peak, bandwidth, memory_share, 1.0, start)

    found = fit(seconds, table_of("convolution"), times[dense])
    light = moved[~dense] / (times[~dense] - found.values["start"]) / bandwidth
    return found, float(np.median(light))


def fit_memory_bound(chip: str, moved: Any, times: Any) -> Fit:
    """Start and share of the bandwidth of a memory-bound kernel, which moves its smallest number of bytes."""
    _, bandwidth = speeds(chip)
    return fit(lambda start, share: memory_bound_time(moved, bandwidth, share, start), table_of("memory_bound"), times)
