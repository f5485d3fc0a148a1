"""Wall 10, locality: how much bandwidth is left when half of the machine talks to the other half?

    BW_eff = BW_link x beta                                                                       (Leiserson 1985)

beta is the bandwidth that crosses the worst cut into two halves, for each node of one half, over the bandwidth of its
link. With N nodes, links of equal speed, and o the oversubscription of the upper stages:

    fat-tree, rail-optimised   1 / o                   every level carries what the nodes inject, divided by o
    single switch              1 / o                   no link between switches
    dragonfly, dragonfly+      (r / o) g / (2 (g-1))   g groups; r links leave a group for each of its nodes (balanced: 1);
                                                       of those, g/2 of g-1 lead to the other half; 1/2 for many groups
    torus of d dimensions      4 / k                   a cut across the longest ring, of k nodes, severs 2 N/k links (it
                                                       cuts each ring twice), for N/2 nodes; a cube has k = N^(1/d)
    full mesh                  N / (2 (N-1))           each node splits its bandwidth over N-1 links

none above 1. Uniform traffic sends only half of its bytes across the cut, so it sustains min(1, 2 beta) of the link.

``hops_avg`` counts links between switches (or torus routers) on a shortest path: 2 (l - 1) between nodes that meet at
level l of a fat-tree, one local, one global, one local in a dragonfly, k/4 along a ring of k nodes.

Assumed: minimal routing spread evenly over all paths. Left out: congestion, adaptive detours (a dragonfly under
adversarial traffic loses another half), cabling that leaves switch ports empty. Static routing on full fat-trees keeps
55 to 60 % of the bisection (Hoefler et al. 2008), adaptive routing 77 to 100 % (Geoffray and Hoefler 2008).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from mlsysim.cases.assumptions import Assumptions
from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.units.kernel import kernel
from mlsysim.units.ops import minimum, where
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import Input, Inputs, default_constant
from mlsysim.walls.result import MemoryRate, Result

CARDS = """
10 Locality: bisection bandwidth
BW_eff = BW_link beta / oversubscription (Leiserson 1985)
How much of a link is left when half of the machine talks to the other half?
"""

_DIMENSIONS = {"torus_2d": 2, "torus_3d": 3}
_TITLES = {
    "fat_tree": "fat-tree",
    "rail_optimized": "rail-optimised fat-tree",
    "dragonfly": "dragonfly",
    "dragonfly_plus": "dragonfly+",
    "torus_2d": "2D torus",
    "torus_3d": "3D torus",
    "switched": "single switch",
    "full_mesh": "full mesh",
}
_SPELLINGS = {
    "clos": "fat_tree",
    "leaf_spine": "fat_tree",
    "rail_optimised": "rail_optimized",
    "dragonfly+": "dragonfly_plus",
    "2d_torus": "torus_2d",
    "3d_torus": "torus_3d",
}
_BOTH_DIRECTIONS = ("NVLink", "Infinity Fabric")


@kernel("oversubscription [1, 8] -> share")
def tree_share(oversubscription: Any) -> Any:
    """Bisection share of a tree of switches."""
    return minimum(1 / oversubscription, 1.0)


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


class TopologyResult(Result):
    """Bandwidth and distance of a network."""

    effective_bw: MemoryRate
    bisection_bw: MemoryRate
    bisection_bw_fraction: float
    uniform_traffic_fraction: float
    hops_avg: float
    topology: str
    num_nodes: int


class TopologyModel(Resolver[TopologyResult]):
    """Bisection bandwidth and mean distance of a network."""

    walls = (10,)
    result = TopologyResult
    inputs: ClassVar[dict[str, Input]] = {
        "fabric": Input.of(
            "the network: an entry of Fabrics, its name, or a NetworkFabric", "fabric", example="InfiniBand_NDR"
        ),
        "topology": Input.of(
            "shape of the network, instead of the fabric's own: " + ", ".join(_TITLES), "object", None
        ),
        "num_nodes": Input.of("nodes on the network", "whole [1, 1e9]", 64),
        "oversubscription": Input.of(
            "oversubscription of the upper stages, instead of the fabric's own", "[1, 1000]", None
        ),
        "ports_per_node": Input.of(
            "ports of each node; a rail-optimised network has one rail for each", "whole [1, 64]", 1
        ),
        "switch_radix": Input.of("ports of a switch", "whole [2, 4096]", int(default_constant("switch_radix"))),
        "groups": Input.of("groups of a dragonfly; None for many", "whole [2, 1e6]", None),
        "global_links_per_node": Input.of(
            "links that leave a dragonfly group for each node in it",
            "(0, 64]",
            default_constant("dragonfly_global_links_per_node"),
        ),
        "shape": Input.of("lengths of a torus, as (16, 16, 16) or '16x16x16'; a cube where not given", "object", None),
    }
    equations = written(r"""
        bisection_bw_fraction if is_tree: beta = 1 / o
            \beta = \frac{1}{o}
            o = oversubscription
        bisection_bw_fraction if is_dragonfly: beta = min(1, r f / o), f = g / (2 (g - 1)) for g groups
            \beta = \min\left(1, \frac{r}{o}\,\frac{g}{2 (g - 1)}\right)
            r = global_links, f = crossing, o = oversubscription
        bisection_bw_fraction if is_torus: beta = min(1, 4 / k) / o, k the longest ring
            \beta = \frac{1}{o}\min\left(1, \frac{4}{k}\right)
            k = longest_ring, o = oversubscription
        bisection_bw_fraction if is_mesh: beta = min(1, N / (2 (N - 1))) / o
            \beta = \frac{1}{o}\min\left(1, \frac{N}{2 (N - 1)}\right)
            N = num_nodes, o = oversubscription
        effective_bw: BW_eff = BW_link beta
            BW_{\mathrm{eff}} = BW_{\mathrm{link}}\,\beta
            BW_link = link in byte/s, beta = bisection_bw_fraction
        bisection_bw: BW_bisection = N ports / 2 x BW_eff
            BW_{\mathrm{bisection}} = \frac{N\,p}{2}\,BW_{\mathrm{eff}}
            N = num_nodes, ports = ports_per_node
    """)
    known_fallacies = (
        "A torus keeps its share of bandwidth as it grows: the share falls as N^(-1/3) in three dimensions.",
        "Every port speed is available between any two nodes: only without oversubscription and without a worst-case cut.",
        "A ring all-reduce needs bisection bandwidth: neighbours on a torus give it all of a link; all-to-all needs the cut.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> TopologyResult:
        """Evaluate the worst cut and the mean distance."""
        fabric, nodes = x.fabric, x.num_nodes
        kind = self._kind(x, assumed)
        link = fabric.bandwidth
        if fabric.technology in _BOTH_DIRECTIONS:
            link = link / 2
            assumed["link"] = f"half of {fabric.name}'s figure, which counts both directions"
        over = x.oversubscription
        if over is None:
            over = fabric.oversubscription_ratio
            assumed["oversubscription"] = f"{over:g}, of {fabric.name}"
        share, hops, context = self._shape(x, kind, over, assumed)
        ports = nodes * x.ports_per_node
        effective = link * share
        whole = to_si(effective, "GB/s") * ports / 2
        return TopologyResult.of(
            assumed,
            binding=Binding(10, "Locality", 1 / share, self._sentence(kind, nodes, share)),
            effective_bw=effective,
            bisection_bw=quantity(whole, "GB/s"),
            bisection_bw_fraction=share,
            uniform_traffic_fraction=min(1.0, 2 * share),
            hops_avg=hops,
            topology=kind,
            num_nodes=nodes,
            shown={"link": to_si(link, "byte/s"), "oversubscription": over, **context},
            cited={"fabric": fabric},
        )

    @staticmethod
    def _sentence(kind: str, nodes: int, share: float) -> str:
        if share >= 1:
            return (
                f"Wall 10 (Locality) does not bind: the {_TITLES[kind]} of {nodes} nodes has full bisection bandwidth."
            )
        return f"Wall 10 (Locality): across the worst cut, the {_TITLES[kind]} of {nodes} nodes leaves each node {share:.3g} of its link."

    @staticmethod
    def _kind(x: Any, assumed: dict[str, str]) -> str:
        given = x.topology
        if given is None:
            given = x.fabric.topology
            assumed["topology"] = f"{given}, of {x.fabric.name}"
        folded = str(given).lower().replace("-", "_").replace(" ", "_")
        kind = _SPELLINGS.get(folded, folded)
        if kind not in _TITLES:
            raise unknown_name(
                "topology with a known bisection", given, _TITLES, remedy="use one of " + ", ".join(_TITLES) + "."
            )
        for name, kinds in (
            ("groups", ("dragonfly", "dragonfly_plus")),
            ("global_links_per_node", ("dragonfly", "dragonfly_plus")),
            ("switch_radix", ("fat_tree", "rail_optimized")),
        ):
            if kind not in kinds:
                assumed.pop(name, None)
        if x.shape is not None and kind not in _DIMENSIONS:
            raise InputError(
                f"TopologyModel: 'shape' is the shape of a torus, not of a {_TITLES[kind]}.", field="shape"
            )
        return kind

    def _shape(self, x: Any, kind: str, over: float, assumed: dict[str, str]) -> tuple[float, float, dict[str, Any]]:
        """Bisection share, mean hops, and what the equations name."""
        nodes = x.num_nodes
        if nodes == 1:
            return 1.0, 0.0, {}
        if kind in ("fat_tree", "rail_optimized"):
            # A rail joins the same port of every node, so one leaf reaches as many nodes as it has ports down.
            ports = nodes if kind == "rail_optimized" else nodes * x.ports_per_node
            leaf = max(1.0, x.switch_radix / 2)
            hops = fat_tree_hops(ports, leaf, leaf * leaf)
            return tree_share(over), hops, {"is_tree": True}
        if kind == "switched":
            return tree_share(over), 0.0, {"is_tree": True}
        if kind == "full_mesh":
            return mesh_share(nodes) / over, 1.0, {"is_mesh": True}
        if kind in _DIMENSIONS:
            rings = self._rings(x, _DIMENSIONS[kind], assumed)
            longest = max(rings)
            context = {"is_torus": True, "longest_ring": longest}
            return torus_share(longest) / over, sum(ring_hops(ring) for ring in rings), context
        if x.groups is None:
            assumed["groups"] = "many"
            crossing = 0.5
        elif x.groups > nodes:
            raise InputError(f"TopologyModel: {x.groups} groups are more than the {nodes} nodes.", field="groups")
        else:
            crossing = mesh_share(x.groups)
        share = dragonfly_share(x.global_links_per_node, crossing, over)
        return share, 3.0, {"is_dragonfly": True, "global_links": x.global_links_per_node, "crossing": crossing}

    @staticmethod
    def _rings(x: Any, dimensions: int, assumed: dict[str, str]) -> tuple[float, ...]:
        """Lengths of the torus."""
        if x.shape is None:
            side = round(x.num_nodes ** (1 / dimensions), 9)
            assumed["shape"] = " x ".join([f"{side:.4g}"] * dimensions)
            return (side,) * dimensions
        parts = x.shape.lower().split("x") if isinstance(x.shape, str) else x.shape
        try:
            rings = tuple(int(part) for part in parts)
        except (TypeError, ValueError):
            raise UnitError(
                f"The 'shape' input of TopologyModel must be lengths such as (16, 16, 16) or '16x16x16', got {str(x.shape)[:40]!r}.",
                field="shape",
            ) from None
        if len(rings) != dimensions or any(ring < 1 for ring in rings) or math.prod(rings) != x.num_nodes:
            raise InputError(
                f"TopologyModel: a shape of {' x '.join(map(str, rings))} is no torus of {dimensions} dimensions "
                f"and {x.num_nodes} nodes.",
                field="shape",
            )
        return tuple(float(ring) for ring in rings)


def topology_share(fleet: Any, topology: Any, assumed: dict[str, str]) -> float | None:
    """Share of the port bandwidth that a topology leaves across its bisection; None where the fabric's own holds."""
    if topology is None:
        return None
    shape = TopologyModel().solve(fabric=fleet.fabric, topology=topology, num_nodes=fleet.count)
    share = float(shape.bisection_bw_fraction)
    assumed["topology"] = f"{topology}, {share:.3g} of the port bandwidth across the bisection"
    return share
