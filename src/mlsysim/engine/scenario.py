"""``Scenario``: a workload on a system, evaluated in three levels.

    Feasibility   does it fit, can the data keep up, is there enough power?
    Performance   how fast is it, against the target where there is one?
    Macro         what does it cost, take and emit?

A scenario is a plan of objects (:attr:`Scenario.plan`), and its levels are read off the answer to it, so that they say what every other face
says. A level that fails stops the rest: what a run costs is of no interest while it does not fit. The summary of a failed level names the
wall, what it needs, and the cheapest change.
"""

from typing import Any, Literal

from pydantic import Field, field_validator

from mlsysim.engine.evaluation import LEVELS, EvaluationLevel, Metric, SystemEvaluation
from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.objects import name_of
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import fleet_of
from mlsysim.systems.registry import Clusters
from mlsysim.systems.types import Fleet
from mlsysim.units.fields import Record, Seconds, Watts
from mlsysim.zoo.registry import Registry

_PROMPT = 2048
"""Tokens of a prompt where a scenario says nothing of them."""
_CALLED = {
    **{"memory": "memory_needed", "memory_capacity": "memory_available", "tpot": "itl"},
    **{"mtbf": "fleet_mtbf", "goodput": "goodput_ratio", "purchase": "purchase_price"},
}
_OF_A_FLEET = {"memory": "memory_per_accelerator", "latency": "step_latency"}
"""Metrics of an answer that scenarios have under another name."""
_PLAIN = {
    "tco": ("tco_usd", "USD"),
    "carbon_footprint": ("carbon_kg", "kgCO2e"),
    "carbon_per_million": ("carbon_per_million_samples_kg", "kgCO2e"),
    "water": ("water_liters", "L"),
}
"""Those whose name has their unit, so that they are plain numbers."""
_HELD_TO = {"serving": "tpot"}
"""The time that a target is for, where it is not the whole."""


class Scenario(Record):
    """A workload on a chip or a fleet, with what is expected of it.

    ``mode`` is inference (one pass), serving (``batch_size`` requests at a time, with prompts of ``seq_len`` tokens) or training. ``layout`` holds
    keys of a plan beside these; without one a fleet gets the best that fits.
    """

    name: str
    description: str = ""
    workload: Workload
    system: HardwareNode | Fleet
    mode: Literal["inference", "serving", "training"] | None = None
    batch_size: int = Field(default=1, gt=0)
    seq_len: int | None = Field(default=None, gt=0)
    precision: str = "fp16"
    sla_latency: Seconds | None = None
    target_accuracy: float | None = None
    power_budget: Watts | None = None
    region: GridProfile | Datacenter | None = None
    duration_days: float | None = Field(default=None, gt=0)
    layout: dict[str, Any] | None = None

    @field_validator("workload", mode="before")
    @classmethod
    def _model_by_name(cls, value: Any) -> Any:
        return Models.get(value) if isinstance(value, str) else value

    @field_validator("system", mode="before")
    @classmethod
    def _system_by_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        for registry in (Hardware, Clusters):
            if value in registry:
                return registry.get(value)
        raise unknown_name("chip or cluster", value, [*Hardware.keys(), *Clusters.keys()])

    @field_validator("region", mode="before")
    @classmethod
    def _grid_by_name(cls, value: Any) -> Any:
        return Grids.get(value) if isinstance(value, str) else value

    @property
    def effective_mode(self) -> str:
        """The mode that is evaluated: a fleet trains unless told otherwise, a chip infers."""
        return self.mode or ("training" if isinstance(self.system, Fleet) else "inference")

    @property
    def metadata(self) -> None:
        """Named scenarios are examples and cite nothing."""

    @property
    def plan(self) -> Plan:
        """The plan that the scenario is, at first order."""
        return self._plan(self.batch_size, self.precision, 0.5)

    def _plan(self, batch: int, precision: str, efficiency: float | str) -> Plan:
        mode, system = self.effective_mode, self.system
        if isinstance(system, Fleet) and mode != "training":
            raise InputError(
                f"Scenario {self.name!r}: a fleet is evaluated for training; serve on one chip (or use ServingModel)."
            )
        region = self.region
        if isinstance(region, Datacenter):
            # A grid may be named; a building is that of a fleet.
            fleet = system if isinstance(system, Fleet) else fleet_of(f"1x{name_of(system)}")
            system, region = fleet.model_copy(update={"datacenter": region, "region": None}), None
        length = None if self.workload.fixed_shape else self.seq_len
        if mode == "serving":
            asked: dict[str, Any] = {"concurrency": batch, "prompt_tokens": length or _PROMPT}
        else:
            asked = {"batch_size": batch, "seq_len": length or (_PROMPT if isinstance(self.system, Fleet) else None)}
        asked |= {"precision": precision, "efficiency": efficiency, "region": region}
        asked |= {"duration_days": self.duration_days if mode == "training" else None}
        given = {name: value for name, value in asked.items() if value is not None}
        placed = {"name": self.name, "task": mode, "model": self.workload, "on": system}
        return Plan.model_validate({**placed, **given, **(self.layout or {})})

    def evaluate(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> SystemEvaluation:
        """Feasibility, performance and macro, in order; a level that fails stops the rest."""
        plan = self._plan(
            self.batch_size if batch_size is None else batch_size, precision or self.precision, efficiency
        )
        answer = evaluate_plainly(plan)
        after = "" if answer.next_wall is None else f" Next: {answer.next_wall.sentence}"
        said = (answer.headline, answer.binding.sentence + after, " ".join(answer.verdict))
        found: dict[str, EvaluationLevel] = {}
        failed = ""
        for name, words, why in zip(LEVELS, said, (self._unfit(answer), self._slow(answer), ()), strict=True):
            title = name.capitalize()
            if failed:
                level = EvaluationLevel(level_name=title, status="SKIPPED", summary=f"Not evaluated: {failed} failed.")
            else:
                status: Literal["PASS", "FAIL"] = "FAIL" if why else "PASS"
                metrics = self._metrics(answer, name)
                level = EvaluationLevel(
                    level_name=title, status=status, summary=" ".join(why) or words, metrics=metrics
                )
                failed = title if why else ""
            found[name] = level
        assumed = {"efficiency": efficiency if isinstance(efficiency, str) else f"{efficiency:g}"}
        return SystemEvaluation(scenario_name=self.name, assumptions=answer.assumptions | assumed, **found)

    def validate_scenario(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> bool:
        """Whether all three levels pass."""
        return self.evaluate(batch_size, precision, efficiency).passed_all

    def _metrics(self, answer: Answer, level: str) -> dict[str, Metric]:
        """Metrics of a level, under the names that scenarios have for them."""
        called = _CALLED | (_OF_A_FLEET if isinstance(self.system, Fleet) else {})
        found: dict[str, Metric] = {}
        for metric in answer.metrics:
            if metric.level != level:
                continue
            name, unit = _PLAIN.get(metric.name, (called.get(metric.name, metric.name), ""))
            found[name] = metric.plainly(unit) if unit else metric
        return found

    def _unfit(self, answer: Answer) -> list[str]:
        """What speaks against running it at all."""
        chip = self.system.node.accelerator if isinstance(self.system, Fleet) else self.system
        why = [] if answer.feasible else [answer.binding.sentence]
        stalled = next((score for score in answer.scorecard if score.wall == 8 and score.status == "fails"), None)
        if stalled is not None:
            why.append(f"Wall 8 ({stalled.name}): data arrives too slowly ({stalled.value}).")
        if self.power_budget is not None and chip.tdp is None:
            why.append(f"The power of {chip.name} is not known, so the power budget cannot be checked.")
        elif self.power_budget is not None and chip.tdp > self.power_budget:
            why.append(f"{chip.name} draws {chip.tdp:~P}, more than the budget of {self.power_budget:~P}.")
        return why

    def _slow(self, answer: Answer) -> list[str]:
        """What its target says of its time."""
        timed = answer.held.get(_HELD_TO.get(answer.task, "latency"))
        if self.sla_latency is None or timed is None or timed.value <= self.sla_latency:
            return []
        over = f"{self.sla_latency:~P} by a factor of {(timed.value / self.sla_latency).to('').magnitude:.3g}"
        return [f"{timed.text} misses the target of {over}: {answer.binding.sentence}"]


def _named(key: str, table: dict[str, Any]) -> Scenario:
    fields = dict(table)
    chip, cluster = fields.pop("hardware", None), fields.pop("cluster", None)
    return Scenario(system=Hardware.get(chip) if chip else Clusters.get(cluster), **fields)


Scenarios = Registry(
    "Scenarios",
    "scenario",
    Scenario,
    {"workload": "workload.name", "system": "system.name", "mode": "effective_mode"},
    _named,
)
"""Named scenarios, read when first asked for."""
