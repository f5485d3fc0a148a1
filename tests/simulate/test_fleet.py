"""Fleets: routers, pools apart, conservation over all of it, agreement with the case."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.machines import Engines
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.simulate import serving
from mlsysim.simulate.fleet import Fleet, Pool
from mlsysim.simulate.prefixes import Prefixes
from mlsysim.simulate.record import Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.requests import Request
from mlsysim.simulate.routers import ROUTERS, router
from mlsysim.simulate.scheduling import ENDLESS, Scheduling
from mlsysim.simulate.serving import Failures, Settings, Simulated, simulate
from mlsysim.simulate.traffic import Load, Spread
from tests.simulate.test_replica import PlantedRoom, PlantedSteps, _engines, _poisson


def _fleet(requests: list[Request], name: str, many: int = 3, **more: Any) -> tuple[Record, list[Replica]]:
    chosen, record = Settings(router=name, **({"block_tokens": 16} | more)), Record(len(requests))
    plan = Scheduling("mixed", "arrival", 512, ENDLESS, True)

    def made() -> Any:
        steps: Any = PlantedSteps(1e-4, 0.01, 1e-6)
        room: Any = PlantedRoom(20_000)
        return Replica(steps, room, plan, record.teller(), Prefixes(16, 16.0))

    pool = Pool([made() for _ in range(many)], router(chosen))
    Fleet(pool).play(requests)
    record.settle()
    return record, pool.replicas


def _turns(seed: int, count: int = 300) -> list[Request]:
    """Conversations whose turns repeat what was said."""
    draw, at, said, found = random.Random(seed), 0.0, {}, []
    for _ in range(count):
        at += draw.expovariate(20.0)
        who = draw.randrange(30)
        said[who] = min(said.get(who, 64) + draw.randrange(16, 200), 4000)
        blocks = tuple(10_000 * (1 + who) + each for each in range(said[who] // 16))
        found.append(Request(at, said[who], 1 + draw.randrange(40), str(who), blocks))
    return found


@given(st.sampled_from(sorted(ROUTERS)), st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_a_fleet_loses_no_request_and_no_token(name: str, seed: int, many: int) -> None:
    requests = _turns(seed, 120)
    record, replicas = _fleet(requests, name, many)
    assert record.count == len(requests) and not any(each.outstanding for each in replicas)
    assert sum(each.spent.wrote for each in replicas) == sum(r.answer for r in requests)
    spent = [each.spent for each in replicas]
    assert sum(s.read + s.found for s in spent) == sum(r.prompt for r in requests) + sum(s.repeated for s in spent)
    assert sum(s.of_requests for s in spent) == pytest.approx(record.all["e2e"].total, rel=1e-9)


def _waits(requests: list[Request], name: str, many: int = 4) -> float:
    """Mean time until the first token."""
    return _fleet(requests, name, many)[0].all["ttft"].mean


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_routers_that_look_wait_less_than_taking_turns(seed: int) -> None:
    draw = random.Random(seed)
    requests = [
        r._replace(prompt=draw.choice((10, 100, 3000)), answer=draw.choice((1, 20, 200)))
        for r in _poisson(16.0, 3000, lambda d: 1, seed)
    ]
    turns, least, two = (_waits(requests, name) for name in ("round_robin", "least_work", "two_choices"))
    assert least < two < turns


@pytest.mark.parametrize("seed", [1, 2])
def test_a_router_that_looks_is_as_good_as_taking_turns_where_lengths_are_equal(seed: int) -> None:
    """Of a step that runs, what is left of it is work, however much it reads."""
    requests = [r._replace(answer=20) for r in _poisson(60.0, 4000, lambda d: 400, seed)]
    turns, least = (_waits(requests, name) for name in ("round_robin", "least_work"))
    assert least == pytest.approx(turns, rel=0.02)


def test_a_router_by_prefix_finds_more_and_one_by_session_keeps_conversations() -> None:
    requests = _turns(3, 1500)
    found = {}
    for name in ROUTERS:
        _, replicas = _fleet(requests, name, 4)
        found[name] = sum(each.spent.found for each in replicas)
    assert found["prefix"] > 1.1 * found["round_robin"] and found["session"] > 1.1 * found["round_robin"]

    pool = Pool([object() for _ in range(4)], router(Settings(router="session")))  # type: ignore[misc]
    went: dict[str | None, set[int]] = {}
    for request in requests:
        went.setdefault(request.session, set()).add(pool.router.choose(request, pool.up, request.arrival))
    assert all(len(each) == 1 for each in went.values()) and len(set().union(*went.values())) == 4


@given(st.integers(0, 10**6), st.integers(2, 4))
@settings(max_examples=8, deadline=None)
def test_prefixes_are_found_and_queues_are_shorter_by_looking(seed: int, many: int) -> None:
    requests, draw = _turns(seed, 400), random.Random(seed)
    turns, prefix = (sum(r.spent.found for r in _fleet(requests, name, many)[1]) for name in ("round_robin", "prefix"))
    assert prefix >= turns
    mixed = [
        r._replace(prompt=draw.choice((10, 100, 1000, 3000)), answer=draw.choice((1, 20, 200)))
        for r in _poisson(4.0 * many, 600, lambda d: 1, seed)
    ]
    taken, least = (_fleet(mixed, name, many)[0].percentiles("queue") for name in ("round_robin", "least_work"))
    # A mean for which no error is stated is not known to a factor of two.
    error = taken.mean if math.isnan(taken.error[0]) else taken.error[0]
    assert least.mean <= taken.mean + error


def test_an_overloaded_replica_gets_no_more_for_a_prefix() -> None:
    same = tuple(range(100))
    requests = [Request(0.001 * each, 1600, 400, None, same) for each in range(400)]
    _, replicas = _fleet(requests, "prefix", 2, overload=1.0)
    assert min(each.spent.wrote for each in replicas) > 0.3 * 400 * 400 / 2


def test_names_of_routers_are_said() -> None:
    with pytest.raises(ValueError, match="least_work"):
        router(Settings(router="least_wrk"))
    with pytest.raises(ValueError, match="requests that share beginnings"):
        _fleet([], "prefix", block_tokens=None)


def _apart(**more: Any) -> Engines:
    return replace(_engines(**more), apart=True)


def _played(machine: Engines, t: Traffic, count: int, **more: Any) -> Simulated:
    requests = (r._replace(prompt=t.prompt, answer=t.answer) for r in _poisson(t.rate, count, lambda d: 1))
    return simulate(machine, t, requests, count, Settings(**more))


def test_one_request_of_two_pools_takes_what_the_case_says() -> None:
    machine, t = _apart(), Traffic(1000, 200, rate=1e-3, together=1.0)
    seen, engine = simulate(machine, t, [Request(0.0, 1000, 200)], 1), machine.writer.engine
    moved = float(machine.writer.network.hand_over(machine.writer.port_bytes(1000), None, True))
    front = engine.front_end + engine.tokenise * 1000 + engine.hand_over + moved
    first = machine.reader.time(0.0, 0.0, 1.0, 1000.0).total + machine.writer.time(1.0, 1000.0).total
    assert seen.percentiles["ttft"].mean == pytest.approx(front + first, rel=1e-9)
    steps = [machine.writer.time(1.0, 1000.0 + k).total for k in range(1, 200)]
    assert seen.percentiles["tpot"].mean == pytest.approx(sum(steps) / 199, rel=1e-9)
    closed = serve(machine, t)
    assert seen.percentiles["ttft"].mean == pytest.approx(float(closed.ttft), rel=1e-3)


@pytest.mark.parametrize(("rate", "readers", "writers"), [(4.0, 2, 3), (10.0, 3, 1), (2.0, 1, 1)])
def test_two_pools_are_those_of_the_closed_form_at_light_loads(rate: float, readers: int, writers: int) -> None:
    machine = _apart()
    t = Traffic(1000, 200, rate=rate, together=1.0, prefill_replicas=readers, replicas=writers)
    closed, seen = serve(machine, t), _played(machine, t, 2000)
    assert seen.percentiles["ttft"].mean == pytest.approx(float(closed.ttft), rel=0.1)
    assert seen.percentiles["tpot"].mean == pytest.approx(float(closed.tpot), rel=0.03)
    assert seen.requests == seen.spent.ended == 2000 and seen.spent.wrote == 2000 * 200
    assert seen.spent.read == 2000 * 1000 + seen.spent.repeated
    engine = machine.writer.engine
    front = 2000 * (engine.front_end + engine.tokenise * 1000)
    assert seen.spent.of_requests + front == pytest.approx(seen.percentiles["e2e"].mean * 2000, rel=1e-9)


def test_a_slow_port_is_a_queue() -> None:
    machine, waits = _apart(), []
    for network in (None, 2e10, 2e9):
        t = Traffic(1000, 50, rate=10.0, together=1.0, network=network)
        waits.append(_played(machine, t, 1500).percentiles["ttft"].mean)
    alone = float(machine.writer.cache_bytes(1000)) / 2e9
    assert waits[0] < waits[1] < waits[2]
    # M/D/1: W = S rho / (2 (1 - rho)).
    rho = 10 * alone
    assert waits[2] - waits[1] > 0.8 * (alone * (1 + rho / (2 * (1 - rho))) - alone / 10)


@pytest.mark.parametrize(("clients", "readers", "writers"), [(1, 1, 1), (12, 2, 1), (64, 2, 3)])
def test_clients_in_a_loop_of_two_pools_are_those_of_the_closed_form(clients: int, readers: int, writers: int) -> None:
    """And one that is alone sees what one request does, whatever came before."""
    count, machine = 12 * clients, _apart()
    t = Traffic(1000, 200, together=1.0, prefill_replicas=readers, replicas=writers)
    requests = Load(1.0, Spread(1000.0, 0.2), Spread(200.0, 0.2), 1.0, count=count).requests(1)
    seen = simulate(machine, t, requests, count, Settings(clients=clients))
    assert seen.requests == seen.spent.ended == count
    habits = Habits(rounds=12, length_cv=0.2)
    closed = serve(machine, replace(t, concurrency=float(clients), habits=habits))
    assert seen.percentiles["ttft"].mean == pytest.approx(float(closed.ttft), rel=0.12)
    assert seen.percentiles["tpot"].mean == pytest.approx(float(closed.tpot), rel=0.03)
    alone = [Request(0.0, 1000, 200)]
    first = [simulate(machine, t, many * alone, many, Settings(clients=1)) for many in (1, 3)]
    for kind in ("ttft", "tpot"):
        assert first[0].percentiles[kind].mean == pytest.approx(first[1].percentiles[kind].mean, rel=1e-9)
    assert 3 * first[0].seconds == pytest.approx(first[1].seconds, rel=1e-9)


def test_clients_in_a_loop_are_given_the_replica_with_the_least_work() -> None:
    """Alone it is what they have without a router; of several, long answers do not come together."""
    machine, t = _engines(), Traffic(1000, 200, together=1.0)
    requests = list(Load(1.0, Spread(2000.0, 1.5), Spread(200.0, 1.5), count=800).requests(1))

    def seen(replicas: int, name: str) -> Simulated:
        return simulate(machine, replace(t, replicas=replicas), requests, 800, Settings(clients=64, router=name))

    one, routed = seen(1, "round_robin"), _of_fleet(machine, t, requests, Settings(clients=64))
    for kind, found in one.percentiles.items():
        assert routed.percentiles[kind].values == pytest.approx(found.values, rel=1e-9)
    turns, least = seen(4, "round_robin"), seen(4, "least_work")
    assert least.percentiles["ttft"].mean < 0.95 * turns.percentiles["ttft"].mean
    assert (least.requests, least.output_tokens) == (turns.requests, turns.output_tokens)


def _of_fleet(machine: Engines, t: Traffic, requests: list[Request], chosen: Settings) -> Simulated:
    """As replicas are played that know of each other."""
    record = Record(len(requests))
    return serving._fleet([(machine, t)], serving._Clock(requests, len(requests)), chosen, record)


def test_clients_in_a_loop_have_replicas_that_do_not_change() -> None:
    with pytest.raises(ValueError, match="none changes"):
        never = Failures(1e9, 1.0)
        simulate(_apart(), Traffic(100, 10), [Request(0.0, 100, 10)], 1, Settings(clients=1, failures=never))


@pytest.mark.parametrize(
    ("machine", "some", "many", "each", "count"), [(_engines, 4, 24, 22.0, 24_000), (_apart, 3, 12, 12.0, 9_000)]
)
def test_some_of_the_replicas_that_take_turns_see_what_all_of_them_see(
    machine: Any, some: int, many: int, each: float, count: int
) -> None:
    """Of one pool and of two: the requests of some are a share of all, in gaps that are drawn as one."""
    seen = {}
    for played in (some, many):
        t = Traffic(500, 100, rate=each * many, together=1.0, replicas=played, prefill_replicas=played)
        load = Load(each * many, Spread(500.0, 0.5), Spread(100.0, 0.5), count=count, dealt=(played, many))
        settings = Settings(skip=0.1 * count / (each * played), devices=2 * many)
        seen[played] = simulate(machine(), t, load.requests(1), count, settings).percentiles
    for kind in ("ttft", "tpot", "e2e"):
        few, all_of_them = seen[some][kind], seen[many][kind]
        assert few.mean == pytest.approx(all_of_them.mean, rel=0.01)
        assert few.p99 == pytest.approx(all_of_them.p99, rel=0.03)


@given(st.sampled_from(["least_work", "prefix", "two_choices"]), st.integers(0, 10**6), st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_replicas_that_are_looked_at_may_take_their_steps_later(name: str, seed: int, many: int) -> None:
    requests = _turns(seed, 150)
    late, _ = _fleet(requests, name, many)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "sure", property(lambda own: -1.0, lambda own, value: None), raising=False)
        at_once, _ = _fleet(requests, name, many)
    for kind in Record.KINDS:
        assert late.percentiles(kind).values == pytest.approx(at_once.percentiles(kind).values, rel=1e-9, abs=1e-9)
