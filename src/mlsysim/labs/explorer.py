"""What the explorer asks: a quick answer to a plan while a slider moves (``at_once``, then ``further``), and the slower parts one by one.

A plan travels as its document (:meth:`mlsysim.plans.plan.Plan.document`). Answers are kept by document, so that asking why, or
comparing, does not evaluate again.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import lru_cache
from operator import attrgetter
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.documents import Document, plan_of
from mlsysim.labs.gauges import gauges
from mlsysim.labs.origins import origins
from mlsysim.labs.rpc import offer
from mlsysim.labs.sentence import sentence
from mlsysim.labs.time_bar import time_bar
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.changes import settled
from mlsysim.plans.compare import compare_answers
from mlsysim.plans.equations import numbers_alone
from mlsysim.plans.evaluate import evaluate as answer_to
from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import FIRST_ORDER, find_fleets, workload_of
from mlsysim.plans.training_layout import BESIDE
from mlsysim.plot.answers import (
    memory_of,
    over_time_of,
    percentiles_of,
    roofline_of,
    scorecard_of,
    tornado_of,
)
from mlsysim.plot.figure import Figure
from mlsysim.systems.fleet_text import find_system, parts_of
from mlsysim.units.registry import to_si

_KEPT = 256
_TOLD = (
    "task",
    "fidelity",
    "feasible",
    "overloaded",
    "passed",
    "subject",
    "headline",
    "interval",
    "warnings",
    "assumptions",
    "questions",
)


@lru_cache(maxsize=_KEPT)
def _kept(text: str, equations: bool = False) -> Answer | InputError:
    """The answer, or why there is none: a curve asks for both again and again."""
    try:
        with nullcontext() if equations else numbers_alone():
            return answer_to(plan_of(json.loads(text)), change=False)
    except InputError as error:
        return error


def answer_of(document: Document, equations: bool = False) -> Answer:
    """The answer to a plan, kept by its document; its equations, which take a fifth of its time, where they are asked for."""
    found = _kept(json.dumps(document, sort_keys=True), equations)
    if isinstance(found, InputError):
        raise found.with_traceback(None)
    return found


def computed() -> int:
    """How many answers were not kept, and so computed."""
    return _kept.cache_info().misses


def forget() -> None:
    """Compute answers anew: a name may mean another model now."""
    _kept.cache_clear()


@offer
def evaluate(plan: Document) -> Document:
    """The answer to a plan as JSON, without charts and change."""
    return answer_of(plan, equations=True).to_dict()


@offer
def at_once(plan: Document) -> Document:
    """What a page shows first of an answer: words, gauges, the bar of time, and what the controls should show."""
    answer = answer_of(plan)
    chosen = _chosen(answer)
    return {
        **{name: getattr(answer, name) for name in _TOLD},
        "verdict": list(answer.verdict),
        "binding": answer.binding.sentence,
        "next_wall": None if answer.next_wall is None else answer.next_wall.sentence,
        "ruling": answer.ruling.model_dump(),
        "sentence": sentence(answer, chosen),
        "gauges": gauges(answer),
        "time_bar": time_bar(answer),
        "checks": [check.model_dump() | {"certain": check.certain, "state": check.state} for check in answer.checks],
        "chosen": chosen,
    }


@offer
def further(plan: Document, width: int = 720, wide: int = 720) -> Document:
    """What a page shows next: texts of all metrics, where values come from, charts for a width, figures of the chip."""
    answer = answer_of(plan)
    return {
        "origins": origins(answer),
        "main": answer.metric(answer.main).path,
        "metrics": [_metric(metric) for metric in answer.metrics],
        "charts": charts_of(answer, width, wide),
        "figures": _figures(answer.plan),
    }


@offer
def explore(plan: Document, width: int = 720, wide: int = 720) -> Document:
    """Both together."""
    return at_once(plan) | further(plan, width, wide)


def _metric(metric: Any) -> Document:
    told = {name: getattr(metric, name) for name in ("path", "label", "level", "text", "wall")}
    return {**told, "interval": metric.interval}


def _chosen(answer: Answer) -> Document:
    """What was taken for fields that the plan leaves open, by path, for the controls to show."""
    layout, assumed, plan = answer.layout, answer.assumptions, answer.plan
    found: Document = {"task": answer.task}
    found |= {
        f"parallelism.{name}": layout[name] for name in ("tp", "pp", "ep", "cp", "dp", "attention_dp") if name in layout
    }
    if answer.task == "training" and "micro_batches" in layout:
        found |= {f"parallelism.{name}": layout[name] for name in ("virtual_stages", "zero", "recompute")}
        found["parallelism.micro_batch"] = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
        found["workload.batch_size"], found["workload.seq_len"] = layout["batch_size"], layout["seq_len"]
    if answer.task == "serving":
        found |= {f"serving.{name}": layout.get(name) for name in ("replicas", "concurrency")}
        said = {name: assumed[name] for name in ("prompt_tokens", "output_tokens") if name in assumed}
        found |= {f"serving.{name}": int(text.replace(",", "")) for name, text in said.items()}
        limits = {"ttft": "ms", "tpot": "ms", "latency": "s"}
        found |= {f"serving.{name}": _in(getattr(plan.serving, name, None), unit) for name, unit in limits.items()}
    found["workload.precision"] = plan.workload.precision or assumed.get("precision")
    found["workload.batch_size"] = found.get("workload.batch_size", plan.workload.batch_size or 1)
    ops = plan.ops
    found |= {"ops.days": ops.days, "ops.budget": _in(ops.budget, "USD"), "ops.deadline": _in(ops.deadline, "day")}
    default = FIRST_ORDER if answer.fidelity == "first order" else "calibrated"
    found["hardware.efficiency"] = plan.hardware.efficiency or default
    found["experts"] = getattr(workload_of(plan.workload), "experts", 1)
    found |= _system(plan)
    return {path: value for path, value in found.items() if value is not None}


def _in(value: Any, unit: str) -> float | None:
    return None if value is None else float(f"{to_si(value, unit):.6g}")


def _system(plan: Plan) -> Document:
    """Chip, node or cluster of the plan, and how many accelerators there are in all and in a node."""
    groups = find_fleets(plan.hardware)
    found: Document = {"accelerators": groups.accelerators, "system": plan.hardware.on or plan.hardware.name}
    if len(groups.fleets) > 1:
        return {**found, "system_kind": "several"}
    fleet = groups.one
    kind, entry = find_system(parts_of(str(found["system"]))[1])
    fabric = fleet.fabric.metadata.key if fleet.count > 1 else None
    found |= {"system": entry.metadata.key, "system_kind": kind, "hardware.fabric": fabric}
    return {**found, "per_node": fleet.node.accelerators_per_node}


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
            found[name] = {"zoo": _in(value, unit), "now": _in(attrgetter(place)(edited), unit), "unit": unit}
    return found


# --- charts, as SVG texts by name; what an answer has no data for is left out -----------------------------------------

_ROOFLINE, _MEMORY = "Roofline of one chip", "Memory of one accelerator"


def charts_of(answer: Answer, width: int, wide: int) -> dict[str, str]:
    """The charts of one answer. Memory and scorecard have a width of their own."""
    return _drawn(
        roofline=roofline_of([("", answer)], title=_ROOFLINE, width=width),
        memory=memory_of([("Each accelerator", answer)], title=_MEMORY, width=wide),
        percentiles=percentiles_of(answer, title="Percentiles of the requests", width=width),
        traffic=over_time_of(answer, title="Requests over time", width=width),
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


# --- the slower parts -------------------------------------------------------------------------------------------------


@offer
def sensitivity(plan: Document, width: int = 720) -> Document:
    """What 10 % less and 10 % more of each figure of the hardware does to the main metric, and the chart of it."""
    answer = answer_of(plan)
    changes = {name: list(pair) for name, pair in answer.sensitivities.items()}
    return {"chart": sensitivity_chart(answer, answer.sensitivities, width), "changes": changes}


@offer
def cheapest(plan: Document) -> Document | None:
    """The cheapest change that betters the plan, with the whole plan that it makes; seconds where layouts are searched."""
    document: Document | None = answer_to(plan_of(plan)).to_dict()["change"]
    return document


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
    if "serving" in searched:
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
        "pinned": {"chosen": _chosen(one), "figures": _figures(one.plan), "time_bar": time_bar(one)},
    }


@offer
def scenario(plan: Document, models: dict[str, str] | None = None) -> str:
    """The plan as a TOML file that every command takes, with the configurations of those imported models that it names."""
    used = json.dumps(plan)
    return plan_to_toml(plan_of(plan), {key: text for key, text in (models or {}).items() if json.dumps(key) in used})


@offer
def read_plan(text: str, form: str = "toml") -> Document:
    """The document of a plan file."""
    return plan_from_text(text, form).document()


@offer
def first_design() -> Document:
    """The design that the explorer starts with: the tutorial's run."""
    return AUDITED.document()
