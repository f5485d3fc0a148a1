"""The one unit registry, and strings that hold a number and units, nothing else.

``Q_("989 TFLOPs/s")`` goes through :func:`parse_quantity`, which reads ``NUMBER [UNIT]`` with a small grammar of its
own instead of pint's expression evaluator: an expression such as ``9**9**9`` is refused at once, never evaluated,
and a hostile string costs no more than its length. Parsed units are cached, so repeated strings are cheap.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

import pint
from pint.errors import UndefinedUnitError
from pint.facets.plain.definitions import PrefixDefinition, ScaleConverter, UnitDefinition
from pint.util import UnitsContainer

from mlsysim.errors import UnitError, did_you_mean, nearest

DimensionalityError = pint.DimensionalityError

_LONGEST = 120
_NUMBER = re.compile(r"\s*([+-]?(?:\d{1,3}(?:[,_]\d{3})+|\d{1,40})?(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?)\s*")
_UNIT_TOKEN = re.compile(
    r"\s*(?:(?P<name>%|[A-Za-zµμ][A-Za-z0-9_µμ]*)|(?P<power>(?:\*\*|\^)\s*(?P<exp>-?\d))|(?P<op>[*/·])|(?P<one>1(?=\s*/))|(?P<paren>[()]))"
)


_SCALES = {
    "k": 3,
    "m": 6,
    "b": 9,
    "g": 9,
    "t": 12,
    "%": -2,
    "bn": 9,
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
}
_WORDS = r"\s*(?:thousand|million|billion|trillion)"
_WRITTEN = re.compile(rf"{_NUMBER.pattern}(?P<scale>[kmbgt%]|bn|[kmg]i|{_WORDS})?\s*", re.IGNORECASE)
_MONEY = re.compile(
    rf"\s*(?P<first>(?:US)?\$|USD)?\s*{_NUMBER.pattern}(?P<scale>[kmbt]?|bn|{_WORDS})\s*(?P<last>(?:US)? ?dollars?|USD|\$)?\s*(?P<per>/.*)?",
    re.IGNORECASE,
)


CURRENCIES = ("EUR", "GBP", "CNY", "JPY", "CHF", "INR", "CAD", "RMB", "€", "£", "¥", "₹")
"""Money that has no rate here."""


def number_from(text: str) -> float | int | None:
    """The number in a text as people write it, None where it is something else.

    A k is a thousand (8Ki is 8,192), and m, b or g, t in either case a million, a thousand million, a million million.

    >>> number_from("8k"), number_from("8Ki"), number_from("1.24T"), number_from("15_000"), number_from("40%"), number_from("8 GB")
    (8000, 8192, 1240000000000, 15000, 0.4, None)
    >>> number_from("15 trillion"), number_from("2bn")
    (15000000000000, 2000000000)
    """
    found = _WRITTEN.fullmatch(text) if len(text) <= _LONGEST else None
    digits = "" if found is None else found[1].replace(",", "").replace("_", "")
    if found is None or not any(ch.isdigit() for ch in digits.lower().split("e")[0]):
        return None
    scale = (found["scale"] or "").strip().lower()
    if digits.lstrip("+-").isdigit() and not scale:
        return int(digits)
    mantissa, _, exponent = digits.lower().partition("e")
    value = float(f"{mantissa}e{int(exponent or 0) + _SCALES.get(scale, 0)}")
    value *= 1024.0 ** " kmg".index(scale[0]) if scale.endswith("i") else 1.0
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and scale != "%" and ("." not in digits or scale) else value


def two_meanings(text: str) -> str:
    """What is said of a number such as 10.000, whose point some read as that of thousands; nothing of others."""
    if re.fullmatch(r"[1-9]\d{0,2}(\.000)+", text.strip()) is None:
        return ""
    few, whole = text.strip().partition(".")[0], text.strip().replace(".", "")
    return f"{text!r} is {few} to some and {int(whole):,} to others; write {few} or {whole}"


def _check_unit_text(text: str) -> None:
    """Raise unless ``text`` is a product of unit names with one-digit exponents."""

    def refusal(words: str) -> UnitError:
        return UnitError(f"{text[:_LONGEST]!r} {words}", got=text[:_LONGEST])

    if "%%" in text:
        raise refusal("has more than one per cent sign.")
    position, depth, after_name, after_operator = 0, 0, False, False
    end = len(text.rstrip())
    while position < end:
        match = _UNIT_TOKEN.match(text, position)
        if match is None:
            wanted = "unit names joined by * and / with small whole exponents, such as 'GB/s' or 'gCO2e/kWh'."
            raise refusal(f"is not a unit; expected {wanted}")
        if match["power"] and not after_name:
            raise refusal("raises something that is not a unit to a power; write it as in 'm**2'.")
        if match["paren"]:
            depth += 1 if match["paren"] == "(" else -1
            if depth < 0 or depth > 3:
                raise refusal("has unbalanced or too many parentheses.")
        if match["op"] and after_operator:
            raise refusal("has two operators in a row; write it as in 'GB/s'.")
        after_name, after_operator = bool(match["name"]), bool(match["op"])
        position = match.end()
    if depth or after_operator:
        raise refusal("is not finished: a unit or a parenthesis is missing.")


class Registry(pint.UnitRegistry):
    """pint's registry with bounded parsing and errors that suggest the nearest unit."""

    _ready = False

    def parse_expression(self, input_string: str, *args: Any, **kwargs: Any) -> Any:
        return parse_quantity(input_string)

    # pint binds its own evaluator to the call operator.
    __call__ = parse_expression

    def __getattr__(self, item: str) -> Any:
        try:
            return super().__getattr__(item)
        except UnitError as error:
            raise AttributeError(str(error)) from None

    def __contains__(self, item: object) -> bool:
        return isinstance(item, str) and hasattr(self, item)

    def parse_units(self, input_string: str, *args: Any, **kwargs: Any) -> Any:
        return _unit(input_string)

    def parse_units_as_container(self, input_string: str, *args: Any, **kwargs: Any) -> Any:
        # While the definitions load, units refer to each other and the registry is not ready for `_unit`.
        if not self._ready:
            return super().parse_units_as_container(input_string, *args, **kwargs)
        return _unit(input_string)._units


def _load() -> Registry:
    registry = Registry(None, cache_folder=None)
    for line in files("mlsysim.units").joinpath("units.txt").read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            registry.define(_defined(*(part.strip() for part in line.split("="))))
    registry._ready = True
    return registry


def _defined(name: str, value: str, symbol: str | None = None, *aliases: str) -> Any:
    """What a line of units.txt defines; pint's own reader of such files takes five times as long."""
    if name.endswith("-"):
        return PrefixDefinition(name[:-1], _figure(value), (symbol or "")[:-1], tuple(one[:-1] for one in aliases))
    scale: float | int = 1
    powers: dict[str, int] = {}
    for factor in re.finditer(r"(?P<over>/ *)?(?P<what>[^*/ ]+)(?: \*\* (?P<power>\d))?", value):
        number = _figure(factor["what"]) if factor["what"][0].isdigit() else None
        scale = scale / (number or 1) if factor["over"] else scale * (number or 1)
        if number is None:
            power = int(factor["power"] or 1) * (-1 if factor["over"] else 1)
            powers[factor["what"]] = powers.get(factor["what"], 0) + power
    return UnitDefinition(name, symbol, aliases, ScaleConverter(scale), UnitsContainer(powers))


def _figure(number: str) -> Any:
    return int(number) if number.isdigit() else float(number)


@lru_cache(maxsize=4096)
def _unit(text: str) -> Any:
    if not isinstance(text, str):
        raise UnitError(f"a unit is a string such as 'GB/s', got {type(text).__name__}.")
    if len(text) > _LONGEST:
        raise UnitError(f"a unit of {len(text)} characters is too long; at most {_LONGEST} are read.")
    _check_unit_text(text)
    try:
        plain = text.replace("%", " percent ").replace("·", "*")
        return ureg.Unit(_ratio_of_names(plain) or pint.UnitRegistry.parse_units_as_container(ureg, plain))
    except UndefinedUnitError as error:
        unknown = str(error.unit_names if isinstance(error.unit_names, str) else error.unit_names[0])
        if unknown.lstrip("kKMBT") in CURRENCIES:
            raise UnitError(f"money is in USD here, not in {unknown}.", got=text) from None
        known = nearest(unknown, _unit_names())
        near = did_you_mean(known) if known else "see mlsysim/units/units.txt for the units."
        raise UnitError(f"There is no unit {unknown!r} (in {text!r}); {near}", got=text, suggestions=known) from None
    except UnitError:
        raise
    except Exception:
        raise UnitError(
            f"{text!r} is not a unit; expected names joined by * and /, such as 'GB/s' or 'USD/kWh'.", got=text
        ) from None


_RATIO = re.compile(r"(?:1|([A-Za-zµμ]\w*))(?:/([A-Za-zµμ]\w*))?")


def _ratio_of_names(text: str) -> UnitsContainer | None:
    """A unit, one over another or one over a unit, as most are written; None for all else, of which pint makes an expression and evaluates it."""
    found = _RATIO.fullmatch(text)
    names = [] if found is None else [ureg.get_name(name) if name else "" for name in found.groups()]
    return (
        UnitsContainer({name: power for name, power in zip(names, (1, -1), strict=False) if name})
        if len({*names}) == 2
        else None
    )


_COMMON = (
    "ms", "us", "ns", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "Gb", "Gbps", "Tbps", "GBps", "TBps", "kW", "MW", "mW", "kWh",
    "MWh", "GWh", "Wh", "GHz", "MHz", "km",
)  # fmt: skip


def _unit_names() -> list[str]:
    return [*_COMMON, *(name for name in ureg._units if "µ" not in name and "μ" not in name)]


@lru_cache(maxsize=8192)
def _parse(text: str) -> tuple[float | int, Any]:
    if len(text) > _LONGEST:
        raise UnitError(
            f"a quantity of {len(text)} characters is too long; expected a number and a unit such as '80 GiB'."
        )
    money = _MONEY.fullmatch(text)
    if money is not None and (money["first"] or money["last"]):
        paid = number_from(money[2] + money["scale"])
        if paid is not None:
            return paid, _unit("USD" + (money["per"] or ""))
    if (sign := next((each for each in CURRENCIES if each in text), None)) is not None:
        raise UnitError(f"money is in USD here, not in {sign}.", got=text)
    match = _NUMBER.match(text)
    assert match is not None
    number = match[1]
    if not any(ch.isdigit() for ch in number.lower().split("e")[0]):
        if not text.strip():
            raise UnitError("an empty string is not a quantity; expected a number and a unit such as '80 GiB'.")
        return 1, _unit(text.strip())
    cleaned = number.replace(",", "").replace("_", "")
    value: float | int = int(cleaned) if cleaned.lstrip("+-").isdigit() else float(cleaned)
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is too large a number to be a quantity.")
    rest = text[match.end() :].strip()
    if rest[:1] in "*" and rest[:2] != "**":
        rest = rest[1:].strip()
    if rest[:1] == "/":
        rest = "1" + rest
    return value, _unit(rest)


def parse_quantity(text: str) -> Any:
    """Read ``"NUMBER UNIT"``.

    >>> parse_quantity("3.35 TB/s").to("GB/s").magnitude
    3350.0
    """
    if not isinstance(text, str):
        raise UnitError(f"expected a string such as '80 GiB', got {type(text).__name__}.")
    value, unit = _parse(text)
    return _made(value, unit._units)


ureg = _load()
Quantity = ureg.Quantity
Unit = ureg.Unit
Q_ = ureg.Quantity


_construct = Quantity.__new__


def _new_quantity(cls: Any, value: Any, units: Any = None) -> Any:
    if isinstance(value, str) and units is not None:
        raise UnitError(
            f"the number {value[:_LONGEST]!r} is a string beside the unit {str(units)[:_LONGEST]!r}; "
            "write both in one string, as in Q_('80 GiB'), or the number as a number."
        )
    if type(value) is str and value:
        number, unit = _parse(value)
        return _made(number, unit._units)
    for part in (value, units):
        if isinstance(part, (pint.Quantity, pint.Unit)) and part._REGISTRY is not ureg:
            raise UnitError(f"{part} belongs to another pint registry; build it with mlsysim.Q_ instead.")
    return _construct(cls, value, units)


# pint would keep the string, or the foreign quantity, as the magnitude of a new quantity.
setattr(Quantity, "__new__", _new_quantity)  # noqa: B010


def _restored(units: dict[str, Any], *magnitude: Any) -> Any:
    for name in units:
        _unit(name)  # units with a prefix are known to a registry once they were read
    container = UnitsContainer(units)
    return Quantity(magnitude[0], container) if magnitude else Unit(container)


# pint pickles into whatever its process-wide application registry is; ours must come back as ours.
setattr(Quantity, "__reduce__", lambda self: (_restored, (dict(self._units.items()), self.magnitude)))  # noqa: B010
setattr(Unit, "__reduce__", lambda self: (_restored, (dict(self._units.items()),)))  # noqa: B010


@lru_cache(maxsize=4096)
def _container(unit: str) -> UnitsContainer:
    return _unit(unit)._units


def quantity(value: Any, unit: str) -> Any:
    """``Q_(value, unit)`` without its checks, thirty times as fast: for results, which are many."""
    return _made(value, _container(unit))


def _made(value: Any, units: UnitsContainer) -> Any:
    made = object.__new__(Quantity)
    made._magnitude = value
    made._units = units
    return made


@lru_cache(maxsize=8192)
def _factor(source: UnitsContainer, target: str) -> float:
    return _ratio(source, _container(target))


@lru_cache(maxsize=8192)
def _ratio(source: UnitsContainer, target: UnitsContainer) -> float:
    return _convert(Quantity(1.0, source), Unit(target)).magnitude


def conversion_factor(source: str, target: str) -> float:
    """How many ``target`` are in one ``source``; raises DimensionalityError when they measure different things."""
    return _factor(_unit(source)._units, target)


_convert = Quantity.to


def _to(self: Any, other: Any = None, *contexts: Any, **options: Any) -> Any:
    # No unit of ours has a zero of its own, so that a conversion is a factor: looked up, it is ten times as fast.
    if type(self._magnitude) is float and not contexts and not options:
        if type(other) is str:
            return _made(self._magnitude * _factor(self._units, other), _container(other))
        if type(other) is Unit:
            return _made(self._magnitude * _ratio(self._units, other._units), other._units)
    return _convert(self, other, *contexts, **options)


setattr(Quantity, "to", _to)  # noqa: B010


def to_si(value: Any, unit: str) -> float:
    """The magnitude of a quantity (or string with a unit) in ``unit``, with the conversion factor cached.

    Bare numbers are taken to be in ``unit`` already only when it is dimensionless.
    """
    if isinstance(value, str):
        value = parse_quantity(value)
    if isinstance(value, Quantity):
        return value._magnitude * _factor(value._units, unit)
    if isinstance(value, pint.Quantity):
        raise UnitError("this quantity belongs to another pint registry; build it with mlsysim.Q_ instead.")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _unit(unit).dimensionless:
        return value
    wanted = f"a quantity in {unit!r}, such as '1 {unit}'" if unit else "a number without a unit"
    raise UnitError(f"expected {wanted}, got {value!r}.", expected=unit)


def format_unit(unit: Any) -> str:
    """The short symbol of a unit, ``"GB/s"`` (pint's ``~P``)."""
    return _written(unit._units, "~P")


def unit_name(unit: Any) -> str:
    """The name of a unit, ``"gigabyte / second"``."""
    return _written(unit._units, "")


@lru_cache(maxsize=4096)
def _written(units: UnitsContainer, how: str) -> str:
    return f"{Unit(units):{how}}"


def factor_between(old: Any, new: Any) -> float | None:
    """By what a number or a quantity is multiplied; None where there is no such factor."""
    if isinstance(old, Quantity) and isinstance(new, Quantity):
        try:
            return float((new / old).to("").magnitude) if old.magnitude else None
        except (DimensionalityError, ZeroDivisionError):
            return None
    plain = isinstance(old, (int, float)) and isinstance(new, (int, float)) and not isinstance(old, bool)
    return float(new / old) if plain and old else None
