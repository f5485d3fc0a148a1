"""Rows of published post-training steps as plans, and what their constants were before the fit that ships."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mlsysim
from mlsysim.calibrate.fit_rl import crossed, rows_of
from mlsysim.calibrate.questions import Excluded, Skipped
from mlsysim.calibrate.tables import TABLES, rl
from mlsysim.cases import rl as case

# NVIDIA-NeMo/RL, docs/about/performance-summary.md, v0.5: Qwen3-32B, GRPO, 64 H100, one step off. The constants were fitted on it among 29.
ROW = {
    "id": "RL0021", "framework": "NeMo-RL", "version": "0.5", "model": "Qwen3_32B", "algorithm": "GRPO", "gpu": "H100-80GB", "n_gpus": "64",
    "n_train": "32", "n_gen": "32", "placement": "split", "train_tp": "4", "train_cp": "1", "train_ep": "1", "train_pp": "4", "gen_tp": "4",
    "gen_pp": "1", "prompts": "64", "samples_per_prompt": "32", "rollout_samples": "2048", "train_global_batch": "512", "max_seq": "4096",
    "mean_seq": "3252", "mode": "async", "staleness": "1", "step_s": "200.0", "gen_s": "", "train_s": "",
}  # fmt: skip


def test_a_row_is_asked_as_a_plan_and_answered():
    (found,) = TABLES["rl"].predict(ROW)
    assert found.metric == "step_s" and found.ape < 25 and found.inside
    assert 'task = "rl"' in found.plan and "115 tokens" in found.inferred[0]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"mean_seq": ""}, Excluded, "how long responses are is not given"),
        (
            {"samples_per_prompt": "", "prompts": "", "rollout_samples": ""},
            Excluded,
            "how much is sampled is not given",
        ),
        ({"n_gen": "", "n_train": "", "n_gpus": ""}, Skipped, "number of accelerators"),
        ({"prompts": "", "notes": "recipe with dynamic sampling"}, Skipped, "sampled again"),
        ({"step_s": ""}, Excluded, "nothing of a step was measured"),
        ({"id": "RL0056"}, Excluded, "longer than its step"),
    ],
)
def test_what_cannot_be_asked_says_why(changed, error, words):
    with pytest.raises(error, match=words):
        TABLES["rl"].questions(ROW | changed)


def test_what_other_columns_say_is_not_asked_for_twice():
    for left in (("n_gen", "prompts"), ("samples_per_prompt",)):
        plan, _, _ = rl.plan_of(ROW | dict.fromkeys(left, ""), True)
        assert plan == rl.plan_of(ROW, True)[0]


def test_pools_that_are_not_given_are_halves_and_count_as_a_guess():
    (question,) = TABLES["rl"].questions(ROW | {"n_gen": "", "n_train": ""})
    assert (question.plan.rl.split, question.plan.hardware.on, question.guessed) == ("32", "64xH100", 1)


# verl, docs/advance/checkpoint engine: one transfer of Qwen3-30B-A3B from 16 H20 to 16, with and without the engine that sends in buckets.
SYNC = {
    "framework": "verl", "model": "Qwen3_30B_A3B", "algorithm": "weight transfer only", "gpu": "H20", "n_gpus": "32", "n_train": "16", "n_gen": "16",
    "placement": "split", "step_s": "", "gen_s": "", "train_s": "",
}  # fmt: skip


@pytest.mark.parametrize("seconds", ["15.76", "4.38"])
def test_transfers_alone_are_asked_without_samples(seconds):
    (found,) = TABLES["rl"].predict(SYNC | {"weight_sync_s": seconds})
    assert found.metric == "weight_sync_s" and 0.5 < found.predicted < 20 and found.inside
    assert any("do not change what was measured" in text for text in found.inferred)


def test_weights_of_accelerators_that_take_turns_have_no_transfer_of_their_own():
    row = ROW | {
        "placement": "colocated",
        "mode": "sync",
        "staleness": "0",
        "n_gen": "64",
        "n_train": "64",
        "weight_sync_s": "12",
    }
    assert [question.metric for question in TABLES["rl"].questions(row)] == ["step_s"]


def test_a_pass_for_log_probabilities_waits_for_the_fullest_rank():
    """verl on 64 and 128 ranks (512 prompts of 16 samples to 28,672 tokens): 0.53 and 0.47 of the training; constants were fitted on both."""
    plan = {
        "prompts": 512,
        "samples": 16,
        "response": 900,
        "max_response": 28672,
        "response_cv": 1.5,
        "logprob_passes": 1,
    }
    told = {
        "framework": "verl",
        "split": "none",
        "batch": 512,
        "isl": 115,
        "tp": 1,
        "pp": 1,
        "recompute": "full",
        "zero": 3,
    }
    for ranks in (64, 128):
        answer = mlsysim.rl("Qwen2_5_Math_7B", on=f"{ranks}xH20", **plan, **told)
        passes, trained = (answer.metric(name).value.to("s").magnitude for name in ("logprob_time", "training_time"))
        assert 0.35 < passes / trained < 0.65


def test_the_samples_of_a_step_are_enough():
    """Tables print how many samples a step has; how many share a prompt hardly counts."""
    (whole,) = TABLES["rl"].predict(ROW)
    (alone,) = TABLES["rl"].predict(ROW | {"samples_per_prompt": "", "prompts": ""})
    assert "16 samples of a prompt" in alone.inferred and alone.predicted == pytest.approx(whole.predicted, rel=0.02)


def test_other_rows_of_a_known_release_are_met():
    """NeMo-RL 0.6, DeepSeek-V3 on 128 GB200, on policy: 108 s, which no constant has seen."""
    changed = {
        "model": "DeepSeek V3",
        "gpu": "GB200",
        "n_gpus": "128",
        "n_train": "128",
        "n_gen": "128",
        "placement": "colocated",
        "mode": "sync",
    }
    changed |= {
        "train_tp": "1",
        "train_ep": "16",
        "train_pp": "8",
        "gen_tp": "32",
        "rollout_samples": "512",
        "max_seq": "1536",
        "mean_seq": "711",
    }
    (found,) = TABLES["rl"].predict(
        ROW | changed | {"prompts": "", "samples_per_prompt": "", "staleness": "0", "step_s": "108"}
    )
    assert found.ape < 12 and found.inside


def test_frameworks_that_nobody_fitted_are_asked_with_the_default_ones_constants():
    row = ROW | {
        "framework": "slime",
        "algorithm": "PPO",
        "train_engine": "FSDP2",
        "gen_engine": "SGLang",
        "gen_precision": "fp8",
        "gpu": "GB200",
    }
    row |= {"train_tp": "", "train_pp": "", "train_cp": "", "train_ep": "", "gen_tp": ""}
    plan, inferred, _ = rl.plan_of(row, True)
    assert (plan.rl.framework, plan.rl.algorithm, plan.rl.generator_precision) == ("other", "ppo", "fp8")
    assert plan.serving.engine == "SGLang" and plan.parallelism.zero == 3 and plan.hardware.on.endswith("GB200")
    assert plan.rl.logprob_passes is None and "stands in for slime: NeMo-RL" in inferred
    assert rl.plan_of(row | {"train_engine": "Megatron"}, True)[0].parallelism.automatic


def test_a_wait_is_no_rollout():
    """verl's asynchronous gen_s is the trainer's wait for samples."""
    row = ROW | {"gen_s": "30", "train_s": "100"}
    assert [each.metric for each in TABLES["rl"].questions(row)] == ["step_s", "train_s"]
    turns = row | {"placement": "colocated", "staleness": "0"}
    assert [each.metric for each in TABLES["rl"].questions(turns)] == ["step_s", "gen_s", "train_s"]


def test_frameworks_have_five_constants_and_others_a_wide_interval():
    for name in case.frameworks():
        own = case.framework(name)
        assert own.known and 0.8 < own.generation < 2 and 0.8 < own.training < 2 and own.transfer >= 1
        assert own.interval[0] < 1 < own.interval[1]
        assert case.crossed()[0] < own.interval[0] and own.interval[1] < case.crossed()[1]
    default = case.framework(case.DEFAULT)
    for name in ("other", "slime", "OpenRLHF"):
        stands = case.framework(name)
        assert stands.interval == case.crossed() and not stands.known and stands.generation == default.generation


@pytest.mark.skipif("MLSYSIM_TRUTH" not in os.environ, reason="MLSYSIM_TRUTH names no folder of public tables")
def test_constants_on_steps_of_another_framework():
    """The interval of a framework that nobody fitted is how far steps were off that were predicted with another's constants."""
    found = crossed([case.framework(name) for name in case.frameworks()], rows_of(Path(os.environ["MLSYSIM_TRUTH"])))
    assert found == pytest.approx(case.crossed()[1], rel=0.01)


def test_samples_are_prompts_times_their_group():
    plan, _, _ = rl.plan_of(ROW | {"rollout_samples": ""}, True)
    assert plan == rl.plan_of(ROW, True)[0]


def test_a_trainer_without_a_layout_is_laid_out_by_the_search_and_counts_as_a_guess():
    """Llama 3.1 8B on eight H100: 122 s a step in PyTorch's DTensor, which shards (NVIDIA-NeMo/RL issue 959)."""
    left = dict.fromkeys(("train_tp", "train_cp", "train_ep", "train_pp", "gen_tp", "gen_pp", "n_train", "n_gen"), "")
    (question,) = TABLES["rl"].questions(ROW | left | {"placement": "colocated", "train_engine": "Megatron"})
    assert question.plan.parallelism.tp is None and question.guessed == 1
    (question,) = TABLES["rl"].questions(ROW | left | {"placement": "colocated", "train_engine": "PyT DTensor"})
    assert (question.plan.parallelism.tp, question.plan.parallelism.zero) == (1, 3)
