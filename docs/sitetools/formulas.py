r"""Formulas as MathML, which browsers set themselves: no script, no font, nothing to load.

A page has ``$...$`` in a line and ``$$...$$`` as a block of its own; here each becomes a ``math`` element in the Markdown, so that whatever renders it need
know nothing of formulas. A formula that cannot be read ends the build, since a reader would see its source.
"""

from __future__ import annotations

import re

from latex2mathml.converter import convert

from .blocks import FENCE

__all__ = ["with_mathml"]

_PARTS = re.compile(
    rf"(?P<code>{FENCE.pattern}|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|<!--.*?-->)"
    r"|(?P<escaped>\\\$)"
    r"|\$\$(?P<block>.+?)\$\$"
    r"|\$(?!\s)(?P<inline>(?:\\.|[^\\$])+?)(?<!\s)\$",
    re.MULTILINE | re.DOTALL,
)

# Commands that the converter does not know or sets otherwise.
_NAMES = {"lvert": "|", "rvert": "|", "arg": r"\mathrm{arg}\,"}
_OTHER = re.compile(rf"\\({'|'.join(_NAMES)})(?![A-Za-z])")
_BAR = re.compile(r"<mo([^>]*)>(?:\||&#x0007C;)</mo>")
_LETTERS = re.compile(r'(?:<mi mathvariant="normal">[A-Za-z]</mi>){2,}')
_TEXT = re.compile(r"(?<=>)[^<>]+(?=<)")
_LONG = 36
"""Characters of a formula in a line, as it is written, from which on it may be wider than a phone."""
_MARKUP = re.compile(r"[*_\[\]|`~^\\]")


def with_mathml(page: str) -> str:
    r"""A page's Markdown with its formulas set; code stays as it is.

    >>> with_mathml(r"so $x$, but `$x$`")
    'so <span class="math"><math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math></span>, but `$x$`'
    """
    return _PARTS.sub(_part, page)


def _part(match: re.Match[str]) -> str:
    if match["code"]:
        return match[0]
    if match["escaped"]:
        return "&#36;"
    if match["block"]:
        return f'<div class="formula">{_set(match["block"], "block")}</div>'
    # A line that begins with a formula is a paragraph's all the same. One that may be wider than a phone scrolls there.
    kind = "math long" if len(match["inline"]) > _LONG else "math"
    return f'<span class="{kind}">{_set(match["inline"], "inline")}</span>'


def _set(latex: str, display: str) -> str:
    latex = " ".join(latex.split())
    shown = convert(_OTHER.sub(lambda found: _NAMES[found[1]], latex), display=display)
    if "\\" in shown:
        raise ValueError(f"{latex} has a command that is not known")
    # Bars are brackets here, not relations, so that they keep no space around them.
    shown = _BAR.sub(r'<mo lspace="0" rspace="0"\1>&#x0007C;</mo>', shown)
    # A word is one identifier, which is upright by itself.
    shown = _LETTERS.sub(lambda found: f"<mi>{re.sub('<[^>]+>', '', found[0])}</mi>", shown)
    # A star or an underscore between tags would be emphasis.
    return _TEXT.sub(lambda text: _MARKUP.sub(lambda mark: f"&#{ord(mark[0])};", text[0]), shown)
