"""Charts of answers to plans: the same for a report, for one answer on a page and for two side by side.

What an answer has no data for gives no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.hours import carbon_hours
from mlsysim.plans.pieces import Part
from mlsysim.plans.sensitivities import HARDWARE
from mlsysim.plans.targets import TIMES, levels_of, percent
from mlsysim.plot.charts.bars import tornado, waterfall, waterfalls
from mlsysim.plot.charts.heat_map import heat_map
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.charts.memory_bar import memory_bar
from mlsysim.plot.charts.roofline import roofline
from mlsysim.plot.charts.run import gantt, share_bar
from mlsysim.plot.charts.scorecard import scorecard
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.readings import shared_out
from mlsysim.simulate.run.record import AGAIN, RESTARTS, STOPPED, WAITING
from mlsysim.simulate.run.run import TRAINING
from mlsysim.units.registry import quantity

Named = Sequence[tuple[str, Answer]]
"""Answers with the name that tells each from the others; empty where there is one."""

_WHOLE = {"training": "Step", "serving": "Request", "rl": "Step", "inference": "Pass"}
_CAUSES = 7
"""Causes that a bar tells apart."""
_SEEN, _NOTHING = 0.015, 0.0005
"""Shares of a bar that are seen, and that are nothing."""
_UNSEEN = 1e-6
"""Share of a time that no digit of it shows."""


def scorecard_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure:
    """The walls that were asked, and what was found at each."""
    rows = []
    for score in answer.scorecard:
        if score.status != "not asked":
            text = "; ".join(filter(None, (score.value, score.note)))
            rows.append((score.wall, score.load, (f"Fails. {text}" if score.status == "fails" else text) or "binds"))
    return scorecard(rows, binding=answer.binding.wall, title=title, width=width)


def roofline_of(answers: Named, *, title: str | None = None, width: int = WIDE) -> Figure | None:
    """All points of the answers under the roofs of their chips; without a title it names the roofs."""
    roofs: dict[tuple[float, float], tuple[str, Any, Any]] = {}
    points = []
    for name, answer in answers:
        for point in answer.roofline:
            chip = point["peak_flops"], point["bandwidth"]
            label = f"{point['chip']}, {point['precision']}"
            roofs.setdefault(chip, (label, quantity(chip[0], "flop/s"), quantity(chip[1], "byte/s")))
            if point["intensity"] > 0 and point["achieved"] > 0:
                where = quantity(point["intensity"], "flop/byte"), quantity(point["achieved"], "flop/s")
                points.append((f"{point['label']} ({name})" if name else point["label"], *where))
    if not roofs:
        return None
    # A hypothetical chip has the name of the one that it was made from; the second of a name says so.
    names = [label for label, _, _ in roofs.values()]
    labels = [f"{label}, edited" if label in names[:k] else label for k, label in enumerate(names)]
    drawn = [(label, *roof[1:]) for label, roof in zip(labels, roofs.values(), strict=True)]
    return roofline(roofs=drawn, points=points, title=title or f"Roofline of {' and '.join(labels)}", width=width)


def time_of(answers: Answer | Named, *, whole: str = "", title: str, width: int = WIDE) -> Figure | None:
    """Where the time of a step, a request or a pass goes; ``whole`` is what that is called. Of several answers all on one scale. Of what has no
    time (a server whose queue grows without end) there is nothing to draw."""
    wholes = []
    named = [("", answers)] if isinstance(answers, Answer) else list(answers)
    said = next((text for _, answer in named if (text := shared_out(answer))), "")
    for name, answer in named:
        least = _UNSEEN * sum(part.value for part in answer.time_parts)
        parts = [(part.label, part.value, "s") for part in answer.time_parts if part.value > least]
        if parts and "latency" in answer.held:
            wholes.append((name, parts, whole or _WHOLE[answer.task], answer.metric("latency").text))
    if len(wholes) > 1:
        return waterfalls(wholes, title=title, subtitle=said, width=width)
    for _, parts, label, text in wholes:
        return waterfall(parts, total_label=label, total_text=text, title=title, subtitle=said, width=width)
    return None


def whole_of(answer: Answer, *, title: str, most: int = _CAUSES, width: int = WIDE) -> Figure | None:
    """Where the time goes as one bar: the largest parts of a step, request or pass, then what failures and checkpoints take of a run; ``most`` of
    each."""
    found = answer.whole_parts
    whole = sum(part.value for part in found)
    if not whole > 0 or (not answer.run_parts and "latency" not in answer.held):
        return None
    lost: dict[str, float] = {}
    for part in answer.run_parts[1:]:
        kind = part.label.rpartition(": ")[2]
        lost[kind] = lost.get(kind, 0.0) + part.value
    steps = [(part.label, part.value) for part in found[: len(answer.time_parts)]]
    own = _largest(steps, whole, "other parts", most)
    rest = "other losses" if max(lost.values(), default=0.0) >= _SEEN * whole else "failures and checkpoints"
    failed = _largest([*lost.items()], whole, rest, most)
    subtitle = shared_out(answer)
    if failed and "goodput" in answer.held:
        subtitle = f"Steps have {answer.held['goodput'].text} of it; to the right of the line is what failures and checkpoints take."
    split = len(own) if failed and subtitle else None
    return share_bar([*own, *failed], title=title, subtitle=subtitle, split=split, width=width)


def _largest(
    parts: Sequence[tuple[str, float]], whole: float, rest: str, most: int = _CAUSES
) -> list[tuple[str, float, str]]:
    """The largest parts of a bar first, those that are small or many together, what is next to nothing not at all."""
    ordered = sorted(parts, key=lambda each: -each[1])
    shown = [each for each in ordered[:most] if each[1] >= _SEEN * whole]
    others = ordered[len(shown) :]
    left = sum(value for _, value in others)
    if left >= _NOTHING * whole:
        shown += others if len(others) == 1 else [(rest, left)]
    return [(name, value, "s") for name, value in shown]


def cost_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """What is paid consists of."""
    label, text = ("", "") if answer.paid is None else (answer.paid.label, answer.paid.text)
    return _sum_of(answer.cost_parts, "USD", label, text, title, width)


def carbon_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """Carbon of running, and of making the chips."""
    return _sum_of(answer.carbon_parts, "kgCO2e", "In all", answer.carbon_in_all, title, width)


def _sum_of(parts: Sequence[Part], unit: str, total: str, text: str, title: str, width: int) -> Figure | None:
    shown = [(part.label, quantity(part.value, unit)) for part in parts if part.value > 0]
    return waterfall(shown, total_label=total or "Total", total_text=text, title=title, width=width) if shown else None


def sensitivity_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """What 10 % of each figure of the hardware does to the main metric."""
    return tornado_of(answer, answer.sensitivities, title=title, width=width)


def memory_of(answers: Named, *, title: str | None = None, width: int = WIDE) -> Figure | None:
    """What fills the memory of one accelerator, a bar for each answer."""
    bars = []
    for name, answer in answers:
        if answer.memory is not None and answer.memory.parts:
            parts = [(part.label, part.value, "byte") for part in answer.memory.parts]
            bars.append((name, parts, quantity(answer.memory.capacity, "byte"), answer.metric("memory").text))
    return memory_bar(bars, title=title, width=width) if bars else None


def percentiles_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """Times that shares of the simulated requests stay below."""
    times = {kind: held for kind, held in answer.percentiles.items() if kind in TIMES}
    levels = [level for held in times.values() for level in levels_of(held)[1:]]
    levels = [*dict.fromkeys(levels)]
    series = [
        (TIMES[kind], [(k, held[level]) for k, level in enumerate(levels)])
        for kind, held in times.items()
        if min(held[level] for level in levels) > 0
    ]
    if not series:
        return None
    axes = {"x_title": "Share of the requests", "y_title": "Time within which they are", "y_unit": "s"}
    return lines(series, names=[f"{percent(level):g} %" for level in levels], **axes, title=title, width=width)


def over_time_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """Requests that are worked on and that wait as time goes by."""
    seen = answer.over_time
    if not seen or len(seen["times"]) < 2:
        return None
    names = {"batch": "worked on", "queue": "waiting"}
    series = [(label, list(zip(seen["times"], seen[name], strict=True))) for name, label in names.items()]
    return lines(series, x_title="Time", x_unit="s", y_title="Requests", title=title, width=width)


def run_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """What the simulated run in the middle does over its weeks."""
    seen = answer.played
    if not seen.get("state"):
        return None
    ends, states, causes = seen["hours"], seen["state"], seen["cause"]
    stretches, ticks = [], []
    for k, (state, cause) in enumerate(zip(states, causes, strict=True)):
        if state != TRAINING and ends[k + 1] > ends[k]:
            stretches.append((ends[k], ends[k + 1], cause if state == STOPPED and cause else state, cause))
        if state in (RESTARTS, WAITING) and k and states[k - 1] in (TRAINING, AGAIN):
            ticks.append(ends[k])
    every = answer.held["checkpoint_interval"].text if "checkpoint_interval" in answer.held else ""
    remark = f"A checkpoint every {every} is not drawn." if every else ""
    more: dict[str, Any] = {"start": answer.plan.ops.start, "remark": remark, "title": title, "width": width}
    return gantt(stretches, ends[-1] - ends[0], interruptions=ticks, **more)


def lost_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """What the simulated run in the middle lost its time to, by cause."""
    lost: dict[str, float] = {}
    for part in answer.run_parts[1:]:
        name = part.label.partition(": ")[0]
        lost[name] = lost.get(name, 0.0) + part.value
    whole = sum(part.value for part in answer.run_parts)
    if not lost or not whole > 0:
        return None
    return share_bar(_largest([*lost.items()], sum(lost.values()), "other causes"), whole, title=title, width=width)


def finish_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """Share of the simulated runs that have ended, as days go by."""
    days = answer.played.get("days", [])
    if len(days) < 2 or days[0] == days[-1] or answer.plan.workload.tokens is None:
        return None
    points = [(days[0], 0.0), *((day, 100 * (k + 1) / len(days)) for k, day in enumerate(days))]
    axes = {"x_title": "Time of the run", "x_unit": "day", "y_title": "Runs that have ended", "y_unit": "percent"}
    return lines([("of those that end", points)], **axes, title=title, width=width)


def hours_of(answer: Answer, *, title: str, width: int = WIDE) -> Figure | None:
    """Carbon of the hours of the region, by month, where the plan says when it starts."""
    table = carbon_hours(answer.plan)
    if table is None:
        return None
    rows = [f"{date(2001, month, 1):%b}" for month in range(1, 13)]
    axes = {"x_title": "Hour of the day (UTC)", "y_title": "Month", "value_title": "Carbon", "unit": "gCO2e/kWh"}
    return heat_map(list(range(24)), rows, [list(hours) for hours in table], **axes, title=title, width=width)


def tornado_of(
    answer: Answer, changes: Mapping[str, tuple[float | None, float | None]], *, title: str, width: int = WIDE
) -> Figure | None:
    """Changes of the main metric in per cent; a side on which the plan no longer fits has no bar."""
    rows = []
    for name, sides in changes.items():
        missing = [word for word, side in zip(("less", "more"), sides, strict=True) if side is None]
        remark = f" (10 % {' and '.join(missing)} no longer fits)" if missing else ""
        rows.append((HARDWARE[name] + remark, 100 * (sides[0] or 0.0), 100 * (sides[1] or 0.0)))
    axis, names = f"Change of {answer.metric(answer.main).label.lower()}", ("10 % less of it", "10 % more of it")
    return tornado(rows, base=0, unit="percent", axis=axis, names=names, title=title, width=width) if rows else None
