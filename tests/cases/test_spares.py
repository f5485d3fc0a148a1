"""Waiting for spares over a run: limits, monotony, the integral against a fine one, and runs that are played."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.failures import ENDLESS, Length, Said, with_spares
from mlsysim.cases.goodput import PATIENCE, Saving, exact_goodput_of
from mlsysim.cases.spares import all_there, backs, present, repaired
from mlsysim.simulate.run.clocks import Cause, Times
from mlsysim.simulate.run.run import Setting, play_all

HOUR, DAY = 3600.0, 86400.0
WEIBULL = backs(((0.8, 150.0, 0.367), (0.2, 60.0, 0.651)))
EXPONENTIAL = backs(((1.0, 40.0, 1.0),))
BROKEN, SPARES, WORK = st.floats(0.01, 60), st.integers(0, 60), st.floats(0.01, 100)


def lognormal(shape: float) -> tuple[tuple[float, float], ...]:
    """E[min(R, t)] = Phi((ln t - mu - s^2) / s) + t (1 - Phi((ln t - mu) / s)) of a mean of 1."""
    mu, normal = -0.5 * shape**2, statistics.NormalDist()

    def before(t: float) -> float:
        z = (math.log(t) - mu) / shape
        return normal.cdf(z - shape) + t * (1 - normal.cdf(z))

    return tuple((t, before(t)) for t, _ in EXPONENTIAL)


# --- by hand and limits -----------------------------------------------------------------------------------------------


def test_repairs_before_a_time():
    for t in (0.1, 1.0, 30.0, 1e3):
        assert repaired(t / 40.0, 1.0) == pytest.approx(-math.expm1(-t / 40.0), rel=1e-9)
    # E[min(R, t)] = integral of exp(-(u/c)^q), c = mean / Gamma(1 + 1/q), in v = u^(1/3).
    for shape in (0.367, 0.651, 2.0):
        c, top, n = 155.0 / math.gamma(1 + 1 / shape), 500.0 ** (1 / 3), 4000
        steps = [(i + 0.5) * top / n for i in range(n)]
        fine = sum(3 * v**2 * math.exp(-((v**3 / c) ** shape)) for v in steps) * top / n
        assert 155.0 * repaired(500.0 / 155.0, shape) == pytest.approx(fine, rel=1e-5)
        assert repaired(1e7, shape) == pytest.approx(1.0, abs=1e-9)


def test_poisson_by_hand():
    assert all_there(2.0, 1) == pytest.approx(math.exp(-2) * 3)
    assert all_there(2.0, 60) == pytest.approx(1) and all_there(5e3, 10) == 0.0
    assert all_there(1e4, 10_100) == pytest.approx(0.84, abs=0.01)


def test_the_integral_is_that_of_a_fine_one():
    """No spare, exponential repairs, a run that lasts: the mean of exp(-b (1 - e^-t)) over its time."""
    for broken, most in ((3.0, 0.5), (0.7, 20.0), (8.0, 1.3)):
        n = 20_000
        fine = sum(math.exp(broken * math.expm1(-(i + 0.5) * most / n)) for i in range(n)) / n
        assert present((broken,), 0, EXPONENTIAL, math.inf, most) == pytest.approx(fine, rel=1e-3)


@given(BROKEN, WORK)
def test_with_spares_for_all_nobody_waits(broken, work):
    assert present((broken,), 400, WEIBULL, work, PATIENCE * work) == pytest.approx(1.0, abs=1e-12)


@given(st.floats(0.01, 20), st.integers(0, 40))
def test_a_run_without_end_is_that_of_the_long_run(broken, spares):
    exact = all_there(broken, spares)
    assert present((broken,), spares, WEIBULL, math.inf, math.inf) == pytest.approx(exact, rel=1e-9)
    assert present((broken,), spares, WEIBULL, math.inf, 1e7) == pytest.approx(exact, rel=1e-3, abs=1e-4)


@given(st.floats(0.01, 20))
def test_a_short_run_has_all_its_nodes(broken):
    assert present((broken,), 0, WEIBULL, 1e-6, 1e-5) == pytest.approx(1.0, abs=1e-4)


# --- monotony -----------------------------------------------------------------------------------------------------------


@given(BROKEN, SPARES, WORK, st.floats(1.01, 10))
def test_more_spares_fewer_failures_and_shorter_runs_never_hurt(broken, spares, work, factor):
    share = present((broken,), spares, WEIBULL, work, PATIENCE * work)
    slack = 1e-12
    assert all_there(broken, spares) - 1e-9 <= share <= 1
    assert present((broken,), spares + 1, WEIBULL, work, PATIENCE * work) >= share - slack
    assert present((broken / factor,), spares, WEIBULL, work, PATIENCE * work) >= share - slack
    assert present((broken,), spares, WEIBULL, work / factor, PATIENCE * work / factor) >= share - slack
    assert present((broken, broken), spares, WEIBULL, work, PATIENCE * work) <= share + slack


@given(st.floats(1.0, 300), SPARES, st.floats(1.0, 300), st.floats(1.01, 5))
def test_repairs_that_are_longer_never_help(mtbf, spares, days, factor):
    """Of the same run and rate; times that P is taken at move with the repair, so that it holds to the error of the integral."""
    kept = exact_goodput_of(mtbf, Saving(3.0, 347.0))
    quick, slow = (
        with_spares(kept, (mtbf,), Said(spares=spares, repair=hours), Length(days * DAY)).ratio
        for hours in (20.0, 20.0 * factor)
    )
    assert slow <= quick * (1 + 1e-3) and with_spares(kept, (mtbf,), Said(), ENDLESS) is kept


@given(st.floats(1.0, 100), st.integers(0, 40), st.floats(1.0, 300))
def test_shares_add_up_and_a_run_ends_within_ten_times_its_work_or_not_at_all(mtbf, spares, days):
    kept = exact_goodput_of(mtbf, Saving(3.0, 347.0))
    found = with_spares(kept, (mtbf,), Said(spares=spares), Length(days * DAY))
    assert found.ratio == pytest.approx(kept.ratio * (1 - found.waiting)) and found.ratio <= kept.ratio + 1e-12
    assert found.ratio >= 0.0 and (found.lasting or found.ratio <= 1 / PATIENCE * (1 + 1e-9))


def test_an_array_is_as_its_numbers():
    numpy = pytest.importorskip("numpy")
    broken, work = numpy.array([0.5, 4.0, 40.0]), numpy.array([3.0, 0.2, 1.0])
    all_of_them = present((broken,), 6, WEIBULL, work, PATIENCE * work)
    each = [present((float(b),), 6, WEIBULL, float(w), PATIENCE * float(w)) for b, w in zip(broken, work, strict=True)]
    assert all_of_them == pytest.approx(each, rel=1e-12)


# --- against runs that are played ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "shape", "back"), [
    ("exponential", 1.0, EXPONENTIAL),
    ("lognormal", 1.2, lognormal(1.2)),
    ("weibull", 0.6, backs(((1.0, 1.0, 0.6),))),
])  # fmt: skip
@pytest.mark.parametrize(("spares", "days"), [(5, 10), (9, 10), (9, 60), (14, 60), (30, 60)])
def test_the_mean_over_runs_that_are_played(family, shape, back, spares, days):
    """Ten nodes in repair in the long run: the useful share of runs that last, to three standard errors of its mean."""
    mtbf, repair = 4.0, 40.0
    kept = exact_goodput_of(mtbf, Saving(20.0, 400.0))
    causes = (Cause("all", 1 / (mtbf * HOUR), ((1, 1.0),), Times(family, repair * HOUR, shape)),)
    run = Setting(math.inf, causes, float(kept.interval), 20.0, 400.0, 100.0, 64, lasts=days * DAY, spares=spares)
    played = [each.goodput for each in play_all(run, 2400 // days).runs]
    error = statistics.stdev(played) / math.sqrt(len(played))
    predicted = kept.waiting_for(present((10.0,), spares, back, math.inf, days * 24 / repair)).ratio
    assert statistics.fmean(played) == pytest.approx(predicted, abs=3 * error) and error < 0.03
