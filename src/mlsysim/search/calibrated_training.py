"""The calibrated step of wall 14 at many points: what DistributedModel answers with ``efficiency="calibrated"``.

The step itself (:mod:`mlsysim.cases.calibrated_step`) takes arrays for degrees, batch, sequence and slow-downs. The
ZeRO stage and the recomputation mode choose between equations, so points are timed in groups that share both: at most
twelve to a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlsysim.cases.calibrated_distributed import adopt_stack, calibrated_terms, chip_of_fleet
from mlsysim.cases.layout import Layout
from mlsysim.cases.step import Network
from mlsysim.models.training_shape import training_shape
from mlsysim.search.layouts import RECOMPUTE
from mlsysim.search.training_inputs import Modes, taken
from mlsysim.units.registry import to_si

__all__ = ["CalibratedTiming"]

_ZERO_STAGES = 4


class CalibratedTiming:
    """Times of layouts under a software stack, whose settings stand in for those that a space leaves out."""

    def __init__(self, values: dict[str, Any], given: Mapping[str, Any], net: Network) -> None:
        left_out = {name: "" for name in values if given.get(name) is None}
        x = SimpleNamespace(**values)
        self.software = adopt_stack(x, left_out)
        self.settings = vars(x)
        self.share = net.inter_bandwidth / to_si(x.fleet.bandwidth_per_accelerator, "byte/s")
        # What cannot be calibrated (a model without dimensions, a format without arithmetic) is refused at once.
        training_shape(x.model)
        chip_of_fleet(x, self.share, {})

    def __call__(self, x: Any, layout: Layout, size: int) -> tuple[Any, Any, Any]:
        """Seconds of a micro-step, of it that synchronises unhidden, and that computes, at each of ``size`` points."""
        whole = [np.empty(size) for _ in range(3)]
        for index, stage, mode in _groups(x.zero_stage, x.activation_recomputation, size):
            here, part = x, layout
            if index is not None:
                here = SimpleNamespace(**{name: taken(value, index) for name, value in vars(x).items()})
                part = Layout(*(taken(getattr(layout, name), index) for name in Layout.__slots__))
            here = SimpleNamespace(**{**vars(here), "zero_stage": stage, "activation_recomputation": mode})
            terms, _ = calibrated_terms(here, part, self.software, self.share, here.moe_routing_imbalance_factor, {})
            for array, values in zip(whole, (terms.step, terms.exposed_data, terms.compute), strict=True):
                array[slice(None) if index is None else index] = values
        return whole[0], whole[1], whole[2]


def _groups(stages: Any, modes: Any, size: int) -> Iterator[tuple[np.ndarray | None, int, str]]:
    """Points with one ZeRO stage and one mode: where they are (None for all of them), the stage and the mode."""
    several = isinstance(stages, np.ndarray), isinstance(modes, Modes)
    codes = np.zeros(size, dtype=np.int64)
    codes += np.asarray(stages, dtype=np.int64) if several[0] else int(stages)
    codes += _ZERO_STAGES * (modes.codes.astype(np.int64) if several[1] else RECOMPUTE.index(modes))
    counts = np.bincount(codes, minlength=1)
    for code in np.flatnonzero(counts).tolist():
        index = None if counts[code] == size else np.flatnonzero(codes == code)
        yield index, code % _ZERO_STAGES, RECOMPUTE[code // _ZERO_STAGES]
