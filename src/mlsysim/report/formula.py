"""LaTeX of the walls' equations as MathML, which browsers set themselves: no script, no font, nothing to load.

The equations use a small part of LaTeX: fractions, roots, sub- and superscripts, upright words, growing brackets, Greek
letters and a few operators. What is outside it gives None, and the reader sees the equation as text instead.

    T = \\frac{F}{P\\,\\eta}    a row of T, =, and a fraction of F over the row of P, a thin space, and eta
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from mlsysim.zoo.files import shipped

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\{,\}\d{3})*(?:\.\d+)?|\s+|.", re.DOTALL)

_WORDS: dict[str, dict[str, str]] = shipped("mlsysim.report", "words.toml")
_FENCES = _WORDS["fences"]
_FORMS = {"letters": "<mi>{}</mi>", "operators": "<mo>{}</mo>", "fences": '<mo stretchy="false">{}</mo>', "spaces": '<mspace width="{}"/>'}  # fmt: skip
_SIMPLE = {name: form.format(mark) for kind, form in _FORMS.items() for name, mark in _WORDS[kind].items()}
"""Commands without arguments."""
_LIMITS = ("∑", "min", "max")
_DEEPEST = 40


class _Unknown(Exception):
    """Something that is not in the part of LaTeX that is read here."""


def mathml(latex: str) -> str | None:
    r"""The equation as a ``math`` element, or None where it uses something else than the part that is read.

    >>> mathml(r"M = \frac{a}{2}")
    '<math display="block"><mi>M</mi><mo>=</mo><mfrac><mi>a</mi><mn>2</mn></mfrac></math>'
    >>> mathml(r"\begin{array}") is None
    True
    """
    try:
        parser = _Parser(_TOKEN.findall(latex))
        row = parser.row(())
        if parser.next() is not None:
            return None
    except (_Unknown, RecursionError):
        return None
    return f'<math display="block">{row}</math>' if row else None


class _Parser:
    """Recursive descent over tokens; each method returns MathML."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens[::-1]
        self._depth = 0

    def next(self) -> str | None:
        """The token that comes, without taking it."""
        return self._tokens[-1] if self._tokens else None

    def _take(self, wanted: str = "") -> str:
        if not self._tokens or (wanted and self._tokens[-1] != wanted):
            raise _Unknown
        return self._tokens.pop()

    def _skip_spaces(self) -> None:
        while self._tokens and self._tokens[-1].isspace():
            self._tokens.pop()

    def row(self, ends: tuple[str, ...], upright: bool = False) -> str:
        """Items up to one of ``ends``, which is not taken."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        items = []
        self._skip_spaces()
        while (token := self.next()) is not None and token not in ends:
            items.append(self._scripted(upright))
            self._skip_spaces()
        self._depth -= 1
        return "".join(items)

    def _scripted(self, upright: bool) -> str:
        """An item with what stands below and above it."""
        base = self._item(upright)
        scripts: dict[str, str] = {}
        while (token := self.next()) in ("_", "^"):
            self._take()
            if token in scripts:
                raise _Unknown
            scripts[str(token)] = self._argument(upright)
        if not scripts:
            return base
        limits = re.sub(r"<[^>]*>", "", base) in _LIMITS
        names = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        name = names[2] if len(scripts) == 2 else names["^" in scripts]
        return f"<{name}>{base}{scripts.get('_', '')}{scripts.get('^', '')}</{name}>"

    def _argument(self, upright: bool = False) -> str:
        """One item, or a group in braces, as a single element."""
        self._skip_spaces()
        return self._item(upright, single=True)

    def _item(self, upright: bool, single: bool = False) -> str:
        token = self._take()
        if token == "{":
            inner = self.row(("}",), upright)
            self._take("}")
            return f"<mrow>{inner}</mrow>" if _elements(inner) != 1 else inner
        if token[0] == "\\":
            return self._command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token.replace('{,}', ',')}</mn>"
        if token.isalpha():
            while upright and not single and (following := self.next()) is not None and following.isalpha():
                token += self._take()
            return f'<mi mathvariant="normal">{token}</mi>' if upright and len(token) == 1 else f"<mi>{token}</mi>"
        if token in "_^}&~#$%\\":
            raise _Unknown
        shown = {"-": "−", "*": "∗"}.get(token, token)
        still = ' stretchy="false"' if token in "()[]|" else ""
        return f"<mo{still}>{escape(shown)}</mo>"

    def _command(self, name: str) -> str:
        if name == "frac":
            return f"<mfrac>{self._argument()}{self._argument()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self._argument()}</msqrt>"
        if name == "mathrm":
            return self._argument(upright=True)
        if name == "text":
            return f"<mtext>{escape(self._words())}</mtext>"
        if name == "left":
            opening = self._fence()
            inner = self.row(("\\right",))
            self._take("\\right")
            return f"<mrow>{opening}{inner}{self._fence()}</mrow>"
        if name not in _SIMPLE:
            raise _Unknown
        return _SIMPLE[name]

    def _words(self) -> str:
        """What stands in braces, as it is."""
        self._take("{")
        said = ""
        while self.next() != "}":
            said += self._take()
        self._take()
        return said

    def _fence(self) -> str:
        token = self._take()
        mark = _FENCES.get(token[1:]) if token[0] == "\\" else token if token in "()[]|" else None
        if mark is None:
            raise _Unknown
        return f'<mo stretchy="true">{mark}</mo>'


def _elements(row: str) -> int:
    """Number of elements side by side."""
    depth = count = 0
    for mark, empty in re.findall(r"<(/?)[^>]*?(/?)>", row):
        if not mark and depth == 0:
            count += 1
        depth += 0 if empty else -1 if mark else 1
    return count
