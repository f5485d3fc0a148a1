"""Distributed roofline: attainable FLOP/s of one accelerator over the work it has for each byte it synchronises.

    attainable(I) = min(P, I B),   I = operations of a step / bytes of gradient

B is the bandwidth of a large all-reduce over the whole fleet as the engine times it (latency vanishes for large
messages), so that a slope already contains the 2 (N - 1) / N passes of a ring and the two levels of links. The second
slope is the memory of the chip, on the same axis of bytes: where it lies above the network's, the network binds first.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.base import Workload
from mlsysim.plot.amounts import read_label
from mlsysim.plot.charts.roofline import operating_points, plain_point
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.roofs import Roof, RoofChart, check_ceiling
from mlsysim.systems.registry import Clusters
from mlsysim.systems.types import Fleet
from mlsysim.timing.network import datasheet_network
from mlsysim.units.registry import to_si
from mlsysim.walls.fleet.network_roofline import NetworkRooflineModel
from mlsysim.walls.node.performance import PerformanceProfile

# Long enough for the latency of any fleet to vanish.
_LARGE_MESSAGE = 1e18


def distributed_roofline(
    fleet: Any,
    workloads: Any = (),
    *,
    precision: str = "fp16",
    efficiency: float = 0.5,
    points: Any = (),
    title: str | None = None,
    width: int = WIDE,
    **options: Any,
) -> Figure:
    """The roofline of a fleet with its network as the slope.

    A workload is a model or its name (a data-parallel step of it, with ``options`` of ``NetworkRooflineModel.solve`` such
    as ``batch_size``), a pair of it and options, or a pair of a label and a result. ``points`` are plain data:
    (label, FLOP per byte of network, FLOP/s).
    """
    cluster = Clusters.get(fleet) if isinstance(fleet, str) else fleet
    if not isinstance(cluster, Fleet):
        raise InputError(f"A distributed roofline is drawn for a fleet such as 'Frontier_8K', got {fleet!r:.60}.")
    chip = cluster.node.accelerator
    peak, _ = arithmetic_peak(chip, precision)
    ranks = cluster.total_accelerators
    if ranks < 2:
        raise InputError("A distributed roofline needs a fleet of at least two accelerators.", field="fleet")
    net = datasheet_network(cluster)
    slowest = net.all_reduce(_LARGE_MESSAGE, net.group(ranks))

    def solve(model: Workload, **given: Any) -> tuple[PerformanceProfile, str]:
        profile = NetworkRooflineModel().solve(model, cluster, **given)
        return profile, f"{model.name}, {given.get('batch_size', 1)} per accelerator"

    where = operating_points(workloads, chip, solve, precision=precision, efficiency=efficiency, **options)
    return RoofChart(
        title=read_label(title) if title is not None else f"Distributed roofline of {cluster.name}, {precision}",
        subtitle="Per accelerator: left of the first ridge the network binds, right of it arithmetic.",
        width=width,
        x_title="Operations per byte synchronised",
        roofs=[
            Roof(f"All-reduce over {ranks:,} accelerators", peak, _LARGE_MESSAGE / slowest),
            Roof(f"Memory of {chip.name}", peak, to_si(chip.memory.bandwidth, "byte/s")),
        ],
        points=[*where, *(plain_point(item) for item in points or ())],
        ceiling=check_ceiling(efficiency) if where else None,
    )


def plot_distributed_roofline(fleet: Any, workloads: Any = (), **options: Any) -> Figure:
    """``distributed_roofline`` under the name that the documents print."""
    return distributed_roofline(fleet, workloads, **options)
