"""Efficiency profiles: what a chip reaches of its datasheet, fitted to measured kernels.

``profile(chip)`` gives the constants of a measured chip, or those of its generation (then of its family) scaled to its
datasheet. A profile says whether it was measured, where its constants come from and how well they fit, so that an answer
can carry an error bar that is honest about the difference.
"""

from __future__ import annotations

import tomllib
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError, ZooFileError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import compute_precision
from mlsysim.units.fields import Record, Seconds
from mlsysim.units.registry import to_si
from mlsysim.zoo.provenance import Source
from mlsysim.zoo.user_folder import user_folder

REACH = 4096
"""Length (of a reduction, of a cache) at which the ``chain`` of a kernel is given."""

_NONE = "0 us"


class Gemm(Record):
    """Matrix products at one precision, as a roof: what long products reach, and the start of short ones.

    ``rate_share`` is of the dense peak, in short bursts.
    """

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    start: Seconds
    sustained: float = Field(default=1.0, gt=0, le=1, description="rate under the power cap over the burst rate")
    quantise_share: float = Field(default=0.5, gt=0, le=1, description="bandwidth share of converting inputs")
    fit_error_pct: float | None = None

    @cached_property
    def kernel(self) -> ProductKernel:
        """The same constants in the finer form."""
        return ProductKernel(
            rate_share=self.rate_share,
            memory_share=self.memory_share,
            start=self.start,
            sustained=self.sustained,
            quantise_share=self.quantise_share,
            fit_error_pct=self.fit_error_pct,
        )


class ProductKernel(Record):
    """Matrix products of every shape at one precision; see :func:`mlsysim.physics.operators.gemm_time`.

    ``chain`` is the time to walk a reduction of 4096 when there are too few tiles to fill the chip; it grows with the reduction
    to the power ``growth``. Inputs that must be converted to a narrower format first pay ``quantise_start`` and move their
    bytes (and ``quantise_row`` elements more for each row) at ``quantise_share`` of the bandwidth.
    """

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    start: Seconds
    sustained: float | None = Field(default=None, gt=0, le=1, description="rate over seconds over that of the table")
    chain: Seconds = Field(default=_NONE, validate_default=True)
    growth: float = Field(default=1.0, gt=0, le=2)
    corner: float = Field(default=4.0, ge=1, le=12, description="exponent of the norm over arithmetic and memory")
    quantise_share: float = Field(default=0.5, gt=0, le=1, description="bandwidth share of converting inputs")
    quantise_row: float = Field(default=0.0, ge=0)
    quantise_start: Seconds = Field(default=_NONE, validate_default=True)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float, float]:
        """Seconds: start, chain, start of the conversion."""
        return to_si(self.start, "s"), to_si(self.chain, "s"), to_si(self.quantise_start, "s")


class Attention(Record):
    """Fused attention of the chip's best library. Rates are shares of the dense 16-bit peak, of causal operations."""

    rate_share: float = Field(gt=0, le=1)
    ramp_tokens: float = Field(ge=0)
    start: Seconds
    head_exponent: float = Field(default=0.5, ge=0, le=2, description="rate grows so with the head's size, up to 128")
    fp8_gain: float = Field(default=1.0, ge=1)
    backward_share: float = Field(default=0.853, gt=0, le=1, description="backward rate over forward rate")
    decode_memory_share: float = Field(gt=0, le=1)
    decode_start: Seconds
    latent_memory_share: float = Field(default=0.8, gt=0, le=1)
    latent_rate_share: float = Field(default=0.53, gt=0, le=1)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float]:
        """Seconds: start over a sequence, and of a decode."""
        return to_si(self.start, "s"), to_si(self.decode_start, "s")


class ContextKernel(Record):
    """A serving engine's attention over a prompt, writing of the cache included."""

    start: Seconds
    rate_share: float = Field(gt=0, le=1.2, description="of the dense 16-bit peak, of causal operations")
    ramp_tokens: float = Field(ge=0)
    head_exponent: float = Field(ge=0, le=2)
    stream_share: float = Field(gt=0, le=1.2, description="bandwidth share of queries, keys, values and results")
    corner: float = Field(ge=1, le=12)
    fit_error_pct: float | None = None
    points: int | None = None


class DecodeKernel(Record):
    """A serving engine's attention of one query per sequence.

    ``memory_share`` may pass 1: part of what the measured kernels read stays on the chip. ``reuse`` is the exponent with which
    query heads that read the same keys one by one find them on the chip.
    """

    start: Seconds
    memory_share: float = Field(gt=0, le=1.6)
    row_time: Seconds
    chain: Seconds
    growth: float = Field(gt=0, le=1.5)
    reuse: float = Field(default=0.0, ge=0, le=1)
    fit_error_pct: float | None = None
    points: int | None = None


class EngineAttention(Record):
    """Attention kernels of one serving engine, by the format of arithmetic and cache ("bf16/fp8").

    Up to ``group_limit`` query heads share the reading of their keys (``grouped``); one head alone, or more than that, go one
    by one (``single``).
    """

    group_limit: int = Field(gt=0)
    context: dict[str, ContextKernel]
    single: dict[str, DecodeKernel]
    grouped: dict[str, DecodeKernel]


class Convolution(Record):
    """Convolutions: ``rate_share`` of the peak at the precision, bytes of input and output at ``memory_share``."""

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    depthwise_share: float = Field(gt=0, le=1)
    start: Seconds
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def seconds(self) -> float:
        """The start."""
        return to_si(self.start, "s")


class MemoryKernel(Record):
    """One memory-bound kernel, over the smallest number of bytes that it must move: a chain of small ones has a small share."""

    start: Seconds
    share: float = Field(gt=0, le=1)
    fit_error_pct: float | None = None
    points: int | None = None


class MemoryBound(Record):
    """Everything that only moves bytes; ``kernels`` that were measured by name ("rms_norm/eager")."""

    eager_share: float = Field(gt=0, le=1)
    fused_share: float = Field(gt=0, le=1)
    start: Seconds
    optimizer_share: float = Field(default=0.72, gt=0, le=1)
    optimizer_share_16bit: float = Field(default=0.57, gt=0, le=1, description="with parameters and moments in 16 bits")
    gather_share: float = Field(default=0.35, gt=0, le=1)
    graph_launch: Seconds
    eager_launch: Seconds
    kernels: dict[str, MemoryKernel] = Field(default_factory=dict)
    fit_error_pct: float | None = None
    points: int | None = None

    @cached_property
    def times(self) -> tuple[float, float, float]:
        """Seconds: start, launch in a graph, launch by the host."""
        return to_si(self.start, "s"), to_si(self.graph_launch, "s"), to_si(self.eager_launch, "s")


class Collective(Record):
    """Communication inside the link domain; see :func:`mlsysim.physics.operators.link_time`."""

    start: Seconds
    step_share: float = 0.15
    copy_share: float = 0.424
    efficiency: float = 0.733
    eager_share: float = 0.396
    rendezvous: float = 2.175
    in_switch_start: float | None = None
    in_switch_share: float | None = None
    fabric_share: float = Field(default=0.8, gt=0, le=1, description="achieved share of a network adapter's rate")
    fabric_start: Seconds
    fit_error_pct: float | None = None


class Power(Record):
    """Shares of the TDP: waiting, kernels back to back, and what arithmetic and memory add; capped."""

    idle: float = Field(ge=0, le=1)
    stall: float = Field(ge=0, le=1)
    arithmetic: float = Field(ge=0)
    memory: float = Field(ge=0)
    cap: float = Field(gt=0, le=1.2)
    fit_error_pct: float | None = None


class Profile(Record):
    """Constants of one chip, or of a class of chips."""

    name: str
    basis: Literal["measured", "generation", "family"]
    gemm: dict[str, Gemm]
    products: dict[str, ProductKernel] = Field(default_factory=dict)
    attention: Attention
    convolution: Convolution | None = None
    memory_bound: MemoryBound
    collective: Collective
    power: Power
    engines: dict[str, EngineAttention] = Field(default_factory=dict)
    usable_memory: float = Field(default=1.0, gt=0, le=1.1, description="memory that the driver offers over capacity")
    passes_measured: bool = Field(
        default=False, description="whole passes were validated on this chip, not kernels alone"
    )
    source: tuple[Source, ...] = ()

    @property
    def measured(self) -> bool:
        return self.basis == "measured"

    @cached_property
    def product_constants(self) -> dict[tuple[Any, ...], Any]:
        """Constants of products by peak, precision and execution; filled as they are asked for."""
        return {}

    def gemm_for(self, precision: str) -> Gemm:
        """Constants at a precision; the nearest wider one where the precision itself was not fitted."""
        wanted = compute_precision(precision)
        for name in (wanted, *_WIDER.get(wanted, ()), "bf16"):
            if name in self.gemm:
                return self.gemm[name]
        raise InputError(f"the profile {self.name!r} has no constants for {precision}.")

    def product_for(self, precision: str, variant: str | None = None) -> ProductKernel:
        """Constants in the finer form; those of the roof where the precision was not measured shape by shape.

        ``variant`` names a way of scaling or storing that was measured apart: "block" (a scale for each block) or "weight"
        (narrow weights, 16-bit arithmetic).
        """
        wanted = compute_precision(precision)
        same = {"fp16": "bf16", "bf16": "fp16"}.get(wanted, wanted)
        for name in (f"{wanted}_{variant}", wanted, same):
            if name in self.products:
                return self.products[name]
        return self.gemm_for(precision).kernel


_WIDER = {
    "fp16": ("bf16",),
    "bf16": ("fp16",),
    "int8": ("fp8",),
    "fp6": ("fp8",),
    "fp4": ("fp8",),
    "int4": ("fp4", "fp8"),
    "tf32": ("bf16",),
    "fp32": ("tf32",),
    "fp64": ("fp32",),
}


@cache
def _tables(own: str) -> dict[str, dict[str, Any]]:
    """Every profile table: those of the shipped files together, then the user's, which replace whole tables."""
    tables: dict[str, dict[str, Any]] = {}
    shipped = files("mlsysim.hardware").joinpath("data", "profiles")
    for entry in sorted(shipped.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".toml"):
            tables = _merge(tables, tomllib.loads(entry.read_text(encoding="utf-8")))
    if own:
        for path in sorted(Path(own).glob("profiles/*.toml")):
            try:
                tables.update(tomllib.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise ZooFileError(f"{path}: {error}.", file=str(path), entry="", reason=str(error)) from None
    return tables


def profile_names() -> list[str]:
    """Chips and classes that have constants of their own."""
    return list(_tables(user_folder()))


@cache
def _build(name: str, own: str) -> Profile:
    table = dict(_tables(own)[name])
    parent = table.pop("like", None)
    if parent is not None:
        merged = _merge(_plain(parent, own), table)
        return Profile(name=name, **merged)
    return Profile(name=name, **table)


def _plain(name: str, own: str) -> dict[str, Any]:
    table = dict(_tables(own)[name])
    parent = table.pop("like", None)
    return _merge(_plain(parent, own), table) if parent is not None else table


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        result[key] = (
            _merge(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
        )
    return result


def profile(chip: HardwareNode) -> Profile:
    """The constants of a chip: its own, else those of its generation, else those of its family."""
    folder = user_folder()
    tables = _tables(folder)
    generation = (chip.generation or "").replace(" ", "_")
    for name in (chip.metadata.key, f"generation_{generation}", f"family_{chip.family}", "family_gpu"):
        if name and name in tables:
            return _build(name, folder)
    raise InputError(f"there is no efficiency profile for {chip.name}, nor for its class.")
