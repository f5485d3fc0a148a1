"""One pass of a model on one accelerator: a classification, a token, an image, a keyword heard by a microcontroller."""

from __future__ import annotations

from typing import Any

from mlsysim.cases.assumptions import IDLE, Assumptions
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.storage import stored
from mlsysim.models.vision import DiffusionWorkload
from mlsysim.plans import resolve
from mlsysim.plans.answer import Answer
from mlsysim.plans.parts import binding_of, memory_facts, roof_point, too_full, unfit
from mlsysim.plans.plan import Plan
from mlsysim.plans.sheet import Sheet
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time
from mlsysim.vocabulary import Setting, listed, worded
from mlsysim.walls.base import CALIBRATED
from mlsysim.walls.binding import NAMES
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile


def evaluate_inference(plan: Plan) -> Answer:
    """The answer to a plan of one pass."""
    for leaf in Plan.leaves().values():
        name = leaf.key.rpartition(".")[2]
        foreign = leaf.part == "parallelism" and name != "mode" and "inference" not in leaf.tasks
        if foreign and getattr(plan.parallelism, name) is not None:
            raise InputError(
                f"{leaf.flat} splits a model that is trained or served; one pass is of one accelerator. Ask train or serve.",
                field=leaf.flat,
            )
    resolve.refuse_foreign(plan, "inference", ("workload.dimensions", "parallelism.mode"))
    groups = resolve.find_fleets(plan.hardware)
    fleet = groups.one
    model, assumed = resolve.workload_of(plan.workload), Assumptions()
    options = _options(plan, model, fleet, assumed)
    image = "image" if options["batch_size"] == 1 else "batch"
    labels = ("images", image) if options.get("phase") == "generate" else ("inference", "pass")
    sheet = Sheet(plan, {name: text for name, text in groups.assumed.items() if name == "chip"}, *labels)
    sheet.assumed.learn(assumed.records)
    profile = sheet.keep(SingleNodeModel().solve(model, fleet.node.accelerator, **options))
    return _answer(sheet, model, fleet, profile, options)


def measured_metrics(plan: Plan) -> dict[str, Measured]:
    """The metrics of a plan of one pass that are measured, without the rest of its answer: for tables of many rows."""
    fleet, model = resolve.find_fleets(plan.hardware).one, resolve.workload_of(plan.workload)
    return read_off(
        SingleNodeModel().solve(model, fleet.node.accelerator, **_options(plan, model, fleet, Assumptions()))
    )


Measured = tuple[Any, tuple[Any, Any] | None]
"""A value and its interval, where one is stated."""


def read_off(profile: PerformanceProfile) -> dict[str, Measured]:
    """What is measured of a pass: its time, its rate, and the energy of a sample where that is known."""
    latency, rate, band = profile.latency, profile.throughput, profile.interval
    found: dict[str, Measured] = {
        "latency": (latency, band),
        "throughput": (rate, None if band is None else (rate * (latency / band[1]), rate * (latency / band[0]))),
    }
    if profile.energy is not None:
        sample, ends = profile.energy_per_inference, profile.energy_interval
        shares = ends and [(end / profile.energy).to("").magnitude for end in ends]
        found["energy_per_sample"] = (sample, (sample * shares[0], sample * shares[1]) if shares else None)
    return found


def _options(plan: Plan, model: Workload, fleet: Fleet, assumed: Assumptions) -> dict[str, Any]:
    work, devices = plan.workload, fleet.total_accelerators
    phase = _phase_of(plan, model, assumed)
    if devices > 1 and phase != "generate":
        of_many = listed((Setting("task", "training"), Setting("task", "serving")), " or ")
        image = (
            (", or ", Setting("phase", "generate"), " for whole images") if isinstance(model, DiffusionWorkload) else ()
        )
        words = f"One pass runs on one accelerator, and {devices:,} are given; say "
        raise InputError(worded(words, of_many, *image, "."), field="hardware")
    resolve.say_model(plan, assumed, model)
    options: dict[str, Any] = {
        "batch_size": work.batch_size or 1,
        "precision": resolve.precision_of(plan, assumed, fleet.node.accelerator, model),
        "efficiency": resolve.fidelity_of(plan, model, assumed, chip=fleet.node.accelerator),
        "seq_len": work.seq_len,
        "phase": phase,
        "runtime": plan.hardware.stack,
        "power_cap": plan.hardware.power_cap,
        "random_arrivals": work.random_arrivals,
        "measured_rate": work.measured_rate,
        "ring": plan.parallelism.ring,
        "devices": devices if devices > 1 else None,
    }
    if devices > 1 and options["efficiency"] != CALIBRATED:
        words = (
            f"At first order an image is made on one accelerator, and {devices:,} are given; leave the efficiency out."
        )
        raise InputError(words, field="efficiency")
    return {name: value for name, value in options.items() if value is not None}


def _phase_of(plan: Plan, model: Workload, assumed: Assumptions) -> str | None:
    """The phase that a plan asks; who says in how many steps a denoiser makes an image asks for the image."""
    work, image = plan.workload, "generate"
    if not isinstance(model, DiffusionWorkload):
        return work.phase
    if work.phase is None and work.steps is None:
        steps = model.denoising_steps
        assumed["phase"] = f"one pass through the network; with steps, such as {steps}, it is a whole image"
    elif work.steps is not None and work.phase not in (None, image):
        assumed.say("steps", plan.workload.steps, IDLE, "no effect on one pass")
    return image if work.phase is None and work.steps is not None else work.phase


def _answer(
    sheet: Sheet, model: Workload, fleet: Fleet, profile: PerformanceProfile, options: dict[str, Any]
) -> Answer:
    plan, chip, ledger = sheet.plan, fleet.node.accelerator, sheet.read(profile.ledger)
    measured = read_off(profile)
    _facts(sheet, model, fleet, profile, options["precision"])

    sheet.add("memory", to_si(profile.memory_footprint, "byte"))
    sheet.add("memory_capacity", to_si(profile.memory_capacity, "byte"))
    # Weights that are executed from flash, where a chip does so.
    weights = next((each.bytes for each in ledger.held if each.where == "flash"), None)
    if weights is not None:
        sheet.add("flash", weights)
        sheet.add("flash_capacity", to_si(chip.memory.flash_capacity, "byte"))
    sheet.score_walls({3: f"MFU {profile.mfu:.1%}"}, fails=not profile.feasible)
    sheet.ingest(model.data_rate, chip)
    sheet.add("latency", to_si(profile.latency, "s"), measured["latency"][1])
    rate, band = measured["throughput"]
    sheet.add("throughput", rate.to("1/s"), band)
    sheet.add("mfu", float(profile.mfu))
    sheet.add("arithmetic_intensity", profile.arithmetic_intensity.to("flop/byte"))
    sheet.add("bottleneck", profile.bottleneck, wall=profile.binding.wall)
    energy = _macro(sheet, chip, profile, resolve.find_region(plan.ops, fleet))
    sheet.shown["roofline"] = roof_point(ledger, chip, options["precision"], profile.phase or "one pass")
    memory = f"{sheet.text('memory')} of {sheet.text('memory_capacity')}"
    time = f"{sheet.text('latency')}{sheet.band('latency')}"
    one = {"image": "an image", "batch": f"a batch of {options['batch_size']:,} images"}.get(sheet.noun, "a pass")
    fits = f"Fits: {memory}; {one} takes {time}, {sheet.text('throughput')} samples a second."
    return sheet.answer(
        calibrated=options["efficiency"] == "calibrated",
        feasible=bool(profile.feasible),
        subject=f"{model.name} on {chip.name if fleet.total_accelerators == 1 else fleet.name}",
        headline=fits if profile.feasible else unfit(profile.binding),
        verdict=(*(energy if profile.feasible else ()), *sheet.unknown),
        main="latency",
        binding=binding_of(ledger, sheet.noun) if profile.feasible else too_full(profile.binding),
    )


def _facts(sheet: Sheet, model: Workload, fleet: Fleet, profile: PerformanceProfile, precision: str) -> None:
    """What equations of metrics show beside other metrics."""
    chip, devices = fleet.node.accelerator, fleet.total_accelerators
    times = [f"{NAMES[wall]} {compact_time(float(time))}" for wall, time in sheet.ledger.walls().items() if time]
    sheet.facts |= {
        **memory_facts(chip, to_si(profile.memory_capacity, "byte")),
        "flash_stated": chip.memory.flash_capacity,
        "price_stated": chip.unit_cost,
        "battery": chip.battery_capacity,
        "accelerators": devices,
        "parameters": model.parameter_count,
        "weight_bytes": quantity(stored(model, precision).mean, "byte"),
        "peak": quantity(profile.named("peak", "flop/s"), "flop/s"),
        "model_operations": quantity(devices * profile.named("flops", "flop"), "flop"),
        "operations": quantity(profile.named("flops", "flop"), "flop"),
        "bytes_moved": quantity(profile.named("bytes", "byte"), "byte"),
        "samples": profile.named("samples"),
        "time_by_wall": ", ".join(times),
    }


def _macro(sheet: Sheet, chip: HardwareNode, profile: PerformanceProfile, region: Any) -> list[str]:
    lines = []
    if profile.energy is None:
        sheet.unknown.append(f"The TDP of {chip.name} is not published, so energy is not known.")
    else:
        sample, band = read_off(profile)["energy_per_sample"]
        joules = to_si(sample, "J")
        sheet.facts["energy_of_the_pass"] = profile.energy
        sheet.add("energy_per_sample", joules, band)
        factors = sheet.metrics["energy_per_sample"].factors
        if region is not None:
            from mlsysim.cases.footprint import footprint
            from mlsysim.cases.run_inputs import site_of
            from mlsysim.plans.spending import times

            place = site_of(region, None, Assumptions())
            sheet.facts |= {"carbon_of_the_grid": quantity(place.carbon, "kgCO2e/kWh"), "pue": place.pue}
            found = footprint(to_si(sample, "kWh") * 1e6, place).carbon
            sheet.add("carbon_per_million", found, times(found, factors))
        if chip.battery_capacity is not None:
            held = float(to_si(chip.battery_capacity, "J") / joules)
            sheet.add("samples_per_charge", held, factors and (held / factors[1], held / factors[0]))
        lines.append(f"Each sample takes {sheet.text('energy_per_sample')}.")
        sheet.score(18, f"{sheet.text('energy_per_sample')} a sample")
    sheet.add("purchase", chip.unit_cost)
    return lines
