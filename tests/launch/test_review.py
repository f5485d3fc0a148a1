"""Reviews: problems first, each flag with its own gain, and a launch file that is better."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.launch.review import review
from mlsysim.launch.targets import export, read_launch
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

SLOW = """torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --vocab-size 128256 --seq-length 4096 --micro-batch-size 1 \\
  --global-batch-size 256 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --bf16 --recompute-granularity full --lr 1e-4"""


def test_slow_flags_cost_something_and_each_has_a_gain() -> None:
    found = review(SLOW, on="64xH100")
    assert found.exit_code == 0 and found.best is not None and found.loss is not None
    assert found.loss > 0.2
    assert f"cost you {found.loss:.0%}" in found.headline
    gains = {change.field: change for change in found.changes}
    again = evaluate_plainly(settled(found.answer).replacing(parallelism={"recompute": "none"}))
    rates = [float(a.value("tokens_per_second").magnitude) for a in (again, found.answer, found.best)]
    assert gains["parallelism.recompute"].gain == pytest.approx(rates[0] / rates[1] - 1)
    assert found.loss == pytest.approx(1 - rates[1] / rates[2])
    assert gains["parallelism.recompute"].flag == "--recompute-granularity"


def test_corrected_file_is_the_best_and_keeps_details() -> None:
    found = review(SLOW, on="64xH100")
    text = found.corrected()
    again = read_launch(text)
    assert again.details["--lr"] == "1e-4"
    second = review(text)
    assert second.loss is not None and second.loss < 0.01
    assert second.answer.value("tokens_per_second").magnitude == pytest.approx(
        found.best.value("tokens_per_second").magnitude
    )


def test_what_does_not_fit_comes_first() -> None:
    text = '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}}'
    found = review(text, on="64xH100", model="Llama3_8B")
    assert found.exit_code == 2 and not found.answer.feasible
    assert found.problems and "Memory" in found.problems[0] and "zero = 2" in found.problems[0]
    assert found.best is not None and found.best.feasible
    fixes = {change.field: change for change in found.changes}
    # The best shares states over smaller micro-batches: neither alone makes it fit.
    assert fixes["parallelism.zero"].effect == fixes["parallelism.micro_batch"].effect == "only with the others"


def test_serving_on_too_few_accelerators_of_the_fleet() -> None:
    found = review("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256", on="8xH100")
    assert any("1 of the fleet's 8" in warning for warning in found.reading.warnings)
    assert {change.field for change in found.changes} >= {"serving.replicas"}
    assert found.loss is not None and found.loss > 0.3
    assert {change.field for change in found.formats} <= {"workload.precision", "serving.cache_precision"}


def test_our_own_best_layout_has_nothing_to_change() -> None:
    plan = Plan.model_validate(
        {"task": "training", "workload": {"model": "Llama3_8B", "batch_size": 512}, "hardware": {"on": "64xH100"}}
    )
    found = review(export("megatron", plan))
    assert found.loss is not None and found.loss < 0.02


def test_missing_fleet_and_model_are_asked_for() -> None:
    with pytest.raises(InputError, match="--on 64xH100"):
        review(SLOW)
    with pytest.raises(InputError, match="--model"):
        review('{"train_batch_size": 8, "zero_optimization": {"stage": 1}}', on="8xH100")
