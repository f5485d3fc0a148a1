"""The core imports and computes where there is no NumPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mlsysim

CORE = [
    "errors",
    "units",
    "physics",
    "zoo",
    "hardware",
    "models",
    "infra",
    "systems",
    "timing",
    "cases",
    "simulate",
    "walls",
    "engine",
    "core",
    "show",
]

SCRIPT = """
import importlib, importlib.abc, json, pkgutil, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "scipy", "pandas", "torch"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())

import mlsysim

imported = []
for module in pkgutil.walk_packages(mlsysim.__path__, "mlsysim."):
    if module.name.split(".")[1] in CORE:
        importlib.import_module(module.name)
        imported.append(module.name)

from mlsysim import Grids, Hardware, Models, Q_, Systems
from mlsysim.physics.roofline import roofline_time
from mlsysim.units.kernel import KERNELS, evaluate, prove

for signature in KERNELS.values():
    prove(signature)
time = evaluate(roofline_time, operations="141.2 GFLOP", moved="141.2 GB", peak="989 TFLOPs/s",
                bandwidth="3.35 TB/s", efficiency=0.5)["time"]
graph = Models.Llama3_70B.lower()
print(json.dumps({
    "imported": imported,
    "numpy": "numpy" in sys.modules,
    "kernels": len(KERNELS),
    "time_ms": time.to("ms").magnitude,
    "ridge": Hardware.H100.ridge_point().magnitude,
    "weights_gb": graph.weight_bytes.to("GB").magnitude,
    "accelerators": Systems.Clusters.Frontier_8K.total_accelerators,
    "carbon_kg": Grids.Quebec.carbon_kg(1000),
}))
"""


def test_core_runs_without_numpy():
    environment = {**os.environ, "PYTHONPATH": str(Path(mlsysim.__file__).parents[1])}
    run = subprocess.run(
        [sys.executable, "-c", f"CORE = {CORE!r}\n{SCRIPT}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert not answer["numpy"]
    assert {"mlsysim.units.ops", "mlsysim.systems.registry", "mlsysim.show"} <= set(answer["imported"])
    assert answer["kernels"] >= 8
    assert abs(answer["time_ms"] - 42.149) < 1e-3
    assert abs(answer["ridge"] - 295.2) < 0.05
    assert abs(answer["weights_gb"] - 141.2) < 0.1
    assert answer["accelerators"] == mlsysim.Systems.Clusters.Frontier_8K.total_accelerators
    assert abs(answer["carbon_kg"] - 20) < 1e-9
