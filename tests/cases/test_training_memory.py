"""What the fullest device of a training job holds, under different software."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.training_memory import on_device, training_held, training_remedies
from mlsysim.models.footprint import TEXTBOOK
from mlsysim.models.registry import Models
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.timing.stacks import stack, stack_names
from mlsysim.walls.fleet.communication import DistributedModel

LLAMA = Models.get("Llama3_2_1B")
PARAMETERS = LLAMA.parameter_count
ALONE = Layout(1, 1, 1, 1, 1, micro_batches=1, local_batch=4)


def held(job, layout=ALONE):
    return {each.name: each.bytes for each in training_held(job, layout) if each.where == "device"}


def job_of(name, **more):
    return Job(LLAMA, "bf16", 4096, keeps=stack(name).keeps, **more)


@pytest.mark.parametrize(
    ("name", "weight", "optimizer"),
    [
        ("bridge", 2, 12),
        ("plain", 4, 8),
        ("plain-16bit", 2, 4),
        ("megatron22", 2, 12),
        ("megatron21", 2, 16),
        ("dualpipe", 2, 12),
    ],
)
def test_bytes_of_a_parameter_by_software(name, weight, optimizer):
    found = held(job_of(name))
    assert found["weights"] == pytest.approx(weight * PARAMETERS)
    assert found["optimizer state"] == pytest.approx(optimizer * PARAMETERS)


@pytest.mark.parametrize(("precision", "optimizer"), [("bf16", 12), ("fp8", 8)])
def test_moments_are_of_the_recipe(precision, optimizer):
    """DeepSeek-V3 keeps both moments in 16 bits where it trains in FP8 (report, section 3.3.3): 4 + 2 + 2 bytes beside the weights."""
    found = DistributedModel().solve(
        LLAMA, parse_fleet("8xH100").one, 8, precision, "calibrated", stack="dualpipe", seq_len=4096, zero_stage=0
    )
    state = next(each for each in found.ledger.held if each.name == "optimizer state")
    assert state.bytes == pytest.approx(optimizer * PARAMETERS)


def test_gradients_with_a_buffer_are_always_there():
    """6 bytes a parameter beside the optimizer with fp32 gradients, 4 with those of fp16 (Megatron Core, dist_optimizer.md)."""
    assert held(job_of("bridge"))["gradients"] == pytest.approx(4 * PARAMETERS)
    assert held(job_of("megatron21"))["gradients"] == pytest.approx(2 * PARAMETERS)
    assert held(job_of("megatron22"))["gradients"] == pytest.approx(4 * PARAMETERS)


def test_without_a_buffer_the_peak_is_either_end_of_the_backward_pass():
    large = held(job_of("plain"))
    assert large["gradients"] == 0 and large["activations"] > 4 * PARAMETERS
    small = held(replace(job_of("plain"), seq_len=16), replace(ALONE, local_batch=1))
    table = LLAMA.vocab_size * LLAMA.hidden_dim
    assert small["gradients"] == pytest.approx(4 * PARAMETERS + 2 * 4 * table)
    assert small["activations"] < 0.01 * small["gradients"]


def test_micro_batches_keep_the_gradients_of_the_first():
    several = held(job_of("plain"), replace(ALONE, micro_batches=2, local_batch=8))
    assert several["gradients"] == pytest.approx(4 * PARAMETERS)
    assert several["activations"] == pytest.approx(held(job_of("plain"))["activations"])


def test_arrays_of_micro_batches_hold_what_each_does():
    job = job_of("plain")
    counts, batches = np.array([1.0, 2.0, 4.0, 1.0]), np.array([4.0, 4.0, 4.0, 64.0])
    together = on_device(training_held(job, replace(ALONE, micro_batches=counts, local_batch=batches)))
    alone = [
        on_device(training_held(job, replace(ALONE, micro_batches=int(m), local_batch=int(b))))
        for m, b in zip(counts, batches, strict=True)
    ]
    assert together == pytest.approx(alone, rel=1e-12)


def test_adapters_cast_nothing_and_hold_frozen_weights_in_16_bit():
    found = held(job_of("plain", lora_rank=16))
    assert found["weights"] == pytest.approx(2 * PARAMETERS, rel=0.02)
    assert found["activations"] < held(job_of("plain"))["activations"] - 1.9 * PARAMETERS


@pytest.mark.parametrize("name", stack_names())
def test_recomputing_everything_never_holds_more(name):
    layout = replace(ALONE, local_batch=16)
    most, least = (on_device(training_held(replace(job_of(name), recompute=mode), layout)) for mode in ("none", "full"))
    assert least < most


def test_the_textbook_counts_sixteen_bytes_and_sixteen_hidden():
    """GPT: 16 h elements a token and layer, 2 bytes each; logits in fp32 with their gradient."""
    gpt = Models.get("GPT2")
    found = held(Job(gpt, "fp16", 1024), ALONE)
    tokens = 4 * 1024
    assert found["weights"] + found["gradients"] + found["optimizer state"] == pytest.approx(16 * gpt.parameter_count)
    layers = 32 * gpt.hidden_dim * tokens * gpt.layers
    assert found["activations"] == pytest.approx(layers + 8 * tokens * gpt.vocab_size)
    assert Job(gpt, "fp16", 1024).keeps is TEXTBOOK


def test_remedies_fit():
    job, layout = Job(LLAMA, "bf16", 4096), replace(ALONE, local_batch=32)
    least = on_device(training_held(replace(job, recompute="full"), layout))
    found = training_remedies(job, layout, least)
    assert found[0].startswith("recompute activations")
    assert not any("data-parallel" in text for text in found)


def test_frozen_weights_keep_what_adapters_and_functions_read():
    """Of a layer of Llama: half of the norms' outputs and what leaves SwiGLU are inputs of products that have no gradient of weights."""
    trained, frozen = (held(job_of("bridge", lora_rank=rank))["activations"] for rank in (None, 16))
    spared = LLAMA.layers * 4 * 4096 * 2 * (LLAMA.hidden_dim + LLAMA.ffn_dim)
    assert trained - frozen == pytest.approx(spared)


def test_adapters_on_a_frozen_model_of_70_billion_fit_as_published():
    """MLPerf Training v5.0: Llama 2 70B, 8,192 tokens on each of 8 B200, base in FP8, attention and inputs of SwiGLU in FP8 (FP8_ACTIVATION)."""
    given = {"seq_len": 8192, "microbatch_count": 1, "zero_stage": 1, "activation_precision": "fp8"}
    found = DistributedModel().solve(
        "Llama2_70B",
        parse_fleet("8xB200").fleets[0],
        batch_size=8,
        precision="fp8",
        lora_rank=16,
        is_lora=True,
        efficiency="calibrated",
        **given,
    )
    assert found.feasible
