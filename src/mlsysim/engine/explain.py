"""``explain`` and ``compare``: where a number comes from, and why two answers differ."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.units.registry import DimensionalityError, Quantity, format_unit
from mlsysim.walls.result import Result, as_plain

_NOTABLE = 0.005


def explain(result: Any, style: str = "text") -> str:
    """The equations of a result with the numbers put in; ``style`` is text, markdown or latex."""
    if not isinstance(result, Result):
        raise InputError(f"explain() takes the result of a resolver, got {type(result).__name__}.")
    return result.explain(style)


class Difference:
    """Two answers side by side: what changed, by what factor, and what now binds."""

    def __init__(self, before: Result, after: Result) -> None:
        self.before, self.after = before, after
        self.changes: dict[str, tuple[Any, Any, float | None]] = {}
        for name in type(before).model_fields:
            if name in ("assumptions", "binding", "constraint_trace", "node_profile"):
                continue
            old, new = getattr(before, name), getattr(after, name)
            factor = _factor(old, new)
            if old != new if factor is None else abs(factor - 1) > _NOTABLE:
                self.changes[name] = (old, new, factor)

    def __str__(self) -> str:
        lines = []
        for name, (old, new, factor) in self.changes.items():
            times = f" ({factor:.3g} x)" if factor is not None else ""
            lines.append(f"{name}: {_show(old)} -> {_show(new)}{times}")
        return "\n".join([*(lines or ["Nothing changes."]), self.reason])

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        old, new = self.before.binding, self.after.binding
        if old is None or new is None:
            return "No binding wall is known."
        if old.wall == new.wall:
            return f"The same wall binds in both: {new.name} ({new.sentence})"
        return f"The binding wall moves from {old.name} to {new.name}: {new.sentence}"

    def to_dict(self) -> dict[str, Any]:
        found = self.changes.items()
        changes = {n: {"before": as_plain(a), "after": as_plain(b), "factor": f} for n, (a, b, f) in found}
        return {"changes": changes, "reason": self.reason}


def compare(a: Result, b: Result) -> Difference:
    """What changes from ``a`` to ``b``, and why."""
    if type(a) is not type(b):
        raise InputError(f"compare() takes two answers of one resolver, got {type(a).__name__} and {type(b).__name__}.")
    return Difference(a, b)


class DifferentialExplainer:
    """The documents' name for :func:`compare`."""

    @staticmethod
    def compare_performance(baseline: Result, proposal: Result) -> str:
        """What changes from the baseline to the proposal, as text."""
        return str(compare(baseline, proposal))


def _factor(old: Any, new: Any) -> float | None:
    if isinstance(old, Quantity) and isinstance(new, Quantity):
        try:
            return float((new / old).to("").magnitude) if old.magnitude else None
        except (DimensionalityError, ZeroDivisionError):
            return None
    plain = isinstance(old, (int, float)) and isinstance(new, (int, float)) and not isinstance(old, bool)
    return float(new / old) if plain and old else None


def _show(value: Any) -> str:
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.4g} {format_unit(value.units)}".strip()
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
