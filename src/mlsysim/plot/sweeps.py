"""A chart of a sweep: its Pareto front, or the best that each value of an axis allows."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.plot.amounts import MOST
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.charts.pareto import front, pareto
from mlsysim.plot.figure import Figure
from mlsysim.plot.frame import in_sentence, with_unit
from mlsysim.plot.keys import title_of_key, title_of_output
from mlsysim.search.space import UNNAMED, Goal, Space
from mlsysim.search.tabled import shown_unit, value_text
from mlsysim.units.registry import quantity


def chart_of(space: Space, result: Any) -> Figure:
    """The trade-off of the front's first two outputs, else the best objective that each value of the longest axis allows."""
    if result.pareto and len(space.pareto) > 1:
        return _front(space, result)
    known = {axis: [each for each in held if each["best"] is not None] for axis, held in result.marginals.items()}
    axis = max(known, key=lambda name: len(known[name]), default=None)
    if axis is None or not known[axis]:
        raise InputError("No design is feasible, so there is nothing to draw.")
    names = [
        ", ".join(value_text(space, k, v) for k, v in each.items() if k not in ("best", "feasible")) for each in known[axis]
    ]  # fmt: skip
    y_title, unit = title_of_output(space.kind, result.objective)
    best = "most" if result.direction == "maximize" else "least"
    series = [(best, [(float(k), _amount(each["best"], unit).magnitude) for k, each in enumerate(known[axis])])]
    titles: dict[str, Any] = {"x_title": _axis_title(space, axis), "y_title": y_title, "y_unit": unit}
    return lines(series, **titles, names=names, title=_titled(result, f"{best} {in_sentence(y_title)}"))


def _front(space: Space, result: Any) -> Figure:
    """The first two outputs of the front. Of more designs than a chart holds those that nothing beats in these two, and some of the others."""
    goals = space.pareto[:2]
    told = [title_of_output(space.kind, goal.output) for goal in goals]
    better = _better(goals[0]), _better(goals[1])
    found = [(point["inputs"], tuple(point["outputs"][goal.output] for goal in goals)) for point in result.pareto]
    found = [(inputs, values) for inputs, values in found if None not in values]
    kept = front([values for _, values in found], better)[:MOST]
    others = [k for k in range(len(found)) if k not in set(kept)]
    every = -(-len(others) // max(MOST - len(kept), 1)) or 1
    shown = [found[k] for k in sorted([*kept, *others[::every]][:MOST])]
    alike = {name for name in shown[0][0] if all(inputs[name] == shown[0][0][name] for inputs, _ in shown)}
    points = [
        (_label(space, inputs, alike), *(_amount(v, unit) for v, (_, unit) in zip(values, told, strict=True)))
        for inputs, values in shown
    ]
    more = "" if len(shown) == len(found) else f"{len(shown)} of {len(found):,} designs."
    titles: dict[str, Any] = {
        "x_title": told[0][0],
        "y_title": told[1][0],
        "title": _titled(result, f"{told[1][0]} against {in_sentence(told[0][0])}"),
        "subtitle": more,
    }
    return pareto(points, goals=better, **titles)


def _titled(result: Any, words: str) -> str:
    """What a chart shows, after the name of its space where it has one."""
    return words[:1].upper() + words[1:] if result.name == UNNAMED else f"{result.name}: {in_sentence(words)}"


def _better(goal: Goal) -> str:
    return "high" if goal.larger else "low"


def _amount(value: float, unit: str) -> Any:
    """A number of an output as a quantity; shares in per cent."""
    return quantity(value, "" if unit == "percent" else unit).to(unit)


def _axis_title(space: Space, axis: str) -> str:
    """Inputs of an axis in words, with the unit that its values do not say themselves."""
    return ", ".join(with_unit(title_of_key(name), shown_unit(space, name)) for name in axis.split(", "))


def _label(space: Space, inputs: dict[str, Any], alike: set[str]) -> str:
    """What sets a design apart; numbers with the name of what they are."""
    texts = []
    for name, value in inputs.items():
        if name not in alike:
            text = value_text(space, name, value)
            bare = text == "none" or (not isinstance(value, str) and text[-1:].isdigit())
            texts.append(f"{in_sentence(title_of_key(name))} {text}" if bare else text)
    return ", ".join(texts) or "all of them"
