"""What ``plan`` answers: the least fleets for a goal, as a sentence, a table, and the whole answer of the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any, ClassVar, Literal

from mlsysim.cases.deployment import Degrees
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.explained import Explained
from mlsysim.plans.least_clients import daily, least_for_clients
from mlsysim.plans.least_fleet import CHIPS as TRAINERS
from mlsysim.plans.least_fleet import least_fleet
from mlsysim.plans.least_service import CHIPS as SERVERS
from mlsysim.plans.least_service import Service, described, least_services
from mlsysim.plans.limits import demands
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import workload_of
from mlsysim.plans.schema import Write, key_named, spoken
from mlsysim.plans.served import split_text
from mlsysim.plans.serving_load import is_limited
from mlsysim.systems.fleet_text import parse_fleet, parts_of
from mlsysim.units.records import dataclass
from mlsysim.units.text import count_text, figure, html_of, lines_of, many, plainly
from mlsysim.vocabulary import Setting, worded
from mlsysim.walls.document import Summary

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Planned(Summary):
    """The outcome. ``rows`` are the candidates, cheapest first; ``notes`` say what columns mean and why a chip has no row; ``candidates`` and
    ``facts`` are what JSON has beside the best."""

    told: ClassVar = ("sentence", "best", "candidates")
    at_times: ClassVar = ("tokens",)

    sentence: str
    good: bool
    best: Answer | None
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    candidates: tuple[dict[str, Any], ...]
    facts: dict[str, Any]

    @property
    def headline(self) -> str:
        """The sentence, as an answer has one."""
        return self.sentence

    @property
    def plan(self) -> Plan:
        """The plan of the best."""
        return self._found().plan

    def explain(self, metric: str | None = None) -> Explained:
        """The equations of the best, as :meth:`Answer.explain` gives them."""
        return self._found().explain(metric)

    def _found(self) -> Answer:
        if self.best is None:
            raise InputError(self.sentence)
        return self.best

    def to_dict(self) -> dict[str, Any]:
        best = None if self.best is None else self.best.to_dict()
        return {"sentence": self.sentence, **self.facts, "best": best, "candidates": list(self.candidates)}

    def in_words(self, write: Write) -> Planned:
        """The same with the settings in its sentences as a face writes them."""
        notes = tuple(spoken(note, write, Plan.leaves()) for note in self.notes)
        return replace(self, notes=notes, best=None if self.best is None else self.best.in_words(write))

    def __str__(self) -> str:
        lines = lines_of(self.headers, self.rows) if self.rows else []
        return "\n".join([self.sentence, *lines, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = html_of(self.headers, self.rows) if self.rows else ""
        return f"<p>{escape(self.sentence)}</p>{table}" + "".join(f"<p>{escape(n)}</p>" for n in self.notes)


def task_for(settings: Iterable[str]) -> Literal["training", "serving"]:
    """What the goal among some settings is for: a deadline for training; a rate, a trace or users for serving."""
    known = Plan.leaves()
    goals = {key.rpartition(".")[2] for name in settings if (key := key_named(str(name), known)) is not None}
    served, timed = not goals.isdisjoint(("qps", "trace", "concurrency")), "deadline" in goals
    if not goals.isdisjoint(("days", "duration_days", "duration")) and not (served or timed):
        words = "the time within which the run must end, such as 30d; days are how long one lasts"
        raise InputError(f"The smallest fleet needs a deadline, {words}.", field="deadline")
    if served == timed:
        raise InputError(
            worded(
                "The smallest fleet for what? Give ",
                Setting("deadline", "30d"),
                " for a training run, ",
                Setting("qps", 5),
                ", ",
                Setting("trace", "azure-code"),
                " or ",
                Setting("concurrency", 64),
                " for a service.",
            ),
            field="deadline",
            of_a_plan=True,
        )
    return "serving" if served else "training"


def planned(plan: Plan, chips: Sequence[str] = (), tell: Tell = lambda words: None) -> Planned:
    """The least fleets for the goal of a plan, whatever it is on."""
    for chip in chips:
        count, name, _ = parts_of(chip)
        if count is not None:
            raise InputError(f"A plan finds how many: name the chip alone, {name} instead of {chip!r}.", field="on")
        if "+" in chip and len(parse_fleet(chip).fleets) > 1:
            each = ",".join(piece.strip() for piece in chip.split("+"))
            raise InputError(
                f"A plan finds a fleet of one kind of accelerator, of those with commas between: {each}.", field="on"
            )
    if plan.kind == "training":
        return _trained(plan, list(chips) or list(TRAINERS), tell)
    return _served(plan, list(chips) or list(SERVERS), tell)


def _trained(plan: Plan, names: list[str], tell: Tell) -> Planned:
    if plan.workload.tokens is None:
        model = workload_of(plan.workload)
        if model.parameters is None:
            raise InputError(
                f"{plan.workload.model} states no parameters; give the tokens to train on.", field="tokens"
            )
        plan = plan.with_settings({"tokens": 20 * float(model.parameters.to("param").magnitude)})
    tokens = plan.workload.tokens or 0.0

    def tried(candidate: Plan) -> Answer:
        tell(f"trying {candidate.hardware.on} ...")
        return evaluate_plainly(candidate)

    found = least_fleet(plan, names, tried)
    best = next((each for each in found if each.answer is not None), None)
    rows = tuple(
        (each.chip, "none" if each.answer is None else f"{each.accelerators:,}", *_of_a_run(each.answer))
        for each in found
        if best is not None
    )
    headers = ("chip", "accelerators", "run", "cost", "MFU", "carbon")
    words = f"trains on {count_text(tokens)} tokens in time."
    return _least(found, best, names, words, headers=headers, rows=rows, facts={"tokens": tokens})


def _least(found: Sequence[Any], best: Any, names: list[str], words: str, *notes: str, **table: Any) -> Planned:
    """What is said of the fleets that were ``found``, of which one is the least that does what the ``words`` say."""
    answer = None if best is None else evaluate(best.answer.plan)
    least = "cheapest" if answer is not None and answer.paid is not None else "smallest"
    missed = "" if answer is None else next((f" {check.sentence}" for check in answer.checks if not check.passed), "")
    return Planned(
        sentence=f"No fleet of {', '.join(names)} {words}"
        if best is None
        else f"{best.accelerators:,} x {best.chip} is the {least} fleet that {words}{missed}",
        good=best is not None and not missed,
        best=answer,
        notes=(*notes, *(worded(f"{each.chip}: ", each.reason) for each in found if each.answer is None)),
        candidates=tuple(each.to_dict() for each in found),
        **table,
    )


def _of_a_run(answer: Answer | None) -> tuple[str, ...]:
    if answer is None:
        return ("", "", "", "")
    cost = "tco" if answer.paid is None else answer.paid.name
    held = {metric.name: metric.text for metric in answer.metrics}
    return tuple(held.get(name, "not known") for name in ("run_time", cost, "mfu", "carbon_footprint"))


_LIMITED = "Headroom: how many times the traffic can grow before a limit is missed. Odds: the chance that every limit is kept. "
_FREE = "Headroom: how many times the traffic can grow before more comes than is answered. Odds: the chance that all of it is answered. "
_COLUMNS = "Replicas before a + read prompts, those after it write answers. Each row is a plan that serve can repeat."
_AGAIN = "Each user asks again as soon as the answer has ended. Users who pause are a rate: 1,000 who ask once a minute send 1000 / 60 = 16.7 a second."
_FEWER = " Rows after the first were simulated with fewer requests."


def _shared(plan: Plan, names: list[str], clients: int, tell: Tell) -> Planned:
    """The least fleets for so many users at once."""

    def tried(candidate: Plan) -> Answer:
        tell(f"trying {candidate.hardware.on} ...")
        answer = evaluate_plainly(candidate)
        return answer.model_copy(update={"checks": demands(answer.of_what_runs())})

    found = least_for_clients(plan, names, tried)
    best = found[0] if found[0].answer is not None else None
    limits = " within every limit" if plan.serving is not None and is_limited(plan.serving) else ""
    words = f"answers {many(clients, 'user')} at once{limits}."
    headers = ("chip", "number", "replicas", "USD a day", "mean first token", "token", "output tokens a second")
    rows = tuple(_of_a_loop(each.chip, each.accelerators or 0, each.answer) for each in found if each.answer)
    return _least(found, best, names, words, _AGAIN, headers=headers, rows=rows, facts={})


def _of_a_loop(chip: str, count: int, answer: Answer) -> tuple[str, ...]:
    held, layout, cost = answer.held, answer.layout, daily(answer)
    split = Degrees(layout["tp"], layout["pp"], layout["ep"], layout.get("attention_dp"))
    return (
        chip,
        f"{count:,}",
        f"{layout['replicas']:,} x {split_text(split)}",
        figure(cost) if cost < math.inf else "not known",
        held["ttft"].text,
        held["tpot"].text if "tpot" in held else "",
        held["tokens_per_second"].text,
    )


def _served(plan: Plan, names: list[str], tell: Tell) -> Planned:
    if plan.serving is not None and plan.serving.concurrency is not None:
        return _shared(plan, names, plan.serving.concurrency, tell)
    found = least_services(plan, names, tell)
    able = [each for each in found if each.answer is not None]
    best, part = able[0].answer if able else None, plan.serving
    limits = part is not None and is_limited(part)
    sentence, good = described(found, names, limits)
    drawn = best is not None and best.fidelity == "simulated" and part is not None and not (part.trace or part.requests)
    tail = any("ttft_p99" in each.answer.held for each in able if each.answer is not None)
    first = "first token p99" if tail else "mean first token"
    columns = [(_LIMITED if limits else _FREE) + _COLUMNS + _FEWER * (drawn and len(able) > 1)] if able else []
    return Planned(
        sentence=sentence,
        good=good,
        best=best,
        headers=("chip", "number", "replicas", "USD a day", first, "token", "headroom", "odds"),
        rows=tuple(_of_a_service(each, tail) for each in able),
        notes=(*columns, *(worded(f"{each.chip}: ", each.reason) for each in found if each.answer is None)),
        candidates=tuple(each.to_dict() for each in found),
        facts={},
    )


def _of_a_service(each: Service, tail: bool) -> tuple[str, ...]:
    assert each.answer is not None and each.design is not None
    held = each.answer.held
    first = held.get("ttft_p99") or held["ttft"]
    return (
        each.chip,
        f"{each.accelerators:,}",
        each.design.text,
        figure(each.price) if each.price < math.inf else "not known",
        f"mean {first.text}" if tail and "ttft_p99" not in held else first.text,
        held["tpot"].text if "tpot" in held else "",
        "" if each.headroom is None else f"{each.headroom:.2f}" if each.headroom < 10 else plainly(each.headroom, 3),
        "" if each.odds is None else f"{each.odds:.0%}",
    )
