"""``Engine``: one call for one chip, one call for a grid of chips, batches and precisions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.performance import PerformanceProfile


class Engine:
    """The single-node roofline without ceremony."""

    @staticmethod
    def solve(
        model: Any, hardware: Any, batch_size: int = 1, precision: str = "fp16", **options: Any
    ) -> PerformanceProfile:
        """One pass of a model on a chip; see :class:`SingleNodeModel` for the options."""
        return SingleNodeModel().solve(model, hardware, batch_size, precision, **options)

    @staticmethod
    def sweep(
        model: Any,
        hardware_list: Sequence[Any],
        batch_sizes: Sequence[int] = (1,),
        precisions: Sequence[str] = ("fp16",),
        efficiency: float | str = 0.5,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Every combination, in order, each with its profile."""
        solver = SingleNodeModel()
        return [
            {
                "hardware": getattr(chip, "name", chip),
                "batch_size": batch,
                "precision": precision,
                "profile": solver.solve(model, chip, batch, precision, efficiency=efficiency, **options),
            }
            for chip, batch, precision in product(hardware_list, batch_sizes, precisions)
        ]
