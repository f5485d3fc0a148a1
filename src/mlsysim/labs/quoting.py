r"""Values quoted in the texts of labs: ``{name}`` in prose, ``\val{name}`` in equations, where braces group.

A pass takes {latency}.

```math
T = \frac{\val{bytes}}{\val{bandwidth}} = \val{latency}
```
"""

from __future__ import annotations

import re
from collections.abc import Callable

PLACEHOLDER = re.compile(r"\{([a-z]\w*(?:\.\w+)*)\}")
_EQUATION = re.compile(r"(```math\n.*?```)", re.DOTALL)
_IN_EQUATION = re.compile(r"\\val\{([a-z]\w*(?:\.\w+)*)\}")


def _parts(text: str) -> list[tuple[re.Pattern[str], str]]:
    """Stretches of a text, each with how values are quoted in it."""
    return [
        (_IN_EQUATION if index % 2 else PLACEHOLDER, part) for index, part in enumerate(_EQUATION.split(text)) if part
    ]


def quoted(text: str) -> list[str]:
    """The names that a text quotes."""
    return [name for pattern, part in _parts(text) for name in pattern.findall(part)]


def quote(text: str, shown: Callable[[str], str]) -> str:
    """A text with its values, in equations as LaTeX."""

    def value(found: re.Match[str]) -> str:
        said = shown(found[1])
        return as_latex(said) if found[0].startswith("\\") else said

    return "".join(pattern.sub(value, part) for pattern, part in _parts(text))


def as_latex(said: str) -> str:
    r"""A value as it is printed, in LaTeX: digits in groups, the unit upright.

    >>> as_latex("1,234.5 GB/s"), as_latex("50 %"), as_latex("$9,000,000"), as_latex("1.5")
    ('1{,}234.5\\,\\mathrm{GB/s}', '50\\,\\%', '\\$9{,}000{,}000', '1.5')
    """
    found = re.fullmatch(r"(-?\$?)([\d.,]+)(?:e([+-]?\d+))?(?:\s+(.*))?", said)
    if found is None:
        return rf"\text{{{re.sub('[^ -z]|[$%&_^~#]', '', said)}}}"
    sign, number, exponent, unit = found[1].replace("$", r"\$"), found[2].replace(",", "{,}"), found[3], found[4]
    power = rf"\times 10^{{{int(exponent)}}}" if exponent else ""
    return f"{sign}{number}{power}" + ("" if not unit else r"\,\%" if unit == "%" else rf"\,\mathrm{{{unit}}}")


_PLAIN = (
    (r"\{,\}", ","), (r"\\(?:left|right)", ""), (r"\\[,; ]", " "), (r"\\([%$])", r"\1"), (r"\\times", "x"),
    (r"\\approx", "="), (r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1"),
)  # fmt: skip
_NESTED = (
    (r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1) / (\2)"), (r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)"), (r"([_^])\{([^{}]*)\}", r"\1\2"),
)  # fmt: skip


def for_terminal(text: str) -> str:
    r"""A text whose equations are lines of a terminal, without the stars of Markdown.

    >>> for_terminal("The **ridge point** of *B* sequences, 2 * 3 * 4")
    'The ridge point of B sequences, 2 * 3 * 4'
    >>> print(for_terminal("```math\nT = \\frac{\\text{bytes}}{2\\,\\mathrm{GB/s}}\n```"))
        T = (bytes) / (2 GB/s)
    """

    def plain(found: re.Match[str]) -> str:
        said = found[1].removeprefix("```math\n").removesuffix("```").rstrip()
        for pattern, instead in _PLAIN:
            said = re.sub(pattern, instead, said)
        before = ""
        while before != said:
            before = said
            for pattern, instead in _NESTED:
                said = re.sub(pattern, instead, said)
        return "\n".join(f"    {line}" for line in re.sub(r"\\([A-Za-z]+)", r"\1", said).split("\n"))

    return re.sub(r"(\*{1,2})(?=\S)([^*\n]+?)(?<=\S)\1", r"\2", _EQUATION.sub(plain, text))
