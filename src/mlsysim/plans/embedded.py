"""Models that a plan file brings along: a file that names a model outside of the zoo is whole with its configuration in it.

    [workload]
    model = "Imported_small_model_1a2b3c"

    [models.Imported_small_model_1a2b3c]
    config = '''{"model_type": "llama", ...}'''

``config`` is the text of a Hugging Face ``config.json``. A model is known by its name for as long as the program runs, as one is that
a program adds itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.markup import table_lines
from mlsysim.models.registry import Models

_MOST = 16


def take_models(table: Any, name: str) -> None:
    """Add the models of a plan file; the zoo's own names stay what they are."""
    if not isinstance(table, dict) or len(table) > _MOST:
        raise InputError(f"{name}: models is a table of at most {_MOST} models by name.", field="models")
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


def models_as_toml(models: Mapping[str, str]) -> list[str]:
    """The lines of a plan file for models by name, each with the text of its configuration."""
    return [line for key, text in models.items() for line in table_lines(f"models.{key}", {"config": text}, apart=True)]
