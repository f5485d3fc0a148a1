"""Every axis that a training space can have: each value gives what solve() gives with that value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.models.registry import Models
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search.space import Space
from mlsysim.search.sweep import sweep
from mlsysim.search.training import evaluate
from mlsysim.search.training_inputs import INPUTS, canonical
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.systems.types import Fleet
from mlsysim.walls.fleet.communication import DistributedModel

FIXED: dict[str, Any] = {
    "model": "Mixtral_8x7B",
    "node": "DGX_H100",
    "fabric": "InfiniBand_NDR",
    "nodes": 4,
    "batch_size": 128,
    "seq_len": 2048,
    "precision": "bf16",
}
AXES: dict[str, list[Any]] = {
    "model": ["Llama3_8B", "GPT3_13B", "Mixtral_8x7B"],
    "node": ["DGX_A100", "DGX_H100", "GB200_NVL72"],
    "fabric": ["Ethernet_100G", "InfiniBand_NDR"],
    "nodes": [1, 2, 4],
    "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4],
    "ep": [1, 2, 8],
    "cp": [1, 2, 4],
    "schedule": ["1f1b", "interleaved", "zero_bubble", "dualpipe"],
    "micro_batches": [1, 2, 4],
    "micro_batch_group": [4, 8, 16],
    "batch_size": [32, 64, 128],
    "seq_len": [512, 4096],
    "zero_stage": [0, 1, 2, 3],
    "recompute": ["none", "selective", "full"],
    "precision": ["bf16", "fp8", "fp32"],
    "offload": [0.0, 0.5, 1.0],
    "offload_weights": [0.0, 0.5, 1.0],
    "offload_activations": [0.0, 0.5, 1.0],
    "zero_shard": [1, 2, 4, 8],
    "reshard": [True, False],
    "gradient_precision": ["bf16", "fp32"],
    "activation_precision": ["bf16", "fp8"],
    "exchange_precision": ["bf16", "fp8"],
    "wide_layers": [0, 4, 100],
    "recomputed": ["norm", "light", "half"],
    "optimizer": ["adam", "sgd", "adam_8bit"],
    "overlap_comm": [False, True],
    "overlap_efficiency": [0.1, 0.9],
    "overlap_tp": [0.0, 0.5],
    "overlap_ep": [0.0, 0.5],
    "overlap_cp": [0.2, 0.9],
    "overlap_pp": [0.2, 0.9],
    "sequence_parallel": [False, True],
    "is_lora": [False, True],
    "lora_rank": [8, 64],
    "lora_targets": ["attention", "all"],
    "congestion_factor": [1.0, 2.0],
    "straggler_factor": [1.0, 1.3],
    "moe_routing_imbalance_factor": [1.0, 1.5],
    "gradient_accumulation_steps": [1, 4],
    "memory_headroom": [0.0, 0.2],
    "topology_override": ["torus_2d", "fat_tree"],
    "deduplicated_exchange": [False, True],
    "update_step": [False, True],
    "host_update": [False, True],
}
WITH: dict[str, dict[str, Any]] = {
    "schedule": {"pp": 4, "micro_batches": 16},
    "micro_batch_group": {"pp": 4, "micro_batches": 16, "virtual_stages": 2, "overlap_pp": 0.0},
    "overlap_efficiency": {"overlap_comm": True},
    "overlap_tp": {"tp": 8},
    "host_update": {"optimizer_offload": 0.5},
    "overlap_ep": {"ep": 8},
    "overlap_cp": {"cp": 4},
    "overlap_pp": {"pp": 4},
    "lora_rank": {"is_lora": True},
    "lora_targets": {"is_lora": True, "model": "Llama3_8B"},
    "zero_shard": {"zero_stage": 1},
    "reshard": {"zero_stage": 3},
    "recomputed": {"recompute": "selective"},
    "wide_layers": {"precision": "fp8"},
    "sequence_parallel": {"tp": 8},
    "moe_routing_imbalance_factor": {"ep": 8},
    "topology_override": {"nodes": 64, "batch_size": 512},
    "deduplicated_exchange": {"model": "DeepSeek_V3", "ep": 16},
    "exchange_precision": {"model": "DeepSeek_V3", "ep": 16},
}
CALIBRATED_ONLY = {
    *("efficiency", "stack", "power_cap", "fp8_attention", "predicted_tokens", "target_share"),
}


def solve(*args, **given):
    """What a space answers: calibrated where it does not say, 4,096 tokens in bf16; at first order with what a plan counts."""
    usual = {"efficiency": "calibrated", "seq_len": 4096, "precision": "bf16", **given}
    planned = {} if usual["efficiency"] == "calibrated" else {"overlap_comm": True, "update_step": True}
    return DistributedModel().solve(*args, **planned | usual)


def solved(point: dict[str, Any]):
    """What DistributedModel says of a point of a space."""
    point = {canonical(name): value for name, value in point.items()}
    fleet = Fleet(
        name="f", node=Nodes[point.pop("node")], count=point.pop("nodes"), fabric=Fabrics[point.pop("fabric")]
    )
    return solve(fleet=fleet, **point)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize("axis", AXES)
def test_axis(axis, efficiency):
    fixed = {**FIXED, **WITH.get(axis, {}), "efficiency": efficiency}
    fixed.pop(axis, None)
    values = AXES[axis]
    space = Space.from_dict({"kind": "training", "fixed": fixed, "axes": {axis: values}})
    found = evaluate(space, space.decode(np.arange(space.size)))
    distinct = set()
    for place, value in enumerate(values):
        try:
            answer = solved({**fixed, axis: value})
        except InputError:
            assert not found["valid"][place]
            continue
        assert found["valid"][place]
        assert bool(found["feasible"][place]) is answer.feasible
        pairs = (
            ("step_time_s", answer.step_latency_total.magnitude),
            ("memory_bytes", answer.memory_per_accelerator.magnitude),
            ("mfu", answer.mfu),
        )
        for name, expected in pairs:
            assert found[name][place] == pytest.approx(expected, rel=1e-12, abs=0)
        distinct.add((*(found[name][place] for name, _ in pairs), answer.feasible))
    assert found["valid"].any()
    if efficiency == 0.5 and axis != "memory_headroom":
        assert len(distinct) > 1, "the axis changes nothing"


def test_virtual_stages_is_an_axis_with_the_interleaved_schedule():
    fixed = {**FIXED, "pp": 4, "micro_batches": 16}
    space = Space.from_dict({"kind": "training", "fixed": fixed, "axes": {"v_stages": [1, 2, 4]}})
    found = evaluate(space, space.decode(np.arange(3)))
    assert found["step_time_s"][0] > found["step_time_s"][1] > found["step_time_s"][2]
    assert found["memory_bytes"][0] < found["memory_bytes"][1]


def test_models_of_the_zoo_by_query():
    table = {
        "kind": "training",
        "fixed": {"fleet": "Frontier_8K", "batch_size": 8192, "zero_stage": 3, "recompute": "full"},
        "axes": {"model": {"zoo": "Models.Language"}},
    }
    space = Space.from_dict(table)
    found = evaluate(space, space.decode(np.arange(space.size)))
    assert space.size > 50 and found["valid"].sum() > 50
    place = space.values("model").index("Llama3_70B")
    answer = solve("Llama3_70B", "Frontier_8K", 8192, zero_stage=3, activation_recomputation="full")
    assert found["mfu"][place] == pytest.approx(answer.mfu, rel=1e-12)
    assert len(Models.Language.keys()) == space.size


def test_clusters_of_the_zoo_by_query():
    fixed = {"model": "Llama3_8B", "precision": "bf16", "batch_size": 8_601_600, "zero_stage": 1, "micro_batch": 1}
    space = Space.from_dict({"kind": "training", "fixed": fixed, "axes": {"fleet": {"zoo": "Clusters"}}})
    found = evaluate(space, space.decode(np.arange(space.size)))
    for place, name in enumerate(space.values("fleet")):
        count = Clusters[name].total_accelerators
        has_format = Clusters[name].node.accelerator.compute.supports("bf16")
        assert bool(found["valid"][place]) is (8_601_600 % count == 0 and has_format), name
    assert found["valid"].sum() > 3


def test_a_chip_stands_for_the_node_that_holds_it():
    fixed = {k: v for k, v in FIXED.items() if k != "node"}
    chips = ["A100", "H100", "B200"]
    space = Space.from_dict({"kind": "training", "fixed": fixed, "axes": {"chip": chips}})
    nodes = Space.from_dict(
        {"kind": "training", "fixed": fixed, "axes": {"node": ["DGX_A100", "DGX_H100", "DGX_B200"]}}
    )
    one, other = (evaluate(s, s.decode(np.arange(3))) for s in (space, nodes))
    np.testing.assert_array_equal(one["step_time_s"], other["step_time_s"])


def test_accelerators_count_the_same_fleet_as_nodes():
    fixed = {k: v for k, v in FIXED.items() if k != "nodes"}
    counted = evaluate(fixed, {"accelerators": np.array([8, 16, 32, 12])})
    nodes = evaluate(fixed, {"nodes": np.array([1, 2, 4])})
    np.testing.assert_array_equal(counted["mfu"][:3], nodes["mfu"])
    assert counted["valid"].tolist() == [True, True, True, False], "the batch does not divide over twelve"
    fixed_count = evaluate({**fixed, "accelerators": 16}, {"tp": np.array([1])})
    assert fixed_count["mfu"][0] == nodes["mfu"][1]


def test_data_parallelism_decides_the_number_of_nodes():
    fixed = {k: v for k, v in FIXED.items() if k != "nodes"}
    columns = {"dp": np.array([1, 2, 4, 8, 3]), "tp": np.array([8, 8, 4, 2, 4]), "pp": np.array([1, 2, 1, 2, 1])}
    found = evaluate({**fixed, "batch_size": 96}, columns)
    assert found["valid"].all(), "3 x 4 accelerators are three halves of nodes of eight"
    for place in range(4):
        dp, tp, pp = (int(columns[name][place]) for name in ("dp", "tp", "pp"))
        answer = solved({**fixed, "batch_size": 96, "nodes": dp * tp * pp // 8, "tp": tp, "pp": pp})
        assert answer.parallelism["dp"] == dp
        assert found["step_time_s"][place] == pytest.approx(answer.step_latency_total.magnitude, rel=1e-12, abs=0)


def test_data_parallelism_beside_nodes_keeps_the_layouts_that_have_it():
    found = evaluate(FIXED, {"dp": np.array([32, 16, 8, 8]), "tp": np.array([1, 2, 2, 4])})
    assert found["valid"].tolist() == [True, True, False, True]


def test_every_input_of_the_step_is_an_axis_that_is_tested():
    tested = {canonical(name) for name in AXES} | CALIBRATED_ONLY
    missing = {*DistributedModel.inputs} - tested - {"fleet", "v_stages"}
    assert not missing
    assert set(DistributedModel.inputs) <= set(INPUTS)


def test_a_fleet_in_one_string() -> None:
    """``8xH100`` is the fleet that a plan reads of it, fixed or on an axis; a name that nothing has is refused with the nearest."""
    table = {"kind": "training", "fixed": {"model": "Llama3_8B", "batch_size": 64, "seq_len": 4096, "micro_batch": 1}}
    rows = sweep(Space.from_dict({**table, "axes": {"on": ["8xH100", "16 H100", "2xDGX_H100@NDR"], "tp": [2]}})).best
    found = {row["inputs"]["on"]: row["outputs"]["tokens_per_second"] for row in rows}
    plan = Plan(model="Llama3_8B", on="16xH100", batch_size=64, seq_len=4096, micro_batch=1, tp=2, pp=1)
    asked = evaluate_plainly(plan).value("tokens_per_second").magnitude
    assert found["16 H100"] == found["2xDGX_H100@NDR"] == pytest.approx(asked) and found["8xH100"] < asked
    with pytest.raises(UnknownNameError, match="H100"):
        Space.from_dict({**table, "axes": {"fleet": ["8xH1000"], "tp": [2]}})


def test_a_launcher_on_an_axis_keeps_what_it_runs() -> None:
    """FSDP has no pipeline and shards gradients (data/software/launchers.toml); what it does not run is no design."""
    fixed = {"model": "Llama3_8B", "fleet": "8xH100", "batch_size": 64, "seq_len": 4096, "micro_batch": 1}
    axes = {"launcher": ["fsdp", "megatron"], "pp": [1, 2], "zero": [1, 3], "activation_recomputation": ["full"]}
    rows = sweep(Space.from_dict({"kind": "training", "fixed": fixed, "axes": axes})).best
    by = {name: {(row["inputs"]["pp"], row["inputs"]["zero"]) for row in rows if row["inputs"]["launcher"] == name}
          for name in axes["launcher"]}  # fmt: skip
    assert by == {"fsdp": {(1, 3)}, "megatron": {(1, 1), (1, 3), (2, 1), (2, 3)}}
