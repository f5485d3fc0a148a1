"""Passes that ran on an H200 (``verify``), and the public answer to each. Nothing was fitted to them."""

from __future__ import annotations

import statistics
from typing import Any

from mlsysim.calibrate.measurements import own_rows
from mlsysim.calibrate.samples import with_layers
from mlsysim.calibrate.verify import Pass, predict
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.vision import CNNWorkload

BOUNDS = {
    "prefill": (7, 10), "decode": (9, 14), "train": (6, 12), "encoder prefill": (11, 18), "experts prefill": (5.2, 9),
    "experts decode": (9, 14), "experts train": (19, 20), "compiled prefill": (3, 3), "compiled train": (4, 13),
    "image prefill": (10, 30), "image train": (21, 34), "compiled image": (4, 8),
}  # fmt: skip
"""Per cent: the most that the median and nine tenths of a kind are off."""


def _kind(row: dict[str, str], model: Any) -> str:
    compiled = "compiled " * (row["compiled"] == "1")
    if model.fixed_shape:
        return f"{compiled}image" if compiled else f"image {row['phase']}"
    kind = "experts " if hasattr(model, "experts") else "encoder " if model.structure == "encoder" else ""
    return f"{compiled or kind}{row['phase']}"


def _passes() -> dict[str, list[tuple[float, str]]]:
    """Errors in per cent by kind. Passes that the host bounds are left out: hosts differ by half."""
    chip, found = Hardware.get("H200"), {}
    for row in own_rows("verify"):
        model, graph = Models.get(row["model"]), row["graph"] == "1"
        if not graph and row["phase"] != "train":
            continue
        if row["layers"] and not isinstance(model, CNNWorkload):
            model = with_layers(model, int(row["layers"]))
        sizes = int(row["batch"]), int(row["seq_len"] or 2048), row["precision"]
        work = Pass(model, row["phase"], *sizes, row["compiled"] == "1", int(row["adapters"]))
        error = 100 * (predict(work, chip, graph)["predicted_s"] / float(row["seconds"]) - 1)
        found.setdefault(_kind(row, model), []).append((abs(error), row["model"]))
    return found


def test_passes_on_an_h200_are_as_near_as_the_page_says():
    found = _passes()
    assert sum(map(len, found.values())) > 270 and found.keys() == BOUNDS.keys()
    for kind, errors in found.items():
        middle, most = BOUNDS[kind]
        assert statistics.median(e for e, _ in errors) < middle, (kind, sorted(errors)[::-1][:3])
        assert sorted(errors)[int(0.9 * (len(errors) - 1))][0] < most, (kind, sorted(errors)[::-1][:6])
