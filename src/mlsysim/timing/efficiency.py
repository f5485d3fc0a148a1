"""Classes of work and the share of the peak that publications report for them (``data/efficiency.toml``)."""

from __future__ import annotations

from functools import cache
from typing import Any

from mlsysim.errors import unknown_name
from mlsysim.units.fields import Record
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum
from mlsysim.zoo.files import entries, parse_slice
from mlsysim.zoo.provenance import Source


@kernel("""
    efficiency [0.01, 1], operations: flop [1e6, 1e18], moved: byte [1e3, 1e13], peak: flop/s [1e9, 1e16],
    bandwidth: byte/s [1e6, 1e14] -> efficiency
""")
def roofline_limited(efficiency: Any, operations: Any, moved: Any, peak: Any, bandwidth: Any) -> Any:
    """The class's efficiency, or arithmetic intensity over ridge point where that is less."""
    return minimum(efficiency, (operations / moved) * (bandwidth / peak))


@kernel("""
    products: flop [1e6, 1e18], products_efficiency [0.01, 1], attention: flop [1e6, 1e18],
    attention_efficiency [0.01, 1] -> efficiency
""")
def blended_efficiency(products: Any, products_efficiency: Any, attention: Any, attention_efficiency: Any) -> Any:
    """Efficiency of work in two parts that run one after the other: the times add, so the inverses do."""
    return (products + attention) / (products / products_efficiency + attention / attention_efficiency)


class EfficiencyClass(Record):
    """A class of work: the range of eta that publications report and a value to start from."""

    name: str
    meaning: str
    low: float
    typical: float
    high: float
    sources: tuple[Source, ...]


@cache
def efficiency_class(name: str) -> EfficiencyClass:
    """The class of that name."""
    index = entries("mlsysim.data", "efficiency.toml")
    if name not in index:
        raise unknown_name("class of work", name, index)
    return EfficiencyClass(name=name, **parse_slice(index[name]))
