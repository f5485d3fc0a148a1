"""Random numbers without the C library."""

from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.simulate import draws, traffic
from mlsysim.simulate.draws import Draws, exp, log
from mlsysim.simulate.traffic import Load, Spread


@given(st.floats(1e-300, 1e300))
def test_the_logarithm_is_one(x):
    assert log(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-16)


@given(st.floats(-700, 700))
def test_the_exponential_is_one(x):
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "shape", "mean", "variance"),
    [("exponential", (), 1, 1), ("normal", (), 0, 1), ("gamma", (0.25,), 0.25, 0.25), ("gamma", (4.0,), 4, 4)],
)
def test_moments(name, shape, mean, variance):
    draws = Draws(7, "test")
    values = [getattr(draws, name)(*shape) for _ in range(40_000)]
    found = sum(values) / len(values)
    squares = [(x - mean) ** 2 for x in values]
    spread = sum(squares) / len(squares)
    error = math.sqrt(sum((s - spread) ** 2 for s in squares)) / len(squares)
    assert abs(found - mean) < 4 * math.sqrt(variance / len(values))
    assert abs(spread - variance) < 4 * error


def test_streams_differ_by_seed_and_by_purpose():
    first = {Draws(seed, purpose).uniform() for seed in (1, 2) for purpose in ("arrivals", "lengths")}
    assert len(first) == 4


def test_what_the_c_library_decides_is_what_the_others_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals and lengths are the same where every number is asked of ``log`` and ``exp`` of this module."""
    hours = (0.5, 0.0, 1.0, 2.0)
    loads = [
        Load(2.0, Spread(1155.0, 1.0), Spread(211.0, 0.8), hours=hours),
        Load(20.0, Spread(3e6, 5.0), Spread(2.0, 1.0)),
    ]
    found = [list(islice(load.requests(3), 20_000)) for load in loads]
    for module in (draws, traffic):
        monkeypatch.setattr(module, "NEAR", math.inf)
    assert [list(islice(load.requests(3), 20_000)) for load in loads] == found


def test_two_lengths_drawn_together_are_those_drawn_one_after_the_other() -> None:
    together, apart = Draws(5, "lengths").pairs(6.5, 0.8, 0.3, 1.4), Draws(5, "lengths")
    for _ in range(2000):
        assert next(together) == 1 + apart.whole(6.5, 0.8)
        assert next(together) == 1 + apart.whole(0.3, 1.4)
