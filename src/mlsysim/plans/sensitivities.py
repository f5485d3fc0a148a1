"""How much each figure of the hardware is worth to an answer."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import LOWER_IS_BETTER
from mlsysim.walls.binding import NEGLIGIBLE
from mlsysim.zoo.files import shipped

_STEP = 0.1
_FIGURES: dict[str, dict[str, Any]] = shipped("mlsysim.data", "resources.toml")["figure"]
HARDWARE: dict[str, str] = {name: figure["label"] for name, figure in _FIGURES.items()}
"""Figures of the hardware as a reader knows them."""


def sensitivities(answer: Answer) -> dict[str, tuple[float | None, float | None]]:
    """Change of the main metric (a fraction of it) with 10 % less and with 10 % more of each figure of the hardware.

    Read off the ledger. ``elastic`` seconds of a resource are t dT/dt, losses handed on to what they are made of; x times the
    resource takes 1/x of them:

        T(x) / T = 1 - e + e / x,     e the elastic share

    That is exact to first order in the change, and exact while no overlap changes sides; a time that is hidden now and would show
    counts nothing. Of the capacity of memory it says whether the plan still fits (None where not).
    """
    ledger, memory = answer.ledger, answer.memory
    if ledger is None or not ledger.seconds:
        return {}
    elastic = ledger.resources()
    found: dict[str, tuple[float | None, float | None]] = {}
    for name, figure in _FIGURES.items():
        if not (resources := figure.get("resources")):
            continue
        share = float(math.fsum(elastic.get(resource, 0.0) for resource in resources) / ledger.seconds)
        told = figure.get("told", "always" if any(each in elastic for each in resources) else "")
        if told == "always" or share >= NEGLIGIBLE:
            times = [1 - share + share / factor for factor in (1 - _STEP, 1 + _STEP)]
            less, more = (time - 1 if answer.main in LOWER_IS_BETTER else 1 / time - 1 for time in times)
            found[name] = (less, more)
    if memory is not None:
        short = answer.feasible and memory.used > (1 - _STEP) * memory.capacity
        found["memory_capacity"] = (None if short else 0.0, 0.0)
    return found
