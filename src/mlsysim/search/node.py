"""Spaces of kind ``node``: one pass of a model on chips of the zoo or on chips that do not exist yet.

A chip is an entry of the zoo (``hardware``), or given by ``peak`` (dense, at the precision of the pass), ``bandwidth`` and
``capacity``; what is given beside ``hardware`` replaces the entry's own. The demand of a pass is worked out once for each
combination of model, phase, batch, length and formats; the case of one pass (:mod:`mlsysim.cases.one_pass`) runs on arrays of
them, so that a point equals ``SingleNodeModel().solve()`` of that chip.

A chip that lacks the arithmetic is rejected by wall 1, one that lacks memory by wall 2; times of the latter are those with
the excess streamed from the host. ``usd_per_mtoken`` is the share of the chip's price that a million tokens use up when it
is written off in equal parts over ``amortization_years`` and never idle; power, host and building are left out.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.money import amortised_share
from mlsysim.cases.one_pass import Device, Pass, Work, asked_pass, roofline, work_of
from mlsysim.cases.run import per_million
from mlsysim.cases.training_pass import TrainingStep, training_work
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.physics.power import proportional_power
from mlsysim.search.tables import Table
from mlsysim.units.registry import to_si
from mlsysim.walls.inputs import EFFICIENCY, HARDWARE, Input, read_input
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.zoo.constants import constant

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

__all__ = ["INPUTS", "LARGER", "OBJECTIVE", "OUTPUTS", "chip_numbers", "evaluate"]

_WORKLOAD = (
    "model",
    "batch_size",
    "precision",
    "is_training",
    "seq_len",
    "phase",
    "zero_stage",
    "dp_size",
    "is_lora",
    "lora_rank",
    "activation_recomputation",
    "optimizer",
    "cache_precision",
)
_CHIP: dict[str, Input] = {
    "peak": Input.of("dense peak at the precision of the pass", "[1000, 1e21] flop/s", None),
    "bandwidth": Input.of("memory bandwidth", "[1000, 1e18] byte/s", None),
    "capacity": Input.of("memory capacity", "[1, 1e18] byte", None),
    "host_bandwidth": Input.of("link to the host, one direction", "[1000, 1e18] byte/s", None),
    "price": Input.of("price of the chip", "[0, 1e12] USD", None),
    "tdp": Input.of("power limit", "[1e-06, 1e9] W", None),
    "dispatch_tax": Input.of("time to dispatch a pass", "[0, 1000] s", None),
}
INPUTS: dict[str, Input] = {
    "hardware": Input.of(HARDWARE.meaning, "hardware", None, example="H100"),
    **_CHIP,
    **{name: SingleNodeModel.inputs[name] for name in _WORKLOAD},
    "efficiency": EFFICIENCY,
    "bandwidth_efficiency": SingleNodeModel.inputs["bandwidth_efficiency"],
    "amortization_years": EconomicsModel.inputs["amortization_years"],
}
OUTPUTS = (
    "feasible",
    "wall",
    "latency_s",
    "latency_compute_s",
    "latency_memory_s",
    "throughput_per_s",
    "tokens_per_second",
    "mfu",
    "hfu",
    "memory_bytes",
    "energy_j",
    "price_usd",
    "throughput_per_usd",
    "usd_per_mtoken",
)
LARGER = frozenset({"throughput_per_s", "tokens_per_second", "mfu", "hfu", "throughput_per_usd"})
OBJECTIVE = "latency_s"

_PASS = tuple(field.name for field in fields(Work))
_YEAR = "1 year"


def _table(space: Space, inputs: tuple[str, ...], columns: tuple[str, ...], compute: Any) -> Table:
    defaults = {name: INPUTS[name].default for name in inputs}
    return Table(space, inputs, columns, compute, defaults, "passes")


def _pass(given: dict[str, Any]) -> list[float]:
    """What one pass asks for, as SingleNodeModel works it out."""
    x: dict[str, Any] = {
        name: value if value is None else read_input("a sweep", name, INPUTS[name], value)
        for name, value in given.items()
    }
    model, batch, precision = x["model"], x["batch_size"], x["precision"]
    phase, new, context = asked_pass(model, x["phase"], x["seq_len"], x["is_training"], Assumptions())
    if phase == "training":
        step = TrainingStep(
            model,
            batch,
            new,
            precision,
            x["optimizer"],
            x["activation_recomputation"],
            x["zero_stage"],
            x["dp_size"],
            x["lora_rank"] if x["is_lora"] else None,
        )
        work, _ = training_work(step)
    else:
        work = work_of(Pass(model, phase, batch, new, context, precision, x["cache_precision"]))
    return [float(value) for value in astuple(work)]


_ENTRY = ("peak", "bandwidth", "capacity", "host_bandwidth", "price", "tdp", "dispatch_tax", "flash")


def _entry(given: dict[str, Any]) -> list[float]:
    """Numbers of a chip of the zoo at a precision; what is not known is not a number."""
    chip = read_input("a sweep", "hardware", INPUTS["hardware"], given["hardware"])
    precision = read_input("a sweep", "precision", INPUTS["precision"], given["precision"])
    try:
        peak, _ = arithmetic_peak(chip, precision)
    except UnknownNameError:
        peak = np.nan

    def known(value: Any, unit: str) -> float:
        return np.nan if value is None else to_si(value, unit)

    return [
        peak,
        to_si(chip.memory.bandwidth, "byte/s"),
        to_si(chip.memory.capacity, "byte"),
        known(chip.interconnect and chip.interconnect.bandwidth, "byte/s"),
        known(chip.unit_cost, "USD"),
        known(chip.tdp, "W"),
        to_si(chip.dispatch_tax, "s"),
        known(chip.memory.flash_capacity, "byte"),
    ]


def chip_numbers(space: Space, columns: Columns) -> dict[str, Any]:
    """Numbers of the chip at each point."""
    found: dict[str, Any] = dict.fromkeys(_ENTRY, np.nan)
    found["dispatch_tax"] = to_si(constant("dispatch_tax").quantity, "s")
    if "hardware" in columns or space.fixed.get("hardware") is not None:
        if "chips" not in space.cache:
            space.cache["chips"] = _table(space, ("hardware", "precision"), _ENTRY, _entry)
        found = space.cache["chips"].take(columns)
    else:
        for name in ("peak", "bandwidth", "capacity"):
            if name not in columns and space.fixed.get(name) is None:
                raise InputError(
                    f"The space {space.name!r} needs {name!r} ({INPUTS[name].meaning}), or 'hardware', a chip of the zoo."
                )
    for name in _CHIP:
        if name in columns:
            found[name] = columns[name]
        elif space.fixed.get(name) is not None:
            found[name] = space.fixed[name]
    return found


def _plain(space: Space, columns: Columns, name: str) -> Any:
    return columns[name] if name in columns else space.fixed.get(name, INPUTS[name].default)


def evaluate(space: Space, columns: Columns) -> dict[str, Any]:
    """Outputs at these points."""
    if "passes" not in space.cache:
        space.cache["passes"] = _table(space, _WORKLOAD, _PASS, _pass)
    work = space.cache["passes"].take(columns)
    chip = chip_numbers(space, columns)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _roofline(space, columns, work, chip)


def _roofline(space: Space, columns: Columns, asked: dict[str, Any], chip: dict[str, Any]) -> dict[str, Any]:
    work = Work(**{**asked, "in_place": np.asarray(asked["in_place"]) > 0})
    peak = chip["peak"]
    device = Device(
        peak=peak,
        bandwidth=chip["bandwidth"] * _plain(space, columns, "bandwidth_efficiency"),
        capacity=chip["capacity"],
        host_link=np.asarray(chip["host_bandwidth"]),
        dispatch=chip["dispatch_tax"],
        flash=np.asarray(chip["flash"]),
    )
    times = roofline(work, device, _plain(space, columns, "efficiency"))
    latency, fits = times.seconds, times.fits
    mfu = work.flops / (latency * peak)
    hfu = work.hardware_flops / (latency * peak)
    watts = proportional_power(chip["tdp"], constant("idle_power_fraction").number, np.minimum(hfu, 1.0))
    capable = ~np.isnan(peak)
    price = chip["price"]
    years = latency / to_si(_YEAR, "s")
    spent = amortised_share(price, years, _plain(space, columns, "amortization_years"))
    throughput = work.samples / latency
    outputs = {
        "feasible": fits & capable,
        "wall": np.where(capable, np.where(fits, 0, 2), 1),
        "latency_s": latency,
        "latency_compute_s": times.compute,
        "latency_memory_s": times.memory,
        "throughput_per_s": throughput,
        "tokens_per_second": work.tokens / latency,
        "mfu": mfu,
        "hfu": hfu,
        "memory_bytes": times.held,
        "energy_j": watts * latency,
        "price_usd": price,
        "throughput_per_usd": throughput / price,
        "usd_per_mtoken": per_million(spent, work.tokens),
    }
    return {name: np.broadcast_to(value, (columns.size,)) for name, value in outputs.items()}


def binding(outputs: dict[str, Any]) -> Any:
    """The wall that binds a pass that fits: whichever of arithmetic, memory and the dispatch takes longest."""
    compute, memory = outputs["latency_compute_s"], outputs["latency_memory_s"]
    longer = np.maximum(compute, memory)
    return np.where(outputs["latency_s"] - longer > longer, 3, np.where(compute >= memory, 1, 2))
