"""The pipeline of a plan as it runs: its schedule with its virtual stages, micro-batches and the seconds of its stages, and the memory of each.

The stages are those of the answer: how long a micro-batch is on the first, on those between and on the last, and what its passes have of
that. What the longest stage waits in the picture is thus the ledger's pipeline bubble, as far as the closed forms of
:mod:`mlsysim.physics.pipeline` are exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, FOLDED
from mlsysim.physics.stage_split import chunk_layers, stage_layers
from mlsysim.plans.answer import Answer
from mlsysim.plot.charts.timeline import memory_timeline, timeline
from mlsysim.plot.figure import WIDE, Figure
from mlsysim.plot.orders import ORDERS
from mlsysim.plot.scale import amount
from mlsysim.plot.schedule import MOST_PASSES, Passes, simulate
from mlsysim.units.registry import quantity

_APART = 0.02
"""What simulation and closed form may be apart before both are said, of the closed form."""


def schedule_drawn(answer: Answer) -> dict[str, Any] | None:
    """What a timeline is drawn with for a plan with a pipeline: all of it, or of very many micro-batches as many as are simulated."""
    layout, seen = answer.layout, answer.stages
    stages, schedule = layout.get("pp"), layout.get("schedule")
    if not isinstance(stages, int) or stages < 2 or answer.task != "training" or schedule not in ORDERS:
        return None
    batches, virtual = layout["micro_batches"], layout["virtual_stages"] if schedule in CHUNKED else 1
    group = answer.plan.parallelism.micro_batch_group if schedule == "interleaved" else None
    most = MOST_PASSES // (stages * (2 if schedule in FOLDED else virtual))
    if batches > most:
        even = group or (stages if schedule == "interleaved" else 2)
        batches = max(most - most % even, even)
    drawn = {
        "schedule": schedule,
        "stages": stages,
        "micro_batches": batches,
        "virtual_stages": virtual,
        "group": group,
    }
    if not seen:
        return drawn
    shares = (seen["forward"], seen["inputs"], seen["weights"])
    chunks: tuple[float, ...] = ()
    if "layers" in seen and schedule in (*CHUNKED, "gpipe", "1f1b"):
        layers = int(seen["layers"])
        most = stage_layers(layers, stages, virtual).most
        chunks = tuple(each / most for each in chunk_layers(layers, stages, virtual))
    passes = Passes(*shares, seen["first"] / seen["between"], seen["last"] / seen["between"], chunks)
    return drawn | {"passes": passes, "seconds": seen["between"]}


def schedule_of(answer: Answer, *, title: str | None = None, width: int = WIDE) -> Figure | None:
    """Who does what when in a step. Nothing where the simulation has no order, such as of DualPipe with less than two micro-batches a stage."""
    drawn = schedule_drawn(answer)
    if drawn is None:
        return None
    try:
        figure = timeline(**drawn, title=title, width=width)
    except InputError:
        return None
    said, asked = figure.subtitle, answer.layout["micro_batches"]
    if drawn["micro_batches"] < asked:
        said += f" The step has {asked:,} micro-batches: as many more go on in the middle."
    bubble = sum(part.value for part in answer.time_parts if part.label == "pipeline bubble")
    waits = simulate(**{name: value for name, value in drawn.items() if name != "seconds"}).bubble * drawn.get(
        "seconds", 0.0
    )
    if bubble and abs(waits - bubble) > _APART * bubble:
        said += f" The answer's closed form, which is within bounds here, has {amount(bubble, 's')}."
    return replace(figure, subtitle=said)


def stage_memory_of(answer: Answer, *, title: str | None = None, width: int = WIDE) -> Figure | None:
    """What each stage holds over a step; the fullest holds what the plan's memory is."""
    drawn, bar = schedule_drawn(answer), answer.memory
    if drawn is None or bar is None:
        return None
    active = sum(part.value for part in bar.parts if part.label == "activations")
    try:
        line = simulate(**{name: value for name, value in drawn.items() if name != "seconds"})
    except InputError:
        return None
    held = max(line.peak_held(device) for device in range(line.devices))
    if not active > 0 or not held > 0:
        return None
    sizes = {"activations": active / held, "state": bar.used - active, "capacity": bar.capacity}
    amounts = {name: quantity(value, "byte") for name, value in sizes.items()}
    return memory_timeline(**drawn, **amounts, title=title, width=width)
