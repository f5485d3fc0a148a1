from __future__ import annotations

import pytest

from mlsysim import Q_, Datacenter, Facility, GridProfile, Grids, Hardware, Infra
from mlsysim.infra import checks
from mlsysim.infra.types import CloudPrice, Rack
from mlsysim.zoo.registry import has_sources, run_checks

REQUIRED_GRIDS = """
    Quebec Poland Iowa US_Avg Norway France Germany United_Kingdom Sweden Finland Iceland Ireland Netherlands Denmark
    Spain Italy Switzerland EU China India Japan South_Korea Taiwan Singapore Australia Canada Brazil Chile Mexico
    South_Africa Saudi_Arabia UAE Israel World Ontario British_Columbia Alberta Virginia Texas California Oregon
    Washington New_York Georgia_US Ohio Arizona Utah Nevada Illinois Tennessee
"""
REQUIRED_FACILITIES = "Hyperscale_Air Hyperscale_Liquid Colocation Industry_Average"


def test_there_are_enough_grids():
    assert len(Grids) >= 50
    assert Infra.Grids is Grids


@pytest.mark.parametrize("name", REQUIRED_GRIDS.split())
def test_required_grids_have_carbon_and_year(name):
    grid = getattr(Grids, name)
    assert isinstance(grid, GridProfile)
    assert grid.carbon_intensity_g_kwh > 0
    assert grid.year >= 2015


def test_most_grids_have_a_price_with_its_year():
    priced = [grid for grid in Grids if grid.electricity_price is not None]
    assert len(priced) >= 45
    assert all(grid.price_year for grid in priced)


def test_quebec_is_as_in_the_documents():
    quebec = Grids.Quebec
    assert quebec.name == "Quebec (Hydro)"
    assert (quebec.carbon_intensity_g_kwh, quebec.pue, quebec.wue) == (20, 1.06, 0)
    assert quebec.carbon_intensity == Q_("20 gCO2e/kWh")
    assert quebec.metadata.source_of("carbon_intensity").kind == "seed"


def test_grids_are_ordered_as_everybody_knows():
    order = [Grids[n].carbon_intensity_g_kwh for n in ("Norway", "France", "California", "Germany", "India", "Poland")]
    assert order == sorted(order)


@pytest.mark.parametrize("name", REQUIRED_FACILITIES.split())
def test_required_facilities(name):
    assert getattr(Infra.Facilities, name).pue > 1


def test_any_grid_goes_with_any_facility():
    site = Datacenter(name="site", grid=Grids.Poland, facility=Infra.Facilities.Hyperscale_Liquid)
    assert site.pue == Infra.Facilities.Hyperscale_Liquid.pue != Grids.Poland.pue


def test_racks_and_prices_are_there():
    assert Infra.Racks.Rack_NVL72.power == Q_("120 kW")
    assert len(Infra.Racks) >= 10
    assert len(Infra.Prices) >= 30


def test_every_price_is_for_a_chip_of_the_zoo_and_has_a_date():
    for price in Infra.Prices:
        assert price.accelerator in Hardware, price.name
        assert price.date[:2] == "20"


@pytest.mark.parametrize(
    ("registry", "rules"),
    [
        (Infra.Grids, checks.GRID_CHECKS),
        (Infra.Facilities, checks.FACILITY_CHECKS),
        (Infra.Racks, checks.RACK_CHECKS),
        (Infra.Prices, checks.PRICE_CHECKS),
    ],
    ids=lambda x: getattr(x, "_name", ""),
)
def test_nothing_is_wrong_with_any_entry(registry, rules):
    assert [str(problem) for problem in run_checks(registry, rules)] == []


def grid(**fields):
    return GridProfile(**{"name": "x", "carbon_intensity_g_kwh": 100, "pue": 1.2, "year": 2024, **fields})


def price(each):
    return CloudPrice(
        name="x", provider="p", accelerator="H100", accelerators=8, price=f"{8 * each} USD/h", date="2026"
    )


@pytest.mark.parametrize(
    ("check", "entry", "sentence"),
    [
        (has_sources, grid(), "has no source"),
        (
            checks.carbon_intensity_is_credible,
            grid(carbon_intensity_g_kwh=0.5),
            "carbon intensity 0.5 g/kWh is not credible",
        ),
        (
            checks.carbon_intensity_is_credible,
            grid(carbon_intensity_g_kwh=2000),
            "carbon intensity 2000.0 g/kWh is not credible",
        ),
        (
            checks.electricity_price_is_credible,
            grid(electricity_price="12 USD/kWh"),
            "electricity at 12 USD/kWh is not credible",
        ),
        (checks.years_are_stated, grid(year=None), "does not say the year of its carbon intensity"),
        (checks.years_are_stated, grid(electricity_price="0.1 USD/kWh"), "has a price without a year"),
        (checks.pue_is_credible, Facility(name="x", pue=4), "PUE 4.0 is not credible"),
        (checks.wue_is_credible, Facility(name="x", pue=1.1, wue="20 L/kWh"), "WUE is not credible"),
        (checks.rack_power_is_credible, Rack(name="x", power="20 W"), "rack power 20 W is not credible"),
        (checks.price_is_credible, price(100), "100.00 USD per accelerator-hour is not credible"),
        (checks.price_is_credible, price(0.01), "0.01 USD per accelerator-hour is not credible"),
    ],
)
def test_each_check_catches_a_planted_mistake(check, entry, sentence):
    assert check(entry) == sentence


def test_every_check_has_a_planted_mistake():
    cases = {case[0] for mark in test_each_check_catches_a_planted_mistake.pytestmark for case in mark.args[1]}
    assert cases == {*checks.GRID_CHECKS, *checks.FACILITY_CHECKS, *checks.RACK_CHECKS, *checks.PRICE_CHECKS}


@pytest.mark.parametrize(
    ("place", "grid"),
    [
        ("us-east-1", "Virginia"),
        ("us-east1", "South_Carolina"),
        ("us-west-2", "Oregon"),
        ("us-west2", "California"),
        ("europe-west4", "Netherlands"),
        ("eu-central-1", "Germany"),
        ("Frankfurt", "Germany"),
        ("eastus2", "Virginia"),
        ("West Europe", "Netherlands"),
        ("montreal", "Quebec"),
        ("São Paulo", "Brazil"),
        ("ap-northeast-1", "Japan"),
    ],
)
def test_regions_of_clouds_and_cities_are_names_of_their_grid(place, grid):
    assert Grids.key_of(place) == grid
