"""``calibrate --measure``: a short suite of kernels on the machine at hand, as the rows that a calibration reads.

Products over a grid of sizes for each precision, attention over a sequence and on a cache, copies, unfused elementwise
operators, and the cost of a launch. Weights and caches are rotated so that they come from memory, not from a cache. The suite
keeps to its time: sizes come in an order in which any beginning of it is useful, and what was left out is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

from mlsysim.calibrate.device import Device, decode_attention, fastest, prefill_attention
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.samples import FEWEST, MOST
from mlsysim.errors import InputError
from mlsysim.physics.precision import bytes_per_element

_MOST_COPIES = 16
_PER_ROW = 0.08
"""Seconds that a size is repeated for, at most."""


class Grid(NamedTuple):
    """Sizes of a suite. Products are (m, n, k); attention (batch, heads, key heads, head size, length)."""

    products: dict[str, tuple[tuple[int, int, int], ...]]
    attention: tuple[tuple[int, int, int, int, int], ...]
    decode: tuple[tuple[int, int, int, int, int], ...]
    copies: tuple[int, ...]
    elementwise: tuple[tuple[int, int], ...]
    dtype: str


GRIDS = {name: Grid(**grid) for name, grid in settings("suite")["grids"].items()}
"""The sizes of ``calibrate --measure``; "tiny" is for machines that are only to be tried."""


@dataclass
class Measured:
    """Rows of the CSV, and what could not be measured."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    device: str = ""
    seconds: float = 0.0


def measure(device: Device, seconds: float = 60.0, grid: str | Grid | None = None) -> Measured:
    """Run the suite for about ``seconds``, and however long as few sizes take as a calibration needs."""
    if not 0 < seconds <= 3600:
        raise InputError(f"the time of a suite must be above 0 and at most 3600 seconds, got {seconds:g}.")
    sizes = GRIDS[grid] if isinstance(grid, str) else grid or GRIDS["gpu" if device.gpu else "cpu"]
    result, late, start = Measured(device=device.name), 0, time.perf_counter()
    device.torch.manual_seed(0)
    with device.torch.no_grad():
        for row, call in _interleaved(_Suite(device, sizes).steps()):
            if len(result.rows) == MOST:
                break
            if time.perf_counter() - start > seconds and len(result.rows) >= FEWEST:
                late += 1
                continue
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
    return (step for steps in zip_longest(*groups) for step in steps if step is not None)


class _Suite:
    """The steps of a suite: each a row without its time, and a function that measures it."""

    def __init__(self, device: Device, sizes: Grid) -> None:
        self.device, self.torch, self.sizes = device, device.torch, sizes
        self.element = bytes_per_element(sizes.dtype)
        self.mode = "graph" if device.gpu else "compiled"

    def steps(self) -> list[list[Step]]:
        sizes = self.sizes
        return [
            *([self._product(dtype, *shape) for shape in shapes] for dtype, shapes in sizes.products.items()),
            [self._attention("seq", *shape) for shape in sizes.attention],
            [self._attention("context", *shape) for shape in sizes.decode],
            [self._copy(count) for count in sizes.copies],
            [self._elementwise(*shape) for shape in sizes.elementwise],
            [self._launch(mode) for mode in (("graph", "eager") if self.device.gpu else ("eager",))],
            [self._optimizer(max(sizes.copies) // 16)],
        ]

    def _random(self, *shape: int, dtype: str | None = None) -> Any:
        return self.torch.randn(*shape, device=self.device.kind).to(self.device.dtype(dtype or self.sizes.dtype))

    def _copies(self, size: float) -> int:
        """How many inputs of this size fill the cache a few times."""
        return int(min(max(3 * self.device.cache // size, 1), _MOST_COPIES))

    def _time(self, work: Callable[[], Any], calls: int, graph: bool = True) -> float:
        return self.device.time(work, _PER_ROW, graph=graph, calls=calls)[0]

    def _each(self, work: Callable[..., Any], inputs: Sequence[tuple[Any, ...]]) -> float:
        """Time of a kernel on one of several inputs."""
        return self._time(lambda: [work(*each) for each in inputs], len(inputs))

    def _product(self, dtype: str, m: int, n: int, k: int) -> Step:
        def call() -> float:
            matmul = self.torch.backends.cuda.matmul
            previous, matmul.allow_tf32 = matmul.allow_tf32, dtype == "tf32"
            try:
                left = self._random(m, k, dtype=dtype)
                copies = range(self._copies(n * k * bytes_per_element(dtype)))
                weights = [(left, self._random(n, k, dtype=dtype)) for _ in copies]
                return self._each(self._multiply(dtype), weights)
            finally:
                matmul.allow_tf32 = previous

        return {"op": "gemm", "m": m, "n": n, "k": k, "dtype": dtype, "mode": self.mode}, call

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

    def _attention(self, over: str, batch: int, heads: int, kv_heads: int, size: int, length: int) -> Step:
        """Attention over a sequence ("seq"), or of one query on its cache ("context")."""
        whole = over == "seq"

        def call() -> float:
            q = self._random(batch, heads, length if whole else 1, size)
            copies = 1 if whole else self._copies(2 * batch * kv_heads * length * size * self.element)
            caches = [tuple(self._random(batch, kv_heads, length, size) for _ in range(2)) for _ in range(copies)]
            forms = decode_attention(self.device, heads // kv_heads)
            if whole:
                forms = prefill_attention(self.device, True, heads != kv_heads)
            _, attend = fastest(self.device, forms, q, *caches[0])
            return self._each(attend, [(q, k, v) for k, v in caches] * (4 if whole else 1))

        row = {"op": "attention" if whole else "decode_attention", over: length, "batch": batch, "heads": heads}
        row |= {"kv_heads": kv_heads, "head_dim": size, "dtype": self.sizes.dtype, "mode": self.mode}
        return row, call

    def _copy(self, count: int) -> Step:
        def call() -> float:
            ones = partial(self.torch.ones, count // 4, device=self.device.kind)
            pairs = [(ones(), ones()) for _ in range(self._copies(2 * count))]
            # A kernel, not a copy engine: one pass that reads and writes.
            return self._each(lambda here, there: self.torch.neg(here, out=there), pairs)

        return {"op": "copy", "bytes": 2 * count, "mode": self.mode}, call

    def _elementwise(self, rows: int, width: int) -> Step:
        """A norm, an activation and a sum: bytes of all three, their mean time."""
        size = rows * width * self.element

        def call() -> float:
            functional, scale = self.torch.nn.functional, self._random(width)
            inputs = [self._random(rows, width) for _ in range(self._copies(size) + 1)]

            def three(x: Any, y: Any) -> None:
                functional.rms_norm(x, (width,), scale)
                functional.silu(x)
                self.torch.add(x, y)

            return self._each(three, list(pairwise(inputs))) / 3

        # Norm and activation read and write once, the sum reads twice: 7 passes in three operators.
        return {"op": "elementwise", "bytes": f"{7 * size / 3:.0f}", "mode": self.mode}, call

    def _launch(self, mode: str) -> Step:
        def call() -> float:
            x, calls = self.torch.zeros(1, device=self.device.kind), 200
            return self._time(lambda: [x.add_(1.0) for _ in range(calls)], calls, graph=mode == "graph")

        return {"op": "launch", "mode": mode}, call

    def _optimizer(self, count: int) -> Step:
        def call() -> float:
            parameter = self.torch.nn.Parameter(self._random(count))
            parameter.grad = self._random(count)
            return self._time(self.torch.optim.AdamW([parameter], fused=True).step, 1, graph=False)

        # Parameter, gradient and two moments are read; parameter and moments written.
        return {"op": "optimizer", "bytes": f"{7 * count * self.element:.0f}", "mode": "eager"}, call
