"""Refits TensorRT's shares and the microcontroller tables of ``data/software/runtimes.toml`` from ``vision.csv``, and prints them.

    python -m mlsysim.calibrate.fit_engines FOLDER

MLPerf offline results by GPU generation, then with one chip left out; MLPerf Tiny results, then with one board left out: median / p90 /
bias in per cent.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, report, sums
from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.questions import Skipped
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
        counted = row["metric"] == "offline_samples_per_s" and row["model"] in TASKS and row["n_devices"]
        if not counted or "TensorRT" not in row["notes"]:
            continue
        chip = Hardware.get(row["device"])
        inventory, passes = task_inventory(row["model"])
        features = engine_features(inventory, chip)
        cost = [passes * features[name] / clock_of(chip) for name in TERMS]
        data[chip.generation or ""].append((chip.name, cost, float(row["n_devices"]) / float(row["value"])))
    for generation, found in sorted(data.items()):
        chips, terms, times = (np.array(column) for column in zip(*found, strict=True))
        rows_of = Columns(chip=chips, terms=terms, measured=times)
        values, _, _ = report(f"tensorrt {generation}", rows_of, *sums(START, PULL), "chip")
        print({n: round(float(v if n == "bytes" else 1 / v), 3) for n, v in zip(TERMS, values, strict=True)})


def rates(rows: Columns) -> tuple[dict[str, float], ...]:
    """Logarithms of core, shape and runtime by repeated medians; the shape "depthwise" and the runtime "default" are one."""
    tables: tuple[dict[str, float], ...] = tuple(defaultdict(float) for _ in range(3))
    labels = (rows.core.tolist(), rows.shape.tolist(), rows.runtime.tolist())
    for _ in range(ROUNDS):
        for i, table in enumerate(tables):
            left = rows.rate - sum(np.array([tables[j][key] for key in labels[j]]) for j in range(3) if j != i)
            for key in sorted(set(labels[i])):
                table[key] = float(np.median(left[np.array(labels[i]) == key]))
        for table, anchor in ((tables[1], "depthwise"), (tables[2], "default")):
            shift = table.get(anchor, 0.0)
            for key in table:
                table[key] -= shift
            for key in tables[0]:
                tables[0][key] += shift
    return tables


def errors(rows: Columns, tables: tuple[dict[str, float], ...]) -> Any:
    """Of the rows whose core is known."""
    known = rows.where(np.array([core in tables[0] for core in rows.core.tolist()]))
    found = [
        [table.get(key, 0.0) for key in labels.tolist()]
        for table, labels in zip(tables, (known.core, known.shape, known.runtime), strict=True)
    ]
    return np.expm1(np.sum(found, axis=0) - known.rate)


def fit_microcontrollers(rows: list[dict[str, str]]) -> None:
    """Multiply-adds a cycle by core, shape and runtime."""
    found = []
    for row in rows:
        if row["metric"] != "inferences_per_s" or "_float" in row["device"]:
            continue
        with suppress(Skipped, MLSysError):
            (target, _), model = board_of(row), Models.get(row["model"])
            rate = model.flops_per_sample / 2 * float(row["value"]) / target.clock
            found.append((target.name, target.core, shape_of(model), runtime_of(row, target), float(np.log(rate))))
    names = ("board", "core", "shape", "runtime", "rate")
    table = Columns(**{name: np.array(column) for name, column in zip(names, zip(*found, strict=True), strict=True)})
    tables, _, _ = report("microcontrollers", table, rates, errors, "board")
    for label, values in zip(("cores", "shapes", "runtimes"), tables, strict=True):
        print(f"  {label}", {key: round(float(np.exp(value)), 3) for key, value in values.items()})


def main(arguments: list[str]) -> None:
    """Fit and print."""
    rows = table_rows(Path(arguments[0]) / "vision.csv")
    fit_tensorrt([r for r in rows if r["source"].startswith("mlperf-inference")])
    fit_microcontrollers([r for r in rows if r["task"] == "infer-mcu"])


if __name__ == "__main__":
    main(sys.argv[1:])
