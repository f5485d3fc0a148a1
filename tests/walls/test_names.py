"""Inputs of resolvers answer to the names that the other faces have for them."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.node.serving import ServingModel


def test_a_layout_may_be_written_as_in_a_plan():
    shared = {"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 512}
    plan = DistributedModel().solve(**shared, tp=8, pp=2, zero=1, recompute="full", micro_batches=4)
    own = DistributedModel().solve(
        **shared, tp_size=8, pp_size=2, zero_stage=1, activation_recomputation="full", microbatch_count=4
    )
    assert (
        plan.step_latency_total == own.step_latency_total and plan.memory_per_accelerator == own.memory_per_accelerator
    )


def test_traffic_may_be_written_as_in_a_plan():
    plan = ServingModel().solve("Llama3_8B", "H100", isl=1000, osl=100, kv_precision="fp8")
    own = ServingModel().solve("Llama3_8B", "H100", seq_len=1000, output_len=100, cache_precision="fp8")
    assert plan.ttft == own.ttft and plan.kv_cache_size == own.kv_cache_size


def test_two_names_of_one_input_and_names_of_none_are_refused():
    with pytest.raises(InputError, match="'tp_size' twice, as 'tp' too"):
        DistributedModel().solve("Llama3_8B", "Research_256", tp_size=2, tp=2)
    with pytest.raises(UnknownNameError, match="did you mean 'tp_size'"):
        DistributedModel().solve("Llama3_8B", "Research_256", tp_siz=2)
