"""What the explorer asks: a quick answer to a plan while a slider moves, and the slower parts one by one.

    explore      words, numbers and charts of a plan; a few milliseconds
    sensitivity  what each figure of the hardware is worth
    cheapest     the cheapest change; seconds, where layouts are searched
    settle       the plan with its layout searched and written down
    why          the equations behind a number
    compare      two plans side by side
    scenario     a plan as a TOML file, and ``read_plan`` back; ``evaluate`` everything as JSON
    catalogue    what the menus offer
    take_model   a Hugging Face configuration as a model of this visit

A plan travels as its document (:meth:`mlsysim.plans.plan.Plan.document`). Answers are kept by document, so that asking why, or
comparing, does not evaluate again.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.importers.hf import read_config
from mlsysim.labs import catalogue as lists
from mlsysim.labs.charts import charts_of, charts_of_both, sensitivity_chart
from mlsysim.labs.rpc import offer
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.changes import settled
from mlsysim.plans.compare import compare_answers
from mlsysim.plans.evaluate import evaluate as answer_to
from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plans.fleet_text import find_system
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import FREE
from mlsysim.plans.resolve import FIRST_ORDER, find_fleets, workload_of
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import to_si
from mlsysim.units.text import format_value

Document = dict[str, Any]

_KEPT = 64
_LARGEST_CONFIG = 1_000_000
_TOLD = ("task", "fidelity", "feasible", "passed", "subject", "headline", "interval", "assumptions", "questions")


def _plan(document: Document) -> Plan:
    if not isinstance(document, dict):
        raise InputError(f"A plan is a table of workload, hardware and so on, not {type(document).__name__}.")
    # Through the reader of plan files, which refuses unknown keys with the nearest valid one.
    return plan_from_text(json.dumps(document), "json", "The plan")


@lru_cache(maxsize=_KEPT)
def _kept(text: str) -> Answer:
    return answer_to(_plan(json.loads(text)), change=False)


def _answer(document: Document) -> Answer:
    return _kept(json.dumps(document, sort_keys=True))


@offer
def evaluate(plan: Document) -> Document:
    """The answer to a plan as JSON, without charts and change."""
    return _answer(plan).to_dict()


@offer
def explore(plan: Document, width: int = 720, wide: int = 720) -> Document:
    """The quick answer: words, texts of metrics, charts for a width, and what the controls should show."""
    answer = _answer(plan)
    return {
        **{name: getattr(answer, name) for name in _TOLD},
        "verdict": list(answer.verdict),
        "binding": answer.binding.sentence,
        "next_wall": None if answer.next_wall is None else answer.next_wall.sentence,
        "checks": [check.model_dump() for check in answer.checks],
        "main": answer.metric(answer.main).path,
        "metrics": [_metric(metric) for metric in answer.metrics],
        "charts": charts_of(answer, width, wide),
        "chosen": _chosen(answer),
        "figures": _figures(answer.plan),
    }


def _metric(metric: Any) -> Document:
    told = {name: getattr(metric, name) for name in ("path", "label", "level", "text", "wall")}
    return {**told, "interval": metric.interval_text}


def _chosen(answer: Answer) -> Document:
    """What was taken for fields that the plan leaves open, by path, for the controls to show."""
    layout, assumed, plan = answer.layout, answer.assumptions, answer.plan
    found: Document = {"task": answer.task}
    found |= {f"parallelism.{name}": layout[name] for name in ("tp", "pp", "ep", "cp", "dp") if name in layout}
    if answer.task == "training" and "micro_batches" in layout:
        for name in ("virtual_stages", "zero", "recompute"):
            found[f"parallelism.{name}"] = layout[name]
        found["parallelism.micro_batch"] = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
        found["workload.batch_size"], found["workload.seq_len"] = layout["batch_size"], layout["seq_len"]
    if answer.task == "serving":
        found["serving.replicas"] = layout.get("replicas")
        found["serving.concurrency"] = layout.get("concurrency")
        for name in ("prompt_tokens", "output_tokens"):
            if name in assumed:
                found[f"serving.{name}"] = int(assumed[name].replace(",", ""))
        part = plan.serving
        limits = {"ttft": "ms", "tpot": "ms", "latency": "s"}
        found |= {f"serving.{name}": _in(getattr(part, name, None), unit) for name, unit in limits.items()}
    found["workload.precision"] = plan.workload.precision or assumed.get("precision")
    found["workload.batch_size"] = found.get("workload.batch_size", plan.workload.batch_size or 1)
    ops = plan.ops
    found |= {"ops.days": ops.days, "ops.budget": _in(ops.budget, "USD"), "ops.deadline": _in(ops.deadline, "day")}
    found["hardware.efficiency"] = plan.hardware.efficiency or (
        "calibrated" if answer.fidelity == "calibrated" else FIRST_ORDER
    )
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
    named = re.sub(r"^\s*[\d_,]+\s*[xX×*]\s*", "", str(found["system"])).partition("@")[0].strip()
    kind, entry = find_system(named)
    fabric = fleet.fabric.metadata.key if fleet.count > 1 else None
    found |= {"system": entry.metadata.key, "system_kind": kind, "hardware.fabric": fabric}
    return {**found, "per_node": fleet.node.accelerators_per_node}


_UNITS = {
    "peak_flops": ("PFLOPs/s", "TFLOPs/s", "GFLOPs/s", "MFLOPs/s"),
    "memory_bandwidth": ("TB/s", "GB/s", "MB/s"),
    "memory_capacity": ("GB", "MB", "kB"),
    "link_bandwidth": ("GB/s", "MB/s"),
    "fabric_bandwidth": ("GB/s", "MB/s"),
    "tdp": ("W", "mW"),
    "price": ("USD",),
}


def _figures(plan: Plan) -> Document:
    """Figures of the chip for the panel that edits them: the zoo's and the plan's, in the unit in which the zoo's reads best."""
    zoo = find_fleets(plan.hardware.model_copy(update={"chip": None}))
    if len(zoo.fleets) != 1:
        return {}
    edited = _of_fleet(find_fleets(plan.hardware).one)
    found: Document = {}
    for name, value in _of_fleet(zoo.one).items():
        if value is not None:
            units = [unit for unit in _UNITS[name] if value.to(unit).magnitude >= (10 if unit == "PFLOPs/s" else 1)]
            unit = units[0] if units else _UNITS[name][-1]
            found[name] = {"zoo": _six(value.to(unit)), "now": _six(edited[name].to(unit)), "unit": unit}
    return found


def _six(value: Any) -> float:
    return float(f"{value.magnitude:.6g}")


def _of_fleet(fleet: Fleet) -> dict[str, Any]:
    chip = fleet.node.accelerator
    return {
        "peak_flops": chip.compute.peak_flops,
        "memory_bandwidth": chip.memory.bandwidth,
        "memory_capacity": chip.memory.capacity,
        "link_bandwidth": fleet.node.intra_node_bw if fleet.node.accelerators_per_node > 1 else None,
        "fabric_bandwidth": fleet.fabric.bandwidth if fleet.count > 1 else None,
        "tdp": chip.tdp,
        "price": chip.unit_cost,
    }


@offer
def sensitivity(plan: Document, width: int = 720) -> Document:
    """What 10 % less and 10 % more of each figure of the hardware does to the main metric, and the chart of it."""
    answer = _answer(plan)
    return {
        "chart": sensitivity_chart(answer, answer.sensitivities, width),
        "changes": {name: list(pair) for name, pair in answer.sensitivities.items()},
    }


@offer
def cheapest(plan: Document) -> Document | None:
    """The cheapest change that betters the plan, with the whole plan that it makes; seconds where layouts are searched."""
    document: Document | None = answer_to(_plan(plan)).to_dict()["change"]
    return document


@offer
def settle(plan: Document) -> Document:
    """The plan with everything that was chosen for it written down. The data-parallel degree stays what the others leave."""
    return settled(_answer(plan)).replacing(parallelism={"dp": None}).document()


@offer
def search_layout(plan: Document) -> Document:
    """The plan with the best layout of all that fit."""
    searched = {key: value for key, value in plan.items() if key != "parallelism"}
    split = plan.get("parallelism") or {}
    kept = {name: split[name] for name in ("sequence_parallel", *FREE) if name in split and name != "mode"}
    if "serving" in searched:
        searched["serving"] = {key: value for key, value in searched["serving"].items() if key != "replicas"}
        return {**searched, "parallelism": kept} if kept else searched
    return settle({**searched, "parallelism": {"mode": "auto", **kept}})


@offer
def why(plan: Document, metric: str) -> Document:
    """Where a number comes from: equations with their values, assumptions, sources."""
    answer = _answer(plan)
    found = answer.metric(metric)
    equations = answer.explain(metric)
    same_wall = [score for score in answer.scorecard if score.wall == found.wall]
    return {
        **_metric(found),
        "wall_name": same_wall[0].name if same_wall else "",
        "equations": [equation.model_dump() for equation in equations],
        "assumptions": answer.assumptions,
        "sources": answer.sources,
    }


@offer
def compare(first: Document, second: Document, width: int = 720) -> Document:
    """Two plans of one task: metrics with factors, sentences, charts of both."""
    one, two = _answer(first), _answer(second)
    # Both may be of the same model on the same fleet.
    found = compare_answers(
        one.model_copy(update={"subject": "the pinned design"}), two.model_copy(update={"subject": "this design"})
    )
    return {
        "subjects": [one.subject, two.subject],
        "sentences": [sentence[:1].upper() + sentence[1:] for sentence in found.sentences],
        "rows": [
            {"path": row.name, "label": row.label, "first": row.first, "second": row.second, "factor": row.factor_text}
            for row in found.rows
        ],
        "charts": charts_of_both(one, two, width),
    }


@offer
def scenario(plan: Document) -> str:
    """The plan as a TOML file that every command takes."""
    return plan_to_toml(_plan(plan))


@offer
def read_plan(text: str, form: str = "toml") -> Document:
    """The document of a plan file."""
    return plan_from_text(text, form).document()


@offer
def first_design() -> Document:
    """The design that the explorer starts with: the tutorial's run."""
    return AUDITED.document()


@offer
def catalogue(what: str) -> Any:
    """A list for a menu: models, chips, or all the short ones."""
    makers = {"models": lists.models, "chips": lists.chips, "short": lists.short_lists}
    if what not in makers:
        raise unknown_name("list", what, makers)
    return makers[what]()


@offer
def take_model(text: str, name: str = "") -> Document:
    """A model of this visit from the text of a config.json; its name is then known to every plan."""
    if len(text) > _LARGEST_CONFIG:
        raise InputError(f"The file has {len(text):,} characters, which no model's configuration has.")
    report = read_config(text, None, source=name or "config.json")
    # The digest keeps two configurations of one name apart, and from the zoo's own.
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    key = f"Imported_{re.sub(r'[^0-9A-Za-z]+', '_', report.name).strip('_')}_{digest}"
    Models.add(report.workload, key=key)
    _kept.cache_clear()
    return {
        "key": key,
        "name": report.name,
        "group": "Imported",
        "note": lists.size_text(report.workload),
        "context": report.context,
        "parameters": format_value(report.parameters),
        "warnings": list(report.warnings),
        "unread": list(report.unread),
    }
