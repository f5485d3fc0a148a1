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
    asked: Mapping[str, Callable[[Any], Any] | str],
    *,
    of: Callable[[Any], Any] | None = None,
    unit: str = "",
    names: Callable[[Any], str] | None = None,
    **said: Any,
) -> Figure:
    """Lines over ``values``; each label has a function that gives a quantity, a number in ``unit``, or None where there is nothing to draw. A
    label may have the name of an output instead, of what ``of`` gives for a value, asked once; numbers without a unit that belong on an axis in
    per cent are fractions.

    With ``names`` values stand side by side under these names, as powers of two should.
    """
    results = [of(value) for value in values] if of else []
    series = []
    for label, ask in asked.items():
        if isinstance(ask, str):
            held = [result[ask] if isinstance(result, Mapping) else getattr(result, ask) for result in results]
            answers = [100 * y if unit == "percent" and isinstance(y, float) else y for y in held]
        else:
            answers = [ask(value) for value in values]
        found = [(k if names else value, y) for k, (value, y) in enumerate(zip(values, answers, strict=True))]
        points = [(x, y if isinstance(y, (int, float)) else to_si(y, unit)) for x, y in found if y is not None]
        if points:
            series.append((label, points))
    under = {"names": [names(value) for value in values]} if names else {}
    return lines(series, y_unit=unit, **under, **said)
