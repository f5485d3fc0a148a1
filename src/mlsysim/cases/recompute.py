"""What a training step computes again in the backward pass, as numbers, so that arrays of modes are one equation.

A mode is a name (``none``, ``selective`` = the attention core, ``half`` = every other product, ``modules`` = norms and activations,
``full``), or parts of a layer joined by ``+``: ``attention+light``, ``up`` (latent projections), ``moe`` (routed experts and their
exchange).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import unknown_name

MODES: dict[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("attention",),
    "half": ("half",),
    "modules": ("light",),
    "full": ("full",),
}
SELECTIVE = ("attention", "light", "up", "moe", "half", "attention+light", "attention+light+moe")
"""What stacks are known to recompute under the name "selective"."""
PARTS = ("full", "half", "attention", "light", "up", "moe")


@dataclass(frozen=True, slots=True)
class Again:
    """How often each part of a layer's forward pass is done again; numbers or arrays."""

    full: Any = 0.0
    half: Any = 0.0
    attention: Any = 0.0
    light: Any = 0.0
    up: Any = 0.0
    moe: Any = 0.0


NOTHING = Again()


def again(mode: Any, selective: str = "attention") -> Again:
    """The parts of a mode, or of an array of modes that compares with their names element by element.

    ``selective`` are the parts that a stack recomputes under that name.
    """
    if not isinstance(mode, str):
        return Again(full=(mode == "full") * 1.0, **dict.fromkeys(selective.split("+"), (mode == "selective") * 1.0))
    parts = (
        tuple(selective.split("+")) if mode == "selective" else MODES[mode] if mode in MODES else tuple(mode.split("+"))
    )
    parts = tuple("full" if part == "forward" else part for part in parts)
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part of a layer to recompute", part, PARTS)
    return Again(**dict.fromkeys(parts, 1.0))
