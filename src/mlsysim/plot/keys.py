"""A metric of a plan along one of its keys.

What the axes of charts of a sweep are called: keys of plans, inputs of spaces and outputs of their kinds, in words and with a unit.

An output that is a metric has the metric's label; the others have theirs here. What an expression ranks by is told as it was written.

A map of regimes: a plan at several values of two of its keys, and the wall that binds at each, from the answers themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import kinds
from mlsysim.plans.plan import Plan
from mlsysim.plans.varied import Point, Varied, varied
from mlsysim.plot.charts.heat_map import regime_map
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import in_sentence
from mlsysim.zoo.files import shipped


def chart_of_keys(found: Varied, metric: str | None = None) -> Figure:
    """A metric, the main one where none is named, along the key with most values; other keys have a line for each of their values."""
    if metric is not None and metric not in kinds():
        raise unknown_name("metric", metric, list(kinds()))
    answers = [point.answer for point in found.feasible if point.answer is not None]
    if not answers:
        raise InputError("No combination fits, so there is nothing to draw.")
    kind, axis = kinds()[metric or answers[0].main], max(found.axes, key=lambda key: len(found.axes[key]))
    told, across = kind.label_of(answers[0].task), title_of_key(axis)
    series: dict[str, list[tuple[float, float]]] = {}
    for point in found.feasible:
        label = ", ".join(f"{title_of_key(key)} {value}" for key, value in point.settings.items() if key != axis)
        if (value := point.value(kind.name)) is not None:
            at = float(found.axes[axis].index(point.settings[axis]))
            series.setdefault(label or told, []).append((at, value * (100 if kind.share else 1)))
    if not series:
        raise InputError(f"No combination has {kind.name!r}, so there is nothing to draw.", field="metric")
    return lines(
        [(label, sorted(points)) for label, points in series.items()],
        x_title=across,
        y_title=told,
        y_unit="percent" if kind.share else kind.unit.removesuffix("1/s"),
        names=list(map(str, found.axes[axis])),
        title=f"{told} by {in_sentence(across)}",
    )


WORDS: dict[str, dict[str, str]] = shipped("mlsysim.plot", "titles.toml")
_TASKS = {"training": "training", "serving": "serving"}


def title_of_key(name: str) -> str:
    """A key of a plan or an input of a space as a title.

    >>> title_of_key("tp_size"), title_of_key("batch_size")
    ('Tensor parallelism', 'Batch size')
    """
    keys = WORDS["keys"]
    words = keys.get(name.removesuffix("_size"), keys.get(name, name.replace("_", " ")))
    return words[:1].upper() + words[1:]


def title_of_output(kind: str, name: str) -> tuple[str, str]:
    """An output of a kind of space as a title, and the unit of its numbers.

    >>> title_of_output("serving", "ttft_s"), title_of_output("training", "kgco2e_per_run")
    (('Time to the first token', 's'), ('Carbon of the run', 'kgCO2e'))
    """
    amounts, scopes = WORDS["amounts"], WORDS["scopes"]
    amount, _, scope = name.partition("_per_")
    ending = amount if scope in scopes else name.rpartition("_")[2] if "_per_" not in name else ""
    unit, metric = WORDS["units"].get(ending, ""), kinds().get(WORDS["metrics"].get(name, name))
    if metric is not None:
        return metric.label_of(_TASKS.get(kind, "inference")), "percent" if metric.share else unit
    if amount in amounts and scope in scopes:
        return f"{amounts[amount]} of {scopes[scope]}", unit
    return WORDS["outputs"].get(name, name), unit


_UNFIT = "does not fit"


def regimes_of(
    answer: Answer, over: Mapping[str, Sequence[Any]], *, title: str | None = None, width: int = WIDE
) -> Figure:
    """What binds over two keys of the plan; a ring where the plan is. Combinations that have no meaning stay empty."""
    if len(over) != 2 or any(isinstance(values, str) or len(values) < 2 for values in over.values()):
        raise InputError("A map of regimes is over two keys of a plan, each at two values or more.", field="over")
    (across, columns), (up, rows) = over.items()
    points = varied(answer.plan, {up: rows, across: columns}).points
    grid = [[_regime(points[r * len(columns) + c]) for c in range(len(columns))] for r in range(len(rows))]
    if all(cell is None for row in grid for cell in row):
        raise InputError(f"No combination of {across} and {up} can be answered: {points[0].sentence}")
    here = next((k for k, point in enumerate(points) if point.answer and point.answer.plan == answer.plan), None)
    titles = [_title(answer.plan, key) for key in (across, up)]
    return regime_map(
        [_value(value) for value in columns],
        [_value(value) for value in rows],
        grid,
        x_title=titles[0],
        y_title=titles[1],
        here=None if here is None else (here % len(columns), here // len(columns)),
        title=title or "What binds where",
        subtitle=answer.subject,
        width=width,
    )


def _regime(point: Point) -> str | None:
    if point.answer is None:
        return None
    return point.answer.binding.name if point.answer.runs else _UNFIT


def _value(value: Any) -> Any:
    """A number that a command line gave as text, as a number."""
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return str(value)


def _title(plan: Plan, key: str) -> str:
    flat = next((leaf.flat for leaf in plan.leaves().values() if key in (leaf.key, *leaf.names)), key)
    return title_of_key(flat)
