"""The layout search: complete, memory-true, consistent with wall 14, and where the published layout stands."""

from __future__ import annotations

import pytest

from mlsysim import DistributedModel, ParallelismOptimizer
from mlsysim.errors import InputError


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
    with pytest.raises(InputError, match=r"None of \d+ layouts"):
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
