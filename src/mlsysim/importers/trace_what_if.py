"""What if: the step of a trace on another chip, or with another batch.

Each group of equal kernels is scaled by the ratio of its roofline times, so that it keeps the efficiency that it was measured with:

    t' = t x max(s F / P', s B / W') / max(F / P, B / W)          F operations, B bytes, P peak, W bandwidth, s batch scale

Without shapes a product is taken as bound by arithmetic and everything else as bound by memory. What cannot be known makes
the interval:

    batch       bytes of weights do not grow with the batch and a trace does not say which are weights: between none and all of them
                for products; an optimizer and collectives of gradients do not grow; those of activations do
    chip        a kernel may keep its time bound by the other resource: between the two ratios
    launches    kernels below 5 us are bound by their launch and keep their time
    idle        a host that launches late hides behind longer kernels and is bared by shorter ones, and the profiler makes it slower than it
                is: the step is b' + idle, but not longer than it was unless the device alone is (b' busy time); at least b'; at most
                b' + idle, or the measured step where the host sets it

Tried on an H200, a transformer trained with 8 and with 16 sequences: from the first trace 19.2 ms busy for the second, measured
18.3 ms; a step of 19.2 ms, measured 20.8 ms under the profiler and 18.8 ms without it.

Left out: other kernels that a library picks for another chip or shape, memory that no longer fits, other software.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.importers.trace import KernelTime, TraceReport, chip_of
from mlsysim.importers.trace_kinds import COMMUNICATION, COMPUTE
from mlsysim.units.fields import Record
from mlsysim.units.registry import to_si

_LAUNCH = 5e-6
_FIXED = ("optimizer",)


class WhatIf(Record):
    """A predicted step beside the measured one, in seconds."""

    chip: str | None
    other: str | None
    batch_scale: float
    step: float
    busy: float
    low: float
    high: float
    measured_step: float
    measured_busy: float
    kinds: dict[str, tuple[float, float]]
    """Seconds of a step by kind: measured and predicted."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        document = self.model_dump()
        document["kinds"] = {kind: {"measured": a, "predicted": b} for kind, (a, b) in self.kinds.items()}
        document["notes"] = list(self.notes)
        return document

    @property
    def text(self) -> str:
        """The prediction in a sentence, and what it cannot know."""
        change = []
        if self.other != self.chip:
            change.append(f"on {self.other}")
        if self.batch_scale != 1:
            change.append(f"with {self.batch_scale:g} times the batch")
        lead = (
            f"What if {' '.join(change) or 'as it is'}: a step of {self.step * 1e3:.4g} ms instead of {self.measured_step * 1e3:.4g} ms, "
            f"between {self.low * 1e3:.4g} and {self.high * 1e3:.4g} ms."
        )
        return "\n".join((lead, *self.notes))


def what_if(trace: TraceReport, chip: str | HardwareNode | None = None, batch_scale: float = 1.0) -> WhatIf:
    """The step of a trace on another chip, with ``batch_scale`` times the batch, or both."""
    if isinstance(batch_scale, bool) or not isinstance(batch_scale, (int, float)) or not 1e-6 <= batch_scale <= 1e6:
        raise InputError(f"'batch_scale' is a factor such as 2, got {str(batch_scale)[:40]!r}.", field="batch_scale")
    if not math.isfinite(batch_scale):
        raise InputError("'batch_scale' must be finite.", field="batch_scale")
    here = chip_of(trace.chip)
    there = chip_of(chip) or here
    if chip is not None and here is None:
        raise InputError("The trace does not say which chip it is from; name it when you read the trace (chip=...).")
    notes: list[str] = []
    kinds: dict[str, tuple[float, float]] = {}
    scale = trace.busy * trace.steps / (sum(k.time for k in trace.kernels) or 1.0)
    low = high = mid = 0.0
    for kernel in trace.kernels:
        now = kernel.time / trace.steps
        least, likely, most = _scaled(kernel, trace.precision, here, there, float(batch_scale))
        a, b = kinds.get(kernel.kind, (0.0, 0.0))
        kinds[kernel.kind] = (a + now, b + now * likely)
        low, mid, high = low + now * least, mid + now * likely, high + now * most
    # Kernels that ran beside each other are taken to do so again.
    low, mid, high = low * scale, mid * scale, high * scale
    notes.append(
        f"The device was idle for {trace.idle * 1e3:.4g} ms a step; how much of that the profiler made, and how much longer kernels would hide, a trace does not tell."
    )
    if there is not here and there is not None:
        notes.append(
            "Each kind keeps the efficiency that it was measured with; another chip's libraries may reach another."
        )
        if COMMUNICATION in kinds and (_link(here) is None or _link(there) is None):
            notes.append("The links of the chips are not both known, so collectives keep their time.")
    if batch_scale != 1:
        notes.append(
            "Whether the memory of the chip holds the new batch is not checked: a trace does not tell what is kept."
        )
    unknown = sum(k.time for k in trace.kernels if k.kind in COMPUTE and k.flops is None)
    total = sum(k.time for k in trace.kernels) or 1.0
    if unknown / total > 0.1:
        notes.append(
            f"{unknown / total:.0%} of the time is in products without shapes; record them with record_shapes=True."
        )
    return WhatIf(
        chip=trace.chip,
        other=None if there is None else there.metadata.key or there.name,
        batch_scale=float(batch_scale),
        step=max(mid, min(trace.step, mid + trace.idle)),
        busy=mid,
        low=min(low, mid),
        high=max(max(high, mid) + trace.idle, trace.step),
        measured_step=trace.step,
        measured_busy=trace.busy,
        kinds=kinds,
        notes=tuple(notes),
    )


def _link(chip: HardwareNode | None) -> float | None:
    return None if chip is None or chip.link is None else to_si(chip.link.bandwidth_per_direction, "byte/s")


def _rates(chip: HardwareNode | None, precision: str | None) -> tuple[float | None, float | None]:
    """Peak and bandwidth; a missing precision is known by the headline's peak."""
    if chip is None:
        return None, None
    known = precision is not None and chip.compute.supports(precision)
    peak = chip.compute.peak(precision) if known and precision is not None else None
    return None if peak is None else to_si(peak, "flop/s"), to_si(chip.memory.bandwidth, "byte/s")


def _scaled(
    kernel: KernelTime,
    precision: str | None,
    here: HardwareNode | None,
    there: HardwareNode | None,
    batch: float,
) -> tuple[float, float, float]:
    """Least, likely and most factor on a kernel's time."""
    if kernel.time / kernel.count < _LAUNCH:
        grown = max(1.0, batch * kernel.time / kernel.count / _LAUNCH)
        return 1.0, min(grown, max(1.0, batch)), max(1.0, batch)
    same = there is here
    if kernel.kind == COMMUNICATION:
        a, b = _link(here), _link(there)
        ratio = 1.0 if same or a is None or b is None else a / b
        return ratio * min(1.0, batch), ratio, ratio * max(1.0, batch)
    if "host" in kernel.kind:
        a, b = (
            None if c is None or c.interconnect is None else to_si(c.interconnect.bandwidth, "byte/s")
            for c in (here, there)
        )
        ratio = 1.0 if same or not a or not b else a / b
        return ratio * min(1.0, batch), ratio * batch, ratio * max(1.0, batch)
    grows = 1.0 if kernel.kind in _FIXED else batch
    peak, width = _rates(here, kernel.precision or precision)
    other_peak, other_width = _rates(there, kernel.precision or precision)
    by_memory = 1.0 if same or not width or not other_width else width / other_width
    if kernel.kind not in COMPUTE:
        return by_memory * grows, by_memory * grows, by_memory * grows
    if not same and (not peak or not other_peak):
        raise InputError(
            f"{kernel.precision or precision or 'the precision of the trace'} has no known peak on both chips, so products cannot be scaled."
        )
    by_compute = 1.0 if same or not peak or not other_peak else peak / other_peak
    if kernel.flops is None or not kernel.bytes or not peak or not width or not other_peak or not other_width:
        ends = (by_memory, by_compute, by_memory * grows, by_compute * grows)
        return min(ends), by_compute * grows, max(ends)
    before = max(kernel.flops / peak, kernel.bytes / width)
    # Half of the bytes at most are those of the operand that does not grow (weights).
    least = max(grows * kernel.flops / other_peak, min(1.0, grows) * kernel.bytes / other_width) / before
    most = max(grows * kernel.flops / other_peak, max(1.0, grows) * kernel.bytes / other_width) / before
    likely = max(grows * kernel.flops / other_peak, (1 + grows) / 2 * kernel.bytes / other_width) / before
    # Bound by the other resource, with the same share of it, a kernel would follow that one's ratio instead.
    ends = (least, most, by_memory * grows, by_compute * grows)
    return min(ends), likely, max(ends)
