"""What a training step computes again in the backward pass, as numbers, so that arrays of modes are one equation.

A mode is a name (``none``, ``selective`` = what the software or the caller says, ``half`` = every other product, ``modules`` = norms and
activations, ``full``), or parts of a layer joined by ``+``: ``attention`` (its core), ``norm``, ``light`` (norms and activations), ``up``
(latent projections), ``mlp`` (dense feed-forward layers), ``shared`` (shared experts), ``moe`` (routed experts and their exchange),
``moe_act`` (their activation alone).

What the layers of a network keep for their backward pass, by what it is: so recomputation and formats know what they spare.

Per token, of the average layer, in elements:

    streams      inputs of norms (the residual stream), in 16 bit
    normed       outputs of norms, which products read             norm and light make them again
    mixed        queries, keys, values, latents, states
    rebuilt      queries, keys and values made from latents          up makes them again
    attended     what attention gives, for its own backward pass and the product behind it
    wide         what enters the activation function
    activated    what leaves it, which a product reads              light makes it again, mlp both
    shared_wide, shared_activated: the same of shared experts       light the latter, shared both
    routed       copies of tokens that experts read                 moe makes them and the two below again
    expert_wide, expert_activated                                   light and moe_act the latter

A product's gradient needs its input as the product read it, so that narrow arithmetic may keep that in its own format; what
enters an activation function can be kept narrow too. Streams, attention and states stay in 16 bit. Recomputing every other product
(``half``) keeps streams, what attention gives, routed copies, and half of the rest that no norm or activation gives.

With frozen weights only what adapters and functions read is kept (:attr:`Kept.frozen`).

Reference: Korthikanti et al. 2022 (34 h bytes of a GPT layer: 16 h elements and masks); DeepSeek-V3 (arXiv 2412.19437, section 3.3: inputs of
products and of SwiGLU in FP8, norms and latent projections again). Left out: gates of routers and statistics of norms (below 1 %).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
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
PARTS = ("attention", "norm", "light", "up", "mlp", "shared", "moe", "moe_act", "half", "full")


@dataclass(frozen=True, slots=True)
class Again:
    """How often each part of a layer's forward pass is done again; numbers or arrays."""

    full: Any = 0.0
    half: Any = 0.0
    attention: Any = 0.0
    light: Any = 0.0
    up: Any = 0.0
    mlp: Any = 0.0
    shared: Any = 0.0
    moe: Any = 0.0
    moe_act: Any = 0.0
    norm: Any = 0.0


NOTHING = Again()


@lru_cache(256)
def parts_of(text: str) -> tuple[str, ...]:
    """The parts in a text such as ``light+up`` or ``norm, up``, each once and in the order of a layer; light has norms and activations, full has all.

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
    within = {"norm"} if "light" in given else set()
    if {"light", "moe"} & {*given}:
        within.add("moe_act")
    return tuple(part for part in PARTS if part in given and part not in within)


def parts_in(text: str, model: Any) -> str:
    """Those parts that layers of a model have: latents to project, experts to route to."""
    lacks = {"up"} if getattr(model, "mla", None) is None else set()
    lacks |= {"shared", "moe", "moe_act"} if getattr(model, "experts", 1) <= 1 else set()
    return "+".join(part for part in parts_of(text) if part not in lacks)


def again(mode: Any, selective: str = "attention") -> Again:
    """The parts of a mode, or of an array of modes that compares with their names element by element.

    ``selective`` are the parts that are computed again under that name.
    """
    if not isinstance(mode, str):
        return Again(
            **{**dict.fromkeys(parts_of(selective), (mode == "selective") * 1.0), "full": (mode == "full") * 1.0}
        )
    return Again(**dict.fromkeys(parts_of(selective if mode == "selective" else mode), 1.0))


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of an element: in 16 bit (or wider), of what products read, and of what activation functions read."""

    plain: Any
    read: Any
    wide: Any


@dataclass(frozen=True, slots=True)
class Kept:
    """Elements per token of the average layer. Streams and normed ones have the full width, the others are split by tensors."""

    streams: float = 0.0
    normed: float = 0.0
    mixed: float = 0.0
    rebuilt: float = 0.0
    attended: float = 0.0
    wide: float = 0.0
    activated: float = 0.0
    shared_wide: float = 0.0
    shared_activated: float = 0.0
    routed: float = 0.0
    expert_wide: float = 0.0
    expert_activated: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.streams + self.normed + self.split

    @property
    def split(self) -> float:
        """Those that tensors split."""
        mixer = self.mixed + self.rebuilt + self.attended
        shared = self.shared_wide + self.shared_activated
        return mixer + self.wide + self.activated + shared + self.routed + self.expert_wide + self.expert_activated

    @property
    def frozen(self) -> Kept:
        """What stays with frozen weights and adapters beside attention: a product without a gradient of weights keeps no input, and of two norms
        in a layer the adapters read one."""
        return replace(
            self, normed=self.normed / 2, activated=0.0, shared_activated=0.0, routed=0.0, expert_activated=0.0
        )

    def bytes(self, f: Formats, again: Again) -> tuple[Any, Any]:
        """Bytes per token: of full width, and split by tensors; without what is computed again."""
        anew = 1 - again.light
        whole = self.streams * f.plain + self.normed * f.read * (anew * (1 - again.norm))
        mixed = self.mixed * f.plain + self.rebuilt * f.plain * (1 - again.up) + self.attended * f.plain
        dense = self.wide * f.wide + self.activated * f.read * anew
        shared = self.shared_wide * f.wide + self.shared_activated * f.read * anew
        acted = self.expert_activated * f.read * (anew * (1 - again.moe_act))
        experts = self.routed * f.read + self.expert_wide * f.wide + acted
        split = mixed + dense * (1 - again.mlp) + shared * (1 - again.shared) + experts * (1 - again.moe)
        if isinstance(again.half, float) and again.half == 0:
            return whole, split
        products = self.mixed + self.rebuilt + self.wide + self.shared_wide + self.expert_wide
        some = (self.attended + self.routed + 0.5 * products) * f.plain
        return (
            again.half * self.streams * f.plain + (1 - again.half) * whole,
            again.half * some + (1 - again.half) * split,
        )
