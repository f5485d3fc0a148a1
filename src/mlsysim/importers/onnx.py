"""ONNX files as workloads: the graph is read, shapes are followed through it, and every operator is counted.

The file is read by a small reader of its own (:mod:`mlsysim.importers.onnx_wire` says why); nothing in it is executed, and
weights are stepped over: their shapes are all that is needed, so files of external data are never opened.

Sizes that the file leaves open take what the caller gives, else a default that a warning names. What depends on constants
alone is computed when a runtime loads the model and is not counted. A product, a softmax and a second product become one
attention operator, as every runtime for accelerators fuses them. Left out: the bodies of If, Loop and Scan, and arithmetic of
operators that nobody here knows; both are warned of.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.importers import named
from mlsysim.importers.counting import Call, Shape, elements, moved, unknown_operators, with_weights, workload_of
from mlsysim.importers.limits import existing
from mlsysim.importers.onnx_forms import MOST, fold, infer, known
from mlsysim.importers.onnx_operators import VIEWS, Applied, calls_of, fuse_attention
from mlsysim.importers.onnx_wire import Dims, Function, Graph, Node, Reference, Tensor, read_onnx_file
from mlsysim.importers.report import ImportReport

_MOST_NODES = 1_000_000
_DEEPEST = 16
_DTYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16", 3: "int8", 2: "uint8", 21: "uint4", 22: "int4"}
_FLOATS = {1, 10, 11, 16, 17, 18, 19, 20, 23}
_NARROW = {2, 3, 21, 22}
_CONTROL = ("If", "Loop", "Scan")
_GENERIC = re.compile(r"main_?graph|torch[-_]?jit[-_]?export|graph\w*|model", re.IGNORECASE)
_DEFAULTS = ((r"seq|len|token|time|frames|words", 128), (r"height|width|image|size", 224))


@dataclass(slots=True)
class _Reading:
    """The state of one walk through a graph: shapes and small values by name, constants, and what was counted."""

    constants: dict[str, Tensor]
    fixed: dict[str, frozenset[str]]
    """Names that do not depend on the inputs, each with the constants that it was made from."""
    shapes: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    strange: Counter[str] = field(default_factory=Counter)
    shapeless: Counter[str] = field(default_factory=Counter)
    counted: list[tuple[Node, Call]] = field(default_factory=list)


def read_onnx(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> ImportReport:
    """The report on an ONNX file; ``sizes`` gives the symbolic dimensions by the names that the file has for them."""
    place = existing(path)
    model = read_onnx_file(place)
    graph = model.graph
    for given in (*(() if batch is None else (batch,)), *(sizes or {}).values()):
        if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= 10**9:
            raise InputError(f"The size of a dimension is a whole number of at least 1, got {str(given)[:40]!r}.")
    warnings: list[str] = []
    inputs = {key: dims for key, dims in graph.inputs.items() if key not in graph.constants}
    chosen, per_pass = _sizes(inputs, batch, dict(sizes or {}), warnings)
    reading = _Reading(graph.constants, {key: frozenset((key,)) for key in graph.constants})
    for key, tensor in graph.constants.items():
        reading.shapes[key] = tensor.dims
        if tensor.values is not None and len(tensor.values) <= MOST:
            reading.values[key] = tensor.values
    for key, dims in inputs.items():
        if dims is not None:
            reading.shapes[key] = tuple(_size(d, chosen) or 1 for d in dims)
    for node in _flat(graph.nodes, model.functions):
        _step(node, reading, graph, chosen)
    warnings += _warnings(reading)
    own = re.search(r"[A-Za-z]", graph.name) and not _GENERIC.fullmatch(graph.name)
    title = name or (graph.name if own else place.stem)
    samples = ((key, reading.shapes[key]) for key in list(inputs)[:4] if key in reading.shapes)
    workload = workload_of(fuse_attention(reading.counted, reading.shapes), title, per_pass, samples)
    found: dict[str, Any] = {
        "checkpoint_bytes": _bytes_on_disk(place, graph, warnings),
        "unread": tuple(sorted(reading.strange)),
    }
    found |= {"warnings": tuple(warnings), "dtype": _dtype(reading), "source": place.name}
    return ImportReport.of(workload, f"ONNX graph{f' of {model.producer}' if model.producer else ''}", **found)


def _sizes(
    inputs: Mapping[str, Dims], batch: int | None, given: dict[str, int], warnings: list[str]
) -> tuple[dict[str, int], int]:
    """Sizes of the symbolic dimensions, and the samples of one pass."""
    every = [d for dims in inputs.values() for d in dims or ()]
    symbols = [d for d in every if isinstance(d, str)]
    unknown = [key for key in given if key not in symbols]
    if unknown:
        raise unknown_name("dimension of the file", unknown[0], symbols)
    first = every[0] if every else 1
    chosen = dict(given)
    for symbol in symbols:
        if symbol in chosen:
            continue
        total = batch or 1 if symbol == first or re.search(r"batch", symbol, re.IGNORECASE) else _size(symbol, chosen)
        if total is None:
            total = next((size for like, size in _DEFAULTS if re.search(like, symbol, re.IGNORECASE)), 1)
            warnings.append(f"The file leaves the size of {symbol[:60]!r} open; {total} was taken.")
        chosen[symbol] = total
    unnamed = every.count(None) - (first is None)
    if isinstance(first, int):
        per_pass = max(1, first)
        if batch is not None and batch != per_pass:
            warnings.append(f"The file fixes the batch at {per_pass}; the batch given was not used.")
    else:
        per_pass = batch or _size(first, chosen) or 1
    if unnamed > 0:
        warnings.append(f"The file leaves {unnamed} dimensions of its inputs open; 1 was taken.")
    return chosen, per_pass


def _size(dimension: int | str | None, chosen: Mapping[str, int]) -> int | None:
    """A dimension's size; a sum or product of known names is worked out."""
    if dimension is None or isinstance(dimension, int):
        return dimension
    if dimension in chosen:
        return chosen[dimension]
    total = 0
    for part in re.split(r"\s*\+\s*", dimension)[:8]:
        words = re.split(r"\s*\*\s*", part)[:8]
        sizes = [int(word) if re.fullmatch(r"\d{1,9}", word) else chosen.get(word) for word in words]
        if None in sizes:
            return None
        total += math.prod(size for size in sizes if size is not None)
    return total


def _flat(nodes: list[Node], functions: Mapping[tuple[str, str], Function]) -> Iterator[Node]:
    """The calls, with those of functions that the file defines in place of a call of them."""
    left = [_MOST_NODES]

    def walk(inner: Iterator[Node] | list[Node] | tuple[Node, ...], prefix: str, depth: int) -> Iterator[Node]:
        for index, node in enumerate(inner):
            left[0] -= 1
            if left[0] < 0:
                raise InputError(f"The graph has more than {_MOST_NODES:,} operators.")
            function = functions.get((node.domain, node.op))
            if function is None:
                yield node
                continue
            if depth >= _DEEPEST:
                raise InputError(f"The file's functions call each other more than {_DEEPEST} deep.")
            here = f"{prefix}{node.name or node.op}.{index}/"
            names = dict(zip(function.inputs, node.inputs, strict=False))
            names |= dict(zip(function.outputs, node.outputs, strict=False))
            body = (_renamed(call, names, here, node.attributes) for call in function.nodes)
            yield from walk(body, here, depth + 1)

    return walk(nodes, "", 0)


def _renamed(node: Node, names: Mapping[str, str], prefix: str, given: Mapping[str, object]) -> Node:
    def rename(name: str) -> str:
        return names.get(name, prefix + name) if name else ""

    attributes = {
        key: given.get(value.name) if isinstance(value, Reference) else value for key, value in node.attributes.items()
    }
    return replace(
        node,
        inputs=tuple(map(rename, node.inputs)),
        outputs=tuple(map(rename, node.outputs)),
        attributes={key: value for key, value in attributes.items() if value is not None},
    )


def _step(node: Node, reading: _Reading, graph: Graph, chosen: Mapping[str, int]) -> None:
    """Shapes of a node's outputs, and what it counts for."""
    at = Applied(node, reading.shapes, reading.values)
    try:
        shapes = infer(at)
    except LookupError:
        shapes = []
    except (ValueError, TypeError, OverflowError) as error:
        raise _misfit(node, error) from None
    for index, output in enumerate(node.outputs):
        if index < len(shapes):
            elements(shapes[index])
            reading.shapes[output] = shapes[index]
        elif output in graph.values and output not in reading.shapes:
            stated = graph.values[output]
            sizes = [_size(d, chosen) for d in stated] if stated is not None else [None]
            if None not in sizes:
                reading.shapes[output] = tuple(size for size in sizes if size is not None)
    values = fold(at)
    if values is not None and node.outputs:
        reading.values[node.outputs[0]] = values
    read = [name for name in node.inputs if name]
    if values is not None or all(name in reading.fixed for name in read):
        origins = frozenset().union(*(reading.fixed.get(name, frozenset()) for name in read))
        reading.fixed.update(dict.fromkeys(node.outputs, origins))
        value = next(iter(node.attributes.values()), None)
        if isinstance(value, Tensor) and node.op == "Constant" and node.outputs:
            # Some exporters write weights as constants in the graph.
            reading.constants[node.outputs[0]] = value
            reading.fixed[node.outputs[0]] = frozenset(node.outputs[:1])
    elif node.op not in VIEWS:
        _count(at, reading)


def _misfit(node: Node, error: Exception) -> InputError:
    """The sentence of a reader, or one for whatever a graph that cannot be makes Python raise."""
    if isinstance(error, InputError):
        return error
    return InputError(f"The operator {node.op} {node.name[:60]!r} of the file does not fit its inputs.")


def _count(at: Applied, reading: _Reading) -> None:
    node, shapes = at.node, reading.shapes
    if node.op in _CONTROL or not known(node.op):
        reading.strange[f"{node.domain}.{node.op}" if node.domain else node.op] += 1
        if node.op in _CONTROL:
            return
    if any(name and name not in shapes for name in (*node.inputs, *node.outputs[:1])):
        reading.shapeless[node.op] += 1
        return
    weights = [name in reading.fixed and bool(name) for name in node.inputs]
    try:
        calls = calls_of(at, weights) if known(node.op) else []
    except (LookupError, ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise _misfit(node, error) from None
    if not calls:
        inputs = [shapes[n] for n, constant in zip(node.inputs, weights, strict=True) if n and not constant]
        calls = [moved(node.op, inputs, [shapes[n] for n in node.outputs if n in shapes])]
    parameters = beside = 0.0
    for name, constant in zip(node.inputs, weights, strict=True):
        if constant:
            parameters += sum(_new_parameters(origin, node, reading) for origin in reading.fixed[name])
            beside += elements(shapes[name]) if reading.fixed[name] else 0.0
    if node.op == "Gather":
        beside = 0.0  # the rows that are taken are counted, not the table
    first = with_weights(calls[0], max(0.0, beside - calls[0].weights), parameters)
    reading.counted.append((node, first))
    reading.counted += [(replace(node, op="", outputs=()), call) for call in calls[1:]]


def _new_parameters(origin: str, node: Node, reading: _Reading) -> float:
    """Parameters of a constant that no earlier operator holds: floats, and the narrow integers of quantised layers."""
    tensor = reading.constants.get(origin)
    if tensor is None or origin in reading.held:
        return 0.0
    reading.held.add(origin)
    if node.op == "BatchNormalization" and origin in node.inputs[3:]:
        return 0.0  # running statistics
    if node.op == "MatMulNBits" and origin == node.inputs[1]:
        k, n = (node.attributes.get(key) for key in ("K", "N"))
        return float(k * n) if isinstance(k, int) and isinstance(n, int) and 0 < k * n < 1e15 else 0.0
    narrow = tensor.dtype in _NARROW and (node.op in named("onnx", "quantised") or origin not in node.inputs)
    return elements(tensor.dims) if tensor.dtype in _FLOATS or narrow else 0.0


def _warnings(reading: _Reading) -> list[str]:
    found = unknown_operators({op: n for op, n in reading.strange.items() if op not in _CONTROL})
    control = sum(reading.strange[op] for op in _CONTROL)
    if control:
        found.append(f"The bodies of {control} operators of control flow (If, Loop, Scan) were not counted.")
    if reading.shapeless:
        shown = ", ".join(f"{op[:60]} ({n})" for op, n in reading.shapeless.most_common(12))
        found.append(f"Operators whose shapes cannot be told from the file were not counted: {shown}.")
    return found


def _dtype(reading: _Reading) -> str | None:
    sizes: Counter[str] = Counter()
    for name in sorted(reading.held):
        tensor = reading.constants[name]
        if tensor.dtype in _DTYPES:
            sizes[_DTYPES[tensor.dtype]] += int(elements(tensor.dims))
    return sizes.most_common(1)[0][0] if sizes else None


def _bytes_on_disk(place: Path, graph: Graph, warnings: list[str]) -> int | None:
    """Bytes of the file and of the files of external data beside it; those elsewhere are not looked at."""
    total = place.stat().st_size
    folder = place.resolve().parent
    for location in {t.external for t in graph.constants.values() if t.external}:
        try:
            other = (folder / location).resolve()
            inside = other.is_relative_to(folder) and other.is_file()
            total += other.stat().st_size if inside else 0
        except (OSError, ValueError):
            inside = False
        if not inside:
            warnings.append(f"The weights in {location[:80]!r} are not in the file's folder; their shapes were used.")
            return None
    return total
