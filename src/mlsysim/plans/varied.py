"""A plan with some of its keys at several values: every combination, answered or refused with its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

_MOST = 1000


class Point(NamedTuple):
    """One combination: its settings, and its answer or why there is none."""

    settings: dict[str, Any]
    answer: Answer | None
    refused: str = ""

    @property
    def sentence(self) -> str:
        """What is said of it first."""
        return self.refused if self.answer is None else str(self.answer.headline)

    def document(self) -> dict[str, Any]:
        """As JSON: settings, and what was found."""
        if self.answer is None:
            return {"settings": self.settings, "feasible": False, "headline": self.sentence}
        told = self.answer.to_dict()
        kept = ("feasible", "headline", "metrics", "binding", "layout")
        return {"settings": self.settings, **{name: told[name] for name in kept}}


def axes_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Keys and values in texts such as ``staleness=1,2,4``."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, mark, values = text.partition("=")
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not mark or not listed or name.strip() in found:
            raise InputError(
                f"What is varied is such as staleness=1,2,4, each key once, got {text[:60]!r}.", field="over"
            )
        found[name.strip()] = listed
    return checked(found)


def checked(axes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Keys and values, where there are some and not too many."""
    if not axes or not all(axes.values()):
        raise InputError("What is varied is one key at least, each with its values.", field="over")
    if prod(map(len, axes.values())) > _MOST:
        raise InputError(f"At most {_MOST:,} combinations are tried; give fewer values.", field="over")
    return axes


def varied(plan: Plan, axes: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination of the values, in order."""
    points = []
    for chosen in product(*axes.values()):
        settings = dict(zip(axes, chosen, strict=True))
        try:
            points.append(Point(settings, evaluate_plainly(plan.with_settings(settings))))
        except InputError as error:
            points.append(Point(settings, None, str(error)))
    return points
