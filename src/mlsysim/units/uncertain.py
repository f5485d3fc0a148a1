"""Numbers that are not known exactly: a range or a distribution in place of a value.

    uncertain("0.3..0.6")                     every value between the two equally likely
    uncertain("0.45 ± 0.05")                  normal, with the standard deviation behind the sign (also +- and +/-)
    uncertain("20 .. 40 gCO2e/kWh")           a unit behind the last number holds for all
    uncertain("700 W ± 10 %")                 a standard deviation of a tenth of the mean
    uncertain("triangular(2, 3, 6) USD/h")    low, most likely, high
    uncertain("lognormal(50000 h, 0.4)")      median, and standard deviation of the natural logarithm
    uncertain("choice(80 GiB: 0.3, 141 GiB: 0.7)")
    uncertain({"low": 0.3, "high": 0.6, "distribution": "uniform"})

An :class:`Uncertain` is compared by identity: one object that is used in two places is one draw in both, so that what is
the same unknown stays the same; two objects with the same text are drawn independently. Normal and lognormal values are
truncated to what an input allows, and rescaled there; a range or a choice that goes beyond is refused.

Draws are a Latin hypercube (McKay, Beckman, Conover 1979): the unit interval is cut into as many strata as there are
draws, each stratum is met once, in an order of its own for each name. Only ``random.Random(text).random()`` is used, whose
sequence Python guarantees for a seed, so that draws are the same on every platform. The stream depends on the seed and the
name alone: a name has the same draws whatever else is uncertain beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity

DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "triangular": ("low", "mode", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
    "choice": ("values",),
}
"""Distributions and the names of their parameters."""

EXAMPLES = "'0.3..0.6', '0.45 ± 0.05' or 'normal(3.2, 0.1) TB/s'"
_MOST_VALUES = 1000
_NUMBERED = re.compile(r"\s*[+-]?\.?\d")
_BELOW_ONE = math.nextafter(1.0, 0.0)
_ABOVE_ZERO = 2.0**-60


@dataclass(frozen=True, eq=False)
class Uncertain:
    """A distribution: its name, its parameters as numbers in ``unit`` (a choice may hold names), and weights of a choice."""

    distribution: str
    parameters: tuple[Any, ...]
    unit: str = ""
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise unknown_name("distribution", self.distribution, DISTRIBUTIONS, f"use {', '.join(DISTRIBUTIONS)}.")
        if self.distribution == "choice":
            self._check_choice()
            return
        names = DISTRIBUTIONS[self.distribution]
        if len(self.parameters) != len(names):
            raise InputError(
                f"A {self.distribution} distribution takes {', '.join(names)}; got {len(self.parameters)} numbers."
            )
        for name, number in zip(names, self.parameters, strict=True):
            check_finite(number, f"The {name!r} of a {self.distribution} distribution")
        ordered = self.parameters if self.distribution in ("uniform", "triangular") else ()
        if any(a > b for a, b in pairwise(ordered)):
            raise InputError(f"The range {self} runs backwards; write the lower end first.")
        if not ordered and self.parameters[1] < 0:
            raise InputError(f"The spread of {self} is negative; it must be zero or more.")
        if self.distribution == "lognormal" and self.parameters[0] <= 0:
            raise InputError(f"The median of {self} must be above zero.")

    def _check_choice(self) -> None:
        values, weights = self.parameters, self.weights
        if not 1 <= len(values) <= _MOST_VALUES:
            raise InputError(f"A choice needs between 1 and {_MOST_VALUES:,} values, got {len(values)}.")
        if len({isinstance(value, str) for value in values}) > 1:
            raise InputError("A choice is between numbers or between names, not both.")
        for value in values:
            if not isinstance(value, str):
                check_finite(value, "A value of a choice")
        if weights and len(weights) != len(values):
            raise InputError(f"A choice between {len(values)} values needs as many weights, got {len(weights)}.")
        for weight in weights:
            check_finite(weight, "A weight of a choice")
        if weights and (min(weights) < 0 or sum(weights) <= 0):
            raise InputError("The weights of a choice must be zero or more, and not all zero.")

    # --- making -----------------------------------------------------------------------------------------------

    @classmethod
    def uniform(cls, low: Any, high: Any) -> Uncertain:
        """Every value between two numbers or quantities equally likely."""
        return cls("uniform", *in_one_unit([low, high]))

    @classmethod
    def triangular(cls, low: Any, mode: Any, high: Any) -> Uncertain:
        """Most likely at ``mode``, falling to nothing at both ends."""
        return cls("triangular", *in_one_unit([low, mode, high]))

    @classmethod
    def normal(cls, mean: Any, sd: Any) -> Uncertain:
        """The bell curve, truncated to what an input allows."""
        return cls("normal", *in_one_unit([mean, sd]))

    @classmethod
    def lognormal(cls, median: Any, sigma: float) -> Uncertain:
        """A positive number whose natural logarithm is normal with standard deviation ``sigma``."""
        (middle,), unit = in_one_unit([median])
        return cls("lognormal", (middle, _plain(sigma, "sigma")), unit)

    @classmethod
    def choice(cls, values: Sequence[Any], weights: Sequence[float] = ()) -> Uncertain:
        """One of some numbers, quantities or names, equally likely unless there are weights."""
        if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
            raise InputError("A choice needs a list of values.")
        if all(isinstance(value, str) and not starts_with_number(value) for value in values):
            return cls("choice", tuple(values), "", tuple(weights))
        return cls("choice", *in_one_unit(list(values)), tuple(weights))

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def limits(self) -> tuple[Any, ...]:
        """What must be allowed wherever this is used: the ends of a range, the values of a choice, else the centre."""
        if self.distribution in ("uniform", "triangular"):
            return self.parameters[0], self.parameters[-1]
        return self.parameters if self.distribution == "choice" else self.parameters[:1]

    def value(self, number: Any) -> Any:
        """A drawn number with its unit."""
        return Quantity(number, self.unit) if self.unit else number

    def quantile(self, u: float, low: float = -math.inf, high: float = math.inf, whole: bool = False) -> Any:
        """The value below which a share ``u`` of the distribution lies, between ``low`` and ``high``.

        A whole number is one of those in a uniform range, all equally likely, else the nearest.
        """
        if self.distribution == "choice":
            return self._chosen(u)
        first, last = self.parameters[0], self.parameters[-1]
        if self.distribution == "uniform":
            if whole:
                return min(first + math.floor(u * (last - first + 1)), last)
            number = min(first + (last - first) * u, last)
        elif self.distribution == "triangular":
            number = self._triangle(u)
        else:
            number = self._bell(u, low, high)
        if whole:
            return min(max(round(number), math.ceil(low) if low > -math.inf else round(number)), high)
        return min(max(number, low), high)

    def _chosen(self, u: float) -> Any:
        weights = self.weights or (1.0,) * len(self.parameters)
        left = u * math.fsum(weights)
        for value, weight in zip(self.parameters, weights, strict=True):
            left -= weight
            if left < 0:
                return value
        return next(value for value, weight in zip(self.parameters[::-1], weights[::-1], strict=True) if weight > 0)

    def _triangle(self, u: float) -> float:
        low, mode, high = self.parameters
        if low == high:
            return float(low) if isinstance(low, float) else low
        width = high - low
        if u * width < mode - low:
            return float(low + math.sqrt(u * width * (mode - low)))
        return float(high - math.sqrt((1 - u) * width * (high - mode)))

    def _bell(self, u: float, low: float, high: float) -> Any:
        """The quantile of a normal or lognormal distribution that is cut off at both ends and rescaled between."""
        centre, spread = self.parameters
        if spread == 0:
            return centre
        from statistics import NormalDist

        bell = NormalDist()
        log = self.distribution == "lognormal"

        def standard(end: float) -> float:
            if log:
                return -math.inf if end <= 0 else (math.log(end) - math.log(centre)) / spread
            return (end - centre) / spread

        below = bell.cdf(standard(low)) if low > -math.inf else 0.0
        above = bell.cdf(standard(high)) if high < math.inf else 1.0
        place = min(max(below + u * (above - below), _ABOVE_ZERO), _BELOW_ONE)
        z = bell.inv_cdf(place)
        return centre * math.exp(spread * z) if log else centre + spread * z

    # --- writing ----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.distribution == "uniform" and len(self.parameters) == 2:
            low, high = self.parameters
            return f"{_digits(low)}..{_digits(high)}{unit}"
        if self.distribution == "lognormal" and len(self.parameters) == 2:
            median, sigma = self.parameters
            return f"lognormal({_digits(median)}{unit}, {_digits(sigma)})"
        parts = [_digits(value) for value in self.parameters]
        if self.weights:
            parts = [f"{part}: {_digits(weight)}" for part, weight in zip(parts, self.weights, strict=True)]
        return f"{self.distribution}({', '.join(parts)}){unit}"

    def to_dict(self) -> dict[str, Any]:
        """The distribution as JSON has it; ``uncertain()`` reads it back."""
        names = DISTRIBUTIONS[self.distribution]
        found: dict[str, Any] = {"distribution": self.distribution}
        if self.distribution == "choice":
            found["values"] = list(self.parameters)
            if self.weights:
                found["weights"] = list(self.weights)
        else:
            found |= dict(zip(names, self.parameters, strict=True))
        if self.unit:
            found["unit"] = self.unit
        return found


def latin_hypercube(names: Mapping[str, Uncertain], samples: int, seed: int) -> dict[str, list[float]]:
    """For each name, ``samples`` shares between 0 and 1, one in each stratum; one object has one sequence."""
    from random import Random

    by_object: dict[int, list[float]] = {}
    for name, distribution in names.items():
        if id(distribution) in by_object:
            continue
        stream = Random(f"{seed}:{name}")
        keys = [stream.random() for _ in range(samples)]
        shares = [0.0] * samples
        for place, stratum in enumerate(sorted(range(samples), key=keys.__getitem__)):
            shares[place] = min(max((stratum + stream.random()) / samples, _ABOVE_ZERO), _BELOW_ONE)
        by_object[id(distribution)] = shares
    return {name: by_object[id(distribution)] for name, distribution in names.items()}


def check_finite(number: Any, what: str) -> None:
    """Refuse what is not a finite number."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{what} must be a number, got {str(number)[:40]!r}.")
    if not math.isfinite(number):
        raise InputError(f"{what} must be finite, got {number}.")


def _plain(value: Any, what: str) -> float:
    check_finite(value, f"{what!r}")
    return float(value)


def _digits(value: Any) -> str:
    if isinstance(value, str):
        return value
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _unit_text(unit: Any) -> str:
    return f"{unit:~}".replace(" ", "")


def in_one_unit(parts: list[Any]) -> tuple[tuple[float, ...], str]:
    """Numbers or quantities as numbers in the unit of the first."""
    quantities = [_quantity(part) for part in parts]
    with_unit = [isinstance(part, Quantity) for part in quantities]
    if not any(with_unit):
        return tuple(quantities), ""
    if not all(with_unit):
        raise UnitError(f"Either all numbers of a distribution have a unit or none; got {_listed(parts)}.")
    return converted(quantities)


def _listed(parts: list[Any]) -> str:
    return ", ".join(str(part)[:40] for part in parts)


def _quantity(value: Any) -> Any:
    """A number as it is, text and mappings as a number or quantity."""
    if isinstance(value, Mapping):
        magnitude, unit = value.get("magnitude"), value.get("unit")
        if set(value) != {"magnitude", "unit"} or not isinstance(unit, str):
            raise InputError("A value of a distribution is a number, text such as '3 TB/s' or {magnitude, unit}.")
        check_finite(magnitude, "'magnitude'")
        return Quantity(magnitude, unit)
    if isinstance(value, str):
        number, unit = read_part(value)
        return number if unit is None else Quantity(number, unit)
    if isinstance(value, Quantity):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    check_finite(value, "A number of a distribution")
    return value


def converted(quantities: list[Any]) -> tuple[tuple[float, ...], str]:
    """Quantities as numbers in the unit of the first, and that unit."""
    first = quantities[0].units
    try:
        numbers = tuple(q.magnitude if q.units == first else q.to(first).magnitude for q in quantities)
    except DimensionalityError:
        listed = ", ".join(f"{q:~P}" for q in quantities)
        raise UnitError(f"The units of {listed} do not agree; give all in one unit.") from None
    return numbers, _unit_text(first)


def starts_with_number(text: str) -> bool:
    """Whether a text begins with a number, as quantities do and names do not."""
    return _NUMBERED.match(text) is not None


def read_part(text: str) -> tuple[float, Any]:
    """Number and unit of a part; None where it has no unit."""
    if not starts_with_number(text):
        raise InputError(f"{text.strip()[:60]!r} is not a number with a unit; write ranges like {EXAMPLES}.")
    found = parse_quantity(text.strip())
    bare = bool(re.fullmatch(r"[\d\s.,_eE+-]*", text))
    return found.magnitude, None if bare else found.units
