"""Golden files: what every exporter writes for one plan, and what every reader makes of a documented example.

After a change that is meant, ``UPDATE_GOLDEN=1 python -m pytest tests/launch/test_golden.py`` writes them anew; look at the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlsysim.launch.targets import TARGETS, read_launch, target_of, written
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

HERE = Path(__file__).parent / "golden"
# First order and a given layout: the files change with the exporters, not with the calibration.
TRAINING: dict[str, Any] = {
    "name": "llama3-70b",
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 512, "seq_len": 4096, "tokens": 2e12, "optimizer": "adam"},
    "hardware": {"on": "512xH100", "efficiency": 0.5},
    "parallelism": {"tp": 8, "pp": 4, "virtual_stages": 5, "micro_batch": 1, "zero": 1, "recompute": "selective"},
}
# torchtitan shards gradients with the optimizer state, DeepSpeed's pipelines have no virtual stages.
TITAN = TRAINING | {"parallelism": {**TRAINING["parallelism"], "zero": 2}}
PLAIN = TRAINING | {"parallelism": {**TRAINING["parallelism"], "virtual_stages": 1}}
SHARDED = {
    **TRAINING,
    "workload": {"model": "Llama3_8B", "batch_size": 512, "seq_len": 4096},
    "hardware": {"on": "64xH100", "efficiency": 0.5},
    "parallelism": {"tp": 2, "zero": 3, "micro_batch": 2, "recompute": "full"},
}
SERVING = {
    "name": "llama3-70b-chat",
    "task": "serving",
    "workload": {"model": "Llama3_70B", "precision": "fp8"},
    "hardware": {"on": "8xH200", "efficiency": 0.5},
    "parallelism": {"tp": 4, "pp": 1},
    "serving": {
        "prompt_tokens": 2000,
        "output_tokens": 300,
        "concurrency": 64,
        "replicas": 2,
        "cache_precision": "fp8",
        "chunk_tokens": 8192,
    },
}
RL: dict[str, Any] = {
    "name": "qwen3-8b-grpo",
    "task": "rl",
    "workload": {"model": "Qwen3_8B", "batch_size": 512},
    "hardware": {"on": "32xH100"},
    "parallelism": {"tp": 2, "zero": 1, "recompute": "full", "micro_batch": 2},
    "serving": {"prompt_tokens": 512},
    "rl": {"prompts": 128, "samples": 16, "response": 2000, "max_response": 8192, "generator_tp": 1, "split": "16"},
}
TURNS = RL | {
    "parallelism": {"zero": 3, "tp": 1, "recompute": "full"},
    "rl": RL["rl"] | {"split": "none", "algorithm": "dapo"},
}
EXPORTS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "megatron.sh": ("megatron", TRAINING, None),
    "torchtitan.toml": ("torchtitan", TITAN, None),
    "deepspeed.json": ("deepspeed", PLAIN, None),
    "fsdp.yaml": ("fsdp", SHARDED, None),
    "vllm.sh": ("vllm", SERVING, None),
    "sglang.sh": ("sglang", SERVING, None),
    "trtllm.sh": ("trtllm", SERVING, None),
    "verl.sh": ("verl", RL, None),
    "verl_fsdp.sh": ("verl", TURNS, None),
    "nemo_rl.yaml": ("nemo_rl", RL, None),
    "nemo_rl_dtensor.yaml": ("nemo_rl", TURNS, None),
    "kubernetes_serving.yaml": ("kubernetes", SERVING, "sglang"),
    "kubernetes_training.yaml": ("kubernetes", TRAINING, "megatron"),
    "slurm_serving.sbatch": ("slurm", SERVING, "vllm"),
    "slurm_training.sbatch": ("slurm", TITAN, "torchtitan"),
}


def _same(path: Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", EXPORTS)
def test_what_exporters_write(name: str) -> None:
    target, document, command = EXPORTS[name]
    text = written(target, evaluate_plainly(Plan.model_validate(document)), command=command)
    if document["task"] == "rl":
        # A step has no first order: its figures are the calibration's, so that the settings alone are compared.
        text = "".join(line + "\n" for line in text.splitlines() if not line.lstrip().startswith("# "))
    _same(HERE / "written" / name, text)
    assert target_of(text) == target


def test_every_target_has_a_golden_file() -> None:
    assert {target for target, _, _ in EXPORTS.values()} == set(TARGETS)
    assert {target_of(path.read_text(encoding="utf-8")) for path in EXAMPLES} == set(TARGETS)


EXAMPLES = sorted(path for path in (HERE / "read").iterdir() if not path.name.endswith(".expected.json"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_what_readers_make_of_documented_examples(path: Path) -> None:
    reading = read_launch(path.read_text(encoding="utf-8"))
    _same(path.with_name(path.name + ".expected.json"), json.dumps(reading.to_dict(), indent=1) + "\n")


def _read(name: str, **given: Any) -> Any:
    return read_launch((HERE / "read" / name).read_text(encoding="utf-8"), **given)


def test_gpt3_of_megatron() -> None:
    plan = _read("megatron_gpt3_175b.sh", on="A100").plan
    assert plan.workload.model == "GPT3_175B"
    assert (plan.parallelism.tp, plan.parallelism.pp, plan.parallelism.dp) == (8, 16, 1)
    # 500,000 steps of 1,536 sequences of 2,048 tokens
    assert plan.workload.tokens == 500_000 * 1536 * 2048
    assert plan.hardware.on == "128xA100"


def test_batch_of_torchtitan_follows_from_the_fleet() -> None:
    plan = _read("torchtitan_llama3_405b.toml", on="128xH100").plan
    # 128 ranks over TP 8 leave 16 of data parallelism with 2 sequences each.
    assert (plan.parallelism.dp, plan.workload.batch_size, plan.workload.precision) == (16, 32, "fp8")
    assert plan.workload.tokens == 3000 * 32 * 8192


def test_accelerators_of_deepspeed_follow_from_the_batch() -> None:
    reading = _read("deepspeed_zero3_offload.json", on="H100", model="Llama3_8B")
    # 512 sequences / (2 x 4 accumulation steps) = 64 ranks
    assert reading.accelerators == 64
    assert reading.plan.hardware.on == "64xH100"


def test_manifest_gives_replicas_and_chip() -> None:
    plan = _read("kubernetes_vllm.yaml").plan
    assert (plan.hardware.on, plan.serving.replicas, plan.parallelism.tp, plan.serving.concurrency) == (
        "8xH100",
        2,
        4,
        128,
    )


def test_expert_parallelism_of_engines() -> None:
    vllm, sglang = _read("vllm_deepseek_r1.sh", on="8xB200").plan, _read("sglang_deepseek_v3.sh", on="16xH200").plan
    assert (vllm.parallelism.tp, vllm.parallelism.ep, vllm.workload.precision) == (1, 8, "fp8_block")
    assert (sglang.parallelism.tp, sglang.parallelism.ep, sglang.workload.precision) == (1, 16, "fp8_block")
