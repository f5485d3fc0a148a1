"""The commands ``export``, ``review`` and ``import`` of launch files, and bad input to them and to the readers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.launch.targets import TARGETS, launched, read_launch, written
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

READ = Path(__file__).parent / "golden" / "read"
runner = CliRunner()


def test_export_prints_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    found = runner.invoke(
        app, ["export", "vllm", "Llama3_8B@8xH100", "--isl", "1000", "--osl", "100", "-e", "0.5", "-o", str(file)]
    )
    assert found.exit_code == 0, found.output
    assert file.read_text().startswith("#!/bin/bash\n# vLLM: serving Llama-3.1-8B")
    shown = runner.invoke(app, ["export", "vllm", "Llama3_8B@8xH100", "--isl", "1000", "--osl", "100", "-e", "0.5"])
    assert shown.stdout == file.read_text()
    document = json.loads(
        runner.invoke(
            app, ["export", "vllm", "Llama3_8B@8xH100", "--isl", "1000", "--osl", "100", "-e", "0.5", "--json"]
        ).stdout
    )
    assert document["text"] == file.read_text() and document["feasible"] is True


def test_export_of_what_does_not_fit_ends_with_two() -> None:
    found = runner.invoke(app, ["export", "vllm", "Llama3_405B@1xH100", "-e", "0.5"])
    assert found.exit_code == 2
    assert "Does not fit" in found.stdout


def test_review_in_every_form() -> None:
    path = str(READ / "kubernetes_vllm.yaml")
    text = runner.invoke(app, ["review", path])
    assert text.exit_code == 0 and "serving Llama-3.1-70B" in text.stdout
    document = json.loads(runner.invoke(app, ["review", path, "--json"]).stdout)
    assert document["target"] == "kubernetes" and document["unread"] == ["spec.strategy"]
    assert runner.invoke(app, ["review", path, "-o", "csv"]).stdout.startswith("kind,flag,now,better,alone,saves,why\n")
    assert runner.invoke(app, ["review", path, "-o", "markdown"]).exit_code == 0


def test_review_writes_the_better_file(tmp_path: Path) -> None:
    file = tmp_path / "better.yaml"
    assert runner.invoke(app, ["review", str(READ / "kubernetes_vllm.yaml"), "--write", str(file)]).exit_code == 0
    assert read_launch(file.read_text()).target == "kubernetes"


def test_import_shows_a_launch_file() -> None:
    found = json.loads(runner.invoke(app, ["import", str(READ / "vllm_deepseek_r1.sh"), "--json"]).stdout)
    assert found["target"] == "vllm" and found["plan"]["parallelism"]["ep"] == 8


@pytest.mark.parametrize(
    "words",
    [
        ["export", "nothing", "Llama3_8B@8xH100"],
        ["export", "megatron", "Llama3_8B"],
        ["export", "kubernetes", "Llama3_8B@8xH100"],
        ["export", "vllm", "Llama3_8B@8xH100", "--task", "training"],
        ["export", "vllm", "Llama3_8B@8xH100", "--command", "sglang"],
        ["export", "torchtitan", "GPT3_13B@8xH100", "-e", "0.5"],
        ["review", "no-such-file"],
        ["review", str(READ / "megatron_gpt3_175b.sh")],
        ["review", str(READ / "megatron_gpt3_175b.sh"), "--on", "100xH100"],
        ["review", __file__],
    ],
)
def test_bad_input_is_one_sentence(words: list[str]) -> None:
    found = runner.invoke(app, words)
    assert found.exit_code == 1
    assert isinstance(found.exception, InputError)
    assert str(found.exception).endswith(".") and "\n" not in str(found.exception)


PIECES = ["vllm serve", "--tensor-parallel-size", "-tp", "=", "4", "-1", "1e99", "$X", "${", "}", "(", ")", "'", '"', "#", "\\\n", ";", "A=(", "torchrun",
          "pretrain_gpt.py", "--num-layers", "--hidden-size", "--num-attention-heads", "0", "12", "#SBATCH --nodes", "<<EOF", "EOF\n", "\n", "{", "[parallelism]",
          "tensor_parallel_degree = ", "trtllm-serve", "--config x", "cat > x <<E\na: [\nE\n", "apiVersion: v1", "kind: Pod", "spec:", " containers: [{command: [vllm, serve]}]",
          "sglang.launch_server", "--enable-dp-attention", "--dp 3", '{"bf16":', '"train_batch_size": 7,', "distributed_type: FSDP", "fsdp_config:", "meta-llama/Llama-3.1-8B",
          "nan", "--speculative-config", "{}", "--global-batch-size", "--seq-length 8", "\x00", "é"]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), st.text(max_size=200)),
    target=st.sampled_from([None, *TARGETS]),
)
def test_readers_answer_or_say_why_not(text: str, target: str | None) -> None:
    try:
        reading = read_launch(text, target)
        if reading.missing is None:
            reading.plan.document()
    except InputError as error:
        assert str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "vllm",
            ("--data-parallel-size 8", "--enable-expert-parallel", "--tensor-parallel-size 2", "--max-num-seqs 8"),
        ),
        (
            "sglang",
            ("--tp-size 16", "--dp-size 8", "--enable-dp-attention", "--ep-size 16", "--max-running-requests 64"),
        ),
    ],
)
def test_groups_of_attention_are_written_and_read(target, words):
    """vLLM's limit is of each rank, an engine of its own; SGLang's is of all of them."""
    given = {"model": "DeepSeek_V3", "precision": "fp8", "on": "16xH200", "tp": 2, "attention_dp": 8, "task": "serving"}
    plan = Plan.model_validate(given | {"concurrency": 64})
    text = written(target, evaluate_plainly(plan))
    plain = text.replace("\\\n", " ")
    for each in words:
        flag, _, value = each.partition(" ")
        assert re.search(rf"{re.escape(flag)}\s+'?{value}", plain) if value else flag in plain, (each, text)
    back = read_launch(text, target).plan
    split = back.parallelism
    assert (split.tp, split.ep, split.attention_dp) == (2, 16, 8) and back.serving.max_num_seqs == 64


@pytest.mark.parametrize(
    ("target", "word"), [("vllm", '"method": "mtp"'), ("sglang", "NEXTN"), ("trtllm", "num_nextn_predict_layers: 2")]
)
def test_heads_that_draft_are_written_and_read(target, word):
    given = {"model": "DeepSeek_V3", "precision": "fp8", "on": "8xH200", "tp": 8, "task": "serving", "draft_tokens": 2}
    text = written(target, evaluate_plainly(Plan.model_validate(given | {"concurrency": 16})))
    assert word in text
    found = read_launch(text, target)
    assert found.plan.serving.draft_tokens == 2 and found.plan.serving.draft_model is None
    assert not any("Speculative" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("target", "flag", "usual"), [("vllm", "--max-loras", 1), ("sglang", "--max-loras-per-batch", 8)]
)
def test_adapters_are_written_and_read(target, flag, usual):
    given = {"model": "Llama3_8B", "on": "H100", "task": "serving", "concurrency": 16, "tp": 1}
    wanted = {"adapters": 4, "adapter_rank": 32}
    text = written(target, evaluate_plainly(Plan.model_validate(given | wanted)))
    assert "--enable-lora" in text and re.search(rf"{flag}\s+4", text) and re.search(r"--max-lora-rank\s+32", text)
    back = read_launch(text, target).plan.serving
    assert (back.adapters, back.adapter_rank) == (4, 32)
    assert "lora" not in written(target, evaluate_plainly(Plan.model_validate(given | {"adapters": 0})))
    command = {"vllm": "vllm serve ", "sglang": "python -m sglang.launch_server --model-path "}[target]
    command += "meta-llama/Llama-3.1-8B"
    # Switched on, the engine's own number; without the switch a number says nothing.
    assert read_launch(f"{command} --enable-lora", target, on="H100").plan.serving.adapters == usual
    assert read_launch(f"{command} {flag} 4", target, on="H100").plan.serving.adapters is None


def test_half_of_a_service_in_two_pools_is_said_to_be_one():
    sglang = "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --disaggregation-mode prefill"
    vllm = """vllm serve meta-llama/Llama-3.1-8B --kv-transfer-config '{"kv_role": "kv_producer"}'"""
    for target, text in (("sglang", sglang), ("vllm", vllm)):
        assert any("one half of a service" in warning for warning in read_launch(text, target).warnings)
    whole = read_launch("vllm serve meta-llama/Llama-3.1-8B", "vllm")
    assert not any("half" in warning for warning in whole.warnings)


@pytest.mark.parametrize(("target", "engine"), [("vllm", "vLLM"), ("sglang", "SGLang"), ("trtllm", "TensorRT_LLM")])
def test_times_are_those_of_the_engine_that_is_written_for(target, engine):
    plan = Plan.model_validate({"task": "serving", "model": "Llama3_8B", "on": "1xH100", "qps": 4})
    other = plan.with_settings({"engine": "vLLM"})
    assert launched(target, plan).serving.engine == engine and launched(target, other).serving.engine == "vLLM"


@pytest.mark.parametrize(("engine", "other"), [("vllm", False), ("vLLM", False), ("sg-lang", True)])
def test_an_engine_is_known_by_any_of_its_names(engine, other):
    words = {"task": "serving", "model": "Llama3_8B", "on": "H100", "concurrency": 8, "engine": engine}
    answer = evaluate_plainly(Plan.model_validate({**words, "prompt_tokens": 500, "output_tokens": 100}))
    assert ("not those of vLLM" in written("vllm", answer)) is other


def test_requests_that_come_by_themselves_are_capped_by_memory_and_not_by_their_mean():
    plan = Plan.model_validate({"task": "serving", "model": "Llama3_8B", "on": "1xH100", "qps": 4, "efficiency": 0.5})
    answer = evaluate_plainly(plan)
    held = int(answer.value("max_batch"))
    assert held > answer.layout["concurrency"] and f"--max-num-seqs {held}" in written("vllm", answer)
