"""The documentation site builds without a warning, whole, and asks no other host for anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from sitetools.build import MISSING

pytestmark = pytest.mark.docs
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def site(documentation_folder: Path) -> Path:
    return documentation_folder


class Loads(HTMLParser):
    """What a page loads by itself, as against what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.found += [there for there in (given.get("src"), given.get("srcset")) if there]
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(given["href"])


class Leads(HTMLParser):
    """Where a page's links lead, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs) -> None:
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


def dead_links(site: Path) -> list[tuple[str, str]]:
    """Links between pages of a site that lead to no file or no anchor. What follows the # of the explorer and the labs is theirs to read."""
    pages = {page.resolve(): Leads(page) for page in site.rglob("*.html")}
    dead = []
    for page, found in pages.items():
        for link in found.links:
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                continue
            start = site if path.startswith("/") else page.parent
            there = (start / path.lstrip("/").partition("?")[0]).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            known = anchor in ("", "__toc") or site.resolve() / "labs" in there.parents
            if not there.is_file() or (not known and there in pages and anchor not in pages[there].anchors):
                dead.append((str(page.relative_to(site.resolve())), link))
    return dead


def test_every_link_and_anchor_of_the_built_site_leads_somewhere(site: Path) -> None:
    assert dead_links(site) == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="x">A</h1><a href="b.html">1</a><a href="#x">2</a><a href="#y">3</a>')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#x">1</a><a href="a.html#z">2</a><a href="https://h/q">3</a><a href="c.md">4</a>'
    )
    assert sorted(dead_links(tmp_path)) == [("a.html", "#y"), ("b.html", "a.html#z"), ("b.html", "c.md")]


def test_every_page_is_built(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert all((site / page).is_file() for page in pages)
    assert (site / "reference" / "resolvers-node.html").is_file()
    assert not list(site.rglob("*.py"))


def test_pages_load_only_what_the_site_has(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert [there for there in loads.found if re.match(r"(?:https?:)?//", there)] == [], page
        for there in loads.found:
            # The page for what is not found may be shown at any depth, so that its links start at the root.
            start = site if there.startswith("/") else page.parent
            assert (start / there.lstrip("/").partition("?")[0]).resolve().is_file(), (page, there)


def test_scripts_and_styles_name_no_other_host_to_load_from(site: Path) -> None:
    for file in [*site.rglob("*.css"), *site.rglob("bundle.*.js")]:
        text = file.read_text(encoding="utf-8")
        assert "unpkg.com" not in text and "fonts.g" not in text and not re.search(r"url\(.?https?:", text), file


def test_formulas_are_set(site: Path) -> None:
    for page in (site / "walls").glob("[0-9]*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<math" in text and "formula" in text, page
        assert "\\frac" not in text and "$$" not in text, page


@pytest.mark.parametrize(
    ("latex", "part"),
    [
        (r"\frac{a}{b}", "<mfrac>"),
        (r"\lvert W\rvert", 'lspace="0"'),
        ("a < b", "&#x0003C;"),
        (r"\text{a_b}", "&#95;"),
        (r"T_{\mathrm{peak}}", "<mi>peak</mi>"),
    ],
)
def test_a_formula_becomes_mathml(latex: str, part: str) -> None:
    formulas = pytest.importorskip("sitetools.formulas", reason=MISSING, exc_type=ImportError)
    assert part in formulas.with_mathml(f"so ${latex}$ is")
    assert formulas.with_mathml(f"$$\n{latex}\n$$").startswith('<div class="formula"><math')


def test_equations_of_a_block_go_on_in_the_next_line_of_a_narrow_page() -> None:
    formulas = pytest.importorskip("sitetools.formulas", reason=MISSING, exc_type=ImportError)
    assert formulas.with_mathml(r"$$C = 6\,P\,D, \qquad D = 20\,P$$").count("<math") == 2
    long = r"T = \max\left(a + b, \frac{c + d}{e}\right) + T_{\mathrm{dispatch}} + T_{\mathrm{waiting}}"
    pieces = formulas.with_mathml(f"$${long}$$").split("<math")[1:]
    assert len(pieces) == 4 and ["max" in piece for piece in pieces] == [False, True, False, False]
    assert all('<mo form="infix"' in piece for piece in pieces[1:])


def test_code_and_money_are_no_formulas() -> None:
    formulas = pytest.importorskip("sitetools.formulas", reason=MISSING, exc_type=ImportError)
    page = "`$5` and `$6`\n\n```sh\necho $A $B\n```\n"
    assert formulas.with_mathml(page) == page
    assert formulas.with_mathml(r"\$5 and \$6") == "&#36;5 and &#36;6"


def test_a_formula_that_cannot_be_set_is_refused() -> None:
    formulas = pytest.importorskip("sitetools.formulas", reason=MISSING, exc_type=ImportError)
    with pytest.raises(ValueError, match="nosuch"):
        formulas.with_mathml(r"$\nosuch{a}$")


def test_pages_are_plain_markdown_that_is_written_the_same_twice(tmp_path: Path, monkeypatch) -> None:
    pages = pytest.importorskip("sitetools.pages", reason=MISSING, exc_type=ImportError)
    # One picture is enough to see that both layouts are written and named; the site has all of them.
    monkeypatch.setattr(pages, "PICTURES", {"rl-split.svg": pages.PICTURES["rl-split.svg"]})
    page = "# T\n\n![A `split`.](../assets/figures/rl-split.svg)\n\n$x$ as in [it](../../README.md#a)\n\n| a |\n|---|\n| 3.5 / 13 |\n"
    monkeypatch.setattr(pages, "sources", lambda: {"walls/14-x.md": page + "\n## Try it\n", "index.md": "# I\n"})
    for folder in ("one", "two"):
        pages.write_pages(tmp_path / folder, labs=True)
    one = {file.relative_to(tmp_path / "one"): file.read_bytes() for file in (tmp_path / "one").rglob("*.*")}
    assert one == {file.relative_to(tmp_path / "two"): file.read_bytes() for file in (tmp_path / "two").rglob("*.*")}
    text = one[Path("walls/14-x.md")].decode()
    narrow = r'srcset="../assets/figures/rl-split-phone\.svg" width="(\d+)" height="(\d+)">'
    wide = r'<img src="../assets/figures/rl-split\.svg" width="(\d+)" height="(\d+)" alt="A step of GRPO'
    sizes = re.search(narrow + wide, text)
    assert sizes and int(sizes[1]) < int(sizes[3]) == 720, "a page does not jump when its pictures come"
    assert "3.5\u00a0/\u00a013" in text
    assert "<figcaption>A <code>split</code>.</figcaption>" in text and "as in `README.md`" in text and "$" not in text
    assert "../labs/index.html#task=training" in text and one[Path("index.md")].startswith(b"---\nhide:")
    assert Path("assets/figures/rl-split-phone.svg") in one


def test_a_picture_that_nobody_draws_is_refused() -> None:
    figures = pytest.importorskip("sitetools.figures", reason=MISSING, exc_type=ImportError)
    with pytest.raises(ValueError, match=r"no picture gone\.svg"):
        figures.with_figures("![A.](assets/figures/gone.svg)", "page.md", {}, Path())


def test_wall_pages_invite_into_the_explorer(site: Path) -> None:
    page = (site / "walls" / "14-communication.html").read_text(encoding="utf-8")
    assert 'href="../labs/index.html#task=training&amp;workload.model=Llama3_70B' in page
    assert (site / "labs" / "index.html").is_file()
    assert "labs/index.html" not in (site / "walls" / "20-safety.html").read_text(encoding="utf-8")
