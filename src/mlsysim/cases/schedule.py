"""What the pipeline of a training step does with its micro-batches: stages are busy, wait for one another, and for messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.physics.interleaving import groups_of, longest
from mlsysim.physics.pipeline import FOLDED, Shares, makespan, sends_waited
from mlsysim.physics.stage_split import held_layers, stage_layers, uneven_chunks
from mlsysim.units.ops import floor, maximum, where
from mlsysim.units.records import dataclass


def schedule_of(layout: Layout) -> str:
    """The schedule by name: 1F1B where nothing is said, interleaved with virtual stages."""
    if layout.pp == 1:
        return "1f1b"
    return layout.schedule or ("interleaved" if layout.virtual_stages > 1 else "1f1b")


def in_flight(layout: Layout, layers: Any, accumulation: Any = 1) -> Any:
    """Micro-batches whose activations the fullest stage holds at once, of those of the longest."""
    m = layout.micro_batches * accumulation
    kept = held_layers(named(layout), layers, layout.pp, m, layout.virtual_stages, layout.group)
    return longest(*kept) / stage_layers(layers, layout.pp, layout.virtual_stages).most


def named(layout: Layout) -> str:
    """The schedule that is asked for; interleaving of one chunk is 1F1B."""
    return layout.schedule or "interleaved"


def weight_copies(layout: Layout) -> Any:
    """Copies of a stage's weights: DualPipe has the stages of both directions on each device."""
    return where(layout.pp > 1, 2.0, 1.0) if layout.schedule == "dualpipe" else 1.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """What ZeRO 2 and 3 send in a step, and what is whole in memory instead.

    ``scatters`` of gradients (ZeRO 2) and ``gathers`` of weights (ZeRO 3), each of all that a device has; shares of gradients and weights
    that are ``whole`` although they are shared.
    """

    scatters: Any
    gathers: Any
    whole_gradients: Any
    whole_weights: Any


def sharing(job: Job, layout: Layout) -> Sharing:
    """What is not sent is held: a step that regathers sends gradients once and weights twice for every micro-batch, and holds shares.

    One that does not gathers weights once and keeps them. Its gradients add up over the micro-batches that go through a chunk of
    layers one after the other, and are scattered then: all of them where a device has one chunk; group by group where chunks take turns
    (floor(m / p) groups of an interleaved schedule), so that one chunk of v is whole at a time.
    """
    m, v, each = layout.micro_batches * job.accumulation, layout.virtual_stages, job.regathers(layout.pp)
    groups = maximum(floor(m / (layout.pp if layout.group is None else layout.group)), 1.0)
    turns = where(v > 1, groups, 1.0)
    return Sharing(where(each, m, turns), where(each, 2.0 * m, 1.0), where(each, 0.0, 1.0 / v), where(each, 0.0, 1.0))


def beside_gradients(job: Job, layout: Layout) -> Any:
    """Share of a step's passes that run beside what replicas say once: a sum of gradients beside backward passes, and a gather of weights, in which it
    ends where they share the optimizer, beside the forward passes after it.

    A gradient that is summed once a step is not there before the last micro-batch has gone through its layers: with one chunk of layers only that
    micro-batch's own pass of m is beside it. Of v chunks the one that is done first has the other chunks' passes of the last group beside it,
    N (v - 1)/v of a device's, and all have the last one's, 1/v. What is scattered time and again has all.
    """
    m, v = layout.micro_batches * job.accumulation, layout.virtual_stages
    last, often = groups_of(layout.pp, m, layout.group)[1], sharing(job, layout)
    once = where(v > 1, (last * (v - 1) + 1) / v, 1.0) / m
    return where((job.zero >= 2) & ((often.whole_weights < 1) | (often.scatters > 1)), 1.0, once)


class Stages(NamedTuple):
    """Seconds of a micro-batch on the first stage, on those between and on the last, what its passes have of them, and the layers of all."""

    first: Any
    between: Any
    last: Any
    shares: Shares
    layers: Any = None


@dataclass(frozen=True, slots=True)
class Pipelined:
    """Seconds of a step: the longest stage is busy, it is ``paced`` by waiting for other stages, and waits for messages.

    ``messages`` gives the seconds of all messages of a stage, waited for or not.
    """

    busy: Any
    paced: Any
    sends: Any
    messages: Callable[[], Any]
    stages: Stages | None = None


def pipelined(
    a: Algebra,
    job: Job,
    layout: Layout,
    *,
    layers: Any = None,
    alike: tuple[Any, ...] = (),
    mean: Any,
    stage: Any,
    first: Any = None,
    last: Any = None,
    shares: Shares,
    send: Any,
    message: Any,
    over: str,
) -> Pipelined:
    """All micro-batches of a step, from the time of one on a stage, and on the first and the last where they differ; of ``layers`` others may lack some,
    and all points that are ``alike`` have the same shares then.

    ``mean`` is the time of stages that split the layers evenly. ``send`` is the time of a ``message`` to the next stage, ``over`` links or the fabric; what of it is not
    hidden delays that stage, and the schedule says how often this is on the longest path.
    """
    m = layout.micro_batches * job.accumulation
    ends = stage if first is None else first, stage, stage if last is None else last
    busy, stages = m * stage, Stages(*ends, shares, layers)
    if last is not None:
        # Even stages differ by rounding; none is shorter than their mean.
        # A device of DualPipe has half of the micro-batches on each of two stages: the outer ones have both ends, as has the first of a V.
        first = stage if first is None else first
        most = 0.5 * (first + last) if layout.schedule == "dualpipe" else a.longest(first, last)
        most = first + last - stage if layout.schedule in FOLDED else most
        # Two devices of DualPipe have nothing between the ends.
        between = where(layout.pp > 2, stage, mean) if layout.schedule == "dualpipe" else stage
        busy = a.grown("uneven stages", 14, "uneven", m * mean, m * a.longest(a.longest(between, most), mean))
    if isinstance(layout.pp, int) and layout.pp == 1:
        return Pipelined(busy, busy, 0.0 * busy, lambda: 0.0 * busy, stages)
    name, chunks = named(layout), (layout.virtual_stages, layout.group)
    alone = makespan(name, layout.pp, m, stage, shares, None, first, last, *chunks)
    if layers is not None:
        key, own = ("uneven", name, *alike, m, *chunks), partial(uneven_chunks, name, layers, ends=last is not None)
        uneven = a.once(key, own, layout.pp, m, shares, *chunks)
        alone = maximum(alone + uneven * stage, busy)
    delay = (1 - job.overlap.pipeline) * send
    late = sends_waited(name, layout.pp, m, a.plain(stage), shares, delay, a.plain(last), *chunks)

    def count() -> Any:
        """An activation forward and a gradient back for each micro-batch and chunk."""
        return 2 * m * where(layout.pp > 1, layout.virtual_stages, 0)

    line = ("pipeline sends", 14, over, "send")
    sends = a.tag(*line, late, sent=lambda: count() * message)
    # Messages of other stages that fill and drain the pipeline may be waited for longer than one's own take.
    sends = a.beside(sends, lambda: a.tag(*line, maximum(count() * send - late, 0.0 * send)))
    paced = a.grown("pipeline bubble", 14, "bubble", busy, alone)
    return Pipelined(busy, paced, sends, lambda: count() * send, stages)
