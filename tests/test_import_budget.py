"""Importing is cheap: a ratio of CPU times, and no data file opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlsysim

BUDGET = 1.5
ROUNDS = 5


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(mlsysim.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600).stdout


def cpu_time(statement: str) -> float:
    return float(run(f"import time\nstart = time.process_time()\n{statement}\nprint(time.process_time() - start)"))


@pytest.mark.parametrize(
    "statement",
    ["import mlsysim", "from mlsysim import Q_, InputError"],
    ids=["import", "units"],
)
def test_cpu_time_of_the_import(statement):
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(cpu_time("import pint, pydantic"))
        ours.append(cpu_time(statement))
    assert min(ours) <= BUDGET * min(theirs), f"{min(ours):.3f} s against {min(theirs):.3f} s for pint and pydantic"


WATCH = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
{statement}
print(json.dumps({{"data": [p for p in opened if p.endswith((".toml", ".json", ".csv"))],
                  "saw_files": len(opened), "tomllib": "tomllib" in sys.modules}}))
"""


def watch(statement: str) -> dict[str, object]:
    return json.loads(run(WATCH.format(statement=statement)))


def test_import_parses_no_toml():
    seen = watch("import mlsysim\ndir(mlsysim)\nmlsysim.__all__")
    assert seen["saw_files"]
    assert seen["data"] == [] and seen["tomllib"] is False


def test_naming_a_registry_opens_no_data():
    seen = watch("from mlsysim import Hardware, Models, Grids, Systems, Q_, Fleet")
    assert seen["data"] == []


def test_one_entry_opens_the_data_of_its_own_zoo_only():
    data = watch("from mlsysim import Grids\nGrids.Quebec")["data"]
    assert data, "the audit hook must see data files when they are opened"
    assert {Path(path).parts[-3] for path in data} == {"infra"}


def test_an_answer_about_a_model_of_the_zoo_loads_no_reader_of_configurations():
    code = """
import sys
from mlsysim.cli.main import main
sys.argv = ["mlsysim", "eval", "Llama3_8B", "H100", "--json"]
try:
    main()
finally:
    print([name for name in sys.modules if name.startswith(("mlsysim.importers.hf", "mlsysim.importers.decoder", "mlsysim.simulate"))])
"""
    assert run(code).splitlines()[-1] == "[]"
