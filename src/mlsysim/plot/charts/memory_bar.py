"""Memory bar of an accelerator: what fills it, what is left, and where the capacity ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plans.parts import memory_bar as held_bar
from mlsysim.plot.amounts import Parts, read_amount, read_label, read_parts, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, KeyEntry, key, x_axis
from mlsysim.plot.scale import amount, linear_scale
from mlsysim.plot.svg import LINE, Box, Drawing, measure
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity
from mlsysim.walls.result import Result


class _Bar(NamedTuple):
    name: str
    parts: Parts
    capacity: float
    total: str
    """What is used as it is printed; the digits of the metric that it is, where that is known."""

    @property
    def used(self) -> float:
        return sum(value for _, value in self.parts)

    def of(self, label: str) -> float:
        return sum(value for name, value in self.parts if name == label)

    @property
    def verdict(self) -> str:
        said = "free of" if self.used <= self.capacity else "over"
        return f"{amount(abs(self.capacity - self.used), 'B')} {said} {amount(self.capacity, 'B')}"

    @property
    def sentence(self) -> str:
        return f"{self.total} used, {self.verdict}"


@dataclass(frozen=True, repr=False)
class _MemoryBars(Figure):
    bars: list[_Bar]

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(label for bar in self.bars for label, _ in bar.parts))

    @property
    def alt(self) -> str:
        said = []
        for bar in self.bars:
            named = ", ".join(f"{label} {amount(value, 'B')}" for label, value in bar.parts)
            said.append(f"{bar.name}: {named}; {bar.total} in all, {bar.verdict}.")
        return "Memory by use. " + " ".join(said)

    def _body(self, d: Drawing, y: float) -> float:
        kinds = self.kinds()
        # With a single bar the key carries the values.
        values = ["" if len(self.bars) > 1 else f" {amount(self.bars[0].of(label), 'B')}" for label in kinds]
        entries = [KeyEntry(label + value, k) for k, (label, value) in enumerate(zip(kinds, values, strict=True))]
        y = key(d, y, [*entries, KeyEntry("free", 0, "void"), KeyEntry("capacity", 0, "limit")]) + 2
        room = d.width - 2 * PAD - 10
        # Name and verdict stand side by side where both fit, else one above the other.
        stacked = any(measure(bar.name, BODY, True) + measure(bar.sentence, BODY) + 10 > room for bar in self.bars)
        below = LINE * BODY if stacked else 0.0
        row = 58.0 + below
        plot = Box(PAD, y, PAD + room, y + len(self.bars) * row + 2)
        scale = linear_scale(0.0, max(max(bar.used, bar.capacity) for bar in self.bars), plot.left, plot.right)
        after = x_axis(d, scale, plot, "Memory", "B", grid=False)
        at, anchor = (PAD, "start") if stacked else (plot.right, "end")
        for k, bar in enumerate(self.bars):
            first = y + k * row
            cls = "ink" if bar.used <= bar.capacity else "bad"
            d.text(PAD, first + 14, bar.name, BODY, "ink", bold=True, room=room)
            d.text(at, first + 14 + below, bar.sentence, BODY, cls, anchor=anchor, room=room)
            top, used, end = first + 22 + below, scale(bar.used), scale(bar.capacity)
            if bar.used < bar.capacity:
                d.rect(used, top + 0.5, end - used, 25.0, "void", tip=bar.verdict)
            before = 0.0
            for label, value in bar.parts:
                left, series, tip = scale(before), kinds.index(label), f"{label}: {amount(value, 'B')}"
                before += value
                d.rect(left, top, scale(before) - left, 26.0, f"f{series % 8} edge", hatch=series, tip=tip)
            d.line(end, top - 4, end, top + 30.0, "limit")
        return after

    def _axes(self, ax: Any) -> None:
        names = [bar.name for bar in self.bars]
        before = [0.0] * len(self.bars)
        for label in self.kinds():
            sizes = [bar.of(label) for bar in self.bars]
            ax.barh(names, sizes, left=before, label=label)
            before = [one + size for one, size in zip(before, sizes, strict=True)]
        for k, bar in enumerate(self.bars):
            ax.plot([bar.capacity, bar.capacity], [k - 0.45, k + 0.45], linestyle="--", color="red")
        ax.invert_yaxis()
        ax.set_xlabel("Memory of one accelerator (B)")
        ax.legend(fontsize="small")


def memory_parts(result: Any) -> tuple[list[tuple[str, Any]], Any]:
    """What fills the memory of one device, as the result's ledger has it, and its capacity."""
    ledger = result.ledger if isinstance(result, Result) else None
    if ledger is None or ledger.capacity is None:
        raise InputError(f"A memory bar is drawn of parts or of a result with memory, got {type(result).__name__}.")
    bar = held_bar(ledger)
    return [(part.label, quantity(part.value, "byte")) for part in bar.parts], quantity(bar.capacity, "byte")


def memory_bar(
    parts: Any,
    capacity: Any = None,
    *,
    name: str = "Per accelerator",
    title: str | None = None,
    subtitle: str | None = None,
    width: int = WIDE,
) -> Figure:
    """Parts (label, bytes) against a capacity, a result, or several of them as [(name, parts, capacity), (name, result)].

    A bar may have the text of its sum as a fourth.
    """
    result = parts if isinstance(parts, Result) else None
    if subtitle is None and result is not None and not result.feasible and result.binding is not None:
        subtitle = result.binding.sentence
    if result is not None or capacity is not None:
        bars = [_bar(name, parts, capacity)]
    else:
        bars = []
        for item in sequence(parts, "bars"):
            if not isinstance(item, (tuple, list)) or len(item) not in (2, 3, 4):
                raise InputError(
                    "A memory bar needs its 'capacity', or bars as (name, parts, capacity) or (name, result)."
                )
            bars.append(_bar(*item))
    return _MemoryBars(read_label(title or "Memory of one accelerator"), subtitle or "", width, bars)


def _bar(name: Any, parts: Any, capacity: Any = None, text: str = "") -> _Bar:
    if capacity is None:
        parts, capacity = memory_parts(parts)
    label = read_label(name)
    limit, unit = read_amount(capacity, f"capacity of {label[:40]!r}", zero=False)
    read, read_unit = read_parts(parts)
    if unit != "B" or read_unit != "B":
        raise InputError(f"The memory of {label[:40]!r} and its capacity must be in bytes, such as '80 GB'.")
    return _Bar(label, read, limit, text or amount(sum(value for _, value in read), "B"))
