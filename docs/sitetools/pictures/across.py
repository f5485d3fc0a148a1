"""Pictures of walls 8 to 13 and 20 to 22: data, algorithms, safety and analysis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mlsysim import (
    CompressionModel,
    DataModel,
    InferenceScalingModel,
    ResponsibleEngineeringModel,
    ScalingModel,
    SensitivitySolver,
    SynthesisSolver,
    TopologyModel,
    TransformationModel,
)
from mlsysim.plot.figure import Figure
from mlsysim.units.registry import quantity

from .curves import along

__all__ = ["WALLS"]


def ingestion() -> Figure:
    """One store, more and more accelerators."""
    need = quantity(42_700 * 110e3 / 8, "byte/s")

    return along(
        [1, 2, 4, 8, 12, 16, 24, 32],
        {"delivered to each": "supply_bw", "asked for by each": "demand_bw"},
        of=lambda gpus: DataModel().solve(need, "A100", storage_bandwidth="7 GB/s", accelerators=gpus),
        unit="byte/s",
        x_title="A100 at one store of 7 GB/s",
        y_title="Bytes a second",
        title="ResNet-50 from one store: where the lines cross, accelerators begin to wait",
    )


def transformation() -> Figure:
    """Processors that decode."""

    return along(
        [8, 16, 32, 48, 64, 80, 96, 112, 128, 160],
        {"delivered": "delivered_rate", "the accelerator would take": "demand_rate"},
        of=lambda workers: TransformationModel().solve(
            batch_size=4096, workers=workers, worker_throughput="850 sample/s", accelerator_step_time="48 ms"
        ),
        unit="1/s",
        x_title="Workers that decode 850 images a second each",
        y_title="Images a second",
        title="Images for an accelerator that takes 4,096 in 48 ms",
    )


def locality() -> Figure:
    """What the middle of the network leaves of a port."""

    def left(topology: str) -> Callable[[int], Any]:
        return lambda nodes: TopologyModel().solve("InfiniBand_NDR", topology, num_nodes=nodes).effective_bw

    kinds = {"fat tree": "fat_tree", "dragonfly": "dragonfly", "torus of three dimensions": "torus_3d"}
    return along(
        [64, 128, 256, 512, 1024, 2048, 4096],
        {label: left(topology) for label, topology in kinds.items()},
        names=str,
        unit="bit/s",
        x_title="Nodes",
        y_title="Bandwidth of a node when halves talk",
        title="InfiniBand NDR: what the middle of the network leaves of each node's port",
    )


def complexity() -> Figure:
    """What a budget pays for, and what serving the model changes about that."""

    @cache
    def asked(power: int) -> Any:
        return ScalingModel().solve(f"1e{power} flop", inference_tokens="20 Ttoken")

    return along(
        list(range(20, 27)),
        {
            "tokens": lambda power: asked(power).optimal_tokens.magnitude,
            "tokens, if it then serves 20 trillion": lambda power: asked(power).lifetime_tokens.magnitude,
            "parameters": lambda power: asked(power).optimal_parameters.magnitude,
            "parameters, if it then serves 20 trillion": lambda power: asked(power).lifetime_parameters.magnitude,
        },
        names=lambda power: f"1e{power}",
        x_title="Operations of the training run",
        y_title="Count",
        title="What a budget pays for: model and data grow together, and a model that serves should be smaller",
    )


def reasoning() -> Figure:
    """What it costs to think."""

    def energy(strategy: str) -> Callable[[int], Any]:
        return lambda steps: (
            InferenceScalingModel()
            .solve("Llama3_70B", "H100", tp_size=4, strategy=strategy, reasoning_steps=steps)
            .energy_per_query
        )

    kinds = {"one chain": "chain_of_thought", "best of several": "best_of_n", "a tree": "tree_search"}
    return along(
        [1, 2, 4, 8, 16, 32],
        {label: energy(strategy) for label, strategy in kinds.items()},
        names=str,
        unit="J",
        x_title="Steps of reasoning",
        y_title="Energy of an answer",
        title="Llama 3.1 70B on four H100: steps in a row read all weights anew, samples side by side share them",
    )


def fidelity() -> Figure:
    """Fewer bits help where bytes bind."""

    def gain(**how: Any) -> Callable[[int], float]:
        return lambda batch: CompressionModel().solve("Llama3_8B", "H100", batch_size=batch, **how).decode_speedup

    return along(
        [2**k for k in range(10)],
        {
            "int4 weights": gain(target_bitwidth=4),
            "int8 weights and activations": gain(target_bitwidth=8, quantize_activations=True),
            "int8 weights": gain(target_bitwidth=8),
            "50 % unstructured sparsity": gain(method="pruning", sparsity=0.5),
        },
        names=str,
        x_title="Sequences decoded together",
        y_title="Times as fast as fp16",
        title="Llama 3.1 8B on one H100: small weights help while reading them binds",
    )


def safety() -> Figure:
    """A range more than a number."""

    @cache
    def asked(epsilon: float) -> Any:
        return ResponsibleEngineeringModel().solve("10 day", epsilon=epsilon)

    return along(
        [0.1, 0.2, 0.5, 1, 2, 4, 8],
        {
            "most that was measured": lambda epsilon: asked(epsilon).dp_slowdown_range[1],
            "the paper's form": lambda epsilon: asked(epsilon).dp_slowdown_factor,
            "least that was measured": lambda epsilon: asked(epsilon).dp_slowdown_range[0],
        },
        names=str,
        x_title="Privacy budget epsilon (less is stricter)",
        y_title="Time of private over plain training",
        title="What privacy costs: the paper's form inside and outside of what was measured",
    )


def sensitivity() -> Figure:
    """A roofline has a kink, and so has what it is worth to improve."""

    @cache
    def asked(batch: int) -> Any:
        return SensitivitySolver().solve("Llama3_8B", "H100", batch_size=batch).sensitivities

    return along(
        [32, 64, 96, 128, 140, 147, 148, 156, 192, 256],
        {
            "memory bandwidth": lambda batch: -asked(batch)["memory_bandwidth"],
            "peak FLOP/s": lambda batch: -asked(batch)["peak_flops"],
        },
        unit="percent",
        x_title="Sequences decoded together",
        y_title="Faster by, for 1 % more of it",
        title="Llama 3.1 8B on one H100: at the ridge one figure stops to matter and another begins",
    )


def synthesis() -> Figure:
    """How many chips each wall asks for."""

    @cache
    def asked(days: int) -> Any:
        return (
            SynthesisSolver()
            .solve(
                "Llama3_70B",
                deadline=f"{days} day",
                training_tokens=1.24e12,
                seq_len=2048,
                hardware="H100",
                efficiency=0.4,
            )
            .accelerators_by_wall
        )

    walls = {"compute": "arithmetic", "memory_bandwidth": "memory bandwidth", "memory_capacity": "memory capacity"}
    return along(
        [7, 14, 30, 60, 90, 180, 365],
        {label: (lambda days, wall=wall: asked(days)[wall]) for wall, label in walls.items()},
        names=lambda days: f"{days} days",
        x_title="Deadline",
        y_title="H100 that it asks for",
        title="Llama 3.1 70B on 1.24 trillion tokens: the wall that asks for most decides",
    )


WALLS: dict[int, Callable[[], Figure | None]] = {
    8: ingestion,
    9: transformation,
    10: locality,
    11: complexity,
    12: reasoning,
    13: fidelity,
    20: safety,
    21: sensitivity,
    22: synthesis,
}
"""Walls, and what draws the picture of each."""
