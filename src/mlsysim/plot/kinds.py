"""The charts of an answer by name: ``answer.plot("memory")``, ``mlsysim plot FILE memory``. One place that knows which there are.

Of two answers, times, memory and rooflines are drawn together on one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mlsysim.errors import InputError, unknown_name
from mlsysim.plans.answer import Answer
from mlsysim.plot import answers as of
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.keys import WORDS, regimes_of
from mlsysim.plot.pipelines import schedule_of, stage_memory_of


class Kind(NamedTuple):
    """What a chart shows, and what draws it: of an answer, or of named answers where several can be drawn together."""

    shows: str
    draw: Callable[..., Figure | None]
    together: bool = False


KINDS = {
    "time": Kind("Where the time goes", of.time_of, together=True),
    "memory": Kind("What fills the memory", of.memory_of, together=True),
    "roofline": Kind("Under the roofs of the chip", of.roofline_of, together=True),
    "scorecard": Kind("The walls: what was found at each", of.scorecard_of),
    "sensitivity": Kind("10 % less and 10 % more of each figure of the hardware", of.sensitivity_of),
    "cost": Kind("What is paid", of.cost_of),
    "carbon": Kind("Carbon of electricity, and of making the chips", of.carbon_of),
    "schedule": Kind("The pipeline of a step", schedule_of),
    "stages": Kind("Memory of the stages over a step", stage_memory_of),
    "percentiles": Kind("Percentiles of the requests' times", of.percentiles_of),
    "traffic": Kind("Requests over time", of.over_time_of),
    "run": Kind("The median simulated run, row by row", of.run_of),
    "lost": Kind("What the run lost its time to", of.lost_of),
    "finish": Kind("When the simulated runs end", of.finish_of),
    "hours": Kind("Carbon by month and hour", of.hours_of),
    "regimes": Kind("What binds where", regimes_of),
}
"""The charts by the name that a reader gives."""


def chart(
    answer: Answer,
    kind: str = "time",
    *,
    beside: Answer | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    title: str | None = None,
    width: int = WIDE,
) -> Figure | None:
    """A chart of an answer, or of two where ``beside`` is given; nothing where the answer has no data for it. ``over`` has the two keys of a map of
    regimes and their values."""
    if kind not in KINDS:
        raise unknown_name("chart of an answer", kind, KINDS, f"use one of {', '.join(KINDS)}.")
    found = KINDS[kind]
    if (over is not None) != (kind == "regimes"):
        raise InputError(
            "A map of regimes is drawn over two keys, such as batch_size and seq_len; other charts are not.",
            field="over",
        )
    look: dict[str, Any] = {"title": title or found.shows, "width": width}
    if over is not None:
        return found.draw(answer, over, **look)
    if beside is not None and not found.together:
        several = ", ".join(name for name, each in KINDS.items() if each.together)
        raise InputError(f"Of two answers together there are the charts {several}; {kind} is of one.", field="kind")
    if not found.together:
        return found.draw(answer, **look)
    return found.draw(
        _named(answer, beside) if beside is not None else [("Per accelerator" if kind == "memory" else "", answer)],
        **look,
    )


def charted(answer: Answer, kind: str = "time", **asked: Any) -> Figure:
    """The same, with a sentence where there is nothing to draw."""
    figure = chart(answer, kind, **asked)
    if figure is None:
        needs = WORDS["needs"].get(kind, "what does not run has none")
        raise InputError(f"This answer has nothing to draw as {kind!r}: {needs}.", field="kind")
    return figure


def _named(first: Answer, second: Answer) -> list[tuple[str, Answer]]:
    names = (first.subject, second.subject) if first.subject != second.subject else ("First", "Second")
    return list(zip(names, (first, second), strict=True))
