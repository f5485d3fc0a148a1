"""One pass through a network: how many sequences and tokens, in which precision, on which shard.

Three phases: ``prefill`` of S new tokens per sequence, ``decode`` of one new token per sequence that follows a context
of S, and ``training`` on S tokens per sequence (forward and backward). Networks that know no tokens have ``inference``
and ``training``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.models.graph import MULTIPLY_ADD, Operator
from mlsysim.physics.precision import bytes_per_element

PHASES = ("prefill", "decode", "training", "inference")


@dataclass(frozen=True, slots=True)
class Sharding:
    """How one replica of a model is split over devices; the graph is that of one device.

    ``tp`` splits matrices and heads, ``pp`` layers, ``ep`` experts, ``cp`` the tokens of a sequence. An expert group
    larger than the tensor group takes tokens from the data-parallel neighbours that share it.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "ep", "cp"):
            degree = getattr(self, name)
            if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
                raise InputError(f"The degree {name!r} must be a whole number of at least 1, got {degree!r}.")


@dataclass(frozen=True, slots=True)
class Pass:
    """Sizes that every layer needs to count its work."""

    phase: str
    batch: Any
    new: Any
    context: Any
    weight: float
    activation: float
    cache: float
    shard: Sharding
    causal: bool = True

    @classmethod
    def of(
        cls,
        phase: str,
        batch: Any,
        new: Any,
        context: Any,
        precision: str,
        shard: Sharding,
        activation_precision: str | None = None,
        cache_precision: str | None = None,
        causal: bool = True,
    ) -> Pass:
        if phase not in PHASES:
            raise unknown_name("phase", phase, PHASES, remedy="use prefill, decode, training or inference.")
        weight = bytes_per_element(precision)
        # Activations do not go below one byte: weight-only formats compute on 16-bit activations.
        activation = (
            bytes_per_element(activation_precision) if activation_precision else (weight if weight >= 1 else 2.0)
        )
        cache = bytes_per_element(cache_precision) if cache_precision else activation
        return cls(phase, batch, new, context, weight, activation, cache, shard, causal)

    @property
    def tokens(self) -> Any:
        """Tokens that this device processes."""
        return self.batch * self.new / self.shard.cp

    @property
    def training(self) -> bool:
        return self.phase == "training"


def gemm(name: str, layer: str, p: Pass, n: Any, k: Any, m: Any = None, count: Any = 1) -> Operator:
    """A matrix product of ``m`` rows (the tokens, unless given) with an n x k weight."""
    rows = p.tokens if m is None else m
    return Operator(
        name,
        "gemm",
        layer,
        count,
        m=rows,
        n=n,
        k=k,
        flops=MULTIPLY_ADD * rows * n * k,
        weight_bytes=n * k * p.weight,
        input_bytes=rows * k * p.activation,
        output_bytes=rows * n * p.activation,
    )


def elementwise(name: str, layer: str, p: Pass, read: Any, written: Any, count: Any = 1) -> Operator:
    """A memory-bound operator that reads and writes so many elements per token; its arithmetic is not counted."""
    return Operator(
        name,
        "elementwise",
        layer,
        count,
        m=p.tokens,
        n=read,
        input_bytes=p.tokens * read * p.activation,
        output_bytes=p.tokens * written * p.activation,
    )


def whole_model(p: Pass, active: float, parameters: float) -> list[Operator]:
    """A model without dimensions: 2 operations for each active parameter and token, all weights read once."""
    share = p.shard.tp * p.shard.pp
    flops, weights = MULTIPLY_ADD * p.tokens * active / share, parameters * p.weight / share
    return [
        Operator("all_layers", "gemm", "layers", m=p.tokens, n=active / share, k=1, flops=flops, weight_bytes=weights)
    ]
