"""``Systems``: the fleet zoo, with ``Nodes``, ``Fabrics`` and ``Clusters``."""

from __future__ import annotations

from typing import Any

from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.zoo.registry import Registry, builder


def _cluster(**fields: Any) -> Fleet:
    named = {"node": Nodes, "fabric": Fabrics}
    return Fleet(**{name: named[name].get(value) if name in named else value for name, value in fields.items()})


Nodes = Registry(
    "Systems.Nodes",
    "node",
    Node,
    {
        "accelerator": "accelerator.name",
        "number": "accelerators_per_node",
        "link": "intra_node_bw",
        "NICs": "nics_per_node",
        "NIC": "nic_bandwidth",
        "power": "max_power",
    },
)

Fabrics = Registry(
    "Systems.Fabrics", "fabric", NetworkFabric, {"topology": "topology", "bandwidth": "bandwidth", "latency": "latency"}
)

Clusters = Registry(
    "Systems.Clusters",
    "cluster",
    Fleet,
    {"nodes": "count", "node": "node.name", "accelerators": "total_accelerators", "fabric": "fabric.name"},
    builder(_cluster),
)


class Systems:
    """The fleet zoo: nodes, fabrics and clusters."""

    Nodes = Nodes
    Fabrics = Fabrics
    Clusters = Clusters
