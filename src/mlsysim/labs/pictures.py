"""A small picture of each lab for the list: its first chart without words, so that it shows the form and no answer.

What is drawn is what the lab itself draws, of the practice parameters. Text, and with it every number, is left out; so is what
stands above the first long line or large area: the title and the marks of the legend.
"""

from __future__ import annotations

import re

from mlsysim.labs.lab import Lab
from mlsysim.labs.lab_charts import draw
from mlsysim.labs.scope import Scope
from mlsysim.plot.theme import unstyled

_WIDTH = 360
_WORDS = re.compile(r"<(text|title|desc)\b.*?</\1>", re.DOTALL)
_HEAD = re.compile(r'<svg [^>]*class="mlp" id="([^"]*)" viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')
_GROUND = re.compile(r'<rect [^>]*class="bg"[^>]*/>')
_SHAPE = re.compile(r"<(rect|line)\b([^>]*)>")
_NUMBER = re.compile(r'\b(x|y|x1|y1|x2|y2|width|height)="(-?[\d.]+)"')
_LARGE, _LONG, _MARGIN = 320.0, 60.0, 6.0


def picture(lab: Lab) -> str:
    """The SVG of a lab's first chart that is drawn, without words."""
    chart = next(each for each in lab.charts if each.kind != "table")
    bare = _GROUND.sub("", _WORDS.sub("", draw(Scope.of_student(lab), chart, _WIDTH)["svg"]))
    head = _HEAD.search(bare)
    assert head is not None, "a chart begins with its size"
    tops, bottoms = zip(*_extents(bare), strict=True)
    top, height = min(tops) - _MARGIN, max(bottoms) - min(tops) + 2 * _MARGIN
    box = f'viewBox="0 {top:g} {head[2]} {height:g}" preserveAspectRatio="xMidYMid meet"'
    return unstyled(bare).replace(head[0], f'<svg xmlns="http://www.w3.org/2000/svg" class="mlp" id="{head[1]}" {box}>')


def _extents(svg: str) -> list[tuple[float, float]]:
    """From where to where down the page the large areas and long lines go."""
    found = []
    for kind, said in _SHAPE.findall(svg):
        at = {name: float(value) for name, value in _NUMBER.findall(said)}
        if kind == "line" and abs(at["x2"] - at["x1"]) + abs(at["y2"] - at["y1"]) > _LONG:
            found.append((min(at["y1"], at["y2"]), max(at["y1"], at["y2"])))
        elif kind == "rect" and at["width"] * at["height"] > _LARGE:
            found.append((at.get("y", 0.0), at.get("y", 0.0) + at["height"]))
    return found
