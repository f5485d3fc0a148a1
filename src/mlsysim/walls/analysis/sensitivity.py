"""Wall 21, sensitivity: which parameter is worth improving, and by how much.

    e(x) = d ln T / d ln x                                                              (elasticity)

One per cent more of x changes T by e per cent. In a roofline e is -1 for the parameter that binds and 0 for the others;
dispatch and mixed regimes lie between. At a kink (where two walls meet) the derivative differs on its two sides: from
above (a little more of x) and from below (a little less). We give the first, which answers "should I buy more?", and keep
both. Derivatives are one-sided differences in ln x with a step of 1e-6, so their error is below 1e-5.

When the model does not fit, capacity binds whatever the elasticities of the spilled time say, and that is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mlsysim.errors import InputError
from mlsysim.walls.base import Assumptions, Binding, Inputs, Resolver, declared, written
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.result import Result, Time
from mlsysim.walls.varied import multiplied

CARDS = """
21 Sensitivity: the binding constraint
e(x) = d ln T / d ln x (Williams et al. 2009)
Which parameter is worth improving?
"""

_STEP = 1e-6
_MAIN = ("peak_flops", "memory_bandwidth", "memory_capacity")
_OUTPUTS = ("latency", "throughput", "energy", "mfu")
_CHIP = {
    "peak_flops": "compute.peak_flops",
    "memory_bandwidth": "memory.bandwidth",
    "memory_capacity": "memory.capacity",
    "dispatch_tax": "dispatch_tax",
    "host_link_bandwidth": "interconnect.bandwidth",
}
_FLEET = {
    **{name: f"node.accelerator.{path}" for name, path in _CHIP.items()},
    "intra_node_bandwidth": "node.intra_node_bw",
    "fabric_bandwidth": "fabric.bandwidth",
    "fabric_latency": "fabric.latency",
}
"""Parameters by name, and where they stand in a chip and in a fleet."""


class SensitivityResult(Result):
    """Elasticities of the chosen output."""

    sensitivities: dict[str, float]
    all_sensitivities: dict[str, float]
    from_below: dict[str, float]
    response: dict[str, float]
    binding_constraint: str
    baseline_latency: Time
    output: str
    perturbation_pct: float


class SensitivitySolver(Resolver[SensitivityResult]):
    """Elasticity of latency, throughput, energy or MFU to every parameter of the hardware and of the fleet."""

    tier = "solver"
    walls = (21,)
    inputs = declared(f"""
        model, hardware?, precision
        perturbation_pct = 10.0 | (0, 1000] | finite change for 'response', in per cent
        efficiency
        batch_size = 1 | whole [1, 1e9] | sequences or samples in the pass
        seq_len? | whole [0, 1e8] | new tokens per sequence; the context in decode
        phase? | one of prefill, decode, training, inference | prefill, decode, training or inference
        is_training = no | flag | a training step instead of inference
        output = latency | one of {", ".join(_OUTPUTS)} | what to differentiate
        fleet? | fleet | a fleet: the output is that of a distributed training step
        layout? | object | keyword arguments of DistributedModel.solve for the fleet, such as {{'tp_size': 8}}
    """)
    equations = written(r"""
        binding_constraint: argmax |e(x)|, e(x) = d ln T / d ln x
            \arg\max_x |\partial \ln T/\partial \ln x|
    """)
    known_fallacies = (
        "Improve what is expensive: improve what binds; anything else has elasticity zero.",
        "Zero sensitivities mean balance: they can also mean that the model does not fit and something else decides.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> SensitivityResult:
        """Differentiate the chosen output."""
        if (x.hardware is None) == (x.fleet is None):
            raise InputError("SensitivitySolver needs 'hardware' or 'fleet', and not both.")
        baseline = _solved(x)
        for name in ("phase", "context", "seq_len"):
            if x.fleet is None and name in baseline.assumptions:
                assumed[name] = baseline.assumptions[name]
        base = _value(baseline, x)
        above, below, response = {}, {}, {}
        for name in _parameters(x):
            above[name], below[name] = (_slope(x, name, base, 1 + step) for step in (_STEP, -_STEP))
            response[name] = _value(_solved(x, name, 1 + x.perturbation_pct / 100), x) / base - 1
        latency = baseline.step_latency_total if x.fleet is not None else baseline.latency
        feasible = bool(baseline.feasible)
        # A parameter binds where less of it hurts; at a kink more of it need not help.
        strongest = max(below, key=lambda name: (abs(below[name]), name in _MAIN))
        binding = strongest if feasible else "memory_capacity"
        sentence = f"The model does not fit, so memory_capacity binds until it does: {baseline.binding.sentence}"
        if feasible:
            less = f"one per cent less of it changes {x.output} by {-below[binding]:+.2f} per cent"
            sentence = f"{binding} binds: {less}."
        return SensitivityResult.of(
            assumed,
            x,
            feasible=feasible,
            binding=Binding(21, "Sensitivity", abs(below.get(binding, 0.0)), sentence),
            sensitivities={name: above[name] for name in _MAIN},
            all_sensitivities={name: value for name, value in above.items() if name not in _MAIN},
            from_below=below,
            response=response,
            binding_constraint=binding,
            baseline_latency=latency.magnitude,
        )


def _parameters(x: Any) -> list[str]:
    names = [*_MAIN, "efficiency"]
    if x.fleet is not None:
        return [*names, "intra_node_bandwidth", "fabric_bandwidth", "fabric_latency"]
    return [*names, "dispatch_tax", *(["host_link_bandwidth"] if x.hardware.interconnect is not None else [])]


def _value(outcome: Any, x: Any) -> float:
    if x.output == "mfu":
        return float(outcome.mfu)
    field = x.output
    if x.fleet is not None:
        field = {"latency": "step_latency_total", "throughput": "effective_throughput"}.get(field, "")
    value = getattr(outcome, field, None)
    if value is None:
        raise InputError("Energy is not known here: it needs a single chip with a TDP.", field="output")
    return float(value.magnitude)


def _slope(x: Any, name: str, base: float, factor: float) -> float:
    if name == "efficiency" and x.efficiency * factor > 1:
        factor = 1 / factor
    slope = math.log(_value(_solved(x, name, factor), x) / base) / math.log(factor)
    return round(slope, 5) + 0.0


def _solved(x: Any, name: str = "", factor: float = 1.0) -> Any:
    """The pass or the step, with a parameter of the chip or of the fleet multiplied."""
    given = {"batch_size": x.batch_size, "precision": x.precision}
    given["efficiency"] = x.efficiency * factor if name == "efficiency" else x.efficiency
    if x.fleet is not None:
        options = (x.layout or {}) | ({} if x.seq_len is None else {"seq_len": x.seq_len})
        fleet = scaled(x.fleet, {name: factor}, _FLEET)
        return DistributedModel().solve(x.model, fleet, **{**given, **options})
    chip = scaled(x.hardware, {name: factor})
    asked = {"seq_len": x.seq_len, "phase": x.phase, "is_training": x.is_training}
    return SingleNodeModel().solve(x.model, chip, **given, **asked)


def scaled(entry: Any, factors: dict[str, float], paths: Mapping[str, str] = MappingProxyType(_CHIP)) -> Any:
    """The chip, or the fleet, with some of its parameters multiplied."""
    for name, factor in factors.items():
        if name in paths:
            entry = multiplied(entry, paths[name], factor)
    return entry
