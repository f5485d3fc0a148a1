"""The table of metrics: units that exist, equations that are read whole, and labels for every task."""

from __future__ import annotations

import pytest

import mlsysim
from mlsysim.plans.metrics import kinds, metric, value_text
from mlsysim.report.formula import mathml
from mlsysim.units.registry import Q_
from mlsysim.walls.catalog import TITLES

SUMS = {"memory", "latency", "ttft", "tpot", "itl"}


@pytest.mark.parametrize("kind", kinds().values(), ids=kinds())
def test_an_entry_is_whole(kind):
    for unit in (kind.shown, kind.plain):
        assert unit in ("", "best") or Q_(1, unit).is_compatible_with(kind.unit)
    assert kind.wall == 0 or kind.wall in TITLES
    assert kind.field or kind.formulas or kind.name in SUMS
    assert len(kind.equations) == len(kind.formulas)
    assert all(equation.symbols and mathml(equation.latex) for equation in kind.equations)
    assert all(kind.label_of(task) for task in ("training", "samples", "serving", "inference", "rl"))


def test_plain_numbers_are_printed_in_the_unit_that_suits_them():
    assert metric("memory", 85.9e9, "training").text == "85.90 GB"
    assert metric("latency", 0.0453, "samples", band=(0.04, 0.05)).interval == "40 ms to 50 ms"
    assert metric("power", 2.5e6, "serving").text == "2.50 MW"
    wide = metric("transfer_time", 2.26, "rl", band=(0.355, 14.33))
    assert (wide.text, wide.interval) == ("2.26 s", "0.355 s to 14.33 s"), "one unit for a value and both ends"
    assert metric("mfu", 0.415, "training").text == "41.5%" and value_text("", 0.415) == "0.4150"


def test_what_is_small_is_not_nothing():
    shares = (0.0, 0.00035, 0.0000012, 0.0005, 0.9999)
    assert [value_text("mfu", share) for share in shares] == ["0.0%", "0.035%", "0.00012%", "0.1%", "100.0%"]
    assert value_text("carbon_footprint", Q_(2.08e-5, "kgCO2e")) == "0.021 gCO2e"
    assert value_text("carbon_footprint", Q_(0.0, "kgCO2e")) == value_text("carbon_footprint", Q_(0, "kgCO2e"))


def test_a_metric_without_a_wall_of_its_own_belongs_to_the_one_that_binds():
    assert metric("latency", 1.0, "training", binding=14).wall == 14
    assert metric("latency", 1.0, "serving", wall=4, binding=14).wall == 4
    assert metric("mfu", 0.4, "training", binding=14).wall == 3


def test_less_than_a_day_is_told_in_hours():
    assert [value_text("run_time", Q_(days, "day")) for days in (0.293, 1.0, 38.98)] == ["7.03 h", "1 d", "38.98 d"]
    every = [metric("checkpoint_interval", seconds, "training").text for seconds in (10.98, 1500.0, 76542.0, 2e5)]
    assert every == ["10.98 s", "25 min", "21.26 h", "2.31 d"]


def test_metrics_have_the_names_that_people_use():
    settings = {"batch_size": 64, "seq_len": 4096, "tp": 1, "tokens": "10B"}
    owned = mlsysim.train("Llama3_8B", "8xH100", region="Quebec", **settings)
    names = {
        "cost": "tco",
        "carbon": "carbon_footprint",
        "emissions": "carbon_footprint",
        "throughput": "tokens_per_second",
    }
    assert {name: owned.metric(name).name for name in names} == names
    assert mlsysim.train("Llama3_8B", "8xH100", price=2.5, **settings).metric("cost").name == "rent"
