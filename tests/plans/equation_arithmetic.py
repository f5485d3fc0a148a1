"""The arithmetic of an answer's equations: the right-hand side with its inputs put in, and how far their rounding moves it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from mlsysim.plans.answer import Equation
from mlsysim.plans.metrics import Metric
from mlsysim.units.registry import Quantity, parse_quantity

_NUMBER = re.compile(r"(\$?)(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)(%?)\s*(.*)")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*)|(?P<name>§\d+§)|(?P<call>min|max|sqrt|floor|exp|Phi|W)\b|(?P<sign>[-+*/^(),]))"
)


def _plain(x: Any) -> float:
    return float(x.to("").magnitude if isinstance(x, Quantity) else x)


def _lambert(x: Any) -> float:
    """The branch of w e^w = x above -1, by bisection."""
    low, high = -1.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.exp(middle) < _plain(x) else (low, middle)
    return high


_CALLS: dict[str, Any] = {
    "exp": lambda x: math.exp(_plain(x)),
    "Phi": lambda x: NormalDist().cdf(_plain(x)),
    "W": _lambert,
    "min": min,
    "max": max,
    "sqrt": lambda x: x**0.5,
    "floor": lambda x: math.floor(_plain(x)),
}


def read(text: str) -> tuple[Any, Any]:
    """A printed number with its unit, and half of its last digit: of estimates the fourth, behind which zeros stand up to the point."""
    found = _NUMBER.fullmatch(text.strip())
    assert found is not None, text
    digits, unit = found[2].replace(",", ""), found[4]
    mantissa, _, exponent = digits.partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    if mantissa.isdigit() and not mantissa[4:].strip("0"):
        half *= 10.0 ** len(mantissa[4:])
    scale = 0.01 if found[3] else 1.0
    for word, times in (("million", 1e6), ("billion", 1e9), ("trillion", 1e12)):
        if unit.startswith(word):
            unit, scale = unit.removeprefix(word).strip(), times
    unit = "USD" if found[1] else unit
    return tuple(parse_quantity(f"{number * scale!r} {unit}".strip()) for number in (float(digits), half))


def side(equation: Equation) -> tuple[str, tuple[str, str] | None]:
    """The right-hand side, and what it is ``with``: a symbol and its own."""
    text, _, more = equation.text.partition(", with ")
    symbol, is_one, own = more.partition(" = ")
    text = text.rpartition(" = ")[2]
    depth, end = 0, len(text)
    for place, mark in enumerate(text):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            end = place
            break
    return text[:end].strip(), (symbol, own) if is_one and len(symbol) < 10 else None


def evaluated(text: str, values: Mapping[str, Any]) -> Any:
    """The value of an expression; juxtaposition multiplies. None where it has words that are no symbols."""
    names = sorted(values, key=len, reverse=True)
    for place, name in enumerate(names):
        text = re.sub(rf"(?<![\w§]){re.escape(name)}(?![\w§])", f"§{place}§", text)
    pieces: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        at = found.end()
        kind = found.lastgroup
        piece = found[0].strip()
        follows = bool(pieces) and (pieces[-1] not in _CALLS and pieces[-1][-1] in ")]0123456789")
        if follows and (kind != "sign" or piece == "("):
            pieces.append("*")
        pieces.append(f"v[{int(piece[1:-1])}]" if kind == "name" else {"^": "**"}.get(piece, piece))
    return eval(" ".join(pieces), {"__builtins__": {}}, {"v": [values[name] for name in names], **_CALLS})


def value_of(equation: Equation, values: Mapping[str, Any]) -> Any:
    """What an equation gives with these inputs."""
    if "sum" in equation.text.split("=")[-1].split(",")[0].split() and "over operators" not in equation.text:
        if equation.text.startswith("1 / M"):
            return 1 / sum(1 / each for each in values.values())
        first, *others = values.values()
        for each in others:
            first = first + each
        return first
    for words, found in (("the least of", min), ("the most of", max)):
        if words in equation.text:
            return found(values.values())
    text, own = side(equation)
    held = dict(values)
    if own is not None:
        held[own[0]] = evaluated(own[1], values)
    return evaluated(text, held)


def wrong_by(equation: Equation, metric: Metric) -> str | None:
    """Why the right-hand side does not give the metric's value; None where it does, to the digits that are printed."""
    values = {symbol: read(text) for symbol, text in equation.inputs.items()}
    plain = {symbol: value for symbol, (value, _) in values.items()}
    found = value_of(equation, plain)
    if found is None:
        return f"{equation.text!r} is not arithmetic"
    unit = metric.value.units if isinstance(metric.value, Quantity) else ""

    def number(value: Any) -> float:
        return float(value.to(unit or "").magnitude) if isinstance(value, Quantity) else float(value)

    printed, slack = read(equation.value)
    wanted = number(metric.value)
    shown = number(printed) if not (unit and printed.units.dimensionless) else float(printed.magnitude)
    room = float(slack.magnitude) if not unit or printed.units.dimensionless else number(slack)
    for symbol, (value, half) in values.items():
        room += abs(number(value_of(equation, {**plain, symbol: value + half})) - number(found))
    if abs(shown - wanted) > float(room):
        return f"prints {equation.value} and is {metric.value}"
    if abs(number(found) - wanted) > 1.01 * room:
        return f"{equation.text!r} with {equation.inputs} gives {found}, not {metric.value}"
    return None


def prints_wrongly(equation: Equation) -> str | None:
    """Why the right-hand side of an equation on the way to a metric does not give what it prints; None where it does, or is no arithmetic."""
    read_inputs = {symbol: read(text) for symbol, text in equation.inputs.items() if _NUMBER.fullmatch(text.strip())}
    if len(read_inputs) < len(equation.inputs) or not _NUMBER.fullmatch(equation.value.strip()):
        return None
    plain = {symbol: value for symbol, (value, _) in read_inputs.items()}
    head = equation.model_copy(update={"text": equation.text.partition(", with ")[0]})

    def number(values: Mapping[str, Any]) -> float | None:
        for each in (equation, head):
            try:
                found = value_of(each, values)
            except TypeError:
                continue
            if found is not None:
                return float(found.to_base_units().magnitude) if isinstance(found, Quantity) else float(found)
        return None

    found, (printed, slack) = number(plain), read(equation.value)
    if found is None:
        return None
    shown, room = (float(each.to_base_units().magnitude) for each in (printed, slack))
    for symbol, (value, half) in read_inputs.items():
        moved = number({**plain, symbol: value + half})
        room += abs((moved or 0.0) - found)
    wrong = abs(shown - found) > 1.02 * room
    return f"{equation.text!r} with {equation.inputs} gives {found}, and prints {equation.value}" if wrong else None
