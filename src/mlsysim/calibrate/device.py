"""The machine at hand, through PyTorch: which chip of the zoo it is, and how to time work on it.

A time is the median over repetitions after a warm-up. On a GPU work is captured in a CUDA graph where it can be, so that
launches do not show, and timed with events; on a CPU it is timed with the clock.

The fastest attention that PyTorch offers here is found by trying: which kernel of ``scaled_dot_product_attention`` is fast depends on chip,
version and shape: on Hopper cuDNN's is, elsewhere FlashAttention. With grouped queries and one query per sequence, the query heads of a group
can be taken as several queries of one head, which reads keys and values once.
"""

from __future__ import annotations

import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.importers.boards import board_named

_REPETITIONS = (3, 40)
_TYPES = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32", "fp8": "float8_e4m3fn", "fp64": "float64",
}  # fmt: skip
_CPU_NOISE = re.compile(r"\((R|TM)\)|\bCPU\b|@.*$|\b\d+-Core\b|\bProcessor\b|\bwith .*$", re.IGNORECASE)


class Device:
    """CUDA device 0, or the CPU."""

    def __init__(self, kind: str | None = None) -> None:
        try:
            self.torch: Any = import_module("torch")
        except ImportError:
            raise InputError("measuring needs PyTorch, which is not installed; say pip install torch.") from None
        available = self.torch.cuda.is_available()
        self.kind = kind or ("cuda" if available else "cpu")
        if self.kind == "cuda" and not available:
            raise InputError("PyTorch sees no GPU here; leave out --device cuda.")
        if self.kind not in ("cuda", "cpu"):
            raise InputError(f"the device must be cuda or cpu, got {self.kind!r}.")

    @property
    def gpu(self) -> bool:
        return self.kind == "cuda"

    @property
    def name(self) -> str:
        """What the driver or the operating system calls it."""
        return str(self.torch.cuda.get_device_name(0)) if self.gpu else cpu_name()

    @property
    def memory(self) -> float:
        """Bytes that are free."""
        if self.gpu:
            return float(self.torch.cuda.mem_get_info(0)[0])
        try:
            text = Path("/proc/meminfo").read_text(encoding="utf-8")
            return float(re.findall(r"MemAvailable:\s+(\d+) kB", text)[0]) * 1024
        except (OSError, IndexError):
            return 4e9

    @property
    def cache(self) -> float:
        """Bytes of the last cache before memory, so that inputs can be kept cold."""
        if self.gpu:
            return float(getattr(self.torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20))
        return float(64 << 20)

    def chip(self, name: str | None = None) -> HardwareNode:
        """The zoo's entry: by the name given, else by what the machine calls itself."""
        own = self.name
        found: HardwareNode | None = Hardware.get(name) if name else board_named(own)
        if found is not None:
            return found
        family = "gpu" if self.gpu else "cpu"
        known = ", ".join(h.metadata.key or h.name for h in Hardware.list(family=family)[:12])
        raise UnknownNameError(
            f"This machine calls its {family.upper()} {own!r}, which the zoo does not know; name one with --chip (such as {known}).",
            name=own,
        )

    def dtype(self, precision: str) -> Any:
        """PyTorch's type of a number format."""
        return getattr(self.torch, _TYPES[precision])

    def synchronise(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def release(self) -> None:
        """Give freed memory back."""
        if self.gpu:
            self.torch.cuda.empty_cache()

    def time(self, work: Callable[[], Any], budget: float, graph: bool = True, calls: int = 1) -> tuple[float, bool]:
        """Median seconds of one of the ``calls`` in ``work``, and whether a graph was used."""
        captured = self._capture(work) if graph and self.gpu else None
        run = captured.replay if captured is not None else work
        once = self._clock(run)
        few, many = _REPETITIONS
        count = int(min(max(budget / max(once, 1e-7), few), many))
        self._clock(run)
        seconds = statistics.median(self._clock(run) for _ in range(count))
        return seconds / calls, captured is not None

    def _clock(self, run: Callable[[], Any]) -> float:
        if not self.gpu:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def _capture(self, work: Callable[[], Any]) -> Any:
        """A CUDA graph of the work, or None where it cannot be captured."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(side)
        self.synchronise()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                work()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            self.synchronise()
            return None
        graph.replay()
        self.synchronise()
        return graph


def cpu_name() -> str:
    """The processor's name as the operating system gives it, without trademarks and core counts."""
    name = platform.processor() or platform.machine()
    try:
        found = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        name = found[0] if found else name
    except OSError:
        pass
    return " ".join(_CPU_NOISE.sub(" ", name).split())


Attend = Callable[[Any, Any, Any], Any]

_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")


def fastest(
    device: Device, forms: dict[str, Attend], q: Any, k: Any, v: Any, backward: bool = False
) -> tuple[str, Attend]:
    """The quickest of several forms on these inputs, with its backward pass where asked; the default on a CPU."""
    if not device.gpu or len(forms) == 1:
        name = next(iter(forms))
        return name, forms[name]
    best: tuple[float, str] | None = None
    for name, form in forms.items():
        try:
            seconds = _tried(device, form, (q, k, v), backward)
        except RuntimeError:
            continue
        if best is None or seconds < best[0]:
            best = (seconds, name)
    name = best[1] if best else "default"
    return name, forms[name]


def _tried(device: Device, form: Attend, inputs: tuple[Any, Any, Any], backward: bool) -> float:
    torch = device.torch
    with warnings.catch_warnings():
        # A kernel that does not take these inputs warns about each reason before it raises.
        warnings.simplefilter("ignore")
        if not backward:
            with torch.no_grad():
                form(*inputs)
                device.synchronise()
                return device.time(partial(form, *inputs), 2e-3)[0]
        leaves = [x.detach().requires_grad_(True) for x in inputs]

        def both() -> None:
            out = form(*leaves)
            torch.autograd.grad(out, leaves, torch.ones_like(out))

        both()
        device.synchronise()
        return device.time(both, 5e-3, graph=False)[0]


def prefill_attention(
    device: Device, causal: bool, grouped: bool, window: int | None = None, length: int = 0
) -> dict[str, Attend]:
    """Forms of attention over a sequence: q of (batch, heads, length, size), k and v with their own heads.

    A window is a mask, or blocks that are left out in a kernel that the compiler makes.
    """
    torch, functional = device.torch, device.torch.nn.functional
    if window is None:

        def default(q: Any, k: Any, v: Any) -> Any:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

        return {"default": default, **_by_backend(device, default)}
    place = torch.arange(length, device=device.kind)
    apart = place[:, None] - place[None, :]
    seen = (apart >= 0) & (apart < window)

    def masked(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped)

    if not device.gpu:
        return {"masked": masked}
    flexible = import_module("torch.nn.attention.flex_attention")

    def near(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < window)

    blocks = flexible.create_block_mask(near, None, None, length, length, device=device.kind)
    compiled = torch.compile(flexible.flex_attention, dynamic=False)
    return {"masked": masked, "blocks": lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=grouped)}


def decode_attention(device: Device, group: int) -> dict[str, Attend]:
    """Forms of attention of one query per sequence on its cache; ``group`` query heads share a key head."""
    functional = device.torch.nn.functional

    def folded(q: Any, k: Any, v: Any) -> Any:
        batch, heads, _, size = q.shape
        together = q.reshape(batch, heads // group, group, size)
        return functional.scaled_dot_product_attention(together, k, v).reshape(batch, heads, 1, size)

    def plain(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1)

    forms = {"default": folded, **_by_backend(device, folded)}
    if group > 1:
        forms |= {f"{name}, heads apart": form for name, form in _by_backend(device, plain).items()}
    return forms


def _by_backend(device: Device, form: Attend) -> dict[str, Attend]:
    if not device.gpu:
        return {}
    choices = import_module("torch.nn.attention")

    def through(backend: Any) -> Attend:
        def attend(q: Any, k: Any, v: Any) -> Any:
            with choices.sdpa_kernel(backend):
                return form(q, k, v)

        return attend

    backends = choices.SDPBackend
    return {name: through(getattr(backends, name)) for name in _BACKENDS if hasattr(backends, name)}
