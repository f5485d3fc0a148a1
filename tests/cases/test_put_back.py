"""Clients whose caches fill: one loop beside many, and what goes to those that were put back is waited for by nobody else."""

import pytest

from mlsysim.models.registry import Models
from mlsysim.search.serving import evaluate
from mlsysim.search.space import Space
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

ASKED = {"model": "Llama3_8B", "hardware": "H100", "seq_len": 1000, "engine": "vLLM", "efficiency": "calibrated"}


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
