"""A measured value as a question: the plan that describes the run, and the metric of the plan's answer that was measured.

    row -> Question -> TOML of its plan -> public answer -> Prediction

A :class:`Table` reads rows of one kind: a module of ``mlsysim.calibrate.tables`` with ``COLUMNS``, the column names that identify the
table, and ``read(row)``, which gives for each measured value of the row what to ask. Runs are plans; kernels, collectives and power have no
plan and are predicted through the functions of ``timing`` that the cases call. It raises :class:`Skipped` when the row is a measurement that
cannot be predicted (an unknown chip, a model without a public configuration, a missing setting), and :class:`Excluded` when it is not a
measurement to be scored (a duplicate, a row marked unusable). The physics lives elsewhere; a reader only understands the row.

The answer is that of the plan's own text, so that ``mlsysim eval`` of what ``validate --out`` writes gives the scored number: the
metric ``asked`` in ``unit``, times ``factor``, which turns it into the row's unit (devices, milliseconds, per cent, the row's
convention of counting operations). The text says so in its ``description``. The interval is the answer's, times the same factor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from mlsysim.errors import InputError, MLSysError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.files import plan_from_text, plan_to_toml
from mlsysim.plans.inference import measured_metrics
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.timing.engines import DEFAULT_ENGINE, engine
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, quantity
from mlsysim.zoo.intervals import ELSEWHERE, UNFITTED, Factors, houses, independent, interval, widening

PART = "part: "
"""Before the name of a part of the ledger, whose seconds on the critical path are asked."""
WITHOUT = "memory without "
"""Before names of what is held on a device and is not asked, apart from the rest."""
FILE = "the file of the row"
"""Key of a row under which a table finds where it stands, for what lies beside it."""
STANDING = ("stack", "stands in")
"""How remarks begin that software of the package stands in for that of the row."""
_LARGEST_NODE = 256


class Skipped(Exception):
    """The row cannot be predicted; the message says why."""


class Excluded(Exception):
    """The row is not a measurement to be scored; the message says why."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One predicted value beside the measured one, in the row's own unit.

    ``regime`` names the kind of work whose residuals give the error bar (such as "training dense", "decode", "timm eager");
    ``chip_measured`` says whether the chip has a profile of its own; ``inferred`` lists settings that the row did not give.
    ``low`` and ``high`` are the answer's own interval and ``plan`` the TOML text whose answer it is, where there is one. A report adds
    the ``row`` and its ``source``.
    """

    metric: str
    measured: float
    predicted: float
    regime: str
    chip_measured: bool
    inferred: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    plan: str = ""
    rounded: float = 0.0
    """Half of the last digit that was published."""
    row: str = ""
    source: str = ""

    @property
    def error(self) -> float:
        """Signed relative error, predicted over measured minus one."""
        return self.predicted / self.measured - 1

    @property
    def ape(self) -> float:
        """Absolute error in per cent."""
        return abs(self.error) * 100

    @property
    def inside(self) -> bool | None:
        """Whether the measured value, of which some digits are known, may lie in the interval, which may have no upper end; None where the answer states none."""
        if self.low is None:
            return None
        high = math.inf if self.high is None else self.high
        return self.low - self.rounded <= self.measured <= high + self.rounded


@dataclass(frozen=True, slots=True)
class Question:
    """One measured value of a row, and what to ask for it.

    ``regime`` and ``chip_measured`` group values in reports and in refits of intervals; ``inferred`` lists settings that the
    row did not give, ``guessed`` counts those that make the answer less certain than the plan says, ``others`` are plans that the row may
    mean as well: the interval holds their answers. ``rounded`` is half of the last digit that was published.
    """

    metric: str
    measured: float
    plan: Plan
    asked: str
    unit: str = ""
    factor: float = 1.0
    regime: str = ""
    chip_measured: bool = True
    inferred: tuple[str, ...] = ()
    guessed: int = 0
    rounded: float = 0.0
    others: tuple[Plan, ...] = ()

    def text(self) -> str:
        """The plan as TOML, with a description of how its answer gives the value."""
        of = f"{self.asked} ({self.unit})" if self.unit else self.asked
        scale = "" if self.factor == 1 else f"{self.factor!r} x "
        return plan_to_toml(self.plan.model_copy(update={"description": f"{self.metric}: {scale}{of}"}))


def calibrated_plan(
    task: str, model: str, on: str, *, stack: str | None = None, parallelism: Any = (), serving: Any = (),
    hardware: Any = (), **work: Any,
) -> Plan:  # fmt: skip
    """The calibrated plan of a run; what is None was not given, and ``work`` belongs to the workload."""
    parts = {
        "workload": {"model": model, **work},
        "hardware": {"on": on, "efficiency": "calibrated", "stack": stack, **dict(hardware)},
        "parallelism": dict(parallelism),
        "serving": dict(serving),
    }
    given = {name: {k: v for k, v in part.items() if v is not None} for name, part in parts.items()}
    return Plan.model_validate({"task": task, **{name: part for name, part in given.items() if part}})


@lru_cache(maxsize=1024)
def whole_nodes(devices: int, chip: str) -> str:
    """So many chips as a fleet: the fewest whole nodes that hold them, where they are more than a node."""
    for count in range(devices, devices + _LARGEST_NODE):
        try:
            parse_fleet(f"{count}x{chip}")
        except MLSysError:
            continue
        return f"{count}x{chip}"
    return f"{devices}x{chip}"


@lru_cache(maxsize=256)
def _answer(text: str) -> Answer:
    return evaluate_plainly(plan_from_text(text))


forget_answers = _answer.cache_clear


def answer_to(plan: Plan) -> Answer:
    """The public answer of a plan, asked from its text; rows of one run share it."""
    return _answer(plan_to_toml(plan))


def metric_of(plan: Plan, name: str, answer: Callable[[Plan], Answer]) -> tuple[Any, Any, Any]:
    """A metric of the public answer and the ends of its interval. Of one pass only what is measured is read, which is what the answer reads."""
    if plan.kind == "inference":
        metrics = measured_metrics(plan_from_text(plan_to_toml(plan)))
        if name not in metrics:
            raise InputError(f"The answer has no {name}.")
        value, band = metrics[name]
        return (value, *(band or (None, None)))
    if name.startswith(PART):
        ledger = answer(plan).ledger
        assert ledger is not None
        return quantity(ledger.exposed(name.removeprefix(PART)), "s"), None, None
    if name.startswith(WITHOUT):
        ledger, others = answer(plan).ledger, name.removeprefix(WITHOUT).split(", ")
        assert ledger is not None
        own = sum(each.bytes for each in ledger.held if each.where == "device" and each.name not in others)
        return quantity(own, "byte"), None, None
    told = answer(plan)
    if told.memory is not None and plan.kind == "serving":
        weights = sum(part.value for part in told.memory.parts if part.label == "weights")
        if weights > told.memory.capacity:
            each, room = (f"{number / 1e9:.0f} GB" for number in (weights, told.memory.capacity))
            raise Skipped(f"what was run is not what the row says: {each} of weights on a device with {room}")
    found = told.metric(name)
    return found.value, found.low, found.high


def predicted(question: Question, answer: Callable[[Plan], Answer] = answer_to) -> Prediction:
    """The answer's value beside the measured one. A plan that is refused is a row that cannot be predicted."""
    try:
        found, low, high = metric_of(question.plan, question.asked, answer)
    except MLSysError as error:
        raise Skipped(str(error)) from None

    def plain(value: Any) -> Any:
        number = value.to(question.unit).magnitude if isinstance(value, Quantity) else value
        return None if number is None else float(number) * question.factor

    q, value, ends = question, plain(found), (plain(low), plain(high))
    if q.guessed and None not in ends and value:
        foreign = min(q.guessed, sum(text.startswith(STANDING) for text in q.inferred))
        # What another engine's software adds is in the bands of rows that others published.
        added = [guess("software")] * (foreign if q.plan.kind != "serving" else 0)
        added += [guess("settings")] * (q.guessed - foreign)
        band = independent((ends[0] / value, ends[1] / value), *added)
        ends = (value * band[0], value * band[1]) if band else ends
    for plan in q.others if None not in ends else ():
        with suppress(MLSysError):
            also = plain(metric_of(plan, q.asked, answer)[0])
            ends = (min(ends[0], also), max(ends[1], also))
    return Prediction(q.metric, q.measured, value, q.regime, q.chip_measured, q.inferred, *ends, q.text(), q.rounded)


@cache
def guess(kind: str) -> Factors:
    """What a guess adds to an interval: of ``settings`` by how much runs whose layout was inferred scatter more than others, of ``software``
    that stands in for what ran by how much runs do whose own software was left out of the fit."""
    known, inferred = (math.log(interval("training", *unseen).high) for unseen in ((), (kind,)))
    added = math.sqrt(inferred**2 - known**2)
    return math.exp(-added), math.exp(added)


def house(source: str) -> str:
    """Who publishes a source: its name before the first number (trtllm-0.14 and trtllm-1.0 are of one house)."""
    return re.split(r"\W*(?:\bv)?\d", source.lower())[0]


def ran_by_others(q: Question, source: str) -> tuple[str, str] | None:
    """The regime of a run that others published, and what of it constants had not seen: its software, or how that house runs it. None where rows of the
    house are among those of the fits, and of other kinds of work."""
    known = house(source) in houses()
    if q.plan.kind == "serving" and q.plan.serving is not None:
        regime = "serving ttft" if q.asked == "ttft" else "serving"
        if _unfitted(q) or any(text.startswith("stands in") for text in q.inferred):
            return regime, UNFITTED
        return None if known else (regime, ELSEWHERE)
    return ("training", ELSEWHERE) if q.plan.kind == "training" and not known else None


def _unfitted(q: Question) -> bool:
    """Whether the answer itself has the interval of an engine without fitted runs."""
    return q.plan.serving is not None and not engine(q.plan.serving.engine or DEFAULT_ENGINE).chips


def _as_others_run(found: Prediction, q: Question, source: str) -> Prediction:
    """A prediction with the wider interval of a run by others."""
    how = ran_by_others(q, source)
    if how is None or found.low is None or found.high is None or (how[1] == UNFITTED and _unfitted(q)):
        return found
    band = independent((found.low / found.predicted, found.high / found.predicted), widening(*how))
    return replace(found, low=found.predicted * band[0], high=found.predicted * band[1]) if band else found


class Row(dict[str, str]):
    """Cells of a row by column; a column that a table lacks is empty, as one with n/a is, and whole numbers that a program wrote as 8.0 are whole."""

    def __missing__(self, _: str) -> str:
        return ""

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Row:
        return cls({name: _whole(name, (text or "").strip()) for name, text in row.items()})


_NOTHING = {"-", "--", "–", "—", "?", "n/a", "na", "nan", "null", "nil", "tbd", "unknown", "unspecified", "not given"}
_OF_NONE = ("recompute", "interconnect", "compiler")
"""Columns of which "none" says something."""


def _whole(name: str, text: str) -> str:
    if text.lower() in _NOTHING or (text.lower() == "none" and name not in _OF_NONE):
        return ""
    kept = name == "value" or name.endswith("version") or not re.fullmatch(r"\d+\.0+", text)
    return text if kept else text.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Table:
    """A kind of table: the columns that identify it, and what a row of it asks."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Sequence[Question | Prediction]]

    def questions(self, row: Mapping[str, str]) -> Sequence[Any]:
        """What a row asks; what the package refuses is a row that cannot be predicted."""
        try:
            return self.read(Row.of(row))
        except MLSysError as error:
            raise Skipped(str(error)) from None

    def predict(self, row: Mapping[str, str]) -> list[Prediction]:
        """A prediction for each measured value of a row that the answer has; one without a plan has the interval of its regime."""
        found, reasons = [], []
        for each in self.questions(row):
            try:
                if isinstance(each, Question):
                    found.append(_as_others_run(predicted(each), each, row.get("source") or ""))
                else:
                    found.append(_banded(each))
            except Skipped as reason:
                reasons.append(reason)
        if reasons and not found:
            raise reasons[0]
        return found


def _banded(found: Prediction) -> Prediction:
    low, high = interval(found.regime, *() if found.chip_measured else ("chip",)).around(found.predicted)
    return replace(found, low=low, high=high)
