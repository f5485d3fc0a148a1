"""``Answer``: what every face shows. Words first, then numbers, then where they come from."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, PrivateAttr

from mlsysim.cases.assumptions import Assumption
from mlsysim.cases.ledger import STREAMED, Ledger
from mlsysim.errors import InputError, UnknownNameError, unknown_name
from mlsysim.plans.explained import Equation, Explained, as_document, explained
from mlsysim.plans.metrics import Level, Metric, kinds, value_text
from mlsysim.plans.pieces import Change, Checked, Limit, MemoryBar, Part, Score
from mlsysim.plans.plan import Plan, Task
from mlsysim.plans.ruling import Ruling, ruling_of
from mlsysim.plans.schema import Write, spoken
from mlsysim.units.fields import Record, Words
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import period_text
from mlsysim.walls.document import Document

_DAY = 86400.0
_STREAMS = "spill"
"""What is assumed of the times of a model that does not fit."""
CAPITAL = 17
"""The wall of what costs money."""


def _plain(name: str) -> str:
    """A name as it is compared: "Time to the first token" is time_to_first_token."""
    return "_".join(word for word in name.lower().split() if word not in ("a", "an", "the"))


class Answer(Document, Record):
    """The answer to a plan."""

    beside: ClassVar = ("assumptions", "passed", "change", "whole_parts", "ruling", "carbon_in_all")

    name: str
    task: Task
    fidelity: str
    feasible: bool
    subject: str
    headline: Words
    verdict: tuple[Words, ...] = ()
    metrics: tuple[Metric, ...] = ()
    main: str = Field(description="name of the metric that a change should better")
    binding: Limit
    next_wall: Limit | None = None
    changes: tuple[Change, ...] = Field(
        default=(), description="what to change first, best first; each can be done whether or not the others are"
    )
    risks: tuple[Words, ...] = Field(default=(), description="what would change the answer, the largest first")
    interval: str = ""
    interval_key: str = Field(default="", description="the kind of measured runs that the interval rests on")
    time_parts: tuple[Part, ...] = ()
    memory: MemoryBar | None = None
    roofline: tuple[dict[str, Any], ...] = ()
    scorecard: tuple[Score, ...] = ()
    sensitivities: dict[str, tuple[float | None, float | None]] = Field(
        default_factory=dict, description="change of the main metric with 10 % less and 10 % more of a figure"
    )
    layout: dict[str, Any] = Field(default_factory=dict)
    stages: dict[str, float] = Field(
        default_factory=dict,
        description="of a pipeline: seconds of a micro-batch on the first stage, on those between and on the last; shares of its passes",
    )
    assumed: tuple[Assumption, ...] = Field(default=(), description="assumptions with their values and origins")
    sources: dict[str, str] = Field(default_factory=dict)
    equations: tuple[Equation, ...] = ()
    checks: tuple[Checked, ...] = ()
    over_time: dict[str, list[float]] = Field(
        default_factory=dict,
        description="of a simulation: times, requests worked on and waiting, share of the caches, replicas up",
    )
    percentiles: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="of simulated requests: kinds of time with mean, p50 to p99 in seconds, and sampling error; of simulated runs: "
        "metrics with mean, p10, p50 and p90 in their unit",
    )
    run_parts: tuple[Part, ...] = Field(
        default=(),
        description="of a run: useful work first, then what was lost by cause or kind, which adds up to it, s",
    )
    played: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="of simulated runs: days of those that end, in order; stretches of the one in the middle by the hours between them: state, nodes, cause",
    )
    warnings: tuple[str, ...] = Field(default=(), description="what about the inputs deserves a look")
    cost_parts: tuple[Part, ...] = Field(default=(), description="what the rent or the cost of owning consists of, USD")
    carbon_parts: tuple[Part, ...] = Field(default=(), description="carbon of running and of making, kgCO2e")
    energy_parts: tuple[Part, ...] = Field(default=(), description="energy by scope, from chip to building, kWh")
    plan: Plan

    _ledger: Ledger | None = PrivateAttr(default=None)
    _draw: Callable[..., Any] | None = PrivateAttr(default=None)

    @property
    def ledger(self) -> Ledger | None:
        """The parts of the time and the bytes held that the answer is read off; None where groups are put together."""
        return self._ledger

    def read_off(self, ledger: Ledger | None) -> "Answer":
        """The answer, with the ledger that it was read off."""
        self._ledger = ledger
        return self

    def drawn_by(self, draw: Callable[..., Any]) -> "Answer":
        """The answer, with what draws it: a chart of an answer by its name."""
        self._draw = draw
        return self

    def plot(self, kind: str = "time", **asked: Any) -> Any:
        """A chart of the answer by its name, such as ``plot("memory")``; it shows itself in a notebook and has ``svg()`` and ``save()``."""
        if self._draw is None:
            raise InputError(
                "Answers of mlsysim.train, mlsysim.serve and mlsysim.rl are drawn; this one is of neither."
            )
        return self._draw(self, kind, **asked)

    def in_words(self, write: Write) -> "Answer":
        """The answer with the settings in its sentences as a face writes them."""

        def say(text: str) -> str:
            return spoken(text, write, Plan.leaves())

        def limit(found: Limit | None) -> Limit | None:
            return found and found.model_copy(update={"sentence": say(found.sentence)})

        limits = {"binding": limit(self.binding), "next_wall": limit(self.next_wall)}
        words = {"headline": say(self.headline), "verdict": tuple(map(say, self.verdict))}
        return self.model_copy(update=limits | words)

    def metric(self, name: str) -> Metric:
        """A metric by its name, its path, such as ``performance.mfu``, that of the documents, or its label; neither case nor articles matter. The cost
        is what is paid."""
        wanted = _plain(name)
        if wanted in ("cost", "dollars", "money") and self.paid is not None:
            return self.paid
        for metric in self.metrics:
            if wanted in (metric.name, metric.path, _plain(metric.label), *kinds()[metric.name].aliases):
                return metric
        known = (kind for kind in kinds().values() if wanted in (kind.name, f"{kind.level}.{kind.name}", *kind.aliases))
        kind = next(known, None)
        words = "" if kind is None else kind.label_of(self.task)
        label = "" if kind is None else f"{words[0].lower()}{words[1:]} ({kind.name})"
        if kind is not None and not self.feasible:
            what = "What is overloaded" if self.overloaded else "What does not fit"
            raise InputError(f"{what} has no {label}. {self.headline}", field=name)
        if kind is not None and kind.wall == CAPITAL and self.paid is None:
            raise UnknownNameError(f"{self.priceless} it has no {label}; give a price.", name=name, field=name)
        has = ", ".join(m.name for m in self.metrics)
        if kind is not None:
            placed = kind.name.startswith(("carbon", "water"))
            why = "no region is given" if placed else f"its task is {self.task}, which gives {has}"
            raise UnknownNameError(f"This answer has no {label}: {why}.", name=name, field=name)
        names = [m.path for m in self.metrics] + [m.name for m in self.metrics]
        raise unknown_name("metric of this answer", name, names, f"it has {has}.")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A metric as an attribute: ``answer.ttft`` is ``answer.metric("ttft")``."""
            if name.startswith("_") or name in type(self).model_fields:
                return super().__getattr__(name)
            try:
                return self.metric(name)
            except InputError as error:
                raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(metric.name for metric in self.metrics)]

    @property
    def change(self) -> Change | None:
        return self.changes[0] if self.changes else None

    @property
    def ruling(self) -> Ruling:
        """Whether what was asked for holds, in three states, and why."""
        return ruling_of(self)

    @property
    def whole_parts(self) -> tuple[Part, ...]:
        """Where the time goes, on one scale: the parts of all steps of a run, then what failures and checkpoints take of it (wall 15), s; of
        what is no run the parts of its time."""
        if not self.run_parts or not self.time_parts:
            return self.time_parts
        useful, *lost = self.run_parts
        steps = useful.value / sum(part.value for part in self.time_parts)
        return (*(part.model_copy(update={"value": part.value * steps}) for part in self.time_parts), *lost)

    @property
    def held(self) -> dict[str, Metric]:
        return {metric.name: metric for metric in self.metrics}

    @property
    def assumptions(self) -> dict[str, str]:
        """What was taken for granted, by name, in words."""
        return {each.name: each.text for each in self.assumed}

    def assumed_value(self, name: str, otherwise: Any = None) -> Any:
        """The value that was assumed under a name."""
        return next((each.value for each in self.assumed if each.name == name), otherwise)

    @property
    def paid(self) -> Metric | None:
        """What the plan pays: the rent where it gives a price, else the cost of owning; None where neither is known."""
        held = self.held
        owned = None if self.plan.ops.price is not None else held.get("tco")
        return owned or held.get("rent") or held.get("tco")

    @property
    def precision(self) -> str:
        """The number format of weights and arithmetic: the plan's, or the one that was chosen for it."""
        return self.plan.workload.precision or str(self.assumed_value("precision", "bf16"))

    @property
    def priceless(self) -> str:
        """Why it has no cost, to begin a sentence with."""
        return f"The price of {self.subject.rpartition(' on ')[2]} is not known, so that"

    @property
    def carbon_in_all(self) -> str:
        """Carbon of running and of making together, as it is printed; nothing where one of them is not known."""
        whole = sum(part.value for part in self.carbon_parts)
        return value_text("carbon_footprint", quantity(whole, "kgCO2e")) if self.carbon_parts else ""

    def value(self, name: str) -> Any:
        return self.metric(name).value

    @property
    def questions(self) -> dict[Level, str]:
        """What the metrics of each level answer; of what does not fit with the rest streamed."""
        how = "" if self.feasible else ", at its most" if self.overloaded else ", streaming the rest"
        period = f" in {self.period}" if self.paid is not None or "energy" in self.held else ""
        return {"feasibility": "Does it fit", "performance": f"How fast{how}", "macro": f"What it costs{period}{how}"}

    @property
    def period(self) -> str:
        """The time that costs are of."""
        if self.task == "training" and "run_time" in self.held:
            return period_text(to_si(self.held["run_time"].value, "s") / _DAY)
        if self.task == "rl":
            return "a thousand steps"
        from mlsysim.cases.run_inputs import run_days

        days = self.plan.ops.days or (1.0 if self.task == "serving" else run_days())
        return period_text(days)

    @property
    def runs(self) -> bool:
        """Whether there is something to time: it fits, or it is overloaded, or it streams what does not fit."""
        return self.feasible or self.overloaded or any(part.label == STREAMED for part in self.time_parts)

    def of_what_runs(self) -> "Answer":
        """The answer; without rates, times and costs where nothing runs: of what does not fit only what it needs and has."""
        if self.runs:
            return self
        metrics = tuple(metric for metric in self.metrics if metric.level == "feasibility")
        shown = {name for metric in metrics for name in (metric.name, *kinds()[metric.name].made_from)}
        nothing: Any = dict.fromkeys(("value", "note"), "") | {"load": None, "status": "not asked"}
        update: dict[str, Any] = {
            "metrics": metrics,
            "main": metrics[0].name,
            "equations": tuple(equation for equation in self.equations if equation.gives in shown),
            "scorecard": tuple(
                score.model_copy(update={"note": ""} if score.wall == self.binding.wall else nothing)
                for score in self.scorecard
            ),
            **dict.fromkeys(("time_parts", "run_parts", "roofline", "cost_parts", "carbon_parts", "energy_parts"), ()),
            **{"sensitivities": {}, "next_wall": None, "interval": "", "interval_key": ""},
            "assumed": tuple(each for each in self.assumed if each.name != _STREAMS),
        }
        return self.model_copy(update=update)

    @property
    def passed(self) -> bool:
        """Whether it fits and every assertion holds."""
        return self.feasible and all(check.passed for check in self.checks)

    @property
    def overloaded(self) -> bool:
        """Whether it fits and more requests come than are answered, so that it has no steady state."""
        return not self.feasible and self.binding.limit == "qps"

    @property
    def exit_code(self) -> int:
        """0 ok, 2 does not fit, 3 an assertion failed, or the rate of requests is too high."""
        return 0 if self.passed else 3 if self.feasible or self.overloaded else 2

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON; quantities as {"magnitude", "unit"}, metrics by their path."""
        return super().to_dict() | {"metrics": {metric.path: metric.to_dict() for metric in self.metrics}}

    @classmethod
    def written_as(cls) -> dict[str, Any]:
        """What a document has in another form than the fields."""
        return {"metrics": dict[str, Metric]}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(document.get("metrics"), Mapping):
            raise InputError("An answer is read from the document that to_dict() or --json wrote, with its 'metrics'.")
        return {**document, "metrics": list(document["metrics"].values())}

    def __eq__(self, other: object) -> bool:
        """Equal in what they say: all fields."""
        return isinstance(other, Answer) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def explain(self, name: str | None = None) -> Explained:
        """The equation that gives a metric, then those of what stands in it; without a name those of all metrics."""
        wanted = [metric.name for metric in self.metrics] if name is None else [self.metric(name).name]
        return explained(wanted, self.equations, self.held, self.sources, self.assumed)

    def explanation(self, name: str | None) -> dict[str, Any]:
        """The equations of a metric, or all, as JSON, with what binds, what was assumed and where it is from."""
        return as_document(self.explain(name), subject=self.subject, binding=self.binding.model_dump())

    def sentences(self) -> list[tuple[str, str]]:
        """The words of the answer, each with what it is: headline, verdict, binding, next, change, sure, ok, failed, open or note."""
        lines = [(self.headline, "headline"), *((line, "verdict") for line in self.verdict)]
        if self.feasible:
            lines.append((self.binding.sentence, "binding"))
            lines += [(f"Next: {self.next_wall.sentence}", "next")] if self.next_wall is not None else []
        lines += [(self.change.sentence, "change")] if self.change is not None else []
        lines += [(f"How sure: {self.interval}", "sure")] if self.interval else []
        for check in self.checks:
            word = ("ok" if check.passed else "FAILED") if check.certain else "open"
            lines.append((f"{word}: {check.sentence}", word.lower()))
        return [*lines, *((f"Note: {line}", "note") for line in self.warnings)]

    def __str__(self) -> str:
        return "\n".join([self.subject, *(text for text, _ in self.sentences())])

    def __repr__(self) -> str:
        return f"<Answer: {self.subject}. {self.headline}>"

    def _repr_html_(self) -> str:
        """Words, metrics and charts, as a notebook shows them."""
        words = "".join(f"<p>{escape(text)}</p>" for text, _ in self.sentences())
        listed = [metric for metric in self.metrics if metric.listed]
        rows = "".join(
            f"<tr><th>{escape(m.label)}</th><td>{escape(m.text)}</td><td>{escape(m.interval)}</td></tr>" for m in listed
        )
        charts = ""
        for kind in ("time", "memory") if self._draw is not None else ():
            with suppress(InputError):
                charts += self.plot(kind).svg()
        return f"{words}<table><caption>{escape(self.subject)}</caption>{rows}</table>{charts}"
