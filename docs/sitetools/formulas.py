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
_WIDE = 24
"""Signs of an equation of a block up to which it fits a phone."""
_GAP = re.compile(r"\\q?quad(?![A-Za-z])")
_SIGN = re.compile(r"(?<=\s)[=+](?=\s)")
_FIRST_SIGN = re.compile(r"<mo(?=[^<]*>)")
_OPEN, _CLOSED = r"[({\[]|\\lfloor", r"[)}\]]|\\rfloor"
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
        return f'<div class="formula">{"".join(map(_equation, _split(match["block"], _GAP)))}</div>'
    # A line that begins with a formula is a paragraph's all the same. One that may be wider than a phone scrolls there.
    kind = "math long" if len(match["inline"]) > _LONG else "math"
    return f'<span class="{kind}">{_set(match["inline"], "inline")}</span>'


def _split(latex: str, at: re.Pattern[str]) -> list[str]:
    """Pieces of a formula between marks that stand in no bracket."""
    pieces, depth, start = [], 0, 0
    for found in re.finditer(rf"(?P<at>{at.pattern})|(?P<open>{_OPEN})|(?P<closed>{_CLOSED})", latex):
        if found["at"] is None:
            depth += 1 if found["open"] else -1
        elif depth == 0:
            pieces.append(latex[start : found.start()])
            start = found.end() if at is _GAP else found.start()
    return [piece for piece in [*pieces, latex[start:]] if piece.strip()]


def _equation(latex: str) -> str:
    """One equation of a block; a long one in pieces, each from a sign on, that go on in the next line of a narrow page."""
    whole = _set(latex, "block")
    if len(re.sub(r"<[^>]+>|&#?\w+;", "", whole)) <= _WIDE:
        return whole
    first, *rest = _split(latex, _SIGN)
    lines = [
        _set(first, "block"),
        *(_FIRST_SIGN.sub(r'<mo form="infix"', _set(piece, "block"), count=1) for piece in rest),
    ]
    return f'<span class="equation">{"".join(lines)}</span>'


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
