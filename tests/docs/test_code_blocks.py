"""The documentation runs: every Python block, every printed result, every relative link, every wall's page."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tomllib
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from mlsysim.errors import DataWarning
from mlsysim.hardware.checks import CHECKS
from mlsysim.hardware.registry import build
from mlsysim.walls.catalog import walls

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
WALL_PAGES = sorted((DOCS / "walls").glob("[0-9][0-9]-*.md"))
HEADINGS = ["The question", "The equation", "A worked number", "What it leaves out", "Try it"]

_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE_SPAN = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it starts on, and what is printed below it."""

    language: str
    body: str
    line: int
    printed: str | None


def blocks(text: str) -> list[Block]:
    """Fenced blocks of a page; a block's ``printed`` is the text block that directly follows it."""
    found = list(_FENCE.finditer(text))
    out = []
    for index, match in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        printed = None
        if (
            following is not None
            and following["language"] == "text"
            and not text[match.end() : following.start()].strip()
        ):
            printed = following["body"]
        out.append(Block(match["language"], match["body"], text.count("\n", 0, match.start()) + 1, printed))
    return out


def run_page(text: str, name: str) -> list[str]:
    """Run a page's Python blocks in one namespace; what went wrong, in sentences."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    problems = []
    for block in blocks(text):
        if block.language != "python":
            continue
        output = io.StringIO()
        try:
            # Line numbers of the page in the traceback.
            code = compile("\n" * block.line + block.body, name, "exec")
            with contextlib.redirect_stdout(output), warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                exec(code, namespace)
        except Exception:
            problems.append(f"{name}:{block.line}: the block raised\n{traceback.format_exc(limit=2)}")
            continue
        if block.printed is not None and output.getvalue() != block.printed:
            problems.append(f"{name}:{block.line}: printed\n{output.getvalue()}\nbut the page says\n{block.printed}")
    return problems


def broken_links(text: str, page: Path) -> list[str]:
    """Relative links of a page that lead nowhere, anchors included."""
    prose = _CODE_SPAN.sub("", _FENCE.sub("", text))
    out = []
    for match in _LINK.finditer(prose):
        target = unquote(match["target"].strip("<>"))
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        missing = not file.exists()
        if missing or (anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8"))):
            out.append(target)
    return out


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings have, spelled as GitHub spells them."""
    titles = re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}


def wall_number(page: Path) -> int:
    return int(page.name[:2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_the_page_says(page: Path) -> None:
    problems = run_page(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page) == []


def test_every_wall_has_one_page() -> None:
    assert [wall_number(page) for page in WALL_PAGES] == list(range(1, 23))


@pytest.mark.parametrize("page", WALL_PAGES, ids=lambda page: page.name)
def test_a_walls_page_has_its_sections_and_a_worked_number(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = _FENCE.sub("", text)
    assert re.findall(r"^## (.+)$", prose, re.MULTILINE) == HEADINGS
    card = walls()[wall_number(page) - 1]
    assert text.startswith(f"# Wall {card.number}: "), card
    assert card.resolver in text, card.resolver
    worked = text[text.index("## A worked number") : text.index("## What it leaves out")]
    shown = [block for block in blocks(worked) if block.language == "python" and block.printed]
    assert shown, "no Python block with its printed output under 'A worked number'"
    assert "$$" in text[text.index("## The equation") : text.index("## A worked number")]


def test_the_index_lists_every_wall_page() -> None:
    index = (DOCS / "walls" / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d\d-[\w-]+\.md)\)", index) == [page.name for page in WALL_PAGES]


def test_the_chip_in_contributing_is_one_that_the_zoo_accepts() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (example,) = [block.body for block in blocks(text) if block.language == "toml"]
    ((key, table),) = tomllib.loads(example).items()
    chip = build(key, table)
    assert chip.metadata.sources
    assert [problem for check in CHECKS if (problem := check(chip))] == []


def test_readme_commands_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    mentioned = set(re.findall(r"make (\w+)", readme))
    assert {"audit", "test"} <= mentioned <= targets


def test_the_readmes_first_minute_runs_in_a_fresh_interpreter() -> None:
    """The first block of the README in an interpreter that has nothing imported yet."""
    first = next(b for b in blocks((ROOT / "README.md").read_text(encoding="utf-8")) if b.language == "python")
    done = subprocess.run([sys.executable, "-c", first.body], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == first.printed


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "but the page says"),
        ("```python\nx = 1\n```\n\n```python\nprint(x + 1)\n```\n```text\n3\n```\n", "but the page says"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
    ],
)
def test_the_checker_notices(page: str, complaint: str) -> None:
    (problem,) = run_page(page, "page")
    assert complaint in problem


def test_blocks_of_a_page_share_a_namespace_and_prose_separates_output() -> None:
    assert run_page("```python\nx = 1\n```\ntext\n```python\nprint(x)\n```\n\n```text\n1\n```\n", "page") == []
    assert run_page("```python\nprint(1)\n```\nAnd now:\n```text\n2\n```\n", "page") == []


def test_the_link_checker_notices(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A title, here\n", encoding="utf-8")
    text = "[a](other.md) [b](gone.md) [c](other.md#a-title-here) [d](other.md#nothing) `[e](code.md)` [f](https://x.y)"
    assert broken_links(text, page) == ["gone.md", "other.md#nothing"]
