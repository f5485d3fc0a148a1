"""Plans with one key changed, and whether that shows: shared by the tests that no key is ignored."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mlsysim.errors import MLSysError
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.vocabulary import python_name

_ECHO = ("assumed", "assumptions", "sources", "layout")
"""What repeats a plan whether or not a key counts."""


def changed(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The document with another value under a key."""
    first, _, rest = key.partition(".")
    return {**document, first: value if not rest else changed(document.get(first, {}), rest, value)}


def answer_of(document: dict[str, Any]) -> dict[str, Any]:
    """What an answer says, without the plan that it repeats."""
    return _answered(json.dumps(document, sort_keys=True))


@cache
def _answered(document: str) -> dict[str, Any]:
    """The same of a text: most keys are changed in one of a few plans, each of which is answered once."""
    found = evaluate_plainly(Plan.model_validate_json(document)).to_dict()
    return {name: value for name, value in found.items() if name != "plan"}


def assert_it_counts(before: dict[str, Any], document: dict[str, Any], key: str, value: Any) -> None:
    """The key changes the answer, is refused in one sentence, or the answer says why it has no effect."""
    try:
        after = answer_of(changed(document, key, value))
    except MLSysError as error:
        assert len(str(error)) > 20 and "\n" not in str(error).strip()
        return
    if any(before[name] != after[name] for name in before if name not in _ECHO):
        return
    names = (key.rpartition(".")[2], python_name(key))
    said = [each["text"] for each in after["assumed"] if each["name"] in names]
    assert any("no effect" in text for text in said), f"{key} = {value!r} changes nothing, and nothing says why"
