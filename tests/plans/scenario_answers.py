"""The scenarios that ship and their whole answers, each asked once for all tests that read it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mlsysim
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan

SCENARIOS = sorted((Path(mlsysim.__file__).parent / "examples" / "scenarios").glob("*.toml"))


@cache
def scenario_answer(path: Path) -> Answer:
    return evaluate(load_plan(path))
