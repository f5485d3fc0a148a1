"""A small picture of each lab for the list: its first chart without words, so that it shows the form and no answer.

What is drawn is what the lab itself draws, of the practice parameters; text, and with it every number, is left out, and the drawing
is cut to what remains.
"""

from __future__ import annotations

import re

from mlsysim.labs.lab import Lab
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.scope import Scope

_WIDTH = 360
_WORDS = re.compile(r"<(text|title|desc)\b.*?</\1>", re.DOTALL)
_NAMED = re.compile(r'\s(?:role|aria-\w+)="[^"]*"')
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_HEADING = 44
"""Pixels of the title above each chart."""


def picture(lab: Lab) -> str:
    """The SVG of a lab's first chart that is drawn, without words."""
    chart = next(each for each in lab.charts if each.kind != "table")
    drawn = draw(Scope.of_student(lab), chart, _WIDTH)["svg"]
    bare = _NAMED.sub("", _WORDS.sub("", drawn))
    size = _SIZE.search(bare)
    if size is None:
        return bare
    width, height = float(size[1]), float(size[2])
    return bare.replace(size[0], f'viewBox="0 {_HEADING} {width:g} {height - _HEADING:g}"')
