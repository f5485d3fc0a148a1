"""Sweeps: equal to solve(), equal to brute force, however they are cut, stopped and resumed."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsysim.cli.main import main
from mlsysim.errors import InputError
from mlsysim.hardware.types import ComputeCore, HardwareNode, IOInterconnect, MemoryHierarchy
from mlsysim.physics.precision import compute_precision
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.search import executors
from mlsysim.search import sweep as module
from mlsysim.search.folder import Checkpoint
from mlsysim.search.kinds import KINDS
from mlsysim.search.node import binding
from mlsysim.search.space import Space
from mlsysim.search.sweep import merge, shard, sweep
from mlsysim.search.tiles import tiles
from mlsysim.units.registry import Q_
from mlsysim.walls.node.compute_memory import SingleNodeModel

PART = 1000


def chips(**more: Any) -> Space:
    """13,200 hypothetical chips; a third lacks memory."""
    return Space.from_dict(
        {
            "kind": "node",
            "name": "chips",
            "axes": {
                "peak": {"range": [100, 2000], "count": 20, "unit": "TFLOP/s"},
                "bandwidth": {"range": [1, 6], "step": 0.5, "unit": "TB/s"},
                "capacity": {"range": [80, 240], "step": 32, "unit": "GB"},
                "price": {"values": [10000, 20000], "unit": "USD"},
                "batch_size": [1, 3, 16, 64, 200],
            },
            "fixed": {"model": "Llama3_70B", "precision": "fp8", "phase": "decode", "seq_len": 2048},
            "constraints": ["peak <= 800 * bandwidth"],
            "subject_to": ["latency_s < 0.06"],
            "maximize": "throughput_per_usd",
            "pareto": ["latency_s", "price_usd", "tokens_per_second"],
            **more,
        }
    )


def same(found: Any) -> dict[str, Any]:
    """A result without its timings, as JSON gives it."""
    return json.loads(json.dumps(found.to_dict(timings=False), allow_nan=False))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return same(sweep(chips()))


# --- the kind "node" is SingleNodeModel --------------------------------------------------------------------------


def compare(answer: Any, outputs: dict[str, Any], i: int) -> None:
    assert bool(outputs["feasible"][i]) is answer.feasible
    assert outputs["wall"][i] == (0 if answer.feasible else 2)
    wanted = {
        "latency_s": answer.latency.to("s").magnitude,
        "latency_compute_s": answer.latency_compute.to("s").magnitude,
        "latency_memory_s": answer.latency_memory.to("s").magnitude,
        "throughput_per_s": answer.throughput.to("1/s").magnitude,
        "mfu": answer.mfu,
        "hfu": answer.hfu,
        "memory_bytes": answer.memory_footprint.to("byte").magnitude,
    }
    if answer.energy is not None:
        wanted["energy_j"] = answer.energy.to("J").magnitude
    for name, value in wanted.items():
        assert outputs[name][i] == pytest.approx(value, rel=1e-12, abs=0), name


HYPOTHETICAL = {
    "model": ["Llama3_8B", "Mixtral_8x7B", "BERT_Large"],
    "precision": ["fp16", "fp8", "int4"],
    "batch_size": [1, 7, 64],
    "seq_len": [1, 900, 4096],
    "peak": {"range": [50, 2000], "scale": "log", "count": 7, "unit": "TFLOP/s"},
    "bandwidth": {"range": [0.3, 8], "scale": "log", "count": 7, "unit": "TB/s"},
    "capacity": {"range": [4, 300], "scale": "log", "count": 7, "unit": "GB"},
    "efficiency": [0.2, 0.5, 1.0],
}


@pytest.mark.parametrize(
    ("more", "points"),
    [
        ({"phase": "prefill"}, 500),
        ({"phase": "training"}, 300),
        ({"phase": "training", "activation_recomputation": "full", "zero_stage": 3, "dp_size": 8}, 200),
        ({"phase": "prefill", "host_bandwidth": "64 GB/s", "tdp": "700 W", "bandwidth_efficiency": 0.8}, 500),
    ],
)
def test_hypothetical_chips_equal_solve(more, points):
    space = Space.from_dict({"kind": "node", "axes": HYPOTHETICAL, "fixed": more})
    indices = np.random.default_rng(5).integers(0, space.size, points)
    outputs = KINDS["node"].evaluate(space, space.decode(indices))
    assert 0.1 < outputs["feasible"].mean() < 0.95
    plain = {k: v for k, v in more.items() if k not in ("host_bandwidth", "tdp")}
    for i, index in enumerate(indices.tolist()):
        x = space.point(index)
        chip = HardwareNode(
            name="hypothetical",
            compute=ComputeCore(peak_flops=Q_(x.pop("peak"), "flop/s"), headline=compute_precision(x["precision"])),
            memory=MemoryHierarchy(capacity=Q_(x.pop("capacity"), "byte"), bandwidth=Q_(x.pop("bandwidth"), "byte/s")),
            interconnect=IOInterconnect(name="host", bandwidth="64 GB/s") if "host_bandwidth" in more else None,
            tdp=more.get("tdp"),
        )
        if more["phase"] == "training" and x["precision"] == "int4":
            # Weights that are stored so alone are not trained: solve() refuses, and a point is no design.
            with pytest.raises(InputError, match="int4 stores weights and trains none"):
                SingleNodeModel().solve(hardware=chip, **plain, **x)
            assert not outputs["feasible"][i] and np.isnan(outputs["latency_s"][i])
            continue
        compare(SingleNodeModel().solve(hardware=chip, **plain, **x), outputs, i)


@pytest.mark.parametrize("fidelity", ["first order", "calibrated"])
@pytest.mark.parametrize(
    ("models", "hardware", "precision"),
    [
        (["Llama3_8B", "DeepSeek_V3", "BERT_Large"], {"zoo": "Hardware.Cloud"}, ["fp16", "fp8"]),
        (["ResNet50", "MobileNetV2", "ViT_L_16", "DLRM"], {"zoo": "Hardware"}, ["fp32", "fp16", "int8"]),
    ],
)
def test_chips_of_the_zoo_equal_solve(models, hardware, precision, fidelity):
    axes = {"model": models, "hardware": hardware, "precision": precision, "batch_size": [1, 2, 32, 256]}
    space = Space.from_dict({"kind": "node", "axes": axes, "fidelity": fidelity})
    indices = np.random.default_rng(7).permutation(space.size)[:200]
    columns = space.decode(indices)
    outputs, binds = KINDS["node"].evaluate(space, columns), binding(space, columns)
    efficiency = 0.5 if fidelity == "first order" else "calibrated"
    lacking = 0
    for i, index in enumerate(indices.tolist()):
        try:
            answer = SingleNodeModel().solve(**space.point(index), efficiency=efficiency)
        except InputError:
            assert outputs["wall"][i] == 1 and not outputs["feasible"][i]
            lacking += 1
        else:
            compare(answer, outputs, i)
            assert answer.ledger is not None
            assert binds[i] == answer.ledger.binding_wall or not answer.feasible
    assert lacking < len(indices) / 2


def test_a_space_over_chips_as_they_are_sold_is_what_a_plan_says_of_them():
    """Calibrated where nothing is said, and the digits of the plan's answer."""
    axes = {"model": ["Llama3_8B", "ResNet50", "BERT_Base"], "hardware": ["H100", "A100", "TPU_v5e", "MI300X"]}
    space = Space.from_dict({"kind": "node", "axes": {**axes, "batch_size": [1, 256]}, "fixed": {"precision": "bf16"}})
    assert space.fixed["efficiency"] == "calibrated"
    outputs = KINDS["node"].evaluate(space, space.decode(np.arange(space.size)))
    for index in range(space.size):
        x = space.point(index)
        work = {"model": x["model"], "batch_size": x["batch_size"], "precision": "bf16"}
        plan = Plan.model_validate({"task": "inference", "workload": work, "hardware": {"on": x["hardware"]}})
        answer = evaluate_plainly(plan)
        assert answer.fidelity == "calibrated" and answer.feasible == outputs["feasible"][index]
        assert answer.ledger is not None
        assert outputs["latency_s"][index] == pytest.approx(answer.ledger.seconds, rel=1e-12)
        assert outputs["memory_bytes"][index] == pytest.approx(answer.ledger.memory, rel=1e-12)
    chip = {"peak": "1e15 flop/s", "bandwidth": "3 TB/s", "capacity": "80 GB"}
    imagined = Space.from_dict({"kind": "node", "axes": {"batch_size": [1]}, "fixed": {"model": "Llama3_8B", **chip}})
    assert "efficiency" not in imagined.fixed


def test_cost_is_the_share_of_the_price_that_the_tokens_use_up():
    space = chips(fixed={**chips().fixed, "amortization_years": 2})
    outputs = KINDS["node"].evaluate(space, space.decode(np.array([4])))
    x = space.point(4)
    seconds = 1e6 / x["batch_size"] * outputs["latency_s"][0]
    assert outputs["usd_per_mtoken"][0] == pytest.approx(x["price"] * seconds / (2 * 365.25 * 86400), rel=1e-3)


def test_a_chip_needs_its_numbers():
    space = Space.from_dict({"kind": "node", "axes": {"batch_size": [1]}, "fixed": {"model": "Llama3_8B"}})
    with pytest.raises(InputError, match=r"needs 'peak'.*or 'hardware'"):
        sweep(space)


# --- the result ---------------------------------------------------------------------------------------------------


def test_a_sweep_is_brute_force(whole):
    space = chips()
    rows = []
    for index in range(space.size):
        x = space.point(index)
        if x["peak"] <= 800 * x["bandwidth"]:
            rows.append(index)
    out = KINDS["node"].evaluate(space, space.decode(np.array(rows)))
    good = out["feasible"] & (out["latency_s"] < 0.06)
    assert whole["points"] == len(rows) < whole["size"] == 13200
    assert whole["feasible"] == good.sum() > 0
    assert whole["infeasible_by_wall"] == {
        "2": int((~out["feasible"]).sum()),
        "latency_s < 0.06": int((out["feasible"] & ~(out["latency_s"] < 0.06)).sum()),
    }
    order = sorted(np.flatnonzero(good), key=lambda i: (-out["throughput_per_usd"][i], rows[i]))
    assert [entry["point"] for entry in whole["best"]] == [rows[i] for i in order[:10]]
    assert whole["best"][0]["outputs"]["throughput_per_usd"] == out["throughput_per_usd"][order[0]]
    wanted = np.stack([out["latency_s"], out["price_usd"], -out["tokens_per_second"]])[:, good]
    wanted, firsts = np.unique(wanted, axis=1, return_index=True)
    numbers = np.array(rows)[good][firsts]
    beaten = [((wanted <= one[:, None]).all(axis=0) & (wanted < one[:, None]).any(axis=0)).any() for one in wanted.T]
    front = sorted(numbers[~np.array(beaten)].tolist())
    assert [entry["point"] for entry in whole["pareto"]] == front and len(front) > 3


def test_how_a_space_is_cut_does_not_matter(whole):
    assert same(sweep(chips(), points_per_part=PART)) == whole
    assert same(sweep(chips(), points_per_part=777)) == whole


def test_a_shard_is_a_pure_function():
    assert shard(chips(), 300, 4000).document() == shard(chips(), 300, 4000).document()


def test_any_executor_will_do(whole):
    with ThreadPoolExecutor(3) as executor:
        assert same(sweep(chips(), executor=executor, points_per_part=PART)) == whole


def test_tiles_are_full():
    blocks = [np.arange(10), np.arange(10, 40_000), np.arange(40_000, 40_001)]
    found = list(tiles(blocks))
    assert [tile.size for tile in found] == [16_384, 16_384, 40_001 - 2 * 16_384]
    assert (np.concatenate(found) == np.arange(40_001)).all()


# --- stopping and going on ----------------------------------------------------------------------------------------


def test_deleted_parts_are_computed_again(whole, tmp_path):
    assert same(sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART)) == whole
    parts = sorted((tmp_path / "run").glob("part-*.json"))
    assert len(parts) == 14
    for path in parts[2:9]:
        path.unlink()
    (tmp_path / "run" / ".part-00000003.json.77").write_text("{cut sh")
    again = sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART)
    assert same(again) == whole and 0 < again.resumed_points < again.points
    assert sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART).resumed_points == whole["points"]


def test_an_interrupt_leaves_what_is_finished(whole, tmp_path):
    def stop(done: int, parts: int, total: Any) -> None:
        if done == 5:
            signal.raise_signal(signal.SIGINT)

    early = sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART, progress=stop)
    assert not early.complete and early.best and 0 < early.points < whole["points"]
    assert len(list((tmp_path / "run").glob("part-*.json"))) == 5
    assert same(sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART)) == whole


def test_an_interrupt_while_a_part_is_kept_waits(tmp_path, monkeypatch):
    save = module.Checkpoint.save

    def interrupted(self: Any, part: int, state: Any, stored: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        save(self, part, state, stored)

    monkeypatch.setattr(module.Checkpoint, "save", interrupted)
    early = sweep(chips(), checkpoint=tmp_path / "run", points_per_part=PART)
    assert not early.complete and early.points > 0
    assert len(list((tmp_path / "run").glob("part-*.json"))) == 1


def test_a_pool_survives_the_death_of_a_worker(whole, tmp_path):
    killed, others = [], set(multiprocessing.active_children())

    def kill(done: int, parts: int, total: Any) -> None:
        if done and not killed:
            victim = next(child for child in multiprocessing.active_children() if child not in others)
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    found = sweep(chips(), workers=2, checkpoint=tmp_path / "run", points_per_part=PART, progress=kill)
    assert killed and same(found) == whole
    assert no_children_but(others)


def no_children_but(others: set[Any]) -> bool:
    """Whether every worker has ended, waited for on a busy machine; the others are of other tests of this process."""
    deadline = time.monotonic() + 60
    while (left := set(multiprocessing.active_children()) - others) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


def dies_writing(flag: str, number: int, start: int, stop: int) -> int:
    """A task whose worker is killed in the middle of its first answer, with half of the message in the pipe."""

    def half(connection: Any, message: Any, *_: Any) -> None:
        os.write(connection._handle, bytes(message)[: len(message) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    with contextlib.suppress(FileExistsError):
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        Connection._send = half  # type: ignore[attr-defined]
    return number


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of another kind")
def test_a_pool_survives_half_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "_LOOK_S", 0.2)
    monkeypatch.setattr(executors, "_NOTICE_S", 0.5)
    task, others = functools.partial(dies_writing, str(tmp_path / "died")), set(multiprocessing.active_children())
    found = list(executors.in_pool(task, [(k, k, k + 1) for k in range(6)], 2))
    assert sorted(found) == [(k, k) for k in range(6)]
    assert no_children_but(others)


def part(folder: Path) -> Path:
    return folder / "part-00000004.json"


def rewrite(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda f: part(f).write_text(part(f).read_text()[:200]),
            "part-00000004.json' cannot be used: it is cut short",
        ),
        (lambda f: part(f).write_bytes(b""), "cut short"),
        (lambda f: rewrite(part(f), lambda d: d["state"].update(points=1)), "contents were changed"),
        (lambda f: rewrite(part(f), lambda d: d.update(digest="0")), "belongs to another space"),
        (lambda f: part(f).write_text((f / "part-00000003.json").read_text()), "contents were changed"),
        (lambda f: (f / "part-x.json").write_text("{}"), "not that of a part"),
        (lambda f: part(f).rename(f / "part-00000099.json"), "not that of a part"),
        (lambda f: (f / "sweep.json").write_text("[]"), "corrupt or of another format"),
        (lambda f: rewrite(f / "sweep.json", lambda d: d.update(digest="0")), "belongs to another space"),
        (lambda f: rewrite(f / "sweep.json", lambda d: d.update(part_size=7)), "parts of 7 points"),
        (lambda f: (f / "sweep.json").unlink(), "no checkpoint of a sweep and is not empty"),
    ],
)
def test_a_corrupt_checkpoint_is_refused(tmp_path, damage, sentence):
    sweep(chips(), checkpoint=tmp_path, points_per_part=PART)
    damage(tmp_path)
    with pytest.raises(InputError, match=sentence):
        sweep(chips(), checkpoint=tmp_path, points_per_part=PART)


def test_a_checkpoint_of_another_space_is_refused(tmp_path):
    sweep(chips(), checkpoint=tmp_path, points_per_part=PART)
    for other in (chips(top=3), chips(constraints=[])):
        with pytest.raises(InputError, match="belongs to another space"):
            sweep(other, checkpoint=tmp_path, points_per_part=PART)


def test_jobs_of_an_array_merge(whole, tmp_path):
    folders = [tmp_path / f"job{i}" for i in range(1, 4)]
    for i, folder in enumerate(folders, 1):
        sweep(chips(), checkpoint=folder, portion=(i, 3), points_per_part=PART)
    assert same(merge(folders)) == whole
    assert same(merge([folders[1], folders[0], folders[1], folders[2]])) == whole
    assert not merge(folders[:2]).complete
    twin = Checkpoint(tmp_path / "twin", chips(), PART)
    twin.save(1, shard(chips(), PART + 1, 2 * PART).document())
    with pytest.raises(
        InputError, match=r"job1/part-00000001.json' and '.*twin/part-00000001.json' are of the same points and differ"
    ):
        merge([*folders, twin.folder])
    sweep(chips(top=2), checkpoint=tmp_path / "other", points_per_part=PART)
    with pytest.raises(InputError, match="another space"):
        merge([folders[0], tmp_path / "other"])
    with pytest.raises(InputError, match="holds no sweep"):
        merge([tmp_path])


@pytest.mark.parametrize("bad", [(0, 3), (4, 3)])
def test_bad_portions(bad):
    with pytest.raises(InputError, match="i from 1 to n"):
        sweep(chips(), portion=bad)


# --- the command --------------------------------------------------------------------------------------------------

SPACE = """
kind = "node"
minimize = "latency_s"
pareto = ["latency_s", "price_usd"]
[fixed]
model = "Llama3_8B"
peak = "500 TFLOP/s"
[axes]
bandwidth = {range = [1, 4], step = 0.5, unit = "TB/s"}
capacity = ["8 GB", "24 GB"]
price = ["1000 USD", "2000 USD"]
"""


@pytest.fixture
def command(monkeypatch, capsys):
    """The command in this process: its exit code, and what it printed."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["mlsysim", "sweep", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code, told.out, told.err)

    return run


def test_the_command_gives_json(tmp_path, command):
    file = tmp_path / "space.toml"
    file.write_text(SPACE)
    answer = command(
        str(file), "--json", "--top", "2", "--out", str(tmp_path / "out"), "--resume", str(tmp_path / "run")
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert (found["points"], found["feasible"], found["infeasible_by_wall"]) == (28, 14, {"2": 14})
    assert len(found["best"]) == 2 and found["best"][0]["inputs"]["bandwidth"] == 4e12
    assert len(found["pareto"]) == 1
    assert {"seconds", "cpu_seconds", "points_per_second"} <= found.keys()
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == found
    merged = command("merge", str(tmp_path / "run"), "--json")
    assert json.loads(merged.stdout)["best"] == found["best"]
    table = command(str(file))
    assert (
        table.returncode == 0
        and "28 of 28 designs" in table.stdout
        and "rejected by wall 2 (Memory): 14" in table.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.toml",), "cannot be read"),
        (("SPACE", "--pareto", "latency_s"), "2 to 6"),
        (("SPACE", "--pareto", "latncy_s,mfu"), "did you mean 'latency_s'"),
        (("SPACE", "--shard", "1-2"), "must be i/n"),
        (("SPACE", "--shard", "1/2"), "needs a folder"),
        (("SPACE", "--workers", "-1"), "whole number between"),
        (("merge",), "at least one folder"),
    ],
)
def test_bad_arguments_are_one_sentence(tmp_path, command, arguments, sentence):
    file = tmp_path / "space.toml"
    file.write_text(SPACE)
    answer = command(*(str(file) if word == "SPACE" else word for word in arguments))
    assert answer.returncode == 1 and answer.stdout == ""
    assert sentence in answer.stderr and len(answer.stderr.strip().splitlines()) == 1


def test_nothing_fits_is_exit_code_2(tmp_path, command):
    file = tmp_path / "space.toml"
    file.write_text(SPACE.replace('["8 GB", "24 GB"]', '["8 GB"]'))
    assert command(str(file)).returncode == 2
