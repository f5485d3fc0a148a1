"""Pages as text: links, headings, names, navigation, generated pages, and designs that link into the explorer."""

from __future__ import annotations

import ast
import re
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from sitetools import reference, zoo
from sitetools.blocks import FENCE, blocks
from sitetools.explorer_links import DESIGNS, address, invitation
from sitetools.figures import DRAWN, shown_figures
from sitetools.links import anchors, broken_links
from sitetools.pictures import PICTURES
from sitetools.pictures.simulations import replicas

import mlsysim
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan
from mlsysim.search import OPTIMIZERS
from mlsysim.walls.catalog import RESOLVERS, resolver

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
MADE = [
    *(f"reference/{page.name}.md" for page in reference.PAGES),
    "reference/options.md",
    *(f"zoo/{page.name}.md" for page in zoo.PAGES),
]
GENERATED = {(DOCS / name).resolve() for name in MADE}


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def headings(text: str) -> list[tuple[int, str]]:
    return [(len(marks), title) for marks, title in re.findall(r"^(#{1,6}) (.+)$", FENCE.sub("", text), re.MULTILINE)]


def in_navigation() -> list[str]:
    return re.findall(r"^\s+- (?:[^:#\n]+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page.read_text(encoding="utf-8"), page, GENERATED) == []


def test_pictures_are_there_or_drawn_and_every_one_is_shown() -> None:
    found = [
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"^!\[[^\]]*\]\(([^)]+)\)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    ]
    drawn = {(DOCS / DRAWN / name).resolve() for name in PICTURES}
    assert all(path.is_file() or path in drawn for path in found) and drawn <= set(found)


@pytest.mark.parametrize("page", sorted([*DOCS.glob("walls/[0-9]*.md"), *DOCS.glob("tutorials/*.md")]), ids=shown)
def test_a_wall_and_a_tutorial_have_a_picture_that_is_drawn_for_them(page: Path) -> None:
    names = shown_figures(page.read_text(encoding="utf-8"), str(page.relative_to(DOCS)))
    assert names and all(name in PICTURES for name in names)
    assert page.parent.name != "walls" or names == [f"walls/{page.name[:2]}.svg"]


@pytest.mark.parametrize("name", [name for name in PICTURES if name.startswith("walls/")])
def test_a_walls_picture_is_drawn_from_its_resolver(name: str) -> None:
    figure = PICTURES[name]()
    assert figure is not None and re.search(r"\d", figure.alt) and "nan" not in figure.svg()
    assert figure.svg() == PICTURES[name]().svg() and len(figure.svg()) < 20_000


def test_a_picture_shows_what_its_answers_say() -> None:
    figure = replicas((2, 3))
    assert "The limit is 500 ms." in figure.alt and figure.svg().count("<polyline") == 5


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_has_one_title_and_no_heading_skips_a_level(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    levels = [level for level, _ in headings(text)]
    assert text.startswith("# ") and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels)), headings(text)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=shown)
def test_a_page_loads_nothing_from_elsewhere(page: Path) -> None:
    assert not re.search(
        r"<(script|link|iframe)|!\[[^\]]*\]\(https?:|src=.https?:", FENCE.sub("", page.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_resolvers_are_spelled_as_they_are_called(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    named = set(re.findall(r"`([A-Z]\w+(?:Model|Solver|Optimizer))`", prose))
    assert named <= {*RESOLVERS, *OPTIMIZERS}


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    pages |= {*MADE}
    assert sorted(in_navigation()) == sorted(pages)


def test_the_navigation_has_the_walls_under_their_names() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"- {title}: {page}\n" in text for title, page in reference.wall_pages().items())


def test_the_link_checker_notices(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# A title, here\n", encoding="utf-8")
    text = "[a](other.md) [b](gone.md) [c](other.md#a-title-here) [d](other.md#nothing) `[e](code.md)` [f](https://x.y)"
    assert broken_links(text, page) == ["gone.md", "other.md#nothing"]
    assert broken_links("[`name`](gone.md)", page) == ["gone.md"]
    assert broken_links("[b](gone.md#x)", page, {(tmp_path / "gone.md").resolve()}) == []


def test_the_first_page_says_what_the_readme_says_of_its_accuracy() -> None:
    first, readme = (
        (folder / name).read_text(encoding="utf-8") for folder, name in ((DOCS, "index.md"), (ROOT, "README.md"))
    )
    table = first[first.index("## How sure") : first.index("## Where to start")]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 4 and all(row in readme for row in rows)


def test_the_page_of_accuracy_begins_with_the_rows_of_the_readme_and_one_measurement_a_row() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| published measurements |") : readme.index("First tokens of SGLang")].strip()
    page = (DOCS / "accuracy.md").read_text(encoding="utf-8")
    rows = [line for line in page[: page.index("## ")].splitlines() if line.startswith("| ")]
    assert table.count("\n") > 6 and all(row in rows for row in table.splitlines() if row.startswith("| "))
    assert len(rows) > 16
    # On a phone a cell with the figures of three measurements cannot be read.
    assert [row for row in rows if any(";" in cell for cell in row.split("|")[1:3] + row.split("|")[4:])] == []


def test_there_are_recipes_enough() -> None:
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    assert sum(level == 3 for level, _ in headings(text)) >= 20


def test_the_reference_has_every_public_class_and_function() -> None:
    text = "\n".join(reference.render(page) for page in reference.PAGES)
    titles = {title for _, title in headings(text)}
    # Namespaces of registries, and a result, whose fields are the outputs of its resolver.
    not_described = {"Infra", "Systems", "PerformanceProfile"}
    for name in mlsysim.__all__:
        value = getattr(mlsysim, name)
        if isinstance(value, type) and value.__module__.startswith("mlsysim") and name not in not_described:
            assert name in titles, name
        assert name.startswith("__") or f"`{name}`" in text, name


@pytest.mark.parametrize("name", [*RESOLVERS])
def test_the_reference_shows_what_a_resolver_declares(name: str) -> None:
    cls = resolver(name)
    text = "\n".join(reference.resolver_section(cls))
    for declared in (*cls.inputs, *cls.produces):
        assert f"| `{declared}` |" in text, declared
    assert all(equation.latex in text for equation in cls.equations)


def test_links_of_the_references_first_page_have_their_headings() -> None:
    made = {page.name: reference.render(page) for page in reference.PAGES}
    for target, anchor in re.findall(r"\]\(([\w-]+)\.md#([\w-]+)\)", made["index"]):
        assert anchor in anchors(made[target]), (target, anchor)


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.name)
def test_signatures_of_the_reference_are_python(page: reference.Page) -> None:
    text = reference.render(page)
    assert " object at 0x" not in text
    for block in blocks(text):
        if block.language == "python":
            ast.parse(f"def {block.body.rstrip()}: ...")


def test_first_sentences() -> None:
    assert reference.sentence("One :class:`Thing` of ``two``. More.\n\nAnd more.") == "One `Thing` of `two`."
    assert reference.sentence("No full stop") == "No full stop"


@pytest.mark.parametrize("wall", [*DESIGNS])
def test_a_design_of_a_wall_page_is_a_plan_that_the_explorer_can_show(wall: int) -> None:
    words, document = DESIGNS[wall]
    plan = Plan.model_validate(document)
    assert evaluate(plan, change=False).feasible
    assert escape(words) in invitation(wall, "../labs/")
    pairs = dict(parse_qsl(address(document).removeprefix("#"), strict_parsing=True))
    assert pairs["workload.model"] == plan.workload.model and pairs["task"] == plan.kind


def test_a_wall_that_the_explorer_does_not_show_gets_no_invitation() -> None:
    assert invitation(20, "../labs/") == ""
