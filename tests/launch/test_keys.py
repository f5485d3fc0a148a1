"""Launch files are read into keys of a plan: every path that a reader or writer names is one."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from mlsysim.plans.plan import Plan

ROOM = Path(str(files("mlsysim.launch")))
PATH = re.compile(r'"((?:workload|hardware|parallelism|serving|ops)(?:\.[a-z_]+)+)"')


def test_every_path_is_a_key_of_a_plan() -> None:
    # torchtitan's own configuration has a table called parallelism.
    ours = [file for file in ROOM.glob("*.py") if file.name != "torchtitan.py"]
    named = {path: file.name for file in ours for path in PATH.findall(file.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert {path: file for path, file in named.items() if path not in Plan.leaves()} == {}
