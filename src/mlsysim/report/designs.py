"""Designs around a plan: what a different batch, split, number format or number of chips would do to time and cost.

Every design is the plan with a few fields replaced, evaluated as any other plan: nothing is interpolated. Designs that do
not divide, do not exist or do not fit are left out and counted. The layout is varied around the plan's own and not
searched; what a search would find is in the cheapest change.

    training    chips x batch x tensor parallelism x format x recomputation, on the same tokens: time of the run and cost
    serving     load x tensor parallelism x format of weights and caches: time of a token and cost of a million
    one pass    batch x format: latency and energy of a sample
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.metrics import value_text
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plot.charts.pareto import front
from mlsysim.systems.fleet_text import find_system, parts_of
from mlsysim.systems.types import Fleet
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import listed, number

THIS = "this plan"
_NEAR = 0.05
_MOST = 150
_MOST_MIXED = 12


class Design(NamedTuple):
    """One design: what it is, and where it lies on both axes."""

    label: str
    x: Any
    y: Any
    x_text: str
    y_text: str

    @property
    def place(self) -> tuple[float, float]:
        """Both values in base units."""
        return float(self.x.to_base_units().magnitude), float(self.y.to_base_units().magnitude)


@dataclass(frozen=True)
class Designs:
    """Designs around a plan; the first is the plan itself."""

    points: tuple[Design, ...]
    titles: tuple[str, str]
    goals: tuple[str, str]
    varied: str
    tried: int

    @property
    def front(self) -> tuple[int, ...]:
        """Those that no other beats, along the first axis."""
        return tuple(front([point.place for point in self.points], self.goals))

    @property
    def near(self) -> int:
        """Other designs whose place differs from this plan's by at most 5 % on both axes."""
        own = self.points[0].place
        ratios = [[abs(a / b - 1) if b else 1.0 for a, b in zip(p.place, own, strict=True)] for p in self.points[1:]]
        return sum(max(each) <= _NEAR for each in ratios)

    @property
    def sentence(self) -> str:
        """How many were tried, and where the plan stands among them."""
        signs = [1 if goal == "low" else -1 for goal in self.goals]

        def beats(point: Design) -> bool:
            ahead = [(a - b) * s for a, b, s in zip(self.points[0].place, point.place, signs, strict=True)]
            return min(ahead) >= 0 and max(ahead) > 0

        def verb(count: int) -> str:
            return "is" if count == 1 else "are"

        ahead = sum(beats(point) for point in self.points[1:])
        place = "This plan is on the front: none is better in one and no worse in the other."
        if ahead:
            place = f"{ahead} {verb(ahead)} better than this plan in one and no worse in the other."
        found = f"{len(self.points)} of {self.tried} designs can run and fit"
        return f"{found}; {len(self.front)} {verb(len(self.front))} on the front. {place}"


class _Space(NamedTuple):
    """What is varied around a plan: values by the words for one, the plan's own first; what makes a plan of one value each, None
    where there is none; and metrics for both axes, of which the first that the answer has is taken."""

    plan: Plan
    options: dict[str, list[Any]]
    make: Callable[..., Plan | None]
    varied: str
    xs: str
    ys: str


def designs_around(answer: Answer) -> Designs | None:
    """The designs around an answer's plan, or None where fewer than three can be compared."""
    mixed = len(find_fleets(answer.plan.hardware).fleets) > 1
    space = _groups(answer) if mixed else _MAKERS[answer.task](answer)
    base = _evaluated(space.plan)
    if base is None or not base.feasible:
        return None
    x, y = (next((axis for axis in axes.split() if _at(base, axis) is not None), None) for axes in (space.xs, space.ys))
    if x is None or y is None:
        return None
    points = [_design(THIS, base, x, y)]
    tried = 1
    for chosen in islice(product(*space.options.values()), 1, _MOST_MIXED if mixed else _MOST):
        tried += 1
        varied = zip(chosen, space.options.items(), strict=True)
        words = (word.format(value) for value, (word, values) in varied if value != values[0])
        plan = space.make(*chosen)
        found = None if plan is None else _evaluated(plan, quick=True)
        if found is not None and found.feasible and None not in (_at(found, x), _at(found, y)):
            points.append(_design(", ".join(words), found, x, y))
    if len(points) < 3:
        return None
    return Designs(tuple(points), (_title(base, x), _title(base, y)), (_goal(x), _goal(y)), space.varied, tried)


def _evaluated(plan: Plan, quick: bool = False) -> Answer | None:
    try:
        return evaluate_plainly(plan, quick)
    except InputError:
        return None


_HOURS = "accelerator_hours"


def _title(answer: Answer, axis: str) -> str:
    return "Accelerator-hours" if axis == _HOURS else answer.metric(axis).label


def _goal(axis: str) -> str:
    return "high" if axis in ("tokens_per_second", "throughput") else "low"


def _at(answer: Answer, axis: str) -> Any:
    """Where an answer lies on an axis: a metric, or the time of the run on all accelerators."""
    found = answer.held.get("run_time" if axis == _HOURS else axis)
    if found is None or axis != _HOURS:
        return found and found.value
    return quantity(to_si(found.value, "h") * find_fleets(answer.plan.hardware).accelerators, "h")


def _design(label: str, answer: Answer, x: str, y: str) -> Design:
    values = _at(answer, x), _at(answer, y)
    return Design(label, *values, value_text(x, values[0]), value_text(y, values[1]))


def _training(answer: Answer) -> _Space:
    plan = settled(answer)
    layout, fleet = answer.layout, find_fleets(plan.hardware).one
    total, size = fleet.total_accelerators, layout["batch_size"]
    tokens = plan.workload.tokens
    if tokens is None and "tokens" in answer.held:
        tokens = to_si(answer.value("tokens"), "token")
    base = plan.replacing(workload={"tokens": tokens})
    counts = [total, *(int(total * f) for f in (0.5, 2.0) if _scaled(base, fleet, f) is not None)]
    batches = [batch for batch in (size, size // 2, size * 2) if batch]
    tps = _degrees(layout, fleet)
    formats = _formats(answer, fleet, ("fp8",))
    modes = [layout["recompute"], "none" if layout["recompute"] == "full" else "full"]

    def make(count: int, batch: int, tp: int, precision: str, mode: str) -> Plan | None:
        sized = base if count == total else _scaled(base, fleet, count / total)
        micro = _micro_batch(batch, count // (tp * layout["pp"] * layout["cp"]), base.parallelism.micro_batch or 1)
        if micro is None or sized is None:
            return None
        split = {"tp": tp, "recompute": mode, "dp": None, "micro_batch": micro}
        return sized.replacing(workload={"batch_size": batch, "precision": precision}, parallelism=split)

    options = {"{:,} chips": counts, "batch {:,}": batches, "TP {}": tps, "{}": formats, "recompute {}": modes}
    varied = (
        f"Varied: {listed(sorted(counts))} chips, batch {listed(sorted(batches))}, tensor parallelism {listed(sorted(tps))}, "
        f"{listed(formats)}, recompute {listed(modes)}. All train on as many tokens as this plan; that a larger batch or a "
        "narrower format may need more for the same quality is not counted."
    )
    return _Space(base, options, make, varied, "run_time latency", f"tco energy {_HOURS}")


def _micro_batch(batch: int, ranks: int, most: int) -> int | None:
    """The largest micro-batch up to the plan's that divides the share of a data-parallel rank; None where none can.

    >>> _micro_batch(2048, 16, 256), _micro_batch(96, 8, 8), _micro_batch(8, 16, 1)
    (128, 6, None)
    """
    share, rest = divmod(batch, ranks) if ranks else (0, 0)
    if share < 1 or rest:
        return None
    return next(size for size in range(min(most, share), 0, -1) if share % size == 0)


def _serving(answer: Answer) -> _Space:
    base = settled(answer)
    layout, fleet = answer.layout, find_fleets(base.hardware).one
    have = fleet.node.accelerator.compute.precision_flops
    formats = _formats(answer, fleet, ("fp8",) if "fp8" in have else ("int8",))
    now = (base.serving.cache_precision if base.serving else None) or answer.assumed_value("cache_precision", "bf16")
    caches = [now, "fp8"] if now in ("bf16", "fp16") else [now]
    tps = _degrees(layout, fleet)
    key, words, loads = _loads(base, layout["concurrency"])

    def make(load: float, tp: int, precision: str, cache: str) -> Plan | None:
        replicas, rest = divmod(fleet.total_accelerators, tp * layout["pp"])
        if rest or not replicas:
            return None
        serving = {key: load, "replicas": replicas, "cache_precision": cache}
        return base.replacing(serving=serving, parallelism={"tp": tp}, workload={"precision": precision})

    options = {words: loads, "TP {}": tps, "{}": formats, "caches in {}": caches}
    split = f"tensor parallelism {listed(sorted(tps))} with as many replicas as fit; " if len(tps) > 1 else ""
    varied = f"Varied: {_load_range(words, loads)}; {split}{listed(formats)}; caches in {listed(caches)}."
    return _Space(base, options, make, varied, "tpot", "usd_per_mtoken energy_per_token tokens_per_second")


def _loads(plan: Plan, concurrency: int) -> tuple[str, str, list[Any]]:
    """The key of the load, the words for it, and its values."""
    rate = None if plan.serving is None else plan.serving.qps
    factors = (1.0, 0.125, 0.25, 0.5, 2.0, 4.0)
    if rate is not None:
        return "qps", "{:.3g} requests a second", [rate * factor for factor in factors]
    counts = dict.fromkeys(max(1, round(concurrency * factor)) for factor in factors)
    return "concurrency", "{:,} requests in flight", list(counts)


def _load_range(words: str, loads: list[Any]) -> str:
    """The loads in order, with their unit once."""
    return f"{listed([number(load) for load in sorted(loads)])} {words.partition(' ')[2]}"


def _passes(answer: Answer) -> _Space:
    base = answer.plan
    fleet = find_fleets(base.hardware).one
    size = base.workload.batch_size or 1
    batches = list(dict.fromkeys(max(1, round(size * factor)) for factor in (1, 0.25, 0.5, 2, 4, 8, 16, 32)))
    formats = _formats(answer, fleet, tuple(fleet.node.accelerator.compute.precision_flops))

    def make(batch: int, precision: str) -> Plan:
        return base.replacing(workload={"batch_size": batch, "precision": precision})

    options: dict[str, list[Any]] = {"batch {:,}": batches, "{}": formats}
    varied = f"Varied: batch {listed(sorted(batches))}; {listed(formats)}."
    return _Space(base, options, make, varied, "latency", "energy_per_sample throughput")


def _pools(answer: Answer) -> _Space:
    """Post-training: how many accelerators generate, and how old samples may be."""
    base, total = settled(answer), find_fleets(answer.plan.hardware).one.total_accelerators
    now = answer.layout["generators"]
    shares = list(dict.fromkeys((now, 0, *(total * eighths // 8 for eighths in (2, 3, 4, 5, 6)))))
    ages = list(dict.fromkeys((answer.layout["staleness"] or 1.0, 1.0, 2.0, 4.0)))

    def make(generators: int, staleness: float) -> Plan | None:
        if not generators:
            return base.replacing(rl={"split": "none", "staleness": None}) if staleness == ages[0] else None
        return base.replacing(
            parallelism=answer.plan.parallelism, rl={"split": str(generators), "staleness": staleness}
        )

    options: dict[str, list[Any]] = {"{} generate": shares, "staleness {:g}": ages}
    varied = f"Varied: {listed(sorted(shares))} accelerators that generate alone; staleness {listed(number(age) for age in sorted(ages))}."
    return _Space(base, options, make, varied, "latency", "tco energy tokens_per_second")


_MAKERS: dict[str, Callable[[Answer], _Space]] = {
    "training": _training,
    "serving": _serving,
    "inference": _passes,
    "rl": _pools,
}


def _groups(answer: Answer) -> _Space:
    """Several kinds of accelerator: the load alone is varied, because each group finds its own layout."""
    base, part = answer.plan, "serving"
    if answer.task == "training":
        part, key, words, size = "workload", "batch_size", "batch {:,}", base.workload.batch_size or 0
        values = [round(size * factor) for factor in (1, 0.5, 2, 4) if size] or [0]
        varied, axes = f"batch {listed(sorted(values))}", ("run_time latency", "tco energy tokens_per_second")
    else:
        key, words, values = _loads(base, (base.serving and base.serving.concurrency) or 0)
        varied, axes = _load_range(words, values), ("tpot", "usd_per_mtoken tokens_per_second")

    def make(value: float) -> Plan:
        return base.replacing(**{part: {key: value}})

    return _Space(base, {words: values}, make, f"Varied: {varied}.", *axes)


def _degrees(layout: dict[str, Any], fleet: Fleet) -> list[int]:
    """The plan's tensor-parallel degree, half and twice of it."""
    tp = layout["tp"]
    return [degree for degree in (tp, tp // 2, tp * 2) if 1 <= degree <= fleet.total_accelerators]


def _formats(answer: Answer, fleet: Fleet, others: tuple[str, ...]) -> list[str]:
    """The plan's number format first, then those of ``others`` that the chip computes in."""
    now = answer.precision
    have = fleet.node.accelerator.compute.precision_flops
    return list(dict.fromkeys([now, *(name for name in others if name in have)]))


def _scaled(plan: Plan, fleet: Fleet, factor: float) -> Plan | None:
    """The plan on a multiple of its nodes with the same fabric; None where that is no whole number or has no name."""
    nodes, count = fleet.count * factor, fleet.total_accelerators * factor
    if nodes.is_integer() and nodes >= 1 and fleet.count > 1:
        number, named, _ = parts_of(plan.hardware.name or plan.hardware.on or "")
        if number is None and find_system(named)[0] == "cluster":
            return plan.replacing(hardware={"name": named, "nodes": int(nodes)})
        node, fabric = fleet.node.metadata.key, fleet.fabric.metadata.key
        if node is None or fabric is None:
            return None
        return plan.replacing(hardware={"on": f"{int(nodes)}x{node}", "fabric": fabric})
    key = fleet.node.accelerator.metadata.key
    if key is None or not count.is_integer() or count < 1:
        return None
    return plan.replacing(hardware={"on": f"{int(count)}x{key}"})
