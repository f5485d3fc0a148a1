"""Fleets that change or are spread: failures, autoscaling, other machines, processes, series and causes."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import pytest

from mlsysim.cases.traffic import Traffic
from mlsysim.simulate.changing import Growing
from mlsysim.simulate.requests import TOGETHER, Request
from mlsysim.simulate.serving import ROUTERS, Backlog, Failures, Scaling, Settings, Simulated, simulate, watched
from tests.simulate.test_replica import _engines, _poisson


def _requests(rate: float, count: int, prompt: int = 600, answer: int = 150, start: float = 0.0) -> list[Request]:
    return [
        Request(start + r.arrival, prompt, answer, str(number % 17))
        for number, r in enumerate(_poisson(rate, count, lambda d: 1))
    ]


def _played(rate: float, count: int, replicas: int = 2, **more: Any) -> Simulated:
    t = Traffic(600, 150, rate=rate, together=1.0, replicas=replicas)
    return simulate(_engines(), t, _requests(rate, count), count, Settings(**more))


def _conserved(seen: Simulated, count: int, prompt: int = 600, answer: int = 150) -> None:
    assert seen.requests == seen.spent.ended == count
    assert seen.spent.wrote == count * answer + seen.spent.lost
    assert seen.lost is not None
    waited = sum(seen.lost.values()) - seen.spent.of_requests
    assert waited >= -1e-6 and all(each >= 0 for each in seen.lost.values())
    assert seen.binds in seen.lost


@pytest.mark.parametrize("router", ["round_robin", "least_work", "session"])
@pytest.mark.parametrize("apart", [False, True])
def test_requests_of_replicas_that_fail_are_answered_by_others(router: str, apart: bool) -> None:
    machine = replace(_engines(), apart=apart)
    t = Traffic(600, 150, rate=8.0, together=1.0, replicas=3)
    requests = _requests(8.0, 2000)
    whole = simulate(machine, t, requests, 2000, Settings(router=router))
    chosen = Settings(router=router, failures=Failures(60.0, 20.0), seed=3)
    seen = simulate(machine, t, requests, 2000, chosen)
    _conserved(seen, 2000)
    assert seen.failed > 5 and seen.spent.lost > 0
    assert seen.percentiles["e2e"].p99 > whole.percentiles["e2e"].p99
    assert pickle.dumps(seen) == pickle.dumps(simulate(machine, t, requests, 2000, chosen))


def test_a_fleet_of_which_none_is_up_answers_later_and_more_help() -> None:
    lone, spared = (_played(4.0, 1000, many, failures=Failures(50.0, 30.0), seed=1) for many in (1, 3))
    for seen in (lone, spared):
        _conserved(seen, 1000)
    assert lone.lost is not None and lone.lost["cold start"] > 0
    assert spared.percentiles["ttft"].p99 < lone.percentiles["ttft"].p99


@pytest.mark.parametrize("apart", [False, True])
def test_one_that_stands_by_takes_the_place_of_one_that_fails(apart: bool) -> None:
    """It is not more than the service without a failure; two places are empty less often than one."""
    machine, requests = replace(_engines(), apart=apart), _requests(8.0, 3000)
    t = Traffic(600, 150, rate=8.0, together=1.0, replicas=2)
    found = []
    for spare in (None, 0, 1, 2):
        failures = None if spare is None else Failures(60.0, 30.0, spare)
        found.append(simulate(machine, t, requests, 3000, Settings(failures=failures, seed=3, router="least_work")))
    calm, lone, one, two = found
    for seen in (lone, one, two):
        _conserved(seen, 3000)
        assert seen.failed > 5 and seen.paid is not None
        assert seen.paid[0] == pytest.approx(2 * seen.seconds, rel=1e-6)
        assert seen.over_time is not None and max(seen.over_time.up) == 2
    assert calm.percentiles["e2e"].mean < two.percentiles["e2e"].mean
    if not apart:
        assert two.percentiles["e2e"].mean < one.percentiles["e2e"].mean < lone.percentiles["e2e"].mean


def test_a_service_grows_with_its_load_and_shrinks_after_it() -> None:
    calm = _requests(2.0, 800)
    storm = _requests(60.0, 9000, start=400.0)
    after = _requests(2.0, 1600, start=600.0)
    requests = sorted([*calm, *storm, *after])
    t = Traffic(600, 150, rate=2.0, together=1.0)
    grown = {}
    for by, target in (("utilisation", 0.1), ("rate", 15.0), ("requests", 24.0), ("queue", 1.0)):
        seen = simulate(
            _engines(), t, requests, len(requests),
            Settings(router="least_work", scaling=Scaling(6, 1, target, by, settle=60.0, start=20.0)),
        )  # fmt: skip
        _conserved(seen, len(requests))
        over = seen.over_time
        assert over is not None and max(over.up) > 2 and over.up[0] == 1 and over.up[-1] < max(over.up)
        assert 200 <= len(over.times) <= 400
        grown[by] = seen
    fixed = simulate(_engines(), replace(t, replicas=6), requests, len(requests), Settings(router="least_work"))
    seen = grown["requests"]
    assert seen.paid is not None and fixed.paid is None and seen.paid[0] < 0.6 * 6 * fixed.seconds
    assert seen.percentiles["ttft"].p99 > fixed.percentiles["ttft"].p99
    assert seen.lost is not None and seen.lost["cold start"] > 0


def test_a_service_by_its_rate_stays_as_large_as_an_even_load_needs() -> None:
    """Two replicas of the four have 10 requests a second each, whose target is 12; four, with which it begins, are two too many."""
    t = Traffic(600, 150, rate=20.0, together=1.0)
    chosen = Settings(router="least_work", scaling=Scaling(4, 1, 12.0, "rate", settle=60.0, start=20.0, first=4))
    seen = simulate(_engines(), t, _requests(20.0, 8000), 8000, chosen)
    assert seen.over_time is not None
    up = [many for many, before in zip(seen.over_time.up, [0, *seen.over_time.up], strict=False) if many != before]
    assert up == [4, 2]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("by", "target"), [("rate", 4.0), ("requests", 4.0), ("utilisation", 0.01)])
def test_who_looks_at_a_service_that_nobody_asks_sleeps_and_misses_nothing(
    by: str, target: float, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bursts two hours apart: the same as with a look every 15 s, of which there are a few for each burst."""
    requests = [each for hour in range(3) for each in _requests(20.0, 1200, start=7200.0 * hour)]
    t = Traffic(600, 150, rate=0.01, together=1.0)
    chosen = Settings(router="least_work", scaling=Scaling(4, 1, target, by, settle=60.0, start=20.0))
    load, found, looks = Growing.load, list[Simulated](), [0]

    def counted(self: Growing, at: float) -> float:
        looks[-1] += 1
        return load(self, at) or (1e-9 if len(looks) > 1 and self.pool.came < 3600 else 0.0)

    monkeypatch.setattr(Growing, "load", counted)
    for _ in range(2):
        found.append(simulate(replace(_engines(), apart=apart), t, requests, 3600, chosen))
        looks.append(0)
    assert found[0] == found[1] and found[0].paid is not None and found[0].paid[-1] > 1.001 * found[0].seconds
    assert looks[0] < looks[1] / 4


def test_a_cold_start_is_that_of_the_weights() -> None:
    requests = _requests(40.0, 4000)
    t = Traffic(600, 150, rate=40.0, together=1.0)
    waits = []
    for rate in (None, 1e9, 2e8):
        scaling = Scaling(6, 1, 16.0, "requests", 5.0, load_rate=rate)
        seen = simulate(_engines(), t, requests, 4000, Settings(router="least_work", scaling=scaling))
        waits.append(seen.percentiles["e2e"].mean)
    assert waits[0] < waits[1] < waits[2]


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_more_replicas_are_never_slower(router: str) -> None:
    means = [_played(30.0, 3000, many, router=router, block_tokens=16).percentiles["e2e"].mean for many in (1, 2, 4)]
    assert means[0] >= means[1] >= means[2]


def test_replicas_of_other_machines_get_what_they_can_do() -> None:
    machine, slow = _engines(), _engines(chip="A100")
    t = Traffic(600, 150, rate=60.0, together=1.0, replicas=1)
    requests = _requests(60.0, 3000)
    alone, turns, least = (
        simulate(machine, t, requests, 3000, chosen)
        for chosen in (
            Settings(),
            Settings(others=((slow, 1),)),
            Settings(others=((slow, 1),), router="least_work"),
        )
    )
    for seen in (alone, turns, least):
        _conserved(seen, 3000)
    assert turns.replicas == least.replicas == 2
    assert least.percentiles["ttft"].p99 < alone.percentiles["ttft"].p99
    assert least.percentiles["ttft"].mean <= 1.05 * turns.percentiles["ttft"].mean


class _Broken(Executor):
    """Processes that die before they have answered."""

    def submit(self, *args: Any, **more: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_exception(BrokenProcessPool("killed"))
        return found


@pytest.mark.parametrize("router", ["round_robin", "session"])
def test_processes_give_the_same_to_the_last_bit(router: str) -> None:
    here = _played(20.0, 3000, 3, router=router, block_tokens=16)
    with ProcessPoolExecutor(2) as executor:
        there = _played(20.0, 3000, 3, router=router, executor=executor, block_tokens=16)
    died = _played(20.0, 3000, 3, router=router, executor=_Broken(), block_tokens=16)
    assert repr(here) == repr(there) == repr(died)


@pytest.mark.parametrize("way", [{}, {"router": "least_work"}, {"clients": 8}, {"skip": 10.0}])
def test_who_watches_is_told_how_far_a_play_is(way: Any) -> None:
    told: list[tuple[int, int]] = []
    with watched(lambda *far: told.append(far)):
        _played(20.0, 3000, 3, **way)
    _played(20.0, 30, 3)
    assert told[0] == (0, 3000) and told[-1] == (3000, 3000) and told == sorted(told)
    assert len(told) > 3


def test_a_play_that_is_stopped_says_what_is_lost() -> None:
    def until_stopped() -> Any:
        yield from _requests(5.0, 1 + TOGETHER)
        raise KeyboardInterrupt

    for router in ("round_robin", "least_work"):
        with pytest.raises(KeyboardInterrupt, match=r"with 1,025 of about 2,000 requests .* begun again"):
            simulate(_engines(), Traffic(600, 150, rate=5.0), until_stopped(), 2000, Settings(router=router))


def test_causes_are_named() -> None:
    calm, full = _played(1.0, 300, 2), _played(200.0, 6000, 1)
    assert calm.binds == "decode"
    assert full.binds in ("queue for prompts", "KV capacity", "slots")
    one = _requests(12.0, 2000)
    same = [request._replace(session="one") for request in one]
    t = Traffic(600, 150, rate=12.0, together=1.0, replicas=4)
    lost = simulate(
        _engines(), t, [r._replace(arrival=r.arrival / 20) for r in same], 2000, Settings(router="session")
    ).lost
    assert lost is not None and lost["router"] > 0.5 * (
        lost["router"] + lost["queue for prompts"] + lost["KV capacity"]
    )


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (lambda: Failures(0.0, 1.0), "every so many seconds above 0"),
        (lambda: Scaling(0), "from 1 or more"),
        (lambda: Scaling(2, by="busy"), "queue or its utilisation"),
    ],
)
def test_bad_settings_get_a_sentence(chosen: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chosen()


def _beside(rate: float, job: Backlog | None, count: int = 1500, **more: Any) -> Simulated:
    return _played(rate, count, 2, backlog=job, **more)


@pytest.mark.parametrize(
    "more", [{}, {"router": "least_work"}, {"preempts": "swap"}, {"failures": Failures(40.0, 10.0)}]
)
def test_a_job_beside_traffic_takes_what_is_left_and_its_time_is_not_that_of_requests(more: dict[str, Any]) -> None:
    alone, beside = (_beside(10.0, job, **more) for job in (None, Backlog(2000, 200)))
    _conserved(beside, 1500)
    assert beside.spent.read == alone.spent.read or more.get("failures")
    ended, read, wrote = beside.jobs
    assert ended > 500 and read >= 2000 * ended and wrote >= 200 * ended
    assert alone.jobs == (0, 0, 0) and beside.busy > 0.98 - 0.4 * ("failures" in more)
    engine = _engines().writer.engine
    front = engine.front_end + engine.tokenise * 600
    if "failures" not in more:
        total = beside.percentiles["e2e"].mean * 1500
        assert beside.spent.of_requests == pytest.approx(total - 1500 * front, rel=1e-9)
    assert beside.percentiles["tpot"].mean > alone.percentiles["tpot"].mean
    assert beside.percentiles["ttft"].p99 < 1.0 or "failures" in more


def test_a_job_that_ends_leaves_the_replicas_to_others() -> None:
    seen = _beside(10.0, Backlog(500, 50, 40))
    assert seen.jobs == (40, 40 * 500, 40 * 50)
    few, more = (_beside(10.0, Backlog(500, 400, at_once=most)) for most in (4, 40))
    assert few.jobs[0] < more.jobs[0]
    assert seen.percentiles["tpot"].mean < few.percentiles["tpot"].mean < more.percentiles["tpot"].mean
    with pytest.raises(ValueError, match="1 or more"):
        Backlog(0, 10)
    with pytest.raises(ValueError, match="no room"):
        _beside(1.0, Backlog(10**7, 10), 3)
