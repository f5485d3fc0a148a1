"""Post-training frameworks: a step that is written and read back takes as long, and what a framework cannot run is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.launch.review import review
from mlsysim.launch.targets import export, launched, read_launch, written
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

SMALL: dict[str, Any] = {
    "task": "rl",
    "workload": {"model": "Llama3_8B", "batch_size": 64},
    "hardware": {"on": "16xH100"},
    "parallelism": {"tp": 2, "zero": 1, "recompute": "full"},
    "serving": {"prompt_tokens": 256},
    "rl": {"prompts": 16, "samples": 8, "response": 500, "max_response": 2000, "generator_tp": 1, "generator_ep": 1},
}
SHARDED = {"parallelism": {"tp": 1, "zero": 3, "recompute": "full", "cp": 2}}


def plan(rl: dict[str, Any] | None = None, **parts: Any) -> Plan:
    return Plan.model_validate(SMALL | parts | {"rl": SMALL["rl"] | (rl or {})})


@pytest.mark.parametrize("target", ["verl", "nemo_rl"])
@pytest.mark.parametrize(
    ("rl", "parts"),
    [
        ({}, {}),
        ({"algorithm": "dapo"}, SHARDED),
        ({"split": "8", "staleness": 2.0, "partial": True}, {}),
        ({"split": "8", "staleness": 0.0}, SHARDED),
        ({"split": "4"}, {"hardware": {"on": "8xH100"}, "parallelism": {"tp": 2, "zero": 1, "recompute": "full"}}),
        ({}, {"parallelism": {"tp": 2, "zero": 1, "recompute": "full", "micro_batch": 8}}),
    ],
)
def test_a_step_comes_back(target: str, rl: dict[str, Any], parts: dict[str, Any]) -> None:
    answer = evaluate_plainly(launched(target, plan(rl, **parts)))
    text = written(target, answer)
    reading = read_launch(text)
    assert reading.target == target and reading.unread == () and reading.warnings == ()
    again = evaluate_plainly(launched(target, reading.plan))
    assert again.value("latency") == answer.value("latency")
    assert written(target, again).splitlines()[-20:] == text.splitlines()[-20:]


def test_ppo_of_verl_has_a_critic_laid_out_as_the_policy() -> None:
    text = export("verl", plan({"algorithm": "ppo"}))
    assert "critic.megatron.tensor_model_parallel_size=2" in text and "algorithm.adv_estimator=gae" in text
    assert "Not expressed here: the reward model" in text


def test_stages_that_do_not_divide_the_layers() -> None:
    """Llama-3.1-8B has 32 layers: of three stages two have eleven and the last ten."""
    uneven: dict[str, Any] = {
        "parallelism": {"tp": 1, "pp": 3, "zero": 1, "recompute": "full"},
        "hardware": {"on": "24xH100"},
    }
    assert "num_layers_in_last_pipeline_stage: 10" in export("nemo_rl", plan(**uneven))
    last = "+actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_last_pipeline_stage=10"
    assert last in export("verl", plan(**uneven))


def test_virtual_stages_are_part_of_a_settled_step() -> None:
    """What the layout of an answer does not show would be lost when it is asked again."""
    found = evaluate_plainly(plan(parallelism={"tp": 2, "pp": 2, "virtual_stages": 4, "zero": 1, "recompute": "full"}))
    assert found.layout["virtual_stages"] == 4 == settled(found).parallelism.virtual_stages
    assert evaluate_plainly(settled(found)).value("latency") == found.value("latency")


@pytest.mark.parametrize(
    ("target", "rl", "parts", "words"),
    [
        ("verl", {"algorithm": "sft", "samples": None, "prompts": 64}, {}, "not for sft"),
        ("nemo_rl", {"algorithm": "ppo"}, {}, "not for ppo"),
        ("verl", {"generator_pp": 2}, {}, "no pipeline"),
        ("nemo_rl", {"split": "8", "staleness": 0.5}, {}, "whole steps old"),
        ("nemo_rl", {"logprob_passes": 0}, {}, "logprob_passes is 1"),
        ("verl", {"samples": 16, "prompts": 8}, {"workload": SMALL["workload"] | {"batch_size": 8}}, "counts prompts"),
        ("verl", {"framework": "NeMo-RL"}, {}, "for verl"),
        ("nemo_rl", {"generate_on": "8xH200"}, {}, "one kind"),
        ("nemo_rl", {}, {"serving": {"engine": "SGLang"}}, "not SGLang"),
        ("verl", {}, {"parallelism": {"tp": 2, "zero": 3}}, "ZeRO 3 with tensor parallelism"),
        ("nemo_rl", {}, {"parallelism": {"tp": 2, "zero": 1, "recompute": "selective"}}, "recompute selective"),
        ("verl", {}, {"workload": SMALL["workload"] | {"lora_rank": 16}}, "all weights"),
    ],
)  # fmt: skip
def test_what_a_framework_does_not_run_is_refused(
    target: str, rl: dict[str, Any], parts: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        export(target, plan(rl, **parts))


def test_a_plan_of_another_task_is_refused() -> None:
    training = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}}
    with pytest.raises(InputError, match="takes an rl plan"):
        export("verl", Plan.model_validate(training))
    with pytest.raises(InputError, match="not reviewed"):
        review(export("nemo_rl", plan()))
