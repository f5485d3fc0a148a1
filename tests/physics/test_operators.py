"""Closed forms of operator times: their limits, and that more never takes less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.physics.operators import (
    attention_decode_time,
    attention_prefill_time,
    gemm_time,
    memory_bound_time,
    soft_maximum,
)

RATE, BANDWIDTH = 7e14, 4e12
positive = st.floats(1e-7, 1.0)


def product(m=4096.0, n=4096.0, k=4096.0, chain=3e-6, growth=0.5, corner=4.0, start=3e-6, quantised=0.0):
    moved = 2.0 * (m * k + n * k + m * n)
    return gemm_time(
        2 * m * n * k, moved, quantised, RATE, BANDWIDTH, 0.85, 0.5, start, k / 4096, chain, growth, corner
    )


@given(positive, positive, st.floats(1.0, 12.0))
def test_a_norm_lies_between_the_larger_and_the_sum(a, b, corner):
    found = soft_maximum(a, b, corner)
    assert max(a, b) * (1 - 1e-12) <= found <= (a + b) * (1 + 1e-12)


def test_a_corner_of_one_is_a_sum():
    assert soft_maximum(2.0, 3.0, 1.0) == pytest.approx(5.0)


def test_large_products_reach_the_rate():
    big = product(16384.0, 16384.0, 16384.0)
    assert 2 * 16384.0**3 / big == pytest.approx(RATE, rel=0.01)


def test_few_tiles_cost_the_walk_along_the_reduction():
    small, half = product(16.0, 64.0, 65536.0), product(8.0, 64.0, 65536.0)
    assert small == pytest.approx(half, rel=0.03)
    assert small == pytest.approx(3e-6 + 3e-6 * 16**0.5, rel=0.05)
    assert product(16.0, 64.0, 65536.0, chain=0.0) < small


@given(
    st.floats(1, 1e5), st.floats(32, 1e5), st.floats(32, 1e5), st.sampled_from(["m", "n", "k"]), st.floats(1.01, 4.0)
)
def test_larger_products_take_longer(m, n, k, grown, factor):
    sizes = {"m": m, "n": n, "k": k}
    assert product(**{**sizes, grown: sizes[grown] * factor}) > product(**sizes)


def test_converting_inputs_adds_its_bytes():
    assert product(quantised=1e9) - product() == pytest.approx(1e9 / (0.5 * BANDWIDTH))


def test_old_calls_without_the_finer_terms_still_hold():
    plain = gemm_time(1e12, 1e9, 0.0, RATE, BANDWIDTH, 0.85, 0.5, 3e-6)
    assert plain == pytest.approx(3e-6 + soft_maximum(1e12 / RATE, 1e9 / (0.85 * BANDWIDTH)))


def test_short_sequences_do_not_fill_the_chip():
    work = 1e12
    assert attention_prefill_time(work, 300.0, 6e14, 300.0, 0.0) == pytest.approx(2 * work / 6e14)
    assert attention_prefill_time(work, 1e6, 6e14, 300.0, 0.0) == pytest.approx(work / 6e14, rel=1e-3)
    assert attention_prefill_time(1.0, 16.0, 6e14, 300.0, 1e-6, 5e-5) == pytest.approx(5.1e-5)


def test_decode_reads_the_cache_once_and_pays_for_rows():
    read = attention_decode_time(1e9, 1e9, 1e15, BANDWIDTH, 0.9, 6e-6)
    assert read == pytest.approx(6e-6 + 1e9 / (0.9 * BANDWIDTH))
    rows = attention_decode_time(1e3, 1e3, 1e15, BANDWIDTH, 0.9, 6e-6, 1e4, 1e-8)
    assert rows == pytest.approx(6e-6 + 1e-4, rel=1e-3)
    walk = attention_decode_time(1e3, 1e3, 1e15, BANDWIDTH, 0.9, 6e-6, 1.0, 1e-8, 4.0, 5e-6, 0.5)
    assert walk == pytest.approx(6e-6 + 1e-5, rel=1e-2)


def test_memory_bound_is_start_and_bytes():
    assert memory_bound_time(3.2e9, 4e12, 0.8, 2e-6) == pytest.approx(2e-6 + 1e-3)


def test_arrays_give_what_numbers_give():
    np = pytest.importorskip("numpy")
    ms = np.array([1.0, 64.0, 4096.0])
    assert product(m=ms) == pytest.approx([product(m=float(m)) for m in ms])
