"""What flows through the widest operator of a forward pass: the bytes that a device needs beside weights and caches.

A network of fixed shape has all of a sample in flight, an encoder all of its tokens. Language models read a prompt in steps, whose working set is left
out, as is what waits beside an operator (the input of a block).

A network that was counted (:mod:`mlsysim.models.counted`) does not say which operator is the widest. It has the width of the same network's layers, where
the zoo has it by these; else the mean operator of the class with the largest ones: a lower bound, of which a pyramid's widest is two to seven
times (31 networks known both ways), and which an answer says.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mlsysim.models.base import Workload
from mlsysim.models.counted import CountedWorkload
from mlsysim.models.registry import Models
from mlsysim.models.timm_counts import PREFIX


@cache
def _by_layers(name: str, image_size: int) -> Workload | None:
    """The network of this name in timm as the zoo has it by its layers."""
    plain = name.removeprefix(PREFIX)
    same = (each for each in Models.Vision.of("counted", plain) if getattr(each, "counted", None) == plain)
    return next((each for each in same if each.image_size == image_size), None)


def flowing(model: Workload, batch: Any, tokens: Any, precision: str) -> Any:
    """Bytes of a forward pass of so many samples, an encoder's of so many ``tokens`` each."""
    if isinstance(model, CountedWorkload):
        model = _by_layers(model.name, model.image_size) or model
    if model.fixed_shape:
        return model.working_bytes(batch, precision)
    encoder = getattr(model, "structure", "") == "encoder"
    return model.working_bytes(batch, precision, tokens) if encoder else 0.0


def why_unknown(model: Workload) -> str:
    """Why this is a lower bound, empty where it is not."""
    if not isinstance(model, CountedWorkload) or _by_layers(model.name, model.image_size) is not None:
        return ""
    return "at least the mean operator of the class with the largest ones: a count does not say which is the widest"
