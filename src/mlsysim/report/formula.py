"""LaTeX of the walls' equations as MathML, which browsers set themselves: no script, no font, nothing to load.

The equations use a small part of LaTeX: fractions, roots, sub- and superscripts, upright words, growing brackets, Greek
letters and a few operators. What is outside it gives None, and the reader sees the equation as text instead.

    T = \\frac{F}{P\\,\\eta}    a row of T, =, and a fraction of F over the row of P, a thin space, and eta
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", re.DOTALL)

_LETTERS = {
    "alpha": "α", "beta": "β", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "lambda": "λ", "mu": "μ",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "varphi": "φ", "gamma": "γ", "omega": "ω", "phi": "φ", "pi": "π",
}  # fmt: skip
_OPERATORS = {"times": "×", "cdot": "·", "sum": "∑", "partial": "∂", "le": "≤", "ge": "≥", "approx": "≈"}
_WORDS = ("min", "max", "ln", "log", "exp", "arg")
_FENCES = {"lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "|": "‖"}
_SPACES = {",": "0.17em", ";": "0.28em", " ": "0.33em", "quad": "1em"}
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
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def next(self) -> str | None:
        """The token that comes, without taking it."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> str:
        token = self.next()
        if token is None:
            raise _Unknown
        self._at += 1
        return token

    def row(self, ends: tuple[str, ...], upright: bool = False) -> str:
        """Items up to one of ``ends``, which is not taken."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unknown
        items = []
        while (token := self.next()) is not None and token not in ends:
            if token.isspace():
                self._at += 1
                continue
            items.append(self._scripted(upright))
        self._depth -= 1
        return "".join(items)

    def _scripted(self, upright: bool) -> str:
        """An item with what stands below and above it."""
        base = self._item(upright)
        below = above = None
        while (token := self.next()) in ("_", "^"):
            self._at += 1
            script = self._argument(upright)
            if token == "_" and below is None:
                below = script
            elif token == "^" and above is None:
                above = script
            else:
                raise _Unknown
        if below is None and above is None:
            return base
        limits = re.sub(r"<[^>]*>", "", base) in _LIMITS
        names = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        if above is None:
            return f"<{names[0]}>{base}{below}</{names[0]}>"
        if below is None:
            return f"<{names[1]}>{base}{above}</{names[1]}>"
        return f"<{names[2]}>{base}{below}{above}</{names[2]}>"

    def _argument(self, upright: bool = False) -> str:
        """One item, or a group in braces, as a single element."""
        while (token := self.next()) is not None and token.isspace():
            self._at += 1
        if token == "{":
            return self._group(upright)
        return self._item(upright, single=True)

    def _group(self, upright: bool = False) -> str:
        self._take()
        inner = self.row(("}",), upright)
        if self._take() != "}":
            raise _Unknown
        return f"<mrow>{inner}</mrow>" if _elements(inner) != 1 else inner

    def _item(self, upright: bool, single: bool = False) -> str:
        token = self._take()
        if token == "{":
            self._at -= 1
            return self._group(upright)
        if token[0] == "\\":
            return self._command(token[1:])
        if token.isdigit() or token.replace(".", "", 1).isdigit():
            return f"<mn>{token}</mn>"
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
        if name == "left":
            opening = self._fence()
            inner = self.row(("\\right",))
            if self._take() != "\\right":
                raise _Unknown
            return f"<mrow>{opening}{inner}{self._fence()}</mrow>"
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _OPERATORS:
            return f"<mo>{_OPERATORS[name]}</mo>"
        if name in _WORDS:
            return f"<mi>{name}</mi>"
        if name in _FENCES:
            return f'<mo stretchy="false">{_FENCES[name]}</mo>'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"/>'
        raise _Unknown

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
