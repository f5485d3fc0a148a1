"""A number of requests at a rate, beside the integrals that the closed forms stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from mlsysim.cases.passing import last_step, longest, mean_step, meets

_POINTS = 4000
steps = st.floats(1e-6, 50.0)
shares = st.floats(0.0, 1.0)


def _trapezoid(share: float) -> list[float]:
    """Requests in flight over the height, at points of the time: up, flat, and down; slopes last ``share`` of what is flat and one slope."""
    whole = 1 + share
    at = [(i + 0.5) / _POINTS * whole for i in range(_POINTS)]
    return [min(t / share if share else 1.0, 1.0, (whole - t) / share if share else 1.0) for t in at]


@given(steps, shares)
def test_the_mean_over_tokens_is_that_of_the_integrals(grown: float, share: float) -> None:
    flying = _trapezoid(share)
    mean = sum(flying) / sum(n / (1 + grown * n) for n in flying)
    assert mean_step(grown, share) == approx(mean, rel=2e-3)


@given(steps, shares)
def test_a_token_meets_what_lengthens_its_step_so_much(grown: float, share: float) -> None:
    """Among n of the height H = 10 a step is 1 + x n/H: at the number that a token meets that is the mean step."""
    rate, height = 2.0, 10.0
    length = height / rate
    sent = height / share if share > 1e-3 else 1e12
    low, high = 1e-6, height
    for _ in range(60):
        n = (low + high) / 2
        met = meets(sent, rate, length, length / (1 + grown * n / height), n)
        low, high = (n, high) if met > n else (low, n)
    assert 1 + grown * n / height == approx(mean_step(grown, share if share > 1e-3 else 0.0), rel=1e-5)


@given(steps, steps, shares)
def test_more_in_flight_is_never_faster(one: float, other: float, share: float) -> None:
    less, more = sorted((one, other))
    assert mean_step(less, share) <= mean_step(more, share) * (1 + 1e-9)
    assert 1 <= mean_step(less, share) <= 1 + less + 1e-12


def test_limits() -> None:
    assert mean_step(3.0, 0.0) == approx(4.0)  # a batch that begins together, or a steady state
    assert mean_step(1e-9, 1.0) == approx(1.0)
    assert meets(1e9, 2.0, 5.0, 4.0, 10.0) == approx(10.0, rel=1e-6)  # Little's law
    assert meets(8.0, 1e9, 5.0, 4.0, 8.0) == approx(8.0, rel=1e-6)  # all at once


@given(st.floats(1.0, 20.0), st.floats(0.01, 100.0))
def test_the_last_answer_is_not_slower_than_the_height_nor_faster_than_alone(mean: float, come: float) -> None:
    last = last_step(mean, 1.0, come, 2.0)
    share = min(come, 2.0) / max(come, 2.0)
    assert 1.0 <= last <= mean * (1 + share) * (1 + 1e-9)
    assert last_step(mean, 1.0, 1e-9, 2.0) == approx(mean, rel=1e-6)


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
