"""Optimizers and sweeps for servers: the same searches as on the command line, of spaces that are small enough.

A sweep's size is known before anything is evaluated, so a space over the limit is refused at once. Lists of a result that
could be as long as the space (front, rows of an axis) are cut, and the result says how long they were.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.api.requests import OptimizeRequest, SweepRequest
from mlsysim.api.words import Said, as_a_key, best_of, of_best, of_points, of_space
from mlsysim.errors import InputError
from mlsysim.plans.plan import Plan
from mlsysim.plans.varied import varied
from mlsysim.units.registry import to_si

_MOST_AXES = 32
_MOST_TOP = 1000
_MOST_ROWS = 1000

_TAKES = {
    "parallelism": ("plan",),
    "batching": ("plan", "sla", "qps"),
    "placement": ("plan", "carbon_tax", "regions", "objective"),
    "space": ("space",),
}


class OverLimit(InputError):
    """More was asked than this server computes."""


def optimize(request: OptimizeRequest, max_points: int) -> Said:
    """The best of what the request asks for."""
    takes = _TAKES[request.what]
    for name in type(request).model_fields:
        if name not in ("what", *takes) and getattr(request, name) is not None:
            raise InputError(
                f"{name!r} has no meaning for {request.what!r}, which takes {', '.join(takes)}.", field=name
            )
    if getattr(request, takes[0]) is None:
        raise InputError(f"To optimize {request.what!r} give {takes[0]!r}.", field=takes[0])
    if request.space is not None:
        from mlsysim.search.optimize import optimize as best_point

        best = best_point(read_space(request.space, max_points), method="exhaustive")
        return Said(best.to_dict(), str(best))
    assert request.plan is not None
    return _of_plan(request.plan, request)


def _of_plan(plan: Plan, request: OptimizeRequest) -> Said:
    """The best layout, batch or place; what the request leaves out has the optimizers' own defaults."""
    from mlsysim.plans import optimizing

    sla = None if request.sla is None else to_si(request.sla, "ms")
    places = {"carbon_tax": request.carbon_tax, "regions": request.regions, "objective": request.objective}
    known: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "parallelism": (optimizing.best_parallelism, optimizing.layout_found, {}),
        "batching": (optimizing.best_batching, optimizing.batch_found, {"sla_ms": sla, "qps": request.qps}),
        "placement": (optimizing.best_placement, optimizing.place_found, places),
    }
    search, sentence, given = known[request.what]
    result = search(plan, **{name: value for name, value in given.items() if value is not None})
    return Said(result.to_dict(), of_best(sentence(result), result))


# --- spaces -------------------------------------------------------------------------------------------------------


def sweep(request: SweepRequest, max_points: int) -> Said:
    """Every combination of the keys of a plan; or every point of a space, the best of them, the trade-offs, what rejected the rest, and what binds
    the best."""
    if request.plan is not None and request.over is not None:
        points = varied(request.plan, request.over).in_words(as_a_key).points
        fits = [point for point in points if point.answer is not None and point.answer.feasible]
        best, by = best_of(fits)
        told = {"over": request.over, "best": best and best.settings, "best_by": by}
        return Said(told | {"points": [point.document() for point in points]}, of_points(points, request.over))
    from mlsysim.search.answers import explained
    from mlsysim.search.sweep import sweep as run

    assert request.space is not None
    space = read_space(request.space, max_points)
    result = run(space)
    document = result.to_dict(timings=False)
    front, rows = document["pareto"], document["marginals"]
    document |= {
        "pareto_size": len(front),
        "pareto": front[:_MOST_ROWS],
        "marginals": {axis: entries[:_MOST_ROWS] for axis, entries in rows.items()},
        "explanation": explained(space, result.best),
    }
    return Said(document, of_space(document))


def read_space(table: dict[str, Any], max_points: int) -> Any:
    """The space of a table, where it is within the limits."""
    axes = table.get("axes")
    if isinstance(axes, dict):
        if len(axes) > _MOST_AXES:
            raise OverLimit(f"A space has at most {_MOST_AXES} axes here, got {len(axes)}.", field="axes")
        _within(_least_size(axes), max_points)
    from mlsysim.search.space import Space

    space = Space.from_dict(table)
    _within(space.size, max_points)
    if space.uncertain is not None:
        _within(space.size * space.uncertain.samples, max_points, f" times {space.uncertain.samples:,} draws")
    if space.top > _MOST_TOP:
        raise OverLimit(
            f"At most the {_MOST_TOP:,} best designs are listed here, got top = {space.top:,}.", field="top"
        )
    return space


def _within(points: float, limit: int, draws: str = "") -> None:
    if points > limit:
        raise OverLimit(
            f"The space has {points:,.0f} points{draws}, and this server sweeps at most {limit:,}; narrow its axes, or run "
            "`mlsysim sweep` yourself.",
            field="space",
        )


def _least_size(axes: dict[str, Any]) -> float:
    """Points of a space from what its axes declare, before any value is made; what cannot be told counts as one."""
    size = 1.0
    for axis in axes.values():
        spec = {"values": axis} if isinstance(axis, list) else axis if isinstance(axis, dict) else {}
        listed = next((spec[form] for form in ("values", "linked") if isinstance(spec.get(form), list)), None)
        ends: Any = spec.get("range")
        count: Any = spec.get("count")
        step: Any = spec.get("step", 1)
        if listed is not None:
            size *= max(1, len(listed))
        elif _is_number(count):
            size *= max(1.0, float(count))
        elif isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends)) and _is_number(step) and step > 0:
            size *= max(1.0, math.floor(min((ends[1] - ends[0]) / step, 1e18)) + 1.0)
    return size


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
