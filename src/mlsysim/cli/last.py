"""The answer to a plan, which is kept so that ``explain`` can be asked about it afterwards."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from mlsysim.cli.output import playing
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan
from mlsysim.plans.plan import Plan
from mlsysim.zoo.writing import write_whole


def _file() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "mlsysim" / "last.json"


def answered(plan: Plan, change: bool = True) -> Answer:
    """The answer to a plan, which is kept."""
    with busy("evaluating ...") as say, playing(say):
        answer = evaluate(plan, change=change)
    remember(plan)
    return answer


def remember(plan: Plan) -> None:
    """Keep a plan; a read-only home is no reason to fail."""
    with suppress(InputError):
        write_whole(_file(), json.dumps(plan.document()), folders=True)


def recall() -> Plan:
    """The plan of the last answer."""
    try:
        return load_plan(_file())
    except InputError:
        raise InputError(
            "There is no last answer to explain; ask one first, such as `mlsysim train Llama3_70B --on 512xH100`."
        ) from None
