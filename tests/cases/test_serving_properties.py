"""What holds for every server: an idle one, conservation, signs, and limits in which one form is another."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.iterations import Iterations
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import ENGINES, engine, engine_network
from mlsysim.timing.network import copies
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel, ServingResult

FEW = settings(max_examples=12, deadline=None)
SERVED = [
    ("Llama3_8B", "bf16", 1),
    ("Llama3_70B", "fp8", 4),
    ("Mixtral_8x7B", "bf16", 4),
    ("DeepSeek_V3", "fp8", 8),
    ("Mamba2_2_7B", "bf16", 1),
]
IDLE = 1e-7
"""Requests a second that never meet."""


@cache
def steps(model: str, precision: str, tp: int, name: str = "vLLM", chip: str = "H200", **more: Any) -> EngineStep:
    return engine_step(Models.get(model), Hardware.get(chip), engine(name), precision=precision, tp=tp, **more)


def served(model: str = "Llama3_70B", chip: Any = "H100", **given: Any) -> ServingResult:
    usual = {"seq_len": 1000, "output_len": 200, "precision": "fp8", "cache_precision": "bf16", "tp_size": 4}
    return ServingModel().solve(model, chip, efficiency="calibrated", **(usual | given))


def seconds(time: Any) -> float:
    return float(to_si(time, "s"))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("model", "precision", "tp"), SERVED)
def test_an_idle_server_reads_a_prompt_and_has_a_front_end_of_milliseconds(name, model, precision, tp):
    found = served(
        model,
        "H200",
        precision=precision,
        tp_size=tp,
        engine=name,
        arrival_rate=IDLE,
        seq_len=400,
        memory_fraction=0.95,
    )
    step, own = steps(model, precision, tp, name), engine(name)
    front = own.front_end + 400 * own.tokenise
    assert front < 0.025
    prefill = step.time(prompts=1.0, prompt_tokens=400.0).total
    assert seconds(found.ttft_at_concurrency) == pytest.approx(prefill + front, rel=1e-4)
    alone = served(
        model, "H200", precision=precision, tp_size=tp, engine=name, concurrency=1, seq_len=400, memory_fraction=0.95
    )
    assert seconds(alone.ttft_at_concurrency) == pytest.approx(prefill + front, rel=1e-4)


@FEW
@given(share=st.floats(0.01, 0.95), length=st.sampled_from([100, 1000, 6000]), name=st.sampled_from(["vLLM", "SGLang"]))
def test_what_comes_is_answered_and_no_more(share, length, name):
    most = served(seq_len=length, engine=name, arrival_rate=1e6)
    capacity = to_si(most.output_tokens_per_sec, "1/s") / 200
    assert most.saturated and capacity < 1e6
    found = served(seq_len=length, engine=name, arrival_rate=share * capacity)
    tokens = to_si(found.output_tokens_per_sec, "1/s")
    assert tokens == pytest.approx(share * capacity * 200, rel=1e-9)
    # Little's law: those that are answered at once write a token each in the time of one.
    assert found.active_requests / seconds(found.tpot) == pytest.approx(tokens, rel=1e-3)


@FEW
@given(rate=st.floats(0.05, 6.0), more=st.floats(1.0, 1.5))
def test_more_requests_are_never_answered_sooner_and_more_replicas_never_later(rate, more):
    one, many = (served(arrival_rate=each) for each in (rate, rate * more))
    two = served(arrival_rate=rate, num_replicas=2)
    for name in ("ttft_at_concurrency", "tpot"):
        here, there, spread = (seconds(getattr(each, name)) for each in (one, many, two))
        assert there >= here * (1 - 1e-3) and spread <= here * (1 + 1e-3)


@FEW
@given(
    factor=st.floats(1.0, 4.0), clients=st.sampled_from([1, 16, 128]), name=st.sampled_from(["bandwidth", "capacity"])
)
def test_a_better_memory_is_never_worse(factor, clients, name):
    chip = Hardware.get("H100")
    memory = chip.memory.model_copy(update={name: getattr(chip.memory, name) * factor})
    plain, better = (
        served(chip=each, concurrency=clients) for each in (chip, chip.model_copy(update={"memory": memory}))
    )
    assert seconds(better.tpot) <= seconds(plain.tpot) * (1 + 1e-9)
    assert better.max_batch_size >= plain.max_batch_size
    assert better.output_tokens_per_sec >= plain.output_tokens_per_sec * (1 - 1e-9)


@pytest.mark.parametrize(("model", "precision", "tp"), SERVED)
def test_one_stage_is_no_pipeline_and_one_group_of_attention_none(model, precision, tp):
    step = steps(model, precision, tp)
    for asked in ((8.0, 1000.0), (8.0, 1000.0, 1.0, 500.0), (0.0, 0.0, 2.0, 500.0)):
        assert Iterations(step).time(*asked).total == step.time(*asked).total
    options = {"precision": precision, "tp_size": tp, "concurrency": 8}
    plain, one = (served(model, "H200", **options, **more) for more in ({}, {"attention_dp": 1, "pp_size": 1}))
    assert (one.ttft_at_concurrency, one.tpot) == (plain.ttft_at_concurrency, plain.tpot)


@pytest.mark.parametrize("name", ["vLLM", "SGLang", "TensorRT_LLM"])
@pytest.mark.parametrize("rate", [None, "1 GB/s", "1e9 GB/s"])
def test_an_idle_pool_of_its_own_costs_the_hand_over(name, rate):
    """One pool's first token, the transfer (each device's part over its port, or all of it at a stated rate), t_0 and a step of the writers."""
    given = {"engine": name, "arrival_rate": IDLE, "chip": "H100"}
    apart = served(**given, decode_hardware="H200", **({} if rate is None else {"network_bandwidth": rate}))
    step, writer = steps("Llama3_70B", "fp8", 4, name, "H100"), steps("Llama3_70B", "fp8", 4, name)
    moved = step.port_bytes(1000) / step.network.link
    if rate is not None:
        moved = step.cache_bytes(1000) / (float(rate.split()[0]) * 1e9)
    extra = seconds(apart.ttft_at_concurrency) - seconds(served(**given).ttft_at_concurrency)
    token = writer.time(1.0, 1100.0).total
    assert extra == pytest.approx(engine(name).hand_over + moved + token, rel=2e-3)
    assert step.port_bytes(1000) == pytest.approx(step.cache_bytes(1000) / 4)


@FEW
@given(
    nodes=st.integers(1, 16), choices=st.sampled_from([1, 2, 8]), port=st.floats(1e9, 1e12), faster=st.floats(1.0, 10)
)
def test_a_token_goes_at_most_once_to_each_node(nodes, choices, port, faster):
    chip = Hardware.get("H200")
    slow, fast = (engine_network(chip, port=each) for each in (port, port * faster))
    group = slow.group(8 * nodes)
    once, each = (copies(group, choices, deduplicated) for deduplicated in (True, False))
    assert once <= min(each, nodes - 1) + 1e-12
    assert once == pytest.approx(each) if choices == 1 or nodes == 1 else once < each
    for net in (slow, fast):
        assert net.exchange(1e6, choices, group, True) <= net.exchange(1e6, choices, group, False) * (1 + 1e-12)
    assert fast.exchange(1e6, choices, group, True) <= slow.exchange(1e6, choices, group, True)
    endless = engine_network(chip, port=math.inf)
    starts = endless.fabric_latency - endless.link_latency if nodes > 1 else 0.0
    assert endless.exchange(1e6, choices, group, False) == pytest.approx(
        endless.exchange(1e6, choices, endless.group(8), False) + starts
    )


def test_prompts_over_nodes_are_sent_once_and_decode_steps_directly():
    """DeepSeek-V3 over four nodes: 8 experts of a token, from 4 of 8 groups, are on 2.2 other nodes, where each copy by itself crosses 6 times,
    1.25 times as often to the busiest device."""
    plain = engine("vLLM").model_copy(update={"models": ()})
    step = engine_step(
        Models.get("DeepSeek_V3"), Hardware.get("H200"), plain, precision="fp8", tp=1, attention_dp=32, moe_ep=32
    )
    group = step.network.group(32)
    assert copies(group, 8, True) == pytest.approx(3 * (1 - 0.75**8)) and copies(group, 8, False) == 6
    sent = [step.rows(0.0, 4000.0, 0.0, 1.0), step.rows(64.0, 0.0, 64.0, 0.0)]
    layers, width = 58, 7168
    # Four of eight groups, two of which are on a node: a node is missed with probability C(6, 4)/C(8, 4) or by the choices within.
    once = copies(group, 8, True, (8, 4))
    assert once < 3 * (1 - 15 / 70) < copies(group, 8, True)
    for rows, tokens, crossing in zip(sent, (4000, 64), (once, 6 * 1.25), strict=True):
        starts = layers * 2 * rows.halves * step.network.fabric_latency
        bytes_sent = layers * tokens * width * 3 * crossing
        assert rows.exchange - starts == pytest.approx(bytes_sent / (0.8 * 50e9), rel=1e-3)
