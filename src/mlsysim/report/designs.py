"""Designs around a plan: what a different batch, split, number format or number of chips would do to time and cost.

Every design is the plan with a few fields replaced, evaluated as any other plan: nothing is interpolated. Designs that do
not divide, do not exist or do not fit are left out and counted. The layout is varied around the plan's own and not
searched; what a search would find is in the cheapest change.

    training    chips x batch x tensor parallelism x format x recomputation, on the same tokens: time of the run and cost
    serving     load x tensor parallelism x format of weights and caches: time of a token and cost of a million
    one pass    batch x format: latency and energy of a sample
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.fleet_text import find_system
from mlsysim.plans.metrics import value_text
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plot.charts.pareto import front
from mlsysim.systems.types import Fleet
from mlsysim.units.registry import Quantity, quantity, to_si

THIS = "this plan"
_MOST = 150
_MOST_MIXED = 12


@dataclass(frozen=True)
class Design:
    """One design: what it is, and where it lies on both axes."""

    label: str
    x: Any
    y: Any
    x_text: str
    y_text: str


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
        pairs = [(_plain(point.x), _plain(point.y)) for point in self.points]
        return tuple(front(pairs, (self.goals[0], self.goals[1])))

    @property
    def sentence(self) -> str:
        """How many were tried, and where the plan stands among them."""
        best = self.front
        here = self.points[0]
        at = (_plain(here.x), _plain(here.y))
        signs = [1 if goal == "low" else -1 for goal in self.goals]

        def beats(point: Design) -> bool:
            ahead = [(a - b) * s for a, b, s in zip(at, (_plain(point.x), _plain(point.y)), signs, strict=True)]
            return min(ahead) >= 0 and max(ahead) > 0

        ahead = sum(beats(point) for point in self.points[1:])
        place = (
            "This plan is on the front: none is better in one and no worse in the other."
            if not ahead
            else f"{ahead} {'is' if ahead == 1 else 'are'} better than this plan in one and no worse in the other."
        )
        return f"{len(self.points)} of {self.tried} designs can run and fit; {len(best)} are on the front. {place}"


def _plain(value: Any) -> float:
    return float(value.to_base_units().magnitude) if isinstance(value, Quantity) else float(value)


def designs_around(answer: Answer) -> Designs | None:
    """The designs around an answer's plan, or None where fewer than three can be compared."""
    mixed = len(find_fleets(answer.plan.hardware).fleets) > 1
    makers: dict[str, Callable[[Answer], _Space]] = {"training": _training, "serving": _serving, "inference": _passes}
    space = _groups(answer) if mixed else makers[answer.task](answer)
    base = _evaluated(space.plan)
    if base is None or not base.feasible:
        return None
    x, y = (next((axis for axis in axes if _axis(base, axis) is not None), None) for axes in (space.xs, space.ys))
    if x is None or y is None:
        return None
    points = [_design(THIS, base, x, y)]
    tried = 1
    for label, plan in space.variants:
        if tried >= (_MOST_MIXED if mixed else _MOST):
            break
        tried += 1
        found = None if plan is None else _evaluated(plan)
        if found is not None and found.feasible and _axis(found, x) is not None and _axis(found, y) is not None:
            points.append(_design(label, found, x, y))
    if len(points) < 3:
        return None
    return Designs(tuple(points), (_title(base, x), _title(base, y)), (x.goal, y.goal), space.varied, tried)


@dataclass(frozen=True)
class _Axis:
    """A metric of the answer as an axis; ``chips`` multiplies it by their number."""

    metric: str
    goal: str = "low"
    chips: bool = False


@dataclass(frozen=True)
class _Space:
    plan: Plan
    variants: Iterator[tuple[str, Plan | None]]
    varied: str
    xs: tuple[_Axis, ...]
    ys: tuple[_Axis, ...]


def _evaluated(plan: Plan) -> Answer | None:
    try:
        return evaluate_plainly(plan)
    except InputError:
        return None


def _axis(answer: Answer, axis: _Axis) -> Any:
    found = next((metric.value for metric in answer.metrics if metric.name == axis.metric), None)
    if found is None or not axis.chips:
        return found
    count = find_fleets(answer.plan.hardware).accelerators
    return quantity(to_si(found, "h") * count, "h")


def _title(answer: Answer, axis: _Axis) -> str:
    label = answer.metric(axis.metric).label
    return "Accelerator-hours" if axis.chips else label


def _design(label: str, answer: Answer, x: _Axis, y: _Axis) -> Design:
    values = _axis(answer, x), _axis(answer, y)
    texts = [value_text(axis.metric, value) for axis, value in zip((x, y), values, strict=True)]
    return Design(label, *values, *texts)


# --- one space for each task -----------------------------------------------------------------------------------------


def _training(answer: Answer) -> _Space:
    plan = settled(answer)
    layout, fleet = answer.layout, find_fleets(plan.hardware).one
    tokens = plan.workload.tokens
    if tokens is None and any(metric.name == "tokens" for metric in answer.metrics):
        tokens = to_si(answer.value("tokens"), "token")
    base = plan.replacing(workload={"tokens": tokens})
    formats = _formats(answer, fleet, ("fp8",))
    modes = [layout["recompute"], "none" if layout["recompute"] == "full" else "full"]
    axes = [
        [f for f in (1.0, 0.5, 2.0) if f == 1.0 or _scaled(base, fleet, f) is not None],
        [layout["batch_size"], layout["batch_size"] // 2, layout["batch_size"] * 2],
        [tp for tp in (layout["tp"], layout["tp"] // 2, layout["tp"] * 2) if 1 <= tp <= fleet.total_accelerators],
        formats,
        modes,
    ]

    def variants() -> Iterator[tuple[str, Plan | None]]:
        for factor, batch, tp, precision, mode in product(*axes):
            if (factor, batch, tp, precision, mode) == tuple(axis[0] for axis in axes) or batch < 1:
                continue
            sized = base if factor == 1.0 else _scaled(base, fleet, factor)
            assert sized is not None
            ranks = int(fleet.total_accelerators * factor) // (tp * layout["pp"] * layout["cp"])
            micro = _micro_batch(batch, ranks, base.parallelism.micro_batch or 1)
            if micro is None:
                yield "", None
                continue
            words = (
                (factor != 1.0, f"{int(fleet.total_accelerators * factor):,} chips"),
                (batch != layout["batch_size"], f"batch {batch:,}"),
                (tp != layout["tp"], f"TP {tp}"),
                (precision != formats[0], precision),
                (mode != modes[0], f"recompute {mode}"),
            )
            yield (
                _changed(words),
                sized.replacing(
                    workload={"batch_size": batch, "precision": precision},
                    parallelism={"tp": tp, "recompute": mode, "dp": None, "micro_batch": micro},
                ),
            )

    counts = sorted(int(fleet.total_accelerators * factor) for factor in axes[0])
    varied = (
        f"Varied: {_listed(counts)} chips, batch {_listed(sorted(axes[1]))}, tensor parallelism {_listed(sorted(axes[2]))}, "
        f"{_listed(formats)}, recompute {_listed(modes)}. All train on as much as this plan; that a larger batch or a "
        "narrower format may need more for the same quality is not counted."
    )
    ys = (_Axis("tco"), _Axis("energy"), _Axis("run_time", chips=True))
    return _Space(base, variants(), varied, (_Axis("run_time"), _Axis("latency")), ys)


def _micro_batch(batch: int, ranks: int, most: int) -> int | None:
    """The largest micro-batch up to the plan's that divides the share of a data-parallel rank; None where none can.

    >>> _micro_batch(2048, 16, 256), _micro_batch(96, 8, 8), _micro_batch(8, 16, 1)
    (128, 6, None)
    """
    share, rest = divmod(batch, ranks) if ranks else (0, 0)
    if share < 1 or rest:
        return None
    return next(size for size in range(min(most, share), 0, -1) if share % size == 0)


_LOADS = (1.0, 0.125, 0.25, 0.5, 2.0, 4.0)


def _serving(answer: Answer) -> _Space:
    base = settled(answer)
    layout, fleet = answer.layout, find_fleets(base.hardware).one
    formats = _formats(
        answer, fleet, ("fp8",) if "fp8" in fleet.node.accelerator.compute.precision_flops else ("int8",)
    )
    now = (base.serving.cache_precision if base.serving else None) or answer.assumptions.get("cache_precision", "bf16")
    caches = [now, "fp8"] if now in ("bf16", "fp16") else [now]
    tps = [tp for tp in (layout["tp"], layout["tp"] // 2, layout["tp"] * 2) if 1 <= tp <= fleet.total_accelerators]
    loads = _loads(base, layout["concurrency"])

    def variants() -> Iterator[tuple[str, Plan]]:
        for k, (load, tp, precision, cache) in enumerate(product(loads, tps, formats, caches)):
            replicas, rest = divmod(fleet.total_accelerators, tp * layout["pp"])
            if k == 0 or rest or not replicas:
                continue
            words = (
                (load != loads[0], load[0]),
                (tp != layout["tp"], f"TP {tp}"),
                (precision != formats[0], precision),
                (cache != now, f"caches in {cache}"),
            )
            yield (
                _changed(words),
                base.replacing(
                    serving={**load[1], "replicas": replicas, "cache_precision": cache},
                    parallelism={"tp": tp},
                    workload={"precision": precision},
                ),
            )

    split = f"tensor parallelism {_listed(sorted(tps))} with as many replicas as fit; " if len(tps) > 1 else ""
    varied = f"Varied: {_load_range(loads)}; {split}{_listed(formats)}; caches in {_listed(caches)}."
    ys = (_Axis("usd_per_mtoken"), _Axis("energy_per_token"), _Axis("tokens_per_second", "high"))
    return _Space(base, variants(), varied, (_Axis("tpot"),), ys)


def _loads(plan: Plan, concurrency: int) -> list[tuple[str, dict[str, Any]]]:
    rate = None if plan.serving is None else plan.serving.qps
    if rate is not None:
        return [(f"{rate * factor:g} requests a second", {"qps": rate * factor}) for factor in _LOADS]
    counts = list(dict.fromkeys(max(1, round(concurrency * factor)) for factor in _LOADS))
    return [(f"{count:,} requests in flight", {"concurrency": count}) for count in counts]


def _load_range(loads: list[tuple[str, dict[str, Any]]]) -> str:
    """The loads in order, with their unit once."""
    unit = loads[0][0].partition(" ")[2]
    numbers = sorted(next(iter(change.values())) for _, change in loads)
    return f"{_listed([f'{number:,g}' for number in numbers])} {unit}"


def _passes(answer: Answer) -> _Space:
    base = answer.plan
    fleet = find_fleets(base.hardware).one
    size = base.workload.batch_size or 1
    batches = list(dict.fromkeys(max(1, round(size * factor)) for factor in (1, 0.25, 0.5, 2, 4, 8, 16, 32)))
    formats = _formats(answer, fleet, tuple(fleet.node.accelerator.compute.precision_flops))

    def variants() -> Iterator[tuple[str, Plan]]:
        for batch, precision in product(batches, formats):
            if (batch, precision) != (batches[0], formats[0]):
                words = ((batch != batches[0], f"batch {batch:,}"), (precision != formats[0], precision))
                yield (
                    _changed(words),
                    base.replacing(workload={"batch_size": batch, "precision": precision}),
                )

    varied = f"Varied: batch {_listed(sorted(batches))}; {_listed(formats)}."
    return _Space(
        base, variants(), varied, (_Axis("latency"),), (_Axis("energy_per_sample"), _Axis("throughput", "high"))
    )


def _groups(answer: Answer) -> _Space:
    """Several kinds of accelerator: the load alone is varied, because each group finds its own layout."""
    base = answer.plan
    if answer.task == "training":
        size = base.workload.batch_size or 0
        sizes = [round(size * factor) for factor in (0.5, 2, 4) if size]
        plans = [(f"batch {batch:,}", base.replacing(workload={"batch_size": batch})) for batch in sizes]
        varied = f"Varied: batch {_listed(sorted([size, *sizes]))}."
        xs: tuple[_Axis, ...] = (_Axis("run_time"), _Axis("latency"))
        ys: tuple[_Axis, ...] = (_Axis("tco"), _Axis("energy"), _Axis("tokens_per_second", "high"))
    else:
        loads = _loads(base, base.serving.concurrency if base.serving and base.serving.concurrency else 0)
        plans = [(label, base.replacing(serving=change)) for label, change in loads[1:]]
        varied = f"Varied: {_load_range(loads)}."
        xs = (_Axis("tpot"),)
        ys = (_Axis("usd_per_mtoken"), _Axis("tokens_per_second", "high"))
    return _Space(base, iter(plans), varied, xs, ys)


def _formats(answer: Answer, fleet: Fleet, others: tuple[str, ...]) -> list[str]:
    """The plan's number format first, then those of ``others`` that the chip computes in."""
    now = answer.plan.workload.precision or answer.assumptions.get("precision", "bf16").split(" ")[0]
    have = fleet.node.accelerator.compute.precision_flops
    return list(dict.fromkeys([now, *(name for name in others if name in have)]))


def _changed(words: tuple[tuple[bool, str], ...]) -> str:
    """What is other than in the plan."""
    return ", ".join(word for differs, word in words if differs)


def _scaled(plan: Plan, fleet: Fleet, factor: float) -> Plan | None:
    """The plan on a multiple of its nodes with the same fabric; None where that is no whole number or has no name."""
    empty = {"on": None, "name": None, "nodes": None, "accelerators": None}
    part = plan.hardware
    nodes = fleet.count * factor
    if nodes.is_integer() and nodes >= 1 and fleet.count > 1:
        named = part.name or part.on or ""
        if "x" not in named and find_system(named.partition("@")[0].strip())[0] == "cluster":
            return plan.replacing(hardware={**empty, "name": named.partition("@")[0].strip(), "nodes": int(nodes)})
        node, fabric = fleet.node.metadata.key, fleet.fabric.metadata.key
        if node is None or fabric is None:
            return None
        return plan.replacing(hardware={**empty, "on": f"{int(nodes)}x{node}", "fabric": fabric})
    count = fleet.total_accelerators * factor
    key = fleet.node.accelerator.metadata.key
    if key is None or not count.is_integer() or count < 1:
        return None
    return plan.replacing(hardware={**empty, "on": f"{int(count)}x{key}"})


def _listed(items: Any) -> str:
    words = [f"{item:,}" if isinstance(item, int) else str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
