"""A layout in one text, ``"tp=8,pp=4,zero=1"`` or as people write it (``"TP8 PP4"``, ``"DEP8"``), as the settings that it holds.

Every face takes it: ``--layout`` on the command line, ``layout=`` in Python, a key of files and requests, an axis of a sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, nearest
from mlsysim.plans.schema import Leaf, key_named
from mlsysim.vocabulary import PARTS
from mlsysim.zoo.layouts import mapping


def spread(document: Mapping[str, Any], known: Mapping[str, Leaf]) -> dict[str, Any]:
    """A document of settings with a layout that is a text as the settings in it."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        is_layout = PARTS.get(str(name), name) == "parallelism" and isinstance(value, str)
        for other, held in (_settings(value, known) if is_layout else {name: value}).items():
            if other in found:
                key = key_named(str(other), known) or str(other)
                raise InputError(f"The {key!r} field is given twice.", record="Plan", field=key)
            found[other] = held
    return found


def _settings(text: str, known: Mapping[str, Leaf]) -> dict[str, Any]:
    if text.strip() == "auto":
        return {"mode": "auto"}
    offered = {k: leaf for k, leaf in known.items() if k.startswith("parallelism.") or k == "serving.replicas"}
    found: dict[str, Any] = {}
    degrees = mapping(text) if "=" not in text else None
    for piece in text.split(",") if degrees is None else [f"{name}={degree}" for name, degree in degrees.items()]:
        name, mark, value = piece.partition("=")
        key = key_named(name, offered)
        if not mark:
            words = f"The 'layout' field takes pairs such as tp=8,pp=4, got {piece.strip()[:40]!r}."
        elif key is None:
            names = [leaf.flat for leaf in offered.values()]
            close = nearest(name, names)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            words = f"The 'layout' field knows {', '.join(names)}, got {name.strip()[:40]!r}{hint}"
        else:
            found[offered[key].flat] = value.strip()
            continue
        raise InputError(words, record="Plan", field="layout")
    return found
