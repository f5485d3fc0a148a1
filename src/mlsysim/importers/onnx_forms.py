"""Shapes behind ONNX operators that change the form of a tensor and compute nothing: reshapes, slices, joins, look-ups."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.counting import Shape, broadcast, elements
from mlsysim.importers.onnx_shapes import Known, axis_of, numbers, rule, whole
from mlsysim.importers.onnx_wire import Node, Tensor

__all__: list[str] = []


@rule("Reshape")
def _reshape(node: Node, known: Known) -> list[Shape]:
    x, wanted = known.shape(node, 0), known.ints(node, 1, "shape")
    if wanted is None:
        raise LookupError("shape")
    copied = not whole(node, "allowzero", 0)
    out = [x[i] if size == 0 and copied and i < len(x) else size for i, size in enumerate(wanted)]
    if out.count(-1) > 1 or min(out, default=0) < -1:
        raise InputError(f"The Reshape {node.name[:60]!r} asks for {tuple(wanted)}.")
    if -1 in out:
        rest = math.prod(size for size in out if size != -1)
        total = int(elements(x))
        if not rest or total % rest:
            raise InputError(f"The Reshape {node.name[:60]!r} of {x} into {tuple(wanted)} does not come out even.")
        out[out.index(-1)] = total // rest
    if elements(out) != elements(x):
        raise InputError(
            f"The Reshape {node.name[:60]!r} turns {x} into {tuple(wanted)}: the file holds for other sizes of its inputs than those taken; give them by name."
        )
    return [tuple(out)]


@rule("Flatten")
def _flatten(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    at = whole(node, "axis", 1)
    at = at + len(x) if at < 0 else at
    return [(int(elements(x[:at])), int(elements(x[at:])))]


@rule("Transpose")
def _transpose(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    order = numbers(node, "perm", range(len(x) - 1, -1, -1))
    if sorted(order) != list(range(len(x))):
        raise InputError(f"The Transpose {node.name[:60]!r} of {x} has the order {order}.")
    return [tuple(x[i] for i in order)]


@rule("Squeeze")
def _squeeze(node: Node, known: Known) -> list[Shape]:
    x, axes = known.shape(node, 0), known.ints(node, 1, "axes")
    gone = {axis_of(a, len(x)) for a in axes} if axes else {i for i, size in enumerate(x) if size == 1}
    return [tuple(size for i, size in enumerate(x) if i not in gone)]


@rule("Unsqueeze")
def _unsqueeze(node: Node, known: Known) -> list[Shape]:
    x, axes = known.shape(node, 0), known.ints(node, 1, "axes") or ()
    rank = len(x) + len(axes)
    at = {axis_of(a, rank) for a in axes}
    if len(at) != len(axes):
        raise InputError(f"The Unsqueeze {node.name[:60]!r} names an axis twice.")
    rest = iter(x)
    return [tuple(1 if i in at else next(rest) for i in range(rank))]


@rule("Concat")
def _concat(node: Node, known: Known) -> list[Shape]:
    shapes = [known.shape(node, i) for i in range(len(node.inputs))]
    axis = axis_of(whole(node, "axis", 0), len(shapes[0]) if shapes else 0)
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        raise InputError(f"The Concat {node.name[:60]!r} joins tensors of different ranks.")
    out = list(shapes[0])
    out[axis] = sum(shape[axis] for shape in shapes)
    return [tuple(out)]


@rule("Split")
def _split(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    axis = axis_of(whole(node, "axis", 0), len(x))
    sizes = known.ints(node, 1, "split")
    count = len(node.outputs)
    if not sizes:
        each = -(-x[axis] // count)
        sizes = (*(each,) * (count - 1), x[axis] - each * (count - 1))
    return [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]


@rule("Slice")
def _slice(node: Node, known: Known) -> list[Shape]:
    x = list(known.shape(node, 0))
    starts, ends = known.ints(node, 1, "starts") or (), known.ints(node, 2, "ends") or ()
    axes = known.ints(node, 3, "axes") or tuple(range(len(starts)))
    steps = known.ints(node, 4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InputError(f"The Slice {node.name[:60]!r} has lists of different lengths.")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise InputError(f"The Slice {node.name[:60]!r} has a step of zero.")
        at = axis_of(axis, len(x))
        x[at] = len(range(*slice(start, end if abs(end) < 2**62 else None, step).indices(x[at])))
    return [tuple(x)]


@rule("Gather")
def _gather(node: Node, known: Known) -> list[Shape]:
    x, at = known.shape(node, 0), known.shape(node, 1)
    axis = axis_of(whole(node, "axis", 0), len(x))
    return [(*x[:axis], *at, *x[axis + 1 :])]


@rule("GatherElements")
def _gather_elements(node: Node, known: Known) -> list[Shape]:
    return [known.shape(node, 1)]


@rule("GatherND")
def _gather_nd(node: Node, known: Known) -> list[Shape]:
    x, at = known.shape(node, 0), known.shape(node, 1)
    batch = whole(node, "batch_dims", 0)
    return [(*at[:-1], *x[batch + (at[-1] if at else 0) :])]


@rule("Expand")
def _expand(node: Node, known: Known) -> list[Shape]:
    return [broadcast(known.shape(node, 0), known.ints(node, 1) or ())]


@rule("Tile")
def _tile(node: Node, known: Known) -> list[Shape]:
    x, times = known.shape(node, 0), known.ints(node, 1) or ()
    return [tuple(size * by for size, by in zip(x, times, strict=False))]


@rule("Pad")
def _pad(node: Node, known: Known) -> list[Shape]:
    x, pads = known.shape(node, 0), known.ints(node, 1, "pads") or ()
    axes = known.ints(node, 3) or tuple(range(len(x)))
    if len(pads) != 2 * len(axes):
        raise InputError(f"The Pad {node.name[:60]!r} of {x} has {len(pads)} sizes.")
    out = list(x)
    for i, axis in enumerate(axes):
        out[axis_of(axis, len(x))] += pads[i] + pads[i + len(axes)]
    return [tuple(max(0, size) for size in out)]


@rule("Resize", "Upsample")
def _resize(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    if len(node.inputs) > 3 and node.inputs[3]:
        return [known.ints(node, 3) or x]
    at = 1 if node.op == "Upsample" else 2
    scales = node.attributes.get("scales") or known.values.get(node.inputs[at] if at < len(node.inputs) else "")
    if not scales or len(scales) != len(x) or not all(math.isfinite(s) and s > 0 for s in scales):
        raise LookupError("scales")
    return [tuple(int(size * by) for size, by in zip(x, scales, strict=True))]


@rule("DepthToSpace", "SpaceToDepth")
def _blocks(node: Node, known: Known) -> list[Shape]:
    n, c, h, w = known.shape(node, 0)
    b = whole(node, "blocksize", 1)
    if node.op == "DepthToSpace":
        return [(n, c // (b * b), h * b, w * b)]
    return [(n, c * b * b, h // b, w // b)]


@rule("TopK")
def _topk(node: Node, known: Known) -> list[Shape]:
    x, k = list(known.shape(node, 0)), known.ints(node, 1, "k") or (1,)
    x[axis_of(whole(node, "axis", -1), len(x))] = k[0]
    return [tuple(x), tuple(x)]


@rule("OneHot")
def _one_hot(node: Node, known: Known) -> list[Shape]:
    x, depth = list(known.shape(node, 0)), known.ints(node, 1) or (1,)
    axis = whole(node, "axis", -1)
    x.insert(axis if axis >= 0 else len(x) + 1 + axis, depth[0])
    return [tuple(x)]


@rule("Shape")
def _shape(node: Node, known: Known) -> list[Shape]:
    x = known.shape(node, 0)
    return [(len(x[slice(whole(node, "start", 0), node.attributes.get("end"))]),)]


@rule("Size")
def _size(node: Node, known: Known) -> list[Shape]:
    return [()]


@rule("Constant")
def _constant(node: Node, known: Known) -> list[Shape]:
    found: Any = next(iter(node.attributes.values()), None)
    if isinstance(found, Tensor):
        return [found.dims]
    return [(len(found),)] if isinstance(found, tuple) else [()]


@rule("ConstantOfShape")
def _constant_of_shape(node: Node, known: Known) -> list[Shape]:
    return [known.ints(node, 0) or ()]


@rule("Range")
def _range(node: Node, known: Known) -> list[Shape]:
    start, stop, step = ((known.ints(node, i) or (0,))[0] for i in range(3))
    return [(len(range(start, stop, step)) if step else 0,)]
