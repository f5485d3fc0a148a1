"""Steps as a simulation asks for them are those of the case, at any point."""

from __future__ import annotations

import random

import pytest

from mlsysim.cases.iterations import Iterations
from mlsysim.cases.traffic import Habits
from mlsysim.cases.turns import draft_cost
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.simulate.steps import Steps
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine

DEPLOYMENTS = {
    "dense": ("Llama3_8B", "H100", "vLLM", {}),
    "measured model": ("Llama3_70B", "H100", "TensorRT_LLM", {"tp": 4, "precision": "fp8"}),
    "latent attention": ("DeepSeek_V3", "H200", "vLLM", {"tp": 8, "moe_ep": 8, "precision": "fp8"}),
    "windows": ("GPT_OSS_20B", "H100", "vLLM", {}),
    "indexer": ("DeepSeek_V3_2", "H200", "SGLang", {"tp": 8, "moe_ep": 8, "precision": "fp8"}),
    "scans": ("Nemotron_H_8B", "H100", "vLLM", {}),
    "adapters": ("Llama3_8B", "H100", "vLLM", {"adapters": 8, "adapter_rank": 16}),
    "graphs, rows, operators of prompts": ("Llama3_8B", "H200", "torch_loop", {}),
}


def _step(name: str) -> EngineStep:
    model, chip, software, layout = DEPLOYMENTS[name]
    return engine_step(Models.get(model), Hardware.get(chip), engine(software), **layout)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_step_of_answers_is_that_of_the_case(name: str) -> None:
    step, draw = _step(name), random.Random(1)
    steps = Steps(Iterations(step), Habits())
    for _ in range(20):
        n, context = draw.randrange(1, 300), draw.randrange(0, 60_000)
        attended = n * steps.contexts.at(context)[0]
        assert steps.decode_time(n, attended) == pytest.approx(step.time(float(n), float(context)).total, rel=1e-9)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_contexts_of_different_lengths_take_what_each_takes(name: str) -> None:
    """Two halves of a batch, at two contexts, take the mean of what all of it takes at either."""
    step = _step(name)
    steps = Steps(Iterations(step), Habits())
    (short, _), (long, _) = steps.contexts.at(100), steps.contexts.at(30_000)
    both = steps.decode_time(32, 16 * short + 16 * long)
    alone = [step.time(32.0, float(context)).total for context in (100, 30_000)]
    assert both == pytest.approx(sum(alone) / 2, rel=1e-9)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_step_with_prompts_is_that_of_the_case(name: str) -> None:
    step, draw = _step(name), random.Random(2)
    steps = Steps(Iterations(step), Habits())
    for _ in range(20):
        n, context = draw.choice((0, draw.randrange(1, 200))), draw.randrange(0, 20_000)
        prompts, tokens, before = draw.randrange(1, 4), draw.randrange(1, 3000), draw.choice((0, draw.randrange(9000)))
        chunks = prompts * steps.chunk(tokens, before)
        got = steps.mixed(n, n * steps.contexts.at(context)[0], prompts * tokens, prompts, chunks, 1.0, before + tokens)
        asked = float(n), float(context), float(prompts), float(tokens), float(before)
        assert got == pytest.approx(step.time(*asked).total, rel=1e-9)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_plain_step_is_the_same_to_the_last_bit(name: str) -> None:
    steps, draw = Steps(Iterations(_step(name)), Habits()), random.Random(3)
    plain = steps.plain()
    assert (plain == steps.mixed) == (name in ("latent attention", "indexer", "adapters"))
    for _ in range(20):
        n, reading, prompts = draw.choice((0, draw.randrange(1, 200))), draw.randrange(1, 8000), draw.randrange(1, 4)
        asked = n, n * steps.contexts.at(draw.randrange(20_000))[0], reading, prompts, steps.chunk(reading, 0)
        # The first time it is asked for its tokens, the second time it knows them.
        assert plain(*asked) == steps.mixed(*asked) == plain(*asked)


def test_attention_ranks_and_stages_are_those_of_the_case() -> None:
    ranks = engine_step(
        Models.get("DeepSeek_V3"), Hardware.get("H200"), engine("SGLang"), attention_dp=8, moe_ep=8, precision="fp8"
    )
    steps = Steps(Iterations(ranks), Habits())
    got = steps.mixed(16, 16 * steps.contexts.at(900)[0], 2048, 2, 2 * steps.chunk(1024, 0), 0.5)
    assert got == pytest.approx(ranks.time(16.0, 900.0, 2.0, 1024.0, 0.0, reading_ranks=0.5).total, rel=1e-9)
    shared = engine_step(
        Models.get("DeepSeek_V3"), Hardware.get("H200"), engine("vLLM"), tp=8, moe_tp=8, cp=8, precision="fp8"
    )
    steps = Steps(Iterations(shared), Habits())
    for n, context in ((1, 10), (16, 40_000)):
        attended = n * steps.contexts.at(context)[0]
        assert steps.decode_time(n, attended) == pytest.approx(shared.time(float(n), float(context)).total, rel=1e-9)
        got = steps.mixed(n, attended, 700, 1, steps.chunk(700, 300))
        assert got == pytest.approx(shared.time(float(n), float(context), 1.0, 700.0, 300.0).total, rel=1e-9)
    halved = engine_step(
        Models.get("DeepSeek_V3"), Hardware.get("H100"), engine("SGLang"), attention_dp=32, moe_ep=32, precision="fp8"
    )
    steps = Steps(Iterations(halved), Habits())
    for n, context in ((1, 10), (31, 900), (32, 900), (256, 100), (256, 40_000)):
        attended = n * steps.contexts.at(context)[0]
        assert steps.decode_time(n, attended) == pytest.approx(halved.time(float(n), float(context)).total, rel=1e-9)
        for tokens in (100, 3000):
            got = steps.mixed(n, attended, tokens, 1, steps.chunk(tokens, 0), 0.25)
            asked = float(n), float(context), 1.0, float(tokens)
            assert got == pytest.approx(halved.time(*asked, reading_ranks=0.25).total, rel=1e-9)
    staged = engine_step(Models.get("Llama3_70B"), Hardware.get("H100"), engine("vLLM"), tp=2, pp=4)
    one = Iterations(staged, 4.0)
    steps = Steps(one, Habits())
    for n, context in ((1, 10), (64, 2000), (200, 9000)):
        attended = n * steps.contexts.at(context)[0]
        assert steps.decode_time(n, attended) == pytest.approx(one.time(float(n), float(context)).total, rel=1e-9)
        got = steps.mixed(n, attended, 700, 1, steps.chunk(700, 0))
        assert got == pytest.approx(one.time(float(n), float(context), 1.0, 700.0).total, rel=1e-9)


@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 2, "pp": 4}, {"attention_dp": 32, "moe_ep": 32}])
def test_steps_without_graphs_are_those_of_the_case(layout: dict[str, int]) -> None:
    """The norm of a step and its launches is the largest of its tangents, 0.2 % below it at most."""
    model = "DeepSeek_V3" if "moe_ep" in layout else "Llama3_70B"
    step = engine_step(Models.get(model), Hardware.get("H100"), engine("SGLang_eager"), precision="fp8", **layout)
    one = Iterations(step, float(layout.get("pp", 1)))
    steps = Steps(one, Habits())
    for n, context in ((1, 10), (1, 100_000), (16, 900), (64, 2000), (200, 9000), (256, 100_000)):
        got = steps.decode_time(n, n * steps.contexts.at(context)[0])
        whole = one.time(float(n), float(context)).total
        assert got == pytest.approx(whole, rel=2e-3) and got <= whole * (1 + 1e-9)


@pytest.mark.parametrize("name", ["latent attention", "indexer"])
def test_heads_that_draft_are_those_of_the_case(name: str) -> None:
    step = _step(name)
    steps = Steps(Iterations(step), Habits(drafted=2, acceptance=0.7))
    assert steps.gain == pytest.approx(1 + 0.7 + 0.49)
    plain = Steps(Iterations(step), Habits())
    attended = 8 * steps.contexts.at(500)[0]
    bare = step.time(8.0, 500.0, drafted=2).total
    assert steps.decode_time(8, attended) > bare > plain.decode_time(8, 8 * plain.contexts.at(500)[0])
    assert steps.decode_time(8, attended) == pytest.approx(bare * draft_cost(Habits(drafted=2)), rel=1e-9)
