"""Prompts of the attention rank that a step waits for."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.fullest_rank import fullest, fullest_at_random


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


@pytest.mark.parametrize("mean", [0, 0.5, 2, 10, 60, 300])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_prompts_that_go_to_any_rank_are_as_drawn(ranks, mean):
    """One that a step begins for, and others as chance makes them; lengths as above."""
    draw, found = np.random.default_rng(1), []
    for _ in range(3000):
        dealt = np.zeros(ranks)
        for rank in draw.integers(0, ranks, 1 + draw.poisson(mean)):
            dealt[rank] += draw.uniform(0.8, 1.0) / 0.9
        found.append(dealt.max())
    assert fullest_at_random(1 + mean, ranks, 1e9, 0.2 / 1.8 / 3**0.5) == pytest.approx(np.mean(found), rel=0.05)


@pytest.mark.parametrize("dealt", [fullest, fullest_at_random])
@given(st.floats(0.1, 500), st.integers(1, 64), st.floats(0.1, 20), st.floats(0, 1))
def test_the_fullest_rank_has_the_mean_at_least_and_no_more_than_fits(dealt, count, ranks, most, cv):
    each = dealt(count, ranks, most, cv)
    assert max(1.0, min(count / ranks, most)) * (1 - 1e-12) <= each <= max(1.0, most)
    assert dealt(1.1 * count, ranks, most, cv) >= each * (1 - 1e-12)
