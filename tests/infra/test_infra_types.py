from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, Datacenter, Facility, GridProfile, Grids, Infra, InputError
from mlsysim.infra.types import CloudPrice, Rack


def grid(**fields):
    return GridProfile(**{"name": "mine", "carbon_intensity_g_kwh": 100, "pue": 1.2, "wue": 1.5, **fields})


def test_the_fields_of_the_paper_make_a_grid_with_a_facility():
    mine = grid(primary_source="hydro", lat=52.0, lon=-72.0, renewable_pct=96)
    assert (mine.pue, mine.wue, mine.primary_source) == (1.2, 1.5, "hydro")
    assert mine.facility == Facility(name="mine facility", pue=1.2, wue="1.5 L/kWh")
    assert mine.carbon_intensity == Q_("100 gCO2e/kWh")


def test_what_is_not_given_is_unknown():
    mine = GridProfile(name="mine", carbon_intensity_g_kwh=100, pue=1.1)
    for field in (
        "electricity_price",
        "year",
        "price_year",
        "country",
        "primary_source",
        "renewable_pct",
        "lat",
        "lon",
        "wue",
    ):
        assert getattr(mine, field) is None


def test_carbon_of_an_energy():
    assert grid().carbon_kg(1000) == pytest.approx(100)
    assert grid().carbon_kg(Q_("1 MWh")) == pytest.approx(100)
    assert grid().carbon_kg(Q_("3.6 GJ")) == pytest.approx(100)
    assert Grids.Quebec.carbon_kg(158_648) == pytest.approx(3173, rel=1e-3)


@given(st.floats(0, 1e9), st.floats(0, 1300))
def test_carbon_is_energy_times_intensity(kwh, intensity):
    assert grid(carbon_intensity_g_kwh=intensity).carbon_kg(kwh) == pytest.approx(kwh * intensity / 1000)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"facility": Facility(name="x", pue=1.1)}, r"^GridProfile takes a facility or a pue, not both\.$"),
        ({"pue": None}, r"^GridProfile takes wue together with pue\.$"),
        ({"pue": 0.9}, r"^Facility: the 'pue' field got 0.9; expected at least 1"),
        ({"carbon_intensity_g_kwh": -1}, r"GridProfile: the 'carbon_intensity_g_kwh' field got -1; "),
        ({"wue": "1 kWh"}, r"Facility: The 'wue' field got 1 kWh"),
        ({"renewable_pct": 101}, r"GridProfile: the 'renewable_pct' field got 101; "),
        ({"lat": 91}, r"GridProfile: the 'lat' field got 91; "),
        ({"zzqq": 1}, r"^GridProfile has no field 'zzqq'; its fields are name, carbon_intensity_g_kwh"),
    ],
)
def test_bad_grids_are_refused_in_one_sentence(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        grid(**fields)


def test_a_grid_needs_a_facility():
    with pytest.raises(InputError, match=r"^GridProfile needs the 'facility' field, which was not given\.$"):
        GridProfile(name="mine", carbon_intensity_g_kwh=100)


def test_a_datacenter_takes_the_most_particular_pue():
    assert Datacenter(name="d", grid=grid()).pue == 1.2
    assert Datacenter(name="d", grid=grid()).wue == 1.5
    facility = Facility(name="f", pue=1.08)
    assert Datacenter(name="d", grid=grid(), facility=facility).pue == 1.08
    assert Datacenter(name="d", grid=grid(), facility=facility).wue is None
    assert Datacenter(name="d", grid=grid(), facility=facility, pue_override=1.5).pue == 1.5
    with pytest.raises(InputError, match=r"'pue_override' field got 0\.5"):
        Datacenter(name="d", grid=grid(), pue_override=0.5)


def test_a_price_is_shared_by_the_accelerators():
    price = CloudPrice(name="x", provider="p", accelerator="H100", accelerators=8, price="98.32 USD/h", date="2026-01")
    assert price.price_per_accelerator.to("USD/h").magnitude == pytest.approx(12.29)
    assert price.commitment == "on-demand"


def test_a_rack_has_a_power():
    assert Rack(name="r", power="120 kW").power.to("W").magnitude == 120_000


@pytest.mark.parametrize("registry", [Infra.Grids, Infra.Facilities, Infra.Racks, Infra.Prices], ids=lambda r: r._name)
def test_every_entry_survives_json(registry):
    for entry in registry:
        assert type(entry).model_validate_json(entry.model_dump_json()) == entry
