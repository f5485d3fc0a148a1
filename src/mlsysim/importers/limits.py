"""Bounded reading: how much of a stranger's file is taken in, and in what form.

Every importer reads through these functions. A file is a regular file of bounded size (a pipe or a device could keep a reader
waiting for ever), JSON has a bounded depth and, unless asked otherwise, finite numbers, and formats whose loading runs code
(pickles, and the archives of pickles that ``torch.save`` writes) are named and refused. Whatever goes wrong is one sentence.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, refuse_address

_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")
"""What `torch.save`, `pickle.dump` and older checkpoints are called."""
_MOST_VALUES = 20_000_000


def size_in_words(size: float) -> str:
    """Bytes for a sentence.

    >>> size_in_words(2_500_000)
    '2.5 MB'
    """
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    return next((f"{size / scale:.3g} {unit}" for unit, scale in units if size >= scale), f"{size:.0f} bytes")


def unreadable(path: str | os.PathLike[str], error: Exception) -> InputError:
    """The sentence of a file that the system does not give."""
    refuse_address(path)
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"{str(path)[:200]!r} cannot be read: {reason.lower()}.")


def existing(path: str | os.PathLike[str]) -> Path:
    """The path, where something is there to read."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"A path is text, not {type(path).__name__}.")
    place = Path(path)
    try:
        place.stat()
    except (OSError, ValueError) as error:
        raise unreadable(place, error) from None
    return place


def read_bounded(path: str | os.PathLike[str], limit_bytes: int, at_most: int | None = None) -> bytes:
    """The bytes of a regular file of ``limit_bytes`` or less; ``at_most`` reads no more than its first so many bytes.

    With ``at_most`` the file itself may be of any size: that is how a header is read off a checkpoint of terabytes.
    """
    place = existing(path)
    try:
        if not stat.S_ISREG(place.stat().st_mode):
            raise InputError(f"{str(place)[:200]!r} is not a regular file.")
        with place.open("rb") as file:
            data = file.read(limit_bytes + 1 if at_most is None else min(at_most, limit_bytes))
    except OSError as error:
        raise unreadable(place, error) from None
    if len(data) > limit_bytes:
        raise InputError(
            f"{str(place)[:200]!r} is larger than the {size_in_words(limit_bytes)} that are read of such a file."
        )
    return data


def read_text(path: str | os.PathLike[str], limit_bytes: int) -> str:
    """The text of a bounded file in UTF-8."""
    return _as_text(read_bounded(path, limit_bytes), Path(path).name)


def _as_text(data: bytes, name: str) -> str:
    """Bytes as UTF-8 text, with or without a byte-order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name[:200]!r} is not text in UTF-8.") from None


def refuse_pickle(name: str, head: bytes) -> None:
    """Refuse what would have to be unpickled, which can run any code: pickles, and zip files that hold them.

    ``head`` is the beginning of the file; a pickle of protocol 2 or later says so in its first two bytes.
    """
    pickled = len(head) >= 2 and head[0] == 0x80 and head[1] in (2, 3, 4, 5)
    if pickled or head[:4] == b"PK\x03\x04" or Path(name).suffix.lower() in _PICKLES:
        raise InputError(
            f"{name[:200]!r} is a pickle or an archive of pickles, whose loading can run any code, and is not read; "
            "give the model's config.json or a .safetensors file."
        )


_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]')


def nesting(text: str) -> int:
    """How deep brackets are open at most, strings aside: parsers recurse, some take the square of the depth in time, and a browser's stack ends there."""
    deepest = depth = 0
    for mark in _MARKS.findall(text):
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth = max(0, depth - 1)
    return deepest


def where_broken(error: json.JSONDecodeError) -> str:
    """What is wrong in a text that is no JSON, and where."""
    return f"{error.msg.lower().removesuffix(' at')} at line {error.lineno}, column {error.colno}"


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table of JSON's pairs, of which Python's reader alone would take the last of a key; the error is half a sentence."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        raise InputError(f"has the key {next(key for key in names if names.count(key) > 1)[:60]!r} twice in one object")
    return found


def load_json(
    text: str | bytes, max_depth: int = 64, *, name: str = "the JSON text", finite: bool = True, once: bool = True
) -> Any:
    """What JSON text says, nested ``max_depth`` deep at most.

    ``finite=False`` lets NaN and Infinity through, which Python's own writer puts into files that are not JSON by the
    letter; the reader then refuses them where it uses them. ``once=False`` takes the last of two equal keys, as profilers write them.
    """
    if isinstance(text, bytes | bytearray):
        text = _as_text(bytes(text), name)
    try:
        value = json.loads(text, object_pairs_hook=each_once if once else None)
    except InputError as error:
        raise InputError(f"{name[:200]!r} {error}.") from None
    except RecursionError:
        raise InputError(f"{name[:200]!r} is nested more than {max_depth} deep.") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{name[:200]!r} is not JSON: {where_broken(error)}.") from None
    except ValueError:
        raise InputError(f"{name[:200]!r} holds a whole number with too many digits.") from None
    check_bounds(value, max_depth, name=name, finite=finite)
    return value


def check_bounds(
    value: Any, max_depth: int = 64, *, name: str = "the table", finite: bool = True, most: int = _MOST_VALUES
) -> None:
    """Refuse tables and lists that are nested too deep (as one that contains itself is) or hold too many values."""
    level, depth = [value], 0
    while level:
        if finite and any(type(item) is float and not math.isfinite(item) for item in level):
            raise InputError(f"{name[:200]!r} holds a number that is not finite.")
        tables = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for table in tables for item in table]
        if len(level) > most:
            raise InputError(f"{name[:200]!r} holds more than {most:,} values.")
        depth += bool(tables)
        if depth > max_depth:
            raise InputError(f"{name[:200]!r} is nested more than {max_depth} deep.")
