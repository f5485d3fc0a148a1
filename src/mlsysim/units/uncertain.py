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
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import DimensionalityError, Quantity, parse_quantity, ureg

DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "uniform": ("low", "high"),
    "triangular": ("low", "mode", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
    "choice": ("values",),
}
"""Distributions and the names of their parameters."""

_EXAMPLES = "'0.3..0.6', '0.45 ± 0.05' or 'normal(3.2, 0.1) TB/s'"
_MOST_VALUES = 1000
_LONGEST = 500
_NUMBERED = re.compile(r"\s*[+-]?\.?\d")
_BARE = re.compile(r"[\d\s.,_eE+-]*")
_CALL = re.compile(r"([A-Za-z_]+)\s*\(([^()]*)\)\s*(.*)", re.DOTALL)
_SPREAD = re.compile(r"±|\+/-|\+-")
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729)  # fmt: skip
"""Quantiles at 95 % of Student's distribution, by degrees of freedom from 1 on."""
BELOW_ONE = math.nextafter(1.0, 0.0)
ABOVE_ZERO = 2.0**-60


@dataclass(frozen=True, eq=False)
class Uncertain:
    """A distribution: its name, its parameters as numbers in ``unit`` (a choice may hold names), and weights of a choice."""

    distribution: str
    parameters: tuple[Any, ...]
    unit: str = ""
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        kind, values, weights = self.distribution, self.parameters, self.weights
        names = _parameters_of(kind)
        if kind == "choice":
            if not 1 <= len(values) <= _MOST_VALUES:
                raise InputError(f"A choice needs between 1 and {_MOST_VALUES:,} values, got {len(values)}.")
            if len({isinstance(value, str) for value in values}) > 1:
                raise InputError("A choice is between numbers or between names, not both.")
            if weights and len(weights) != len(values):
                raise InputError(f"A choice between {len(values)} values needs as many weights, got {len(weights)}.")
            numbers = [(value, "A value of a choice") for value in values if not isinstance(value, str)]
        elif len(values) != len(names):
            raise InputError(f"A {kind} distribution takes {', '.join(names)}; got {len(values)} numbers.")
        else:
            numbers = [(v, f"The {name!r} of a {kind} distribution") for name, v in zip(names, values, strict=True)]
        for number, what in [*numbers, *((weight, "A weight of a choice") for weight in weights)]:
            _check_finite(number, what)
        if weights and (min(weights) < 0 or sum(weights) <= 0):
            raise InputError("The weights of a choice must be zero or more, and not all zero.")
        if kind in ("uniform", "triangular") and any(a > b for a, b in pairwise(values)):
            raise InputError(f"The range {self} runs backwards; write the lower end first.")
        if kind in ("normal", "lognormal") and values[1] < 0:
            raise InputError(f"The spread of {self} is negative; it must be zero or more.")
        if kind == "lognormal" and values[0] <= 0:
            raise InputError(f"The median of {self} must be above zero.")

    @classmethod
    def uniform(cls, low: Any, high: Any) -> Uncertain:
        """Every value between two numbers or quantities equally likely."""
        return cls("uniform", *_in_one_unit([low, high]))

    @classmethod
    def triangular(cls, low: Any, mode: Any, high: Any) -> Uncertain:
        """Most likely at ``mode``, falling to nothing at both ends."""
        return cls("triangular", *_in_one_unit([low, mode, high]))

    @classmethod
    def normal(cls, mean: Any, sd: Any) -> Uncertain:
        """The bell curve, truncated to what an input allows."""
        return cls("normal", *_in_one_unit([mean, sd]))

    @classmethod
    def lognormal(cls, median: Any, sigma: float) -> Uncertain:
        """A positive number whose natural logarithm is normal with standard deviation ``sigma``."""
        (middle,), unit = _in_one_unit([median])
        _check_finite(sigma, "'sigma'")
        return cls("lognormal", (middle, float(sigma)), unit)

    @classmethod
    def choice(cls, values: Sequence[Any], weights: Sequence[float] = ()) -> Uncertain:
        """One of some numbers, quantities or names, equally likely unless there are weights."""
        if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
            raise InputError("A choice needs a list of values.")
        if all(isinstance(value, str) and not _NUMBERED.match(value) for value in values):
            return cls("choice", tuple(values), "", tuple(weights))
        return cls("choice", *_in_one_unit(list(values)), tuple(weights))

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

        bell, log = NormalDist(), self.distribution == "lognormal"

        def standard(end: float) -> float:
            if log:
                return -math.inf if end <= 0 else (math.log(end) - math.log(centre)) / spread
            return (end - centre) / spread

        below = bell.cdf(standard(low)) if low > -math.inf else 0.0
        above = bell.cdf(standard(high)) if high < math.inf else 1.0
        place = min(max(below + u * (above - below), ABOVE_ZERO), BELOW_ONE)
        z = bell.inv_cdf(place)
        return centre * math.exp(spread * z) if log else centre + spread * z

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        parts = [_digits(value) for value in self.parameters]
        if self.distribution == "uniform":
            return f"{parts[0]}..{parts[1]}{unit}"
        if self.distribution == "lognormal":
            return f"lognormal({parts[0]}{unit}, {parts[1]})"
        if self.weights:
            parts = [f"{part}: {_digits(weight)}" for part, weight in zip(parts, self.weights, strict=True)]
        return f"{self.distribution}({', '.join(parts)}){unit}"

    def to_dict(self) -> dict[str, Any]:
        """The distribution as JSON has it; ``uncertain()`` reads it back."""
        found: dict[str, Any] = {"distribution": self.distribution}
        if self.distribution == "choice":
            found |= {"values": list(self.parameters), **({"weights": list(self.weights)} if self.weights else {})}
        else:
            found |= dict(zip(DISTRIBUTIONS[self.distribution], self.parameters, strict=True))
        return found | ({"unit": self.unit} if self.unit else {})


def uncertain(value: Any) -> Uncertain:
    """A distribution from text, from a mapping, or an existing one as it is."""
    if isinstance(value, Uncertain):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, str):
        raise InputError(f"An uncertain value is text such as {_EXAMPLES}, or a table; got {type(value).__name__}.")
    if len(value) > _LONGEST:
        raise InputError(f"An uncertain value may have at most {_LONGEST} characters, got {len(value)}.")
    text = value.strip()
    call = _CALL.fullmatch(text)
    if call is not None:
        return _from_call(call[1].lower(), [part.strip() for part in call[2].split(",")], call[3].strip())
    if ".." in text:
        low, _, high = text.partition("..")
        return Uncertain("uniform", *_from_texts(text, [low, high]))
    parts = _SPREAD.split(text)
    if len(parts) == 2:
        return _from_spread(text, *parts)
    raise InputError(f"{text[:80]!r} is neither a range nor a distribution; write it like {_EXAMPLES}.")


def _parameters_of(name: Any) -> tuple[str, ...]:
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise unknown_name("distribution", name, DISTRIBUTIONS, f"use {', '.join(DISTRIBUTIONS)}.")
    return DISTRIBUTIONS[name]


def _from_texts(whole: str, texts: list[str], trailing: str = "") -> tuple[tuple[float, ...], str]:
    """Numbers of some texts in one unit; that of the last, or one behind them all, holds where none is written."""
    read = [_read_part(text) for text in texts]
    shared = ureg.parse_units(trailing) if trailing else read[-1][1]
    if trailing and any(unit is not None for _, unit in read):
        raise UnitError(f"{whole[:80]!r} has a unit inside the parentheses and one behind; write one of them.")
    if shared is None:
        if any(unit is not None for _, unit in read):
            raise UnitError(f"The last number of {whole[:80]!r} has no unit; write one behind the last or behind each.")
        return tuple(number for number, _ in read), ""
    return _converted([Quantity(number, shared if unit is None else unit) for number, unit in read])


def _from_spread(text: str, centre: str, spread: str) -> Uncertain:
    """``A ± B``: a normal distribution; B may be per cent of an A that has a unit."""
    _, unit = _read_part(centre)
    number, spread_unit = _read_part(spread)
    percent = spread_unit is not None and spread_unit == ureg.percent
    if percent and unit is None:
        raise UnitError(
            f"{text[:80]!r} does not say of what the per cent are; write it as in '0.45 ± 0.05' or '45 % ± 5 %'."
        )
    if percent and unit != ureg.percent:
        middle = parse_quantity(centre.strip())
        return Uncertain.normal(middle, abs(middle) * number / 100)
    return Uncertain("normal", *_from_texts(text, [centre, spread]))


def _from_call(name: str, parts: list[str], trailing: str) -> Uncertain:
    expected = _parameters_of(name)
    whole = f"{name}({', '.join(parts)}) {trailing}".strip()
    if name == "choice":
        pairs = [part.partition(":") for part in parts]
        weighted = [bool(colon) for _, colon, _ in pairs]
        if any(weighted) and not all(weighted):
            raise InputError(f"{whole[:80]!r} has weights for some of its values; give one for each or none.")
        weights = [_read_part(weight) for _, colon, weight in pairs if colon]
        if any(unit is not None for _, unit in weights):
            raise InputError(f"The weights of {whole[:80]!r} must be plain numbers.")
        shares, texts = tuple(number for number, _ in weights), [value.strip() for value, _, _ in pairs]
        if not trailing and all(texts) and not any(_NUMBERED.match(text) for text in texts):
            return Uncertain("choice", tuple(texts), "", shares)
        return Uncertain("choice", *_from_texts(whole, texts, trailing), shares)
    if len(parts) != len(expected):
        raise InputError(f"{whole[:80]!r} needs {len(expected)} numbers: {name}({', '.join(expected)}).")
    if name == "lognormal":
        sigma, spread_unit = _read_part(parts[1])
        if spread_unit is not None:
            raise UnitError(f"The second number of {whole[:80]!r} is the spread of a logarithm and has no unit.")
        (median,), unit = _from_texts(whole, parts[:1], trailing)
        return Uncertain("lognormal", (median, sigma), unit)
    return Uncertain(name, *_from_texts(whole, parts, trailing))


def _from_mapping(table: Mapping[str, Any]) -> Uncertain:
    """``{low, high}``, ``{low, mode, high}``, ``{mean, sd}``, ``{median, sigma}``, ``{values, weights}``; with ``unit``."""
    given = {key: value for key, value in table.items() if key not in ("distribution", "unit", "weights")}
    name = table.get("distribution")
    if name is None:
        name = next((kind for kind, names in DISTRIBUTIONS.items() if set(names) == set(given)), None)
        if name is None:
            forms = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in DISTRIBUTIONS.items())
            raise InputError(f"A table with {', '.join(map(str, given)) or 'nothing'} is no distribution ({forms}).")
    names = _parameters_of(name)
    for key in given:
        if key not in names:
            raise unknown_name(f"parameter of a {name} distribution", key, names, f"use {', '.join(names)}.")
    missing = [key for key in names if key not in given]
    if missing:
        raise InputError(f"A {name} distribution needs {' and '.join(repr(key) for key in missing)}.")
    if "weights" in table and name != "choice":
        raise InputError(f"A {name} distribution has no weights; only a choice has.")
    unit = table.get("unit")
    if unit is not None and not isinstance(unit, str):
        raise UnitError(f"'unit' of a distribution must be text such as 'TB/s', got {str(unit)[:40]!r}.")

    def measured(value: Any) -> Any:
        if unit is None:
            return value
        _check_finite(value, "A number beside 'unit'")
        return Quantity(value, unit)

    if name == "choice":
        values, weights = given["values"], table.get("weights", ())
        if not isinstance(values, (list, tuple)) or not isinstance(weights, (list, tuple)):
            raise InputError("'values' and 'weights' of a choice must be lists.")
        return Uncertain.choice([measured(value) for value in values], weights)
    if name == "lognormal":
        return Uncertain.lognormal(measured(given["median"]), given["sigma"])
    return Uncertain(name, *_in_one_unit([measured(given[key]) for key in names]))


def _check_finite(number: Any, what: str) -> None:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InputError(f"{what} must be a number, got {str(number)[:40]!r}.")
    if not math.isfinite(number):
        raise InputError(f"{what} must be finite, got {number}.")


def _digits(value: Any) -> str:
    if isinstance(value, str):
        return value
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _in_one_unit(parts: list[Any]) -> tuple[tuple[float, ...], str]:
    """Numbers or quantities as numbers in the unit of the first."""
    found = [_quantity(part) for part in parts]
    with_unit = [isinstance(part, Quantity) for part in found]
    if not any(with_unit):
        return tuple(found), ""
    if not all(with_unit):
        listed = ", ".join(str(part)[:40] for part in parts)
        raise UnitError(f"Either all numbers of a distribution have a unit or none; got {listed}.")
    return _converted(found)


def _quantity(value: Any) -> Any:
    """A number as it is, text and mappings as a number or quantity."""
    if isinstance(value, Mapping):
        magnitude, unit = value.get("magnitude"), value.get("unit")
        if set(value) != {"magnitude", "unit"} or not isinstance(unit, str):
            raise InputError("A value of a distribution is a number, text such as '3 TB/s' or {magnitude, unit}.")
        _check_finite(magnitude, "'magnitude'")
        return Quantity(magnitude, unit)
    if isinstance(value, str):
        number, unit = _read_part(value)
        return number if unit is None else Quantity(number, unit)
    if isinstance(value, Quantity):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    _check_finite(value, "A number of a distribution")
    return value


def _converted(quantities: list[Any]) -> tuple[tuple[float, ...], str]:
    """Quantities as numbers in the unit of the first, and that unit."""
    first = quantities[0].units
    try:
        numbers = tuple(q.magnitude if q.units == first else q.to(first).magnitude for q in quantities)
    except DimensionalityError:
        listed = ", ".join(f"{q:~P}" for q in quantities)
        raise UnitError(f"The units of {listed} do not agree; give all in one unit.") from None
    return numbers, f"{first:~}".replace(" ", "")


def _read_part(text: str) -> tuple[float, Any]:
    """Number and unit of a part; None where it has no unit."""
    if not _NUMBERED.match(text):
        raise InputError(f"{text.strip()[:60]!r} is not a number with a unit; write ranges like {_EXAMPLES}.")
    found = parse_quantity(text.strip())
    return found.magnitude, None if _BARE.fullmatch(text) else found.units
