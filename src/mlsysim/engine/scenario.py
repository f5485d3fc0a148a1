"""``Scenario``: a workload on a system, evaluated in three levels.

    Feasibility   does it fit, can the data keep up, is there enough power?      walls 2, 8
    Performance   latency, throughput, utilisation, communication, failures      walls 1, 2, 4, 14, 15
    Macro         money, energy, carbon, water                                   walls 17, 18

A level that fails stops the rest: what a run costs is of no interest while it does not fit. The summary of a failed level
names the wall, what it needs, and the cheapest change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

from pydantic import Field, field_validator

from mlsysim.cases import failures
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import run_checkpoint
from mlsysim.cases.footprint import footprint
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout, choose_micro_batches, divisors
from mlsysim.cases.run import run_power, run_work
from mlsysim.cases.run_inputs import ALL, LOCAL, run_days, site_of
from mlsysim.cases.training_memory import MODES, on_device, training_held
from mlsysim.engine.evaluation import LEVELS, Collector, EvaluationLevel, SystemEvaluation
from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.systems.registry import Clusters
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.fields import Record, Seconds, Watts
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.data.ingestion import DataModel
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.operations.sustainability import SustainabilityModel
from mlsysim.zoo.constants import constant
from mlsysim.zoo.registry import Registry


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

    @property
    def metadata(self) -> None:
        """Named scenarios are examples and cite nothing."""

    def evaluate(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> SystemEvaluation:
        """Feasibility, performance and macro, in order; a level that fails stops the rest."""
        batch = batch_size if batch_size is not None else self.batch_size
        assumed: dict[str, str] = {"efficiency": efficiency if isinstance(efficiency, str) else f"{efficiency:g}"}
        evaluate = self._on_fleet if isinstance(self.system, Fleet) else self._on_chip
        levels: list[EvaluationLevel] = []
        for level in evaluate(self.system, batch, precision or self.precision, efficiency, assumed):
            levels.append(level)
            if not level.passed:
                break
        text = f"Not evaluated: {levels[-1].level_name} failed."
        for name in LEVELS[len(levels) :]:
            levels.append(EvaluationLevel(level_name=name, status="SKIPPED", summary=text))
        return SystemEvaluation(
            scenario_name=self.name, feasibility=levels[0], performance=levels[1], macro=levels[2], assumptions=assumed
        )

    def validate_scenario(
        self, batch_size: int | None = None, precision: str | None = None, efficiency: float | str = 0.5
    ) -> bool:
        """Whether all three levels pass."""
        return self.evaluate(batch_size, precision, efficiency).passed_all

    def _on_chip(
        self, chip: Any, batch: int, precision: str, efficiency: float | str, assumed: dict[str, str]
    ) -> Iterator[EvaluationLevel]:
        given: dict[str, Any] = {"batch_size": batch, "precision": precision, "efficiency": efficiency}
        training = self.effective_mode == "training"
        length = None if self.workload.fixed_shape else self.seq_len
        profile = SingleNodeModel().solve(self.workload, chip, is_training=training, seq_len=length, **given)
        assumed.update(profile.assumptions)

        used = (profile.memory_footprint / profile.memory_capacity).to("").magnitude
        out = Collector(f"It fits: {used:.1%} of memory.")
        out.add("memory_needed", profile.memory_footprint.to("GB"), 2)
        out.add("memory_available", profile.memory_capacity.to("GB"), 2)
        out.refuse(not profile.feasible, profile.binding.sentence)
        self._check_data(chip, out)
        if self.power_budget is not None:
            unknown = f"The power of {chip.name} is not known, so the power budget cannot be checked."
            out.refuse(chip.tdp is None, unknown)
            if chip.tdp is not None and chip.tdp > self.power_budget:
                out.refuse(True, f"{chip.name} draws {chip.tdp:~P}, more than the budget of {self.power_budget:~P}.")
        yield out.level("Feasibility")

        if self.effective_mode == "serving":
            served = ServingModel().solve(self.workload, chip, self.seq_len or 2048, **given)
            out = Collector(served.binding.sentence)
            out.add("ttft", served.ttft.to("ms"), 4)
            out.add("itl", served.itl.to("ms"), 4)
            out.add("kv_cache", served.kv_cache_size.to("GB"), 5)
            out.refuse(not served.feasible, served.binding.sentence)
            self._check_latency(served.itl, served.binding, out)
        else:
            out = Collector(profile.binding.sentence)
            out.add("latency", profile.latency.to("ms"), 1 if profile.bottleneck == "Compute" else 2)
            out.add("throughput", profile.throughput, 1)
            out.add("mfu", profile.mfu, 1)
            self._check_latency(profile.latency, profile.binding, out)
        yield out.level("Performance")

        per_sample = profile.energy_per_inference
        form = "the measured power of its work" if efficiency == "calibrated" else "0.3 + 0.7 x MFU of the TDP"
        unknown = f"The power of {chip.name} is not published, so energy is not known."
        out = Collector(unknown if per_sample is None else f"Energy of one sample at {form}.")
        out.add("energy_per_sample", per_sample, 18)
        if self.region is not None and per_sample is not None:
            place = site_of(self.region, None, Assumptions())
            out.add("carbon_per_million_samples_kg", footprint(to_si(per_sample, "kWh") * 1e6, place).carbon, 18)
        out.add("purchase_price", chip.unit_cost, 17)
        yield out.level("Macro")

    def _check_latency(self, latency: Any, binding: Any, out: Collector) -> None:
        if self.sla_latency is not None and latency > self.sla_latency:
            over = f"{self.sla_latency:~P} by a factor of {(latency / self.sla_latency).to('').magnitude:.3g}"
            out.refuse(True, f"{latency.to('ms'):.4g~P} misses the target of {over}: {binding.sentence}")

    def _check_data(self, chip: HardwareNode, out: Collector) -> None:
        if self.workload.data_rate is None or (chip.storage is None and chip.interconnect is None):
            return
        data = DataModel().solve(self.workload.data_rate, chip)
        out.add("data_utilization", data.utilization, 8)
        if data.is_stalled:
            share = f"{data.utilization:.3g} of what there is"
            out.refuse(True, f"Wall 8 (Ingestion): data arrives too slowly ({share}).")

    def _on_fleet(
        self, fleet: Any, batch: int, precision: str, efficiency: float | str, assumed: dict[str, str]
    ) -> Iterator[EvaluationLevel]:
        if self.effective_mode != "training":
            raise InputError(
                f"Scenario {self.name!r}: a fleet is evaluated for training; serve on one chip (or use ServingModel)."
            )
        seq_len, layout = self.seq_len or 2048, self.layout
        if layout is None:
            layout = first_fitting_layout(self.workload, fleet, batch, seq_len, precision)
            if layout is not None:
                assumed["layout"] = ", ".join(f"{k}={v}" for k, v in layout.items())
        options: dict[str, Any] = (
            dict(layout) if layout is not None else {"zero_stage": 3, "activation_recomputation": "full"}
        )
        options |= {"overlap_comm": True, "update_step": True}
        step = DistributedModel().solve(
            self.workload, fleet, batch, precision, efficiency=efficiency, seq_len=seq_len, **options
        )
        _add(assumed, step.assumptions)
        days = self.duration_days
        if days is None:
            days = run_days()
            assumed["duration_days"] = f"{days:g}"
        notes = Assumptions()
        rank = options.get("lora_rank") if options.get("is_lora") else None
        optimizer = options.get("optimizer", "adam")
        saved = run_checkpoint(self.workload, fleet, fleet.total_accelerators, precision, optimizer, rank)
        chip, said = fleet.node.accelerator, failures.Said(mtbf=fleet.mtbf_hours)
        kept = failures.kept_of(chip, fleet.total_accelerators, saved, said, to_si(step.step_latency_total, "s"))
        failures.note(chip, fleet.total_accelerators, saved, said, kept, notes)
        _add(assumed, notes)

        out = Collector("It fits with TP{tp} PP{pp} DP{dp}.".format(**step.parallelism))
        out.add("memory_per_accelerator", step.memory_per_accelerator.to("GB"), 2)
        out.add("memory_available", step.memory_capacity.to("GB"), 2)
        out.refuse(not step.feasible, step.binding.sentence)
        self._check_data(fleet.node.accelerator, out)
        yield out.level("Feasibility")

        out = Collector(step.binding.sentence)
        out.add("step_latency", step.step_latency_total, 14)
        out.add("mfu", step.mfu, 1)
        out.add("scaling_efficiency", step.scaling_efficiency, 14)
        out.add("tokens_per_second", step.tokens_per_second, 14)
        out.add("fleet_mtbf", quantity(kept.mtbf, "h"), 15)
        out.add("goodput_ratio", float(kept.ratio), 15)
        out.add("checkpoint_interval", quantity(kept.interval, "s").to("minute"), 19)
        self._check_latency(step.step_latency_total, step.binding, out)
        yield out.level("Performance")

        region = self.region or fleet.datacenter or fleet.region
        run: dict[str, Any] = {"duration_days": days, "mfu": min(step.mfu, 1.0), "include_host": True}
        if step.accelerator_power is not None:
            watts = to_si(step.accelerator_power, "W")
            mean = run_power(watts, min(waiting_power_of(chip), watts), float(kept.computing))
            run["average_power"] = quantity(mean, "W")
        costs = EconomicsModel().solve(fleet, grid=region, kwh_price=LOCAL, cost_scope=ALL, **run)
        _add(assumed, costs.assumptions)
        unknown = "No region is given, so carbon and water are not known."
        out = Collector(unknown if region is None else f"{days:g} days in {region.name}.")
        out.add("tco_usd", costs.tco_usd, 17)
        work = run_work(days * 86400.0, to_si(step.tokens_per_second, "1/s"), kept.ratio, 1.0)
        out.add("tokens", quantity(work, "token"), 17)
        if region is not None:
            taken = SustainabilityModel().solve(fleet, datacenter=region, **run)
            out.add("energy", taken.total_energy_kwh.to("MWh"), 18)
            out.add("carbon_kg", taken.carbon_footprint_kg, 18)
            out.add("water_liters", taken.water_usage_liters, 18)
        yield out.level("Macro")


def _add(assumed: dict[str, str], more: dict[str, str]) -> None:
    """What is assumed beside what is said already."""
    assumed.update({name: text for name, text in more.items() if name not in assumed})


def first_fitting_layout(
    model: Workload, fleet: Fleet, batch: int, seq_len: int, precision: str
) -> dict[str, Any] | None:
    """Keyword arguments for DistributedModel of the first layout that fits, as simple as possible and as split as necessary.

    Tensor parallelism stays inside the node. Degrees grow in the order in which they cost least: tensors up to a node, then
    ZeRO 1, recomputation, stages. The ParallelismOptimizer finds the best layout; this finds the first that fits, or None.
    """
    accelerators = fleet.total_accelerators
    capacity = to_si(fleet.node.accelerator.memory.capacity, "byte")
    headroom = constant("allocator_overhead_fraction").number
    heads, layers = getattr(model, "heads", None) or 1, getattr(model, "layers", None) or 1
    tps = [t for t in divisors(fleet.node.accelerators_per_node) if heads % t == 0]
    pps = [p for p in divisors(accelerators) if p <= layers]
    for pp, mode, zero, tp in product(pps, MODES, range(4), tps):
        dp = accelerators // (tp * pp)
        if accelerators % (tp * pp) or batch % dp:
            continue
        count = choose_micro_batches(batch // dp, pp) if pp > 1 else batch // dp
        job = Job(model, precision, seq_len, recompute=mode, zero=zero, headroom=headroom)
        if on_device(training_held(job, Layout(dp, tp, pp, 1, 1, count, batch // dp))) <= capacity:
            degrees = {"tp_size": tp, "pp_size": pp, "zero_stage": zero}
            return {**degrees, "activation_recomputation": mode, "microbatch_count": count}
    return None


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
