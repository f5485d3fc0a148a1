"""Efficiency profiles: what a chip reaches of its datasheet, fitted to measured kernels.

``profile(chip)`` gives the constants of a measured chip, or those of its generation (then of its family) scaled to its
datasheet. A profile says whether it was measured, where its constants come from and how well they fit, so that an answer
can carry an error bar that is honest about the difference.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from mlsysim.errors import InputError, ZooFileError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import compute_precision
from mlsysim.units.fields import Record, Seconds
from mlsysim.zoo.provenance import Source

__all__ = ["Attention", "Collective", "Gemm", "MemoryBound", "Power", "Profile", "profile", "profile_names"]


class Gemm(Record):
    """Matrix products at one precision. ``rate_share`` is of the dense peak, in short bursts."""

    rate_share: float = Field(gt=0, le=1.2)
    memory_share: float = Field(gt=0, le=1)
    start: Seconds
    sustained: float = Field(default=1.0, gt=0, le=1, description="rate under the power cap over the burst rate")
    quantise_share: float = Field(default=0.5, gt=0, le=1, description="bandwidth share of converting inputs")
    fit_error_pct: float | None = None


class Attention(Record):
    """Fused attention. Rates are shares of the dense 16-bit peak, of causal operations."""

    rate_share: float = Field(gt=0, le=1)
    ramp_tokens: float = Field(ge=0)
    start: Seconds
    fp8_gain: float = Field(default=1.0, ge=1)
    backward_share: float = Field(default=0.853, gt=0, le=1, description="backward rate over forward rate")
    decode_memory_share: float = Field(gt=0, le=1)
    decode_start: Seconds
    latent_memory_share: float = Field(default=0.8, gt=0, le=1)
    latent_rate_share: float = Field(default=0.53, gt=0, le=1)
    fit_error_pct: float | None = None


class MemoryBound(Record):
    """Everything that only moves bytes."""

    eager_share: float = Field(gt=0, le=1)
    fused_share: float = Field(gt=0, le=1)
    start: Seconds
    optimizer_share: float = Field(default=0.72, gt=0, le=1)
    gather_share: float = Field(default=0.35, gt=0, le=1)
    graph_launch: Seconds
    eager_launch: Seconds
    fit_error_pct: float | None = None


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
    attention: Attention
    memory_bound: MemoryBound
    collective: Collective
    power: Power
    usable_memory: float = Field(default=1.0, gt=0, le=1.1, description="memory that the driver offers over capacity")
    source: tuple[Source, ...] = ()

    @property
    def measured(self) -> bool:
        return self.basis == "measured"

    def gemm_for(self, precision: str) -> Gemm:
        """Constants at a precision; the nearest wider one where the precision itself was not fitted."""
        wanted = compute_precision(precision)
        for name in (wanted, *_WIDER.get(wanted, ()), "bf16"):
            if name in self.gemm:
                return self.gemm[name]
        raise InputError(f"the profile {self.name!r} has no constants for {precision}.")


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
def _tables(user_folder: str) -> dict[str, dict[str, Any]]:
    """Every profile table: shipped ones, then the user's, which may replace them."""
    tables: dict[str, dict[str, Any]] = {}
    shipped = files("mlsysim.hardware").joinpath("data", "profiles")
    for entry in sorted(shipped.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".toml"):
            tables.update(tomllib.loads(entry.read_text(encoding="utf-8")))
    if user_folder:
        for path in sorted(Path(user_folder).glob("profiles/*.toml")):
            try:
                tables.update(tomllib.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise ZooFileError(f"{path}: {error}.", file=str(path), entry="", reason=str(error)) from None
    return tables


def profile_names() -> list[str]:
    """Chips and classes that have constants of their own."""
    return list(_tables(os.environ.get("MLSYSIM_ZOO", "")))


@cache
def _build(name: str, user_folder: str) -> Profile:
    table = dict(_tables(user_folder)[name])
    parent = table.pop("like", None)
    if parent is not None:
        merged = _merge(_plain(parent, user_folder), table)
        return Profile(name=name, **merged)
    return Profile(name=name, **table)


def _plain(name: str, user_folder: str) -> dict[str, Any]:
    table = dict(_tables(user_folder)[name])
    parent = table.pop("like", None)
    return _merge(_plain(parent, user_folder), table) if parent is not None else table


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in change.items():
        result[key] = (
            _merge(result[key], value) if isinstance(value, dict) and isinstance(result.get(key), dict) else value
        )
    return result


def profile(chip: HardwareNode) -> Profile:
    """The constants of a chip: its own, else those of its generation, else those of its family."""
    folder = os.environ.get("MLSYSIM_ZOO", "")
    tables = _tables(folder)
    generation = (chip.generation or "").replace(" ", "_")
    for name in (chip.metadata.key, f"generation_{generation}", f"family_{chip.family}", "family_gpu"):
        if name and name in tables:
            return _build(name, folder)
    raise InputError(f"there is no efficiency profile for {chip.name}, nor for its class.")
