from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Fleet, Hardware, InputError, NetworkFabric, Node, Systems, UnitError
from mlsysim.cases.goodput import (
    checkpoint_waste,
    cluster_mtbf,
    daly_interval,
    effective_rate,
    exact_goodput,
    failure_probability,
    node_mtbf,
    stacked_availability,
    young_interval,
)
from mlsysim.core.constants import INFINIBAND_NDR_BW, NVLINK_H100_BW
from mlsysim.hardware.types import Reliability
from mlsysim.walls.fleet.fragility import ReliabilityModel


def fleet(nodes: int = 64, **changes):
    accelerator = changes.pop("accelerator", Hardware.Cloud.H100)
    extra = {name: changes.pop(name) for name in ("nics_per_node", "psus_per_node") if name in changes}
    node = Node(name="node", accelerator=accelerator, accelerators_per_node=8, intra_node_bw=NVLINK_H100_BW, **extra)
    fabric = NetworkFabric(name="IB NDR", bandwidth=INFINIBAND_NDR_BW)
    return Fleet(name="fleet", node=node, count=nodes, fabric=fabric, **changes)


def tutorial(**changes):
    given = {"fleet": fleet(), "job_duration_hours": 30 * 24, "checkpoint_time_s": 120, **changes}
    return ReliabilityModel().solve(**given)


def test_the_tutorial_prints_what_it_printed():
    result = tutorial()
    assert f"{result.fleet_mtbf.to('hour').magnitude:.2f}" == "83.71"
    assert f"{result.failure_probability:.2%}" == "99.98%"
    assert f"{result.expected_failures:.1f}" == "8.6"
    assert f"{result.optimal_checkpoint_interval.to('minute').magnitude:.1f}" == "141.7"


def test_the_hidden_cost_of_the_tutorial_is_three_per_cent():
    # 120 / 8504 = 1.41 % of writes, as much rework, 300 s / 83.7 h = 0.10 %: 2.9 %
    result = tutorial()
    assert result.checkpoint_overhead_fraction == pytest.approx(0.01411, abs=1e-5)
    assert result.rework_overhead_fraction == pytest.approx(result.checkpoint_overhead_fraction)
    assert result.restart_overhead_fraction == pytest.approx(300 / (83.70536 * 3600), rel=1e-6)
    assert result.total_overhead_fraction == pytest.approx(0.0292, abs=1e-4)
    assert result.goodput_ratio == pytest.approx(1 - result.total_overhead_fraction)
    assert result.goodput_ratio_exact == pytest.approx(result.goodput_ratio, abs=5e-4)
    assert result.expected_lost_time.to("h").magnitude == pytest.approx(720 * 0.02922, rel=1e-3)


def test_eight_adapters_make_the_fleet_more_fragile():
    # 8/50000 + 8/150000 + 2/100000 = 2.3333e-4 per hour and node; 1 / (64 x that) = 66.96 h
    assert tutorial(fleet=fleet(nics_per_node=8)).fleet_mtbf.to("h").magnitude == pytest.approx(66.96, abs=0.005)


@pytest.mark.parametrize(("interval", "waste"), [(10, 0.228), (27, 0.149), (60, 0.200)])
def test_the_math_page_example_corrected(interval, waste):
    # delta 2 min, M 180 min: delta/tau + tau/(2M); the page prints 17, 7 and 15 %
    writes, rework, restarts = checkpoint_waste(120.0, interval * 60.0, 180 * 60.0, 0.0)
    assert restarts == 0
    assert round(writes + rework, 3) == waste


def test_youngs_interval_is_the_least_waste_and_its_terms_are_equal():
    write, mtbf = 120.0, 10800.0
    best = young_interval(write, mtbf)
    assert best == pytest.approx(27 * 60, rel=0.01)
    writes, rework, _ = checkpoint_waste(write, best, mtbf, 0.0)
    assert writes == pytest.approx(rework)
    assert writes + rework == pytest.approx(math.sqrt(2 * write / mtbf))
    for factor in (0.7, 0.9, 1.1, 1.4):
        assert sum(checkpoint_waste(write, best * factor, mtbf, 0.0)) > writes + rework


@pytest.mark.parametrize("mtbf", [1e3, 1e4, 1e6])
def test_dalys_interval_is_the_best_of_the_exact_form(mtbf):
    write = 120.0
    daly = exact_goodput(write, daly_interval(write, mtbf), mtbf, 0.0)
    grid = [exact_goodput(write, daly_interval(write, mtbf) * (0.5 + i / 100), mtbf, 0.0) for i in range(150)]
    assert daly >= max(grid) * (1 - 1e-4)
    assert daly >= exact_goodput(write, young_interval(write, mtbf), mtbf, 0.0)


def test_dalys_interval_is_the_mtbf_where_saving_takes_longer_than_failing():
    assert daly_interval(100.0, 50.0) == 50.0
    assert daly_interval(100.0, 20.0) == 20.0


def test_the_self_check_of_the_tutorial():
    # MTBF 4 h, 2 min: tau = sqrt(2 x 120 x 14400) = 1859 s, 6.5 % writes and as much rework
    result = tutorial(fleet=fleet(mtbf_hours=4.0))
    assert result.optimal_checkpoint_interval.to("s").magnitude == pytest.approx(1859, abs=0.5)
    assert result.checkpoint_overhead_fraction == pytest.approx(0.065, abs=5e-4)


def test_llama_3_interruptions_give_back_three_hours():
    # 16,384 GPUs of 50,700 h: 3.09 h; the paper's 10,000 h per GPU would give 0.6 h
    assert cluster_mtbf(50_700.0, 16384) == pytest.approx(54 * 24 / 419, rel=0.01)


def test_the_fleets_own_mtbf_wins_over_components():
    result = tutorial(fleet=fleet(mtbf_hours=100.0))
    assert result.fleet_mtbf.to("h").magnitude == 100
    assert result.node_mtbf.to("h").magnitude == 6400
    assert "accelerator_mtbf" not in result.assumptions
    assert "n_acc" not in result.explain()


def test_the_chips_own_mtbf_wins_over_the_constant_and_an_input_over_both():
    chip = Hardware.Cloud.H100.model_copy(update={"reliability": Reliability(mtbf="25000 h")})
    own = tutorial(fleet=fleet(accelerator=chip))
    assert own.node_mtbf.to("h").magnitude == pytest.approx(1 / (8 / 25000 + 1 / 150000 + 2 / 100000))
    given = tutorial(fleet=fleet(accelerator=chip), accelerator_mtbf="50000 h")
    assert given.fleet_mtbf.to("h").magnitude == pytest.approx(83.705, abs=1e-3)
    assert "accelerator_mtbf" not in own.assumptions


def test_defaults_are_echoed():
    result = ReliabilityModel().solve("Frontier_8K", 720)
    assert result.assumptions["checkpoint_time_s"] == "60 s"
    assert result.assumptions["avg_recovery_time_s"] == "300 s"
    assert result.assumptions["nic_mtbf"] == "150000 h"
    assert "nics_per_node" not in result.assumptions
    assert "1 (the node does not say)" in tutorial().assumptions["nics_per_node"]


def test_units_may_be_written():
    assert tutorial(job_duration_hours="30 day", checkpoint_time_s="2 min") == tutorial()


def test_a_given_interval_is_used_and_the_optimum_still_reported():
    result = tutorial(checkpoint_interval="1 h")
    assert result.checkpoint_interval.to("h").magnitude == 1
    assert result.optimal_checkpoint_interval.to("min").magnitude == pytest.approx(141.7, abs=0.05)
    assert result.goodput_ratio < tutorial().goodput_ratio


def test_a_run_that_makes_no_progress_is_infeasible():
    result = tutorial(fleet=fleet(mtbf_hours=0.05))
    assert not result.feasible
    assert result.goodput_ratio == 0
    assert 0 < result.goodput_ratio_exact < 1
    assert "leave nothing" in result.binding.sentence


def test_one_perfect_part_and_one_node():
    assert node_mtbf(1e5, 1, math.inf, 1, math.inf, 1) == pytest.approx(1e5)
    assert cluster_mtbf(500.0, 1) == 500.0
    assert failure_probability(0.0, 100.0) == 0.0
    assert exact_goodput(1.0, 1e3, 1e15, 0.0) == pytest.approx(1e3 / 1001)


def test_rates_of_the_formulas():
    assert effective_rate(1e15, 0.5, 0.9, 0.97) == pytest.approx(0.43650e15)
    assert stacked_availability(0.99, 2) == pytest.approx(0.9999)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"job_duration_hours": 0}, InputError, "above 0"),
        ({"checkpoint_time_s": -1}, InputError, "above 0"),
        ({"checkpoint_time_s": float("nan")}, InputError, "nan"),
        ({"job_duration_hours": "3 kg"}, UnitError, "job_duration_hours"),
        ({"fleet": 12}, InputError, "must be a Fleet"),
        ({"fleet": "Frontier_9K"}, InputError, "Frontier_8K"),
    ],
)
def test_bad_input_is_one_sentence(changes, error, words):
    with pytest.raises(error, match=words) as caught:
        tutorial(**changes)
    assert "\n" not in str(caught.value)


@given(
    nodes=st.integers(1, 20_000),
    write=st.floats(0.01, 3600),
    recovery=st.floats(0, 3600),
    hours=st.floats(0.1, 1e5),
)
def test_signs_and_bounds(nodes, write, recovery, hours):
    model = ReliabilityModel()

    def solve(n=nodes, w=write, r=recovery):
        return model.solve(fleet=fleet(n), job_duration_hours=hours, checkpoint_time_s=w, avg_recovery_time_s=r)

    base = solve()
    assert 0 <= base.failure_probability <= 1
    assert 0 <= base.goodput_ratio <= base.goodput_ratio_exact * (1 + 1e-9) + 1e-12 <= 1 + 1e-9
    assert solve(n=nodes * 2).goodput_ratio <= base.goodput_ratio
    assert solve(w=write * 2).goodput_ratio <= base.goodput_ratio
    assert solve(r=recovery + 60).goodput_ratio <= base.goodput_ratio
    assert solve(n=nodes * 2).fleet_mtbf < base.fleet_mtbf


def test_every_cluster_of_the_zoo_has_an_answer():
    for cluster in Systems.Clusters:
        result = ReliabilityModel().solve(cluster, 24)
        assert 0 <= result.goodput_ratio <= 1
