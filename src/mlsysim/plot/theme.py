"""Colours of the charts, as CSS variables: light, dark, and what the page around says.

The series colours descend from Okabe and Ito's palette, which people with any colour vision can tell apart. It was made
for print: orange, sky blue and yellow are too pale on white. Each colour here is moved in lightness until it has a
contrast of at least 3 to 1 on its background (WCAG 2.2, 1.4.11), and 4.5 to 1 with the text on it; a test computes both.
Nothing is told by colour alone: fills carry a hatch each, lines a dash, points a shape, and all a label.

Dark applies where the reader asks for it (``prefers-color-scheme``); an ancestor with ``data-theme="light"`` or ``"dark"``
has the last word. Print is light. A page can set ``--figure-background`` to its own. The rules are in ``figure.css``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template

SERIES = 8
RAMP = 7

LIGHT = {
    "bg": "#ffffff", "ink": "#1c2128", "muted": "#59626e", "axis": "#848d97", "grid": "#e4e7eb", "faint": "#eef0f3",
    "on": "#ffffff", "bad": "#b3261e", "0": "#0069a8", "1": "#b84e00", "2": "#007a58", "3": "#a34d80", "4": "#8a5c00",
    "5": "#5a4fc0", "6": "#9c2f3f", "7": "#5b646f", "q0": "#eaf1f8", "q1": "#cfe1f0", "q2": "#abcbe6",
    "q3": "#7fb0d8", "q4": "#2f7bb3", "q5": "#15598c", "q6": "#0a3a60",
}  # fmt: skip
DARK = {
    "bg": "#15181d", "ink": "#e8eaed", "muted": "#a4acb7", "axis": "#6f7883", "grid": "#2b3038", "faint": "#20252b",
    "on": "#0d1013", "bad": "#ff8a80", "0": "#5bb4ea", "1": "#f08a4b", "2": "#35bf97", "3": "#dd93bf", "4": "#e2a93a",
    "5": "#a59cf5", "6": "#f0808f", "7": "#a7b0bb", "q0": "#1d2935", "q1": "#203648", "q2": "#24465f",
    "q3": "#2a5879", "q4": "#5b9cc9", "q5": "#8fc0e2", "q6": "#cbe3f4",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    own = {**colours, "bg": f"var(--figure-background,{colours['bg']})"}
    return "{" + ";".join(f"--mlp-{name}:{value}" for name, value in own.items()) + "}"


@cache
def stylesheet() -> str:
    """The style of every chart. It is the same for all, so that several on one page do not disturb each other."""
    rules = files("mlsysim.plot").joinpath("figure.css").read_text(encoding="utf-8").replace("\n", "")
    return Template(rules).substitute(light=_variables(LIGHT), dark=_variables(DARK))


def unstyled(svg: str) -> str:
    """A chart for a page that has :func:`stylesheet` once."""
    return svg.replace(f"<style>{stylesheet()}</style>\n", "")
