"""Write the generated documentation pages: ``python docs/generate.py``.

A test compares the committed pages with a fresh rendering, so that data and documentation cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from sitetools.answer_picture import answered
from sitetools.flow import drawn as flow_drawn
from sitetools.rooms import drawn

from mlsysim.search import OPTIMIZERS
from mlsysim.walls.catalog import DOMAINS, RESOLVERS, resolver, walls, walls_in_domain

FOLDER = Path(__file__).parent


def fallacies_page() -> str:
    """What people believe and what the equations say, collected from the resolvers."""
    lines = [
        "# Fallacies",
        "",
        "Written by `python docs/generate.py` from what the resolvers declare (`RESOLVER.fallacies()`).",
        "",
        "Each line begins with a common belief. After the colon is what the wall's equation says.",
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
    "fallacies.md": fallacies_page,
    "walls/index.md": walls_page,
    "assets/rooms.svg": drawn,
    "assets/rooms-phone.svg": lambda: drawn(phone=True),
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
