"""Write the generated documentation pages: ``python docs/generate.py``.

A test compares the committed pages with a fresh rendering, so that data and documentation cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from sitetools.answer_picture import answered
from sitetools.flow import drawn as flow_drawn
from sitetools.rooms import drawn

from mlsysim import Hardware, Infra, Models, Systems
from mlsysim.models.counted import counted_sizes
from mlsysim.search import OPTIMIZERS
from mlsysim.units.registry import Quantity, format_unit
from mlsysim.walls.catalog import DOMAINS, RESOLVERS, resolver, walls, walls_in_domain
from mlsysim.zoo.provenance import KINDS
from mlsysim.zoo.registry import Registry

FOLDER = Path(__file__).parent

Columns = dict[str, Callable[[Any], Any]]


def quantity(value: Any, unit: str | None = None) -> str:
    """A quantity in its own unit (or in the given one), with four digits; a dash where it is not known."""
    if value is None:
        return "–"
    shown = value.to(unit) if unit else value
    text = f"{shown.magnitude:,.4g}" if abs(shown.magnitude) < 10_000 else f"{shown.magnitude:,.0f}"
    return f"{text} {format_unit(shown.units)}".strip()


def count(value: float) -> str:
    """A number of parameters, operations or the like, with a prefix."""
    for size, prefix in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size * 0.9995:
            return f"{value / size:.4g}{prefix}"
    return f"{value:.4g}"


def cell(value: Any) -> str:
    """A value as the text of a table cell."""
    if value is None:
        return "–"
    if isinstance(value, Quantity):
        return quantity(value)
    if isinstance(value, float):
        return f"{value:,.4g}"
    return str(value).replace("|", "\\|")


def source(entry: Any) -> list[str]:
    """The first source with its link, its kind, and the date on which the entry was checked."""
    meta = entry.metadata
    title = meta.source_title.replace("|", "\\|").replace("[", "(").replace("]", ")")
    more = len(meta.sources) - 1
    link = f"[{title}](<{meta.source_url}>)" + (f" +{more}" if more else "")
    return [link, meta.kind, meta.last_verified]


def table(entries: Registry, columns: Columns) -> list[str]:
    """A table of a registry, in the order of the data."""
    heads = ["key", *columns, "source", "kind", "checked"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for entry in entries:
        cells = [f"`{entry.metadata.key}`", *(cell(read(entry)) for read in columns.values()), *source(entry)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


HARDWARE: Columns = {
    "name": lambda e: e.name,
    "year": lambda e: e.release_year,
    "dense peak": lambda e: f"{quantity(e.compute.peak_flops)} {e.compute.headline}",
    "memory": lambda e: e.memory.capacity,
    "bandwidth": lambda e: e.memory.bandwidth,
    "TDP": lambda e: e.tdp,
}
MODELS: Columns = {
    "name": lambda e: e.name,
    "year": lambda e: e.release_year,
    "architecture": lambda e: e.architecture,
    "parameters": lambda e: count(e.parameter_count),
    "active": lambda e: count(e.active_parameter_count) if e.active_parameter_count < e.parameter_count else None,
}
NODES: Columns = {
    "name": lambda e: e.name,
    "accelerators": lambda e: f"{e.accelerators_per_node} x {e.accelerator.metadata.key}",
    "link": lambda e: e.intra_node_bw,
    "adapters": lambda e: f"{e.nics_per_node} x {quantity(e.nic_bandwidth)}",
    "host power": lambda e: e.host_power,
    "rated power": lambda e: e.max_power,
}
FABRICS: Columns = {
    "name": lambda e: e.name,
    "topology": lambda e: e.topology,
    "bandwidth": lambda e: e.bandwidth,
    "latency": lambda e: e.latency,
    "oversubscription": lambda e: e.oversubscription_ratio,
}
CLUSTERS: Columns = {
    "name": lambda e: e.name,
    "accelerators": lambda e: f"{e.total_accelerators:,}",
    "nodes": lambda e: f"{e.count:,} x {e.node.metadata.key}",
    "fabric": lambda e: e.fabric.metadata.key,
}
GRIDS: Columns = {
    "name": lambda e: e.name,
    "gCO2e/kWh": lambda e: e.carbon_intensity_g_kwh,
    "year": lambda e: e.year,
    "price": lambda e: None if e.electricity_price is None else f"{quantity(e.electricity_price)} ({e.price_year})",
    "facility": lambda e: e.facility.metadata.key,
}
FACILITIES: Columns = {
    "name": lambda e: e.name,
    "PUE": lambda e: e.pue,
    "WUE": lambda e: e.wue,
    "cooling": lambda e: e.cooling,
}
RACKS: Columns = {"name": lambda e: e.name, "power": lambda e: e.power, "cooling": lambda e: e.cooling}
PRICES: Columns = {
    "name": lambda e: e.name,
    "accelerators": lambda e: f"{e.accelerators} x {e.accelerator}",
    "price": lambda e: e.price,
    "each": lambda e: e.price_per_accelerator,
    "terms": lambda e: e.commitment,
    "date": lambda e: e.date,
}


def section(title: str, entries: Registry, columns: Columns, level: int = 2) -> list[str]:
    """A heading with the number of entries, and their table."""
    return [f"{'#' * level} {title} ({len(entries)})", "", *table(entries, columns), ""]


def spaces(registry: Registry, names: Iterable[str], columns: Columns) -> list[str]:
    """A section for each namespace of a zoo."""
    lines: list[str] = []
    for name in names:
        lines += section(name, getattr(registry, name), columns, level=3)
    return lines


def zoo_page() -> str:
    """The page of all zoos."""
    kinds = "; ".join(f"*{kind}*: {meaning}" for kind, meaning in KINDS.items())
    lines = [
        "# The zoos",
        "",
        "Written by `python docs/generate.py` from the data files; edit those, not this page.",
        "",
        "Each row links the first source of its entry (`+n`: further ones in the data, which say what they cover) with its",
        "kind and the oldest date on which a source was checked. Peaks are dense, and a multiply-add is two operations.",
        "A dash means that no figure is known.",
        "",
        f"Kinds of source: {kinds}.",
        "",
        f"## Hardware ({len(Hardware)})",
        "",
        *spaces(Hardware, ("Cloud", "Workstation", "Mobile", "Edge", "Tiny"), HARDWARE),
        f"## Models ({len(Models)})",
        "",
        f"Besides, {len(counted_sizes()):,} networks of timm by name, such as `timm/resnet50`, at the image sizes that were counted.",
        "",
        *spaces(Models, ("Language", "Vision", "Multimodal", "Speech", "Diffusion", "Recommendation", "Tiny"), MODELS),
        *section("Nodes", Systems.Nodes, NODES),
        *section("Fabrics", Systems.Fabrics, FABRICS),
        *section("Clusters", Systems.Clusters, CLUSTERS),
        *section("Grids", Infra.Grids, GRIDS),
        *section("Facilities", Infra.Facilities, FACILITIES),
        *section("Racks", Infra.Racks, RACKS),
        *section("Prices", Infra.Prices, PRICES),
    ]
    return "\n".join(lines).rstrip() + "\n"


def fallacies_page() -> str:
    """What people believe and what the equations say, collected from the resolvers."""
    lines = [
        "# Fallacies",
        "",
        "Written by `python docs/generate.py` from what the resolvers declare (`RESOLVER.fallacies()`).",
        "",
        "Before the colon what is believed, after it what the wall's equation says.",
        "",
    ]
    classes = [resolver(name) for name in RESOLVERS]
    classes += [getattr(import_module(home), name) for name, home in OPTIMIZERS.items()]
    cards = {card.number: card for card in walls()}
    for domain in DOMAINS:
        lines += [f"## {domain.name}", ""]
        for cls in classes:
            if cards[cls.walls[0]].domain is not domain or not cls.fallacies():
                continue
            lines += [f"### {cls.__name__}", "", ", ".join(_wall_link(cards[number]) for number in cls.walls), ""]
            lines += [f"- {_belief(text)}" for text in cls.fallacies()] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _wall_link(card: Any) -> str:
    (page,) = (FOLDER / "walls").glob(f"{card.number:02}-*.md")
    return f"[Wall {card.number}, {card.name}](walls/{page.name})"


def _belief(text: str) -> str:
    belief, colon, answer = text.replace("*", r"\*").partition(": ")
    return f"**{belief}**: {answer}" if colon else text


def walls_page() -> str:
    """The index of the walls: its own words, with tables from the cards."""
    text = (FOLDER / "walls" / "index.md").read_text(encoding="utf-8")
    before, after = text[: text.index("## Node")], text[text.index("## Companions") :]
    lines = []
    for domain in DOMAINS:
        lines += [f"## {domain.name}: {domain.title}", "", "| wall | resolver | question |", "|---|---|---|"]
        for card in walls_in_domain(domain):
            (page,) = (FOLDER / "walls").glob(f"{card.number:02}-*.md")
            lines.append(f"| [{card.number} {card.name}]({page.name}) | `{card.resolver}` | {card.question} |")
        lines.append("")
    return before + "\n".join(lines) + "\n" + after


PAGES: dict[str, Callable[[], str]] = {
    "zoo.md": zoo_page,
    "fallacies.md": fallacies_page,
    "walls/index.md": walls_page,
    "assets/rooms.svg": drawn,
    "assets/answer.svg": answered,
    "assets/flow.svg": flow_drawn,
    "assets/flow-phone.svg": lambda: flow_drawn(phone=True),
}
"""Generated files that lie in the tree, and what writes each."""


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
