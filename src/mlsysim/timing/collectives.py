"""The network of measured libraries: what a message costs by its size, inside a link domain, over a bridge or a host's bus, and across
nodes. Training steps ask it, and published tables of collectives are scored through it.

Inside a link domain (:func:`mlsysim.physics.operators.link_time`) a collective has a start-up time that belongs to the machine
and its software, a cost for each step, a local copy, and two protocols of which the faster is used; all-reduce on five ranks
and more may be done in the switch. All-to-all is no ring and has constants of its own.

    gather across domains      one chunked ring through all ranks, by the faster protocol: the start-up once and a hop for each domain; the slower of
                               link and adapters sets the pace, and a ring leaves a domain over as many adapters as it has ranks there
    all-reduce across domains  the fastest of a reduce-scatter and a gather over that ring, of gathers inside with a ring of each rank's share
                               between nodes, and of two trees of nodes, which sum inside (in the switch where it can) meanwhile
    all-to-all across domains  the slower of what goes over links and over adapters, and a start-up with a post for each rank elsewhere

The slowest hop sets the pace of a ring: four devices that are bridged in pairs run at the speed of PCIe between the pairs.
Constants: ``data/collectives.toml`` and, fitted, ``data/collective_constants.toml``. The start-up time of a machine may be given (one measured number halves the error);
without it that of the chip's profile or the class default holds, within a factor of 1.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.collectives import ring_all_reduce, ring_time, send, two_tree_all_reduce
from mlsysim.physics.operators import link_time
from mlsysim.timing.network import ANYWHERE, Group, Limit, Network, copies
from mlsysim.units.ops import maximum, minimum, where
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Q_, to_si
from mlsysim.zoo.files import fitted_over

SWITCHED_RANKS = 5
"""Smallest group for which reduction in the switch was seen to be used: five H200, six B200 (stas00/ml-engineering, 8 GiB by number of devices)."""


class Protocol(NamedTuple):
    """What a kind of collective reaches on a link; see :func:`mlsysim.physics.operators.link_time`."""

    copy_share: float
    efficiency: float
    eager_share: float
    rendezvous: float


def collective_constants() -> dict[str, Any]:
    """The tables of ``data/collectives.toml``, with what was fitted."""
    return fitted_over("mlsysim.data", "collectives.toml", "collective_constants.toml")


def wire_and_steps(kind: str, ranks: Any) -> tuple[Any, Any]:
    """How often the message of a collective inside a domain crosses a link, and how many steps it takes."""
    around = (ranks - 1) / ranks
    if kind == "all_reduce":
        return 2 * around, 2 * (ranks - 1)
    return around, 1 + collective_constants()["exchange"]["steps"] + 0 * ranks if kind == "all_to_all" else ranks - 1


@dataclass(frozen=True, slots=True)
class Measured(Network):
    """``link`` is a link's line rate, ``link_latency`` the start-up time of the machine, ``fabric`` what a rank reaches of its
    adapter, ``fabric_latency`` one hop of a ring, ``far_start`` the start-up of a message between nodes and ``post`` that of
    one more at the same time.

    ``switched`` links reduce in the switch, ``dispatch`` is the share of an all-to-all's rate that routed tokens reach.
    """

    far_start: Any
    post: Any
    ring: Protocol
    swap: Protocol
    switched: bool = False
    dispatch: float = 1.0

    def _inside(self, kind: str, message: Any, ranks: Any) -> Any:
        """A collective inside a domain; one rank alone takes no time."""
        several = maximum(1.0 * ranks, 2.0)
        how, link = (self.swap, self.link * self.dispatch) if kind == "all_to_all" else (self.ring, self.link)
        share = collective_constants()["ring"]["step_share"]
        wire, steps = wire_and_steps(kind, several)
        time = link_time(message, several, wire, steps, link, self.link_latency, share, *how)
        return minimum(ranks - 1.0, 1.0) * time

    def all_reduce(self, message: Any, g: Group) -> Any:
        """Sum over the group, known to all."""
        near, switch = self.near_ways(message, g).values()
        near = where(g.inside >= SWITCHED_RANKS, minimum(near, switch), near)
        far = minimum(minimum(*(ways := [*self.far_ways(message, g).values()])[:2]), ways[2])
        return where(g.domains > 1, far, near) + 2 * self.across(message, g)

    def near_ways(self, message: Any, g: Group) -> dict[str, Any]:
        """Times of an all-reduce inside a domain, by algorithm."""
        ring = switch = self._inside("all_reduce", message, g.inside)
        if self.switched:
            table = collective_constants()["in_switch"]
            switch = self.link_latency * (1 + table["start"]) + message / (table["share"] * self.link)
        return {"ring": ring, "in the switch": switch}

    def far_ways(self, message: Any, g: Group) -> dict[str, Any]:
        """Times of an all-reduce across domains, by algorithm."""
        piece, nodes = message / g.inside, maximum(g.domains, 2.0)
        inside = 2 * self._inside("all_gather", message, g.inside)
        begun = self._begun(g)
        return {
            "rings, node by node": inside + ring_all_reduce(piece, nodes, self.fabric, self.far_start),
            "trees of nodes": begun
            + two_tree_all_reduce(piece, nodes, self.fabric, self._summed(message, g), self.far_start),
            "one ring": 2 * self._ring(message, g),
        }

    def ways(self, kind: str, message: float, g: Group) -> tuple[float, str]:
        """Seconds of a collective of a kind, as cases ask for them, and the algorithm that is the fastest."""
        if kind == "all_reduce":
            forms = self.far_ways(message, g) if g.domains > 1 else self.near_ways(message, g)
            if g.domains == 1 and g.inside < SWITCHED_RANKS:
                del forms["in the switch"]
            return self.all_reduce(message, g), min(forms, key=forms.__getitem__)
        if kind == "send":
            return self.send(message, g.domains == 1), "direct"
        if kind == "all_to_all":
            return self.exchange(message, 1.0, g, False), "pairwise"
        return self.gather(message, g), "ring" if g.domains == 1 else "one ring"

    def gather(self, message: Any, g: Group) -> Any:
        """Each rank ends with all of a message of which it held a share; a reduce-scatter takes as long."""
        near = self._inside("all_gather", message, g.inside)
        return where(g.domains > 1, self._ring(message, g), near) + self.across(message, g)

    def _begun(self, g: Group) -> Any:
        """Start-up of a collective across domains, inside of one."""
        steps = collective_constants()["ring"]["step_share"] * (maximum(g.inside - 1.0, 1.0) - 1)
        return self.link_latency * (1 + steps + self.ring.rendezvous)

    def _summed(self, message: Any, g: Group) -> Any:
        """Seconds that the links of a domain are busy with a sum that goes up to one rank and comes down from it, piece by piece."""
        around = 2 * (g.inside - 1) / g.inside * message / (self.ring.efficiency * self.link)
        if not self.switched:
            return around
        switch = message / (collective_constants()["in_switch"]["share"] * self.link)
        return where(g.inside >= SWITCHED_RANKS, minimum(around, switch), around)

    def _ring(self, message: Any, g: Group) -> Any:
        """A chunked ring through all ranks, by the faster of the two protocols, as inside of a domain: small messages wait for no rendezvous."""
        begun, how = self._begun(g), self.ring

        def time(share: float, start: Any) -> Any:
            link, fabric = share * how.efficiency * self.link, share * self.fabric
            return ring_time(message, g.ranks, g.inside, link, fabric, start, self.fabric_latency)

        return minimum(time(how.eager_share, begun - how.rendezvous * self.link_latency), time(1.0, begun))

    def exchange(self, token: Any, choices: Any, g: Group, deduplicated: bool, limit: Limit = ANYWHERE) -> Any:
        """Tokens of ``token`` bytes to ``choices`` experts each: inside the domain and across the fabric at once. Each rank elsewhere that is sent
        to (all, or the one of each domain that hands ``deduplicated`` tokens on) gets a message of its own, which is posted one after the other."""
        near = self._inside("all_to_all", token * choices, g.inside)
        peers = maximum(g.domains - 1.0, 0.0) * (1.0 if deduplicated else g.inside)
        begun = minimum(peers, 1.0) * self.far_start + peers * self.post
        return maximum(near, begun + token * copies(g, choices, deduplicated, limit) / self.fabric)

    def send(self, message: Any, near: Any) -> Any:
        """One message to one other rank; ``near`` says whether it shares the domain."""
        table = collective_constants()["send"]
        rate = where(near, table["efficiency"] * self.link, self.fabric)
        return send(message, rate, where(near, table["start_share"] * self.link_latency, self.far_start))


def start_of(chip: HardwareNode) -> float:
    """Start-up time of a machine with this chip: measured, or that of its generation, or the class default (s)."""
    starts: Mapping[str, str] = collective_constants()["start"]
    for name in (chip.metadata.key or "", (chip.generation or "").replace(" ", "_")):
        if name in starts:
            return to_si(Q_(starts[name]), "s")
    return to_si(Q_(starts["default"]), "s")


def measured_network(
    chip: HardwareNode, domain: Any, *, link: Any = None, fabric: Any = math.inf, hop: Any = 0.0, **more: Any
) -> Measured:
    """The network of a chip's machine, its own link (bytes a second, one direction) where none is given.

    ``fabric`` is what a rank reaches of its adapter; without one there is nothing beyond the domain.
    """
    if link is None:
        if chip.link is None:
            raise InputError(
                f"{chip.name} states no link to other chips; give link=... (bytes a second, one direction)."
            )
        link = to_si(chip.link.bandwidth_per_direction, "byte/s")
    tables = collective_constants()
    # A host's bus has no switch that adds.
    adds = chip.link is not None and chip.generation in tables["in_switch"]["generations"]
    own: dict[str, Any] = {"switched": adds}
    for name, kind in (("ring", "ring"), ("swap", "exchange")):
        own[name] = Protocol(*(tables[kind][field] for field in Protocol._fields))
    far, post = (to_si(Q_(tables["fabric"][name]), "s") for name in ("start", "post"))
    return Measured(link, start_of(chip), fabric, hop, domain, far, post, **(own | more))
