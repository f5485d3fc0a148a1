"""The zoo's pages, a table for each kind of entry. They are made when the pages are written, from the data files.

A table is plain HTML that is read without a script. ``assets/tables.js`` adds filters and sorting: a cell's ``data-sort`` is its value in base units, a
column's ``data-facet`` says that it has few values to choose from. A row's id is the entry's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from mlsysim import Hardware, Infra, Models, Systems
from mlsysim.models.timm_counts import counted_sizes
from mlsysim.units.registry import Quantity, format_unit
from mlsysim.zoo.provenance import KINDS, Source

__all__ = ["KINDS_OF_ENTRY", "PAGES", "ZooPage", "render_zoo"]


@dataclass(frozen=True)
class Column:
    """A column: its head, what it reads off an entry, and whether its values are few."""

    head: str
    read: Callable[[Any], Any]
    facet: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of entry: its title, entries and columns."""

    title: str
    entries: Callable[[], Iterable[Any]]
    columns: tuple[Column, ...]
    about: str = ""


@dataclass(frozen=True)
class ZooPage:
    """A page of the zoo: its name, title, first sentence and kinds of entry."""

    name: str
    title: str
    about: str
    kinds: tuple[Kind, ...]


def _class_of(registry: Any, names: str) -> Callable[[Any], str]:
    """The namespace that an entry stands in."""
    spaces = {entry.metadata.key: name for name in names.split() for entry in getattr(registry, name)}
    return lambda entry: spaces[entry.metadata.key]


def _active(model: Any) -> Any:
    return _count(model.active_parameter_count) if model.active_parameter_count < model.parameter_count else None


@dataclass(frozen=True)
class _Shown:
    """A value whose text is not the usual one."""

    value: float
    text: str


def _count(value: float) -> _Shown:
    """A number of parameters with its prefix."""
    for size, prefix in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size * 0.9995:
            return _Shown(value, f"{value / size:.4g}{prefix}")
    return _Shown(value, f"{value:.4g}")


def quantity_text(value: Quantity) -> str:
    """A quantity in its own unit with four digits."""
    size = value.magnitude
    text = f"{size:,.4g}" if abs(size) < 10_000 else f"{size:,.0f}"
    return f"{text} {format_unit(value.units)}".strip()


_NAME = Column("name", lambda e: e.name)
_YEAR = Column("year", lambda e: _Shown(e.release_year, str(e.release_year)) if e.release_year else None)
_CHIPS = (
    _NAME,
    Column("class", _class_of(Hardware, "Cloud Workstation Mobile Edge Tiny"), facet=True),
    Column("vendor", lambda e: e.vendor, facet=True),
    _YEAR,
    Column("dense peak", lambda e: e.compute.peak_flops),
    Column("in", lambda e: e.compute.headline, facet=True),
    Column("memory", lambda e: e.memory.capacity),
    Column("bandwidth", lambda e: e.memory.bandwidth),
    Column("TDP", lambda e: e.tdp),
)
_MODELS = (
    _NAME,
    Column("class", _class_of(Models, "Language Vision Multimodal Speech Diffusion Recommendation Tiny"), facet=True),
    Column("architecture", lambda e: e.architecture, facet=True),
    _YEAR,
    Column("parameters", lambda e: _count(e.parameter_count)),
    Column("active", _active),
)
_NODES = (
    _NAME,
    Column(
        "accelerators",
        lambda e: _Shown(e.accelerators_per_node, f"{e.accelerators_per_node} x {e.accelerator.metadata.key}"),
    ),
    Column("link", lambda e: e.intra_node_bw),
    Column(
        "adapters",
        lambda e: (
            _Shown(e.nics_per_node, f"{e.nics_per_node} x {quantity_text(e.nic_bandwidth)}")
            if e.nic_bandwidth
            else None
        ),
    ),
    Column("host power", lambda e: e.host_power),
    Column("rated power", lambda e: e.max_power),
)
_FABRICS = (
    _NAME,
    Column("topology", lambda e: e.topology, facet=True),
    Column("bandwidth", lambda e: e.bandwidth),
    Column("latency", lambda e: e.latency),
    Column("oversubscription", lambda e: e.oversubscription_ratio),
)
_CLUSTERS = (
    _NAME,
    Column("accelerators", lambda e: _Shown(e.total_accelerators, f"{e.total_accelerators:,}")),
    Column("nodes", lambda e: _Shown(e.count, f"{e.count:,} x {e.node.metadata.key}")),
    Column("fabric", lambda e: e.fabric.metadata.key, facet=True),
)
_GRIDS = (
    _NAME,
    Column("gCO2e/kWh", lambda e: e.carbon_intensity_g_kwh),
    Column("year", lambda e: _Shown(e.year, str(e.year)) if e.year else None),
    Column("price", lambda e: e.electricity_price),
    Column(
        "of",
        lambda e: _Shown(e.price_year, str(e.price_year)) if e.electricity_price is not None and e.price_year else None,
    ),
    Column("facility", lambda e: e.facility.metadata.key, facet=True),
)
_FACILITIES = (
    _NAME,
    Column("PUE", lambda e: e.pue),
    Column("WUE", lambda e: e.wue),
    Column("cooling", lambda e: e.cooling, facet=True),
)
_RACKS = (_NAME, Column("power", lambda e: e.power), Column("cooling", lambda e: e.cooling, facet=True))
_PRICES = (
    _NAME,
    Column("accelerators", lambda e: _Shown(e.accelerators, f"{e.accelerators} x {e.accelerator}")),
    Column("chip", lambda e: e.accelerator, facet=True),
    Column("price", lambda e: e.price),
    Column("each", lambda e: e.price_per_accelerator),
    Column("terms", lambda e: e.commitment, facet=True),
    Column("date", lambda e: e.date),
)

PAGES: tuple[ZooPage, ...] = (
    ZooPage(
        "chips",
        "Chips",
        "What each chip offers: arithmetic, memory, power. Peaks are dense, and a multiply-add is two operations.",
        (Kind("Chips", lambda: Hardware, _CHIPS),),
    ),
    ZooPage(
        "models",
        "Models",
        "What each model computes. Parameters are as published, and counted again from the dimensions.",
        (
            Kind(
                "Models",
                lambda: Models,
                _MODELS,
                f"Besides, {len(counted_sizes()):,} networks of timm by name, such as `timm/resnet50`, at the image sizes that were counted.",
            ),
        ),
    ),
    ZooPage(
        "systems",
        "Systems",
        "How chips are put together: nodes, the networks between them, and whole clusters.",
        (
            Kind("Nodes", lambda: Systems.Nodes, _NODES),
            Kind("Fabrics", lambda: Systems.Fabrics, _FABRICS),
            Kind("Clusters", lambda: Systems.Clusters, _CLUSTERS),
        ),
    ),
    ZooPage(
        "places",
        "Places",
        "Where a system stands: what the grid emits and costs, what the building adds, what a rack carries.",
        (
            Kind("Grids", lambda: Infra.Grids, _GRIDS),
            Kind("Facilities", lambda: Infra.Facilities, _FACILITIES),
            Kind("Racks", lambda: Infra.Racks, _RACKS),
        ),
    ),
    ZooPage(
        "prices",
        "Prices",
        "What an hour of a machine costs to rent, with its terms and the date of the list.",
        (Kind("Prices", lambda: Infra.Prices, _PRICES),),
    ),
)
_FIRST = ("---", "hide:", "  - toc", "---", "")
"""A table needs the width that a list of headings would take."""
KINDS_OF_ENTRY = tuple(kind for page in PAGES for kind in page.kinds)


def render_zoo(page: ZooPage) -> str:
    """A page as Markdown with its tables as HTML."""
    lines = [*_FIRST, f"# {page.title}", "", page.about, ""]
    lines += [
        "Click a column's head to sort; filters need a script, the tables do not. A dash: no figure is known. Every row has its sources.",
        "",
    ]
    for kind in page.kinds:
        # What a program added by itself has no key, and is not the zoo's.
        entries = [entry for entry in kind.entries() if entry.metadata.key]
        if len(page.kinds) > 1:
            lines += [f"## {kind.title}", ""]
        lines += [kind.about, ""] if kind.about else []
        lines += _table(kind, entries)
    said = "; ".join(f"*{name}*: {meaning}" for name, meaning in KINDS.items())
    return "\n".join([*lines, f"Kinds of source: {said}.", ""])


def _table(kind: Kind, entries: list[Any]) -> list[str]:
    heads = [
        f'<th scope="col"{" data-facet" if column.facet else ""}>{escape(column.head)}</th>' for column in kind.columns
    ]
    ends = ('<th scope="col" data-facet>kind</th>', '<th scope="col">checked</th>', '<th scope="col">sources</th>')
    lines = [
        f'<div class="zoo-table" data-what="{kind.title.lower()}">',
        f"<table><caption>{len(entries)} {kind.title.lower()}</caption>",
        f'<thead><tr><th scope="col">key</th>{"".join(heads)}{"".join(ends)}</tr></thead>',
        "<tbody>",
    ]
    for entry in entries:
        meta = entry.metadata
        cells = [_cell(column.read(entry)) for column in kind.columns]
        key = f'<th scope="row"><a href="#{meta.key}"><code>{meta.key}</code></a></th>'
        about = f"<td>{meta.kind}</td><td>{meta.last_verified}</td><td>{_sources(meta.sources)}</td>"
        lines.append(f'<tr id="{meta.key}">{key}{"".join(cells)}{about}</tr>')
    return [*lines, "</tbody></table>", "</div>", ""]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "<td>–</td>"
    if isinstance(value, Quantity):
        return f'<td data-sort="{value.to_base_units().magnitude:.6g}">{escape(quantity_text(value))}</td>'
    if isinstance(value, _Shown):
        return f'<td data-sort="{value.value:.10g}">{escape(value.text)}</td>'
    if isinstance(value, (int, float)):
        return f'<td data-sort="{value:.6g}">{value:,.4g}</td>'
    return f"<td>{escape(str(value))}</td>"


def _sources(sources: tuple[Source, ...]) -> str:
    said = "".join(f"<li>{_source(source)}</li>" for source in sources)
    count = f"{len(sources)} sources" if len(sources) > 1 else "1 source"
    return f"<details><summary>{count}</summary><ul>{said}</ul></details>"


def _source(source: Source) -> str:
    covers = f" ({', '.join(source.fields)})" if source.fields else ""
    return f'<a href="{escape(source.url)}">{escape(source.title)}</a>{escape(covers)}'
