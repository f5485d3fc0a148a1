"""Fits of kernel tables: the constants of every chip and precision that was measured.

    fit_products(rows)       GEMM:       start, rate, bandwidth, chain, corner, conversion of inputs
    fit_context(rows)        attention over a prompt
    fit_decode(rows)         attention of one query, with its keys shared by a group or read one by one
    fit_library(...)         cuDNN-class attention, memory-bound kernels and ceilings of our own H200

Rows of a public table carry chip, operator, number format and shape. Formats: ``bfloat16``; ``fp8`` and ``nvfp4`` with inputs
converted on the way in; ``fp8_block`` with a scale for each block; ``int8_wo`` with 8-bit weights and 16-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Fit, Parameter, fit
from mlsysim.calibrate.measurements import Measurement
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.operators import attention_decode_time, attention_prefill_time, gemm_time, memory_bound_time
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.kernels import REACH
from mlsysim.units.registry import to_si

CHIPS = {"A100_SXM": "A100", "H100_SXM": "H100", "H200_SXM": "H200", "B200_SXM": "B200"}
"""Names of chips in the public tables and in the zoo."""

GROUP_LIMITS = {"A100": 32, "H100": 32, "H200": 32, "B200": 16}
"""Query heads that share a key head in TensorRT-LLM's grouped kernel: beyond, times jump by the size of the group."""


@dataclass(frozen=True, slots=True)
class Format:
    """A number format of a GEMM table: what arithmetic runs in, bytes of an element, whether inputs are converted."""

    key: str
    precision: str
    arithmetic: str
    weight: float
    activation: float
    converts: bool


FORMATS = {
    "bfloat16": Format("bf16", "bf16", "bf16", 2.0, 2.0, False),
    "bf16": Format("bf16", "bf16", "bf16", 2.0, 2.0, False),
    "fp16": Format("fp16", "fp16", "fp16", 2.0, 2.0, False),
    "fp8": Format("fp8", "fp8", "fp8", 1.0, 1.0, True),
    "fp8_block": Format("fp8_block", "fp8", "fp8", 1.0, 1.0, True),
    "nvfp4": Format("fp4", "nvfp4", "fp4", bytes_per_element("nvfp4"), bytes_per_element("nvfp4"), True),
    "int8_wo": Format("int8_weight", "int8", "bf16", 1.0, 2.0, False),
}
"""Formats by their label in the tables."""

CACHE_FORMATS = {
    "bfloat16/kv-bfloat16": "bf16/bf16",
    "bfloat16/kv-fp8": "bf16/fp8",
    "fp8/kv-fp8": "fp8/fp8",
}


def shape_of(text: str) -> dict[str, int]:
    """``m=512;n=12288;k=8192`` as numbers."""
    return {key: int(value) for key, value in (part.split("=") for part in text.split(";"))}


def speeds(chip: str, precision: str = "bf16") -> tuple[float, float]:
    """Peak arithmetic rate at a precision and memory bandwidth of a chip."""
    node = Hardware.get(chip)
    return arithmetic_peak(node, precision)[0], to_si(node.memory.bandwidth, "byte/s")


# --- products -----------------------------------------------------------------------------------------------------


def product_work(form: Format, m: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """Operations and bytes of a product."""
    return 2.0 * m * n * k, form.weight * n * k + form.activation * m * k + 2.0 * m * n


def fit_products(chip: str, form: Format, shapes: Any, times: Any, converts: bool | None = None) -> Fit:
    """Constants of matrix products; ``shapes`` has the columns m, n, k."""
    m, n, k = np.asarray(shapes, float).T
    peak, bandwidth = speeds(chip, form.arithmetic)
    operations, moved = product_work(form, m, n, k)
    converting = form.converts if converts is None else converts

    def model(
        start: float,
        rate_share: float,
        memory_share: float,
        chain: float,
        growth: float,
        corner: float,
        quantise_share: float = 1.0,
        quantise_row: float = 0.0,
    ) -> Any:
        quantised = 3.0 * m * (k + quantise_row) if converting else 0.0
        return gemm_time(
            operations,
            moved,
            quantised,
            rate_share * peak,
            bandwidth,
            memory_share,
            quantise_share,
            start,
            k / REACH,
            chain,
            growth,
            corner,
        )

    parameters = [
        Parameter("start", 4e-6, 1e-7, 1e-4),
        Parameter("rate_share", 0.7, 0.1, 1.1),
        Parameter("memory_share", 0.8, 0.1, 1.0),
        Parameter("chain", 3e-6, 1e-8, 1e-3),
        Parameter("growth", 0.8, 0.2, 1.5),
        Parameter("corner", 4.0, 1.0, 12.0),
    ]
    if converting:
        parameters += [Parameter("quantise_share", 0.5, 0.02, 1.0), Parameter("quantise_row", 300.0, 1.0, 3e4)]
    return fit(model, parameters, np.asarray(times, float))


# --- attention of serving engines ---------------------------------------------------------------------------------


def context_work(cache: float, batch: Any, length: Any, heads: Any, kv: Any, size: Any) -> tuple[Any, Any]:
    """Causal operations, and bytes of queries, results, keys and values read, and of the cache written."""
    operations = 2.0 * batch * heads * length * (length + 1) * size
    return operations, 4.0 * batch * length * heads * size + 2.0 * batch * length * kv * size * (2.0 + cache)


def fit_context(chip: str, cache: float, shapes: Any, times: Any) -> Fit:
    """Constants of attention over prompts; ``shapes`` has batch, length, heads, key heads, head size."""
    batch, length, heads, kv, size = np.asarray(shapes, float).T
    peak, bandwidth = speeds(chip)
    operations, moved = context_work(cache, batch, length, heads, kv, size)
    several = len(set(size.tolist())) > 1

    def model(
        start: float,
        ramp_tokens: float,
        rate_share: float,
        stream_share: float,
        corner: float,
        head_exponent: float = 0.5,
    ) -> Any:
        rate = rate_share * peak * (size / 128) ** head_exponent
        streaming = moved / (stream_share * bandwidth)
        return attention_prefill_time(operations, length, rate, ramp_tokens, start, streaming, corner)

    parameters = [
        Parameter("start", 8e-6, 1e-7, 1e-3),
        Parameter("ramp_tokens", 400.0, 0.1, 1e4),
        Parameter("rate_share", 0.6, 0.1, 1.2),
        Parameter("stream_share", 0.6, 0.02, 1.2),
        Parameter("corner", 2.0, 1.0, 12.0),
    ]
    if several:
        parameters.append(Parameter("head_exponent", 0.5, 0.01, 2.0))
    return fit(model, parameters, np.asarray(times, float))


def decode_work(cache: float, grouped: Any, batch: Any, cached: Any, heads: Any, kv: Any, size: Any) -> tuple[Any, ...]:
    """Bytes of the cache as read, bytes of queries and results, and rows; ``grouped`` heads share the reading."""
    readers = kv if grouped else heads
    return 2.0 * batch * cached * readers * size * cache, 4.0 * batch * heads * size, batch * readers


def fit_decode(chip: str, cache: float, grouped: bool, shapes: Any, times: Any) -> Fit:
    """Constants of decode attention; ``shapes`` has batch, cached tokens, heads, key heads, head size."""
    batch, cached, heads, kv, size = np.asarray(shapes, float).T
    peak, bandwidth = speeds(chip)
    read, own, rows = decode_work(cache, grouped, batch, cached, heads, kv, size)
    operations = 4.0 * batch * heads * cached * size
    group = heads / kv
    alone = not grouped and bool((group > 1).any())

    def model(
        start: float, memory_share: float, row_time: float, chain: float, growth: float, reuse: float = 0.0
    ) -> Any:
        moved = read / group**reuse + own
        return attention_decode_time(
            moved, operations, peak, bandwidth, memory_share, start, rows, row_time, cached / REACH, chain, growth
        )

    parameters = [
        Parameter("start", 8e-6, 1e-7, 1e-3),
        Parameter("memory_share", 0.8, 0.02, 1.6),
        Parameter("row_time", 1e-8, 1e-12, 1e-6),
        Parameter("chain", 3e-6, 1e-7, 1e-3),
        Parameter("growth", 0.5, 0.1, 1.0),
    ]
    if alone:
        parameters.append(Parameter("reuse", 0.1, 1e-4, 1.0))
    return fit(model, parameters, np.asarray(times, float))


# --- our own measurements -----------------------------------------------------------------------------------------


def fit_library(chip: str, backend: str, rows: Iterable[Measurement], backward: bool = False) -> Fit:
    """Attention of a library over sequences of at least 512 tokens; ``backward`` counts forward and backward (3.5 times)."""
    section = "attn_fwdbwd" if backward else "attn_fwd"
    table = [
        (r.config["B"], r.config["S"], r.config["H"], r.config["D"], r.config["causal"], r.median)
        for r in rows
        if r.section == section and r.metric == "time" and r.config["backend"] == backend
    ]
    batch, length, heads, size, causal, times = np.asarray(table, float).T
    peak, _ = speeds(chip)
    operations = (
        4.0 * batch * heads * length * length * size * np.where(causal > 0, 0.5, 1.0) * (3.5 if backward else 1)
    )
    # A backward pass this short is bound by its launches, which is no fact of the kernel.
    keep = (times > 3e-4) if backward else (times > 0)

    def model(start: float, ramp_tokens: float, rate_share: float, head_exponent: float) -> Any:
        rate = rate_share * peak * (np.minimum(size, 128) / 128) ** head_exponent
        return attention_prefill_time(operations, length, rate, ramp_tokens, start)[keep]

    parameters = [
        Parameter("start", 8e-6, 1e-6, 1e-4),
        Parameter("ramp_tokens", 300.0, 1.0, 5e3),
        Parameter("rate_share", 0.6, 0.1, 1.0),
        Parameter("head_exponent", 0.5, 0.05, 1.0),
    ]
    return fit(model, parameters, times[keep])


def fit_library_decode(chip: str, rows: Iterable[Measurement]) -> Fit:
    """The fastest path of each decode shape: start and share of the bandwidth."""
    best: dict[tuple[int, ...], float] = {}
    for r in rows:
        if r.section == "attn_decode" and r.metric == "time":
            key = tuple(int(r.config[name]) for name in ("B", "S", "H", "KV", "D"))
            best[key] = min(best.get(key, np.inf), r.median)
    batch, cached, _, kv, size = np.asarray(list(best), float).T
    _, bandwidth = speeds(chip)
    moved = 4.0 * batch * cached * kv * size

    def model(decode_start: float, decode_memory_share: float) -> Any:
        return memory_bound_time(moved, bandwidth, decode_memory_share, decode_start)

    parameters = [
        Parameter("decode_start", 6e-6, 1e-7, 1e-4),
        Parameter("decode_memory_share", 0.9, 0.1, 1.0),
    ]
    return fit(model, parameters, np.asarray(list(best.values())))


def fit_convolutions(chip: str, rows: Iterable[Measurement]) -> tuple[Fit, float]:
    """Start, rate and bandwidth share of convolutions, and the bandwidth share of large depthwise ones."""
    table = [
        (r.config["flops"], r.config["bytes"], r.config["groups"], r.median)
        for r in rows
        if r.section == "conv" and r.metric == "time"
    ]
    operations, moved, groups, times = np.asarray(table, float).T
    peak, bandwidth = speeds(chip)
    dense = groups == 1

    def model(start: float, rate_share: float, memory_share: float) -> Any:
        return gemm_time(operations[dense], moved[dense], 0.0, rate_share * peak, bandwidth, memory_share, 1.0, start)

    found = fit(
        model,
        [
            Parameter("start", 5e-6, 1e-6, 1e-4),
            Parameter("rate_share", 0.7, 0.1, 1.0),
            Parameter("memory_share", 0.65, 0.1, 1.0),
        ],
        times[dense],
    )
    light = moved[~dense] / (times[~dense] - found.values["start"]) / bandwidth
    return found, float(np.median(light))


def fit_memory_bound(chip: str, rows: Iterable[Measurement], operators: tuple[str, ...], mode: str) -> Fit:
    """Start and share of the bandwidth of memory-bound kernels, which each move their smallest number of bytes."""
    table = [
        (r.config["bytes"], r.median)
        for r in rows
        if r.section == "memop" and r.metric == "time" and r.config["op"] in operators and r.config["mode"] == mode
    ]
    moved, times = np.asarray(table, float).T
    _, bandwidth = speeds(chip)

    def model(start: float, share: float) -> Any:
        return memory_bound_time(moved, bandwidth, share, start)

    return fit(model, [Parameter("start", 2e-6, 1e-8, 1e-4), Parameter("share", 0.7, 0.02, 1.0)], times)
