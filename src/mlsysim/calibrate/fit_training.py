"""Fit the free constants of the calibrated training step to published runs: ``python -m mlsysim.calibrate.fit_training FILE.csv``.

A deterministic coordinate search over the constants of :data:`FREE` (of every run, of a stack, or of a chip; never of a
source, a model or a row). The loss is the mean absolute logarithm of predicted over measured, each cut at 30 % so that
rows with an unknown cause do not pull; rows with the same settings count as one. Prints figures in sample and with one
chip, one model or one source left out, and with ``--write`` puts the values into the data files. ``--stack NAME`` fits a
stack's own constants (table ``training_NAME``) to its rows alone.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, descend, line, report, summary, table_of
from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.questions import Excluded, Skipped, predicted
from mlsysim.calibrate.tables import TABLES
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.timing import profile, stacks, training_chip

FREE: dict[str, tuple[float, float, float]] = table_of("training")
"""Free constants: where the search starts, and the range in which each is searched."""

_CUT = 0.3
_GROUPS, _FEWEST = ("chip", "model", "source"), 4
"""By what rows are left out; groups of fewer rows leave together."""
_KEY = (
    *("model", "gpu", "n_gpus", "tp", "pp", "cp", "ep", "virtual_stages", "microbatch", "global_batch", "seq"),
    *("precision", "recompute"),
)
_REACHED = {"median_error": "median", "p90_error": "p90", "bias": "bias"}
_TIMES = ("iteration_time", "step_time", "gpu_hours_per_trillion_tokens")


def read_rows(path: Path, stack: str | None = None) -> Columns:
    """Time rows that can be predicted; those with the same settings share one vote, and rare groups go by one name. Of one stack, where it is named."""
    found = []
    for row in table_rows(path):
        with suppress(Skipped, Excluded):
            if "memory" not in row["reported_metric"]:
                (question,) = TABLES["training"].questions(row)
                if stack not in (None, question.plan.hardware.stack):
                    continue
                predicted(question)
                source = re.sub(r"-\d\d\.\d\d.*$", "", row["source"])
                setting = (*(row.get(name) for name in _KEY), source, row["notes"][:10])
                found.append((question, setting, row["gpu"], row["model"], source))
    rows = Columns.of([(question, 1.0, *groups) for question, _, *groups in found], "question", "weight", *_GROUPS)
    votes = Counter(setting for _, setting, *_ in found)
    rows.weight = np.array([1.0 / math.sqrt(votes[setting]) for _, setting, *_ in found])
    for column in _GROUPS:
        counts = Counter(getattr(rows, column).tolist())
        names = [name if counts[name] >= _FEWEST else "others" for name in getattr(rows, column).tolist()]
        setattr(rows, column, np.array(names))
    return rows


def get(path: str) -> float:
    """The present value of a constant."""
    table, key = _place(path)
    return float(table[key])


def put(values: Mapping[str, float]) -> None:
    """Change constants for this process."""
    for path, value in values.items():
        table, key = _place(path)
        table[key] = value
    for cached in (training_chip.constants, profile._build, stacks.stack):
        cached.cache_clear()


def _place(path: str) -> tuple[dict[str, Any], str]:
    kind, name, *rest = path.split(".")
    if kind == "constants":
        return profile.software_file("training")["constants"][name], "value"
    if kind == "stacks":
        return stacks._tables()[name], rest[0]
    tables = profile._tables("") if kind == "classes" else profile.software_file("training")["profile"]["training"]
    table = tables[name]
    for key in rest[:-1]:
        table = table[key]
    return table, rest[-1]


def logarithms(rows: Columns) -> Any:
    """Logarithm of predicted over measured speed, row by row."""
    found = [predicted(question, evaluate_plainly) for question in rows.question]
    ratios = [math.log(p.predicted / p.measured) for p in found]
    return np.array([-ratio if p.metric in _TIMES else ratio for p, ratio in zip(found, ratios, strict=True)])


def loss(rows: Columns) -> float:
    """Weighted mean absolute logarithm, each cut."""
    return float(np.sum(rows.weight * np.minimum(np.abs(logarithms(rows)), _CUT)) / np.sum(rows.weight))


def fit(rows: Columns, rounds: int) -> dict[str, float]:
    """Coordinate search with shrinking steps, always from the same start, so that nothing of other rows is left in it."""
    values = {name: start for name, (start, _, _) in FREE.items()}
    put(values)
    touched = {name: _touched(rows, name) for name in FREE}

    def tried(trial: dict[str, float], name: str) -> float:
        put(trial)
        return loss(touched[name]) if len(touched[name].weight) else 0.0

    for turn in range(rounds):

        def step(name: str, value: float, up: bool, share: float = 0.16 / 2**turn) -> float:
            _, low, high = FREE[name]
            moved = min(max(value + (1.0 if up else -1.0) * share * (high - low), low), high)
            return moved if len(touched[name].weight) else value

        values = descend(values, step, tried, 1e-6)
    return values


def _touched(rows: Columns, name: str) -> Columns:
    """Rows whose prediction moves with a constant."""
    before, old, (_, low, high) = logarithms(rows), get(name), FREE[name]
    put({name: old + 0.07 * (high - low) if old < (low + high) / 2 else old - 0.07 * (high - low)})
    after = logarithms(rows)
    put({name: old})
    return rows.where(np.abs(before - after) > 1e-4)


def errors(rows: Columns, values: Mapping[str, float]) -> Any:
    """Signed relative errors under these constants, which stay."""
    put(values)
    return np.expm1(logarithms(rows))


def write(values: Mapping[str, float], folder: Path) -> None:
    """Put values into the data files, in place."""
    files = {"stacks": "software/stacks.toml", "classes": "profiles/classes.toml"}
    for path, value in values.items():
        kind, name, *rest = path.split(".")
        file = folder / files.get(kind, "software/training.toml")
        header = (
            name if kind in files else {"fit": kind, "profile": f"profile.training.{name}"}.get(kind, f"{kind}.{name}")
        )
        key = name if kind == "fit" else rest[-1] if rest else "value"
        text = file.read_text(encoding="utf-8")
        start = text.index(f"\n[{header}]\n") + 1
        end = (text + "\n[").find("\n[", start)
        # A constant of a profile stands in the inline table of its group.
        before = re.escape(".".join(rest[:-1])) + r" = \{.*?\b" if kind in ("profile", "classes") else ""
        line = rf"(?m)^({before}){key} = [^,}}\n]*"
        section = re.sub(line, rf"\g<1>{key} = {value:.4g}", text[start:end], count=1)
        file.write_text(text[:start] + section + text[end:], encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print, and with ``--write`` keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--stack", help="fit the constants of this stack alone")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="write the constants into the package's data files")
    parser.add_argument("--leave-out", action="store_true", help="also refit without each chip, model and source")
    options = parser.parse_args(arguments)
    if options.stack:
        FREE.clear()
        FREE.update(table_of(f"training_{options.stack}"))
    rows = read_rows(options.table, options.stack)
    print("before", line(errors(rows, {})))
    groups = _GROUPS if options.leave_out else ()
    found, own, _ = report("training", rows, lambda c: fit(c, options.rounds), errors, *groups)
    for name, value in found.items():
        print(f"  {name:44s} {value:.4g}")
    if options.write:
        figures = summary(own)
        reached = {f"fit.{name}_pct": round(figures[key], 1) for name, key in _REACHED.items()}
        reached = {} if options.stack else {**reached, "fit.rows": figures["points"]}
        write({**found, **reached}, Path(training_chip.__file__).parents[1] / "data")


if __name__ == "__main__":
    main()
