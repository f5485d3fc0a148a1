"""Reports in a real browser: nothing is asked of anybody, nothing overflows, and print and dark are as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsysim.plans.files import load_plan
from mlsysim.report.build import build_report
from mlsysim.report.write import write_report

from .conftest import Watch

ROOT = Path(__file__).parents[2]
NAMES = ("frontier-100k-gpus", "chatbot-llama70b-h200", "mixed-generations-serving", "person-detection-doorbell")

# Elements that stick out of the page to the right, unless a frame of their own lets them scroll.
STICKING_OUT = """() => [...document.querySelectorAll("body *")].filter(element => {
  if (element.closest(".frame, pre, .math") || element.closest("svg") !== null && element.tagName !== "svg") return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 0.5;
}).map(element => `${element.tagName} ${element.className.baseVal ?? element.className}`)"""

# Texts of a chart that lie over one another by more than rounding.
OVERLAPPING = """() => [...document.querySelectorAll("svg.mlp")].filter(svg => svg.getBoundingClientRect().width > 0).flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 3) found.push(`${svg.id}: ${one} / ${other}`);
  }));
  return found;
})"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name in NAMES:
        write_report(
            build_report(load_plan(ROOT / "src" / "mlsysim" / "examples" / "scenarios" / f"{name}.toml")),
            folder / f"{name}.html",
        )
    return folder


@pytest.fixture
def opened(chromium, reports):
    """Open a report in a context of its own; every page is checked for requests and complaints in the end."""
    pages = []

    def open_report(name: str, width: int = 1280, media: str = "screen", **options):
        page = chromium.new_context(viewport={"width": width, "height": 900}, **options).new_page()
        address = (reports / f"{name}.html").as_uri()
        page.watch = Watch(page, address)
        page.emulate_media(media=media, color_scheme=options.get("color_scheme"))
        page.goto(address)
        pages.append(page)
        return page

    yield open_report
    for page in pages:
        page.watch.check()
        assert len(page.watch.requests) == 1
        page.context.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overflows_or_overlaps(opened, name, width, tmp_path):
    page = opened(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate(OVERLAPPING) == []
    taken = page.screenshot(path=tmp_path / f"{name}-{width}.png", full_page=True)
    assert taken.startswith(b"\x89PNG")


@pytest.mark.parametrize(("width", "shown", "hidden"), [(360, "phone", "wide"), (1280, "wide", "phone")])
def test_one_layout_of_a_chart_is_shown(opened, width, shown, hidden):
    page = opened(NAMES[1], width)
    charts = page.locator(".chart").count()
    assert charts >= 6
    assert sum(page.locator(f".chart .{shown}").nth(k).is_visible() for k in range(charts)) == charts
    assert not any(page.locator(f".chart .{hidden}").nth(k).is_visible() for k in range(charts))


def colour(page, selector: str, of: str) -> list[int]:
    text = page.evaluate("([s, of]) => getComputedStyle(document.querySelector(s))[of]", [selector, of])
    return [int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(",")]


def test_dark_and_light_follow_the_reader(opened):
    for scheme, dark in (("dark", True), ("light", False)):
        page = opened(NAMES[1], color_scheme=scheme)
        assert (sum(colour(page, "body", "backgroundColor")) < 150) is dark
        assert (sum(colour(page, "body", "color")) > 600) is dark
        assert (sum(colour(page, ".mlp .bg", "fill")) < 150) is dark


def test_print_is_light_and_whole(opened, tmp_path):
    page = opened(NAMES[0], 794, "print", color_scheme="dark")
    assert colour(page, "body", "backgroundColor") == [255, 255, 255]
    assert colour(page, "body", "color") == [0, 0, 0]
    assert colour(page, ".mlp .bg", "fill") == [255, 255, 255]
    assert page.locator(".chart .wide").first.is_visible() and not page.locator("nav").is_visible()
    assert page.evaluate(STICKING_OUT) == []
    document = page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    pages = document.count(b"/Type /Page\n") + document.count(b"/Type /Page ") + document.count(b"/Type/Page/")
    assert 5 <= pages <= 30


def test_links_lead_to_their_sections(opened):
    page = opened(NAMES[3])
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_equations_are_set(opened):
    page = opened(NAMES[0])
    first = page.locator("math").first
    assert first.is_visible() and first.bounding_box()["height"] > 10
    assert page.locator(".equation").count() == page.locator("math").count()
