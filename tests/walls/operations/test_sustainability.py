from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Datacenter, Facility, Fleet, GridProfile, Grids, Hardware, InputError, NetworkFabric, Node, Systems
from mlsysim.cases.footprint import carbon_mass, computing_energy, embodied_share, facility_energy
from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW
from mlsysim.walls.operations.sustainability import SustainabilityModel


def fleet(nodes: int = 64, chip: str = "H100", **changes):
    node = Node(name="node", accelerator=Hardware.get(chip), accelerators_per_node=8, intra_node_bw=NVLINK_H100_BW)
    fabric = NetworkFabric(name="IB NDR", bandwidth=INFINIBAND_NDR_BW)
    return Fleet(name="fleet", node=node, count=nodes, fabric=fabric, **changes)


def tutorial(**changes):
    given = {"fleet": fleet(), "duration_days": 30, "datacenter": Grids.Quebec, "mfu": 0.4, **changes}
    return SustainabilityModel().solve(**given)


def test_the_tutorial_prints_what_it_printed():
    result = tutorial()
    assert f"{result.it_energy_kwh.to('MWh').magnitude:.1f}" == "149.7"
    assert f"{result.total_energy_kwh.to('MWh').magnitude:.1f}" == "158.6"
    assert f"{result.carbon_footprint_kg:.0f}" == "3173"
    assert f"{result.water_usage_liters:.0f}" == "0"
    assert result.pue == 1.06
    assert result.region_name == "Quebec (Hydro)"
    assert str(result.it_energy_kwh.units) == "kilowatt_hour"


def test_poland_emits_sixty_one_times_as_much():
    # 820 x 1.58 / (20 x 1.06) = 61.1 with each grid's own PUE; intensity alone is 41
    ratio = tutorial(datacenter="Poland").carbon_footprint_kg / tutorial().carbon_footprint_kg
    assert ratio == pytest.approx(820 * 1.58 / (20 * 1.06))
    assert round(ratio) == 61


def test_iowa_and_quebec_at_full_power():
    # 256 x 700 W x 720 h x 1.1 = 142 MWh, 96.5 t at 680 g/kWh; the paper prints 412 t
    result = SustainabilityModel().solve(fleet(32), 30, "Iowa")
    assert result.total_energy_kwh.to("MWh").magnitude == pytest.approx(141.9, abs=0.1)
    assert result.carbon_footprint_kg == pytest.approx(96_500, rel=1e-3)


def test_water_follows_the_site_and_not_the_carbon():
    iowa = SustainabilityModel().solve(fleet(32), 30, "Iowa")
    assert iowa.water_usage_liters == pytest.approx(iowa.it_energy_kwh.magnitude * 1.8)
    cleaner = GridProfile(name="clean", carbon_intensity_g_kwh=10, pue=1.1, wue=1.8)
    assert SustainabilityModel().solve(fleet(32), 30, cleaner).water_usage_liters == pytest.approx(
        iowa.water_usage_liters
    )


def test_water_is_per_computing_energy():
    site = GridProfile(name="wet", carbon_intensity_g_kwh=100, pue=2.0, wue=1.0)
    result = tutorial(datacenter=site)
    assert result.water_usage_liters == pytest.approx(result.it_energy_kwh.magnitude)
    assert result.total_energy_kwh.magnitude == pytest.approx(2 * result.it_energy_kwh.magnitude)


def test_unknown_water_stays_unknown():
    result = tutorial(datacenter="Poland")
    assert result.water_usage_liters is None
    assert "no WUE" in result.assumptions["water"]


def test_gpt_3_from_pattersons_inputs():
    # 10,000 V100 x 330 W x 14.8 days x PUE 1.1 = 1,289 MWh; at 429 g/kWh 553 t. The paper used 34 days
    site = GridProfile(name="US 2020", carbon_intensity_g_kwh=429, pue=1.1)
    result = SustainabilityModel().solve(fleet(1250, "V100"), 14.8, site, average_power="330 W")
    assert result.total_energy_kwh.to("MWh").magnitude == pytest.approx(1289, abs=1)
    assert result.carbon_footprint_kg == pytest.approx(553_000, rel=1e-3)
    assert "mfu" not in result.assumptions


@pytest.mark.parametrize(("grid", "printed"), [("Quebec", 206), ("US_Avg", 4428), ("Poland", 8464)])
def test_the_math_page_example(grid, printed):
    # 64 x 400 W x 336 h = 8,602 kWh, PUE 1.2
    energy = facility_energy(computing_energy(64 * 0.4, 336.0), 1.2)
    assert round(energy) == 10322
    assert carbon_mass(energy, Grids.get(grid).carbon_intensity_g_kwh / 1000) == pytest.approx(printed, abs=0.7)


def test_full_use_is_full_tdp_and_none_is_the_idle_share():
    assert tutorial(mfu=1).power_per_accelerator.to("W").magnitude == pytest.approx(700)
    assert tutorial(mfu=0).power_per_accelerator.to("W").magnitude == pytest.approx(210)


def test_the_host_is_an_option():
    # a DGX H100: 1.41 kW and 1.21 times its GPUs, by measured node power, and 116 W of network for each GPU
    cluster = Systems.Clusters.Research_256
    plain = SustainabilityModel().solve(cluster, 30, "Quebec")
    whole = SustainabilityModel().solve(cluster, 30, "Quebec", include_host=True)
    assert plain.power.to("kW").magnitude == pytest.approx(32 * 5.6)
    assert whole.power.to("kW").magnitude == pytest.approx(32 * (1.41 + 1.21 * 5.6 + 8 * 0.116))
    cooled = SustainabilityModel().solve(cluster, 30, "Quebec", include_host=True, cooling="liquid")
    assert cooled.power.to("kW").magnitude == pytest.approx(32 * (1.027 * (1.24 + 5.6) + 8 * 0.116), rel=1e-4)
    assert "1,410 W a node" in whole.assumptions["around the accelerators"]


@pytest.mark.parametrize(
    ("cooling", "each", "measured", "within"),
    [
        ("air", 0.985 * 350, 4.65e3, 0.04),  # DGX H100, MLPerf Inference v4.0 MaxQ window at 350 W (fitted on)
        ("air", 124, 2.58e3, 0.04),  # the same, waiting with contexts (fitted on)
        ("air", 690, 8.48e3, 0.06),  # another make, Brookhaven, highest of a stress test (arXiv 2412.08602)
        (
            "liquid",
            690,
            6.75e3 * 1.027,
            0.02,
        ),  # immersed, LoRA 70B, DC side with supplies (MLPerf Training v4.0, fitted on)
    ],
)
def test_measured_nodes(cooling, each, measured, within):
    node = Systems.Clusters.Research_256.model_copy(update={"count": 1})
    found = SustainabilityModel().solve(node, 1, include_host=True, cooling=cooling, average_power=each)
    assert found.power.to("W").magnitude == pytest.approx(measured, rel=within)
    parts = found.energy_by_scope
    assert sum(part.to("kWh").magnitude for part in parts.values()) == pytest.approx(
        found.total_energy_kwh.to("kWh").magnitude, rel=1e-12
    )
    assert parts["network"].magnitude == 0


def test_the_place_is_the_fleets_own_where_none_is_given():
    home = Datacenter(name="hall", grid=Grids.Iowa, pue_override=1.3)
    result = SustainabilityModel().solve(fleet(datacenter=home), 30)
    assert (result.pue, result.region_name) == (1.3, "Iowa (US)")
    assert result.assumptions["place"] == "Iowa (US), the fleet's own"
    assert SustainabilityModel().solve(fleet(region="Quebec"), 30).pue == 1.06
    assert SustainabilityModel().solve(fleet(region="Quebec"), 30, "Poland").pue == 1.58


def test_a_datacenter_brings_its_own_facility():
    hall = Datacenter(name="hall", grid=Grids.Quebec, facility=Facility(name="wet hall", pue=1.2, wue="0.5 L/kWh"))
    result = tutorial(datacenter=hall)
    assert result.pue == 1.2
    assert result.water_usage_liters == pytest.approx(149_667.84 / 2)
    assert result.carbon_footprint_kg == pytest.approx(149_667.84 * 1.2 * 0.02)


def test_nowhere_has_a_pue_of_one_and_no_carbon():
    result = SustainabilityModel().solve(fleet(), 30)
    assert result.pue == 1.0
    assert result.carbon_footprint_kg is None
    assert result.water_usage_liters is None
    assert result.total_carbon_kg is None
    assert "no grid" in result.assumptions["pue"]
    assert result.total_energy_kwh == result.it_energy_kwh


def test_embodied_carbon_is_shared_out_over_the_lifetime():
    result = tutorial(embodied_carbon_per_device=150)
    assert result.embodied_carbon_purchase_kg == 512 * 150
    assert result.embodied_carbon_kg == pytest.approx(512 * 150 * 30 / 1095)
    assert result.total_carbon_kg == pytest.approx(result.carbon_footprint_kg + result.embodied_carbon_kg)
    assert tutorial(embodied_carbon_per_device=150, lifetime_years=6).embodied_carbon_kg == pytest.approx(
        result.embodied_carbon_kg / 2
    )
    assert embodied_share(100.0, 5.0, 3.0) == 100.0


def test_embodied_carbon_comes_from_the_chip_or_is_unknown():
    assert tutorial().embodied_carbon_purchase_kg == pytest.approx(512 * Hardware.Cloud.H100.embodied_carbon_kg)
    unknown = SustainabilityModel().solve(fleet(chip="V100"), 30, "Quebec")
    assert unknown.embodied_carbon_kg is None
    assert unknown.total_carbon_kg is None
    assert unknown.assumptions["embodied_carbon_per_device"].startswith("unknown")


def test_a_chip_without_tdp_asks_for_power():
    chip = Hardware.Cloud.H100.model_copy(update={"tdp": None})
    without = fleet().model_copy(update={"node": fleet().node.model_copy(update={"accelerator": chip})})
    with pytest.raises(InputError, match="average_power"):
        tutorial(fleet=without)
    assert tutorial(fleet=without, average_power=406).carbon_footprint_kg == pytest.approx(3173, abs=0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"duration_days": 0}, "above 0"), ({"mfu": 1.2}, "at most 1"), ({"datacenter": 3}, "GridProfile")],
)
def test_bad_input_is_one_sentence(changes, words):
    with pytest.raises(InputError, match=words):
        tutorial(**changes)


@given(days=st.floats(0.01, 1e4), mfu=st.floats(0, 1), pue=st.floats(1, 3), intensity=st.floats(0, 1500))
def test_signs(days, mfu, pue, intensity):
    model, site = SustainabilityModel(), GridProfile(name="g", carbon_intensity_g_kwh=intensity, pue=pue, wue=1.0)
    worse = GridProfile(name="w", carbon_intensity_g_kwh=intensity * 1.5, pue=pue * 1.5, wue=1.0)
    base = model.solve(fleet(), days, site, mfu)
    assert base.carbon_footprint_kg == pytest.approx(base.total_energy_kwh.magnitude * intensity / 1000)
    assert model.solve(fleet(), days * 2, site, mfu).carbon_footprint_kg >= base.carbon_footprint_kg
    assert model.solve(fleet(), days, worse, mfu).carbon_footprint_kg >= base.carbon_footprint_kg
    assert model.solve(fleet(), days, site, min(1.0, mfu + 0.1)).it_energy_kwh >= base.it_energy_kwh
