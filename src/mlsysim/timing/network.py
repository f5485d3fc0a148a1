"""What a message between accelerators costs: one place for both fidelities.

A group of ranks is laid out over link domains (a node, or a rack of linked nodes) and the fabric between them. What it says to
itself is priced by the network's algorithm:

    hierarchical    the textbook's: reduce-scatter inside a node, a ring (or, if faster, a tree) of each rank's share between
                    nodes, all-gather inside; every step of a ring pays its start-up time
    pipelined       as measured libraries do it: one ring through all domains, chunked, so that the start-up is paid once and
                    a hop for each domain; the slower of link and adapters sets the pace, and a ring leaves a domain over as many
                    adapters as it has ranks there

They differ: gradients of 70 billion parameters over 512 ranks take 3.08 and 1.74 s. The first is what the documents print
and a student can check; the second is fitted to published runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mlsysim.physics.collectives import (
    all_gather,
    all_to_all,
    distinct_domains,
    hierarchical_all_reduce,
    ring_time,
    send,
    tree_all_reduce,
)
from mlsysim.systems.types import Fleet
from mlsysim.units.ops import ceil, floor, maximum, minimum, where
from mlsysim.units.registry import to_si
from mlsysim.zoo.constants import constant

__all__ = ["Group", "Hierarchical", "Network", "Pipelined", "datasheet_network"]


class Group(NamedTuple):
    """Ranks that talk to each other, and how many of them share a link domain."""

    ranks: Any
    inside: Any

    @property
    def domains(self) -> Any:
        return ceil(self.ranks / self.inside)


@dataclass(frozen=True, slots=True)
class Network:
    """What one rank has, in one direction: of the links in its domain and of the fabric. Bytes a second, seconds, ranks."""

    link: Any
    link_latency: Any
    fabric: Any
    fabric_latency: Any
    domain: Any

    def congested(self, factor: Any) -> Any:
        """The same with a fabric so many times slower."""
        return replace(self, fabric=self.fabric / factor)

    def group(self, ranks: Any, stride: Any = 1) -> Group:
        """A group of every ``stride``-th rank."""
        return Group(ranks, minimum(maximum(floor(self.domain / stride), 1.0), ranks * 1.0))

    def send(self, message: Any, near: Any) -> Any:
        """One message to one other rank; ``near`` says whether it shares the domain."""
        return send(message, where(near, self.link, self.fabric), where(near, self.link_latency, self.fabric_latency))


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
        return where(nodes > 1, minimum(ring, tree), ring)

    def gather(self, message: Any, g: Group) -> Any:
        """Each rank ends with all of a message of which it held a share; a reduce-scatter takes as long."""
        inside = all_gather(message, g.inside, self.link, self.link_latency)
        return inside + all_gather(message / g.inside, g.domains, self.fabric, self.fabric_latency)

    def exchange(self, token: Any, choices: Any, g: Group, deduplicated: bool) -> Any:
        """Tokens of ``token`` bytes to ``choices`` experts each: near ones over links, far ones over the fabric, both at once."""
        near = all_to_all(token * choices * g.inside / g.ranks, g.inside, self.link, self.link_latency)
        far = token * _copies(g, choices, deduplicated) / self.fabric + (g.ranks - g.inside) * self.fabric_latency
        return maximum(near, far)


@dataclass(frozen=True, slots=True)
class Pipelined(Network):
    """One ring through all domains; ``reduce`` is the rate of an all-reduce inside one, ``exchange_rate`` of an exchange."""

    reduce: Any
    exchange_rate: Any

    def all_reduce(self, message: Any, g: Group) -> Any:
        """Sum over the group, known to all."""
        return self._ring(2 * message, g, self.reduce)

    def gather(self, message: Any, g: Group) -> Any:
        """Each rank ends with all of a message of which it held a share; a reduce-scatter takes as long."""
        return self._ring(message, g, self.link)

    def gather_terms(self, g: Group) -> tuple[Any, Any]:
        """The same as a start and seconds a byte, for messages that many points and pieces share."""
        start = ring_time(0.0, g.ranks, g.inside, self.link, self.fabric, self.link_latency, self.fabric_latency)
        return start, ring_time(1.0, g.ranks, g.inside, self.link, self.fabric, 0.0, 0.0)

    def _ring(self, message: Any, g: Group, link: Any) -> Any:
        return ring_time(message, g.ranks, g.inside, link, self.fabric, self.link_latency, self.fabric_latency)

    def exchange(self, token: Any, choices: Any, g: Group, deduplicated: bool) -> Any:
        """Tokens of ``token`` bytes to ``choices`` experts each; all messages start together."""
        near = token * choices * (1 - 1 / g.inside) / self.exchange_rate
        far = token * _copies(g, choices, deduplicated) / self.fabric
        some = minimum(g.ranks - 1.0, 1.0)
        return some * (self.link_latency + maximum(near, far))


def _copies(g: Group, choices: Any, deduplicated: bool) -> Any:
    """How often a token crosses the fabric: once for each expert elsewhere, or once for each domain that has one."""
    domains = maximum(g.ranks / g.inside, 1.0)
    return distinct_domains(domains, choices) if deduplicated else choices * (1 - 1 / domains)


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
    )
