"""Designs of the wall pages as links into the explorer, which keeps its state behind the # of its address.

    #task=training&workload.model=Llama3_70B&hardware.on=512xH100

A plan here is checked by the same reader as a plan file, so that a link cannot go stale unnoticed (a test evaluates each).
"""

from __future__ import annotations

from html import escape
from typing import Any

from mlsysim.labs.gallery import address

__all__ = ["DESIGNS", "address", "invitation"]

_TRAINING: dict[str, Any] = {
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 2048, "seq_len": 2048, "precision": "bf16"},
    "hardware": {"on": "512xH100"},
    "parallelism": {"tp": 8, "zero": 1},
    "ops": {"region": "Quebec", "duration_days": 30},
}


def _prompt(**workload: Any) -> dict[str, Any]:
    base = {"model": "Llama3_8B", "batch_size": 1, "seq_len": 2048, "precision": "fp16", "phase": "prefill"}
    return {"task": "inference", "workload": base | workload, "hardware": {"on": "1xH100", "efficiency": 0.5}}


def _serving(on: str = "4xH100", **serving: Any) -> dict[str, Any]:
    traffic = {"prompt_tokens": 2000, "output_tokens": 300, "concurrency": 16}
    return {
        "task": "serving",
        "workload": {"model": "Llama3_70B", "precision": "fp8"},
        "hardware": {"on": on},
        "serving": {name: value for name, value in (traffic | serving).items() if value is not None},
    }


DESIGNS: dict[int, tuple[str, dict[str, Any]]] = {
    1: ("A prompt of 2,048 tokens on one H100: shorten it until memory binds.", _prompt()),
    2: ("One decode step on one H100: raise the batch until arithmetic binds.", _prompt(phase="decode")),
    3: (
        "A training run at first order: move the efficiency.",
        _TRAINING | {"hardware": {"on": "512xH100", "efficiency": 0.5}},
    ),
    4: ("Sixteen chats on four H100: move prompt and answer.", _serving()),
    5: ("Sixty-four chats on four H100: raise the requests in flight until caches bind.", _serving(concurrency=64)),
    7: ("A load of two requests a second: raise it until they queue.", _serving(concurrency=None, qps=2.0)),
    11: ("A month of 512 H100: is the model too large for its tokens?", _TRAINING),
    13: ("Four H100 with caches in fp8: compare the formats.", _serving(cache_precision="fp8")),
    14: ("The audited run: change the split and watch communication.", _TRAINING),
    15: ("The audited run: how much do failures and checkpoints take?", _TRAINING),
    17: ("The audited run: what does owning cost, and renting?", _TRAINING),
    18: ("The audited run in Quebec: move it to another grid.", _TRAINING),
    19: ("The audited run: how often to save it.", _TRAINING),
    21: ("The audited run: which figure of the chip is worth most?", _TRAINING),
}
"""For walls that the explorer shows: what to look at, and the plan."""


def invitation(wall: int, labs: str) -> str:
    """The HTML that a wall's page gets under "Try it"; empty for a wall that the explorer does not show."""
    if wall not in DESIGNS:
        return ""
    words, plan = DESIGNS[wall]
    # HTML, because MkDocs would look for the explorer among its own pages.
    there = escape(f"{labs}index.html{address(plan)}")
    return f'<p class="try-it"><a class="md-button" href="{there}">Open in the explorer</a> {escape(words)}</p>\n'
