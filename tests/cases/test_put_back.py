"""Clients whose caches fill: one loop beside many, and what goes to those that were put back is waited for by nobody else."""

import pytest

from mlsysim.cases import sent
from mlsysim.cases.put_back import rates_alone
from mlsysim.models.registry import Models
from mlsysim.plans.plan import Plan
from mlsysim.plans.rl_steps import Stepper
from mlsysim.search.serving import evaluate
from mlsysim.search.space import Space
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

ASKED = {"model": "Llama3_8B", "hardware": "H100", "seq_len": 1000, "engine": "vLLM", "efficiency": "calibrated"}
SERVED = {"seq_len": 1000, "length_cv": 0.8, "engine": "vLLM", "efficiency": "calibrated"}


@pytest.mark.parametrize("pools", [{}, {"decode_hardware": "H100"}])
def test_points_of_a_space_are_what_each_of_them_is(pools):
    axes = {"concurrency": [4, 200, 400, 1200], "output_len": [1, 100, 4000]}
    space = Space.from_dict({"kind": "serving", "axes": axes, "fixed": ASKED | pools})
    found, index = evaluate(space, space.decode(range(12))), 0
    for clients in axes["concurrency"]:
        for answer in axes["output_len"]:
            one = ServingModel().solve(
                Models.get("Llama3_8B"),
                "H100",
                seq_len=1000,
                engine="vLLM",
                efficiency="calibrated",
                concurrency=clients,
                output_len=answer,
                **pools,
            )
            assert found["ttft_s"][index] == pytest.approx(to_si(one.ttft_at_concurrency, "s"))
            assert found["tpot_s"][index] == pytest.approx(to_si(one.tpot, "s"))
            index += 1


@pytest.mark.parametrize("engine", ["vLLM", "TensorRT_LLM"])
def test_an_engine_that_reserves_puts_nothing_back(engine):
    def solved(clients):
        found = ServingModel().solve(
            Models.get("Llama3_8B"),
            "H100",
            seq_len=1000,
            output_len=4000,
            efficiency="calibrated",
            engine=engine,
            concurrency=clients,
        )
        return to_si(found.tpot, "s")

    # Where whole answers are reserved, both are more clients than there is room for.
    beyond = solved(1200) / solved(120)
    assert (beyond == pytest.approx(1.0, abs=0.01)) == (engine == "TensorRT_LLM")


def test_what_was_put_back_is_as_many_requests_and_is_walked_for_nobody_who_asks_for_rates_alone(monkeypatch):
    walks, walked = [], sent.passing
    monkeypatch.setattr(sent, "passing", lambda *asked: walks.append(asked) or walked(*asked))

    def solved():
        sent._walked.cache_clear()
        return ServingModel().solve(Models.get("Llama3_8B"), "H100", output_len=3999, concurrency=1200, **SERVED)

    whole, of_whole = solved(), len(walks)
    with rates_alone() as left_out:
        alone = solved()
    assert of_whole and len(walks) == of_whole and left_out
    assert to_si(alone.output_tokens_per_sec, "1/s") == pytest.approx(to_si(whole.output_tokens_per_sec, "1/s"))
    assert alone.tpot < whole.tpot and alone.ttft_at_concurrency > whole.ttft_at_concurrency
    with rates_alone() as left_out:
        ServingModel().solve(Models.get("Llama3_8B"), "H100", output_len=100, concurrency=4, **SERVED)
    assert not left_out
    assert solved().tpot == whole.tpot


def test_ways_to_post_train_are_ranked_without_a_walk_and_the_best_is_told_whole(monkeypatch):
    walks, walked = [], sent.passing
    monkeypatch.setattr(sent, "passing", lambda *asked: walks.append(asked) or walked(*asked))
    asked = {"prompts": 64, "samples": 32, "response": 2500, "max_response": 8192, "split": "auto", "staleness": 1}
    plan = {"task": "rl", "workload": {"model": "Qwen3_32B"}, "hardware": {"on": "64xH100"}, "rl": asked}
    sent._walked.cache_clear()
    ways = Stepper(Plan.model_validate(plan)).ways()
    assert len(ways) > 3 and len(walks) <= 1
    assert [way.seconds for way in ways] == sorted(way.seconds for way in ways)
