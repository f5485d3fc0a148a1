"""Rows of ``collectives.csv``: times and bandwidths of collectives by message size, ranks and nodes.

What a row lacks is inferred from the machine its source describes: the start-up time of NVLink machines was measured once each (the
chips of ``data/collectives.toml``), the DGX A100 and bridged machines have the network rate that
their own largest send shows, and PCIe of generation 4 or 5. Nodes of one rack of links are one domain (NVL72). Between nodes a rank has its share of the
adapters that the row names; where it names none, an adapter of the chip's usual cluster since 2020, and before that a share of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from mlsysim.calibrate.cells import cell, chip_of, devices_of, measured, whole
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Prediction, Skipped
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.collectives import Measured, collective_constants, measured_network, wire_and_steps
from mlsysim.timing.profile import profile
from mlsysim.units.registry import to_si

COLUMNS = ("collective", "gpu", "n_gpus", "n_nodes", "interconnect", "message_bytes", "metric", "value")

KINDS: dict[str, str] = settings("rows")["collectives"]["kinds"]
_UNITS: dict[str, float] = settings("rows")["collectives"]["units"]
_BRIDGE = 300e9
_NETWORKS = {"vidur-network-a100_dgx": 8.4e9, "vidur-network-a100_pairwise_nvlink": 2.7e9}
_ADAPTER = 50e9
_LARGE = 8_000_000_000
_TIMES = ("latency", "time")
_RATES_OF = ("peak_busbw", "busbw", "algbw")
_PAIR = 2
_NODE = 8
_ONE_EACH = 2020
"""From this year on nodes are sold with a network adapter for each accelerator (DGX A100)."""
_RATES = {"EDR": 100, "HDR": 200, "NDR": 400, "XDR": 800}
_WORDS = "EDR|HDR|NDR|XDR|NICs?|HCAs?|CX-?\\d|ConnectX"


def read(row: Mapping[str, str]) -> list[Prediction]:
    """The predicted value of a row, in the row's unit."""
    metric, value = _metric(row), measured(row) / _UNITS.get(cell(row, "unit"), 1.0)
    if metric == "per_nic_bandwidth":
        rate = collective_constants()["fabric"]["share"] * _ADAPTER
        return [Prediction(metric, value, rate / 1e9, "collective network", True, ("400 Gbit/s adapter",))]
    kind, chip = kind_of(row["collective"]), chip_of(row["gpu"])
    ranks = whole(row, "n_gpus", devices_of(row["gpu"]))
    if row["source"] == "vidur-network-h100_pairwise_nvlink" and kind == "send":
        raise Excluded("the same numbers as those of the A100 machine: one of the two files is a copy")
    if metric not in (*_TIMES, *_RATES_OF):
        raise Skipped(f"the metric {metric!r} is not modelled")
    net, regime, inferred = _network(row, ranks, chip)
    if row["source"].endswith("-ring"):
        net = replace(net, switched=False)
    message = _bytes(row)
    if not message:
        if metric in _TIMES:
            raise Skipped("the row gives no size of the message")
        message, inferred = _LARGE, (*inferred, "messages so large that start-up does not count")
    seconds = float(net.ways(kind, message, net.group(ranks))[0])
    wire = wire_and_steps(kind, ranks)[0] if metric != "algbw" else 1.0
    found = wire * message / seconds / 1e9 if metric in _RATES_OF else seconds * 1e6
    known = chip.metadata.key in collective_constants()["start"]
    return [Prediction(metric, value, found, regime, known, inferred)]


def kind_of(name: str) -> str:
    """The collective that a row names: AllReduce, all-reduce, ncclAllReduce, all_reduce_perf.

    >>> kind_of("ncclAllReduce"), kind_of("all-to-all"), kind_of("sendrecv_perf")
    ('all_reduce', 'all_to_all', 'send')
    """
    letters = re.sub(r"^[nr]ccl|^mpi|perf$", "", re.sub("[^a-z]", "", name.lower()))
    if letters not in KINDS:
        raise Skipped("the row does not name its collective")
    return KINDS[letters]


def _bytes(row: Mapping[str, str]) -> int | None:
    """The size of a message as nccl-tests takes it: 8388608, 8M, 64 KiB; None where there is none."""
    found = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s*(?:([kmgt])i?)?(?:b|bytes)?", cell(row, "message_bytes").lower())
    return found and round(float(found[1].replace(",", "")) * 1024 ** " kmgt".index(found[2] or " "))


def _metric(row: Mapping[str, str]) -> str:
    """What was measured: busbw, Bus BW (GB/s), time_us."""
    name = re.sub(r"\(.*\)", "", row["metric"].lower()).strip().replace(" ", "_")
    return (
        re.sub("_us$", "", name).replace("bus_bandwidth", "busbw").replace("bus_bw", "busbw").replace("alg_bw", "algbw")
    )


def _network(row: Mapping[str, str], ranks: int, chip: HardwareNode) -> tuple[Measured, str, tuple[str, ...]]:
    """The network of a row's machine."""
    wires, nodes = row["interconnect"], whole(row, "n_nodes", 1)
    host = to_si(chip.interconnect.bandwidth, "byte/s") if chip.interconnect else 0.0
    if nodes > 1:
        found = re.search(r"devices_per_node=(\d+)", row["notes"])
        local = int(found[1]) if found else max(1, ranks // nodes)
        rack = re.search(r"NVL(\d+)", wires)
        domain = int(rack[1]) if rack else (chip.link.domain or 0) if chip.link else 0
        if domain > _NODE and ranks <= domain:
            return measured_network(chip, ranks), "collective link domain", ("one link domain",)
        # The measured machines share one adapter of the node among its ranks.
        known = _NETWORKS.get(row["source"])
        rate = _per_rank(wires, local, nodes, chip) if known is None else known / local
        adapter = collective_constants()["fabric"]["share"] * rate
        link = _BRIDGE if "bridge" in wires else (host or adapter) if chip.link is None else None
        hop = to_si(profile(chip, "training").collective.fabric_start, "s")
        return (
            measured_network(chip, local, link=link, fabric=adapter, hop=hop),
            "collective network",
            ("network rate",),
        )
    if "bridge" in wires:
        # Two ranks use the bridge; more that are bridged in pairs cross the host's bus, which then sets the pace.
        link = host if "pairwise" in wires and ranks > _PAIR else _BRIDGE
        return measured_network(chip, ranks, link=link, switched=False), "collective bridge", ("bridge rate",)
    if "PCIe" in wires:
        table = collective_constants()["host_bus"]
        if not host:
            raise Skipped(f"{chip.name} states no host link")
        if str(ranks) not in table["without_peer"]:
            raise Skipped(f"no rate is known for {ranks} ranks over a host without peer access")
        # The share is that of all the bus, so that a protocol takes none of it away.
        net = measured_network(chip, ranks, link=host * table["without_peer"][str(ranks)], switched=False)
        entire = {"efficiency": 1.0, "eager_share": table["eager_share"]}
        net = replace(net, ring=net.ring._replace(**entire), swap=net.swap._replace(**entire))
        return net, "collective host bus", ("no peer access across sockets",)
    return measured_network(chip, ranks), "collective link domain", ()


def _per_rank(wires: str, local: int, nodes: int, chip: HardwareNode) -> float:
    """Bytes a second of network for each rank of a node."""
    speed = re.search(r"\b(\d{2,4}) ?G(?:b|bit|bps|E)?\b", wires)
    named = next((rate for word, rate in _RATES.items() if word in wires), None)
    counted = re.search(rf"\b(\d{{1,2}}) ?x? ?(?:{_WORDS}|\d{{2,4}} ?G)", wires)
    each = (int(speed[1]) if speed else named or 0) * 1e9 / 8 or _ADAPTER
    if local == 1:
        # One ring of one rank takes one adapter.
        return each
    if counted:
        count = int(counted[1])
        return each * (count / nodes if count > local and count % nodes == 0 else count) / local
    if (chip.release_year or 0) >= _ONE_EACH:
        links = profile(chip, "training").links
        return each if speed or named or links is None else to_si(links.adapter, "byte/s") or each
    return each / local
