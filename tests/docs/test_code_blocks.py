"""The documentation runs: every Python block, every command, every printed result, every wall's page."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sitetools.blocks import FENCE, agree, blocks, problems, rewritten
from sitetools.commands import ONLY_READ, CommandError, folder_for_commands, run_commands

from mlsysim.hardware.checks import CHECKS
from mlsysim.hardware.registry import build
from mlsysim.models.checks import CHECKS as MODEL_CHECKS
from mlsysim.models.registry import build as build_model
from mlsysim.walls.catalog import walls
from mlsysim.zoo.files import shipped_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
WALL_PAGES = sorted((DOCS / "walls").glob("[0-9][0-9]-*.md"))
HEADINGS = ["The question", "The equation", "A worked number", "What it leaves out", "Try it"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_for_commands(tmp_path)


def wall_number(page: Path) -> int:
    return int(page.name[:2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_the_page_says(page: Path, folder: Path) -> None:
    found = problems(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)), folder)
    assert not found, "\n".join(found)


def test_every_wall_has_one_page() -> None:
    assert [wall_number(page) for page in WALL_PAGES] == [card.number for card in walls()]


@pytest.mark.parametrize("page", WALL_PAGES, ids=lambda page: page.name)
def test_a_walls_page_has_its_sections_and_a_worked_number(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
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
    assert sorted(re.findall(r"\]\((\d\d-[\w-]+\.md)\)", index)) == [page.name for page in WALL_PAGES]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/howto/add-a-chip.md"])
def test_the_chip_of_a_page_is_one_that_the_zoo_accepts(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (example,) = [block.body for block in blocks(text) if block.language == "toml"]
    ((key, table),) = tomllib.loads(example).items()
    chip = build(key, table)
    assert chip.metadata.sources
    assert [problem for check in CHECKS if (problem := check(chip))] == []


def test_the_model_of_its_page_is_one_that_the_zoo_accepts() -> None:
    text = (DOCS / "howto" / "add-a-model.md").read_text(encoding="utf-8")
    (example,) = [block.body for block in blocks(text) if block.language == "toml"]
    ((key, table),) = tomllib.loads(example).items()
    model = build_model(key, table)
    assert [problem for check in MODEL_CHECKS if (problem := check(model))] == []


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
        ("```sh\nmlsysim walls 99\n```\n", "exits with 1, not 0"),
        ("```sh\nmlsysim walls 2   # exits with 2\n```\n", "exits with 0, not 2"),
        ("```sh\nmlsysim walls 2\n```\n\n```text\nWall 3\n...\n```\n", "but the page says"),
        ("```sh\nmlsysim eval scenario:nothing\n```\n", "There is no scenario named"),
        ("```sh\nmlsysim verify Llama3_8B --fase decode\n```\n", "--fase"),
        ("```sh\nmlsysim labs opn\n```\n", "No such command 'opn'"),
    ],
)
def test_the_checker_notices(page: str, complaint: str, folder: Path) -> None:
    (problem,) = problems(page, "page", folder)
    assert complaint in problem


@pytest.mark.parametrize(
    "page",
    [
        "```python\nx = 1\n```\ntext\n```python\nprint(x)\n```\n\n```text\n1\n```\n",
        "```python\nprint(1)\n```\nAnd now:\n```text\n2\n```\n",
        "<!-- not run: no such thing -->\n```python\n1 / 0\n```\n",
        "```sh\nmake nothing\nmlsysim walls 99  # exits with 1\n```\n",
        "```sh\nmlsysim walls 2\n```\n\n```text\nWall 2: Memory: ...\n```\n".replace("Wall 2: Memory: ...", "..."),
        "```sh\nmlsysim eval my-plan.toml\nmlsysim verify Llama3_8B --phase decode\n```\n",
    ],
)
def test_the_checker_lets_pass(page: str, folder: Path) -> None:
    assert problems(page, "page", folder) == []


@pytest.mark.parametrize("start", [*ONLY_READ])
def test_what_is_not_run_exists(start: str, folder: Path) -> None:
    command, _, space = start.partition(" space:")
    assert run_commands(f"mlsysim {command} --help\n", folder).lstrip().startswith(f"Usage: mlsysim {command}")
    assert not space or space in shipped_files("space")


def test_commands_write_files_that_later_ones_read(folder: Path) -> None:
    said = run_commands("mlsysim walls 2 --json > card.json && mlsysim walls 2 --json | tail -1\n", folder)
    assert said == "" and "Memory" in (folder / "card.json").read_text(encoding="utf-8")
    with pytest.raises(CommandError, match="exits with 1"):
        run_commands("mlsysim eval card.json\n", folder)


def test_dots_stand_for_any_lines() -> None:
    assert agree("a\n...\nd\n", "a\nb  \nc\nd\n") and agree("a\n...\n", "a\n") and agree("a  \n", "a\n")
    assert not agree("a\n...\nd\n", "a\nb\n") and not agree("a\n", "a\nb\n") and not agree("a.\n", "ab\n")


def test_a_page_is_rewritten_with_what_it_prints(folder: Path) -> None:
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\nprose\n```python\nprint(3)\n```\n```text\n...\n4\n```\n"
    text, left = rewritten(page, "page", folder)
    assert text == page.replace("2\n", "1\n") and "shortened by hand" in left[0] and len(left) == 1
    assert rewritten(text, "page", folder) == (text, left)
