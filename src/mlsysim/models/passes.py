"""One pass through a network: how many sequences and tokens, in which precision, on which shard.

Three phases: ``prefill`` of S new tokens per sequence, ``decode`` of one new token per sequence that follows a context
of S, and ``training`` on S tokens per sequence (forward and backward). Networks that know no tokens have ``inference``
and ``training``.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.models.graph import MULTIPLY_ADD, Operator
from mlsysim.physics.precision import HALF, activation_element, bytes_per_element, cache_format, format_of
from mlsysim.units.records import dataclass

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
    kept: str = "all"
    """Which weights have the format: all, those of layers, those of experts."""
    rest: float = HALF
    """Bytes of the others."""

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
        kept: str = "all",
    ) -> Pass:
        if phase not in PHASES:
            raise unknown_name("phase", phase, PHASES, remedy="use prefill, decode, training or inference.")
        weight = bytes_per_element(precision)
        activation = bytes_per_element(activation_precision) if activation_precision else activation_element(precision)
        # In training nothing is kept for later tokens: keys and values are activations.
        held = activation if phase == "training" else bytes_per_element(cache_format(cache_precision, precision))
        return cls(
            phase, batch, new, context, weight, activation, held, shard, causal, kept, format_of(precision).rest / 8
        )

    def stored(self, layer: str, kind: str) -> float:
        """Bytes of a weight of an operator."""
        if self.kept == "all":
            return self.weight
        wide = kind != "grouped_gemm" if self.kept == "experts" else layer in ("head", "embedding")
        return max(self.weight, self.rest) if wide else self.weight

    @property
    def tokens(self) -> Any:
        """Tokens that this device processes."""
        return self.batch * self.new / self.shard.cp

    @property
    def training(self) -> bool:
        return self.phase == "training"


def operator(
    name: str,
    kind: str,
    layer: str,
    p: Pass,
    weights: Any = 0,
    read: Any = 0,
    written: Any = 0,
    cache: Any = 0,
    **sizes: Any,
) -> Operator:
    """An operator whose weights, inputs, outputs and cache are given in elements."""
    moved = {"input_bytes": read * p.activation, "output_bytes": written * p.activation}
    held = weights * p.stored(layer, kind)
    return Operator(name, kind, layer, weight_bytes=held, cache_bytes=cache * p.cache, **moved, **sizes)


def gemm(
    name: str, layer: str, p: Pass, n: Any, k: Any, m: Any = None, kind: str = "gemm", groups: Any = 1, read: Any = None
) -> Operator:
    """A product of ``m`` rows (the tokens, unless given) with ``groups`` matrices of n x k; a convolution reads otherwise."""
    rows = p.tokens if m is None else m
    each = rows * groups
    sizes = {"m": rows, "n": n, "k": k, "groups": groups, "flops": MULTIPLY_ADD * each * n * k}
    inputs = each * k if read is None else read
    return operator(name, kind, layer, p, weights=groups * n * k, read=inputs, written=each * n, **sizes)


def elementwise(name: str, layer: str, p: Pass, read: Any, written: Any, count: Any = 1, m: Any = None) -> Operator:
    """A memory-bound operator that reads and writes so many elements per token; its arithmetic is not counted."""
    rows = p.tokens if m is None else m
    sizes = {"m": rows, "n": read, "count": count}
    return operator(name, "elementwise", layer, p, read=rows * read, written=rows * written, **sizes)


def whole_model(p: Pass, active: float, parameters: float) -> list[Operator]:
    """A model without dimensions: 2 operations for each active parameter and token, all weights read once."""
    share = p.shard.tp * p.shard.pp
    flops = MULTIPLY_ADD * p.tokens * active / share
    sizes = {"m": p.tokens, "n": active / share, "k": 1, "flops": flops}
    return [Operator("all_layers", "gemm", "layers", weight_bytes=parameters * p.weight / share, **sizes)]
