"""Fits the constants of serving engines on public runs.

    python -m mlsysim.calibrate.fit_serving FOLDER [ENGINE ...]

FOLDER holds ``serving_runs.csv`` and ``inference.csv``. For each engine the constants of ``data/software/engines.toml`` are moved in
turn, by factors that shrink, as long as the mean absolute logarithm of predicted over measured falls; nothing is random.
Printed: the constants, the errors in sample, and the errors with each chip and each model left out of the fit in turn.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.prediction import Excluded, Skipped
from mlsysim.calibrate.questions import predicted
from mlsysim.calibrate.tables import inference, serving_runs
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.timing.engines import Engine, engine, trying

__all__ = ["errors", "fit", "main"]

CONSTANTS = (
    "step",
    "per_sequence",
    "small_kernels",
    "host_operator",
    "prefill_step",
    "front_end",
    "hand_over",
    "cold_start",
)
_LEAST = {
    "step": 2e-5,
    "per_sequence": 1e-6,
    "small_kernels": 0.5,
    "expert_block": 4e-6,
    "reduce_scale": 0.5,
    "host_operator": 1e-6,
    "prefill_step": 2e-4,
    "front_end": 1e-3,
    "cold_start": 0.5,
    "hand_over": 5e-3,
}
_SERVING = ("vLLM", "SGLang", "TensorRT_LLM")
_TTFT_WEIGHT = 0.4
_CAP = (0.25, 0.6)
"""Errors beyond these count no more: rows whose settings are not what they say would steer the fit."""

Row = dict[str, str]


def _runs(folder: Path) -> list[Row]:
    rows = []
    with (folder / "serving_runs.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if not row["duplicate_of"] and not row["unusable"]:
                rows.append(row)
    return rows


def _offline(folder: Path) -> list[Row]:
    with (folder / "inference.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def errors(rows: Sequence[Row], candidate: Engine) -> Any:
    """Logarithms of predicted over measured: a column for each metric of the rows (one where there is one)."""
    found = []
    for row in rows:
        try:
            reader = serving_runs if "tpot_ms" in row else inference
            with trying(candidate):
                values = [predicted(question, evaluate_plainly) for question in reader.read(row)]
            found.append(tuple([math.log(v.predicted / v.measured) for v in values] + [0.0])[:2])
        except (Skipped, Excluded):
            continue
    return np.array(found)


def _loss(rows: Sequence[Row], candidate: Engine) -> float:
    e = np.minimum(np.abs(errors(rows, candidate)), _CAP)
    if not len(e):
        return 0.0
    return float(np.mean(e[:, 0]) + _TTFT_WEIGHT * np.mean(e[:, 1]))


def fit(rows: Sequence[Row], start: Engine, names: Sequence[str] = CONSTANTS, passes: int = 3) -> Engine:
    """Coordinate descent from ``start``."""
    best, value = start, _loss(rows, start)
    factor = 1.6
    for _ in range(passes):
        for name in names:
            for direction in (factor, 1 / factor):
                while True:
                    now = max(getattr(best, name), _LEAST[name])
                    moved = now * direction
                    if moved < _LEAST[name] * 0.99:
                        moved = 0.0
                    if moved == getattr(best, name):
                        break
                    trial = best.model_copy(update={name: moved})
                    loss = _loss(rows, trial)
                    if loss >= value - 1e-5:
                        break
                    best, value = trial, loss
                    if moved == 0.0:
                        break
        factor = factor**0.5
    return best


def summary(e: Any) -> str:
    """Median, 90th percentile and bias in per cent, for each metric."""
    parts = []
    for column in range(e.shape[1]):
        if not np.any(e[:, column]):
            continue
        signed = 100 * (np.exp(e[:, column]) - 1)
        parts.append(
            f"{np.median(np.abs(signed)):5.1f} / {np.percentile(np.abs(signed), 90):4.0f} / {np.median(signed):+4.0f}"
        )
    return "   ".join(parts) + f"   n={len(e)}"


def left_out(
    rows: Sequence[Row], start: Engine, key: Callable[[Row], str], names: Sequence[str], passes: int = 1
) -> Any:
    """Errors of each group's rows under constants fitted without them."""
    found = []
    for group in sorted({key(row) for row in rows}):
        rest = [row for row in rows if key(row) != group]
        if not rest:
            continue
        found.append(errors([row for row in rows if key(row) == group], fit(rest, start, names, passes)))
    return np.concatenate(found) if found else np.empty((0, 2))


_OFFLINE: dict[str, tuple[Callable[[Row], bool], tuple[str, ...]]] = {
    "TensorRT_LLM_Cpp": (
        lambda row: row["scenario"] == "max-throughput offline" and row["source"] in ("trtllm-0.11.0", "trtllm-0.14"),
        ("step", "per_sequence", "small_kernels", "reduce_scale"),
    ),
    "TensorRT_LLM_Cpp_2025": (
        lambda row: row["scenario"] == "max-throughput offline" and row["source"] == "trtllm-0.17",
        ("step", "per_sequence", "small_kernels", "reduce_scale"),
    ),
    "TensorRT_LLM_2025": (
        lambda row: row["scenario"] == "max-throughput offline" and row["source"] in ("trtllm-0.19", "trtllm-0.21"),
        ("step", "per_sequence", "small_kernels", "reduce_scale"),
    ),
    "vLLM_2025": (
        lambda row: row["metric"] == "itl_median",
        ("step", "per_sequence", "small_kernels", "expert_block"),
    ),
    "gpt_fast": (lambda row: row["metric"] == "decode_tokens_per_s", ("step", "small_kernels", "expert_block")),
}


def main(arguments: Sequence[str]) -> int:
    """Fit the engines named (all, if none is)."""
    folder = Path(arguments[0])
    wanted = list(arguments[1:]) or [*_SERVING, *_OFFLINE]
    runs, offline = _runs(folder), _offline(folder)
    for name in wanted:
        start = engine(name)
        if name in _OFFLINE:
            chosen, names = _OFFLINE[name]
            rows = [row for row in offline if chosen(row)]
        else:
            rows, names = [row for row in runs if engine(row["engine"]).name == name], CONSTANTS
        found = fit(rows, start, names)
        print(f"[{name}]")
        for constant in names:
            print(f"{constant} = {getattr(found, constant):.4g}")
        print(f"# before     {summary(errors(rows, start))}")
        print(f"# in sample  {summary(errors(rows, found))}")
        print(f"# chip out   {summary(left_out(rows, found, lambda row: row['gpu'], names))}")
        print(f"# model out  {summary(left_out(rows, found, lambda row: row['model'], names))}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
