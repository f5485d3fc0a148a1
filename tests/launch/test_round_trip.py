"""Plan → text → plan: what a target's flags express comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.launch.reasons import completed, leaves
from mlsysim.launch.serving import cap_of
from mlsysim.launch.targets import TARGETS, read_launch, target_of, written
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

_NEUTRAL = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "virtual_stages": 1, "zero": 0, "recompute": "none", "replicas": 1}

powers = st.sampled_from([1, 2, 4, 8])


def _field(plan: Plan, path: str) -> Any:
    value: Any = plan
    for part in path.split("."):
        value = getattr(value, part, None)
    return _NEUTRAL.get(path.rsplit(".", 1)[-1]) if value is None else value


def _lost(text: str) -> set[str]:
    """Fields that the file itself says it does not express."""
    return {
        line.split("Not expressed here: ")[1].split(" ")[0]
        for line in text.splitlines()
        if "Not expressed here: " in line
    }


def _compare(target: str, plan: Plan, answer: Any, text: str) -> None:
    again = read_launch(text)
    wanted, got = completed(plan, answer), again.plan
    fields = TARGETS[target].FIELDS
    lost = _lost(text)
    for path in fields:
        if path in lost or (path == "serving.replicas" and "serving.replicas" in lost):
            continue
        before, after = _field(wanted, path), _field(got, path)
        if path == "serving.max_num_seqs" and before is None and wanted.serving is not None:
            # The flag of a load is a limit to who reads it.
            before = after if "serving.concurrency" in lost else cap_of(wanted)
        if path == "workload.tokens":
            step = (wanted.workload.batch_size or 1) * (wanted.workload.seq_len or 1)
            assert before is None or abs(before - after) <= step
            continue
        if path == "workload.optimizer":
            assert {str(before).lower(), str(after).lower()} <= {"adam", "adamw"} or before == after
            continue
        if path == "serving.engine":
            # A command is of its engine, whatever the plan was computed for.
            continue
        assert before == after, (target, path, before, after)
    assert again.unread == ()
    # What the file does not express it lists: nothing is dropped silently.
    silent = {"name", "task", "description", "parallelism.mode", "workload.model", "workload.batch_size", "hardware.on"}
    for path in leaves(wanted):
        if path not in fields and path not in silent and not path.startswith(("ops.", "hardware.", "constraints.")):
            value = _field(wanted, path)
            assert path in lost or value == _NEUTRAL.get(path.rsplit(".", 1)[-1]), (target, path)


@st.composite
def training_plans(draw: Any, sharded: bool = False) -> Plan:
    """Training plans; ``sharded``: without a pipeline and with gradients sharded, as FSDP needs it."""
    model = draw(
        st.sampled_from(["Llama3_8B", "Llama3_70B", "Qwen3_30B_A3B", "GPT3_13B", "DeepSeek_V3", "Mixtral_8x7B"])
    )
    sparse = model in ("Qwen3_30B_A3B", "DeepSeek_V3", "Mixtral_8x7B")
    tp, pp = draw(powers), 1 if sharded else draw(powers)
    nodes = draw(st.sampled_from([8, 16, 32]))
    virtual = draw(st.sampled_from([1, 1, 2])) if pp > 1 else 1
    micro = draw(st.sampled_from([1, 2]))
    dp = nodes * 8 // tp // pp
    split: dict[str, Any] = {"mode": "given", "tp": tp, "pp": pp, "virtual_stages": virtual, "micro_batch": micro}
    split["zero"] = draw(st.sampled_from([2, 3] if sharded else [0, 1, 2, 3]))
    split["recompute"] = draw(st.sampled_from(["none", "selective", "full"]))
    if sparse:
        split["ep"] = draw(st.sampled_from([e for e in (1, 2, 4, 8) if e <= dp]))
    if draw(st.booleans()):
        split["overlap"] = draw(st.booleans())
    if tp > 1 and draw(st.booleans()):
        split["sequence_parallel"] = draw(st.booleans())
    work: dict[str, Any] = {
        "model": model,
        "seq_len": draw(st.sampled_from([2048, 4096])),
        "batch_size": dp * micro * pp * draw(st.sampled_from([1, 2, 4])),
    }
    work["precision"] = draw(st.sampled_from([None, "bf16", "fp16", "fp8", "fp32"]))
    if draw(st.booleans()):
        work["tokens"] = draw(st.sampled_from([1e9, 2.5e11, 2e12]))
    if draw(st.booleans()):
        work["optimizer"] = "adam"
    document = {"task": "training", "workload": {k: v for k, v in work.items() if v is not None}, "parallelism": split}
    return Plan.model_validate({**document, "hardware": {"on": f"{nodes * 8}xH100", "efficiency": 0.5}})


@st.composite
def serving_plans(draw: Any) -> Plan:
    model = draw(st.sampled_from(["Llama3_8B", "Llama3_70B", "Qwen3_30B_A3B", "DeepSeek_R1"]))
    tp = draw(powers)
    replicas = draw(st.sampled_from([n for n in (1, 2, 4, 8) if n * tp <= 8]))
    split: dict[str, Any] = {"tp": tp, "pp": 1}
    traffic: dict[str, Any] = {
        "replicas": replicas,
        "concurrency": replicas * draw(st.sampled_from([1, 7, 32])) + draw(st.sampled_from([0, 0, 1])),
    }
    if model in ("Qwen3_30B_A3B", "DeepSeek_R1") and replicas == 1:
        split["ep"] = draw(st.sampled_from([1, tp, 8]))
    for name, values in {
        "prompt_tokens": [512, 2000],
        "output_tokens": [128, 300],
        "cache_precision": ["fp8", "bf16"],
        "chunk_tokens": [2048, 8192],
        "memory_fraction": [0.85, 0.9],
        "ttft": ["500 ms"],
    }.items():
        if draw(st.booleans()):
            traffic[name] = draw(st.sampled_from(values))
    if model == "Llama3_70B" and draw(st.booleans()):
        traffic |= {"draft_model": "Llama3_8B", "draft_tokens": draw(st.sampled_from([2, 5])), "acceptance": 0.7}
    work = {"model": model, "precision": draw(st.sampled_from(["bf16", "fp16", "fp8", "int4", "int8"]))}
    return Plan.model_validate(
        {
            "task": "serving",
            "workload": work,
            "hardware": {"on": "8xH200", "efficiency": 0.5},
            "parallelism": split,
            "serving": traffic,
        }
    )


quick = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "deepspeed", "slurm", "kubernetes"])
@quick
@given(plan=training_plans())
def test_training_comes_back(target: str, plan: Plan) -> None:
    _round(target, plan)


@quick
@given(plan=training_plans(sharded=True))
def test_sharded_training_comes_back(plan: Plan) -> None:
    _round("fsdp", plan)


@pytest.mark.parametrize("target", ["vllm", "sglang", "trtllm", "slurm", "kubernetes"])
@quick
@given(plan=serving_plans())
def test_serving_comes_back(target: str, plan: Plan) -> None:
    _round(target, plan)


def _round(target: str, plan: Plan) -> None:
    try:
        answer = evaluate_plainly(plan)
        text = written(target, answer)
    except InputError as error:
        # What a target cannot express at all is refused in a sentence.
        assert str(error).endswith(".")
        assume(False)
    assert target_of(text) == target
    _compare(target, plan, answer, text)
    assert written(target, answer) == text


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "deepspeed", "vllm", "sglang", "trtllm", "slurm"])
def test_details_survive(target: str) -> None:
    kept: dict[str, dict[str, Any]] = {
        "megatron": {"--lr": "1e-4", "--data-path": "a b", "--mock-data": True},
        "torchtitan": {"optimizer.lr": 3e-4, "metrics.log_freq": 10},
        "deepspeed": {"gradient_clipping": 1.0, "zero_optimization.contiguous_gradients": True},
        "vllm": {"--max-model-len": "8192", "--trust-remote-code": True, "--port": "8001"},
        "sglang": {"--context-length": "8192", "--enable-torch-compile": True},
        "trtllm": {"--max_seq_len": "8192", "cuda_graph_config": {"enable_padding": True}},
        "slurm": {"--time": "24:00:00", "--partition": "big", "--lr": "1e-4"},
    }
    serves = target in ("vllm", "sglang", "trtllm")
    document: dict[str, Any] = {
        "task": "training",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "8xH100", "efficiency": 0.5},
    }
    if serves:
        document |= {"task": "serving", "serving": {"prompt_tokens": 1000, "output_tokens": 100}}
    else:
        document |= {"parallelism": {"tp": 2, "zero": 2, "recompute": "full", "micro_batch": 1}}
    answer = evaluate_plainly(Plan.model_validate(document))
    again = read_launch(written(target, answer, kept[target]))
    assert {name: again.details[name] for name in kept[target]} == kept[target]
