from __future__ import annotations

import subprocess
import sys

import pytest

from mlsysim import Datacenter, Fleet, GridProfile, Grids, Hardware, InputError, NetworkFabric, Node
from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW
from mlsysim.search.placement import PlacementOptimizer, _deciding_tax, taxed_cost
from mlsysim.walls.operations.capital import EconomicsModel


def fleet(**changes):
    node = Node(name="node", accelerator=Hardware.H100, accelerators_per_node=8, intra_node_bw=NVLINK_H100_BW)
    fabric = NetworkFabric(name="IB NDR", bandwidth=INFINIBAND_NDR_BW)
    return Fleet(name="fleet", node=node, count=64, fabric=fabric, **changes)


def solve(**changes):
    return PlacementOptimizer().solve(**{"fleet": fleet(), "duration_days": 30, "mfu": 0.4, **changes})


def test_three_regions_by_default():
    result = solve()
    assert result.best_region == "Quebec"
    assert result.best_region_name == "Quebec (Hydro)"
    # 502,983 USD at 0.12 USD/kWh, 158,648 kWh of it at Quebec's 0.041 instead, and 100 USD for each of 3.173 t
    expected = 502_983 - 158_648 * (0.12 - 0.041) + 317.3
    assert result.lowest_tco.to("USD").magnitude == pytest.approx(expected, abs=1)
    assert result.carbon_footprint.to("kgCO2e").magnitude == pytest.approx(3173, abs=0.5)
    assert result.pue == 1.06
    assert [found["region"] for found in result.top_candidates] == ["Quebec", "US_Avg", "Iowa"]
    assert result.runner_up["region"] == "US_Avg"
    assert (result.total_searched, result.search_space_size, result.rejected) == (3, 3, ())
    assert result.assumptions["regions"] == "US_Avg, Quebec, Iowa"


def test_each_candidate_is_a_solve_of_wall_17():
    for found in solve().top_candidates:
        alone = EconomicsModel().solve(fleet(), 30, grid=found["region"], mfu=0.4, kwh_price="region")
        assert found["tco_usd"] == pytest.approx(alone.tco_usd)
        assert found["carbon_footprint_kg"] == pytest.approx(alone.carbon_footprint_kg)
        assert found["total_usd"] == pytest.approx(alone.tco_usd + alone.carbon_footprint_kg / 10)


def test_grids_without_a_price_pay_that_of_the_default_grid():
    result = solve(regions=["Norway", "Quebec"])
    prices = {found["region"]: found["kwh_price_usd"] for found in result.top_candidates}
    assert prices == {"Quebec": 0.041, "Norway": Grids.US_Avg.electricity_price.magnitude}
    assert "Norway" in result.assumptions["unpublished_prices"]


def test_all_grids_at_one_price():
    result = solve(regions="all", kwh_price=0.1)
    assert {found["kwh_price_usd"] for found in result.top_candidates} == {0.1}
    assert result.total_searched == len(Grids)
    totals = [found["total_usd"] for found in result.top_candidates]
    assert totals == sorted(totals)
    assert result.rejected == ()


def test_regional_prices_reject_grids_without_one_by_name():
    result = solve(regions="all", kwh_price="region")
    without = {key for key in Grids.keys() if Grids.get(key).electricity_price is None}  # noqa: SIM118
    assert "Norway" in without
    assert {gone["region"] for gone in result.rejected} == without
    assert result.total_searched + len(result.rejected) == result.search_space_size == len(Grids)
    assert all("no electricity price" in gone["reason"] for gone in result.rejected)
    prices = {found["region"]: found["kwh_price_usd"] for found in result.top_candidates}
    assert prices["Quebec"] == pytest.approx(0.041)


def test_nothing_left_is_an_error_with_the_remedy():
    with pytest.raises(InputError, match="pass kwh_price"):
        solve(regions=["Norway"], kwh_price="region")


def test_a_tax_can_change_the_choice():
    dirty = GridProfile(name="dirty", carbon_intensity_g_kwh=900, pue=1.05)
    clean = GridProfile(name="clean", carbon_intensity_g_kwh=10, pue=1.3)
    assert solve(regions=[dirty, clean], carbon_tax_per_ton=0).best_region == "dirty"
    taxed = solve(regions=[dirty, clean], carbon_tax_per_ton=200)
    assert taxed.best_region == "clean"
    assert taxed.binding.wall == 18
    assert solve(regions=[dirty, clean], carbon_tax_per_ton=0, objective="carbon").best_region == "clean"


def test_least_carbon():
    result = solve(regions="all", objective="carbon")
    least = min(Grids, key=lambda grid: grid.carbon_intensity_g_kwh * grid.pue)
    assert result.best_region_name == least.name
    assert result.objective_value == pytest.approx(result.carbon_footprint.to("kgCO2e").magnitude)


def test_datacenters_names_and_repeats():
    hall = Datacenter(name="hall", grid=Grids.Iowa, pue_override=1.02)
    result = solve(regions=["Quebec", "QC", hall])
    assert {found["region"] for found in result.top_candidates} == {"Quebec", "hall"}
    only = solve(regions="Quebec")
    assert only.runner_up is None
    assert "only region" in only.binding.sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"regions": []}, "empty"),
        ({"regions": ["Quebek"]}, "Quebec"),
        ({"regions": [3]}, "got int"),
        ({"regions": 3}, "got int"),
        ({"carbon_tax_per_ton": -1}, "at least 0"),
        ({"objective": "speed"}, "cost, carbon"),
    ],
)
def test_bad_input_is_one_sentence(changes, words):
    with pytest.raises(InputError, match=words):
        solve(**changes)


def test_the_tax_adds():
    assert taxed_cost(100.0, 2.0, 50.0) == 200.0


def test_it_runs_without_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from mlsysim.search.placement import PlacementOptimizer\n"
        "print(PlacementOptimizer().solve('Frontier_8K', 30).best_region)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Quebec"


def test_sensitivity_of_the_best_place():
    result = solve(regions="all")
    best, second = result.top_candidates[:2]
    assert result.runner_up_behind_fraction == pytest.approx(second["total_usd"] / best["total_usd"] - 1)
    assert result.sensitivity["region"]["other"] == {
        "to": second["region"],
        "worth": pytest.approx(1 - second["total_usd"] / best["total_usd"]),
    }
    assert result.ties == 1
    for name, changed in (("carbon_tax_per_ton", 101), ("kwh_price", 1.01 * best["kwh_price_usd"])):
        step = result.sensitivity[name]["up"]
        again = solve(regions=[best["region"]], **{name: changed})
        assert step["to"] == pytest.approx(changed)
        assert step["worth"] == pytest.approx(1 - again.objective_value / result.objective_value, rel=1e-6)


def test_the_tax_that_decides():
    """Cheap and dirty against dear and clean: at the deciding tax they cost the same."""
    result = solve(regions=["Poland", "Quebec"], kwh_price=None, carbon_tax_per_ton=0, objective="cost")
    tax = result.deciding_carbon_tax
    if tax is not None:
        again = solve(regions=["Poland", "Quebec"], carbon_tax_per_ton=tax)
        assert again.runner_up["total_usd"] == pytest.approx(again.top_candidates[0]["total_usd"])
    dearer = {"total_usd": 0, "tco_usd": 110.0, "carbon_footprint_kg": 1000.0}
    cheaper = {"total_usd": 0, "tco_usd": 100.0, "carbon_footprint_kg": 3000.0}
    assert _deciding_tax(cheaper, dearer) == pytest.approx(10 / 2)
    assert _deciding_tax(dearer, cheaper) == pytest.approx(10 / 2)
    assert _deciding_tax(cheaper, {**dearer, "carbon_footprint_kg": 4000.0}) is None
