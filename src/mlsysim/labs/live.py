"""A design as time goes by: a minute of its traffic, or its run over weeks, both from the simulated fidelity.

A service is played with requests that come as its load says (drawn with a fixed seed where the plan has none), a training run with
its failures, restarts and checkpoints. The same plan with those settings gives the same numbers in every face.
"""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs.explorer import Document, plan_of
from mlsysim.labs.rpc import offer
from mlsysim.plans.answer import Answer
from mlsysim.plans.arrivals import is_simulated
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.plot.answers import finish_of, lost_of, over_time_of, percentiles_of, run_of
from mlsysim.plot.figure import Figure
from mlsysim.units.registry import to_si

_MINUTE = 60.0
_FEWEST, _MOST, _SHARE = 20, 1000, 0.8
"""Requests of a minute at least and at most, and the share of its most that a service is played at where no rate is given."""
_RUNS = 50


@offer
def live(plan: Document, width: int = 720) -> Document | None:
    """What is played of a plan: numbers over time of a service, pictures of a run; nothing of one pass or a step of post-training."""
    given = plan_of(plan)
    played, how = _played(given)
    if played is None:
        return None
    answer = evaluate(played, change=False)
    if not answer.feasible:
        return None
    found = _traffic(answer, width, given) if answer.task == "serving" else _run(answer, width)
    same = played.document() == given.document()
    # Charts of a plan that is played stand with its answer.
    charts = [] if same and answer.task == "serving" else found["charts"]
    return found | {"says": [*how, *found["says"]], "charts": charts, "plan": None if same else played.document()}


def _played(plan: Plan) -> tuple[Plan | None, list[str]]:
    """The plan with what makes it a simulation, where it is none yet, and what was taken for that."""
    if plan.kind == "training":
        runs: dict[str, Any] = {"simulate": True, "seeds": _RUNS}
        return (plan if plan.ops.simulate else plan.replacing(task="training", ops=runs)), []
    part = plan.serving
    if plan.kind != "serving" or part is None:
        return None, []
    if part.trace is not None or part.seed is not None:
        return plan, []
    rate, how = part.qps, list[str]()
    if rate is None:
        # Clients that come again fill what they are given; a rate near it shows how much it can bear.
        steady = evaluate(plan, change=False)
        if "requests_per_second" not in steady.held:
            return None, []
        rate = _SHARE * to_si(steady.value("requests_per_second"), "1/s")
        how = [f"Simulated at {rate:.3g} requests a second, {_SHARE:.0%} of the most that it can answer."]
    requests = int(min(_MOST, max(_FEWEST, round(_MINUTE * rate))))
    traffic = {"qps": rate, "concurrency": None, "seed": 0, "requests": requests}
    calibrated = {"efficiency": None} if isinstance(plan.hardware.efficiency, float) else {}
    return plan.replacing(task="serving", serving=traffic, hardware=calibrated), how


def _traffic(answer: Answer, width: int, given: Plan) -> Document:
    seen = answer.over_time
    if not seen or len(seen["times"]) < 2:
        raise InputError("Too few of these requests are simulated to show them over time.")
    own = given.serving is not None and is_simulated(
        given.serving
    )  # percentiles of more requests stand with the answer
    pictures = _svgs(
        over_time_of(answer, title="Requests worked on and waiting", width=width),
        None if own else percentiles_of(answer, title="Percentiles of their times", width=width),
    )
    return {"kind": "traffic", "says": list(answer.verdict[:2]), "over_time": seen, "charts": pictures}


def _run(answer: Answer, width: int) -> Document:
    pictures = _svgs(
        run_of(answer, title="One of the runs, day by day", width=width),
        lost_of(answer, title="What it lost its time to", width=width),
        finish_of(answer, title="When runs end", width=width),
    )
    told = [sentence for sentence in answer.verdict if "simulated" in sentence or "loses" in sentence]
    return {"kind": "run", "says": told, "over_time": None, "charts": pictures}


def _svgs(*figures: Figure | None) -> list[str]:
    return [figure.svg() for figure in figures if figure is not None]
