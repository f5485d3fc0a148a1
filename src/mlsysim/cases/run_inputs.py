"""Where the inputs of a run come from: what was given, else the zoo, else one declared default for all faces.

| input | rule |
|---|---|
| electricity | the price given; else that of the place; else that of :data:`FALLBACK_GRID` |
| place | the one given, else the fleet's own; without any, carbon and water stay unknown, and PUE is that of :data:`FALLBACK_FACILITY` |
| failures | the fleet's own MTBF; else the all-cause rate of the chip's generation (:mod:`mlsysim.cases.failures`) |
| checkpoint | the time given; else the bytes of the state over what writers and file system take (:mod:`mlsysim.cases.checkpoint`) |
| restart, interval | by the number of ranks (:mod:`mlsysim.cases.failures`); the interval with the largest goodput |
| power | what the accelerators do (:mod:`mlsysim.timing.power`), around them hosts, fans, conversion and network by cooling |
| purchase | the price given, else the chip's; never zero where it is unknown; with hosts, network and building by ``data/constants.toml`` |
| rent | the price given, a number or a cloud's listed one (:mod:`mlsysim.cases.rent`); none is assumed |
| amortisation, upkeep | ``amortization_period`` and ``maintenance_rate`` of ``data/constants.toml`` |
| duration | ``run_duration`` of ``data/constants.toml`` where neither it nor the work is given |

Train, serve, plan, audit, sweeps, placement, scenarios, the report and the servers use these. Resolvers called by themselves keep the
defaults of the documents: electricity at ``electricity_price``, 0.12 USD/kWh, a checkpoint of ``checkpoint_time``, 60 s, failure
rates of accelerators, adapters and supplies, added, accelerators alone that are bought and draw TDP (i + (1 - i) MFU), and PUE 1
without a place.
Every value that nobody gave is noted with its origin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import CHIP, DEFAULT, INFERRED, Assumptions
from mlsysim.cases.footprint import Site
from mlsysim.cases.goodput import NodeParts
from mlsysim.cases.money import building_price
from mlsysim.cases.rent import Rent, rent_of
from mlsysim.cases.run import ALONE, Around
from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Facilities, Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.physics.power import proportional_power
from mlsysim.physics.topology import DIMENSIONS, topology_key, tree_ports
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.systems.types import Fleet, Node
from mlsysim.timing.power import Activity, power_constants, power_of, wide_peak
from mlsysim.units.fields import quantity_from
from mlsysim.units.ops import maximum, minimum
from mlsysim.units.registry import Q_, to_si
from mlsysim.units.text import as_given
from mlsysim.zoo.constants import constant

REGION, LOCAL = "region", "local"
"""Words for a price of electricity: that of the grid, which must have one; that of the grid, else the fallback's."""

ALL, ACCELERATORS = "all", "accelerators"
"""Scopes of the cost of owning: hosts, network and building count, or accelerators alone."""

FALLBACK_GRID = "US_Avg"
"""The grid whose price of electricity holds where no place is given, or the place publishes none."""

FALLBACK_FACILITY = "Hyperscale_Air"
"""The facility whose PUE holds where no place is given, and what stands around accelerators counts."""

_MOST = 1e9
"""USD for a kWh or an hour beyond which nothing is a price."""


def run_days() -> float:
    """Days of a run where neither they nor its work are given."""
    return float(to_si(constant("run_duration").quantity, "day"))


def maintenance_rate(given: Any, assumed: Assumptions) -> Any:
    """Upkeep in a year over the purchase."""
    if given is not None:
        return given
    rate = to_si(constant("maintenance_rate").quantity, "1/year")
    assumed.say("maintenance_fraction", rate, DEFAULT, f"{rate:g} per year")
    return rate


# --- the place --------------------------------------------------------------------------------------------------------


def site_of(
    place: GridProfile | Datacenter | None, fleet: Fleet | None, assumed: Assumptions, around: bool = False
) -> Site:
    """The place that was given, else the fleet's own, else nowhere: carbon unknown, which is noted, and PUE 1, or that of a usual
    facility where what stands ``around`` the accelerators counts."""
    where = place
    if where is None and fleet is not None:
        where = fleet.datacenter or fleet.region
    if where is None:
        pue, of = 1.0, ""
        if around:
            usual = Facilities.get(FALLBACK_FACILITY)
            pue, of = usual.pue, f", as in {usual.name}"
        words = f"{pue}{of} (no grid, datacenter or region is given, so carbon and water are unknown)"
        assumed.say("pue", pue, DEFAULT, words)
        return Site("not given", pue, cited=_titles(usual, pue="pue") if around else {})
    grid = where.grid if isinstance(where, Datacenter) else where
    if place is None:
        assumed.say("place", grid.name, INFERRED, f"{grid.name}, the fleet's own")
    price = None if grid.electricity_price is None else to_si(grid.electricity_price, "USD/kWh")
    if around and where is grid:
        assumed.say("pue", grid.pue, DEFAULT, f"{grid.pue:.3g}, as in {grid.facility.name}")
    cited = _titles(grid, intensity="carbon_intensity", kwh_price_usd="electricity_price")
    if where is grid:
        cited |= _titles(grid.facility, pue="pue", wue="wue")
    return Site(grid.name, where.pue, where.wue, grid.carbon_intensity_g_kwh / 1000, price, cited)


def _titles(entry: Any, **fields: str) -> dict[str, str]:
    """Titles of what speaks for fields of an entry that have a value, by the names that equations have for them."""
    known = {name: field for name, field in fields.items() if getattr(entry, field) is not None}
    found = {name: entry.metadata.source_of(field) for name, field in known.items()}
    return {name: source.title for name, source in found.items() if source is not None}


def fallback_price() -> float:
    """USD/kWh where no place says."""
    return float(to_si(Grids.get(FALLBACK_GRID).electricity_price, "USD/kWh"))


def cited(price: Any, site: Site) -> dict[str, str]:
    """Titles of the sources of a place's figures, and of its price of electricity where that is not given."""
    asked = str(price).strip().lower() in (REGION, LOCAL)
    local = _titles(Grids.get(FALLBACK_GRID), kwh_price_usd="electricity_price") if asked and site.price is None else {}
    return {name: title for name, title in site.cited.items() if asked or name != "kwh_price_usd"} | local


def electricity_price(resolver: str, value: Any, site: Site, assumed: Assumptions) -> float:
    """USD/kWh: a number or quantity as given, the place's for 'region' and 'local', else the documents', which is noted."""
    if value is None:
        entry = constant("electricity_price")
        price = to_si(entry.quantity, "USD/kWh")
        assumed.say("kwh_price", price, DEFAULT, str(entry.value))
        return price
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in (REGION, LOCAL):
        if site.price is not None:
            assumed.say("kwh_price", site.price, INFERRED, f"{site.price:g} USD/kWh, the price of {site.name}")
            return float(site.price)
        if word == LOCAL:
            price = fallback_price()
            why = f"none is published for {site.name}" if site.carbon is not None else "no region is given"
            words = f"{price:g} USD/kWh, the price of {Grids.get(FALLBACK_GRID).name}, because {why}"
            assumed.say("kwh_price", price, DEFAULT, words)
            return price
        raise InputError(
            f"{resolver}: there is no electricity price for {site.name!r}; pass kwh_price=... in USD/kWh, "
            "or a grid that has one.",
            field="kwh_price",
        )
    if word and not any(ch.isdigit() for ch in word):
        raise InputError(
            f"The 'kwh_price' input of {resolver} must be a price such as '0.12 USD/kWh', or 'region', got {value[:40]!r}.",
            field="kwh_price",
        )
    return _rate(resolver, "kwh_price", value, "USD/kWh", "0.12 USD/kWh")


def _rate(resolver: str, name: str, value: Any, unit: str, example: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        number = to_si(quantity_from(value, unit, example, name), unit)
    if not 0 <= number <= _MOST:
        raise InputError(
            f"The {name!r} input of {resolver} must be a number of at least 0 and at most {as_given(_MOST)} {unit}, got {as_given(number)}.",
            field=name,
        )
    return number


# --- the hardware -----------------------------------------------------------------------------------------------------


def node_price(node: Node, unit_cost: Any, node_cost: Any, assumed: Assumptions, scope: str = ACCELERATORS) -> Any:
    """USD of a node: its accelerators, or the whole of it where ``node_cost`` is given. Unknown is an error."""
    chip = node.accelerator
    if unit_cost is not None and node_cost is not None:
        raise InputError("give the price of an accelerator (unit_cost) or of a node (node_cost), not both.")
    if node_cost is not None:
        return node_cost
    listed = None if node.unit_cost is None else to_si(node.unit_cost, "USD")
    if unit_cost is None:
        if chip.unit_cost is None:
            hint = "" if listed is None else f", or node_cost='{listed:g} USD' for whole nodes as listed"
            reason = f"the price of {chip.name} is not known, and unknown is not free"
            raise InputError(f"{reason}; pass unit_cost='... USD'{hint}.", field="unit_cost", reason=reason)
        unit_cost = to_si(chip.unit_cost, "USD")
        when = f", {chip.cost_date}" if chip.cost_date else ""
        assumed.say("unit_cost", unit_cost, CHIP, f"${unit_cost:,.0f} ({chip.name}{when})")
    if listed is not None and scope == ACCELERATORS:
        words = f"not used: accelerators alone are priced, though the node is listed at {listed:g} USD; pass node_cost= to use it"
        assumed.say("node_cost", listed, CHIP, words)
    return unit_cost * node.accelerators_per_node


class Beyond(NamedTuple):
    """What is bought beside accelerators, over their price: hosts of a server, network between servers."""

    hosts: Any
    network: Any

    @property
    def multiplier(self) -> Any:
        """All of it with the accelerators, over their price."""
        return 1.0 + self.hosts + self.network


def joined_by_a_network(fleets: Sequence[Fleet]) -> bool:
    """Whether fleets that work together need one: all but parts of one node, of chips that reach each other over its own links."""
    chips = [fleet.node.accelerator for fleet in fleets]
    link = chips[0].link
    reach = link.domain if link is not None and {chip.name for chip in chips} == {chips[0].name} else None
    one = max(fleet.count for fleet in fleets) == 1 and sum(fleet.total_accelerators for fleet in fleets) <= (
        reach or 0
    )
    return len(fleets) > 1 and not one


def beyond_accelerators(
    scope: str, given: Any, hosted: Any, nodes: Any, ports: float = 1.0, whole: bool = False, joined: Any = False
) -> Beyond:
    """Hosts and network of servers whose accelerators have a host by the share ``hosted`` of them, and ``ports`` of switches over those as sold.

    A multiplier that is ``given`` takes the place of both; ``whole`` are nodes priced with their host. A node alone has no network unless it
    is ``joined`` to others.
    """
    if given is not None:
        return Beyond(given - 1.0, 0.0)
    if scope != ALL:
        return Beyond(0.0, 0.0)
    hosts = 0.0 if whole else (constant("server_over_accelerators").number - 1.0) * hosted
    part = constant("network_share").number
    several = maximum(minimum(nodes - 1, 1), joined * 1)
    return Beyond(hosts, (1.0 + hosts) * part / (1.0 - part) * ports * several)


def ports_bought(fleet: Fleet) -> float:
    """Ports of switches over those that its nodes and fabric have in the zoo (else of a full fabric for its adapters), where a plan has adapters or an
    oversubscription of its own; none of links from node to node, which are the chips'."""
    node, fabric = fleet.node, fleet.fabric
    size, over = node.accelerators_per_node, 1.0
    if node.metadata.key in Nodes:
        sold = Nodes.get(node.metadata.key)
        node = sold if sold.accelerators_per_node <= size else sold.part(size)
    if fabric.metadata.key in Fabrics:
        over = Fabrics.get(fabric.metadata.key).oversubscription_ratio
    fabric = fabric.model_copy(update={"oversubscription_ratio": over})
    whole = switch_ports(fleet.model_copy(update={"node": node, "fabric": fabric}))
    return switch_ports(fleet) / whole if whole else 0.0


def building(scope: str, capacity: Any) -> tuple[Any, float]:
    """USD of a building for so many kW of computing, and the years of its life; nothing where accelerators alone count."""
    price, life = (constant(name).quantity for name in ("facility_cost", "facility_life"))
    return building_price(capacity, to_si(price, "USD/kW")) if scope == ALL else 0.0, float(to_si(life, "year"))


def hosted_share(node: Node) -> float:
    """How much of a server's host goes with a node's accelerators: all of it in a server of the zoo, else by their power."""
    if node.metadata.key is not None or node.accelerator.tdp is None:
        return 1.0
    return float(min(1.0, to_si(node.accelerator.tdp, "W") / to_si(Q_(power_constants()["node"]["tdp"]), "W")))


def rent_price(value: Any, chip: HardwareNode, assumed: Assumptions) -> Rent | None:
    """The rent of an accelerator: a number or quantity as given, or what is listed (:mod:`mlsysim.cases.rent`)."""
    if value is None:
        return None
    key = chip.metadata.key
    rent = rent_of(value, key, chip.name)
    if rent.entry is not None:
        note = f"{rent.price:g} USD/h: {rent.entry.name}, {rent.entry.commitment}, {rent.entry.date}"
        if key is not None and rent.entry.accelerator != key:
            note += f"; it rents {rent.entry.accelerator}, the fleet has {key}"
        assumed.say("cloud_price", rent.price, CHIP, note)
    if not 0 <= rent.price <= _MOST:
        least = f"at least 0 and at most {as_given(_MOST)} USD/h"
        raise InputError(
            f"The 'cloud_price' input must be a number of {least}, got {rent.price:g}.", field="cloud_price"
        )
    return rent


def device_draw(
    chip: HardwareNode, utilisation: Any, average_power: Any, assumed: Assumptions, memory_utilisation: Any = None
) -> Any:
    """kW of one accelerator at a utilisation between 0 and 1."""
    if average_power is not None:
        assumed.pop("mfu", None)
        return average_power
    if chip.tdp is None:
        reason = f"{chip.name} has no published TDP"
        words = f"{reason}; pass average_power=... (power of one accelerator, such as '330 W')."
        raise InputError(words, field="average_power", reason=reason)
    if memory_utilisation is not None:
        words = "of what it does: waiting, running kernels, and what arithmetic and memory add"
        assumed.say("power", "activity", CHIP, words)
        bandwidth = to_si(chip.memory.bandwidth, "byte/s")
        return power_of(chip, Activity(utilisation * wide_peak(chip), memory_utilisation * bandwidth)) / 1000
    idle = constant("idle_power_fraction").number
    assumed.say("power", idle, DEFAULT, f"TDP x ({idle:g} + {1 - idle:g} x MFU)")
    return proportional_power(to_si(chip.tdp, "kW"), idle, utilisation)


def around_of(fleet: Fleet, include: bool, cooling: str | None, assumed: Assumptions) -> Around:
    """What stands around the accelerators of a fleet, where it counts: by the cooling that is given, else that of such a node."""
    if not include:
        return ALONE
    found = around_node(fleet.node, switched_bandwidth(fleet), cooling)
    words = f"{found.host * 1000:,.0f} W a node plus {found.factor:g} x its accelerators ({found.cooling}-cooled)"
    several = (fleet.count > 1 or fleet.joined) and found.network
    words += f", {found.network * 1000:,.0f} W of network an accelerator" if several else ""
    assumed.say("around the accelerators", found.cooling, INFERRED, words)
    return replace(found, joined=fleet.joined)


def switched_bandwidth(fleet: Fleet) -> float:
    """Bandwidth of an accelerator (byte/s) whose full fabric of two stages has as many ports of switches as the fleet's own for each accelerator.

    Where there are no switches, the power of links is the nodes'.
    """
    return switch_ports(fleet) / tree_ports(1.0) * to_si(fleet.fabric.bandwidth, "byte/s")


def switch_ports(fleet: Fleet) -> float:
    """Ports of switches for each accelerator; links of a torus and of a full mesh go from node to node."""
    kind, over = topology_key(fleet.fabric.topology), fleet.fabric.oversubscription_ratio
    if kind in DIMENSIONS or kind == "full_mesh":
        return 0.0
    return float(tree_ports(math.inf if kind == "switched" else over) * fleet.adapters_per_accelerator)


def around_node(node: Node, bandwidth: float, cooling: str | None = None) -> Around:
    """What stands around the accelerators of a node, each of which has so much bandwidth (byte/s) to others."""
    tables, cooling = power_constants()["node"], cooling or node.cooling or "air"
    own, wire = tables[cooling], tables["network"]
    host = to_si(Q_(own["host"]), "kW") * _host_share(node, tables)
    network = to_si(Q_(wire["power"]), "kW") * bandwidth / to_si(Q_(wire["bandwidth"]), "byte/s")
    return Around(host, own["factor"], network, cooling)


def usual_node(chip: HardwareNode) -> tuple[Node, float]:
    """The first node of the zoo that holds a chip, or eight of it, and the bandwidth of each to others in byte/s."""
    node = next((each for each in Nodes if each.accelerator.name == chip.name), None)
    if node is None:
        node = Node(name=chip.name, accelerator=chip, intra_node_bw="1 GB/s")
    if node.nic_bandwidth is None:
        return node, to_si(Fabrics.get("Ethernet_100G").bandwidth, "byte/s")
    if (cluster := next((each for each in Clusters if each.node.name == node.name), None)) is not None:
        return node, switched_bandwidth(cluster)
    return node, to_si(node.nic_bandwidth, "byte/s") * node.nics_per_node / node.accelerators_per_node


def _host_share(node: Node, tables: dict[str, Any]) -> float:
    """The host of a node over the measured one: by their nameplates, else by their accelerators; of a device that no server of the
    zoo holds by its power, since a phone or a board has no such host."""
    if node.host_power is not None:
        return float(to_si(node.host_power, "W") / to_si(Q_(tables["rated"]), "W"))
    return float(node.accelerators_per_node / tables["accelerators"] * hosted_share(node))


def node_parts(
    node: Node, assumed: Assumptions, *, accelerator: Any = None, nic: Any = None, psu: Any = None
) -> tuple[NodeParts, dict[str, str]]:
    """What of a node fails how often: as given (hours), as the chip states, else the constants; and their documents."""
    own = node.accelerator.reliability
    stated = None if own is None else to_si(own.mtbf, "h")
    hours: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, found, fallback in (
        ("accelerator_mtbf", stated if accelerator is None else accelerator, "gpu_mtbf"),
        ("nic_mtbf", nic, "nic_mtbf"),
        ("psu_mtbf", psu, "psu_mtbf"),
    ):
        hours[name] = found
        if found is None:
            entry = constant(fallback)
            hours[name] = to_si(entry.quantity, "h")
            assumed.say(name, hours[name], DEFAULT, f"{hours[name]:g} h")
            sources[name] = entry.source.title
    if not node.nics_given:
        assumed.say("nics_per_node", node.nics_per_node, DEFAULT, f"{node.nics_per_node} (the node does not say)")
    counts = {"accelerators": node.accelerators_per_node, "nics": node.nics_per_node, "psus": node.psus_per_node}
    return NodeParts(**hours, **counts), sources
