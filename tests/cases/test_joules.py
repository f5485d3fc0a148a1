"""Joules on a ledger add up to power times time; goodput binds where it costs more than any wall of the step."""

from __future__ import annotations

import math
import random

import pytest

from mlsysim import Hardware, SingleNodeModel
from mlsysim.cases.goodput import Goodput, Saving, goodput_of
from mlsysim.cases.joules import IDLE, Draw, activity_of, draw_of, with_joules
from mlsysim.cases.ledger import Ledger, Part
from mlsysim.cases.run_ledger import FRAGILITY, run_binding
from mlsysim.timing.power import Activity, chip_power, power_of
from mlsysim.units.registry import to_si

H100 = Hardware.H100
PEAK, BANDWIDTH = 989e12, 3.35e12


def part(name, wall, resource, exposed, **amounts):
    return Part(name, wall, resource, "", exposed=exposed, elastic=exposed, **amounts)


def step():
    """Half a second of products, a fifth of reads, a tenth each of sums, launches and a bubble."""
    parts = (
        part("products", 1, "peak", 0.5, flop=0.3 * PEAK),
        part("reads", 2, "bandwidth", 0.2, moved=0.15 * BANDWIDTH, flop=0.01 * PEAK),
        part("sums", 14, "fabric", 0.1, sent=1e9),
        part("launches", 3, "host", 0.1),
        part("bubble", 14, "", 0.1),
    )
    return Ledger(1.0, parts)


def joules(ledger):
    return {each.name: each.joules for each in ledger.parts}


def test_joules_add_up_to_the_power_of_the_form():
    activity = activity_of(step(), 1.0, 0.0)
    # Arithmetic, reads and no others: 0.7 of the second; a sum that nothing hides leaves the device waiting.
    assert (activity.operations, activity.moved) == pytest.approx((0.31 * PEAK, 0.15 * BANDWIDTH))
    assert activity.busy == pytest.approx(0.7)
    watts = power_of(H100, activity)
    found = joules(with_joules(step(), draw_of(H100, activity)))
    assert sum(found.values()) == pytest.approx(watts, rel=1e-14)
    known = chip_power(H100)
    assert found[IDLE] == pytest.approx(known.wait)
    assert found["sums"] == found["launches"] == found["bubble"] == 0.0
    # Below the limit the shares are the form's own.
    wanted = known.floor * 0.7 + known.per_byte * 0.15 * BANDWIDTH + known.per_flop * 0.31 * PEAK
    products = known.floor * 0.5 + known.per_flop * 0.3 * PEAK
    assert found["products"] == pytest.approx(products * (watts - known.wait) / wanted, rel=1e-9)


def test_where_nothing_is_known_of_the_parts_joules_follow_seconds():
    plain = Ledger(1.0, (part("a", 1, "host", 0.75), part("b", 2, "host", 0.25)))
    found = joules(with_joules(plain, Draw(watts=500.0, idle=100.0, per_flop=1e-12)))
    assert found == pytest.approx({"a": 300.0, "b": 100.0, IDLE: 100.0})


def test_a_device_that_waits_draws_idle_power_alone():
    found = joules(with_joules(step(), Draw(watts=126.0, idle=126.0, per_flop=1e-12)))
    assert found[IDLE] == 126.0 and sum(found.values()) == 126.0


def test_an_empty_time_takes_nothing_and_power_without_parts_is_idle():
    assert with_joules(Ledger(0.0, ()), Draw(500.0, 100.0, 1e-12)).total("joules") == 0.0
    assert with_joules(Ledger(2.0, ()), Draw(500.0, 100.0, 1e-12)).total("joules") == 1000.0


def test_seconds_walls_and_what_is_held_stay():
    before, after = step(), with_joules(step(), Draw(500.0, 100.0, 1e-12))
    assert after.seconds == before.seconds and after.binding_wall == before.binding_wall
    assert after.total("exposed") == pytest.approx(before.total("exposed"))


def test_joules_add_up_on_random_ledgers():
    draw = random.Random(3)
    for _ in range(200):
        parts = tuple(
            part(
                str(i),
                draw.choice([1, 2, 3, 14]),
                draw.choice(["peak", "bandwidth", "fabric", "host", ""]),
                draw.random(),
                flop=draw.choice([0.0, 1e15 * draw.random()]),
                moved=draw.choice([0.0, 1e12 * draw.random()]),
            )
            for i in range(draw.randrange(1, 8))
        )
        ledger = Ledger(sum(each.exposed for each in parts), parts)
        power = Draw(draw.uniform(50, 1000), draw.uniform(10, 200), 1e-12, 1e-10, draw.choice([0.0, 200.0]))
        found = with_joules(ledger, power)
        assert found.total("joules") == pytest.approx(power.watts * ledger.seconds, rel=1e-12)
        assert all(each.joules >= 0 for each in found.parts)


def test_without_failures_the_run_is_the_step():
    kept = goodput_of(math.inf, Saving(60.0, 300.0))
    assert run_binding(step(), kept) == step().binding_wall == 1


@pytest.mark.parametrize(("waste", "wall"), [(0.30, 1), (0.34, FRAGILITY), (1.2, FRAGILITY)])
def test_goodput_binds_where_failures_cost_more_than_any_wall(waste, wall):
    """The largest wall has 0.5 of a step of 1 s: failures cost as much at waste / (1 - waste) = 0.5, a third of the time."""
    kept = Goodput(1.0, 1.0, 1.0, waste / 2, waste / 2, 0.0)
    assert run_binding(step(), kept) == wall


def test_the_constants_of_a_chip_are_those_of_its_power():
    """Some of the bandwidth for a second, below the limit: idle, running and memory, as the form says."""
    moved = 0.2 * to_si(H100.memory.bandwidth, "byte/s")
    busy = power_of(H100, Activity(0.0, moved))
    draw = draw_of(H100, Activity(0.0, moved))
    assert draw.idle + draw.floor + draw.per_byte * moved == pytest.approx(busy, rel=1e-3)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize(
    ("model", "chip", "options"),
    [
        ("Llama3_8B", "H100", {"phase": "decode", "batch_size": 8, "seq_len": 1024}),
        ("Llama3_8B", "A100", {"phase": "prefill", "batch_size": 1, "seq_len": 2048}),
        ("ResNet50", "H100", {"batch_size": 64}),
        ("GPT2", "H200", {"is_training": True, "batch_size": 8, "seq_len": 512}),
        ("Llama3_70B", "H100", {"phase": "decode", "batch_size": 1, "seq_len": 256}),
    ],
)
def test_joules_of_a_pass_are_its_energy(model, chip, options, efficiency):
    found = SingleNodeModel().solve(model, chip, efficiency=efficiency, **options)
    assert found.ledger.total("joules") == pytest.approx(to_si(found.energy, "J"), rel=1e-12)
    assert found.ledger.total("exposed") == pytest.approx(to_si(found.latency, "s"), rel=1e-9)
    assert all(each.joules >= 0 for each in found.ledger.parts)
