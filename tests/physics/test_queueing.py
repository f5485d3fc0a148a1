"""Queueing kernels against exact recursions, closed forms and simulation."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.physics import queueing as q
from mlsysim.units.kernel import KERNELS, prove


def exact_erlang_c(servers: int, rho: Fraction) -> Fraction:
    """The textbook sum, in exact arithmetic."""
    a = rho * servers
    term, total = Fraction(1), Fraction(0)
    for k in range(servers):
        total += term
        term = term * a / (k + 1)
    last = term / (1 - rho)
    return last / (total + last)


def recursive_log_erlang_c(servers: int, rho: float) -> float:
    """Erlang B by its recursion in log space, then C = B / (1 - rho (1 - B))."""
    a, log_b = rho * servers, 0.0
    for k in range(1, servers + 1):
        step = math.log(k / a) - log_b
        log_b = -(step + math.log1p(math.exp(-step)) if step > 0 else math.log1p(math.exp(step)))
    return log_b - math.log(1 - rho * (1 - math.exp(log_b)))


@pytest.mark.parametrize("name", [name for name in KERNELS if "queueing" in name])
def test_units_of_every_kernel_bind(name):
    prove(KERNELS[name])


@pytest.mark.parametrize("servers", [1, 2, 3, 10, 50, 200])
@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(1, 2), Fraction(4, 5), Fraction(99, 100)])
def test_erlang_c_is_the_textbook_sum(servers, rho):
    exact = exact_erlang_c(servers, rho)
    log_exact = math.log(exact.numerator) - math.log(exact.denominator)
    assert q.log_erlang_c(servers, float(rho)) == pytest.approx(log_exact, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("servers", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("rho", [0.1, 0.5, 0.9, 0.99, 0.999, 0.99999])
def test_erlang_c_in_log_space_to_a_hundred_thousand_servers(servers, rho):
    assert q.log_erlang_c(servers, rho) == pytest.approx(recursive_log_erlang_c(servers, rho), rel=1e-12, abs=1e-9)


def test_one_server_waits_with_probability_rho():
    assert q.erlang_c(1, 0.7) == pytest.approx(0.7, rel=1e-12)


def test_all_wait_at_full_load():
    assert q.erlang_c(10, 1.0) == pytest.approx(1.0, rel=1e-10)
    assert q.erlang_c(10, 3.0) == pytest.approx(1.0, rel=1e-10)


@given(st.integers(1, 5000), st.floats(0.01, 0.99), st.floats(1.0001, 1.2))
def test_more_load_waits_more_and_more_servers_wait_less(servers, rho, factor):
    here = q.log_erlang_c(servers, rho)
    assert here <= q.log_erlang_c(servers, min(rho * factor, 1.0)) + 1e-9
    assert q.log_erlang_c(servers + 1, rho) <= here + 1e-9


def test_mean_waits():
    # M/M/1: rho S / (1 - rho); M/D/1: half of it; ratio over load 0.9 and 0.5: 9, and 16.2 for the queue (P19).
    assert q.mmc_wait(0.5, 1.0, 1) == pytest.approx(1.0)
    assert q.md1_wait(0.5, 1.0) == pytest.approx(0.5)
    assert q.mgc_wait(0.5, 1.0, 1, 0.0) == pytest.approx(0.5)
    assert q.mgc_wait(0.5, 1.0, 1, 1.0) == pytest.approx(1.0)
    assert q.mgc_wait(0.5, 1.0, 1, 2.0) == pytest.approx(2.5)
    assert q.md1_wait(0.9, 1.0) / q.md1_wait(0.5, 1.0) == pytest.approx(9.0)
    long, short = (q.little_queue(rate, q.md1_wait(rate, 1.0)) for rate in (0.9, 0.5))
    assert long / short == pytest.approx(16.2)


def test_an_unstable_queue_waits_without_end():
    assert q.mmc_wait(10.0, 1.0, 10) == math.inf
    assert q.mgc_wait(12.0, 1.0, 10, 0.0) == math.inf
    assert q.md1_wait(1.0, 1.0) == math.inf


@given(st.floats(1e-3, 1e4))
def test_load_for_a_wait_inverts_the_wait(wait):
    rho = q.md1_load_for_wait(wait, 2.0)
    assert q.md1_wait(rho / 2.0, 2.0) == pytest.approx(wait, rel=1e-6)


def test_arrays_and_floats_agree():
    draw = np.random.default_rng(3)
    servers = draw.integers(1, 2000, 1000)
    rate = draw.uniform(0.1, 1.2, 1000) * servers
    for kernel, inputs in (
        (q.mmc_wait, (rate, 1.0, servers)),
        (q.mgc_wait, (rate, 1.0, servers, 0.5)),
    ):
        together = kernel(*inputs)
        rows = zip(*(np.broadcast_to(x, 1000) for x in inputs), strict=True)
        one_by_one = [kernel(*(x.item() for x in row)) for row in rows]
        np.testing.assert_allclose(together, one_by_one, rtol=1e-9)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_constant_service_on_ten_servers_against_simulation(rho):
    # First come first served with equal services: a job starts when the job ten places before it ends.
    draw = random.Random(11)
    ends, now, waits = [0.0] * 10, 0.0, 0.0
    count = 300_000
    for i in range(count):
        now += draw.expovariate(10 * rho)
        start = max(now, ends[i % 10])
        ends[i % 10] = start + 1.0
        waits += start - now
    assert q.mgc_wait(10 * rho, 1.0, 10, 0.0) == pytest.approx(waits / count, rel=0.05)
