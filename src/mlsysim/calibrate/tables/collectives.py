"""Rows of ``collectives.csv``: times and bandwidths of collectives by message size, ranks and nodes.

What a row lacks is inferred from the machine its source describes: the start-up time of NVLink machines was measured once each (the
chips of ``data/collectives.toml``), the DGX A100 and bridged machines have the network rate that
their own largest send shows, and PCIe of generation 4 or 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.collectives import (
    across_nodes,
    bridged_pairs,
    collective_constants,
    inside_domain,
    start_of,
    wire_and_steps,
)
from mlsysim.units.registry import to_si

COLUMNS = ("collective", "gpu", "n_gpus", "n_nodes", "interconnect", "message_bytes", "metric", "value")

KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "send_recv": "send",
}
_BRIDGE = 300e9
_NETWORKS = {"vidur-network-a100_dgx": 8.4e9, "vidur-network-a100_pairwise_nvlink": 2.7e9}
_ADAPTER = 50e9
_LARGE = 8e9


def read(row: Mapping[str, str]) -> list[Prediction]:
    """The predicted value of a row, in the row's unit."""
    return [_predict(row)]


def _predict(row: Mapping[str, str]) -> Prediction:
    metric = row["metric"]
    if metric == "per_nic_bandwidth":
        rate = collective_constants()["fabric"]["share"] * _ADAPTER
        return Prediction(metric, float(row["value"]), rate / 1e9, "collective network", True, ("400 Gbit/s adapter",))
    if row["collective"] not in KINDS:
        raise Skipped("the row does not name its collective")
    kind, ranks = KINDS[row["collective"]], int(row["n_gpus"])
    chip: HardwareNode = Hardware.get(row["gpu"])
    if row["source"] == "vidur-network-h100_pairwise_nvlink" and kind == "send":
        raise Excluded("the same numbers as those of the A100 machine: one of the two files is a copy")
    if metric in ("peak_busbw", "busbw"):
        wire, _ = wire_and_steps(kind, ranks)
        bridged = "bridge" in row["interconnect"]
        rings = bridged or row["source"].endswith("-ring")
        link = _BRIDGE if bridged else None
        seconds = inside_domain(kind, _LARGE, ranks, chip, link=link, in_switch=False if rings else None)
        return Prediction(metric, float(row["value"]), wire * _LARGE / seconds / 1e9, "collective link domain", True)
    if metric != "latency":
        raise Skipped(f"the metric {metric!r} is not modelled")
    seconds, regime, inferred = _seconds(row, kind, ranks, chip, float(row["message_bytes"]))
    measured = chip.metadata.key in collective_constants()["start"]
    return Prediction(metric, float(row["value"]), float(seconds) * 1e6, regime, measured, inferred)


def _seconds(
    row: Mapping[str, str], kind: str, ranks: int, chip: HardwareNode, message: float
) -> tuple[Any, str, tuple[str, ...]]:
    wires, source = row["interconnect"], row["source"]
    if int(row["n_nodes"]) > 1:
        found = re.search(r"devices_per_node=(\d+)", row["notes"])
        local = int(found[1]) if found else max(1, ranks // int(row["n_nodes"]))
        # The measured machines share one adapter of the node among its ranks.
        adapter = _NETWORKS.get(source, _ADAPTER) / local
        link = _BRIDGE if "bridge" in wires else None
        seconds = across_nodes(kind, message, int(row["n_nodes"]), local, chip, adapter, link=link)
        return seconds, "collective network", ("network rate",)
    if "pairwise" in wires:
        host = to_si(chip.interconnect.bandwidth, "byte/s") if chip.interconnect else 0.0
        return bridged_pairs(kind, message, ranks, chip, _BRIDGE, host), "collective bridge", ("bridge rate",)
    if "bridge" in wires:
        return (
            inside_domain(kind, message, ranks, chip, link=_BRIDGE, in_switch=False),
            "collective bridge",
            ("bridge rate",),
        )
    if "PCIe" in wires:
        return _over_host(kind, message, ranks, chip), "collective host bus", ("no peer access across sockets",)
    return inside_domain(kind, message, ranks, chip), "collective link domain", ()


def _over_host(kind: str, message: float, ranks: int, chip: HardwareNode) -> Any:
    if chip.interconnect is None:
        raise Skipped(f"{chip.name} states no host link")
    tables = collective_constants()
    shares = tables["host_bus"]["without_peer"]
    if str(ranks) not in shares:
        raise Skipped(f"no rate is known for {ranks} ranks over a host without peer access")
    rate = to_si(chip.interconnect.bandwidth, "byte/s") * shares[str(ranks)]
    share = tables["host_bus"]["eager_share"]
    link = rate / tables["exchange" if kind == "all_to_all" else "ring"]["efficiency"]
    return inside_domain(
        kind, message, ranks, chip, link=link, start=start_of(chip), in_switch=False, eager_share=share
    )
