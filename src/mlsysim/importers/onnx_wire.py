"""The few messages of an ONNX file that say what is computed, read off the wire format of Protocol Buffers.

Why not the ``onnx`` package: it loads every weight into memory, is not there in a browser, and is a parser of C++ behind
which a stranger's file would run. A message is a sequence of fields, each a tag (number << 3 | type) and a value: a varint (0),
8 bytes (1), a length and so many bytes (2), 4 bytes (5). Nothing is read before it is asked for, so that weights are stepped over:
of a checkpoint of 2 GB some thousand small reads are made.

Field numbers are those of ``onnx.proto`` (ONNX 1.17, IR version 10). Bounded: the number of fields read, the depth of graphs
in graphs, the bytes of any one text and of any one constant.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from mlsysim.errors import InputError
from mlsysim.importers import table
from mlsysim.importers.limits import existing, unreadable
from mlsysim.units.records import dataclass

_MOST_FIELDS = 20_000_000
LONGEST = 1 << 16
_DEEPEST = 16
_LARGEST_CONSTANT = 4096
"""Bytes of a tensor that are read: shapes, axes and sizes are some tens, weights are never needed."""
FLOAT = 1
_FORMS = {FLOAT: ("f", 4), 6: ("i", 4), 7: ("q", 8), 11: ("d", 8), 9: ("?", 1)}
"""How ``struct`` reads the raw bytes of a tensor of floats, 32 and 64 bit integers, doubles and booleans."""


class Broken(Exception):
    """The bytes are no message."""


class Source:
    """A file by position, and the number of fields that may still be read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.left = file, _MOST_FIELDS

    def read(self, start: int, count: int) -> bytes:
        self.file.seek(start)
        return self.file.read(count)


@dataclass(frozen=True, slots=True)
class Span:
    """A message: a stretch of the source."""

    source: Source
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def raw(self) -> bytes:
        if len(self) > LONGEST:
            raise Broken
        return self.source.read(self.start, len(self))

    def fields(self) -> Iterator[tuple[int, Any]]:
        """Number and value of each field: an int, a float's bytes, or a span."""
        position = self.start
        while position < self.end:
            self.source.left -= 1
            if self.source.left < 0:
                raise InputError(f"The file has more than {_MOST_FIELDS:,} fields, which no model has.")
            head = self.source.read(position, min(20, self.end - position))
            tag, used = varint(head, 0)
            number, wire = tag >> 3, tag & 7
            if number == 0 or wire not in (0, 1, 2, 5):
                raise Broken
            value: Any
            if wire in (0, 2):
                value, used = varint(head, used)
                if wire == 2:
                    position, used = position + used, value
                    value = Span(self.source, position, position + used)
            else:
                value = head[used : used + (8 if wire == 1 else 4)]
                used += 8 if wire == 1 else 4
            position += used
            if position > self.end:
                raise Broken
            yield number, value


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of variable length, and the position after it."""
    value = shift = 0
    for index in range(position, min(position + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise Broken


def signed(value: int) -> int:
    """A varint as a number of 64 bits with a sign."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def span_of(value: Any) -> Span:
    """The value of a field that must be a message or bytes."""
    if not isinstance(value, Span):
        raise Broken
    return value


def whole(value: Any) -> int:
    """The value of a field that must be a varint."""
    if not isinstance(value, int):
        raise Broken
    return value


def text_of(value: Any) -> str:
    """The value of a field that must be a text."""
    return span_of(value).raw().decode("utf-8", "replace")


def integers(value: Any) -> list[int]:
    """A repeated integer: one by one, or packed into one field."""
    if isinstance(value, int):
        return [signed(value)]
    data, position, found = span_of(value).raw(), 0, []
    while position < len(data):
        number, position = varint(data, position)
        found.append(signed(number))
    return found


def floats(value: Any) -> list[float]:
    """A repeated float: one by one, or packed into one field."""
    data = value if isinstance(value, bytes) else span_of(value).raw()
    if len(data) % 4:
        raise Broken
    return list(struct.unpack(f"<{len(data) // 4}f", data))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant: its shape, and its values where they are few. ``external`` is the file that holds its data."""

    name: str
    dims: tuple[int, ...]
    dtype: int
    values: tuple[float, ...] | None = None
    external: str | None = None


Dims = tuple[int | str | None, ...] | None
"""Sizes of a tensor of the graph: a number, the name of a size, or None where nothing is said."""


@dataclass(frozen=True, slots=True)
class Node:
    """A call of an operator."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function's body that is given where the function is called."""

    name: str


@dataclass(slots=True)
class Graph:
    """Calls in the order in which they run."""

    name: str
    nodes: list[Node]
    constants: dict[str, Tensor]
    inputs: dict[str, Dims]
    values: dict[str, Dims]


@dataclass(frozen=True, slots=True)
class Function:
    """An operator that the file defines by others."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class Model:
    """What the file says."""

    producer: str
    graph: Graph
    functions: dict[tuple[str, str], Function]


def read_onnx_file(path: str | os.PathLike[str]) -> Model:
    """The graph of a file, without its weights."""
    place = existing(path)
    try:
        with place.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{str(place)[:200]!r} is not a regular file.")
            return _read(Span(Source(file), 0, status.st_size), "model")
    except Broken:
        raise InputError(f"{place.name[:200]!r} is not an ONNX file, or it is cut off.") from None
    except OSError as error:
        raise unreadable(place, error) from None


def _read(value: Any, message: str, depth: int = 0) -> Any:
    """What a message builds; the values of its fields by our names, each in the order in which they stand, if it builds nothing."""
    if message == "graph" and depth > _DEEPEST:
        raise InputError(f"The file nests graphs more than {_DEEPEST} deep.")
    fields = _MESSAGES[message]
    found: dict[str, list[Any]] = {name: [] for name, _ in fields.values()}
    for number, inner in span_of(value).fields():
        name, kind = fields.get(number, ("", ""))
        if not name or (name == "few" and len(found[name]) > _LARGEST_CONSTANT):
            continue
        plain = _PLAIN.get(kind)
        found[name].append(plain(inner) if plain else _read(inner, kind, depth + (message == "attribute")))
    return _BUILT[message](found) if message in _BUILT else found


def _last(values: list[Any], default: Any = "") -> Any:
    return values[-1] if values else default


def _flat(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(value for part in parts for value in (part if isinstance(part, list) else [part]))


def _model(found: Found) -> Model:
    graph = _last(found["graph"], None)
    if graph is None or not graph.nodes:
        raise Broken
    return Model(_last(found["producer"])[:80], graph, dict(found["functions"]))


def _graph(found: Found) -> Graph:
    constants = {tensor.name: tensor for tensor in found["constants"]}
    values = dict(reversed((*found["inputs"], *found["outputs"], *found["values"])))
    return Graph(_last(found["name"]), found["nodes"], constants, dict(found["inputs"]), values)


def _function(found: Found) -> tuple[tuple[str, str], Function]:
    body = Function(*(tuple(found[part]) for part in ("inputs", "outputs", "nodes")))
    return (_last(found["domain"]), _last(found["name"])), body


def _node(found: Found) -> Node:
    op, domain, name = (_last(found[part]) for part in ("op", "domain", "name"))
    domain = "" if domain == "ai.onnx" else domain
    return Node(op, domain, name, tuple(found["inputs"]), tuple(found["outputs"]), dict(found["attributes"]))


def _attribute(found: Found) -> tuple[str, Any]:
    """Name and value: one, or several of a kind."""
    single = _last([v for v in found["one"] if v is not None], None)
    return _last(found["name"]), _flat(found["many"]) if single is None else single


def _tensor(found: Found) -> Tensor:
    values, dims = _flat(found["few"]), _flat(found["dims"])
    dtype, raw = _last(found["dtype"], 0), _last(found["raw"], None)
    if raw is not None and not values and len(raw) <= _LARGEST_CONSTANT:
        form, size = _FORMS.get(dtype, ("", 1))
        data = raw.raw()
        if form and len(data) % size == 0:
            values = struct.unpack(f"<{len(data) // size}{form}", data)
    if any(size < 0 for size in dims) or len(dims) > 64:
        raise Broken
    where = _last([_last(pair["value"]) for pair in found["external"] if _last(pair["key"]) == "location"], None)
    return Tensor(_last(found["name"]), dims, dtype, values if len(values) == math.prod(dims) else None, where)


def _value(found: Found) -> tuple[str, Dims]:
    """A tensor's name and sizes; sequences, maps and optionals are no tensors."""
    shapes = [shape for kind in found["type"] for tensor in kind["tensor"] for shape in tensor["shape"]]
    return _last(found["name"]), tuple(shapes[-1]["dims"]) if shapes else None


def _dimension(found: Found) -> int | str | None:
    size = found["size"][0] if found["size"] else None
    return None if size == "" or (isinstance(size, int) and size < 0) else size


def _few(value: Any, reader: Callable[[Any], list[Any]]) -> list[Any]:
    """Values of a tensor that has few of them; weights are stepped over."""
    return [] if isinstance(value, Span) and len(value) > _LARGEST_CONSTANT else reader(value)


Found = dict[str, list[Any]]
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "text": text_of, "whole": whole, "floats": floats, "integers": integers, "bytes": span_of,
    "signed": lambda v: signed(whole(v)), "reference": lambda v: Reference(text_of(v)),
    "float": lambda v: struct.unpack("<f", v)[0] if isinstance(v, bytes) and len(v) == 4 else None,
    "short text": lambda v: text_of(v) if len(span_of(v)) <= LONGEST else "",
    "few floats": lambda v: _few(v, floats), "few integers": lambda v: _few(v, integers),
}  # fmt: skip
_BUILT: dict[str, Callable[[Found], Any]] = {
    "model": _model, "graph": _graph, "function": _function, "node": _node, "attribute": _attribute, "tensor": _tensor,
    "value": _value, "dimension": _dimension,
    "sparse": lambda f: Tensor(f["values"][-1].name if f["values"] else "", _flat(f["dims"]), FLOAT),
}  # fmt: skip
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    message: {int(number): (name, kind) for number, (name, kind) in fields.items()}
    for message, fields in table("names")["messages"].items()
}
"""By the number of a field a name of ours, and how its value is read: a kind of value or a message."""
