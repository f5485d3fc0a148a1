"""Steps of Hugging Face's Transformers: our own on an H200, and tuning that others published, which no constant has seen."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from mlsysim.calibrate.fit_training import OWN
from mlsysim.calibrate.others import ROWS
from mlsysim.calibrate.tables import TABLES


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize(
    ("word", "most"),
    [("all parameters", 0.05), ("LoRA", 0.1)],
)
def test_our_own_steps_are_met(word, most):
    """Constants have seen those of all parameters; adapters were beside two matrices, and a plan's are beside all."""
    found = [each for row in rows_of(OWN) if word in row["notes"] for each in TABLES["training"].predict(row)]
    assert len(found) == 24 and median(abs(each.error) for each in found) < most


def test_tuning_that_others_published_is_met():
    """Qwen 1.8B to 14B with PEFT on A100, one sequence of 256 to 8,192 tokens at a time: 31 % off as a stack of FSDP, whose host is faster."""
    rows = [
        r
        for r in rows_of(ROWS / "training.csv")
        if r["notes"].startswith("LoRA finetuning") and "HF Trainer" in r["notes"]
    ]
    found = [each for row in rows for each in TABLES["training"].predict(row)]
    assert len(found) == 18 and all('stack = "transformers"' in each.plan for each in found)
    assert median(abs(each.error) for each in found) < 0.15
    assert sum(bool(each.inside) for each in found) >= 16
