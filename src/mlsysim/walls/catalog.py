"""The walls, collected from their modules, and the resolvers that answer them.

A module of a domain's folder (``walls/node``, ``walls/data`` ...) that defines ``CARDS`` has walls, and each class
``X(Resolver[...])`` in it is a resolver: nothing else has to be told of a new one. A card is three lines, "number name: what it
bounds", "equation (reference)" and the question. They are read off the source, so that the name of a wall costs no import of the
module that answers it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

from mlsysim.errors import InputError, fold, unknown_name
from mlsysim.units.records import dataclass
from mlsysim.vocabulary import WALLS


@dataclass(frozen=True)
class Domain:
    """One of the six groups of walls."""

    name: str
    title: str


@dataclass(frozen=True)
class Wall:
    """The card of a wall."""

    number: int
    name: str
    domain: Domain
    resolver: str
    bounds: str
    equation: str
    reference: str
    question: str

    def __str__(self) -> str:
        return f"Wall {self.number}: {self.name}"


DOMAINS = (
    Domain("Node", "single-accelerator resources"),
    Domain("Data", "movement and pipelines"),
    Domain("Algorithm", "scaling and compression"),
    Domain("Fleet", "multi-node coordination"),
    Domain("Operations", "economics, sustainability and safety"),
    Domain("Analysis", "cross-cutting diagnostics"),
)

_CARDS = re.compile(r'\nCARDS = """\n(.*?)\n"""\n', re.DOTALL)
_CARD = re.compile(r"(\d+) ([^:]+): (.+)\n(.+) \((.+?)\)\n(.+)")
_RESOLVER = re.compile(r"\nclass (\w+)\(Resolver\[.*?\n    walls = \(([\d, ]+)\)", re.DOTALL)


@cache
def _read() -> tuple[tuple[Wall, ...], dict[str, str]]:
    """Cards by number, and the module of each resolver: those on a card first, companions after them."""
    cards: list[Wall] = []
    modules: dict[tuple[int, str], str] = {}
    for domain in DOMAINS:
        folder = domain.name.lower()
        for path in files("mlsysim.walls").joinpath(folder).iterdir():
            if not path.name.endswith(".py"):
                continue
            text = path.read_text(encoding="utf-8")
            answers: dict[int, str] = {}
            for name, numbers in _RESOLVER.findall(text):
                found = [int(number) for number in numbers.rstrip(", ").split(", ")]
                modules[found[0], name] = f"mlsysim.walls.{folder}.{path.name.removesuffix('.py')}"
                answers |= dict.fromkeys(found, name)
            written = _CARDS.search(text)
            for number, name, bounds, equation, reference, question in _CARD.findall(written[1] if written else ""):
                resolver = answers[int(number)]
                cards.append(Wall(int(number), name, domain, resolver, bounds, equation, reference, question))
    cards.sort(key=lambda card: card.number)
    main = {card.resolver for card in cards}
    order = sorted(modules, key=lambda key: (key[1] not in main, key))
    return tuple(cards), {key[1]: modules[key] for key in order}


def walls() -> tuple[Wall, ...]:
    """The cards of all walls, by number."""
    return _read()[0]


RESOLVERS: dict[str, str] = _read()[1]
"""Models, solvers and companions, and the module of each. The three optimizers live in ``mlsysim.search``."""

TITLES: dict[int, tuple[str, str]] = {card.number: (card.name, card.domain.name) for card in walls()}
"""Name and domain of each wall."""


def wall(number: int | str) -> Wall:
    """The card of one wall, by its number, its name or what it bounds.

    >>> wall("network").name, wall("power").name, wall(14).name
    ('Communication', 'Sustainability', 'Communication')
    """
    said = str(number).strip()
    for card in walls():
        if said == str(card.number) or fold(said) == fold(card.name):
            return card
    if fold(said) in WALLS:
        return walls()[WALLS[fold(said)] - 1]
    if not said.lstrip("+-").isdigit():
        names = [card.name for card in walls()]
        raise unknown_name("wall", number, names, f"they are 1 to {len(names)}, from {names[0]} to {names[-1]}.")
    raise InputError(f"There is no wall {said}; they are numbered 1 to {len(walls())}.")


def walls_for_resolver(name: str) -> tuple[Wall, ...]:
    """The walls that a resolver answers."""
    if name not in RESOLVERS:
        raise unknown_name("resolver", name, RESOLVERS)
    return tuple(card for card in walls() if card.resolver == name)


def walls_in_domain(domain: Domain | str) -> tuple[Wall, ...]:
    """The walls of one domain."""
    name = domain.name if isinstance(domain, Domain) else domain
    if str(name).lower() not in (each.name.lower() for each in DOMAINS):
        raise unknown_name("domain", name, [each.name for each in DOMAINS])
    return tuple(card for card in walls() if card.domain.name.lower() == str(name).lower())


def taxonomy() -> dict[str, list[Wall]]:
    """The walls by domain."""
    return {domain.name: list(walls_in_domain(domain)) for domain in DOMAINS}


def resolver(name: str) -> Any:
    """The class of a resolver."""
    if name not in RESOLVERS:
        raise unknown_name("resolver", name, RESOLVERS)
    return getattr(import_module(RESOLVERS[name]), name)
