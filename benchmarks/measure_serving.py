"""What identifies the constants of serving engines, on the machine at hand: launches, sampling, grouped products, latent attention.

    python benchmarks/measure_serving.py OUT.csv

A row is an operator (``op``), its sizes, and its seconds: ``launch`` of one operator or of a graph by the host, ``sample`` of the next tokens of a
batch with their copy to the host, ``grouped`` products of experts (up, down) in one kernel each with tokens spread at random, ``latent``
attention of one query on a compressed cache with the up-projection absorbed.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mlsysim.calibrate.device import Device
from mlsysim.calibrate.measurements import settings

COLUMNS = ("op", "how", "dtype", "batch", "experts", "per_token", "hidden", "width", "heads", "context", "seconds")
_CALLS = 300
_SECONDS = 0.05

Row = tuple[dict[str, Any], Callable[[], float]]


def rows(device: Device) -> Iterator[Row]:
    """Every row, with a function that measures it."""
    sizes = settings("suite")["serving"]
    yield from _launches(device)
    for batch in sizes["sampled"]:
        for how in ("argmax", "softmax"):
            yield (
                {"op": "sample", "how": how, "batch": batch, "width": sizes["vocabulary"]},
                _sampling(device, how, batch, sizes["vocabulary"]),
            )
    for experts, chosen, hidden, width in sizes["experts"]:
        for batch in sizes["tokens"]:
            for dtype in ("bf16", "fp8"):
                row = {"op": "grouped", "dtype": dtype, "batch": batch, "experts": experts, "per_token": chosen}
                yield (
                    row | {"hidden": hidden, "width": width},
                    _grouped(device, dtype, batch, experts, chosen, hidden, width),
                )
    for heads in sizes["latent_heads"]:
        for batch, context in sizes["caches"]:
            row = {"op": "latent", "dtype": "bf16", "batch": batch, "heads": heads, "context": context}
            yield row, _latent(device, batch, heads, context)


def _host(device: Device, work: Callable[[], Any], calls: int = _CALLS) -> float:
    """Seconds that the host needs to start one of many."""
    for _ in range(3):
        work()
    device.synchronise()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    found = time.perf_counter() - start
    device.synchronise()
    return found / calls


def _added(x: Any, times: int) -> None:
    for _ in range(times):
        x.add_(1.0)


def _replayed(device: Device, graph: Any) -> float:
    return device.time(graph.replay, _SECONDS, graph=False)[0]


def _launches(device: Device) -> Iterator[Row]:
    torch, functional = device.torch, device.torch.nn.functional
    x, weight = (torch.zeros(64, 64, device=device.kind, dtype=torch.bfloat16) for _ in range(2))
    for how, work in {
        "add": lambda: x.add_(1.0),
        "norm": lambda: functional.rms_norm(x, (64,), x[0]),
        "linear": lambda: functional.linear(x, weight),
        "empty": lambda: torch.empty(64, device=device.kind),
    }.items():
        yield {"op": "launch", "how": how}, partial(_host, device, work)
    for nodes in (1, 100, 1000):
        graph = device._capture(partial(_added, x, nodes))
        yield {"op": "launch", "how": "graph", "batch": nodes}, partial(_host, device, graph.replay, 30)
        row = {"op": "launch", "how": "graph nodes", "batch": nodes}
        yield row, partial(_replayed, device, graph)


def _sampling(device: Device, how: str, batch: int, vocabulary: int) -> Callable[[], float]:
    torch = device.torch

    def call() -> float:
        logits = torch.randn(batch, vocabulary, device=device.kind, dtype=torch.bfloat16)

        def work() -> None:
            if how == "argmax":
                logits.argmax(-1).tolist()
            else:
                torch.multinomial(torch.softmax(logits.float() / 0.7, -1), 1).tolist()

        return _host(device, work, 30)

    return call


def _grouped(
    device: Device, dtype: str, batch: int, experts: int, chosen: int, hidden: int, width: int
) -> Callable[[], float]:
    torch = device.torch

    def call() -> float:
        drawn = torch.rand(batch, experts, device=device.kind).topk(chosen, -1).indices.reshape(-1)
        ends = torch.bincount(drawn, minlength=experts).cumsum(0).to(torch.int32)
        if dtype == "fp8":
            # Groups must be whole tiles of 16 rows.
            counts = (torch.bincount(drawn, minlength=experts) + 15) // 16 * 16
            ends = counts.cumsum(0).to(torch.int32)
        total, kind = int(ends[-1]), device.dtype(dtype)

        def random(*shape: int) -> Any:
            return torch.empty(*shape, device=device.kind, dtype=torch.bfloat16).normal_(0, 0.05)

        inputs, inner = random(total, hidden).to(kind), random(total, width).to(kind)
        copies = max(1, min(4, int(2e9 // (6 * experts * hidden * width))))
        up = [random(experts, 2 * width, hidden).to(kind).transpose(1, 2) for _ in range(copies)]
        down = [random(experts, hidden, width).to(kind).transpose(1, 2) for _ in range(copies)]
        if dtype == "bf16":

            def multiply(x: Any, w: Any) -> Any:
                return torch._grouped_mm(x, w, offs=ends)
        else:

            def multiply(x: Any, w: Any) -> Any:
                left, right = (
                    torch.ones(total, device=device.kind),
                    torch.ones(experts, w.shape[-1], device=device.kind),
                )
                return torch._scaled_grouped_mm(
                    x, w, left, right, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
                )

        def work() -> None:
            for a, b in zip(up, down, strict=True):
                multiply(inputs, a)
                multiply(inner, b)

        return device.time(work, _SECONDS, calls=copies)[0]

    return call


def _latent(device: Device, batch: int, heads: int, context: int) -> Callable[[], float]:
    torch = device.torch

    def call() -> float:
        query = torch.randn(batch, heads, 576, device=device.kind, dtype=torch.bfloat16)
        cache = torch.randn(batch, context, 576, device=device.kind, dtype=torch.bfloat16)
        return device.time(lambda: torch.softmax(query @ cache.transpose(1, 2), -1) @ cache[..., :512], _SECONDS)[0]

    return call


def main(arguments: list[str]) -> None:
    """Measure and write."""
    device = Device("cuda")
    with Path(arguments[0]).open("w", newline="", encoding="utf-8") as stream, device.torch.no_grad():
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        for row, call in rows(device):
            try:
                writer.writerow(row | {"seconds": f"{call():.6g}"})
                stream.flush()
            except Exception as error:
                print(f"{row}: {type(error).__name__} {error}".splitlines()[0][:160], flush=True)
            device.release()


if __name__ == "__main__":
    main(sys.argv[1:])
