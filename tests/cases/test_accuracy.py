"""Accuracy of compressed models: published, given, or unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError
from mlsysim.cases.accuracy import from_curve, published, read_curve


def test_published_ranges_are_ordered_and_sourced():
    for case in (("int", 8, True), ("fp", 8, True), ("int", 8, False), ("int", 4, False), ("2:4", 0.5)):
        change = published(case)
        low, high = change.range
        assert low < change.middle < high <= 0
        assert change.source


def test_the_model_cards_behind_the_ranges():
    assert published(("int", 4, False)).range == pytest.approx((0.961 - 1, 86.01 / 86.63 - 1), abs=1e-4)
    assert published(("int", 8, False)).range == pytest.approx((77.90 / 79.18 - 1, 68.54 / 68.69 - 1), abs=1e-4)
    assert published(("unstructured", 0.5)).range == pytest.approx((41.30 / 43.94 - 1, 69.65 / 71.04 - 1), abs=1e-4)
    assert published(("2:4", 0.5)).range == pytest.approx((38.99 / 43.94 - 1, 67.08 / 71.04 - 1), abs=1e-4)


def test_what_was_not_measured_is_unknown():
    assert published(("int", 2, False)).middle is None
    assert published(("unstructured", 0.9)).range is None


def test_a_curve_is_interpolated_between_its_points_and_unknown_outside():
    curve = read_curve([(8, 0.0), (4, -0.02), (3, -0.10)])
    assert from_curve(curve, 4).middle == pytest.approx(-0.02)
    assert from_curve(curve, 6).middle == pytest.approx(-0.01)
    assert from_curve(curve, 3.5).middle == pytest.approx(-0.06)
    assert from_curve(curve, 2).middle is None
    assert from_curve(curve, 16).middle is None


def test_a_curve_of_one_point():
    assert from_curve(read_curve([(4, -0.02)]), 4).middle == -0.02


@pytest.mark.parametrize("bad", ["4: -1", [], 3, [(4,)], [(4, "x")], [(4, float("nan"))], [(4, 1), (4, 2)], [4, 8]])
def test_a_bad_curve_is_refused(bad):
    with pytest.raises(InputError, match="accuracy_curve"):
        read_curve(bad)


@given(st.floats(2, 16), st.floats(2, 16))
def test_a_rising_curve_rises(a, b):
    curve = read_curve([(2, -0.5), (4, -0.05), (8, -0.01), (16, 0.0)])
    low, high = sorted((a, b))
    assert from_curve(curve, low).middle <= from_curve(curve, high).middle + 1e-12
