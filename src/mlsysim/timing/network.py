"""What a message between accelerators costs: one place for both fidelities.

A group of ranks is laid out over link domains (a node, or a rack of linked nodes) and the fabric between them. What it says to
itself is priced by the network's algorithm:

    hierarchical    the textbook's: reduce-scatter inside a node, a ring (or, if faster, a tree) of each rank's share between
                    nodes, all-gather inside; every step of a ring pays its start-up time
    measured        as libraries do it (:mod:`mlsysim.timing.collectives`): by the size of the message inside a domain, one chunked
                    ring through all of them
    tabled          as measured inside serving engines, whose messages are short: a start, more of it for each rank, and the rate of
                    a group of that size; over PCI Express where a chip has no links, and as libraries do it between nodes

Replicas may be at several sites: what the ranks of a data-parallel group say to each other then crosses a wide-area link too, of which each has
a share. The groups that split a replica stay at one site.

They differ: gradients of 70 billion parameters over 512 ranks take 3.08 and 1.74 s. The first is what the documents print
and a student can check; the others are fitted to published runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.collectives import all_gather, distinct_domains, hierarchical_all_reduce, send, tree_all_reduce
from mlsysim.systems.types import Fleet, NetworkFabric
from mlsysim.units.ops import ceil, floor, maximum, minimum, some, taken, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant

Limit = tuple[Any, Any]
"""Groups of experts, and how many of them a token may choose from."""
ANYWHERE: Limit = (1.0, 1.0)


class Group(NamedTuple):
    """Ranks that talk to each other, how many of them share a link domain, and over how many sites they are spread."""

    ranks: Any
    inside: Any
    sites: Any = 1

    @property
    def domains(self) -> Any:
        return ceil(self.ranks / self.inside)

    @property
    def resource(self) -> str:
        """What the slowest hop between them needs."""
        return resource_of(self.domains <= 1)


def resource_of(near: Any) -> str:
    """What messages need that stay in a link domain, or leave it; of many points, the fabric where one leaves."""
    return "fabric" if some(near == 0) else "link"


@dataclass(frozen=True, slots=True)
class Network:
    """What one rank has, in one direction: of the links in its domain and of the fabric. Bytes a second, seconds, ranks."""

    link: Any
    link_latency: Any
    fabric: Any
    fabric_latency: Any
    domain: Any
    sites: Any = field(default=1, kw_only=True)
    wan: Any = field(default=math.inf, kw_only=True)
    wan_latency: Any = field(default=0.0, kw_only=True)

    def across(self, message: Any, g: Group) -> Any:
        """What it adds to a gather (or reduce-scatter) of a message that the group's ranks are at several sites.

        Each rank holds message / n, which goes around the S sites in S - 1 steps of half a round trip, at the rank's share ``wan`` of what its
        site has to the others instead of its port: (S - 1) (message / n (1 / wan - 1 / fabric) + latency). A wide area
        that is as fast as the port and has no latency is one site.
        """
        if isinstance(g.sites, int) and g.sites == 1:
            return 0.0 * message / self.fabric
        start, each = self._across(g)
        return start + each * message

    def _across(self, g: Group) -> tuple[Any, Any]:
        """The same as a start and seconds a byte."""
        slower = maximum(1 / self.wan - 1 / self.fabric, 0.0 / self.fabric)
        return (g.sites - 1) * self.wan_latency, (g.sites - 1) / g.ranks * slower

    def take(self, index: Any) -> Any:
        """The networks of some of many points."""
        return replace(self, **{each.name: taken(getattr(self, each.name), index) for each in fields(self)})

    def congested(self, factor: Any) -> Any:
        """The same with a fabric so many times slower."""
        return replace(self, fabric=self.fabric / factor)

    def group(self, ranks: Any, stride: Any = 1) -> Group:
        """A group of every ``stride``-th rank."""
        return Group(ranks, minimum(maximum(floor(self.domain / stride), 1.0), ranks * 1.0))

    def neighbours(self, ranks: Any, fleet: Any) -> Group:
        """Groups of adjacent ranks that together are a ``fleet``. Where full domains do not divide by them (TP 5 on nodes of 8), some lie across two,
        the smallest part of one has as many ranks as the greatest common divisor, and all wait for that one; a domain that is used in
        part is taken to be left at a group's end."""
        group = self.group(ranks)
        across = (fleet > self.domain) & (fleet % self.domain == 0) & (ranks < self.domain) & (self.domain % ranks != 0)
        if not some(across):
            return group
        part, rest = self.domain, ranks
        while some(rest > 0):
            part, rest = where(rest > 0, rest, part), where(rest > 0, part % maximum(rest, 1), 0)
        return group._replace(inside=where(across, part, group.inside))

    def send(self, message: Any, near: Any) -> Any:
        """One message to one other rank; ``near`` says whether it shares the domain."""
        return send(message, where(near, self.link, self.fabric), where(near, self.link_latency, self.fabric_latency))

    def hand_over(self, cache: Any, rate: Any = None) -> Any:
        """A cache from the devices that read a prompt to those that write the answer: what goes over one port, or at a ``rate`` where it is known
        all of it."""
        return send(cache, self.fabric if rate is None else rate, self.fabric_latency)


@dataclass(frozen=True, slots=True)
class Hierarchical(Network):
    """Steps inside nodes, then between them."""

    def all_reduce(self, message: Any, g: Group) -> Any:
        """Sum over the group, known to all; the faster of a (hierarchical) ring and a tree between nodes."""
        nodes = g.domains
        ring = hierarchical_all_reduce(
            message, nodes, g.inside, self.link, self.link_latency, self.fabric, self.fabric_latency
        )
        tree = tree_all_reduce(message, maximum(g.inside * nodes, 1), self.fabric, self.fabric_latency)
        return where(nodes > 1, minimum(ring, tree), ring) + 2 * self.across(message, g)

    def gather(self, message: Any, g: Group) -> Any:
        """Each rank ends with all of a message of which it held a share; a reduce-scatter takes as long."""
        inside = all_gather(message, g.inside, self.link, self.link_latency)
        between = all_gather(message / g.inside, g.domains, self.fabric, self.fabric_latency)
        return inside + between + self.across(message, g)

    def exchange(self, token: Any, choices: Any, g: Group, deduplicated: bool, limit: Limit = ANYWHERE) -> Any:
        """Tokens of ``token`` bytes to ``choices`` experts each: near ones over links, far ones over the fabric, both at once.

        Messages to all peers start together, so that each path pays one start-up time, where it is used.
        """
        near = token * choices * (g.inside - 1) / g.ranks / self.link + minimum(g.inside - 1.0, 1.0) * self.link_latency
        across = minimum(g.ranks - g.inside, 1.0) * self.fabric_latency
        return maximum(near, token * copies(g, choices, deduplicated, limit) / self.fabric + across)


class Reduction(NamedTuple):
    """A sum over n ranks as measured: seconds to start, more for each rank, and bytes a second of groups up to a size."""

    start: float
    per_rank: float
    rates: Mapping[int, float]

    def rate(self, ranks: int) -> float:
        """The rate of the smallest group in the table that is not smaller than ``ranks``, else of the largest."""
        sizes = sorted(self.rates)
        return self.rates[next((n for n in sizes if n >= ranks), sizes[-1])]


def _alone(resource: str, equation: str, seconds: Any, sent: Any = 0.0) -> Any:
    return seconds


@dataclass(frozen=True, slots=True)
class Tabled(Network):
    """Messages inside a serving engine. ``near`` are sums over links, made ``scale`` times as long by the engine, ``host`` those
    over PCI Express, ``far`` those across nodes, where engines have no kernels of their own and call the library that training calls; links and
    fabric of the base are those of an exchange, ``pools`` is the rate of caches between pools, whose start is the engine's.

    ``leg(resource, equation, seconds, sent=)`` names the times that a message is made of.
    """

    near: Reduction
    host: Reduction
    far: Any
    node: int
    pools: float
    scale: float = 1.0

    @property
    def hosted(self) -> int:
        """Chips of a host: where links join several hosts (GB200 and GB300 NVL72), four."""
        return self.node // 2 if self.domain > self.node else self.node

    def all_reduce(self, message: Any, g: Group, leg: Callable[..., Any] = _alone) -> Any:
        """Sum over the group, known to all."""
        if g.ranks <= self.domain:
            return self._sum(self.near, "link", message, g.ranks, self.scale, leg)
        if g.ranks <= self.node:
            # Bridges join a few chips of a node; wider groups go over PCI Express.
            return self._sum(self.host, "host link", message, g.ranks, 1.0, leg)
        across = self.far.group(g.ranks)
        begun = self.far.all_reduce(0.0 * message, across)
        moved = self.far.all_reduce(message, across) - begun
        if self.domain < self.node:
            begun = begun + self.host.start + self.host.per_rank * self.node
        carried = 2 * (1 - 1 / across.domains) * message / across.inside
        return leg("start", "t = a", begun) + leg("fabric", "t = M / W", moved, sent=carried)

    @staticmethod
    def _sum(how: Reduction, resource: str, message: Any, ranks: Any, scale: float, leg: Callable[..., Any]) -> Any:
        begun = leg("start", "t = a + b n", (how.start + how.per_rank * ranks) * scale)
        return begun + leg(resource, "t = M / W_n", message / how.rate(ranks) * scale, sent=message)

    def exchange(
        self,
        token: Any,
        choices: Any,
        g: Group,
        deduplicated: bool = False,
        limit: Limit = ANYWHERE,
        busiest: float = 1.0,
        leg: Callable[..., Any] = _alone,
    ) -> Any:
        """Tokens of ``token`` bytes to ``choices`` experts each: what leaves the domain over the fabric, and all of it over links, which also bring
        a ``deduplicated`` token from the device of its node that got it to those with its experts. Pieces are forwarded while others
        arrive, so that the slower of both counts: DeepEP's 4,096 tokens over four nodes take what their bytes take on the ports.
        ``busiest`` is what the port that gets most has over the mean."""

        def over(resource: str, size: Any, rate: float) -> Any:
            return leg(resource, "t = M / W", size / rate, sent=size)

        near = over("link", token * choices, self.link)
        if g.ranks <= self.domain:
            return leg("start", "t = a", self.link_latency) + near
        far = over("fabric", busiest * token * copies(g, choices, deduplicated, limit), self.fabric)
        return leg("start", "t = a", self.fabric_latency) + maximum(near, far)

    def hand_over(self, cache: Any, rate: Any = None, near: Any = False) -> Any:
        """A cache between pools, over links where they are ``near``, without the engine's own time for it."""
        return cache / (where(near, self.link, self.pools) if rate is None else rate)


def copies(g: Group, choices: Any, deduplicated: bool, limit: Limit = ANYWHERE) -> Any:
    """How often a token crosses the fabric: once for each expert elsewhere, or once for each domain that has one.

    ``limit`` are groups of experts and how many of them a token may choose from.

    Training stacks have one or the other (:attr:`mlsysim.timing.stacks.Stack.deduplicated`). Serving engines send prompts once to each
    domain (DeepEP's normal kernels, which forward over links) and the few tokens of a decode step directly, each copy by itself (its low-latency ones).
    """
    domains = maximum(g.ranks / g.inside, 1.0)
    return distinct_domains(domains, choices, *limit) if deduplicated else choices * (1 - 1 / domains)


def chip_network(
    chip: HardwareNode, devices: Any, fabric: NetworkFabric | None, assumed: dict[str, str]
) -> Hierarchical:
    """What a chip has of the links to others of its kind and of a fabric between them, for a replica on ``devices`` of them."""
    latency, domain = to_si(constant("intra_node_latency").quantity, "s"), devices
    if devices == 1:
        link = math.inf
    elif chip.link is not None:
        link, domain = to_si(chip.link.bandwidth_per_direction, "byte/s"), chip.link.domain or devices
        latency = latency if chip.link.latency is None else to_si(chip.link.latency, "s")
    elif chip.interconnect is not None:
        assumed["link"] = f"{chip.interconnect.name}: {chip.name} has no link of its own to other chips"
        link = to_si(chip.interconnect.bandwidth, "byte/s")
    else:
        raise InputError(
            f"{chip.name} has no link to other chips, so a model cannot be split over several; "
            "give the chip a 'link' or use one device.",
            field="tp_size",
        )
    start, port = constant("fabric_latency").quantity, constant("infiniband_ndr_bandwidth").quantity
    rate = to_si(port, "byte/s")
    if fabric is not None:
        start, rate = fabric.latency or start, port_rate(fabric)
    elif devices > domain:
        assumed["fabric"] = f"{port:g~P} for each device and {start:g~P} a message between nodes"
    return Hierarchical(link, latency, rate, to_si(start, "s"), domain)


def port_rate(fabric: NetworkFabric) -> float:
    """What one port has of a fabric when all send at once, in bytes a second.

    Where the upper stages carry 1/o of what all ports send, a node of k ports has k/o ports across them: o = k is one rail to all of its
    accelerators, which send at once. Messages that stay under one switch of the first stage would not be slowed; where ranks
    stand is not known, so none is taken to.
    """
    return to_si(fabric.bandwidth, "byte/s") / fabric.oversubscription_ratio


def datasheet_network(fleet: Fleet, share: float | None = None, assumed: dict[str, str] | None = None) -> Hierarchical:
    """What one accelerator has of the links inside its node and of the fabric, as the zoo states them.

    ``share`` is that of its port which the topology leaves across the fabric, where it is not the fabric's own.
    """
    fabric = fleet.fabric
    latency = fabric.latency
    if latency is None:
        latency = constant("fabric_latency").quantity
        if assumed is not None:
            assumed["fabric latency"] = f"{latency:~P}"
    link = fleet.node.accelerator.link
    inside = link.latency if link is not None and link.latency is not None else constant("intra_node_latency").quantity
    return Hierarchical(
        # What is sold as a link's bandwidth is the sum of both directions.
        link=to_si(fleet.node.intra_node_bw, "byte/s") / 2,
        link_latency=to_si(inside, "s"),
        fabric=to_si(fleet.bandwidth_per_accelerator, "byte/s")
        * (1.0 / fabric.oversubscription_ratio if share is None else share),
        fabric_latency=to_si(latency, "s"),
        domain=fleet.node.accelerators_per_node,
        **wide_area(fleet),
    )


def wide_area(fleet: Fleet) -> dict[str, Any]:
    """Sites of a fleet, what one accelerator has of the link between them, and one way of it."""
    if fleet.sites == 1:
        return {}
    share = to_si(fleet.wan_bandwidth, "byte/s") / (fleet.total_accelerators / fleet.sites)
    return {"sites": fleet.sites, "wan": share, "wan_latency": to_si(fleet.wan_round_trip, "s") / 2}
