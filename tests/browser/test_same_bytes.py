"""Simulated answers in the browser's Python (Pyodide, another release, another C library, 32 bits) are those of this one, byte for byte."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError
from mlsysim.labs import build
from mlsysim.labs.bytecode import NEEDED, SITE
from mlsysim.labs.fetch import fetch, pins
from mlsysim.labs.package import Files, archive, our_files, their_files
from mlsysim.plans.evaluate import evaluate
from tests.browser.conftest import unavailable

DRAWN = {"prompt_tokens": 1000, "output_tokens": 200, "seed": 0, "requests": 400, "length_cv": 1.0}
ASKED: list[dict[str, Any]] = [
    {"hardware": {"on": "H100"}, "serving": DRAWN | {"qps": 5, "burst": 4}},
    {"hardware": {"on": "H100"}, "serving": {"trace": "azure-code", "requests": 1000}},
    {"hardware": {"on": "4xH100"}, "serving": DRAWN | {"qps": 25, "autoscale": "1:4", "slo": "ttft_p99=300ms"}},
    {"hardware": {"on": "4xH100"}, "serving": DRAWN | {"concurrency": 64, "router": "least_work"}},
    {"hardware": {"on": "2xH100"}, "serving": DRAWN | {"qps": 5, "decode_on": "2xH200"}},
]
ASKS = """
import createPyodideModule from "./pyodide.asm.js";
import { readFileSync, writeFileSync } from "node:fs";
import { loadPyodide } from "./pyodide.js";
const env = { HOME: "/home/pyodide", PYTHONHASHSEED: "0", MLSYSIM_ZOO: "" };
const python = await loadPyodide({ createPyodideModule, env });
for (const name of ["site.zip", "asked.json"]) python.FS.writeFile(`/${name}`, readFileSync(name));
python.runPython(`
import importlib
import json
import zipfile
from pathlib import Path

zipfile.ZipFile("/site.zip").extractall("PLACE")
importlib.invalidate_caches()
from mlsysim.plans.evaluate import evaluate

asked = json.loads(Path("/asked.json").read_text())
Path("/told.json").write_text(json.dumps([json.dumps(evaluate(each, change=False).to_dict()) for each in asked]))
`);
writeFileSync("told.json", python.FS.readFile("/told.json"));
"""


def _written(folder: Path) -> None:
    """Python for Node.js, and what it imports."""
    runtime: Files = {}
    installed = our_files()
    try:
        for pin in pins():
            content = fetch(pin, None)
            if pin.from_npm:
                runtime |= build._runtime(content, pin)
            else:
                installed |= their_files(content)
    except InputError as error:
        unavailable(str(error))
    made = {name: runtime[name] for name in NEEDED} | {"site.zip": archive(installed)}
    asked = [each | {"task": "serving", "model": "Llama3_8B"} for each in ASKED]
    made |= {"asked.json": json.dumps(asked).encode(), "asks.mjs": ASKS.replace("PLACE", SITE).encode()}
    for name, content in (made | {"package.json": b'{"type": "module"}'}).items():
        (folder / name).write_bytes(content)


def test_simulated_answers_are_the_same_bytes_in_the_browsers_python(tmp_path) -> None:
    node = shutil.which("node")
    if node is None:
        unavailable("there is no Node.js")
    _written(tmp_path)
    done = subprocess.run([str(node), "asks.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert not done.returncode, done.stderr[-2000:]
    told = json.loads((tmp_path / "told.json").read_text())
    for asked, there in zip(json.loads((tmp_path / "asked.json").read_text()), told, strict=True):
        assert json.dumps(evaluate(asked, change=False).to_dict()) == there, asked["serving"]
