"""Three gauges of an answer: does it fit, is it fast enough, is it worth it; each with its limits in one of three states.

    holds     the limit is kept, and lies outside of the 90 % interval
    fails     it is not kept
    open      it lies within the interval: too close to call, with odds

Numbers, intervals and odds are the answer's; places on a gauge are shares of its length.

The time of a step, a request or a pass as one bar by wall, each part opening into the lines of the ledger that it adds up.
"""

from __future__ import annotations

from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import Metric
from mlsysim.plans.pieces import Checked, Part
from mlsysim.plot.readings import bound_of, colour_of, figure_of, shared_out
from mlsysim.units.registry import Quantity
from mlsysim.units.text import bytes_text, compact_time, money_text, number
from mlsysim.walls.binding import NAMES

Gauge = dict[str, Any]

_SPEEDS = {
    "training": ("run_time", "latency", "tokens_per_second", "mfu"),
    "serving": ("ttft", "tpot", "tokens_per_second"),
    "inference": ("latency", "throughput"),
    "rl": ("latency", "rollout_time", "training_time"),
}
"""What is fast or slow about a task, most important first."""
_WORDS = {
    "holds": "every limit holds",
    "fails": "a limit does not hold",
    "open": "too close to call",
    "": "no limit set",
}
"""States of all limits of a gauge together."""
_ROWS = 3
_ROOM = 1.15
"""A scale is so much longer than what is on it."""
_BESIDE = {
    "fits": ("flash", "max_batch", "longest_context", "data_utilization"),
    "worth": ("usd_per_mtoken", "energy_per_token", "carbon_per_mtoken", "energy_per_sample", "carbon_per_million"),
}
_WHOLE = ("energy", "carbon_footprint")
"""Energy and carbon of the whole period."""


def gauges(answer: Answer) -> list[Gauge]:
    """The three of them: question, state, what is said first, a bar of parts, rows with intervals and limits, and further numbers."""
    return [_fits(answer), _fast(answer), _worth(answer)]


def _word(state: str, odds: float | None) -> str:
    if state == "open":
        return f"too close to call: holds with odds of {odds or 0.0:.0%}"
    return {"holds": "holds", "fails": "does not hold"}[state]


def _worst(states: list[str]) -> str:
    return next((state for state in ("fails", "open") if state in states), "holds" if states else "")


def _fits(answer: Answer) -> Gauge:
    fits = answer.feasible or answer.overloaded
    held, bar = answer.held, answer.memory
    found: Gauge = {"name": "fits", "question": "Does it fit?", "state": "holds" if fits else "fails"}
    found |= {"word": "fits" if fits else "does not fit", "rows": [], "notes": _notes(answer, _BESIDE["fits"])}
    if bar is None or not bar.parts or "memory" not in held:
        return found | {"title": "Fits" if fits else answer.headline, "bar": None}
    spare = bar.capacity - bar.used
    whole = max(bar.used, bar.capacity)
    said = f"{bytes_text(abs(spare))} {'free' if spare >= 0 else 'too much'} ({abs(spare) / bar.capacity:.0%})"
    where = " on each accelerator" if answer.layout.get("accelerators", 1) != 1 or answer.task != "inference" else ""
    capacity = held["memory_capacity"].text if "memory_capacity" in held else bytes_text(bar.capacity)
    parts = [_slice(part, k, bytes_text(part.value), part.value / whole) for k, part in enumerate(bar.parts)]
    return found | {
        "title": f"{held['memory'].text} of {capacity}{where}",
        "metric": held["memory"].path,
        "bar": {"parts": parts, "end": bar.capacity / whole, "rest": said},
    }


def _fast(answer: Answer) -> Gauge:
    held = answer.held
    limited = [check.metric for check in answer.checks if check.metric.startswith("performance.")]
    usual = [held[name].path for name in _SPEEDS[answer.task] if name in held]
    paths = list(dict.fromkeys([*limited, *usual]))
    metrics = {metric.path: metric for metric in answer.metrics}
    rows = [row for path in paths if path in metrics and (row := _row(answer, metrics[path]))][:_ROWS]
    found: Gauge = {"name": "fast", "question": "Fast enough?", "bar": None, "rows": rows, "notes": []}
    if not rows:
        why = "No time holds while its queue grows." if answer.overloaded else "What does not fit has no speed."
        return found | {"state": "fails", "word": "no speed", "title": why}
    state = _worst([row["state"] for row in rows if row["state"]]) if answer.feasible else answer.ruling.state
    streamed = "with the rest streamed from the host"
    told = answer.feasible or state == "open"
    word = _WORDS[state] if told else "overloaded" if answer.overloaded else streamed
    return found | {"state": state, "word": word, "title": f"{rows[0]['label']}: {rows[0]['text']}"}


def _row(answer: Answer, metric: Metric) -> Gauge | None:
    """A metric on a scale from 0: its place, its interval, and its limit."""
    if isinstance(metric.value, (str, bool)):
        return None
    value, low, high, _ = figure_of(metric)
    bound, least = bound_of(answer, metric.path)
    # Without an upper end the interval is the rest of the scale.
    far = 2 * value if low is not None and high is None else high or 0.0
    end = _ROOM * max(value, far, bound or 0.0) or 1.0
    check = _check_of(answer, metric.path)
    limit = None
    if check is not None and check.bound is not None and bound is not None:
        size = Quantity(check.bound, metric.value.units) if isinstance(metric.value, Quantity) else check.bound
        limit = {"at": bound / end, "text": f"{'at least' if least else 'at most'} {metric.text_of(size)}"}
    return {
        **{name: getattr(metric, name) for name in ("path", "label", "text", "interval")},
        "at": value / end,
        "band": None if low is None else [low / end, 1.0 if high is None else high / end],
        "limit": limit,
        "state": "" if check is None else check.state,
        "word": "" if check is None else _word(check.state, check.odds),
    }


def _check_of(answer: Answer, path: str) -> Checked | None:
    """The check of a metric that is in most doubt."""
    found = [check for check in answer.checks if check.metric == path]
    return next((c for state in ("fails", "open", "holds") for c in found if c.state == state), None)


def _worth(answer: Answer) -> Gauge:
    held, paid = answer.held, answer.paid
    notes = _notes(answer, [name for name in _BESIDE["worth"] if paid is None or name != "usd_per_mtoken"])
    period = f" in {answer.period}" if answer.task != "inference" else ""
    notes += [note | {"label": f"{note['label']}{period}"} for note in _notes(answer, _WHOLE)]
    metrics = {metric.path: metric for metric in answer.metrics}
    checks = [check for check in answer.checks if check.metric.startswith("macro.")]
    rows = [row for check in checks if check.metric in metrics and (row := _row(answer, metrics[check.metric]))][:_ROWS]
    state = _worst([check.state for check in checks])
    found: Gauge = {"name": "worth", "question": "Worth it?", "state": state, "word": _WORDS[state], "rows": rows}
    found |= {"notes": notes, "bar": None}
    if paid is None:
        first = notes[:1]
        unknown = "What it costs is not known." if answer.runs else "What does not fit has no cost."
        title = f"{first[0]['label']}: {first[0]['text']}" if first else unknown
        return found | {"title": title, "notes": notes[1:] if first else notes}
    scope = "to rent" if paid.name == "rent" else "to own"
    whole = sum(part.value for part in answer.cost_parts) or 1.0
    parts = [_slice(part, k, money_text(part.value), part.value / whole) for k, part in enumerate(answer.cost_parts)]
    each = held.get("usd_per_mtoken")
    title = f"{paid.text} {scope} for {answer.period}"
    if each is not None:
        unit = each.label.removeprefix("Cost of ")
        title = f"{each.text} {unit}; {title}"
    return found | {"title": title, "metric": paid.path, "bar": {"parts": parts, "end": None, "rest": ""}}


def _slice(part: Part, number: int, text: str, share: float) -> Gauge:
    return {"label": part.label, "text": text, "share": share, "series": number}


def _notes(answer: Answer, names: Any) -> list[Gauge]:
    held = answer.held
    told = ("label", "text", "path")
    return [{key: getattr(held[name], key) for key in told} for name in names if name in held]


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
    whole, metric = sum(line["seconds"] for held in lines.values() for line in held), answer.held["latency"]
    least = _LEAST * whole
    lines = {wall: [line for line in held if line["longest"] > least] for wall, held in lines.items()}
    seconds = {wall: sum(line["seconds"] for line in held) for wall, held in lines.items()}
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
    return {**told, "subject": answer.subject, "seconds": whole, "parts": parts, "note": shared_out(answer)}


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
