"""The part of a plan that says where, how long, for how much, and what a run meets over time."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from mlsysim.cases.giving_way import above_of, less_of, start_of
from mlsysim.cases.rent import price_text
from mlsysim.errors import InputError
from mlsysim.plans.plan_parts import _TEXT, Flag, Int, Real, Short, Text, _above_0, _name, _open, _text, _within
from mlsysim.plans.schema import Part
from mlsysim.plans.targets import every_text
from mlsysim.units import fields as of
from mlsysim.units.fields import QuantityField
from mlsysim.units.registry import to_si


def _written(read: Any) -> Any:
    """A text as a plan keeps it."""
    return lambda value: None if value is None else read(value)


Price = Annotated[str, Field(max_length=80), BeforeValidator(price_text, json_schema_input_type=float | str)]
Start = Annotated[
    str, Field(max_length=40), BeforeValidator(_written(lambda value: start_of(value).isoformat("T", "minutes")))
]
Level = Annotated[str, Field(max_length=60), BeforeValidator(_written(lambda value: above_of(value).text))]
Response = Annotated[str, Field(max_length=80), BeforeValidator(_written(lambda value: less_of(value).text))]
Long = Annotated[Any, QuantityField("s", "30 d")]
Period = Annotated[Any, QuantityField("s", "30 d", zero=False)]
Interval = Annotated[Any, QuantityField("s", "30 min", zero=False)]
Between = Annotated[Any, QuantityField("s", "10 h", zero=False)]
Electricity = Annotated[Any, QuantityField("USD/kWh", "0.12 USD/kWh", most=10)]
Paid = Annotated[Any, QuantityField("USD", "30000 USD", zero=False)]

PLAYED = ("seeds", "elastic", "repair_crews", "maintenance", "slow_nodes", "preempted_every", "beside", "fleet_age")
"""Keys that only a simulated training run has a use for."""


class OpsPart(Part):
    """Where, how long, for how much."""

    part_of: ClassVar[tuple[str, str]] = ("A plan", "ops.")
    region: Text = _text(_TEXT, "a grid of the zoo")
    duration: Period | None = _open("how long the run or the service lasts")
    duration_days: Real = _above_0(1e6, "the same, as a number of days")
    deadline: Period | None = _open("limit on the time of a training run")
    budget: Paid | None = _open("limit on the cost")
    electricity: Electricity | None = _open("electricity price (default: the region's)")
    price: Price | None = _open("rent: USD per GPU-hour, or such as aws spot")
    cost_scope: Literal["all", "accelerators"] | None = _open("what the cost of owning includes")
    checkpoint_time: Short | None = _open("stall of a checkpoint")
    checkpoint_mode: Literal["sharded", "synchronous", "asynchronous", "in_memory", "object_store"] | None = _open(
        "how checkpoints are written"
    )
    checkpoint_interval: Interval | None = _open("time between checkpoints (default: the best)")
    storage_bandwidth: of.ByteRate | None = _open("of the file system, for all writers together")
    mtbf: Between | None = _open("time between failures of the fleet")
    restart_time: Short | None = _open("time to restart after a failure (default: by scale)")
    spares: Int = _within(0, 10**4, "spare nodes")
    repair_time: Long | None = _open("time to repair a node, with spares")
    start: Start | None = _open("UTC, such as 2026-12-01: hours of carbon, price, weather")
    pause_above: Level | None = _open("pause above, such as 300g (per kWh) or $80/MWh")
    demand_response: Response | None = _open("less power, such as 25% for 3h (daily) or above 300g")
    simulate: Flag = _open("simulate the run, event by event")
    seeds: Int = _within(1, 10**5, "simulated runs (default 200)")
    elastic: Flag = _open("go on with fewer replicas")
    repair_crews: Int = _within(1, 10**4, "repairs at a time (default: all)")
    maintenance: Text = _text(40, "planned stops: 4h/30day")
    slow_nodes: Text = _text(40, "slow nodes, such as 1.3x2h/3day")
    preempted_every: Period | None = _open("mean time until a spot node is taken away")
    beside: Int = _within(0, 10**8, "accelerators of another job on the same cluster")
    fleet_age: Period | None = _open("age of the fleet: older nodes fail more often")

    _known = field_validator("maintenance", "slow_nodes")(every_text)
    _named = field_validator("region", mode="before")(_name)

    @property
    def simulated(self) -> bool:
        """Whether a run over time is asked for, or what only such a run has a use for."""
        asked = [name for name in PLAYED if getattr(self, name) is not None]
        if self.simulate is False and asked:
            raise InputError(f"{asked[0]} belongs to a simulated run; leave simulate = false out.", field=asked[0])
        return bool(self.simulate or asked)

    @property
    def days(self) -> float | None:
        """How long it lasts; what is given a deadline alone goes on until then."""
        if self.duration is None and self.duration_days is not None:
            return self.duration_days
        lasts = self.deadline if self.duration is None else self.duration
        return None if lasts is None else to_si(lasts, "day")
