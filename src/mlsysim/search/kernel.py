"""Points of any kernel: its declared inputs as axes or fixed values, its outputs as they come.

    kind = "kernel"
    minimize = "time"

    [fixed]
    kernel = "mlsysim.physics.collectives.ring_all_reduce"

    [axes]
    bandwidth = ["50 GB/s", "400 Gbps"]

A kernel is named by its module and name. A value is a number in the declared unit, or text with a unit of that dimension.
Every point of such a space is feasible: a kernel computes, it rejects nothing.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from mlsysim.errors import InputError, unknown_name
from mlsysim.units.fields import quantity_from
from mlsysim.units.kernel import KERNELS, Arg, Signature
from mlsysim.units.registry import to_si

OBJECTIVE = ""
"""None: what is ranked depends on the kernel, so a space has to say it."""
LARGER = ("mfu", "hfu", "tokens_per_second", "scaling_efficiency", "goodput_ratio")
_ROOMS = ("mlsysim.physics", "mlsysim.timing", "mlsysim.cases", "mlsysim.walls")


@cache
def kernels() -> dict[str, Signature]:
    """Every kernel of the package by module and name."""
    for room in _ROOMS:
        package = import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            import_module(module.name)
    return {name: found for name, found in KERNELS.items() if name.startswith("mlsysim.")}


def evaluate(space: Any, columns: Any) -> dict[str, np.ndarray]:
    """Outputs at these points."""
    fixed = dict(space.fixed)
    signature = _named(fixed.pop("kernel", None))
    given: dict[str, Any] = {}
    for name in (*fixed, *columns):
        if name not in signature.inputs:
            raise unknown_name(f"input of the kernel {signature.name}", name, signature.inputs)
        numbers = np.array([_number(name, value, signature.inputs[name]) for value in space.values(name)])
        given[name] = numbers[columns.positions.get(name, 0)]
    for name, arg in signature.inputs.items():
        if name not in given:
            needed = f"{name!r}, in {arg.unit or 'counts'}; fix it or make it an axis"
            raise InputError(f"The kernel {signature.name} needs {needed}.", field=name)
    with np.errstate(all="ignore"):
        found = signature.unpack(signature.function(**given))
    size = columns.size
    outputs = {name: np.broadcast_to(np.asarray(value, dtype=np.float64), size) for name, value in found.items()}
    return {"feasible": np.ones(size, dtype=bool), "wall": np.zeros(size, dtype=np.int64), **outputs}


def _named(name: Any) -> Signature:
    found = kernels()
    if name is None:
        raise InputError("A space of kind kernel fixes 'kernel': the module and name of one.", field="kernel")
    if name in found:
        return found[name]
    short = [key for key in found if key.endswith(f".{name}")]
    if len(short) == 1:
        return found[short[0]]
    raise unknown_name("kernel", name, [*found, *(key.rsplit(".", 1)[-1] for key in found)])


def _number(name: str, value: Any, arg: Arg) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InputError(f"{name!r} must be a number in {arg.unit or 'counts'}, or text with a unit.", field=name)
    if isinstance(value, str):
        return float(to_si(quantity_from(value, arg.unit, f"1 {arg.unit}".strip(), name), arg.unit))
    return float(value)
