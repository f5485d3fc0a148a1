"""The built documentation in a real browser: it stays at home, complains about nothing, searches, sets formulas, fits a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sitetools.build import MISSING, build_site, installed
from sitetools.explorer_links import DESIGNS, address

import mlsysim.labs

from .conftest import Watch, served

PAGES = ("index.html", "walls/14-communication.html", "recipes.html", "reference/index.html", "zoo.html")


@pytest.fixture(scope="module")
def documentation(tmp_path_factory):
    """Address of the built documentation."""
    if not installed():
        if os.environ.get("MLSYSIM_REQUIRE_DOCS") == "1":
            pytest.fail(f"{MISSING}, and MLSYSIM_REQUIRE_DOCS=1", pytrace=False)
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("documentation")
    build_site(folder)
    with served(folder) as address:
        yield address


@pytest.fixture
def open_page(chromium, documentation):
    """Open a page with the options of a context; complaints and foreign requests fail the test."""
    opened = []

    def start(path: str, **options):
        page = chromium.new_context(**options).new_page()
        watch = Watch(page, documentation)
        page.goto(documentation + path)
        page.wait_for_load_state("networkidle")
        opened.append((page, watch))
        return page

    yield start
    for page, watch in opened:
        watch.check()
        page.context.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_stays_at_home_and_does_not_complain(open_page, path: str) -> None:
    page = open_page(path)
    assert page.locator("article h1").count() == 1


def test_formulas_have_a_height(open_page) -> None:
    page = open_page("walls/01-compute.html")
    fraction = page.locator("div.formula math mfrac").first
    assert fraction.bounding_box()["height"] > 20


def test_search_finds_a_wall(open_page) -> None:
    page = open_page("index.html")
    page.keyboard.press("/")
    page.keyboard.type("communication")
    page.wait_for_selector(".md-search-result__item a[href*='14-communication']", timeout=20_000)


@pytest.mark.parametrize("path", ["index.html", "walls/14-communication.html", "recipes.html"])
def test_a_phone_need_not_scroll_sideways(open_page, path: str) -> None:
    page = open_page(path, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_dark_system_gets_a_dark_page(open_page) -> None:
    page = open_page("index.html", color_scheme="dark")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    assert max(light) < 80


def test_the_explorer_reads_the_designs_of_the_wall_pages(fresh_page) -> None:
    """The explorer's own reader of addresses finds the plan that was written."""
    addresses = [address(plan) for _, plan in DESIGNS.values()]
    with served(Path(mlsysim.labs.__file__).parent / "site") as home:
        fresh_page.goto(home + "style.css")
        read = (
            "async all => { const { decode } = await import('./state.js'); return all.map(text => decode(text).plan); }"
        )
        found = fresh_page.evaluate(read, addresses)
    assert found == [plan for _, plan in DESIGNS.values()]
