"""Pictures of walls 14 to 19: fleets, what breaks, what it costs and emits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mlsysim import (
    CheckpointModel,
    DistributedModel,
    EconomicsModel,
    OrchestrationModel,
    ReliabilityModel,
    SustainabilityModel,
    Systems,
)
from mlsysim.plot.charts.bars import waterfall
from mlsysim.plot.figure import Figure
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import to_si

from .curves import along

__all__ = ["WALLS"]


@cache
def _fleet(gpus: int, network: str = "InfiniBand_NDR") -> Fleet:
    node = Systems.Nodes.DGX_H100
    return Fleet(name=f"{gpus} H100", node=node, count=gpus // 8, fabric=Systems.Fabrics[network])


def communication() -> Figure:
    """Strong and weak scaling of one model."""

    def efficiency(sequences: Callable[[int], int], network: str = "InfiniBand_NDR") -> Callable[[int], float]:
        def ask(gpus: int) -> float:
            batch = sequences(gpus)
            of: dict[str, Any] = {"seq_len": 4096, "tp_size": 8, "zero_stage": 1, "overlap_comm": True}
            fleet = _fleet(gpus, network)
            step = DistributedModel().solve("Llama3_70B", fleet, batch, **of, microbatch_count=batch * 8 // gpus)
            return 100 * step.scaling_efficiency

        return ask

    return along(
        [64, 128, 256, 512, 1024, 2048, 4096, 8192],
        {
            "batch grows with the fleet": efficiency(lambda gpus: 2 * gpus),
            "one batch of 1,024 for all": efficiency(lambda gpus: 1024),
            "that batch, network of 100 Gb/s": efficiency(lambda gpus: 1024, "Ethernet_100G"),
        },
        names=str,
        unit="percent",
        x_title="H100",
        y_title="Step without communication over step",
        title="Llama 3.1 70B, tensors split eight ways: what communication leaves of a step",
    )


def fragility() -> Figure:
    """What failures leave of ever larger fleets."""

    def goodput(seconds: int) -> Callable[[int], float]:
        return lambda gpus: (
            100
            * ReliabilityModel()
            .solve(_fleet(gpus), job_duration_hours=720, checkpoint_time_s=seconds)
            .goodput_ratio_exact
        )

    return along(
        [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072],
        {f"saving takes {seconds} s": goodput(seconds) for seconds in (10, 60, 300)},
        names=lambda gpus: str(gpus) if gpus < 1024 else f"{gpus // 1024}k",
        unit="percent",
        x_title="H100",
        y_title="Goodput at the best interval",
        title="What failures, and the saving against them, leave of a run",
    )


def tenancy() -> Figure:
    """Waiting against load, for clusters that run several jobs at a time."""

    def wait(places: int) -> Callable[[float], float]:
        return lambda load: (
            OrchestrationModel().solve("Frontier_8K", places * load / 100, 1.0, num_servers=places).avg_wait_time_days
        )

    return along(
        [30, 40, 50, 60, 70, 75, 80, 85, 90, 93, 95],
        {f"{places} at a time" if places > 1 else "one job at a time": wait(places) for places in (1, 4, 16)},
        x_title="Load of the cluster",
        x_unit="percent",
        y_title="Days that a job of one day waits",
        title="A full cluster is one that everybody waits for; many small jobs wait less than few large ones",
    )


def capital() -> Figure:
    """Owning against renting."""
    rent = "4 USD/h"

    def own(share: float) -> float:
        asked = EconomicsModel().solve(
            _fleet(512), duration_days=30, grid="Quebec", mfu=0.4, cloud_price=rent, utilization=share / 100
        )
        return asked.cost_per_accelerator_hour_usd

    return along(
        [10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100],
        {"owned": own, "rented": lambda share: to_si(rent, "USD/h")},
        x_title="Share of the time in which it works",
        x_unit="percent",
        y_title="USD an hour of work",
        title="An H100 of one's own is cheaper than rent from some use on",
    )


def sustainability() -> Figure:
    """Where a month's energy goes."""
    asked = SustainabilityModel().solve(_fleet(512), duration_days=30, datacenter="Quebec", mfu=0.4, include_host=True)
    parts = [(name, to_si(energy, "MWh"), "MWh") for name, energy in asked.energy_by_scope.items()]
    return waterfall(parts, total_label="Month", title="512 H100 in Quebec for 30 days: where the energy goes")


def checkpoint() -> Figure:
    """Save too often and writing costs, too seldom and work is done again."""
    saving = CheckpointModel().solve("Llama3_70B", "H100", n_writers=16)

    return along(
        [4, 6, 8, 10, 12, 14, 16, 20, 25, 30],
        {
            "both, and restarts": "total_overhead_fraction",
            "writing": "checkpoint_overhead_fraction",
            "work that is done again": "rework_overhead_fraction",
        },
        of=lambda minutes: ReliabilityModel().solve(
            _fleet(4096),
            job_duration_hours=720,
            checkpoint_time_s=saving.write_time_seconds.magnitude,
            checkpoint_interval=f"{minutes} min",
        ),
        unit="percent",
        x_title="Minutes between checkpoints",
        y_title="Share of the run",
        title=f"Llama 3.1 70B on 4,096 H100: a write by sixteen takes {saving.write_time_seconds.magnitude:.0f} s",
    )


WALLS: dict[int, Callable[[], Figure | None]] = {
    14: communication,
    15: fragility,
    16: tenancy,
    17: capital,
    18: sustainability,
    19: checkpoint,
}
"""Walls, and what draws the picture of each."""
