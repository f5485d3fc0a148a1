"""Generated pages: those that lie in the tree are fresh; tables of the zoo and the page of options have all that they should."""

from __future__ import annotations

import importlib.util
import re
from html import escape
from pathlib import Path
from types import ModuleType

import pytest
from sitetools import rooms, zoo
from sitetools.options import options_page, short_options
from sitetools.pages import search_script

from mlsysim import Hardware, Infra, Models, Systems
from mlsysim.plans.plan import Plan
from mlsysim.walls.catalog import RESOLVERS, resolver

DOCS = Path(__file__).parents[2] / "docs"
SYSTEMS = (Systems.Nodes, Systems.Fabrics, Systems.Clusters)
PLACES = (Infra.Grids, Infra.Facilities, Infra.Racks, Infra.Prices)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "fallacies.md",
        "walls/index.md",
        *(f"assets/{name}{way}.svg" for name in ("rooms", "flow") for way in ("", "-phone")),
    ],
)
def test_a_committed_page_is_what_the_data_gives(generator: ModuleType, name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == generator.PAGES[name](), f"docs/{name} is stale; run `make docs`"


def test_every_fallacy_is_on_the_page(generator: ModuleType) -> None:
    text = generator.fallacies_page().replace("**", "").replace("\\*", "*")
    for name in RESOLVERS:
        for fallacy in resolver(name).fallacies():
            assert fallacy in text


@pytest.mark.parametrize("page", zoo.PAGES, ids=lambda page: page.name)
def test_every_entry_has_a_row_with_its_anchor_and_all_its_sources(page: zoo.ZooPage) -> None:
    text = zoo.render_zoo(page)
    rows = dict(re.findall(r'^<tr id="([^"]+)">(.*)</tr>$', text, re.MULTILINE))
    entries = [entry for kind in page.kinds for entry in kind.entries()]
    assert [*rows] == [entry.metadata.key for entry in entries]
    for entry in entries:
        row, meta = rows[entry.metadata.key], entry.metadata
        assert all(f'<a href="{escape(source.url)}">{escape(source.title)}</a>' in row for source in meta.sources)
        assert f"<td>{meta.kind}</td><td>{meta.last_verified}</td>" in row


def test_the_zoo_has_every_registry() -> None:
    shown = sum(len([*kind.entries()]) for kind in zoo.KINDS_OF_ENTRY)
    assert shown == len(Hardware) + len(Models) + sum(map(len, (*SYSTEMS, *PLACES)))


@pytest.mark.parametrize("kind", zoo.KINDS_OF_ENTRY, ids=lambda kind: kind.title)
def test_a_tables_rows_are_as_wide_as_its_head(kind: zoo.Kind) -> None:
    lines = zoo._table(kind, [*kind.entries()])
    wide = lines[2].count("<th ")
    assert wide == len(kind.columns) + 4
    assert all(line.count("<th ") + line.count("<td") == wide for line in lines if line.startswith("<tr id"))


def test_cells_have_a_text_and_what_they_are_sorted_by() -> None:
    assert zoo._cell(zoo._count(70.6e9)) == '<td data-sort="7.06e+10">70.6 B</td>'
    assert zoo._count(999_700).text == "0.9997 M"
    assert zoo._cell(None) == "<td>–</td>"
    assert zoo._cell(Hardware.H100.memory.bandwidth) == '<td data-sort="3.35e+12">3.35 TB/s</td>'
    assert zoo._cell("a<b") == "<td>a&lt;b</td>"


@pytest.mark.parametrize("name", ["--slo", "--pause-above", "--zero-stage", "--prompt-tokens"])
def test_an_option_has_a_heading_that_a_search_finds(name: str) -> None:
    titles = re.findall(r"^### (.*) {", options_page(), re.MULTILINE)
    assert any(name in title.split(", ") for title in titles)


def test_a_letter_stands_for_an_option_that_a_search_finds() -> None:
    letters = short_options()
    assert letters["-e"] == "--efficiency" and letters["-b"] == "--batch-size" and letters["-o"] == "--output"
    assert re.search(r"^### .*--efficiency.*, -e {", options_page(), re.MULTILINE)
    assert '"-e": "--efficiency"' in search_script()


def test_the_page_of_options_has_every_key_and_every_command() -> None:
    text = options_page()
    assert all(f"{{ #{key} }}" in text for key in Plan.leaves())
    assert "### mlsysim labs build\n" in text and "| `--allow-origin` |" in text


def test_the_picture_has_every_room_and_no_arrow_upwards() -> None:
    """A room that imports another stands below it; arrows that follow from others are left out, none that does not."""
    imports = rooms.imports_of_rooms()
    places = rooms._places()
    assert imports.keys() == places.keys() and {"timing", "cases", "walls", "plans"} <= imports.keys()
    arrows = set(rooms._arrows())
    for room, own in imports.items():
        reached = {room}
        while more := {to for start, to in arrows if start in reached} - reached:
            reached |= more
        assert own <= reached, room
        assert all(places[other][1] < places[room][1] for other in own)
