"""Constants that belong to no chip, model or region, each with its source: ``data/constants.toml``."""

from functools import cache, cached_property
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_
from mlsysim.zoo.files import entries, parse_slice
from mlsysim.zoo.provenance import Source


class Constant(Record):
    """A named number with its unit, what it means and where it comes from."""

    name: str
    value: str | float | int
    meaning: str
    source: Source

    @cached_property
    def quantity(self) -> Any:
        """The value as a quantity."""
        return Q_(self.value) if isinstance(self.value, str) else Q_(self.value, "")

    @cached_property
    def number(self) -> float:
        """The value of a dimensionless constant."""
        return float(self.quantity.to("").magnitude)


def constant_names() -> list[str]:
    """Names of all constants."""
    return list(entries("mlsysim.data", "constants.toml"))


@cache
def constant(name: str) -> Constant:
    """The constant of that name."""
    index = entries("mlsysim.data", "constants.toml")
    if name not in index:
        raise unknown_name("constant", name, index)
    return Constant(name=name, **parse_slice(index[name]))
