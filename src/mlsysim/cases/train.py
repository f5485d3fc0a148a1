"""One training step of a model laid out over a fleet: the arithmetic of wall 14, at every granularity.

    phase       what a device does in a micro-batch and once a step, by a granularity: one operator at one efficiency (first order,
                :mod:`mlsysim.cases.train_whole`), all operators of its layers under a stack (:mod:`mlsysim.cases.train_layers`), those of a
                network of fixed shape (:mod:`mlsysim.cases.train_network`) or of a recommender (:mod:`mlsysim.cases.train_lookup`)
    pipeline    what stages do with the micro-batches: busy, wait, send (:mod:`mlsysim.cases.schedule`)
    trained     T = jitter [ pipeline + data not hidden + update ] + fixed + host round trip

Only :func:`trained` adds the times of a step; what is hidden, lost or waited for is named there. Messages are priced in full by a network
(:mod:`mlsysim.timing.network`).

Per micro-batch and layer, forward and backward together, tensor parallelism sums activations four times (two forward, two
backward; six with full recomputation; of all tokens of its samples, :mod:`mlsysim.models.traffic`), as all-reduces or, with sequence parallelism, as reduce-scatters and all-gathers of the
same volume. Experts exchange tokens four times. Context parallelism passes keys and values around a ring three times (forward
once, backward with their gradients twice). A pipeline sends one activation forward and one gradient backward for each
micro-batch and chunk.

What replicas say to each other is :mod:`mlsysim.cases.replica_messages`.
The optimizer's own work (:mod:`mlsysim.cases.update`) comes last, with nothing beside it.

Degrees, sizes and factors may be arrays: a point of a sweep is this case on an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.offload import HostTimes, of_state
from mlsysim.cases.schedule import Pipelined, Stages, beside_gradients
from mlsysim.cases.update import orthogonalised
from mlsysim.units.ops import maximum, minimum, where
from mlsysim.units.records import dataclass

BACKWARD_SHARE = 2 / 3
"""Of a pass forward and backward: the gradients of inputs and of weights are as much work as the forward pass, each."""
BESIDE = "weights and activations over the host link"
"""The part of a step that waits for them."""


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step, numbers or times of a tape; communication in full, hidden or not.

    ``compute`` is what a device computes; ``ideal`` what it would do alone: evenly split layers and its update, without stragglers.
    ``busy`` is what the longest stage works, ``paced`` with what it waits for others in the pipeline.
    """

    seconds: Any
    compute: Any
    ideal: Any
    tensor: Any
    expert: Any
    context: Any
    messages: Callable[[], Any]
    data: Any
    exposed_data: Any
    busy: Any
    paced: Any
    offload: Any
    update: Any = 0.0
    stages: Stages | None = None

    @property
    def bubble(self) -> Any:
        """What the longest stage waits for others."""
        return self.paced - self.busy

    @property
    def communication(self) -> Any:
        """All messages, hidden or not."""
        return self.data + self.tensor + self.expert + self.context + self.pipeline

    @property
    def pipeline(self) -> Any:
        """All messages of a stage."""
        return self.messages()


@dataclass(frozen=True, slots=True)
class Phase:
    """A micro-batch on the devices of a replica as a granularity has it, and what a step has once.

    Computing (with stragglers, and ``alone`` without), messages of tensors, experts and contexts in full, and ``gathers`` beside the layers (of
    which some are ``gathers_shown``) are those of a micro-batch; ``share`` of them is a device's in a step: its micro-batches over the
    stages that the times are of. ``data`` is synchronised once a step; ``window`` gives the computing of all micro-batches that it could run beside
    (:func:`.beside_gradients`), from the time that stages are busy.
    ``rate`` is that of Muon's products where the step has the optimizer's work in it, ``overhead`` what a step takes once.
    """

    pipeline: Pipelined
    share: Any
    compute: Any
    alone: Any
    data: Any
    window: Callable[[Any], Any]
    tensor: Any = 0.0
    expert: Any = 0.0
    context: Any = 0.0
    gathers: Any = 0.0
    gathers_shown: Any = 0.0
    update: Any = 0.0
    rate: Any = None
    jitter: Any = 1.0
    overhead: Any = None


def trained(a: Algebra, job: Job, layout: Layout, net: Any, g: Groups, phase: Phase, offload: HostTimes) -> Step:
    """The step of a phase. One form for every granularity."""
    p, pipeline, share, update = phase, phase.pipeline, phase.share, phase.update
    if p.rate is not None:
        update = update + orthogonalised(a, job, layout, net, g, p.rate)
    host = a.tag(*of_state(job), offload.state)
    fixed = 0.0 if p.overhead is None else a.tag("step overhead", 3, "host", "fixed", p.overhead)
    beside = where(job.zero >= 1, 1.0, BACKWARD_SHARE) * beside_gradients(job, layout)
    shown = p.data - minimum(job.overlap.data * p.data, beside * p.window(pipeline.busy))
    step = pipeline.paced + pipeline.sends + shown + update
    return Step(
        seconds=a.grown("jitter at scale", 14, "jitter", step, p.jitter * step) + (fixed + host),
        compute=share * p.compute,
        ideal=share * p.alone + update,
        tensor=share * p.tensor,
        expert=share * p.expert,
        context=share * p.context,
        messages=pipeline.messages,
        data=p.data + share * p.gathers,
        exposed_data=p.jitter * (shown + share * p.gathers_shown),
        busy=pipeline.busy,
        paced=pipeline.paced,
        offload=host,
        update=update,
        stages=pipeline.stages,
    )


def with_the_host(a: Algebra, seconds: Any, offload: HostTimes, stages: Any = 1) -> Any:
    """A micro-batch of so many stages beside what goes over the host link meanwhile."""
    if offload.beside is None:
        return seconds
    return maximum(seconds, stages * a.tag(BESIDE, 2, "host link", "host", offload.beside))
