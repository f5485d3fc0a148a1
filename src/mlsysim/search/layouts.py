"""Layouts of a training job: every split of a fleet in which everything divides, their times and memory, best first.

Layouts are evaluated together on arrays where NumPy is there, one by one where it is not. Both ask the case of a training step
(walls 2 and 14), so that they agree to rounding; equal layouts (to nine digits) are ranked by how simple they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.layout import Layout, divisors
from mlsysim.cases.training_memory import on_device, on_host, training_held
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, SCHEDULES
from mlsysim.search.steps import best_by_value
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.step_inputs import job_of, trainer_of
from mlsysim.walls.inputs import Inputs

RECOMPUTE = DistributedModel.inputs["activation_recomputation"].choices
"""Recomputation modes, mildest first."""
_VIRTUAL = (1, 2, 3, 4, 6, 8, 12, 16)

_CHOSEN = (
    *("tp_size", "pp_size", "ep_size", "cp_size", "v_stages", "microbatch_count", "zero_stage", "schedule"),
    *("activation_recomputation", "optimizer_offload"),
)
PASSED = tuple(name for name in DistributedModel.inputs if name not in _CHOSEN)
"""Inputs of wall 14 that are no part of a layout, and so are one for all layouts of a search."""

SETTINGS = (
    *("tp", "pp", "dp", "ep", "cp", "v_stages", "microbatch_count", "zero_stage", "recompute", "schedule"),
    "optimizer_offload",
)
"""What describes a layout."""
FIXABLE = (*SETTINGS[:7], "micro_batch", "zero_stage")
"""Settings that a search may hold at one value; a micro-batch is the samples of one."""

_SIMPLER = (
    *("tp", "pp", "ep", "cp", "zero_stage", "recompute", "optimizer_offload", "v_stages", "schedule"),
    "microbatch_count",
)
_FOUND = ("mfu", "step_time_s", "memory_bytes")
_DIGITS = 9
_TILE = 8192


# --- what may be chosen -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Degrees that divide the fleet, and what else may be chosen beside them."""

    tp: int
    pp: int
    cp: int
    dp: int
    local: int
    eps: tuple[int, ...]
    pipelines: tuple[tuple[str, int], ...]
    micro_batches: tuple[int, ...]
    zeros: tuple[int, ...]

    def counts(self, schedule: str) -> tuple[int, ...]:
        """Micro-batches that a schedule can run: DualPipe fills the stages from both ends."""
        least = 2 * self.pp if schedule.startswith("dualpipe") else 1
        return tuple(m for m in self.micro_batches if m >= least)


def recompute_modes(given: Any) -> tuple[str, ...]:
    """The recomputation modes to try, checked."""
    modes = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
    if not modes or any(mode not in RECOMPUTE for mode in modes):
        raise InputError("'recompute' must list modes out of none, selective and full.", field="recompute")
    return modes


def offload_fractions(given: Any) -> tuple[float, ...]:
    """The fractions of the optimizer state on the host to try, checked."""
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    if not values or not numbers or not all(0 <= value <= 1 for value in values):
        raise InputError(
            "'optimizer_offload' must list fractions between 0 and 1, such as [0, 0.5, 1].", field="optimizer_offload"
        )
    return tuple(sorted({float(value) for value in values}))


def fixed_settings(given: Any) -> dict[str, int]:
    """Settings that every layout must have, checked."""
    found = dict(given) if isinstance(given, dict) else {}
    if found != (given or {}) or not all(name in FIXABLE and isinstance(n, int) for name, n in found.items()):
        text = f"'fixed' is a table of whole numbers for {', '.join(FIXABLE)}, such as {{'tp': 8}}."
        raise InputError(text, field="fixed")
    return found


def splits(x: Any) -> Iterator[Split]:
    """Every split of the fleet in which everything divides and that has the fixed settings."""
    fixed = fixed_settings(x.fixed)

    def only(name: str, values: Iterable[int]) -> tuple[int, ...]:
        return tuple(value for value in values if fixed.get(name, value) == value)

    model, accelerators = x.model, x.fleet.total_accelerators
    layers, experts = getattr(model, "layers", None) or 1, getattr(model, "experts", 1)
    max_tp = x.max_tp or x.fleet.node.accelerators_per_node
    heads = (t for t in divisors(getattr(model, "heads", None) or 1) if t <= max_tp and accelerators % t == 0)
    for tp in only("tp", heads):
        for pp in only("pp", (p for p in divisors(accelerators // tp) if p <= min(x.max_pp, layers))):
            pipelines = tuple(p for p in _pipelines(x, pp, layers) if fixed.get("v_stages", p[1]) == p[1])
            for cp in only("cp", (c for c in divisors(accelerators // tp // pp) if c <= x.max_cp)):
                dp = accelerators // (tp * pp * cp)
                if x.seq_len % cp or x.batch_size % dp or fixed.get("dp", dp) != dp:
                    continue
                local, size = x.batch_size // dp, fixed.get("micro_batch")
                eps = only("ep", (e for e in divisors(experts) if e <= x.max_ep and (dp * tp * cp) % e == 0))
                counts = only("microbatch_count", (m for m in divisors(local) if m >= pp or m == local))
                counts = tuple(m for m in counts if size is None or m * size == local)
                # A single replica has nothing to share its state with.
                zeros = only("zero_stage", range(x.max_zero_stage + 1) if dp * cp > 1 else (0,))
                if eps and pipelines and counts and zeros:
                    yield Split(tp, pp, cp, dp, local, eps, pipelines, counts, zeros)


def _pipelines(x: Any, pp: int, layers: int) -> Iterator[tuple[str, int]]:
    """Schedules and virtual stages of so many stages; without a pipeline there is nothing to schedule."""
    if pp == 1:
        yield "1f1b", 1
        return
    wanted = SCHEDULES if x.schedule == "all" else ("1f1b", "interleaved") if x.schedule is None else (x.schedule,)
    for schedule in wanted:
        if schedule == "dualpipe" and pp % 2:
            continue
        if schedule not in CHUNKED:
            yield schedule, 1
            continue
        # One virtual stage is the schedule without interleaving, which stands beside it unless it was not asked for.
        alone = x.schedule in CHUNKED
        for v in _VIRTUAL:
            if (v > 1 or alone) and v <= x.max_v_stages and pp * (v - 1) < layers:
                yield schedule, v


# --- times and memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankedLayouts:
    """Layouts that fit, best first, as columns; those of none are empty."""

    columns: Mapping[str, list[Any]]

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
        firsts = best_by_value(list(zip(*(self.columns[name] for name in ("tp", "pp", "cp", "ep")), strict=True)))
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
        reason = "no layout with these degrees fits or divides"
        return {"config": dict(wanted), "rank": None, "of": len(self), "reason": reason}


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


def _evaluate_together(
    shared: Mapping[str, Any], groups: list[Split], modes: tuple[str, ...], fractions: tuple[float, ...]
) -> tuple[RankedLayouts, int]:
    """All layouts on arrays, a schedule at a time."""
    import numpy as np

    from mlsysim.search.training import MEMORY, TrainingPoints
    from mlsysim.search.training_inputs import Names

    names = ("tp", "pp", "dp", "cp", "ep", "v_stages", "microbatch_count", "zero_stage", "recompute", "place")
    choices = [RECOMPUTE.index(mode) for mode in modes], range(len(fractions))
    pieces: list[dict[str, Any]] = []
    searched = 0
    for code, schedule in enumerate(SCHEDULES):
        blocks = []
        for split in groups:
            degrees = [split.tp], [split.pp], [split.dp], [split.cp]
            stages = [v for name, v in split.pipelines if name == schedule]
            if not stages:
                continue
            axes = (*degrees, split.eps, stages, split.counts(schedule), split.zeros, *choices)
            blocks.append(np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(names), -1).astype(np.int64))
        rows = dict(zip(names, np.concatenate(blocks, axis=1), strict=True)) if blocks else {}
        size = len(rows["tp"]) if rows else 0
        if not size:
            continue
        searched += size
        rows["optimizer_offload"] = np.array(fractions)[rows.pop("place")]
        given = {name: column for name, column in rows.items() if name != "dp"}
        given["recompute"] = Names(RECOMPUTE, rows["recompute"])
        if not any(fractions):
            # A column of zeros would ask a chip without a host for its link.
            del given["optimizer_offload"]
        points = TrainingPoints({**shared, "schedule": schedule})
        for first in range(0, size, _TILE):
            tile = np.arange(first, min(first + _TILE, size))
            answers = points.evaluate({name: column.take(tile) for name, column in given.items()})
            if not answers["valid"].all():
                raise InputError("The layouts of a search divide, but a training space refuses one of them.")
            fits = answers["wall"] != MEMORY
            kept = {name: column[tile][fits] for name, column in rows.items()}
            pieces.append(
                kept | {"schedule": np.full(fits.sum(), code)} | {name: answers[name][fits] for name in _FOUND}
            )
    if not pieces:
        return RankedLayouts({"mfu": []}), searched
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    keys = [joined[name] for name in reversed(_SIMPLER)]
    order = np.lexsort((*keys, -np.round(joined["mfu"], _DIGITS)))
    columns = {name: column[order].tolist() for name, column in joined.items()}
    columns["recompute"] = [RECOMPUTE[code] for code in columns["recompute"]]
    columns["schedule"] = [SCHEDULES[code] for code in columns["schedule"]]
    return _described(columns), searched


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
    rows: list[dict[str, Any]] = []
    for split in groups:
        for (schedule, v), ep, zero, mode, offload in product(
            split.pipelines, split.eps, split.zeros, modes, fractions
        ):
            for m in split.counts(schedule):
                searched += 1
                layout = Layout(split.dp, split.tp, split.pp, ep, split.cp, m, split.local, v, schedule)
                *found, fits = times.evaluate(layout, zero, mode, offload)
                if fits:
                    settings = (split.tp, split.pp, split.dp, ep, split.cp, v, m, zero, mode, schedule, offload)
                    rows.append(dict(zip((*SETTINGS, *_FOUND), (*settings, *found), strict=True)))
    codes = {"recompute": RECOMPUTE.index, "schedule": SCHEDULES.index}

    def rank(row: dict[str, Any]) -> tuple[float, ...]:
        return -round(row["mfu"], _DIGITS), *(codes[n](row[n]) if n in codes else row[n] for n in _SIMPLER)

    rows.sort(key=rank)
    return _described({name: [row[name] for row in rows] for name in (*SETTINGS, *_FOUND)}), searched


def _described(columns: dict[str, list[Any]]) -> RankedLayouts:
    """Columns in the order and units in which a layout is shown."""
    found = {name: columns[name] for name in (*SETTINGS, "mfu", "step_time_s")}
    return RankedLayouts(found | {"memory_gb": [memory / 1e9 for memory in columns["memory_bytes"]]})


def split_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Degrees that say how a fleet is split."""
    return (config["tp"], config["pp"], config["cp"], config["ep"])
