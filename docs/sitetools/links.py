"""Links of a page that lead nowhere, anchors included."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from .blocks import FENCE

__all__ = ["anchors", "broken_links", "links"]

_LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE_SPAN = re.compile(r"`[^`\n]*`")


def links(text: str) -> list[str]:
    """Targets of a page's links that are no addresses of other hosts."""
    # Words in code keep their place: they may be the text of a link.
    prose = _CODE_SPAN.sub("code", FENCE.sub("", text))
    targets = [unquote(match["target"].strip("<>")) for match in _LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def broken_links(text: str, page: Path, generated: Collection[Path] = ()) -> list[str]:
    """Relative links of a page that lead to no file or no heading; ``generated`` are pages that only the built site has."""
    out = []
    for target in links(text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if file in generated:
            continue
        missing = not file.exists()
        if missing or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8"))):
            out.append(target)
    return out


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings have, spelled as GitHub and the site spell them."""
    titles = re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}
