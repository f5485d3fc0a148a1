"""Ranks that read together, beside the rule itself, step by step."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.closed_loop import closed_loop
from mlsysim.cases.ranks_together import gathered
from mlsysim.cases.traffic import Habits, Traffic
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine

MOST = 60


def simulated(ranks: int, requests: int, steps: int, room: int) -> float:
    """Mean steps that a prompt waits, of so many requests a rank whose answers take about so many steps."""
    chance, ends = random.Random(1), [Counter[int]() for _ in range(ranks)]
    waiting: list[deque[int]] = [deque() for _ in range(ranks)]
    for own in ends:
        own.update(chance.randint(1, steps) for _ in range(requests))
    since, waited = 0, []
    for now in range(1, 120_000):
        for own, line in zip(ends, waiting, strict=True):
            line.extend([now] * own.pop(now, 0))
        since += 1
        if all(waiting) or since >= MOST:
            since = 0
            for own, line in zip(ends, waiting, strict=True):
                for _ in range(min(room, len(line))):
                    waited.append(now - line.popleft())
                    own[now + round(steps * chance.uniform(0.89, 1.11))] += 1
    half = waited[len(waited) // 2 :]
    return sum(half) / len(half)


@pytest.mark.parametrize(
    ("ranks", "requests", "steps", "room"),
    [(8, 32, 7384, 8), (8, 32, 923, 8), (8, 32, 512, 8), (4, 64, 914, 8), (8, 32, 7384, 1), (8, 32, 4000, 1)],
)
def test_the_wait_beside_the_rule(ranks: int, requests: int, steps: int, room: int) -> None:
    n = ranks * requests
    look, later = gathered(n / steps, n, room * ranks, ranks, MOST)
    assert look / 2 + later == pytest.approx(simulated(ranks, requests, steps, room), rel=0.15)


@given(st.floats(1e-6, 50), st.floats(1, 4096), st.floats(0.5, 512), st.integers(2, 64))
def test_no_look_is_later_than_the_last_and_room_shortens_waits(
    per_step: float, n: float, full: float, ranks: int
) -> None:
    look, later = gathered(per_step, n, full, ranks, MOST)
    assert 0 < look <= MOST and 0 <= later < float("inf")
    assert gathered(per_step, n, 1e6, ranks, MOST)[1] <= later + 1e-9


def test_prompts_that_fill_a_step_of_a_rank_wait_for_further_ones() -> None:
    """With room for one prompt a rank the first token takes as long again as with room for eight."""
    step = engine_step(
        Models.get("DeepSeek_V3"),
        Hardware.get("B200"),
        engine("TensorRT_LLM"),
        precision="nvfp4",
        attention_dp=8,
        moe_ep=8,
    )
    one, many = (
        closed_loop(step, Traffic(1024, 1024, concurrency=128, chunk=room, habits=Habits())).ttft_steady
        for room in (1216, 8192)
    )
    assert one > 1.5 * many
