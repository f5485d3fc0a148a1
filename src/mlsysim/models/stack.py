"""A network as a stack of blocks: embedding, blocks of a mixer and a feed-forward layer, final norm, output head.

Order within the stack is not recorded: no equation here depends on it. A block kind with its count is enough for
parameters, caches and operators. :func:`backward` turns forward operators into those of a training step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from mlsysim.errors import unknown_name
from mlsysim.models.base import whole_number
from mlsysim.models.ffn import FeedForward, MixtureOfExperts
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, elementwise, gemm
from mlsysim.models.template import Mixer
from mlsysim.units.ops import maximum

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


@dataclass(frozen=True, slots=True)
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
        return self.block_parameters + self.embedding_parameters + self.norm_width * self.hidden + self.extra_parameters

    @property
    def active_parameters(self) -> float:
        active = sum(self._block(block, active=True) for block in self.blocks)
        return active + self.embedding_parameters + self.norm_width * self.hidden + self.extra_parameters

    def _block(self, block: Block, active: bool) -> float:
        total = sum(m.parameters for m in block.mixers) + block.norms * self.norm_width * self.hidden
        if block.ffn is not None:
            total += block.ffn.active_parameters if active else block.ffn.parameters
        return block.count * total

    @property
    def saved_elements(self) -> tuple[float, float]:
        """Elements per token that the average layer keeps for the backward pass: of full width, and split by tensors."""
        layers = self.layers
        whole = split = 0.0
        for block in self.blocks:
            sublayers = len(block.mixers) + (block.ffn is not None)
            whole += block.count * 2 * sublayers * self.hidden
            split += block.count * sum(m.saved_elements for m in block.mixers)
            split += block.count * (block.ffn.saved_elements if block.ffn is not None else 0.0)
        return whole / layers, split / layers

    def cache_elements(self, length: Any) -> Any:
        """Elements that one sequence of ``length`` tokens keeps: growing caches and fixed states."""
        total: Any = 0.0
        for block in self.blocks:
            for mixer in block.mixers:
                total = total + block.count * (mixer.cache_per_token * mixer.cache_tokens(length) + mixer.state)
        return total

    def operators(
        self, p: Pass, logits: str = "last", encoder_length: Any = None, stage: bool = True
    ) -> list[Operator]:
        """Forward operators on one device. ``logits`` for the last token of each sequence, for all tokens, or none."""
        h, pp = self.hidden, p.shard.pp
        layers = self.layers
        longest = -(-layers // pp)
        ops: list[Operator] = []
        if self.vocab and (pp == 1 or not stage):
            ops.append(
                Operator(
                    "embedding",
                    "embedding",
                    "embedding",
                    m=p.tokens,
                    n=h,
                    input_bytes=p.tokens * h * p.weight,
                    output_bytes=p.tokens * h * p.activation,
                )
            )
        for block in self.blocks:
            count = block.count * longest / layers if pp > 1 else block.count
            inner = [op for mixer in block.mixers for op in mixer.operators(p, encoder_length)]
            if block.ffn is not None:
                inner += block.ffn.operators(p)
            sublayers = len(block.mixers) + (block.ffn is not None)
            inner.append(elementwise("norm", "norm", p, h, h, count=block.norms))
            inner.append(elementwise("residual", "norm", p, 2 * h, h, count=sublayers))
            ops += [op.times(count) for op in inner]
        if pp > 1:
            ops.append(
                Operator("stage_boundary", "send", "pipeline", groups=2, input_bytes=p.tokens * h * p.activation)
            )
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
        again = [
            replace(op, direction="recompute") for op in forward if op.layer not in ("embedding", "head", "pipeline")
        ]
    elif recompute == "selective":
        again = [replace(op, direction="recompute") for op in forward if op.kind == "attention"]
    return forward + again + backward(forward)


def forward_operators(
    stack: Stack, encoder: Stack | None, p: Pass, logits: str, target_len: Any, encodes: bool
) -> list[Operator]:
    """The operators of a forward pass; with an encoder the source has the pass's length and the target its own."""
    if encoder is None:
        return stack.operators(p, "none" if encodes else logits)
    source = p.new if p.phase != "decode" else maximum(p.context, 1)
    if p.phase == "decode":
        return stack.operators(p, logits, encoder_length=source)
    target = (
        whole_number(target_len, "target_len") if target_len is not None else (1 if p.phase == "prefill" else p.new)
    )
    encoding = replace(p, new=source, context=0, causal=False)
    decoding = replace(p, new=target, context=0, causal=True)
    return encoder.operators(encoding, "none") + stack.operators(decoding, logits, encoder_length=source)


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
