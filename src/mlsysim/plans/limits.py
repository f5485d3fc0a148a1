"""What a plan demands, checked: its assertions, and the limits that its parts state (deadline, budget, latencies, rate).

A demand that is not kept is what stopped the plan, and so what binds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.plans.answer import Answer
from mlsysim.plans.metrics import Metric, kinds
from mlsysim.plans.pieces import Checked, Limit, Score
from mlsysim.plans.targets import TIMES, parse_targets
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity, quantity, to_si
from mlsysim.units.text import compact_time, given_money, plainly
from mlsysim.vocabulary import worded
from mlsysim.walls.catalog import TITLES


def demands(answer: Answer) -> tuple[Checked, ...]:
    """Assertions and limits of the answer's plan, each with whether it holds."""
    return (*assertions(answer), *limits(answer))


def assertions(answer: Answer) -> tuple[Checked, ...]:
    """The plan's assertions against the answer's metrics."""
    found = []
    for wanted in answer.plan.constraints.assertions:
        try:
            metric = answer.metric(wanted.metric)
        except InputError as error:
            if answer.runs or isinstance(error, UnknownNameError):
                raise
            told = f"a limit on {wanted.metric.rpartition('.')[2].replace('_', ' ')}"
            found.append(
                Checked(metric=wanted.metric, sentence=error.message, passed=False, limit=wanted.metric, asked=told)
            )
            continue
        for word, limit, sign in (("at most", wanted.max, 1), ("at least", wanted.min, -1)):
            if limit is None:
                continue
            bound = _limit(metric, limit)
            number, most = metric.value, bound
            if isinstance(bound, Quantity):
                number, most = metric.value.to(bound.units).magnitude, bound.magnitude
            passed, limited = bool(number * sign <= most * sign), metric.text_of(bound)
            told = f"{'and' if passed else 'but'} {word} {limited} was asked for"
            odds = _odds(answer, metric, most / number if number else 0.0)
            odds = odds if odds is None or sign > 0 else 1 - odds
            found.append(
                Checked(
                    metric=metric.path,
                    sentence=f"{metric.label} is {metric.text}, {told}{_open(metric, odds)}.",
                    passed=passed,
                    limit=metric.name,
                    odds=odds,
                    bound=float(most),
                    least=sign < 0,
                    asked=f"{_small(metric.label)} of {word} {limited}",
                )
            )
    return tuple(found)


def _limit(metric: Metric, limit: Any) -> Any:
    """The limit of an assertion in a form that compares with the metric's value."""
    value = metric.value
    if not isinstance(value, (int, float, Quantity)) or isinstance(value, bool):
        raise InputError(f"The metric {metric.path!r} is {metric.text!r}, which is not a number to be limited.")
    if isinstance(limit, Mapping):
        if set(limit) != {"magnitude", "unit"}:
            raise InputError(f"The limit of {metric.path!r} must have magnitude and unit.")
        limit = f"{limit['magnitude']} {limit['unit']}"[:80]
    if isinstance(limit, str):
        bound = parse_quantity(limit)
        if not isinstance(value, Quantity):
            if bound.units.dimensionless:
                return float(bound.to("").magnitude)
            raise InputError(f"The metric {metric.path!r} is a plain number, so its limit {limit!r} must have no unit.")
        try:
            return bound.to(value.units)
        except DimensionalityError:
            raise InputError(
                f"The limit {limit[:40]!r} of {metric.path!r} has another dimension than its value, {metric.text}."
            ) from None
    if not isinstance(value, Quantity):
        if kinds()[metric.name].share and limit > 1:
            per_cent = f"; {limit:g} per cent is '{limit:g}%'" if limit <= 100 else ""
            raise InputError(
                f"{metric.label} ({metric.name}) is a share of at most 1, got a limit of {limit:g}{per_cent}."
            )
        return float(limit)
    # A plain number is in a unit of its own where the printed one follows the size.
    return Quantity(float(limit), kinds()[metric.name].plain or value.units).to(value.units)


def limits(answer: Answer) -> tuple[Checked, ...]:
    """Limits that are parts of a plan: deadline, budget, latencies and rate of serving."""
    ops, serving, held = answer.plan.ops, answer.plan.serving, answer.held
    cost = "tco" if answer.paid is None else answer.paid.name
    asked = [("run_time", "deadline", ops.deadline), (cost, "budget", ops.budget)]
    if serving is not None:
        asked += [(name, "limit", getattr(serving, name)) for name in ("ttft", "tpot", "latency")]
        asked += [(each.metric, "limit", quantity(each.seconds, "s")) for each in parse_targets(serving.slo)]
    runs = held.get("deadline_kept")
    found = [
        _within(answer, held[name], label, most, runs) if name in held else _kept_by_none(answer, name, label, most)
        for name, label, most in asked
        if most is not None and (name in held or not answer.feasible)
    ]
    if (
        ops.deadline is not None
        and answer.plan.workload.tokens is not None
        and "goodput" in held
        and "run_time" not in held
    ):
        until = f"deadline of {compact_time(to_si(ops.deadline, 's'), 5)}"
        words = f"No run of this kind ends, so that the {until} is missed."
        path = held["goodput"].path
        found.append(Checked(metric=path, sentence=words, passed=False, limit="deadline", asked=f"a {until}"))
    if serving is not None and serving.qps is not None:
        asked_for = f"{plainly(serving.qps, 6)} {'request' if serving.qps == 1 else 'requests'} a second"
        found.append(_answered(answer, float(serving.qps), asked_for))
    return tuple(found)


def _answered(answer: Answer, qps: float, asked: str) -> Checked:
    """Whether requests are answered as fast as they come: by the most that are, where that is known beside the rate."""
    most = answer.held.get("most_requests_per_second") or answer.held.get("requests_per_second")
    if most is None or not (answer.feasible or answer.overloaded):
        words, path = f"What does not fit answers none of {asked}.", "performance.requests_per_second"
        return Checked(metric=path, sentence=words, passed=False, limit="qps", asked=asked, least=True)
    rate = to_si(most.value, "1/s")
    passed = not answer.overloaded and rate >= qps * 0.999
    found = Checked(metric=most.path, sentence="", passed=passed, limit="qps", asked=asked, least=True, bound=qps)
    come = plainly(qps)
    if most.name == "requests_per_second":
        how = "as fast as" if passed else "slower than"
        return found.model_copy(
            update={"sentence": f"Requests are answered at {plainly(rate)} a second, {how} they come ({come})."}
        )
    odds = _steady(most, qps)
    # Another layout may be the best at another load, and answer more or fewer.
    where = " in this layout" * any(each.name == "layout" for each in answer.assumed)
    words = f"At most {plainly(rate)} requests a second can be answered{where}, and {come} {'arrives' if qps == 1 else 'arrive'}{_open(most, odds)}."
    return found.model_copy(update={"sentence": words, "odds": odds})


def _bound_text(label: str, most: Any) -> str:
    """A limit as it is printed: money, or a time."""
    return given_money(to_si(most, "USD")) if label == "budget" else compact_time(to_si(most, "s"))


def _asked(name: str, label: str, shown: str) -> str:
    return f"{_small(name)} within {shown}" if label == "limit" else f"a {label} of {shown}"


def _kept_by_none(answer: Answer, name: str, label: str, most: Any) -> Checked:
    """A limit on what there is none of: nothing that does not fit takes a time or costs something, and an overloaded service has no first token."""
    kind, shown = kinds()[name], _bound_text(label, most)
    who = "An overloaded service" if answer.overloaded else "What does not fit"
    own = kind.label_of(answer.task)
    return Checked(
        metric=f"{kind.level}.{name}",
        sentence=f"{who} has no {_small(own)} to check against the {label} of {shown}.",
        passed=False,
        limit=label if label != "limit" else name,
        asked=_asked(own, label, shown),
    )


def _within(answer: Answer, metric: Metric, label: str, most: Any, runs: Metric | None = None) -> Checked:
    unit = "USD" if label == "budget" else "s"
    limit = to_si(most, unit)
    value = to_si(metric.value, unit)
    passed = value <= limit * (1 + 1e-9)
    shown = _bound_text(label, most)
    odds = _odds(answer, metric, limit / value) if value else None
    held = f"{'within' if passed else 'over'} the {label} of {shown}"
    if label == "deadline" and runs is not None:
        held += f"; at the predicted step time {1 - runs.value:.0%} of the simulated runs miss it"
        odds = runs.value if odds is None else odds
    if label == "limit":
        # Times of requests are means unless they are percentiles; half of them or so are longer.
        held += "" if metric.name.rpartition("_")[0] in TIMES else " on average"
    return Checked(
        metric=metric.path,
        sentence=f"{metric.label} is {metric.text}, {held}{_open(metric, odds)}.",
        passed=passed,
        odds=odds,
        limit=label if label != "limit" else metric.name,
        asked=_asked(metric.label, label, shown),
        bound=float(f"{quantity(limit, unit).to(metric.value.units).magnitude:.12g}"),
    )


def _open(metric: Metric, odds: float | None) -> str:
    """What is said of a limit that lies inside of the interval."""
    close = odds is not None and 0.05 < odds < 0.95 and metric.interval
    return f"; too close to call: its interval is {metric.interval}" if close else ""


def _small(label: str) -> str:
    """A label in a sentence.

    >>> _small("Goodput"), _small("Time to the first token, 99th percentile")
    ('goodput', '99th percentile of the time to the first token')
    """
    name, _, percentile = label.partition(", ")
    name = name[:1].lower() + name[1:]
    return f"{percentile} of the {name}" if percentile else name


def _odds(answer: Answer, metric: Metric, ratio: float) -> float | None:
    """The probability that a metric is at most its limit, which is ``ratio`` times its value. What has no upper end is without end where
    a queue grows: it is at most anything no more surely than that none does; short of that errors are at least as wide as below it."""
    if metric.factors is None:
        return None
    low, high = metric.factors
    if math.isfinite(high):
        return _below(low, high, ratio)
    most, given = answer.held.get("most_requests_per_second"), answer.plan.serving and answer.plan.serving.qps
    come = given or answer.layout.get("qps")
    steady = None if most is None or come is None else _steady(most, float(come))
    return min(_below(low, 1 / low, ratio), 0.5 if steady is None else steady)


def _steady(most: Metric, come: float) -> float | None:
    """The probability that at least as many requests a second are answered as come; None where there is no interval."""
    ratio = come / to_si(most.value, "1/s")
    return None if most.factors is None else 1 - _below(*most.factors, ratio)


def _below(low: float, high: float, ratio: float) -> float:
    """The probability that a value is at most ``ratio`` times what is predicted: errors are log-normal on each side, and 5 % lie beyond each
    end of the interval, which are factors."""
    if not ratio > 0:
        return 0.0
    away = math.log(ratio)
    side = math.log(max(high if away > 0 else 1 / low, 1 + 1e-9))
    return 0.5 * (1 + math.erf(NINETY * away / side / math.sqrt(2)))


NINETY = 1.6449
"""Standard deviations beyond which 5 % lie."""


def stopped(answer: Answer) -> Answer:
    """The answer, bound by the first demand that it does not keep; as it is where all are kept or it does not fit."""
    if not answer.feasible or answer.binding.limit is not None:
        return answer
    missed = next((check for check in demands(answer) if not check.passed), None)
    if missed is None:
        return answer
    # Money is a wall of its own; a time is bound by the wall that has most of it.
    wall = answer.metric(missed.metric).wall if missed.metric.startswith("macro.") else answer.binding.wall
    more = worded(" ", answer.binding.sentence) if wall == answer.binding.wall else ""
    sentence = worded(missed.sentence, more)
    binding = Limit(wall=wall, name=TITLES[wall][0], limit=missed.limit, sentence=sentence)

    def status(score: Score) -> str:
        if score.wall == wall and score.status != "fails":
            return "binds"
        return "holds" if score.status == "binds" else score.status

    scores = tuple(score.model_copy(update={"status": status(score)}) for score in answer.scorecard)
    return answer.model_copy(update={"binding": binding, "scorecard": scores})
