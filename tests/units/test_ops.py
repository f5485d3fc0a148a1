"""The functions of ops.py give one answer for floats, arrays and quantities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.units import ops
from mlsysim.units.registry import Q_, DimensionalityError, Quantity

NUMBERS = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)
POSITIVE = st.floats(min_value=1e-6, max_value=1e6)
SMALL = st.floats(min_value=-100, max_value=100, allow_nan=False)


def magnitude(value):
    return value.to("").magnitude if isinstance(value, Quantity) else value


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@given(a=NUMBERS, b=NUMBERS)
def test_extremes_agree(name, a, b):
    function = getattr(ops, name)
    expected = {"maximum": max, "minimum": min}[name](a, b)
    assert function(a, b) == expected
    assert function(np.array([a, b]), np.array([b, a])).tolist() == [expected, expected]
    assert function(np.array([a]), b).tolist() == function(a, np.array([b])).tolist() == [expected]
    assert function(Q_(a, "GB"), Q_(b, "GB")) == Q_(expected, "GB")


@given(a=NUMBERS, b=NUMBERS, condition=st.booleans())
def test_where_agrees(a, b, condition):
    expected = a if condition else b
    assert ops.where(condition, a, b) == expected
    assert ops.where(np.array([condition, not condition]), a, b).tolist() == [expected, b if condition else a]
    assert ops.where(condition, Q_(a, "s"), Q_(b, "s")) == Q_(expected, "s")
    assert ops.where(Q_(1, "GB") > Q_(1, "MB"), a, b) == a


@pytest.mark.parametrize(
    ("name", "domain", "oracle"),
    [
        ("ceil", NUMBERS, math.ceil),
        ("floor", NUMBERS, math.floor),
        ("log", POSITIVE, math.log),
        ("log2", POSITIVE, math.log2),
        ("exp", SMALL, math.exp),
        ("expm1", SMALL, math.expm1),
        ("sqrt", POSITIVE, math.sqrt),
    ],
)
@given(data=st.data())
def test_functions_of_one_argument_agree(name, domain, oracle, data):
    x, function = data.draw(domain), getattr(ops, name)
    expected = pytest.approx(oracle(x), rel=1e-12, abs=1e-12)
    assert function(x) == expected
    assert function(np.array([x, x])).tolist() == [expected, expected]
    assert magnitude(function(Q_(x))) == expected
    assert magnitude(function(Q_(np.array([x])))).tolist() == [expected]


@pytest.mark.parametrize("name", ["ceil", "floor", "log", "log2", "exp", "expm1"])
def test_functions_of_counts_refuse_a_dimension_and_see_through_prefixes(name):
    function = getattr(ops, name)
    with pytest.raises(DimensionalityError):
        function(Q_("3 GB"))
    assert function(Q_("2.5 kparam") / 1000) == pytest.approx(function(2.5))


def test_extremes_and_where_refuse_different_dimensions_and_convert_units():
    for function in (ops.maximum, ops.minimum, lambda a, b: ops.where(True, a, b)):
        with pytest.raises(DimensionalityError):
            function(Q_("1 GB"), Q_("1 s"))
        with pytest.raises(DimensionalityError):
            function(Q_("1 GB"), 1.0)
        with pytest.raises(DimensionalityError):
            function(1.0, Q_("1 GB"))
    assert ops.maximum(Q_("1 GB"), Q_("1 GiB")) == Q_("1 GiB")
    assert ops.minimum(Q_("1 h"), Q_("30 min")).to("min").magnitude == pytest.approx(30)
    assert ops.where(False, Q_("1 h"), Q_("30 min")).to("min").magnitude == pytest.approx(30)


def test_square_root_takes_the_root_of_the_unit():
    assert ops.sqrt(Q_("9 s**2")) == Q_("3 s")


@given(x=POSITIVE, exponent=st.floats(min_value=-3, max_value=3))
def test_power_agrees(x, exponent):
    expected = pytest.approx(x**exponent, rel=1e-9)
    assert ops.power(x, exponent) == expected
    assert ops.power(np.array([x]), exponent).tolist() == [expected]
    assert ops.power(Q_(x), Q_(exponent)) == expected


def test_root_of_a_negative_number_is_not_a_number_either_way():
    assert math.isnan(ops.power(-2.0, 0.5))
    with np.errstate(invalid="ignore"):
        assert np.isnan(ops.power(np.array([-2.0]), 0.5)).all()


def test_small_exponents_keep_their_digits():
    assert ops.expm1(1e-18) == 1e-18


def test_power_refuses_dimensions():
    with pytest.raises(DimensionalityError):
        ops.power(Q_("2 s"), 2)
    with pytest.raises(DimensionalityError):
        ops.power(2, Q_("2 s"))


def test_floats_stay_floats():
    for value in (ops.ceil(2.1), ops.floor(2.1), ops.log(2.0), ops.sqrt(4.0), ops.maximum(1.0, 2.0)):
        assert type(value) is float


def test_every_exported_name_is_tested_here():
    tested = {"ceil", "floor", "log", "log2", "exp", "expm1", "sqrt"}
    assert set(ops.__all__) == tested | {"maximum", "minimum", "where", "power", "taken", "some", "either"}


def test_taken_elements_of_an_array_and_numbers_that_all_share():
    assert ops.taken(np.array([1.0, 2.0, 3.0]), [2, 0]).tolist() == [3.0, 1.0]
    assert ops.taken(7.0, [2, 0]) == 7.0


def test_some_holds_where_one_of_an_array_does():
    assert ops.some(True) and not ops.some(False)
    assert ops.some(np.array([False, True])) and not ops.some(np.array([False, False]))
    assert ops.taken((np.array([1.0, 2.0]), None, 3), [1]) == (2.0, None, 3)


@given(values=st.lists(NUMBERS, min_size=1, max_size=20), other=NUMBERS, kind=st.sampled_from(["array", "number"]))
def test_either_is_where_and_sees_its_own_points_alone(values, other, kind):
    seen = {"yes": 0, "no": 0}

    def yes(x, pair):
        seen["yes"] += np.size(x)
        assert np.all(x > 0)
        return 2 * x + pair[0]

    def no(x, pair):
        seen["no"] += np.size(x)
        assert not np.any(x > 0)
        return pair[1] - x

    x = np.array(values)
    pair = (other, x - other if kind == "array" else 3.0)
    expected = np.where(x > 0, 2 * x + pair[0], pair[1] - x)
    assert ops.either(x > 0, yes, no, x, pair).tolist() == expected.tolist()
    assert seen == {"yes": int((x > 0).sum()), "no": int((x <= 0).sum())}
    assert [ops.either(v > 0, yes, no, v, (other, 3.0)) for v in values] == [
        2 * v + other if v > 0 else 3.0 - v for v in values
    ]


def test_either_evaluates_both_where_points_cannot_be_taken():
    values = np.array([1.0, -1.0])
    found = ops.either(values > 0, lambda x: x + 1, lambda x: x - 1, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert found.tolist() == [[2.0, 1.0], [4.0, 3.0]]
