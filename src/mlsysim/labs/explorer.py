"""What the explorer asks first: a quick answer to a plan while a slider moves. What it asks next is in ``further``.

A plan travels as its document (:meth:`mlsysim.plans.plan.Plan.document`). Answers are kept by document, so that asking why, or
comparing, does not evaluate again.

What travels between the explorer and the engine: a plan as its document, read as plan files are.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from time import perf_counter
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.gauges import gauges, time_bar
from mlsysim.labs.rpc import offer
from mlsysim.labs.sentence import sentence
from mlsysim.plans.answer import Answer
from mlsysim.plans.equations import numbers_alone
from mlsysim.plans.evaluate import evaluate as answer_to
from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import FIRST_ORDER, find_fleets, workload_of
from mlsysim.systems.fleet_text import find_system, parts_of
from mlsysim.units.registry import to_si

_KEPT = 256
_TOLD = (
    *("task", "fidelity", "feasible", "overloaded", "passed", "subject", "headline", "interval"),
    *("warnings", "assumptions", "questions"),
)


_answers: dict[tuple[str, bool], Answer | InputError] = {}
"""Answers, or why there is none, by document and with equations or without: a curve asks for both again and again."""
_took: dict[tuple[str, bool], float] = {}
"""Seconds that each took, which say of one that is kept how long one beside it will take."""


def _key(document: Document, equations: bool = False) -> tuple[str, bool]:
    return json.dumps(document, sort_keys=True), equations


def answer_of(document: Document, equations: bool = False) -> Answer:
    """The answer to a plan, kept by its document; its equations, which take a fifth of its time, where they are asked for."""
    key = _key(document, equations)
    if key not in _answers:
        if len(_answers) >= _KEPT:
            for kept in (_answers, _took):
                del kept[next(iter(kept))]
        began = perf_counter()
        try:
            with nullcontext() if equations else numbers_alone():
                _answers[key] = answer_to(plan_of(document), change=False)
        except InputError as error:
            _answers[key] = error
        _took[key] = perf_counter() - began
    found = _answers[key]
    if isinstance(found, InputError):
        raise found.with_traceback(None)
    return found


def known(document: Document) -> bool:
    """Whether the answer to a plan is kept."""
    return _key(document) in _answers


def forget() -> None:
    """Compute answers anew: a name may mean another model now."""
    _answers.clear()
    _took.clear()


@offer
def evaluate(plan: Document) -> Document:
    """The answer to a plan as JSON, without charts and change."""
    return answer_of(plan, equations=True).to_dict()


@offer
def at_once(plan: Document) -> Document:
    """What a page shows first of an answer: words, gauges, the bar of time, the plan as controls read it and what they should show, and the milliseconds that it took."""
    answer = answer_of(plan)
    chosen = chosen_for(answer)
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
        "plan": answer.plan.document() | {"task": answer.task},
        "took": round(1000 * _took[_key(plan)]),
    }


def chosen_for(answer: Answer) -> Document:
    """What was taken for fields that the plan leaves open, by path, for the controls to show."""
    layout, plan = answer.layout, answer.plan
    found: Document = {"task": answer.task}
    found |= {
        f"parallelism.{name}": layout[name] for name in ("tp", "pp", "ep", "cp", "dp", "attention_dp") if name in layout
    }
    if "micro_batches" in layout:
        found |= {f"parallelism.{name}": layout[name] for name in ("virtual_stages", "zero", "recompute")}
        found["parallelism.micro_batch"] = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
    if answer.task == "training" and "micro_batches" in layout:
        found["workload.batch_size"], found["workload.seq_len"] = layout["batch_size"], layout["seq_len"]
    if answer.task == "rl":
        pools = {"split": "generators"} | {name: name for name in ("generator_tp", "generator_pp", "generator_ep")}
        found |= {f"rl.{key}": layout[name] for key, name in pools.items() if layout.get(name)}
    if answer.task == "serving":
        found |= {f"serving.{name}": layout.get(name) for name in ("replicas", "concurrency")}
        found |= {f"serving.{name}": answer.assumed_value(name) for name in ("prompt_tokens", "output_tokens")}
        limits = {"ttft": "ms", "tpot": "ms", "latency": "s"}
        found |= {f"serving.{name}": in_unit(getattr(plan.serving, name, None), unit) for name, unit in limits.items()}
    found["workload.precision"] = plan.workload.precision or answer.assumed_value("precision")
    found["workload.batch_size"] = found.get("workload.batch_size", plan.workload.batch_size or 1)
    found |= {"ops.days": plan.ops.days, "ops.budget": in_unit(plan.ops.budget, "USD")}
    found["ops.deadline"] = in_unit(plan.ops.deadline, "day")
    default = FIRST_ORDER if answer.fidelity == "first order" else "calibrated"
    found["hardware.efficiency"] = plan.hardware.efficiency or default
    model = workload_of(plan.workload)
    found |= {"experts": getattr(model, "experts", 1), "fixed_shape": model.fixed_shape}
    found |= _system(plan)
    return {path: value for path, value in found.items() if value is not None}


def in_unit(value: Any, unit: str) -> float | None:
    """A quantity as a number of a unit, as a control shows it."""
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


@offer
def scenario(plan: Document, models: dict[str, str] | None = None) -> str:
    """The plan as a TOML file that every command takes, with the configurations of those imported models that it names."""
    used = json.dumps(plan)
    return plan_to_toml(plan_of(plan), {key: text for key, text in (models or {}).items() if json.dumps(key) in used})


@offer
def read_plan(text: str, form: str = "toml") -> Document:
    """The document of a plan file."""
    return plan_from_text(text, form).document()


Document = dict[str, Any]


def plan_of(document: Document) -> Plan:
    """The plan of a document; unknown keys are refused with the nearest valid one."""
    if not isinstance(document, dict):
        raise InputError(f"A plan is a table of workload, hardware and so on, not {type(document).__name__}.")
    return plan_from_text(json.dumps(document), "json", "The plan")
