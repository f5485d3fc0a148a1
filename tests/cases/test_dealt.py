"""What comes to one of many replicas that take turns, beside sums of the probabilities of sums of exponential gaps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.dealt import ALONE, Dealt

TIMES = (0.05, 0.2, 0.5, 0.8, 1.0, 1.3, 1.7, 2.0, 3.0, 5.0)


def poisson(count, mean):
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def renewals(k, x):
    """Mean number of arrivals in ``x`` mean gaps after one."""
    return sum(n // k * poisson(n, k * x) for n in range(k, int(k * x + 12 * math.sqrt(k * x + 1) + 20)))


@pytest.mark.parametrize("k", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("x", TIMES)
def test_the_chance_that_nobody_comes_is_that_of_a_sum_of_gaps(k, x):
    one, counts = Dealt(float(k)), range(k)
    assert one.nobody_after(x) == pytest.approx(sum(poisson(n, k * x) for n in counts), abs=0.004)
    assert one.nobody(x) == pytest.approx(sum((1 - n / k) * poisson(n, k * x) for n in counts), abs=0.004)


@pytest.mark.parametrize("k", [2, 3, 4, 8])
@pytest.mark.parametrize("x", TIMES)
def test_others_are_those_of_a_renewal_process(k, x):
    one, parts = Dealt(float(k)), 100
    others = 2 / parts * sum(renewals(k, (n + 0.5) * x / parts) for n in range(parts))
    assert one.others(x) == pytest.approx(others, abs=1e-4 if k == 2 else 0.05)
    assert one.after(x) == pytest.approx(renewals(k, x), abs=1e-4 if k == 2 else 0.06)


@settings(max_examples=100, deadline=None)
@given(st.floats(1, 500), st.floats(1e-6, 50))
def test_of_more_replicas_fewer_meet_and_nothing_is_less_than_none(k, x):
    one, more = Dealt(k), Dealt(k + 1)
    assert min(x, 1.0) >= more.somebody(x) >= -math.expm1(-x) - 1e-12
    assert 0 <= more.others(x) <= one.others(x) + 1e-9 and one.others(x) <= x
    assert 0 <= one.after(x) <= x and 0 <= one.follows(x) <= 1
    assert one.queued(0.7, 0.3) <= 1.3


def test_one_replica_is_a_random_stream_and_arrays_are_each_of_them():
    assert (ALONE.others(0.7), ALONE.after(0.7), ALONE.follows(0.7), ALONE.queued(0.5, 0.2)) == (0.7, 0.7, 1.0, 1.2)
    assert ALONE.nobody(0.7) == ALONE.nobody_after(0.7) == math.exp(-0.7)
    many = Dealt(np.array([1.0, 2.0, 5.0]))
    for name in ("somebody", "nobody", "nobody_after", "others", "after", "follows"):
        one_by_one = [getattr(Dealt(k), name)(0.7) for k in (1.0, 2.0, 5.0)]
        assert getattr(many, name)(0.7) == pytest.approx(one_by_one)
