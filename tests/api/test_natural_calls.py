"""Calls as programs write them that read only the name of a tool: each is taken for the call in our words, and what is in doubt is asked back."""

from __future__ import annotations

import pytest

from mlsysim.api.forgiving import understood
from mlsysim.api.service import OPERATIONS, call
from mlsysim.plans.likely import with_task
from mlsysim.plans.plan import Plan

DENSE = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
EIGHT = {"model": "Llama3_8B", "on": "8xH100"}
VLLM = "vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2"
SAME = [
    ("serve", {"model": "Llama3_8B", "gpus": 8, "gpu": "H100", "users": 20}, {**EIGHT, "users": 20}),
    ("train", {"model": "Llama3_8B", "gpus": "8xH100"}, EIGHT),
    ("train", {"model": "Llama3_8B", "hardware": {"chip": "H100", "count": 8}}, EIGHT),
    ("train", {"model": "Llama3_8B", "num_gpus": 8, "gpu_type": "H100"}, EIGHT),
    ("train", {"arguments": EIGHT}, EIGHT),
    ("train", {"params": EIGHT, "detail": "summary"}, {**EIGHT, "detail": "summary"}),
    ("serve", {**EIGHT, "requests_per_second": 5}, {**EIGHT, "qps": 5}),
    ("serve", {**EIGHT, "ttft_ms": 500}, {**EIGHT, "ttft": "500 ms"}),
    ("train", {**EIGHT, "dataset_tokens": 2e12}, {**EIGHT, "tokens": 2e12}),
    ("plan", {"model": "Llama3_8B", "tokens": "2T", "days": 30}, {"model": "Llama3_8B", "tokens": "2T", "deadline": "30 day"}),
    ("plan", {"model": "Llama3_8B", "tokens": "2T", "deadline_days": 30}, {"model": "Llama3_8B", "tokens": "2T", "deadline": "30 day"}),
    ("plan", {"model": "Llama3_8B", "qps": 5, "chips": ["H100", "B200"]}, {"model": "Llama3_8B", "qps": 5, "on": ["H100", "B200"]}),
    ("compare", {"a": "Llama3_8B@H100", "b": "Llama3_8B@H200"}, {"first": {"model": "Llama3_8B", "on": "H100"}, "second": {"model": "Llama3_8B", "on": "H200"}}),
    ("compare", {"model": "Llama3_8B", "on": ["H100", "H200"]}, {"model": "Llama3_8B", "first": {"on": "H100"}, "second": {"on": "H200"}}),
    ("zoo", {"kind": "chips"}, {"kind": "hardware"}),
    ("zoo", {"kind": "models", "filter": "qwen"}, {"kind": "models", "name": "qwen"}),
    ("zoo", {"query": "H100"}, {"name": "H100"}),
    ("optimize", EIGHT, {**EIGHT, "what": "parallelism"}),
    ("optimize", {**EIGHT, "objective": "carbon"}, {**EIGHT, "objective": "carbon", "what": "placement"}),
    ("optimize", {**EIGHT, "what": "batch", "qps": 4}, {**EIGHT, "what": "batching", "qps": 4}),
    ("export", {**EIGHT, "format": "vllm"}, {**EIGHT, "to": "vllm"}),
    ("sweep", {**EIGHT, "parameter": "tp", "values": [1, 2]}, {**EIGHT, "over": {"tp": [1, 2]}}),
    ("sweep", {**EIGHT, "over": {"tp": "1, 2"}}, {**EIGHT, "over": {"tp": ["1", "2"]}}),
    ("explain", {**EIGHT, "what": "mfu"}, {**EIGHT, "metric": "mfu"}),
    ("explain", {"plan": "Llama3_8B@8xH100", "metric": "mfu"}, {"plan": EIGHT, "metric": "mfu"}),
    ("review", {"command": VLLM, "hardware": "8xH100"}, {"launch": VLLM, "on": "8xH100"}),
    ("collectives", {"fleet": "64xH100", "collective": "all-reduce", "message_size": "1 GB"}, {"on": "64xH100", "op": "all-reduce", "size": "1 GB"}),
    ("walls", {"wall": "memory"}, {"number": "memory"}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "said", "meant"), SAME, ids=lambda value: str(value)[:60])
def test_a_call_in_other_words_is_the_call(operation, said, meant):
    found = understood(operation, said)
    where = found.get("hardware")
    if isinstance(where, dict) and "on" in where:
        found = {name: value for name, value in found.items() if name != "hardware"} | where
    assert found == meant
    request = OPERATIONS[operation].request
    assert request.model_validate(understood(operation, said)) == request.model_validate(meant)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_our_own_words_stay(operation):
    for asked in OPERATIONS[operation].examples.values():
        request = OPERATIONS[operation].request
        assert request.model_validate(understood(operation, asked)) == request.model_validate(asked)


def test_a_configuration_in_the_place_of_a_name_has_the_dimensions():
    own, zoo = (call("serve", {"model": model, "on": "H100", "change": False}) for model in (DENSE, "Llama3_8B"))
    one, two = (told.document["metrics"]["performance.tpot"]["value"]["magnitude"] for told in (own, zoo))
    assert one == pytest.approx(two, rel=0.01)
    refused = call("serve", {"model": {**DENSE, "num_local_experts": 8}, "on": "H100"}).document
    assert "'num_local_experts'" in refused["error"]["sentence"]


@pytest.mark.parametrize(
    ("settings", "metric", "task"),
    [
        ({"model": "Llama3_8B", "on": "H100"}, None, "inference"),
        ({"model": "Llama3_8B", "on": "H100"}, "ttft", "serving"),
        ({"model": "Llama3_8B", "on": "8xH100"}, None, "serving"),
        ({"model": "Llama3_8B", "on": "8xH100"}, "step_time", "training"),
        ({"model": "Llama3_8B", "on": "16xH100"}, None, "training"),
        ({"model": "ResNet50", "on": "8xA100"}, None, "training"),
        ({"model": "Llama3_8B", "on": "8xH100", "task": "training"}, "ttft", "training"),
        ({"model": "Llama3_8B", "on": "8xH100", "zero": 1}, None, "training"),
    ],
)
def test_the_task_that_a_question_means(settings, metric, task):
    assert with_task(Plan.model_validate(settings), metric).kind == task


def test_two_fleets_are_compared_without_a_task():
    told = call("compare", {"plans": ["Llama3_8B@8xH100", "Llama3_8B@8xH200"]})
    assert told.kind is None and told.words.startswith("First: serving ")


def test_the_task_of_one_is_that_of_the_other():
    told = call("compare", {"plans": ["Llama3_8B@H100", "Llama3_8B@8xH100"]})
    assert told.kind is None and told.words.count(": serving ") == 2


@pytest.mark.parametrize("held", [None, 1, "x", [1], {"x": 1}, True, {}, [], "", "scenario:", "@"])
@pytest.mark.parametrize("name", ["plan", "first", "hardware", "gpus", "over", "model", "filter", "arguments", "days"])
def test_nothing_is_a_fault_of_ours(name, held):
    for operation in OPERATIONS:
        assert call(operation, {name: held}).kind not in ("internal", "malformed")
