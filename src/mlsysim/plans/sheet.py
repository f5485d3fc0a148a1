"""``Sheet``: what an evaluation gathers on its way to an answer, and the parts that all evaluations share."""

from __future__ import annotations

import warnings
from typing import Any

from mlsysim.errors import DataWarning, InputError
from mlsysim.infra.types import Datacenter
from mlsysim.plans.answer import Level, Limit, MemoryBar, Metric, Part, Score
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_region
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import Quantity, quantity, to_si
from mlsysim.walls.base import Binding, Result
from mlsysim.walls.catalog import walls
from mlsysim.walls.data.ingestion import DataModel
from mlsysim.walls.operations.capital import EconomicsModel, EconomicsResult
from mlsysim.walls.operations.sustainability import SustainabilityModel, SustainabilityResult

__all__ = ["Sheet", "Spent", "compact_time", "limit_of", "spend"]


class Sheet:
    """Metrics, scores, results and assumptions while a plan is evaluated."""

    def __init__(self, plan: Plan, assumed: dict[str, str]) -> None:
        self.plan = plan
        self.assumed = dict(assumed)
        self.metrics: list[Metric] = []
        self.results: list[Result] = []
        self.sources: dict[str, str] = {}
        self.scores: dict[int, Score] = {}
        self.time_parts: tuple[Part, ...] = ()
        self.memory: MemoryBar | None = None
        self.roofline: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {}
        self.interval = ""
        self.unknown: list[str] = []

    def keep(self, result: Any) -> Any:
        """Remember a result: its equations, sources and assumptions."""
        self.results.append(result)
        self.sources.update(result._sources)
        for name, text in result.assumptions.items():
            self.assumed.setdefault(name, text)
        return result

    def add(
        self, level: Level, name: str, label: str, value: Any, wall: int, band: tuple[Any, Any] | None = None
    ) -> None:
        """A metric; nothing where the value is not known."""
        if value is None:
            return
        low, high = band if band is not None else (None, None)
        self.metrics.append(Metric(name=name, label=label, level=level, value=value, wall=wall, low=low, high=high))

    def score(self, wall: int, value: str, load: float | None = None, note: str = "", fails: bool = False) -> None:
        """What was found about a wall."""
        card = _CARDS[wall]
        self.scores[wall] = Score(
            wall=wall,
            name=card.name,
            domain=card.domain.name,
            status="fails" if fails else "holds",
            value=value,
            note=note,
            load=load,
        )

    def scorecard(self, binding: int) -> tuple[Score, ...]:
        """All 22 walls; the binding one is marked."""
        found = []
        for number, card in _CARDS.items():
            score = self.scores.get(number)
            if score is None:
                score = Score(
                    wall=number,
                    name=card.name,
                    domain=card.domain.name,
                    status="binds" if number == binding else "not asked",
                )
            elif number == binding and score.status != "fails":
                score = score.model_copy(update={"status": "binds"})
            found.append(score)
        return tuple(found)

    def ingest(self, rate: Any, chip: Any) -> None:
        """Wall 8, where the workload says how fast it reads data."""
        if rate is None or (chip.storage is None and chip.interconnect is None):
            return
        data = self.keep(DataModel().solve(rate, chip))
        self.add("feasibility", "data_utilization", "Data supply used", data.utilization, 8)
        self.score(8, f"{data.utilization:.1%} of supply", data.utilization, fails=data.is_stalled)


_CARDS = {card.number: card for card in walls()}


def limit_of(binding: Binding) -> Limit:
    """A resolver's binding wall as a limit."""
    return Limit(wall=binding.wall, name=binding.name, margin=binding.margin, sentence=binding.sentence)


class Spent:
    """Money, energy, carbon and water of a fleet for some days; None where the zoo does not know."""

    def __init__(self) -> None:
        self.costs: EconomicsResult | None = None
        self.footprint: SustainabilityResult | None = None
        self.days = 0.0

    @property
    def usd(self) -> float | None:
        return None if self.costs is None else self.costs.tco_usd

    @property
    def kwh(self) -> float | None:
        return None if self.footprint is None else to_si(self.footprint.total_energy_kwh, "kWh")

    @property
    def kg(self) -> float | None:
        return None if self.footprint is None else self.footprint.carbon_footprint_kg


def spend(sheet: Sheet, fleet: Fleet, days: float, mfu: float, power: float | None = None) -> Spent:
    """Walls 17 and 18 for a fleet that works for some days; the sheet learns what is not known and why."""
    ops = sheet.plan.ops
    region = find_region(ops, fleet)
    spent = Spent()
    spent.days = days
    options: dict[str, Any] = {"duration_days": days, "mfu": min(max(mfu, 0.0), 1.0)}
    if power is not None:
        options["average_power"] = quantity(power, "W")
    price: Any = ops.electricity
    if price is None and region is not None and _grid(region).electricity_price is not None:
        price = "region"
    try:
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always", DataWarning)
            spent.costs = sheet.keep(
                EconomicsModel().solve(fleet, grid=region, kwh_price=price, cloud_price=ops.cloud_price, **options)
            )
        sheet.unknown.extend(str(warning.message) for warning in noticed)
    except InputError as error:
        sheet.unknown.append(_capital(str(error)))
    try:
        spent.footprint = sheet.keep(SustainabilityModel().solve(fleet, datacenter=region, **options))
    except InputError as error:
        if _capital(str(error)) not in sheet.unknown:
            sheet.unknown.append(_capital(str(error)))
    if region is None:
        sheet.unknown.append("No region is given, so carbon and water are not known; say --region, such as Quebec.")
    _report(sheet, spent, region)
    return spent


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _grid(region: Any) -> Any:
    return region.grid if isinstance(region, Datacenter) else region


def _report(sheet: Sheet, spent: Spent, region: Any) -> None:
    costs, footprint = spent.costs, spent.footprint
    if costs is not None:
        sheet.add("macro", "tco", "Cost of owning", quantity(costs.tco_usd, "USD"), 17)
        if costs.cloud_cost_usd is not None:
            sheet.add("macro", "rent", "Cost of renting", quantity(costs.cloud_cost_usd, "USD"), 17)
        sheet.add("macro", "purchase", "Purchase price", quantity(costs.purchase_price_usd, "USD"), 17)
        sheet.score(17, f"${costs.tco_usd:,.0f}", note=f"of which ${costs.capex_usd:,.0f} hardware")
    if footprint is not None:
        sheet.add("macro", "power", "Power", footprint.power.to("kW"), 18)
        sheet.add("macro", "energy", "Energy", footprint.total_energy_kwh.to("MWh"), 18)
        if footprint.carbon_footprint_kg is not None:
            sheet.add("macro", "carbon_footprint", "Carbon", quantity(footprint.carbon_footprint_kg, "kgCO2e"), 18)
            sheet.score(18, f"{footprint.carbon_footprint_kg:,.0f} kg CO2e", note=region.name if region else "")
        if footprint.water_usage_liters is not None:
            sheet.add("macro", "water", "Water", quantity(footprint.water_usage_liters, "L"), 18)
        if 18 not in sheet.scores:
            sheet.score(18, f"{spent.kwh or 0:,.0f} kWh")


def compact_time(seconds: float) -> str:
    """A duration in the unit that reads best.

    >>> compact_time(0.0123), compact_time(8.594), compact_time(93784), compact_time(2.6e6)
    ('12.3 ms', '8.59 s', '26.1 h', '30.1 days')
    """
    for limit, divisor, unit in (
        (1e-3, 1e-6, "us"),
        (1.0, 1e-3, "ms"),
        (180.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (259200.0, 3600.0, "h"),
    ):
        if seconds < limit:
            return f"{_digits(seconds / divisor)} {unit}"
    return f"{_digits(seconds / 86400.0)} days"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def band_text(band: tuple[Any, Any] | None) -> str:
    """An interval of times in words, or nothing."""
    if band is None:
        return ""
    low, high = (to_si(side, "s") if isinstance(side, Quantity) else side for side in band)
    return f" ({compact_time(low)} to {compact_time(high)})"
