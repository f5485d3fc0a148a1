"""Times and memory of many layouts, best first: together on arrays where NumPy is there, one by one where it is not.

Both call the kernels of walls 2 and 14, so that they agree to rounding; equal layouts (to nine digits) are ranked by how simple
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.layout import Layout
from mlsysim.cases.training_memory import on_device, on_host, training_held
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.search.layouts import RECOMPUTE, Split
from mlsysim.search.steps import best_by_value
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.step_inputs import job_of, trainer_of
from mlsysim.walls.inputs import Inputs

PASSED = tuple(
    name
    for name in DistributedModel.inputs
    if name
    not in (
        *("tp_size", "pp_size", "ep_size", "cp_size", "v_stages", "microbatch_count", "zero_stage", "schedule"),
        *("activation_recomputation", "optimizer_offload"),
    )
)
"""Inputs of wall 14 that are no part of a layout, and so are one for all layouts of a search."""

SETTINGS = (
    *("tp", "pp", "dp", "ep", "cp", "v_stages", "microbatch_count", "zero_stage", "recompute", "schedule"),
    "optimizer_offload",
)
"""What describes a layout."""

_SIMPLER = (
    *("tp", "pp", "ep", "cp", "zero_stage", "recompute", "optimizer_offload", "v_stages", "schedule"),
    "microbatch_count",
)
_DIGITS = 9
_TILE = 8192


def evaluate(
    shared: Mapping[str, Any], groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """The layouts that fit, and how many were looked at; ``shared`` are the inputs of wall 14 that all have in common."""
    return (_evaluate_together if arrays_available() else _evaluate_singly)(shared, groups, modes, fractions)


def arrays_available() -> bool:
    """Whether NumPy is there; a browser has none."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


class RankedLayouts:
    """Layouts that fit, best first, as columns."""

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["mfu"])

    def row(self, place: int) -> dict[str, Any]:
        """One layout."""
        return {name: column[place] for name, column in self.columns.items()}

    def ties(self) -> int:
        """Layouts that are as good as the first."""
        best = round(self.columns["mfu"][0], _DIGITS)
        return next((i for i, mfu in enumerate(self.columns["mfu"]) if round(mfu, _DIGITS) != best), len(self))

    def splits(self) -> dict[tuple[int, ...], int]:
        """Splits in the order of their best layouts, and where those are."""
        columns = self.columns
        firsts = best_by_value(list(zip(columns["tp"], columns["pp"], columns["cp"], columns["ep"], strict=True)))
        return dict(sorted(firsts.items(), key=lambda item: item[1]))

    def rank(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Where the best layout with these degrees stands, among layouts and among splits."""
        known = [self.columns[name] for name in wanted if name in self.columns]
        values = tuple(value for name, value in wanted.items() if name in self.columns)
        rows = zip(*known, strict=True) if len(known) == len(wanted) else ()
        for index, row in enumerate(rows):
            if row == values:
                config, ranks = self.row(index), list(self.splits())
                return {
                    "config": config,
                    "rank": index + 1,
                    "of": len(self),
                    "rank_of_split": ranks.index(split_of(config)) + 1,
                    "splits": len(ranks),
                    "behind_best_fraction": 1 - config["mfu"] / self.columns["mfu"][0],
                }
        return {
            "config": dict(wanted),
            "rank": None,
            "of": len(self),
            "reason": "no layout with these degrees fits or divides",
        }


def _evaluate_together(
    shared: Mapping[str, Any], groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """All layouts on arrays, a schedule at a time."""
    import numpy as np

    from mlsysim.search.training import MEMORY, TrainingPoints
    from mlsysim.search.training_inputs import Names

    names = ("tp", "pp", "dp", "cp", "ep", "v_stages", "microbatch_count", "zero_stage", "recompute", "place")
    codes = tuple(RECOMPUTE.index(mode) for mode in modes)
    found: list[Any] = []
    for code, schedule in enumerate(SCHEDULES):
        blocks = []
        for split in groups:
            stages = [v for name, v in split.pipelines if name == schedule]
            counts = split.counts(schedule)
            if stages and counts:
                axes = (split.eps, stages, counts, split.zeros, codes, range(len(fractions)))
                grid = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
                degrees = np.array([split.tp, split.pp, split.dp, split.cp]).repeat(grid.shape[1]).reshape(4, -1)
                blocks.append(np.concatenate([degrees, grid]))
        if not blocks:
            continue
        rows = dict(zip(names, np.concatenate(blocks, axis=1), strict=True))
        rows["optimizer_offload"] = np.array(fractions)[rows.pop("place")]
        points = TrainingPoints({**shared, "schedule": schedule})
        # A column of zeros would ask a chip without a host for its link.
        left_out = {"dp"} if any(fractions) else {"dp", "optimizer_offload"}
        given = {name: column for name, column in rows.items() if name not in left_out}
        given["recompute"] = Names(RECOMPUTE, rows["recompute"])
        answers = _in_tiles(points, given)
        fits = answers["wall"] != MEMORY
        kept = {name: column[fits] for name, column in rows.items()}
        kept["schedule"] = np.full(int(fits.sum()), code)
        kept |= {name: answers[name][fits] for name in ("mfu", "step_time_s", "memory_bytes")}
        found.append((kept, fits.size))
    searched = sum(size for _, size in found)
    if not found:
        return RankedLayouts({"mfu": []}), searched
    joined = {name: np.concatenate([kept[name] for kept, _ in found]) for name in found[0][0]}
    keys = [joined[name] for name in reversed(_SIMPLER)]
    order = np.lexsort((*keys, -np.round(joined["mfu"], _DIGITS)))
    columns = {name: column[order].tolist() for name, column in joined.items()}
    columns["recompute"] = [RECOMPUTE[code] for code in columns["recompute"]]
    columns["schedule"] = [SCHEDULES[code] for code in columns["schedule"]]
    return RankedLayouts(_described(columns)), searched


def _in_tiles(points: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The answers that are needed, in pieces that stay in cache."""
    import numpy as np

    size = len(columns["tp"])
    pieces = []
    for first in range(0, size, _TILE):
        tile = np.arange(first, min(first + _TILE, size))
        answers = points.evaluate({name: column.take(tile) for name, column in columns.items()})
        if not answers["valid"].all():
            raise InputError("The layouts of a search divide, but a training space refuses one of them.")
        pieces.append({name: answers[name] for name in ("wall", "mfu", "step_time_s", "memory_bytes")})
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


class LayoutTimes:
    """Layouts one by one: the case of a training step with what all of them share read once."""

    def __init__(self, shared: Mapping[str, Any], offloads: bool) -> None:
        self.given = frozenset(shared)
        defaults = {name: spec.default for name, spec in DistributedModel.inputs.items()}
        self.values = {**defaults, **shared}
        # Asked for once, so that a chip without a host is refused where state may rest there.
        self.trainer = trainer_of(self._inputs(optimizer_offload=float(offloads)), Assumptions(self.given)).congested(
            self.values["congestion_factor"]
        )

    def _inputs(self, **settings: Any) -> Inputs:
        return Inputs({**self.values, **settings})

    def evaluate(self, layout: Layout, zero: int, mode: str, offload: float) -> tuple[float, float, float, bool]:
        """MFU, seconds, bytes and whether it fits and can be."""
        x = self._inputs(zero_stage=zero, activation_recomputation=mode, optimizer_offload=offload)
        job = job_of(x, self.trainer, Assumptions(self.given | {"zero_stage"}))
        held = training_held(job, layout)
        memory = on_device(held)
        if memory > self.trainer.capacity:
            return 0.0, 0.0, memory, False
        micro = self.trainer.demand(job, layout)
        seconds = self.trainer.step(job, layout, micro, on_host(held)).seconds
        shares = layout.dp * layout.micro_batches * job.accumulation
        ranks = layout.dp * layout.tp * layout.pp * layout.cp
        mfu = micro.flops * shares / (seconds * ranks * self.trainer.device.peak)
        return mfu, seconds, memory, self.trainer.software is None or mfu <= 1


def _evaluate_singly(
    shared: Mapping[str, Any], groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """The same one by one, where there is no NumPy."""
    times = LayoutTimes(shared, any(fractions))
    searched = 0
    rows: list[tuple[Any, ...]] = []
    for split in groups:
        for (schedule, v), ep, zero, mode, offload in product(
            split.pipelines, split.eps, split.zeros, modes, fractions
        ):
            for m in split.counts(schedule):
                searched += 1
                layout = Layout(split.dp, split.tp, split.pp, ep, split.cp, m, split.local, v, schedule)
                mfu, seconds, memory, fits = times.evaluate(layout, zero, mode, offload)
                if fits:
                    settings = (layout.tp, layout.pp, layout.dp, ep, layout.cp, v, m, zero, mode, schedule, offload)
                    rows.append((*settings, mfu, seconds, memory))
    names = (*SETTINGS, "mfu", "step_time_s", "memory_bytes")
    codes = {"recompute": RECOMPUTE.index, "schedule": SCHEDULES.index}
    simpler = [(names.index(name), codes.get(name)) for name in _SIMPLER]
    at = names.index("mfu")
    rows.sort(key=lambda row: (-round(row[at], _DIGITS), *(code(row[i]) if code else row[i] for i, code in simpler)))
    columns = (
        dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True)) if rows else {"mfu": []}
    )
    return RankedLayouts(_described(columns)), searched


def _described(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns in the order and units in which a layout is shown."""
    if not columns["mfu"]:
        return columns
    found = {name: columns[name] for name in (*SETTINGS, "mfu", "step_time_s")}
    found["memory_gb"] = [memory / 1e9 for memory in columns["memory_bytes"]]
    return found


def split_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Degrees that say how a fleet is split."""
    return (config["tp"], config["pp"], config["cp"], config["ep"])
