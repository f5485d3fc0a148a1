"""Where the assumptions of an answer come from: documents behind the zoo's entries, constants, and defaults of the walls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import SOFTWARE, UNKNOWN, Assumption
from mlsysim.cases.run_inputs import FALLBACK_GRID
from mlsysim.infra.registry import Grids
from mlsysim.plans.answer import Answer
from mlsysim.plans.resolve import find_fleets, find_region, workload_of
from mlsysim.report.words import WORDS
from mlsysim.walls import catalog
from mlsysim.zoo.constants import constant
from mlsysim.zoo.provenance import Source

_CONSTANTS, _CHIP_FIELDS, _GRID_FIELDS = (WORDS[name] for name in ("constants", "chip", "grid"))
_SHORT = {"tp", "ep", "cp", "pp", "nic", "psu", "mtbf", "mfu"}


def in_words(name: str) -> str:
    """A name as words, abbreviations in capitals; the unit that some end in is in their value."""
    words = name.removesuffix("_s").replace("_", " ").split()
    shown = " ".join(word.upper() if word in _SHORT else word for word in words)
    return shown.replace("kwh", "kWh").replace("lora", "LoRA").replace("moe ", "MoE ")


class Cited(NamedTuple):
    """A document and what it is about."""

    about: str
    title: str
    url: str = ""
    kind: str = ""
    checked: str = ""
    fields: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What it is about, and which fields of that."""
        return self.about + (f" ({', '.join(self.fields)})" if self.fields else "")

    @property
    def remark(self) -> str:
        """What kind of document it is and when it was looked at, behind its title."""
        more = ", ".join(filter(None, (self.kind, f"checked {self.checked}" if self.checked else "")))
        return f"; {more}" if more else ""


def assumptions_of(answer: Answer) -> tuple[tuple[str, str, str, str], ...]:
    """Every assumption of the answer in words: what, its value, what it means, and where it comes from."""
    return tuple(
        (in_words(each.name), each.text, (_declared(each.name, answer) or ("", "", ""))[1], _origin(each, answer))
        for each in answer.assumed
    )


def _declared(name: str, answer: Answer) -> tuple[str, str, str] | None:
    """(resolver, meaning, text of the default) of an input of that name, by a resolver that has equations in the answer."""
    for resolver in dict.fromkeys(equation.resolver for equation in answer.equations if equation.resolver):
        declared = catalog.resolver(resolver).inputs.get(name)
        if declared is not None and not declared.required:
            return resolver, declared.meaning, declared.default_text
    return None


def _origin(each: Assumption, answer: Answer) -> str:
    name = each.name
    if name in answer.sources:
        return answer.sources[name]
    if each.origin == UNKNOWN:
        return "not known"
    source = _entry_source(name, answer)
    if source is not None:
        return source.title
    declared = _declared(name, answer)
    is_default = declared is not None and declared[2] == each.text
    if name in _CONSTANTS and (declared is None or is_default or name in ("maintenance_fraction", "power")):
        return constant(_CONSTANTS[name]).source.title
    if declared is not None and is_default:
        return f"default of {declared[0]}"
    return "profile of the software" if each.origin == SOFTWARE else "follows from the plan and the zoo"


def _entry_source(name: str, answer: Answer) -> Source | None:
    fleet, *others = find_fleets(answer.plan.hardware).fleets
    if name in _CHIP_FIELDS and answer.plan.hardware.chip is None:
        found = (_source(each.node.accelerator, _CHIP_FIELDS[name]) for each in (fleet, *others))
        return next(filter(None, found), None)
    if name in _GRID_FIELDS and answer.plan.ops.electricity is None:
        region = find_region(answer.plan.ops, fleet)
        grid = getattr(region, "grid", region)
        if grid is None or getattr(grid, _GRID_FIELDS[name]) is None:
            grid = Grids.get(FALLBACK_GRID)
        return _source(grid, _GRID_FIELDS[name])
    return None


def _source(entry: Any, field: str) -> Source | None:
    # A price may be quoted by two documents: the value is the one that the later gives.
    named: list[Source] = [source for source in entry.metadata.sources if field in source.fields]
    return named[-1] if named else None


def documents_of(answer: Answer) -> tuple[Cited, ...]:
    """The documents behind the answer: of the model, the chips, their nodes and fabric, the grid, and of single figures."""
    found = list(dict.fromkeys(_entries(answer)))
    titles = {cited.title for cited in found}
    single: dict[Cited, list[str]] = {}
    for each in answer.assumed:
        if each.name in _CONSTANTS:
            source = constant(_CONSTANTS[each.name]).source
            if _origin(each, answer) == source.title:
                cited = Cited("", source.title, source.url, source.kind, source.checked)
                single.setdefault(cited, []).append(in_words(each.name))
                titles.add(source.title)
    for name, title in answer.sources.items():
        if title not in titles:
            single.setdefault(Cited("", title), []).append(in_words(name))
    return (*found, *(cited._replace(about=", ".join(names)) for cited, names in single.items()))


def _entries(answer: Answer) -> Iterator[Cited]:
    plan = answer.plan
    yield from _cited(workload_of(plan.workload))
    for fleet in find_fleets(plan.hardware).fleets:
        yield from _cited(fleet.node.accelerator)
        if fleet.total_accelerators > 1:
            yield from _cited(fleet.node)
        if fleet.count > 1:
            yield from _cited(fleet.fabric)
        if fleet.metadata.sources:
            yield from _cited(fleet)
        region = find_region(plan.ops, fleet)
        if region is not None:
            yield from _cited(getattr(region, "grid", region))


def _cited(entry: Any) -> Iterator[Cited]:
    sources = entry.metadata.sources
    if not sources and entry.metadata.source_title:
        yield Cited(entry.name, entry.metadata.source_title, entry.metadata.source_url or "")
    for source in sources:
        yield Cited(entry.name, source.title, source.url, source.kind, source.checked, source.fields)
