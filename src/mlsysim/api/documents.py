"""JSON documents, in and out.

In: finite numbers, text that is Unicode, each key of an object once, at most 32 levels. Python's reader alone takes ``NaN``, turns
``1e999`` into infinity and keeps the last of two equal keys. Out: what is not a finite number is null, keys in the order in
which they were made, ASCII, so that the same answer is the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from mlsysim.errors import InputError
from mlsysim.importers.limits import each_once, where_broken
from mlsysim.units.registry import Quantity, format_unit

_DEEPEST = 32
_LARGEST_INTEGER = 10**30


class Malformed(InputError):
    """The document is no JSON that can be used."""


def parse(text: bytes | str) -> Any:
    """The value of a JSON document."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(decoded, parse_constant=_no_constant, object_pairs_hook=each_once)
    except Malformed:
        raise
    except InputError as error:
        raise Malformed(f"The document {error}.") from None
    except UnicodeDecodeError:
        raise Malformed("The document is not UTF-8 text.") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"The document is not JSON: {where_broken(error)}.") from None
    except RecursionError:
        raise Malformed(f"The document is nested more than {_DEEPEST} levels deep.") from None
    except ValueError:
        raise Malformed("The document has a whole number with too many digits.") from None
    check(value)
    return value


def check(value: Any) -> None:
    """Refuse what JSON text can say and nothing here can use."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > _DEEPEST:
            raise Malformed(f"The document is nested more than {_DEEPEST} levels deep.")
        if isinstance(item, dict):
            waiting += [(key, depth) for key in item]
            waiting += [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list):
            waiting += [(child, depth + 1) for child in item]
        elif isinstance(item, str):
            if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                raise Malformed("The document has half of a surrogate pair, which is no character.")
        elif isinstance(item, float):
            if not math.isfinite(item):
                what = "a value that is no number (NaN)" if item != item else "a number that is too large for a double"
                raise Malformed(f"The document has {what}.")
        elif isinstance(item, int) and not isinstance(item, bool) and abs(item) > _LARGEST_INTEGER:
            raise Malformed("The document has a whole number above 10^30.")


def _no_constant(name: str) -> Any:
    raise Malformed(f"The document has {name}, which is no JSON number.")


def plain(value: Any) -> Any:
    """A value as what JSON can carry: quantities as magnitude and unit, records as objects, what is not finite as null."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, Quantity):
        return {"magnitude": plain(value.magnitude), "unit": format_unit(value.units)}
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def dump(value: Any) -> bytes:
    """A value as JSON text."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode("ascii")
