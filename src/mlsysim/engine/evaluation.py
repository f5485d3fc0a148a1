"""What an evaluation of a scenario holds: metrics with their walls, in three levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from mlsysim.units.fields import Record
from mlsysim.units.text import format_value
from mlsysim.walls.document import Document

LEVELS = ("Feasibility", "Performance", "Macro")
_LEVELS = ("feasibility", "performance", "macro")


class Metric(Document, Record):
    """A value with the wall that it belongs to."""

    value: Any
    wall: int


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
            for name, metric in level.metrics.items():
                lines.append(f"    wall {metric.wall:>2}  {name.replace('_', ' ')}: {format_value(metric.value)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All levels and metrics; quantities as {"magnitude", "unit"}."""
        told = super().to_dict()
        return told | {"levels": [told.pop(name) for name in _LEVELS]}

    @classmethod
    def _fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        rest = {name: value for name, value in document.items() if name != "levels"}
        return rest | dict(zip(_LEVELS, document.get("levels", ()), strict=False))


class Collector:
    """Metrics of a level while it is evaluated; what it says where nothing is refused is the ``note``."""

    def __init__(self, note: str) -> None:
        self.note = note
        self.metrics: dict[str, Metric] = {}
        self.problems: list[str] = []

    def add(self, name: str, value: Any, wall: int) -> None:
        if value is not None:
            self.metrics[name] = Metric(value=value, wall=wall)

    def refuse(self, failed: bool, why: str) -> None:
        if failed:
            self.problems.append(why)

    def level(self, name: str) -> EvaluationLevel:
        status: Literal["PASS", "FAIL"] = "FAIL" if self.problems else "PASS"
        summary = " ".join(self.problems) or self.note
        return EvaluationLevel(level_name=name, status=status, summary=summary, metrics=self.metrics)
