"""Passes of timm's networks on the machine at hand: what coefficients of a stack carry over to.

    python benchmarks/measure_vision.py OUT.csv [SECONDS [compiled|half]]

Needs PyTorch and timm. Random weights and images, channels last, mixed precision (bf16), convolutions tuned by trying (``cudnn.benchmark``, as timm's own tables have it); ``eager`` launches operators one by one, ``graph``
captures them in a CUDA graph, ``compiled`` is ``torch.compile`` as it comes; ``nchw`` leaves out channels last, and ``half`` has weights and images in
bf16 throughout, without mixed precision. A training step is forward, backward and SGD with momentum. Networks are
compiled by several processes at once, which take turns at the device when all are compiled; the last argument runs those alone. Batches are large, so that
the device is waited for: a process that holds many compiled networks launches slowly, looking for the one that is called.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, cast

from mlsysim.calibrate.device import Device
from mlsysim.calibrate.measurements import settings

COLUMNS = ("model", "img_size", "task", "how", "batch", "tuned", "seconds")
_COMPILING = 10
_SECONDS = 0.25

Job = tuple[str, int, str, str, int]
"""Network, image size, task, how it is run, batch."""


def work(device: Device, job: Job) -> Any:
    """One pass or step of a network, as a function."""
    name, size, task, how, batch = job
    torch, training = device.torch, task == "train"
    torch.backends.cudnn.benchmark = True
    half, layout = "half" in how, torch.contiguous_format if "nchw" in how else torch.channels_last
    network = _network(name, device.kind, half, layout).train(training)
    images = torch.randn(batch, 3, size, size, device=device.kind).contiguous(memory_format=layout)
    images = images.bfloat16() if half else images
    labels = torch.randint(10, (batch,), device=device.kind)
    called = torch.compile(network, dynamic=False) if how == "compiled" else network
    mixed = partial(torch.autocast, device.kind, torch.bfloat16, enabled=not half, cache_enabled=training)

    def forward() -> None:
        with torch.no_grad(), mixed():
            called(images)

    if not training:
        return forward
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        with mixed():
            loss = torch.nn.functional.cross_entropy(called(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@lru_cache(1)
def _network(name: str, kind: str, half: bool, layout: Any) -> Any:
    torch = import_module("torch")
    torch.manual_seed(0)
    with torch.device(kind):
        made = import_module("timm").create_model(name).to(memory_format=layout)
    return made.bfloat16() if half else made


def timed(device: Device, job: Job, run: Callable[[], None]) -> dict[str, Any]:
    """A row of the table."""
    found = min(
        device.time(run, _SECONDS, graph=job[3].startswith("graph"))[0] for _ in range(2 if job[3] == "compiled" else 1)
    )
    return dict(zip(COLUMNS, (*job, 1, f"{found:.6g}"), strict=True))


def warmed(device: Device, job: Job) -> Callable[[], None]:
    """A pass that has run, so that it is compiled and its convolutions are tuned."""
    run = work(device, job)
    for _ in range(3):
        run()
    device.synchronise()
    return cast("Callable[[], None]", run)


def crew(own: list[Job], until: float, ready: Any, turn: Any, rows: Any) -> None:
    """Compile one's jobs beside the others, and time them in turn when nobody compiles any more: operators are launched by a host that does nothing else."""
    device, runs = Device("cuda"), []
    for job in own:
        if time.time() < until:
            with suppress(Exception):
                runs.append((job, warmed(device, job)))
    with suppress(BrokenBarrierError):
        ready.wait(max(60.0, until + 60 - time.time()))
    with turn:
        for job, run in runs:
            rows.put(timed(device, job, run))
    rows.put(None)


def jobs(half: bool) -> tuple[list[Job], list[Job]]:
    """What is run: as PyTorch does without a compiler, and compiled; or ``half`` and without channels last."""
    table = settings("suite")["vision"]
    if half:
        ways = [("infer", how, batch) for how, batches in table["half"].items() for batch in batches]
        return [
            (*network, *way) for network in table["networks"] if network[0] not in table["apart"] for way in ways
        ], []
    ways = [("infer", how, batch) for how in ("eager", "graph") for batch in table[how]]
    ways += [("train", "eager", batch) for batch in table["steps"]]
    plain = [(name, size, *way) for name, size in table["networks"] for way in ways]
    tasks = [(task, "compiled", batch) for task, batches in table["compiled"].items() for batch in batches]
    return plain, [(name, size, *way) for way in tasks for name, size in table["networks"]]


def main(arguments: list[str]) -> None:
    """Measure and write, as rows come; begin to compile nothing after half of so many seconds."""
    start, limit = time.time(), float(arguments[1]) if len(arguments) > 1 else 600.0
    only = arguments[2:]
    plain, compiled = jobs(only == ["half"])
    with Path(arguments[0]).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for job in plain if only != ["compiled"] else ():
            if time.time() - start < (limit if only else limit / 3):
                try:
                    device = Device("cuda")
                    writer.writerow(timed(device, job, warmed(device, job)))
                    device.release()
                except Exception as error:
                    # One network that does not run here must not cost the others.
                    print(f"{job}: {type(error).__name__} {error}".splitlines()[0][:160], flush=True)
        spawn = get_context("spawn")
        ready, turn, rows = spawn.Barrier(_COMPILING), spawn.Lock(), spawn.Queue()
        for k in range(_COMPILING):
            spawn.Process(target=crew, args=(compiled[k::_COMPILING], start + limit / 2, ready, turn, rows)).start()
        done = 0
        while done < _COMPILING:
            row = rows.get()
            done += row is None
            if row is not None:
                writer.writerow(row)
                stream.flush()
    print(f"{time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
