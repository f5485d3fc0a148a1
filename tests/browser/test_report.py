"""Reports in a real browser: nothing is asked of anybody, nothing overflows, and print and dark are as they should be."""

from __future__ import annotations

import pytest

from mlsysim.report.write import write_report

from ..report.reading import report_of
from .conftest import Watch

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
        write_report(report_of(name), folder / f"{name}.html")
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


def unfold(page) -> int:
    """Open all folds; how many there are."""
    return page.evaluate(
        "() => { const all = [...document.querySelectorAll('details')]; all.forEach(one => one.open = true); return all.length }"
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_overflows_or_overlaps(opened, name, width, tmp_path):
    page = opened(name, width)
    for state in ("folded", "unfolded"):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate(OVERLAPPING) == []
        taken = page.screenshot(path=tmp_path / f"{name}-{width}-{state}.png", full_page=True)
        assert taken.startswith(b"\x89PNG")
        assert unfold(page) >= 8


@pytest.mark.parametrize(("width", "shown", "hidden"), [(360, "phone", "wide"), (1280, "wide", "phone")])
def test_one_layout_of_a_chart_is_shown(opened, width, shown, hidden):
    page = opened(NAMES[1], width)
    unfold(page)
    charts = page.locator(".chart").count()
    assert charts >= 6
    assert sum(page.locator(f".chart .{shown}").nth(k).is_visible() for k in range(charts)) == charts
    assert not any(page.locator(f".chart .{hidden}").nth(k).is_visible() for k in range(charts))


def test_folds_open_by_keyboard_and_say_what_is_in_them(opened):
    page = opened(NAMES[3])
    assert not page.locator("details[open]").count()
    summaries = page.locator("summary")
    assert all(text.strip() for text in page.locator("summary .said").all_inner_texts())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() == 1 and summaries.count() >= 8
    assert page.locator("details[open] .inside").is_visible()


def test_the_verdict_and_the_numbers_are_in_the_first_screen(opened):
    for width in (360, 1280):
        page = opened(NAMES[0], width)
        assert page.locator(".verdict").bounding_box()["y"] < 900 and page.locator(".cards li").count() == 4
        low = page.locator(".cards li").first.bounding_box()
        assert low["y"] + low["height"] < 900


# Contrast of a text with what is behind it, by WCAG 2.
CONTRAST = """() => {
  const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = element => { for (let e = element; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c) && c !== "transparent") return c; } return "rgb(255, 255, 255)"; };
  return [...document.querySelectorAll("#front p, #front b, #front span, #front li, #front h2, summary h2, .said")].map(element => {
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.textContent.slice(0, 30)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    for name in NAMES[:2]:
        assert opened(name, color_scheme=scheme).evaluate(CONTRAST) == []


def colour(page, selector: str, of: str) -> list[int]:
    text = page.evaluate("([s, of]) => getComputedStyle(document.querySelector(s))[of]", [selector, of])
    return [int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(",")]


def test_dark_and_light_follow_the_reader(opened):
    for scheme, dark in (("dark", True), ("light", False)):
        page = opened(NAMES[1], color_scheme=scheme)
        assert (sum(colour(page, "body", "backgroundColor")) < 150) is dark
        assert (sum(colour(page, "body", "color")) > 600) is dark
        assert (sum(colour(page, ".mlp .bg", "fill")) < 150) is dark


A4 = (265 * 96 / 25.4, round(180 * 96 / 25.4))
"""Height and width of what is printed on a page, in pixels."""


@pytest.mark.parametrize("name", NAMES)
def test_the_first_page_is_one_page(opened, name):
    page = opened(name, A4[1], "print")
    assert page.locator("#front").bounding_box()["height"] <= A4[0]


def test_print_is_light_and_whole(opened, tmp_path):
    page = opened(NAMES[0], 794, "print", color_scheme="dark")
    assert colour(page, "body", "backgroundColor") == [255, 255, 255]
    assert colour(page, "body", "color") == [0, 0, 0]
    assert colour(page, ".mlp .bg", "fill") == [255, 255, 255]
    assert page.locator(".chart .wide").first.is_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('.inside')].every(one => one.getBoundingClientRect().height > 20)"
    )
    assert page.evaluate(STICKING_OUT) == []
    document = page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    pages = document.count(b"/Type /Page\n") + document.count(b"/Type /Page ") + document.count(b"/Type/Page/")
    assert 5 <= pages <= 30
    assert len(document) < 2e6


def test_no_row_of_a_table_is_alone_on_a_page(opened):
    page = opened(NAMES[0], 794, "print")
    kept = "all => all.map(row => getComputedStyle(row).breakBefore)"
    for row in ("first-child", "nth-child(2)", "nth-last-child(2)", "last-child"):
        assert set(page.locator(f"tbody tr:{row}").evaluate_all(kept)) == {"avoid"}
    assert "auto" in page.locator("tbody tr").evaluate_all(kept)


def test_equations_are_set(opened):
    page = opened(NAMES[0])
    unfold(page)
    first = page.locator("math").first
    assert first.is_visible() and first.bounding_box()["height"] > 10
    assert page.locator(".equation").count() == page.locator("math").count()
