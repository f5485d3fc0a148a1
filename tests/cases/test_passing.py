"""A number of requests at a rate: limits of the fluid, with steps that are straight in what they write and read."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark

from mlsysim.cases.passing import Passed, Server, longest, passing, tabled

STEPS = 200.0
ALONE, EACH, READ = 0.01, 1e-4, 5e-3
"""Seconds of a step, of each sequence and of each prompt in it."""
HIGHEST = 1 / (STEPS * EACH + READ)
"""Requests a second of a server without end of room."""


def passed(sent: float, rate: float, room: float = math.inf, alone: float = ALONE, **more: float) -> Passed:
    server = Server(lambda n, share, read, waits: alone + EACH * n + READ * read, STEPS, room, 1.0, 1.0, **more)
    return passing(server, sent, rate)


def at_room(room: float) -> float:
    """Requests a second of so many sequences: room/steps a step, which takes the time of its sequences and of as many prompts."""
    each = room / STEPS
    return each / (ALONE + EACH * (room + 1) + READ * each)


@mark.parametrize("load", [0.1, 0.5, 0.8])
def test_without_end_they_are_the_steady_state(load: float) -> None:
    """N = r O T and T = a + b (N + 1) + p r T: a steady state that the first and the last of many requests do not count in."""
    rate = load * HIGHEST
    steady = (ALONE + EACH) / (1 - rate * STEPS * EACH - READ * rate)
    seen = passed(1e8, rate)
    assert seen.step == approx(steady, rel=2e-3)
    assert seen.wait < 1e-6
    assert seen.span * rate == approx(1e8, rel=1e-4)


@mark.parametrize("over", [1.5, 3.0, 100.0])
def test_without_end_a_rate_that_is_not_answered_makes_half_of_all_wait(over: float) -> None:
    room = 50.0
    fastest = at_room(room)
    seen = passed(1e7, over * fastest, room)
    assert seen.wait == approx(1e7 / 2 * (1 / fastest - 1 / (over * fastest)), rel=5e-3)
    assert seen.span == approx(1e7 / fastest, rel=5e-3)


@mark.parametrize("sent", [1, 7, 300])
def test_all_at_once_are_a_batch(sent: int) -> None:
    """Prompts are read one after the other and then steps have all of them: half a step of the walk is off at either end."""
    seen = passed(sent, 1e9)
    batch = STEPS * (ALONE + EACH * sent) + READ * sent
    assert seen.span == approx(batch, rel=0.04)
    assert seen.wait == approx(READ * sent / 2, rel=0.1)
    assert seen.held == 1


def test_one_after_the_other_each_is_alone() -> None:
    assert passed(1000, 1e-4).step == approx(ALONE + EACH, rel=1e-3)
    assert passed(1000, 1e-4).span == approx(999 / 1e-4 + STEPS * (ALONE + EACH), rel=1e-4)


def test_the_last_of_different_lengths_is_the_longest() -> None:
    """With steps that nobody lengthens, the last answer of a batch is the longest: in the median, as e^-N says of those that are left."""
    server = Server(lambda n, share, read, waits: ALONE, STEPS, math.inf, 1.0, 1.0, cv=0.8)
    assert passing(server, 500, 1e9).span == approx(longest(STEPS, 0.8, 500) * ALONE, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.floats(1, 3000), st.floats(0.1, 300), st.floats(5, 500), st.floats(0, 1))
def test_more_requests_wait_longer_and_more_room_less(sent: float, rate: float, room: float, cv: float) -> None:
    one, more, wide = (
        passed(sent, rate, room, cv=cv),
        passed(2 * sent, rate, room, cv=cv),
        passed(sent, rate, 2 * room, cv=cv),
    )
    most = 0.05 * (one.wait + STEPS * one.step)
    assert one.wait <= more.wait + most
    assert wide.wait <= one.wait + most
    assert one.span <= more.span * 1.01
    assert one.step >= ALONE


def test_those_that_outgrow_their_room_are_put_back_and_lose_no_token() -> None:
    """Room for 100 that have written their answers, 10 times what they begin with: all of them are let in and most are put back, so that tokens and not the first of them wait."""
    grown = Server(lambda n, share, read, waits: ALONE, STEPS, 100.0, 0.1, 1.0)
    reserved = Server(lambda n, share, read, waits: ALONE, STEPS, 100.0, 1.0, 1.0)
    young, whole = passing(grown, 600, 1e9), passing(reserved, 600, 1e9)
    assert whole.held == 1
    assert young.held > 1.3
    assert young.wait < whole.wait
    assert whole.span == approx(6 * STEPS * ALONE, rel=0.03)
    assert young.span < whole.span


def test_a_table_is_the_time_where_it_is_straight() -> None:
    known = tabled(lambda n: 2.0 + 3.0 * n, 700.0)
    assert [known(n) for n in (1.0, 5.5, 699.0)] == [approx(2 + 3 * n, rel=1e-6) for n in (1.0, 5.5, 699.0)]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.floats(1e-3, 1.0), st.floats(0.0, 1.0))
def test_requests_that_begin_together_end_with_the_longest(answers: list[int], alone: float, each: float) -> None:
    """Step by step: a + b N(k) over the tokens of the longest."""
    played = sum(alone + each * sum(answer > k for answer in answers) for k in range(max(answers)))
    mean, count = sum(answers) / len(answers), len(answers)
    assert played == approx(mean * (alone + each * count) + alone * (max(answers) - mean))


@given(st.floats(1, 1e4), st.floats(0, 3), st.integers(1, 10**6))
def test_the_longest_is_the_mean_of_equal_ones_and_grows_with_their_number(mean: float, cv: float, count: int) -> None:
    assert longest(mean, 0.0, count) == approx(mean)
    assert mean <= longest(mean, cv, count) <= longest(mean, cv, 2 * count) * (1 + 1e-12)
