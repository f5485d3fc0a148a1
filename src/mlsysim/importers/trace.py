"""Measured operators from a profiler's trace: where the time of a step went, and how near to the chip's limits.

    busy            length of the union of all intervals in which the device ran something
    idle            step - busy: waiting for the host, for data, for other devices, and for the profiler itself
    exposed         length of the union of collectives less what other kernels cover
    eta of a kind   operations / time / peak (products, convolutions, attention) or bytes / time / bandwidth (the others), over the
                    kernels whose operator recorded its shapes

A profiler slows the host, so idle time is an upper bound of what runs without it: on an H200 that trained a small transformer a
step was 18.7 ms under the profiler, 10.3 ms of them busy, and 10.6 ms without. Kinds are told by names of kernels, which is a
convention and no promise; what no rule knows is ``other``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.importers.boards import board_named
from mlsysim.importers.trace_file import Event, load_trace
from mlsysim.importers.trace_kinds import COMMUNICATION, COMPUTE, kind_of, precision_of, work_of
from mlsysim.units.fields import Record
from mlsysim.units.registry import to_si
from mlsysim.walls.document import Document

Interval = tuple[float, float]


class KernelTime(Record):
    """All calls of one kernel for operators of one shape: times are seconds over the whole trace."""

    name: str
    kind: str
    operator: str = ""
    count: int
    time: float
    flops: float | None = None
    bytes: float | None = None
    precision: str | None = None


class KindTime(Record):
    """All kernels of a kind: seconds a step, its share of the busy time, and what is known of its efficiency."""

    kind: str
    count: int
    time: float
    share: float
    flops: float | None = None
    bytes: float | None = None
    known: float = 0.0
    """Share of the time whose operations (or bytes) the trace tells."""
    eta: float | None = None
    of: str | None = None
    """What eta is a fraction of."""


class TraceReport(Document, Record):
    """A trace, measured. Times are in seconds; ``step``, ``busy``, ``idle`` and ``exposed_communication`` are of one step."""

    beside: ClassVar = ("type", "what_if")
    type: ClassVar = "trace"

    name: str
    chip: str | None
    device_name: str | None
    devices: int
    steps: int
    step: float
    busy: float
    idle: float
    communication: float
    exposed_communication: float
    precision: str | None
    kinds: tuple[KindTime, ...]
    kernels: tuple[KernelTime, ...]
    on_host: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The report in sentences, the longest kinds first."""
        where = self.chip or self.device_name or ("the host" if self.on_host else "an unnamed device")
        lines = [
            f"{self.name}: {self.steps} step{'s' if self.steps > 1 else ''} on {where}, {self.step * 1e3:.4g} ms each: "
            f"{self.busy * 1e3:.4g} ms busy, {self.idle * 1e3:.4g} ms ({self.idle / self.step:.0%}) idle."
        ]
        if self.communication:
            lines.append(
                f"Communication takes {self.communication * 1e3:.4g} ms a step, of which {self.exposed_communication * 1e3:.4g} ms "
                "are not hidden behind other kernels."
            )
        for kind in self.kinds:
            eta = "" if kind.eta is None else f", {kind.eta:.0%} of {kind.of} over {kind.known:.0%} of its time"
            lines.append(f"  {kind.kind}: {kind.time * 1e3:.4g} ms ({kind.share:.0%}){eta}")
        return "\n".join([*lines, *self.warnings])


def union_length(intervals: Iterable[Interval]) -> float:
    """Length of the union of intervals.

    >>> union_length([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return float(sum(b - a for a, b in merged))


def chip_of(chip: str | HardwareNode | None) -> HardwareNode | None:
    """A chip by name or as it is; None stays None."""
    return chip if chip is None or isinstance(chip, HardwareNode) else Hardware.get(chip)


def read_trace(path: str | os.PathLike[str], chip: str | HardwareNode | None = None) -> TraceReport:
    """The report on a trace of PyTorch's profiler, or another in Chrome's form; ``chip`` where the trace does not name it."""
    trace, chip = load_trace(path), chip_of(chip)
    warnings: list[str] = []
    named = trace.device_names[0] if trace.device_names else None
    if chip is None and named is not None and not trace.on_host:
        chip = board_named(named)
        if chip is None:
            warnings.append(f"The zoo has no chip named {named[:80]!r}; name one to get efficiencies.")
    elif chip is None:
        warnings.append("The trace does not name its device; name a chip to get efficiencies.")
    by_device: dict[str, list[Event]] = {}
    for event in trace.events:
        by_device.setdefault(event.device, []).append(event)
    first = trace.steps[0][0] if trace.steps else None
    busiest = max(by_device.values(), key=_busy)
    inside = [e for e in busiest if first is None or e.start >= first] or busiest
    begin = first if first is not None and inside is not busiest else min(e.start for e in inside)
    end = max(e.end for e in inside)
    count = 1
    if trace.steps and begin == first:
        end, count = max(end, trace.steps[-1][1]), len(trace.steps)
    else:
        warnings.append("The trace marks no steps, so all of it counts as one; call profiler.step() after each step.")
    if trace.skipped:
        warnings.append(f"{trace.skipped:,} events have no name, start or length and were left out.")
    busy, step = _busy(inside) / count, (end - begin) / count
    if trace.on_host:
        # Operators of the host carry their own times, which do not overlap within a thread.
        busy = min(step, sum(e.length for e in inside) / count) if step else busy
        warnings.append("No device is in the trace: the operators are those of the host, with their own time.")
    if step <= 0:
        raise InputError(f"{trace.name[:200]!r} has steps without length.")
    kernels = _kernels(inside)
    talking = [e for e in inside if kind_of(e.name) == COMMUNICATION]
    working = [e for e in inside if kind_of(e.name) != COMMUNICATION]
    precision = _precision(kernels)
    return TraceReport(
        name=trace.name,
        chip=None if chip is None else chip.metadata.key or chip.name,
        device_name=named,
        devices=len(by_device),
        steps=count,
        step=step,
        busy=min(busy, step),
        idle=max(0.0, step - busy),
        communication=_busy(talking) / count,
        exposed_communication=(_busy(inside) - _busy(working)) / count,
        precision=precision,
        kinds=_kinds(kernels, count, chip, precision, warnings),
        kernels=kernels,
        on_host=trace.on_host,
        warnings=tuple(warnings),
    )


def _busy(events: Iterable[Event]) -> float:
    return union_length((e.start, e.end) for e in events)


def _kernels(events: list[Event]) -> tuple[KernelTime, ...]:
    """Calls that are alike, together; an operator's work is charged once, to its longest kernel."""
    longest: dict[Any, Event] = {}
    for event in events:
        key = event.arguments.get("External id")
        if event.operator and isinstance(key, (int, str)):
            longest[key] = max(longest.get(key, event), event, key=lambda e: e.length)
    grouped: dict[tuple[Any, ...], list[float]] = {}
    for event in events:
        flops = moved = precision = None
        dims = event.arguments.get("Input Dims")
        if event.operator and isinstance(dims, list):
            lists = (event.arguments.get(key) for key in ("Input type", "Concrete Inputs"))
            types, concrete = (found if isinstance(found, list) else [] for found in lists)
            flops, moved = work_of(event.operator, dims, types, concrete)
            precision = precision_of(types, event.name)
            if longest.get(event.arguments.get("External id"), event) is not event:
                # A further kernel of the same operator: its work is charged already, its time still counts.
                flops, moved = (None if work is None else 0.0 for work in (flops, moved))
        size = event.arguments.get("bytes")
        if isinstance(size, (int, float)) and not isinstance(size, bool) and 0 <= size < 1e18:
            moved = float(size) * (2 if "DtoD" in event.name else 1)
        entry = grouped.setdefault((event.name, event.operator, flops, moved, precision), [0, 0.0])
        entry[0] += 1
        entry[1] += event.length
    names = ("operator", "flops", "bytes", "precision")
    found = [
        KernelTime(name=_short(name), kind=kind_of(name), count=int(n), time=t, **dict(zip(names, rest, strict=True)))
        for (name, *rest), (n, t) in grouped.items()
    ]
    return tuple(sorted(found, key=lambda kernel: -kernel.time))


def _short(name: str) -> str:
    plain = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return plain if len(plain) <= 120 else plain[:117] + "..."


def _precision(kernels: Iterable[KernelTime]) -> str | None:
    """The format in which most operations ran."""
    totals: dict[str, float] = {}
    for kernel in kernels:
        if kernel.flops and kernel.precision:
            totals[kernel.precision] = totals.get(kernel.precision, 0.0) + kernel.flops * kernel.count
    return max(totals, key=lambda key: totals[key], default=None)


def _kinds(
    kernels: Iterable[KernelTime], steps: int, chip: HardwareNode | None, precision: str | None, warnings: list[str]
) -> tuple[KindTime, ...]:
    by_kind: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        by_kind.setdefault(kernel.kind, []).append(kernel)
    total = sum(kernel.time for group in by_kind.values() for kernel in group) or 1.0
    found = []
    for kind, group in by_kind.items():
        time = sum(kernel.time for kernel in group)
        computes = kind in COMPUTE
        told = [k for k in group if (k.flops if computes else k.bytes) is not None]
        told_time = sum(k.time for k in told)
        flops = sum(k.flops * k.count for k in group if k.flops) or None
        moved = sum(k.bytes * k.count for k in group if k.bytes) or None
        eta = of = None
        if chip is not None and told_time > 0 and kind != COMMUNICATION and "host" not in kind:
            ideal, of = _ideal(told, chip, precision, computes)
            eta = None if ideal is None else ideal / told_time
            if eta is not None and eta > 1 and computes:
                warnings.append(
                    f"{kind} runs at {eta:.2g} times the peak of {chip.name}: the shapes or the precision of the trace are not what ran."
                )
        found.append(
            KindTime(
                kind=kind,
                count=sum(k.count for k in group),
                time=time / steps,
                share=time / total,
                flops=flops and flops / steps,
                bytes=moved and moved / steps,
                known=told_time / time if time else 0.0,
                eta=eta,
                of=None if eta is None else of,
            )
        )
    return tuple(sorted(found, key=lambda item: -item.time))


def _ideal(
    kernels: Iterable[KernelTime], chip: HardwareNode, default: str | None, computes: bool
) -> tuple[float | None, str]:
    """Seconds at the peak of the precision of each product, or at the bandwidth of the memory."""
    if not computes:
        moved = sum((k.bytes or 0.0) * k.count for k in kernels)
        return moved / to_si(chip.memory.bandwidth, "byte/s"), "the memory bandwidth"
    total, used = 0.0, set()
    for kernel in kernels:
        precision = kernel.precision or default
        if precision is None or not chip.compute.supports(precision):
            return None, ""
        used.add(precision)
        total += (kernel.flops or 0.0) * kernel.count / to_si(chip.compute.peak(precision), "flop/s")
    return total, f"the {' and '.join(sorted(used))} peak"
