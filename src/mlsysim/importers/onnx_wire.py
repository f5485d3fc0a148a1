"""The few messages of an ONNX file that say what is computed, read off the wire format of Protocol Buffers.

Why not the ``onnx`` package: it loads every weight into memory, is not there in a browser, and is a parser of C++ behind
which a stranger's file would run. Weights are stepped over: of a checkpoint of 2 GB some thousand small reads are made
(:mod:`mlsysim.importers.protobuf`).

Field numbers are those of ``onnx.proto`` (ONNX 1.17, IR version 10). Bounded: the depth of graphs
in graphs, the bytes of any one constant.
"""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass, field
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import existing
from mlsysim.importers.protobuf import (
    LONGEST_TEXT,
    Broken,
    Source,
    Span,
    floats,
    integers,
    signed,
    span_of,
    text_of,
    whole,
)

_DEEPEST = 16
_LARGEST_CONSTANT = 4096
"""Bytes of a tensor that are read: shapes, axes and sizes are some tens, weights are never needed."""

FLOAT, INT32, INT64, DOUBLE = 1, 6, 7, 11


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant: its shape, and its values where they are few. ``external`` is the file that holds its data."""

    name: str
    dims: tuple[int, ...]
    dtype: int
    values: tuple[float, ...] | None = None
    external: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A named tensor of the graph; a dimension is a number, the name of a size, or None where nothing is said."""

    name: str
    dtype: int
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Node:
    """A call of an operator."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(slots=True)
class Graph:
    """Calls in the order in which they run."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Function:
    """An operator that the file defines by others."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class Model:
    """What the file says."""

    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    producer: str = ""
    graph: Graph | None = None
    functions: dict[tuple[str, str], Function] = field(default_factory=dict)


def read_onnx_file(path: str | os.PathLike[str]) -> Model:
    """The graph of a file, without its weights."""
    place = existing(path)
    try:
        with place.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{str(place)[:200]!r} is not a regular file.")
            return _model(Span(Source(file, status.st_size), 0, status.st_size))
    except Broken:
        raise InputError(f"{place.name[:200]!r} is not an ONNX file, or it is cut off.") from None
    except OSError as error:
        raise InputError(f"{str(place)[:200]!r} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def _model(span: Span) -> Model:
    model = Model()
    for number, value in span.fields():
        if number == 1:
            model.ir_version = whole(value)
        elif number == 2:
            model.producer = text_of(value)[:80]
        elif number == 7:
            model.graph = _graph(span_of(value), 0)
        elif number == 8:
            domain, version = "", 0
            for inner, item in span_of(value).fields():
                if inner == 1:
                    domain = text_of(item)
                elif inner == 2:
                    version = whole(item)
            model.opsets[domain] = version
        elif number == 25:
            function = _function(span_of(value))
            model.functions[function.domain, function.name] = function
    if model.graph is None or not model.graph.nodes:
        raise Broken
    return model


def _graph(span: Span, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise InputError(f"The file nests graphs more than {_DEEPEST} deep.")
    graph = Graph()
    for number, value in span.fields():
        if number == 1:
            graph.nodes.append(_node(span_of(value), depth))
        elif number == 2:
            graph.name = text_of(value)
        elif number == 5:
            tensor = _tensor(span_of(value))
            graph.constants[tensor.name] = tensor
        elif number in (11, 12, 13):
            found = _value(span_of(value))
            if number == 11:
                graph.inputs.append(found)
            elif number == 12:
                graph.outputs.append(found)
            graph.values.setdefault(found.name, found)
        elif number == 15:
            tensor = _sparse(span_of(value))
            graph.constants[tensor.name] = tensor
    return graph


def _function(span: Span) -> Function:
    name = domain = ""
    inputs: list[str] = []
    outputs: list[str] = []
    nodes: list[Node] = []
    for number, value in span.fields():
        if number == 1:
            name = text_of(value)
        elif number == 4:
            inputs.append(text_of(value))
        elif number == 5:
            outputs.append(text_of(value))
        elif number == 7:
            nodes.append(_node(span_of(value), 0))
        elif number == 10:
            domain = text_of(value)
    return Function(domain, name, tuple(inputs), tuple(outputs), tuple(nodes))


def _node(span: Span, depth: int) -> Node:
    op = domain = name = ""
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: dict[str, Any] = {}
    for number, value in span.fields():
        if number == 1:
            inputs.append(text_of(value))
        elif number == 2:
            outputs.append(text_of(value))
        elif number == 3:
            name = text_of(value)
        elif number == 4:
            op = text_of(value)
        elif number == 5:
            key, found = _attribute(span_of(value), depth)
            attributes[key] = found
        elif number == 7:
            domain = text_of(value)
    return Node(op, "" if domain == "ai.onnx" else domain, name, tuple(inputs), tuple(outputs), attributes)


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function's body that is given where the function is called."""

    name: str


def _attribute(span: Span, depth: int) -> tuple[str, Any]:
    name = ""
    single: Any = None
    many: list[Any] = []
    for number, value in span.fields():
        if number == 1:
            name = text_of(value)
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            single = struct.unpack("<f", value)[0]
        elif number == 3:
            single = signed(whole(value))
        elif number == 4:
            single = text_of(value) if len(span_of(value)) <= LONGEST_TEXT else ""
        elif number == 5:
            single = _tensor(span_of(value))
        elif number == 6:
            single = _graph(span_of(value), depth + 1)
        elif number == 7:
            many += floats(value)
        elif number == 8:
            many += integers(value)
        elif number == 9:
            many.append(text_of(value))
        elif number == 11:
            many.append(_graph(span_of(value), depth + 1))
        elif number == 21:
            single = Reference(text_of(value))
    return name, single if single is not None else tuple(many)


def _tensor(span: Span) -> Tensor:
    dims: list[int] = []
    dtype = 0
    name = ""
    values: list[float] = []
    raw: Span | None = None
    where = None
    for number, value in span.fields():
        if number == 1:
            dims += integers(value)
        elif number == 2:
            dtype = whole(value)
        elif number == 8:
            name = text_of(value)
        elif number == 9:
            raw = span_of(value)
        elif number in (5, 7) and (isinstance(value, int) or len(span_of(value)) <= _LARGEST_CONSTANT):
            values += integers(value, _LARGEST_CONSTANT) if len(values) <= _LARGEST_CONSTANT else []
        elif number == 4 and (isinstance(value, bytes) or len(span_of(value)) <= _LARGEST_CONSTANT):
            values += floats(value) if len(values) <= _LARGEST_CONSTANT else []
        elif number == 13:
            key, entry = _pair(span_of(value))
            where = entry if key == "location" else where
    if raw is not None and not values and len(raw) <= _LARGEST_CONSTANT:
        form, size = {FLOAT: ("f", 4), INT32: ("i", 4), INT64: ("q", 8), DOUBLE: ("d", 8), 9: ("?", 1)}.get(
            dtype, ("", 1)
        )
        data = raw.raw()
        if form and len(data) % size == 0:
            values = list(struct.unpack(f"<{len(data) // size}{form}", data))
    if any(size < 0 for size in dims) or len(dims) > 64:
        raise Broken
    count = 1
    for size in dims:
        count *= size
    return Tensor(name, tuple(dims), dtype, tuple(values) if len(values) == count else None, where)


def _pair(span: Span) -> tuple[str, str]:
    key = value = ""
    for number, item in span.fields():
        if number == 1:
            key = text_of(item)
        elif number == 2:
            value = text_of(item)
    return key, value


def _sparse(span: Span) -> Tensor:
    """A sparse constant, with the shape that it stands for."""
    name, dims = "", []
    for number, value in span.fields():
        if number == 1:
            name = _tensor(span_of(value)).name
        elif number == 3:
            dims += integers(value)
    return Tensor(name, tuple(dims), FLOAT)


def _value(span: Span) -> Value:
    name = ""
    dtype = 0
    dims: list[int | str | None] | None = None
    for number, value in span.fields():
        if number == 1:
            name = text_of(value)
        elif number == 2:
            for kind, inner in span_of(value).fields():
                if kind != 1:
                    continue  # sequences, maps and optionals are no tensors
                for part, item in span_of(inner).fields():
                    if part == 1:
                        dtype = whole(item)
                    elif part == 2:
                        dims = [_dimension(span_of(d)) for n, d in span_of(item).fields() if n == 1]
    return Value(name, dtype, None if dims is None else tuple(dims))


def _dimension(span: Span) -> int | str | None:
    for number, value in span.fields():
        if number == 1:
            size = signed(whole(value))
            return size if size >= 0 else None
        if number == 2:
            return text_of(value) or None
    return None
