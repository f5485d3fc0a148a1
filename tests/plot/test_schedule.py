"""The simulated schedules against the closed forms of the kernels, which they do not use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.layout import Layout
from mlsysim.cases.schedule import in_flight
from mlsysim.physics.pipeline import makespan
from mlsysim.plot.schedule import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, simulate

EXAMPLES = settings(max_examples=40)


@st.composite
def filled(draw):
    """Schedules with as many micro-batches as can be drawn."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zero_bubble", "dualpipe"]))
    stages, virtual = draw(st.integers(1, 16)), 1
    micro_batches = draw(st.integers(1, 48))
    if name == "interleaved":
        virtual, micro_batches = draw(st.integers(1, 4)), stages * draw(st.integers(1, 4))
    elif name == "dualpipe":
        stages += stages % 2
        micro_batches = 2 * (stages + micro_batches)
    return name, stages, micro_batches, virtual


@EXAMPLES
@given(filled())
def test_the_bubble_that_is_drawn_is_the_kernels(schedule):
    name, stages, micro_batches, virtual = schedule
    line = simulate(*schedule)
    length = makespan(name, stages, micro_batches, 1.0, v=virtual)
    assert line.length == pytest.approx(length)
    assert line.bubble_fraction == pytest.approx(1 - micro_batches / length, abs=1e-12)


@EXAMPLES
@given(filled())
def test_activations_that_are_held_are_those_of_the_memory_model(schedule):
    name, stages, micro_batches, virtual = schedule
    line = simulate(*schedule)
    most = max(line.peak_held(device) for device in range(stages))
    assert most == pytest.approx(in_flight(Layout(1, 1, stages, 1, 1, micro_batches, micro_batches, virtual, name)))
    for device in range(stages):
        assert line.held(device)[-1][1] == 0


@EXAMPLES
@given(filled())
def test_work_is_done_once_in_order_and_never_twice_at_a_time(schedule):
    name, stages, micro_batches, virtual = schedule
    line = simulate(*schedule)
    for device in range(stages):
        slots = line.of(device)
        assert all(one.end <= other.start + 1e-9 for one, other in pairwise(slots))
        assert sum(slot.end - slot.start for slot in slots) == pytest.approx(micro_batches)
        chunks = 1 if name == "dualpipe" else virtual
        for kinds in ((FORWARD,), (BACKWARD, INPUT_GRADIENT)):
            done = [(slot.micro_batch, slot.chunk) for slot in slots if slot.kind in kinds]
            assert len(done) == len(set(done)) == micro_batches * chunks
        ends = {(slot.kind, slot.micro_batch, slot.chunk): slot.end for slot in slots}
        for slot in slots:
            if slot.kind == WEIGHT_GRADIENT:
                assert slot.start >= ends[INPUT_GRADIENT, slot.micro_batch, slot.chunk] - 1e-9
            elif slot.kind != FORWARD:
                assert slot.start >= ends[FORWARD, slot.micro_batch, slot.chunk] - 1e-9


@EXAMPLES
@given(filled())
def test_a_micro_batch_reaches_a_stage_after_the_one_before_it(schedule):
    name, _, micro_batches, _ = schedule
    line = simulate(*schedule)
    forward = {(s.micro_batch, s.device, s.chunk): s for s in line.slots if s.kind == FORWARD}
    for (micro_batch, device, chunk), slot in forward.items():
        if name == "dualpipe":
            before = forward.get((micro_batch, device + (1 if micro_batch >= micro_batches // 2 else -1), chunk))
        else:
            before = forward.get((micro_batch, device - 1, chunk))
        if before is not None:
            assert slot.start >= before.end - 1e-9


def test_known_lengths():
    """Four stages, eight micro-batches: 8 + 3; 8 + 3/2; 8 + 1; DualPipe 8 + 2/3."""
    assert simulate("gpipe", 4, 8).length == simulate("1f1b", 4, 8).length == 11
    assert simulate("interleaved", 4, 8, 2).length == pytest.approx(9.5)
    assert simulate("zero_bubble", 4, 8).length == pytest.approx(9)
    assert simulate("dualpipe", 4, 8).length == pytest.approx(8 + 2 / 3)


def test_a_pipeline_that_cannot_be_filled_waits_longer():
    """Zero bubble with m < p: the first stage waits 2p - 1 - m thirds for its first gradient."""
    assert simulate("zero_bubble", 8, 2).length == pytest.approx(2 + (2 * 8 - 1 - 2) / 3)
