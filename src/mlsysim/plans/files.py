"""Plans as files: TOML, JSON, and YAML where PyYAML is installed; written as TOML; described by JSON Schema.

A file that names a model outside of the zoo is whole with its configuration in it:

    [workload]
    model = "Imported_small_model_1a2b3c"

    [models.Imported_small_model_1a2b3c]
    config = '''{"model_type": "llama", ...}'''

``config`` is the text of a Hugging Face ``config.json``. A model is known by its name for as long as the program runs, as one is that
a program adds itself.

The plan of the original package loads too (``version``, ``workload.name``, ``hardware.{name,nodes,precision,efficiency}``,
``ops.{region,duration_days}``, ``constraints.assert``). It is first order with an efficiency of 0.5, as it was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import check_bounds, load_json, nesting, read_text
from mlsysim.importers.markup import DEEPEST, assignments, read_toml, read_yaml, table_lines
from mlsysim.models.registry import Models
from mlsysim.plans.plan import Plan
from mlsysim.zoo.files import example

_LARGEST = 1_000_000
_VERSIONS = ("1", "1.0")
ENDINGS = (".toml", ".json", ".yaml", ".yml")
_ORIGINAL_EFFICIENCY = 0.5
_MOST_MODELS = 16


def load_plan(path: str | Path) -> Plan:
    """The plan in a file, or of a scenario by its name: ``scenario:llama3-70b-512-h100``."""
    path = example(path, "scenario")
    if path.suffix.lower() not in ENDINGS:
        text = f"{path.name!r} is not a plan file; expected one that ends in {', '.join(ENDINGS)}."
        raise InputError(text, field="file")
    return plan_from_text(read_text(path, _LARGEST), path.suffix.lower().lstrip("."), path.name)


def plan_from_text(text: str, form: str = "toml", name: str = "the plan") -> Plan:
    """The plan in a text of a form (toml, json, yaml)."""
    document = _parse(text, form, name)
    if not isinstance(document, dict):
        got = "nothing" if document is None else "a list" if isinstance(document, list) else "neither keys nor values"
        raise InputError(f"{name}: a plan has keys and values, such as model and on; the file has {got}.")
    check_bounds(document, DEEPEST, name=name, finite=False)
    work = document.get("workload")
    if isinstance(work, dict) and "name" in work and "model" not in work:
        document = _from_original(document)
    version = document.get("version", "1")
    if isinstance(version, bool) or str(version) not in _VERSIONS:
        raise InputError(f"{name}: the version of a plan is 1, got {str(version)[:40]!r}.", field="version")
    if "models" in document:
        _take_models(document["models"], name)
    document = {key: value for key, value in document.items() if key not in ("version", "$schema", "models")}
    try:
        return Plan.model_validate(document)
    except InputError as error:
        raise InputError(f"{name}: {error}", **error.details) from None


def _take_models(table: Any, name: str) -> None:
    """Add the models of a plan file; the zoo's own names stay what they are."""
    if not isinstance(table, dict) or len(table) > _MOST_MODELS:
        raise InputError(f"{name}: models is a table of at most {_MOST_MODELS} models by name.", field="models")
    # Few plans bring one, and the readers of configurations take a while to load.
    from mlsysim.importers.hf import read_config

    for key, entry in table.items():
        where = f"models.{key[:80]}"
        if not isinstance(entry, dict) or [*entry] != ["config"] or not isinstance(entry["config"], str):
            text = f"{name}: {where} has one key, config, which is the text of a config.json."
            raise InputError(text, field=where)
        try:
            workload = read_config(entry["config"]).workload
        except InputError as error:
            raise InputError(f"{name}, {where}: {error}", field=where) from None
        if key not in Models:
            Models.add(workload, key=key)
        elif Models.get(key) != workload:
            raise InputError(f"{name}: {key!r} is another model already; give it another name.", field=where)


def _parse(text: str, form: str, name: str) -> Any:
    if nesting(text) > DEEPEST:
        # Parsers recurse, and some take the square of the depth in time.
        raise InputError(f"{name}: brackets are nested more than {DEEPEST} deep.")
    if form == "toml":
        return read_toml(text, name)
    if form == "json":
        return load_json(text, DEEPEST, name=name, finite=False)
    documents = read_yaml(text, name, "; or write the plan as TOML")
    if len(documents) > 1:
        raise InputError(f"{name} is not valid YAML: expected a single document in the stream.")
    return documents[0] if documents else None


def _from_original(document: dict[str, Any]) -> dict[str, Any]:
    """The original's plan as one of ours."""
    work, hard = dict(document["workload"]), document.get("hardware", {})
    if not isinstance(hard, dict):
        raise InputError("The plan's hardware must be a table with a name.", field="hardware")
    hard = {"efficiency": _ORIGINAL_EFFICIENCY} | hard
    work["model"] = work.pop("name")
    if "precision" in hard:
        work["precision"] = hard.pop("precision")
    count = hard.get("accelerators", hard.get("nodes", 1))
    task = {"task": "training"} if isinstance(count, int) and count > 1 else {}
    return {**task, **document, "workload": work, "hardware": hard}


def plan_schema() -> dict[str, Any]:
    """JSON Schema of a plan file, for editors."""
    schema = Plan.model_json_schema(by_alias=True)
    schema["properties"]["version"] = {"enum": [1, 1.0, *_VERSIONS]}
    model = {
        "type": "object",
        "properties": {"config": {"type": "string"}},
        "required": ["config"],
        "additionalProperties": False,
    }
    schema["properties"]["models"] = {"type": "object", "additionalProperties": model}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "mlsysim plan", **schema}


def plan_to_toml(plan: Plan, models: Mapping[str, str] | None = None) -> str:
    """A plan as TOML; reading it again gives an equal plan. ``models`` are configurations of models that the zoo has not, by name."""
    document = plan.document()
    lines = assignments({key: value for key, value in document.items() if not isinstance(value, dict)})
    for part, fields in document.items():
        if isinstance(fields, dict):
            lines += table_lines(part, fields, apart=True)
    for key, text in (models or {}).items():
        lines += table_lines(f"models.{key}", {"config": text}, apart=True)
    return "\n".join(lines) + "\n"
