"""Headers of safetensors files and their index: how many parameters a checkpoint holds, and in which types.

A safetensors file begins with the length of its header in eight bytes (little endian), then the header, which is JSON: for each tensor
its type, shape and place. Only the header is read; the format runs no code. Quantised checkpoints pack several weights into
one stored element (two 4-bit weights in a byte, eight in a 32-bit word) and keep scales beside them; ``weights`` undoes the
packing and leaves the scales out.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers import table
from mlsysim.importers.fields import Config
from mlsysim.importers.limits import load_json, read_bounded, size_in_words

LARGEST_HEADER = 100_000_000
"""The format's own limit."""
LARGEST_INDEX = 200_000_000
_MOST_FILES = 5_000
_MOST_ELEMENTS = 10**18

_BITS: dict[str, int] = table("names")["safetensors"]["bits"]
_BESIDE = tuple(table("names")["safetensors"]["beside"])
_PACKED_WORDS = ("qweight", "weight_packed")


@dataclass
class Checkpoint:
    """Stored elements by type, weights after unpacking, bytes and tensors of one file or of several."""

    elements: Counter[str] = field(default_factory=Counter)
    weights: int = 0
    bytes: int = 0
    tensors: int = 0

    def add(self, other: Checkpoint) -> None:
        self.elements.update(other.elements)
        self.weights += other.weights
        self.bytes += other.bytes
        self.tensors += other.tensors


def read_header(path: str | os.PathLike[str], word_bits: int = 4) -> Checkpoint:
    """What the header of one file says. ``word_bits`` is the width of weights packed into 32-bit words."""
    name = Path(path).name
    start = read_bounded(path, LARGEST_HEADER + 8, at_most=8)
    size = os.path.getsize(path)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= LARGEST_HEADER or 8 + length > size:
        raise InputError(
            f"{name[:200]!r} is not a safetensors file: its header would be {size_in_words(length)} long in a file of "
            f"{size_in_words(size)}."
        )
    table = load_json(read_bounded(path, LARGEST_HEADER + 8, at_most=8 + length)[8:], name=name)
    if not isinstance(table, dict):
        raise InputError(f"{name[:200]!r} is not a safetensors file: its header is not a table of tensors.")
    return _count(table, size - 8 - length, name, word_bits)


def _count(table: Mapping[str, Any], data: int, name: str, word_bits: int) -> Checkpoint:
    found = Checkpoint()
    for tensor, entry in table.items():
        if tensor == "__metadata__":
            continue
        config = Config(entry if isinstance(entry, Mapping) else {}, f"{tensor[:60]}.")
        kind, shape, offsets = config.text("dtype"), config.integers("shape"), config.sequence("data_offsets")
        if kind not in _BITS or shape is None or len(shape) > 64:
            raise InputError(f"{name[:200]!r}: the tensor {tensor[:60]!r} has no known type and shape.")
        elements = math.prod(shape)
        if elements > _MOST_ELEMENTS:
            raise InputError(f"{name[:200]!r}: the tensor {tensor[:60]!r} is larger than any file.")
        needed = -(-elements * _BITS[kind] // 8)
        places = offsets or []
        whole = len(places) == 2 and all(isinstance(place, int) and not isinstance(place, bool) for place in places)
        if not whole or not 0 <= places[0] <= places[1] <= data or places[1] - places[0] != needed:
            raise InputError(
                f"{name[:200]!r}: the place of the tensor {tensor[:60]!r} does not fit its shape and the file."
            )
        found.elements[kind] += elements
        found.weights += _unpacked(tensor, kind, elements, word_bits)
        found.bytes += needed
        found.tensors += 1
    return found


def _unpacked(tensor: str, kind: str, elements: int, word_bits: int) -> int:
    last = tensor.rsplit(".", 1)[-1]
    if last.endswith(_BESIDE) or tensor.endswith(_BESIDE):
        return 0
    if kind in ("I32", "U32") and last.endswith(_PACKED_WORDS):
        return elements * 32 // word_bits
    if kind in ("I32", "I64", "BOOL", "U32", "U64"):
        return 0
    return 2 * elements if kind == "U8" else elements


def read_folder(folder: Path, word_bits: int = 4) -> tuple[Checkpoint | None, int | None]:
    """The checkpoint in a folder, None where its files are not all there, and the total size that its index states."""
    index = folder / "model.safetensors.index.json"
    stated: int | None = None
    wanted: set[str] | None = None
    if index.is_file():
        table = Config(load_json(read_bounded(index, LARGEST_INDEX), name=index.name))
        inner = table.section("metadata")
        size = inner.raw("total_size") if inner is not None else None
        if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 1e18:
            stated = int(size)
        names = table.raw("weight_map")
        if isinstance(names, dict):
            # Names of files beside the index; a path that leads elsewhere is not followed.
            wanted = {name for name in names.values() if isinstance(name, str) and Path(name).name == name}
    present = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    present = [path for path in present if wanted is None or path.name in wanted]
    if not present or len(present) < len(wanted or ()):
        return None, stated
    if len(present) > _MOST_FILES:
        raise InputError(f"{folder.name[:200]!r} holds more than {_MOST_FILES:,} safetensors files.")
    total = Checkpoint()
    for path in present:
        total.add(read_header(path, word_bits))
    return total, stated
