"""The wire format of Protocol Buffers: messages as stretches of a file, read field by field.

A message is a sequence of fields, each a tag (number << 3 | type) and a value: a varint (0), 8 bytes (1), a length and so many
bytes (2), 4 bytes (5). Nothing is read before it is asked for, so that weights are stepped over. Bounded: the number of
fields read, the bytes of any one text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from mlsysim.errors import InputError

_MOST_FIELDS = 20_000_000
_IN_MEMORY = 1 << 16
LONGEST = 1 << 16
_FIXED = {1: 8, 5: 4}
"""Bytes of the types of fixed length."""


class Broken(Exception):
    """The bytes are no message."""


class Source:
    """Bytes of a file or of memory by position, and the number of fields that may still be read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size, self.left = file, size, _MOST_FIELDS

    def read(self, start: int, count: int) -> bytes:
        self.file.seek(start)
        return self.file.read(count)


class Span:
    """A message: a stretch of the source."""

    __slots__ = ("_data", "_end", "_source", "_start")

    def __init__(self, source: Source, start: int, end: int, data: bytes | None = None) -> None:
        self._source, self._start, self._end = source, start, end
        if data is None and end - start <= _IN_MEMORY:
            data, self._start, self._end = source.read(start, end - start), 0, end - start
            if len(data) != self._end:
                raise Broken
        self._data = data

    def __len__(self) -> int:
        return self._end - self._start

    def _look(self, start: int, end: int) -> bytes:
        return self._source.read(start, end - start) if self._data is None else self._data[start:end]

    def raw(self, limit: int = LONGEST) -> bytes:
        if len(self) > limit:
            raise Broken
        return self._look(self._start, self._end)

    def text(self) -> str:
        return self.raw().decode("utf-8", "replace")

    def fields(self) -> Iterator[tuple[int, Any]]:
        """Number and value of each field: an int, a float's bytes, or a span."""
        position = self._start
        while position < self._end:
            self._source.left -= 1
            if self._source.left < 0:
                raise InputError(f"The file has more than {_MOST_FIELDS:,} fields, which no model has.")
            head = self._look(position, min(position + 20, self._end))
            tag, used = varint(head, 0)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise Broken
            if wire in (0, 2):
                value, after = varint(head, used)
                position += after
                if wire == 0:
                    yield number, value
                    continue
                start, position = position, position + value
                if position > self._end:
                    raise Broken
                yield number, Span(self._source, start, position, self._data)
            else:
                raw = head[used : used + _FIXED.get(wire, 0)]
                if not raw or len(raw) != _FIXED[wire]:
                    raise Broken
                position += used + len(raw)
                yield number, raw


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
    return span_of(value).text()


def integers(value: Any, limit: int = LONGEST) -> list[int]:
    """A repeated integer: one by one, or packed into one field."""
    if isinstance(value, int):
        return [signed(value)]
    data, position, found = span_of(value).raw(limit), 0, []
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
