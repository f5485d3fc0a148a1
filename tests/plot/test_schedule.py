"""The simulated schedules against the closed forms of the kernels, which they do not use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mlsysim
from mlsysim.cases.layout import Layout
from mlsysim.cases.schedule import in_flight
from mlsysim.physics.pipeline import CHUNKED, FOLDED, SCHEDULES, Shares, makespan
from mlsysim.plot.orders import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT
from mlsysim.plot.pipelines import schedule_drawn
from mlsysim.plot.schedule import Passes, simulate
from tests.physics.test_pipeline_events import simulated as events

EXAMPLES = settings(max_examples=40)


@st.composite
def filled(draw):
    """Schedules with as many micro-batches as can be drawn."""
    name = draw(st.sampled_from(SCHEDULES))
    stages, virtual, group = draw(st.integers(1, 16)), 1, None
    micro_batches = draw(st.integers(1, 48))
    if name in CHUNKED:
        virtual, micro_batches = draw(st.integers(1, 4)), draw(st.integers(1, 4 * stages))
    if name == "interleaved" and draw(st.booleans()):
        group = stages + draw(st.integers(0, 5))
        micro_batches = draw(st.integers(1, 3)) * group
    elif name.startswith("dualpipe"):
        stages += stages % 2
        micro_batches = 2 * (stages + micro_batches)
    return name, stages, micro_batches, virtual, group


@EXAMPLES
@given(filled())
def test_the_bubble_that_is_drawn_is_the_kernels(schedule):
    name, stages, micro_batches, virtual, group = schedule
    line = simulate(*schedule)
    length = makespan(name, stages, micro_batches, 1.0, v=virtual, group=group)
    assert line.length == pytest.approx(length)
    assert line.bubble_fraction == pytest.approx(1 - micro_batches / length, abs=1e-12)


@EXAMPLES
@given(filled(), st.sampled_from([3, 4, 6, 8]), st.sampled_from([2, 3, 4, 6]))
def test_so_it_is_when_passes_take_other_times(schedule, inputs, weights):
    name, stages, micro_batches, virtual, group = schedule
    assume(name != "zb_v" or not stages < micro_batches < 2 * stages - 1)
    whole = 4 + inputs + weights
    shares = Shares(4 / whole, inputs / whole, weights / whole)
    length = simulate(*schedule, Passes(*shares)).length
    assert length == pytest.approx(makespan(name, stages, micro_batches, 1.0, shares, v=virtual, group=group))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("last", [0.9, 1.0, 1.25])
def test_a_longer_or_shorter_last_stage_is_drawn_so(name, last):
    virtual = 4 if name == "interleaved" else 1
    line = simulate(name, 4, 16, virtual, passes=Passes(last=last))
    assert line.length == pytest.approx(makespan(name, 4, 16, 1.0, last=last, v=virtual), rel=0.02)
    assert line.bubble == pytest.approx(line.length - 16 * max(last, 1.0))
    assert sum(slot.end - slot.start for slot in line.of(3)) == pytest.approx(16 * last)


@pytest.mark.parametrize("virtual", [1, 2, 4, 8])
def test_the_picture_of_a_plan_waits_as_long_as_its_ledger(virtual):
    """126 layers over 16 devices: seven on the first and the last, eight on the others, in as many chunks as is said."""
    layout = {"tp": 8, "pp": 16, "virtual_stages": virtual, "micro_batches": 32, "batch_size": 256, "seq_len": 8192}
    answer = mlsysim.train("Llama3_405B", on="1024xH100", **layout, recompute="full")
    drawn = schedule_drawn(answer)
    waits = simulate(**{name: value for name, value in drawn.items() if name != "seconds"}).bubble * drawn["seconds"]
    bubble = sum(part.value for part in answer.time_parts if part.label == "pipeline bubble")
    assert waits == pytest.approx(bubble, rel=0.05 if virtual > 1 else 1e-6)


def test_chunks_of_several_sizes_are_drawn_so():
    sizes = (0.75, 0.5, 0.5, 0.25, 0.25, 0.25)
    line = simulate("interleaved", 3, 6, 2, passes=Passes(last=0.75, sizes=sizes))
    assert line.length == pytest.approx(events("interleaved", 3, 6, 2, (1 / 3,) * 3, 0.0, sizes))
    assert [sum(slot.end - slot.start for slot in line.of(device)) for device in range(3)] == pytest.approx(
        [6, 4.5, 4.5]
    )


@EXAMPLES
@given(filled())
def test_activations_that_are_held_are_those_of_the_memory_model(schedule):
    name, stages, micro_batches, virtual, group = schedule
    line = simulate(*schedule)
    most = max(line.peak_held(device) for device in range(stages))
    layout = Layout(1, 1, stages, 1, 1, micro_batches, micro_batches, virtual, name, group)
    assert most == pytest.approx(in_flight(layout, stages * virtual))
    for device in range(stages):
        assert line.held(device)[-1][1] == 0


@EXAMPLES
@given(filled())
def test_work_is_done_once_in_order_and_never_twice_at_a_time(schedule):
    _, stages, micro_batches, *_ = schedule
    line = simulate(*schedule)
    for device in range(stages):
        slots = line.of(device)
        assert all(one.end <= other.start + 1e-9 for one, other in pairwise(slots))
        assert sum(slot.end - slot.start for slot in slots) == pytest.approx(micro_batches)
        for kinds in ((FORWARD,), (BACKWARD, INPUT_GRADIENT)):
            done = [(slot.micro_batch, slot.chunk) for slot in slots if slot.kind in kinds]
            assert len(done) == len(set(done)) == micro_batches * line.virtual_stages
        ends = {(slot.kind, slot.micro_batch, slot.chunk): slot.end for slot in slots}
        for slot in slots:
            if slot.kind == WEIGHT_GRADIENT:
                assert slot.start >= ends[INPUT_GRADIENT, slot.micro_batch, slot.chunk] - 1e-9
            elif slot.kind != FORWARD:
                assert slot.start >= ends[FORWARD, slot.micro_batch, slot.chunk] - 1e-9


@EXAMPLES
@given(filled())
def test_a_micro_batch_reaches_a_stage_after_the_one_before_it(schedule):
    name, _, micro_batches, *_ = schedule
    line = simulate(*schedule)
    forward = {(s.micro_batch, s.device, s.chunk): s for s in line.slots if s.kind == FORWARD}
    for (micro_batch, device, chunk), slot in forward.items():
        if name == "dualpipe":
            before = forward.get((micro_batch, device + (1 if micro_batch >= micro_batches // 2 else -1), chunk))
        elif name in FOLDED and chunk:
            before = forward.get((micro_batch, device + 1, 1), forward[micro_batch, device, 0])
        else:
            before = forward.get((micro_batch, device - 1, chunk))
        if before is not None:
            assert slot.start >= before.end - 1e-9


def test_known_lengths():
    """Four stages, eight micro-batches: 8 + 3; 8 + 3/2; 8 + 1; DualPipe 8 + 2/3; in a V 8 + 3/6 and 8 + 6/6."""
    assert simulate("gpipe", 4, 8).length == simulate("1f1b", 4, 8).length == 11
    assert simulate("breadth_first", 4, 8, 2).length == pytest.approx(9.5)
    assert simulate("zb_v", 4, 8).length == pytest.approx(8.5)
    assert simulate("dualpipe_v", 4, 8).length == simulate("zb_h2", 4, 8).length == pytest.approx(9)
    assert simulate("interleaved", 4, 8, 2).length == pytest.approx(9.5)
    assert simulate("zero_bubble", 4, 8).length == pytest.approx(9)
    assert simulate("dualpipe", 4, 8).length == pytest.approx(8 + 2 / 3)


def test_a_pipeline_that_cannot_be_filled_waits_longer():
    """Zero bubble with m < p: the first stage waits 2p - 1 - m thirds for its first gradient."""
    assert simulate("zero_bubble", 8, 2).length == pytest.approx(2 + (2 * 8 - 1 - 2) / 3)


def test_one_stage_has_nothing_to_wait_for():
    assert all(simulate(name, 1, 4).length == 4 for name in SCHEDULES if name != "dualpipe")
