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


_SCRIPT = (
    "torchrun --nproc-per-node 8 --nnodes 32 pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 8 "
    "--expert-model-parallel-size 32 --sequence-parallel --use-distributed-optimizer --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 2048 --bf16 "
)


def _read(flags: str) -> Plan:
    return megatron.read(_SCRIPT + flags, on="256xH100", model="DeepSeek_V3").plan


def test_modules_that_are_computed_again_are_read_and_written() -> None:
    """The list of Megatron-Bridge's recipes for DeepSeek-V3: latent projections, dense layers, norms, the experts' activation."""
    names = ("layernorm", "mla_up_proj", "mlp", "moe_act")
    plan = _read(f"--recompute-granularity selective --recompute-modules {' '.join(reversed(names))}")
    assert plan.parallelism.recompute == "selective" and plan.parallelism.recomputed == "norm+up+mlp+moe_act"
    wide = plan.replacing(hardware={"on": "1024xH100"}, parallelism={"pp": 16, "dp": 32})
    text = megatron.write(wide, evaluate_plainly(wide))
    assert f"--recompute-modules {' '.join(names)}" in text and "parallelism.recomputed" not in text
    with pytest.raises(InputError, match="layernorm"):
        _read("--recompute-granularity selective --recompute-modules layer_norm")
    other = wide.replacing(parallelism={"recomputed": "half"})
    with pytest.raises(InputError, match="no name for half"):
        megatron.write(other, evaluate_plainly(other))


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("--fp8-format hybrid", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", "fp8_block"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--fp4-format e2m1", "nvfp4"),
    ],
)
def test_recipes_of_narrow_products_are_read(flags: str, precision: str) -> None:
    assert _read(flags).workload.precision == precision


def test_what_a_recipe_sets_beside_the_layout_is_read() -> None:
    plan = _read("--mtp-num-layers 1 --moe-enable-deepep --optimizer-cpu-offload --recompute-granularity full")
    assert plan.workload.predicted_tokens == 1
    assert plan.parallelism.deduplicated_exchange is True and plan.parallelism.offload == 1
    block = "--recompute-granularity full --recompute-method block --recompute-num-layers 2"
    assert any("2 layers are computed again" in text for text in megatron.read(_SCRIPT + block, on="256xH100").warnings)


def test_values_of_one_flag_stay_apart() -> None:
    """Two folders with their shares are four words, which a shell must not be given as one."""
    found = megatron.read(_SCRIPT + "--data-path 0.5 one 0.5 two", on="1024xH200", model="DeepSeek_V3")
    text = megatron.write(found.plan, evaluate_plainly(found.plan), found.details)
    assert "--data-path 0.5 one 0.5 two" in text
