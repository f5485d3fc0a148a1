"""What a kernel does, by its name, and what an operator computed, by the shapes that the profiler recorded."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from mlsysim.importers import named, table
from mlsysim.importers.counting import Shape, turned

COMPUTE = ("gemm", "conv", "attention")
"""Kinds that a chip's arithmetic may bound; the others move bytes."""
COMMUNICATION = "collective"

_COMPILED = tuple((kind, re.compile(rule, re.IGNORECASE)) for kind, rule in table("names")["kernels"].items())
_TYPES: dict[str, list[Any]] = table("names")["types"]
_NO_TYPE = ["", None]
_FACTORS: dict[str, list[int]] = table("names")["factors"]


def kind_of(name: str) -> str:
    """The kind of a kernel or operator.

    >>> kind_of("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"), kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    ('gemm', 'collective')
    """
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), "other")


def precision_of(types: Sequence[Any], name: str) -> str | None:
    """The number format of a product, from the types of its inputs; single precision through tensor cores is tf32."""
    for text in types:
        found: str = _TYPES.get(str(text).lower(), _NO_TYPE)[0]
        if found == "fp32" and re.search(r"tf32|s1688|tensorop_s", name, re.IGNORECASE):
            return "tf32"
        if found:
            return found
    return None


def work_of(
    op: str, dims: Sequence[Any], types: Sequence[Any], concrete: Sequence[Any]
) -> tuple[float | None, float | None]:
    """Operations and bytes of one call of an ATen operator; None for what its shapes do not tell.

    Bytes are each input read once and one output written, of the size of a product's result or of the largest input. A
    backward pass of attention is five products where the forward pass has two.
    """
    shapes = [_shape(item) for item in dims]
    name = op.removeprefix("aten::").rstrip("_")
    flops, result = _operations(name, [shape for shape in shapes if shape], concrete)
    sizes = [_TYPES.get(str(text).lower(), _NO_TYPE)[1] for text in types]
    known = zip(shapes, (*sizes, *[None] * len(shapes)), strict=False)
    present = [(math.prod(shape), size) for shape, size in known if shape]
    counts = [count * size for count, size in present if size is not None]
    if not present or len(counts) < len(present):
        return flops, None
    if name in ("copy", "_to_copy") and len(present) > 1:
        return flops, float(sum(counts))
    written = result * (present[0][1] or 0) if result is not None else max(counts)
    return flops, float(sum(counts) + (0.0 if name in named("profiler", "reductions") else written))


def _shape(item: Any) -> Shape | None:
    whole = isinstance(item, list) and all(type(s) is int and 0 <= s < 10**12 for s in item)
    return tuple(item) if whole and item else None


def _operations(name: str, given: Sequence[Shape], concrete: Sequence[Any]) -> tuple[float | None, float | None]:
    """Operations and elements of the result."""
    left, right = _FACTORS.get(name, (0, len(given)))
    if right < len(given):
        return _product(given[left], turned(given[right]) if name == "linear" else given[right])
    if "attention" in name and len(given) > 2:
        backward = "backward" in name
        query, key = (given[1], given[2]) if backward else (given[0], given[1])
        if len(query) == len(key) == 4:
            # (batch, heads, length, d) of scaled_dot_product_*; the flash kernels below it have lengths second.
            at = 1 if name.startswith("_flash_attention") else 2
            pairs = query[0] * query[3 - at] * query[at] * key[at]
            return float((10 if backward else 4) * pairs * query[3]), float(math.prod(query))
    elif name == "convolution_backward" and len(given) > 2 and len(given[2]) > 2 and given[2][0]:
        return 4.0 * math.prod(given[0]) * math.prod(given[2]) / given[2][0], float(math.prod(given[1]))
    elif name in ("convolution", "_convolution", "cudnn_convolution", "conv2d", "conv1d", "conv3d") and len(given) > 1:
        return _convolution(name, given[0], given[1], concrete)
    return None, None


def _product(a: Shape, b: Shape) -> tuple[float | None, float | None]:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        return None, None
    rows = math.prod(a[:-1])
    return 2.0 * rows * a[-1] * b[-1], float(rows * b[-1])


def _convolution(name: str, x: Shape, w: Shape, concrete: Sequence[Any]) -> tuple[float | None, float | None]:
    """Strides and padding stand among the concrete inputs, padding first in cuDNN's own operator."""
    rank, places = len(w) - 2, (3, 2, 4) if name == "cudnn_convolution" else (3, 4, 5)
    if rank < 1 or len(x) != rank + 2 or len(concrete) <= max(places) or str(concrete[6:7]) == "['True']":
        return None, None
    texts = [concrete[i] for i in places]
    lists = [[int(n) for n in re.findall(r"-?\d{1,9}", text)] if isinstance(text, str) else [] for text in texts]
    if any(len(numbers) not in (1, rank) for numbers in lists):
        return None, None
    stride, pad, dilation = (numbers * rank if len(numbers) == 1 else numbers for numbers in lists)
    if min(stride) < 1:
        return None, None
    out = [(x[i + 2] + 2 * pad[i] - dilation[i] * (w[i + 2] - 1) - 1) // stride[i] + 1 for i in range(rank)]
    if min(out) < 1:
        return None, None
    elements = x[0] * w[0] * math.prod(out)
    return 2.0 * elements * math.prod(w[1:]), float(elements)
