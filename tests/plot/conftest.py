"""A checker of charts: it reads the SVG, computes the box of every text and shape, and says what is wrong."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest

from mlsysim.plot.labels import crosses
from mlsysim.plot.svg import Box, text_box
from mlsysim.plot.theme import stylesheet

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (720, 360, 300)
ROUNDING = 0.05
UNDER = {"grid", "leader", "ceiling"}
"""Lines that a label with a halo may lie on."""


def shape_boxes(root):
    """Name and box of everything drawn; markers by their translation."""
    for node in root:
        tag, get = node.tag.removeprefix(SVG), node.get
        if tag == "text":
            bold, anchor = get("font-weight") == "600", get("text-anchor", "start")
            shown = "".join(t for t in (node.text, *(child.tail for child in node)) if t)
            yield (
                "text",
                shown,
                text_box(float(get("x")), float(get("y")), shown, float(get("font-size")), anchor, bold),
            )
        elif tag == "rect":
            x, y = float(get("x", "0")), float(get("y", "0"))
            yield tag, "", Box(x, y, x + float(get("width")), y + float(get("height")))
        elif tag == "line":
            xs, ys = sorted((float(get("x1")), float(get("x2")))), sorted((float(get("y1")), float(get("y2"))))
            yield tag, "", Box(xs[0], ys[0], xs[1], ys[1])
        elif tag in ("polyline", "polygon"):
            points = [tuple(map(float, pair.split(","))) for pair in get("points").split()]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            yield tag, "", Box(min(xs), min(ys), max(xs), max(ys))
        elif tag == "path" and not get("transform"):
            # Blocks, or the lines and dots of a hatch.
            places = re.findall(r"M([-\d.]+)[ ,]([-\d.]+)(?:h([\d.]+)v([\d.]+))?", get("d"))
            sizes = [tuple(float(each or 0) for each in place) for place in places]
            yield (
                tag,
                "",
                Box(
                    min(x for x, _, _, _ in sizes),
                    min(y for _, y, _, _ in sizes),
                    max(x + wide for x, _, wide, _ in sizes),
                    max(y + high for _, y, _, high in sizes),
                ),
            )
        elif tag == "path":
            x, y = map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", get("transform")).groups())
            yield tag, "", Box(x - 3, y - 3, x + 3, y + 3)


def segments(root):
    """Class and ends of every straight line that no text may lie on."""
    for node in root:
        tag, cls = node.tag.removeprefix(SVG), node.get("class", "")
        if UNDER & set(cls.split()):
            continue
        if tag == "line":
            yield cls, tuple(float(node.get(name)) for name in ("x1", "y1", "x2", "y2"))
        elif tag == "polyline":
            points = [tuple(map(float, pair.split(","))) for pair in node.get("points").split()]
            yield from ((cls, (*one, *other)) for one, other in pairwise(points))


def filled(root):
    """Boxes of the bars: rectangles with a colour of a series."""
    for node in root:
        if node.tag == f"{SVG}rect" and re.match(r"f\d|q\d", node.get("class") or ""):
            x, y = float(node.get("x")), float(node.get("y"))
            yield Box(x, y, x + float(node.get("width")), y + float(node.get("height")))


def problems(svg: str, whole_words: bool = True) -> list[str]:
    """What is wrong with a chart, one sentence each."""
    root = ET.fromstring(svg)
    found = []
    left, top, width, height = map(float, root.get("viewBox").split())
    page = Box(left - ROUNDING, top - ROUNDING, width + ROUNDING, height + ROUNDING)
    texts = []
    for kind, shown, box in shape_boxes(root):
        if not box.inside(page):
            found.append(f"{kind} {shown!r} leaves the page: {box} is not in {page}")
        if kind == "text":
            texts.append((shown, Box(*(round(edge, 2) for edge in box))))
    for (one, first), (other, second) in combinations(texts, 2):
        if first.meets(second, -2 * ROUNDING):
            found.append(f"{one!r} and {other!r} overlap: {first}, {second}")
    lines, bars = [*segments(root)], [*filled(root)]
    for shown, box in texts:
        if whole_words and re.search(r"[^\s…]…|…[^\s…]", shown):
            found.append(f"{shown!r} is cut within a word")
        for cls, line in lines:
            if crosses(line, Box(box.left - 1, box.top + 2, box.right + 1, box.bottom - 1)):
                found.append(f"{shown!r} lies on a line ({cls}): {box}, {line}")
        for bar in bars:
            if box.meets(bar, -1.5) and not (bar.left <= box.left + 1 and box.right <= bar.right + 1):
                found.append(f"{shown!r} lies half on a bar: {box}, {bar}")
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    if len(ids) != len(set(ids)):
        found.append("an id is used twice")
    if any(not identity.startswith(root.get("id")) for identity in ids):
        found.append("an id does not begin with that of the figure")
    labelled = root.get("aria-labelledby").split()
    if root.get("role") != "img" or len(labelled) != 2 or not set(labelled) <= set(ids):
        found.append("the figure has no role, title or description")
    used = {name for node in root.iter() for name in (node.get("class") or "").split()}
    if undefined := {name for name in used if f".{name}" not in stylesheet()}:
        found.append(f"the theme does not know {undefined}")
    if "nan" in re.sub(r">[^<]*<", "><", svg).lower() or "inf" in re.sub(r">[^<]*<", "><", svg).lower():
        found.append("a coordinate is not a number")
    return found


@pytest.fixture(scope="session")
def check():
    """Fails where a figure has a flaw at any width, or draws differently the second time."""

    def checked(figure):
        for width in WIDTHS:
            svg = figure.svg(width)
            assert problems(svg, whole_words=False) == [], f"{figure.title} at {width}"
        assert figure.svg() == figure.svg()
        assert figure.title and len(figure.alt) > 20
        return figure

    return checked


@pytest.fixture(scope="session")
def find_problems():
    return problems
