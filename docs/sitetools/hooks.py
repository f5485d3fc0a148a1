"""What MkDocs calls while it builds the site (``hooks`` in mkdocs.yml).

The reference pages and the pictures of simulations are made here and never lie in the tree. Formulas become MathML. Where ``MLSYSIM_LABS`` names a folder with the built labs,
they are copied into the site and wall pages invite into the explorer.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from sitetools.explorer_links import invitation
from sitetools.formulas import with_mathml
from sitetools.pictures import PICTURES, draw
from sitetools.reference import PAGES, render, wall_pages

_WALL = re.compile(r"walls/(\d\d)-")
_SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(README|CONTRIBUTING|CHANGELOG)\.md(?:#[\w-]*)?\)")
_REMOTE_SCRIPTS = (
    ("https://unpkg.com/resize-observer-polyfill", "data:,"),
    ("https://unpkg.com/mermaid@11/dist/mermaid.min.js", "data:,"),
)
_EXPLORER = '<p><a class="md-button md-button--primary" href="labs/index.html">Try it in the browser</a></p>'


def _labs() -> Path | None:
    folder = os.environ.get("MLSYSIM_LABS")
    return Path(folder) if folder else None


def on_config(config: Any) -> Any:
    """Put the pages of the walls behind their index."""
    for section in config["nav"]:
        pages = section.get("Walls")
        if pages:
            pages[1:1] = [{title: page} for title, page in wall_pages().items()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reference and the pictures."""
    for page in PAGES:
        files.append(File.generated(config, f"reference/{page.name}.md", content=render(page)))
    for name in PICTURES:
        files.append(File.generated(config, f"assets/{name}", content=draw(name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Invite into the explorer; name files that only the repository has."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
        if _labs() is not None:
            markdown = markdown.replace("<!-- explorer -->", _EXPLORER)
    wall = _WALL.match(page.file.src_uri)
    if wall and _labs() is not None:
        offer = invitation(int(wall[1]), "../labs/")
        markdown = re.sub(r"^## Try it\n", lambda found: f"{found[0]}\n{offer}", markdown, flags=re.MULTILINE)
    return _SOURCE.sub(r"`\2.md`", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Set formulas."""
    try:
        return with_mathml(html)
    except Exception as error:
        raise PluginError(f"{page.file.src_uri}: a formula cannot be set: {error!r}") from error


def on_post_build(config: Any) -> None:
    """Keep the theme from asking other hosts, and add the labs."""
    site = Path(config["site_dir"])
    for script in (site / "assets" / "javascripts").glob("bundle.*.js"):
        text = script.read_text(encoding="utf-8")
        for there, here in _REMOTE_SCRIPTS:
            text = text.replace(there, here)
        script.write_text(text, encoding="utf-8")
    for leftover in (site / "assets").rglob("*.map"):
        leftover.unlink()
    labs = _labs()
    if labs is not None:
        if not (labs / "index.html").is_file():
            raise PluginError(f"MLSYSIM_LABS={labs} holds no built labs; run `mlsysim labs build {labs}` first")
        shutil.copytree(labs, site / "labs", dirs_exist_ok=True)
