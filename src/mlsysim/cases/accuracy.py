"""What compression does to accuracy: published ranges where there are any, a user's own curve, or unknown.

No equation predicts this. The ranges are relative changes of benchmark scores (-0.02 is 2 % lower) of language models
compressed after training: quantised Llama 3 and 3.1 (Kurtic et al. 2024 and their model cards), pruned OPT-175B
(SparseGPT, Frantar and Alistarh 2023). Larger models lose less. What was not measured stays None: other widths, other
sparsities, other kinds of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from mlsysim.cases.compression import Form
from mlsysim.errors import InputError
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.zoo.constants import constant


class AccuracyChange(NamedTuple):
    """A relative change of accuracy with its range, and who says so. None is not known."""

    middle: float | None
    range: tuple[float, float] | None
    source: str | None


UNKNOWN = AccuracyChange(None, None, None)
NO_CHANGE = AccuracyChange(0.0, (0.0, 0.0), "nothing is compressed")

_MEASURED: dict[tuple[Any, ...], str] = {
    ("fp", 8, True): "fp8_compute",
    ("int", 8, True): "int8_compute",
    ("int", 8, False): "int8_weights",
    ("int", 4, False): "int4_weights",
    ("unstructured", 0.5): "half_unstructured",
    ("2:4", 0.5): "two_of_four",
}


_OF_FORMATS = {
    **{"fp8": ("fp", 8, True), "int8": ("int", 8, True), "w8a16": ("int", 8, False)},
    **dict.fromkeys(("int4", "gptq", "awq"), ("int", 4, False)),
}
"""Formats whose changes were measured."""


def published(case: tuple[Any, ...]) -> AccuracyChange:
    """The published range for (format, bits, activations too) or (pattern, sparsity), or unknown."""
    name = _MEASURED.get(case)
    if name is None:
        return UNKNOWN
    low, high = constant(f"accuracy_{name}_low"), constant(f"accuracy_{name}_high")
    return AccuracyChange((low.number + high.number) / 2, (low.number, high.number), low.source.title)


def read_curve(given: Any) -> tuple[tuple[float, float], ...]:
    """A checked curve of (bits or sparsity, change) points in rising order."""
    problem = f"The 'accuracy_curve' input of CompressionModel must be points such as [(4, -0.02), (8, 0.0)], got {str(given)[:60]!r}."
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InputError(problem, field="accuracy_curve")
    points = []
    for point in given:
        if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
            raise InputError(problem, field="accuracy_curve")
        for value in point:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise InputError(problem, field="accuracy_curve")
        points.append((float(point[0]), float(point[1])))
    points.sort()
    if any(left[0] == right[0] for left, right in pairwise(points)):
        raise InputError(
            "The 'accuracy_curve' input of CompressionModel has two changes for the same point.", field="accuracy_curve"
        )
    return tuple(points)


def from_curve(points: Sequence[tuple[float, float]], at: float) -> AccuracyChange:
    """Linear interpolation; outside the curve the change is not known."""
    if not points[0][0] <= at <= points[-1][0]:
        return UNKNOWN
    value = points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= at <= x1:
            value = y0 + (y1 - y0) * (at - x0) / (x1 - x0)
            break
    return AccuracyChange(value, (value, value), "the given curve")


def accuracy_change(x: Any, form: Form, assumed: dict[str, str]) -> AccuracyChange:
    """What the inputs of ``CompressionModel`` do to accuracy: by the user's curve, else as published, else unknown."""
    sparsity, bits = form.sparsity, form.bits
    quantised = bits < x.baseline_bitwidth
    if x.accuracy_curve is not None:
        at = sparsity if x.method == "pruning" else bits
        found = from_curve(read_curve(x.accuracy_curve), at)
        if found is UNKNOWN:
            assumed["accuracy"] = f"not known: {at:g} lies outside the given curve"
        return found
    if not quantised and sparsity == 0:
        return NO_CHANGE
    found = UNKNOWN
    if isinstance(x.model, TransformerWorkload) and not (quantised and sparsity > 0):
        case: tuple[Any, ...] = (form.pattern, sparsity)
        if quantised:
            case = (x.number_format, bits, x.quantize_activations)
        if form.format is not None:
            case = _OF_FORMATS.get(form.format.name, ())
        found = published(case)
    if found is UNKNOWN:
        assumed["accuracy"] = "not known: no published range for this case; give 'accuracy_curve'"
    return found
