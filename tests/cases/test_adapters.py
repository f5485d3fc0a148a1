"""Requests that choose among low-rank adapters: limits, memory, and figures by hand, at both fidelities."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.request import ANSWER, FIRST, of_phase
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.operators import distinct_kinds
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine
from mlsysim.walls.node.serving import ServingModel, ServingResult

MODEL, CHIP = Models.get("Llama3_8B"), Hardware.get("H100")
LAYERS, HIDDEN = 32, 4096
EACH = 4 * LAYERS * 2 * HIDDEN * 2.0
"""Bytes of an adapter of rank 1: four matrices of a layer, r (in + out) numbers of two bytes each."""


def solve(efficiency: Any, **more: Any) -> ServingResult:
    load = {"batch_size": 16} | more
    return ServingModel().solve(MODEL, CHIP, seq_len=1024, output_len=64, efficiency=efficiency, **load)


def step(**more: Any) -> EngineStep:
    return engine_step(MODEL, CHIP, engine("vLLM"), **more)


def test_distinct_of_few_and_of_many():
    assert distinct_kinds(10, 0) == 0 and distinct_kinds(10, 1) == pytest.approx(1) and distinct_kinds(1, 7) == 1
    # Two draws of two kinds are the same half of the time.
    assert distinct_kinds(2, 2) == pytest.approx(1.5)
    assert distinct_kinds(10, 1e4) == pytest.approx(10) and distinct_kinds(0, 5) == 0


@given(st.integers(1, 500), st.integers(1, 500))
def test_distinct_is_bounded_and_grows(kinds: int, draws: int) -> None:
    found = distinct_kinds(kinds, draws)
    assert 1 - 1e-9 <= found <= min(kinds, draws) * (1 + 1e-12)
    assert found <= distinct_kinds(kinds, draws + 1) + 1e-9 and found <= distinct_kinds(kinds + 1, draws) + 1e-9


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"], ids=str)
def test_none_is_the_same_as_without(efficiency: Any) -> None:
    plain, none = solve(efficiency), solve(efficiency, adapters=0)
    assert plain.ledger == none.ledger and plain.memory_breakdown == none.memory_breakdown
    assert "adapters" not in plain.memory_breakdown


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"], ids=str)
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (4, 1), (1, 2)])
def test_memory_is_each_adapter_split_as_its_matrices_are(efficiency: Any, tp: int, pp: int) -> None:
    for adapters, rank in ((1, 8), (20, 8), (20, 64)):
        found = solve(efficiency, adapters=adapters, adapter_rank=rank, tp_size=tp, pp_size=pp)
        assert found.memory_breakdown["adapters"].to("byte").magnitude == pytest.approx(
            adapters * rank * EACH / tp / pp
        )
    places = [solve(efficiency, adapters=count, adapter_rank=64).max_batch_size for count in (0, 50, 100, 400)]
    assert None not in places and places == sorted(places, reverse=True) and len(set(places)) == 4
    assert places[-1] < places[0] / 2


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"], ids=str)
def test_fewer_are_offered_where_they_do_not_fit(efficiency: Any) -> None:
    found = solve(efficiency, adapters=2000, adapter_rank=64)
    assert not found.feasible
    words, _, number = str(found.remedies[0]).rstrip(")").partition("adapters=")
    assert words == "hold fewer adapters ("
    assert solve(efficiency, adapters=int(number), adapter_rank=64).feasible
    assert not solve(efficiency, adapters=int(number) + 1, adapter_rank=64).feasible


def test_a_first_order_step_by_hand():
    """Sixteen requests of eight adapters have 8 (1 - (7/8)^16) = 7.056 of them at a time."""
    parts = solve(0.5, adapters=8, adapter_rank=16).ledger
    assert parts is not None
    answer = {part.resource: part for part in of_phase(parts, ANSWER).parts if part.name.endswith("adapters")}
    # 63 steps are bound by memory, at 3.35 TB/s.
    assert answer["bandwidth"].exposed == pytest.approx(63 * 7.0555 * 16 * EACH / 3.35e12, rel=1e-3)
    assert answer["peak"].exposed == 0 and answer["peak"].hidden > 0
    first = [part for part in of_phase(parts, FIRST).parts if part.name.endswith("adapters") and part.flop]
    assert sum(part.flop for part in first) == pytest.approx(16 * 1024 * 16 * EACH)


def test_a_rank_of_nothing_leaves_the_starts():
    """Two kernels for each adapted matrix, and tokens that pass through them."""
    plain, none = (step(adapters=count).time(8.0, 1000.0).device for count in (0, 8))
    found = step()
    starts = 2 * 4 * LAYERS * found.full.start
    passing = 2 * 4 * LAYERS * 8 * HIDDEN * 2 / (found.full.memory_share * found.bandwidth)
    assert none - plain == pytest.approx(found.factors[1] * (starts + passing))
    launched = step(adapters=8).blocks.launches - found.blocks.launches
    assert launched == 2 * 4 * LAYERS


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.sampled_from([1, 8, 64, 256]), st.integers(1, 256), st.sampled_from([1, 2, 8]))
def test_more_is_never_faster(adapters: int, rank: int, sequences: int, tp: int) -> None:
    def seconds(**more: Any) -> float:
        layout = {"tp": tp, "adapters": adapters, "adapter_rank": rank} | more
        found = step(**layout).time(float(sequences), 1000.0, 1.0, 512.0)
        assert found.total >= found.device
        return float(found.device)

    least = seconds()
    assert seconds(adapters=0, adapter_rank=0) < least
    assert least <= seconds(adapters=adapters + 1) * (1 + 1e-12) and least <= seconds(adapter_rank=2 * rank)
    # All of them are read at most.
    assert least <= seconds(adapters=0, adapter_rank=0) + (
        2 * 4 * LAYERS * step().full.start
        + 2 ** 0.25 * (
            (adapters * rank * EACH / tp + 8 * LAYERS * (sequences + 512) * (HIDDEN / tp + rank) * 2)
            / (step().full.memory_share * step().bandwidth)
            + 2 * (sequences + 512) * rank * EACH / 2 / tp / step().full.rate
        )
    )  # fmt: skip
