"""The few messages of an ONNX file that say what is computed, read off the wire format of Protocol Buffers.

Why not the ``onnx`` package: it loads every weight into memory, is not there in a browser, and is a parser of C++ behind
which a stranger's file would run. A message is a sequence of fields, each a tag (number << 3 | type) and a value: a varint
(0), 8 bytes (1), a length and so many bytes (2), 4 bytes (5). That is all there is to it, and weights can be stepped over: of a
checkpoint of 2 GB some thousand small reads are made.

Field numbers are those of ``onnx.proto`` (ONNX 1.17, IR version 10). Bounded: the number of fields read, the depth of graphs
in graphs, the bytes of any one text or constant.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from mlsysim.errors import InputError
from mlsysim.importers.limits import existing

__all__ = ["Function", "Graph", "Model", "Node", "Reference", "Tensor", "Value", "read_onnx_file"]

_MOST_FIELDS = 20_000_000
_DEEPEST = 16
_IN_MEMORY = 1 << 16
_LONGEST_TEXT = 1 << 16
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


class _Broken(Exception):
    """The bytes are no message."""


class _Source:
    """Bytes of a file or of memory by position, and the number of fields that may still be read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.left = file, size, _MOST_FIELDS

    def read(self, start: int, count: int) -> bytes:
        self.file.seek(start)
        return self.file.read(count)


class _Span:
    """A message: a stretch of the source."""

    __slots__ = ("_data", "_end", "_source", "_start")

    def __init__(self, source: _Source, start: int, end: int, data: bytes | None = None) -> None:
        self._source, self._start, self._end = source, start, end
        if data is None and end - start <= _IN_MEMORY:
            data, self._start, self._end = source.read(start, end - start), 0, end - start
            if len(data) != self._end:
                raise _Broken
        self._data = data

    def __len__(self) -> int:
        return self._end - self._start

    def raw(self, limit: int = _LONGEST_TEXT) -> bytes:
        if len(self) > limit:
            raise _Broken
        if self._data is not None:
            return self._data[self._start : self._end]
        return self._source.read(self._start, len(self))

    def text(self) -> str:
        return self.raw().decode("utf-8", "replace")

    def fields(self) -> Iterator[tuple[int, Any]]:
        """Number and value of each field: an int, a float's bytes, or a span."""
        position = self._start
        while position < self._end:
            self._source.left -= 1
            if self._source.left < 0:
                raise InputError(f"The file has more than {_MOST_FIELDS:,} fields, which no model has.")
            head = self._look(position, 20)
            tag, used = _varint(head, 0)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise _Broken
            if wire == 0:
                value, after = _varint(head, used)
                position += after
                yield number, value
            elif wire == 2:
                length, after = _varint(head, used)
                start = position + after
                position = start + length
                if position > self._end:
                    raise _Broken
                yield number, _Span(self._source, start, position, self._data)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                raw = head[used : used + size]
                if len(raw) != size:
                    raise _Broken
                position += used + size
                yield number, raw
            else:
                raise _Broken

    def _look(self, position: int, count: int) -> bytes:
        end = min(position + count, self._end)
        if self._data is not None:
            return self._data[position:end]
        return self._source.read(position, end - position)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(position, min(position + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise _Broken


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _span(value: Any) -> _Span:
    if not isinstance(value, _Span):
        raise _Broken
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise _Broken
    return value


def _text(value: Any) -> str:
    return _span(value).text()


def _integers(value: Any, limit: int = _LONGEST_TEXT) -> list[int]:
    """A repeated integer: one by one, or packed into one field."""
    if isinstance(value, int):
        return [_signed(value)]
    data, position, found = _span(value).raw(limit), 0, []
    while position < len(data):
        number, position = _varint(data, position)
        found.append(_signed(number))
    return found


def _floats(value: Any) -> list[float]:
    data = value if isinstance(value, bytes) else _span(value).raw()
    if len(data) % 4:
        raise _Broken
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def read_onnx_file(path: str | os.PathLike[str]) -> Model:
    """The graph of a file, without its weights."""
    place = existing(path)
    try:
        with place.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{str(place)[:200]!r} is not a regular file.")
            return _model(_Span(_Source(file, status.st_size), 0, status.st_size))
    except _Broken:
        raise InputError(f"{place.name[:200]!r} is not an ONNX file, or it is cut off.") from None
    except OSError as error:
        raise InputError(f"{str(place)[:200]!r} cannot be read: {(error.strerror or str(error)).lower()}.") from None


def _model(span: _Span) -> Model:
    model = Model()
    for number, value in span.fields():
        if number == 1:
            model.ir_version = _whole(value)
        elif number == 2:
            model.producer = _text(value)[:80]
        elif number == 7:
            model.graph = _graph(_span(value), 0)
        elif number == 8:
            domain, version = "", 0
            for inner, item in _span(value).fields():
                if inner == 1:
                    domain = _text(item)
                elif inner == 2:
                    version = _whole(item)
            model.opsets[domain] = version
        elif number == 25:
            function = _function(_span(value))
            model.functions[function.domain, function.name] = function
    if model.graph is None or not model.graph.nodes:
        raise _Broken
    return model


def _graph(span: _Span, depth: int) -> Graph:
    if depth > _DEEPEST:
        raise InputError(f"The file nests graphs more than {_DEEPEST} deep.")
    graph = Graph()
    for number, value in span.fields():
        if number == 1:
            graph.nodes.append(_node(_span(value), depth))
        elif number == 2:
            graph.name = _text(value)
        elif number == 5:
            tensor = _tensor(_span(value))
            graph.constants[tensor.name] = tensor
        elif number in (11, 12, 13):
            found = _value(_span(value))
            if number == 11:
                graph.inputs.append(found)
            elif number == 12:
                graph.outputs.append(found)
            graph.values.setdefault(found.name, found)
        elif number == 15:
            tensor = _sparse(_span(value))
            graph.constants[tensor.name] = tensor
    return graph


def _function(span: _Span) -> Function:
    name = domain = ""
    inputs: list[str] = []
    outputs: list[str] = []
    nodes: list[Node] = []
    for number, value in span.fields():
        if number == 1:
            name = _text(value)
        elif number == 4:
            inputs.append(_text(value))
        elif number == 5:
            outputs.append(_text(value))
        elif number == 7:
            nodes.append(_node(_span(value), 0))
        elif number == 10:
            domain = _text(value)
    return Function(domain, name, tuple(inputs), tuple(outputs), tuple(nodes))


def _node(span: _Span, depth: int) -> Node:
    op = domain = name = ""
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: dict[str, Any] = {}
    for number, value in span.fields():
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            op = _text(value)
        elif number == 5:
            key, found = _attribute(_span(value), depth)
            attributes[key] = found
        elif number == 7:
            domain = _text(value)
    return Node(op, "" if domain == "ai.onnx" else domain, name, tuple(inputs), tuple(outputs), attributes)


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function's body that is given where the function is called."""

    name: str


def _attribute(span: _Span, depth: int) -> tuple[str, Any]:
    name = ""
    single: Any = None
    many: list[Any] = []
    for number, value in span.fields():
        if number == 1:
            name = _text(value)
        elif number == 2 and isinstance(value, bytes) and len(value) == 4:
            single = struct.unpack("<f", value)[0]
        elif number == 3:
            single = _signed(_whole(value))
        elif number == 4:
            single = _text(value) if len(_span(value)) <= _LONGEST_TEXT else ""
        elif number == 5:
            single = _tensor(_span(value))
        elif number == 6:
            single = _graph(_span(value), depth + 1)
        elif number == 7:
            many += _floats(value)
        elif number == 8:
            many += _integers(value)
        elif number == 9:
            many.append(_text(value))
        elif number == 11:
            many.append(_graph(_span(value), depth + 1))
        elif number == 21:
            single = Reference(_text(value))
    return name, single if single is not None else tuple(many)


def _tensor(span: _Span) -> Tensor:
    dims: list[int] = []
    dtype = 0
    name = ""
    values: list[float] = []
    raw: _Span | None = None
    where = None
    for number, value in span.fields():
        if number == 1:
            dims += _integers(value)
        elif number == 2:
            dtype = _whole(value)
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = _span(value)
        elif number in (5, 7) and (isinstance(value, int) or len(_span(value)) <= _LARGEST_CONSTANT):
            values += _integers(value, _LARGEST_CONSTANT) if len(values) <= _LARGEST_CONSTANT else []
        elif number == 4 and (isinstance(value, bytes) or len(_span(value)) <= _LARGEST_CONSTANT):
            values += _floats(value) if len(values) <= _LARGEST_CONSTANT else []
        elif number == 13:
            key, entry = _pair(_span(value))
            where = entry if key == "location" else where
    if raw is not None and not values and len(raw) <= _LARGEST_CONSTANT:
        form, size = {FLOAT: ("f", 4), INT32: ("i", 4), INT64: ("q", 8), DOUBLE: ("d", 8), 9: ("?", 1)}.get(
            dtype, ("", 1)
        )
        data = raw.raw()
        if form and len(data) % size == 0:
            values = list(struct.unpack(f"<{len(data) // size}{form}", data))
    if any(size < 0 for size in dims) or len(dims) > 64:
        raise _Broken
    count = 1
    for size in dims:
        count *= size
    return Tensor(name, tuple(dims), dtype, tuple(values) if len(values) == count else None, where)


def _pair(span: _Span) -> tuple[str, str]:
    key = value = ""
    for number, item in span.fields():
        if number == 1:
            key = _text(item)
        elif number == 2:
            value = _text(item)
    return key, value


def _sparse(span: _Span) -> Tensor:
    """A sparse constant, with the shape that it stands for."""
    name, dims = "", []
    for number, value in span.fields():
        if number == 1:
            name = _tensor(_span(value)).name
        elif number == 3:
            dims += _integers(value)
    return Tensor(name, tuple(dims), FLOAT)


def _value(span: _Span) -> Value:
    name = ""
    dtype = 0
    dims: list[int | str | None] | None = None
    for number, value in span.fields():
        if number == 1:
            name = _text(value)
        elif number == 2:
            for kind, inner in _span(value).fields():
                if kind != 1:
                    continue  # sequences, maps and optionals are no tensors
                for part, item in _span(inner).fields():
                    if part == 1:
                        dtype = _whole(item)
                    elif part == 2:
                        dims = [_dimension(_span(d)) for n, d in _span(item).fields() if n == 1]
    return Value(name, dtype, None if dims is None else tuple(dims))


def _dimension(span: _Span) -> int | str | None:
    for number, value in span.fields():
        if number == 1:
            size = _signed(_whole(value))
            return size if size >= 0 else None
        if number == 2:
            return _text(value) or None
    return None
