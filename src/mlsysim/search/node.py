"""Spaces of kind ``node``: one pass of a model on chips of the zoo or on chips that do not exist yet.

A chip is an entry of the zoo (``hardware``), or given by ``peak`` (dense, at the precision of the pass), ``bandwidth`` and
``capacity``; what is given beside ``hardware`` replaces the entry's own. A point equals ``SingleNodeModel().solve()`` of that chip.

A space over chips as they are sold is calibrated unless it gives an ``efficiency``; the case is then asked once for each combination
of chip, model, phase, batch, length and formats. A chip that does not exist is first order unless the space says "calibrated" (then it
has the constants of its class): the demand of a pass is worked out once for each combination, and the case of one pass
(:mod:`mlsysim.cases.one_pass`) runs on arrays of them.

A chip that lacks the arithmetic is rejected by wall 1, one that lacks memory by wall 2; times of the latter are those with
the excess streamed from the host. ``usd_per_mtoken`` is the share of the chip's price that a million tokens use up when it
is written off in equal parts over ``amortization_years`` and never idle; power, host and building are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import astuple, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.algebra import ledger_of
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.money import amortised_share
from mlsysim.cases.one_pass import Device, Pass, Roofline, Work, asked_pass, first_order, roofline, under_limit, work_of
from mlsysim.cases.run import per_million
from mlsysim.cases.training_pass import TrainingStep, training_work
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak, expansion_rate, run_format
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import ComputeCore, HardwareNode, IOInterconnect, MemoryHierarchy
from mlsysim.models.registry import Models
from mlsysim.models.storage import check_trained
from mlsysim.physics.precision import compute_precision
from mlsysim.search.kinds import asked_of
from mlsysim.search.tables import table
from mlsysim.timing.power import CONSTANTS, ChipPower, die_constants, equivalent, power_from, power_of, wide_peak
from mlsysim.units.registry import Q_, conversion_factor, to_si
from mlsysim.walls.inputs import CALIBRATED, Inputs, declared, read_input
from mlsysim.walls.node.compute_memory import CALIBRATED_ONLY, SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.zoo.constants import constant

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

_CHIP = declared("""
    peak? | [1000, 1e21] flop/s | dense peak at the precision of the pass
    bandwidth? | [1000, 1e18] byte/s | memory bandwidth
    capacity? | [1, 1e18] byte | memory capacity
    host_bandwidth? | [1000, 1e18] byte/s | link to the host, one direction
    price? | [0, 1e12] USD | price of the chip
    tdp? | [1e-06, 1e9] W | power limit
    dispatch_tax? | [0, 1000] s | time to dispatch a pass
""")
_FIRST_ORDER = {"efficiency", "bandwidth_efficiency", *_CHIP} - {"price"}
"""What a space says that has no measurements, or wants none."""
_OWN = ("efficiency", "bandwidth_efficiency", "runtime")
_PASSED = [name for name in SingleNodeModel.inputs if name not in ("hardware", "raise_errors", *CALIBRATED_ONLY)]
_WORKLOAD = tuple(name for name in _PASSED if name not in _OWN)
INPUTS = declared("hardware?") | _CHIP | {name: SingleNodeModel.inputs[name] for name in _PASSED}
_FORMAT = INPUTS["precision"].default
INPUTS["precision"] = replace(INPUTS["precision"], default=None)
INPUTS["power_cap"] = replace(INPUTS["power_cap"], plain_unit="W")
INPUTS["amortization_years"] = EconomicsModel.inputs["amortization_years"]
LARGER = ("throughput_per_s", "tokens_per_second", "mfu", "hfu", "throughput_per_usd")
OUTPUTS = (
    *("feasible", "wall", "latency_s", "latency_compute_s", "latency_memory_s", *LARGER[:-1], "memory_bytes"),
    *("energy_j", "price_usd", "throughput_per_usd", "usd_per_mtoken"),
)
OBJECTIVE = "latency_s"


def is_calibrated(names: Collection[str], models: Iterable[Any]) -> bool:
    """Whether a space that gives inputs of these names is calibrated without saying so: one over chips as they are sold, and
    models with layers to sum over."""
    if "hardware" not in names or _FIRST_ORDER.intersection(names):
        return False
    return all(Models.get(model).has_layers for model in models)


def _calibrated(space: Space) -> bool:
    return "efficiency" in {*space.homes, *space.fixed} and CALIBRATED in space.values("efficiency")


def _plain(space: Space, columns: Columns, name: str) -> Any:
    return columns[name] if name in columns else space.fixed.get(name, INPUTS[name].default)


def format_of(given: dict[str, Any]) -> str:
    """The format of a pass: where none is given that of a plan's answer on a chip of the zoo, fp16 on one that is described."""
    if given.get("precision") is not None:
        return str(read_input("a sweep", "precision", INPUTS["precision"], given["precision"]))
    if given.get("hardware") is None:
        return str(_FORMAT)
    model = Models.get(given["model"])
    return run_format(Hardware.get(given["hardware"]), model, model.native_format)


def _format_by(space: Space, *inputs: str) -> tuple[str, ...]:
    """These inputs, and those that decide the format where the space gives none."""
    given = "precision" in {*space.homes, *space.fixed}
    return tuple(dict.fromkeys((*inputs, "precision", *(() if given else ("hardware", "model")))))


_ENTRY = (*_CHIP, "flash", "expansion", "energy", "wide", *CONSTANTS)


def _entry(given: dict[str, Any]) -> list[float]:
    """Numbers of a chip of the zoo at a precision; what is not known is not a number."""
    chip, precision = read_input("a sweep", "hardware", INPUTS["hardware"], given["hardware"]), format_of(given)
    try:
        peak, _ = arithmetic_peak(chip, precision)
    except UnknownNameError:
        peak = np.nan
    expansion = expansion_rate(chip, precision)
    own = (chip.interconnect and chip.interconnect.bandwidth, chip.unit_cost, chip.tdp, chip.dispatch_tax)
    known = (chip.memory.bandwidth, chip.memory.capacity, *own, chip.memory.flash_capacity)
    units = [*(spec.unit for spec in _CHIP.values()), "byte"][1:]
    numbers = [np.nan if v is None else to_si(v, unit) for v, unit in zip(known, units, strict=True)]
    die = die_constants(chip.metadata.key) or {}
    drawn = [die.get(name, np.nan) for name in CONSTANTS]
    return [peak, *numbers, expansion, equivalent(chip, precision), wide_peak(chip), *drawn]


def chip_numbers(space: Space, columns: Columns) -> dict[str, Any]:
    """Numbers of the chip at each point."""
    found: dict[str, Any] = dict.fromkeys(_ENTRY, np.nan)
    found["expansion"] = np.inf
    found["dispatch_tax"] = to_si(constant("dispatch_tax").quantity, "s")
    if "hardware" in columns or space.fixed.get("hardware") is not None:
        found = table(space, "chips", _format_by(space, "hardware"), INPUTS, _ENTRY, _entry).take(columns)
    else:
        for name in ("peak", "bandwidth", "capacity"):
            if name not in columns and space.fixed.get(name) is None:
                needed = f"{name!r} ({INPUTS[name].meaning}), or 'hardware', a chip of the zoo"
                raise InputError(f"The space {space.name!r} needs {needed}.")
    for name in _CHIP:
        if name in columns:
            found[name] = columns[name]
        elif space.fixed.get(name) is not None:
            found[name] = space.fixed[name]
    if "peak" in columns or space.fixed.get("peak") is not None:
        # A chip that is described has one format, whose energy is its own.
        found |= {"energy": 1.0, "wide": found["peak"]}
    return found


def _power(chip: dict[str, Any]) -> ChipPower:
    """Constants of the power of each point's chip: those of its die, else shares of its TDP."""
    shares = power_from(None, chip["tdp"], chip["wide"], chip["bandwidth"])
    own = {name: np.where(np.isnan(chip[name]), getattr(shares, name), chip[name]) for name in CONSTANTS}
    return shares._replace(**own)


_ANSWER = ("feasible", "wall", *(name for name in OUTPUTS[2:] if "usd" not in name), "tokens", "binding")


def chip_of(given: dict[str, Any]) -> HardwareNode:
    """The chip of the zoo, with what the point replaces, or the one that the point describes; both are taken out of it."""
    chip = None if given.get("hardware") is None else Hardware.get(given["hardware"])
    precision = format_of(given)
    of = {name: given.pop(name, None) for name in ("hardware", *_CHIP)}
    new = {name: Q_(of[name], spec.unit) for name, spec in _CHIP.items() if of[name] is not None}
    changes: dict[str, Any] = {name: new[name] for name in ("tdp", "dispatch_tax") if name in new}
    if "peak" in new:
        changes["compute"] = ComputeCore(peak_flops=new["peak"], headline=compute_precision(precision))
    memory = {name: new[name] for name in ("bandwidth", "capacity") if name in new}
    if memory:
        changes["memory"] = MemoryHierarchy(**memory) if chip is None else chip.memory.model_copy(update=memory)
    if "host_bandwidth" in new:
        changes["interconnect"] = IOInterconnect(name="host", bandwidth=new["host_bandwidth"])
    if chip is None:
        return HardwareNode(name="this chip", **changes)
    return chip.model_copy(update=changes) if changes else chip


def answer(given: dict[str, Any]) -> PerformanceProfile:
    """What SingleNodeModel says of the chip that a point names or describes."""
    given = given | {"precision": format_of(given)}
    chip = chip_of(given)
    return SingleNodeModel().solve(hardware=chip, **asked_of(SingleNodeModel, INPUTS, given))


def _solved(given: dict[str, Any]) -> list[float]:
    """Its answer in numbers; a chip without the arithmetic gives none."""
    try:
        arithmetic_peak(chip_of(dict(given)), format_of(given))
        found = answer({name: value for name, value in given.items() if value is not None})
    except InputError as error:
        if isinstance(error, UnknownNameError) or error.details.get("field") == "precision":
            return [0.0, 1.0, *[np.nan] * (len(_ANSWER) - 2)]
        raise
    tokens, latency = float(found.named("tokens")), to_si(found.latency, "s")
    return [
        *(float(found.feasible), 0.0 if found.feasible else 2.0, latency),
        *(to_si(part, "s") for part in (found.latency_compute, found.latency_memory)),
        *(to_si(found.throughput, "1/s"), tokens / latency, found.mfu, found.hfu),
        to_si(found.memory_footprint, "byte"),
        np.nan if found.energy is None else to_si(found.energy, "J"),
        *(tokens, float(found.binding.wall)),
    ]


def _answers(space: Space, columns: Columns) -> dict[str, Any]:
    inputs = ("hardware", *_CHIP, *_WORKLOAD, "runtime", "efficiency", "bandwidth_efficiency")
    found = table(space, "passes", inputs, INPUTS, _ANSWER, _solved).take(columns)
    return {**found, "feasible": np.asarray(found["feasible"]) > 0, "wall": np.asarray(found["wall"]).astype(np.int64)}


def known_numbers(space: Space, columns: Columns) -> dict[str, float]:
    """Numbers of the chip at one point."""
    found = {name: float(np.ravel(values)[0]) for name, values in chip_numbers(space, columns).items()}
    return {name: value for name, value in found.items() if np.isfinite(value)}


_PASS = tuple(field.name for field in fields(Work))


def _pass(given: dict[str, Any]) -> list[float]:
    """What one pass asks for, as SingleNodeModel works it out."""
    given = {**given, "precision": format_of(given)}
    read = {n: None if v is None else read_input("a sweep", n, INPUTS[n], v) for n, v in given.items()}
    x = Inputs(read)
    phase, new, context = asked_pass(x.model, x.phase, x.seq_len, x.is_training, Assumptions())
    if phase == "training":
        state = x.optimizer, x.activation_recomputation, x.zero_stage, x.dp_size, x.lora_rank if x.is_lora else None
        work, _ = training_work(TrainingStep(x.model, x.batch_size, new, x.precision, *state))
    else:
        work = work_of(Pass(x.model, phase, x.batch_size, new, context, x.precision, x.cache_precision))
    return [float(value) for value in astuple(work)]


def _case(space: Space, columns: Columns, chip: dict[str, Any]) -> tuple[Work, Roofline, Any]:
    """What the points ask for, its times, and the power of their chips."""
    asked = table(space, "passes", _format_by(space, *_WORKLOAD), INPUTS, _PASS, _pass).take(columns)
    work = Work(**{**asked, "in_place": np.asarray(asked["in_place"]) > 0})
    device = Device(
        peak=chip["peak"],
        bandwidth=chip["bandwidth"] * _plain(space, columns, "bandwidth_efficiency"),
        capacity=chip["capacity"],
        host_link=np.asarray(chip["host_bandwidth"]),
        dispatch=chip["dispatch_tax"],
        flash=np.asarray(chip["flash"]),
        expansion=chip["expansion"],
        energy=chip["energy"],
        wide=np.minimum(chip["peak"], chip["wide"]),
        cap=_plain(space, columns, "power_cap"),
    )
    known = _power(chip)
    times, clock = under_limit(work, device, roofline(work, device, _plain(space, columns, "efficiency")), known)
    return work, times, power_of(known, times.activity(work, device, clock), device.cap)


def _trains(given: dict[str, Any]) -> list[float]:
    """Whether the chip trains in the format, where a point is a training step."""
    precision, named = format_of(given), given.get("hardware")
    core = ComputeCore(peak_flops=Q_(1.0, "flop/s"), headline=compute_precision(precision))
    try:
        if given["phase"] == "training" or given["is_training"]:
            core = core if named is None else Hardware.get(named).compute
            check_trained(precision, given["is_lora"], core, "the chip")
    except InputError:
        return [0.0]
    return [1.0]


def _first_order(space: Space, columns: Columns, chip: dict[str, Any]) -> dict[str, Any]:
    work, times, watts = _case(space, columns, chip)
    if np.any(work.is_step):
        described = "peak" in columns or space.fixed.get("peak") is not None
        inputs = _format_by(space, "phase", "is_training", "is_lora", *(() if described else ("hardware",)))
        able = np.asarray(table(space, "trained", inputs, INPUTS, ("able",), _trains).take(columns)["able"]) > 0
        # As where the chip has no arithmetic in the format: no design.
        chip = {**chip, "peak": np.where(able, chip["peak"], np.nan)}
        times, watts = replace(times, compute=np.where(able, times.compute, np.nan)), np.where(able, watts, np.nan)
    latency, fits, peak = times.seconds, times.fits, chip["peak"]
    hfu = work.hardware_flops / (latency * peak)
    capable = ~np.isnan(peak)
    return {
        "feasible": fits & capable,
        "wall": np.where(capable, np.where(fits, 0, 2), 1),
        "latency_s": latency,
        "latency_compute_s": times.computing,
        "latency_memory_s": times.memory,
        "throughput_per_s": work.samples / latency,
        "tokens_per_second": work.tokens / latency,
        "mfu": work.flops / (latency * peak),
        "hfu": hfu,
        "memory_bytes": times.held,
        "energy_j": watts * latency,
        "tokens": work.tokens,
    }


_YEAR = conversion_factor("year", "s")
_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore"}


def evaluate(space: Space, columns: Columns) -> dict[str, Any]:
    """Outputs at these points."""
    with np.errstate(**_QUIET):
        chip = chip_numbers(space, columns)
        found = _answers(space, columns) if _calibrated(space) else _first_order(space, columns, chip)
        years = found["latency_s"] / _YEAR
        spent = amortised_share(chip["price"], years, _plain(space, columns, "amortization_years"))
        found["price_usd"] = chip["price"]
        found["throughput_per_usd"] = found["throughput_per_s"] / chip["price"]
        found["usd_per_mtoken"] = per_million(spent, found["tokens"])
    return {name: np.broadcast_to(found[name], (columns.size,)) for name in OUTPUTS}


def binding(space: Space, columns: Columns) -> Any:
    """The wall that binds each of these points where none rejects it."""
    if _calibrated(space):
        return _answers(space, columns)["binding"]
    with np.errstate(**_QUIET):
        work, times, _ = _case(space, columns, chip_numbers(space, columns))
        return ledger_of(lambda a: first_order(a, work, times)).binding_wall
