"""The pictures of the page of charts: each is the ``figure`` that the page's own code has made where the picture stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from mlsysim.plot.figure import Figure

from ..blocks import FENCE
from ..figures import shown_figures

_PAGE = Path(__file__).resolve().parents[2] / "charts.md"


@cache
def _made() -> dict[str, Figure]:
    """Run the page from the top; at each picture the figure that was made last."""
    text, found = _PAGE.read_text(encoding="utf-8"), {}
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for match in FENCE.finditer(text):
        if match["language"] == "python":
            exec(match["body"], namespace)
            following = FENCE.search(text, match.end())
            names = shown_figures(text[match.end() : following.start() if following else len(text)], "charts.md")
            found.update(dict.fromkeys(names, namespace["figure"]) if names else {})
    return found


def _picture(name: str) -> Figure:
    return _made()[name]


PICTURES: dict[str, Callable[[], Figure | None]] = {
    name: partial(_picture, name) for name in shown_figures(_PAGE.read_text(encoding="utf-8"), "charts.md")
}
