"""The built documentation in a real browser: it stays at home, complains about nothing, searches, sets formulas, fits a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sitetools.explorer_links import DESIGNS, address

import mlsysim.labs

from .conftest import Watch, served

PAGES = (
    "index.html",
    "walls/14-communication.html",
    "recipes.html",
    "reference/index.html",
    "zoo/chips.html",
    "fidelities.html",
)


@pytest.fixture(scope="module")
def documentation(documentation_folder):
    """Address of the built documentation."""
    with served(documentation_folder) as address:
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
    page.wait_for_selector(".md-search-result__item a[href*='14-communication']")


@pytest.mark.parametrize(
    ("typed", "key"), [("--slo", "serving.slo"), ("pause-above", "ops.pause_above"), ("zero_stage", "parallelism.zero")]
)
def test_search_finds_an_option_as_it_is_typed(open_page, typed: str, key: str) -> None:
    page = open_page("index.html")
    page.keyboard.press("/")
    # The search looks at each key, and says of a hyphen without what follows it that it is no query.
    page.keyboard.insert_text(typed[:-1])
    page.keyboard.type(typed[-1])
    page.wait_for_selector(
        f".md-search-result__item a[href$='reference/options.html?h={key}'], .md-search-result__item a[href$='#{key}']",
        state="attached",
    )


def test_a_table_of_the_zoo_is_filtered_and_sorted(open_page) -> None:
    page = open_page("zoo/chips.html")
    shown = "[...document.querySelectorAll('.zoo-table tbody tr:not([hidden])')].map(row => row.id)"
    every = page.evaluate(shown)
    page.get_by_label("vendor").select_option("NVIDIA")
    page.get_by_label("Filter", exact=True).fill("cloud 2022")
    some = page.evaluate(shown)
    assert "H100" in some and "MI250X" not in some and len(some) < len(every)
    assert page.locator(".zoo-count").inner_text() == f"{len(some)} of {len(every)} chips"
    head = page.get_by_role("columnheader", name="bandwidth")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    speeds = page.evaluate(
        "[...document.querySelectorAll('.zoo-table tbody tr:not([hidden])')].map(row => Number(row.cells[8].dataset.sort))"
    )
    assert speeds == sorted(speeds, reverse=True) and len(speeds) > 2
    assert "chips.vendor=NVIDIA" in page.url and "chips.sort=-bandwidth" in page.url
    page.reload()
    assert page.evaluate(shown) and len(page.evaluate(shown)) == len(some)
    page.locator(".zoo-bar button").click()
    assert len(page.evaluate(shown)) == len(every)


def test_a_table_of_the_zoo_is_a_table_without_a_script(open_page) -> None:
    page = open_page("zoo/chips.html#H100", java_script_enabled=False)
    assert page.locator("tr#H100 td").count() == 12 and page.locator(".zoo-bar").count() == 0


def test_an_old_heading_of_the_zoo_leads_to_its_page(open_page) -> None:
    page = open_page("zoo.html#grids-119")
    page.wait_for_url("**/zoo/places.html")


def test_a_picture_follows_the_page_and_the_screen(open_page) -> None:
    page = open_page("walls/14-communication.html", viewport={"width": 390, "height": 844})
    figure = page.locator("figure.drawn img")
    figure.scroll_into_view_if_needed()
    assert figure.evaluate("image => image.currentSrc").endswith("14-phone.svg")
    assert figure.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    assert "H100" in figure.get_attribute("alt") and page.locator("figure.drawn figcaption").count() == 1


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "walls/14-communication.html",
        "recipes.html",
        "zoo/chips.html",
        "architecture.html",
        "reference/options.html",
    ],
)
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
