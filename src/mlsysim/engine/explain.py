"""``explain`` and ``compare``: where a number comes from, and why two answers differ."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, factor_between, format_unit
from mlsysim.walls.binding import Binding
from mlsysim.walls.document import Document
from mlsysim.walls.result import Result

_NOTABLE = 0.005


def explain(result: Any, style: str = "text") -> str:
    """The equations of a result with the numbers put in; ``style`` is text, markdown or latex."""
    if not isinstance(result, Result):
        raise InputError(f"explain() takes the result of a resolver, got {type(result).__name__}.")
    return result.explain(style)


@dataclass(frozen=True)
class Changed:
    """A field of two results: both values, and the factor between them where there is one."""

    before: Any
    after: Any
    factor: float | None


@dataclass(frozen=True)
class Difference(Document):
    """Two answers side by side: what changed, by what factor, and what now binds and why, in one sentence."""

    changes: dict[str, Changed]
    reason: str

    def __str__(self) -> str:
        lines = []
        for name, each in self.changes.items():
            times = f" ({each.factor:.3g} x)" if each.factor is not None else ""
            lines.append(f"{name}: {_show(each.before)} -> {_show(each.after)}{times}")
        return "\n".join([*(lines or ["Nothing changes."]), self.reason])


def compare(a: Result, b: Result) -> Difference:
    """What changes from ``a`` to ``b``, and why."""
    if type(a) is not type(b):
        raise InputError(f"compare() takes two answers of one resolver, got {type(a).__name__} and {type(b).__name__}.")
    changes = {}
    for name in type(a).model_fields:
        if name in ("assumptions", "binding", "constraint_trace", "node_profile"):
            continue
        old, new = getattr(a, name), getattr(b, name)
        factor = factor_between(old, new)
        if old != new if factor is None else abs(factor - 1) > _NOTABLE:
            changes[name] = Changed(old, new, factor)
    return Difference(changes, _reason(a.binding, b.binding))


def _reason(old: Binding | None, new: Binding | None) -> str:
    if old is None or new is None:
        return "No binding wall is known."
    if old.wall == new.wall:
        return f"The same wall binds in both: {new.name} ({new.sentence})"
    return f"The binding wall moves from {old.name} to {new.name}: {new.sentence}"


class DifferentialExplainer:
    """The documents' name for :func:`compare`."""

    @staticmethod
    def compare_performance(baseline: Result, proposal: Result) -> str:
        """What changes from the baseline to the proposal, as text."""
        return str(compare(baseline, proposal))


def _show(value: Any) -> str:
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.4g} {format_unit(value.units)}".strip()
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
