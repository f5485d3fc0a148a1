"""YAML of launch files: read with PyYAML's safe loader, without aliases; written with a comment for each value."""

from __future__ import annotations

import json
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import check_bounds
from mlsysim.launch.scripts import one_line
from mlsysim.launch.shell import LARGEST


def read_yaml(text: str, name: str) -> list[Any]:
    """The documents of a YAML text."""
    if len(text) > LARGEST:
        raise InputError(f"{name} is longer than {LARGEST:,} characters, which no launch file is.")
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise InputError(f"{name}: YAML needs PyYAML (pip install pyyaml).") from None
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.events.AliasEvent):
                # Aliases can make a small file expand without end.
                raise InputError(f"{name}: YAML aliases are not read; write the values out.")
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except InputError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        line = str(error).strip().splitlines()
        raise InputError(
            f"{name} is not valid YAML: {(line[0] if line else 'it cannot be read').rstrip('.')[:200]}."
        ) from None
    for document in documents:
        check_bounds(document, 32, name=name)
    return documents


class Why:
    """A value with the comment that stands above it."""

    def __init__(self, value: Any, reason: str = "") -> None:
        self.value, self.reason = value, reason


def write_yaml(document: Any, indent: int = 0) -> list[str]:
    """Lines of a document of tables, lists and plain values; comments of :class:`Why` above their keys."""
    pad = "  " * indent
    out: list[str] = []
    if isinstance(document, dict):
        for key, value in document.items():
            reason = ""
            if isinstance(value, Why):
                value, reason = value.value, value.reason
            if reason:
                out.append(f"{pad}# {one_line(reason)}")
            out += _entry(f"{pad}{key}:", value, indent)
        return out
    for item in document:
        reason = ""
        if isinstance(item, Why):
            item, reason = item.value, item.reason
        if reason:
            out.append(f"{pad}# {one_line(reason)}")
        if isinstance(item, (dict, list)) and item:
            lines = write_yaml(item, indent + 1)
            first = next(i for i, line in enumerate(lines) if not line.lstrip().startswith("#"))
            out += [line[2:] if line.startswith("  ") else line for line in lines[:first]]
            out.append(f"{pad}- {lines[first].lstrip()}")
            out += lines[first + 1 :]
        elif isinstance(item, str) and "\n" in item:
            out += _entry(f"{pad}-", item, indent)
        else:
            out.append(f"{pad}- {_scalar(item)}")
    return out


def _entry(head: str, value: Any, indent: int) -> list[str]:
    if isinstance(value, str) and "\n" in value:
        pad = "  " * (indent + 1)
        return [f"{head} |", *(f"{pad}{line}".rstrip() for line in value.rstrip("\n").split("\n"))]
    if isinstance(value, (dict, list)) and value:
        return [head, *write_yaml(value, indent + 1)]
    return [f"{head} {_scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = value.replace("-", "").replace("_", "").replace("/", "").replace(".", "")
        word = plain.isalnum() and not value[0].isdigit() and value[0] not in "-./" and ": " not in value
        keep = word and value.lower() not in (
            "true",
            "false",
            "yes",
            "no",
            "on",
            "off",
            "null",
            "none",
            "y",
            "n",
            "inf",
            "nan",
        )
        return value if keep else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
