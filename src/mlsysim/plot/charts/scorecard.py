"""Scorecard: the walls by domain, what is known at each, how much of its limit is used, and which one binds.

The bar of a wall is a share of its limit: memory needed over memory there is, arithmetic reached over the peak, data rate
over what the storage gives, and at the walls of coordination and failures the share of the time that is lost to them.
Walls that a scenario does not touch stay empty and say so.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mlsysim.engine.evaluation import SystemEvaluation
from mlsysim.errors import InputError
from mlsysim.plot.amounts import fields, plain, read_label, sequence
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.frame import BODY, PAD, SMALL, KeyEntry, key, note
from mlsysim.plot.svg import LINE, Drawing, clean, measure, wrap
from mlsysim.units.records import dataclass
from mlsysim.units.registry import to_si
from mlsysim.walls.catalog import DOMAINS, Wall, walls

_UNTOUCHED = "Not evaluated"


class _Entry(NamedTuple):
    wall: Wall
    load: float | None
    text: str
    binds: bool

    @property
    def name(self) -> str:
        return f"{self.wall.number} {self.wall.name}"

    @property
    def known(self) -> bool:
        return self.binds or self.load is not None or self.text != _UNTOUCHED

    @property
    def share(self) -> str:
        return "" if self.load is None else f"{self.load:.0%}" if self.load < 10 else ">999%"

    @property
    def found(self) -> str:
        return " ".join(filter(None, (self.share, self.text)))


@dataclass(frozen=True, repr=False)
class _Scorecard(Figure):
    entries: list[_Entry]

    @property
    def alt(self) -> str:
        known = [entry for entry in self.entries if entry.known]
        said = "; ".join(f"wall {entry.name}{' (binds)' if entry.binds else ''}: {entry.found}" for entry in known)
        return (
            f"Scorecard of {len(self.entries)} walls, {len(self.entries) - len(known)} of them not evaluated. {said}."
        )

    def _body(self, d: Drawing, y: float) -> float:
        entries = [KeyEntry("share of the limit that is used", 0), KeyEntry("over the limit", 6)]
        y = key(d, y, [*entries, KeyEntry("binding wall, framed", 7, "frame")])
        names = max(measure(entry.name, BODY, True) for entry in self.entries) + 8
        for domain in DOMAINS:
            group = [entry for entry in self.entries if entry.wall.domain is domain]
            y += 6
            d.text(PAD, y + SMALL, domain.name.upper(), SMALL - 1, "muted", bold=True)
            y += 18
            for entry in group:
                if entry.known:
                    y = self._entry(d, y, entry, PAD + names)
            rest = ", ".join(entry.name for entry in group if not entry.known)
            y = note(d, y, f"{_UNTOUCHED}: {rest}" if rest else "")
        return y

    @staticmethod
    def _entry(d: Drawing, y: float, entry: _Entry, track: float) -> float:
        """Name, bar and share of a wall, and its text behind them, on a narrow page below them."""
        left, right = PAD, d.width - PAD
        length = 100.0 if d.narrow else min(180.0, (right - track) * 0.3)
        start = left if d.narrow else track + length + 60
        lines = wrap(f"Binds. {entry.text}" if entry.binds else entry.text, SMALL, right - start - 2, 3)
        block = len(lines) * LINE * SMALL
        height = 23.0 + block if d.narrow else max(22.0, 8 + block)
        if entry.binds:
            d.rect(left - 6, y - 1, right - left + 12, height, "mark", radius=4)
        if d.narrow:
            share = d.text(right, y + 14, entry.share, SMALL, anchor="end", bold=True)
            track = min(share.left, right - 44) - 106
        d.text(left, y + 14, entry.name, BODY, bold=entry.binds)
        if entry.load is not None:
            d.rect(track, y + 5, length, 10, "faint", radius=2)
            colour, tip = 6 if entry.load > 1 else 0, f"{entry.name}: {entry.share} of its limit"
            d.rect(track, y + 5, length * min(entry.load, 1.0), 10, f"f{colour}", radius=2, hatch=colour, tip=tip)
        if not d.narrow:
            d.text(track + length + 8, y + 14, entry.share, SMALL, bold=True)
        for row, line in enumerate(lines):
            d.text(
                start, y + (30 if d.narrow else 14) + row * LINE * SMALL, line, SMALL, "muted" if d.narrow else "ink"
            )
        return y + height + (5 if d.narrow else 3)

    def _axes(self, ax: Any) -> None:
        bars = ax.barh([entry.name for entry in self.entries], [entry.load or 0.0 for entry in self.entries])
        ax.bar_label(bars, [entry.found for entry in self.entries], fontsize="small", padding=3)
        for bar, entry in zip(bars, self.entries, strict=True):
            bar.set(edgecolor="black" if entry.binds else "none", linewidth=2)
        ax.axvline(1.0, linestyle="--", color="red")
        ax.invert_yaxis()
        ax.set_xlabel("Share of the limit that is used")


def scorecard(
    rows: Any, *, binding: int | None = None, title: str | None = None, subtitle: str = "", width: int = WIDE
) -> Figure:
    """Rows (wall number, share of its limit or None, text), or the evaluation of a scenario; ``binding`` is a wall number."""
    if isinstance(rows, SystemEvaluation):
        title = title or f"{clean(rows.scenario_name)}: {'all levels pass' if rows.passed_all else 'fails'}"
        failed = next((level for level in rows.levels if not level.passed), None)
        summary = (failed or rows.performance).summary
        subtitle = subtitle or summary
        # The first wall that the sentence of the deciding level names.
        if binding is None and (named := re.search(r"\bWall (\d+)\b", summary)):
            binding = int(named[1])
        rows = _of_evaluation(rows)
    cards = {card.number: card for card in walls()}
    known: dict[int, tuple[float | None, str]] = {}
    for item in sequence(rows, "rows"):
        number, load, text = fields(item, "A row of a scorecard is (wall, share or None, text)", 3)
        _check_wall(number, "rows")
        if number in known:
            raise InputError(f"Wall {number} has two rows; give it one.", field="rows")
        share = None if load is None else plain(load, f"share of wall {number}")
        known[number] = share, clean(text)
    if binding is not None:
        _check_wall(binding, "binding")
    entries = [
        _Entry(card, *known.get(number, (None, _UNTOUCHED)), binds=number == binding)
        for number, card in sorted(cards.items())
    ]
    return _Scorecard(read_label(title or "Scorecard of the walls"), subtitle, width, entries)


def _check_wall(number: Any, field: str) -> None:
    count = len(walls())
    if isinstance(number, bool) or number not in range(1, count + 1):
        raise InputError(f"There is no wall {number!r:.40}; they are numbered 1 to {count}.", field=field)


def plot_evaluation_scorecard(evaluation: SystemEvaluation, **options: Any) -> Figure:
    """``scorecard`` of a scenario's evaluation, under the name that the documents print."""
    if not isinstance(evaluation, SystemEvaluation):
        raise InputError(f"A scorecard is drawn of what Scenario.evaluate() returns, got {type(evaluation).__name__}.")
    return scorecard(evaluation, **options)


def _of_evaluation(evaluation: SystemEvaluation) -> list[tuple[int, float | None, str]]:
    texts: dict[int, list[str]] = {}
    held = {name: metric for level in evaluation.levels for name, metric in level.metrics.items()}
    for metric in held.values():
        texts.setdefault(metric.wall, []).append(f"{metric.label} {metric.text}")
    if not texts:
        raise InputError(f"The evaluation of {clean(evaluation.scenario_name)!r:.60} has no metrics to show.")
    # Shares of limits that follow from the metrics.
    loads: dict[int, float] = {}
    needed = held.get("memory_needed") or held.get("memory_per_accelerator")
    if needed is not None and "memory_available" in held:
        loads[2] = to_si(needed.value, "byte") / to_si(held["memory_available"].value, "byte")
    for name in ("mfu", "data_utilization"):
        if name in held:
            loads[held[name].wall] = held[name].value
    for name in ("scaling_efficiency", "goodput_ratio"):
        if name in held:
            loads[held[name].wall] = max(1 - held[name].value, 0.0)
    return [(number, loads.get(number), ", ".join(said)) for number, said in texts.items()]
