"""A network as a stack of blocks: embedding, blocks of a mixer and a feed-forward layer, final norm, output head.

Order within the stack is not recorded: no equation here depends on it. A block kind with its count is enough for
parameters, caches and operators. :func:`backward` turns forward operators into those of a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

from mlsysim.errors import unknown_name
from mlsysim.models.attention import Attention
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, elementwise, gemm
from mlsysim.models.recompute import Kept
from mlsysim.models.template import UNBOUNDED, Mixer
from mlsysim.physics.precision import HALF
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.records import dataclass

Recompute = Literal["none", "selective", "full"]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Block:
    """``count`` layers of the same kind: mixers (two in a decoder with cross-attention), a feed-forward layer, norms."""

    mixers: tuple[Mixer, ...]
    ffn: FeedForward | MixtureOfExperts | None
    count: int
    norms: int

    @property
    def sublayers(self) -> int:
        return len(self.mixers) + (self.ffn is not None)


@dataclass(frozen=True)
class Stack:
    """A network of width ``hidden``."""

    hidden: int
    blocks: tuple[Block, ...]
    vocab: int = 0
    tied: bool = False
    positions: int = 0
    norm_width: int = 1
    head: bool = True
    extra_parameters: float = 0.0
    embedding: int = 0
    looked_up: float = 0.0

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def embedding_parameters(self) -> float:
        """Token tables (one if tied), positions, and the projections around a table narrower than the network."""
        matrices = 1 if self.tied or not self.head else 2
        width = self.embedding or self.hidden
        projections = (2 if self.head else 1) * width * self.hidden if width != self.hidden else 0
        return self.vocab * width * matrices + self.positions * self.hidden + projections

    @property
    def block_parameters(self) -> float:
        return sum(self._block(block, active=False) for block in self.blocks)

    @property
    def parameters(self) -> float:
        return self.block_parameters + self._around + self.looked_up

    @property
    def active_parameters(self) -> float:
        return sum(self._block(block, active=True) for block in self.blocks) + self._around

    @property
    def _around(self) -> float:
        return self.embedding_parameters + self.norm_width * self.hidden + self.extra_parameters

    def _block(self, block: Block, active: bool) -> float:
        total = sum(m.parameters for m in block.mixers) + block.norms * self.norm_width * self.hidden
        if block.ffn is not None:
            total += block.ffn.active_parameters if active else block.ffn.parameters
        return block.count * total

    @cached_property
    def saved(self) -> Kept:
        """Elements per token that the average layer keeps for the backward pass, by what they are."""
        total = dict.fromkeys((each.name for each in fields(Kept)), 0.0)
        for block in self.blocks:
            counts = [mixer.counts for mixer in block.mixers]
            found: dict[str, float] = dict.fromkeys(("streams", "normed"), block.sublayers * self.hidden)
            found |= {name: sum(getattr(c, name) for c in counts) for name in ("rebuilt", "attended")}
            found["mixed"] = sum(c.saved for c in counts) - found["rebuilt"] - found["attended"]
            found |= block.ffn.kept if block.ffn is not None else {}
            for name, elements in found.items():
                total[name] += block.count * elements / self.layers
        return Kept(**total)

    def with_windows(self, tokens: float) -> Stack:
        """The same with every layer of a window attending to so many tokens."""

        def other(m: Mixer) -> Mixer:
            return replace(m, window=tokens) if isinstance(m, Attention) and m.window < UNBOUNDED else m

        return replace(self, blocks=tuple(replace(b, mixers=tuple(map(other, b.mixers))) for b in self.blocks))

    @property
    def unwindowed(self) -> Stack:
        """The same with every layer of a window attending to the whole text."""
        return self.with_windows(UNBOUNDED)

    def cache_bytes(self, length: Any, element: Any, tp: Any = 1, source: Any = None, read: bool = False) -> Any:
        """Bytes that one of ``tp`` devices keeps of a sequence of ``length`` tokens: growing caches of ``element`` bytes each, and
        fixed states, which keep their own format, or that of the cache and 16 bits at least. An encoder that reads the prompt leaves keys
        of its ``source`` tokens; where that is not said ``length`` is of source and text together, as a token of either leaves as much. ``read`` counts keys of an earlier layer again for each layer that reads them."""
        total: Any = 0.0
        wide = maximum(element, HALF)
        for block in self.blocks:
            for mixer in block.mixers:
                counts = mixer.counts
                kept = counts.cached + (counts.borrowed if read else 0.0)
                if kept:
                    cross = getattr(mixer, "cross", False)
                    heard = (0.0 if source is None else source) if cross else length
                    grown = kept * mixer.cache_tokens(heard) / minimum(tp, counts.heads)
                    total = total + block.count * element * grown
                if counts.state:
                    own = counts.state_element or wide
                    total = total + block.count * (counts.state * own + counts.tail * wide) / tp
        return total

    def operators(self, p: Pass, logits: str = "last", encoder_length: Any = None) -> list[Operator]:
        """Forward operators on one device. ``logits`` for the last token of each sequence, for all tokens, or none."""
        h, pp = self.hidden, p.shard.pp
        layers = self.layers
        longest = -(-layers // pp)
        ops: list[Operator] = []
        if self.vocab and pp == 1:
            moved = {"input_bytes": p.tokens * h * p.weight, "output_bytes": p.tokens * h * p.activation}
            ops.append(Operator("embedding", "embedding", "embedding", m=p.tokens, n=h, **moved))
        for block in self.blocks:
            count = block.count * longest / layers if pp > 1 else block.count
            inner = [op for mixer in block.mixers for op in mixer.operators(p, encoder_length)]
            if block.ffn is not None:
                inner += block.ffn.operators(p)
            inner.append(elementwise("norm", "norm", p, h, h, count=block.norms))
            inner.append(elementwise("residual", "norm", p, 2 * h, h, count=block.sublayers))
            ops += [op.times(count) for op in inner]
        if pp > 1:
            sent = p.tokens * h * p.activation
            ops.append(Operator("stage_boundary", "send", "pipeline", groups=2, input_bytes=sent))
        if self.head and self.vocab and logits != "none":
            rows = p.tokens if logits == "all" or p.training else p.batch
            ops.append(elementwise("final_norm", "norm", p, h, h))
            if self.embedding and self.embedding != h:
                ops.append(gemm("embedding_projection", "head", p, self.embedding, h, m=rows))
            ops.append(gemm("logits", "head", p, self.vocab / p.shard.tp, self.embedding or h, m=rows))
        return ops


_MOVED = ("input_bytes", "output_bytes", "cache_bytes")
_BACKWARD_TRAFFIC = {"attention": 2.5, "scan": 2.0, "elementwise": 1.5, "embedding": 1.0}
"""Bytes that a backward kernel moves for each byte of its forward kernel: attention reads q, k, v, o and their
gradients and writes three gradients; an elementwise backward reads the input and the output's gradient."""


def backward(ops: Iterable[Operator]) -> list[Operator]:
    """The backward pass: two products for each product, twice the operations of everything else, collectives again."""
    result: list[Operator] = []
    for op in ops:
        back = replace(op, name=f"{op.name}.backward", direction="backward")
        if op.kind in ("gemm", "grouped_gemm", "batched_gemm", "conv", "depthwise_conv"):
            ends = op.input_bytes, op.output_bytes
            inputs = replace(back, name=f"{op.name}.dgrad", n=op.k, k=op.n, input_bytes=ends[1], output_bytes=ends[0])
            weights = replace(
                back, name=f"{op.name}.wgrad", m=op.n, n=op.k, k=op.m, input_bytes=sum(ends), output_bytes=0.0
            )
            result += [inputs, weights]
        elif op.is_collective:
            result.append(back)
        else:
            moved = {name: _BACKWARD_TRAFFIC[op.kind] * getattr(op, name) for name in _MOVED}
            result.append(replace(back, flops=2 * op.flops, **moved))
    return result


def training_operators(forward: list[Operator], recompute: Recompute = "none") -> list[Operator]:
    """Forward, recomputed and backward operators of one training step."""
    if recompute not in get_args(Recompute):
        raise unknown_name("recompute mode", recompute, get_args(Recompute))
    again: list[Operator] = []
    if recompute == "full":
        again = [op for op in forward if op.layer not in ("embedding", "head", "pipeline")]
    elif recompute == "selective":
        again = [op for op in forward if op.kind == "attention"]
    return forward + [replace(op, direction="recompute") for op in again] + backward(forward)


def pair_up(first: Sequence[tuple[A, int]], second: Sequence[tuple[B, int]]) -> list[tuple[A, B, int]]:
    """Two ways of splitting the same layers into kinds, combined: leading layers of one with leading of the other."""
    result: list[tuple[A, B, int]] = []
    left: list[list[Any]] = [list(x) for x in first]
    right: list[list[Any]] = [list(x) for x in second]
    while left and right:
        count = min(left[0][1], right[0][1])
        result.append((left[0][0], right[0][0], count))
        for side in (left, right):
            side[0][1] -= count
            if not side[0][1]:
                side.pop(0)
    return result


def stack_of(model: Any) -> Stack | None:
    """The layers of a network of tokens, or None where there are none or their sizes are not known."""
    return model.stack if getattr(model, "has_dimensions", False) else None
