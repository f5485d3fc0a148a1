"""Experts that a pass touches, and the exchange of their tokens."""

from __future__ import annotations

import pytest

from mlsysim import Models, MoERoutingModel
from mlsysim.errors import InputError


def solve(**call: object):
    return MoERoutingModel().solve(**{"model": "DeepSeek_V3", **call})


def test_one_token_touches_what_it_activates() -> None:
    answer = solve()
    assert answer.effective_active_experts == pytest.approx(8)
    assert answer.active_parameter_multiplier == pytest.approx(1.0)


def test_many_tokens_touch_everything() -> None:
    answer = solve(batch_size=512, seq_len=64)
    assert answer.effective_active_experts == pytest.approx(256)
    assert answer.effective_active_parameters == pytest.approx(Models.DeepSeek_V3.parameter_count)


def test_a_batch_in_between_by_hand() -> None:
    assert solve(batch_size=32).effective_active_experts == pytest.approx(256 * (1 - (1 - 8 / 256) ** 32))


def test_dispatch_bytes_and_time() -> None:
    answer = solve(batch_size=32, ep_size=16, fleet="DeepSeek_2K")
    assert answer.token_dispatch_bytes.to("byte").magnitude == 32 * 8 * 7168 * 2
    assert answer.all_to_all_latency.to("ms").magnitude > 1
    skewed = solve(batch_size=32, ep_size=16, fleet="DeepSeek_2K", routing_imbalance_factor=2.0)
    assert skewed.all_to_all_latency.magnitude == pytest.approx(2 * answer.all_to_all_latency.magnitude)
    assert solve(batch_size=32).all_to_all_latency is None


def test_a_dense_model_has_nothing_to_route() -> None:
    with pytest.raises(InputError, match="no experts"):
        solve(model="Llama3_8B")
    with pytest.raises(InputError, match="256 experts"):
        solve(ep_size=7)
