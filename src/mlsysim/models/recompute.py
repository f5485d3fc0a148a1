"""What a training step computes again in the backward pass, as numbers, so that arrays of modes are one equation.

A mode is a name (``none``, ``selective`` = what the software or the caller says, ``half`` = every other product, ``modules`` = norms and
activations, ``full``), or parts of a layer joined by ``+``: ``attention`` (its core), ``norm``, ``light`` (norms and activations), ``up``
(latent projections), ``moe`` (routed experts and their exchange).
"""

from __future__ import annotations

import re
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.units.records import dataclass

MODES: dict[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("attention",),
    "half": ("half",),
    "modules": ("light",),
    "full": ("full",),
}
PARTS = ("attention", "norm", "light", "up", "moe", "half", "full")


@dataclass(frozen=True, slots=True)
class Again:
    """How often each part of a layer's forward pass is done again; numbers or arrays."""

    full: Any = 0.0
    half: Any = 0.0
    attention: Any = 0.0
    light: Any = 0.0
    up: Any = 0.0
    moe: Any = 0.0
    norm: Any = 0.0


NOTHING = Again()


def parts_of(text: str) -> tuple[str, ...]:
    """The parts in a text such as ``light+up`` or ``norm, up``, each once and in the order of a layer; light has the norms, full has all.

    >>> parts_of("up+light"), parts_of("norm, up"), parts_of("norm+light"), parts_of("full+moe")
    (('light', 'up'), ('norm', 'up'), ('light',), ('full',))
    """
    named = [part for part in re.split(r"[+,\s]+", text.strip().lower()[:200]) if part]
    given = [other for part in named for other in MODES.get(part, ("full" if part == "forward" else part,))]
    for part in given:
        if part not in PARTS:
            raise unknown_name("part of a layer to recompute", part, PARTS, remedy=f"use {', '.join(PARTS)}.")
    if "full" in given:
        return ("full",)
    return tuple(part for part in PARTS if part in given and not (part == "norm" and "light" in given))


def again(mode: Any, selective: str = "attention") -> Again:
    """The parts of a mode, or of an array of modes that compares with their names element by element.

    ``selective`` are the parts that are computed again under that name.
    """
    if not isinstance(mode, str):
        return Again(
            **{**dict.fromkeys(parts_of(selective), (mode == "selective") * 1.0), "full": (mode == "full") * 1.0}
        )
    return Again(**dict.fromkeys(parts_of(selective if mode == "selective" else mode), 1.0))
