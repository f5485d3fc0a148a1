"""What a service draws, costs and emits at the load that it answers."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.pools import Pool
from mlsysim.hardware.types import HardwareNode
from mlsysim.plans.hours import at_all_hours
from mlsysim.plans.served import Served
from mlsysim.plans.sheet import Sheet
from mlsysim.plans.spending import Share, power_band, power_facts, spend, times
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import chip_power, equivalent, host_share, mean_power, waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.zoo.intervals import independent

_DAYS = 1.0


def costs(sheet: Sheet, served: Served, rates: Any) -> None:
    """Add power, energy, cost and carbon of a service; ``rates`` is the interval of the requests that it answers."""
    plan, server = sheet.plan, served.server
    days = plan.ops.days or _DAYS
    pools = _pools(served)
    powers = [power_of(sheet, served, fleet.node.accelerator, pool) for fleet, pool in pools]
    first, draws = powers[0], None
    if first is not None and server.calibrated:
        draws = power_band(sheet, "energy per token", server.chip, first)
    sheet.add("accelerator_power", first, times(first, draws))
    if len(pools) > 1 and None not in powers:
        writes = f"those that write answers draw {powers[1]:,.0f} W each"
        sheet.assumed["accelerator_power"] = f"that of those that read prompts, as is the power of a node; {writes}"
    resting = sum(pool.devices - pool.working(served.asking) for _, pool in pools)
    idle = round(sum(fleet.total_accelerators for fleet, _ in pools) - served.result.devices + resting)
    if idle > 0:
        verbs = ("has", "it waits, and is") if idle == 1 else ("have", "they wait, and are")
        sheet.assumed["idle_devices"] = f"{idle} of the accelerators {verbs[0]} no replica at work; {verbs[1]} paid for"
    rate = served.delivered()
    made = (rate * served.mean_output + served.beside) * days * 86400.0
    slower = rates and tuple(rate / to_si(side, "1/s") for side in reversed(rates)) if rate > 0 else None
    away = [float(count - up) for count, up in zip((served.replicas, served.writers), served.up, strict=True)]
    shares = []
    for (fleet, pool), power, gone in zip(pools, powers, away, strict=False):
        there = 1.0 - gone * pool.width / fleet.total_accelerators
        working = min(1.0, pool.working(served.asking) / (there * fleet.total_accelerators))
        shares.append(Share(fleet, _mean(fleet, working, power, plan.hardware.power_cap), there=there))
        if fleet is pools[0][0] and power is not None and working < 1:
            waits = quantity(waiting_power_of(fleet.node.accelerator, plan.hardware.power_cap), "W")
            sheet.facts |= {"share_working": working, "waiting_power": waits}
            sheet.add("run_power", shares[0].power, times(shares[0].power, draws))
    seen, hours = at_all_hours(sheet, server.fleet, days)
    spent = spend(sheet, days, made, *shares, slower=slower, draws=draws, seen=seen)
    if hours:
        sheet.note(hours)
    if plan.ops.days is None:
        sheet.assumed["duration"] = "costs are for one day at this load"
    sheet.facts |= {"duration": quantity(days * shares[0].there, "day"), "work_of_the_run": made}
    band = independent(slower, draws and sheet.metrics["power"].factors)
    for name, of, unit in (("energy_per_token", "energy", 3.6e6), ("carbon_per_mtoken", "carbon_footprint", 1e9)):
        if (amount := spent[of]) is not None and made > 0:
            each = amount * unit / made
            sheet.add(name, each, times(each, band))


def _pools(served: Served) -> list[tuple[Fleet, Pool]]:
    """The fleets and their devices at work: one pool, or one that reads prompts and one that writes answers."""
    server = served.server
    width, (readers, writers) = served.split.devices, served.up
    if server.decode_fleet is None:
        return [(server.fleet, Pool(readers, width))]
    rest = (served.result.devices - width * served.replicas) // served.writers
    reading, writing = Pool(readers, width, writes=False), Pool(writers, rest, reads=False)
    return [(server.fleet, reading), (server.decode_fleet, writing)]


def _mean(fleet: Fleet, working: float, power: float | None, cap: Any) -> float | None:
    """Mean watts of those of a fleet's accelerators that are there: a share of them works, the others wait."""
    return None if power is None else working * power + (1 - working) * waiting_power_of(fleet.node.accelerator, cap)


def power_of(sheet: Sheet, served: Served, chip: HardwareNode, pool: Pool) -> float | None:
    """Watts of an accelerator that serves; None where the zoo has no TDP for it. The facts are those of the first pool.

    It works while there is any request: of clients that come again (:meth:`mlsysim.cases.pools.Pool.busy`) and at a measured rate always, of N
    that are there on average by chance in a share 1 - exp(-N) of the time. An engine with little to do runs small batches, it does not wait for large ones.
    """
    if chip.tdp is None:
        return None
    server, part = served.server, served.server.part
    # A backlog is as good as more of the same requests.
    requests = served.delivered() + served.beside / served.mean_output
    precision, known = server.options["precision"], chip_power(chip)
    rest = (served.mean_output - 1) * served.tpot
    if part.output_rate is not None or part.backlog is not None:
        busy = 1.0
    elif served.come is None:
        busy = pool.busy(served.ttft, rest, served.clients)
    else:
        busy = 1 - math.exp(-requests / pool.replicas * pool.here(served.ttft, rest))
    busy *= host_share(chip) if part.host_bound else 1.0
    share = equivalent(chip, precision)
    clocks, cap = served.result._facts.context["clocks"], server.plan.hardware.power_cap
    asked, draft = served.traffic, server.options.get("draft_model")
    activity = pool.activity(server.model, known, share, precision, asked, requests, busy, clocks, draft, served.asking)
    most = None if cap is None else to_si(cap, "W")
    if pool.reads:
        sheet.facts |= power_facts(known, activity, most) | {"limit": quantity(known.limit, "W")}
    return float(mean_power(known, activity, most))
