"""No key of a serving plan is ignored: each changes the answer, or is refused, or the answer says why it has no effect.

Every key of traffic, engine and layout, and those of other tasks, changed one at a time in a plan where it means something.
"""

from __future__ import annotations

from typing import Any

import pytest
from changed_plans import answer_of, assert_it_counts, changed

from mlsysim.errors import InputError
from mlsysim.plans.arrivals import is_simulated
from mlsysim.plans.ops_part import OpsPart
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ParallelismPart, ServingPart

DENSE: dict[str, Any] = {
    "task": "serving",
    "workload": {"model": "Llama3_70B", "precision": "fp8"},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 4},
    "serving": {"prompt_tokens": 1024, "output_tokens": 256, "concurrency": 64},
    "ops": {"region": "Quebec", "duration_days": 30},
}


def _with(base: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return base | {name: base.get(name, {}) | part for name, part in parts.items()}


EXPERTS = _with(DENSE, workload={"model": "DeepSeek_V3"}, hardware={"on": "16xH200"}, parallelism={"tp": 1, "ep": 16})
APART = _with(DENSE, serving={"decode_on": "8xH200"})
DRAFTED = _with(DENSE, serving={"draft_model": "Llama3_2_1B"})
RATE = DENSE | {"serving": {"prompt_tokens": 1024, "output_tokens": 256, "qps": 4.0}}
# Little room for caches: what was said before goes to a disk soon.
NARROW = _with(RATE, serving={"turns": 3, "memory_fraction": 0.4})
LOOSE = DENSE | {"serving": {"prompt_tokens": 1024, "output_tokens": 256}, "parallelism": {}}

# The key, the plan in which it is changed, and its new value.
CHANGES: list[tuple[str, dict[str, Any], Any]] = [
    ("parallelism.mode", DENSE, "auto"),
    ("parallelism.tp", DENSE, 8),
    ("parallelism.pp", DENSE, 2),
    ("parallelism.dp", DENSE, 1),
    ("parallelism.dp", LOOSE, 4),
    ("parallelism.dp", DENSE, 8),
    ("parallelism.ep", EXPERTS, 8),
    ("parallelism.ep", DENSE, 4),
    ("parallelism.attention_dp", _with(EXPERTS, parallelism={"ep": None}), 16),
    ("parallelism.attention_dp", EXPERTS, 8),
    ("parallelism.attention_dp", DENSE, 2),
    ("parallelism.cp", _with(EXPERTS, parallelism={"tp": 8, "ep": 8}), 8),
    *((f"parallelism.{name}", DENSE, value) for name, value in {
        **{"cp": 2, "ring": 2, "virtual_stages": 2, "schedule": "1f1b", "micro_batch": 1, "micro_batches": 4, "zero": 1},
        **{"micro_batch_group": 4, "recompute": "full", "recomputed": "light", "offload": 0.5, "sequence_parallel": True},
        **{"fp8_attention": True, "deduplicated_exchange": True, "overlap_tp": 0.5, "overlap_ep": 0.5, "overlap": True},
    }.items()),
    ("serving.prompt_tokens", DENSE, 4096),
    ("serving.output_tokens", DENSE, 512),
    ("serving.concurrency", DENSE, 16),
    ("serving.qps", RATE, 2.0),
    ("serving.slo", RATE, "ttft_p99=200ms"),
    ("serving.slo", DENSE, "ttft=1ms"),
    ("serving.trace", DENSE | {"serving": {}}, "azure-code"),
    ("serving.burst", RATE, 3.0),
    ("serving.scheduler", RATE, "prefill_first"),
    ("serving.seed", RATE, 5),
    ("serving.router", RATE, "least_work"),
    ("serving.spare", LOOSE, 1),
    ("serving.autoscale", RATE, "1:2"),
    ("serving.failures", RATE, True),
    ("serving.backlog", RATE, "200+50"),
    ("serving.preemption", RATE, "swap"),
    ("serving.turns", RATE, 3),
    ("serving.think_time", _with(RATE, serving={"turns": 3}), "5 s"),
    ("serving.think_time", RATE, "5 s"),
    ("serving.offload_disk", NARROW, "500 GB"),
    ("serving.offload_disk", RATE, "500 GB"),
    ("serving.resident_adapters", _with(RATE, serving={"adapters": 32}), 2),
    ("serving.resident_adapters", RATE, 2),
    ("serving.replicas", DENSE, 1),
    ("serving.engine", DENSE, "SGLang"),
    ("serving.cache_precision", DENSE, "fp8"),
    ("serving.chunk_tokens", DENSE, 512),
    ("serving.cached_prefix", DENSE, 512),
    ("serving.draft_model", DENSE, "Llama3_2_1B"),
    ("serving.draft_tokens", DRAFTED, 2),
    ("serving.draft_tokens", EXPERTS, 2),
    ("serving.acceptance", DRAFTED, 0.5),
    ("serving.acceptance", DENSE, 0.5),
    ("serving.decode_on", DENSE, "8xH200"),
    ("serving.decode_on", DENSE, "8xH100"),
    ("serving.decode_on", APART, "4xH200"),
    ("serving.decode_on", APART, "16xH200"),
    ("serving.redundant_experts", EXPERTS, 16),
    ("serving.redundant_experts", DENSE, 16),
    ("serving.adapters", DENSE, 32),
    ("serving.adapters", APART, 32),
    ("serving.adapters", EXPERTS, 32),
    ("serving.adapter_rank", _with(DENSE, serving={"adapters": 32}), 64),
    ("serving.adapter_rank", DENSE, 64),
    ("serving.decode_tp", APART, 8),
    ("serving.decode_tp", DENSE, 8),
    ("serving.decode_ep", APART, 8),
    ("serving.decode_replicas", APART, 1),
    ("serving.decode_replicas", DENSE, 1),
    ("serving.network", APART, "10 GB/s"),
    ("serving.network", DENSE, "10 GB/s"),
    ("serving.memory_fraction", DENSE, 0.8),
    ("serving.requests", DENSE, 64),
    ("serving.range_ratio", DENSE, 0.5),
    ("serving.length_cv", DENSE, 1.0),
    ("serving.length_cv", RATE, 1.0),
    ("serving.prefix_hits", DENSE, 0.5),
    ("serving.prefix_tokens", _with(DENSE, serving={"prefix_hits": 0.5}), 10**9),
    ("serving.offload_memory", _with(DENSE, serving={"prefix_hits": 0.5, "prefix_tokens": 10**8}), "200 GB"),
    ("serving.offload_memory", DENSE, "200 GB"),
    ("serving.max_num_seqs", DENSE, 8),
    ("serving.poll_steps", DENSE, 8),
    ("serving.wait_steps", DENSE, 8),
    ("serving.warm_up", _with(DENSE, serving={"engine": "SGLang"}), False),
    ("serving.offline", DENSE, True),
    ("serving.output_rate", DENSE, 100.0),
    ("serving.host_bound", DENSE, True),
    ("serving.ttft", DENSE, "1 ms"),
    ("serving.tpot", DENSE, "1 ms"),
    ("serving.latency", DENSE, "1 ms"),
    ("ops.region", DENSE, "Poland"),
    ("ops.start", DENSE | {"ops": {"region": "California"}}, "2026-06-01"),
    ("ops.duration", DENSE | {"ops": {"duration": "30 day"}}, "60 day"),
    ("ops.duration_days", DENSE, 60),
    ("ops.deadline", DENSE, "1 day"),
    ("ops.budget", DENSE, "10 USD"),
    ("ops.electricity", DENSE, "0.5 USD/kWh"),
    ("ops.price", DENSE, "2 USD/h"),
    ("ops.cost_scope", DENSE, "accelerators"),
    ("ops.checkpoint_time", DENSE, "120 s"),
    ("ops.mtbf", DENSE, "10 h"),
    ("ops.mtbf", _with(RATE, serving={"failures": True}), "100 s"),
    ("ops.restart_time", _with(RATE, serving={"failures": True}, ops={"mtbf": "100 s"}), "100 s"),
    ("ops.restart_time", DENSE, "100 s"),
    ("ops.storage_bandwidth", _with(NARROW, serving={"offload_disk": "500 GB"}), "1 GB/s"),
    ("ops.storage_bandwidth", DENSE, "1 GB/s"),
    ("hardware.stack", DENSE, "megatron"),
    ("workload.tokens", DENSE, 1e12),
    ("workload.optimizer", DENSE, "adam"),
    ("workload.predicted_tokens", DENSE, 1),
    ("workload.target_share", DENSE, 0.5),
    ("workload.phase", DENSE, "decode"),
    ("workload.steps", DENSE, 20),
    ("workload.random_arrivals", DENSE, True),
    ("workload.measured_rate", DENSE, 10.0),
    ("workload.image_size", DENSE, 512),
]  # fmt: skip
PARTS = {"parallelism.": ParallelismPart, "serving.": ServingPart, "ops.": OpsPart}


def test_every_key_is_changed():
    """Those that matter to serving; the others are refused alike (``plans/serving.py``), some of which are tried here."""
    leaves = Plan.leaves()
    keys = {prefix + name for prefix, part in PARTS.items() for name in part.model_fields}
    assert {key for key in keys if "serving" in leaves[key].tasks} - {key for key, _, _ in CHANGES} == set()


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"], ids=str)
@pytest.mark.parametrize(
    ("key", "document", "value"), CHANGES, ids=[f"{key}-{i}" for i, (key, _, _) in enumerate(CHANGES)]
)
def test_no_key_is_ignored(key: str, document: dict[str, Any], value: Any, efficiency: Any) -> None:
    document = changed(document, "hardware.efficiency", efficiency)
    if efficiency != "calibrated" and is_simulated(ServingPart.model_validate(document["serving"])):
        with pytest.raises(InputError, match="At first order nothing queues"):
            answer_of(document)
        return
    if efficiency == "calibrated" and "qps" in document["serving"]:
        # Of a thousand requests a key shows as it does of the ten thousand that are simulated where nobody says how many.
        document = changed(document, "serving.requests", 1000)
    before = answer_of(document)
    assert_it_counts(before, document, key, value)
