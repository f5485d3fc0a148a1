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
from mlsysim.units.records import dataclass


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
        """The name of the plan, or what it is about where it has none."""
        named = clean(self.answer.plan.name)
        default = Plan.model_fields["name"].default
        subject = self.answer.subject
        return named if named and named != default else subject[0].upper() + subject[1:]

    @property
    def status(self) -> str:
        """The verdict in a few words."""
        if not self.answer.feasible:
            return "Does not fit"
        if not self.answer.passed:
            return "Fits, but misses a limit"
        return "Fits and meets every limit" if self.answer.checks else "Fits"


def build_report(plan: Plan | dict[str, Any]) -> Report:
    """The report of a plan. The same plan gives the same report: nothing in it depends on when or where it was made."""
    answer = evaluate(plan, change=True)
    designs = designs_around(answer)
    sources = assumptions_of(answer), documents_of(answer)
    return Report(answer, designs, figures_of(answer, designs), *sources, version=version("mlsysim"))
