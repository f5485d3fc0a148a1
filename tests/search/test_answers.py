"""The best point of a sweep is explained by the resolver itself, with the numbers of the sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.search.answers import answer, explanation
from mlsysim.search.kinds import KINDS
from mlsysim.search.space import Space
from mlsysim.units.registry import to_si

CHIPS = {
    "kind": "node",
    "axes": {
        "peak": {"range": [100, 2000], "count": 3, "unit": "TFLOP/s"},
        "bandwidth": {"range": [1, 6], "step": 0.5, "unit": "TB/s"},
        "capacity": {"range": [80, 240], "step": 32, "unit": "GB"},
        "batch_size": [1, 16],
    },
    "fixed": {"model": "Llama3_70B", "precision": "fp8", "host_bandwidth": "64 GB/s", "tdp": "700 W"},
}
REPLACED = {
    "kind": "node",
    "axes": {"hardware": ["H100", "A100"], "bandwidth": {"values": [1, 5], "unit": "TB/s"}, "batch_size": [1, 256]},
    "fixed": {"model": "Llama3_8B"},
}
LAYOUTS = {
    "kind": "training",
    "axes": {
        "tp": [1, 8],
        "pp": [1, 4],
        "micro_batch": [1, 2],
        "recompute": ["none", "full"],
        "zero_stage": [0, 3],
        "dp": [8, 16],
    },
    "fixed": {
        "model": "Llama3_8B",
        "node": "DGX_H100",
        "fabric": "InfiniBand_NDR",
        "batch_size": 512,
        "grid": "Quebec",
    },
}


SERVING = {
    "kind": "serving",
    "axes": {
        "hardware": ["H100", "B200"],
        "decode_hardware": ["none", "H200"],
        "draft_model": ["none", "Llama3_8B"],
        "tp": [2, 8],
        "network_bandwidth": {"values": [25, 50], "unit": "GB/s"},
        "batch": [1, 200],
    },
    "fixed": {"model": "Llama3_70B", "precision": "fp8", "isl": 1024, "osl": 100, "cloud_price": "on-demand"},
}
CLIENTS = {
    "kind": "serving",
    "axes": {"tp": [2, 4, 8], "concurrency": [1, 33, 4000], "replicas": [1, 3]},
    "fixed": {"model": "Llama3_70B", "hardware": "H100", "isl": 4096, "osl": 100},
}
COMPRESSED = {
    "kind": "compression",
    "axes": {"hardware": ["A100", "H100"], "compression": ["none", "w4a16"], "batch_size": [1, 64]},
    "fixed": {"model": "Llama3_8B", "grid": "Quebec"},
}


@pytest.mark.parametrize(
    ("table", "field", "output"),
    [
        (CHIPS, "latency", "latency_s"),
        (REPLACED, "latency", "latency_s"),
        (SERVING, "itl", "itl_s"),
        ({**SERVING, "fixed": {**SERVING["fixed"], "prefill_batch_size": 1}}, "request_latency", "e2e_s"),
        (CLIENTS, "tpot", "tpot_s"),
        ({**CLIENTS, "fixed": {**CLIENTS["fixed"], "efficiency": 0.5}}, "tpot", "tpot_s"),
        (COMPRESSED, "latency", "latency_s"),
        (LAYOUTS, "step_latency_total", "step_time_s"),
        ({**LAYOUTS, "fixed": {**LAYOUTS["fixed"], "efficiency": "calibrated"}}, "step_latency_total", "step_time_s"),
    ],
    ids=[
        "chips",
        "replaced",
        "serving",
        "continuous",
        "clients",
        "clients at first order",
        "compressed",
        "layouts",
        "calibrated",
    ],
)
def test_the_answer_is_that_of_the_sweep(table: dict[str, Any], field: str, output: str):
    space = Space.from_dict(table)
    outputs = KINDS[space.kind].evaluate(space, space.decode(np.arange(space.size)))
    valid = np.flatnonzero(np.broadcast_to(outputs.get("valid", True), space.size))
    assert valid.size >= 8
    for index in valid.tolist():
        found = answer(space, space.point(index))
        assert getattr(found, field).to("s").magnitude == pytest.approx(outputs[output][index], rel=1e-12)
        assert found.feasible is bool(outputs["feasible"][index])
        told = explanation(space, space.point(index))
        assert told["memory_bytes"] == pytest.approx(outputs["memory_bytes"][index], rel=1e-12)
        assert told["sentences"][0] == found.binding.sentence and told["wall"] == found.binding.wall


def test_an_explanation_says_what_binds_and_where_time_and_memory_go():
    space = Space.from_dict(LAYOUTS)
    told = explanation(space, space.point(1))
    assert told["name"] in told["sentence"] and f"{told['memory_fraction']:.1%}" in told["sentences"][1]
    assert "weights" in told["sentences"][1] and "optimizer state" in told["sentences"][1]
    result = answer(space, space.point(1))
    assert sum(told["seconds"].values()) == pytest.approx(result.step_latency_total.to("s").magnitude, rel=1e-12)
    assert "products" in told["sentences"][2] and "%" in told["sentences"][2]
    one = explanation(Space.from_dict(CHIPS), Space.from_dict(CHIPS).point(20))
    assert (
        one["sentences"][2].startswith("Each alone: compute")
        and f"{one['seconds']['memory'] * 1e3:.4g} ms" in one["sentences"][2]
    )


def test_every_kind_can_be_explained_but_bare_kernels():
    assert {name for name, kind in KINDS.items() if kind.declared("answer")} == set(KINDS) - {"kernel"}


def test_a_part_of_a_node_is_a_fleet():
    """One accelerator of a node of eight: the sweep and the answer of the point agree."""
    table = {
        "kind": "training",
        "fixed": {
            "model": "Llama3_8B",
            "node": "DGX_H100",
            "fabric": "InfiniBand_NDR",
            "batch_size": 64,
            "micro_batch": 1,
        },
        "axes": {"dp": [1, 8], "tp": [1, 8]},
    }
    space = Space.from_dict(table)
    found = answer(space, {"dp": 1, "tp": 1})
    swept = KINDS["training"].evaluate(space, space.decode([0]))
    assert swept["step_time_s"][0] == pytest.approx(found.step_latency_total.to("s").magnitude)
    assert answer(space, {"dp": 8, "tp": 1}).feasible is not None


@pytest.mark.parametrize("efficiency", [None, 0.5])
@pytest.mark.parametrize("model", ["Llama3_8B", "GPT_OSS_20B", "DeepSeek_V3", "ResNet50"])
def test_a_space_without_a_format_has_that_of_a_plan(model: str, efficiency: float | None) -> None:
    """TPUs have no fp16, and checkpoints are published in 8 and 4 bits: what a plan takes there, a space takes."""
    chips, given = ["H100", "TPU_v5e"], {} if efficiency is None else {"efficiency": efficiency}
    table = {"kind": "node", "axes": {"hardware": chips}, "fixed": {"model": model, **given}}
    served = {"isl": 500, "osl": 20, "tp": 8, "concurrency": 4, **given}
    spaces = [(table, "inference", {}, "latency", "latency_s")]
    if model != "ResNet50":
        fixed = {"kind": "serving", "axes": {"hardware": chips}, "fixed": {"model": model, **served}}
        spaces.append((fixed, "serving", {**served, "replicas": 1}, "ttft", "ttft_s"))
    for found, task, keys, metric, output in spaces:
        space = Space.from_dict(found)
        points = KINDS[space.kind].evaluate(space, space.decode(np.arange(2)))
        for place, chip in enumerate(chips):
            on = chip if task == "inference" else f"8x{chip}"
            plan = Plan.model_validate({"task": task, "model": model, "on": on, **given, **keys})
            asked = evaluate(plan, change=False)
            assert asked.feasible is bool(points["feasible"][place])
            if asked.feasible:
                assert points[output][place] == pytest.approx(to_si(asked.value(metric), "s"), rel=1e-9)


@pytest.mark.parametrize("efficiency", ["calibrated", 0.5])
def test_a_limit_of_power_is_read_at_both_fidelities(efficiency: Any) -> None:
    fixed = {"model": "Llama3_8B", "hardware": "H100", "phase": "prefill", "seq_len": 512, "efficiency": efficiency}
    space = Space.from_dict({"kind": "node", "axes": {"power_cap": ["200 W", "350 W"]}, "fixed": fixed})
    seconds = KINDS["node"].evaluate(space, space.decode(np.arange(2)))["latency_s"]
    for cap, found in zip(("200 W", "350 W"), seconds, strict=True):
        asked = {name: value for name, value in fixed.items() if name != "hardware"}
        plan = Plan.model_validate({"task": "inference", "on": "H100", "power_cap": cap, **asked})
        assert found == pytest.approx(to_si(evaluate(plan, change=False).value("latency"), "s"), rel=1e-12)
