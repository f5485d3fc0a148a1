"""``calibrate --measure``: a short suite of kernels on the machine at hand, as the rows that a calibration reads.

Products over a grid of sizes for each precision, attention over a sequence and on a cache, copies, unfused elementwise
operators, and the cost of a launch. Weights and caches are rotated so that they come from memory, not from a cache. The suite
keeps to its time: sizes come in an order in which any beginning of it is useful, and what was left out is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from mlsysim.calibrate.attention_kernel import decode_attention, fastest, prefill_attention
from mlsysim.calibrate.device import Device
from mlsysim.calibrate.samples import MOST
from mlsysim.errors import InputError
from mlsysim.physics.precision import bytes_per_element

_MOST_COPIES = 16
_PER_ROW = 0.08
"""Seconds that a size is repeated for, at most."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes of a suite. Products are (m, n, k); attention (batch, heads, key heads, head size, length)."""

    products: dict[str, tuple[tuple[int, int, int], ...]]
    attention: tuple[tuple[int, int, int, int, int], ...]
    decode: tuple[tuple[int, int, int, int, int], ...]
    copies: tuple[int, ...]
    elementwise: tuple[tuple[int, int], ...]
    dtype: str


_WIDE, _SQUARE, _TALL = (28672, 4096), (4096, 4096), (4096, 14336)

GRIDS = {
    "gpu": Grid(
        products={
            "bf16": tuple(
                (m, n, k) for m in (4096, 1, 64, 512, 16, 2048) for n, k in (_WIDE, _SQUARE, _TALL)
            ),
            "fp8": ((4096, *_WIDE), (1, *_WIDE), (64, *_TALL), (512, *_SQUARE), (2048, *_TALL), (16, *_SQUARE)),
            "tf32": ((4096, *_SQUARE), (64, *_SQUARE)),
            "fp32": ((2048, *_SQUARE),),
        },
        attention=((1, 32, 8, 128, 2048), (1, 32, 8, 128, 8192), (8, 32, 8, 128, 512), (1, 32, 8, 128, 512), (4, 32, 8, 128, 2048)),
        decode=((16, 32, 8, 128, 4096), (1, 32, 8, 128, 2048), (64, 32, 8, 128, 2048), (1, 32, 8, 128, 32768), (64, 32, 8, 128, 8192)),
        copies=(1 << 30, 1 << 22, 1 << 26),
        elementwise=((16384, 4096), (64, 4096), (2048, 4096)),
        dtype="bf16",
    ),
    "cpu": Grid(
        products={
            "fp32": ((512, 1024, 1024), (1, 4096, 4096), (64, 1024, 1024), (256, 2048, 2048), (16, 4096, 1024)),
            "bf16": ((512, 1024, 1024), (1, 4096, 4096), (64, 2048, 2048)),
        },
        attention=((1, 16, 16, 64, 512), (1, 16, 16, 64, 1024), (4, 16, 16, 64, 256)),
        decode=((1, 16, 16, 64, 4096), (8, 16, 16, 64, 2048)),
        copies=(1 << 28, 1 << 26, 1 << 20),
        elementwise=((8192, 1024), (64, 1024)),
        dtype="fp32",
    ),
    "tiny": Grid(
        products={"fp32": ((64, 128, 128), (1, 256, 256), (128, 256, 256))},
        attention=((1, 4, 2, 32, 64),),
        decode=((1, 4, 2, 32, 128),),
        copies=(1 << 20, 1 << 16),
        elementwise=((256, 128),),
        dtype="fp32",
    ),
}  # fmt: skip
"""The sizes of ``calibrate --measure``; "tiny" is for machines that are only to be tried."""

_TORCH_TYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "tf32": "float32",
    "fp8": "float8_e4m3fn",
    "fp64": "float64",
}


@dataclass
class Measured:
    """Rows of the CSV, and what could not be measured."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    device: str = ""
    seconds: float = 0.0


def measure(device: Device, seconds: float = 60.0, grid: str | Grid | None = None) -> Measured:
    """Run the suite for at most about ``seconds``."""
    if not 0 < seconds <= 3600:
        raise InputError(f"the time of a suite must be above 0 and at most 3600 seconds, got {seconds:g}.")
    sizes = GRIDS[grid] if isinstance(grid, str) else grid or GRIDS["gpu" if device.gpu else "cpu"]
    torch = device.torch
    result = Measured(device=device.name)
    start = time.perf_counter()
    late = 0
    torch.manual_seed(0)
    with torch.no_grad():
        for step in _interleaved(_Suite(device, sizes).steps()):
            if len(result.rows) == MOST:
                break
            if time.perf_counter() - start > seconds:
                late += 1
                continue
            row, call = step
            try:
                row["seconds"] = f"{call():.6g}"
                result.rows.append(row)
            except (RuntimeError, NotImplementedError, ValueError, AttributeError) as error:
                what = f"{row['op']} {row.get('dtype', '')}".strip()
                result.notes.append(f"{what} cannot run here: {str(error).splitlines()[0][:120]}")
            device.release()
    if late:
        result.notes.append(f"{late} sizes were left out after {seconds:g} seconds.")
    result.notes = list(dict.fromkeys(result.notes))
    result.seconds = time.perf_counter() - start
    return result


Step = tuple[dict[str, Any], Callable[[], float]]


def _interleaved(groups: list[list[Step]]) -> Iterator[Step]:
    """The first of each group, then the second of each: any beginning holds every kind."""
    for place in range(max(map(len, groups))):
        for group in groups:
            if place < len(group):
                yield group[place]


class _Suite:
    """The steps of a suite: each a row without its time, and a function that measures it."""

    def __init__(self, device: Device, sizes: Grid) -> None:
        self.device = device
        self.torch = device.torch
        self.sizes = sizes

    def steps(self) -> list[list[Step]]:
        sizes = self.sizes
        groups: list[list[Step]] = [
            [self._product(dtype, *shape) for shape in shapes] for dtype, shapes in sizes.products.items()
        ]
        groups.append([self._attention(*shape) for shape in sizes.attention])
        groups.append([self._decode(*shape) for shape in sizes.decode])
        groups.append([self._copy(count) for count in sizes.copies])
        groups.append([self._elementwise(*shape) for shape in sizes.elementwise])
        groups.append([self._launch(mode) for mode in (("graph", "eager") if self.device.gpu else ("eager",))])
        groups.append([self._optimizer(max(sizes.copies) // 16)])
        return groups

    def _random(self, *shape: int, dtype: str) -> Any:
        data = self.torch.randn(*shape, device=self.device.kind)
        return data.to(getattr(self.torch, _TORCH_TYPES[dtype]))

    def _copies(self, size: float) -> int:
        """How many inputs of this size fill the cache a few times."""
        return int(min(max(3 * self.device.cache // size, 1), _MOST_COPIES))

    def _time(self, work: Callable[[], Any], calls: int, graph: bool = True) -> float:
        seconds, _ = self.device.time(work, _PER_ROW, graph=graph, calls=calls)
        return seconds

    def _product(self, dtype: str, m: int, n: int, k: int) -> Step:
        def call() -> float:
            torch = self.torch
            copies = self._copies(n * k * bytes_per_element(dtype))
            previous = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            try:
                left = self._random(m, k, dtype=dtype)
                weights = [self._random(n, k, dtype=dtype) for _ in range(copies)]
                multiply = self._multiply(dtype)
                return self._time(lambda: [multiply(left, weight) for weight in weights], copies)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = previous

        return {"op": "gemm", "m": m, "n": n, "k": k, "dtype": dtype, "mode": self._mode}, call

    def _multiply(self, dtype: str) -> Callable[[Any, Any], Any]:
        torch = self.torch
        if dtype != "fp8":
            return lambda left, weight: torch.matmul(left, weight.t())
        if not self.device.gpu:
            raise NotImplementedError("fp8 products need a GPU.")
        one = torch.ones((), device=self.device.kind)
        return lambda left, weight: torch._scaled_mm(
            left, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    @property
    def _mode(self) -> str:
        return "graph" if self.device.gpu else "compiled"

    def _attention(self, batch: int, heads: int, kv_heads: int, size: int, length: int) -> Step:
        dtype = self.sizes.dtype

        def call() -> float:
            q = self._random(batch, heads, length, size, dtype=dtype)
            k, v = (self._random(batch, kv_heads, length, size, dtype=dtype) for _ in range(2))
            forms = prefill_attention(self.device, True, heads != kv_heads)
            _, attend = fastest(self.device, forms, q, k, v)
            return self._time(lambda: [attend(q, k, v) for _ in range(4)], 4)

        return {"op": "attention", "seq": length, **self._heads(batch, heads, kv_heads, size)}, call

    def _decode(self, batch: int, heads: int, kv_heads: int, size: int, length: int) -> Step:
        dtype = self.sizes.dtype

        def call() -> float:
            q = self._random(batch, heads, 1, size, dtype=dtype)
            cached = 2 * batch * kv_heads * length * size * bytes_per_element(dtype)
            caches = [
                tuple(self._random(batch, kv_heads, length, size, dtype=dtype) for _ in range(2))
                for _ in range(self._copies(cached))
            ]
            _, attend = fastest(self.device, decode_attention(self.device, heads // kv_heads), q, *caches[0])
            return self._time(lambda: [attend(q, k, v) for k, v in caches], len(caches))

        return {"op": "decode_attention", "context": length, **self._heads(batch, heads, kv_heads, size)}, call

    def _heads(self, batch: int, heads: int, kv_heads: int, size: int) -> dict[str, Any]:
        return {
            "batch": batch,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": size,
            "dtype": self.sizes.dtype,
            "mode": self._mode,
        }

    def _copy(self, count: int) -> Step:
        def call() -> float:
            torch = self.torch
            pairs = [
                tuple(torch.ones(count // 4, device=self.device.kind) for _ in range(2))
                for _ in range(self._copies(2 * count))
            ]
            # A kernel, not a copy engine: one pass that reads and writes.
            return self._time(lambda: [torch.neg(here, out=there) for here, there in pairs], len(pairs))

        return {"op": "copy", "bytes": 2 * count, "mode": self._mode}, call

    def _elementwise(self, rows: int, width: int) -> Step:
        """A norm, an activation and a sum: bytes of all three, their mean time."""
        dtype = self.sizes.dtype
        element = bytes_per_element(dtype)
        # Norm and activation read and write once, the sum reads twice: 7 passes in three operators.
        moved = 7 * rows * width * element / 3

        def call() -> float:
            functional = self.torch.nn.functional
            inputs = [self._random(rows, width, dtype=dtype) for _ in range(self._copies(rows * width * element) + 1)]
            scale = self._random(width, dtype=dtype)

            def work() -> None:
                for x, y in pairwise(inputs):
                    functional.rms_norm(x, (width,), scale)
                    functional.silu(x)
                    self.torch.add(x, y)

            return self._time(work, 3 * (len(inputs) - 1))

        return {"op": "elementwise", "bytes": f"{moved:.0f}", "mode": self._mode}, call

    def _launch(self, mode: str) -> Step:
        def call() -> float:
            x = self.torch.zeros(1, device=self.device.kind)
            calls = 200

            def work() -> None:
                for _ in range(calls):
                    x.add_(1.0)

            return self._time(work, calls, graph=mode == "graph")

        return {"op": "launch", "mode": mode}, call

    def _optimizer(self, count: int) -> Step:
        element = bytes_per_element(self.sizes.dtype)

        def call() -> float:
            parameter = self.torch.nn.Parameter(self._random(count, dtype=self.sizes.dtype))
            parameter.grad = self._random(count, dtype=self.sizes.dtype)
            optimizer = self.torch.optim.AdamW([parameter], fused=True)
            return self._time(optimizer.step, 1, graph=False)

        # Parameter, gradient and two moments are read; parameter and moments written.
        return {"op": "optimizer", "bytes": f"{7 * count * element:.0f}", "mode": "eager"}, call
