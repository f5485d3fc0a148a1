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
from collections.abc import Callable
from typing import Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.inputs import EFFICIENCY, HARDWARE, MODEL, PRECISION, Input, Inputs
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.result import Result, Time

CARDS = """
21 Sensitivity: the binding constraint
e(x) = d ln T / d ln x (Williams et al. 2009)
Which parameter is worth improving?
"""

_STEP = 1e-6
_MAIN = ("peak_flops", "memory_bandwidth", "memory_capacity")
_OUTPUTS = ("latency", "throughput", "energy", "mfu")
_FLEET_OUTPUTS = ("latency", "throughput", "mfu")


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
    result = SensitivityResult
    inputs: ClassVar[dict[str, Input]] = {
        "model": MODEL,
        "hardware": Input.of(HARDWARE.meaning, "hardware", None),
        "precision": PRECISION,
        "perturbation_pct": Input.of("finite change for 'response', in per cent", "(0, 1000]", 10.0),
        "efficiency": EFFICIENCY,
        "batch_size": Input.of("sequences or samples in the pass", "whole [1, 1e9]", 1),
        "seq_len": Input.of("new tokens per sequence; the context in decode", "whole [0, 1e8]", None),
        "phase": Input.of(
            "prefill, decode, training or inference", ("prefill", "decode", "training", "inference"), None
        ),
        "is_training": Input.of("a training step instead of inference", "flag", False),
        "output": Input.of("what to differentiate", _OUTPUTS, "latency"),
        "fleet": Input.of("a fleet: the output is that of a distributed training step", "fleet", None),
        "layout": Input.of(
            "keyword arguments of DistributedModel.solve for the fleet, such as {'tp_size': 8}", "object", None
        ),
    }
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
        evaluate = self._on_fleet(x) if x.fleet is not None else self._on_chip(x, assumed)
        baseline = evaluate({})
        base_value = self._value(baseline, x)
        above, below, response = {}, {}, {}
        for name in self._parameters(x):
            above[name] = self._slope(evaluate, x, name, base_value, 1 + _STEP)
            below[name] = self._slope(evaluate, x, name, base_value, 1 - _STEP)
            response[name] = self._value(evaluate({name: 1 + x.perturbation_pct / 100}), x) / base_value - 1
        chip_latency = baseline.step_latency_total if x.fleet is not None else baseline.latency
        feasible = bool(baseline.feasible)
        # A parameter binds where less of it hurts; at a kink more of it need not help.
        strongest = max(below, key=lambda name: (abs(below[name]), name in _MAIN))
        binding = strongest if feasible else "memory_capacity"
        if feasible:
            sentence = (
                f"{binding} binds: one per cent less of it changes {x.output} by {-below[binding]:+.2f} per cent."
            )
        else:
            sentence = f"The model does not fit, so memory_capacity binds until it does: {baseline.binding.sentence}"
        rest = {name: value for name, value in above.items() if name not in _MAIN}
        return SensitivityResult.of(
            assumed,
            feasible=feasible,
            binding=Binding(21, "Sensitivity", abs(below.get(binding, 0.0)), sentence),
            sensitivities={name: above[name] for name in _MAIN},
            all_sensitivities=rest,
            from_below=below,
            response=response,
            binding_constraint=binding,
            baseline_latency=chip_latency.magnitude,
            output=x.output,
            perturbation_pct=x.perturbation_pct,
            cited={"model": x.model},
        )

    @staticmethod
    def _parameters(x: Any) -> list[str]:
        names = [*_MAIN, "efficiency"]
        if x.fleet is not None:
            return [*names, "intra_node_bandwidth", "fabric_bandwidth", "fabric_latency"]
        names.append("dispatch_tax")
        if x.hardware.interconnect is not None:
            names.append("host_link_bandwidth")
        return names

    @staticmethod
    def _value(outcome: Any, x: Any) -> float:
        if x.output == "latency":
            latency = outcome.step_latency_total if x.fleet is not None else outcome.latency
            return float(latency.magnitude)
        if x.output == "throughput":
            rate = outcome.effective_throughput if x.fleet is not None else outcome.throughput
            return float(rate.magnitude)
        if x.output == "energy":
            if x.fleet is not None or outcome.energy is None:
                raise InputError("Energy is not known here: it needs a single chip with a TDP.", field="output")
            return float(outcome.energy.magnitude)
        return float(outcome.mfu)

    def _slope(
        self, evaluate: Callable[[dict[str, float]], Any], x: Any, name: str, base: float, factor: float
    ) -> float:
        if name == "efficiency" and x.efficiency * factor > 1:
            factor = 1 / factor
        value = self._value(evaluate({name: factor}), x)
        slope = math.log(value / base) / math.log(factor)
        return round(slope, 5) + 0.0

    @staticmethod
    def _on_chip(x: Any, assumed: dict[str, str]) -> Callable[[dict[str, float]], Any]:
        model = SingleNodeModel()

        def evaluate(factors: dict[str, float]) -> Any:
            outcome = model.solve(
                model=x.model,
                hardware=scaled(x.hardware, factors),
                batch_size=x.batch_size,
                precision=x.precision,
                efficiency=x.efficiency * factors.get("efficiency", 1.0),
                seq_len=x.seq_len,
                phase=x.phase,
                is_training=x.is_training,
            )
            for name in ("phase", "context", "seq_len"):
                if name in outcome.assumptions:
                    assumed[name] = outcome.assumptions[name]
            return outcome

        return evaluate

    @staticmethod
    def _on_fleet(x: Any) -> Callable[[dict[str, float]], Any]:
        model = DistributedModel()
        layout = dict(x.layout or {})

        def evaluate(factors: dict[str, float]) -> Any:
            fleet = x.fleet
            node = fleet.node.model_copy(
                update={
                    "accelerator": scaled(fleet.node.accelerator, factors),
                    "intra_node_bw": fleet.node.intra_node_bw * factors.get("intra_node_bandwidth", 1.0),
                }
            )
            fabric = fleet.fabric.model_copy(
                update={"bandwidth": fleet.fabric.bandwidth * factors.get("fabric_bandwidth", 1.0)}
            )
            if "fabric_latency" in factors and fabric.latency is not None:
                fabric = fabric.model_copy(update={"latency": fabric.latency * factors["fabric_latency"]})
            changed = fleet.model_copy(update={"node": node, "fabric": fabric})
            options: dict[str, Any] = {"batch_size": x.batch_size, "precision": x.precision, **layout}
            if x.seq_len is not None:
                options["seq_len"] = x.seq_len
            return model.solve(x.model, changed, efficiency=x.efficiency * factors.get("efficiency", 1.0), **options)

        return evaluate


def scaled(chip: HardwareNode, factors: dict[str, float]) -> HardwareNode:
    """The chip with some of its parameters multiplied."""
    update: dict[str, Any] = {}
    if "peak_flops" in factors:
        factor = factors["peak_flops"]
        peaks = {name: rate * factor for name, rate in chip.compute.precision_flops.items()}
        update["compute"] = chip.compute.model_copy(
            update={"peak_flops": chip.compute.peak_flops * factor, "precision_flops": peaks}
        )
    memory = {}
    if "memory_bandwidth" in factors:
        memory["bandwidth"] = chip.memory.bandwidth * factors["memory_bandwidth"]
    if "memory_capacity" in factors:
        memory["capacity"] = chip.memory.capacity * factors["memory_capacity"]
    if memory:
        update["memory"] = chip.memory.model_copy(update=memory)
    if "dispatch_tax" in factors:
        update["dispatch_tax"] = chip.dispatch_tax * factors["dispatch_tax"]
    if "host_link_bandwidth" in factors and chip.interconnect is not None:
        link = chip.interconnect.model_copy(
            update={"bandwidth": chip.interconnect.bandwidth * factors["host_link_bandwidth"]}
        )
        update["interconnect"] = link
    return chip.model_copy(update=update) if update else chip
