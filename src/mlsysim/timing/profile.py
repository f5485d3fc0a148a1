"""What a chip reaches of its datasheet, and what a software's kernels reach on it: one schema, fitted to measured silicon.

    profile(chip)                    constants of every chip <- of its class (generation, else family) <- measured on it
    profile(chip, "training")        the same <- what the kernels of that software reach: anywhere, in the class, on the chip
    origin(chip, "attention.start", "serving.vllm")    the table that a constant comes from

Chips stand in ``data/profiles``, software in ``data/software``, all with the keys of :mod:`mlsysim.timing.kernels`; a software names what differs from the
chip's profile and nothing else. A profile says whether it was measured, where its constants come from and how well they fit,
so that an answer can carry an error bar that is honest about the difference.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlsysim.errors import ZooFileError, unknown_name
from mlsysim.hardware.types import HardwareNode
from mlsysim.timing.kernels import Profile
from mlsysim.units.registry import Q_, to_si
from mlsysim.zoo.files import entries, fitted_over, parse_slice, shipped
from mlsysim.zoo.store import user_folder

EVERY = "every"
"""What holds for all chips, or all members of a group."""

Layers = list[tuple[str, dict[str, Any]]]


@cache
def software_file(name: str) -> dict[str, Any]:
    """A file of ``data/software``, with the constants that were fitted for it laid over."""
    file = f"software/{name}.toml"
    if name not in ("stacks", "training"):
        return shipped("mlsysim.data", file)
    return fitted_over("mlsysim.data", file, "software/training_constants.toml", name)


class _Tables(dict[str, dict[str, Any]]):
    """Tables of chips and classes. Those of the shipped files are put together when they are asked for; the user's replace them whole."""

    def __init__(self, own: str) -> None:
        super().__init__()
        names = sorted(path.name for path in files("mlsysim.data").joinpath("profiles").iterdir())
        self.pieces = [entries("mlsysim.data", f"profiles/{name}") for name in names if name.endswith(".toml")]
        for path in sorted(Path(own).glob("profiles/*.toml")) if own else ():
            try:
                self.update(tomllib.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise ZooFileError(f"{path}: {error}.", file=str(path), entry="", reason=str(error)) from None
        self.own = frozenset(self)

    def __missing__(self, name: str) -> dict[str, Any]:
        if name not in self:
            raise KeyError(name)
        found: dict[str, Any] = {}
        for table in (parse_slice(pieces[name]) for pieces in self.pieces if name in pieces):
            found = merged(found, table)
        self[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or any(name in pieces for pieces in self.pieces)


_tables = cache(_Tables)


def profile_names() -> list[str]:
    """Chips and classes that have constants of their own."""
    tables = _tables(user_folder())
    known = [name for names in tables.pieces for name in names]
    return [name for name in dict.fromkeys([*known, *tables]) if name != EVERY]


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A table with another's values over it; ``every`` in a group changes each of its members.

    A share takes the place of a rate that was measured.
    """
    result = dict(base)
    if "rate_share" in change:
        result.pop("rate", None)
    for key, value in change.items():
        if not isinstance(value, dict):
            result[key] = value
        elif key == EVERY and result and all(isinstance(member, dict) for member in result.values()):
            result = {name: merged(member, value) for name, member in result.items()}
        else:
            result[key] = merged(result.get(key, {}), value)
    return result


def _lineage(tables: dict[str, dict[str, Any]], name: str) -> Layers:
    """A table behind those that it is like."""
    own = dict(tables[name])
    parent = own.pop("like", None)
    return [*(_lineage(tables, parent) if parent is not None else ()), (name, own)]


def inherited(tables: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """A table with what it inherits from those that it is like; ``sources`` are each one's own."""
    found: dict[str, Any] = {}
    for _, own in _lineage(tables, name):
        found = merged({key: value for key, value in found.items() if key != "sources"}, own)
    return found


def _layers(names: tuple[str, ...], software: str, own: str) -> Layers:
    """Tables that a profile is made of, the most general first. ``names`` are the chip's, the most particular first."""
    tables = _tables(own)
    known = next(name for name in (*names, "family_gpu") if name in tables)
    found = [(EVERY, tables[EVERY]), *_lineage(tables, known)]
    file, _, kind = software.partition(".")
    overrides = software_file(file)["profile"] if file else {}
    for part in (file, kind):
        for name in (EVERY, *reversed(names)):
            if name in overrides.get(part, ()):
                found += [(f"{part}, {at}", table) for at, table in _lineage(overrides[part], name)]
    return found


@cache
def _build(names: tuple[str, ...], software: str, own: str) -> Profile:
    prior = _prior(names[0], own)
    if software and prior:
        mine = _laid(_layers(names[:1], "", own))
        table = _moved(_laid(_layers(names[1:], software, "")), mine, _laid(_layers((prior,), "", "")))
        return Profile(**{**table, "name": names[0], "prior": prior, "source": mine["source"]})
    layers = _layers(names, software, own)
    known = [at for at, _ in layers if ", " not in at][-1]
    return Profile(name=known, **_laid(layers))


def _laid(layers: Layers) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _, change in layers:
        table = merged(table, change)
    return table


def _prior(name: str, own: str) -> str:
    """The shipped table that a user's own was fitted from; "" of one that is shipped."""
    found = _tables(own)[name].get("prior", "") if name in _tables(own).own else ""
    return found if found in _tables("") else ""


def _moved(table: dict[str, Any], mine: dict[str, Any], shipped: dict[str, Any]) -> dict[str, Any]:
    """A software's constants on a chip of which a user measured kernels: as many times those on the shipped chip as the kernels' are.

    What a software loses of a kernel's rate it loses of the user's too. Products measured shape by shape follow those of the roof.
    """
    result = {**mine, **table}
    for key, value in mine.items():
        then, now = shipped.get(key), table.get(key)
        if isinstance(value, dict):
            result[key] = _moved(now or {}, value, then or {})
            continue
        ratio = _times(value, then)
        for name in ("rate_share", "rate") if key == "rate_share" else (key,):
            if ratio is not None and table.get(name) is not None:
                moved = (Q_(table[name]) if isinstance(table[name], str) else table[name]) * ratio
                result[name] = min(moved, 1.0) if name.endswith("share") else moved
    for name, kinds in result.get("products", {}).items():
        base = name.partition("_")[0]
        if base in mine.get("gemm", {}) and base in shipped.get("gemm", {}):
            result["products"] = {**result["products"], name: _moved(kinds, mine["gemm"][base], shipped["gemm"][base])}
    return result


def _times(value: Any, then: Any) -> float | None:
    """How many times a shipped constant a fitted one is; None where it was not moved (files have six digits) or is no number."""
    if isinstance(value, str) and isinstance(then, str) and value[:1].isdigit() and then[:1].isdigit():
        value, then = (to_si(text, f"{Q_(then).units}") for text in (value, then))
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) and each for each in (value, then)):
        return None
    return value / then if abs(value / then - 1) > 1e-5 else None


_stand_ins: dict[str, HardwareNode] = {}


@contextmanager
def standing_in(**others: HardwareNode) -> Iterator[None]:
    """Within it chips have the constants of others, as if nothing had been measured on them."""
    _stand_ins.update(others)
    try:
        yield
    finally:
        _stand_ins.clear()


def constants_from(chip: HardwareNode) -> HardwareNode:
    """The chip that constants are looked up for: itself, or what stands in for it."""
    return _stand_ins.get(chip.metadata.key or "", chip)


def classes(chip: HardwareNode) -> tuple[str, ...]:
    """Names of the tables that may speak of a chip: its own, its generation's and its family's."""
    chip = constants_from(chip)
    generation = (chip.generation or "").replace(" ", "_")
    return (chip.metadata.key or "", f"generation_{generation}", f"family_{chip.family}")


def profile(chip: HardwareNode, software: str = "") -> Profile:
    """The constants of a chip: its own, else those of its generation, else those of its family; under a software's own.

    ``software`` is a file of ``data/software``, with a dot and a name where it holds several ("serving.vllm").
    """
    mine = user_folder()
    return _build(_names(chip, mine), software, mine)


def _names(chip: HardwareNode, mine: str) -> tuple[str, ...]:
    """The tables that may speak of a chip; behind a user's own, in a folder of theirs, the one that it was fitted from."""
    own, *others = classes(chip)
    prior = _prior(own, mine)
    return (own, prior, *others) if prior else (own, *others)


def own_profile(chip: HardwareNode) -> str:
    """What a user's own constants of a chip rest on, in words; "" where a chip has the shipped ones."""
    return own_words(profile(chip))


def own_words(own: Profile) -> str:
    """The same of a profile."""
    return f"{own.name}, fitted from that of {own.prior} to {own.source[0].title}" if own.prior else ""


def origin(chip: HardwareNode, path: str, software: str = "") -> str:
    """The table that a constant comes from: "H100", "generation_Ampere", "training, H100" of a software, or the schema's default."""
    mine = user_folder()
    for name, table in reversed(_layers(_names(chip, mine), software, mine)):
        found: list[Any] = [table]
        for key in path.split("."):
            found = [inner[at] for inner in found if isinstance(inner, dict) for at in (key, EVERY) if at in inner]
        if found:
            return name
    value: Any = profile(chip, software)
    for key in path.split("."):
        members = value if isinstance(value, dict) else dict(value)
        if key not in members:
            raise unknown_name("constant of a profile", path, Profile.model_fields)
        value = members[key]
    return "default"
