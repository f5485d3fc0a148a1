"""``build_report(plan)``: the answer with everything that a reader asks about it, gathered once for every format."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.plot.figure import Figure
from mlsysim.plot.svg import clean
from mlsysim.report.designs import Designs, designs_around
from mlsysim.report.figures import figures_of
from mlsysim.report.provenance import Cited, assumptions_of, documents_of
from mlsysim.report.words import as_said, capital
from mlsysim.units.records import dataclass
from mlsysim.units.text import count_text, many


@dataclass(frozen=True)
class Report:
    """An answer, the designs around it, the charts, and where the assumptions come from."""

    answer: Answer
    designs: Designs | None
    figures: dict[str, Figure]
    assumptions: tuple[tuple[str, str, str, str], ...]
    documents: tuple[Cited, ...]
    version: str

    @property
    def title(self) -> str:
        """What runs on what, and for how long or how much."""
        one = "one pass of " if self.answer.task == "inference" else ""
        return capital(f"{one}{self.answer.subject}{_amount(self.answer)}")

    @property
    def name(self) -> str:
        """What the plan is called; nothing where it has no name."""
        named = clean(self.answer.plan.name)
        return "" if named == Plan.model_fields["name"].default else named


def _amount(answer: Answer) -> str:
    """How much is asked for: tokens, days, or requests."""
    plan, layout, held = answer.plan, answer.layout, answer.held
    if answer.task == "training" and answer.runs:
        tokens = plan.workload.tokens
        what = "samples" if held["tokens_per_second"].label.startswith("Samples") else "tokens"
        return f" for {answer.period}" if tokens is None else f": {count_text(tokens)} {what}"
    if answer.task == "serving" and plan.serving is not None:
        if plan.serving.qps is not None:
            return f" at {plan.serving.qps:,g} {'request' if plan.serving.qps == 1 else 'requests'} a second"
        if isinstance(layout.get("concurrency"), int) and answer.runs:
            return f", {many(layout['concurrency'], 'request')} in flight"
    return ""


def build_report(plan: Plan | dict[str, Any]) -> Report:
    """The report of a plan. The same plan gives the same report: nothing in it depends on when or where it was made."""
    answer = evaluate(plan, change=True).in_words(as_said)
    designs = designs_around(answer)
    sources = assumptions_of(answer), documents_of(answer)
    return Report(answer, designs, figures_of(answer, designs), *sources, version=version("mlsysim"))
