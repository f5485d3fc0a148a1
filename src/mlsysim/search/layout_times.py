"""Times and memory of many layouts, best first: together on arrays where NumPy is there, one by one where it is not.

Both call the kernels of walls 2 and 14, so that they agree to rounding; equal layouts (to nine digits) are ranked by how simple
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from types import SimpleNamespace
from typing import Any

from mlsysim.cases.capacity import training_state
from mlsysim.cases.first_order_step import distributed_step, network
from mlsysim.cases.layout import Layout
from mlsysim.cases.memory import in_flight
from mlsysim.cases.offload import host_link, host_round_trip
from mlsysim.cases.step import Network
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.physics.pipeline import SCHEDULES
from mlsysim.search.layouts import RECOMPUTE, Split
from mlsysim.search.steps import best_by_value
from mlsysim.units.registry import to_si
from mlsysim.walls.base import CALIBRATED
from mlsysim.walls.fleet.communication import DistributedModel

__all__ = ["SETTINGS", "RankedLayouts", "arrays_available", "evaluate", "split_of", "timed"]

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
    x: Any, groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """The layouts that fit, and how many were looked at."""
    return (_evaluate_together if arrays_available() else _evaluate_singly)(x, groups, modes, fractions)


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
    x: Any, groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """All layouts on arrays, a schedule at a time."""
    import numpy as np

    from mlsysim.search.training import MEMORY, TrainingPoints

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
        points = TrainingPoints({**_shared(x), "schedule": schedule, "memory_headroom": x.memory_headroom})
        # A column of zeros would ask a chip without a host for its link.
        left_out = {"dp"} if any(fractions) else {"dp", "optimizer_offload"}
        given = {name: column for name, column in rows.items() if name not in left_out}
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

    size = len(next(iter(columns.values())))
    pieces = []
    for first in range(0, size, _TILE):
        answers = points.evaluate({name: column[first : first + _TILE] for name, column in columns.items()})
        if not answers["valid"].all():
            raise InputError("The layouts of a search divide, but a training space refuses one of them.")
        pieces.append({name: answers[name] for name in ("wall", "mfu", "step_time_s", "memory_bytes")})
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _evaluate_singly(
    x: Any, groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """The same one by one, where there is no NumPy."""
    chip = x.fleet.node.accelerator
    capacity = to_si(chip.memory.capacity, "byte")
    peak, _ = arithmetic_peak(chip, x.precision)
    net = network(x.fleet, None, {})
    searched = 0
    rows: list[tuple[Any, ...]] = []
    for split in groups:
        for (schedule, v), ep, zero, mode, offload in product(
            split.pipelines, split.eps, split.zeros, modes, fractions
        ):
            for m in split.counts(schedule):
                searched += 1
                layout = Layout(split.dp, split.tp, split.pp, ep, split.cp, m, split.local, v)
                state = training_state(
                    x.model,
                    layout.micro_batch,
                    x.seq_len,
                    x.precision,
                    optimizer=x.optimizer,
                    recompute=mode,
                    zero_stage=zero,
                    dp=layout.dp,
                    tp=layout.tp,
                    pp=layout.pp,
                    ep=ep,
                    cp=layout.cp,
                    stages_in_flight=in_flight(schedule, layout),
                    optimizer_offload=offload,
                    weights_gathered=x.efficiency == CALIBRATED and layout.pp > 1,
                )
                if state.total * (1 + x.memory_headroom) <= capacity:
                    mfu, seconds = timed(x, layout, schedule, zero, mode, peak, net)
                    if x.efficiency == CALIBRATED and mfu > 1:
                        continue
                    if offload:
                        whole = seconds + host_round_trip(state.host, host_link(chip))
                        mfu, seconds = mfu * seconds / whole, whole
                    settings = (layout.tp, layout.pp, layout.dp, ep, layout.cp, v, m, zero, mode, schedule, offload)
                    rows.append((*settings, mfu, seconds, state.total))
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


def timed(
    x: Any, layout: Layout, schedule: str, zero: int, mode: str, peak: float, net: Network
) -> tuple[float, float]:
    """MFU and step time of a layout, at the fidelity that was asked for."""
    if x.efficiency != CALIBRATED:
        inputs = SimpleNamespace(**(_defaults() | _shared(x)), zero_stage=zero, activation_recomputation=mode)
        terms, context = distributed_step(inputs, layout, schedule, peak, net)
        return context["model_flops"] / (terms.step * x.fleet.total_accelerators * peak), terms.step
    answer = DistributedModel().solve(
        **_shared(x),
        tp_size=layout.tp,
        pp_size=layout.pp,
        ep_size=layout.ep,
        cp_size=layout.cp,
        v_stages=layout.virtual_stages,
        microbatch_count=layout.micro_batches,
        schedule=schedule,
        zero_stage=zero,
        activation_recomputation=mode,
    )
    return answer.mfu, answer.step_latency_total.magnitude


def _shared(x: Any) -> dict[str, Any]:
    """What all layouts have in common, under the names of wall 14."""
    names = ["model", "fleet", "batch_size", "precision", "efficiency", "seq_len", "optimizer", "overlap_comm"]
    if x.efficiency != CALIBRATED:
        # A calibrated step has the overlap of its software.
        names.append("overlap_efficiency")
    return {name: getattr(x, name) for name in names}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    """What wall 14 takes where nothing is said."""
    left_out = ("zero_stage", "activation_recomputation")
    return {
        name: spec.default
        for name, spec in DistributedModel.inputs.items()
        if not spec.required and name not in left_out
    }


def split_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Degrees that say how a fleet is split."""
    return (config["tp"], config["pp"], config["cp"], config["ep"])
