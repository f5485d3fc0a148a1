"""Pictures of the tutorials and of the pages about ideas. What a page builds in its blocks is taken from the page, so that both show the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlsysim
from mlsysim import Infra, PlacementOptimizer, ServingModel, SingleNodeModel
from mlsysim.api.service import call
from mlsysim.plot.answers import scorecard_of
from mlsysim.plot.charts.bars import waterfall
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.charts.memory_bar import memory_bar
from mlsysim.plot.charts.pareto import pareto
from mlsysim.plot.figure import Figure
from mlsysim.units.registry import quantity, to_si

from ..answer_picture import QUESTION, answer_figure
from ..blocks import namespace_of

__all__ = ["PICTURES"]

DOCS = Path(__file__).resolve().parents[2]


def _of_page(page: str) -> dict[str, Any]:
    """What the Python blocks of a page leave behind."""
    with tempfile.TemporaryDirectory() as folder:
        return namespace_of((DOCS / page).read_text(encoding="utf-8"), page, Path(folder))


def first_minute() -> Figure:
    """Does it fit, in the tutorial's own terms."""
    bars = [("one", SingleNodeModel().solve("Llama3_70B", "H100"))]
    bars += [
        (f"each of {count}", ServingModel().solve("Llama3_70B", "H100", tp_size=count, batch_size=16, seq_len=2048))
        for count in (2, 4)
    ]
    return memory_bar(bars, title="Llama 3.1 70B in fp16 against the memory of an H100")


def audit() -> Figure:
    """Every wall that the audited plan meets."""
    answer = mlsysim.train(**QUESTION)
    return scorecard_of(answer, title="Llama 3.1 70B on 512 H100: how much each wall takes")


def training_fleets(counts: Sequence[int] = (256, 512, 1024, 2048)) -> Figure:
    """Days and dollars of fleets."""
    points = []
    for chip in ("H100", "B200"):
        for count in counts:
            answer = mlsysim.train("Llama3_70B", on=f"{count}x{chip}", tokens=2e12, region="Quebec")
            points.append((f"{count} {chip}", answer.value("run_time"), answer.value("tco")))
    return pareto(
        points,
        x_title="Time of the run",
        y_title="Cost of owning for that time",
        chosen=[label for label, _, _ in points],
        title="Llama 3.1 70B on two trillion tokens: fleets by days and dollars",
    )


def serving_load(loads: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> Figure:
    """What more requests in flight do to each user."""
    of: dict[str, Any] = {"isl": 2000, "osl": 300, "precision": "fp8", "tp": 4}
    answers = [mlsysim.serve("Llama3_70B", on="4xH200", concurrency=load, **of) for load in loads]
    labels = {"ttft": "first token", "tpot": "each further token"}
    series = [
        (label, [(k, to_si(answer.value(name), "s")) for k, answer in enumerate(answers)])
        for name, label in labels.items()
    ]
    return lines(
        series,
        names=list(map(str, loads)),
        x_title="Requests in flight",
        y_title="Time",
        y_unit="s",
        title="Llama 3.1 70B in fp8 on four H200: what each further request in flight costs the others",
    )


def imported() -> Figure:
    """The imported model against its chip."""
    model = _of_page("tutorials/import-your-own-model.md")["mine"]
    bars = [
        (f"{batch} requests", ServingModel().solve(model, "L4", batch_size=batch, seq_len=4096))
        for batch in (4, 16, 32)
    ]
    return memory_bar(bars, title="The imported model with contexts of 4,096 tokens, against one L4")


def swept() -> Figure:
    """The front of the tutorial's own sweep."""
    found = _of_page("tutorials/sweep-a-design-space.md")["result"].pareto
    points = [
        (
            f"{place['inputs']['hardware']} {place['inputs']['precision']}, batch {place['inputs']['batch_size']}",
            quantity(place["outputs"]["latency_s"], "s"),
            quantity(place["outputs"]["usd_per_mtoken"], "USD"),
        )
        for place in found
    ]
    return pareto(
        points,
        x_title="Time of a token",
        y_title="Cost of a million tokens",
        chosen=[label for label, _, _ in points],
        title="Llama 3.1 70B, one NVIDIA chip: each of these designs is the cheapest for its speed",
    )


def placed() -> Figure:
    """Where a run would go."""
    regions = [grid.metadata.key for grid in Infra.Grids if grid.electricity_price is not None]
    points = []
    for region in regions:
        best = PlacementOptimizer().solve("Research_256", duration_days=30, carbon_tax_per_ton=0, regions=[region])
        points.append((region, best.lowest_tco, best.carbon_footprint))
    return pareto(
        points,
        x_title="Cost of the month",
        y_title="Carbon of the month",
        chosen=["Quebec", "Sweden", "US_Avg", "Poland"],
        title="256 H100 for a month, on every grid with a price: cost and carbon",
    )


def ledger_time() -> Figure | None:
    """The parts of a step add up to it."""
    page = _of_page("ledger.md")
    return waterfall(page["step"], title="One step of Llama 3.1 70B on 256 H100: parts that add up")


def ledger_memory() -> Figure:
    """What is held adds up too."""
    return memory_bar(_of_page("ledger.md")["step"], title="What each accelerator holds during that step")


def fidelities() -> Figure:
    """One question at all three fidelities."""
    page = _of_page("fidelities.md")
    series = [(label, [(rate, value) for rate, value in points]) for label, points in page["answers"].items()]
    return lines(
        series,
        x_title="Requests a second",
        y_title="Time to the first token",
        y_unit="s",
        title="One question at three fidelities: Llama 3.1 8B on one H100, prompts of 1,000 and answers of 200 tokens",
    )


def _quantity(metric: dict[str, Any]) -> Any:
    return quantity(metric["value"]["magnitude"], metric["value"]["unit"])


def server_sweep() -> Figure:
    """What a server answers to the page's own request."""
    page = (DOCS / "servers.md").read_text(encoding="utf-8")
    asked = page[page.index("-d '", page.index("/v1/sweep -H")) + 4 :]
    reply = call("sweep", json.loads(asked[: asked.index("'")]))
    points = [(point["settings"]["qps"], point["metrics"]) for point in reply.document["points"] if point["feasible"]]
    labels = {"ttft": "first token", "tpot": "each further token"}
    series = [
        (label, [(rate, to_si(_quantity(metrics[f"performance.{name}"]), "s")) for rate, metrics in points])
        for name, label in labels.items()
    ]
    return lines(
        series,
        x_title="Requests a second",
        y_title="Time",
        y_unit="s",
        title="One request to /v1/sweep: Llama 3.1 8B on one H100, prompts of 1,000 and answers of 200 tokens",
    )


PICTURES: dict[str, Callable[[], Figure | None]] = {
    "first-question.svg": answer_figure,
    "first-minute.svg": first_minute,
    "audit.svg": audit,
    "training-fleets.svg": training_fleets,
    "serving-load.svg": serving_load,
    "imported.svg": imported,
    "swept.svg": swept,
    "placed.svg": placed,
    "ledger-time.svg": ledger_time,
    "ledger-memory.svg": ledger_memory,
    "fidelities.svg": fidelities,
    "server-sweep.svg": server_sweep,
}
