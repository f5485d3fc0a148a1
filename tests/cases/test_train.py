"""The first-order training step: known answers, limits, signs, and parts that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.algebra import PLAIN, ledger_of
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout, choose_micro_batches, divisors, plan_layout
from mlsysim.cases.schedule import in_flight, schedule_of
from mlsysim.cases.train_whole import Device, first_order, first_order_amounts
from mlsysim.cases.training_memory import fitting_change, on_device, training_held
from mlsysim.errors import InputError
from mlsysim.models.registry import Models
from mlsysim.timing.network import Hierarchical

NET = Hierarchical(link=450e9, link_latency=0.5e-6, fabric=50e9, fabric_latency=5e-6, domain=8)
DEVICE = Device(peak=989e12, efficiency=0.5, bandwidth=3.35e12)
LLAMA = Models.get("Llama3_70B")


def layout(**changes) -> Layout:
    call = {"dp": 16, "tp": 8, "pp": 4, "ep": 1, "cp": 1, "micro_batches": 8, "local_batch": 8}
    return Layout(**{**call, **changes})


def timed(where: Layout, job: Job, a=PLAIN, net=NET):
    micro = job.model.demand("training", batch_size=where.micro_batch, seq_len=job.seq_len, precision=job.precision)
    return first_order(job, where, first_order_amounts(job, where, micro), DEVICE, net, a=a)


JOB = Job(LLAMA, "bf16", 4096, zero=1, overlap=Overlap(data=0.85))


def test_one_device_has_nothing_to_say_to_others():
    alone = timed(layout(dp=1, tp=1, pp=1), JOB)
    assert (alone.tensor, alone.expert, alone.context, alone.data) == (0, 0, 0, 0)
    assert (alone.pipeline, alone.bubble) == (0, 0)
    assert alone.seconds == pytest.approx(alone.compute) == pytest.approx(alone.ideal)


def test_compute_by_hand():
    """Six operations a parameter and token, and attention, over 512 devices at half of their peak."""
    step = timed(layout(), JOB)
    demand = LLAMA.demand("training", batch_size=1, seq_len=4096, precision="bf16")
    assert step.compute == pytest.approx(8 * demand.flops / (8 * 4) / (0.5 * 989e12))
    assert step.bubble == pytest.approx(3 / 8 * step.busy)


def test_hidden_communication_never_exceeds_the_work_it_hides_behind():
    slow = replace(NET, fabric=1e6)
    for zero, share in ((0, 2 / 3), (1, 1.0)):
        long = timed(layout(), replace(JOB, zero=zero, overlap=Overlap(data=1.0)), net=slow)
        assert long.exposed_data == pytest.approx(long.data - share * long.compute / layout().micro_batches)


def test_computing_that_hides_one_thing_does_not_hide_another():
    """A ring of keys that takes all of the computing leaves none to hide gradients behind."""
    slow = replace(NET, fabric=1e6)
    step = timed(layout(tp=8, pp=1, cp=4), replace(JOB, overlap=Overlap(context=1.0, data=1.0)), net=slow)
    assert step.context > step.compute
    assert step.exposed_data == pytest.approx(step.data)


@settings(max_examples=150, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2, 4]),
    virtual=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    shares=st.tuples(*[st.floats(0, 1)] * 5),
    straggler=st.floats(1, 2),
    better=st.sampled_from(["link", "fabric", "peak", "bandwidth"]),
)
def test_parts_add_up_and_better_hardware_is_never_slower(tp, pp, cp, virtual, zero, shares, straggler, better):
    where = layout(tp=tp, pp=pp, cp=cp, virtual_stages=virtual if pp > 1 else 1)
    tensor, expert, context, pipeline, data = shares
    overlap = Overlap(tensor=tensor, expert=expert, context=context, pipeline=pipeline, data=data)
    job = replace(JOB, zero=zero, overlap=overlap, straggler=straggler)
    step = timed(where, job)
    ledger = ledger_of(lambda a: timed(where, job, a).seconds)
    assert ledger.seconds == pytest.approx(step.seconds, rel=1e-12)
    for column in ("exposed", "elastic"):
        assert ledger.total(column) == pytest.approx(step.seconds, rel=1e-9)
    assert all(part.exposed >= -1e-9 * step.seconds and part.hidden >= 0 for part in ledger.parts)
    assert ledger.gross("tensor parallelism") == pytest.approx(step.tensor)
    if better in ("link", "fabric"):
        assert timed(where, job, net=replace(NET, **{better: 1e12})).seconds <= step.seconds * (1 + 1e-12)


def test_groups_follow_the_nodes():
    inside = layout(tp=4, pp=1, dp=16).groups(NET)
    assert (inside.tensor.inside, inside.tensor.domains, inside.data.inside, inside.data.domains) == (4, 1, 2, 8)
    across = layout(tp=16, pp=1, dp=4).groups(NET)
    assert (across.tensor.inside, across.tensor.domains, across.data.inside, across.data.domains) == (8, 2, 1, 4)
    # Gradients are summed over data and context ranks alike.
    assert layout(tp=2, pp=1, cp=4, dp=16).groups(NET).data == (64, 4, 1)


def test_groups_that_do_not_divide_a_node_lie_across_two():
    """TP 5 on full nodes of 8: of the groups of five one has a rank alone in its node, and all wait for it. Alone in a node, or in nodes that are
    used in part (512 of racks of 72), groups stay together."""

    def inside(tp, dp):
        return layout(tp=tp, pp=1, dp=dp).groups(NET).tensor.inside

    assert [inside(tp, 8) for tp in (2, 4, 5, 6, 8, 16)] == [2, 4, 1, 2, 8, 8]
    assert [inside(5, dp) for dp in (1, 7)] == [5, 5]
    assert list(inside(np.array([4, 5, 6, 8]), np.array([10, 8, 8, 5]))) == [4, 1, 2, 8]


def test_divisors_and_default_micro_batches():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert choose_micro_batches(48, 1) == 1
    assert choose_micro_batches(48, 4) == 16
    assert choose_micro_batches(7, 4) == 7


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"tp": 3}, "tp_size", "does not divide 64"),
        ({"pp": 3, "accelerators": 96, "tp": 8, "cp": 1, "batch": 10}, "batch_size", "use 8 or 12"),
        ({"schedule": "dualpipe", "pp": 1}, None, ""),
        ({"schedule": "zero_bubble", "virtual_stages": 2}, "v_stages", "interleaved schedule"),
        ({"micro_batches": 5}, "microbatch_count", "do not divide into 5"),
        ({"micro_batches": 1000}, "microbatch_count", "are more than"),
    ],
)
def test_what_does_not_divide_is_said_in_one_sentence(changes, field, words):
    call = {"accelerators": 64, "batch": 64, "seq_len": 4096, "tp": 8, "pp": 4, "ep": 1, "cp": 1}
    call |= {"virtual_stages": 1, "micro_batches": None, "schedule": None, **changes}
    if field is None:
        assert plan_layout(LLAMA, assumed=Assumptions(), **call).dp == 8
        return
    with pytest.raises(InputError, match=words) as found:
        plan_layout(LLAMA, assumed=Assumptions(), **call)
    assert found.value.field == field


def test_schedules_by_name():
    assert schedule_of(layout(pp=1, schedule="dualpipe")) == "1f1b"
    assert schedule_of(layout(virtual_stages=2)) == "interleaved"
    assert in_flight(layout(schedule="dualpipe"), 32) == 5
    assert in_flight(layout(micro_batches=2), 32) == 2


def test_the_smallest_change_that_fits():
    job, where = replace(JOB, headroom=0.07, zero=0), layout(pp=1, dp=64, local_batch=32, micro_batches=1)
    needed = on_device(training_held(job, where))
    change = fitting_change(job, where, 0.9 * needed)
    assert change is not None and set(change) <= {"zero_stage", "activation_recomputation", "microbatch_count"}
    assert fitting_change(job, where, 1e9) is None
