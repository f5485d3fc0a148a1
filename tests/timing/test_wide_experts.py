"""Experts on several nodes: what was published of DeepSeek-V3 on Hopper, none of which a constant was fitted on, and what must hold.

Large-scale expert parallelism of SGLang on 96 H100 (lmsys.org/blog/2025-05-05-large-scale-ep): prompts on 4 nodes 50,302 tokens a second and node, 59,337
with balanced experts, and 62,713 in DeepSeek's own profile; answers on 9 nodes 22,282. DeepEP, docs/legacy.md: H800 with 400 Gb/s ports.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine, engine_network
from mlsysim.timing.network import copies
from mlsysim.timing.training_chip import lone_chip


def _steps(ranks: int, software: str = "SGLang"):
    layout = {"attention_dp": ranks, "moe_ep": ranks, "precision": "fp8_block"}
    return engine_step(Models.get("DeepSeekV3"), Hardware.get("H100"), engine(software), **layout)


@pytest.mark.parametrize("software", ["SGLang", "vLLM"])
def test_prompts_on_four_nodes_are_read_as_fast_as_published(software):
    taken = _steps(32, software).time(prompts=4.0, prompt_tokens=4096.0).total
    assert 0.9 * 50_302 < 8 * 16_384 / taken < 1.15 * 62_713


def test_answers_on_nine_nodes_are_written_as_fast_as_published():
    taken = _steps(72).time(256.0, 2000.0).total
    assert 8 * 256 / taken == pytest.approx(22_282, rel=0.15)


def test_exchanges_take_what_was_measured():
    net, token = engine_network(Hardware.get("H100")), 7168
    limit = Models.get("DeepSeekV3").routing_limit
    # Few tokens go straight to their experts: 128 of 8-bit there in 173 us, of 16-bit back in 314 us, on 8 nodes.
    for size, measured in ((128 * token, 173e-6), (128 * token * 2, 314e-6)):
        assert net.exchange(size, 8, net.group(64)) == pytest.approx(measured, rel=0.2)
    # 4,096 tokens go once to each of four nodes: 58 GB/s, with what stays on the node, which is a quarter.
    size, group = 4096 * token, net.group(32)
    logical = size * copies(group, 8, True, limit) * 4 / 3
    assert logical / net.exchange(size, 8, group, True, limit) == pytest.approx(58e9, rel=0.15)


@pytest.mark.parametrize("chip", ["H100", "A100", "MI300X", "L40S"])
def test_sums_across_nodes_are_those_of_training(chip):
    """Engines' own kernels end at a node; what one message costs over nodes has one answer, whoever sends it."""
    net, training = engine_network(Hardware.get(chip)), lone_chip(Hardware.get(chip), "bf16").network
    group, prompt = net.group(16), 2048 * 7168 * 2
    assert net.all_reduce(14336, group) > net.all_reduce(14336, net.group(8))
    # All eight ports of a node carry a prompt's sums: twice an eighth of them each, and no port all of them.
    assert net.all_reduce(prompt, group) - net.all_reduce(0.0, group) > 2 / 16 * prompt / 50e9
    if chip == "H100":
        assert net.all_reduce(prompt, group) < prompt / 50e9
        assert training.fabric == net.far.fabric
        assert net.all_reduce(prompt, group) == training.all_reduce(prompt, training.group(16))


def test_a_published_first_token_over_two_nodes():
    """DeepSeek-R1 in 8 bits on 2 x 8 H100 under SGLang with InfiniBand (tenstorrent/tt-inference-server, issue 356, no constant has seen it): 190 ms for the
    first token of 2,048, front end included."""
    layout = {"tp": 16, "moe_tp": 16, "precision": "fp8_block"}
    step = engine_step(Models.get("DeepSeek_R1"), Hardware.get("H100"), engine("SGLang"), **layout)
    assert step.time(prompts=1.0, prompt_tokens=2048.0).total < 190e-3


@given(answers=st.integers(1, 400), context=st.integers(0, 30_000), tokens=st.sampled_from([0, 100, 511, 512, 8192]))
def test_a_halved_step_is_no_shorter_than_either_of_what_it_hides(answers, context, tokens):
    step = _steps(32)
    asked = float(answers), float(context), *((1.0, float(tokens)) if tokens else ())
    rows = step.rows(float(answers), float(tokens), float(answers), float(tokens > 0))
    found = step.time(*asked)
    assert found.device >= rows.exchange * (1 - 1e-12)
    assert rows.halves == (2.0 if answers >= 32 or tokens >= 512 else 1.0)


def test_one_node_has_nothing_to_hide():
    assert not _steps(8).halves
    assert _steps(16).halves
    assert not _steps(16, "TensorRT_LLM").halves
