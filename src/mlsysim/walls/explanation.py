r"""Equations of resolvers as data, and ``explain(result)``: the numbers put in with their units, and the value.

An equation is three lines of text: the field that it gives and the equation in words, the same in LaTeX, and what the symbols
are. A symbol is the name of a value (see :meth:`Result.named`), or names with dots that lead to it, and the unit in which it is shown:

    capex_usd: CapEx = purchase min(t, L) / L
        \mathrm{CapEx} = C\,\frac{\min(t, L)}{L}
        purchase = purchase_price_usd in USD, t = duration_days in year, L = amortization_years in year

``wait if many_servers: ...`` is shown only where the value of the name after ``if`` is true. An equation without symbols adds up the parts of
the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from mlsysim.errors import unknown_name
from mlsysim.units.records import dataclass
from mlsysim.units.registry import quantity, to_si
from mlsysim.units.text import number

if TYPE_CHECKING:
    from mlsysim.walls.result import Result

STYLES = ("text", "markdown", "latex")

UNITS = {"usd": "USD", "kwh": "kWh", "kg": "kgCO2e", "liters": "liter", "gb": "GB"}
UNITS |= {"days": "day", "years": "year", "hours": "hour"}
"""Units of plain numbers, by the ends of their names that say so."""

_WRITTEN = re.compile(r"^(\w+)(?: if (\w+))?: (.+)\n +(.+)(?:\n +(.+ = .+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Equation:
    """One equation: which result it gives, as text and LaTeX, names and units of its symbols, and when it is shown."""

    gives: str
    text: str
    latex: str
    symbols: Mapping[str, tuple[str, str]]
    when: str | None = None

    def name_of(self, symbol: str) -> str:
        """What a symbol stands for: the name of its value, or the last of the names that lead to it; a part for itself."""
        return self.symbols.get(symbol, (symbol,))[0].rpartition(".")[2]


def written(text: str) -> tuple[Equation, ...]:
    """The equations of a text."""
    found = []
    for gives, when, words, latex, listed in _WRITTEN.findall(dedent(text)):
        named = dict(each.split(" = ") for each in listed.split(", ")) if listed else {}
        symbols = {
            symbol: (name, unit) for symbol, where in named.items() for name, _, unit in [where.partition(" in ")]
        }
        found.append(Equation(gives, words, latex, symbols, when or None))
    return tuple(found)


def render(result: Result, style: str) -> str:
    """The equations of a result with its numbers."""
    if style not in STYLES:
        raise unknown_name("style of explanation", style, STYLES)
    lines = [_equation(*found, style) for found in filled(result)]
    if result.binding is not None:
        lines.append(sentence("What binds", result.binding.sentence, style))
    if result._facts.sources:
        listed = "; ".join(f"{name}: {source}" for name, source in result._facts.sources.items())
        lines.append(sentence("Sources", listed, style))
    if result.assumptions:
        listed = "; ".join(f"{name} = {text}" for name, text in result.assumptions.items())
        lines.append(sentence("Assumed", listed, style))
    return "\n".join(lines)


def filled(result: Result) -> Iterator[tuple[Equation, dict[str, str], str]]:
    """The equations that hold for a result, with the texts of their symbols and of their value."""
    for equation in result._facts.equations:
        value = getattr(result, equation.gives, None)
        if value is None or (equation.when is not None and not result.named(equation.when)):
            continue
        unit = UNITS.get(equation.gives.rpartition("_")[2], "")
        yield equation, _inputs(equation, result), _text(value, unit)


def _inputs(equation: Equation, result: Result) -> dict[str, str]:
    if not equation.symbols and result.ledger is not None:
        parts = dict[str, float]()
        for part in result.ledger.parts:
            parts[part.label] = parts.get(part.label, 0.0) + part.exposed
        return {label: number(seconds, "s") for label, seconds in parts.items() if seconds}
    found = {symbol: (result.named(name, unit), unit) for symbol, (name, unit) in equation.symbols.items()}
    return {symbol: _text(*what) for symbol, what in found.items() if what[0] is not None}


_NOTHING = 1e-10
"""Seconds that nothing takes: light goes 3 cm."""


def _text(value: Any, unit: str) -> str:
    """A value with its unit as people write it: dollars in front, a short time in days, and more than one of these with an s."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return number(value, unit)
    if unit == "USD":
        return f"{'-' * (value < 0)}${number(abs(value))}"
    if unit == "s" and 0 < value < _NOTHING:
        return "0 s"
    if unit == "year" and 0 < value < 0.5:
        value, unit = to_si(quantity(value, "year"), "day"), "day"
    text = number(value, unit)
    return f"{text}s" if unit in ("year", "day") and value != 1 else text


def _equation(equation: Equation, inputs: dict[str, str], answer: str, style: str) -> str:
    listed = ", ".join(f"{symbol} = {text}" for symbol, text in inputs.items())
    if style == "latex":
        given = r",\ ".join(rf"{symbol} = \text{{{text}}}" for symbol, text in inputs.items())
        return rf"\[ {equation.latex} = \text{{{answer}}} \qquad {given} \]"
    if style == "markdown":
        return f"- **{equation.gives}**: $${equation.latex}$$ with {listed}: **{answer}**"
    return f"{equation.gives}: {equation.text}\n    {listed}\n    = {answer}"


def sentence(title: str, text: str, style: str) -> str:
    """A text under a title, in a style."""
    if style == "latex":
        return rf"\textbf{{{title}.}} {text}"
    return f"**{title}.** {text}" if style == "markdown" else f"{title}: {text}"
