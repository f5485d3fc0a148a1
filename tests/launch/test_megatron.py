"""What Megatron-LM's pipelines run, and what is therefore not written."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.launch import megatron
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan


def plan_of(batch: int, **split: object) -> Plan:
    return Plan.model_validate(
        {
            "task": "training",
            "workload": {"model": "Llama3_70B", "batch_size": batch, "seq_len": 4096},
            "hardware": {"on": "256xH100"},
            "parallelism": {"tp": 8, "pp": 4, "virtual_stages": 2, "micro_batch": 1, **split},
        }
    )


@pytest.mark.parametrize(
    ("batch", "changed", "words"),
    [
        (
            8 * 2,
            {},
            "fewer interleaved micro-batches than stages, which would wait for themselves; use 4 micro-batches or more",
        ),
        (
            8 * 8,
            {"virtual_stages": 1, "schedule": "zero_bubble"},
            "does not run schedule zero_bubble; use schedule=.1f1b. or schedule=.interleaved.",
        ),
    ],
)
def test_what_megatron_does_not_run_is_not_written(batch: int, changed: dict[str, object], words: str) -> None:
    plan = plan_of(batch, **changed)
    with pytest.raises(InputError, match=words):
        megatron.write(plan, evaluate_plainly(plan))


@pytest.mark.parametrize(("count", "group"), [(8, None), (6, 6), (10, 5), (9, 5)])
def test_groups_that_run_are_written_and_read(count: int, group: int | None) -> None:
    """Ten micro-batches on four stages are two groups of five; the flag's default would leave a last one of two."""
    plan = plan_of(8 * count)
    text = megatron.write(plan, evaluate_plainly(plan))
    assert ("--microbatch-group-size-per-virtual-pipeline-stage" in text) is (group is not None)
    assert megatron.read(text, on="256xH100").document["parallelism"].get("micro_batch_group") == group


def test_without_a_global_batch_a_step_is_one_micro_batch_of_each_replica() -> None:
    """Megatron-LM: "If this value is None, then use micro-batch-size * data-parallel-size as the global batch size"."""
    flags = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 2 --seq-length 2048"
    text = f"torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py {flags} --train-iters 10 --bf16"
    found = megatron.read(text, on="H100", model="Llama3_8B").plan
    assert found.workload.batch_size == 2 * 64 // (4 * 2)
    assert found.workload.tokens == 10 * 16 * 2048
