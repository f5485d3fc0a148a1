"""The hours of a plan that says when it starts: which it covers, when a training run gives way, and what that is worth.

The hours are those of :mod:`mlsysim.cases.hours`. Less power is kept by the clock of the accelerators: the step is asked again with the power
limit that the meter leaves them, as ``power_cap`` is. Walls 17 and 18 are asked with the means over the hours that the run covers, weighted
by its energy, so that their equations hold as they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from mlsysim.cases.assumptions import INFERRED, Assumptions
from mlsysim.cases.giving_way import PRICE, Less, above_of, less_of, start_of
from mlsysim.cases.hours import Covered, Days, Hours, Mode, place_of
from mlsysim.cases.run import Run, run_power
from mlsysim.cases.run_inputs import LOCAL, around_of, electricity_price, site_of
from mlsysim.errors import InputError
from mlsysim.infra.hours import Table, yearly, zone_of
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.models.base import Workload
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_region
from mlsysim.plans.sheet import Sheet
from mlsysim.systems.types import Fleet
from mlsysim.timing.power import waiting_power_of
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import compact_time, count_text, listed

if TYPE_CHECKING:
    from mlsysim.walls.fleet.communication import DistributedResult

_BETTER = 0.02
"""What another start must save to be told."""


class Timed(NamedTuple):
    """The hours of a plan, the watts of an accelerator in each mode, what the grid is, and whether its hours are known."""

    hours: Hours
    watts: tuple[float, float, float] | None
    region: Any
    known: bool

    @property
    def yields(self) -> bool:
        """Whether the run gives way to anything."""
        return self.hours.pause is not None or self.hours.less is not None

    def standing(self, computing: float) -> Hours:
        """The hours of a run that computes in so much of the time in which nothing holds it; for the rest it stands, as while it is held."""
        full, less, held = self.hours.modes
        full, less = (each._replace(power=run_power(each.power, held.power, computing)) for each in (full, less))
        return replace(self.hours, modes=(full, less, held))

    def covering(self, full: float, work_is_given: bool, computing: float) -> Covered:
        """What is covered in so many hours, or in as many as nothing holds it; time that it stands counts as held."""
        hours = self.standing(computing)
        found = hours.walk(full) if work_is_given else hours.walk(until=full)
        if not found.work > 0:
            raise InputError("All hours of the run are above the level at which it pauses.", field="pause_above")
        moves = {name: computing * getattr(found, name) for name in ("work", "full", "less")}
        return found._replace(**moves, paused=found.hours - moves["full"] - moves["less"])

    def mean_watts(self, covered: Covered) -> float:
        """Watts of an accelerator over the run."""
        assert self.watts is not None
        times = (covered.full, covered.less, covered.paused)
        return sum(w * t for w, t in zip(self.watts, times, strict=True)) / covered.hours

    def days(self, seed: int) -> Days:
        """The days of the run of a seed."""
        return Days(self.hours, Random(f"hours {seed}"))

    def allowed(self, seed: int) -> Callable[[float], tuple[float, float]]:
        """What the days of a seed allow: of seconds from the start the rate over the full one, and until when."""
        return self.days(seed).allowed

    def place(self, covered: Covered) -> tuple[Any, Any]:
        """The grid as the run saw it, and the price of electricity; those of the year where hours are not known."""
        if not self.known or not covered.energy > 0:
            return self.region, None
        grid = self.region.grid if isinstance(self.region, Datacenter) else self.region
        pue = covered.energy / covered.computing
        seen = grid.model_copy(update={"carbon_intensity_g_kwh": covered.carbon / covered.energy * 1000})
        building = (self.region if isinstance(self.region, Datacenter) else grid).facility or grid.facility
        cooled = building.model_copy(update={"pue": pue, "name": f"{building.name} in its hours"})
        seen = seen.model_copy(update={"facility": cooled})
        return seen, quantity(max(0.0, covered.cost / covered.energy), "USD/kWh")


def timed(
    sheet: Sheet, model: Workload, fleet: Fleet, step: DistributedResult, options: dict[str, Any], spares: int
) -> Timed | None:
    """The hours of a plan; None where it does not say when it starts."""
    ops = sheet.plan.ops
    if ops.start is None:
        for name in ("pause_above", "demand_response"):
            if getattr(ops, name) is not None:
                raise InputError(f"{name} is judged by the hours of the run; give its start too.", field=name)
        return None
    pause = None if ops.pause_above is None else above_of(ops.pause_above)
    less = None if ops.demand_response is None else less_of(ops.demand_response)
    region, zone, name, place = _where(sheet, fleet, "a run")
    if region is None and (pause is not None or (less is not None and less.above is not None)):
        raise InputError("Hours above a level are those of a region; give one.", field="region")
    for asked in (pause, less and less.above):
        if zone is not None and asked is not None and asked.of == PRICE and zone.price is None:
            raise InputError(
                f"No prices by the hour are known of {zone.title}; give a level of carbon.", field="pause_above"
            )
    watts = None
    modes = _ALIKE
    if step.accelerator_power is not None:
        full, chip = to_si(step.accelerator_power, "W"), fleet.node.accelerator
        wait = min(waiting_power_of(chip), full)
        around = around_of(fleet, True, sheet.plan.hardware.cooling, Assumptions())

        def power(device: float) -> float:
            standing = Run(1.0, spares * fleet.node.accelerators_per_node, wait / 1000, spares, around).power
            run = Run(1.0, fleet.total_accelerators, device / 1000, fleet.count, around)
            return float(run.power + (standing if spares else 0.0))

        slow, drawn = (1.0, full) if less is None else _slowed(model, fleet, step, options, less, full, power)
        watts = (full, drawn, wait)
        modes = (Mode(1.0, power(full)), Mode(slow, power(drawn)), Mode(0.0, power(wait)))
    elif less is not None:
        raise InputError(
            f"No power of {fleet.node.accelerator.name} is known that could be less.", field="demand_response"
        )
    hours = Hours(start_of(ops.start), place, modes, pause, less)
    _say_hours(sheet, region, zone, name)
    return Timed(hours, watts, region, zone is not None)


def _where(sheet: Sheet, fleet: Fleet, what: str) -> tuple[Any, Any, str, Any]:
    """The region, the zone whose hours it has, what it is called, and its carbon, price and PUE by the hour."""
    ops, unsaid = sheet.plan.ops, Assumptions()
    region = find_region(ops, fleet)
    site = site_of(region, fleet, unsaid, True)
    price = electricity_price(what, LOCAL if ops.electricity is None else ops.electricity, site, unsaid)
    zone = zone_of(region.grid if isinstance(region, Datacenter) else region)
    return region, zone, site.name, place_of(site, price, zone)


def _say_hours(sheet: Sheet, region: Any, zone: Any, name: str) -> None:
    """Whose hours they are, and from where they are known."""
    if zone is None:
        words = f"no hours of {name} are known: its yearly figures hold at all of them"
        sheet.assumed.say("hours", "year", INFERRED, "UTC; no region is given" if region is None else words)
    else:
        kinds = [
            "carbon",
            *(["price"] if zone.price else []),
            *(["PUE by the outside temperature"] if zone.temperature else []),
        ]
        shape = f"{', '.join(kinds)} by hour and month as in {zone.title} in {zone.year}, around the yearly figures of {name}"
        words = f"UTC; {shape}" + (f"; {zone.note}" if zone.note else "")
        sheet.assumed.say("hours", zone.key, INFERRED, words)
        sheet.sources |= {f"hours of {zone.title} ({place})": text for place, text in enumerate(zone.sources, 1)}


_ALIKE = (Mode(1.0, 1.0), Mode(1.0, 1.0), Mode(0.0, 1.0))
"""Of what works at full power at all hours."""


def at_all_hours(sheet: Sheet, fleet: Fleet, days: float) -> tuple[tuple[Any, Any] | None, str]:
    """The region and the price as a service sees them that has the same load at all hours, and its hours in words; neither without a start."""
    ops = sheet.plan.ops
    if ops.start is None:
        return None, ""
    region, zone, name, place = _where(sheet, fleet, "a service")
    _say_hours(sheet, region, zone, name)
    run = Timed(Hours(start_of(ops.start), place, _ALIKE), None, region, zone is not None)
    covered = run.hours.walk(until=days * 24)
    start = run.hours.start
    words = f"From {_date(start)} UTC until {_end(start, days * 24)} UTC it has the same load at all hours{_seen(run, covered)}."
    return run.place(covered), words


def _slowed(
    model: Workload, fleet: Fleet, step: DistributedResult, options: dict[str, Any], less: Less, full: float, power: Any
) -> tuple[float, float]:
    """The rate over the full one, and the watts of an accelerator, where the meter shows so much less."""
    each = (power(full) - power(0.0)) / full
    wanted = full - less.share * power(full) / each
    least = chip_least = waiting_power_of(fleet.node.accelerator)
    most = each * (full - least) / power(full)
    too_much = InputError(
        f"Waiting, the fleet draws {1 - most:.0%} of its power, so that less than {most:.0%} can be given; to stop it, use pause_above.",
        field="demand_response",
    )
    if wanted <= chip_least:
        raise too_much
    from mlsysim.walls.fleet.communication import DistributedModel

    slower = DistributedModel().solve(model, fleet, **{**options, "power_cap": quantity(wanted, "W")})
    drawn = to_si(slower.accelerator_power, "W")
    if drawn > wanted * 1.01:
        raise too_much
    return to_si(slower.tokens_per_second, "1/s") / to_si(step.tokens_per_second, "1/s"), drawn


def seen_from(plan: Plan, region: str, hours: float) -> GridProfile:
    """A grid as a run of so many hours at full power sees it from the plan's start on."""
    grid: GridProfile = Grids.get(region)
    zone = zone_of(grid)
    if zone is None or plan.ops.start is None:
        return grid
    site = site_of(grid, None, Assumptions())
    place = place_of(site, 0.0 if site.price is None else site.price, zone)
    run = Hours(start_of(plan.ops.start), place, _ALIKE)
    seen, price = Timed(run, None, grid, True).place(run.walk(until=hours))
    return seen if site.price is None else seen.model_copy(update={"electricity_price": price})


def carbon_hours(plan: Plan) -> Table | None:
    """gCO2e/kWh by month and hour of the plan's region; None where it does not say when it starts, or hours are not known."""
    grid = None if plan.ops.start is None or plan.ops.region is None else Grids.get(plan.ops.region)
    zone = zone_of(grid)
    if grid is None or zone is None:
        return None
    scale = grid.carbon_intensity_g_kwh / yearly(zone.carbon)
    return tuple(tuple(value * scale for value in hours) for hours in zone.carbon)


# --- in words ---------------------------------------------------------------------------------------------------------


def told(sheet: Sheet, timed: Timed, covered: Covered, computing: float, tokens: float) -> list[str]:
    """When the run ends, what its hours are like, and what giving way and another start are worth."""
    hours, start, work = timed.standing(computing), timed.hours.start, covered.work / computing
    lines = [f"From {_date(start)} UTC it runs until {_end(start, covered.hours)} UTC{_seen(timed, covered)}."]
    given = sheet.plan.workload.tokens is not None
    plainly = replace(hours, pause=None, less=None)
    usual = plainly.walk(work) if given else plainly.walk(until=covered.hours)
    for name, words in (("pause", "Pausing above {}"), ("less", "Less power ({})")):
        asked = getattr(hours, name)
        if asked is not None:
            alone = replace(hours, **{"pause": None, "less": None} | {name: asked})
            own = alone.walk(work) if given else alone.walk(until=covered.hours)
            lines.append(f"{words.format(asked.text)} {_worth(sheet, alone, own, usual, given, tokens)}.")
    if timed.known and any(map(any, hours.place.carbon)):
        when, share = plainly.best_start(usual.hours)
        if share < 1 - _BETTER:
            lines.append(
                f"From {_date(when)} UTC it would emit {1 - share:.0%} less, the least of all starts of a year."
            )
    return lines


def _date(when: Any) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


def _end(start: Any, hours: float) -> str:
    try:
        return _date(start + timedelta(hours=hours))
    except OverflowError:
        return "after the year 9999"


def _seen(timed: Timed, covered: Covered) -> str:
    if not timed.known or not covered.energy > 0:
        return ""
    grid = timed.region.grid if isinstance(timed.region, Datacenter) else timed.region
    here, pue = covered.carbon / covered.energy * 1000, covered.energy / covered.computing
    return (
        f", in hours of {here:,.0f} gCO2e/kWh ({grid.name} over the year: {grid.carbon_intensity_g_kwh:,.0f}), "
        f"{covered.cost / covered.energy:.3f} USD/kWh and a PUE of {pue:.2f}"
    )


def _worth(sheet: Sheet, hours: Hours, own: Covered, usual: Covered, given: bool, tokens: float) -> str:
    """What giving way does: to the time, or the tokens, and to carbon and cost of the work."""
    held, slow = own.paused / own.hours, own.less / own.hours
    if held < 5e-4 and slow == 0:
        return "never holds it"
    power, known = hours.modes, "energy" in sheet.metrics
    parts = [f"{'holds' if held else 'slows'} it for {(held or slow):.1%} of the time on average"]
    if not held:
        parts[0] += f" to {power[1].rate:.1%} of its speed"
    lost, noun = 1 - own.work / usual.work, sheet.counted.removesuffix("s")
    if given:
        later = own.hours - usual.hours
        missed = f" (the time of {count_text(tokens * later / usual.hours)} {sheet.counted})"
        parts.append(f"it ends {compact_time(later * 3600)} later{missed}" if later > 0 else "it ends no later")
    else:
        parts.append(
            f"{count_text(tokens / own.work * usual.work * lost)} {sheet.counted} ({lost:.1%}) are not trained on"
        )
    words = []
    if known:
        if own.carbon > 0:
            words.append(f"emits {_change(own.carbon / own.work, usual.carbon / usual.work)}")
        words.append(f"takes {_change(own.energy / own.work, usual.energy / usual.work)} energy")
    if (costs := _costs(sheet, own, usual)) is not None:
        words.append(f"costs {_change(*costs)}")
    if words and all(word.endswith(("as much", "as much energy")) for word in words):
        words = ["emits, takes and costs as much"]
    parts.append(f"a {noun} {listed(words)}" if words else "")
    why = ""
    if held and own.carbon / own.work > usual.carbon / usual.work:
        why = f"; waiting, the fleet draws {power[2].power / power[0].power:.0%} of its power"
    return "; ".join(filter(None, parts)) + why


def _change(new: float, old: float) -> str:
    away = new / old - 1
    return "as much" if abs(away) < 5e-4 else f"{abs(away):.1%} {'more' if away > 0 else 'less'}"


def _costs(sheet: Sheet, own: Covered, usual: Covered) -> tuple[float, float] | None:
    """What a unit of work costs, of both: time is paid by the hour, electricity by the hours it is taken in."""
    parts = {part.label: part.value for part in sheet.shown.get("cost_parts", ())}
    if not parts:
        return None
    hours = to_si(sheet.facts["duration"], "h")
    by_time = sum(value for label, value in parts.items() if label != "Electricity") / hours
    electric = "Electricity" in parts
    return tuple((by_time * each.hours + electric * each.cost) / each.work for each in (own, usual))
