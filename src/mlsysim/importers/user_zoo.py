"""The user's own zoo: models saved from imports, and what must hold of every entry in it.

``save_model`` writes one TOML file into the folder ``models`` of the user's zoo (:mod:`mlsysim.zoo.store`), in the form of
the shipped entries, so that ``Models`` and every command know the name from then on. A name that means a shipped entry is
refused. ``check_user_zoo`` runs the checks that hold for shipped entries over the user's, chips and fleets included.
"""

from __future__ import annotations

import datetime
import math
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlsysim.errors import DataWarning, InputError
from mlsysim.hardware.checks import CHECKS as HARDWARE_CHECKS
from mlsysim.hardware.registry import Hardware
from mlsysim.importers.markup import assignments, plain
from mlsysim.importers.report import ImportReport
from mlsysim.infra.checks import FACILITY_CHECKS, GRID_CHECKS, PRICE_CHECKS, RACK_CHECKS
from mlsysim.infra.registry import Facilities, Grids, Prices, Racks
from mlsysim.models.base import Workload
from mlsysim.models.checks import CHECKS as MODEL_CHECKS
from mlsysim.models.multimodal import VisionLanguageWorkload
from mlsysim.models.registry import KINDS, Models
from mlsysim.systems.checks import CLUSTER_CHECKS, FABRIC_CHECKS, NODE_CHECKS
from mlsysim.systems.registry import Clusters, Fabrics, Nodes
from mlsysim.timing.engines import engine_problems
from mlsysim.zoo.registry import Check, Problem, Registry, run_checks
from mlsysim.zoo.store import VARIABLE, chosen_folder
from mlsysim.zoo.writing import write_whole

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_NAMESPACES = {
    "vit": "Vision", "cnn": "Vision", "speech": "Speech", "vision_language": "Multimodal", "diffusion": "Diffusion",
}  # fmt: skip
_NOT_SAVED = ("metadata", "training_ops", "data_rate")
_TOWERS = ("vision", "language")

_ZOOS: tuple[tuple[Registry, tuple[Check, ...]], ...] = (
    (Models, MODEL_CHECKS), (Hardware, HARDWARE_CHECKS), (Nodes, NODE_CHECKS), (Fabrics, FABRIC_CHECKS),
    (Clusters, CLUSTER_CHECKS), (Grids, GRID_CHECKS), (Facilities, FACILITY_CHECKS), (Racks, RACK_CHECKS),
    (Prices, PRICE_CHECKS),
)  # fmt: skip


def save_model(
    model: ImportReport | Workload,
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    replace: bool = False,
    checked: str | None = None,
) -> Path:
    """Save a model in the user's zoo under a name; returns the file. ``replace`` overwrites an entry saved before."""
    workload = model.workload if isinstance(model, ImportReport) else model
    if not isinstance(workload, Workload):
        raise InputError(f"A model to save is a workload or a report on one, not {type(model).__name__}.")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"The name {str(name)[:80]!r} cannot be saved: use up to 64 letters, digits, '_', '-' and '.', a letter first."
        )
    with warnings.catch_warnings():
        # A folder that is not there yet is about to be made.
        warnings.simplefilter("ignore", DataWarning)
        shipped, known = Models.is_shipped(name), name in Models
    if shipped:
        raise InputError(
            f"The zoo that comes with mlsysim has {Models.key_of(name)!r} for the name {name!r}; choose another."
        )
    place = Path(folder) if folder is not None else chosen_folder()
    if place is None:
        raise InputError(f"The environment variable {VARIABLE} is set to nothing; let it name the folder of your zoo.")
    key = re.sub(r"[.-]", "_", name)
    file = place / "models" / f"{key}.toml"
    if not replace and (file.exists() or known):
        raise InputError(f"Your zoo has a model named {name!r} already; choose another name, or replace it.")
    if isinstance(model, ImportReport):
        # A config is often called after the folder that it lay in.
        workload = workload.model_copy(update={"name": name})
    source, note = (model.source, model.family) if isinstance(model, ImportReport) else ("", workload.architecture)
    origin = {
        "title": f"read from {source}" if source else "a workload of the user",
        "url": source,
        "checked": checked or datetime.date.today().isoformat(),
        "kind": "user",
        "note": note,
    }
    text = "".join(_entries(workload, key, name, origin))
    write_whole(file, text, folders=True)
    Models.reload()
    return file


def _entries(workload: Workload, key: str, name: str, origin: dict[str, str]) -> Iterator[str]:
    """The tables of a model; twin towers are entries of their own, which the model names."""
    own = f"{type(workload).__module__}.{type(workload).__name__}"
    kind = next((kind for kind, place in KINDS.items() if own == f"mlsysim.models.{place}"), None)
    if kind is None:
        raise InputError(f"A {type(workload).__name__} has no form in the zoo's files and cannot be saved.")
    fields: dict[str, Any] = {"kind": kind, "namespace": _NAMESPACES.get(kind, "Language")}
    fields |= {"aliases": [name]} if key != name else {}
    for field, description in type(workload).model_fields.items():
        value = getattr(workload, field)
        if field not in (*_NOT_SAVED, *_TOWERS) and value is not None and value != description.default:
            fields[field] = value
    if isinstance(workload, VisionLanguageWorkload):
        fields |= {part: f"{key}_{part}" for part in _TOWERS}
        for part in _TOWERS:
            yield from _entries(getattr(workload, part), fields[part], fields[part], origin)
    lines = assignments(plain(fields | {"source": origin}, _quantity), _number)
    yield f"[{key}]\n" + "\n".join(lines) + "\n\n"


def _quantity(value: Any) -> str | float:
    unit = f"{value.units:~}"
    return f"{value.magnitude!r} {unit}" if unit else float(value.magnitude)


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise InputError("A model with a number that is not finite cannot be saved.")
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(value)


def check_user_zoo() -> list[Problem]:
    """What is wrong with the user's entries: those that could not be read, and those that fail a check."""
    problems: list[Problem] = []
    for registry, checks in _ZOOS:
        registry.reload()
        problems += [Problem(registry._name, found.entry, "readable", str(found)) for found in registry.problems]
        problems += run_checks(registry, checks, registry.user_keys())
    return problems + [Problem("Engines", name, "readable", why) for name, why in engine_problems()]
