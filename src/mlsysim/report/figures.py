"""The charts of a report, drawn from an answer alone. A chart that has nothing to show is not there."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plot.answers import memory_of, roofline_of, scorecard_of, time_of, tornado_of
from mlsysim.plot.charts.memory_timeline import memory_timeline
from mlsysim.plot.charts.pareto import pareto
from mlsysim.plot.charts.timeline import timeline
from mlsysim.plot.charts.waterfall import waterfall
from mlsysim.plot.figure import Figure
from mlsysim.plot.schedule import SCHEDULE_NAMES, simulate
from mlsysim.report.designs import THIS, Designs
from mlsysim.units.registry import Quantity, quantity

WHOLES = {"training": "a training step", "serving": "a request", "inference": "a pass"}
_MOST_BLOCKS = 100


def figures_of(answer: Answer, designs: Designs | None) -> dict[str, Figure]:
    """The charts by the name of their place in the report."""
    whole = WHOLES[answer.task]
    found = {
        "scorecard": scorecard_of(answer, title="The walls: what was found at each"),
        "roofline": roofline_of([("", answer)]),
        "time": time_of(answer, whole=whole[0].upper() + whole[1:], title=f"Where the time of {whole} goes"),
        "memory": memory_of([("Per accelerator", answer)]),
        "cost": _cost(answer),
        "carbon": _carbon(answer),
        "sensitivity": tornado_of(
            answer, answer.sensitivities, title="10 % less and 10 % more of each figure of the hardware"
        ),
        "designs": None if designs is None else _designs(designs),
        **_pipeline(answer),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _cost(answer: Answer) -> Figure | None:
    parts = [(part.label, quantity(part.value, "USD")) for part in answer.cost_parts]
    return waterfall(parts, total_label="Cost of owning", title="What the cost consists of") if parts else None


def _carbon(answer: Answer) -> Figure | None:
    parts = [(part.label, quantity(part.value, "kgCO2e")) for part in answer.carbon_parts if part.value > 0]
    return waterfall(parts, total_label="Both", title="Carbon of running, and of making the chips") if parts else None


def _designs(designs: Designs) -> Figure:
    best = designs.front
    chosen = list(dict.fromkeys([THIS, designs.points[best[0]].label, designs.points[best[-1]].label]))
    first = designs.points[0]
    return pareto(
        [(point.label, _like(point.x, first.x), _like(point.y, first.y)) for point in designs.points],
        x_title=designs.titles[0],
        y_title=designs.titles[1],
        goals=(designs.goals[0], designs.goals[1]),
        chosen=chosen,
        title=f"{designs.titles[1]} against {designs.titles[0][0].lower()}{designs.titles[0][1:]}",
    )


def _like(value: Any, first: Any) -> Any:
    """A value in the unit of the first."""
    return value.to(first.units) if isinstance(first, Quantity) else value


# --- pipelines -------------------------------------------------------------------------------------------------------


def pipeline_drawn(answer: Answer) -> tuple[str, int, int, int] | None:
    """(schedule, stages, micro-batches, virtual stages) to draw for a plan with a pipeline.

    A step with many micro-batches repeats its middle, and blocks of a pixel are no picture: where a row would have too
    many, two virtual stages and fewer micro-batches are drawn.
    """
    layout = answer.layout
    stages, schedule = layout.get("pp"), layout.get("schedule")
    if not isinstance(stages, int) or stages < 2 or answer.task != "training" or schedule not in SCHEDULE_NAMES:
        return None
    batches, virtual = layout["micro_batches"], layout["virtual_stages"] if schedule == "interleaved" else 1
    split = 3 if schedule in ("zero_bubble", "dualpipe") else 2
    least = 2 * stages if schedule == "dualpipe" else stages
    if batches * virtual * split > _MOST_BLOCKS:
        virtual = min(virtual, 2)
    if batches * virtual * split > _MOST_BLOCKS and batches > least:
        fewer = _MOST_BLOCKS // (virtual * split)
        batches = max(least, fewer - fewer % (stages if schedule == "interleaved" else 2))
    return schedule, stages, batches, virtual


def _pipeline(answer: Answer) -> dict[str, Figure | None]:
    drawn = pipeline_drawn(answer)
    if drawn is None:
        return {}
    try:
        found: dict[str, Figure | None] = {"pipeline": timeline(*drawn)}
        line = simulate(*drawn)
    except InputError:
        # Such as micro-batches that do not divide by the stages: the engine has a closed form, the simulation no order.
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
