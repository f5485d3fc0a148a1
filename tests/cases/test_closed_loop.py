"""Clients in a closed loop, in rounds, at random and all at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.cache import engine_memory
from mlsysim.cases.closed_loop import accepted_tokens, closed_loop, disaggregated_loop
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine
from mlsysim.walls.node.batching import ContinuousBatchingModel
from mlsysim.walls.node.serving import ServingModel


def step_of(name: str = "vLLM", tp: int = 4) -> EngineStep:
    return engine_step(
        Models.get("Llama3_70B"), Hardware.get("H100"), engine(name), precision="fp8", cache_precision="fp8", tp=tp
    )


def clients_of(concurrency, prompt, answer, habits=None, **more):
    return Traffic(prompt, answer, concurrency=concurrency, habits=habits or Habits(), **more)


def test_draft_tokens_that_are_always_taken():
    assert accepted_tokens(3, 1.0) == 4
    assert accepted_tokens(2, 0.5) == 1.75
    assert accepted_tokens(0, 0.9) == 1


def test_one_client_sees_an_idle_engine():
    step = step_of()
    seen = closed_loop(step, clients_of(1, 1024, 512))
    decode = step.time(1, 1024 + 256).total
    prompt = step.time(1, 1280, 1, 1024).total
    assert seen.tpot == pytest.approx(decode, rel=0.05)
    assert seen.ttft >= prompt


@settings(max_examples=25)
@given(st.integers(1, 200), st.sampled_from(["vLLM", "SGLang", "TensorRT_LLM"]))
def test_more_clients_wait_longer(clients, name):
    few = closed_loop(step_of(name), clients_of(clients, 1024, 1024, Habits(0.8)))
    many = closed_loop(step_of(name), clients_of(2 * clients, 1024, 1024, Habits(0.8)))
    assert many.tpot >= few.tpot
    assert many.ttft >= few.ttft * 0.99


def test_little_holds():
    seen = closed_loop(step_of(), clients_of(64, 1024, 1024))
    whole = seen.ttft + 1023 * seen.tpot
    assert seen.request_rate * whole == pytest.approx(64)


def test_memory_makes_clients_wait():
    step = step_of(tp=2)
    places = engine_memory(step, 8192 + 1024).sequences
    seen = closed_loop(step, clients_of(4 * places, 8192, 1024))
    assert seen.bound in ("memory", "prompts")
    assert seen.active <= places + 1
    assert seen.ttft > 1024 * seen.tpot


def test_a_small_token_budget_slows_the_burst():
    slow = closed_loop(step_of(), clients_of(64, 1024, 1024, Habits(0.8), chunk=1100))
    fast = closed_loop(step_of(), clients_of(64, 1024, 1024, Habits(0.8), chunk=8192))
    assert slow.ttft > fast.ttft


def test_decode_slots_bound_a_disaggregated_service():
    step = step_of("TensorRT_LLM")
    free = disaggregated_loop(step, step, clients_of(64, 1024, 1024, Habits(0.8)))
    tight = disaggregated_loop(step, step, clients_of(64, 1024, 1024, Habits(0.8, slots=16)))
    assert tight.tpot < free.tpot
    assert tight.ttft > 10 * free.ttft
    assert tight.bound == "slots"


def test_random_arrivals_meet_no_queue_of_their_round():
    """Clients of one length keep asking together; requests that come at random meet the one before them at most."""
    step = step_of("TensorRT_LLM_Cpp")
    together, apart = (closed_loop(step, clients_of(64, 500, 500, Habits(random=random))) for random in (False, True))
    assert apart.ttft < 0.5 * together.ttft
    assert apart.tpot == pytest.approx(together.tpot, rel=0.05)
    alone = closed_loop(step, clients_of(1, 500, 500, Habits(random=True)))
    # Alone, a prompt waits for the rest of the running step of the answer before it, and is read.
    assert alone.ttft == pytest.approx(step.time(0, 0, 1, 500).total + step.engine.front_end, rel=0.3)


def test_all_at_once_gives_less_than_clients_that_keep_asking():
    step = step_of("TensorRT_LLM_Cpp")
    once, kept = (closed_loop(step, clients_of(256, 128, 2048, Habits(rounds=rounds))) for rounds in (1, 10))
    assert once.tpot < kept.tpot  # in one round a request meets the prompts behind it alone
    assert once.ttft > kept.ttft_steady


def test_one_batch_reads_then_writes():
    step = step_of("gpt_fast")
    seen = closed_loop(step, clients_of(1, 128, 100, Habits(rounds=1, server=False)))
    # The loop reads a prompt beside the answers that are written: here one token of decode.
    assert seen.ttft == pytest.approx(step.time(1, 128 + 50, 1, 128).total, rel=1e-3)
    assert seen.ttft == pytest.approx(step.time(0, 0, 1, 128).total, rel=0.1)
    assert seen.tpot == pytest.approx(step.time(1, 128 + 50).total, rel=0.02)


def test_without_a_server_there_is_no_front_end():
    step = step_of()
    served, asked = (closed_loop(step, clients_of(8, 500, 100, Habits(server=server))) for server in (True, False))
    assert served.ttft - asked.ttft == pytest.approx(step.engine.front_end)
    assert served.tpot == asked.tpot


def test_calibrated_serving_is_slower_than_the_bound():
    given = {"model": "Llama3_70B", "hardware": "H100", "seq_len": 1024, "batch_size": 16, "precision": "fp8"}
    given["tp_size"] = 4
    bound = ServingModel().solve(**given, efficiency=1.0)
    timed = ServingModel().solve(**given, efficiency="calibrated")
    assert timed.itl > bound.itl
    assert timed.ttft > bound.ttft
    assert timed.tpot is None
    assert timed.assumptions["engine"] == "vLLM"
    assert timed.itl_interval[0] < timed.itl < timed.itl_interval[1]
    assert "engine" not in bound.assumptions


def test_calibrated_serving_at_a_concurrency():
    given = {"model": "Llama3_8B", "hardware": "H100", "seq_len": 1024, "efficiency": "calibrated", "output_len": 256}
    few = ServingModel().solve(**given, concurrency=4)
    many = ServingModel().solve(**given, concurrency=64)
    assert many.tpot > few.tpot
    assert many.output_tokens_per_sec > few.output_tokens_per_sec
    other = ServingModel().solve(**given, concurrency=64, engine="SGLang")
    assert other.tpot != many.tpot
    assert "ITL" in many.explain()


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_concurrency_needs_an_answer(efficiency):
    with pytest.raises(InputError, match="output_len"):
        ServingModel().solve("Llama3_8B", "H100", seq_len=128, efficiency=efficiency, concurrency=4)


def test_calibrated_batching():
    plain = ContinuousBatchingModel().solve("Llama3_8B", "H100", seq_len=2048, max_batch_size=64)
    timed = ContinuousBatchingModel().solve(
        "Llama3_8B", "H100", seq_len=2048, max_batch_size=64, efficiency="calibrated", output_len=256, concurrency=32
    )
    assert timed.itl > plain.itl
    # The engine keeps a tenth of the memory, and the workspace of its kernels.
    assert timed.max_active_requests < plain.max_active_requests
    assert timed.tpot > timed.itl * 0.5
    assert timed.speedup_vs_static is not None
