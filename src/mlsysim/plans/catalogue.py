"""What there is: the zoo by part, the walls, and schemas. The command line and servers say the same of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mlsysim.errors import InputError, either, fold, unknown_name

KINDS = ("hardware", "models", "systems", "grids")
_CARD = ("number", "name", "resolver", "bounds", "equation", "reference", "question")


def registries(kind: str, *also: str) -> list[Any]:
    """The zoos of a part; ``also`` are other words that the caller takes in its place."""
    from mlsysim.hardware.registry import Hardware
    from mlsysim.infra.registry import Grids
    from mlsysim.models.registry import Models
    from mlsysim.systems.registry import Clusters, Fabrics, Nodes

    known = {"hardware": [Hardware], "models": [Models], "systems": [Clusters, Nodes, Fabrics], "grids": [Grids]}
    if kind not in known:
        words = [*known, *also]
        raise unknown_name("part of the zoo", kind, words, "use one of " + ", ".join(words) + ".")
    return known[kind]


def word_of(registry: Any) -> str:
    """A zoo's name as a word."""
    return str(registry._name).rsplit(".", 1)[-1].lower()


def counts() -> dict[str, dict[str, int]]:
    """How many entries each part has."""
    return {kind: {word_of(registry): len(registry) for registry in registries(kind)} for kind in KINDS}


def listing(
    zoos: Sequence[Any], filters: Sequence[str], sort: str | None, said: str = "filter", like: str = ""
) -> list[tuple[str, list[str], list[list[str]]]]:
    """Of each zoo its word, the headers and the rows of what passes all filters and has ``like`` in its name; ``said`` is how the
    caller calls a filter."""
    from mlsysim.zoo.query import condition, in_order

    tests = [condition(text, said) for text in filters]
    found = []
    for registry in zoos:
        entries = [entry for entry in registry if _has(entry, like) and all(test(entry) for test in tests)]
        cells = {row[0]: row for row in registry.rows()}
        keys = [entry.metadata.key for entry in (entries if sort is None else in_order(entries, sort))]
        found.append((word_of(registry), ["key", *registry._columns], [cells[key] for key in keys if key in cells]))
    return found


def as_documents(listed: list[tuple[str, list[str], list[list[str]]]]) -> list[dict[str, Any]]:
    """Rows of a listing, each by its headers."""
    return [dict(zip(headers, row, strict=True)) | {"zoo": word} for word, headers, rows in listed for row in rows]


def entry_named(kind: str, zoos: Sequence[Any], name: str) -> tuple[str, Any]:
    """An entry, and the word of the zoo that has it."""
    for registry in zoos:
        if name in registry:
            return word_of(registry), registry.get(name)
    raise unknown_name(f"entry of the zoo of {kind}", name, [key for zoo in zoos for key in list(zoo.keys())])


def kind_of_entry(name: str) -> str:
    """The part of the zoo that has an entry of a name; names of entries and aliases count before what else a label may say."""
    for has in (lambda zoo: zoo.has(name), lambda zoo: name in zoo):
        for kind in KINDS:
            if any(has(zoo) for zoo in registries(kind)):
                return kind
    _refuse_software(name)
    keys = [key for kind in KINDS for zoo in registries(kind) for key in list(zoo.keys())]
    words = [*KINDS, "check"]
    raise unknown_name("part or entry of the zoo", name, [*words, *keys], "parts are " + ", ".join(words) + ".")


def _refuse_software(name: str) -> None:
    """One sentence for software that is looked for in the zoo: the option that names it, with all names that it takes."""
    from mlsysim.timing.engines import engine_names, is_engine
    from mlsysim.timing.stacks import stack_names

    engines, stacks, word = engine_names(), stack_names(), fold(name)
    for option, names, asked in (
        ("mlsysim serve --engine", engines, is_engine(name) or word in ("engine", "engines")),
        ("mlsysim train --stack", stacks, word in ("stack", "stacks", *map(fold, stacks))),
    ):
        if asked:
            raise InputError(f"The zoo has no software; `{option}` takes {either(names)}.", field="name")


def alike(name: str) -> list[Any]:
    """The zoos with entries whose names have a word in them, such as llama; none where an entry itself is called so."""
    zoos = [zoo for kind in KINDS for zoo in registries(kind)]
    if len(fold(name)) < 3 or any(name in zoo for zoo in zoos):
        return []
    return [zoo for zoo in zoos if any(_has(entry, name) for entry in zoo)]


def _has(entry: Any, word: str) -> bool:
    """Whether a word of the entry's names begins so; capitals begin one too, as in TinyLlama."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", f"{entry.metadata.key} {entry.name}")
    return not word or any("".join(parts[i:]).lower().startswith(fold(word)) for i in range(len(parts)))


def wall_cards() -> list[dict[str, Any]]:
    """The cards of all walls."""
    from mlsysim.walls import catalog

    return [_card(wall) for wall in catalog.walls()]


def wall_card(number: int | str) -> dict[str, Any]:
    """The card of a wall, by its number or name, with its resolver's inputs and fallacies."""
    from mlsysim.walls import catalog

    wall = catalog.wall(number)
    resolver = catalog.resolver(wall.resolver)
    inputs = {name: spec.meaning for name, spec in resolver.inputs.items()}
    return _card(wall) | {"inputs": inputs, "fallacies": list(resolver.fallacies())}


def _card(wall: Any) -> dict[str, Any]:
    return {name: getattr(wall, name) for name in _CARD} | {"domain": wall.domain.name}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a plan, of a type of the zoo, of a space or of a resolver."""
    from mlsysim.hardware.types import HardwareNode
    from mlsysim.models.transformer import TransformerWorkload
    from mlsysim.plans.files import plan_schema
    from mlsysim.walls.catalog import RESOLVERS, resolver

    types: dict[str, Any] = {"hardware": HardwareNode, "workload": TransformerWorkload}
    if name == "plan":
        return plan_schema()
    if name in types:
        return dict(types[name].model_json_schema())
    if name in RESOLVERS:
        return resolver(name).schema()
    # Spaces need NumPy, which the rest of this module does without.
    from mlsysim.search.kinds import KINDS as SPACES
    from mlsysim.search.space_table import schema as space_schema

    kind = name.removeprefix("space.")
    if name.startswith("space.") and kind in SPACES:
        return space_schema(kind)
    known = ["plan", *types, *(f"space.{each}" for each in SPACES), *RESOLVERS]
    raise unknown_name("type with a schema", name, known)
