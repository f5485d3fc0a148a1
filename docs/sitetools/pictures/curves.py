"""A resolver, or any question, asked along one input: a line for each output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlsysim.plot.charts.lines import lines
from mlsysim.plot.figure import Figure
from mlsysim.units.registry import to_si

__all__ = ["along"]


def along(
    values: Sequence[Any],
    asked: Mapping[str, Callable[[Any], Any]],
    *,
    unit: str = "",
    names: Callable[[Any], str] | None = None,
    **said: Any,
) -> Figure:
    """Lines over ``values``; each label has a function that gives a quantity, a number in ``unit``, or None where there is nothing to draw.

    With ``names`` values stand side by side under these names, as powers of two should.
    """
    series = []
    for label, ask in asked.items():
        found = [(k if names else value, ask(value)) for k, value in enumerate(values)]
        points = [(x, y if isinstance(y, (int, float)) else to_si(y, unit)) for x, y in found if y is not None]
        if points:
            series.append((label, points))
    under = {"names": [names(value) for value in values]} if names else {}
    return lines(series, y_unit=unit, **under, **said)
