"""``Sheet``: what an evaluation gathers on its way to an answer, and the parts that all evaluations share."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.ledger import Ledger
from mlsysim.cases.money import rental_cost
from mlsysim.cases.run_inputs import LOCAL
from mlsysim.errors import DataWarning, InputError
from mlsysim.plans.answer import Answer, Level, Limit, MemoryBar, Metric, Part, Score
from mlsysim.plans.equations import Together, equations_of
from mlsysim.plans.plan import Plan, Task
from mlsysim.plans.resolve import find_region
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import time_unit
from mlsysim.vocabulary import Setting, worded
from mlsysim.walls.binding import Binding
from mlsysim.walls.catalog import TITLES
from mlsysim.walls.data.ingestion import DataModel
from mlsysim.walls.operations.capital import EconomicsModel, EconomicsResult
from mlsysim.walls.operations.sustainability import SustainabilityModel, SustainabilityResult
from mlsysim.walls.result import Result


class Sheet:
    """Metrics, scores, results and assumptions while a plan is evaluated."""

    def __init__(self, plan: Plan, assumed: dict[str, str]) -> None:
        self.plan = plan
        self.assumed = Assumptions()
        for name, text in assumed.items():
            self.assumed[name] = text
        self.metrics: list[Metric] = []
        self.results: list[Result] = []
        self.sources: dict[str, str] = {}
        self.scores: dict[int, Score] = {}
        self.time_parts: tuple[Part, ...] = ()
        self.memory: MemoryBar | None = None
        self.roofline: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {}
        self.unknown: list[str] = []
        ops = plan.ops
        self.facts: dict[str, Any] = {
            "hourly_price": ops.cloud_price,
            "checkpoint_given": ops.checkpoint_time,
            "mtbf_given": ops.mtbf,
        }
        self.together: dict[str, Together] = {}
        self.ledger: Ledger | None = None
        self.ledger_of_main: Ledger | None = None

    def keep(self, result: Any) -> Any:
        """Remember a result: its equations, sources and assumptions."""
        self.results.append(result)
        self.sources.update(result._facts.sources)
        self.assumed.learn(result.assumed)
        return result

    def add(
        self, level: Level, name: str, label: str, value: Any, wall: int, band: tuple[Any, Any] | None = None
    ) -> None:
        """A metric; nothing where the value is not known."""
        if value is None:
            return
        low, high = band if band is not None else (None, None)
        self.metrics.append(Metric(name=name, label=label, level=level, value=value, wall=wall, low=low, high=high))

    def text(self, name: str) -> str:
        """A metric as it is printed; every sentence takes its numbers from here."""
        return next(metric.text for metric in self.metrics if metric.name == name)

    def band(self, name: str) -> str:
        """The interval of a metric in brackets, as it is printed; nothing where there is none."""
        found = next(metric.interval_text for metric in self.metrics if metric.name == name)
        return f" ({found})" if found else ""

    def has(self, name: str) -> bool:
        """Whether there is a metric of this name."""
        return any(metric.name == name for metric in self.metrics)

    def note(self, sentence: str) -> None:
        """Something that is not known, said once."""
        if sentence not in self.unknown:
            self.unknown.append(sentence)

    def score(self, wall: int, value: str, load: float | None = None, note: str = "", fails: bool = False) -> None:
        """What was found about a wall."""
        name, domain = TITLES[wall]
        self.scores[wall] = Score(
            wall=wall,
            name=name,
            domain=domain,
            status="fails" if fails else "holds",
            value=value,
            note=note,
            load=load,
        )

    def scorecard(self, binding: int) -> tuple[Score, ...]:
        """All walls; the binding one is marked."""
        found = []
        for number, (name, domain) in TITLES.items():
            score = self.scores.get(number)
            if score is None:
                score = Score(
                    wall=number,
                    name=name,
                    domain=domain,
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

    def answer(
        self,
        *,
        task: Task,
        calibrated: bool,
        feasible: bool,
        subject: str,
        headline: str,
        verdict: tuple[str, ...],
        main: str,
        binding: Limit,
        next_wall: Limit | None,
    ) -> Answer:
        """The answer: all that was gathered, and what an evaluation makes of it."""
        found = Answer(
            name=self.plan.name,
            task=task,
            fidelity="calibrated" if calibrated else "first order",
            feasible=feasible,
            subject=subject,
            headline=headline,
            verdict=verdict,
            metrics=tuple(self.metrics),
            main=main,
            binding=binding,
            next_wall=next_wall,
            interval=interval_sentence(self.assumed.get("interval", "")) if calibrated else FIRST_ORDER_ONLY,
            interval_key=str(self.assumed.value("interval", "")) if calibrated else "first order",
            time_parts=self.time_parts,
            memory=self.memory,
            roofline=tuple(self.roofline),
            scorecard=self.scorecard(binding.wall),
            layout=self.layout,
            assumptions=dict(self.assumed),
            assumed=self.assumed.records,
            sources=self.sources,
            equations=equations_of(self.metrics, self.results, self.facts, self.time_parts, self.memory, self.together),
            cost_parts=cost_parts(self.results),
            carbon_parts=carbon_parts(self.results),
            plan=self.plan,
        )
        return found.read_off(self.ledger, self.ledger_of_main)


def cost_parts(results: Iterable[Result]) -> tuple[Part, ...]:
    """What owning costs, of all fleets; nothing where a price is not known."""
    bills = [result for result in results if isinstance(result, EconomicsResult)]
    named = (
        ("Hardware, its share of the lifetime", "capex_usd"),
        ("Electricity", "opex_energy_usd"),
        ("Maintenance", "opex_maintenance_usd"),
    )
    sums = [(label, sum(getattr(bill, field) for bill in bills)) for label, field in named]
    return tuple(Part(label=label, value=value, wall=17) for label, value in sums if value > 0)


def carbon_parts(results: Iterable[Result]) -> tuple[Part, ...]:
    """Carbon of running, and the share of making the chips that falls on the run; nothing where one is not known."""
    taken = [result for result in results if isinstance(result, SustainabilityResult)]
    named = (
        ("Electricity of the run", "carbon_footprint_kg"),
        ("Making of the chips, their share", "embodied_carbon_kg"),
    )
    found = [(label, [getattr(each, field) for each in taken]) for label, field in named]
    if not taken or any(value is None for _, values in found for value in values):
        return ()
    return tuple(Part(label=label, value=sum(values), wall=18) for label, values in found)


FIRST_ORDER_ONLY = "First order: what binds, ratios and bounds; not calibrated on measurements."


def interval_sentence(text: str) -> str:
    """What a resolver says about its interval, as a sentence.

    >>> interval_sentence("90 % of the times per token of 860 measured serving runs")
    '90 % of the times per token of 860 measured serving runs lay in the interval.'
    """
    if not text:
        return ""
    verb = " lay in the interval" if text.startswith("90 %") else ""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}{verb}."


def limit_of(binding: Binding) -> Limit:
    """A resolver's binding wall as a limit."""
    return Limit(wall=binding.wall, name=binding.name, margin=binding.margin, sentence=binding.sentence)


class Spent:
    """Money, energy, carbon and water of one or more fleets for some days; None where the zoo does not know."""

    def __init__(self, days: float) -> None:
        self.days = days
        self.usd: float | None = 0.0
        self.hardware: float | None = 0.0
        self.purchase: float | None = 0.0
        self.rent: float | None = 0.0
        self.watts: float | None = 0.0
        self.kwh: float | None = 0.0
        self.kg: float | None = 0.0
        self.liters: float | None = 0.0

    def add(self, **amounts: float | None) -> None:
        """Add what one fleet takes; what is unknown of one is unknown of all."""
        for name, amount in amounts.items():
            held = getattr(self, name)
            setattr(self, name, None if held is None or amount is None else held + amount)

    @property
    def price(self) -> float | None:
        """What is paid: for owning, else for renting."""
        return self.usd if self.usd is not None else self.rent


def spend(
    sheet: Sheet, fleet: Fleet, days: float, mfu: float, power: float | None = None, more: Sequence[Share] = ()
) -> Spent:
    """Walls 17 and 18 for a fleet that works for some days, and for more of them; the sheet learns what is not known."""
    spent = Spent(days)
    region = find_region(sheet.plan.ops, fleet)
    for each, activity, watts in (Share(fleet, mfu, power), *more):
        spent.add(**_spent_by(sheet, each, region, days, activity, watts))
    if region is None:
        unknown = "No region is given, so carbon and water are not known; give one, such as "
        sheet.note(worded(unknown, Setting("region", "Quebec"), "."))
    _report(sheet, spent, region)
    return spent


class Share(NamedTuple):
    """A fleet, its utilisation, and the power of one of its accelerators where that is known better."""

    fleet: Fleet
    mfu: float
    power: float | None


def _spent_by(
    sheet: Sheet, fleet: Fleet, region: Any, days: float, mfu: float, power: float | None
) -> dict[str, float | None]:
    ops = sheet.plan.ops
    options: dict[str, Any] = {"duration_days": days, "mfu": min(max(mfu, 0.0), 1.0)}
    if power is not None:
        options["average_power"] = quantity(power, "W")
    price: Any = LOCAL if ops.electricity is None else ops.electricity
    costs: EconomicsResult | None = None
    footprint: SustainabilityResult | None = None
    try:
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always", DataWarning)
            costs = sheet.keep(
                EconomicsModel().solve(fleet, grid=region, kwh_price=price, cloud_price=ops.cloud_price, **options)
            )
        for warning in noticed:
            sheet.note(str(warning.message))
    except InputError as error:
        sheet.note(_unknown(error))
    try:
        footprint = sheet.keep(SustainabilityModel().solve(fleet, datacenter=region, **options))
    except InputError as error:
        sheet.note(_unknown(error))
    rent = None if costs is None else costs.cloud_cost_usd
    if costs is None and ops.cloud_price is not None:
        hourly = to_si(ops.cloud_price, "USD/h")
        rent = float(rental_cost(hourly, fleet.total_accelerators, days * 24.0, 1.0))
    return {
        "usd": None if costs is None else costs.tco_usd,
        "hardware": None if costs is None else costs.capex_usd,
        "purchase": None if costs is None else costs.purchase_price_usd,
        "rent": rent,
        "watts": None if footprint is None else to_si(footprint.power, "W"),
        "kwh": None if footprint is None else to_si(footprint.total_energy_kwh, "kWh"),
        "kg": None if footprint is None else footprint.carbon_footprint_kg,
        "liters": None if footprint is None else footprint.water_usage_liters,
    }


def _unknown(error: InputError) -> str:
    """A resolver's complaint about a figure that is missing, without the argument of Python that would give it."""
    sentence = str(error.details.get("reason", error.message)).rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _report(sheet: Sheet, spent: Spent, region: Any) -> None:
    if spent.usd is not None:
        sheet.add("macro", "tco", "Cost of owning", quantity(spent.usd, "USD"), 17)
    if spent.rent is not None:
        sheet.add("macro", "rent", "Cost of renting", quantity(spent.rent, "USD"), 17)
    if spent.purchase is not None:
        sheet.add("macro", "purchase", "Purchase price", quantity(spent.purchase, "USD"), 17)
    if spent.usd is not None:
        sheet.score(17, f"${spent.usd:,.0f}", note=f"of which ${spent.hardware or 0.0:,.0f} hardware")
    elif spent.rent is not None:
        sheet.score(17, f"${spent.rent:,.0f} of rent")
    if spent.watts is not None:
        unit = "MW" if spent.watts >= 1e6 else "kW" if spent.watts >= 1e3 else "W"
        sheet.add("macro", "power", "Power", quantity(spent.watts, "W").to(unit), 18)
    if spent.kwh is not None:
        unit = "MWh" if spent.kwh >= 1e3 else "kWh" if spent.kwh >= 1 else "Wh"
        sheet.add("macro", "energy", "Energy", quantity(spent.kwh, "kWh").to(unit), 18)
        sheet.score(18, f"{spent.kwh:,.0f} kWh")
    if spent.kg is not None:
        sheet.add("macro", "carbon_footprint", "Carbon", quantity(spent.kg, "kgCO2e"), 18)
        sheet.score(18, f"{spent.kg:,.0f} kg CO2e", note=region.name if region else "")
    if spent.liters is not None:
        sheet.add("macro", "water", "Water", quantity(spent.liters, "L"), 18)


def in_unit_of(band: Any, seconds: float) -> Any:
    """An interval in the unit of the time that it is of."""
    return None if band is None else tuple(side.to(time_unit(seconds)) for side in band)


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


def count_text(value: float) -> str:
    """A large count in words.

    >>> count_text(15.6e12), count_text(2e8), count_text(1234)
    ('15.6 trillion', '200 million', '1,234')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:,.4g} {word}"
    return f"{value:,.0f}"


def many(number: int, noun: str) -> str:
    """A number of things.

    >>> many(1, "replica"), many(1200, "replica")
    ('1 replica', '1,200 replicas')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
