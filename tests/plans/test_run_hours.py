"""Training plans by the hour: nothing changes where nothing does, parts agree with each other, and a simulation with the closed form."""

from __future__ import annotations

import pytest

from mlsysim import serve, train
from mlsysim.errors import InputError
from mlsysim.plans.optimizing import best_placement
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import Q_, to_si

RUN = {"tokens": 2e11, "batch_size": 128, "tp": 4, "micro_batch": 2, "zero": 1}


def ask(region: str = "California", **more):
    return train("Llama3_8B", "64xH100", **RUN, region=region, **more)


UNITS = {"run_time": "day", "energy": "kWh", "carbon_footprint": "kgCO2e", "tco": "USD"}


def value(answer, name: str) -> float:
    return float(to_si(answer.value(name), UNITS[name]))


def test_a_place_without_hours_answers_as_without_a_start() -> None:
    plain, timed = ask("Quebec"), ask("Quebec", start="2026-12-01")
    values = [
        {m.name: to_si(m.value, str(m.value.units)) for m in a.metrics if hasattr(m.value, "units")}
        for a in (plain, timed)
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-12)
    counts = [{m.name: m.value for m in a.metrics if not hasattr(m.value, "units")} for a in (plain, timed)]
    assert counts[0] == counts[1] and len(values[0]) > 10
    assert "no hours of" in timed.assumptions["hours"] and any("it runs until" in line for line in timed.verdict)


def test_pauses_are_no_losses() -> None:
    """A run that gives way to hours loses what its goodput says, and pauses beside it; what is not played is said."""
    answer = ask(start="2026-12-01", pause_above="250g", simulate=True, seeds=5)
    words = next(line for line in answer.verdict if line.startswith("It gives way to hours for"))
    lost = 1 - float(answer.value("goodput"))
    assert (f"{lost:.1%} of it" if lost >= 0.001 else "less than 0.1% of it") in words and "to pause" not in words
    assert "no slow nodes and no maintenance, as none is given" in answer.assumptions["simulated"]


def test_advice_saves_no_more_than_is_lost() -> None:
    """Hours that a run gives way to are not saved by other checkpoints, though a run that ends sooner meets other hours."""
    answer = ask(start="2026-12-01", pause_above="250g", simulate=True, seeds=8, mtbf="4 h")
    plain = ask(simulate=True, seeds=8, mtbf="4 h")
    lines = [[line for line in a.verdict if " saves " in line] for a in (answer, plain)]
    told = [[line.split(" saves ")[1].split(" and")[0] for line in each] for each in lines]
    minutes = [[float(to_si(Q_(text), "min")) for text in each] for each in told]
    assert len(minutes[0]) == len(minutes[1]) == 2
    assert minutes[0] == pytest.approx(minutes[1], rel=0.2)


def test_a_region_says_its_building() -> None:
    assert ask("Virginia").assumptions["pue"] == "1.1, as in Hyperscale, air and evaporative cooling"


def test_a_level_that_no_hour_reaches_is_no_pause() -> None:
    timed, paused = ask(start="2026-12-01"), ask(start="2026-12-01", pause_above="5000g")
    for name in ("run_time", "carbon_footprint", "tco", "energy"):
        assert value(paused, name) == pytest.approx(value(timed, name), rel=1e-9)
    assert any("never holds it" in line for line in paused.verdict)


def test_carbon_is_energy_times_that_of_the_hours() -> None:
    may, december = ask(start="2026-05-01"), ask(start="2026-12-01")
    means = [value(each, "carbon_footprint") / value(each, "energy") for each in (may, december)]
    assert means[0] < 184 / 1000 < means[1]  # kgCO2e/kWh; the yearly figure of California lies between
    assert value(may, "run_time") == value(december, "run_time")


def test_less_power_is_less_energy_for_more_time() -> None:
    full, less = ask(start="2026-12-01"), ask(start="2026-12-01", demand_response="25% above 1g")
    capped = (value(less, "energy") / value(less, "run_time")) / (value(full, "energy") / value(full, "run_time"))
    assert capped == pytest.approx(0.75, abs=0.005)  # at the meter
    assert value(less, "run_time") > value(full, "run_time") and value(less, "energy") < value(full, "energy")
    # The same limit in all hours is a power cap, and is the same run.
    caps = [ask(start="2026-12-01", power_cap=f"{cap} W") for cap in (450, 600)]
    assert value(caps[0], "energy") < value(less, "energy") < value(caps[1], "energy")


def test_a_simulation_agrees_with_the_closed_form() -> None:
    asked = {"start": "2026-12-01", "pause_above": "250g"}
    closed, played = ask(**asked), ask(**asked, simulate=True, seeds=60)
    held = played.percentiles
    assert held["run_time"]["mean"] == pytest.approx(to_si(closed.value("run_time"), "day"), rel=0.06)
    assert held["carbon_footprint"]["mean"] == pytest.approx(
        to_si(closed.value("carbon_footprint"), "kgCO2e"), rel=0.06
    )
    assert any("It gives way to hours for" in line for line in played.verdict)
    # Hours that it gives way to are no failures: goodput is that of the time in which it runs, in both.
    assert played.value("goodput") == pytest.approx(closed.value("goodput"), rel=0.01)
    assert played.value("goodput") > 0.99 and played.binding.wall == closed.binding.wall
    assert to_si(played.value("run_time"), "day") == pytest.approx(held["run_time"]["p50"], rel=1e-6)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"pause_above": "250g"}, "give its start too"),
        ({"start": "2026-12-01", "pause_above": "10g"}, "less than 1% of the hours"),
        ({"start": "2026-12-01", "demand_response": "90% for 3h"}, "can be given"),
        ({"start": "2026-13-01"}, "A start is a date"),
    ],
)
def test_what_cannot_be_is_said(more, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ask(**more)


def test_places_are_compared_in_the_same_hours() -> None:
    plan = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "64xH100"}}
    plan |= {"ops": {"duration_days": 10, "start": "2026-05-01", "region": "California"}}
    found = {
        each["region"]: each
        for each in best_placement(Plan.model_validate(plan), 100.0, ["California", "Quebec"]).top_candidates
    }
    own = train("Llama3_8B", "64xH100", duration_days=10, start="2026-05-01", region="California")
    assert found["California"]["carbon_footprint_kg"] == pytest.approx(
        to_si(own.value("carbon_footprint"), "kgCO2e"), rel=1e-6
    )


def test_a_service_sees_the_hours_from_its_start_on() -> None:
    """The same load and power at all hours: carbon is energy times the mean of its hours, and a year of them is the year."""
    asked = {"qps": 2, "region": "California"}
    plain, june = (serve("Llama3_8B", "H100", **asked, **more) for more in ({}, {"start": "2026-06-01"}))
    clean = [value(each, "carbon_footprint") / value(each, "energy") for each in (plain, june)]
    assert clean[0] == pytest.approx(0.184, rel=1e-3) and clean[1] < 0.8 * clean[0]
    assert june.value("latency") == plain.value("latency")
    assert any("From 2026-06-01 00:00 UTC until 2026-06-02 00:00 UTC" in line for line in june.verdict)
    year = serve("Llama3_8B", "H100", **asked, start="2026-01-01", duration_days=365)
    whole = serve("Llama3_8B", "H100", **asked, duration_days=365)
    assert value(year, "carbon_footprint") == pytest.approx(value(whole, "carbon_footprint"), rel=0.01)
    assert value(year, "energy") == pytest.approx(value(whole, "energy"), rel=0.01)
    with pytest.raises(InputError, match="pause_above"):
        serve("Llama3_8B", "H100", **asked, start="2026-06-01", pause_above="300g")
