"""What must hold of every node, fabric and cluster."""

from __future__ import annotations

from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.zoo.registry import Check, has_sources


def host_power_is_what_is_left(node: Node) -> str | None:
    """Host power and the accelerators' TDP together do not exceed the rated maximum."""
    if node.host_power is None or node.max_power is None or node.accelerator.tdp is None:
        return None
    total = node.host_power + node.accelerators_per_node * node.accelerator.tdp
    if total <= node.max_power * 1.02:
        return None
    return f"host and accelerators draw {total.to('kW'):.4g~P}, more than the rated {node.max_power:~P}"


def adapters_match_the_fabric(node: Node) -> str | None:
    """A node with a stated adapter rate has a credible one."""
    if node.nic_bandwidth is None:
        return None
    rate = node.nic_bandwidth.to("Gbps").magnitude
    return None if 1 <= rate <= 3200 else f"adapters of {rate:.4g} Gbps are not credible"


def fabric_rate_is_credible(fabric: NetworkFabric) -> str | None:
    """Between gigabit Ethernet and the fastest chip links."""
    rate = fabric.bandwidth.to("Gbps").magnitude
    return None if 1 <= rate <= 40_000 else f"{rate:.4g} Gbps is not credible"


def cluster_size_is_credible(cluster: Fleet) -> str | None:
    """Between one node and the largest announced machines."""
    if 1 <= cluster.total_accelerators <= 1_000_000:
        return None
    return f"{cluster.total_accelerators} accelerators are not credible"


NODE_CHECKS: tuple[Check, ...] = (has_sources, host_power_is_what_is_left, adapters_match_the_fabric)
FABRIC_CHECKS: tuple[Check, ...] = (has_sources, fabric_rate_is_credible)
CLUSTER_CHECKS: tuple[Check, ...] = (has_sources, cluster_size_is_credible)
