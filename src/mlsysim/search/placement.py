"""Where to run: cost and carbon of the same run over many grids.

    total = TCO + carbon tax x CO2

Each grid is one solve of wall 17 (cost, with the PUE of the grid's facility) and wall 18 (carbon); the cheapest total wins, or
the least carbon with ``objective="carbon"``. Each grid pays its own price of electricity where one is published, else the default
of every face; ``kwh_price="region"`` rejects grids without a published price by name, and a number is paid by all.

The sensitivity says what the next place is worth and what one per cent more of the carbon tax and of the price of electricity
do to the best; ``deciding_carbon_tax`` is the tax at which the runner-up on cost would draw level.

Left out: latency to users, capacity and land, water, data that may not leave a country, differing hardware prices. The
carbon is that of operation; embodied carbon is the same everywhere and does not change the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from mlsysim.cases.assumptions import DEFAULT, Assumptions
from mlsysim.cases.run_inputs import FALLBACK_GRID, LOCAL, REGION
from mlsysim.errors import InputError
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import Datacenter, GridProfile
from mlsysim.search.steps import behind, step
from mlsysim.units.kernel import kernel
from mlsysim.units.registry import conversion_factor, quantity
from mlsysim.walls.base import Resolver
from mlsysim.walls.binding import Binding
from mlsysim.walls.explanation import written
from mlsysim.walls.inputs import Inputs, declared
from mlsysim.walls.operations.capital import EconomicsModel
from mlsysim.walls.result import Amount, Result

_PER_CENT = 0.01
_NAMED = 3
_TONNE = conversion_factor("kgCO2e", "tCO2e")

DEFAULT_REGIONS = ("US_Avg", "Quebec", "Iowa")

_PASSED_ON = (
    *("unit_cost", "node_cost", "amortization_years", "infrastructure_multiplier"),
    *("include_host", "cooling", "average_power", "cost_scope"),
)


_INPUTS = declared(f"""
    fleet, duration_days
    regions | object | grids or datacenters to compare, by name or as objects; 'all' for every grid of the zoo | all \
        | {", ".join(DEFAULT_REGIONS)}
    carbon_tax_per_ton = constant carbon_tax | [0, inf) USD/tCO2e, plain | price of a tonne of CO2 equivalent | 100 USD/tCO2e
    mfu
    kwh_price | object | price of electricity
    objective = cost | one of cost, carbon | what to make least
""") | {name: EconomicsModel.inputs[name] for name in _PASSED_ON}
_INPUTS["regions"] = replace(_INPUTS["regions"], default=DEFAULT_REGIONS)
_INPUTS["kwh_price"] = replace(EconomicsModel.inputs["kwh_price"], default=LOCAL, assumed="that of each region")


@kernel("cost: USD [1, 1e10], carbon: tCO2e [0.1, 1e6], tax: USD/tCO2e [1, 1e3] -> total: USD")
def taxed_cost(cost: Any, carbon: Any, tax: Any) -> Any:
    """Cost with the tax on its carbon."""
    return cost + carbon * tax


class PlacementResult(Result):
    """The best place, the next best, and what was looked at. Candidates are ordered, best first."""

    best_region: Annotated[str, "region"]
    best_region_name: Annotated[str, "name"]
    objective: str
    objective_value: float
    lowest_tco: Annotated[Any, Amount("USD"), "total_usd"]
    carbon_footprint: Annotated[Any, Amount("kgCO2e"), "carbon_footprint_kg"]
    pue: float
    carbon_tax_usd: float
    best_config: dict[str, Any]
    ties: int
    runner_up: dict[str, Any] | None
    runner_up_behind_fraction: float | None
    sensitivity: dict[str, Any]
    deciding_carbon_tax: float | None
    top_candidates: tuple[dict[str, Any], ...]
    rejected: tuple[dict[str, str], ...]
    total_searched: int
    search_space_size: int


class PlacementOptimizer(Resolver[PlacementResult]):
    """The grid on which a run costs, or emits, least."""

    tier = "optimizer"
    walls = (17, 18)
    result = PlacementResult
    inputs = _INPUTS
    equations = written(r"""
        lowest_tco: total = TCO + tax CO2
            C = \mathrm{TCO} + p_{\mathrm{CO_2}}\,\mathrm{CO_2}
            TCO = tco in USD, tax = carbon_tax_per_ton in USD/tCO2e, CO2 = carbon in tCO2e
    """)
    known_fallacies = (
        "The cheapest electricity is the cheapest place: hardware is most of the cost and the same everywhere.",
        "The cleanest grid is the best site: a carbon tax decides only where the carbon saved is worth more than the extra cost.",
    )

    def _solve(self, x: Inputs, assumed: Assumptions) -> PlacementResult:
        """Compare grids for one run."""
        places = _places(x.regions)
        shared = {n: v for n in _PASSED_ON if (v := getattr(x, n)) is not None}
        shared |= {"duration_days": x.duration_days, "mfu": x.mfu}
        if x.average_power is not None:
            shared["average_power"] = quantity(x.average_power, "kW")
        shared["kwh_price"] = LOCAL if x.kwh_price is None else x.kwh_price
        of_region = isinstance(x.kwh_price, str) and x.kwh_price.strip().lower() == REGION
        candidates: list[dict[str, Any]] = []
        unpriced: dict[str, str] = {}
        for key, place in places:
            grid = place.grid if isinstance(place, Datacenter) else place
            if grid.electricity_price is None:
                unpriced[key] = grid.name
                if of_region:
                    continue
            cost = EconomicsModel().solve(fleet=x.fleet, datacenter=place, **shared)
            carbon_kg = cost.carbon_footprint_kg or 0.0
            carbon = carbon_kg * _TONNE
            candidates.append(
                {
                    "region": key,
                    "name": grid.name,
                    "total_usd": taxed_cost(cost.tco_usd, carbon, x.carbon_tax_per_ton),
                    "tco_usd": cost.tco_usd,
                    "opex_energy_usd": cost.opex_energy_usd,
                    "carbon_tax_usd": carbon * x.carbon_tax_per_ton,
                    "carbon_footprint_kg": carbon_kg,
                    "pue": cost.pue,
                    "kwh_price_usd": cost.kwh_price_usd,
                }
            )
        if not candidates:
            raise InputError(
                "PlacementOptimizer: none of the regions has an electricity price; pass kwh_price=... in USD/kWh, or "
                "regions that have one.",
                field="kwh_price",
            )
        for name in ("unit_cost", "node_cost", "maintenance_fraction", "power"):
            if name in cost.assumptions:
                assumed[name] = cost.assumptions[name]
        if unpriced and shared["kwh_price"] == LOCAL:
            names, more = tuple(unpriced.values()), len(unpriced) - _NAMED
            listed = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
            words = f"the price of {Grids.get(FALLBACK_GRID).name} where none is published: {listed}"
            assumed.say("unpublished_prices", names, DEFAULT, words)
        measure = "total_usd" if x.objective == "cost" else "carbon_footprint_kg"
        candidates.sort(key=lambda found: (found[measure], found["total_usd"], found["region"]))
        best, second = candidates[0], candidates[1] if len(candidates) > 1 else None
        return PlacementResult.of(
            assumed,
            best,
            binding=_binding(best, second, x.objective, measure),
            objective=x.objective,
            objective_value=best[measure],
            best_config={"region": best["region"]},
            ties=sum(found[measure] == best[measure] for found in candidates),
            runner_up=second,
            runner_up_behind_fraction=behind(None if second is None else second[measure], best[measure], larger=False),
            sensitivity=_sensitivity(x, best, second, measure),
            deciding_carbon_tax=None if second is None or x.objective != "cost" else _deciding_tax(best, second),
            top_candidates=tuple(candidates),
            rejected=tuple(
                {"region": key, "reason": f"no electricity price is known for {name}"}
                for key, name in (unpriced.items() if of_region else ())
            ),
            total_searched=len(candidates),
            search_space_size=len(places),
            shown={"tco": best["tco_usd"], "carbon": best["carbon_footprint_kg"] * _TONNE},
        )


def _sensitivity(x: Any, best: dict[str, Any], second: dict[str, Any] | None, measure: str) -> dict[str, Any]:
    """What the next place is worth, and what one per cent more of what the total is made of costs."""
    found: dict[str, Any] = {}
    if second is not None:
        other = step(second["region"], second[measure], best[measure], larger=False)
        found["region"] = {"at": best["region"], "other": other}
    if x.objective == "cost":
        # The total is linear in both: a per cent more of either adds a per cent of its own part.
        for name, at, part in (
            ("carbon_tax_per_ton", x.carbon_tax_per_ton, best["carbon_tax_usd"]),
            ("kwh_price", best["kwh_price_usd"], best["opex_energy_usd"]),
        ):
            total = best["total_usd"] + _PER_CENT * part
            found[name] = {"at": at, "up": step(at * (1 + _PER_CENT), total, best["total_usd"], larger=False)}
    return found


def _deciding_tax(best: dict[str, Any], second: dict[str, Any]) -> float | None:
    """USD/tCO2e at which two places cost the same; None where no tax changes their order."""
    carbon = (best["carbon_footprint_kg"] - second["carbon_footprint_kg"]) * _TONNE
    if carbon == 0:
        return None
    tax = (second["tco_usd"] - best["tco_usd"]) / carbon
    return float(tax) if tax >= 0 else None


def _places(regions: Any) -> list[tuple[str, GridProfile | Datacenter]]:
    """Keys and places, without repeats."""
    if isinstance(regions, str):
        regions = Grids.keys() if regions.strip().lower() == "all" else [regions]
    elif isinstance(regions, (GridProfile, Datacenter)) or not isinstance(regions, Iterable):
        regions = [regions]
    found: dict[str, GridProfile | Datacenter] = {}
    for region in regions:
        if isinstance(region, str):
            found[Grids.key_of(region)] = Grids.get(region)
        elif isinstance(region, (GridProfile, Datacenter)):
            found[region.metadata.key or region.name] = region
        else:
            wrong = f"must be grids, datacenters or names of grids, got {type(region).__name__}."
            raise InputError(f"The 'regions' input of PlacementOptimizer {wrong}", field="regions")
    if not found:
        wrong = "is empty; name a grid, or say 'all'."
        raise InputError(f"The 'regions' input of PlacementOptimizer {wrong}", field="regions")
    return list(found.items())


def _binding(best: dict[str, Any], second: dict[str, Any] | None, objective: str, measure: str) -> Binding:
    if second is None:
        return Binding(17, "Capital", None, f"{best['name']} is the only region that was compared.")
    cost, tax = second["tco_usd"] - best["tco_usd"], second["carbon_tax_usd"] - best["carbon_tax_usd"]
    wall = (18, "Sustainability") if objective == "carbon" or tax > cost else (17, "Capital")
    margin = second[measure] / best[measure] if best[measure] > 0 else None
    sentence = (
        f"{best['name']} leads {second['name']} by {second['total_usd'] - best['total_usd']:,.0f} USD: {cost:,.0f} USD in "
        f"cost and {tax:,.0f} USD in carbon tax; it emits {best['carbon_footprint_kg']:,.0f} against "
        f"{second['carbon_footprint_kg']:,.0f} kgCO2e."
    )
    return Binding(*wall, margin, sentence)
