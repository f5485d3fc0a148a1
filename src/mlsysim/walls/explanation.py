"""``explain(result)``: the equation, the numbers put in with their units, the value; as text, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlsysim.errors import unknown_name
from mlsysim.units.registry import Quantity, format_unit

if TYPE_CHECKING:
    from mlsysim.walls.result import Equation, Result

__all__ = ["STYLES", "filled", "render"]

STYLES = ("text", "markdown", "latex")


def number(value: Any, unit: str = "") -> str:
    """A value with four significant digits and its unit."""
    if isinstance(value, Quantity):
        return f"{value.magnitude:,.4g} {format_unit(value.units)}".strip()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.4g} {unit}".strip()


def render(result: Result, style: str) -> str:
    """The equations of a result with its numbers."""
    if style not in STYLES:
        raise unknown_name("style of explanation", style, STYLES)
    lines = [_equation(*found, style) for found in filled(result)]
    if result.binding is not None:
        lines.append(_sentence("What binds", result.binding.sentence, style))
    if result._sources:
        listed = "; ".join(f"{name}: {source}" for name, source in result._sources.items())
        lines.append(_sentence("Sources", listed, style))
    if result.assumptions:
        listed = "; ".join(f"{name} = {text}" for name, text in result.assumptions.items())
        lines.append(_sentence("Assumed", listed, style))
    return "\n".join(lines)


def filled(result: Result) -> Iterator[tuple[Equation, dict[str, str], str]]:
    """The equations that hold for a result, with the texts of their symbols and of their value."""
    for equation in result._equations:
        value = getattr(result, equation.gives, None)
        if value is None or (equation.when is not None and not result.named(equation.when)):
            continue
        found = {symbol: (result.named(name, unit), unit) for symbol, (name, unit) in equation.symbols.items()}
        yield equation, {s: number(*what) for s, what in found.items() if what[0] is not None}, number(value)


def _equation(equation: Equation, inputs: dict[str, str], answer: str, style: str) -> str:
    listed = ", ".join(f"{symbol} = {text}" for symbol, text in inputs.items())
    if style == "latex":
        given = r",\ ".join(rf"{symbol} = \text{{{text}}}" for symbol, text in inputs.items())
        return rf"\[ {equation.latex} = \text{{{answer}}} \qquad {given} \]"
    if style == "markdown":
        return f"- **{equation.gives}**: $${equation.latex}$$ with {listed}: **{answer}**"
    return f"{equation.gives}: {equation.text}\n    {listed}\n    = {answer}"


def _sentence(title: str, text: str, style: str) -> str:
    if style == "latex":
        return rf"\textbf{{{title}.}} {text}"
    return f"**{title}.** {text}" if style == "markdown" else f"{title}: {text}"
