from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from sitetools import rooms

from mlsysim import Hardware, Infra, Models, Systems
from mlsysim.walls.catalog import RESOLVERS, resolver

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page() -> str:
    return (DOCS / "zoo.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["zoo.md", "fallacies.md", "walls/index.md", "assets/rooms.svg", "assets/flow.svg"])
def test_a_committed_page_is_what_the_data_gives(generator: ModuleType, name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == generator.PAGES[name](), f"docs/{name} is stale; run `make docs`"


def test_every_fallacy_is_on_the_page(generator: ModuleType) -> None:
    text = generator.fallacies_page().replace("**", "").replace("\\*", "*")
    for name in RESOLVERS:
        for fallacy in resolver(name).fallacies():
            assert fallacy in text


@pytest.mark.parametrize(
    "registry",
    [
        Hardware,
        Models,
        Systems.Nodes,
        Systems.Fabrics,
        Systems.Clusters,
        Infra.Grids,
        Infra.Facilities,
        Infra.Racks,
        Infra.Prices,
    ],
    ids=lambda r: r._name,
)
def test_every_entry_has_a_row_with_its_source(registry, page: str) -> None:
    rows = page.splitlines()
    for entry in registry:
        meta = entry.metadata
        ending = f"| {meta.kind} | {meta.last_verified} |"
        assert any(
            r.startswith(f"| `{meta.key}` |") and f"](<{meta.source_url}>)" in r and r.endswith(ending) for r in rows
        ), meta.key


def test_tables_are_well_formed(page: str) -> None:
    width = 0
    for line in page.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        assert cells == (width or cells), line
        width = cells


def test_cells(generator: ModuleType) -> None:
    assert generator.count(70.6e9) == "70.6 B"
    assert generator.count(25_557_032) == "25.56 M"
    assert generator.count(999_700) == "0.9997 M"
    assert generator.quantity(None) == generator.cell(None) == "–"
    assert generator.quantity(Hardware.H100.memory.bandwidth) == "3.35 TB/s"
    assert generator.cell("a|b") == "a\\|b"


def test_the_picture_has_every_room_and_no_arrow_to_the_left() -> None:
    """A room that imports another stands to its right; arrows that follow from others are left out, none that does not."""
    imports = rooms.imports_of_rooms()
    places = rooms._places()
    assert imports.keys() == places.keys() and {"timing", "cases", "walls", "plans"} <= imports.keys()
    arrows = set(rooms._arrows())
    for room, own in imports.items():
        reached = {room}
        while more := {to for start, to in arrows if start in reached} - reached:
            reached |= more
        assert own <= reached, room
        assert all(places[other][0] < places[room][0] for other in own)
