"""Pipeline schedules slot by slot: what each device does when, by simulation of the order it follows.

A schedule is an order of work for every device. :func:`simulate` runs the orders against the data dependencies (a
forward pass waits for the stage before it, a backward pass for the stage behind it and for its own forward pass, a
weight gradient for the input gradient of its own stage), each operation starting as soon as its device is free and its
input is there. Nothing is taken from the closed forms of :mod:`mlsysim.physics.pipeline`, so the two check each other.

    gpipe         all forward, then all backward                                   (Huang et al. 2019)
    1f1b          one forward, one backward after a warm-up                        (Narayanan et al., SC'21)
    interleaved   1F1B over v chunks of layers on each device                      (Narayanan et al., SC'21)
    zero_bubble   ZB-H1: weight gradients apart, where the device would wait       (Qi et al. 2024)
    dualpipe      micro-batches enter at both ends; each device holds two stages   (DeepSeek-V3, 2024)

Times are in micro-batch times of a whole stage: a forward pass takes 1/3, the backward pass 2/3 (half of it the gradient
of the input, half that of the weights), as the closed forms assume. Communication takes no time of its own here.

The closed forms hold where a pipeline can be filled: from m >= p micro-batches on for zero_bubble, m >= 2p for DualPipe,
and for every m for the others. With fewer the wait is longer, and the simulation says how long.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from mlsysim.errors import InputError, unknown_name

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "backward", "input gradient", "weight gradient"

# Lengths in thirds of a micro-batch time.
_THIRDS = {FORWARD: 1, BACKWARD: 2, INPUT_GRADIENT: 1, WEIGHT_GRADIENT: 1}

_MOST_SLOTS = 20_000


@dataclass(frozen=True, slots=True)
class Task:
    """One operation of a device: a pass of one micro-batch through one stage of the model (its layers in order)."""

    kind: str
    micro_batch: int
    stage: int


# What a device does in turn. The tasks of a pair run back to back, and hand on their results when the last has ended.
Order = list[Task | tuple[Task, Task]]


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
        busy = sum(slot.end - slot.start for slot in self.slots)
        return 1 - busy / (self.devices * self.length)

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


def simulate(schedule: str, stages: int, micro_batches: int, virtual_stages: int = 1) -> Timeline:
    """Run a schedule of ``stages`` devices and ``micro_batches``.

    >>> simulate("1f1b", 4, 8).length
    11.0
    """
    if schedule not in SCHEDULE_NAMES:
        raise unknown_name("pipeline schedule", schedule, SCHEDULE_NAMES, "use one of " + ", ".join(SCHEDULE_NAMES))
    for name, value in (("stages", stages), ("micro_batches", micro_batches), ("virtual_stages", virtual_stages)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"A timeline needs a whole number of at least 1 as '{name}', got {value!r}.", field=name)
    if virtual_stages > 1 and schedule != "interleaved":
        raise InputError(
            f"Virtual stages belong to the interleaved schedule, not to {schedule}.", field="virtual_stages"
        )
    if stages * micro_batches * virtual_stages * 3 > _MOST_SLOTS:
        raise InputError(
            f"A timeline of {stages} stages x {micro_batches} micro-batches x {virtual_stages} virtual stages has too many "
            f"slots to draw; at most {_MOST_SLOTS // 3:,} passes are drawn."
        )
    orders = [_ORDERS[schedule](device, stages, micro_batches, virtual_stages) for device in range(stages)]
    slots = []
    for device, task, start, end in _run(orders, stages * virtual_stages):
        if schedule == "dualpipe":
            chunk = 0 if task.stage == min(device, stages - 1 - device) else 1
        else:
            chunk = task.stage // stages
        unit = 3 * virtual_stages
        slots.append(Slot(device, task.kind, task.micro_batch, chunk, start / unit, end / unit))
    return Timeline(schedule, stages, micro_batches, virtual_stages, tuple(slots))


def _run(orders: list[Order], stage_count: int) -> list[tuple[int, Task, int, int]]:
    """Start every task or pair as soon as its device is free and its inputs are there. Times in thirds."""
    ready: dict[tuple[bool, int, int], int] = {}
    waiting, free = [deque(order) for order in orders], [0] * len(orders)
    placed: list[tuple[int, Task, int, int]] = []
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
                    placed.append((device, task, clock, clock + _THIRDS[task.kind]))
                    clock += _THIRDS[task.kind]
                for task in group:
                    if task.kind != WEIGHT_GRADIENT:
                        ready[task.kind == FORWARD, task.micro_batch, task.stage] = clock
                free[device] = clock
        if len(placed) == before:
            raise AssertionError("the order of a schedule waits for itself")
    return placed


def _needs(task: Task, stage_count: int) -> list[tuple[bool, int, int]]:
    """What has to be there before a task: (is it a forward pass, micro-batch, stage)."""
    if task.kind == FORWARD:
        return [(True, task.micro_batch, task.stage - 1)] if task.stage else []
    if task.kind == WEIGHT_GRADIENT:
        return [(False, task.micro_batch, task.stage)]
    own = [(True, task.micro_batch, task.stage)]
    return [*own, (False, task.micro_batch, task.stage + 1)] if task.stage + 1 < stage_count else own


def _all_forward_first(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    forward = [Task(FORWARD, k, device) for k in range(micro_batches)]
    return [*forward, *(Task(BACKWARD, k, device) for k in reversed(range(micro_batches)))]


def _one_forward_one_backward(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    forward, backward = ([Task(kind, k, device) for k in range(micro_batches)] for kind in (FORWARD, BACKWARD))
    return _alternate(forward, backward, stages - device - 1)


def _interleaved(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """Micro-batches pass in groups of p through one chunk after the other, backward through the chunks in reverse."""
    if micro_batches % stages:
        raise InputError(
            f"The interleaved schedule runs micro-batches in groups of one per stage: {micro_batches} do not divide by "
            f"{stages} stages.",
            field="micro_batches",
        )
    if chunks == 1:  # this order would only run further ahead
        return _one_forward_one_backward(device, stages, micro_batches, chunks)
    forward, backward = [], []
    for first in range(0, micro_batches, stages):
        for chunk in range(chunks):
            for k in range(first, first + stages):
                forward.append(Task(FORWARD, k, chunk * stages + device))
                backward.append(Task(BACKWARD, k, (chunks - 1 - chunk) * stages + device))
    return _alternate(forward, backward, 2 * (stages - device - 1) + (chunks - 1) * stages)


def _alternate(forward: list[Task], backward: list[Task], warm_up: int) -> Order:
    """``warm_up`` forward passes, then one forward and one backward in turn, then the backward passes that are left."""
    ahead = min(warm_up, len(forward))
    order: Order = [*forward[:ahead]]
    for both in zip(forward[ahead:], backward, strict=False):
        order += both
    return order + backward[len(forward) - ahead :]


def _zero_bubble(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """1F1B with weight gradients that lag ``device`` micro-batches behind, so that the last stages do not wait at the end.

    A device takes up a new micro-batch only after a weight gradient has let one go: no more are held than in 1F1B.
    """
    started = min(stages - device, micro_batches)
    order: Order = [Task(FORWARD, k, device) for k in range(started)]
    for k in range(micro_batches):
        order.append(Task(INPUT_GRADIENT, k, device))
        if k >= device:
            order.append(Task(WEIGHT_GRADIENT, k - device, device))
        if started < micro_batches:
            order.append(Task(FORWARD, started, device))
            started += 1
    settled = max(micro_batches - device, 0)
    return order + [Task(WEIGHT_GRADIENT, k, device) for k in range(settled, micro_batches)]


def _dualpipe(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """Order of one device of DualPipe (DeepSeek-V3, 2024, figure 5), seen from the nearer end of the pipeline.

    ``depth`` is the distance from that end. The device is stage ``depth`` for micro-batches that enter there ("near")
    and stage p - 1 - depth for those that enter at the far end. In the middle of the step a forward pass of one
    direction is paired with a backward pass of the other, which hides the communication of both.
    """
    if stages % 2:
        raise InputError(f"DualPipe needs an even number of stages, got {stages}.", field="stages")
    if micro_batches % 2 or micro_batches < 2 * stages:
        raise InputError(
            f"DualPipe needs an even number of micro-batches, at least two per stage ({2 * stages}), got {micro_batches}.",
            field="micro_batches",
        )
    depth, half = min(device, stages - 1 - device), micro_batches // 2
    sides = [(kind, near) for kind in (FORWARD, BACKWARD) for near in (True, False)]
    coming = {(kind, near): count(half * (near == (device >= stages // 2))) for kind, near in sides}
    owed: list[Task] = []

    def task(kind: str, near: bool) -> Task:
        return Task(kind, next(coming[kind, near]), depth if near else stages - 1 - depth)

    def input_gradient(near: bool) -> Task:
        whole = task(BACKWARD, near)
        owed.append(replace(whole, kind=WEIGHT_GRADIENT))
        return replace(whole, kind=INPUT_GRADIENT)

    def pair(near: bool) -> tuple[Task, Task]:
        return task(FORWARD, near), task(BACKWARD, not near)

    # Fill from the near end, meet the far direction, run both in pairs, drain with weight gradients in the gaps.
    from_middle, shared = stages // 2 - depth - 1, depth + 1
    order: Order = [task(FORWARD, True) for _ in range(2 * from_middle)]
    for _ in range(shared):
        order += [task(FORWARD, True), task(FORWARD, False)]
    for _ in range(from_middle):
        order += [input_gradient(False), owed.pop(0), task(FORWARD, False)]
    for _ in range(half - stages + shared):
        order += [pair(True), pair(False)]
    for _ in range(from_middle):
        order += [task(BACKWARD, False), pair(False)]
    # The second half of the last backward passes keeps its weight gradients for the gaps that follow.
    for turn in range(2 * shared):
        near = bool(turn % 2)
        order.append(task(BACKWARD, near) if turn < shared else input_gradient(near))
    for _ in range(from_middle):
        order += [owed.pop(0), input_gradient(True)]
    return order + owed


_ORDERS = {
    "gpipe": _all_forward_first, "1f1b": _one_forward_one_backward, "interleaved": _interleaved,
    "zero_bubble": _zero_bubble, "dualpipe": _dualpipe,
}  # fmt: skip
SCHEDULE_NAMES = tuple(_ORDERS)
