"""What we write, parsed by the programs' own code, where their packages are installed (they need no GPU for it).

vLLM (EngineArgs), SGLang (ServerArgs), torchtitan 0.2 (its ConfigManager), DeepSpeed (its DeepSpeedConfig), Accelerate (its ClusterConfig). The package of torchtitan imports kernels when
it is imported; only its configuration is loaded here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from mlsysim.launch.shell import read_script
from mlsysim.launch.targets import TARGETS, written
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan


def _text(target: str, workload: dict[str, Any], parallelism: dict[str, Any], on: str = "64xH100") -> str:
    document = {
        "task": "training",
        "workload": workload,
        "parallelism": parallelism,
        "hardware": {"on": on, "efficiency": 0.5},
    }
    return written(target, evaluate_plainly(Plan.model_validate(document)))


def test_torchtitan_reads_our_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tyro")
    spec = importlib.util.find_spec("torchtitan")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("torchtitan is not installed")
    place = list(spec.submodule_search_locations)
    if not (Path(place[0]) / "config" / "job_config.py").exists():
        pytest.skip("this release of torchtitan is not configured by TOML")
    package = types.ModuleType("torchtitan")
    package.__path__ = place
    monkeypatch.setitem(sys.modules, "torchtitan", package)
    from torchtitan.config.manager import ConfigManager  # type: ignore[import-not-found]

    file = tmp_path / "job.toml"
    file.write_text(
        _text(
            "torchtitan",
            {"model": "Llama3_70B", "tokens": 1e12, "precision": "fp8"},
            {"tp": 8, "pp": 4, "virtual_stages": 2, "zero": 2, "micro_batch": 1},
        )
    )
    config = ConfigManager().parse_args(["--job.config_file", str(file)])
    assert (config.parallelism.tensor_parallel_degree, config.parallelism.pipeline_parallel_degree) == (8, 4)
    assert config.parallelism.pipeline_parallel_schedule == "Interleaved1F1B"
    assert config.activation_checkpoint.mode == "none"
    assert config.model.flavor == "70B"


def test_deepspeed_reads_our_json(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    config = pytest.importorskip("deepspeed.runtime.config")
    file = tmp_path / "ds_config.json"
    file.write_text(
        _text(
            "deepspeed",
            {"model": "Llama3_2_1B", "batch_size": 8, "optimizer": "adam"},
            {"zero": 2, "micro_batch": 2},
            "1xH100",
        )
    )
    known = json.loads(file.read_text())
    # One rank: DeepSpeed checks the batch against the processes that there are.
    read = config.DeepSpeedConfig(str(file))
    assert (read.train_batch_size, read.train_micro_batch_size_per_gpu) == (8, 2)
    assert read.gradient_accumulation_steps == known["gradient_accumulation_steps"] == 4
    assert int(read.zero_optimization_stage) == 2


def test_accelerate_reads_our_yaml(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    arguments = pytest.importorskip("accelerate.commands.config.config_args")
    file = tmp_path / "fsdp.yaml"
    file.write_text(
        _text(
            "fsdp",
            {"model": "Llama3_8B", "batch_size": 512},
            {"tp": 2, "zero": 3, "micro_batch": 2, "recompute": "full"},
        )
    )
    read = arguments.ClusterConfig.from_yaml_file(str(file))
    assert (read.num_processes, read.num_machines, str(read.mixed_precision)) == (64, 8, "bf16")
    assert read.fsdp_config["fsdp_reshard_after_forward"] is True
    assert read.parallelism_config["parallelism_config_tp_size"] == 2


SERVED = {
    "task": "serving",
    "workload": {"model": "Llama3_70B", "precision": "fp8"},
    "hardware": {"on": "8xH200", "efficiency": 0.5},
    "parallelism": {"tp": 4, "pp": 1},
    "serving": {"prompt_tokens": 2000, "output_tokens": 300, "concurrency": 64, "replicas": 2, "cache_precision": "fp8", "chunk_tokens": 8192,
                "memory_fraction": 0.9, "draft_model": "Llama3_8B", "draft_tokens": 3},
}  # fmt: skip


def _words(target: str) -> list[str]:
    """The words after the command, as a shell would pass them."""
    command = read_script(written(target, evaluate_plainly(Plan.model_validate(SERVED)))).commands[-1]
    start = TARGETS[target].after(command)
    assert start is not None
    return command[start:]


def test_vllm_reads_our_flags() -> None:
    arguments = pytest.importorskip("vllm.engine.arg_utils")
    parsers = pytest.importorskip("vllm.utils.argparse_utils")
    words = _words("vllm")
    parser = arguments.EngineArgs.add_cli_args(parsers.FlexibleArgumentParser())
    read = parser.parse_args(["--model", *words])
    assert (read.tensor_parallel_size, read.data_parallel_size, read.max_num_seqs) == (4, 2, 32)
    assert (read.quantization, read.kv_cache_dtype, read.max_num_batched_tokens) == ("fp8", "fp8", 8192)


def test_sglang_reads_our_flags() -> None:
    arguments = pytest.importorskip("sglang.srt.server_args")
    parser = argparse.ArgumentParser()
    arguments.ServerArgs.add_cli_args(parser)
    read = parser.parse_args(_words("sglang"))
    assert (read.tp_size, read.dp_size, read.max_running_requests) == (4, 2, 32)
    assert (read.quantization, read.kv_cache_dtype, read.chunked_prefill_size) == ("fp8", "fp8_e4m3", 8192)
