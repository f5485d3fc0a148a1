"""Networks: bandwidth across the worst cut into two halves, for each node over its link, and the mean distance.

Wall 10 (``walls/data/locality.py``) has the table of them and how they are derived; none is above 1.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum, where
from mlsysim.units.records import dataclass

DIMENSIONS = {"torus_2d": 2, "torus_3d": 3}
DRAGONFLIES = ("dragonfly", "dragonfly_plus")
TREES = ("fat_tree", "rail_optimized")
TITLES = {
    "fat_tree": "fat-tree", "rail_optimized": "rail-optimised fat-tree", "dragonfly": "dragonfly",
    "dragonfly_plus": "dragonfly+", "torus_2d": "2D torus", "torus_3d": "3D torus", "switched": "single switch",
    "full_mesh": "full mesh",
}  # fmt: skip
SPELLINGS = {
    "clos": "fat_tree", "leaf_spine": "fat_tree", "rail_optimised": "rail_optimized", "dragonfly+": "dragonfly_plus",
    "2d_torus": "torus_2d", "3d_torus": "torus_3d",
}  # fmt: skip
INSIDE = ("tree", "point_to_point")
"""Shapes of what joins chips inside a server, without a bisection between nodes."""


def topology_key(given: Any) -> str:
    """A topology by its own name, as far as it is known."""
    folded = str(given).lower().replace("-", "_").replace(" ", "_")
    return SPELLINGS.get(folded, folded)


@kernel("oversubscription [1, 8] -> share")
def tree_share(oversubscription: Any) -> Any:
    """Bisection share of a tree of switches."""
    return minimum(1 / oversubscription, 1.0)


@kernel("oversubscription [1, 8] -> ports")
def tree_ports(oversubscription: Any) -> Any:
    """Ports of switches for each port of a node in a tree of two stages: the one that it enters, and of the two ends of a link above it 1/o."""
    return 1 + 2 / oversubscription


@kernel("global_links [0.3, 2], crossing [0.5, 1], oversubscription [1, 8] -> share")
def dragonfly_share(global_links: Any, crossing: Any, oversubscription: Any) -> Any:
    """Bisection share of groups that are all joined to each other: the global links that lead to the other half."""
    return minimum(global_links * crossing / oversubscription, 1.0)


@kernel("longest_ring [2, 64] -> share")
def torus_share(longest_ring: Any) -> Any:
    """Bisection share of a torus: two links of each ring are cut, for half of the ring's nodes."""
    return minimum(4 / longest_ring, 1.0)


@kernel("nodes whole [2, 1e5] -> share")
def mesh_share(nodes: Any) -> Any:
    """Bisection share of nodes that are all joined to each other and split their bandwidth."""
    return minimum(nodes / (2 * (nodes - 1)), 1.0)


@kernel("ring [2, 64] -> hops")
def ring_hops(ring: Any) -> Any:
    """Mean distance along a ring, over all nodes of it: k/4 for even k, (k^2 - 1) / (4 k) for odd."""
    odd = abs(ring % 2 - 1) < 1e-9
    return ring / 4 - where(odd, 1 / (4 * ring), 0 * ring)


@kernel("ports whole [2, 1e5], leaf [2, 64], pod [64, 4096] -> hops")
def fat_tree_hops(ports: Any, leaf: Any, pod: Any) -> Any:
    """Mean links between switches: 0 under one leaf, 2 inside a pod, 4 beyond, over the other ports."""
    near = minimum(leaf, ports) - 1
    middle = minimum(pod, ports) - 1
    others = ports - 1
    return (2 * (middle - near) + 4 * (others - middle)) / others


@kernel("link: byte/s [1e8, 1e12], share [0.1, 1], ports whole [2, 1e5] -> bisection: byte/s")
def bisection_bandwidth(link: Any, share: Any, ports: Any) -> Any:
    """What crosses the worst cut: the share of a link for each port of one half."""
    return link * share * ports / 2


@dataclass(frozen=True, slots=True)
class Cut:
    """The worst cut of a network: the share of a link that it leaves, mean hops, and what the share is made of."""

    share: float
    hops: float
    longest_ring: float | None = None
    crossing: float | None = None


def worst_cut(
    kind: str,
    nodes: int,
    oversubscription: float,
    *,
    ports: int,
    radix: int,
    groups: int | None,
    global_links: float,
    rings: tuple[float, ...],
) -> Cut:
    """The cut of a network of this kind. ``ports`` are of a node, ``rings`` the lengths of a torus."""
    if nodes == 1:
        return Cut(1.0, 0.0)
    if kind in TREES:
        # A rail joins the same port of every node, so one leaf reaches as many nodes as it has ports down.
        leaf = max(1.0, radix / 2)
        hops = fat_tree_hops(nodes if kind == "rail_optimized" else nodes * ports, leaf, leaf * leaf)
        return Cut(tree_share(oversubscription), hops)
    if kind == "switched":
        return Cut(tree_share(oversubscription), 0.0)
    if kind == "full_mesh":
        return Cut(mesh_share(nodes) / oversubscription, 1.0)
    if kind in DIMENSIONS:
        longest = max(rings)
        return Cut(torus_share(longest) / oversubscription, sum(ring_hops(ring) for ring in rings), longest)
    crossing = 0.5 if groups is None else mesh_share(groups)
    return Cut(dragonfly_share(global_links, crossing, oversubscription), 3.0, None, crossing)
