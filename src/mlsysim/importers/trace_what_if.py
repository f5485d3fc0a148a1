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

from mlsysim.errors import InputError
from mlsysim.hardware.types import HardwareNode
from mlsysim.importers.trace import KernelTime, TraceReport, chip_of
from mlsysim.importers.trace_kinds import COMMUNICATION, COMPUTE
from mlsysim.units.fields import Record
from mlsysim.units.registry import to_si
from mlsysim.walls.document import Document

_LAUNCH = 5e-6


class WhatIf(Document, Record):
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
    kinds: dict[str, dict[str, float]]
    """Seconds of a step by kind, ``measured`` and ``predicted``."""
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The prediction in a sentence, and what it cannot know."""
        change = [f"on {self.other}"] if self.other != self.chip else []
        change += [f"with {self.batch_scale:g} times the batch"] if self.batch_scale != 1 else []
        lead = (
            f"What if {' '.join(change) or 'as it is'}: a step of {self.step * 1e3:.4g} ms instead of {self.measured_step * 1e3:.4g} ms, "
            f"between {self.low * 1e3:.4g} and {self.high * 1e3:.4g} ms."
        )
        return "\n".join((lead, *self.notes))


def what_if(trace: TraceReport, chip: str | HardwareNode | None = None, batch_scale: float = 1.0) -> WhatIf:
    """The step of a trace on another chip, with ``batch_scale`` times the batch, or both."""
    if isinstance(batch_scale, bool) or not isinstance(batch_scale, (int, float)) or not 1e-6 <= batch_scale <= 1e6:
        raise InputError(f"'batch_scale' is a factor such as 2, got {str(batch_scale)[:40]!r}.", field="batch_scale")
    here = chip_of(trace.chip)
    there = chip_of(chip) or here
    if chip is not None and here is None:
        raise InputError("The trace does not say which chip it is from; name it when you read the trace (chip=...).")
    kinds: dict[str, tuple[float, float]] = {}
    total = sum(k.time for k in trace.kernels) or 1.0
    low = high = mid = 0.0
    for kernel in trace.kernels:
        now = kernel.time / trace.steps
        least, likely, most = _scaled(kernel, kernel.precision or trace.precision, here, there, float(batch_scale))
        a, b = kinds.get(kernel.kind, (0.0, 0.0))
        kinds[kernel.kind] = (a + now, b + now * likely)
        low, mid, high = low + now * least, mid + now * likely, high + now * most
    # Kernels that ran beside each other are taken to do so again.
    scale = trace.busy * trace.steps / total
    low, mid, high = low * scale, mid * scale, high * scale
    unknown = sum(k.time for k in trace.kernels if k.kind in COMPUTE and k.flops is None) / total
    moves = there is not here and there is not None
    unlinked = moves and COMMUNICATION in kinds and None in (_rates(here)[0], _rates(there)[0])
    notes = [
        f"The device was idle for {trace.idle * 1e3:.4g} ms a step; how much of that the profiler made, and how much longer kernels would hide, a trace does not tell.",
        moves
        and "Each kind keeps the efficiency that it was measured with; another chip's libraries may reach another.",
        unlinked and "The links of the chips are not both known, so collectives keep their time.",
        batch_scale != 1
        and "Whether the memory of the chip holds the new batch is not checked: a trace does not tell what is kept.",
        unknown > 0.1
        and f"{unknown:.0%} of the time is in products without shapes; record them with record_shapes=True.",
    ]
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
        kinds={kind: {"measured": a, "predicted": b} for kind, (a, b) in kinds.items()},
        notes=tuple(note for note in notes if note),
    )


def _rates(chip: HardwareNode | None, precision: str | None = None) -> tuple[float | None, ...]:
    """A chip's link, way to its host, memory and peak in SI units; None for what is not known."""
    if chip is None:
        return (None,) * 4
    return (
        None if chip.link is None else to_si(chip.link.bandwidth_per_direction, "byte/s"),
        None if chip.interconnect is None else to_si(chip.interconnect.bandwidth, "byte/s"),
        to_si(chip.memory.bandwidth, "byte/s"),
        to_si(chip.compute.peak(precision), "flop/s") if precision and chip.compute.supports(precision) else None,
    )


def _scaled(
    kernel: KernelTime, precision: str | None, here: HardwareNode | None, there: HardwareNode | None, batch: float
) -> tuple[float, float, float]:
    """Least, likely and most factor on a kernel's time."""

    def ratio(before: float | None, after: float | None) -> float:
        """Of two rates; a chip that stays, and rates that are not known, change nothing."""
        return 1.0 if there is here or not before or not after else before / after

    link, host, width, peak = _rates(here, precision)
    other_link, other_host, other_width, other_peak = _rates(there, precision)
    each = kernel.time / kernel.count
    if each < _LAUNCH:
        grown = max(1.0, batch * each / _LAUNCH)
        return 1.0, min(grown, max(1.0, batch)), max(1.0, batch)
    if kernel.kind == COMMUNICATION:
        slower = ratio(link, other_link)
        return slower * min(1.0, batch), slower, slower * max(1.0, batch)
    if "host" in kernel.kind:
        slower = ratio(host, other_host)
        return slower * min(1.0, batch), slower * batch, slower * max(1.0, batch)
    grows = 1.0 if kernel.kind == "optimizer" else batch
    by_memory, by_compute = ratio(width, other_width), ratio(peak, other_peak)
    if kernel.kind not in COMPUTE:
        return (by_memory * grows,) * 3
    if there is not here and (not peak or not other_peak):
        raise InputError(
            f"{precision or 'the precision of the trace'} has no known peak on both chips, so products cannot be scaled."
        )
    if kernel.flops is None or not kernel.bytes or not peak or not width or not other_peak or not other_width:
        ends = (by_memory, by_compute, by_memory * grows, by_compute * grows)
        return min(ends), by_compute * grows, max(ends)
    before = max(kernel.flops / peak, kernel.bytes / width)
    # Half of the bytes at most are those of the operand that does not grow (weights).
    least, likely, most = (
        max(grows * kernel.flops / other_peak, share * kernel.bytes / other_width) / before
        for share in (min(1.0, grows), (1 + grows) / 2, max(1.0, grows))
    )
    # Bound by the other resource, with the same share of it, a kernel would follow that one's ratio instead.
    ends = (least, most, by_memory * grows, by_compute * grows)
    return min(ends), likely, max(ends)
