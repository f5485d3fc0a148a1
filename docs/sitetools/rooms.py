"""The picture of the rooms: who imports whom, read off the source and drawn as SVG.

A room stands one column to the right of the furthest room that it imports; one that imports nothing stands one to the left of
the first that imports it. Arrows that follow from others are left out:
where ``walls`` imports ``cases`` and ``cases`` imports ``units``, no arrow leads from ``walls`` to ``units``.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["drawn", "imports_of_rooms"]

PACKAGE = Path(__file__).parents[2] / "src" / "mlsysim"
_ASIDE = ("__init__", "__main__", "data", "core", "show")
"""Data, the documents' paths that re-export everything, and printing are no part of the picture."""
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 76, 26, 104, 46, 14


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
def _column(room: str) -> int:
    rooms = imports_of_rooms()
    if rooms[room]:
        # What imports nothing follows its importers, and is no reason for a column.
        return max(1 + _column(other) for other in rooms[room] if rooms[other] or other == "errors")
    return 0 if room == "errors" else min(_column(other) for other, own in rooms.items() if room in own) - 1


def _places() -> dict[str, tuple[int, float]]:
    """Column and row of each room; rows lie near those of the rooms that it imports."""
    columns: dict[int, list[str]] = {}
    for room in sorted(imports_of_rooms()):
        columns.setdefault(_column(room), []).append(room)
    tallest = max(map(len, columns.values()))
    places: dict[str, tuple[int, float]] = {}
    for column in sorted(columns):
        rooms = columns[column]

        def pull(room: str) -> tuple[float, str]:
            near = [places[to][1] for start, to in _arrows() if start == room]
            return (sum(near) / len(near) if near else 0.0, room)

        top = (tallest - len(rooms)) / 2
        for row, room in enumerate(sorted(rooms, key=pull)):
            places[room] = (column, top + row)
    return places


def drawn() -> str:
    """The picture."""
    places = _places()
    at = {room: (_EDGE + column * _ACROSS, _EDGE + row * _DOWN) for room, (column, row) in places.items()}
    width = max(x for x, _ in at.values()) + _WIDTH + _EDGE
    height = max(y for _, y in at.values()) + _HEIGHT + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" font-family="sans-serif">',
        "<title>The rooms of mlsysim: an arrow leads from a room to what imports it</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#7a8794"/></marker></defs>',
    ]
    for room, imported in _arrows():
        (x1, y1), (x2, y2) = at[imported], at[room]
        x1, y1, y2 = x1 + _WIDTH, y1 + _HEIGHT / 2, y2 + _HEIGHT / 2
        bend = max(18.0, (x2 - x1) / 2)
        # An arrow past a room in its own row goes over it.
        lift = _DOWN if y1 == y2 and x2 - x1 > _ACROSS else 0
        lines.append(
            f'<path d="M{x1:g} {y1:g}C{x1 + bend:g} {y1 - lift:g} {x2 - bend:g} {y2 - lift:g} {x2:g} {y2:g}" fill="none" '
            'stroke="#7a8794" stroke-width="1.2" marker-end="url(#tip)"/>'
        )
    for room, (x, y) in at.items():
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="#eef3f8" stroke="#41627f"/>'
            f'<text x="{x + _WIDTH / 2:g}" y="{y + _HEIGHT / 2 + 4:g}" font-size="11.5" text-anchor="middle" '
            f'fill="#1d2b38">{room}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"
