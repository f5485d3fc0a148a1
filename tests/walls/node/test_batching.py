"""Wall 5: pages, how many requests fit, what they write a second, against static reservations."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.memory import paged_cache_bytes
from mlsysim.walls.node.batching import ContinuousBatchingModel, paged_tokens
from mlsysim.walls.node.serving import ServingModel

CAPACITY = 80 * 2**30
PER_TOKEN = 131_072  # 2 x 32 layers x 8 heads x 128 x 2 bytes: Llama 3.1 8B


def batch(model="Llama3_8B", hardware="H100", seq_len=2000, **given_):
    return ContinuousBatchingModel().solve(model, hardware, seq_len, **given_)


def test_pages_are_whole():
    assert paged_tokens(2000, 16) == 2000
    assert paged_tokens(2001, 16) == 2016


def test_equation_8():
    answer = batch(seq_len=2001, max_batch_size=10)
    expected = 2 * 32 * 8 * 128 * math.ceil(2001 / 16) * 16 * 10 * 2
    assert answer.paged_kv_cache_size.to("byte").magnitude == expected
    assert expected == paged_cache_bytes(10, 2001, 16, 2 * 32 * 8 * 128, 2)
    assert answer.memory_fragmentation_pct == pytest.approx(100 * 15 / 2016)


def test_requests_that_fit_by_hand():
    answer = batch(max_batch_size=1000)
    assert answer.max_active_requests == math.floor((CAPACITY - 8.03e9 * 2) / (PER_TOKEN * 2000))
    assert answer.active_requests == answer.max_active_requests
    assert answer.binding.wall == 5 and "of 1000 requests" in answer.binding.sentence


def test_throughput_is_the_decode_roofline():
    answer = batch(max_batch_size=64)
    itl = (8.03e9 * 2 + 64 * PER_TOKEN * 2000) / 3.35e12 + 1e-5
    assert answer.itl.to("s").magnitude == pytest.approx(itl)
    assert answer.throughput_tokens_per_sec.magnitude == pytest.approx(64 / itl)
    same = ServingModel().solve("Llama3_8B", "H100", 2000, 64)
    assert same.itl.to("s").magnitude == pytest.approx(itl)
    assert answer.ttft == ServingModel().solve("Llama3_8B", "H100", 2000).ttft


def test_compute_binds_in_the_end():
    assert batch(seq_len=16, max_batch_size=2000).bottleneck == "Compute"
    assert batch(seq_len=16, max_batch_size=8).bottleneck == "Memory"


def test_static_baseline_wastes_half():
    answer = batch(max_batch_size=10_000)
    room = CAPACITY - 8.03e9 * 2
    assert answer.static_waste_pct == 50
    assert answer.static_active_requests == math.floor(room / (2 * PER_TOKEN * 2000))
    assert answer.speedup_vs_static > 1
    assert batch(max_batch_size=10_000, static_waste_fraction=0).speedup_vs_static == pytest.approx(1, rel=0.01)
    assert batch(max_batch_size=4).speedup_vs_static == 1


def test_static_baseline_of_a_stated_length():
    answer = batch(max_batch_size=10_000, max_seq_len=8000)
    assert answer.static_waste_pct == pytest.approx(75)
    assert answer.static_active_requests == math.floor((CAPACITY - 8.03e9 * 2) / (PER_TOKEN * 8000))
    assert "static_waste_fraction" not in answer.assumptions
    with pytest.raises(InputError, match="shorter than the 2000 tokens"):
        batch(max_seq_len=1000)


def test_a_group_shares_weights_and_caches():
    answer = batch("Llama3_70B", max_batch_size=10_000, tp_size=4)
    per_token = 2 * 80 * 8 * 128 * 2
    assert answer.max_active_requests == math.floor((CAPACITY - 141.2e9 / 4) / (per_token / 4 * 2000))
    assert answer.feasible


def test_what_does_not_fit_says_what_would():
    answer = batch("Llama3_70B")
    assert not answer.feasible
    assert (answer.max_active_requests, answer.active_requests, answer.speedup_vs_static) == (0, 0, None)
    assert answer.binding.wall == 2
    assert "store the weights in fp8" in answer.remedies
    assert "if it fitted" in answer.assumptions["active_requests"]
    assert answer.itl.to("ms").magnitude > 42


def test_states_do_not_grow():
    short, long = (batch("Mamba_2_8B", seq_len=s, max_batch_size=10**6) for s in (16, 100_000))
    assert short.max_active_requests == long.max_active_requests > 0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 64), st.sampled_from([1, 16, 128, 512]))
def test_pages_waste_less_than_one_page(length, requests, page):
    answer = batch(seq_len=length, max_batch_size=requests, page_size=page)
    wasted = answer.memory_fragmentation_pct / 100 * paged_tokens(length, page)
    assert -1e-6 <= wasted < page
    finer = batch(seq_len=length, max_batch_size=requests, page_size=1)
    assert finer.max_active_requests >= answer.max_active_requests
    assert finer.memory_fragmentation_pct == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(1, 100), st.integers(1, 4000))
def test_more_requests_never_write_less(requests, more, length):
    few, many = batch(seq_len=length, max_batch_size=requests), batch(seq_len=length, max_batch_size=requests + more)
    assert many.throughput_tokens_per_sec >= few.throughput_tokens_per_sec * (1 - 1e-12)
    assert many.itl >= few.itl * (1 - 1e-12)


def test_sentences():
    with pytest.raises(InputError, match=r"'page_size'.*at least 1"):
        batch(page_size=0)
    with pytest.raises(InputError, match="write token after token"):
        batch("ResNet50")
    with pytest.raises(InputError, match="size of the cache"):
        batch(TransformerWorkload(name="7B", parameters=7e9, layers=32))


def test_memory_kept_back():
    whole, part = batch(max_batch_size=10_000), batch(max_batch_size=10_000, memory_fraction=0.9)
    assert part.max_active_requests == math.floor((0.9 * CAPACITY - 8.03e9 * 2) / (PER_TOKEN * 2000))
    assert part.max_active_requests < whole.max_active_requests
