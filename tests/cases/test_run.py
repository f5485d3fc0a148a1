"""A run: limits, sums, and one answer from resolver, sweep and case."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from mlsysim import CheckpointModel, EconomicsModel, Grids, Models, ReliabilityModel, SustainabilityModel
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.checkpoint import Checkpoint, run_checkpoint, writer_rate
from mlsysim.cases.footprint import Site
from mlsysim.cases.goodput import NodeParts, Saving, checkpoint_waste, goodput_of, young_interval
from mlsysim.cases.money import Prices, owning
from mlsysim.cases.run import Around, Run, per_million, run_time, run_work, spent_by
from mlsysim.cases.run_inputs import device_draw, electricity_price, fallback_price, node_parts, site_of
from mlsysim.errors import InputError
from mlsysim.systems.registry import Clusters
from mlsysim.units.registry import to_si

QUEBEC = Site("Quebec", 1.06, 0.0, 0.02, 0.041)


def test_without_failures_all_of_the_time_is_useful():
    found = goodput_of(math.inf, Saving(60.0, 300.0))
    assert (found.ratio, found.waste, found.interval) == (1.0, 0.0, math.inf)


def test_without_failures_a_given_interval_still_costs_its_writes():
    found = goodput_of(math.inf, Saving(60.0, 300.0, interval=3600.0))
    assert (found.writes, found.rework, found.restarts) == (60 / 3600, 0.0, 0.0)


def test_free_checkpoints_leave_the_restarts():
    found = goodput_of(10.0, Saving(0.0, 360.0))
    assert found.waste == found.restarts == pytest.approx(0.01)


def test_a_fleet_that_fails_all_the_time_makes_no_progress():
    found = goodput_of(1e-6, Saving(60.0, 300.0))
    assert found.ratio == 0.0 and not found.lasting


@pytest.mark.parametrize("hours", [0.5, 57.2, 1e5])
def test_youngs_interval_wastes_what_the_general_form_says_there(hours):
    seconds = hours * 3600
    interval = young_interval(45.0, seconds)
    found = goodput_of(hours, Saving(45.0, 200.0))
    assert (found.writes, found.rework, found.restarts) == pytest.approx(
        checkpoint_waste(45.0, interval, seconds, 200.0), rel=1e-14
    )
    for other in (0.9, 1.1):
        assert goodput_of(hours, Saving(45.0, 200.0, other * interval)).waste > found.waste


def test_failure_rates_of_parts_add_up():
    parts = NodeParts(8, 50_000.0, 1, 150_000.0, 2, 100_000.0)
    assert 1 / parts.mtbf == pytest.approx(8 / 50_000 + 1 / 150_000 + 2 / 100_000, rel=1e-14)


def test_a_bill_is_the_sum_of_its_items_and_free_electricity_costs_nothing():
    prices = Prices(15.36e6, 3.0, 0.05, 0.0)
    spent = spent_by(Run(720.0, 512, 0.406), QUEBEC, prices)
    assert spent.bill.energy == 0.0
    assert spent.bill.total == spent.bill.hardware + spent.bill.energy + spent.bill.maintenance
    assert spent.bill.operation == spent.bill.energy + spent.bill.maintenance
    paid = owning(Prices(0.0, 3.0, 0.05, 0.12), spent.footprint.energy, 720.0)
    assert paid.total == paid.energy == spent.footprint.energy * 0.12


def test_two_halves_of_a_run_are_the_run():
    prices = Prices(1e6, 3.0, 0.05, 0.1)
    whole, half = (spent_by(Run(hours, 64, 0.5, 8, Around(2.0, 1.2, 0.1)), QUEBEC, prices) for hours in (100.0, 50.0))
    assert whole.bill.total == pytest.approx(2 * half.bill.total, rel=1e-14)
    assert whole.footprint.carbon == pytest.approx(2 * half.footprint.carbon, rel=1e-14)
    assert whole.power == half.power == pytest.approx(64 * (0.5 * 1.2 + 0.1) + 8 * 2.0)


def test_a_run_past_its_lifetime_pays_the_purchase_once():
    assert owning(Prices(1e6, 3.0, 0.0, 0.0), 0.0, 8760 * 30.0).total == 1e6


def test_what_a_place_does_not_say_stays_unknown():
    spent = spent_by(Run(1.0, 1, 0.7), Site("not given", 1.0), None)
    assert (spent.footprint.carbon, spent.footprint.water, spent.bill) == (None, None, None)
    assert per_million(spent.footprint.carbon, 1e6) is None


def test_time_and_work_are_inverse():
    work = run_work(86400.0, 1e5, 0.97, 0.8)
    assert run_time(work, 1e5, 0.97, 0.8) == pytest.approx(86400.0, rel=1e-14)


def test_a_checkpoint_is_bound_by_writers_then_by_the_file_system():
    few, many = (Checkpoint(1e12, writers, 7e9, 5e11) for writers in (8, 512))
    assert few.write == pytest.approx(1e12 / 56e9) and many.write == pytest.approx(2.0)


def test_the_checkpoint_of_a_run_is_that_of_wall_19():
    fleet, model = Clusters.get("Research_256"), Models.Llama3_70B
    found = run_checkpoint(model, fleet, fleet.total_accelerators, "bf16", "adam")
    asked = CheckpointModel().solve(
        model, fleet.node.accelerator, n_writers=fleet.total_accelerators, writer_bandwidth=writer_rate(fleet) / 1e9
    )
    assert found.size == pytest.approx(to_si(asked.checkpoint_size, "byte"), rel=1e-14)
    assert found.write == pytest.approx(to_si(asked.write_time_seconds, "s"), rel=1e-12)


def test_adapters_alone_are_saved_where_the_rest_is_frozen():
    fleet = Clusters.get("Research_256")
    whole, adapters = (run_checkpoint(Models.Llama3_70B, fleet, 8, "bf16", "adam", rank) for rank in (None, 16))
    assert adapters.size < 0.01 * whole.size


def _fleets():
    return [Clusters.get(name) for name in Clusters.keys() if Clusters.get(name).node.accelerator.tdp is not None]  # noqa: SIM118


def test_resolvers_and_the_case_on_arrays_say_the_same():
    """Two hundred random runs, one by one through the resolvers and all at once through the case."""
    draw = random.Random(7)
    fleets, places = _fleets(), [Grids.get(name) for name in Grids.keys()]  # noqa: SIM118
    for fleet in fleets[:8]:
        count = 25
        days = np.array([10 ** draw.uniform(-1, 3) for _ in range(count)])
        mfu = np.array([draw.random() for _ in range(count)])
        write = np.array([10 ** draw.uniform(-1, 3) for _ in range(count)])
        place, cost = draw.choice(places), draw.uniform(1e3, 5e4)
        assumed = Assumptions()
        site = site_of(place, fleet, assumed)
        run = Run(days * 24, fleet.total_accelerators, device_draw(fleet.node.accelerator, mfu, None, assumed))
        prices = Prices(cost * fleet.total_accelerators, 3.0, 0.05, 0.12)
        spent = spent_by(run, site, prices)
        hours = fleet.mtbf_hours or node_parts(fleet.node, assumed)[0].mtbf / fleet.count
        kept = goodput_of(hours, Saving(write, 300.0))
        for i in range(count):
            costs = EconomicsModel().solve(fleet, days[i], grid=place, mfu=mfu[i], unit_cost=cost)
            taken = SustainabilityModel().solve(fleet, days[i], place, mfu=mfu[i])
            failing = ReliabilityModel().solve(fleet, days[i] * 24, checkpoint_time_s=write[i])
            assert costs.tco_usd == pytest.approx(spent.bill.total[i], rel=1e-12)
            assert costs.capex_usd == pytest.approx(spent.bill.hardware[i], rel=1e-12)
            assert to_si(taken.total_energy_kwh, "kWh") == pytest.approx(spent.footprint.energy[i], rel=1e-12)
            assert taken.carbon_footprint_kg == pytest.approx(spent.footprint.carbon[i], rel=1e-12)
            assert failing.goodput_ratio == pytest.approx(kept.ratio[i], rel=1e-12)


def test_the_price_of_electricity_has_one_rule():
    none, assumed = Site("not given", 1.0), Assumptions()
    assert electricity_price("a test", None, QUEBEC, assumed) == 0.12
    assert electricity_price("a test", "region", QUEBEC, assumed) == 0.041
    assert electricity_price("a test", "local", QUEBEC, assumed) == 0.041
    assert electricity_price("a test", "local", none, assumed) == fallback_price()
    assert assumed.value("kwh_price") == fallback_price() and assumed.origin("kwh_price") == "default"
    with pytest.raises(InputError, match="no electricity price"):
        electricity_price("a test", "region", none, assumed)
