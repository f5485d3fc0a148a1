"""Hybrid shards and offloading in the files of libraries that shard."""

from __future__ import annotations

import json

import pytest

from mlsysim.launch.sharding import FSDP, DeepSpeed
from mlsysim.launch.targets import launched
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

FILE = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 4
num_processes: 32
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
"""


def read(text: str) -> dict[str, object]:
    return FSDP().read(text, on="H100", model="Llama3_8B").plan.document()["parallelism"]


def test_hybrid_shards_are_read() -> None:
    sizes = "parallelism_config:\n  parallelism_config_dp_shard_size: 16\n  parallelism_config_dp_replicate_size: 2\n"
    assert read(FILE + sizes)["zero_shard"] == 16
    first = FILE.replace("fsdp_version: 2", "fsdp_version: 1").replace("  fsdp_reshard_after_forward: true\n", "")
    named = read(first + "  fsdp_sharding_strategy: HYBRID_SHARD\n")
    assert (named["zero"], named["zero_shard"]) == (3, 8)
    assert "zero_shard" not in read(FILE)


def test_offloading_is_read() -> None:
    found = read(FILE + "  fsdp_offload_params: true\n")
    assert (found["offload"], found["offload_weights"]) == (1.0, 1.0)
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    for device, expected in (("cpu", 1.0), ("none", None)):
        config["zero_optimization"] = {"stage": 3, "offload_param": {"device": device}}
        document = DeepSpeed().read(json.dumps(config), on="8xH100", model="Llama3_8B").document
        assert document["parallelism"].get("offload_weights") == expected


def test_offloading_is_written_and_read_back() -> None:
    keys = {"task": "training", "model": "Llama3_8B", "on": "8xH100", "batch_size": 64, "seq_len": 4096, "zero": 3}
    plan = Plan.model_validate({**keys, "offload": 1.0, "offload_weights": 1.0, "host_update": True, "micro_batch": 1})
    for target, text in ((DeepSpeed(), '"device": "cpu"'), (FSDP(), "fsdp_offload_params: true")):
        written = target.write(plan, evaluate_plainly(plan))
        assert text in written and "Not expressed here: parallelism.offload" not in written
        split = target.read(written).plan.parallelism
        assert (split.offload, split.offload_weights) == (1.0, 1.0)


def test_a_disk_is_read_as_the_memory_of_the_host_and_said() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}},
    }
    found = DeepSpeed().read(json.dumps(config), on="8xH100", model="Llama3_8B")
    assert "offload_optimizer on nvme is read as in the host's memory, which is faster." in found.warnings


def test_hybrid_shards_are_written_and_read_back() -> None:
    plan = Plan.model_validate(
        {"task": "training", "model": "Llama3_8B", "on": "32xH100", "batch_size": 64, "seq_len": 4096}
        | {"pp": 1, "zero": 3, "zero_shard": 8, "micro_batch": 1, "recompute": "full"}
    )
    written = FSDP().write(plan, evaluate_plainly(plan))
    assert "dp_replicate_size: 4" in written and "dp_shard_size: 8" in written
    assert read(written)["zero_shard"] == 8


@pytest.mark.parametrize("shard", [None, 32])
def test_without_copies_nothing_is_said_of_them(shard: int | None) -> None:
    plan = Plan.model_validate(
        {"task": "training", "model": "Llama3_8B", "on": "32xH100", "batch_size": 64, "seq_len": 4096}
        | {"pp": 1, "zero": 3, "micro_batch": 1, "recompute": "full"}
        | ({"zero_shard": shard} if shard else {})
    )
    assert "dp_replicate_size" not in FSDP().write(plan, evaluate_plainly(plan))


def test_a_network_that_no_search_lays_out_gets_the_least_stage_that_the_library_shards() -> None:
    asked = Plan.model_validate({"task": "training", "model": "ViT_B_16", "on": "8xH100"})
    for target, stage in (("fsdp", 2), ("deepspeed", 0)):
        assert evaluate_plainly(launched(target, asked)).layout["zero"] == stage
