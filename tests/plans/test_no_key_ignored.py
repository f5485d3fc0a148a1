"""No key of a training plan is ignored: each changes the answer, or is refused, or the answer says why it has no effect.

Every key that a training plan may have is changed, one at a time, in a plan where it means something, at both fidelities. A key
without an entry here fails: what is new has to say where it shows.
"""

from __future__ import annotations

from typing import Any

import pytest
from changed_plans import answer_of, assert_it_counts, changed

from mlsysim.errors import InputError, MLSysError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.ops_part import OpsPart
from mlsysim.plans.plan_parts import ChipPart, DimensionsPart, HardwarePart, ParallelismPart, WorkloadPart

DENSE = {
    "task": "training",
    "workload": {"model": "Llama3_8B", "batch_size": 128, "seq_len": 4096, "precision": "bf16"},
    "hardware": {"on": "64xH100"},
    "parallelism": {"tp": 4, "pp": 2, "micro_batch": 2, "zero": 1, "recompute": "none"},
    "ops": {"region": "Quebec", "duration_days": 30},
}
EXPERTS = DENSE | {
    "workload": DENSE["workload"] | {"model": "Mixtral_8x7B"},
    "parallelism": DENSE["parallelism"] | {"ep": 8},
}
SELECTIVE = DENSE | {"parallelism": DENSE["parallelism"] | {"recompute": "selective"}}
BOTH_ENDS = DENSE | {"workload": DENSE["workload"] | {"model": "T5_11B", "seq_len": 512}, "parallelism": {"tp": 4}}
ADAPTERS = DENSE | {"workload": DENSE["workload"] | {"lora_rank": 16}}
LONE = DENSE | {"workload": DENSE["workload"] | {"batch_size": 1}, "hardware": {"on": "H100"}, "parallelism": {"tp": 1}}
NAMED = DENSE | {"hardware": {"name": "DGX_H100", "nodes": 8}}
TWO_SITES = DENSE | {"hardware": {"on": "64xH100", "sites": 2, "wan_bandwidth": "100 Gbps", "wan_round_trip": "30 ms"}}
BY_HOUR = DENSE | {"ops": {"region": "California", "duration_days": 30, "start": "2026-12-01"}}
SEARCHED = DENSE | {"parallelism": {}}
PLAYED = DENSE | {"ops": DENSE["ops"] | {"spares": 6, "mtbf": "10 h", "seeds": 3}}

# The key, the plan in which it is changed, and its new value.
CHANGES: list[tuple[str, dict[str, Any], Any]] = [
    ("workload.model", DENSE, "Llama3_70B"),
    ("workload.batch_size", DENSE, 256),
    ("workload.seq_len", DENSE, 8192),
    ("workload.precision", DENSE, "fp8"),
    ("workload.tokens", DENSE, 1e12),
    ("workload.optimizer", DENSE, "sgd"),
    ("workload.optimizer", LONE, "lion"),
    ("workload.lora_rank", DENSE, 16),
    ("workload.lora_rank", ADAPTERS, 64),
    ("workload.lora_targets", ADAPTERS, "all"),
    ("workload.lora_targets", DENSE, "all"),
    ("workload.gradient_precision", DENSE | {"workload": DENSE["workload"] | {"gradient_precision": "bf16"}}, "fp32"),
    ("workload.gradient_precision", ADAPTERS, "fp32"),
    ("workload.activation_precision", DENSE, "fp8"),
    ("workload.exchange_precision", EXPERTS, "fp8"),
    ("workload.exchange_precision", DENSE, "fp8"),
    ("workload.wide_layers", DENSE | {"workload": DENSE["workload"] | {"precision": "fp8"}}, 4),
    ("workload.wide_layers", DENSE, 4),
    ("workload.predicted_tokens", DENSE, 1),
    ("workload.target_share", BOTH_ENDS, 0.25),
    ("workload.target_share", DENSE, 0.25),
    ("workload.phase", DENSE, "decode"),
    ("workload.image_size", DENSE, 512),
    ("workload.steps", DENSE, 20),
    ("workload.random_arrivals", DENSE, True),
    ("workload.measured_rate", DENSE, 1e4),
    ("parallelism.ring", DENSE, 2),
    ("workload.dimensions.layers", DENSE, 16),
    ("workload.dimensions.hidden_dim", DENSE, 2048),
    ("workload.dimensions.ffn_dim", DENSE, 8192),
    ("workload.dimensions.heads", DENSE, 64),
    ("workload.dimensions.kv_heads", DENSE, 16),
    ("workload.dimensions.vocab_size", DENSE, 64000),
    ("workload.dimensions.gated_ffn", DENSE, False),
    ("workload.dimensions.parameters", DENSE, 9e9),
    ("hardware.on", DENSE, "128xH100"),
    ("hardware.name", NAMED, "DGX_A100"),
    ("hardware.nodes", NAMED, 16),
    ("hardware.accelerators", DENSE | {"hardware": {"name": "DGX_H100", "accelerators": 64}}, 128),
    ("hardware.fabric", NAMED, "Ethernet_100G"),
    ("hardware.stack", DENSE, "titan"),
    ("hardware.launcher", SEARCHED | {"workload": DENSE["workload"] | {"model": "Llama3_70B"}}, "fsdp"),
    ("hardware.launcher", DENSE, "fsdp"),
    ("hardware.power_cap", DENSE, "400 W"),
    ("hardware.cooling", DENSE, "liquid"),
    ("hardware.oversubscription", DENSE, 4),
    ("hardware.congestion", DENSE, 2),
    ("hardware.straggler", DENSE, 1.2),
    ("hardware.rails", DENSE, 2),
    ("hardware.sites", TWO_SITES, 4),
    ("hardware.sites", DENSE, 2),
    ("hardware.wan_bandwidth", TWO_SITES, "1 Gbps"),
    ("hardware.wan_round_trip", TWO_SITES, "10 s"),
    ("hardware.chip.peak_flops", DENSE, "500 TFLOPs/s"),
    ("hardware.chip.memory_bandwidth", DENSE, "1 TB/s"),
    ("hardware.chip.memory_bandwidth", LONE, "0.2 TB/s"),
    ("hardware.chip.memory_capacity", DENSE, "40 GB"),
    ("hardware.chip.link_bandwidth", DENSE, "300 GB/s"),
    ("hardware.chip.fabric_bandwidth", DENSE, "100 Gbps"),
    ("hardware.chip.tdp", DENSE, "500 W"),
    ("hardware.chip.price", DENSE, "10000 USD"),
    ("parallelism.mode", DENSE, "auto"),
    ("parallelism.tp", DENSE, 2),
    ("parallelism.pp", DENSE, 4),
    ("parallelism.dp", DENSE, 4),
    ("parallelism.ep", EXPERTS, 2),
    ("parallelism.ep", DENSE, 2),
    ("parallelism.attention_dp", DENSE, 2),
    ("parallelism.cp", DENSE, 2),
    ("parallelism.virtual_stages", DENSE, 4),
    ("parallelism.schedule", DENSE, "zero_bubble"),
    ("parallelism.micro_batch", DENSE, 4),
    (
        "parallelism.micro_batch_group",
        DENSE | {"parallelism": {"tp": 4, "pp": 2, "micro_batches": 8, "virtual_stages": 2}},
        4,
    ),
    ("parallelism.micro_batches", DENSE | {"parallelism": {"tp": 4, "pp": 2, "micro_batches": 4}}, 8),
    ("parallelism.zero", DENSE, 3),
    ("parallelism.zero_shard", DENSE, 4),
    ("parallelism.zero_shard", DENSE | {"parallelism": {"tp": 4, "zero": 0}}, 4),
    ("parallelism.reshard", DENSE | {"parallelism": {"tp": 4, "micro_batch": 2, "zero": 2}}, False),
    ("parallelism.reshard", DENSE, True),
    ("parallelism.recompute", DENSE, "full"),
    ("parallelism.recomputed", SELECTIVE, "light"),
    ("parallelism.recomputed", DENSE, "light"),
    ("parallelism.offload", DENSE, 0.5),
    ("parallelism.host_update", DENSE | {"parallelism": DENSE["parallelism"] | {"offload": 0.5}}, True),
    ("parallelism.host_update", DENSE, True),
    ("parallelism.offload_weights", DENSE, 0.5),
    ("parallelism.offload_activations", DENSE, 0.5),
    ("parallelism.sequence_parallel", DENSE, False),
    ("parallelism.fp8_attention", DENSE, True),
    ("parallelism.deduplicated_exchange", EXPERTS, False),
    ("parallelism.deduplicated_exchange", DENSE, False),
    ("parallelism.overlap_tp", DENSE, 0.9),
    ("parallelism.overlap_ep", EXPERTS, 0.9),
    ("parallelism.overlap_ep", DENSE, 0.9),
    ("parallelism.overlap", DENSE, False),
    ("ops.region", DENSE, "Poland"),
    ("ops.duration", DENSE | {"ops": {"duration": "30 day"}}, "60 day"),
    ("ops.duration_days", DENSE, 60),
    ("ops.deadline", DENSE | {"workload": DENSE["workload"] | {"tokens": 1e12}}, "1 day"),
    ("ops.budget", DENSE, "10 USD"),
    ("ops.electricity", DENSE, "0.5 USD/kWh"),
    ("ops.price", DENSE, "2 USD/h"),
    ("ops.cost_scope", DENSE, "accelerators"),
    ("ops.checkpoint_time", DENSE, "120 s"),
    ("ops.mtbf", DENSE, "10 h"),
    ("ops.checkpoint_mode", DENSE, "asynchronous"),
    ("ops.checkpoint_mode", DENSE, "in_memory"),
    ("ops.checkpoint_mode", DENSE, "synchronous"),
    ("ops.checkpoint_interval", DENSE, "1 h"),
    ("ops.storage_bandwidth", DENSE, "10 GB/s"),
    ("ops.restart_time", DENSE, "1 h"),
    ("ops.spares", DENSE, 1),
    ("ops.repair_time", DENSE, "20 h"),
    ("ops.repair_time", DENSE | {"ops": DENSE["ops"] | {"spares": 1}}, "20 h"),
    ("ops.start", BY_HOUR, "2026-05-01"),
    ("ops.start", DENSE, "2026-12-01"),
    ("ops.pause_above", BY_HOUR, "250g"),
    ("ops.pause_above", BY_HOUR, "$180/MWh"),
    ("ops.pause_above", DENSE, "250g"),
    ("ops.demand_response", BY_HOUR, "25% for 3h daily"),
    ("ops.demand_response", DENSE, "25% for 3h daily"),
    ("ops.checkpoint_mode", DENSE, "object_store"),
    ("ops.simulate", DENSE, True),
    ("ops.simulate", PLAYED, False),
    ("ops.seeds", PLAYED, 5),
    ("ops.elastic", PLAYED, True),
    ("ops.elastic", DENSE, True),
    ("ops.repair_crews", PLAYED, 1),
    ("ops.maintenance", PLAYED, "4h/7day"),
    ("ops.slow_nodes", PLAYED, "1.5x6h/2day"),
    ("ops.preempted_every", PLAYED, "100 h"),
    ("ops.preempted_every", DENSE, "100 h"),
    ("ops.beside", PLAYED, 64),
    ("ops.fleet_age", PLAYED, "1 year"),
]
# With a searched layout what is given is kept, or refused.
CHANGES += [
    (f"parallelism.{name}", SEARCHED | {"parallelism": {"mode": "auto"}}, value)
    for name, value in {
        **{"tp": 8, "pp": 4, "dp": 2, "ep": 2, "cp": 4, "virtual_stages": 2, "schedule": "zero_bubble"},
        **{"micro_batch": 1, "micro_batches": 4, "zero": 3, "recompute": "full", "recomputed": "light"},
        **{"zero_shard": 8, "reshard": False, "offload_weights": 0.25, "offload_activations": 0.25},
        **{"sequence_parallel": False, "overlap": False, "offload": 0.25, "overlap_tp": 0.1, "fp8_attention": True},
    }.items()
]
EFFICIENCIES = (0.5, "calibrated")
PARTS = {
    "workload.": WorkloadPart,
    "workload.dimensions.": DimensionsPart,
    "hardware.": HardwarePart,
    "hardware.chip.": ChipPart,
    "parallelism.": ParallelismPart,
    "ops.": OpsPart,
}


def test_every_key_is_changed():
    tried = {key for key, _, _ in CHANGES} | {"hardware.efficiency"}
    inner = {"workload.dimensions", "hardware.chip"}
    keys = {prefix + name for prefix, part in PARTS.items() for name in part.model_fields}
    assert keys - inner - tried == set() and tried <= keys


@pytest.mark.parametrize("efficiency", EFFICIENCIES, ids=str)
@pytest.mark.parametrize(
    ("key", "document", "value"),
    CHANGES,
    ids=[f"{key}-{plan['workload']['model']}-{i}" for i, (key, plan, _) in enumerate(CHANGES)],
)
def test_no_key_is_ignored(key: str, document: dict[str, Any], value: Any, efficiency: Any) -> None:
    document = changed(document, "hardware.efficiency", efficiency)
    try:
        before = answer_of(document)
    except MLSysError as error:
        pytest.skip(f"the plan itself is refused: {error}")
    assert_it_counts(before, document, key, value)


def test_the_two_efficiencies_answer_differently():
    first, second = (answer_of(changed(DENSE, "hardware.efficiency", value)) for value in EFFICIENCIES)
    assert first["metrics"] != second["metrics"]


def test_a_network_of_fixed_shape_takes_no_length_in_training_either() -> None:
    for on in ("8xH100", "8xH100 + 8xA100"):
        with pytest.raises(InputError, match="ResNet-50 has a fixed shape and takes no 'seq_len'"):
            evaluate({"task": "training", "model": "ResNet50", "on": on, "seq_len": 1024})
