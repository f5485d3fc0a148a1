"""The time of a step, a request or a pass as one bar by wall, each part opening into the lines of the ledger that it adds up."""

from __future__ import annotations

from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plot.readings import colour_of
from mlsysim.units.text import compact_time, number
from mlsysim.walls.binding import NAMES

Bar = dict[str, Any]

_NOTHING = 1e-9
"""Seconds in which nothing happens."""
_LEAST = 1e-6
"""Of the time; what is shorter is nothing."""


def time_bar(answer: Answer) -> Bar | None:
    """Parts by wall, largest first, with their operators: seconds on the critical path and hidden beside it, operations, bytes and the form of
    the equation. None where there is no time; of groups of accelerators that are put together the parts alone are known."""
    if "latency" not in answer.held or not answer.time_parts:
        return None
    lines: dict[int, list[Bar]] = {}
    if answer.ledger is None:
        for part in answer.time_parts:
            lines.setdefault(part.wall or 0, []).append(_operator(part.label, part.value))
    else:
        for each in answer.ledger.parts:
            if each.exposed > 0 or each.hidden > 0:
                amounts = {name: float(getattr(each, name)) for name in ("hidden", "flop", "moved", "sent")}
                lines.setdefault(each.wall, []).append(
                    _operator(each.label, float(each.exposed), each.equation, **amounts)
                )
    least = _LEAST * sum(line["seconds"] for held in lines.values() for line in held)
    lines = {wall: [line for line in held if line["longest"] > least] for wall, held in lines.items()}
    seconds = {wall: sum(line["seconds"] for line in held) for wall, held in lines.items()}
    whole, metric = sum(seconds.values()), answer.held["latency"]
    parts = [
        {
            "wall": wall,
            "label": NAMES.get(wall, "Other"),
            "seconds": seconds[wall],
            "text": compact_time(seconds[wall]),
            "share": seconds[wall] / whole,
            "series": colour_of(wall),
            "operators": sorted(lines[wall], key=lambda line: -line["seconds"]),
        }
        for wall in sorted(seconds, key=lambda wall: -seconds[wall])
        if seconds[wall] > least
    ]
    told = {"label": metric.label, "text": metric.text, "interval": metric.interval, "path": metric.path}
    return {**told, "subject": answer.subject, "seconds": whole, "parts": parts}


def _form(equation: str, seconds: float, amounts: dict[str, float]) -> str:
    """The equation of a line. Where the ledger has the name of a form alone, it is the amount over the rate at which it was done or moved."""
    known = [(name, amount) for name, amount in amounts.items() if amount]
    if "=" in equation or len(known) != 1 or seconds <= _NOTHING:
        return equation
    (name, amount), symbols = (
        known[0],
        {"flop": ("F / R", "flop"), "moved": ("B / W", "byte"), "sent": ("M / W", "byte")},
    )
    form, unit = symbols[name]
    return f"t = {form} = {number(amount, unit)} / {number(amount / seconds, f'{unit}/s')}"


def _operator(
    label: str,
    seconds: float,
    equation: str = "",
    hidden: float = 0.0,
    flop: float = 0.0,
    moved: float = 0.0,
    sent: float = 0.0,
) -> Bar:
    """A line of the ledger with its amounts as texts; those that it has none of are empty."""
    return {
        "label": label,
        "seconds": seconds,
        "longest": max(seconds, hidden),
        "text": compact_time(seconds) if seconds > _NOTHING else "0 s",
        "hidden": compact_time(hidden) if hidden else "",
        "flop": number(flop, "flop") if flop else "",
        "moved": number(moved, "byte") if moved else "",
        "sent": number(sent, "byte") if sent else "",
        "equation": _form(equation, seconds + hidden, {"flop": flop, "moved": moved, "sent": sent}),
    }
