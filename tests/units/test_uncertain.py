"""Distributions: what they read, what they refuse, and that their draws are what they say."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import InputError, UnitError
from mlsysim.units.registry import Q_
from mlsysim.units.uncertain import DISTRIBUTIONS, Uncertain, uncertain
from mlsysim.walls.uncertainty import latin_hypercube

READ = [
    ("0.3..0.6", "uniform", (0.3, 0.6), ""),
    ("20 .. 40 gCO2e/kWh", "uniform", (20, 40), "gCO2e/kWh"),
    ("800 GB/s .. 1.2 TB/s", "uniform", (800, 1200.0), "GB/s"),
    ("1e-3..2e-3 s", "uniform", (0.001, 0.002), "s"),
    ("-2..3", "uniform", (-2, 3), ""),
    ("0.45 ± 0.05", "normal", (0.45, 0.05), ""),
    ("0.45 +- 0.05", "normal", (0.45, 0.05), ""),
    ("3.2 +/- 0.1 TB/s", "normal", (3.2, 0.1), "TB/s"),
    ("700 W ± 10 %", "normal", (700, 70.0), "W"),
    ("normal(0.45, 0.05)", "normal", (0.45, 0.05), ""),
    ("uniform(3 TB/s, 4 TB/s)", "uniform", (3, 4), "TB/s"),
    ("triangular(2, 3, 6) USD/h", "triangular", (2, 3, 6), "USD/h"),
    ("lognormal(50000 h, 0.4)", "lognormal", (50000, 0.4), "h"),
    ("lognormal(50000, 0.4) h", "lognormal", (50000, 0.4), "h"),
    ("choice(1, 2, 4)", "choice", (1, 2, 4), ""),
    ("choice(80, 141) GiB", "choice", (80, 141), "GiB"),
    ("choice(Quebec, Poland)", "choice", ("Quebec", "Poland"), ""),
    ({"low": 0.3, "high": 0.6}, "uniform", (0.3, 0.6), ""),
    ({"low": "3 TB/s", "high": "4 TB/s"}, "uniform", (3, 4), "TB/s"),
    ({"low": 2, "mode": 3, "high": 6}, "triangular", (2, 3, 6), ""),
    ({"mean": 3, "sd": 0.1, "unit": "TB/s"}, "normal", (3, 0.1), "TB/s"),
    ({"median": {"magnitude": 5, "unit": "h"}, "sigma": 0.4}, "lognormal", (5, 0.4), "h"),
    ({"distribution": "choice", "values": [1, 2]}, "choice", (1, 2), ""),
]


@pytest.mark.parametrize(("given", "distribution", "parameters", "unit"), READ, ids=str)
def test_reads(given, distribution, parameters, unit):
    found = uncertain(given)
    assert (found.distribution, found.parameters, found.unit) == (distribution, parameters, unit)


@pytest.mark.parametrize(("given", "_d", "_p", "_u"), READ, ids=str)
def test_text_and_table_read_back(given, _d, _p, _u):
    found = uncertain(given)
    assert uncertain(str(found)).to_dict() == found.to_dict() == uncertain(found.to_dict()).to_dict()
    assert pickle.loads(pickle.dumps(found)).to_dict() == found.to_dict()


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_any_range_reads_back_exactly(low, width):
    found = Uncertain.uniform(low, low + width)
    assert uncertain(str(found)).parameters == found.parameters


REFUSED = [
    ("0.6..0.3", "backwards"),
    ("nan..1", "'nan' is not a number"),
    ("0.3..inf", "'inf' is not a number"),
    ("1..1e999", "too large"),
    ("1 GB/s .. 3 TFLOPs/s", "do not agree"),
    ("20 g .. 40", "no unit"),
    ("normal(3 TB/s, 1) TB/s", "one behind"),
    ("1..2 parsec", "no unit 'parsec'"),
    ("0.45 ± 10 %", "per cent"),
    ("normal(1, -1)", "negative"),
    ("lognormal(-1, 0.5)", "above zero"),
    ("lognormal(1 h, 0.5 h)", "logarithm"),
    ("triangular(1, 5, 3)", "backwards"),
    ("norml(1, 2)", "did you mean 'normal'"),
    ("normal(1)", "2 numbers"),
    ("choice(1: 0.5, 2)", "weights for some"),
    ("choice(1: -1, 2: 1)", "zero or more"),
    ("choice(1: 0, 2: 0)", "not all zero"),
    ("choice()", "not a number"),
    ("choice(1, Quebec)", "'Quebec' is not a number"),
    ("foo", "neither a range"),
    ("", "neither a range"),
    ("9" * 600, "characters"),
    (3, "got int"),
    (None, "got NoneType"),
    ({"low": 1}, "no distribution"),
    ({}, "nothing"),
    ({"low": 1, "hihg": 2, "distribution": "uniform"}, "did you mean 'high'"),
    ({"low": 1, "distribution": "uniform"}, "needs 'high'"),
    ({"low": float("nan"), "high": 1}, "finite"),
    ({"low": 0, "high": math.inf}, "finite"),
    ({"low": True, "high": 2}, "must be a number"),
    ({"low": 1, "high": 2, "weights": [1]}, "no weights"),
    ({"low": 1, "high": 2, "unit": 3}, "must be text"),
    ({"low": Q_("1 s"), "high": 2}, "all numbers"),
    ({"distribution": "choice", "values": 3}, "lists"),
    ({"distribution": "choice", "values": []}, "between 1 and"),
    ({"distribution": "cauchy", "low": 1}, "no distribution named 'cauchy'"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=lambda value: str(value)[:30])
def test_refuses_with_one_sentence(given, words):
    with pytest.raises(InputError) as caught:
        uncertain(given)
    text = str(caught.value)
    assert words in text and "\n" not in text and text[-1] in ".?", text


def test_units_must_agree_in_python_too():
    with pytest.raises(UnitError, match="agree"):
        Uncertain.uniform(Q_("1 s"), Q_("2 byte"))


# --- quantiles ------------------------------------------------------------------------------------------------


def test_quantiles_by_arithmetic():
    assert Uncertain.uniform(2, 6).quantile(0.25) == 3
    assert Uncertain.triangular(0, 1, 2).quantile(0.5) == pytest.approx(1)
    # F(x) = x^2 / 2 below the mode.
    assert Uncertain.triangular(0, 1, 2).quantile(0.125) == pytest.approx(0.5)
    assert Uncertain.normal(10, 2).quantile(0.841344746) == pytest.approx(12, abs=1e-6)
    assert Uncertain.lognormal(10, 0.5).quantile(0.841344746) == pytest.approx(10 * math.exp(0.5), rel=1e-6)
    assert [Uncertain.choice([1, 2, 4]).quantile(u) for u in (0.1, 0.5, 0.9)] == [1, 2, 4]
    assert [Uncertain.choice([1, 2], [3, 1]).quantile(u) for u in (0.74, 0.76)] == [1, 2]


def test_a_choice_never_gives_what_has_no_weight():
    rare = Uncertain.choice([1, 2, 3], [1, 1, 0])
    assert {rare.quantile(u) for u in (0.0, 0.5, math.nextafter(1, 0))} == {1, 2}


def test_whole_numbers_of_a_range_are_equally_likely():
    die = Uncertain.uniform(1, 6)
    counts = [0] * 7
    for i in range(600):
        counts[die.quantile((i + 0.5) / 600, whole=True)] += 1
    assert counts == [0, 100, 100, 100, 100, 100, 100]


@pytest.mark.parametrize("bell", [Uncertain.normal(0.9, 0.2), Uncertain.lognormal(0.9, 0.3)])
def test_truncated_to_the_bounds_and_rescaled(bell):
    shares = [(i + 0.5) / 2000 for i in range(2000)]
    cut = [bell.quantile(u, 0.0, 1.0) for u in shares]
    assert all(0 < value <= 1 for value in cut)
    # Rejection gives the same distribution: the free draws that lie inside.
    inside = [value for u in shares if 0 < (value := bell.quantile(u)) <= 1]
    for share in (0.1, 0.5, 0.9):
        assert cut[int(share * len(cut))] == pytest.approx(inside[int(share * len(inside))], abs=2e-3)


@given(
    st.sampled_from(["0.2..0.9", "normal(0.5, 0.3)", "lognormal(0.5, 0.6)", "triangular(0.1, 0.2, 0.9)"]),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)
def test_quantiles_rise_and_stay_inside(text, one, other):
    distribution = uncertain(text)
    low, high = sorted((one, other))
    a, b = (distribution.quantile(u, 0.05, 0.95) for u in (low, high))
    assert 0.05 <= a <= b <= 0.95


@pytest.mark.parametrize(
    "text", ["0.7..0.7", "0.7 ± 0", "triangular(0.7, 0.7, 0.7)", "lognormal(0.7, 0)", "choice(0.7)"]
)
def test_a_degenerate_distribution_gives_its_value_exactly(text):
    assert {uncertain(text).quantile(u, 0.0, 1.0) for u in (0.0, 0.3, 0.99)} == {0.7}


# --- draws ----------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(0, 2**40))
def test_every_stratum_is_met_once(samples, seed):
    shares = latin_hypercube({"x": Uncertain.uniform(0, 1)}, samples, seed)["x"]
    assert sorted(int(share * samples) for share in shares) == list(range(samples))


def test_draws_are_those_of_the_seed_and_the_name():
    x, y = uncertain("0..1"), uncertain("0..1")
    both = latin_hypercube({"x": x, "y": y}, 100, 7)
    assert both["x"] == latin_hypercube({"x": y}, 100, 7)["x"]
    assert both["x"] != both["y"]
    assert both["x"] != latin_hypercube({"x": x}, 100, 8)["x"]
    # The guaranteed sequence of Python's generator, on every platform.
    assert latin_hypercube({"x": x}, 4, 0)["x"] == pytest.approx(PINNED, rel=1e-12)


PINNED = [0.7528073666162897, 0.5039268747158616, 0.447818508286409, 0.15489693955691983]


def test_one_object_is_one_draw():
    same = uncertain("0..1")
    draws = latin_hypercube({"x": same, "y": same}, 50, 0)
    assert draws["x"] == draws["y"]


def test_names_are_independent_enough():
    draws = latin_hypercube({name: uncertain("0..1") for name in "ab"}, 1000, 0)
    mean = sum((a - 0.5) * (b - 0.5) for a, b in zip(draws["a"], draws["b"], strict=True)) / 1000
    assert abs(mean * 12) < 0.1


def test_parameters_are_documented():
    assert set(DISTRIBUTIONS) == {"uniform", "triangular", "normal", "lognormal", "choice"}
