"""The answer to a plan, which is kept so that ``explain`` can be asked about it afterwards."""

from __future__ import annotations

import json
import os
from pathlib import Path

from mlsysim.cli.output import busy
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

_LARGEST = 1_000_000


def _file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "mlsysim" / "last.json"


def answered(plan: Plan, change: bool = True) -> Answer:
    """The answer to a plan, which is kept."""
    with busy("evaluating ..."):
        answer = evaluate(plan, change=change)
    remember(plan)
    return answer


def remember(plan: Plan) -> None:
    """Keep a plan; a read-only home is no reason to fail."""
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting = path.with_suffix(f".{os.getpid()}")
        waiting.write_text(json.dumps(plan.document()), encoding="utf-8")
        waiting.replace(path)
    except OSError:
        return


def recall() -> Plan:
    """The plan of the last answer."""
    path = _file()
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError
        return Plan.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise InputError(
            "There is no last answer to explain; ask one first, such as `mlsysim train Llama3_70B --on 512xH100`."
        ) from None
