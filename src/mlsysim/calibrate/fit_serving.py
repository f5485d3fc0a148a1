"""Fits the constants of serving engines on public runs.

    python -m mlsysim.calibrate.fit_serving FOLDER [ENGINE ...]

FOLDER holds ``serving_runs.csv`` and ``inference.csv``. For each engine the constants of ``data/software/engines.toml`` are moved in
turn, by factors that shrink, as long as the mean absolute logarithm of predicted over measured falls; nothing is random.
Printed: the constants, the errors in sample, and the errors with each chip and each model left out of the fit in turn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, descend, line, report, table_of
from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.questions import Excluded, Skipped, predicted
from mlsysim.calibrate.tables import TABLES
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.timing.engines import Engine, engine, trying

_LEAST = table_of("engine_least")
_STEPS = ("step", "per_sequence", "small_kernels")
_SERVING = (*_STEPS, "host_operator", "waited_operator", "front_end", "tokenise", "cold_start")
_SATURATED: dict[str, tuple[str, ...]] = {"scenario": ("max-throughput offline",)}
ENGINES: dict[str, tuple[dict[str, tuple[str, ...]], tuple[str, ...]]] = {
    **dict.fromkeys(("vLLM", "SGLang", "TensorRT_LLM"), ({}, _SERVING)),
    "TensorRT_LLM_Cpp": (_SATURATED | {"source": ("trtllm-0.11.0", "trtllm-0.14")}, (*_STEPS, "reduce_scale")),
    "TensorRT_LLM_Cpp_2025": (_SATURATED | {"source": ("trtllm-0.17",)}, (*_STEPS, "reduce_scale")),
    "TensorRT_LLM_2025": (_SATURATED | {"source": ("trtllm-0.19", "trtllm-0.21")}, (*_STEPS, "reduce_scale")),
    "vLLM_2025": ({"metric": ("itl_median",)}, (*_STEPS, "expert_block")),
    "gpt_fast": ({"metric": ("decode_tokens_per_s",)}, ("step", "small_kernels", "expert_block")),
}
"""Engines with the rows of ``inference.csv`` that are theirs (none: their own runs), and the constants that these move."""
_TTFT_WEIGHT = 0.4
_CAP = (0.25, 0.6)
"""Errors beyond these count no more: rows whose settings are not what they say would steer the fit."""


def logarithms(rows: Columns, candidate: Engine) -> Any:
    """Logarithms of predicted over measured: a column for each metric of the rows (zero where there is one)."""
    found = []
    for row in rows.row:
        table = TABLES["serving_runs" if "tpot_ms" in row else "inference"]
        with suppress(Skipped, Excluded), trying(candidate):
            values = [predicted(question, evaluate_plainly) for question in table.questions(row)]
            found.append([*(math.log(v.predicted / v.measured) for v in values), 0.0][:2])
    return np.array(found).reshape(-1, 2)


def _loss(rows: Columns, candidate: Engine) -> float:
    e = np.minimum(np.abs(logarithms(rows, candidate)), _CAP)
    return float(np.mean(e[:, 0]) + _TTFT_WEIGHT * np.mean(e[:, 1])) if len(e) else 0.0


def fit(rows: Columns, start: Engine, names: Sequence[str], passes: int = 3) -> Engine:
    """Coordinate descent from ``start``, by factors that shrink."""
    values = {name: getattr(start, name) for name in names}
    factor = 1.6

    def step(name: str, value: float, up: bool) -> float:
        moved = max(value, _LEAST[name]) * (factor if up else 1 / factor)
        return moved if moved >= _LEAST[name] * 0.99 else 0.0

    for _ in range(passes):
        values = descend(values, step, lambda v, _: _loss(rows, start.model_copy(update=v)), 1e-5)
        factor = factor**0.5
    return start.model_copy(update=values)


def shown(e: Any) -> str:
    """Median, 90th percentile and bias in per cent, for each metric."""
    return "   ".join(line(np.expm1(column)) for column in e.T if np.any(column))


def fit_engine(name: str, rows: Columns, names: Sequence[str]) -> None:
    """Fit an engine's constants to rows, and print them with their errors; what is left out is refitted from there."""
    start = engine(name)
    found = fit(rows, start, names)
    print(f"{name:24s} {'before':32s} {shown(logarithms(rows, start))}")
    report(
        name, rows, lambda c: found if c is rows else fit(c, found, names, 1), logarithms, "gpu", "model", text=shown
    )
    for constant in names:
        print(f"{constant} = {getattr(found, constant):.4g}", flush=True)


def main(arguments: Sequence[str]) -> None:
    """Fit the engines named (all, if none is)."""
    folder = Path(arguments[0])
    runs = [r for r in table_rows(folder / "serving_runs.csv") if not r["duplicate_of"] and not r["unusable"]]
    offline = table_rows(folder / "inference.csv")
    for name in list(arguments[1:]) or ENGINES:
        chosen, names = ENGINES[name]
        rows = [row for row in runs if engine(row["engine"]).name == name]
        if chosen:
            rows = [row for row in offline if all(row[key] in allowed for key, allowed in chosen.items())]
        fit_engine(name, Columns.of([(row, row["gpu"], row["model"]) for row in rows], "row", "gpu", "model"), names)


if __name__ == "__main__":
    main(sys.argv[1:])
