"""The roofline: known answers, limits and signs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.physics.roofline import compute_time, memory_time, ridge_point, roofline_time
from mlsysim.units.kernel import evaluate

WORK = st.floats(min_value=1e6, max_value=1e18)
MOVED = st.floats(min_value=1e3, max_value=1e13)
PEAK = st.floats(min_value=1e9, max_value=1e16)
BANDWIDTH = st.floats(min_value=1e6, max_value=1e14)
EFFICIENCY = st.floats(min_value=0.01, max_value=1.0)
GROWTH = st.floats(min_value=1.001, max_value=100)


def test_known_answers():
    assert compute_time(989e12, 989e12, 0.5) == 2.0
    assert memory_time(3.35e12, 3.35e12) == 1.0
    assert ridge_point(989e12, 3.35e12) == pytest.approx(295.22, abs=0.01)
    assert roofline_time(989e12, 6.7e12, 989e12, 3.35e12, 1.0) == 2.0
    assert roofline_time(989e12, 6.7e12, 989e12, 3.35e12, 0.25) == 4.0


def test_decode_of_70_billion_parameters_on_an_h100():
    result = evaluate(
        roofline_time,
        operations="141.2 GFLOP",
        moved="141.2 GB",
        peak="989 TFLOPs/s",
        bandwidth="3.35 TB/s",
        efficiency=0.5,
    )
    assert result["time"].to("ms").magnitude == pytest.approx(42.149, abs=1e-3)


@given(WORK, MOVED, PEAK, BANDWIDTH, EFFICIENCY)
def test_roofline_is_the_longer_of_its_two_parts(work, moved, peak, bandwidth, efficiency):
    time = roofline_time(work, moved, peak, bandwidth, efficiency)
    parts = compute_time(work, peak, efficiency), memory_time(moved, bandwidth)
    assert time in parts and time >= max(parts)


@given(WORK, MOVED, PEAK, BANDWIDTH)
def test_the_ridge_point_decides_which_part_binds(work, moved, peak, bandwidth):
    intensity, ridge = work / moved, ridge_point(peak, bandwidth)
    if intensity > ridge * (1 + 1e-9):
        assert roofline_time(work, moved, peak, bandwidth, 1.0) == compute_time(work, peak, 1.0)
    elif intensity < ridge * (1 - 1e-9):
        assert roofline_time(work, moved, peak, bandwidth, 1.0) == memory_time(moved, bandwidth)


@given(MOVED, PEAK, BANDWIDTH)
def test_both_parts_are_equal_at_the_ridge(moved, peak, bandwidth):
    work = moved * ridge_point(peak, bandwidth)
    assert compute_time(work, peak, 1.0) == pytest.approx(memory_time(moved, bandwidth), rel=1e-12)


@given(WORK, MOVED, PEAK, BANDWIDTH, EFFICIENCY, GROWTH)
def test_more_work_takes_longer_and_better_hardware_shorter(work, moved, peak, bandwidth, efficiency, growth):
    base = roofline_time(work, moved, peak, bandwidth, efficiency)
    assert roofline_time(work * growth, moved, peak, bandwidth, efficiency) >= base
    assert roofline_time(work, moved * growth, peak, bandwidth, efficiency) >= base
    assert roofline_time(work, moved, peak * growth, bandwidth, efficiency) <= base
    assert roofline_time(work, moved, peak, bandwidth * growth, efficiency) <= base
    assert roofline_time(work, moved, peak, bandwidth, efficiency / growth) >= base
    assert roofline_time(work * growth, moved * growth, peak, bandwidth, efficiency) == pytest.approx(base * growth)
