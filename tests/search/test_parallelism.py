"""The layout search: complete, memory-true, consistent with wall 14, and where the published layout stands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlsysim import DistributedModel, ParallelismOptimizer
from mlsysim.cases.algebra import Plain
from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.plans.training_layout import best_layouts
from mlsysim.search.layout_times import _singly


def solve(**call: object):
    return ParallelismOptimizer().solve(**{"model": "Llama3_8B", "fleet": "Research_256", "batch_size": 256, **call})


def test_the_best_is_what_wall_14_says_it_is() -> None:
    best = solve().best_config
    again = DistributedModel().solve(
        "Llama3_8B",
        "Research_256",
        256,
        tp_size=best["tp"],
        pp_size=best["pp"],
        v_stages=best["v_stages"],
        microbatch_count=best["microbatch_count"],
        zero_stage=best["zero_stage"],
        activation_recomputation=best["recompute"],
        overlap_comm=True,
    )
    assert again.feasible
    assert again.mfu == pytest.approx(best["mfu"], rel=1e-12)
    assert again.memory_per_accelerator.to("GB").magnitude == pytest.approx(best["memory_gb"])


def test_nothing_that_fits_is_better() -> None:
    answer = solve()
    assert [c["mfu"] for c in answer.top_candidates] == sorted((c["mfu"] for c in answer.top_candidates), reverse=True)
    assert answer.best_mfu == answer.objective_value == answer.top_candidates[0]["mfu"]
    assert answer.runner_up["mfu"] <= answer.best_mfu
    assert answer.total_searched > 100


def test_memory_rejects_by_name() -> None:
    answer = solve(model="Llama3_70B", max_zero_stage=0)
    assert 0 < answer.rejected["Wall 2 (Memory)"] < answer.total_searched


def test_llama_3_405b_on_16384_gpus() -> None:
    """The published TP8 PP16 DP128 is within a few per cent of the best."""
    answer = ParallelismOptimizer().solve(
        "Llama3_405B",
        "Meta_16K",
        2048,
        precision="bf16",
        seq_len=8192,
        max_zero_stage=2,
        recompute=["none", "selective"],
        compare_to={"tp": 8, "pp": 16},
    )
    assert answer.compared["config"]["dp"] == 128
    assert answer.compared["behind_best_fraction"] < 0.05
    assert answer.compared["rank_of_split"] <= 3


def test_without_room_there_is_no_answer() -> None:
    with pytest.raises(InputError, match=r"none of \d+ layouts"):
        solve(model="GPT3_175B", fleet="Research_256", max_pp=1, max_zero_stage=0, recompute="none")
    with pytest.raises(InputError, match="recompute"):
        solve(recompute=["everything"])


def test_a_layout_that_does_not_exist_has_no_rank() -> None:
    compared = solve(compare_to={"tp": 3}).compared
    assert compared["rank"] is None and "no layout" in compared["reason"]


def test_experts_and_context() -> None:
    answer = solve(model="Mixtral_8x7B", max_cp=4)
    assert {c["ep"] for c in answer.top_candidates} <= {1, 2, 4, 8}
    assert {c["cp"] for c in answer.top_candidates} <= {1, 2, 4}


SAME_EITHER_WAY = [
    {},
    {"model": "Mixtral_8x7B", "max_cp": 2, "max_v_stages": 2, "recompute": ["none", "full"]},
    {"schedule": "all", "optimizer_offload": [0, 0.5, 1], "max_zero_stage": 1, "recompute": "none"},
    {"schedule": "interleaved", "overlap_comm": False, "max_zero_stage": 1},
    {"efficiency": "calibrated", "max_zero_stage": 1, "recompute": "none"},
    {"efficiency": "calibrated", "max_zero_stage": 1},  # a stack recomputes by habit, a layout what it says
    {"efficiency": "calibrated", "fleet": "64xTPU_v5p", "precision": "bf16"},
    {"efficiency": "calibrated", "max_zero_stage": 1, "recompute": "none", "power_cap": "400 W"},
]


@pytest.mark.parametrize("call", SAME_EITHER_WAY, ids=lambda call: "-".join(call) or "plain")
def test_arrays_and_single_layouts_agree(call: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    together = solve(**call)
    monkeypatch.setattr("mlsysim.search.layout_times.arrays_available", lambda: False)
    singly = solve(**call)
    assert (together.total_searched, together.rejected, together.ties) == (
        singly.total_searched,
        singly.rejected,
        singly.ties,
    )
    for left, right in zip(together.top_candidates, singly.top_candidates, strict=True):
        numbers = ("mfu", "step_time_s", "memory_gb")
        assert {name: left[name] for name in left if name not in numbers} == {
            name: right[name] for name in right if name not in numbers
        }
        assert [left[name] for name in numbers] == pytest.approx([right[name] for name in numbers], rel=1e-12)
    assert together.sensitivity.keys() == singly.sensitivity.keys()
    for name, entry in together.sensitivity.items():
        assert entry["at"] == singly.sensitivity[name]["at"]


REMEMBERED = [
    {"on": "16xH100", "model": "Mixtral_8x7B"},
    {"on": "16xH100", "model": "Llama3_8B", "zero_shard": 4, "power_cap": "500 W"},
    {"on": "16xA100", "model": "T5_11B", "lora_rank": 16},
    {"on": "256xH800", "model": "DeepSeek_V3", "batch_size": 1024, "schedule": "dualpipe", "zero": 1},
    {"on": "8xA100", "model": "GPT2", "efficiency": 0.5},
]


@pytest.mark.parametrize("keys", REMEMBERED, ids=lambda keys: keys["model"])
def test_what_layouts_share_is_worked_out_once(keys: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def both_ways(*asked):
        found.append(_singly(*asked))
        with monkeypatch.context() as patch:
            patch.setattr("mlsysim.search.layout_times.Remembering", Plain)
            found.append(_singly(*asked))
        return found[0]

    monkeypatch.setattr("mlsysim.search.layouts.priced", both_ways)
    best_layouts(Plan.model_validate({"task": "training", "batch_size": 64, "seq_len": 2048, "mode": "auto", **keys}))
    assert found[0] == found[1]
    assert any(timed is not None for timed in found[0][0])


def test_it_runs_without_numpy() -> None:
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "from mlsysim.search.parallelism import ParallelismOptimizer\n"
        "best = ParallelismOptimizer().solve('Llama3_8B', 'Research_256', 256, max_zero_stage=1).best_config\n"
        "print(best['tp'], best['pp'], best['dp'])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    best = solve(max_zero_stage=1).best_config
    assert run.stdout.split() == [str(best[name]) for name in ("tp", "pp", "dp")]


def test_every_axis_of_405b_on_16384_gpus() -> None:
    answer = ParallelismOptimizer().solve(
        "Llama3_405B",
        "Meta_16K",
        2048,
        precision="bf16",
        seq_len=8192,
        max_cp=16,
        max_v_stages=16,
        schedule="all",
        optimizer_offload=[0, 0.5, 1],
    )
    assert answer.total_searched > 50_000
    assert {"tp", "pp", "cp", "v_stages", "microbatch_count", "zero_stage", "recompute", "schedule"} <= set(
        answer.sensitivity
    )
    best = answer.best_config
    assert best["tp"] * best["pp"] * best["dp"] * best["cp"] == 16_384
    # More freedom is never worse than the layouts of the same job without it.
    narrow = ParallelismOptimizer().solve("Llama3_405B", "Meta_16K", 2048, precision="bf16", seq_len=8192)
    assert answer.best_mfu >= narrow.best_mfu


@pytest.mark.parametrize("name", ["tp", "pp", "zero_stage", "recompute", "v_stages"])
def test_a_step_is_worth_what_the_best_layout_with_that_setting_has(name: str) -> None:
    answer = solve()
    entry = answer.sensitivity[name]
    assert entry["at"] == answer.best_config[name]
    for direction in {"up", "down"} & entry.keys():
        other = solve(compare_to={name: entry[direction]["to"]}).compared
        assert entry[direction]["worth"] == pytest.approx(-other["behind_best_fraction"], abs=1e-12)


def test_overlap_is_worth_what_it_hides() -> None:
    answer = solve()
    best = answer.best_config
    plain = DistributedModel().solve(
        "Llama3_8B",
        "Research_256",
        256,
        tp_size=best["tp"],
        pp_size=best["pp"],
        v_stages=best["v_stages"],
        microbatch_count=best["microbatch_count"],
        zero_stage=best["zero_stage"],
        activation_recomputation=best["recompute"],
        schedule=best["schedule"],
    )
    assert answer.sensitivity["overlap_comm"]["down"]["worth"] == pytest.approx(plain.mfu / best["mfu"] - 1, abs=1e-12)


def test_schedules_get_the_micro_batches_they_need() -> None:
    answer = solve(schedule="dualpipe", max_zero_stage=1)
    for config in answer.top_candidates:
        if config["pp"] > 1:
            assert config["pp"] % 2 == 0 and config["microbatch_count"] >= 2 * config["pp"]
        else:
            assert config["schedule"] == "1f1b"


@pytest.mark.parametrize("fractions", [[], [2], "half", [True], [float("nan")]])
def test_bad_fractions_are_one_sentence(fractions: object) -> None:
    with pytest.raises(InputError, match="fractions between 0 and 1"):
        solve(optimizer_offload=fractions)


def test_what_software_does_itself_is_no_default_of_the_search():
    """A calibrated search told of the first-order overlap and headroom, which its layouts do not have, and of wall 14 where wall 1 binds."""
    plan = Plan.model_validate({"task": "training", "model": "Llama3_8B", "on": "16xH100"})
    found, answer = best_layouts(plan), evaluate(plan, change=False)
    assert found.best_mfu == answer.value("mfu")
    told = {name: found.assumptions[name] for name in ("overlap_efficiency", "memory_headroom", "stack")}
    assert all("bridge" in text for text in told.values())
    assert not any("no effect" in text for text in found.assumptions.values())
    same = ("seq_len", "batch_size", "precision", "stack")
    assert {name: found.assumptions[name] for name in same} == {name: answer.assumptions[name] for name in same}
    assert found.binding.wall == answer.binding.wall and answer.binding.sentence.split(".")[0] in found.binding.sentence
