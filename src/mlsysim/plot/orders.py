"""Orders of work: what each device of a pipeline does in turn under each schedule.

    gpipe         all forward, then all backward                                   (Huang et al. 2019)
    1f1b          one forward, one backward after a warm-up                        (Narayanan et al., SC'21)
    interleaved   1F1B over v chunks of layers on each device                      (Narayanan et al., SC'21)
    breadth_first GPipe over v chunks: all micro-batches through one after another (Lamy-Poirier 2022)
    zero_bubble   ZB-H1: weight gradients apart, where the device would wait       (Qi et al. 2024)
    zb_h2         the same with about twice as many micro-batches under way        (Qi et al. 2024)
    zb_v          the same over two chunks in a V: down the devices, and back up   (Qi et al. 2024)
    dualpipe      micro-batches enter at both ends; each device holds two stages   (DeepSeek-V3, 2024)
    dualpipe_v    DualPipe cut in half: the far direction is the way back of a V   (DeepSeek, Sea AI Lab 2025)

The closed forms are the same for every m that runs. DualPipe needs m >= 2p; with less than m = 2p - 1 zb_v leaves out of its order
what does not exist, as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

from mlsysim.errors import InputError
from mlsysim.units.records import dataclass

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "forward", "backward", "input gradient", "weight gradient"


@dataclass(frozen=True, slots=True)
class Task:
    """One operation of a device: a pass of one micro-batch through one stage of the model (its layers in order)."""

    kind: str
    micro_batch: int
    stage: int


# What a device does in turn. The tasks of a pair run back to back, and hand on their results when the last has ended.
Order = list[Task | tuple[Task, Task]]


def _all_forward_first(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """All micro-batches through one chunk after the other, and back the same way."""
    passes = [(k, chunk * stages + device) for chunk in range(chunks) for k in range(micro_batches)]
    return [*(Task(FORWARD, *one) for one in passes), *(Task(BACKWARD, *one) for one in reversed(passes))]


def _one_forward_one_backward(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    forward, backward = ([Task(kind, k, device) for k in range(micro_batches)] for kind in (FORWARD, BACKWARD))
    return _alternate(forward, backward, stages - device - 1)


def interleaved(device: int, stages: int, micro_batches: int, chunks: int, group: int | None = None) -> Order:
    """Micro-batches pass in groups through one chunk after the other, backward through the chunks in reverse."""
    if chunks == 1:  # this order would only run further ahead
        return _one_forward_one_backward(device, stages, micro_batches, chunks)
    groups = max(1, micro_batches // stages)
    sizes = [(micro_batches + k) // groups for k in reversed(range(groups))]
    if group is not None:
        sizes = [min(group, micro_batches - first) for first in range(0, micro_batches, group)]
    forward, backward, first = [], [], 0
    for size in sizes:
        for chunk in range(chunks):
            for k in range(first, first + size):
                forward.append(Task(FORWARD, k, chunk * stages + device))
                backward.append(Task(BACKWARD, k, (chunks - 1 - chunk) * stages + device))
        first += size
    return _alternate(forward, backward, 2 * (stages - device - 1) + (chunks - 1) * sizes[0])


def _alternate(forward: list[Task], backward: list[Task], warm_up: int) -> Order:
    """``warm_up`` forward passes, then one forward and one backward in turn, then the backward passes that are left."""
    ahead = min(warm_up, len(forward))
    order: Order = [*forward[:ahead]]
    for both in zip(forward[ahead:], backward, strict=False):
        order += both
    return order + backward[len(forward) - ahead :]


def _zero_bubble(device: int, stages: int, micro_batches: int, chunks: int, further: int = 1) -> Order:
    """1F1B with weight gradients that lag ``device`` micro-batches behind, so that the last stages do not wait at the end.

    A device takes up a new micro-batch only after a weight gradient has let one go: no more are held than in 1F1B. ZB-H2 runs and
    lags ``further``, twice as far, so that no device waits between its first and its last operation.
    """
    started, lag = min(further * (stages - device - 1) + 1, micro_batches), further * device
    order: Order = [Task(FORWARD, k, device) for k in range(started)]
    for k in range(micro_batches):
        order.append(Task(INPUT_GRADIENT, k, device))
        if k >= lag:
            order.append(Task(WEIGHT_GRADIENT, k - lag, device))
        if started < micro_batches:
            order.append(Task(FORWARD, started, device))
            started += 1
    settled = max(micro_batches - lag, 0)
    return order + [Task(WEIGHT_GRADIENT, k, device) for k in range(settled, micro_batches)]


def _zero_bubble_v(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """ZB-V: fill the way down, then both ways, then one pass of each kind in turn; at the end weight gradients fill the gaps."""
    most, left = max(micro_batches, 2 * stages - 1), stages - device
    down, up = device, 2 * stages - 1 - device
    coming = {(kind, stage): count() for kind in (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT) for stage in (down, up)}
    order: list[Task] = []

    def add(stage: int, *kinds: str) -> None:
        order.extend(Task(kind, next(coming[kind, stage]), stage) for kind in kinds)

    def turn(stage: int) -> None:
        add(stage, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)

    for _ in range(2 * left - 1):
        add(down, FORWARD)
    for _ in range(device):
        add(up, FORWARD)
        add(down, FORWARD)
    for _ in range(left):
        turn(up)
    for _ in range(most - stages - left + 1):
        turn(down)
        turn(up)
    for _ in range(left - 1):
        add(down, INPUT_GRADIENT, WEIGHT_GRADIENT)
        turn(up)
    for _ in range(device):
        add(down, INPUT_GRADIENT)
        add(up, INPUT_GRADIENT)
    for _ in range(left):
        add(down, INPUT_GRADIENT, WEIGHT_GRADIENT)
    for stage in (up, down):
        add(stage, *[WEIGHT_GRADIENT] * device)
    return [task for task in order if task.micro_batch < micro_batches]


def _dualpipe(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    """DualPipe: a device is stage ``depth`` for micro-batches that enter at the nearer end, else stage p - 1 - depth."""
    if stages % 2:
        raise InputError(f"DualPipe needs an even number of stages, got {stages}.", field="stages")
    if micro_batches % 2 or micro_batches < 2 * stages:
        raise InputError(
            f"DualPipe needs an even number of micro-batches, at least two per stage ({2 * stages}), got {micro_batches}.",
            field="micro_batches",
        )
    depth, half = min(device, stages - 1 - device), micro_batches // 2
    near, far = (range(half), range(half, micro_batches))[:: 1 if device < stages // 2 else -1]
    return _both_ways(depth, stages // 2, half, (depth, near), (stages - 1 - depth, far))


def _dualpipe_v(device: int, stages: int, micro_batches: int, chunks: int) -> Order:
    if micro_batches < 2 * stages:
        raise InputError(
            f"DualPipeV needs at least two micro-batches per stage ({2 * stages}), got {micro_batches}.",
            field="micro_batches",
        )
    every = range(micro_batches)
    return _both_ways(device, stages, micro_batches, (device, every), (2 * stages - 1 - device, every))


def _both_ways(depth: int, turn: int, half: int, near: tuple[int, range], far: tuple[int, range]) -> Order:
    """Order of one device of DualPipe (DeepSeek-V3, 2024, figure 5), ``depth`` from an end, with ``turn`` devices up to the middle.

    ``near`` and ``far`` are its stages and their micro-batches for what comes from that end and what comes from the middle. In
    the middle of the step a forward pass of one direction is paired with a backward pass of the other, which hides the
    communication of both.
    """
    coming = {(kind, stage): iter(each) for kind in (FORWARD, BACKWARD) for stage, each in (near, far)}
    owed: list[Task] = []

    def task(kind: str, side: tuple[int, range]) -> Task:
        return Task(kind, next(coming[kind, side[0]]), side[0])

    def input_gradient(side: tuple[int, range]) -> Task:
        whole = task(BACKWARD, side)
        owed.append(replace(whole, kind=WEIGHT_GRADIENT))
        return replace(whole, kind=INPUT_GRADIENT)

    # Fill from the near end, meet the far direction, run both in pairs, drain with weight gradients in the gaps.
    from_middle, shared = turn - depth - 1, depth + 1
    order: Order = [task(FORWARD, near) for _ in range(2 * from_middle)]
    for _ in range(shared):
        order += [task(FORWARD, near), task(FORWARD, far)]
    for _ in range(from_middle):
        order += [input_gradient(far), owed.pop(0), task(FORWARD, far)]
    for k in range(half - 2 * turn + shared):
        pair = task(FORWARD, near), task(BACKWARD, far)
        # In the middle the first two have nothing to hide and run apart.
        order += [pair] if k or from_middle else [*pair]
        order.append((task(FORWARD, far), task(BACKWARD, near)))
    for _ in range(from_middle):
        order += [task(BACKWARD, far), (task(FORWARD, far), task(BACKWARD, near))]
    # The second half of the last backward passes keeps its weight gradients for the gaps that follow.
    for step in range(2 * shared):
        side = near if step % 2 else far
        order.append(task(BACKWARD, side) if step < shared else input_gradient(side))
    for _ in range(from_middle):
        order += [owed.pop(0), input_gradient(near)]
    return order + owed


ORDERS: dict[str, Callable[..., Order]] = {
    "gpipe": _all_forward_first, "1f1b": _one_forward_one_backward, "interleaved": interleaved,
    "breadth_first": _all_forward_first, "zero_bubble": _zero_bubble, "zb_h2": partial(_zero_bubble, further=2),
    "zb_v": _zero_bubble_v, "dualpipe": _dualpipe, "dualpipe_v": _dualpipe_v,
}  # fmt: skip
