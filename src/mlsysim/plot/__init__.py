"""Charts as SVG, without NumPy or Matplotlib: each function takes plain data or a result and returns a :class:`Figure`.

    roofline, distributed_roofline      what arithmetic, memory and network allow, and where workloads operate
    waterfall, tornado                  what a time consists of, and what moves it
    heat_map, regime_map, pareto        many designs at once
    timeline, memory_timeline           a pipeline schedule, slot by slot and byte by byte
    memory_bar, scorecard               does it fit, and which of the walls binds

A figure shows itself in a notebook, has ``svg()``, ``html()`` (wide and phone), ``save()`` and, with the extra ``plot``,
``matplotlib()``. Names are resolved when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES: dict[str, tuple[str, ...]] = {
    "mlsysim.plot.figure": ("Figure",),
    "mlsysim.plot.charts.roofline": ("plot_roofline", "roofline"),
    "mlsysim.plot.charts.distributed_roofline": ("distributed_roofline", "plot_distributed_roofline"),
    "mlsysim.plot.charts.waterfall": ("waterfall",),
    "mlsysim.plot.charts.tornado": ("tornado",),
    "mlsysim.plot.charts.heat_map": ("heat_map", "regime_map"),
    "mlsysim.plot.charts.pareto": ("pareto",),
    "mlsysim.plot.charts.timeline": ("timeline",),
    "mlsysim.plot.charts.memory_timeline": ("memory_timeline",),
    "mlsysim.plot.charts.memory_bar": ("memory_bar",),
    "mlsysim.plot.charts.scorecard": ("plot_evaluation_scorecard", "scorecard"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'mlsysim.plot' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
