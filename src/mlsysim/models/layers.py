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
from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.models.graph import Operator
from mlsysim.models.passes import Pass

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
    def parameters(self) -> float:
        """Parameters of all occurrences."""
        area = self.kernel[0] * self.kernel[1]
        weights = {
            "conv": area * self.inputs * self.outputs / self.groups,
            "dwconv": area * self.outputs,
            "linear": self.inputs * self.outputs,
            "embed": self.inputs * self.outputs,
            "norm": 2 * self.outputs,
        }.get(self.kind, 0)
        extra = (2 * self.outputs if self.norm else 0) + (self.outputs if self.bias else 0)
        return float(self.count * (weights + extra))

    @property
    def flops(self) -> float:
        """Operations of one occurrence on one sample."""
        area = self.kernel[0] * self.kernel[1]
        if self.kind == "conv":
            return 2.0 * area * self.inputs * self.outputs / self.groups * self.positions
        if self.kind == "dwconv":
            return 2.0 * area * self.outputs * self.positions
        if self.kind == "linear":
            return 2.0 * self.inputs * self.outputs * self.positions
        if self.kind == "attn":
            return 4.0 * self.heads * self.outputs * self.height * self.width
        return 0.0

    def operators(self, p: Pass) -> list[Operator]:
        """Operators of all occurrences for a batch."""
        b, act, weight = p.batch, p.activation, p.weight
        area, rows = self.kernel[0] * self.kernel[1], b * self.positions
        out = rows * self.outputs * act
        if self.kind == "attn":
            width = self.heads * self.outputs * act
            through, keys = b * self.height * width, 2 * b * self.width * width
            sizes = self.height, self.width, self.outputs, b * self.heads
            ends = {"input_bytes": through, "output_bytes": through, "cache_bytes": keys, "kv_heads": self.heads}
            name, kind, matrix = "attention", "attention", 0.0
        else:
            # What an operator is called, its sizes, bytes that it reads, elements of its weights.
            known: dict[str, tuple[str, str, tuple[Any, ...], Any, Any]] = {
                "conv": (
                    *(
                        "conv",
                        "conv",
                        (rows, self.outputs / self.groups, area * self.inputs / self.groups, self.groups),
                    ),
                    *(rows * self.stride**2 * self.inputs * act, area * self.inputs * self.outputs / self.groups),
                ),
                "dwconv": (
                    *("dwconv", "depthwise_conv", (rows, self.outputs, area)),
                    *(out * self.stride**2, area * self.outputs),
                ),
                "linear": (
                    *("linear", "gemm", (rows, self.outputs, self.inputs)),
                    *(rows * self.inputs * act, self.inputs * self.outputs),
                ),
                "embed": ("embedding", "embedding", (rows, self.outputs), rows * self.outputs * weight, 0.0),
            }
            pooled = out * (area if self.kind == "pool" else 1) * (0.25 if self.kind == "upsample" else 1)
            moved = (self.kind, "elementwise", (rows, self.outputs), pooled, 0.0)
            name, kind, sizes, read, matrix = known.get(self.kind, moved)
            ends = {"input_bytes": read, "output_bytes": out}
        layer = "attention" if self.kind == "attn" else "layers"
        mnk = dict(zip(("m", "n", "k", "groups"), sizes, strict=False))
        own = {**mnk, **ends, "flops": b * self.flops, "weight_bytes": matrix * weight}
        ops = [Operator(name, kind, layer, self.count, **own)]
        if self.norm:
            sizes_of_norm = {"m": rows, "n": self.outputs, "input_bytes": out, "output_bytes": out}
            ops.append(Operator("norm_activation", "elementwise", "norm", self.count, **sizes_of_norm))
        return ops


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
