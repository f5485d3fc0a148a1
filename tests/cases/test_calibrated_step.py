"""The calibrated training step: known answers, limits, signs, arrays, and its place in DistributedModel."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlsysim.cases.calibrated_step import CalibratedStep, Job, calibrated_step

from mlsysim.cases import calibrated_distributed
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_shape
from mlsysim.physics.training_step import distinct_domains, overlapped, pipelined, ring_time
from mlsysim.systems.registry import Clusters
from mlsysim.timing.stacks import nearest_stack, recipe, stack, stack_names, stack_of_source
from mlsysim.timing.training_chip import constants, training_chip
from mlsysim.walls.fleet.communication import DistributedModel

H100 = training_chip(Hardware.get("H100"), "bf16")
LLAMA = training_shape(Models.get("Llama3_70B"))
QWEN = training_shape(Models.get("Qwen3_30B_A3B"))
JOB = Job(seq_len=4096, micro_batch=1, micro_batches=16, tp=8, pp=4, dp=8, zero=1)


def step(shape=LLAMA, chip=H100, software="bridge", job=JOB, k=None) -> CalibratedStep:
    return calibrated_step(shape, chip, stack(software), job, k or constants())


def test_ring_of_one_takes_no_time_and_a_ring_across_nodes_has_an_adapter_for_each_rank_in_a_node():
    assert ring_time(1e9, 1, 1, 3e11, 4e10, 2e-5, 6e-6) == 0
    assert ring_time(8e9, 8, 8, 4e11, 4e10, 0, 0) == pytest.approx(7 / 8 * 8e9 / 4e11)
    one = ring_time(8e9, 16, 1, 4e11, 4e10, 0, 0)
    eight = ring_time(8e9, 16, 8, 4e11, 4e10, 0, 0)
    assert one == pytest.approx(8 * eight)


def test_a_token_with_one_expert_visits_the_share_of_other_domains():
    assert distinct_domains(4, 1) == pytest.approx(3 / 4)
    assert distinct_domains(1, 8) == 0
    assert distinct_domains(8, 1000) == pytest.approx(7)


def test_overlap_hides_all_or_nothing():
    assert overlapped(3.0, 2.0, 0.0) == 3.0
    assert overlapped(3.0, 2.0, 1.0) == 5.0


def test_a_pipeline_of_one_stage_has_no_bubble():
    assert pipelined(2.0, 2.0, 0.1, 8, 1, 1) == (16.0, 0.0)
    assert pipelined(2.0, 2.0, 0.0, 8, 4, 2)[1] == 3.0


def test_no_calibrated_step_beats_the_datasheet():
    tokens = 8 * 16 * 4096
    ideal = LLAMA.operations_per_token(4096, causal=True) * tokens / (256 * 989e12)
    assert step().step > ideal


def test_operations_are_those_of_the_megatron_formula():
    """72 B s l h^2 (1 + s/6h + V/12lh), and 96 (1 + s/6h + V/16lh) with everything recomputed."""
    shape = training_shape(Models.get("Megatron_22B"))
    layers, h, s, v = 48, 6144, 2048, shape.vocab
    assert shape.operations_per_token(s) == pytest.approx(
        72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    )
    assert shape.operations_per_token(s, recompute="full") == pytest.approx(
        96 * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    )


def test_parameters_of_a_shape_are_those_of_the_model():
    for name in ("Llama3_70B", "DeepSeek_V3", "Qwen3_235B_A22B"):
        shape = training_shape(Models.get(name))
        counted = shape.dense_parameters + shape.expert_parameters + shape.embedding
        assert counted == pytest.approx(Models.get(name).parameter_count, rel=0.01)


@pytest.mark.parametrize(
    "name", ["Llama3_8B", "Qwen3_30B_A3B", "Nemotron3_Nano_30B_A3B", "DeepSeek_V4_Flash", "NeMo_T5_3B"]
)
def test_every_kind_of_network_has_a_finite_step_of_positive_parts(name):
    timed = step(training_shape(Models.get(name)), job=replace(JOB, tp=1, pp=1, dp=64, ep=8))
    assert all(np.isfinite(getattr(timed, field.name)) for field in fields(timed))
    assert timed.step > timed.optimizer > 0 and timed.compute > 0


def test_arrays_give_what_single_numbers_give():
    tp, pp = np.array([1, 2, 4, 8]), np.array([1, 2, 4, 8])
    job = replace(
        JOB, tp=tp, pp=pp, dp=256 // (tp * pp), ep=np.array([1, 2, 8, 4]), micro_batches=np.array([4, 8, 16, 32])
    )
    for shape in (LLAMA, QWEN):
        whole = step(shape, job=job)
        for i in range(4):
            one = replace(
                job,
                tp=int(tp[i]),
                pp=int(pp[i]),
                dp=int(job.dp[i]),
                ep=int(job.ep[i]),
                micro_batches=int(job.micro_batches[i]),
            )
            assert step(shape, job=one).step == pytest.approx(whole.step[i], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    faster=st.sampled_from(["bandwidth", "ring", "adapter", "product_rate", "attention_rate", "half_rate"]),
    name=st.sampled_from(["Llama3_70B", "Qwen3_30B_A3B"]),
)
def test_a_better_chip_is_never_slower(tp, pp, faster, name):
    job = replace(JOB, tp=tp, pp=pp, dp=256 // (tp * pp), ep=8)
    better = replace(H100, **{faster: 1.5 * getattr(H100, faster)})
    shape = training_shape(Models.get(name))
    assert step(shape, better, job=job).step <= step(shape, job=job).step * (1 + 1e-12)


def test_recomputation_costs_and_parts_add_up():
    none, selective, full = (step(job=replace(JOB, recompute=mode)).step for mode in ("none", "selective", "full"))
    assert none < selective < full
    assert step(job=replace(JOB, recompute="attention")).step == pytest.approx(selective)
    with pytest.raises(UnknownNameError, match="part of a layer"):
        step(job=replace(JOB, recompute="everything"))


def test_frozen_weights_need_no_gradient_products_nor_optimizer():
    full, adapters = step(), step(job=replace(JOB, frozen=True))
    assert 0.6 < adapters.step / full.step < 0.75
    assert adapters.optimizer == 0


def test_a_host_that_launches_one_by_one_bounds_small_expert_layers():
    job = Job(seq_len=4096, micro_batch=1, micro_batches=8, ep=8, dp=8)
    assert step(QWEN, job=job).step > 1.5 * step(QWEN, software="bridge-graph", job=job).step


def test_a_power_cap_slows_arithmetic_by_the_root_of_dynamic_power():
    capped = training_chip(Hardware.get("H100"), "bf16", power_cap=500)
    assert capped.product_rate / H100.product_rate == pytest.approx((375 / 575) ** 0.5)


def test_a_chip_without_the_arithmetic_is_refused():
    with pytest.raises(InputError, match="no fp8 arithmetic"):
        training_chip(Hardware.get("A100"), "fp8")


def test_stacks_are_data_with_a_year_and_a_source():
    for name in stack_names():
        entry = stack(name)
        assert 2020 <= entry.year <= 2027 and entry.source and entry.title
    assert stack_of_source("megatron-bridge-26.04").name == "bridge"
    assert stack_of_source("something else") is None
    assert nearest_stack(2021).name == "megatron21"
    assert nearest_stack(2023, sharded=True).name == "fsdp23"
    with pytest.raises(UnknownNameError):
        stack("megatron99")


def test_recipes_follow_the_release():
    assert recipe("bridge", "Qwen3_30B_A3B", "GB300", 26.04).stack == "bridge-part"
    assert recipe("bridge", "Qwen3_30B_A3B", "GB300", 26.06).stack == "bridge-graph"
    assert recipe("bridge", "Mixtral_8x7B", "GB300", 26.06) is None


CALL = {
    "model": "Llama3_70B",
    "fleet": "Research_256",
    "batch_size": 2048,
    "precision": "bf16",
    "tp_size": 8,
    "pp_size": 4,
    "v_stages": 5,
    "seq_len": 4096,
    "activation_recomputation": "full",
}


def test_distributed_model_takes_the_word_and_says_which_stack():
    result = DistributedModel().solve(**CALL, efficiency="calibrated")
    assert result.assumptions["stack"].startswith("bridge")
    assert "stack bridge" in result.assumptions["zero_stage"]
    assert 0.3 < result.mfu < 0.5
    assert "T_optimizer" in result.explain()
    older = DistributedModel().solve(**CALL, efficiency="calibrated", stack="megatron21")
    assert older.mfu < result.mfu
    capped = DistributedModel().solve(**CALL, efficiency="calibrated", power_cap="450 W")
    assert capped.step_latency_total > result.step_latency_total


def test_first_order_does_not_mention_stacks():
    assert "stack" not in DistributedModel().solve(**CALL).assumptions


def test_accumulation_repeats_micro_batches_and_synchronises_once():
    once = DistributedModel().solve(**CALL, efficiency="calibrated")
    twice = DistributedModel().solve(**CALL, efficiency="calibrated", gradient_accumulation_steps=2)
    ratio = (twice.step_latency_total / once.step_latency_total).to("").magnitude
    assert 1.8 < ratio < 2.0
    assert twice.tokens_per_second > once.tokens_per_second


def test_a_network_without_layers_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="needs them"):
        DistributedModel().solve(model="ResNet50", fleet="Research_256", batch_size=2560, efficiency="calibrated")


def test_a_kept_chip_is_that_of_its_fleet_and_factors():
    fleet = Clusters.get("Meta_16K")
    faster = fleet.node.accelerator.memory.model_copy(update={"bandwidth": 2 * fleet.node.accelerator.memory.bandwidth})
    chip = fleet.node.accelerator.model_copy(update={"memory": faster})
    other = fleet.model_copy(update={"node": fleet.node.model_copy(update={"accelerator": chip})})

    def found(where, share=1.0, slow=1.0, cap=None, precision="bf16"):
        x = SimpleNamespace(
            fleet=where, precision=precision, congestion_factor=1.0, power_cap=cap, straggler_factor=slow
        )
        return calibrated_distributed.chip_of_fleet(x, share, {})

    asked = [
        {"where": fleet},
        {"where": other},
        {"where": fleet, "share": 0.5},
        {"where": fleet, "slow": 1.25},
        {"where": fleet, "cap": 500.0},
        {"where": fleet, "precision": "fp8"},
    ]
    first = [found(**one) for one in asked]
    assert len(set(first)) == len(asked)
    assert [found(**one) for one in asked] == first
    calibrated_distributed.forget()
    assert [found(**one) for one in asked] == first
    assert first[1].bandwidth == pytest.approx(2 * first[0].bandwidth)
    assert first[2].adapter == pytest.approx(first[0].adapter / 2)
    assert found(fleet, slow=np.array([1.0, 1.25])).product_rate.tolist() == [
        first[0].product_rate,
        first[3].product_rate,
    ]
    for step in range(500):
        found(fleet, slow=1.0 + step / 1000)
    assert len(calibrated_distributed._CHIPS) <= 64
