"""One good call for every resolver, shared by the conformance suite; without an entry here, of its declared examples."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mlsysim.search import OPTIMIZERS
from mlsysim.walls.catalog import RESOLVERS

HOMES = {**RESOLVERS, **OPTIMIZERS}

CALLS: dict[str, dict[str, Any]] = {
    "SingleNodeModel": {"model": "Llama3_8B", "hardware": "H100", "batch_size": 4},
    "EfficiencyModel": {"model": "Llama3_8B", "hardware": "H100"},
    "ServingModel": {"model": "Llama3_8B", "hardware": "H100", "seq_len": 1024, "batch_size": 8},
    "ContinuousBatchingModel": {"model": "Llama3_8B", "hardware": "H100", "seq_len": 2048, "max_batch_size": 32},
    "WeightStreamingModel": {"model": "Llama3_70B", "hardware": "Cerebras_CS3", "seq_len": 2048},
    "TailLatencyModel": {"arrival_rate_qps": 80.0, "service_latency_ms": 100.0, "num_replicas": 10},
    "DataModel": {"workload_data_rate": "8 MB/s", "hardware": "H100"},
    "TransformationModel": {
        "batch_size": 2048,
        "sample_size_bytes": 110_000,
        "cpu_throughput": "54400 1/s",
        "accelerator_step_time": "48 ms",
    },
    "TopologyModel": {"fabric": "InfiniBand_NDR", "topology": "torus_3d", "num_nodes": 512},
    "ScalingModel": {"compute_budget": "5.88e23 flop"},
    "InferenceScalingModel": {"model": "Llama3_8B", "hardware": "H100", "reasoning_steps": 8},
    "CompressionModel": {"model": "Llama3_8B", "hardware": "H100", "target_bitwidth": 4},
    "DistributedModel": {
        "model": "Llama3_70B",
        "fleet": "Research_256",
        "batch_size": 256,
        "tp_size": 8,
        "zero_stage": 1,
        "microbatch_count": 8,
    },
    "ReliabilityModel": {"fleet": "Research_256", "job_duration_hours": 720},
    "OrchestrationModel": {"fleet": "Research_256", "arrival_rate_jobs_per_day": 0.4, "avg_job_duration_days": 2.0},
    "EconomicsModel": {"fleet": "Research_256", "duration_days": 30, "grid": "Quebec"},
    "SustainabilityModel": {"fleet": "Research_256", "duration_days": 30, "datacenter": "Quebec"},
    "CheckpointModel": {"model": "Llama3_70B", "hardware": "H100"},
    "ResponsibleEngineeringModel": {"base_training_time": "10 day"},
    "SensitivitySolver": {"model": "Llama3_8B", "hardware": "H100"},
    "SynthesisSolver": {"model": "Llama3_70B", "target_latency": "50 ms"},
    "TrainingMemoryModel": {"model": "Llama3_8B", "hardware": "H100"},
    "ServingCapacityModel": {"model": "Llama3_8B", "hardware": "H100", "qps": 5.0, "target_p99_latency_ms": 20000.0},
    "MoERoutingModel": {"model": "Mixtral_8x7B", "batch_size": 4, "ep_size": 8, "fleet": "Research_256"},
    "NetworkRooflineModel": {"model": "ResNet50", "fleet": "Research_256", "batch_size": 64},
    "ParallelismOptimizer": {"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 256},
    "BatchingOptimizer": {
        "model": "Llama3_8B",
        "hardware": "H100",
        "seq_len": 512,
        "sla_latency_ms": 20000.0,
        "arrival_rate_qps": 1.0,
    },
    "PlacementOptimizer": {"fleet": "Research_256", "duration_days": 30},
}


_ENTRIES = {"model": "Llama3_8B", "hardware": "H100", "fleet": "Research_256", "grid": "Quebec"}


def resolver(name: str) -> Any:
    """An instance of the resolver."""
    return getattr(import_module(HOMES[name]), name)()


def _declared(name: str) -> dict[str, Any]:
    """What a resolver must be given, as its inputs' examples and least values say."""
    call = {}
    for key, spec in resolver(name).inputs.items():
        if spec.required:
            least = 1 if spec.whole or not spec.low else 2 * spec.low
            call[key] = spec.example or _ENTRIES.get(spec.kind, least)
    return call


CALLS |= {name: _declared(name) for name in HOMES if name not in CALLS}
