"""The charts of a report, drawn from an answer alone. A chart that has nothing to show is not there."""

from __future__ import annotations

from collections.abc import Iterable

from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, FOLDED
from mlsysim.plans.answer import Answer, Part
from mlsysim.plot.answers import (
    finish_of,
    hours_of,
    lost_of,
    memory_of,
    over_time_of,
    percentiles_of,
    roofline_of,
    run_of,
    scorecard_of,
    time_of,
    tornado_of,
)
from mlsysim.plot.charts.bars import waterfall
from mlsysim.plot.charts.pareto import pareto
from mlsysim.plot.charts.timeline import memory_timeline, timeline
from mlsysim.plot.figure import Figure
from mlsysim.plot.schedule import SCHEDULE_NAMES, simulate
from mlsysim.report.designs import THIS, Designs
from mlsysim.units.registry import quantity

WHOLES = {"training": "a training step", "serving": "a request", "rl": "a step", "inference": "a pass"}
_MOST_BLOCKS = 100


def figures_of(answer: Answer, designs: Designs | None) -> dict[str, Figure]:
    """The charts by the name of their place in the report."""
    whole = WHOLES[answer.task]
    found = {
        "scorecard": scorecard_of(answer, title="The walls: what was found at each"),
        "roofline": roofline_of([("", answer)]),
        "time": time_of(answer, whole=whole[0].upper() + whole[1:], title=f"Where the time of {whole} goes"),
        "memory": memory_of([("Per accelerator", answer)]),
        "percentiles": percentiles_of(answer, title="Times within which shares of the requests are"),
        "traffic": over_time_of(answer, title="Requests over the time that was played"),
        "run": run_of(answer, title="The simulated run in the middle, row by row"),
        "lost": lost_of(answer, title="What it lost its time to, and the share of the run"),
        "finish": finish_of(answer, title="When simulated runs have ended"),
        "hours": hours_of(answer, title="Carbon of the hours by month"),
        "cost": _parts(
            answer.cost_parts,
            "USD",
            "" if answer.paid is None else answer.paid.label,
            f"What is paid for {answer.period} consists of",
        ),
        "carbon": _parts(answer.carbon_parts, "kgCO2e", "Both", "Carbon of running, and of making the chips"),
        "sensitivity": tornado_of(
            answer, answer.sensitivities, title="10 % less and 10 % more of each figure of the hardware"
        ),
        "designs": None if designs is None else _designs(designs),
        **_pipeline(answer),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _parts(parts: Iterable[Part], unit: str, total: str, title: str) -> Figure | None:
    shown = [(part.label, quantity(part.value, unit)) for part in parts if part.value > 0]
    return waterfall(shown, total_label=total, title=title) if shown else None


def _designs(designs: Designs) -> Figure:
    best, first, (x, y) = designs.front, designs.points[0], designs.titles
    return pareto(
        [(point.label, point.x.to(first.x.units), point.y.to(first.y.units)) for point in designs.points],
        x_title=x,
        y_title=y,
        goals=designs.goals,
        chosen=list(dict.fromkeys([THIS, designs.points[best[0]].label, designs.points[best[-1]].label])),
        title=f"{y} against {x[0].lower()}{x[1:]}",
    )


# --- pipelines -------------------------------------------------------------------------------------------------------


def pipeline_drawn(answer: Answer) -> tuple[str, int, int, int, int | None] | None:
    """(schedule, stages, micro-batches, virtual stages, group) to draw for a plan with a pipeline.

    A step with many micro-batches repeats its middle, and blocks of a pixel are no picture: where a row would have too
    many, two virtual stages and fewer micro-batches are drawn.
    """
    layout = answer.layout
    stages, schedule = layout.get("pp"), layout.get("schedule")
    if not isinstance(stages, int) or stages < 2 or answer.task != "training" or schedule not in SCHEDULE_NAMES:
        return None
    batches, virtual = layout["micro_batches"], layout["virtual_stages"] if schedule in CHUNKED else 1
    group = answer.plan.parallelism.micro_batch_group if schedule == "interleaved" else None
    split = 2 if schedule in ("gpipe", "1f1b", *CHUNKED) else 6 if schedule in FOLDED else 3
    least = stages if split == 2 or schedule == "zero_bubble" else 2 * stages
    if batches * virtual * split > _MOST_BLOCKS:
        virtual = min(virtual, 2)
    if batches * virtual * split > _MOST_BLOCKS and batches > least:
        fewer = _MOST_BLOCKS // (virtual * split)
        if group is not None:
            least = group = min(group, max(stages, fewer))
        batches = max(least, fewer - fewer % (group or (stages if schedule == "interleaved" else 2)))
    return schedule, stages, batches, virtual, group


def _pipeline(answer: Answer) -> dict[str, Figure | None]:
    drawn = pipeline_drawn(answer)
    if drawn is None:
        return {}
    try:
        found: dict[str, Figure | None] = {"pipeline": timeline(*drawn)}
        line = simulate(*drawn)
    except InputError:
        # Such as DualPipe with less than two micro-batches per stage: the engine has a closed form, the simulation no order.
        return {}
    bar = answer.memory
    held = max(line.peak_held(device) for device in range(line.devices))
    active = sum(part.value for part in bar.parts if part.label == "activations") if bar is not None else 0.0
    if bar is not None and active > 0 and held > 0:
        found["pipeline-memory"] = memory_timeline(
            *drawn,
            activations=quantity(active / held, "byte"),
            state=quantity(bar.used - active, "byte"),
            capacity=quantity(bar.capacity, "byte"),
        )
    return found
