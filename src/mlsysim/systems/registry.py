"""``Systems``: the fleet zoo, with ``Nodes``, ``Fabrics`` and ``Clusters``."""

from __future__ import annotations

from typing import Any

from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.zoo.registry import Registry, builder, provenance


def build_cluster(key: str, table: dict[str, Any]) -> Fleet:
    """A fleet from the fields of an entry."""
    table = dict(table)
    metadata = provenance(key, table)
    table["node"], table["fabric"] = Nodes.get(table["node"]), Fabrics.get(table["fabric"])
    return Fleet(metadata=metadata, **table)


Nodes = Registry(
    "Systems.Nodes",
    "node",
    "mlsysim.systems",
    ("nodes.toml",),
    builder(Node),
    {
        "name": "name",
        "accelerator": "accelerator.name",
        "number": "accelerators_per_node",
        "link": "intra_node_bw",
        "NICs": "nics_per_node",
        "NIC": "nic_bandwidth",
        "power": "max_power",
        "source": "metadata.kind",
    },
    kind=Node,
    folder="nodes",
)

Fabrics = Registry(
    "Systems.Fabrics",
    "fabric",
    "mlsysim.systems",
    ("fabrics.toml",),
    builder(NetworkFabric),
    {"name": "name", "topology": "topology", "bandwidth": "bandwidth", "latency": "latency", "source": "metadata.kind"},
    kind=NetworkFabric,
    folder="fabrics",
)

Clusters = Registry(
    "Systems.Clusters",
    "cluster",
    "mlsysim.systems",
    ("clusters.toml",),
    build_cluster,
    {
        "name": "name",
        "nodes": "count",
        "node": "node.name",
        "accelerators": "total_accelerators",
        "fabric": "fabric.name",
        "source": "metadata.kind",
    },
    kind=Fleet,
    folder="clusters",
)


class Systems:
    """The fleet zoo: nodes, fabrics and clusters."""

    Nodes = Nodes
    Fabrics = Fabrics
    Clusters = Clusters
