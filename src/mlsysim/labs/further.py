"""What the explorer asks once the words of an answer stand: numbers, origins and charts (``further``), and the slower parts one by one.

This module comes after the first answer (``bridge.LATER``), since charts and comparisons are a part of the engine that the words do without.

What an answer rests on, by where each value comes from: given in the plan, searched, of the software, of the chip, of the checkpoint, inferred, or assumed.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import PurePath
from typing import Any

from mlsysim.cases.assumptions import CHECKPOINT, CHIP, DEFAULT, IDLE, INFERRED, SEARCHED, SOFTWARE, UNKNOWN, Assumption
from mlsysim.labs.explorer import Document, answer_of, at_once, chosen_for, in_unit, plan_of
from mlsysim.labs.gauges import time_bar
from mlsysim.labs.rpc import offer
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.compare import compare_answers
from mlsysim.plans.evaluate import completed
from mlsysim.plans.evaluate import evaluate as answer_to
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.rl_part import AUTO, COLOCATED
from mlsysim.plans.training_layout import BESIDE
from mlsysim.plot.answers import memory_of, over_time_of, percentiles_of, roofline_of, scorecard_of, tornado_of
from mlsysim.plot.figure import Figure
from mlsysim.units.text import number


@offer
def further(plan: Document, width: int = 720, wide: int = 720, folded: bool = True) -> Document:
    """What a page shows next: texts of all metrics, where values come from, charts for a width (with those of a fold or without), figures of the chip."""
    answer = answer_of(plan)
    return {
        "origins": origins(answer),
        "main": answer.metric(answer.main).path,
        "metrics": [_metric(metric) for metric in answer.metrics],
        "charts": charts_of(answer, width, wide, folded),
        "figures": _figures(answer.plan),
    }


@offer
def explore(plan: Document, width: int = 720, wide: int = 720) -> Document:
    """Both together."""
    return at_once(plan) | further(plan, width, wide)


def _metric(metric: Any) -> Document:
    told = {name: getattr(metric, name) for name in ("path", "label", "level", "text", "wall")}
    return {**told, "interval": metric.interval}


_FIGURES = {
    "peak_flops": ("node.accelerator.compute.peak_flops", ("PFLOPs/s", "TFLOPs/s", "GFLOPs/s", "MFLOPs/s")),
    "memory_bandwidth": ("node.accelerator.memory.bandwidth", ("TB/s", "GB/s", "MB/s")),
    "memory_capacity": ("node.accelerator.memory.capacity", ("GB", "MB", "kB")),
    "link_bandwidth": ("node.intra_node_bw", ("GB/s", "MB/s")),
    "fabric_bandwidth": ("fabric.bandwidth", ("GB/s", "MB/s")),
    "tdp": ("node.accelerator.tdp", ("W", "mW")),
    "price": ("node.accelerator.unit_cost", ("USD",)),
}
"""Figures of a chip and its links: where a fleet has them, and the units of which one is taken."""


def _figures(plan: Plan) -> Document:
    """Figures of the chip for the panel that edits them: the zoo's and the plan's, in the unit in which the zoo's reads best."""
    zoo = find_fleets(plan.hardware.model_copy(update={"chip": None}))
    if len(zoo.fleets) != 1:
        return {}
    fleet, edited = zoo.one, find_fleets(plan.hardware).one
    alone = {"link_bandwidth": fleet.node.accelerators_per_node == 1, "fabric_bandwidth": fleet.count == 1}
    found: Document = {}
    for name, (place, units) in _FIGURES.items():
        value = None if alone.get(name) else attrgetter(place)(fleet)
        if value is not None:
            large = [unit for unit in units if value.to(unit).magnitude >= (10 if unit == "PFLOPs/s" else 1)]
            unit = large[0] if large else units[-1]
            found[name] = {"zoo": in_unit(value, unit), "now": in_unit(attrgetter(place)(edited), unit), "unit": unit}
    return found


_ROOFLINE, _MEMORY = "Roofline of one chip", "Memory of one accelerator"


def charts_of(answer: Answer, width: int, wide: int, folded: bool = True) -> dict[str, str]:
    """The charts of one answer. Memory and scorecard are folded, with a width of their own."""
    shown = _drawn(
        roofline=roofline_of([("", answer)], title=_ROOFLINE, width=width),
        percentiles=percentiles_of(answer, title="Percentiles of the requests", width=width),
        traffic=over_time_of(answer, title="Requests over time", width=width),
    )
    if not folded:
        return shown
    return shown | _drawn(
        memory=memory_of([("Each accelerator", answer)], title=_MEMORY, width=wide),
        scorecard=scorecard_of(answer, title="Scorecard by wall", width=wide),
    )


def _charts_of_both(first: Answer, second: Answer, width: int) -> dict[str, str]:
    """Two answers: one roofline and one pair of memory bars for both."""
    named = [("pinned", first), ("now", second)]
    return _drawn(
        roofline=roofline_of(named, title=_ROOFLINE, width=width),
        memory=memory_of(named, title=_MEMORY, width=width),
    )


def sensitivity_chart(answer: Answer, changes: dict[str, tuple[float | None, float | None]], width: int) -> str | None:
    """The tornado of changes of the main metric."""
    title = f"What moves {answer.metric(answer.main).label.lower()}"
    return _drawn(chart=tornado_of(answer, changes, title=title, width=width)).get("chart")


def _drawn(**figures: Figure | None) -> dict[str, str]:
    return {name: figure.svg() for name, figure in figures.items() if figure is not None}


@offer
def sensitivity(plan: Document, width: int = 720) -> Document:
    """What 10 % less and 10 % more of each figure of the hardware does to the main metric, and the chart of it."""
    answer = answer_of(plan)
    changes = {name: list(pair) for name, pair in answer.sensitivities.items()}
    return {"chart": sensitivity_chart(answer, answer.sensitivities, width), "changes": changes}


@offer
def cheapest(plan: Document, held: Document | None = None) -> Document | None:
    """The cheapest change that betters the plan, with the whole plan that it makes; seconds where layouts are searched. ``held`` is the plan with
    what was found for it written down, which has the same answer and need not be searched again."""
    asked, found = plan_of(plan), answer_of(held or plan)
    whole = completed(found.model_copy(update={"plan": asked})) if found.runs else answer_to(asked)
    return whole.to_dict()["change"]


@offer
def settle(plan: Document) -> Document:
    """The plan with everything that was chosen for it written down. The data-parallel degree stays what the others leave."""
    return settled(answer_of(plan)).replacing(parallelism={"dp": None}).document()


@offer
def search_layout(plan: Document) -> Document:
    """The plan with the best layout of all that fit."""
    given = plan_of(plan).document()
    searched = {key: value for key, value in given.items() if key != "parallelism"}
    split = given.get("parallelism") or {}
    kept = {name: split[name] for name in BESIDE if name in split}
    if "rl" in searched:
        pools = {key: value for key, value in searched["rl"].items() if not key.startswith("generator_")}
        searched["rl"] = pools if pools.get("split", COLOCATED) == COLOCATED else {**pools, "split": AUTO}
    elif "serving" in searched:
        searched["serving"] = {key: value for key, value in searched["serving"].items() if key != "replicas"}
        return {**searched, "parallelism": kept} if kept else searched
    return settle({**searched, "parallelism": {"mode": "auto", **kept}})


@offer
def why(plan: Document, metric: str) -> Document:
    """Where a number comes from: equations with their values, assumptions, sources."""
    answer = answer_of(plan, equations=True)
    found = answer.metric(metric)
    return {
        **_metric(found),
        "wall_name": next((score.name for score in answer.scorecard if score.wall == found.wall), ""),
        "equations": [equation.model_dump() for equation in answer.explain(metric)],
        "assumptions": answer.assumptions,
        "sources": answer.sources,
    }


@offer
def compare(first: Document, second: Document, width: int = 720) -> Document:
    """Two plans of one task: metrics with factors, sentences, charts of both."""
    one, two = answer_of(first), answer_of(second)
    # Both may be of the same model on the same fleet.
    subjects = ((one, "the pinned design"), (two, "this design"))
    found = compare_answers(*(answer.model_copy(update={"subject": name}) for answer, name in subjects))
    return {
        "subjects": [one.subject, two.subject],
        "sentences": [sentence[:1].upper() + sentence[1:] for sentence in found.sentences],
        "rows": [
            {"path": row.name, "label": row.label, "first": row.first, "second": row.second, "factor": row.factor_text}
            for row in found.rows
        ],
        "charts": _charts_of_both(one, two, width),
        "pinned": {"chosen": chosen_for(one), "figures": _figures(one.plan), "time_bar": time_bar(one)},
    }


GIVEN = "given"
_WORDS = {DEFAULT: "assumed", SOFTWARE: "engine", IDLE: "no effect"}
_ORDER = (GIVEN, SEARCHED, "engine", CHIP, CHECKPOINT, INFERRED, "assumed", "no effect", UNKNOWN)
_FIRST = (
    *("layout", "precision", "cache_precision", "node", "fabric", "stack", "engine", "framework"),
    *("runtime", "clients", "recipe", "fidelity", "extrapolating", "interval", "unit_cost", "kwh_price"),
    *("pue", "mtbf", "duration", "power"),
)
"""What a reader wants to know first of what was not given."""
_TRACE = "serving.trace"
_UNTOLD = ("name", "description", "task", "constraints")


def origins(answer: Answer) -> list[dict[str, Any]]:
    """Chips: the origin in a word, a name, the text, and whether it is one of those that a reader wants to know first."""
    leaves = _leaves({name: part for name, part in answer.plan.document().items() if name not in _UNTOLD})
    given = [
        _chip(GIVEN, path, PurePath(value).name if path == _TRACE else _text(value), True) for path, value in leaves
    ]
    given += [_chip(GIVEN, "limit", check.asked, True) for check in answer.checks if check.asked]
    found = [_chip(_origin(each), each.name, each.text, each.name in _FIRST) for each in answer.assumed]
    return sorted([*given, *found], key=lambda chip: _ORDER.index(chip["origin"]))


def _chip(origin: str, name: str, text: str, first: bool) -> dict[str, Any]:
    return {"origin": origin, "name": name.rpartition(".")[2].replace("_", " "), "text": text, "first": first}


def _origin(each: Assumption) -> str:
    return _WORDS.get(each.origin, each.origin)


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"magnitude", "unit"}:
        return number(value["magnitude"], value["unit"])
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _leaves(part: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(part, dict) and set(part) != {"magnitude", "unit"}:
        return [leaf for name, each in part.items() for leaf in _leaves(each, f"{path}.{name}" if path else name)]
    if isinstance(part, list):
        return [leaf for each in part for leaf in _leaves(each, path)]
    return [(path, part)]
