"""A plan as an address of the explorer, which keeps its state behind the # (``site/state.js`` writes and reads the same form).

#task=training&workload.model=Llama3_70B&hardware.on=512xH100
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode


def address(plan: Mapping[str, Any]) -> str:
    """The part of the address from the # on: a pair for each leaf, JSON where that is what it was and plain text otherwise.

    >>> address({"task": "serving", "workload": {"model": "Llama3_8B"}, "serving": {"qps": 2.0}})
    '#task=serving&workload.model=Llama3_8B&serving.qps=2.0'
    """
    return "#" + urlencode([(path, _written(value)) for path, value in _leaves(plan)], safe=",:@/")


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, part in value.items():
        here = f"{path}.{name}" if path else name
        if isinstance(part, Mapping):
            yield from _leaves(part, here)
        else:
            yield here, part


def _written(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value)  # text that would be read as something else
