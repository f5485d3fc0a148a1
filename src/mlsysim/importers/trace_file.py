"""Events of a Chrome trace, as PyTorch's profiler and other tools write them: read with limits, sorted into what ran on a device.

A file is JSON (or its gzip), a table with ``traceEvents`` or a bare list. Complete events (``ph`` "X") have a start and a length in
microseconds. PyTorch marks what ran on a GPU by ``cat`` (kernel, gpu_memcpy, gpu_memset) and gives each the ``External id`` of the
operator that launched it, whose shapes it records when asked (``record_shapes=True``). JAX names the processes of devices
``/device:...`` and a thread ``XLA Ops``. In a trace without any device, operators of the host are taken, each with its own time:
its length less that of the operators inside it.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import existing, load_json, read_bounded, size_in_words
from mlsysim.units.records import dataclass

LARGEST_TRACE = 1_000_000_000
_MOST_EVENTS = 10_000_000
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_DEVICE = re.compile(r"/device:|^(TPU|GPU|XPU)[: ]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that ran: seconds on a clock of the trace, where, and the arguments that the profiler wrote beside it."""

    name: str
    start: float
    length: float
    device: str
    stream: str
    arguments: dict[str, Any]
    operator: str = ""

    @property
    def end(self) -> float:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Trace:
    """What ran on devices (or on the host, where there is no device), the steps, and what the devices are called."""

    name: str
    events: tuple[Event, ...]
    steps: tuple[tuple[float, float], ...]
    device_names: tuple[str, ...]
    on_host: bool
    skipped: int


def looks_like_trace(place: Path) -> bool:
    """Whether a file is a trace, by its name and its beginning."""
    name = place.name.lower()
    if name.endswith(".json.gz"):
        return True
    if not name.endswith((".json", ".trace")):
        return False
    head = read_bounded(place, LARGEST_TRACE, at_most=1 << 18).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"[") or b'"traceEvents"' in head


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file."""
    place = existing(path)
    data = read_bounded(place, LARGEST_TRACE)
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data, place.name)
    document = load_json(data, name=place.name, finite=False, once=False)
    table = document if isinstance(document, dict) else {"traceEvents": document}
    listed, properties = table.get("traceEvents"), table.get("deviceProperties")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{place.name[:200]!r} is not a Chrome trace: it has no list of traceEvents.")
    if len(listed) > _MOST_EVENTS:
        raise InputError(f"{place.name[:200]!r} has more than {_MOST_EVENTS:,} events; record fewer steps.")
    named = [p.get("name") for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    return _sorted(place.name, listed, tuple(n for n in named if isinstance(n, str)))


def _unzipped(data: bytes, name: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            plain = stream.read(LARGEST_TRACE + 1)
    except (OSError, EOFError, zlib.error):
        raise InputError(f"{name[:200]!r} is a damaged gzip file.") from None
    if len(plain) > LARGEST_TRACE:
        raise InputError(f"{name[:200]!r} unpacks to more than {size_in_words(LARGEST_TRACE)}.")
    return plain


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if known else None


def _sorted(name: str, listed: list[Any], device_names: tuple[str, ...]) -> Trace:
    devices, hosts, steps = [], [], []
    processes: dict[str, str] = {}
    threads: dict[tuple[str, str], str] = {}
    operators: dict[Any, tuple[str, dict[str, Any]]] = {}
    skipped = 0
    for raw in listed:
        if not isinstance(raw, dict):
            skipped += 1
            continue
        phase, arguments = raw.get("ph"), raw.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        process, thread = str(raw.get("pid", "")), str(raw.get("tid", ""))
        if phase == "M":
            label = str(arguments.get("name", ""))
            if raw.get("name") == "process_name":
                processes[process] = label
            elif raw.get("name") == "thread_name":
                threads[process, thread] = label
            continue
        if phase != "X":
            continue
        start, length = _number(raw.get("ts")), _number(raw.get("dur"))
        if start is None or length is None or length < 0 or not isinstance(raw.get("name"), str):
            skipped += 1
            continue
        kind = raw.get("cat")
        if step := _STEP.match(raw["name"]):
            if kind != "gpu_user_annotation":
                steps.append((start * 1e-6, (start + length) * 1e-6, int(step[1])))
            continue
        event = Event(raw["name"], start * 1e-6, length * 1e-6, process, thread, arguments)
        if kind in _ON_DEVICE:
            device, stream = (str(arguments.get(key, own)) for key, own in (("device", process), ("stream", thread)))
            devices.append(replace(event, device=device, stream=stream))
        elif kind == "cpu_op":
            hosts.append(event)
            key = arguments.get("External id")
            if isinstance(key, (int, str)):
                operators[key] = (raw["name"], arguments)
        elif not isinstance(kind, str) or kind in ("", "op", "Op", "Operator"):
            hosts.append(event)
    if not devices:
        found = {process for process, label in processes.items() if _DEVICE.search(label)}
        ops = {key for key, label in threads.items() if key[0] in found and label in ("XLA Ops", "TensorFlow Ops")}
        devices = [e for e in hosts if (e.device, e.stream) in ops] or [e for e in hosts if e.device in found]
        if devices:
            marked = [e for e in hosts if threads.get((e.device, e.stream)) == "Steps"]
            steps += [(e.start, e.end, i) for i, e in enumerate(marked)]
            device_names = device_names or tuple(processes[p] for p in sorted(found))
    on_host = not devices
    events = _own_times(hosts) if on_host else [_launched(event, operators) for event in devices]
    if not any(event.length for event in events):
        raise InputError(f"{name[:200]!r} has no event with a length, so there is nothing measured in it.")
    ordered = tuple(sorted({number: (a, b) for a, b, number in sorted(steps)}.values()))
    return Trace(name, tuple(events), ordered, device_names, on_host, skipped)


def _launched(event: Event, operators: dict[Any, tuple[str, dict[str, Any]]]) -> Event:
    """The event with the name and the shapes of the operator that launched it."""
    key = event.arguments.get("External id")
    found = operators.get(key) if isinstance(key, (int, str)) else None
    if found is None:
        return event
    shapes: dict[str, Any] = {k: found[1][k] for k in ("Input Dims", "Input type", "Concrete Inputs") if k in found[1]}
    return replace(event, operator=found[0], arguments={**event.arguments, **shapes})


def _own_times(hosts: Iterable[Event]) -> list[Event]:
    """Operators of the host, each without the time of those inside it."""
    by_thread: dict[tuple[str, str], list[Event]] = {}
    for event in hosts:
        by_thread.setdefault((event.device, event.stream), []).append(event)
    found = []
    for events in by_thread.values():
        events.sort(key=lambda e: (e.start, -e.length))
        own = [event.length for event in events]
        open_: list[int] = []
        for i, event in enumerate(events):
            while open_ and events[open_[-1]].end <= event.start:
                open_.pop()
            if open_:
                own[open_[-1]] -= event.length
            open_.append(i)
        found += [
            replace(event, length=max(0.0, time), device="host", operator=event.name)
            for event, time in zip(events, own, strict=True)
        ]
    return found
