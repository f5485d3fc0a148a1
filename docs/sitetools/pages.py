"""The pages as any generator of sites can render them: plain Markdown with MathML and figures, whole, in a folder of its own.

What lies under ``docs`` is copied; reference pages and pictures are made; formulas become MathML, pictures that stand alone become figures with a caption.
Where the labs are built beside the site, wall pages invite into the explorer.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .explorer_links import invitation
from .figures import DRAWN, draw, with_figures
from .formulas import with_mathml
from .options import options_page, short_options
from .pictures import PICTURES
from .reference import PAGES, render
from .zoo import PAGES as ZOO
from .zoo import render_zoo

__all__ = ["DOCS", "MADE", "finished", "sources", "write_pages"]

DOCS = Path(__file__).resolve().parents[1]
_WALL = re.compile(r"walls/(\d\d)-")
_SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(README|CONTRIBUTING|CHANGELOG)\.md(?:#[\w-]*)?\)")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_EXPLORER = (
    '<p class="doors"><a class="md-button md-button--primary" href="labs/index.html">Look at scenarios</a> '
    '<a class="md-button" href="labs/index.html#explore">Try your own in the browser</a> '
    '<a class="md-button" href="labs/index.html#labs">Labs</a></p>'
)
_LABS = '<p class="doors"><a class="md-button md-button--primary" href="labs/index.html#labs">Open the labs</a></p>'
_FIRST = "---\nhide:\n  - navigation\n  - toc\n---\n\n"
"""What generators that know it do on the first page: no list of pages beside it."""


MADE: dict[str, Callable[[], str]] = {
    **{f"reference/{page.name}.md": partial(render, page) for page in PAGES},
    "reference/options.md": options_page,
    **{f"zoo/{page.name}.md": partial(render_zoo, page) for page in ZOO},
}
"""Pages that do not lie in the tree, and what makes each."""


def sources() -> dict[str, str]:
    """Every page before it is finished, by its path: those of the tree, and those that are made."""
    found = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return found | {page: make() for page, make in MADE.items()}


def finished(page: str, text: str, words: dict[str, str], labs: bool, folder: Path) -> str:
    """A page as it is rendered; ``words`` are those of the drawn pictures, which lie in the folder."""
    if labs:
        text = text.replace("<!-- explorer -->", _EXPLORER).replace("<!-- labs -->", _LABS)
        if wall := _WALL.match(page):
            offer = invitation(int(wall[1]), "../labs/")
            text = re.sub(r"^## Try it\n", lambda found: f"{found[0]}\n{offer}", text, flags=re.MULTILINE)
    try:
        text = with_mathml(with_figures(_SOURCE.sub(r"`\2.md`", text), page, words, folder))
    except Exception as error:
        raise ValueError(f"{page}: {error}") from error
    # Two figures of a table that belong together stay on a line.
    text = _ROW.sub(lambda row: re.sub(r"(?<=\d) / (?=\d)", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}", row[0]), text)
    return _FIRST + text if page == "index.md" else text


def search_script() -> str:
    """The script of the search, which knows what the letters of the command line stand for."""
    script = (DOCS / "assets" / "search.js").read_text(encoding="utf-8")
    return script.replace("LONG = {}", f"LONG = {json.dumps(short_options())}")


def write_pages(folder: Path, labs: bool = False) -> None:
    """Write all pages and what they show into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "assets", folder / "assets")
    (folder / "assets" / "search.js").write_text(search_script(), encoding="utf-8")
    words = {name: draw(name, picture, folder / DRAWN) for name, picture in PICTURES.items()}
    for page, text in sources().items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(finished(page, text, words, labs, folder), encoding="utf-8")
