"""Power of a chip: measured loads, published energies, limits, and what a lower limit does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.footprint import Site
from mlsysim.cases.pools import Pool
from mlsysim.cases.run import Run, spent_by
from mlsysim.cases.run_inputs import around_node, around_of, usual_node
from mlsysim.cases.traffic import Traffic
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.power import proportional_power, stretched
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.systems.registry import Fabrics, Nodes, Systems
from mlsysim.systems.types import Fleet
from mlsysim.timing.diffusion_time import XDIT, diffusion_activity
from mlsysim.timing.power import (
    Activity,
    chip_power,
    energy_per_item,
    equivalent,
    power_of,
    throttle,
    waiting_power_of,
    wide_peak,
)
from mlsysim.walls.operations.sustainability import SustainabilityModel

H100 = Hardware.get("H100")
PEAK, BANDWIDTH = 989e12, 4.8e12

# One H200: watts, MFU, MBU and busy share of loads in loops (own measurements; the constants were fitted on them with others).
H200_LOADS = [
    (123, 0.0, 0.0, 0.0),
    (651, 0.56, 0.0, 1.0),
    (469, 0.003, 0.68, 1.0),
    (518, 0.045, 0.69, 1.0),
    (640, 0.12, 0.75, 1.0),
    (640, 0.0, 0.97, 1.0),
    (685, 0.59, 0.06, 1.0),
    (690, 0.41, 0.26, 1.0),
    (688, 0.48, 0.22, 1.0),
    (682, 0.68, 0.0, 1.0),
]


def test_measured_loads_of_one_h200():
    chip = Hardware.get("H200")
    found = [power_of(chip, Activity(mfu * PEAK, mbu * BANDWIDTH, b)) / watts for watts, mfu, mbu, b in H200_LOADS]
    errors = sorted(abs(each - 1) for each in found)
    assert errors[len(errors) // 2] < 0.05
    assert errors[-1] < 0.14
    proportional = [abs(proportional_power(700, 0.3, mfu) / watts - 1) for watts, mfu, *_ in H200_LOADS]
    assert sorted(proportional)[len(errors) // 2] > 0.25


def test_a_chip_that_waits_draws_what_was_measured():
    """121 to 133 W with a context, 78 W without (own H200)."""
    assert waiting_power_of(Hardware.get("H200")) == pytest.approx(127, abs=6)
    assert chip_power(Hardware.get("H200")).deep == 78


def test_published_energy_of_a_token():
    """ML.ENERGY: Qwen3-14B, one B200, 7.9 sequences, 1,086.7 tokens/s: 0.699 J (the constants were fitted on this table)."""
    chip = Hardware.get("B200")
    known = chip_power(chip)
    asked = Traffic(400, 615, 7.9)
    activity = Pool(1, 1).activity(Models.get("Qwen3-14B"), known, 1.0, "bf16", asked, 1086.7 / 615)
    assert energy_per_item(power_of(known, activity), 1, 1086.7) == pytest.approx(0.699, rel=0.15)


def test_published_energy_of_an_image():
    """ML.ENERGY: FLUX.1-dev, four B200, 8 images in 21.717 s: 9,574.7 J an image (the constants were fitted on this table)."""
    chip = Hardware.get("B200")
    activity = diffusion_activity(Models.get("FLUX_1_dev"), chip, 4, 8, 50, 21.717, XDIT)
    assert energy_per_item(power_of(chip, activity), 4, 8 / 21.717) == pytest.approx(9574.7, rel=0.15)


shares = st.floats(0, 1)


@given(shares, shares, shares, st.sampled_from(["H100", "B200", "A100", "TPU_v4", "RTX_4090"]))
def test_more_work_never_draws_less_and_the_limit_holds(arithmetic, memory, busy, name):
    chip = Hardware.get(name)
    tdp, bandwidth = chip.tdp.to("W").magnitude, chip.memory.bandwidth.to("byte/s").magnitude
    peak = chip.compute.peak("bf16").to("flop/s").magnitude

    def watts(more):
        return power_of(
            chip, Activity((arithmetic + more) * peak, (memory + more) * bandwidth, min(1, busy + more), 0.3)
        )

    assert 0.1 * tdp <= watts(0.0) <= 0.985 * tdp
    assert watts(0.0) <= watts(0.1) + 1e-9


@given(
    st.floats(0.02, 0.7),
    st.floats(0, 0.9),
    st.floats(0.01, 0.98),
    st.floats(0, 1),
    st.lists(st.floats(90, 800), min_size=2, max_size=2),
)
@settings(max_examples=150, deadline=None)
def test_a_lower_limit_is_never_faster_never_above_it_and_never_draws_more(mfu, mbu, clocked, rest, caps):
    """At random work: T(x) and P(x) of the module's text."""
    streamed = rest * (1 - clocked)
    usual = Activity(mfu * PEAK, mbu * 3.35e12, clocked + streamed, 0.3)

    def under(cap):
        clock = throttle(H100, usual, clocked, streamed, cap)
        time = stretched(clocked, streamed, clock.slower, clock.streaming)
        busy = (clocked * clock.slower + streamed * clock.streaming) / time
        slow = Activity(usual.operations / time, usual.moved / time, busy, 0.3, clock.clock)
        return time, power_of(H100, slow, cap), clock

    (slower, less, low), (faster, more, high) = under(min(caps)), under(max(caps))
    assert slower >= faster - 1e-9 >= 1 - 2e-9
    assert less <= min(caps) + 1e-9 and less <= more + 1e-6 * more
    assert low.clock <= high.clock + 1e-9
    if max(caps) >= power_of(H100, usual):
        assert high.slower == 1.0


_SHARES = st.tuples(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 0.5))


@given(
    st.sampled_from(["H100", "H200", "B200", "A100", "MI355X", "TPU_v4", "RTX_4090", "L4"]),
    _SHARES,
    st.floats(0.05, 0.8),
    st.lists(st.floats(0.001, 1), min_size=2, max_size=2),
    st.floats(1.0, 4.0),
)
@settings(max_examples=200, deadline=None)
def test_every_limit_above_that_of_a_chip_asleep_is_kept_by_the_clock_alone(name, parts, used, caps, faster):
    """Watts of the slowed work before anything is clipped, down to a thousandth above ``deep``; and more bandwidth is never slower under a limit."""
    chip = Hardware.get(name)
    known, tdp = chip_power(chip), chip.tdp.to("W").magnitude

    def under(share, faster=1.0):
        clocked, streamed, rest = parts[0], parts[1] / faster, parts[2]
        whole = clocked + streamed + rest
        moved = parts[1] * chip.memory.bandwidth.to("byte/s").magnitude
        usual = Activity(used * clocked * wide_peak(chip) / whole, moved / whole, (clocked + streamed) / whole, 0.3)
        cap = known.deep + share * (min(tdp, power_of(chip, usual)) - known.deep)
        clock = throttle(chip, usual, clocked / whole, streamed / whole, cap)
        time = stretched(clocked / whole, streamed / whole, clock.slower, clock.streaming)
        busy = (clocked * clock.slower + streamed * clock.streaming) / (whole * time)
        slow = Activity(usual.operations / time, usual.moved / time, busy, 0.3, clock.clock)
        return time * whole, known.wanted(slow), cap

    (slower, less, least), (quicker, more, _) = under(min(caps)), under(max(caps))
    assert less <= least * (1 + 1e-6) and less <= more * (1 + 1e-6)
    assert slower >= quicker * (1 - 1e-9)
    same = (least - known.deep) / (min(tdp, under(1.0, faster)[2]) - known.deep)
    assert under(min(same, 1.0), faster)[0] <= slower * (1 + 1e-6)


@pytest.mark.parametrize(("cap", "time", "energy"), [(600, 6, -8), (500, 15, -16), (400, 28, -25), (300, 55, -32)])
def test_dense_training_under_a_limit(cap, time, energy):
    """H100, bf16, MFU 0.45: 600 W +6 % time and -8 % energy, 500 W +15 / -16, 400 W +28 / -25 (speeds of MLPerf MaxQ runs)."""
    usual = Activity(0.45 * PEAK, 0.9e12, 0.93, 0.3)
    clock = throttle(H100, usual, 0.83, 0.10, float(cap))
    longer = stretched(0.83, 0.10, clock.slower, clock.streaming)
    assert 100 * (longer - 1) == pytest.approx(time, abs=3)
    assert 100 * (longer * cap / power_of(H100, usual) - 1) == pytest.approx(energy, abs=3)


def test_limits_on_arrays_are_those_of_numbers():
    usual = Activity(np.array([0.2, 0.45]) * PEAK, 0.5e12, np.array([0.6, 0.95]), 0.3)
    found = throttle(H100, usual, np.array([0.5, 0.85]), 0.1, 400.0)
    for place, (mfu, busy, clocked) in enumerate([(0.2, 0.6, 0.5), (0.45, 0.95, 0.85)]):
        alone = throttle(H100, Activity(mfu * PEAK, 0.5e12, busy, 0.3), clocked, 0.1, 400.0)
        assert [float(each[place]) for each in found] == pytest.approx([float(each) for each in alone], rel=1e-12)


def test_a_limit_below_what_a_chip_draws_asleep_is_refused():
    with pytest.raises(InputError, match="power cap"):
        throttle(H100, Activity(0.1 * PEAK, 0.0), 0.9, 0.0, 50.0)


def test_formats_count_by_their_energy():
    assert equivalent(H100, "bf16") == equivalent(H100, "fp16") == 1.0
    assert 0.4 < equivalent(H100, "fp8") < 0.6 < 1.5 < equivalent(H100, "tf32")
    # Weights that a chip expands are computed in 16 bits.
    assert equivalent(Hardware.get("A100"), "fp8") == 1.0


def test_sustainability_takes_what_the_chip_does_when_the_memory_is_known():
    fleet = Systems.get("Frontier_8K") if hasattr(Systems, "get") else "Frontier_8K"
    plain = SustainabilityModel().solve(fleet=fleet, duration_days=1, mfu=0.02)
    running = SustainabilityModel().solve(fleet=fleet, duration_days=1, mfu=0.02, memory_utilisation=0.6)
    assert running.it_energy_kwh > 1.5 * plain.it_energy_kwh
    assert "of what it does" in running.assumptions["power"]


@given(shares, shares, shares, st.sampled_from(["H100", "B200", "A100", "TPU_v4", "RTX_4090", "Jetson_AGX_Orin"]))
def test_a_chip_that_waits_draws_less_than_one_that_works(arithmetic, memory, busy, name):
    """And energy is never below that of waiting: energy over time is at least the power of a chip with a program and nothing to do."""
    chip = Hardware.get(name)
    known, bandwidth = chip_power(chip), chip.memory.bandwidth.to("byte/s").magnitude
    does = Activity(arithmetic * wide_peak(chip), memory * bandwidth, busy, 0.3)
    assert known.deep < known.wait <= power_of(chip, does) * (1 + 1e-9)


@given(st.floats(0.05, 1.0), st.integers(1, 16), st.sampled_from(["air", "liquid"]))
def test_liquid_never_takes_more_than_air_and_scopes_add_up(device, nodes, cooling):
    """At the same load of the accelerators (kW), by the measured forms of nodes."""
    node, bandwidth = usual_node(H100)
    by = {name: Run(2.0, 8 * nodes, device, nodes, around_node(node, bandwidth, name)) for name in ("air", "liquid")}
    assert by["liquid"].power <= by["air"].power
    spent = spent_by(by[cooling], Site("here", 1.2), None)
    assert sum(spent.parts.values()) == pytest.approx(spent.footprint.energy)
    assert spent.footprint.energy >= 2.0 * 8 * nodes * device


def test_a_network_takes_the_power_of_the_ports_that_are_built():
    """Three ports of switches for each of a node in a full fabric of two stages; the two of the upper one are as many fewer as it is thinned."""

    def watts(oversubscription=1.0, topology="fat-tree"):
        fabric = Fabrics.get("InfiniBand_NDR").model_copy(
            update={"oversubscription_ratio": oversubscription, "topology": topology}
        )
        fleet = Fleet(name="f", node=Nodes.get("DGX_H100"), count=64, fabric=fabric)
        return 1000 * around_of(fleet, True, None, Assumptions()).network

    assert watts() == pytest.approx(116)
    assert watts(4.0) == pytest.approx(116 * (1 + 2 / 4) / 3)
    assert watts(topology="switched") == pytest.approx(116 / 3)
    assert watts(topology="switched") < watts(1000.0) < watts(8.0) < watts(2.0) < watts()
    assert watts(topology="torus_3d") == watts(topology="full_mesh") == 0


@pytest.mark.parametrize(
    ("limited", "full"),
    [("A100_330W", "A100"), ("A100_PCIe_80GB", "A100"), ("H200", "H100"), ("V100_PCIe_32GB", "V100")],
)
def test_the_same_die_under_a_lower_limit_draws_the_same_where_the_limit_does_not_bind(limited, full):
    card, whole = chip_power(Hardware.get(limited)), chip_power(Hardware.get(full))
    assert (card.deep, card.wait, card.floor, card.per_flop) == (whole.deep, whole.wait, whole.floor, whole.per_flop)


def test_the_least_limit_of_a_card_is_one_in_training_and_in_serving():
    """Training rates of this card were measured at the full limit of its die; power has the same constants there."""
    least = chip_power(Hardware.get("A100_330W")).deep
    for task, work in (
        ("training", {"model": "GPT2", "batch_size": 16, "seq_len": 512}),
        ("inference", {"model": "ResNet50"}),
    ):
        plan = Plan.model_validate(
            {"task": task, "workload": work, "hardware": {"on": "A100_330W", "power_cap": f"{least - 1} W"}}
        )
        with pytest.raises(InputError, match=f"must be above {least:.0f} W"):
            evaluate_plainly(plan)


def test_t5_on_tpu_v3():
    """Held out, Patterson et al. 2021: 310 W a chip with its share of host and network (T5 11B on 512 TPU v3, 37 % of the peak)."""
    work = {"model": "T5_11B", "batch_size": 2048, "seq_len": 512}
    answer = evaluate_plainly(Plan(task="training", workload=work, hardware={"on": "512xTPU_v3"}))
    assert answer.value("node_power").to("W").magnitude / 8 == pytest.approx(310, rel=0.25)
