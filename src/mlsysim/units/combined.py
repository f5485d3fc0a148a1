"""Points of a sweep have few layouts and many of everything else: what depends on few columns is worked out once for each combination of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mlsysim.units.ops import arrays, taken

_FEW, _WIDE = 512, 65536


class Combined:
    """The combinations of columns of whole numbers that occur among many points; what is known of a column is kept with it."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Any, Any, int] | None] = {}

    def once(self, key: Any, make: Callable[..., Any], *values: Any) -> Any:
        """``make(*values)``, of which all that differs from point to point follows from the columns in a key; made once for each combination where
        these are at most half as many as points."""
        columns = [column for column in _columns(key) if column.size >= _FEW]
        found = self._of(columns) if columns else None
        if found is None:
            return make(*values)
        which, count = _numbered(*found[1:])
        if 2 * count > which.size:
            return make(*values)
        first = arrays().empty(count, dtype="int64")
        first[which] = arrays().arange(which.size)
        return taken(make(*taken(values, first)), which)

    def _of(self, columns: list[Any]) -> tuple[Any, Any, int] | None:
        """The columns, a number for the combination of each point, and a bound of these; None where they are no such columns, or differ in too many ways."""
        key = tuple(map(id, columns))
        if key not in self._known:
            self._known[key] = self._one(columns[0]) if len(columns) == 1 else self._more(columns)
        return self._known[key]

    def _more(self, columns: list[Any]) -> tuple[Any, Any, int] | None:
        most, last = self._of(columns[:-1]), self._of(columns[-1:])
        if most is None or last is None or last[2] == 1:
            return most if last else None
        if most[2] * last[2] > 4 * columns[0].size:
            most = (columns, *_numbered(*most[1:]))
        if most[2] * last[2] > 4 * columns[0].size:
            return None
        return columns, most[1] * last[2] + last[1], most[2] * last[2]

    @staticmethod
    def _one(column: Any) -> tuple[Any, Any, int] | None:
        whole = column.astype("int64")
        if not (whole == column).all() or whole.min() < 0 or (most := int(whole.max())) >= _WIDE:
            return None
        return column, *_numbered(whole, most + 1)


def _numbered(places: Any, size: int) -> tuple[Any, int]:
    """Places below a bound, those that occur numbered from zero, and how many these are."""
    numpy = arrays()
    seen, number = numpy.zeros(size, dtype=bool), numpy.empty(size, dtype="int64")
    seen[places] = True
    (there,) = seen.nonzero()
    number[there] = numpy.arange(there.size)
    return taken(number, places), there.size


def _columns(value: Any) -> Iterator[Any]:
    """The columns in a key: arrays with a value for each point, alone or in records."""
    if isinstance(value, tuple):
        for each in value:
            yield from _columns(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _columns(getattr(value, name))
    elif getattr(value, "ndim", 0) == 1:
        yield value


def once_each(function: Callable[..., Any], *counts: Any) -> Any:
    """``function(*counts)``; of long arrays of whole numbers every combination that occurs is computed once. It gives an array or a tuple of them."""
    return Combined().once(counts, function, *counts)
