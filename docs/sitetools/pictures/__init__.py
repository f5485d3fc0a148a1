"""Pictures of the pages, each drawn from an answer or a resolver's result while the pages are written: they never lie in the tree, and cannot be stale.

curves.py        a resolver asked along one input
node.py ... analysis.py   one picture for each wall, by domain
tutorials.py     pictures of the tutorials and of the pages about ideas
simulations.py   traffic, runs over time, post-training
gallery.py       what the code of the page of charts makes
"""

from __future__ import annotations

from collections.abc import Callable

from mlsysim.plot.figure import Figure

from . import across, fleet, gallery, node, simulations, tutorials

__all__ = ["PICTURES"]

PICTURES: dict[str, Callable[[], Figure | None]] = {
    **{f"walls/{number:02}.svg": picture for room in (node, across, fleet) for number, picture in room.WALLS.items()},
    **tutorials.PICTURES,
    **simulations.PICTURES,
    **gallery.PICTURES,
}
"""Files below ``assets/figures``, and what draws each."""
