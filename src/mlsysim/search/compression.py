"""Spaces of kind ``compression``: what quantising and pruning buy in latency, cost and carbon, and cost in accuracy.

A point is a model on a chip of the zoo, in one of the forms below. Wall 13 gives time, memory and accuracy of the pass (a decode
step of a model that decodes), so that a point equals ``CompressionModel().solve()``; walls 17 and 18 give the rest: the chip written
off in equal parts over ``amortization_years`` and never idle, its upkeep, the power of the pass, the building's PUE and the grid's carbon.

    none              16-bit weights and arithmetic
    w8a16, w4a16      integer weights, 16-bit arithmetic
    w8a8_int          8-bit integers for weights and activations
    w8a8_fp           8-bit floating point for both
    sparse_2_4        two of four weights, 16 bits
    unstructured_50   half of the weights, wherever they are small
    awq, nvfp4, ...   any narrow format of the table, as it stores and computes

``accuracy_delta`` is the middle of the published range, relative to the original score (-0.02 is 2 % lower), and
``accuracy_worst`` its lower end; a form that nobody measured for this kind of model has neither and is not ranked by them. Host,
network and building costs are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.money import Prices
from mlsysim.cases.run import Run, spent_by
from mlsysim.cases.run_inputs import LOCAL, maintenance_rate
from mlsysim.errors import UnknownNameError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.precision import FORMATS
from mlsysim.search.costs import per_mtoken, site_at, sites_of, tariff
from mlsysim.search.tables import table
from mlsysim.timing.power import Activity, equivalent, power_of, wide_peak
from mlsysim.units.registry import conversion_factor, to_si
from mlsysim.walls.algorithm.fidelity import CompressionModel, CompressionResult
from mlsysim.walls.inputs import declared, read_input
from mlsysim.walls.operations.capital import EconomicsModel

if TYPE_CHECKING:
    from mlsysim.search.space import Columns, Space

FORMS: dict[str, dict[str, Any]] = {
    "none": {"target_bitwidth": 16},
    "w8a16": {"target_bitwidth": 8},
    "w4a16": {"target_bitwidth": 4},
    "w8a8_int": {"target_bitwidth": 8, "quantize_activations": True},
    "w8a8_fp": {"target_bitwidth": 8, "quantize_activations": True, "number_format": "fp"},
    "sparse_2_4": {"method": "pruning", "sparsity_type": "2:4"},
    "unstructured_50": {"method": "pruning", "sparsity": 0.5},
    **{name: {"format": name} for name, each in FORMATS.items() if each.narrow and name != "w8a16"},
}
"""Forms of a model, and what wall 13 is asked for each."""

_PASS = ("model", "hardware", "compression", "batch_size", "seq_len", "efficiency")
_OWN = declared(f"""
    compression = none | one of {", ".join(FORMS)} | form of the weights
    price? | [0, 1e12] USD | price of the chip
    kwh_price? | [0, 1000] USD/kWh, plain | price of electricity
""")
INPUTS = {name: (CompressionModel.inputs | _OWN)[name] for name in _PASS}
INPUTS |= {"grid": EconomicsModel.inputs["datacenter"], "price": _OWN["price"], "kwh_price": _OWN["kwh_price"]}
INPUTS["amortization_years"] = EconomicsModel.inputs["amortization_years"]
OUTPUTS = (
    *("feasible", "wall", "latency_s", "tokens_per_second", "memory_bytes", "mfu", "accuracy_delta", "accuracy_worst"),
    *("usd_per_mtoken", "kwh_per_mtoken", "kgco2e_per_mtoken"),
)
LARGER = frozenset({"tokens_per_second", "mfu", "accuracy_delta", "accuracy_worst"})
OBJECTIVE = "usd_per_mtoken"

_MEMORY = 2
_FIELDS = ("fits", "latency", "tokens", "memory", "mfu", "middle", "low", "price", "watts")
_HOUR = conversion_factor("h", "s")


def answer(given: Mapping[str, Any]) -> CompressionResult:
    """What wall 13 answers for these inputs of a space."""
    form = FORMS[given.get("compression", INPUTS["compression"].default)]
    asked = {name: given[name] for name in _PASS[3:] if given.get(name) is not None}
    return CompressionModel().solve(given["model"], given["hardware"], **form, **asked)


def _pass(given: dict[str, Any]) -> list[float]:
    """What wall 13 says of one combination; what is not known is not a number."""
    chip = read_input("a sweep", "hardware", INPUTS["hardware"], given["hardware"])
    try:
        result = answer({**given, "hardware": chip})
        watts = _watts(chip, given, result)
    except UnknownNameError as error:
        if error.details.get("kind") != "arithmetic":
            raise
        # A form that the chip does not compute in is no design.
        return [0.0, *[np.nan] * (len(_FIELDS) - 1)]
    low = None if result.accuracy_delta_range is None else result.accuracy_delta_range[0]

    def known(value: Any, unit: str | None = None) -> float:
        return np.nan if value is None else to_si(value, unit) if unit else float(value)

    return [
        float(result.feasible),
        to_si(result.latency, "s"),
        result.tokens,
        to_si(result.memory, "byte"),
        result.mfu,
        known(result.estimated_accuracy_delta),
        known(low),
        known(chip.unit_cost, "USD"),
        known(watts),
    ]


def _watts(chip: HardwareNode, given: Mapping[str, Any], result: CompressionResult) -> float | None:
    """Power of the pass: its operations, and weights and cache that are read once."""
    if chip.tdp is None:
        return None
    form = given.get("compression") or "none"
    narrow = {"w8a8_int": "int8", "w8a8_fp": "fp8"}.get(form, form if form in FORMATS else "bf16")
    peak = wide_peak(chip) if narrow == "bf16" else max(wide_peak(chip), arithmetic_peak(chip, narrow)[0])
    operations = equivalent(chip, narrow) * result.mfu * peak
    return float(power_of(chip, Activity(operations, to_si(result.memory, "byte") / to_si(result.latency, "s"))))


def evaluate(space: Space, columns: Columns) -> dict[str, Any]:
    """Outputs at these points."""
    work = table(space, "passes", _PASS, INPUTS, _FIELDS, _pass).take(columns)
    if "sites" not in space.cache:
        space.cache["sites"] = sites_of(space.values("grid") if "grid" in {*space.homes, *space.fixed} else (None,))
    site = site_at(space.cache["sites"], columns.positions.get("grid", 0))

    def given(name: str, otherwise: Any) -> Any:
        value = columns[name] if name in columns else space.fixed.get(name, INPUTS[name].default)
        return otherwise if value is None else value

    latency, tokens = work["latency"], work["tokens"]
    fits = work["fits"] > 0
    price, paid = given("price", work["price"]), tariff(given("kwh_price", LOCAL), site)
    prices = Prices(price, given("amortization_years", None), maintenance_rate(None, Assumptions()), paid)
    spent = spent_by(Run(latency / _HOUR, 1, work["watts"] / 1000), site, prices)
    outputs = {
        "feasible": fits,
        "wall": np.where(fits, 0, _MEMORY),
        "latency_s": latency,
        "tokens_per_second": tokens / latency,
        "memory_bytes": work["memory"],
        "mfu": work["mfu"],
        "accuracy_delta": work["middle"],
        "accuracy_worst": work["low"],
        **per_mtoken(spent, tokens),
    }
    return {name: np.broadcast_to(outputs[name], (columns.size,)) for name in OUTPUTS}
