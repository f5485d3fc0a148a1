"""Charts as SVG, without NumPy or Matplotlib: each function takes plain data or a result and returns a :class:`Figure`.

    roofline, distributed_roofline      what arithmetic, memory and network allow, and where workloads operate
    waterfall, tornado                  what a time consists of, and what moves it
    heat_map, regime_map, pareto        many designs at once
    lines, curve                        how values go with another one, and one of them with its interval, limit and what binds
    timeline, memory_timeline           a pipeline schedule, slot by slot and byte by byte
    gantt, share_bar                    a run over its weeks, and what its time is lost to
    memory_bar, scorecard               does it fit, and which of the walls binds

A figure shows itself in a notebook, has ``svg()``, ``html()`` (wide and phone), ``save()`` and, with the extra ``plot``,
``matplotlib()``. Names are resolved when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "figure": ("Figure",),
    "charts.run": ("gantt", "share_bar"),
    "charts.roofline": ("distributed_roofline", "plot_distributed_roofline", "plot_roofline", "roofline"),
    "charts.bars": ("tornado", "waterfall"),
    "charts.curve": ("curve",),
    "charts.heat_map": ("heat_map", "regime_map"),
    "charts.lines": ("lines",),
    "charts.memory_bar": ("memory_bar",),
    "charts.pareto": ("pareto",),
    "charts.scorecard": ("plot_evaluation_scorecard", "scorecard"),
    "charts.timeline": ("memory_timeline", "timeline"),
}
_HOME_OF = {name: f"mlsysim.plot.{module}" for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'mlsysim.plot' has no attribute {name!r}")
    globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
