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


def with_mathml(page: str) -> str:
    r"""A page's HTML with its formulas set.

    >>> with_mathml(r'<span class="arithmatex">\(x\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    return _MARKED.sub(_formula, page)


def _formula(match: re.Match[str]) -> str:
    latex = html.unescape(match["latex"]).strip()
    # Names of more than one letter below \mathrm are one word; a bar of a table cell was escaped.
    block = match["open"] == "["
    shown = convert(latex.replace(r"\lvert", "|").replace(r"\rvert", "|"), display="block" if block else "inline")
    return f'<div class="formula">{shown}</div>' if block else shown
