"""Groups of sequences that take turns on the stages of a pipeline, and drafts, at both fidelities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.iterations import Iterations
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.stage_turns import pipelined_completion, pipelined_period, pipelined_share
from mlsysim.search.serving import evaluate
from mlsysim.search.space import Space
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import ENGINES, engine
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

FIDELITIES = (0.5, "calibrated")


def step_of(pp: int = 1, tp: int = 1, name: str = "vLLM", model: str = "Llama3_70B") -> EngineStep:
    layout = {"precision": "fp8", "cache_precision": "fp8", "tp": tp, "pp": pp}
    return engine_step(Models.get(model), Hardware.get("H200"), engine(name), **layout)


def served(fidelity, pp=1, tp=1, clients=64, prompt=512, **more):
    given = {"precision": "fp8", "cache_precision": "fp8", "tp_size": tp, "pp_size": pp, "output_len": 256} | more
    return ServingModel().solve("Llama3_70B", "H200", prompt, efficiency=fidelity, concurrency=clients, **given)


def rate(result) -> float:
    return to_si(result.output_tokens_per_sec, "1/s")


@given(st.floats(1e-3, 1.0), st.integers(1, 64), st.integers(1, 16))
def test_no_group_is_faster_than_a_pass_and_no_stage_does_more_than_one_at_a_time(time, groups, stages):
    stage = time / stages
    period = pipelined_period(time, groups, stage)
    assert period >= time and groups / period <= 1 / stage * (1 + 1e-12)
    last = pipelined_completion(time, groups, stage)
    assert last == pytest.approx((groups + stages - 1) * stage)
    assert pipelined_share(groups, 1 / stages) * last == pytest.approx(groups * stage)
    assert pipelined_share(groups, 1.0) == 1.0


@settings(max_examples=20)
@given(st.sampled_from(ENGINES), st.integers(1, 8), st.integers(1, 64), st.integers(1, 8192))
def test_one_group_of_one_stage_is_the_engine_itself(name, tp, sequences, context):
    step = step_of(tp=2 ** (tp % 4), name=name)
    assert Iterations(step).time(sequences, context).total == step.time(sequences, context).total
    assert Iterations(step).sequence_bytes(context) == step.sequence_bytes(context)


@settings(max_examples=20)
@given(st.sampled_from([2, 3, 5, 8]), st.integers(1, 256), st.integers(1, 8192))
def test_a_token_takes_at_least_a_pass_through_all_layers(pp, sequences, context):
    """The whole network's time on one device's share of the tensors, which stages do not divide."""
    whole = step_of().time(sequences, context)
    pipeline = step_of(pp)
    alone, busy = Iterations(pipeline, 1.0), Iterations(pipeline, float(pp))
    assert alone.time(sequences, context).total >= whole.total
    assert busy.time(sequences, context).total >= alone.time(sequences, context).total
    # A stage serves a group in its share of the pass: never less than an even one.
    assert busy.time(sequences, context).stage >= whole.device / pp * (1 - 1e-12)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_stages_with_as_many_more_clients_double_the_rate(fidelity):
    """A published sweep of Llama-70B over PP at a fixed TP doubles its throughput with each doubling of the stages."""
    rates = [rate(served(fidelity, pp, clients=64 * pp)) for pp in (1, 2, 4, 8)]
    for before, after in pairwise(rates):
        assert after / before == pytest.approx(2.0, rel=0.12)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_more_stages_are_never_slower_for_many_nor_faster_for_one(fidelity):
    many = [rate(served(fidelity, pp, clients=256)) for pp in (1, 2, 4, 8)]
    assert many == sorted(many)
    alone = [to_si(served(fidelity, pp, clients=1).tpot, "s") for pp in (1, 2, 4, 8)]
    assert alone == sorted(alone) and alone[-1] == pytest.approx(alone[0], rel=0.1)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_stages_hold_the_caches_of_all_groups(fidelity):
    one, four = (served(fidelity, pp, tp=2, clients=8) for pp in (1, 4))
    cache = [to_si(each.memory_breakdown["KV caches"], "byte") for each in (one, four)]
    assert cache[1] == pytest.approx(cache[0] / 4)
    assert four.max_batch_size > 4 * one.max_batch_size
    assert four.longest_context >= one.longest_context


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_chunks_of_a_prompt_follow_each_other_through_the_stages(fidelity):
    """c chunks on p stages take c + p - 1 times a stage, as in any pipeline; not c passes."""
    given = {"precision": "fp8", "efficiency": fidelity, "prefill_chunk_tokens": 1024}
    one, four = (ServingModel().solve("Llama3_70B", "H200", 8192, pp_size=pp, **given) for pp in (1, 4))
    ratio = to_si(four.ttft, "s") / to_si(one.ttft, "s")
    assert (8 + 3) / (8 * 4) * 0.95 < ratio < (8 + 3) / (8 * 4) * 1.25
    alone = [
        ServingModel().solve("Llama3_70B", "H200", 8192, pp_size=pp, **given, concurrency=1, output_len=8)
        for pp in (1, 4)
    ]
    assert to_si(alone[1].ttft_at_concurrency, "s") < to_si(alone[0].ttft_at_concurrency, "s") / 2


@pytest.mark.parametrize("clients", [1, 16, 128])
def test_a_draft_model_does_not_change_how_clients_are_served(clients):
    """The same load with and without a draft: the first token of a request waits for the same things."""
    plain = served("calibrated", tp=4, clients=clients)
    drafted = served("calibrated", tp=4, clients=clients, draft_model="Llama3_2_1B")
    assert drafted.assumptions["clients"] == plain.assumptions["clients"]
    assert plain.ttft_at_concurrency <= drafted.ttft_at_concurrency < 2 * plain.ttft_at_concurrency
    assert {p.name for p in plain.ledger.parts} <= {p.name for p in drafted.ledger.parts}


@settings(max_examples=15)
@given(st.integers(1, 8), st.integers(1, 64))
def test_drafts_that_are_never_taken_cost_their_time(drafted, sequences):
    """A share of 0: one token for the verification of K + 1 and K steps of the draft; no draft tokens: nothing."""
    step, draft = step_of(tp=2), step_of(tp=2, model="Llama3_2_1B")
    both = Iterations(step, 1.0, draft)
    assert both.time(sequences, 1000).total == step.time(sequences, 1000).total
    verified = step.time(sequences, 1000, drafted=drafted).total
    written = drafted * draft.time(sequences, 1000).total
    assert both.time(sequences, 1000, drafted=drafted).total == pytest.approx(verified + written)
    given = {"draft_model": "Llama3_2_1B", "num_speculative_tokens": drafted, "draft_acceptance_rate": 0.0}
    assert (
        served("calibrated", tp=2, clients=sequences, **given).tpot > served("calibrated", tp=2, clients=sequences).tpot
    )


def heads(fidelity, tokens, clients=16, **more):
    given = {"precision": "fp8", "tp_size": 8, "ep_size": 8, "output_len": 256, "mtp_tokens": tokens} | more
    return ServingModel().solve("DeepSeek_V3", "H200", 1024, efficiency=fidelity, concurrency=clients, **given)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_head_of_the_model_is_a_layer_of_it(fidelity):
    """DeepSeek-V3's module for multi-token prediction has 14 B parameters with the tables that it shares (README of DeepSeek-V3: 671 B of
    the main model and 14 B of the module), 11.5 B without; it keeps the cache of a layer, and takes its time."""
    plain, drafted = heads(fidelity, None), heads(fidelity, 1)
    module = 8 * to_si(drafted.memory_breakdown["draft model"], "byte")
    assert module == pytest.approx(11.5e9, rel=0.1)
    assert drafted.max_batch_size < plain.max_batch_size
    assert drafted.tokens_per_cycle == pytest.approx(1.75)
    assert drafted.tpot < plain.tpot and "measured" in drafted.assumptions["draft_acceptance_rate"]
    assert plain.ttft_at_concurrency <= drafted.ttft_at_concurrency < 1.2 * plain.ttft_at_concurrency


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_heads_whose_tokens_are_never_taken_only_cost(fidelity):
    plain, refused = heads(fidelity, None), heads(fidelity, 2, draft_acceptance_rate=0.0)
    assert refused.tokens_per_cycle == 1.0 and refused.tpot > plain.tpot


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_sweep_over_drafted_tokens_is_what_solve_says(fidelity):
    fixed = {"model": "DeepSeek_V3", "hardware": "H200", "precision": "fp8", "seq_len": 1024, "output_len": 256}
    fixed |= {"tp_size": 8, "ep_size": 8, "efficiency": fidelity, "concurrency": 16}
    space = Space.from_dict({"kind": "serving", "axes": {"mtp_tokens": [1, 2, 3]}, "fixed": fixed})
    found = evaluate(space, space.decode(np.arange(3)))
    for place in range(3):
        point = heads(fidelity, place + 1, cache_precision="bf16")
        assert found["tpot_s"][place] == pytest.approx(to_si(point.tpot, "s"), rel=1e-9)
