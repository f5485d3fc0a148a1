"""What a million tokens cost in dollars, energy, carbon and water, at many points.

The kernels are those of walls 17 and 18, per hour of a deployment that is in use the fraction ``utilization`` of the time:

    owning     share of the purchase (linear over its life), upkeep and electricity of every hour, over the tokens of those in use
    renting    the rent of the hours in use, over their tokens; electricity is in the rent

Tokens are those of answers. A pool of readers and a pool of writers have chips, prices and power of their own. What is not
known is not a number: a chip without a price, a chip without a TDP, a place without water.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.footprint import Site
from mlsysim.cases.money import Prices as OwnPrices
from mlsysim.cases.money import rental_cost
from mlsysim.cases.run import Run, per_million, run_work, spent_by
from mlsysim.cases.run_inputs import LOCAL, electricity_price, fallback_price, maintenance_rate
from mlsysim.infra.registry import Prices
from mlsysim.search.serving_inputs import COSTS, INPUTS
from mlsysim.search.sites import sites_of
from mlsysim.units.registry import conversion_factor, to_si

_HOURS = 1.0
_OF_PLACES = ("pue", "wue", "carbon", "price")
_SECONDS = conversion_factor("h", "s")


@dataclass(frozen=True, slots=True)
class CostedPool:
    """Devices of one chip: how many, dollars of each (not a number where unknown), the share of the peak in use, the rent by
    commitment, and the kW of each by the share of the time in use."""

    devices: Any
    unit_cost: Any
    mfu: Any
    rents: Mapping[str, Any]
    power: Callable[[Any], Any]


def listed_rent(chip: Any, commitment: str) -> float:
    """USD/h, the lowest that the zoo lists for a chip and a way of renting; not a number where it lists none."""
    return _lowest_rents().get((chip.metadata.key, commitment), np.nan)


@cache
def _lowest_rents() -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for key in Prices.keys():  # noqa: SIM118
        entry = Prices.get(key)
        rent = to_si(entry.price_per_accelerator, "USD/h")
        where = (entry.accelerator, entry.commitment)
        found[where] = min(found.get(where, rent), rent)
    return found


class ServingCosts:
    """Prices and places of a space."""

    def __init__(self, space: Any, on_axes: Mapping[str, str], fixed: Mapping[str, Any]) -> None:
        self.space, self.on_axes = space, on_axes
        self.fixed = {name: fixed.get(name, INPUTS[name].default) for name in COSTS}
        self.fixed["maintenance_fraction"] = maintenance_rate(self.fixed["maintenance_fraction"], Assumptions())
        sites = sites_of(self._values("datacenter"), None)
        # What a place does not publish is None there, and not a number in the table.
        self.sites = np.array([[getattr(site, name) for site in sites] for name in _OF_PLACES], dtype=np.float64)

    def _values(self, name: str) -> tuple[Any, ...]:
        return self.space.values(self.on_axes[name]) if name in self.on_axes else (self.fixed[name],)

    @property
    def has_place(self) -> bool:
        """Whether the space says where it runs."""
        return self._values("datacenter") != (None,)

    def commitments(self) -> tuple[str, ...]:
        """Ways of renting that the space names."""
        return tuple(value for value in self._values("cloud_price") if isinstance(value, str))

    def per_million(
        self,
        column: Callable[[str], Any],
        places: Callable[[str], Any],
        pools: list[CostedPool],
        tokens_per_second: Any,
    ) -> dict[str, Any]:
        """Outputs for a million tokens. ``column`` gives an input at each point, ``places`` its places on its axis."""
        x = {n: column(n) if n in self.on_axes else self.fixed[n] for n in COSTS}
        at = places("datacenter") if "datacenter" in self.on_axes else 0
        site = Site("", **{name: row[at] for name, row in zip(_OF_PLACES, self.sites, strict=True)})
        power: Any = 0.0
        for pool in pools:
            given = x["average_power"]
            each = pool.power(x["utilization"]) if given is None else given / 1000
            power = power + Run(_HOURS, pool.devices, each).power
        rented = x["cloud_price"] is not None
        spent = spent_by(Run(_HOURS, 1, power), site, None if rented else self._prices(x, pools, site))
        taken = spent.footprint
        dollars = self._rent(x, places, pools) if spent.bill is None else spent.bill.total
        work = run_work(_HOURS * _SECONDS, tokens_per_second, 1.0, x["utilization"])
        return {
            "usd_per_mtoken": per_million(dollars, work),
            "kwh_per_mtoken": per_million(taken.energy, work),
            "kgco2e_per_mtoken": per_million(taken.carbon, work),
            "litres_per_mtoken": per_million(taken.water, work),
        }

    def _rent(self, x: Mapping[str, Any], places: Callable[[str], Any], pools: list[CostedPool]) -> Any:
        """Dollars of a rented hour."""
        total: Any = 0.0
        for pool in pools:
            rent = _rent(x["cloud_price"], self._values("cloud_price"), places, pool)
            total = total + rental_cost(rent, pool.devices, _HOURS, x["utilization"])
        return total

    def _prices(self, x: Mapping[str, Any], pools: list[CostedPool], site: Site) -> OwnPrices:
        """What owning is paid by."""
        purchase: Any = 0.0
        for pool, own in zip(pools, (x["unit_cost"], x["decode_unit_cost"]), strict=False):
            each = pool.unit_cost if own is None else own
            purchase = purchase + each * pool.devices * x["infrastructure_multiplier"]
        tariff = _tariff(x["kwh_price"], site)
        return OwnPrices(purchase, x["amortization_years"], x["maintenance_fraction"], tariff)


def _tariff(value: Any, site: Site) -> Any:
    """USD/kWh at each point: as given, or by the words for the price of a place."""
    words = np.asarray(value)
    if value is None or words.dtype.kind != "U":
        return electricity_price("a sweep", None, site, Assumptions()) if value is None else value
    local = np.where(np.isnan(site.price), fallback_price(), site.price)
    return np.where(words == LOCAL, local, site.price)


def _rent(given: Any, values: tuple[Any, ...], places: Callable[[str], Any], pool: CostedPool) -> Any:
    """USD/h of one device: a number, or what is listed for its chip."""
    if isinstance(given, str):
        return pool.rents[given]
    if getattr(given, "dtype", np.dtype(float)).kind != "U":
        return given
    at = places("cloud_price")
    size = at.shape
    table = np.stack([np.broadcast_to(pool.rents[value], size) for value in values])
    return np.take_along_axis(table, at[None], axis=0)[0]
