"""Memory bar of an accelerator: what fills it, what is left, and where the capacity ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.parts import memory_bar as held_bar
from mlsysim.plot.amounts import Amounts, read_amount, read_label, read_parts, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, KeyEntry, finish, heading, key, linear_scale, x_axis
from mlsysim.plot.scale import amount
from mlsysim.plot.svg import LINE, Box, Drawing, measure
from mlsysim.units.registry import quantity
from mlsysim.walls.result import Result


@dataclass(frozen=True)
class _Bar:
    name: str
    parts: Amounts
    capacity: float
    used_text: str = ""

    @property
    def used(self) -> float:
        return sum(self.parts.values)

    @property
    def sentence(self) -> str:
        return f"{self.total} used, {self.verdict}"

    @property
    def total(self) -> str:
        """What is used as it is printed; the digits of the metric that it is, where that is known."""
        return self.used_text or amount(self.used, "B")

    @property
    def verdict(self) -> str:
        if self.used <= self.capacity:
            return f"{amount(self.capacity - self.used, 'B')} free of {amount(self.capacity, 'B')}"
        return f"{amount(self.used - self.capacity, 'B')} over {amount(self.capacity, 'B')}"


@dataclass(frozen=True)
class _MemoryBars:
    title: str
    subtitle: str
    bars: tuple[_Bar, ...]

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(label for bar in self.bars for label in bar.parts.labels))

    def describe(self) -> str:
        said = []
        for bar in self.bars:
            named = ", ".join(
                f"{label} {amount(v, 'B')}" for label, v in zip(bar.parts.labels, bar.parts.values, strict=True)
            )
            said.append(f"{bar.name}: {named}; {bar.total} in all, {bar.verdict}.")
        return "Memory by use. " + " ".join(said)

    def paint(self, width: float) -> Drawing:
        d = Drawing(width)
        y = heading(d, self.title, self.subtitle)
        kinds = self.kinds()
        entries = [KeyEntry(self._entry(label), k) for k, label in enumerate(kinds)]
        entries += [KeyEntry("free", 0, "void"), KeyEntry("capacity", 0, "limit")]
        y = key(d, y, entries) + 2
        top = max(max(bar.used, bar.capacity) for bar in self.bars)
        room = width - 2 * PAD - 10
        # Name and verdict stand side by side where both fit, else one above the other.
        stacked = any(measure(bar.name, BODY, True) + measure(bar.sentence, BODY) + 10 > room for bar in self.bars)
        row = 58.0 + (LINE * BODY if stacked else 0.0)
        plot = Box(PAD, y, PAD + room, y + len(self.bars) * row + 2)
        scale = linear_scale(0.0, top, plot.left, plot.right)
        after = x_axis(d, scale, plot, "Memory", "B")
        for k, bar in enumerate(self.bars):
            first = y + k * row
            cls = "ink halo" if bar.used <= bar.capacity else "bad halo"
            d.text(PAD, first + 14, bar.name, BODY, "ink halo", bold=True, room=room)
            below = LINE * BODY if stacked else 0.0
            at, anchor = (PAD, "start") if stacked else (plot.right, "end")
            d.text(at, first + 14 + below, bar.sentence, BODY, cls, anchor=anchor, room=room)
            self._bar(d, bar, scale, first + 22 + below, 26.0, kinds)
        return finish(d, after)

    def _entry(self, label: str) -> str:
        """With a single bar the key carries the values."""
        if len(self.bars) > 1:
            return label
        parts = self.bars[0].parts
        total = sum(v for name, v in zip(parts.labels, parts.values, strict=True) if name == label)
        return f"{label} {amount(total, 'B')}"

    @staticmethod
    def _bar(d: Drawing, bar: _Bar, scale: Any, top: float, height: float, kinds: list[str]) -> None:
        if bar.used < bar.capacity:
            left = scale(bar.used)
            d.rect(left, top + 0.5, scale(bar.capacity) - left, height - 1, "void", tip=bar.verdict)
        before = 0.0
        for label, value in zip(bar.parts.labels, bar.parts.values, strict=True):
            left, right = scale(before), scale(before + value)
            series = kinds.index(label)
            d.rect(
                left,
                top,
                right - left,
                height,
                f"f{series % 8} edge",
                hatch=series,
                tip=f"{label}: {amount(value, 'B')}",
            )
            before += value
        x = scale(bar.capacity)
        d.line(x, top - 4, x, top + height + 4, "limit")

    def axes(self, ax: Any) -> None:
        names = [bar.name for bar in self.bars]
        before = [0.0] * len(self.bars)
        for label in self.kinds():
            sizes = [
                sum(v for name, v in zip(bar.parts.labels, bar.parts.values, strict=True) if name == label)
                for bar in self.bars
            ]
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
    bars = []
    if isinstance(parts, Result):
        if subtitle is None and not parts.feasible and parts.binding is not None:
            subtitle = parts.binding.sentence
        bars.append(_read_bar(name, *_of(parts, capacity)))
    elif capacity is not None:
        bars.append(_read_bar(name, parts, capacity))
    else:
        for item in sequence(parts, "bars"):
            if not isinstance(item, (tuple, list)) or len(item) not in (2, 3, 4):
                raise InputError(
                    "A memory bar needs its 'capacity', or bars as (name, parts, capacity) or (name, result)."
                )
            text = item[3] if len(item) == 4 else ""
            bars.append(_read_bar(item[0], *_of(item[1], item[2] if len(item) > 2 else None), text))
    chart = _MemoryBars(read_label(title or "Memory of one accelerator"), subtitle or "", tuple(bars))
    return Figure(chart.title, chart.describe(), chart.paint, chart.axes, width)


def _of(parts: Any, capacity: Any) -> tuple[Any, Any]:
    if capacity is not None:
        return parts, capacity
    return memory_parts(parts)


def _read_bar(name: Any, parts: Any, capacity: Any, text: str = "") -> _Bar:
    label = read_label(name)
    limit, unit = read_amount(capacity, f"capacity of {label[:40]!r}", zero=False)
    read = read_parts(parts)
    if unit != "B" or read.unit != "B":
        raise InputError(f"The memory of {label[:40]!r} and its capacity must be in bytes, such as '80 GB'.")
    return _Bar(label, read, limit, text)
