"""What the explorer offers: in its menus names of the zoo with the one figure that tells them apart, grouped; and the keys of a plan.

``site/controls.js`` says how the controls look that a page is drawn around. Every other key of a plan gets a plain one from
what is written into the site when it is built, so that a key that is added to the plan is on the page with the next build.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from mlsysim.hardware.registry import Hardware
from mlsysim.infra.registry import Grids
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.physics.precision import BYTES_PER_ELEMENT
from mlsysim.physics.training_memory import OPTIMIZERS
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import FREE
from mlsysim.plans.schema import Leaf
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.timing.engines import engine_names
from mlsysim.timing.stacks import stack_names
from mlsysim.units.registry import to_si
from mlsysim.zoo.files import shipped

_FEW = 3
"""A family with fewer members than this goes to the others of its kind."""

_WORDS: dict[str, dict[str, str]] = shipped("mlsysim.labs", "catalogue.toml")
NOT_CONTROLS = _WORDS["not_controls"]
"""Keys without a control of their own, and why."""

Item = dict[str, Any]


def models() -> list[Item]:
    """Models by family: the first word of their names where several share it, else their kind."""
    entries = list(zip(Models.keys(), Models, strict=True))
    spellings = Counter(_first_word(model.name) for _, model in entries)
    members = Counter(_first_word(model.name).lower() for _, model in entries)
    usual = {word.lower(): word for word, _ in reversed(spellings.most_common())}
    found = []
    for key, model in entries:
        family = _first_word(model.name).lower()
        group = usual[family] if members[family] >= _FEW else _WORDS["kinds"].get(model.architecture, "Others")
        found.append({"key": key, "name": model.name, "group": group, "note": size_text(model)})
    return sorted(found, key=lambda item: (item["group"].startswith("Other"), item["group"].lower()))


def _key(entry: Any) -> str:
    return str(entry.metadata.key)


def _first_word(name: str) -> str:
    """The word that a family shares; of one or two letters only with the number behind it, as in T5."""
    found = re.match(r"[A-Za-z]{3,}|[A-Za-z]+\d*", name)
    return found[0] if found else name


def size_text(model: Workload) -> str:
    """The number of parameters as people say it.

    >>> size_text(Models.Llama3_8B)
    '8.03 B parameters'
    """
    count = float(model.parameter_count)
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter} parameters"
    return f"{count:.0f} parameters"


def chips() -> list[Item]:
    """Chips by vendor, then the clusters of the zoo, which are fleets by themselves."""
    found: list[Item] = []
    sizes = {node.accelerator.name: node.accelerators_per_node for node in reversed(list(Nodes))}
    for chip in sorted(Hardware, key=lambda entry: -(entry.release_year or 0)):
        memory = to_si(chip.memory.capacity, "byte")
        size = f"{memory / 2**30:.4g} GiB" if memory >= 2**30 else f"{memory / 2**10:,.4g} KiB"
        item = {"key": _key(chip), "name": chip.name, "group": chip.vendor or "Others", "note": size, "kind": "chip"}
        found.append({**item, "per_node": sizes.get(chip.name, 8)})
    makers = Counter(item["group"] for item in found)
    found.sort(key=lambda item: (-makers[item["group"]], item["group"].lower()))
    for fleet in Clusters:
        note = f"{fleet.total_accelerators:,} accelerators"
        found.append({"key": _key(fleet), "name": fleet.name, "group": "Clusters", "note": note, "kind": "cluster"})
    return found


def short_lists() -> dict[str, list[Item]]:
    """Fabrics, regions, engines, stacks, number formats, pipeline schedules and optimizers."""
    grids = [(_key(grid), f"{grid.name}, {grid.carbon_intensity_g_kwh:.3g} gCO2e/kWh") for grid in Grids]
    named: dict[str, Iterable[tuple[str, str]]] = {
        "fabrics": ((_key(f), f"{f.name}, {to_si(f.bandwidth, 'Gbit/s'):,.4g} Gbit/s") for f in Fabrics),
        "regions": sorted(grids, key=itemgetter(1)),
        "engines": ((name, name.replace("_", " ")) for name in engine_names()),
    }
    plain = {"stacks": stack_names(), "precisions": BYTES_PER_ELEMENT, "schedules": SCHEDULES, "optimizers": OPTIMIZERS}
    named |= {key: ((name, name) for name in names) for key, names in plain.items()}
    return {key: [{"key": item, "name": name} for item, name in pairs] for key, pairs in named.items()}


def every_list() -> dict[str, list[Item]]:
    """Everything that the menus of a site offer."""
    return {"models": models(), "chips": chips(), **short_lists()}


def plan_keys() -> list[dict[str, Any]]:
    """Keys with a control: path, label, tasks, meaning, and what values they take."""
    return [_described(leaf) for key, leaf in Plan.leaves().items() if key not in NOT_CONTROLS]


def _described(leaf: Leaf) -> dict[str, Any]:
    least, most = leaf.bounds
    kinds = {int: "whole", bool: "flag", float: "share" if most is not None and most <= 1 else "number"}
    found = {
        "path": leaf.key,
        "label": leaf.flat.replace("_", " ").capitalize(),
        "meaning": leaf.meaning,
        "tasks": list(leaf.tasks),
        "kind": "text" if leaf.type is None else kinds.get(leaf.type, "text"),
        "choices": list(leaf.choices),
        "list": _WORDS["lists"].get(leaf.key),
        "least": least,
        "most": most,
        "example": None if leaf.quantity is None else leaf.quantity.example,
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def keys_module() -> bytes:
    """A module of JavaScript with the keys."""
    said = "// Made from the schema of a plan when the site is built.\n"
    return f"{said}export const KEYS = {json.dumps(plan_keys(), indent=1)};\nexport const FREE = {json.dumps(FREE)};\n".encode()
