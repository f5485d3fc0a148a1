"""Constants of training: what is fitted is what is shipped, and the case is asked as the answer asks it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from mlsysim.calibrate.fit_training import FREE, SHIPPED, fit, masks, residuals, run_of
from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.questions import predicted
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.timing.stacks import owner_of, stack

PUBLISHED = Path(str(files("mlsysim.calibrate"))) / "data" / "published"


def shipped(path: str) -> dict[str, float]:
    found = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    for part in path.split("."):
        found = found[part]
    return found


def test_every_free_constant_is_shipped_with_its_error_and_range_and_none_is_tied_by_a_fit_that_moves_by_half():
    for path, (median, spread, source, *_) in FREE.items():
        own = shipped(path)
        assert own["error"] >= 1 and own["least"] <= own["value"] * 1.0001 and own["value"] <= own["most"] * 1.0001, (
            path
        )
        assert median > 0 and 0 < spread < 1 and source
        assert own["value"] / own["least"] < 1.5 and own["most"] / own["value"] < 1.5, path


def test_the_case_under_shipped_constants_gives_the_public_answer():
    rows = list(table_rows(PUBLISHED / "training.csv"))
    found = [run for row in rows[::9] if "memory" not in row["reported_metric"] and (run := run_of("training", row))]
    assert len(found) > 5
    for run in found:
        values = {path: np.array([shipped(path)["value"]] * 2) for path in run.moved}
        assert run.predicted(values)[0] == pytest.approx(predicted(run.question, evaluate_plainly).predicted, rel=1e-3)


def test_a_left_out_chip_keeps_its_prior():
    rows = [row for row in table_rows(PUBLISHED / "training.csv") if row["gpu"].startswith(("A100", "H100"))][:12]
    own = [run for row in rows if "memory" not in row["reported_metric"] and (run := run_of("training", row))]
    found = fit(own, {"all": np.ones(len(own), bool)})
    assert np.exp(found.constants[1]) == pytest.approx([values[0] for values in FREE.values()])


def test_what_goes_with_its_chip_lacks_that_too():
    """TPUs ran one stack alone: without it their chips have no run, and no kernel of theirs was measured."""
    more = table_rows(Path(__file__).parent / "published" / "training_more.csv")
    rows = [*list(table_rows(PUBLISHED / "training.csv"))[:4], *[row for row in more if "maxtext" in row["source"]][:4]]
    own = [run for row in rows if (run := run_of("training", row))]
    left = masks(own)
    found = list(residuals(own, fit(own, left), left))
    tpu = {row.left_out for row in found if row.chip.startswith("TPU")}
    assert {"kernels", "software kernels", "model"} <= tpu and not tpu & {"chip", "software"}
    assert all(row.group == row.software for row in found if row.left_out == "software kernels")


def test_fields_have_owners():
    assert owner_of("bridge-graph", "kappa") == "bridge" and owner_of("titan-async", "tensor_exposed") == "titan-async"
    assert stack("bridge-mlperf").kappa == stack("bridge").kappa
