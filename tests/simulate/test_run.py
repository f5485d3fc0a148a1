"""Runs over time: against the exact form, the ledger of their time, and what each mechanism does, on small cases by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.goodput import Saving, exact_goodput_of
from mlsysim.plans.run_advice import fewest_spares
from mlsysim.simulate.draws import Draws
from mlsysim.simulate.run.clocks import FAMILIES, Cause, Clock, Times
from mlsysim.simulate.run.nodes import Again, Nodes
from mlsysim.simulate.run.record import AGAIN, RESTARTS, SLOWER, STOPPED, WRITES, many
from mlsysim.simulate.run.run import FEWER, MAINTENANCE, PAUSE, SLOW, Setting, Slow, play, play_all

HOUR, DAY = 3600.0, 86400.0


def setting(mtbf: float = 3 * HOUR, **more: object) -> Setting:
    given = {"work": 20 * DAY, "write": 20.0, "restart": 400.0, "planned": 100.0, "nodes": 64, "lag": 0.0} | more
    kept = exact_goodput_of(mtbf / HOUR, Saving(given["write"], given["restart"], None, given["lag"]))
    return Setting(**({"causes": (Cause("all", 1 / mtbf),), "interval": float(kept.interval)} | given))


def shares(runs: object, kind: str) -> float:
    return sum(run.by(1).get(kind, 0.0) for run in runs.runs) / sum(run.seconds for run in runs.runs)


@pytest.mark.parametrize(
    ("hours", "write", "restart", "lag"),
    [(3.09, 2.84, 347.0, 0.0), (1.0, 60.0, 900.0, 0.0), (0.5, 20.0, 600.0, 100.0), (24.0, 5.0, 300.0, 60.0)],
)
def test_exponential_failures_and_a_node_at_hand_are_the_exact_form(hours, write, restart, lag):
    """Useful share within 0.3 %, and writes, work done again and restarts each within half a point of the time."""
    days = min(60, 30 * hours)
    runs = play_all(setting(hours * HOUR, write=write, restart=restart, lag=lag, work=days * DAY), 40)
    exact = exact_goodput_of(hours, Saving(write, restart, None, lag))
    mean = sum(run.work for run in runs.runs) / sum(run.seconds for run in runs.runs)
    assert mean == pytest.approx(exact.ratio, rel=0.003)
    for kind, share in ((WRITES, exact.writes), (AGAIN, exact.rework), (RESTARTS, exact.restarts)):
        assert shares(runs, kind) == pytest.approx(share, abs=0.005)


BROKEN = (Cause("parts", 1 / (5 * HOUR), ((1, 0.9), (4, 0.1)), Times("lognormal", 40 * HOUR, 1.5)), Cause("bugs", 1e-5))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([None, 0, 3, 40]),
    st.booleans(),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_every_second_has_a_cause(seed, spares, elastic, crews, troubled):
    more = {}
    if troubled:
        more = {"maintenance": (2 * HOUR, 5 * DAY), "slow": Slow(1.5, HOUR, 2 * DAY), "persist": 3 * HOUR}
        more["hours"] = lambda seed: lambda t: ((1.0, 0.5, 0.0)[int(t // HOUR) % 3], (t // HOUR + 1) * HOUR)
    again = Again(0.5, Times("gamma", 100 * HOUR, 0.3))
    spans: list = []
    plan = setting(
        causes=BROKEN, spares=spares, elastic=elastic, crews=crews, again=again, replicas=16, lag=30.0, **more
    )
    run = play(plan, seed, spans)
    assert math.fsum(run.parts.values()) == pytest.approx(run.seconds, rel=1e-9)
    assert all(seconds >= 0 for seconds in run.parts.values())
    assert spans[0].start == 0 and spans[-1].end == pytest.approx(run.seconds)
    assert all(one.end == pytest.approx(other.start) for one, other in pairwise(spans))
    assert play(plan, seed) == run


def test_more_spares_crews_and_elastic_runs_end_no_later():
    def median(**more: object) -> float:
        return play_all(setting(causes=BROKEN, replicas=16, **more), 15).seconds.levels["p50"]

    few, some, enough, outside = (median(spares=k) for k in (6, 12, 60, None))
    assert few > some > enough == pytest.approx(outside, rel=0.01)
    assert median(spares=12, crews=8) > some
    assert outside < median(spares=6, elastic=True) < few


def test_a_single_failure_by_hand():
    """Two hours of work, saved every 30 minutes in 60 s; a node that is back after an hour."""
    base = setting(causes=(), work=2 * HOUR, interval=1800.0, write=60.0)
    assert play(base, 0).seconds == 2 * HOUR + 3 * 60
    failing = base._replace(causes=(Cause("once", 1 / (20 * HOUR)),))
    seed = next(s for s in range(100) if Clock(failing.causes, Draws(s, "failures")).after(0.0) < 2 * HOUR)
    at = Clock(failing.causes, Draws(seed, "failures")).after(0.0)
    run = play(failing, seed)
    done = int(at / 1860) * 1800.0 + min(at % 1860, 1800.0)
    assert run.interruptions == {"once": 1}
    assert run.lost["once", RESTARTS] == pytest.approx(400)
    assert run.lost["once", AGAIN] == pytest.approx(done % 1800.0 + max(at % 1860 - 1800.0, 0.0))


def test_planned_stops_slow_nodes_pauses_and_caps():
    base = setting(causes=(), work=10 * DAY)
    plain = play(base, 0).seconds
    kept = play(base._replace(maintenance=(2 * HOUR, 3 * DAY)), 0)
    assert kept.lost[MAINTENANCE, STOPPED] == 3 * 2 * HOUR and kept.lost[MAINTENANCE, RESTARTS] == 3 * 100
    slow = play(base._replace(slow=Slow(2.0, HOUR, DAY)), 0)
    assert slow.lost[SLOW, SLOWER] / slow.seconds == pytest.approx(0.02, rel=0.7)
    capped = play(base._replace(hours=lambda seed: lambda t: (0.8, math.inf)), 0)
    assert capped.computing == pytest.approx(10 * DAY / 0.8) and capped.seconds > plain / 0.8 * 0.99

    def night(t: float) -> tuple[float, float]:
        return (0.0 if t % DAY < DAY / 2 else 1.0), (t // (DAY / 2) + 1) * DAY / 2

    paused = play(base._replace(hours=lambda seed: night), 0)
    assert paused.lost[PAUSE, STOPPED] == pytest.approx(paused.seconds / 2, rel=0.06)


def test_elastic_runs_lose_the_replicas_that_lack():
    """One of 64 nodes is away from the first failure on: 15 of 16 replicas do the rest of half an hour's work."""
    causes = (Cause("parts", 1 / (5 * HOUR), ((1, 1.0),), Times("exponential", 1e12)),)
    plan = setting(causes=causes, spares=0, elastic=True, replicas=16, work=0.5 * HOUR, interval=60.0, write=0.0)
    run = next(each for each in (play(plan, seed) for seed in range(200)) if each.interruptions == {"parts": 1})
    before = run.seconds - run.lost["parts", RESTARTS] - run.lost[FEWER, SLOWER] * 16
    saved = before - run.lost["parts", AGAIN]
    assert run.lost[FEWER, SLOWER] == pytest.approx((0.5 * HOUR - saved) / 15)


@pytest.mark.parametrize("sizes", [((1, 1.0),), ((1, 0.9), (5, 0.1))])
def test_nodes_that_break_again_do_not_change_how_often_something_fails(sizes):
    """The rate counts them: a fifth of repaired nodes are back within a day, and runs of 30 days have 240 failures either way."""
    causes = (Cause("parts", 1 / (3 * HOUR), sizes, Times("weibull", 20 * HOUR, 0.5)),)
    counts = []
    for again in (None, Again(0.6, Times("gamma", 800 * HOUR, 0.27))):
        runs = play_all(setting(causes=causes, spares=200, again=again, lasts=30 * DAY, work=math.inf), 60).runs
        counts.append(sum(sum(run.interruptions.values()) for run in runs) / len(runs))
    assert counts[0] == pytest.approx(240, rel=0.03) and counts[1] == pytest.approx(counts[0], rel=0.04)


def test_copies_in_memory_are_lost_with_both_nodes():
    """Two nodes at a time of 3: both copies of one are always gone, and work since the file system's checkpoint with them."""
    causes = (Cause("racks", 1 / (10 * HOUR), ((2, 1.0),), Times("exponential", HOUR)),)
    base = setting(causes=causes, nodes=3, spares=9, interval=60.0, write=0.1)
    kept, lost = play_all(base, 10), play_all(base._replace(persist=4 * HOUR), 10)
    assert shares(lost, AGAIN) > 10 * shares(kept, AGAIN)


@pytest.mark.parametrize(("family", "shape"), [(family, 0.7) for family in FAMILIES])
def test_times_have_their_mean(family, shape):
    draws, times = Draws(1, "times"), Times(family, 5.0, shape)
    assert sum(times.draw(draws) for _ in range(20_000)) / 20_000 == pytest.approx(5.0, rel=0.05)


def test_old_parts_fail_more_often_where_the_shape_is_above_one():
    """L(t) = r a ((1 + t/a)^k - 1) / k: a fleet of a year, shape 2, has 1.5 times as many failures in a year."""
    causes, year = (Cause("all", 1 / HOUR),), 8760 * HOUR
    clock, t, count = Clock(causes, Draws(5, "failures"), age=year, shape=2.0), 0.0, 0
    while (t := clock.after(t)) < year:
        count += 1
    assert count == pytest.approx(1.5 * 8760, rel=0.03)


def test_the_first_that_lacks_a_node_gets_the_first_that_comes_back():
    nodes = Nodes(0, 1, None, Draws(0, "repairs"))
    own, other = (Cause("a", 1.0, ((1, 1.0),), Times("exponential", 10.0), stops=stops) for stops in (True, False))
    nodes.breaks(0.0, other, 1)
    nodes.breaks(0.0, own, 1)
    assert (nodes.broken, nodes.lacking) == (2, 1)
    assert nodes.happens(nodes.next) is None and nodes.lacking == 1
    assert nodes.happens(nodes.next) is None and (nodes.broken, nodes.lacking, nodes.next) == (0, 0, math.inf)


def test_percentiles_of_runs():
    found = many([float(n) for n in range(100)])
    assert found.levels == {"p10": 10, "p50": 50, "p90": 90} and found.mean == 49.5
    assert found.errors["p50"] == pytest.approx(8.5, abs=0.6)


def test_a_run_that_waits_for_its_hours_ends():
    """What it gives way is no part of the ten times its work after which a run has no end; failures that leave nothing are."""
    daily = 24 * HOUR

    def one_hour_a_day(t: float) -> tuple[float, float]:
        day, hour = divmod(t, daily)
        return (1.0, day * daily + HOUR) if hour < HOUR else (0.0, (day + 1) * daily)

    held = setting(1e9 * HOUR, work=10 * HOUR, interval=HOUR, hours=lambda seed: one_hour_a_day)
    found = play(held, 0)
    assert found.ended and found.seconds > 8 * DAY and found.goodput > 0.9
    assert not play(setting(60.0, work=10 * HOUR), 0).ended


@pytest.mark.parametrize("elastic", [False, True])
def test_a_run_that_never_lacked_a_node_is_the_same_with_as_many_spares_as_were_broken(elastic):
    """What a search of spares plays once for all numbers above the most that were broken at once."""
    cause = Cause("all", 1 / (2 * HOUR), ((1, 0.8), (3, 0.2)), Times("gamma", DAY, 0.7))
    run = setting(
        causes=(cause,), work=4 * DAY, again=Again(0.2, Times("exponential", DAY)), elastic=elastic, spares=99
    )
    for seed in range(4):
        free = play(run, seed)
        assert 0 < free.broken < 99
        assert play(run._replace(spares=free.broken), seed) == free
        assert play(run._replace(spares=free.broken - 1), seed) != free


@pytest.mark.parametrize("slack", [1.02, 1.2, 1.6])
def test_the_fewest_spares_are_those_that_playing_every_number_finds(slack):
    cause = Cause("all", 1 / (4 * HOUR), ((1, 1.0),), Times("exponential", DAY))
    run = setting(causes=(cause,), work=4 * DAY, nodes=32)
    limit = play_all(run, 24).seconds.levels["p90"] * slack
    run = run._replace(patience=limit / run.work * (1 + 1e-9))
    fits = [play_all(run._replace(spares=n), 24).seconds.levels["p90"] <= limit for n in range(30)]
    assert fewest_spares(run, limit, 24) == fits.index(True)
