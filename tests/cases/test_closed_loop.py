"""Clients in a closed loop, in rounds, at random and all at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlsysim
from mlsysim.cases.apart import disaggregated_arrivals, disaggregated_loop
from mlsysim.cases.cache import engine_memory
from mlsysim.cases.closed_loop import closed_loop, in_flight, open_loop
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.cases.turns import Turns, accepted_tokens
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


def arrivals_of(rate, prompt, answer, habits=None, **more):
    return Traffic(prompt, answer, rate=rate, habits=habits or Habits(), **more)


def test_one_client_sees_an_idle_engine():
    """The arrival theorem: a request meets the others, and there are none. Only its prompt and the front end are before its first token."""
    step = step_of()
    seen = closed_loop(step, clients_of(1, 1024, 512))
    own = step.engine
    assert seen.tpot == pytest.approx(step.time(1, 1024 + 256).total, rel=1e-6)
    idle = step.time(0, 0, 1, 1024).total + own.front_end + own.tokenise * 1024
    assert seen.ttft == pytest.approx(idle, rel=0.01)  # a decode kernel is started in some of the steps
    assert open_loop(step, arrivals_of(1e-6, 1024, 512)).ttft == pytest.approx(idle, rel=0.01)


SIMULATED = engine("vLLM").model_copy(
    update={
        "step": 0.608e-3,
        "per_sequence": 16e-6,
        "small_kernels": 16.0,
        "quantised_kernels": 0.0,
        "host_operator": 3.91e-6,
    }
    | {"waited_operator": 2.6e-6, "front_end": 0.010, "tokenise": 6e-6, "steps_ahead": 1.0, "models": ()}
)
"""Constants that the simulated figures below were made with."""


def test_the_first_token_of_an_idle_server_is_a_prefill_and_milliseconds():
    """8B on an H100, 512 tokens: no less than the arithmetic at the peak, 8.3 ms. Bare engines give a first token of 1,000 tokens in 28 ms on an H200."""
    own = engine("vLLM")
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("H100"), own, precision="bf16")
    seen = closed_loop(step, clients_of(1, 512, 128))
    bare = closed_loop(step, clients_of(1, 512, 128, Habits(server=False)))
    assert 2 * 8.03e9 * 512 / 989e12 < bare.ttft < seen.ttft < 0.045
    assert seen.ttft - bare.ttft == pytest.approx(own.front_end + 512 * own.tokenise)
    assert seen.ttft - bare.ttft < 0.015


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(64, 12_000),
    st.integers(1, 800),
    st.sampled_from(["vLLM", "SGLang", "TensorRT_LLM"]),
    st.sampled_from([None, 256, 512, 2048]),
)
@example(64, 2048, 1, "vLLM", 512)
@example(64, 2048, 1, "SGLang", None)
def test_no_prompt_is_lost(clients, prompt, answer, name, chunk):
    """Prompt tokens that are read a second are those of the requests that are answered: no more than the engine can read, be the answer
    one token and a prompt several steps."""
    step, asked = step_of(name), clients_of(clients, prompt, answer, Habits(rounds=1000), chunk=chunk)
    seen = closed_loop(step, asked)
    turns = Turns(step, asked, seen.active)
    assert seen.request_rate <= 1.01 / turns.pace(0.0)
    assert seen.request_rate * (seen.ttft + (answer - 1) * seen.tpot) == pytest.approx(clients)
    assert seen.ttft >= 0 and seen.tpot >= turns.decode(1.0) / turns.gain * 0.999
    flood = open_loop(step, arrivals_of(1e6, prompt, answer, chunk=chunk))
    assert flood.request_rate <= 1.01 / Turns(step, asked, flood.active).pace(0.0)


def test_a_prompt_that_fills_the_budget_is_not_dropped():
    """70B on 4 H100, 6,000 + 100 tokens, 111 clients: the loop answered 3.63 requests a second, a simulation on the same steps 3.01, with
    348 ms a token; a loop that drops a third of the prompts gives 213 ms."""
    step = engine_step(
        Models.get("Llama3_70B"), Hardware.get("H100"), SIMULATED, precision="fp8", cache_precision="fp8", tp=4
    )
    seen = closed_loop(step, clients_of(111, 6000, 100))
    read = seen.request_rate * 6000
    most = 8192 / step.time(60, 6050, 1, 8192).total
    assert read < most
    assert seen.tpot == pytest.approx(0.348, rel=0.1)
    assert seen.request_rate == pytest.approx(3.01, rel=0.1)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.9), st.floats(1.05, 2.0), st.sampled_from([(512, 256), (2000, 300), (8000, 200)]))
def test_more_requests_a_second_wait_longer(load, factor, lengths):
    step = step_of()
    most = open_loop(step, arrivals_of(1e6, *lengths))
    assert most.saturated
    few = open_loop(step, arrivals_of(load * most.request_rate, *lengths))
    many = open_loop(step, arrivals_of(min(factor * load, 0.95) * most.request_rate, *lengths))
    assert not few.saturated
    assert few.active <= many.active * (1 + 1e-6)
    assert few.ttft <= many.ttft * (1 + 1e-6)
    assert few.tpot <= many.tpot * (1 + 1e-6)
    # Little's law: those in flight are what comes in the time of an answer.
    assert few.active == pytest.approx(few.request_rate * lengths[1] * few.tpot, rel=1e-3)


@pytest.mark.parametrize(
    ("load", "cv", "ttft", "tpot"),
    [
        (2.3, 0.0, 0.1322, 0.01680),
        (2.3, 1.0, 0.1536, 0.01704),
        (4.6, 0.0, 0.1784, 0.02674),
        (4.6, 1.0, 0.2349, 0.02760),
        (6.2, 0.0, 0.2473, 0.04578),
        (6.2, 1.0, 0.3558, 0.04907),
    ],
)
def test_random_arrivals_beside_a_simulation(load, cv, ttft, tpot):
    """70B in fp8 on 4 H100, 2,000 + 300 tokens, beside the play of 20,000 requests on the same steps (bare engine, without the step that is scheduled ahead)."""
    step = step_of()
    ahead = SIMULATED.model_copy(update={"steps_ahead": 0})
    plain = EngineStep(replace(step.deployment, engine=ahead))
    seen = open_loop(plain, arrivals_of(load, 2000, 300, Habits(server=False, length_cv=cv)))
    assert seen.ttft == pytest.approx(ttft, rel=0.1)
    assert seen.tpot == pytest.approx(tpot, rel=0.06)


def test_too_many_requests_a_second_have_no_steady_state():
    step = step_of(tp=2)
    for seen in (open_loop, lambda s, t: disaggregated_arrivals(s, s, t)):
        full = seen(step, arrivals_of(1e9, 2000, 300))
        assert full.saturated and full.request_rate < 1e3
        below = seen(step, arrivals_of(0.9 * full.request_rate, 2000, 300))
        assert not below.saturated
        assert below.request_rate == pytest.approx(0.9 * full.request_rate)
        assert below.ttft < 10


def test_longer_tails_of_lengths_hold_more():
    """One finds long answers more often: the context of a request in flight is I + O (1 + cv^2)/2."""
    step = step_of()
    even, wide = (open_loop(step, arrivals_of(4.0, 500, 1000, Habits(length_cv=cv))) for cv in (0.0, 1.0))
    assert clients_of(1, 500, 1000, Habits(length_cv=1.0)).mean_context == 1500
    assert wide.active > even.active
    assert wide.ttft > even.ttft


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
    """Engines page: 8,192 + 1,024 tokens are kept as 8,704 and half a block on average, and TensorRT-LLM reserves all of them."""
    for name, kept in (("vLLM", 8192 + 512 + 7.5), ("TensorRT_LLM", 8192 + 1024)):
        step = step_of(name, tp=2)
        places = engine_memory(step, kept).sequences
        seen = closed_loop(step, clients_of(4 * places, 8192, 1024))
        assert seen.bound in ("memory", "prompts")
        assert seen.active <= places
        assert seen.ttft > 1024 * seen.tpot


def test_a_small_token_budget_slows_the_burst():
    slow = closed_loop(step_of(), clients_of(64, 1024, 1024, Habits(0.8), chunk=1100))
    fast = closed_loop(step_of(), clients_of(64, 1024, 1024, Habits(0.8), chunk=8192))
    assert slow.ttft > fast.ttft


def test_a_slot_for_each_client_is_enough_on_many_workers():
    """Four workers with a slot each, four clients: none waits (serving_runs.csv, DeepSeek on GB300, TEP 8: first token after 0.24 s of 7 s)."""
    step = step_of("TensorRT_LLM")
    free, enough = (
        disaggregated_loop(step, step, replace(clients_of(4, 1024, 1024, habits), replicas=4))
        for habits in (Habits(0.8), Habits(0.8, slots=1))
    )
    assert enough.ttft == pytest.approx(free.ttft, rel=1e-9) and enough.active <= 4


def test_decode_slots_bound_a_disaggregated_service():
    step = step_of("TensorRT_LLM")
    free = disaggregated_loop(step, step, clients_of(64, 1024, 1024, Habits(0.8)))
    tight = disaggregated_loop(step, step, clients_of(64, 1024, 1024, Habits(0.8, slots=16)))
    assert tight.tpot < free.tpot
    assert tight.ttft > 10 * free.ttft
    assert tight.bound == "slots"


def test_all_at_once_gives_less_than_clients_that_keep_asking():
    step = step_of("TensorRT_LLM_Cpp")
    once, kept = (closed_loop(step, clients_of(256, 128, 2048, Habits(rounds=rounds))) for rounds in (1, 10))
    assert once.tpot < kept.tpot  # in one round a request meets the prompts behind it alone
    assert once.ttft > kept.ttft_steady


def test_one_batch_reads_then_writes():
    step = step_of("gpt_fast")
    seen = closed_loop(step, clients_of(1, 128, 100, Habits(rounds=1, server=False)))
    assert seen.ttft == pytest.approx(step.time(0, 0, 1, 128).total, rel=1e-6)
    assert seen.tpot == pytest.approx(step.time(1, 128 + 50).total, rel=1e-6)


def test_without_a_server_there_is_no_front_end():
    step = step_of()
    served, asked = (closed_loop(step, clients_of(8, 500, 100, Habits(server=server))) for server in (True, False))
    own = step.engine
    # With a server a client's turn takes a while, after which it finds the engine within a step.
    assert served.ttft - asked.ttft > own.front_end + 500 * own.tokenise
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


def test_prompts_of_one_step_do_not_slow_each_others_answers():
    step = step_of()
    together = closed_loop(step, clients_of(8, 500, 256))  # 8 prompts of 500 tokens are one step of 8,192
    assert together.tpot == pytest.approx(step.time(8, 500 + 128).total, rel=0.01)
    assert closed_loop(step, clients_of(8, 500, 256, Habits(shortest=0.8))).tpot > 1.02 * together.tpot


def test_steps_that_a_prompt_misses_read_prompts_of_its_round():
    """Prompts of which one fits a step come one a step: the step that runs, half done, and those scheduled ahead read one each, but for the first of
    the round."""
    step, habits = step_of(), Habits(rounds=1000)
    seen = closed_loop(step, clients_of(8, 4000, 512, habits, chunk=4010.0))
    own, alone = step.time(7, 4000 + 256, 1, 4000).total, step.time(7, 4000 + 256).total
    missed = (0.5 + step.engine.steps_ahead) * (own / 8 * 7 + alone / 8)
    queued = own * (3.14159 / 32 * 7) ** 0.5
    front = step.engine.front_end + step.engine.tokenise * 4000
    assert seen.ttft_steady == pytest.approx(own + missed + queued + front, rel=0.03)


def test_as_many_as_are_answered_at_a_rate_are_found_in_a_few_tries():
    """n sequences give n / (a + b n) a second; more than ten that bend as much would need hundreds of halvings."""
    tried = []

    def answered(n):
        tried.append(n)
        return n / (2.0 + 0.1 * n)

    n, fastest = in_flight(answered, 9.0, 1000.0)
    assert n == pytest.approx(2.0 * 9.0 / (1 - 0.1 * 9.0), rel=1e-9) and fastest == answered(1000.0)
    assert len(tried) <= 15


@given(st.floats(0.01, 10), st.floats(1e-4, 1.0), st.floats(0.05, 0.98), st.floats(0.5, 2.0))
def test_requests_in_flight_are_no_less_exact_from_nearby(alone, each, load, off):
    def answered(n):
        return n / (alone + each * n)

    rate = load * answered(1000.0)
    exact = rate * alone / (1 - rate * each)
    far, fastest = in_flight(answered, rate, 1000.0)
    near, same = in_flight(answered, rate, 1000.0, near=off * far)
    assert same == fastest and abs(near - exact) <= max(abs(far - exact), 1e-8 * exact)


@pytest.mark.parametrize("near", [4.0, 7.9, 8.1, 12.0])
def test_where_steps_jump_what_is_followed_is_given_up_or_right(near):
    def answered(n):
        return n / (1.0 + (0.2 if n > 8 else 0.0))  # a graph of more rows

    n, _ = in_flight(answered, 7.5, 1000.0, near=near)
    assert n == pytest.approx(7.5) or n == pytest.approx(9.0)


def test_arrays_are_followed_point_by_point():
    numpy = pytest.importorskip("numpy")

    def answered(n):
        return n / (2.0 + 0.1 * n)

    rates = numpy.array([1.0, 5.0, 9.0, 11.0])
    near, _ = in_flight(answered, rates, 1000.0, near=numpy.array([2.1, 9.0, 210.0, 1000.0]))
    alone = [in_flight(answered, float(rate), 1000.0)[0] for rate in rates]
    assert near == pytest.approx(alone, rel=1e-8)


@pytest.mark.parametrize(
    ("model", "fleet", "lengths", "clients", "ranks"),
    [
        ("DeepSeek_V3", "16xH100", (4096, 1000), 256, 16),
        ("DeepSeek_V3", "8xH200", (1024, 1024), 512, 8),
        ("Llama3_70B", "4xH100", (1024, 512), 64, 1),
        ("Llama3_8B", "1xH100", (1000, 200), 64, 1),
    ],
)
def test_answers_of_one_length_come_again_together(model, fleet, lengths, clients, ranks):
    """Clients whose answers are of one length go on in groups that a step reads; over 16 ranks that read in turn otherwise a token would take twice as
    long as in the simulation of the same requests."""
    split = {"attention_dp": ranks} if ranks > 1 else {"tp": int(fleet.partition("x")[0])}
    asked = {"isl": lengths[0], "osl": lengths[1], "concurrency": clients} | split
    closed, played = (mlsysim.serve(model, on=fleet, **asked, **more) for more in ({}, {"slo": {"ttft_p99": "1000s"}}))
    assert closed.value("tpot") / played.value("tpot") == pytest.approx(1.0, abs=0.04)
