"""Pipeline schedules slot by slot: what each device does when, by simulation of the order it follows.

A schedule is an order of work for every device (:mod:`mlsysim.plot.orders`). :func:`simulate` runs the orders against the data dependencies (a
forward pass waits for the stage before it, a backward pass for the stage behind it and for its own forward pass, a
weight gradient for the input gradient of its own stage), each operation starting as soon as its device is free and its
input is there. Nothing is taken from the closed forms of :mod:`mlsysim.physics.pipeline`, so the two check each other.

Times are in micro-batch times of a whole stage. Unless :class:`Passes` says otherwise, a forward pass takes 1/3, the backward pass 2/3 (half
of it the gradient of the input, half that of the weights), and all stages are equal. Communication takes no time of its own here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.physics.pipeline import CHUNKED, FOLDED
from mlsysim.plot.orders import BACKWARD, FORWARD, INPUT_GRADIENT, ORDERS, WEIGHT_GRADIENT, Order, Task, interleaved
from mlsysim.units.records import dataclass

MOST_PASSES = 20_000
"""Passes forward that are simulated at most."""
_THIRD = Fraction(1, 3)


@dataclass(frozen=True, slots=True)
class Passes:
    """How long the passes of a micro-batch are: shares of forward, gradient of inputs and gradient of weights, and the time on the first and on
    the last stage over that on a stage between. Where a device has several chunks, what an end has more or less is at its outer chunk. Chunks
    are of one size unless ``sizes`` are said, of all in the order of the model, over a device between."""

    forward: float | Fraction = _THIRD
    inputs: float | Fraction = _THIRD
    weights: float | Fraction = _THIRD
    first: float | Fraction = 1
    last: float | Fraction = 1
    sizes: tuple[float, ...] = ()

    def lengths(self, stage_count: int, chunks: int) -> Callable[[Task], float | Fraction]:
        """The length of a task, where a device holds so many chunks."""
        both = self.inputs + self.weights
        kinds = {FORWARD: self.forward, BACKWARD: both, INPUT_GRADIENT: self.inputs, WEIGHT_GRADIENT: self.weights}
        each = Fraction(1, chunks)
        sizes: list[float | Fraction] = list(self.sizes or [each] * stage_count)
        devices = stage_count // chunks
        for place, own, end in ((0, 0, self.first), (-1, devices - 1, self.last)):
            whole = sum(self.sizes[own::devices]) if self.sizes else 1
            sizes[place] = max(sizes[place] + end - whole, 0.0)
        found = {(kind, stage): share * size for kind, share in kinds.items() for stage, size in enumerate(sizes)}
        if self == _EVEN:  # whole numbers of thirds, which add up exactly
            found = {what: int(length * 3 * chunks) for what, length in found.items()}
        return lambda task: found[task.kind, task.stage]


_EVEN = Passes()


@dataclass(frozen=True, slots=True)
class Slot:
    """A task and when it runs, in micro-batch times. ``chunk`` counts the parts of the model that the device holds."""

    device: int
    kind: str
    micro_batch: int
    chunk: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """All slots of a step."""

    schedule: str
    devices: int
    micro_batches: int
    virtual_stages: int
    slots: tuple[Slot, ...]

    @cached_property
    def length(self) -> float:
        """Time of the step, in micro-batch times."""
        return max(slot.end for slot in self.slots)

    @cached_property
    def bubble_fraction(self) -> float:
        """Share of all device time in which nothing runs, measured on the slots."""
        return 1 - sum(self._busy) / (self.devices * self.length)

    @cached_property
    def _busy(self) -> list[float]:
        busy = [0.0] * self.devices
        for slot in self.slots:
            busy[slot.device] += slot.end - slot.start
        return busy

    @property
    def bubble(self) -> float:
        """What the device with most work waits for others."""
        return self.length - max(self._busy)

    def of(self, device: int) -> list[Slot]:
        """The slots of one device, in order."""
        return sorted((slot for slot in self.slots if slot.device == device), key=lambda slot: slot.start)

    def held(self, device: int) -> list[tuple[float, float]]:
        """Steps (time, micro-batches held): activations kept on a device from then on, in those of a whole stage.

        A forward pass keeps them from its start until its backward pass ends (with split gradients: until the weight
        gradient, which needs them too).
        """
        changes: dict[float, float] = defaultdict(float)
        share = 1 / self.virtual_stages
        for slot in self.of(device):
            if slot.kind == FORWARD:
                changes[slot.start] += share
            elif slot.kind in (BACKWARD, WEIGHT_GRADIENT):
                changes[slot.end] -= share
        level, steps = 0.0, []
        for time in sorted(changes):
            level += changes[time]
            steps.append((time, max(round(level, 9), 0.0)))
        return steps

    def peak_held(self, device: int) -> float:
        """Most micro-batches whose activations a device keeps at once."""
        return max((level for _, level in self.held(device)), default=0.0)


def simulate(
    schedule: str,
    stages: int,
    micro_batches: int,
    virtual_stages: int = 1,
    group: int | None = None,
    passes: Passes = _EVEN,
) -> Timeline:
    """Run a schedule of ``stages`` devices and ``micro_batches``.

    ``group`` is how many an interleaved schedule takes through one chunk before the next; if it is not said, groups are as equal
    as possible and of at least one micro-batch per stage.

    >>> simulate("1f1b", 4, 8).length
    11.0
    """
    if schedule not in ORDERS:
        raise unknown_name("pipeline schedule", schedule, ORDERS, "use one of " + ", ".join(ORDERS))
    counts = {"stages": stages, "micro_batches": micro_batches, "virtual_stages": virtual_stages}
    for name, value in (counts if group is None else counts | {"group": group}).items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"A timeline needs a whole number of at least 1 as '{name}', got {value!r}.", field=name)
    if virtual_stages > 1 and schedule not in CHUNKED:
        raise InputError(
            f"Virtual stages belong to the interleaved schedules, not to {schedule}.", field="virtual_stages"
        )
    if group is not None and schedule != "interleaved":
        raise InputError(
            f"Groups of micro-batches belong to the interleaved schedule, not to {schedule}.", field="group"
        )
    chunks = 2 if schedule in FOLDED else virtual_stages
    if stages * micro_batches * chunks > MOST_PASSES:
        raise InputError(
            f"A timeline of {stages} stages x {micro_batches} micro-batches x {chunks} virtual stages has too many "
            f"slots to draw; at most {MOST_PASSES:,} passes are drawn."
        )
    order = ORDERS[schedule] if group is None else partial(interleaved, group=group)
    orders = [order(device, stages, micro_batches, virtual_stages) for device in range(stages)]
    slots = []
    unit = 3 * chunks if passes == _EVEN else 1
    for device, task, start, end in _run(orders, stages * chunks, passes.lengths(stages * chunks, chunks)):
        if schedule == "dualpipe":
            chunk = 0 if task.stage == min(device, stages - 1 - device) else 1
        else:
            chunk = task.stage // stages
        slots.append(Slot(device, task.kind, task.micro_batch, chunk, float(start / unit), float(end / unit)))
    return Timeline(schedule, stages, micro_batches, chunks, tuple(slots))


def _run(
    orders: list[Order], stage_count: int, length: Callable[[Task], float | Fraction]
) -> list[tuple[int, Task, Any, Any]]:
    """Start every task or pair as soon as its device is free and its inputs are there."""
    ready: dict[tuple[bool, int, int], Any] = {}
    waiting, free = [deque(order) for order in orders], [0] * len(orders)
    placed: list[tuple[int, Task, Any, Any]] = []
    while any(waiting):
        before = len(placed)
        for device, queue in enumerate(waiting):
            while queue:
                group = queue[0] if isinstance(queue[0], tuple) else (queue[0],)
                needed = [need for task in group for need in _needs(task, stage_count)]
                if any(need not in ready for need in needed):
                    break
                queue.popleft()
                clock = max([free[device], *(ready[need] for need in needed)])
                for task in group:
                    placed.append((device, task, clock, clock + length(task)))
                    clock += length(task)
                for task in group:
                    if task.kind != WEIGHT_GRADIENT:
                        ready[task.kind == FORWARD, task.micro_batch, task.stage] = clock
                free[device] = clock
        if len(placed) == before:
            words = "These groups of micro-batches wait for themselves: every group, the last too, needs one per stage."
            raise InputError(words, field="group")
    return placed


def _needs(task: Task, stage_count: int) -> list[tuple[bool, int, int]]:
    """What has to be there before a task: (is it a forward pass, micro-batch, stage)."""
    if task.kind == FORWARD:
        return [(True, task.micro_batch, task.stage - 1)] if task.stage else []
    if task.kind == WEIGHT_GRADIENT:
        return [(False, task.micro_batch, task.stage)]
    own = [(True, task.micro_batch, task.stage)]
    return [*own, (False, task.micro_batch, task.stage + 1)] if task.stage + 1 < stage_count else own
