"""Layer rows: a fixed-shape network as data, one line for each distinct layer of a forward pass of one sample.

    conv 7x7 3->64 /2 @112x112 +n        kernel, channels, stride, output height x width, norm behind it
    conv 3x3 128->128 g32 @28x28 +n x3   32 groups; the layer occurs three times
    dwconv 3x3 32 @112x112 +n            depthwise
    linear 2048->1000 +b                 with bias; "@4096" applies it at 4096 positions
    attn h8 d40 @4096x4096               heads, head dimension, queries x keys
    embed 49408x768 @77                  rows x width of a table, look-ups
    norm 320 @4096 | pool 3x3 64 @56x56 | upsample 1280 @16x16     memory-bound layers

``+n`` adds two parameters for each output channel (scale and shift), ``+b`` one. Operations are 2 for each
multiply-add of convolutions, linear layers and attention; norms, activations and pooling move bytes only. A layer with
a norm is followed by one elementwise pass over its output (norm and activation fused).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass, elementwise, operator
from mlsysim.units.records import dataclass

_KINDS = ("conv", "dwconv", "linear", "attn", "embed", "norm", "pool", "upsample")
_PAIR = re.compile(r"^(\d+)x(\d+)$")
_CHANNELS = re.compile(r"^(\d+)->(\d+)$")


@dataclass(frozen=True, slots=True)
class Layer:
    """One parsed row. ``height`` x ``width`` are output positions (queries x keys for attention)."""

    kind: str
    kernel: tuple[int, int] = (1, 1)
    inputs: int = 0
    outputs: int = 0
    height: int = 1
    width: int = 1
    stride: int = 1
    groups: int = 1
    heads: int = 0
    norm: bool = False
    bias: bool = False
    count: int = 1

    @property
    def positions(self) -> int:
        return self.height * self.width

    @property
    def area(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def matrix(self) -> float:
        """Elements of the weights that every position is multiplied with."""
        if self.kind == "dwconv":
            return self.area * self.outputs
        return self.area * self.inputs * self.outputs / self.groups if self.kind in ("conv", "linear") else 0

    @property
    def parameters(self) -> float:
        """Parameters of all occurrences."""
        table = {"embed": self.inputs * self.outputs, "norm": 2 * self.outputs}.get(self.kind, 0)
        extra = (2 * self.outputs if self.norm else 0) + (self.outputs if self.bias else 0)
        return float(self.count * (self.matrix + table + extra))

    @property
    def flops(self) -> float:
        """Operations of one occurrence on one sample."""
        if self.kind == "attn":
            return 4.0 * self.heads * self.outputs * self.height * self.width
        return 2.0 * self.matrix * self.positions

    @property
    def read(self) -> float:
        """Elements that one occurrence reads of one sample."""
        strided = self.stride**2
        each = {"conv": strided * self.inputs, "dwconv": strided * self.outputs, "linear": self.inputs}
        moved = {"pool": self.area * self.outputs, "upsample": 0.25 * self.outputs}
        return self.positions * {**each, **moved}.get(self.kind, self.outputs)

    def operators(self, p: Pass) -> list[Operator]:
        """Operators of all occurrences for a batch."""
        b, rows, n = p.batch, p.batch * self.positions, self.outputs
        work: dict[str, Any] = {"count": self.count, "flops": b * self.flops}
        if self.kind == "attn":
            through, keys = (b * length * self.heads * n for length in (self.height, self.width))
            work |= {"m": self.height, "n": self.width, "k": n, "groups": b * self.heads, "kv_heads": self.heads}
            work |= {"read": through, "written": through, "cache": 2 * keys}
            ops = [operator("attention", "attention", "attention", p, **work)]
        else:
            name, kind = _OPERATORS.get(self.kind, (self.kind, "elementwise"))
            groups = self.groups if self.kind == "conv" else 1
            k = {"conv": self.area * self.inputs / groups, "dwconv": self.area, "linear": self.inputs}.get(self.kind, 0)
            work |= {"m": rows, "n": n / groups, "k": k, "groups": groups}
            ops = [operator(name, kind, "layers", p, weights=self.matrix, read=b * self.read, written=rows * n, **work)]
        if self.kind == "embed":
            ops = [replace(ops[0], input_bytes=rows * n * p.weight)]
        if self.norm:
            ops.append(elementwise("norm_activation", "norm", p, n, n, self.count, rows))
        return ops


_OPERATORS = {
    "conv": ("conv", "conv"), "dwconv": ("dwconv", "depthwise_conv"), "linear": ("linear", "gemm"),
    "embed": ("embedding", "embedding"),
}  # fmt: skip


def parse_row(row: str) -> Layer:
    """Read one row. See the module's text."""
    words = row.split() if isinstance(row, str) else []
    if not words or words[0] not in _KINDS:
        raise InputError(f"the layer row {str(row)[:80]!r} must begin with one of {', '.join(_KINDS)}.")
    kind = words[0]
    got: dict[str, Any] = {"kind": kind}
    for word in words[1:]:
        pair, channels = _PAIR.match(word), _CHANNELS.match(word)
        if word.startswith("@"):
            size = _PAIR.match(word[1:])
            got["height"], got["width"] = (int(size[1]), int(size[2])) if size else (_whole(word[1:], row), 1)
        elif channels:
            got["inputs"], got["outputs"] = int(channels[1]), int(channels[2])
        elif pair and kind == "embed":
            got["inputs"], got["outputs"] = int(pair[1]), int(pair[2])
        elif pair:
            got["kernel"] = (int(pair[1]), int(pair[2]))
        elif word in ("+n", "+b"):
            got["norm" if word == "+n" else "bias"] = True
        elif word[0] == "/":
            got["stride"] = _whole(word[1:], row)
        elif word[0] in "gxhd" and word[1:].isdigit():
            got[{"g": "groups", "x": "count", "h": "heads", "d": "outputs"}[word[0]]] = int(word[1:])
        else:
            got["outputs"] = _whole(word, row)
    layer = Layer(**got)
    if not layer.outputs or (kind in ("conv", "linear") and not layer.inputs) or (kind == "attn" and not layer.heads):
        raise InputError(f"the layer row {row[:80]!r} lacks its channels, as in 'conv 3x3 64->64 @56x56'.")
    if not all((*layer.kernel, layer.height, layer.width, layer.stride, layer.groups, layer.count)):
        raise InputError(f"the layer row {row[:80]!r} has a size of zero.")
    if layer.inputs % layer.groups or (layer.outputs % layer.groups):
        raise InputError(f"the layer row {row[:80]!r}: channels do not divide into {layer.groups} groups.")
    return layer


def _whole(text: str, row: str) -> int:
    if not text.isdigit() or len(text) > 12:
        raise InputError(f"the layer row {row[:80]!r} has {text!r} where a whole number belongs.")
    return int(text)
