"""A pipeline of a step: busy, waiting and sending add up to its makespan, and nobody waits for less than nothing."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mlsysim.cases.algebra import PLAIN, ledger_of
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.schedule import in_flight, pipelined, weight_copies
from mlsysim.models.registry import Models
from mlsysim.physics.pipeline import CHUNKED, SCHEDULES, Shares, makespan
from mlsysim.physics.stage_split import stage_layers

LLAMA = Models.get("Llama3_8B")


def layout(pp: int, m: int, v: int = 1, schedule: str | None = None) -> Layout:
    return Layout(1, 1, pp, 1, 1, m, m, v, schedule)


@given(
    schedule=st.sampled_from([None, *SCHEDULES]),
    pp=st.integers(1, 16),
    m=st.integers(1, 64),
    v=st.integers(1, 4),
    last=st.floats(0.2, 2.0),
    forward=st.floats(0.2, 0.4),
    weights=st.floats(0.1, 0.4),
    send=st.floats(0, 0.1),
    hidden=st.floats(0, 1),
)
@example("dualpipe", 2, 2, 1, 0.5, 0.25, 0.25, 0.0, 0.0)
def test_parts_are_the_makespan(schedule, pp, m, v, last, forward, weights, send, hidden):
    assume(schedule != "dualpipe" or pp % 2 == 0 or pp == 1)
    v = v if schedule in (None, *CHUNKED) else 1
    last = max(last, 1.0) if pp == 1 else last
    where = layout(pp, m, v, schedule)
    job = Job(LLAMA, "bf16", 4096, overlap=Overlap(pipeline=hidden))
    shares, mean = Shares(forward, 1 - forward - weights, weights), (pp - 1 + last) / pp

    def found(a, seconds):
        times = {"mean": seconds(mean), "stage": seconds(1.0), "last": seconds(last)}
        return pipelined(a, job, where, **times, shares=shares, send=send, message=1.0, over="fabric")

    plain = found(PLAIN, lambda number: number)
    assert plain.paced >= plain.busy - 1e-12 and plain.sends >= -1e-12 and plain.busy >= m * mean * (1 - 1e-12)
    delay = (1 - hidden) * send if pp > 1 else 0.0
    whole = makespan(schedule or "interleaved", pp, m, 1.0, shares, delay, None, last, v)
    assert plain.paced + plain.sends == pytest.approx(whole, rel=1e-12)

    def taped(a):
        pipeline = found(a, lambda number: number * a.tag("work", 1, "peak", "t", 1.0))
        return pipeline.paced + pipeline.sends

    assert ledger_of(taped).seconds == pytest.approx(whole, rel=1e-12)


@given(
    schedule=st.sampled_from([None, *SCHEDULES]),
    pp=st.sampled_from([2, 4, 6, 16]),
    m=st.integers(1, 64),
    v=st.integers(1, 4),
    first=st.floats(1.0, 2.0),
    last=st.floats(0.2, 2.0),
)
def test_a_longer_first_stage_is_waited_for(schedule, pp, m, v, first, last):
    """As long as the makespan with it, never shorter than without, at least once longer, at most for every micro-batch."""
    where = layout(pp, m, v if schedule in (None, *CHUNKED) else 1, schedule)
    job = Job(LLAMA, "bf16", 4096)

    def found(begun):
        mean = (pp - 2 + begun + last) / pp
        times = {"mean": mean, "stage": 1.0, "first": begun, "last": last, "send": 0.0, "message": 0.0}
        return pipelined(PLAIN, job, where, **times, shares=Shares(), over="fabric")

    even, longer = found(1.0), found(first)
    name, v = schedule or "interleaved", where.virtual_stages
    assert longer.paced == pytest.approx(makespan(name, pp, m, 1.0, Shares(), None, first, last, v), rel=1e-12)
    assert longer.busy >= even.busy - 1e-12 and longer.paced >= longer.busy - 1e-9
    assert even.paced - 1e-9 <= longer.paced <= even.paced + m * (first - 1.0) + 1e-9


@given(layers=st.integers(1, 200), pp=st.integers(2, 32), v=st.integers(1, 12))
def test_layers_are_neither_lost_nor_made(layers: int, pp: int, v: int) -> None:
    """All between the ends have ``most`` layers, or, where chunks differ, ``most`` or one less."""
    first, most, last = stage_layers(layers, pp, v)
    assert 0 <= min(first, last) <= max(first, last) <= most
    assert first + last + (pp - 2) * (most - 1) <= layers <= pp * most
    assert first + (pp - 2) * most + last == layers or (most == -(-layers // pp) and last == layers // pp)


def test_stages_and_copies():
    """126 layers over 16 stages: eight each, seven at the ends (Llama 3); DualPipe has both directions on each device."""
    assert stage_layers(126, 16) == (7, 8, 7) and stage_layers(126, 16, 8) == (7, 8, 7)
    assert stage_layers(80, 1, 3) == (80, 80, 80)
    assert stage_layers(61, 2, 8) == (32, 32, 29), "eight chunks of four, as Megatron-Bridge splits DeepSeek-V3"
    assert stage_layers(80, 8, 4) == (10, 10, 10), "chunks of two and of three"
    assert stage_layers(88, 8, 4) == (11, 11, 11), "and not 12 and, in the last, 4"
    assert stage_layers(30, 2, 4) == (15, 15, 15), "two ends, nothing between"
    assert weight_copies(layout(8, 16, schedule="dualpipe")) == 2 and weight_copies(layout(8, 16)) == 1
    assert in_flight(layout(8, 4), 32) == 4 and in_flight(layout(8, 4), 32, accumulation=4) == 8
    assert in_flight(layout(16, 64), 126) == 15, (
        "the second stage has one layer more and one micro-batch less than the first"
    )
