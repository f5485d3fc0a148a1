"""A network as an engine's step sees it: products by the tokens that they serve, attention and scans of answers and of prompts.

Read off the templates of the blocks (:mod:`mlsysim.models.template`), for one device of a tensor-parallel group. A product that a
decode and a prompt have in common serves all tokens. Which matrices are narrow the format says (:mod:`mlsysim.models.storage`); of
a mixture in a plain 4-bit format the feed-forward part only, as published checkpoints have it; router, output head and what only a
decode multiplies by (the absorbed latent projections) stay 16 bit.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.adapters import adapted_matrices
from mlsysim.models.ffn import Experts
from mlsysim.models.stack import Stack
from mlsysim.models.template import UNBOUNDED, Core, Product, Scan
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.engines import Engine, serving_table
from mlsysim.units.records import dataclass

ALL, DECODE, PROMPT, SAMPLED, ADAPTED = "all", "decode", "prompt", "sampled", "adapted"


@dataclass(frozen=True)
class Deployment:
    """A model on one instance of an engine. ``attention_dp`` ranks of ``tp`` devices each; experts over all of them, ``redundant``
    ones twice. Requests choose among ``adapters`` of a rank."""

    model: TransformerWorkload
    chip: HardwareNode
    engine: Engine
    precision: str = "bf16"
    cache_precision: str = "bf16"
    tp: int = 1
    attention_dp: int = 1
    moe_tp: int | None = None
    moe_ep: int = 1
    pp: int = 1
    redundant: int = 0
    adapters: int = 0
    adapter_rank: int = 0
    cp: int = 1
    """Devices of a tensor-parallel group among which copies of the keys are split by their tokens."""
    port: float | None = None
    """Line rate of a device's part of the fabric, in bytes a second."""

    @property
    def devices(self) -> int:
        return self.tp * self.attention_dp * self.pp


@dataclass(frozen=True, slots=True)
class StepProduct:
    """``count`` products of ``groups`` n x k weights with the tokens of a kind: all, decode, prompt or sampled ones."""

    count: float
    n: Any
    k: Any
    groups: Any
    narrow: bool
    tokens: str

    @property
    def elements(self) -> Any:
        """Of all of one call's weights."""
        return self.n * self.k * self.groups


@dataclass(slots=True)
class StepBlocks:
    """All blocks of a network: products; cores and scans of a decode and of a prompt; experts; and what is counted of each.

    ``layers`` are pairs of parts, ``launches`` operators that the host starts one by one in a step with a prompt, ``picks`` further ones where a prompt
    has more than so many keys to pick from.
    """

    products: list[StepProduct] = field(default_factory=list)
    mixing: dict[str, list[tuple[float, Core | Scan]]] = field(default_factory=lambda: {DECODE: [], PROMPT: []})
    experts: list[tuple[float, Experts]] = field(default_factory=list)
    adapters: list[StepProduct] = field(default_factory=list)
    layers: float = 0.0
    reductions: float = 0.0
    launches: float = 0.0
    picks: list[tuple[float, float]] = field(default_factory=list)

    @property
    def routed(self) -> float:
        """Layers with experts."""
        return sum(count for count, _ in self.experts)


def step_blocks(stack: Stack, tp: int, attention_dp: int, mixers: bool, feed: bool, quantises: bool) -> StepBlocks:
    """The blocks on one device: whether weights of ``mixers`` and ``feed``-forward layers have fewer than 16 bits, and inputs
    are narrowed too (``quantises``)."""
    found, counts = StepBlocks(), serving_table("operators")
    for block in stack.blocks:
        n = float(block.count)
        parts = [*block.mixers, *([block.ffn] if block.ffn is not None else [])]
        found.layers += n * len(parts) / 2
        found.reductions += n * len(parts) if tp > 1 else 0.0
        each = (counts["tensor"] if tp > 1 else 0) + (counts["quantised"] if quantises else 0)
        found.launches += n * (sum(counts[name] for part in parts for name in part.family) + len(parts) / 2 * each)
        for part in parts:
            _add(found, part, n, tp, mixers, feed)
        cores = [kind for part in parts for kind in part.template() if isinstance(kind, Core)]
        keys = [kind.window if kind.picked else kind.topk * kind.ratio for kind in cores]
        found.picks += [(n * counts["picking"], picked) for picked in keys if picked < UNBOUNDED]
    if attention_dp > 1:
        found.launches += found.routed * counts["data"]
    if stack.head and stack.vocab:
        head = StepProduct(1.0, stack.vocab / tp, stack.embedding or stack.hidden, 1.0, False, SAMPLED)
        found.products.append(head)
    return found


def add_adapters(found: StepBlocks, d: Deployment) -> None:
    """Beside each adapted matrix two products of every token with its request's adapter: it is shrunk to the rank, and expanded.

    Both have a kernel of their own, for all requests of a step, which reads each adapter that occurs among them once (Punica, Chen et al. 2023).
    Adapters are in 16 bits and split by tensors as their matrices are (vLLM's fully sharded ones; its others are split by half). Left out: sums
    of the shrunk tokens over a tensor group, r numbers of each, and adapters that are not resident and come from the host.
    """
    matrices, side = adapted_matrices(d.model)
    if d.adapters:
        for n, k in ((d.adapter_rank, side / d.tp), (side / d.tp, d.adapter_rank)):
            found.adapters.append(StepProduct(matrices, n, k, 1.0, False, ADAPTED))
        found.launches += 2 * matrices


def _add(found: StepBlocks, part: Any, count: float, tp: int, mixers: bool, feed: bool) -> None:
    templates = {DECODE: part.template(decode=True), PROMPT: part.template()}
    names = {tokens: {kind.name for kind in kinds if isinstance(kind, Product)} for tokens, kinds in templates.items()}
    for tokens, kinds in templates.items():
        for kind in kinds:
            if isinstance(kind, (Core, Scan)):
                if isinstance(kind, Core) and kind.cross:
                    raise InputError("steps of serving engines are known for decoders, not for models with an encoder.")
                found.mixing[tokens].append((count, kind))
            elif isinstance(kind, Experts) and tokens == DECODE:
                found.experts.append((count, kind))
            elif isinstance(kind, Product):
                shared = kind.name in names[DECODE] and kind.name in names[PROMPT]
                if shared and tokens == PROMPT:
                    continue
                absorbed = kind.groups > 1 and not shared
                stored = {"moe": False, "ffn": feed}.get(kind.layer, mixers and not absorbed)
                served = ALL if shared else tokens
                found.products.append(StepProduct(count, *kind.local(tp), stored, served))
