"""Accuracy may not fall: the shipped published rows, and the full tables where ``MLSYSIM_TRUTH`` names their folder.

The limits are the medians that were reached, plus one point; the full tables are held to the figures that the project
promises where they are met, and to what was reached where they are not. Of a metric of serving with more than
a thousand rows a third is asked, always the same and those that ship among them; docs/accuracy.md scores every row.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections import Counter, defaultdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from zlib import crc32

import numpy as np
import pytest

from mlsysim.calibrate.questions import Prediction
from mlsysim.calibrate.validate import FileReport, score, validate

LIMITS = json.loads((Path(__file__).parent / "accuracy_limits.json").read_text())
SHIPPED = Path(str(files("mlsysim.calibrate").joinpath("data", "published")))
TRUTH = os.environ.get("MLSYSIM_TRUTH")


def rows(folder: Path, table: str) -> dict[str, dict[str, str]]:
    """The rows of a table by their ids."""
    with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as stream:
        return {row["id"]: row for row in csv.DictReader(stream)}


SAMPLED = {"inference", "serving_runs"}


@cache
def report(table: str) -> FileReport:
    """The full table, where it is at hand, else the rows of it that ship."""
    if TRUTH is None:
        return validate(SHIPPED / f"{table}.csv")[0]
    own, all_rows = rows(SHIPPED, table), rows(Path(TRUTH), table)
    count = Counter(row.get("metric") for row in all_rows.values())

    def asked(name: str, row: dict[str, str]) -> bool:
        few = table not in SAMPLED or count[row.get("metric")] < 1000
        return few or name in own or crc32(name.encode()) % 3 == 0

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{table}.csv"
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, next(iter(all_rows.values())))
            writer.writeheader()
            writer.writerows(row for name, row in all_rows.items() if asked(name, row))
        return validate(path)[0]


def check(scored: list[Prediction], coverage: float, limits: dict[str, dict[str, float]]) -> None:
    assert coverage >= limits["coverage"]["least"]
    for metric, reached in limits.items():
        if metric == "coverage":
            continue
        figures = score([s for s in scored if metric == "all" or s.metric == metric])
        assert figures["median_ape"] <= reached["median"] + 1.0, (metric, figures)
        assert figures["p90_ape"] <= reached["p90"] * 1.1 + 1.0, (metric, figures)


def shipped_rows(table: str) -> None:
    """Those that ship are rows of the full tables, so that no row is predicted twice."""
    answer, own = report(table), rows(SHIPPED, table)
    assert TRUTH is None or own.items() <= rows(Path(TRUTH), table).items()
    scored = [s for s in answer.scored if s.row in own]
    predicted = len({s.row for s in scored})
    missed = len(own.keys() & answer.not_predicted.keys())
    if TRUTH is None:
        assert (predicted, predicted + missed) == (answer.predicted, answer.rows)
    check(scored, predicted / (predicted + missed), LIMITS["shipped"][table])


# Median and 90th percentile that each regime must keep on the full tables, in per cent.
REGIMES = {
    "vision": {
        "vision inference": (8, 28),
        "vision training": (8.5, 26),
        "vision cpu": (10.5, 32),
        "diffusion": (10.5, 26),
        # A batch of NVIDIA's configurations starts its kernels and reads its weights, which the fit of long runs did not count: 4.7 became 5.1.
        "vision engine offline": (5.5, 20),
        "microcontroller time": (9, 30),
    },
    "collectives": {"collective link domain": (8, 23)},
    "energy": {"energy per token": (8.5, 27), "energy per image": (7, 18)},
    "operators": {"kernel gemm": (8, math.inf), "kernel attention": (12, math.inf)},
    "serving_runs": {"tpot_ms": (10, math.inf), "ttft_ms": (24, math.inf)},
    "training": {
        "steps": (5, 18),
        "memory": (8, math.inf),
    },  # memory: what dropout masks and gradients in fp32 are of it
}
POOLS = {"vision inference": ("compiled on", "eager_"), "vision training": ("train_",), "vision cpu": ("cpu on",)}
"""Regimes of vision networks are those of a software on a chip; the limits hold for all chips together."""
UNPUBLISHED = {"vision": {"3d-unet"}}
"""What a sample of these evaluates is stated nowhere; predicting them would need a factor for each."""


def pooled(table: str, found: Prediction) -> str:
    if table == "serving_runs":
        return found.metric
    if table == "training":
        return "memory" if "memory" in found.metric else "steps"
    kind = found.regime.removeprefix("vision ")
    return next((pool for pool, starts in POOLS.items() if kind.startswith(starts)), found.regime)


@pytest.mark.parametrize("table", sorted(LIMITS["full"]))
def test_published_rows(table: str) -> None:
    """One test for each table, since scoring one takes up to a minute."""
    shipped_rows(table)
    if TRUTH is not None:
        full_table(table)


def full_table(table: str) -> None:
    answer = report(table)
    check(answer.scored, answer.coverage, LIMITS["full"][table])
    # Between 85 and 95 % of the measured values lie inside the stated interval.
    assert 85 <= score(answer.scored)["interval_coverage"] <= 95
    errors: dict[str, list[float]] = defaultdict(list)
    for scored in answer.scored:
        errors[pooled(table, scored)].append(scored.ape)
    for regime, (middle, tail) in REGIMES.get(table, {}).items():
        assert median(errors[regime]) < middle, regime
        assert float(np.quantile(errors[regime], 0.9)) < tail, regime
    if table == "operators":
        assert len(errors["kernel gemm"]) > 4000 and len(errors["kernel attention"]) > 2500
    if table == "training":
        assert answer.skipped <= 0.05 * answer.predicted
    if table in ("vision", "collectives", "energy"):
        reasons = {r: n for r, n in answer.skipped_reasons.items() if "is not published" in r}
        assert {re.findall("'(.*)'", reason)[0] for reason in reasons} == UNPUBLISHED.get(table, set())
        assert answer.predicted > 0.97 * (answer.rows - sum(reasons.values()))


def test_every_shipped_row_has_its_source() -> None:
    assert LIMITS["shipped"].keys() == LIMITS["full"].keys()
    for table in LIMITS["shipped"]:
        text = (SHIPPED / f"{table}.csv").read_text(encoding="utf-8")
        assert "source" in text.splitlines()[0] and len(text) < 120_000
