"""``Scenario``: a workload on a system, evaluated in three levels.

    Feasibility   does it fit, can the data keep up, is there enough power?      walls 2, 8
    Performance   latency, throughput, utilisation, communication, failures      walls 1, 2, 4, 14, 15
    Macro         money, energy, carbon, water                                   walls 17, 18

A level that fails stops the rest: what a run costs is of no interest while it does not fit. The summary of a failed level
names the wall, what it needs, and the cheapest change.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, field_validator

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import run_checkpoint
from mlsysim.cases.footprint import footprint
from mlsysim.cases.run import run_work
from mlsysim.cases.run_inputs import LOCAL, checkpoint_seconds, run_days, site_of
from mlsysim.engine.evaluation import Collector, EvaluationLevel, SystemEvaluation
from mlsysim.engine.layouts import first_fitting_layout
from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.systems.registry import Clusters
from mlsysim.systems.types import Fleet
from mlsysim.units.fields import Record, Seconds, Watts
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.data.ingestion import DataModel
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.fragility import ReliabilityModel
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.sustainability import SustainabilityModel
from mlsysim.zoo.files import parse_slice, slices


class Scenario(Record):
    """A workload on a chip or a fleet, with what is expected of it.

    ``mode`` is inference (one pass), serving (prefill of ``seq_len`` tokens and decode behind it) or training. A fleet
    without a ``layout`` gets the first that fits.
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

    def evaluate(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> SystemEvaluation:
        """Feasibility, performance and macro, in order; a level that fails stops the rest."""
        batch = batch_size if batch_size is not None else self.batch_size
        number_format = precision or self.precision
        assumed: dict[str, str] = {"efficiency": efficiency if isinstance(efficiency, str) else f"{efficiency:g}"}
        if isinstance(self.system, Fleet):
            steps = self._on_fleet(batch, number_format, efficiency, assumed)
        else:
            steps = self._on_chip(batch, number_format, efficiency, assumed)
        names = ("Feasibility", "Performance", "Macro")
        levels: list[EvaluationLevel] = []
        for name, step in zip(names, steps, strict=True):
            failed = next((level for level in levels if not level.passed), None)
            if failed is not None:
                text = f"Not evaluated: {failed.level_name} failed."
                levels.append(EvaluationLevel(level_name=name, status="SKIPPED", summary=text))
                continue
            collector = Collector()
            step(collector)
            levels.append(collector.level(name))
        return SystemEvaluation(
            scenario_name=self.name, feasibility=levels[0], performance=levels[1], macro=levels[2], assumptions=assumed
        )

    def validate_scenario(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> bool:
        """Whether all three levels pass."""
        return self.evaluate(batch_size, precision, efficiency).passed_all

    # --- one chip ---------------------------------------------------------------------------------------------

    def _on_chip(
        self, batch: int, precision: str, efficiency: float | str, assumed: dict[str, str]
    ) -> list[Callable[[Collector], None]]:
        chip = self.system
        assert isinstance(chip, HardwareNode)
        training = self.effective_mode == "training"
        profile = SingleNodeModel().solve(
            self.workload,
            chip,
            batch,
            precision,
            efficiency=efficiency,
            is_training=training,
            seq_len=None if self.workload.fixed_shape else self.seq_len,
        )
        assumed.update(profile.assumptions)

        def feasibility(out: Collector) -> None:
            out.add("memory_needed", profile.memory_footprint.to("GB"), 2)
            out.add("memory_available", profile.memory_capacity.to("GB"), 2)
            if not profile.feasible:
                out.problems.append(profile.binding.sentence)
            self._check_data(chip, out)
            if self.power_budget is not None:
                if chip.tdp is None:
                    out.problems.append(
                        f"The power of {chip.name} is not known, so the power budget cannot be checked."
                    )
                elif chip.tdp > self.power_budget:
                    out.problems.append(
                        f"{chip.name} draws {chip.tdp:~P}, more than the budget of {self.power_budget:~P}."
                    )
            used = (profile.memory_footprint / profile.memory_capacity).to("").magnitude
            out.notes.append(f"It fits: {used:.1%} of memory.")

        def performance(out: Collector) -> None:
            if self.effective_mode == "serving":
                self._serve(chip, batch, precision, efficiency, out)
                return
            out.add("latency", profile.latency.to("ms"), 1 if profile.bottleneck == "Compute" else 2)
            out.add("throughput", profile.throughput, 1)
            out.add("mfu", profile.mfu, 1)
            out.notes.append(profile.binding.sentence)
            self._check_latency(profile.latency, profile.binding, out)

        def macro(out: Collector) -> None:
            per_sample = profile.energy_per_inference
            out.add("energy_per_sample", per_sample, 18)
            if per_sample is None:
                out.notes.append(f"The power of {chip.name} is not published, so energy is not known.")
            if self.region is not None and per_sample is not None:
                place = site_of(self.region, None, Assumptions())
                out.add("carbon_per_million_samples_kg", footprint(to_si(per_sample, "kWh") * 1e6, place).carbon, 18)
            if chip.unit_cost is not None:
                out.add("purchase_price", chip.unit_cost, 17)
            if per_sample is not None:
                form = "the measured power of its work" if efficiency == "calibrated" else "0.3 + 0.7 x MFU of the TDP"
                out.notes.append(f"Energy of one sample at {form}.")

        return [feasibility, performance, macro]

    def _serve(self, chip: HardwareNode, batch: int, precision: str, efficiency: float | str, out: Collector) -> None:
        result = ServingModel().solve(
            model=self.workload,
            hardware=chip,
            seq_len=self.seq_len or 2048,
            batch_size=batch,
            precision=precision,
            efficiency=efficiency,
        )
        out.add("ttft", result.ttft.to("ms"), 4)
        out.add("itl", result.itl.to("ms"), 4)
        out.add("kv_cache", result.kv_cache_size.to("GB"), 5)
        if not result.feasible:
            out.problems.append(result.binding.sentence)
        out.notes.append(result.binding.sentence)
        self._check_latency(result.itl, result.binding, out)

    def _check_latency(self, latency: Any, binding: Any, out: Collector) -> None:
        if self.sla_latency is not None and latency > self.sla_latency:
            over = (latency / self.sla_latency).to("").magnitude
            out.problems.append(
                f"{latency.to('ms'):.4g~P} misses the target of {self.sla_latency:~P} by a factor of {over:.3g}: {binding.sentence}"
            )

    def _check_data(self, chip: HardwareNode, out: Collector) -> None:
        if self.workload.data_rate is None or (chip.storage is None and chip.interconnect is None):
            return
        data = DataModel().solve(self.workload.data_rate, chip)
        out.add("data_utilization", data.utilization, 8)
        if data.is_stalled:
            out.problems.append(
                f"Wall 8 (Ingestion): data arrives too slowly ({data.utilization:.3g} of what there is)."
            )

    # --- a fleet ----------------------------------------------------------------------------------------------

    def _on_fleet(
        self, batch: int, precision: str, efficiency: float | str, assumed: dict[str, str]
    ) -> list[Callable[[Collector], None]]:
        fleet = self.system
        assert isinstance(fleet, Fleet)
        if self.effective_mode != "training":
            raise InputError(
                f"Scenario {self.name!r}: a fleet is evaluated for training; serve on one chip (or use ServingModel)."
            )
        seq_len = self.seq_len or 2048
        layout = self.layout
        if layout is None:
            layout = first_fitting_layout(self.workload, fleet, batch, seq_len, precision)
            if layout is not None:
                assumed["layout"] = ", ".join(f"{k}={v}" for k, v in layout.items())
        options: dict[str, Any] = (
            dict(layout) if layout is not None else {"zero_stage": 3, "activation_recomputation": "full"}
        )
        step = DistributedModel().solve(
            self.workload, fleet, batch, precision, efficiency=efficiency, seq_len=seq_len, overlap_comm=True, **options
        )
        assumed.update({k: v for k, v in step.assumptions.items() if k not in assumed})
        days = self.duration_days
        if days is None:
            days = run_days()
            assumed["duration_days"] = f"{days:g}"
        region = self.region or fleet.datacenter or fleet.region
        notes = Assumptions()
        rank = options.get("lora_rank") if options.get("is_lora") else None
        optimizer = options.get("optimizer", "adam")
        saved = run_checkpoint(self.workload, fleet, fleet.total_accelerators, precision, optimizer, rank)
        write = checkpoint_seconds(None, saved, notes)
        reliability = ReliabilityModel().solve(fleet, days * 24, checkpoint_time_s=write)
        run = {"duration_days": days, "mfu": min(step.mfu, 1.0)}
        assumed.update({k: v for k, v in (notes | reliability.assumptions).items() if k not in assumed})

        def feasibility(out: Collector) -> None:
            out.add("memory_per_accelerator", step.memory_per_accelerator.to("GB"), 2)
            out.add("memory_available", step.memory_capacity.to("GB"), 2)
            if not step.feasible:
                out.problems.append(step.binding.sentence)
            p = step.parallelism
            out.notes.append(f"It fits with TP{p['tp']} PP{p['pp']} DP{p['dp']}.")
            self._check_data(fleet.node.accelerator, out)

        def performance(out: Collector) -> None:
            out.add("step_latency", step.step_latency_total, 14)
            out.add("mfu", step.mfu, 1)
            out.add("scaling_efficiency", step.scaling_efficiency, 14)
            out.add("tokens_per_second", step.tokens_per_second, 14)
            out.add("fleet_mtbf", reliability.fleet_mtbf.to("hour"), 15)
            out.add("goodput_ratio", reliability.goodput_ratio, 15)
            out.add("checkpoint_interval", reliability.optimal_checkpoint_interval.to("minute"), 19)
            out.notes.append(step.binding.sentence)
            self._check_latency(step.step_latency_total, step.binding, out)

        def macro(out: Collector) -> None:
            costs = EconomicsModel().solve(fleet, grid=region, kwh_price=LOCAL, **run)
            assumed.update({k: v for k, v in costs.assumptions.items() if k not in assumed})
            out.add("tco_usd", costs.tco_usd, 17)
            work = run_work(days * 86400.0, to_si(step.tokens_per_second, "1/s"), reliability.goodput_ratio, 1.0)
            out.add("tokens", quantity(work, "token"), 17)
            if region is None:
                out.notes.append("No region is given, so carbon and water are not known.")
                return
            taken = SustainabilityModel().solve(fleet, datacenter=region, **run)
            out.add("energy", taken.total_energy_kwh.to("MWh"), 18)
            out.add("carbon_kg", taken.carbon_footprint_kg, 18)
            out.add("water_liters", taken.water_usage_liters, 18)
            name = region.name
            out.notes.append(f"{days:g} days in {name}.")

        return [feasibility, performance, macro]


class _Scenarios:
    """Named scenarios, read when first asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Scenario] = {}

    def _entries(self) -> dict[str, Any]:
        text = files("mlsysim.data").joinpath("scenarios.toml").read_text(encoding="utf-8")
        return {piece.key: piece for piece in slices("scenarios.toml", text)}

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._entries()})

    def __iter__(self) -> Any:
        return iter([self.get(key) for key in self._entries()])

    def keys(self) -> list[str]:
        """Names of the scenarios."""
        return list(self._entries())

    def __getattr__(self, name: str) -> Scenario:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(name)

    def get(self, name: str) -> Scenario:
        """The scenario of that name."""
        if name not in self._built:
            entries = self._entries()
            if name not in entries:
                raise unknown_name("scenario", name, entries)
            table = parse_slice(entries[name])
            chip, cluster = table.pop("hardware", None), table.pop("cluster", None)
            system: Any = Hardware.get(chip) if chip else Clusters.get(cluster)
            self._built[name] = Scenario(system=system, **table)
        return self._built[name]


Scenarios = _Scenarios()
