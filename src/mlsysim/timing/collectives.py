"""Calibrated fidelity for collectives: inside a link domain, over a bridge or a host's PCIe, and across nodes.

Inside a link domain (:func:`mlsysim.physics.operators.link_time`) a collective has a start-up time that belongs to the machine
and its software, a cost for each step, a local copy, and two protocols of which the faster is used; all-reduce on eight ranks
and more may be done in the switch. All-to-all is no ring and has constants of its own.

    across nodes    reduce-scatter inside, all-reduce of each rank's share between nodes over the adapters, all-gather inside;
                    with one rank in each node only the middle part

The slowest hop sets the pace of a ring: four devices that are bridged in pairs run at the speed of PCIe between the pairs.
Constants: ``data/collectives.toml``. The start-up time of a machine may be given (one measured number halves the error);
without it that of the chip's profile or the class default holds, within a factor of 1.7.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.collectives import ring_all_reduce, send
from mlsysim.physics.operators import link_time
from mlsysim.units.ops import minimum
from mlsysim.units.registry import Q_, to_si

__all__ = [
    "COLLECTIVES",
    "SWITCHED_RANKS",
    "across_nodes",
    "bridged_pairs",
    "collective_constants",
    "inside_domain",
    "wire_and_steps",
]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
SWITCHED_RANKS = 8
"""Smallest group for which reduction in the switch was seen to be used."""


@cache
def collective_constants() -> dict[str, Any]:
    """The tables of ``data/collectives.toml``."""
    return tomllib.loads(files("mlsysim.data").joinpath("collectives.toml").read_text(encoding="utf-8"))


def wire_and_steps(kind: str, ranks: Any) -> tuple[Any, Any]:
    """How often the message crosses a link, and how many steps a ring takes."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks, 2 * (ranks - 1)
    if kind in ("all_gather", "reduce_scatter"):
        return (ranks - 1) / ranks, ranks - 1
    if kind == "all_to_all":
        return (ranks - 1) / ranks, 1 + collective_constants()["exchange"]["steps"] + 0 * ranks
    if kind == "send":
        return 1.0 + 0 * ranks, 1 + 0 * ranks
    raise unknown_name("collective", kind, COLLECTIVES)


def start_of(chip: HardwareNode) -> float:
    """Start-up time of a machine with this chip: measured, or that of its generation, or the class default (s)."""
    starts: Mapping[str, str] = collective_constants()["start"]
    for name in (chip.metadata.key or "", (chip.generation or "").replace(" ", "_")):
        if name in starts:
            return to_si(Q_(starts[name]), "s")
    return to_si(Q_(starts["default"]), "s")


def inside_domain(
    kind: str,
    message: Any,
    ranks: Any,
    chip: HardwareNode,
    *,
    start: float | None = None,
    link: float | None = None,
    in_switch: bool | None = None,
    eager_share: float | None = None,
) -> Any:
    """Seconds of a collective of ``message`` bytes (the whole buffer) over ranks that share one link domain.

    ``link`` is bytes a second in one direction (the chip's own by default), ``start`` the machine's start-up time in seconds.
    """
    if link is None:
        if chip.link is None:
            raise InputError(
                f"{chip.name} states no link to other chips; give link=... (bytes a second, one direction)."
            )
        link = to_si(chip.link.bandwidth_per_direction, "byte/s")
    start = start_of(chip) if start is None else start
    tables = collective_constants()
    if kind == "send":
        return send(message, tables["send"]["efficiency"] * link, tables["send"]["start_share"] * start)
    constants = tables["exchange" if kind == "all_to_all" else "ring"]
    wire, steps = wire_and_steps(kind, ranks)
    time = link_time(
        message,
        ranks,
        wire,
        steps,
        link,
        start,
        tables["ring"]["step_share"],
        constants["copy_share"],
        constants["efficiency"],
        constants["eager_share"] if eager_share is None else eager_share,
        constants["rendezvous"],
    )
    switch = tables["in_switch"]
    if in_switch is None:
        in_switch = (chip.generation or "") in switch["generations"]
    if in_switch and kind == "all_reduce" and ranks >= SWITCHED_RANKS:
        time = minimum(time, start * (1 + switch["start"]) + message / (switch["share"] * link))
    return time


def across_nodes(
    kind: str,
    message: Any,
    nodes: Any,
    ranks_per_node: Any,
    chip: HardwareNode,
    adapter: float,
    *,
    start: float | None = None,
    link: float | None = None,
) -> Any:
    """Seconds of an all-reduce or a send between nodes; ``adapter`` is the network rate of one rank (bytes a second)."""
    fabric = collective_constants()["fabric"]
    rate, alpha = fabric["share"] * adapter, to_si(Q_(fabric["start"]), "s")
    if kind == "send":
        return send(message, rate, alpha)
    if kind != "all_reduce":
        raise unknown_name("collective across nodes", kind, ("all_reduce", "send"))
    between = ring_all_reduce(message / ranks_per_node, nodes, rate, alpha)
    if ranks_per_node == 1:
        return between
    inside = 2 * inside_domain("all_gather", message, ranks_per_node, chip, start=start, link=link)
    return inside + between


def bridged_pairs(kind: str, message: Any, ranks: Any, chip: HardwareNode, bridge: float, host: float) -> Any:
    """Seconds on devices bridged in pairs: two ranks use the bridge, more cross the host's bus, which then sets the pace."""
    return inside_domain(kind, message, ranks, chip, link=bridge if ranks <= 2 else host, in_switch=False)
