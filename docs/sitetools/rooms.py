"""The picture of the rooms: who imports whom, read off the source and drawn as SVG, wide and for a phone.

A room stands one row below the furthest room that it imports; one that imports nothing stands one above the first that imports
it. Arrows that follow from others are left out: where ``walls`` imports ``cases`` and ``cases`` imports ``units``, no arrow leads
from ``walls`` to ``units``. An arrow goes round the rooms between its ends.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from .flow import STYLE

__all__ = ["drawn", "imports_of_rooms"]

PACKAGE = Path(__file__).parents[2] / "src" / "mlsysim"
_ASIDE = ("__init__", "__main__", "data", "core", "show")
"""Data, the documents' paths that re-export everything, and printing are no part of the picture."""
_HEIGHT, _DOWN, _EDGE = 28, 50, 12
_WIDE, _PHONE = (112, 176, 13.0), (74, 86, 11.5)
"""Width of a room, from one to the next, and size of its name."""


@cache
def imports_of_rooms() -> dict[str, frozenset[str]]:
    """Rooms, and the rooms that each imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in _ASIDE:
            continue
        names = found.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [f"{node.module}.{a.name}" for a in node.names]
            names |= {m.split(".")[1] for m in modules if m.startswith("mlsysim.")}
    return {room: frozenset(names & found.keys() - {room}) for room, names in found.items()}


@cache
def _behind(room: str) -> frozenset[str]:
    """Every room that a room reaches."""
    own = imports_of_rooms()[room]
    return own.union(*(_behind(other) for other in own))


@cache
def _arrows() -> list[tuple[str, str]]:
    """From a room to those that it imports, less what follows from other arrows."""
    arrows = []
    for room, own in imports_of_rooms().items():
        implied = frozenset().union(*(_behind(other) for other in own))
        arrows += [(room, other) for other in sorted(own - implied)]
    return arrows


@cache
def _row(room: str) -> int:
    rooms = imports_of_rooms()
    if rooms[room]:
        # What imports nothing follows its importers, and is no reason for a row.
        return max(1 + _row(other) for other in rooms[room] if rooms[other] or other == "errors")
    return 0 if room == "errors" else min(_row(other) for other, own in rooms.items() if room in own) - 1


def _places() -> dict[str, tuple[float, int]]:
    """Column and row of each room; columns lie near those of the rooms that it imports."""
    rows: dict[int, list[str]] = {}
    for room in sorted(imports_of_rooms()):
        rows.setdefault(_row(room), []).append(room)
    widest = max(map(len, rows.values()))
    places: dict[str, tuple[float, int]] = {}
    for row in sorted(rows):
        rooms = rows[row]

        def pull(room: str) -> tuple[float, str]:
            near = [places[to][0] for start, to in _arrows() if start == room]
            return (sum(near) / len(near) if near else 0.0, room)

        left = (widest - len(rooms)) / 2
        for column, room in enumerate(sorted(rooms, key=pull)):
            places[room] = (left + column, row)
    return places


def drawn(phone: bool = False) -> str:
    """The picture."""
    wide, across, size = _PHONE if phone else _WIDE
    at = {room: (_EDGE + column * across, _EDGE + row * _DOWN) for room, (column, row) in _places().items()}
    width = max(x for x, _ in at.values()) + wide + _EDGE
    height = max(y for _, y in at.values()) + _HEIGHT + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img">',
        "<title>The rooms of mlsysim: an arrow leads from a room to what imports it</title>",
        f"<style>{STYLE}</style>",
    ]
    for room, imported in _arrows():
        (x1, y1), (x2, y2) = at[imported], at[room]
        start, end = (x1 + wide / 2, y1 + _HEIGHT), (x2 + wide / 2, y2)
        others = [place for name, place in at.items() if name not in (room, imported)]
        lines.append(_arrow(start, end, others, wide, width))
    for room, (x, y) in at.items():
        lines.append(
            f'<rect class="box" x="{x:g}" y="{y:g}" width="{wide}" height="{_HEIGHT}" rx="5"/>'
            f'<text x="{x + wide / 2:g}" y="{y + _HEIGHT / 2 + size / 3:.1f}" font-size="{size:g}" text-anchor="middle">{room}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


_Point = tuple[float, float]


def _arrow(start: _Point, end: _Point, rooms: list[_Point], wide: float, width: float) -> str:
    """From one room to another; past rows between them where no room stands, as near as there is."""
    (x1, y1), (x2, y2) = start, (end[0], end[1] - 6)
    step, middle = _DOWN - _HEIGHT, (x1 + x2) / 2
    between = [x for x, y in rooms if y1 < y < y2]
    ways = [x for x in range(4, int(width) - 3) if not any(left - 6 < x < left + wide + 6 for left in between)]
    past = min(ways, key=lambda x: abs(x - middle))
    if between:
        turns = f"{_bend(x1, y1, past, y1 + step)}V{y2 + 6 - step:g}{_bend(past, y2 + 6 - step, x2, y2)}"
    else:
        turns = _bend(x1, y1, x2, y2)
    tip = f"M{x2 - 4:g} {y2 - 1:g}L{x2 + 4:g} {y2 - 1:g}L{x2:g} {y2 + 6:g}z"
    return f'<path class="way" d="M{x1:g} {y1:g}{turns}"/><path class="tip" d="{tip}"/>'


def _bend(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (y1 + y2) / 2
    return f"C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
