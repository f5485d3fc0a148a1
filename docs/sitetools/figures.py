"""Pictures on pages: a Markdown image that stands alone becomes a figure with a caption, laid out for a screen and for a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path, PurePosixPath

from mlsysim.plot.figure import PHONE, Figure

from .blocks import FENCE

__all__ = ["DRAWN", "draw", "phone_name", "shown_figures", "with_figures"]

DOCS = Path(__file__).resolve().parents[1]
DRAWN = "assets/figures"
"""Folder, below the pages, of what is drawn from the package; nothing there lies in the tree."""
_ALONE = re.compile(rf"(?P<code>{FENCE.pattern})|^!\[(?P<caption>[^\]\n]+)\]\((?P<path>[^)\s]+\.svg)\)$", re.M | re.S)


def phone_name(name: str) -> str:
    """Name of the narrow layout of a picture.

    >>> phone_name("walls/14.svg")
    'walls/14-phone.svg'
    """
    return f"{name.removesuffix('.svg')}-phone.svg"


def shown_figures(text: str, page: str) -> list[str]:
    """Pictures of a page that are drawn from the package, by their names below :data:`DRAWN`."""
    found = []
    for match in _ALONE.finditer(text):
        if match["path"] and (name := _drawn_name(match["path"], page)):
            found.append(name)
    return found


def _drawn_name(path: str, page: str) -> str | None:
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    whole = "/".join(parts)
    return whole.removeprefix(DRAWN + "/") if whole.startswith(DRAWN + "/") else None


def draw(name: str, picture: Callable[[], Figure | None], folder: Path) -> str:
    """Write both layouts of a picture below a folder; its words for those who do not see it."""
    figure = picture()
    if figure is None:
        raise ValueError(f"{name} has nothing to show")
    for file, width in ((name, None), (phone_name(name), PHONE)):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(figure.svg(width), encoding="utf-8")
    return f"{figure.title}. {figure.alt}"


def with_figures(text: str, page: str, words: dict[str, str]) -> str:
    """The page's Markdown with its pictures as figures; ``words`` are those of the drawn ones by name."""

    def figure(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        path, caption = match["path"], match["caption"]
        name = _drawn_name(path, page)
        if name is None and (DOCS / page).parent.joinpath(path).is_file():
            return _figure(path, caption, caption)
        if name not in words:
            raise ValueError(f"{page}: there is no picture {name or path}")
        return _figure(path, words[name], caption)

    return _ALONE.sub(figure, text)


def _figure(path: str, words: str, caption: str) -> str:
    said = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(caption, quote=False))
    narrow = f'<source media="(max-width: 599px)" srcset="{phone_name(path)}">'
    inner = f'<picture>{narrow}<img src="{path}" alt="{escape(words)}" loading="lazy"></picture>'
    return f'<figure class="drawn">{inner}<figcaption>{said}</figcaption></figure>'
