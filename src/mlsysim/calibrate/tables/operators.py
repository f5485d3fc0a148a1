"""Measured kernels of a serving engine: matrix products, attention over prompts, attention of one query.

Every row is one call of TensorRT-LLM's kernel on an idle chip, with a shape of random size. Its constants were fitted to this
table, chip by chip and format by format (:mod:`mlsysim.calibrate.refit`); a chip or a format without a fit takes those of its
class and its nearest wider format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mlsysim.calibrate import operators as forms
from mlsysim.calibrate.cells import chip_of, format_of
from mlsysim.calibrate.questions import Excluded, Prediction, Skipped
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.kernels import Profile
from mlsysim.timing.profile import profile

COLUMNS = ("gpu", "op", "dtype", "shape", "metric", "value", "unit")

_ENGINE = "trtllm"
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def read(row: Mapping[str, str]) -> list[Prediction]:
    """The latency of the row's kernel."""
    chip = chip_of(row["gpu"])
    return predict_with(row, chip, profile(chip))


def predict_with(row: Mapping[str, str], chip: HardwareNode, shares: Profile) -> list[Prediction]:
    """The same with the constants of another profile."""
    if row["metric"] != "latency":
        raise Skipped(f"the metric {row['metric']!r} is not a latency")
    if row["unit"] not in _SECONDS:
        raise Skipped(f"the unit {row['unit']!r} is not a time")
    try:
        shape = {name: float(value) for name, value in forms.shape_of(row["shape"]).items()}
    except ValueError:
        raise Skipped(f"the shape {row['shape']!r} cannot be read") from None
    kernel = _KERNELS.get(row["op"])
    if kernel is None:
        raise Skipped(f"the operator {row['op']!r} is not known")
    try:
        seconds = float(kernel(row["dtype"], shape, chip, shares))
    except KeyError as missing:
        raise Skipped(f"the shape {row['shape']!r} lacks {missing}") from None
    unit = _SECONDS[row["unit"]]
    regime = "kernel gemm" if row["op"] == "gemm" else "kernel attention"
    return [Prediction(row["op"], float(row["value"]), seconds / unit, regime, shares.measured)]


_AS_WRITTEN = {"w8a16": "int8_wo"}
"""What the tables call a format that plans have another name for."""


def _product(label: str, shape: dict[str, float], chip: HardwareNode, shares: Profile) -> Any:
    form = forms.FORMATS.get(label.lower()) or forms.FORMATS.get(_AS_WRITTEN.get(name := format_of(label), name))
    if form is None:
        raise Skipped(f"the number format {label!r} is not known")
    m, n, k = shape["m"], shape["n"], shape["k"]
    if not m * n * k:
        raise Excluded("a product without rows is not a measurement of one")
    variant = form.key.removeprefix(f"{form.precision}_") if "_" in form.key else None
    kernel = shares.product_for(form.precision, variant)
    values = forms.constants(kernel, *forms.PRODUCT, *forms.CONVERSION, "quantise_start")
    return forms.product(chip, form, m, n, k, form.converts)(**values)


def _attention(label: str, shape: dict[str, float], chip: HardwareNode, shares: Profile, prompt: bool) -> Any:
    """Attention over a prompt, or of one query on its cache."""
    key, engine = "/".join(format_of(part) for part in label.lower().split("/kv-")), shares.engines.get(_ENGINE)
    if key not in forms.CACHE_FORMATS.values():
        raise Skipped(f"the number format {label!r} of attention is not known")
    if engine is None:
        raise Skipped(f"there are no attention kernels of this engine for the class {shares.name}")
    if prompt and shape.get("step"):
        raise Skipped("attention over a prompt that follows a cached one was not measured")
    cache, batch, heads, kv, size = forms.cache_bytes(key), *(shape[name] for name in ("batch", "heads", "kv", "hd"))
    grouped = 1 < heads / kv <= engine.group_limit
    kernels: Any = engine.context if prompt else engine.grouped if grouped else engine.single
    kernel = kernels.get(key) or kernels["bf16/bf16"]
    if prompt:
        values = forms.constants(kernel, *forms.CONTEXT, *forms.HEADS)
        return forms.context(chip, cache, batch, shape["isl"], heads, kv, size)(**values)
    values = forms.constants(kernel, *forms.DECODE, *forms.REUSE)
    return forms.decode(chip, cache, grouped, batch, shape["step"] + 1, heads, kv, size)(**values)


_KERNELS: dict[str, Callable[..., Any]] = {
    "gemm": _product,
    "context_attention": partial(_attention, prompt=True),
    "generation_attention": partial(_attention, prompt=False),
}
