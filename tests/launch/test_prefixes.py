"""Sharing of prefixes: on unless an engine is told otherwise (vLLM V1, SGLang's radix cache, TensorRT-LLM's block reuse), written and read."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.launch.targets import read_launch, written
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

SHARED = {"vllm": "--enable-prefix-caching", "sglang": None, "trtllm": "enable_block_reuse: true"}
APART = {
    "vllm": "--no-enable-prefix-caching",
    "sglang": "--disable-radix-cache",
    "trtllm": "enable_block_reuse: false",
}


def launched(target: str, **serving: Any) -> str:
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "H100"},
        "serving": {"prompt_tokens": 1000, "output_tokens": 100, "concurrency": 8} | serving,
    }
    return written(target, evaluate_plainly(Plan.model_validate(plan)))


@pytest.mark.parametrize("target", sorted(APART))
def test_sharing_is_written_and_read(target: str) -> None:
    plain, shared, apart = (launched(target, **given) for given in ({}, {"prefix_hits": 0.5}, {"prefix_hits": 0.0}))
    assert APART[target] in apart and APART[target] not in plain + shared
    assert read_launch(apart).document["serving"]["prefix_hits"] == 0.0
    for text in (plain, shared):
        # How much is found is the traffic's, which no command says.
        assert "prefix_hits" not in read_launch(text).document["serving"]
    switch = SHARED[target]
    if switch is not None:
        assert switch in shared and switch in launched(target, cached_prefix=500) and switch not in plain
