"""The charts of a report, drawn from an answer alone. A chart that has nothing to show is not there."""

from __future__ import annotations

from mlsysim.plans.answer import Answer
from mlsysim.plot import answers
from mlsysim.plot.charts.pareto import pareto
from mlsysim.plot.figure import Figure
from mlsysim.plot.pipelines import schedule_of, stage_memory_of
from mlsysim.report.designs import THIS, Designs

WHOLES = {"training": "a training step", "serving": "a request", "rl": "a step", "inference": "a pass"}


def figures_of(answer: Answer, designs: Designs | None) -> dict[str, Figure]:
    """The charts by the name of their place in the report."""
    whole = WHOLES[answer.task]
    found = {
        "whole": answers.whole_of(answer, title=_where_to(answer)),
        "scorecard": answers.scorecard_of(answer, title="The walls: what was found at each"),
        "roofline": answers.roofline_of([("", answer)]),
        "time": answers.time_of(answer, whole=whole[0].upper() + whole[1:], title=f"Where the time of {whole} goes"),
        "memory": answers.memory_of([("Per accelerator", answer)]),
        "percentiles": answers.percentiles_of(answer, title="Percentiles of the requests' times"),
        "traffic": answers.over_time_of(answer, title="Requests over the simulated time"),
        "run": answers.run_of(answer, title="The median simulated run, row by row"),
        "lost": answers.lost_of(answer, title="What it loses its time to, and the share of the run")
        if answer.percentiles
        else None,
        "finish": answers.finish_of(answer, title="When the simulated runs end"),
        "hours": answers.hours_of(answer, title="Carbon by month and hour"),
        "cost": answers.cost_of(answer, title=f"Cost of {answer.period}, by part"),
        "carbon": answers.carbon_of(answer, title="Carbon of electricity, and of making the chips"),
        "sensitivity": answers.sensitivity_of(answer, title="10 % less and 10 % more of each figure of the hardware"),
        "designs": None if designs is None else _designs(designs),
        "pipeline": schedule_of(answer),
        "pipeline-memory": stage_memory_of(answer),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _where_to(answer: Answer) -> str:
    """Where the time goes, of a run with its steps and failures on one scale."""
    return f"Where the time of {'the run' if answer.run_parts else WHOLES[answer.task]} goes"


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
