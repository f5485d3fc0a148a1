"""Numbers of each combination of some inputs of a space, worked out when first met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.walls.inputs import Input

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

_MOST_ROWS = 2**22


Compute = Callable[[dict[str, Any]], list[float]]
"""From the values of one combination to a number for each field."""


def table(
    space: Space,
    what: str,
    inputs: tuple[str, ...],
    declared: Mapping[str, Input],
    fields: tuple[str, ...],
    compute: Compute,
) -> Table:
    """The table of a space under a name, made once; inputs that are not given have their declared default."""
    if what not in space.cache:
        defaults = {name: declared[name].default for name in inputs}
        space.cache[what] = Table(space, inputs, fields, compute, defaults, what)
    return space.cache[what]


class Table:
    """``fields`` of each combination of those of ``inputs`` that are on axes.

    ``compute`` gets the values of one combination, fixed inputs and ``defaults`` included, and gives a number for each field.
    """

    def __init__(
        self, space: Space, inputs: Iterable[str], fields: tuple[str, ...], compute: Compute, defaults: Any, what: str
    ) -> None:
        self.space, self.inputs, self.fields, self.compute = space, tuple(inputs), fields, compute
        self.defaults = defaults
        self.homes = sorted({space.homes[name] for name in self.inputs if name in space.homes})
        self.columns = [next(iter(space.axes[home].columns)) for home in self.homes]
        self.sizes = [space.axes[home].size for home in self.homes]
        size = math.prod(self.sizes)
        if size > _MOST_ROWS:
            most = f"spaces of kind {space.kind!r} may have {_MOST_ROWS:,}"
            raise InputError(f"The space {space.name!r} has {size:,} different {what}; {most}.")
        self.rows = np.full((len(fields), size), np.nan)
        self.known = np.zeros(size, dtype=bool)

    def take(self, columns: Columns) -> dict[str, Any]:
        """The fields at these points, or one of each for all."""
        code: Any = 0
        for column, size in zip(self.columns, self.sizes, strict=True):
            code = code * size + columns.positions[column]
        if not np.all(self.known[code]):
            for missing in np.unique(code).tolist():
                if not self.known[missing]:
                    self.rows[:, missing] = self.compute(self._values(missing))
                    self.known[missing] = True
        return {name: row[code] for name, row in zip(self.fields, self.rows, strict=True)}

    def _values(self, code: int) -> dict[str, Any]:
        places = {}
        for home, size in zip(reversed(self.homes), reversed(self.sizes), strict=True):
            code, places[home] = divmod(code, size)
        found = {}
        for name in self.inputs:
            if name in self.space.homes:
                home = self.space.homes[name]
                found[name] = self.space.axes[home].columns[name][places[home]]
            else:
                found[name] = self.space.fixed.get(name, self.defaults[name])
        return found
