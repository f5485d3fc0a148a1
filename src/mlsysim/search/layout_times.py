"""Times and memory of layouts: together on arrays where NumPy is there, one by one where it is not.

Both ask the case of a training step (walls 2 and 14), so that they agree to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mlsysim.cases.algebra import Remembering
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Layout
from mlsysim.cases.training import Training
from mlsysim.errors import InputError
from mlsysim.search.tiles import TILE
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.step_inputs import job_of, trainer_of
from mlsysim.walls.inputs import Inputs

SETTINGS = (
    *("tp", "pp", "dp", "ep", "cp", "v_stages", "microbatch_count", "zero_stage", "recompute", "schedule"),
    "optimizer_offload",
)
"""What describes a layout."""


def arrays_available() -> bool:
    """Whether NumPy is there; a browser has none."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


Times = tuple[list[tuple[float, ...] | None], list[float]]


def priced(shared: Mapping[str, Any], rows: list[tuple[Any, ...]], offloads: bool) -> Times:
    """MFU, seconds and GB of layouts, each the values of :data:`SETTINGS`; None where one does not fit or cannot be; and GB of all."""
    return (_together if arrays_available() else _singly)(shared, rows, offloads)


def _together(shared: Mapping[str, Any], rows: list[tuple[Any, ...]], offloads: bool) -> Times:
    """Those of layouts on arrays, a schedule at a time."""
    import numpy as np

    from mlsysim.search.training import COMPUTE, MEMORY, TrainingPoints

    found: list[tuple[float, ...] | None] = [None] * len(rows)
    needed = [math.inf] * len(rows)
    columns = dict(zip(SETTINGS, map(np.array, zip(*rows, strict=True)), strict=True)) if rows else {}
    # A column of zeros would ask a chip without a host for its link.
    left_out = ("dp", "schedule") if offloads else ("dp", "schedule", "optimizer_offload")
    for schedule in dict.fromkeys(row[-2] for row in rows):
        points = TrainingPoints({**shared, "schedule": schedule})
        places = np.flatnonzero(columns["schedule"] == schedule)
        for first in range(0, len(places), TILE):
            tile = places[first : first + TILE]
            answers = points.evaluate({name: columns[name][tile] for name in SETTINGS if name not in left_out})
            if not answers["valid"].all():
                raise InputError("The layouts of a search divide, but a training space refuses one of them.")
            times = (answers[name].tolist() for name in ("wall", "mfu", "step_time_s", "memory_bytes"))
            for place, wall, mfu, seconds, memory in zip(tile.tolist(), *times, strict=True):
                needed[place] = memory / 1e9
                if wall not in (COMPUTE, MEMORY):
                    found[place] = mfu, seconds, memory / 1e9
    return found, needed


def _singly(shared: Mapping[str, Any], rows: list[tuple[Any, ...]], offloads: bool) -> Times:
    """The same one by one, where there is no NumPy."""
    times = LayoutTimes(shared, offloads)
    found = [times.measured(dict(zip(SETTINGS, row, strict=True))) for row in rows]
    return [timed for timed, _ in found], [gb for _, gb in found]


class LayoutTimes:
    """Layouts one by one: the case of a training step with what all of them share read once."""

    def __init__(self, shared: Mapping[str, Any], offloads: bool) -> None:
        self.given = frozenset(shared)
        defaults = {name: spec.default for name, spec in DistributedModel.inputs.items()}
        # Asked for once, so that a chip without a host is refused where state may rest there.
        self.x = Inputs({**defaults, **shared, "optimizer_offload": float(offloads)})
        self.trainer = trainer_of(self.x, Assumptions(self.given)).congested(self.x.congestion_factor)
        self.plain = Remembering()
        self.jobs: dict[tuple[int, float, str], tuple[Any, Job]] = {}

    def _job(self, zero: int, offload: float, recompute: str) -> tuple[Any, Job]:
        """Inputs and job of all layouts with these three, which are theirs and not the stack's."""
        if (known := self.jobs.get((zero, offload, recompute))) is None:
            own = {"zero_stage": zero, "optimizer_offload": offload, "activation_recomputation": recompute}
            x = self.x.but(**own)
            known = self.jobs[zero, offload, recompute] = (
                x,
                job_of(x, self.trainer, Assumptions(self.given | own.keys())),
            )
        return known

    def of(self, row: Mapping[str, Any]) -> tuple[float, float, float] | None:
        """MFU, seconds and GB of a layout; None where it does not fit or cannot be."""
        return self.measured(row)[0]

    def measured(self, row: Mapping[str, Any]) -> tuple[tuple[float, float, float] | None, float]:
        """The same, and the GB that it needs."""
        x, job = self._job(row["zero_stage"], row["optimizer_offload"], row["recompute"])
        layout = Layout(
            **{name: row[name] for name in ("dp", "tp", "pp", "ep", "cp", "schedule")},
            micro_batches=row["microbatch_count"],
            local_batch=x.batch_size // row["dp"],
            virtual_stages=row["v_stages"],
            group=x.microbatch_group_size,
            shard=x.zero_shard,
        )
        asked = Training(self.trainer, job, layout, self.plain)
        gb = asked.memory / 1e9
        return (asked.mfu, asked.step.seconds, gb) if asked.fits and asked.holds else None, gb
