"""Measured kernels of a serving engine: matrix products, attention over prompts, attention of one query.

Every row is one call of TensorRT-LLM's kernel on an idle chip, with a shape of random size. Its constants were fitted to this
table, chip by chip and format by format (:mod:`mlsysim.calibrate.refit`); a chip or a format without a fit takes those of its
class and its nearest wider format.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsysim.calibrate.operators import CACHE_FORMATS, CHIPS, FORMATS, context_work, decode_work, product_work, shape_of
from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.errors import MLSysError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.operators import attention_prefill_time, gemm_time
from mlsysim.physics.precision import bytes_per_element
from mlsysim.timing.kernels import REACH, ContextKernel, DecodeKernel, EngineAttention, Profile
from mlsysim.timing.operator_times import decode_kernel_time
from mlsysim.timing.profile import profile
from mlsysim.units.registry import to_si

COLUMNS = ("gpu", "op", "dtype", "shape", "metric", "value", "unit")

_ENGINE = "trtllm"
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def read(row: Mapping[str, str]) -> list[Prediction]:
    """The latency of the row's kernel."""
    chip = _chip(row["gpu"])
    return predict_with(row, chip, profile(chip))


def predict_with(row: Mapping[str, str], chip: HardwareNode, shares: Profile) -> list[Prediction]:
    """The same with the constants of another profile."""
    if row["metric"] != "latency":
        raise Skipped(f"the metric {row['metric']!r} is not a latency")
    if row["unit"] not in _SECONDS:
        raise Skipped(f"the unit {row['unit']!r} is not a time")
    try:
        shape = {name: float(value) for name, value in shape_of(row["shape"]).items()}
    except ValueError:
        raise Skipped(f"the shape {row['shape']!r} cannot be read") from None
    kernel = {"gemm": _product, "context_attention": _context, "generation_attention": _decode}.get(row["op"])
    if kernel is None:
        raise Skipped(f"the operator {row['op']!r} is not known")
    try:
        seconds = kernel(row["dtype"], shape, chip, shares)
    except KeyError as missing:
        raise Skipped(f"the shape {row['shape']!r} lacks {missing}") from None
    unit = _SECONDS[row["unit"]]
    regime = "kernel gemm" if row["op"] == "gemm" else "kernel attention"
    return [Prediction(row["op"], float(row["value"]), seconds / unit, regime, shares.measured)]


def _chip(name: str) -> HardwareNode:
    try:
        return Hardware.get(CHIPS.get(name, name.removesuffix("_SXM")))
    except MLSysError as error:
        raise Skipped(str(error)) from None


def _product(label: str, shape: dict[str, float], chip: HardwareNode, shares: Profile) -> float:
    form = FORMATS.get(label)
    if form is None:
        raise Skipped(f"the number format {label!r} is not known")
    m, n, k = shape["m"], shape["n"], shape["k"]
    if not m * n * k:
        raise Excluded("a product without rows is not a measurement of one")
    variant = form.key.removeprefix(f"{form.precision}_") if "_" in form.key else None
    kernel = shares.product_for(form.precision, variant)
    peak, _ = arithmetic_peak(chip, form.arithmetic)
    operations, moved = product_work(form, m, n, k)
    start, chain, convert = kernel.times
    return float(
        gemm_time(
            operations,
            moved,
            3.0 * m * (k + kernel.quantise_row) if form.converts else 0.0,
            peak * kernel.rate_share,
            to_si(chip.memory.bandwidth, "byte/s"),
            kernel.memory_share,
            kernel.quantise_share,
            start + (convert if form.converts else 0.0),
            k / REACH,
            chain,
            kernel.growth,
            kernel.corner,
        )
    )


def _formats(label: str, shares: Profile) -> tuple[EngineAttention, str, float]:
    key = CACHE_FORMATS.get(label)
    if key is None:
        raise Skipped(f"the number format {label!r} of attention is not known")
    engine = shares.engines.get(_ENGINE)
    if engine is None:
        raise Skipped(f"there are no attention kernels of this engine for the class {shares.name}")
    return engine, key, bytes_per_element(key.split("/")[1])


def _nearest(kernels: Mapping[str, ContextKernel | DecodeKernel], key: str) -> ContextKernel | DecodeKernel:
    return kernels.get(key) or kernels["bf16/bf16"]


def _context(label: str, shape: dict[str, float], chip: HardwareNode, shares: Profile) -> float:
    engine, key, cache = _formats(label, shares)
    if shape.get("step"):
        raise Skipped("attention over a prompt that follows a cached one was not measured")
    kernel = _nearest(engine.context, key)
    assert isinstance(kernel, ContextKernel)
    length, size = shape["isl"], shape["hd"]
    operations, moved = context_work(cache, shape["batch"], length, shape["heads"], shape["kv"], size)
    rate = arithmetic_peak(chip, "bf16")[0] * kernel.rate_share * (size / 128) ** kernel.head_exponent
    streaming = moved / (kernel.stream_share * to_si(chip.memory.bandwidth, "byte/s"))
    start = to_si(kernel.start, "s")
    return float(attention_prefill_time(operations, length, rate, kernel.ramp_tokens, start, streaming, kernel.corner))


def _decode(label: str, shape: dict[str, float], chip: HardwareNode, shares: Profile) -> float:
    engine, key, cache = _formats(label, shares)
    batch, heads, kv, size = shape["batch"], shape["heads"], shape["kv"], shape["hd"]
    cached, group = shape["step"] + 1, heads / kv
    grouped = 1 < group <= engine.group_limit
    kernel = _nearest(engine.grouped if grouped else engine.single, key)
    assert isinstance(kernel, DecodeKernel)
    read, own, rows = decode_work(cache, grouped, batch, cached, heads, kv, size)
    moved = read / group**kernel.reuse + own
    operations = 4.0 * batch * heads * cached * size
    peak, bandwidth = arithmetic_peak(chip, "bf16")[0], to_si(chip.memory.bandwidth, "byte/s")
    return float(decode_kernel_time(kernel, moved, operations, rows, cached, peak, bandwidth))
