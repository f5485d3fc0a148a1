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
from typing import Annotated, Any

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.physics.topology import (
    DIMENSIONS,
    DRAGONFLIES,
    TITLES,
    TREES,
    bisection_bandwidth,
    topology_key,
    worst_cut,
)
from mlsysim.units.registry import quantity, to_si
from mlsysim.walls.base import Assumptions, Inputs, Resolver, declared, wall_says, written
from mlsysim.walls.result import MemoryRate, Result

CARDS = """
10 Locality: bisection bandwidth
BW_eff = BW_link beta / oversubscription (Leiserson 1985)
How much of a link is left when half of the machine talks to the other half?
"""

_BOTH_DIRECTIONS = ("NVLink", "Infinity Fabric")


class TopologyResult(Result):
    """Bandwidth and distance of a network."""

    effective_bw: MemoryRate
    bisection_bw: MemoryRate
    bisection_bw_fraction: Annotated[float, "share"]
    uniform_traffic_fraction: float
    hops_avg: Annotated[float, "hops"]
    topology: str
    num_nodes: int


class TopologyModel(Resolver[TopologyResult]):
    """Bisection bandwidth and mean distance of a network."""

    walls = (10,)
    inputs = declared(f"""
        fabric | fabric | the network: an entry of Fabrics, its name, or a NetworkFabric | InfiniBand_NDR
        topology? | object | shape of the network, instead of the fabric's own: {", ".join(TITLES)}
        num_nodes = 64 | whole [1, 1e9] | nodes on the network
        oversubscription? | [1, 1000] | oversubscription of the upper stages, instead of the fabric's own
        ports_per_node = 1 | whole [1, 64] | ports of each node; a rail-optimised network has one rail for each
        switch_radix = constant switch_radix | whole [2, 4096] | ports of a switch
        groups? | whole [2, 1e6] | groups of a dragonfly; None for many
        global_links_per_node = constant dragonfly_global_links_per_node | (0, 64] | links that leave a dragonfly group for \
            each node in it
        shape? | object | lengths of a torus, as (16, 16, 16) or '16x16x16'; a cube where not given
    """)
    equations = written(r"""
        bisection_bw_fraction if is_tree: beta = 1 / o
            \beta = \frac{1}{o}
            o = oversubscription
        bisection_bw_fraction if crossing: beta = min(1, r f / o), f = g / (2 (g - 1)) for g groups
            \beta = \min\left(1, \frac{r}{o}\,\frac{g}{2 (g - 1)}\right)
            r = global_links_per_node, f = crossing, o = oversubscription
        bisection_bw_fraction if longest_ring: beta = min(1, 4 / k) / o, k the longest ring
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
        "The full port speed is available between any two nodes: only without oversubscription, and not across the worst cut.",
        "A ring all-reduce needs bisection bandwidth: neighbours on a torus already give it a whole link; all-to-all needs the cut.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> TopologyResult:
        """Evaluate the worst cut and the mean distance."""
        fabric, nodes = x.fabric, x.num_nodes
        kind = _kind(x, assumed)
        link = fabric.bandwidth
        if fabric.technology in _BOTH_DIRECTIONS:
            link = link / 2
            assumed["link"] = f"half of {fabric.name}'s figure, which counts both directions"
        over = x.oversubscription
        if over is None:
            over = fabric.oversubscription_ratio
            assumed["oversubscription"] = f"{over:g}, of {fabric.name}"
        if kind in DRAGONFLIES and nodes > 1:
            if x.groups is None:
                assumed["groups"] = "many"
            elif x.groups > nodes:
                raise InputError(f"TopologyModel: {x.groups} groups are more than the {nodes} nodes.", field="groups")
        rings = _rings(x, DIMENSIONS[kind], assumed) if kind in DIMENSIONS and nodes > 1 else ()
        sizes = {"ports": x.ports_per_node, "radix": x.switch_radix, "groups": x.groups, "rings": rings}
        cut = worst_cut(kind, nodes, over, global_links=x.global_links_per_node, **sizes)
        name, share = f"the {TITLES[kind]} of {nodes} nodes", cut.share
        words = f": across the worst cut, {name} leaves each node {share:.3g} of its link."
        if share >= 1:
            words = f" does not bind: {name} has full bisection bandwidth."
        whole = bisection_bandwidth(to_si(link, "GB/s"), share, nodes * x.ports_per_node)
        return TopologyResult.of(
            assumed,
            cut,
            x,
            binding=wall_says(10, 1 / share, words),
            effective_bw=link * share,
            bisection_bw=quantity(whole, "GB/s"),
            uniform_traffic_fraction=min(1.0, 2 * share),
            topology=kind,
            shown={
                "link": to_si(link, "byte/s"),
                "oversubscription": over,
                "is_tree": nodes > 1 and kind in (*TREES, "switched"),
                "is_mesh": nodes > 1 and kind == "full_mesh",
            },
        )


def _kind(x: Any, assumed: Assumptions) -> str:
    """The topology by its own name."""
    given = x.topology
    if given is None:
        given = x.fabric.topology
        assumed["topology"] = f"{given}, of {x.fabric.name}"
    kind = topology_key(given)
    if kind not in TITLES:
        remedy = "use one of " + ", ".join(TITLES) + "."
        raise unknown_name("topology with a known bisection", given, TITLES, remedy=remedy)
    for name, kinds in (("groups", DRAGONFLIES), ("global_links_per_node", DRAGONFLIES), ("switch_radix", TREES)):
        if kind not in kinds:
            assumed.pop(name, None)
    if x.shape is not None and kind not in DIMENSIONS:
        raise InputError(f"TopologyModel: 'shape' is the shape of a torus, not of a {TITLES[kind]}.", field="shape")
    return kind


def _rings(x: Any, dimensions: int, assumed: Assumptions) -> tuple[float, ...]:
    """Lengths of the torus."""
    if x.shape is None:
        side = round(x.num_nodes ** (1 / dimensions), 9)
        assumed["shape"] = " x ".join([f"{side:.4g}"] * dimensions)
        return (side,) * dimensions
    parts = x.shape.lower().split("x") if isinstance(x.shape, str) else x.shape
    try:
        rings = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        wanted = "lengths such as (16, 16, 16) or '16x16x16'"
        words = f"The 'shape' input of TopologyModel must be {wanted}, got {str(x.shape)[:40]!r}."
        raise UnitError(words, field="shape") from None
    if len(rings) != dimensions or any(ring < 1 for ring in rings) or math.prod(rings) != x.num_nodes:
        torus = f"no torus of {dimensions} dimensions and {x.num_nodes} nodes"
        raise InputError(f"TopologyModel: a shape of {' x '.join(map(str, rings))} is {torus}.", field="shape")
    return tuple(float(ring) for ring in rings)


def topology_share(fleet: Any, topology: Any, assumed: dict[str, str]) -> float | None:
    """Share of the port bandwidth that a topology leaves across its bisection; None where the fabric's own holds."""
    if topology is None:
        return None
    shape = TopologyModel().solve(fabric=fleet.fabric, topology=topology, num_nodes=fleet.count)
    share = float(shape.bisection_bw_fraction)
    assumed["topology"] = f"{topology}, {share:.3g} of the port bandwidth across the bisection"
    return share
