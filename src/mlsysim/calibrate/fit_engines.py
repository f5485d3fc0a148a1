"""Refits TensorRT's shares and the microcontroller tables of ``data/software/runtimes.toml`` from ``vision.csv``, and prints them.

    python -m mlsysim.calibrate.fit_engines FOLDER

MLPerf offline results by GPU generation, then with one chip left out; MLPerf Tiny results, then with one board left out: median / p90 /
bias in per cent.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.additive import errors_of, evaluate_sum, fit_sum, line
from mlsysim.calibrate.prediction import Skipped
from mlsysim.calibrate.tables.vision import board_of, runtime_of, task_inventory
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_rates import engine_features
from mlsysim.timing.microcontroller import shape_of
from mlsysim.timing.vision_time import clock_of

TASKS = ("resnet50", "retinanet", "bert-99", "stable-diffusion-xl")
TERMS = ("conv", "gemm", "attention", "bytes")
START = (2.5, 1.25, 4.0, 0.5)
PULL = (0.5, 1e4, 0.5, 0.5)
ROUNDS = 60


def fit_tensorrt(rows: list[dict[str, str]]) -> None:
    """Shares of each generation from the tasks whose operations are counted."""
    data: dict[str, list[tuple[str, list[float], float]]] = defaultdict(list)
    for row in rows:
        if row["metric"] != "offline_samples_per_s" or row["model"] not in TASKS or not row["n_devices"]:
            continue
        if "TensorRT" not in row["notes"]:
            continue
        chip = Hardware.get(row["device"])
        inventory, passes = task_inventory(row["model"])
        features = engine_features(inventory, chip)
        terms = [passes * features[name] / clock_of(chip) for name in TERMS]
        data[chip.generation or ""].append((chip.name, terms, float(row["n_devices"]) / float(row["value"])))
    for generation, found in sorted(data.items()):
        chips = np.array([name for name, _, _ in found])
        x, y = np.array([t for _, t, _ in found]), np.array([v for _, _, v in found])
        values = fit_sum(x, y, START, PULL)
        shares = {n: round(float(v if n == "bytes" else 1 / v), 3) for n, v in zip(TERMS, values, strict=True)}
        print(f"tensorrt {generation:14s}", line(errors_of(evaluate_sum(x, values), y)), shares)
        out = []
        for chip in sorted(set(chips.tolist())):
            inside = chips == chip
            if not inside.all():
                out.append(errors_of(evaluate_sum(x[inside], fit_sum(x[~inside], y[~inside], START, PULL)), y[inside]))
        if out:
            print("         one chip out  ", line(np.concatenate(out)))


def _additive(rows: list[Any]) -> tuple[dict[str, float], ...]:
    """Logarithms of core, shape and runtime by repeated medians; the shape "depthwise" and the runtime "default" are one."""
    tables: tuple[dict[str, float], ...] = tuple(defaultdict(float) for _ in range(3))
    for _ in range(ROUNDS):
        for i, table in enumerate(tables):
            for key in sorted({row[i] for row in rows}):
                left = [
                    row[3] - sum(t[row[j]] for j, t in enumerate(tables) if j != i) for row in rows if row[i] == key
                ]
                table[key] = float(np.median(left))
        for table, anchor in ((tables[1], "depthwise"), (tables[2], "default")):
            shift = table.get(anchor, 0.0)
            for key in table:
                table[key] -= shift
            for key in tables[0]:
                tables[0][key] += shift
    return tables


def fit_microcontrollers(rows: list[dict[str, str]]) -> None:
    """Multiply-adds a cycle by core, shape and runtime."""
    found, boards = [], []
    for row in rows:
        if row["metric"] != "inferences_per_s" or "_float" in row["device"]:
            continue
        try:
            (target, _), model = board_of(row), Models.get(row["model"])
        except (Skipped, MLSysError):
            continue
        rate = model.flops_per_sample / 2 * float(row["value"]) / target.clock
        found.append((target.core, shape_of(model), runtime_of(row, target), float(np.log(rate))))
        boards.append(target.name)

    def errors(test: Any, tables: tuple[dict[str, float], ...]) -> list[float]:
        return [float(np.expm1(sum(t.get(r[j], 0.0) for j, t in enumerate(tables)) - r[3])) for r in test]

    tables = _additive(found)
    print("microcontrollers        ", line(np.array(errors(found, tables))))
    out = []
    for name in sorted(set(boards)):
        rest = [r for r, b in zip(found, boards, strict=True) if b != name]
        test = [r for r, b in zip(found, boards, strict=True) if b == name and r[0] in {q[0] for q in rest}]
        out += errors(test, _additive(rest))
    print("  one board out         ", line(np.array(out)))
    for label, table in zip(("cores", "shapes", "runtimes"), tables, strict=True):
        print(f"  {label}", {key: round(float(np.exp(value)), 3) for key, value in table.items()})


def main(arguments: list[str]) -> None:
    """Fit and print."""
    with (Path(arguments[0]) / "vision.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    fit_tensorrt([r for r in rows if r["source"].startswith("mlperf-inference")])
    fit_microcontrollers([r for r in rows if r["task"] == "infer-mcu"])


if __name__ == "__main__":
    main(sys.argv[1:])
