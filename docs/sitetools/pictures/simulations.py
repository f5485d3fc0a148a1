"""Pictures of the pages, drawn from the package while the site is built: they never lie in the tree, and cannot be stale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plot.answers import hours_of, over_time_of, run_of
from mlsysim.plot.charts.lines import lines
from mlsysim.plot.figure import Figure
from mlsysim.units.registry import to_si

__all__ = ["PICTURES"]

_SECONDS: dict[str, Any] = {"y_unit": "s"}


def _serve(on: str, quick: bool = True, **serving: Any) -> Answer:
    plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": on}, "parallelism": {"tp": 1}, "serving": serving}
    return evaluate_plainly(Plan.model_validate(plan), quick)


def _steady(rate: float) -> Answer:
    return _serve("1xH100", qps=rate, prompt_tokens=1000, output_tokens=200)


def _random(rate: float, quick: bool = True) -> Answer:
    return _serve("1xH100", quick, qps=rate, prompt_tokens=1000, output_tokens=200, seed=0, requests=2500)


def bursts() -> Figure | None:
    """One replica under Azure's code trace."""
    title = "Azure's code trace at one H100: requests that are worked on, and that wait"
    return over_time_of(_serve("1xH100", trace="azure-code"), title=title)


def replicas(counts: Sequence[int] = (1, 2, 3, 4, 6, 8)) -> Figure:
    """The same trace on more replicas."""
    found = {count: _serve(f"{count}xH100", trace="azure-code").percentiles["ttft"] for count in counts}
    series = [
        (label, [(count, seen[level]) for count, seen in found.items()])
        for level, label in (("p99", "99 %"), ("p95", "95 %"), ("p90", "90 %"), ("mean", "mean"), ("p50", "50 %"))
    ]
    title = "Time to the first token under Azure's code trace: each percentile asks for replicas of its own"
    return lines(series, x_title="Replicas", y_title="Time to the first token", limit="500 ms", title=title, **_SECONDS)


def saturation(rates: Sequence[float] = (5, 10, 15, 20, 23, 24, 25)) -> Figure:
    """Mean and p99 of the first token up to the rate that a replica carries, with the interval of the p99."""
    played = {rate: _random(rate, quick=False) for rate in rates}
    series = [
        ("mean, steady state", [(rate, to_si(_steady(rate).value("ttft"), "s")) for rate in rates]),
        ("mean, simulated", [(rate, answer.percentiles["ttft"]["mean"]) for rate, answer in played.items()]),
        ("99 %, simulated", [(rate, answer.percentiles["ttft"]["p99"]) for rate, answer in played.items()]),
    ]
    for side, label in (("low", "its interval from"), ("high", "to")):
        ends = {rate: getattr(answer.held["ttft_p99"], side) for rate, answer in played.items()}
        series.append((label, [(rate, to_si(end, "s")) for rate, end in ends.items()]))
    title = "Near saturation a few per cent of a step decide: prompts of 1,000 and answers of 200 tokens on one H100"
    said = {"x_title": "Requests a second", "y_title": "Time to the first token"}
    return lines(series, title=title, **said, **_SECONDS)


def hours() -> Figure | None:
    """Carbon of a grid by month and hour."""
    ops = {"region": "California", "start": "2026-12-01"}
    plan = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH100"}, "ops": ops}
    title = "California: carbon by hour and month, around the yearly mean of 184 gCO2e/kWh"
    return hours_of(evaluate_plainly(Plan.model_validate(plan)), title=title)


def pools(generators: Sequence[int] = (16, 24, 32, 40, 48)) -> Figure:
    """A step of post-training by the accelerators that generate, for samples of different age."""
    asked = {"prompts": 64, "samples": 32, "response": 2500, "max_response": 8192}
    base: dict[str, Any] = {"task": "rl", "workload": {"model": "Qwen3_32B"}, "hardware": {"on": "64xH100"}}
    base["serving"] = {"prompt_tokens": 512}

    def step(many: int, age: int) -> float:
        plan = Plan.model_validate(base | {"rl": asked | {"split": str(many), "staleness": age}})
        return to_si(evaluate_plainly(plan).value("latency"), "s")

    ages = {"samples of this step's weights": 0, "samples one step old": 1}
    series = [(label, [(many, step(many, age)) for many in generators]) for label, age in ages.items()]
    title = "A step of GRPO on 64 H100, Qwen3 32B: how many generate, and how old samples may be"
    return lines(series, x_title="Accelerators that generate", y_title="Time of a step", title=title, **_SECONDS)


def weeks() -> Figure | None:
    """A simulated run that gives way to its grid, row by row."""
    work = {"model": "Llama3_70B", "tokens": 6e12, "batch_size": 2048}
    split = {"tp": 8, "micro_batch": 1, "zero": 1, "recompute": "selective"}
    ops = {
        "region": "California",
        "start": "2026-12-01",
        "pause_above": "320g",
        "simulate": True,
        "seeds": 40,
        "spares": 8,
    }
    plan = {"task": "training", "workload": work, "hardware": {"on": "4096xH100"}, "parallelism": split, "ops": ops}
    title = "4,096 H100 in California from December on, held above 320 gCO2e/kWh: the run in the middle of 40"
    return run_of(evaluate_plainly(Plan.model_validate(plan)), title=title)


def spares(counts: Sequence[int] = (30, 32, 34, 36, 38, 40, 44, 48, 52)) -> Figure:
    """When runs end by the nodes that stand by."""
    work = {"model": "Llama3_405B", "tokens": 15.6e12, "batch_size": 16384, "seq_len": 4096}
    base = {
        "task": "training",
        "workload": work,
        "hardware": {"on": "16384xH100"},
        "parallelism": {"tp": 8, "pp": 16, "zero": 1},
    }
    played = {}
    for count in counts:
        plan = Plan.model_validate(base | {"ops": {"simulate": True, "seeds": 40, "spares": count}})
        played[count] = evaluate_plainly(plan, True).percentiles.get("run_time", {})
    series = [
        (label, [(count, seen[level]) for count, seen in played.items() if seen.get(level) is not None])
        for level, label in (("p90", "nine in ten runs"), ("p50", "half of them"), ("p10", "one in ten"))
    ]
    title = "Llama 3 405B on 16,384 H100, 15.6 trillion tokens: days until runs have ended, by spares"
    return lines(series, x_title="Nodes that stand by", y_title="Days", title=title)


PICTURES: dict[str, Callable[[], Figure | None]] = {
    "bursts.svg": bursts,
    "percentiles-by-replicas.svg": replicas,
    "near-saturation.svg": saturation,
    "hours-of-california.svg": hours,
    "run-over-weeks.svg": weeks,
    "spares-of-a-run.svg": spares,
    "rl-split.svg": pools,
}
"""Files below ``assets/figures``, and what draws each."""
