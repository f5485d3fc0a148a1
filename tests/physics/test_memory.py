"""Caches and attention pairs: known answers, brute force and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.physics.memory import cache_bytes, causal_pairs, paged_cache_bytes

FEW = st.integers(min_value=0, max_value=200)
COUNT = st.integers(min_value=1, max_value=10_000)


def brute_force_pairs(new: int, context: int, window: int) -> int:
    return sum(min(position, window) for position in range(context + 1, context + new + 1))


@given(new=FEW, context=FEW, window=st.integers(min_value=1, max_value=500))
def test_causal_pairs_against_a_sum(new, context, window):
    assert causal_pairs(new, context, window) == brute_force_pairs(new, context, window)


@pytest.mark.parametrize(
    ("new", "context", "window", "pairs"),
    [
        (4, 0, 1000, 10),
        (4, 0, 2, 1 + 2 + 2 + 2),
        (1, 99, 1000, 100),
        (1, 99, 10, 10),
        (3, 2, 4, 3 + 4 + 4),
        (8192, 0, 10**9, 8192 * 8193 / 2),
    ],
)
def test_causal_pairs_known_answers(new, context, window, pairs):
    assert causal_pairs(new, context, window) == pairs


@given(first=FEW, second=FEW, context=FEW, window=st.integers(min_value=1, max_value=500))
def test_prefill_in_two_chunks_sees_as_many_pairs_as_in_one(first, second, context, window):
    chunks = causal_pairs(first, context, window) + causal_pairs(second, context + first, window)
    assert chunks == causal_pairs(first + second, context, window)


@given(new=FEW, context=FEW, window=st.integers(min_value=1, max_value=500))
def test_a_wider_window_never_sees_less_and_never_more_than_everything(new, context, window):
    pairs = causal_pairs(new, context, window)
    assert pairs <= causal_pairs(new, context, window + 1) <= new * context + new * (new + 1) / 2
    assert pairs <= new * window


def test_cache_of_llama_3_70b():
    per_token = 2 * 80 * 8 * 128
    assert cache_bytes(1, 1, per_token, 2) == 327_680
    assert cache_bytes(32, 8192, per_token, 2) == 32 * 8192 * 327_680


def test_cache_of_deepseek_v3_is_576_elements_a_layer():
    assert cache_bytes(1, 1, 61 * 576, 2) == 70_272


@given(sequences=COUNT, tokens=COUNT, page=st.integers(min_value=1, max_value=256))
def test_paged_cache_wastes_less_than_a_page_for_each_sequence(sequences, tokens, page):
    plain = cache_bytes(sequences, tokens, 10, 2)
    paged = paged_cache_bytes(sequences, tokens, page, 10, 2)
    assert plain <= paged < plain + cache_bytes(sequences, page, 10, 2)
    if tokens % page == 0:
        assert paged == plain
    assert paged_cache_bytes(sequences, tokens, 1, 10, 2) == plain


def test_paged_cache_known_answer():
    assert paged_cache_bytes(3, 17, 16, 10, 2) == 3 * 32 * 10 * 2
