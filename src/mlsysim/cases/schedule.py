"""What the pipeline of a training step does with its micro-batches: stages are busy, wait for one another, and for messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.physics.pipeline import Shares, held, makespan
from mlsysim.units.ops import ceil, maximum, where


def schedule_of(layout: Layout) -> str:
    """The schedule by name: 1F1B where nothing is said, interleaved with virtual stages."""
    if layout.pp == 1:
        return "1f1b"
    return layout.schedule or ("interleaved" if layout.virtual_stages > 1 else "1f1b")


def in_flight(layout: Layout, accumulation: Any = 1) -> Any:
    """Micro-batches whose activations the fullest stage holds at once."""
    m = layout.micro_batches * accumulation
    return held(layout.schedule or "interleaved", layout.pp, m, layout.virtual_stages, layout.group)


def weight_copies(layout: Layout) -> Any:
    """Copies of a stage's weights: DualPipe has the stages of both directions on each device."""
    return where(layout.pp > 1, 2.0, 1.0) if layout.schedule == "dualpipe" else 1.0


def stage_layers(layers: Any, layout: Layout) -> tuple[Any, Any, Any]:
    """Layers of the first stage, of those between, and of the last.

    Every chunk has as many; where they do not divide, the last stage has fewer, and the first where that is not enough.
    """
    chunks = where(layout.pp > 1, layout.virtual_stages, 1)
    most = ceil(layers / (layout.pp * chunks)) * chunks
    spare = most * layout.pp - layers
    return maximum(most - maximum(spare - most, 0.0), 0.0), most, maximum(most - spare, 0.0)


@dataclass(frozen=True, slots=True)
class Pipelined:
    """Seconds of a step: the longest stage is busy, waits for other stages, and for messages; ``sent`` are all its messages."""

    busy: Any
    bubble: Any
    sends: Any
    sent: Any


def pipelined(
    a: Algebra,
    job: Job,
    layout: Layout,
    *,
    mean: Any,
    stage: Any,
    first: Any = None,
    last: Any = None,
    shares: Shares,
    send: Any,
    message: Any,
) -> Pipelined:
    """All micro-batches of a step, from the time of one on a stage, and on the first and the last where these differ.

    ``mean`` is the time of stages that split the layers evenly. ``send`` is the time of a ``message`` to the next stage; what of it is not
    hidden delays that stage, and the schedule says how often this is on the longest path.
    """
    m = layout.micro_batches * job.accumulation
    # Even stages differ by rounding; none is shorter than their mean.
    longest = stage if last is None else a.longest(a.longest(stage, last), mean)
    busy = a.grown("uneven stages", 14, "uneven", m * mean, m * longest)
    if isinstance(layout.pp, int) and layout.pp == 1:
        return Pipelined(busy, 0.0 * busy, 0.0 * busy, 0.0 * busy)

    def whole(c: Any, stage: Any, first: Any, last: Any) -> Any:
        name, v = layout.schedule or "interleaved", layout.virtual_stages
        return makespan(name, layout.pp, m, stage, shares, c, first, last, v, layout.group)

    alone = whole(None, stage, first, last)
    delay = (1 - job.overlap.pipeline) * send
    late = whole(delay, *(a.plain(time) for time in (stage, first, last))) - a.plain(alone)
    own = 2 * m * layout.virtual_stages * where(layout.pp > 1, 1.0, 0.0)
    line = ("pipeline sends", 14, "fabric", "send")
    sends = a.tag(*line, late, sent=lambda: own * message)
    # Messages of other stages that fill and drain the pipeline may be waited for longer than one's own take.
    sends = a.beside(sends, lambda: a.tag(*line, maximum(own * send - late, 0.0 * send)))
    return Pipelined(busy, a.loss("pipeline bubble", 14, "bubble", alone - busy), sends, own * send)
