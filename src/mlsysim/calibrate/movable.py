"""The constants of a profile that a fit may move, with how far they may differ from the prior, and the profile with some moved."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.timing.kernels import Profile
from mlsysim.units.records import dataclass
from mlsysim.units.registry import Quantity, to_si
from mlsysim.zoo.constants import constant

_MOVABLE = ("_share", "_tokens", "_gain", "sustained")
"""Endings of fields that are achieved shares and sizes; exponents shape a form and stay."""


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of a profile that may be moved."""

    group: str
    name: str
    value: float
    spread: float
    low: float
    high: float
    is_time: bool

    @property
    def path(self) -> str:
        return f"{self.group}.{self.name}"

    def at(self, x: float) -> float:
        """The value at ``x``, inside what the field permits."""
        return min(max(self.value * math.exp(x), self.low), self.high)


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A constant before and after, and how much of the prior's uncertainty the rows removed."""

    path: str
    before: float
    after: float
    unit: str
    learned: float
    at_limit: bool


def constants_of(prior: Profile) -> list[Constant]:
    """Every share and time of the profile's products, attention and memory-bound operators, with its spread and limits."""
    share = constant("calibration_share_spread").number
    time = constant("calibration_time_spread").number
    known = constant("calibration_measured_share").number if prior.measured else 1.0
    groups: dict[str, Any] = {f"gemm.{p}": table for p, table in prior.gemm.items()}
    groups |= {"attention": prior.attention, "memory_bound": prior.memory_bound}
    result = []
    for group, table in groups.items():
        for name, info in type(table).model_fields.items():
            value = getattr(table, name)
            is_time = isinstance(value, Quantity) and value.is_compatible_with("s")
            number = to_si(value, "s") if is_time else value
            if not (is_time or name.endswith(_MOVABLE)) or not isinstance(number, (int, float)) or number <= 0:
                continue
            low, high = limits(info)
            spread = known * (share if high <= 2.0 else time)
            result.append(Constant(group, name, float(number), spread, low, high, is_time))
    return result


def limits(info: Any) -> tuple[float, float]:
    """What a field permits, as far as its annotation says."""
    low, high = 0.0, math.inf
    for rule in info.metadata:
        low = max(low, getattr(rule, "ge", None) or getattr(rule, "gt", None) or 0.0)
        high = min(high, *(bound for bound in (getattr(rule, "le", None), getattr(rule, "lt", None), high) if bound))
    return max(low, 1e-12), high


def changed(prior: Profile, changes: dict[str, dict[str, Any]]) -> Profile:
    """The profile with some constants replaced."""
    if not changes:
        return prior
    update: dict[str, Any] = {}
    for group, values in changes.items():
        head, _, precision = group.partition(".")
        if precision:
            tables = update.setdefault("gemm", dict(prior.gemm))
            tables[precision] = tables[precision].model_copy(update=values)
            # What was fitted shape by shape belongs to the old roof.
            shapes = update.setdefault("products", dict(prior.products))
            for name in [key for key in shapes if key.partition("_")[0] == precision]:
                del shapes[name]
        else:
            update[head] = getattr(prior, head).model_copy(update=values)
    return prior.model_copy(update=update)
