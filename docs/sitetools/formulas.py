"""Formulas as MathML, which browsers set themselves: no script, no font, nothing to load.

``pymdownx.arithmatex`` marks formulas in the page as ``\\(...\\)`` and ``\\[...\\]``; here each becomes a ``math`` element. A formula that cannot
be read ends the build, since a reader would see its source.
"""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

__all__ = ["with_mathml"]

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)

# Commands that the converter does not know or sets otherwise.
_NAMES = {"lvert": "|", "rvert": "|", "arg": r"\mathrm{arg}\,"}
_OTHER = re.compile(rf"\\({'|'.join(_NAMES)})(?![A-Za-z])")
_BAR = re.compile(r"<mo([^>]*)>(?:\||&#x0007C;)</mo>")


def with_mathml(page: str) -> str:
    r"""A page's HTML with its formulas set.

    >>> with_mathml(r'<span class="arithmatex">\(x\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    return _MARKED.sub(_formula, page)


def _formula(match: re.Match[str]) -> str:
    latex = html.unescape(match["latex"]).strip()
    block = match["open"] == "["
    shown = convert(_OTHER.sub(lambda found: _NAMES[found[1]], latex), display="block" if block else "inline")
    if "\\" in shown:
        raise ValueError(f"{latex} has a command that is not known")
    # Bars are brackets here, not relations, so that they keep no space around them.
    shown = _BAR.sub(r'<mo lspace="0" rspace="0"\1>&#x0007C;</mo>', shown)
    return f'<div class="formula">{shown}</div>' if block else shown
