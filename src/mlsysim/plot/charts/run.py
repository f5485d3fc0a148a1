"""A run over its weeks: what it does when, row by row as in a calendar, and what its time was lost to.

A row is a day, a week or longer, so that a run has at most some fourteen of them. Blocks are what is not training (restarts, work done again,
waiting for nodes, stops, pauses), as wide as they last and at least a hair; ticks above a row are interruptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plot.amounts import Parts, fields, plain, read_label, read_parts
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import PAD, SMALL, KeyEntry, key, note, x_axis
from mlsysim.plot.scale import amount, linear_scale
from mlsysim.plot.svg import Box, Drawing, clean, measure
from mlsysim.units.records import dataclass
from mlsysim.units.text import compact_time

_SPANS = (1.0, 6.0, 24.0, 168.0, 28 * 24.0, 91 * 24.0, 364 * 24.0, 3640 * 24.0, 36400 * 24.0)
_MOST = 14
_HAIR = 0.7
_TRAINING = "training"


class Stretch(NamedTuple):
    """Hours from and to, what the run does, and what made it so."""

    start: float
    end: float
    state: str
    cause: str = ""


@dataclass(frozen=True, repr=False)
class _Gantt(Figure):
    stretches: list[Stretch]
    length: float
    ticks: list[float]
    begins: datetime | None
    remark: str

    def states(self) -> list[str]:
        """All but training, by the time that they take."""
        took: dict[str, float] = {}
        for each in self.stretches:
            took[each.state] = took.get(each.state, 0.0) + each.end - each.start
        return sorted(took, key=lambda state: -took[state])

    @property
    def row(self) -> float:
        """Hours of a row."""
        return next((hours for hours in _SPANS if self.length <= hours * _MOST), _SPANS[-1])

    def rows(self) -> int:
        return max(1, min(_MOST, -(-int(self.length * 3600) // int(self.row * 3600))))

    @property
    def alt(self) -> str:
        said = []
        for state in self.states():
            hours = sum(each.end - each.start for each in self.stretches if each.state == state)
            said.append(f"{state} {compact_time(hours * 3600)}")
        many = "1 interruption" if len(self.ticks) == 1 else f"{len(self.ticks):,} interruptions"
        rest = f"; besides training: {', '.join(said)}" if said else "; it trains all the time"
        return f"A run of {compact_time(self.length * 3600)} in {self.rows()} rows, with {many}{rest}."

    def _name(self, number: int) -> str:
        at = number * self.row
        if self.begins is not None:
            return f"{self.begins + timedelta(hours=at):%Y-%m-%d}"
        return f"Day {at / 24:g}" if self.row >= 24 else f"Hour {at:g}"

    def _body(self, d: Drawing, y: float) -> float:
        states = self.states()
        entries = [KeyEntry(_TRAINING, 0, "wash"), *(KeyEntry(state, k + 1) for k, state in enumerate(states))]
        if self.ticks:
            entries.append(KeyEntry("interruption", 0, "limit"))
        y = key(d, y, entries) + 2
        count, height = self.rows(), 24.0
        names = [self._name(number) for number in range(count)]
        plot = Box(PAD + max(measure(name, SMALL) for name in names) + 8, y, d.width - PAD, y + height * count + 4)
        unit, scale_of = ("h", 1.0) if self.row < 48 else ("days", 24.0)
        scale = linear_scale(0.0, self.row / scale_of, plot.left, plot.right)
        after = x_axis(d, scale, plot, f"Time in a row ({unit})", "", grid=False)
        for number, name in enumerate(names):
            top, since = plot.top + number * height, number * self.row
            until = min(self.length - since, self.row)
            d.text(plot.left - 7, top + height / 2 + 6, name, SMALL, "muted", anchor="end")
            d.rect(plot.left, top + 7, scale(until / scale_of) - plot.left, height - 9, "f0 wash")
            for state, left, right, tip in self._blocks(since, scale, scale_of):
                series = states.index(state) + 1
                hatch = series if right - left >= 6 else 0
                d.rect(
                    left,
                    top + 7,
                    right - left,
                    height - 9,
                    f"f{series % 8}",
                    hatch=hatch,
                    tip=tip if right - left >= 2 else "",
                )
            for x in sorted({round(scale((t - since) / scale_of), 1) for t in self.ticks if 0 <= t - since < self.row}):
                d.line(x, top + 1, x, top + 6, "limit")
        return note(d, after, self.remark)

    def _blocks(self, since: float, scale: Any, scale_of: float) -> list[tuple[str, float, float, str]]:
        """State, from and to on the page, and words; neighbours in one state that touch there are one."""
        found: list[tuple[str, float, float, str]] = []
        for each in self.stretches:
            start, end = max(each.start - since, 0.0), min(each.end - since, self.row)
            if start >= end:
                continue
            left, right = scale(start / scale_of), scale(end / scale_of)
            right = min(max(right, left + _HAIR), scale(self.row / scale_of))
            if found and found[-1][0] == each.state and left <= found[-1][2] + 0.2:
                found[-1] = (each.state, found[-1][1], max(right, found[-1][2]), each.state)
            else:
                why = f" ({each.cause})" if each.cause else ""
                found.append(
                    (each.state, left, right, f"{each.state}{why}: {compact_time((each.end - each.start) * 3600)}")
                )
        return found

    def _axes(self, ax: Any) -> None:
        for state in self.states():
            own = [each for each in self.stretches if each.state == state]
            ax.broken_barh([(each.start / 24, (each.end - each.start) / 24) for each in own], (0, 1), label=state)
        ax.vlines([tick / 24 for tick in self.ticks], 1.05, 1.2, color="red", label="interruption")
        ax.set(xlabel="Time (days)", xlim=(0, self.length / 24), yticks=[])
        ax.legend(fontsize="small")


def gantt(
    stretches: Any,
    length: Any,
    *,
    interruptions: Sequence[float] = (),
    start: str | None = None,
    title: str = "The run over time",
    subtitle: str = "",
    remark: str = "",
    width: int = WIDE,
) -> Figure:
    """A run of ``length`` hours: stretches (from, to, state, cause) in hours that are not training, and times of interruptions.

    >>> gantt([(30, 32, "restarts", "GPU")], 48, interruptions=[30]).alt
    'A run of 48 h in 8 rows, with 1 interruption; besides training: restarts 2 h.'
    """
    hours = plain(length, "length")
    if hours <= 0:
        raise InputError("A run lasts longer than nothing.", field="length")
    found = []
    for item in stretches:
        begin, end, state, *why = fields(item, "A stretch is (from, to, state, cause)", 3, 4)
        found.append(Stretch(plain(begin, "from"), min(plain(end, "to"), hours), read_label(state), *map(clean, why)))
    ticks = [plain(tick, "interruption") for tick in interruptions]
    begins = None if start is None else datetime.fromisoformat(start)
    return _Gantt(read_label(title), subtitle, width, found, hours, ticks, begins, clean(remark))


@dataclass(frozen=True, repr=False)
class _Shares(Figure):
    parts: Parts
    unit: str
    whole: float
    split: int | None

    @property
    def alt(self) -> str:
        return f"{self.title}: " + "; ".join(self._said()) + "."

    def _said(self) -> list[str]:
        return [f"{label} {amount(value, self.unit)} ({_share(value / self.whole)})" for label, value in self.parts]

    def _body(self, d: Drawing, y: float) -> float:
        y = key(d, y, [KeyEntry(said, k) for k, said in enumerate(self._said())]) + 4
        total = sum(value for _, value in self.parts)
        plot = Box(PAD, y, d.width - PAD, y + 34)
        scale = linear_scale(0.0, total, plot.left, plot.right)
        after = x_axis(d, scale, plot, "Time", self.unit, grid=False)
        before = 0.0
        for k, (label, value) in enumerate(self.parts):
            left, before = scale(before), before + value
            tip = f"{label}: {amount(value, self.unit)}"
            d.rect(left, y + 3, scale(before) - left, 28, f"f{k % 8} edge", hatch=k, tip=tip)
        if self.split:
            line = scale(sum(value for _, value in self.parts[: self.split]))
            d.line(line, y - 2, line, y + 36, "limit")
        return after

    def _axes(self, ax: Any) -> None:
        before = 0.0
        for label, value in self.parts:
            ax.barh([""], [value], left=before, label=label)
            before += value
        ax.set_xlabel(f"Time ({self.unit})")
        ax.legend(fontsize="small")


def _share(share: float) -> str:
    """A share in percent; what rounds to nothing and is there, as less than the least that is written.

    >>> _share(0.123), _share(0.0002), _share(0.0)
    ('12.3%', 'less than 0.1%', '0.0%')
    """
    return "less than 0.1%" if 0 < share < 5e-4 else f"{share:.1%}"


def share_bar(
    parts: Any, whole: Any = None, *, title: str, subtitle: str = "", split: int | None = None, width: int = WIDE
) -> Figure:
    """Parts (label, value) as one bar; their shares are of ``whole``, or of their sum. A line stands behind the first ``split`` of them."""
    read, unit = read_parts(parts)
    if not read or not sum(value for _, value in read) > 0:
        raise InputError("A bar has parts that add up to more than nothing.")
    total = sum(value for _, value in read) if whole is None else plain(whole, "whole")
    return _Shares(read_label(title), subtitle, width, read, unit, total, split)
