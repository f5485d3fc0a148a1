"""Pictures on pages: a Markdown image that stands alone becomes a figure with a caption, laid out for a screen and for a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path, PurePosixPath

from mlsysim.plot.figure import PHONE, Figure

from .blocks import FENCE

__all__ = ["DRAWN", "draw", "phone_name", "shown_figures", "with_figures"]

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


def with_figures(text: str, page: str, words: dict[str, str], folder: Path) -> str:
    """The page's Markdown with its pictures as figures; ``words`` are those of the drawn ones by name, the folder has the pages and what they show."""

    def figure(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0]
        path, caption = match["path"], match["caption"]
        name = _drawn_name(path, page)
        file = (folder / page).parent / path
        if name not in words if name else not file.is_file():
            raise ValueError(f"{page}: there is no picture {name or path}")
        return _figure(file, path, words[name] if name else caption, caption)

    return _ALONE.sub(figure, text)


def _figure(file: Path, path: str, words: str, caption: str) -> str:
    """Both layouts with their sizes, so that the text below stands where it will stand before they have come."""
    said = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(caption, quote=False))
    phone = phone_name(path)
    narrow = f'<source media="(max-width: 599px)" srcset="{phone}" {_size(file.with_name(phone_name(file.name)))}>'
    inner = f'<picture>{narrow}<img src="{path}" {_size(file)} alt="{escape(words)}" loading="lazy"></picture>'
    return f'<figure class="drawn">{inner}<figcaption>{said}</figcaption></figure>'


def _size(file: Path) -> str:
    wide, high = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', file.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
    return f'width="{round(float(wide))}" height="{round(float(high))}"'
