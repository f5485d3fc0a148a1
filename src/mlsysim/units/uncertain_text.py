"""Reading distributions: text such as ``"0.3..0.6"`` or ``"700 W ± 10 %"``, and tables of files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, UnitError, unknown_name
from mlsysim.units.registry import Quantity, parse_quantity, ureg
from mlsysim.units.uncertain import (
    DISTRIBUTIONS,
    EXAMPLES,
    Uncertain,
    check_finite,
    converted,
    in_one_unit,
    read_part,
    starts_with_number,
)

_LONGEST = 500
_CALL = re.compile(r"([A-Za-z_]+)\s*\(([^()]*)\)\s*(.*)", re.DOTALL)
_SPREAD = re.compile(r"±|\+/-|\+-")


def uncertain(value: Any) -> Uncertain:
    """A distribution from text, a mapping, or one that is there already."""
    if isinstance(value, Uncertain):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, str):
        raise InputError(f"An uncertain value is text such as {EXAMPLES}, or a table; got {type(value).__name__}.")
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
    raise InputError(f"{text[:80]!r} is neither a range nor a distribution; write it like {EXAMPLES}.")


# --- parts of a text ------------------------------------------------------------------------------------------


def _from_texts(whole: str, texts: list[str], trailing: str = "") -> tuple[tuple[float, ...], str]:
    """Numbers of some texts in one unit; that of the last, or one behind them all, holds where none is written."""
    read = [read_part(text) for text in texts]
    shared = ureg.parse_units(trailing) if trailing else read[-1][1]
    if trailing and any(unit is not None for _, unit in read):
        raise UnitError(f"{whole[:80]!r} has a unit inside the parentheses and one behind; write one of them.")
    if shared is None:
        if any(unit is not None for _, unit in read):
            raise UnitError(f"The last number of {whole[:80]!r} has no unit; write one behind the last or behind each.")
        return tuple(number for number, _ in read), ""
    return converted([Quantity(number, shared if unit is None else unit) for number, unit in read])


def _from_spread(text: str, centre: str, spread: str) -> Uncertain:
    """``A ± B``: a normal distribution; B may be per cent of an A that has a unit."""
    _, unit = read_part(centre)
    number, spread_unit = read_part(spread)
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
    if name not in DISTRIBUTIONS:
        raise unknown_name("distribution", name, DISTRIBUTIONS, f"use {', '.join(DISTRIBUTIONS)}.")
    whole = f"{name}({', '.join(parts)}) {trailing}".strip()
    if name == "choice":
        pairs = [part.partition(":") for part in parts]
        weighted = [bool(colon) for _, colon, _ in pairs]
        if any(weighted) and not all(weighted):
            raise InputError(f"{whole[:80]!r} has weights for some of its values; give one for each or none.")
        weights = tuple(_weight(whole, weight) for _, colon, weight in pairs if colon)
        texts = [value.strip() for value, _, _ in pairs]
        if not trailing and all(texts) and not any(starts_with_number(text) for text in texts):
            return Uncertain("choice", tuple(texts), "", weights)
        return Uncertain("choice", *_from_texts(whole, texts, trailing), weights)
    expected = DISTRIBUTIONS[name]
    if len(parts) != len(expected):
        raise InputError(f"{whole[:80]!r} needs {len(expected)} numbers: {name}({', '.join(expected)}).")
    if name == "lognormal":
        sigma, unit = read_part(parts[1])
        if unit is not None:
            raise UnitError(f"The second number of {whole[:80]!r} is the spread of a logarithm and has no unit.")
        return Uncertain("lognormal", *_lognormal(_from_texts(whole, parts[:1], trailing), sigma))
    return Uncertain(name, *_from_texts(whole, parts, trailing))


def _lognormal(middle: tuple[tuple[float, ...], str], sigma: float) -> tuple[tuple[float, ...], str]:
    (median,), unit = middle
    return (median, sigma), unit


def _weight(whole: str, text: str) -> float:
    number, unit = read_part(text)
    if unit is not None:
        raise InputError(f"The weights of {whole[:80]!r} must be plain numbers.")
    return number


def _from_mapping(table: Mapping[str, Any]) -> Uncertain:
    """``{low, high}``, ``{low, mode, high}``, ``{mean, sd}``, ``{median, sigma}``, ``{values, weights}``; with ``unit``."""
    given = {key: value for key, value in table.items() if key not in ("distribution", "unit", "weights")}
    name = table.get("distribution")
    if name is None:
        name = next((kind for kind, names in DISTRIBUTIONS.items() if set(names) == set(given)), None)
        if name is None:
            forms = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in DISTRIBUTIONS.items())
            raise InputError(f"A table with {', '.join(map(str, given)) or 'nothing'} is no distribution ({forms}).")
    elif not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise unknown_name("distribution", name, DISTRIBUTIONS, f"use {', '.join(DISTRIBUTIONS)}.")
    names = DISTRIBUTIONS[name]
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
        check_finite(value, "A number beside 'unit'")
        return Quantity(value, unit)

    if name == "choice":
        values, weights = given["values"], table.get("weights", ())
        if not isinstance(values, (list, tuple)) or not isinstance(weights, (list, tuple)):
            raise InputError("'values' and 'weights' of a choice must be lists.")
        return Uncertain.choice([measured(value) for value in values], weights)
    if name == "lognormal":
        return Uncertain.lognormal(measured(given["median"]), given["sigma"])
    return Uncertain(name, *in_one_unit([measured(given[key]) for key in names]))
