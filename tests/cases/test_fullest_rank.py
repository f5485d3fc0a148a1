"""Prompts of the attention rank that a step waits for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.turns import fullest


@pytest.mark.parametrize("mean", [4, 20, 60])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_prompts_that_are_dealt_out_in_turn_are_as_drawn(ranks, mean):
    """Lengths of 0.8 to 1 of the longest, a number of them that chance makes."""
    draw, found = random.Random(1), []
    for _ in range(4000):
        dealt = [0.0] * ranks
        for i in range(sum(draw.random() < 0.5 for _ in range(2 * mean)) or 1):
            dealt[i % ranks] += draw.uniform(0.8, 1.0) / 0.9
        found.append(max(dealt))
    assert fullest(mean, ranks, 1e9, 0.2 / 1.8 / 3**0.5) == pytest.approx(sum(found) / len(found), rel=0.04)


@given(st.floats(0.1, 500), st.integers(1, 64), st.floats(0.1, 20), st.floats(0, 1))
def test_the_fullest_rank_has_the_mean_at_least_and_no_more_than_fits(count, ranks, most, cv):
    each = fullest(count, ranks, most, cv)
    assert max(1.0, min(count / ranks, most)) <= each <= max(1.0, most)
    assert fullest(1.1 * count, ranks, most, cv) >= each
