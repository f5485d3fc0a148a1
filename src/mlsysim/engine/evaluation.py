"""What an evaluation of a scenario holds: metrics with their walls, in three levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from mlsysim.plans.metrics import Metric
from mlsysim.units.fields import Record
from mlsysim.walls.document import Document

__all__ = ["EvaluationLevel", "Metric", "SystemEvaluation"]

LEVELS = ("feasibility", "performance", "macro")


class EvaluationLevel(Document, Record):
    """One of the three levels."""

    level_name: str
    status: Literal["PASS", "FAIL", "SKIPPED"]
    summary: str
    metrics: dict[str, Metric] = Field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.status == "PASS"


class SystemEvaluation(Document, Record):
    """The three levels of a scenario."""

    beside: ClassVar = ("passed_all",)

    scenario_name: str
    feasibility: EvaluationLevel
    performance: EvaluationLevel
    macro: EvaluationLevel
    assumptions: dict[str, str] = Field(default_factory=dict)

    @property
    def levels(self) -> tuple[EvaluationLevel, EvaluationLevel, EvaluationLevel]:
        return self.feasibility, self.performance, self.macro

    @property
    def passed_all(self) -> bool:
        return all(level.passed for level in self.levels)

    def scorecard(self) -> str:
        """Every metric with its wall number, level by level."""
        lines = [f"{self.scenario_name}: {'PASS' if self.passed_all else 'FAIL'}"]
        for number, level in enumerate(self.levels, 1):
            lines.append(f"  Level {number}, {level.level_name}: {level.status}. {level.summary}")
            lines += [f"    wall {metric.wall:>2}  {metric.label}: {metric.text}" for metric in level.metrics.values()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All levels and metrics; quantities as {"magnitude", "unit"}."""
        told = super().to_dict()
        return told | {"levels": [told.pop(name) for name in LEVELS]}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        rest = {name: value for name, value in document.items() if name != "levels"}
        return rest | dict(zip(LEVELS, document.get("levels", ()), strict=False))
