"""A replica over time: exact cases, conservation, agreement with the case where both hold."""

from __future__ import annotations

import math
import random
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.machines import Engines
from mlsysim.cases.serve import serve
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.simulate.record import Record
from mlsysim.simulate.replica import Replica
from mlsysim.simulate.replicas import kind_of
from mlsysim.simulate.requests import Request
from mlsysim.simulate.scheduling import ENDLESS, Scheduling
from mlsysim.simulate.serving import Settings, replicas_of, simulate
from mlsysim.simulate.steps import Contexts
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine


class PlantedSteps:
    """Steps of a server whose times are known: a prompt of s tokens takes s ``token`` seconds, a step of answers ``pause``."""

    ranks, gain, drafted, prompted = 1, 1.0, 0, (0.0, 0.0, 0.0, 0.0)

    def __init__(self, token: float, pause: float = 1.0, context: float = 0.0, ahead: float = 0.0) -> None:
        self.token, self.pause = token, pause
        engine = SimpleNamespace(front_end=0.0, tokenise=0.0, steps_ahead=ahead)
        self.step, self.habits = SimpleNamespace(engine=engine), Habits()
        self.contexts = Contexts(lambda tokens: context * tokens, [])

    def decode(self, n: int) -> tuple[tuple[float, float], ...]:
        return ((self.pause, 1.0),)

    def decode_time(self, n: int, attended: float) -> float:
        return self.pause + attended

    def chunk(self, tokens: int, before: int) -> float:
        return 0.0

    def mixed(self, n: int, attended: float, reading: int, prompts: int, chunks: float, *_: float) -> float:
        return reading * self.token + (self.pause + attended if n else 0.0)

    def plain(self) -> Any:
        return self.mixed


class PlantedRoom:
    """Room for so many tokens."""

    reserves = False

    def __init__(self, tokens: float = 1e12) -> None:
        self.bytes = tokens
        self.contexts = Contexts(lambda context: context, [])

    def holds(self, prompt: int, answer: int) -> bool:
        return prompt + answer <= self.bytes


def _played(
    requests: list[Request], steps: Any, room: Any = None, swift: bool = True, handed: bool = False, **plan: Any
) -> tuple[Record, Replica]:
    record = Record(len(requests))
    schedule = Scheduling(
        **({"prompts": "first", "order": "arrival", "budget": 1, "slots": ENDLESS, "cuts": False} | plan)
    )
    replica = Replica(steps, room or PlantedRoom(), schedule, record.teller(), gaps=record.gaps)
    replica.swift = replica.swift and swift
    for request in requests:
        if handed:
            replica.push(request, request.arrival, max(request.arrival - 0.1, 0.0))
        else:
            replica.push(request)
    replica.finish()
    record.settle()
    return record, replica


def _poisson(rate: float, count: int, lengths: Any, seed: int = 7) -> list[Request]:
    draw, at, found = random.Random(seed), 0.0, []
    for _ in range(count):
        at += draw.expovariate(rate)
        found.append(Request(at, max(1, round(lengths(draw))), 1))
    return found


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize(
    ("name", "lengths", "square"),
    [
        ("M/D/1", lambda draw: 1000, 1.0),
        ("M/M/1", lambda draw: draw.expovariate(1 / 1000), 2.0),
        ("M/G/1", lambda draw: 500 if draw.random() < 0.75 else 2500, (0.75 * 0.25 + 0.25 * 6.25)),
    ],
)
def test_one_prompt_at_a_time_waits_as_pollaczek_and_khinchine_say(
    name: str, lengths: Any, square: float, load: float
) -> None:
    """Prompts of one token answer, one a step: a queue with one server, W = rate E[S^2] / (2 (1 - rho)). The mean of so many requests is as near to it as chance
    lets it, and that of the very same requests by Lindley's recursion, W' = max(0, W + S - A), to the last digits."""
    token = 1e-6
    requests = _poisson(load / (1000 * token), 120_000, lengths)
    record, _ = _played(requests, PlantedSteps(token), budget=1 << 20, slots=1)
    waits, free = [], 0.0
    for request in requests:
        waits.append(max(free - request.arrival, 0.0))
        free = max(free, request.arrival) + request.prompt * token
    assert record.all["queue"].mean == pytest.approx(sum(waits) / len(waits), rel=1e-9)
    mean = record.all["e2e"].mean - sum(request.prompt for request in requests) / len(requests) * token
    assert mean == pytest.approx(sum(waits) / len(waits), rel=1e-6)
    expected = load * square * 1000 * token / (2 * (1 - load))
    assert mean == pytest.approx(expected, rel=0.03)


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=60),
    st.sampled_from(["mixed", "first", "last", "static"]),
    st.integers(600, 5000),
    st.integers(1, 9),
)
@settings(max_examples=120, deadline=None)
def test_requests_tokens_and_time_are_conserved(drawn: Any, prompts: str, room: int, slots: int) -> None:
    at, requests = 0.0, []
    for gap, prompt, answer in drawn:
        at += gap
        requests.append(Request(at, prompt, answer))
    steps = PlantedSteps(1e-4, 0.01, 1e-6, ahead=0.6)
    record, replica = _played(requests, steps, PlantedRoom(room), prompts=prompts, budget=256, slots=slots, cuts=True)
    spent = replica.spent
    assert record.count == len(requests) and not replica.outstanding
    assert spent.wrote == sum(r.answer for r in requests)
    assert spent.read == sum(r.prompt for r in requests) + spent.repeated
    total = record.all["e2e"].total
    assert spent.of_requests == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert min(record.all["ttft"].values) > 0
    assert replica.held == pytest.approx(0.0, abs=1e-6)
    if not spent.preempted:
        # Gaps between tokens are what is left of requests after their first tokens.
        assert record.gaps.total == pytest.approx(total - record.all["ttft"].total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("prompts", ["mixed", "first", "handed over", "only read"])
def test_the_swift_loop_is_the_other_one_but_for_rounding(prompts: str, seed: int) -> None:
    """Its sums are of whole tokens, those of the other of seconds and bytes; times are drawn so that nothing comes at the very end of a step."""
    draw = random.Random(seed)
    for _ in range(10):
        at, requests = 0.0, []
        for _ in range(draw.randint(1, 60)):
            at += draw.uniform(0, 0.2)
            requests.append(Request(at, draw.randint(1, 400), draw.randint(1, 60)))
        room, plan = PlantedRoom(draw.randint(600, 5000)), {"cuts": draw.random() < 0.5, "whole": draw.random() < 0.5}
        room.contexts.first, room.reserves = draw.choice((0.0, 7.3)), draw.random() < 0.3
        plan |= {"prompts": {"handed over": "mixed", "only read": "first"}.get(prompts, prompts), "budget": 256}
        plan |= {"slots": draw.randint(1, 9), "reads": prompts == "only read"}
        found = []
        for swift in (True, False):
            steps = PlantedSteps(1e-4, 0.01, 1e-6, ahead=0.6)
            record, replica = _played(requests, steps, room, swift, prompts == "handed over", **plan)
            assert replica.swift is swift
            times = [list(times.values) for times in record.all.values()]
            spent = {each.name: getattr(replica.spent, each.name) for each in fields(replica.spent)}
            state = replica.time, replica.peak_held, record.gaps.total, sum(record.gaps.bins.values())
            found.append([*times, spent.pop("waits"), spent, state])
            if prompts != "only read":
                assert state[-1] == sum(request.answer - 1 for request in requests) - spent["preempted"]
        for one, other in zip(*found, strict=True):
            assert one == pytest.approx(other, rel=1e-9, abs=1e-9)


def test_a_gap_begins_with_the_first_token_and_not_with_the_prompts_that_are_read_beside() -> None:
    """Three prompts of 1 s one after the other, then answers of a second token in a step of 1 s: gaps of 3, 2 and 1 s (each was said to be 3)."""
    record, _ = _played([Request(0.0, 100, 2)] * 3, PlantedSteps(0.01, 1.0), budget=100)
    assert record.gaps.total == pytest.approx(3 + 2 + 1) and sum(record.gaps.bins.values()) == 3


@pytest.mark.parametrize(("prompts", "slots"), [("last", 20), ("static", 20), ("static", ENDLESS)])
def test_a_batch_is_read_in_several_steps_and_answered_together(prompts: str, slots: int) -> None:
    """40 prompts of 100 tokens with 500 tokens a step: 20 have a place, whose prompts take four steps, then nine steps of answers."""
    requests = [Request(0.0, 100, 10) for _ in range(40)]
    plan = {"prompts": prompts, "budget": 500, "slots": slots, "cuts": True}
    record, replica = _played(requests, PlantedSteps(1e-3, 1.0), PlantedRoom(20 * 110), **plan)
    assert replica.spent.steps == 2 * (4 + 9) and not replica.spent.preempted
    assert sorted(record.all["e2e"].values) == pytest.approx([11.0] * 20 + [22.0] * 20)


def test_a_batch_without_a_most_begins_when_caches_are_full() -> None:
    requests = [Request(float(at), 100, 10) for at in range(60)]
    plan = {"prompts": "static", "budget": 500, "cuts": True}
    record, _ = _played(requests, PlantedSteps(1e-6, 1e-3), PlantedRoom(20 * 110), **plan)
    assert max(record.all["queue"].values) == pytest.approx(19.0, abs=0.1)


def test_jumps_over_steps_equal_stepping() -> None:
    requests = _poisson(3.0, 400, lambda draw: draw.randrange(1, 300))
    requests = [r._replace(answer=1 + (7 * i) % 90) for i, r in enumerate(requests)]
    plan = {"prompts": "mixed", "budget": 512, "cuts": True}
    jumped, _ = _played(requests, PlantedSteps(1e-4, 0.01, 1e-6), **plan)

    stepped = Record(len(requests))
    schedule = Scheduling("mixed", "arrival", 512, ENDLESS, True)
    replica = Replica(PlantedSteps(1e-4, 0.01, 1e-6), PlantedRoom(), schedule, stepped.teller())  # type: ignore[arg-type]
    for request in requests:
        replica.push(request)
    calls = 0
    while replica.outstanding:
        works = replica.n or replica.waiting or replica.reading
        replica.advance(math.nextafter(replica.time if works else replica.incoming[0][0], math.inf), True)
        calls += 1
    assert calls > 0.9 * replica.spent.steps > 5e3
    stepped.settle()
    for kind in ("ttft", "e2e"):
        for a, b in zip(jumped.all[kind].values, stepped.all[kind].values, strict=True):
            assert a == pytest.approx(b, abs=4e-9)


@given(st.integers(0, 10**6), st.sampled_from(["mixed", "first"]))
@settings(max_examples=25, deadline=None)
def test_looks_change_nothing(seed: int, prompts: str) -> None:
    draw = random.Random(seed)
    requests = [r._replace(answer=draw.randrange(1, 90)) for r in _poisson(2.0, 150, lambda _: draw.randrange(1, 900))]
    found = []
    for looks in (False, True):
        ended: list[Any] = []
        plan = Scheduling(prompts, "arrival", 512, ENDLESS, True)
        steps: Any = PlantedSteps(1e-4, 0.01, 1e-6, 1.5)
        replica = Replica(steps, PlantedRoom(), plan, ended.append)  # type: ignore[arg-type]
        for request in requests:
            if looks:
                for at in sorted(draw.uniform(replica.time, request.arrival) for _ in range(draw.randrange(4))):
                    replica.advance(at)
            replica.push(request)
        replica.finish()
        found.append((ended, replica.time, replica.spent.steps, replica.spent.waits))
    assert found[0][:3] == found[1][:3]
    assert found[0][3] == pytest.approx(found[1][3], rel=1e-12, abs=1e-12)


def _engines(model: str = "Llama3_8B", chip: str = "H100", software: str = "vLLM", **layout: Any) -> Engines:
    step = engine_step(Models.get(model), Hardware.get(chip), engine(software), **layout)
    return Engines(step, step)


def test_one_request_alone_takes_what_the_case_says() -> None:
    machine = _engines()
    t = Traffic(1000, 200, rate=0.001, together=1.0)
    seen = simulate(machine, t, [Request(0.0, 1000, 200)], 1)
    engine = machine.writer.engine
    front = engine.front_end + engine.tokenise * 1000
    prefill = machine.writer.time(0.0, 0.0, 1.0, 1000.0).total
    assert seen.percentiles["ttft"].mean == pytest.approx(front + prefill, rel=1e-9)
    steps = [machine.writer.time(1.0, 1000.0 + k).total for k in range(199)]
    assert seen.percentiles["tpot"].mean == pytest.approx(sum(steps) / 199, rel=1e-9)


@pytest.mark.parametrize("software", ["vLLM", "SGLang"])
def test_a_random_load_is_that_of_the_closed_form(software: str) -> None:
    machine = _engines(software=software)
    t = Traffic(600, 150, rate=8.0, together=1.0)
    closed = serve(machine, t)
    seen = simulate(machine, t, (r._replace(prompt=600, answer=150) for r in _poisson(8.0, 4000, lambda d: 1)), 4000)
    assert seen.percentiles["tpot"].mean == pytest.approx(float(closed.tpot), rel=0.03)
    assert seen.percentiles["ttft"].mean == pytest.approx(float(closed.ttft), rel=0.15)


def test_a_fuller_server_is_never_faster_and_more_replicas_never_slower() -> None:
    machine, means = _engines(), []
    for rate, replicas in ((4.0, 1), (12.0, 1), (24.0, 1), (24.0, 2), (24.0, 4)):
        t = Traffic(600, 150, rate=rate, together=1.0, replicas=replicas)
        seen = simulate(
            machine, t, (r._replace(prompt=600, answer=150) for r in _poisson(rate, 3000, lambda d: 1)), 3000
        )
        means.append(seen.percentiles["e2e"].p99)
    assert means[0] < means[1] < means[2] and means[2] > means[3] > means[4]


def test_requests_that_outgrow_the_caches_are_put_back_and_read_again() -> None:
    requests = [Request(0.0, 100, 200) for _ in range(10)]
    record, replica = _played(
        requests, PlantedSteps(1e-4, 0.01), PlantedRoom(1200), prompts="mixed", budget=2048, cuts=True
    )
    assert replica.spent.preempted > 0 and replica.spent.repeated > 0
    assert replica.spent.waits["put back"] > 0 and record.count == 10
    assert replica.peak_held <= 1200 + 10


def test_a_request_that_never_fits_is_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="not even alone"):
        _played([Request(0.0, 1000, 10)], PlantedSteps(1e-4), PlantedRoom(500))


def test_replicas_of_a_service_are_its_groups() -> None:
    machine = _engines("Llama3_70B", tp=2, pp=2)
    found = replicas_of(machine, Traffic(100, 10, rate=1.0, replicas=3), Settings(), Record(1))
    assert len(found) == 6


def test_a_part_of_a_step_that_is_missed_keeps_the_mean_and_adds_no_spread() -> None:
    """Steps that are scheduled ahead: 1.25 of them on average, and waits from 1.25 to 2.25 steps where requests come at any moment of a step."""
    base = engine("vLLM").model_copy(update={"steps_ahead": 1.25, "front_end": 0.0, "tokenise": 0.0})
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("H100"), base)
    each = step.time(1.0, 1000.0).total
    waits = []
    for number in range(40):
        seen = []
        t = Traffic(1000, 10_000, rate=1.0)
        kind = kind_of(Engines(step, step), t, Settings())
        replica = kind.replica(seen.append)
        replica.push(Request(0.0, 1000, 400))
        replica.push(Request(0.5 + number / 40 * each, 8, 2))
        replica.finish()
        request, begun, *_ = seen[0]
        waits.append((begun - request.arrival) / each)
    assert sum(waits) / 40 == pytest.approx(1.75, abs=0.03)
    assert 1.2 < min(waits) < max(waits) < 2.3


def test_prompts_that_are_read_whole_are_never_cut() -> None:
    """A prompt longer than the budget is read alone; others join as long as all of them fit."""
    requests = [Request(0.0, prompt, 1) for prompt in (600, 300, 3000, 200, 700)]
    record, replica = _played(requests, PlantedSteps(1e-3), budget=1000, whole=True)
    assert replica.spent.steps == 3  # 600 + 300, then 3000, then 200 + 700
    seen = [record.percentiles("ttft").mean * 5, replica.time]
    assert seen == pytest.approx([0.9 + 0.9 + 3.9 + 4.8 + 4.8, 4.8])
