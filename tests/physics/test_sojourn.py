"""Percentiles of wait and service against closed forms and a discrete-event simulation."""

import heapq
import math
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.physics.sojourn import Sojourn

CUSTOMERS = 200_000


@cache
def simulated(servers: int, rho: float, cv: float, seed: int = 2027) -> list[float]:
    """Times in system of customers who take the first free server, sorted; mean service 1."""
    draw = random.Random(seed)
    shape = 1 / cv**2 if cv else None
    free, now, times = [0.0] * servers, 0.0, []
    for _ in range(CUSTOMERS):
        now += draw.expovariate(servers * rho)
        start = max(now, heapq.heappop(free))
        end = start + (1.0 if shape is None else draw.gammavariate(shape, 1 / shape))
        heapq.heappush(free, end)
        times.append(end - now)
    return sorted(times)


def at(times: list[float], fraction: float) -> float:
    return times[int(len(times) * fraction)]


@pytest.mark.parametrize(("rho", "ratio"), [(0.5, 4.61), (0.8, 4.95), (0.95, 10.21)])
def test_p99_of_ten_servers(rho, ratio):
    assert Sojourn(10, rho).percentile(0.99) == pytest.approx(ratio, abs=0.005)


@given(st.floats(0.001, 0.99), st.floats(0.01, 0.9999))
def test_one_server_has_a_closed_form(rho, fraction):
    assert Sojourn(1, rho).percentile(fraction) == pytest.approx(-math.log(1 - fraction) / (1 - rho), rel=1e-9)


@pytest.mark.parametrize(
    ("servers", "rho"), [(1, 0.3), (2, 0.3), (10, 0.3), (50, 0.3), (10, 0.7), (50, 0.7), (10, 0.8), (50, 0.8)]
)
@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99])
def test_exponential_service_against_simulation(servers, rho, fraction):
    expected = at(simulated(servers, rho, 1.0), fraction)
    assert Sojourn(servers, rho).percentile(fraction) == pytest.approx(expected, rel=0.03)


def test_two_busy_servers_against_the_mean_of_several_simulations():
    # Long queues forget slowly: the P99 of one run of 200,000 customers scatters by 3.7 %, the mean of eight by 1.3 %.
    runs = [at(simulated(2, 0.8, 1.0, seed), 0.99) for seed in range(8)]
    assert Sojourn(2, 0.8).percentile(0.99) == pytest.approx(sum(runs) / len(runs), rel=0.03)


@pytest.mark.parametrize("cv", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_other_service_against_simulation(cv, rho):
    expected = at(simulated(10, rho, cv), 0.99)
    assert Sojourn(10, rho, cv).percentile(0.99) == pytest.approx(expected, rel=0.06)


def test_many_servers_leave_the_service_alone():
    for cv, fraction in ((1.0, 0.99), (1.0, 0.5)):
        alone = -math.log(1 - fraction)
        assert Sojourn(100_000, 0.9, cv).percentile(fraction) == pytest.approx(alone, rel=1e-9)
    assert Sojourn(100_000, 0.9, 0.0).percentile(0.99) == 1.0


def test_constant_service_waits_half_as_long():
    queue = Sojourn(10, 0.95, 0.0)
    rest = math.log(queue.wait_probability / 0.01)
    assert queue.percentile(0.99) == pytest.approx(1 + rest / (2 * 10 * 0.05))
    assert queue.tail(0.999) == 1.0


@pytest.mark.parametrize("rho", [0.2, 0.8, 0.99])
def test_gamma_service_joins_the_closed_forms_without_a_jump(rho):
    exponential = Sojourn(10, rho).percentile(0.99)
    for cv in (0.9999, 1.0001):
        assert Sojourn(10, rho, cv).percentile(0.99) == pytest.approx(exponential, rel=3e-4)
    constant = Sojourn(10, rho, 0.0).percentile(0.99)
    assert Sojourn(10, rho, 1e-3).percentile(0.99) == pytest.approx(constant, rel=3e-3)


def test_erlang_service_has_a_closed_form():
    # cv^2 = 1/2, no wait: two exponential phases of rate 2, P(T > x) = e^-2x (1 + 2x).
    queue = Sojourn(100_000, 0.5, math.sqrt(0.5))
    for x in (0.1, 1.0, 5.0):
        assert queue.tail(x) == pytest.approx(math.exp(-2 * x) * (1 + 2 * x), rel=1e-9)


def test_tail_of_one_server_is_exponential():
    # M/M/1: T is exponential with rate mu - lambda.
    for x in (0.1, 1.0, 10.0):
        assert Sojourn(1, 0.8).tail(x) == pytest.approx(math.exp(-0.2 * x), rel=1e-10)


def test_tail_has_no_singularity_where_both_rates_agree():
    # c (1 - rho) = 1: service and wait are equally fast. P = e^-t (1 + C t).
    waits = Sojourn(5, 0.8).wait_probability
    assert Sojourn(5, 0.8).tail(3.0) == pytest.approx(math.exp(-3.0) * (1 + 3 * waits), rel=1e-9)
    around = [Sojourn(5, 0.8 + d).tail(3.0) for d in (-2e-8, 0.0, 2e-8)]
    assert around == sorted(around)
    assert around[2] - around[0] < 1e-6


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 100_000),
    st.floats(0.001, 0.9999),
    st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0]),
    st.floats(0.01, 0.9999),
)
def test_percentiles_invert_the_tail_and_grow(servers, rho, cv, fraction):
    queue = Sojourn(servers, rho, cv)
    here = queue.percentile(fraction)
    assert math.isfinite(here) and here > 0
    assert queue.percentile(min(fraction + 1e-5, 0.99999)) >= here * (1 - 1e-9)
    if cv:
        assert queue.tail(here) == pytest.approx(1 - fraction, rel=1e-5)
    assert 0 <= queue.tail(here) <= 1


def test_wait_percentile_is_zero_where_few_wait():
    assert Sojourn(10, 0.1).wait_percentile(0.99) == 0.0
    queue = Sojourn(1, 0.5)
    assert queue.wait_percentile(0.99) == pytest.approx(math.log(50) / 0.5)
    assert queue.mean_wait == pytest.approx(1.0)
