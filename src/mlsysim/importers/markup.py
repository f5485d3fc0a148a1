"""TOML and YAML: texts of others read in bounds, and values written as TOML. Whatever goes wrong is one sentence."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any

from mlsysim.errors import InputError
from mlsysim.units.fields import Record
from mlsysim.units.registry import Quantity

DEEPEST = 32
"""How deep tables and lists may be nested in a text of others."""


def invalid(name: str, form: str, error: BaseException) -> InputError:
    """The sentence of a text that its parser refuses."""
    lines = str(error).strip().splitlines()
    if form == "YAML" and "'\\t'" in str(error):
        line = re.search(r"line (\d+)", str(error))
        lines = [f"a tab stands where YAML takes spaces{f' (line {line[1]})' if line else ''}"]
    if form == "TOML" and lines and lines[0].startswith(("Expected newline", "Invalid value")):
        lines[0] += "; text, and a number with a unit, stand in quotes"
    if form == "TOML" and lines:
        lines[0] = lines[0].replace("Cannot overwrite a value", "a key stands twice")
    return InputError(f"{name} is not valid {form}: {(lines[0] if lines else type(error).__name__).rstrip('.')[:200]}.")


def read_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(name, "TOML", error) from None


def read_yaml(text: str, name: str, otherwise: str = "") -> list[Any]:
    """The documents of a YAML text, without empty ones; ``otherwise`` says what helps where PyYAML is missing."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise InputError(f"{name}: YAML needs PyYAML (pip install pyyaml){otherwise}.") from None
    depth = 0
    try:
        # Events come one by one, so that nothing is built of a text that is refused.
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                # Aliases can make a small file expand without end.
                raise InputError(f"{name}: YAML anchors and aliases are not read; write the values out.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise InputError(f"{name[:200]!r} is nested more than {DEEPEST} deep.")
        return [document for document in yaml.load_all(text, _loader()) if document is not None]
    except InputError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise invalid(name, "YAML", error) from None


@cache
def _loader() -> Any:
    """PyYAML's safe loader with the booleans of YAML 1.2, to which ``on``, ``yes`` and ``no`` are words, and each key once and text."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise ValueError(f"the key {key.value[:60]!r} stands twice (line {key.start_mark.line + 1})")
                if isinstance(key.value, str):
                    seen.add(key.value)
            return {str(key): value for key, value in super().construct_mapping(node, deep).items()}

    boolean = "tag:yaml.org,2002:bool"
    Loader.yaml_implicit_resolvers = {
        letter: [rule for rule in rules if rule[0] != boolean or letter in "tTfF"]
        for letter, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def plain(value: Any, of_quantity: Callable[[Any], Any]) -> Any:
    """A value with its records as tables, without what is None in them, and its quantities as ``of_quantity`` writes them."""
    if isinstance(value, Quantity):
        return of_quantity(value)
    if isinstance(value, Record):
        # Not dict(value): that has what the record remembers too.
        held = {name: getattr(value, name) for name in type(value).model_fields}
        value = {name: field for name, field in held.items() if field is not None}
    if isinstance(value, dict):
        return {key: plain(item, of_quantity) for key, item in value.items()}
    return [plain(item, of_quantity) for item in value] if isinstance(value, list | tuple) else value


def toml(value: Any, of_float: Callable[[float], str] = repr) -> str:
    """A value as TOML, on one line; ``of_float`` writes its floats.

    >>> toml({"title": "a run", "rows": [1, 2.5], "own": True})
    '{title = "a run", rows = [1, 2.5], own = true}'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return of_float(value)
    if isinstance(value, int | datetime.date | datetime.time):
        return str(value)
    if isinstance(value, str):
        # JSON strings are TOML basic strings, but for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(toml(item, of_float) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(assignments(value, of_float)) + "}"
    raise InputError(f"{type(value).__name__} has no form in TOML.")


def assignments(fields: dict[str, Any], of_float: Callable[[float], str] = repr) -> list[str]:
    """``key = value`` of each field that is not None."""
    return [f"{_key(key)} = {toml(value, of_float)}" for key, value in fields.items() if value is not None]


def table_lines(
    path: str, fields: dict[str, Any], of_float: Callable[[float], str] = repr, *, apart: bool = False
) -> list[str]:
    """A table and those inside it as lines of TOML, with an empty one before each. Lists of tables stand in a line, or ``apart``."""
    own: dict[str, Any] = {}
    inner: list[str] = []
    for key, value in fields.items():
        place = f"{path}.{_key(key)}"
        if isinstance(value, dict):
            inner += table_lines(place, value, of_float, apart=apart)
        elif apart and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            inner += [line for item in value for line in ("", f"[[{place}]]", *assignments(item, of_float))]
        else:
            own[key] = value
    lines = assignments(own, of_float)
    return (["", f"[{path}]", *lines] if lines or not inner else []) + inner


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)
