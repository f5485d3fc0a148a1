"""An engine is one entry of engines.toml, and its command one table of flags.toml: planted here, answered, written, read back."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from mlsysim.launch import around, flags, targets
from mlsysim.launch.review import review
from mlsysim.launch.serving import Server
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.timing import engines
from mlsysim.walls.node.serving import ServingModel

TABLE = {
    "engine": "LMDeploy",
    "command": "lmdeploy serve api_server",
    "image": "openmmlab/lmdeploy:latest",
    "source": "LMDeploy, command line",
    "url": "https://lmdeploy.readthedocs.io",
    "checked": "2026-11-15",
    "flags": {
        "--tp": {"takes": "int", "field": "parallelism.tp", "means": "tensor-parallel degree"},
        "--dtype": {
            "takes": "text",
            "field": "workload.precision",
            "values": {"bf16": "bfloat16", "fp16": "float16"},
            "means": "format of weights",
        },
        "--max-batch-size": {"takes": "int", "field": "serving.concurrency", "means": "requests at once"},
        "--cache-max-entry-count": {"takes": "float", "field": "serving.memory_fraction", "means": "share of memory"},
        "--session-len": {"takes": "int", "means": "longest request"},
    },
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Server:
    """LMDeploy with vLLM's constants."""
    tables, shipped = dict(engines.software_file("engines")), dict(flags._all())
    read = engines.software_file
    about = {"spread", "loose", "models"}
    constants = {key: value for key, value in read("engine_constants")["vLLM"].items() if key not in about}
    tables["LMDeploy"] = copy.deepcopy(tables["vLLM"]) | constants | {"aliases": ["turbomind"]}
    monkeypatch.setattr(engines, "software_file", lambda name: tables if name == "engines" else read(name))
    monkeypatch.setattr(flags, "_all", lambda: shipped | {"lmdeploy": TABLE})
    server = Server("lmdeploy")
    monkeypatch.setitem(targets.TARGETS, "lmdeploy", server)
    monkeypatch.setattr(targets, "SERVES", (*targets.SERVES, "lmdeploy"))
    monkeypatch.setitem(around.SERVERS, "lmdeploy", server)
    known = dataclasses.replace(ServingModel.inputs["engine"], choices=tuple(tables))
    monkeypatch.setitem(ServingModel.inputs, "engine", known)
    return server


def plan(precision: str = "bf16") -> Plan:
    return Plan.model_validate(
        {
            "task": "serving",
            "workload": {"model": "Llama3_8B", "precision": precision},
            "hardware": {"on": "2xH100"},
            "parallelism": {"tp": 2},
            "serving": {"engine": "LMDeploy", "prompt_tokens": 1000, "output_tokens": 200, "concurrency": 16, "replicas": 1},
        }
    )  # fmt: skip


def test_names_are_those_of_the_file_and_its_aliases(planted: Server) -> None:
    assert engines.engine("turbo-mind").name == engines.engine("lmdeploy").name == "LMDeploy"
    assert tuple(t for t in engines.engine_names() if t != "LMDeploy") == engines.ENGINES


def test_a_plan_is_answered_written_and_read_back(planted: Server) -> None:
    answer = evaluate(plan())
    assert answer.fidelity == "calibrated"
    text = targets.written("lmdeploy", answer)
    assert "--tp" in text and "--dtype" in text and "bfloat16" in text and "--max-batch-size" in text
    assert targets.target_of(text) == "lmdeploy"
    back = targets.read_launch(text, on="2xH100")
    assert back.document["parallelism"]["tp"] == 2
    assert back.document["workload"]["precision"] == "bf16"
    assert back.document["serving"]["concurrency"] == 16 and back.document["serving"]["engine"] == "LMDeploy"


def test_what_the_command_cannot_say_is_said(planted: Server) -> None:
    text = targets.written("lmdeploy", evaluate(plan("fp8")))
    assert "workload.precision = fp8 (--dtype has bf16, fp16)" in text


def test_inside_a_script_and_a_manifest(planted: Server) -> None:
    answer = evaluate(plan())
    assert "lmdeploy serve api_server" in targets.written("slurm", answer, command="lmdeploy")
    answer_back = targets.read_launch(targets.written("slurm", answer, command="lmdeploy"))
    assert answer_back.document["serving"]["engine"] == "LMDeploy"


def test_a_flag_that_makes_another_engine_is_written_and_read() -> None:
    """SGLang with mixed chunks; without the flag it is SGLang."""
    serving = {"engine": "SGLang_mixed", "concurrency": 8, "prompt_tokens": 100, "output_tokens": 20}
    plan = Plan(task="serving", workload={"model": "Llama3_8B"}, hardware={"on": "1xH200"}, serving=serving)
    text = targets.TARGETS["sglang"].write(plan, evaluate(plan))
    assert "--enable-mixed-chunk" in text and "serving.engine" not in text
    assert targets.TARGETS["sglang"].read(text).document["serving"]["engine"] == "SGLang_mixed"
    without = text.replace("--enable-mixed-chunk", "")
    assert targets.TARGETS["sglang"].read(without).document["serving"]["engine"] == "SGLang"
    # Two flags make a third.
    both = plan.replacing(serving={"engine": "SGLang_mixed_eager"})
    text = targets.TARGETS["sglang"].write(both, evaluate(both))
    assert "--enable-mixed-chunk" in text and "--disable-cuda-graph" in text and "serving.engine" not in text
    for gone, name in (("", "SGLang_mixed_eager"), ("--enable-mixed-chunk", "SGLang_eager")):
        read = targets.TARGETS["sglang"].read(text.replace(gone, "") if gone else text)
        assert read.document["serving"]["engine"] == name


def test_a_limit_of_requests_is_written_for_a_load(planted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    own = copy.deepcopy(TABLE)
    own["flags"]["--max-batch-size"]["field"] = "serving.max_num_seqs"
    shipped = flags._all()
    monkeypatch.setattr(flags, "_all", lambda: shipped | {"lmdeploy": own})
    flags.table.cache_clear()
    text = targets.written("lmdeploy", evaluate(plan()))
    assert "--max-batch-size 16" in text
    assert targets.read_launch(text, on="2xH100").document["serving"]["max_num_seqs"] == 16
    flags.table.cache_clear()


def test_a_review_proposes_nothing_that_the_command_has_no_word_for(planted: Server) -> None:
    """FP8 reads half the weights, and --dtype has 16 bits alone."""
    text = targets.written("lmdeploy", evaluate(plan()))
    found = review(targets.read_launch(text, on="2xH100"))
    assert found.formats == ()
