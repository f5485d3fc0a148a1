"""Caches of prefixes: what is found, as far as there is room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import serve
from mlsysim.cases.cache import DeviceMemory
from mlsysim.cases.prefix import found_prefixes
from mlsysim.errors import InputError
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

GIVEN = {"model": "Llama3_8B", "hardware": "H100", "precision": "bf16", "seq_len": 4000, "output_len": 200}
BOTH = pytest.mark.parametrize("efficiency", [0.5, "calibrated"])


def served(**more):
    return ServingModel().solve(**GIVEN, **more)


@given(st.floats(0, 1), st.floats(1, 1e9), st.floats(0, 1e12), st.integers(0, 100))
def test_no_more_is_found_than_is_asked_for_and_fits(asked, working, host, requests):
    memory = DeviceMemory(80e9, 16e9, 1e8)
    found = found_prefixes(memory, requests, 131072.0, 4000, asked, working, host, 64e9)
    assert 0 <= found.from_host <= found.share <= asked
    assert found.share <= asked * found.held / working * (1 + 1e-12)
    # What comes from the host crosses its link: that many of the prompt's tokens, at the bytes of a token.
    assert found.recall == pytest.approx(found.from_host * 4000 * 131072 / 64e9)
    more = found_prefixes(memory, requests, 131072.0, 4000, asked, working, host + 1e9, 64e9)
    assert more.share >= found.share


@BOTH
def test_what_is_found_is_not_read(efficiency):
    """Without a limit the same as a prefix of as many tokens."""
    cold, warm = (served(concurrency=4, efficiency=efficiency, prefix_hit_rate=h) for h in (0.0, 0.75))
    fixed = served(concurrency=4, efficiency=efficiency, cached_prefix_len=3000)
    assert warm.ttft_at_concurrency == fixed.ttft_at_concurrency < cold.ttft_at_concurrency
    assert warm.prompt_cache_hit_ratio == 0.75


@BOTH
def test_room_limits_what_is_found_and_the_host_has_more_of_it(efficiency):
    """Of 2 million tokens of 131,072 bytes (262 GB) some 45 to 68 GB fit beside the weights; 200 GB of the host hold the rest, at 64 GB/s."""
    given = {"concurrency": 4, "efficiency": efficiency, "prefix_hit_rate": 0.75, "prefix_tokens": 2_000_000}
    alone, offloaded = served(**given), served(**given, offload_memory="200 GB")
    assert 0.75 * 45e9 / 262e9 < alone.prompt_cache_hit_ratio < 0.75 * 68e9 / 262e9
    assert alone.prompt_cache_hit_ratio < offloaded.prompt_cache_hit_ratio <= 0.75
    part = next(part for part in offloaded.ledger.parts if "caches from the host" in part.name)
    moved = (offloaded.prompt_cache_hit_ratio - alone.prompt_cache_hit_ratio) * 4000 * 131072
    assert part.exposed == pytest.approx(moved / 64e9, rel=0.01)
    assert to_si(offloaded.ttft_at_concurrency, "s") < to_si(alone.ttft_at_concurrency, "s")
    assert "tokens of prefixes fit" in offloaded.assumptions["prefixes"]


def test_requests_that_come_at_random_leave_less_room():
    given = {"efficiency": "calibrated", "prefix_hit_rate": 0.5, "prefix_tokens": 1_000_000}
    few, many = (served(arrival_rate=rate, **given) for rate in (0.1, 8.0))
    assert many.prompt_cache_hit_ratio < few.prompt_cache_hit_ratio


def test_two_ways_to_say_it_are_one_too_many():
    with pytest.raises(InputError, match="cannot be given together"):
        served(prefix_hit_rate=0.5, cached_prefix_len=100)
    with pytest.raises(InputError, match=r"^prefix_hits and cached_prefix cannot be given together"):
        serve("Llama3_8B", "H100", prefix_hits=0.5, cached_prefix=100)


def test_one_accelerator_is_no_two_pools():
    with pytest.raises(InputError, match=r"^1 accelerator has no room for a pool"):
        serve("Llama3_8B", "H100", decode_on="auto")
