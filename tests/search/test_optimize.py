"""optimize(): the best point of a space of any kind, its runner-up, what rejected the rest, and what a step is worth."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import mlsysim
from mlsysim import optimize, pareto
from mlsysim.errors import InputError
from mlsysim.search.kinds import kind_named
from mlsysim.search.space import Space
from mlsysim.search.steps import said, worth
from mlsysim.search.sweep import sweep
from mlsysim.walls.node.compute_memory import SingleNodeModel

NODE = {
    "kind": "node",
    "fixed": {"model": "Llama3_8B", "phase": "decode", "seq_len": 2048, "tdp": "700 W"},
    "constraints": ["price >= 3e-9 * bandwidth"],
    "axes": {
        "bandwidth": {"values": [2, 1, 4, 8], "unit": "TB/s"},
        "peak": {"values": [100, 400, 1600], "unit": "TFLOPs/s"},
        "capacity": {"values": [16, 24, 96], "unit": "GB"},
        "price": {"values": [5000, 10000, 20000, 30000], "unit": "USD"},
        "batch_size": [1, 8, 64],
    },
}
TRAINING = {
    "kind": "training",
    "fixed": {"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 256},
    "axes": {"tp": [1, 2, 3, 4, 8], "pp": [1, 2, 4], "zero_stage": [0, 1, 3], "recompute": ["none", "full"]},
}
SERVING = {
    "kind": "serving",
    "fixed": {"model": "Llama3_70B", "isl": 2048, "osl": 256},
    "axes": {
        "hardware": ["H100", "H200"],
        "tp": [1, 2, 4, 8],
        "batch": [1, 4, 16, 64, 256],
        "precision": ["fp16", "fp8"],
    },
}
COMPRESSION = {
    "kind": "compression",
    "fixed": {"model": "Llama3_70B", "seq_len": 4096, "grid": "Quebec"},
    "axes": {"hardware": ["H200", "B200"], "compression": ["none", "w8a16", "w4a16"], "batch_size": [1, 16]},
}
CASES = [
    (NODE, {"minimize": "usd_per_mtoken"}, "latency_s <= 0.02"),
    (NODE, {"maximize": "tokens_per_second"}, "price_usd <= 10000"),
    (TRAINING, {"maximize": "mfu"}, "memory_bytes <= 5e10"),
    (TRAINING, {"minimize": "step_time_s"}, "mfu <= 0.3"),
    (SERVING, {"minimize": "usd_per_mtoken"}, "tpot_s <= 0.02"),
    (COMPRESSION, {"minimize": "usd_per_mtoken"}, "accuracy_worst >= -0.03"),
]
IDS = [f"{table['kind']}-{next(iter(goal.values()))}" for table, goal, _ in CASES]


def every_point(table: dict, goal: dict, limit: str) -> list[dict]:
    """All allowed points, best first, by hand: evaluate, filter, sort."""
    space = Space.from_dict({**table, "subject_to": [limit]}).with_goals(**goal, top=10_000)
    indices = np.arange(space.size)
    indices = indices[space.allowed(indices)]
    columns = space.decode(indices)
    outputs = kind_named(space.kind).evaluate(space, columns)
    allowed = outputs["feasible"] & space.subject_to[0](lambda name: {**space.fixed, **columns, **outputs}[name])
    output = space.goal.output
    rows = [
        {"point": int(i), "value": float(v)}
        for i, v, held in zip(indices, outputs[output], allowed, strict=True)
        if held
    ]
    return sorted(rows, key=lambda row: (row["value"] * space.goal.sign, row["point"]))


@pytest.mark.parametrize(("table", "goal", "limit"), CASES, ids=IDS)
def test_the_best_the_runner_up_and_the_counts_by_hand(table: dict, goal: dict, limit: str) -> None:
    result = optimize(table, **goal, subject_to=[limit])
    rows = every_point(table, goal, limit)
    assert result.best["point"] == rows[0]["point"]
    assert result.value == rows[0]["value"] == result.best["outputs"][result.objective]
    assert result.feasible == len(rows)
    assert result.ties == sum(row["value"] == rows[0]["value"] for row in rows)
    behind = next(row for row in rows if abs(row["value"] / rows[0]["value"] - 1) > 1e-9)
    assert result.runner_up["point"] == behind["point"]
    assert result.distance == pytest.approx(abs(behind["value"] / rows[0]["value"] - 1)) and result.distance > 0
    assert result.evaluated == result.feasible + sum(result.rejected.values())
    assert limit in result.rejected
    assert json.loads(json.dumps(result.to_dict()))["value"] == result.value


@pytest.mark.parametrize(("table", "goal", "limit"), CASES, ids=IDS)
def test_a_step_is_worth_what_the_neighbour_has(table: dict, goal: dict, limit: str) -> None:
    result = optimize(table, **goal, subject_to=limit)
    space = Space.from_dict(table)
    rows = every_point(table, goal, limit)
    values = {row["point"]: row["value"] for row in rows}
    sign = 1 if "maximize" in goal else -1
    seen = 0
    for name, entry in result.sensitivity.items():
        assert entry["at"] == result.best["inputs"][name]
        axis = space.values(name)
        for direction in {"up", "down", "other"} & entry.keys():
            row = entry[direction]
            wanted = {**result.best["inputs"], name: row["to"]}
            index = next(i for i in range(space.size) if space.point(i) == wanted)
            if index in values:
                assert row["worth"] == pytest.approx(sign * (values[index] / result.value - 1), abs=1e-12)
                assert row["worth"] <= 1e-12
                seen += 1
            else:
                assert row["worth"] is None and row["rejected_by"]
            if direction == "up":
                assert row["to"] == min(value for value in axis if value > entry["at"])
            free = [row["value"] for row in rows if space.point(row["point"])[name] == entry[direction]["to"]]
            if free:
                best = max(free) if sign > 0 else min(free)
                assert row["worth_with_others_free"] == pytest.approx(sign * (best / result.value - 1), abs=1e-12)
    assert seen


@pytest.mark.parametrize(("table", "goal", "limit"), CASES[:5], ids=IDS[:5])
def test_branch_and_bound_agrees(table: dict, goal: dict, limit: str) -> None:
    every = optimize(table, **goal, subject_to=limit)
    branched = optimize(table, **goal, subject_to=limit, method="branch")
    assert branched.value == pytest.approx(every.value, rel=1e-12)
    assert branched.distance == pytest.approx(every.distance, rel=1e-6)
    assert branched.outranked + sum(branched.rejected.values()) == branched.size
    assert (branched.method, branched.ties, branched.feasible) == ("branch and bound", None, None)


def test_one_per_cent_more_of_a_chip_of_the_zoo() -> None:
    """Decode of one sequence waits for memory: what it takes of the pass is what a per cent of bandwidth is worth of
    one per cent; arithmetic is worth nothing."""
    table = {"kind": "node", "fixed": {"model": "Llama3_8B"}, "axes": {"hardware": ["H100", "A100"]}}
    result = optimize(table, minimize="latency_s")
    assert result.best["inputs"] == {"hardware": "H100"}
    assert result.elasticity["bandwidth"]["at"] == pytest.approx(3.35e12)
    ledger = SingleNodeModel().solve("Llama3_8B", "H100", efficiency="calibrated").ledger
    share = ledger.resources()["bandwidth"] / ledger.seconds
    assert result.elasticity["bandwidth"]["worth"] == pytest.approx(0.01 * share, rel=0.03)
    assert "peak" not in result.elasticity
    assert "Wall 2 (Memory) binds" in result.binding


def test_what_holds_the_best_back() -> None:
    result = optimize(NODE, maximize="tokens_per_second", subject_to="price_usd <= 10000")
    entry = result.sensitivity["bandwidth"]["up"]
    assert entry["worth"] is None and entry["rejected_by"] == "price >= 3e-9 * bandwidth"
    assert entry["worth_if_allowed"] > 0
    assert "price >= 3e-9 * bandwidth holds back bandwidth" in result.binding
    assert result.sensitivity["batch_size"]["at"] == 64
    text = str(result)
    assert text == result.summary()
    for part in ("maximize tokens_per_second", "runner-up", "rejected", "price_usd <= 10000", "binding:"):
        assert part in text


def test_more_ties_than_are_kept() -> None:
    """Price does not change latency: three hundred points share the best, and the next value is still found."""
    axes = {
        "bandwidth": {"values": [2, 4], "unit": "TB/s"},
        "price": {"range": [1, 300], "unit": "USD"},
    }
    fixed = {"model": "Llama3_8B", "peak": "1 PFLOPs/s", "capacity": "80 GB", "dispatch_tax": "0 s"}
    result = optimize({"kind": "node", "fixed": fixed, "axes": axes}, minimize="latency_s")
    assert result.ties == 300
    assert result.runner_up["inputs"]["bandwidth"] == 2e12
    assert result.distance == pytest.approx(1)


def test_nothing_feasible_says_why() -> None:
    result = optimize(NODE, minimize="latency_s", subject_to="latency_s <= 1e-9")
    assert result.best is None and result.value is None and result.runner_up is None and result.feasible == 0
    assert "nothing is feasible" in result.binding
    assert max(result.rejected, key=result.rejected.get) in str(result)
    branched = optimize(NODE, minimize="latency_s", subject_to="latency_s <= 1e-9", method="branch")
    assert branched.best is None and branched.feasible == 0


def test_large_spaces_go_to_branch_and_bound() -> None:
    axes = {
        "bandwidth": {"range": [1, 16], "count": 2000, "unit": "TB/s"},
        "peak": {"range": [100, 5000], "count": 2000, "unit": "TFLOPs/s"},
        "price": {"range": [3000, 90000], "count": 2000, "unit": "USD"},
    }
    fixed = {"model": "Llama3_8B", "phase": "decode", "capacity": "80 GB", "batch_size": 64, "seq_len": 1024}
    limits = ["price >= 4000 + 2e-9 * bandwidth + 3e-12 * peak"]
    table = {"kind": "node", "fixed": fixed, "axes": axes, "constraints": limits}
    result = optimize(table, minimize="usd_per_mtoken")
    assert result.size == 8 * 10**9 and result.evaluated < 10**6
    assert result.method == "branch and bound" and result.best is not None
    assert result.runner_up is None or result.distance > 0


def test_a_path_and_a_space(tmp_path) -> None:
    path = tmp_path / "chips.toml"
    path.write_text(
        'kind = "node"\nminimize = "latency_s"\n[fixed]\nmodel = "Llama3_8B"\n[axes]\nhardware = ["H100", "B200"]\n'
    )
    by_path = optimize(path)
    assert by_path.best["inputs"] == {"hardware": "B200"} and by_path.name == "chips"
    assert optimize(str(path)).value == optimize(Space.from_toml(path)).value == by_path.value
    assert optimize(path, maximize="latency_s").best["inputs"] == {"hardware": "H100"}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"space": 3}, "A space is a Space, the path of a TOML file or a table, got int"),
        ({"space": NODE, "minimize": "latncy_s"}, "latency_s"),
        ({"space": NODE, "minimize": "latency_s", "maximize": "mfu"}, "one objective"),
        ({"space": NODE, "minimize": "latency_s", "subject_to": "latencys <= 1"}, "latency_s"),
        ({"space": NODE, "minimize": "latency_s", "subject_to": ["latency_s"]}, "compares nothing"),
        ({"space": NODE, "minimize": "wall"}, "'wall' is not something"),
        ({"space": NODE, "method": "brunch"}, "branch"),
        ({"space": NODE, "minimize": 3}, "There is no output of kind 'node'"),
        ({"space": NODE, "subject_to": 5}, "'subject_to' must be a text or a list of texts"),
        ({"space": "nowhere.toml"}, "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(call: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        optimize(**call)
    assert "\n" not in str(caught.value)


def test_the_front_is_what_a_sweep_keeps() -> None:
    front = pareto(NODE, "latency_s,price_usd", subject_to="batch_size == 8")
    kept = sweep(Space.from_dict({**NODE, "subject_to": ["batch_size == 8"], "pareto": ["latency_s", "price_usd"]}))
    assert {point["point"] for point in front} == {point["point"] for point in kept.pareto}
    latencies = [point["outputs"]["latency_s"] for point in front]
    assert latencies == sorted(latencies) and len(front) > 1


def test_without_numpy_there_is_a_sentence() -> None:
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "import mlsysim\n"
        "try:\n    mlsysim.optimize({})\nexcept mlsysim.MLSysError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert "needs NumPy" in run.stdout
    assert mlsysim.optimize is optimize


@pytest.mark.parametrize(
    ("value", "best", "larger", "gain"), [(11, 10, True, 0.1), (11, 10, False, -0.1), (-9, -10, True, 0.1)]
)
def test_worth(value: float, best: float, larger: bool, gain: float) -> None:
    assert worth(value, best, larger) == pytest.approx(gain)


def test_worth_of_nothing() -> None:
    assert worth(None, 1.0, True) is None and worth(1.0, 0.0, True) is None
    assert said({"tp": {"at": 8, "up": {"to": 16, "worth": None, "rejected_by": "Wall 2"}}}) == [
        "tp = 8: up to 16 is forbidden by Wall 2"
    ]


def test_a_summary_has_units_and_no_exponents():
    table = {
        "kind": "node",
        "fixed": {"model": "Llama3_8B", "peak": "400 TFLOP/s", "capacity": "80 GB"},
        "axes": {"bandwidth": ["1 TB/s", "2 TB/s", "3 TB/s"]},
    }
    text = str(optimize(table, minimize="latency_s"))
    assert "bandwidth = 3 TB/s: down to 2 TB/s is worth" in text and "e+" not in text
