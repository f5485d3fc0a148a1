"""``read_any``: a report on whatever file it is, by its name and its beginning."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mlsysim.errors import InputError
from mlsysim.importers.codecarbon import EmissionsReport, is_emissions, read_emissions
from mlsysim.importers.limits import existing, read_bounded
from mlsysim.importers.model import read_model
from mlsysim.importers.onnx import read_onnx
from mlsysim.importers.report import ImportReport
from mlsysim.importers.trace import TraceReport, read_trace
from mlsysim.importers.trace_file import looks_like_trace

_HEAD = 1 << 16


def read_any(
    path: str | os.PathLike[str], *, chip: str | None = None, sizes: Mapping[str, int] | None = None
) -> ImportReport | TraceReport | EmissionsReport:
    """A model, a profiler's trace or codecarbon's table. ``chip`` is the device of a trace that does not name it."""
    place = existing(path)
    if place.is_file():
        if place.suffix.lower() == ".csv":
            head = read_bounded(place, _HEAD, at_most=_HEAD).decode("utf-8-sig", "replace")
            if not is_emissions(head.splitlines()[0] if head.strip() else ""):
                raise InputError(
                    f"{place.name[:200]!r} is no emissions.csv of codecarbon; tables of measurements are read by `mlsysim validate`."
                )
            return read_emissions(place, chip=chip)
        if looks_like_trace(place):
            return read_trace(place, chip=chip)
        if place.suffix.lower() == ".onnx" and sizes:
            return read_onnx(place, sizes=sizes)
    if sizes:
        raise InputError("Sizes of dimensions are for ONNX files that leave them open.")
    return read_model(path)
