"""Layouts of a training job: every split of a fleet in which everything divides, best first by what :mod:`mlsysim.search.layout_times` says of them.

Equal layouts (to nine digits) are ranked by how simple they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, SCHEDULES
from mlsysim.physics.stage_split import alike
from mlsysim.search.layout_times import SETTINGS, priced
from mlsysim.search.steps import best_by_value
from mlsysim.timing.launchers import launcher
from mlsysim.units.records import dataclass
from mlsysim.walls.fleet.communication import DistributedModel
from mlsysim.walls.fleet.step_inputs import schedule_given

RECOMPUTE = DistributedModel.inputs["activation_recomputation"].choices
"""Recomputation modes, mildest first."""

_CHOSEN = (
    *("tp_size", "pp_size", "ep_size", "cp_size", "v_stages", "microbatch_count", "zero_stage", "schedule"),
    *("activation_recomputation", "optimizer_offload"),
)
PASSED = tuple(name for name in DistributedModel.inputs if name not in _CHOSEN)
"""Inputs of wall 14 that are no part of a layout, and so are one for all layouts of a search."""

FIXABLE = (*SETTINGS[:7], "micro_batch", "zero_stage")
"""Settings that a search may hold at one value; a micro-batch is the samples of one."""

_SIMPLER = (
    *("tp", "pp", "ep", "cp", "zero_stage", "recompute", "optimizer_offload", "v_stages", "schedule"),
    "microbatch_count",
)
_FOUND = ("mfu", "step_time_s", "memory_gb")
_DIGITS = 9
SCATTER = 0.042
"""How far predictions of layouts of one run lie from one another's errors: the spread of predicted over published rates within 14 sets of
published runs that differ in their layout alone (36 rows; 7 % over all runs)."""


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


FIXED = "what you fixed rules them out"


def splits(x: Any, refused: Counter[str] | None = None) -> Iterator[Split]:
    """Every split of the fleet in which everything divides and that has the fixed settings; others are counted as ``refused``."""
    fixed, why = fixed_settings(x.fixed), Counter[str]() if refused is None else refused

    def only(name: str, values: Iterable[int]) -> tuple[int, ...]:
        return tuple(value for value in values if fixed.get(name, value) == value)

    model, accelerators = x.model, x.fleet.total_accelerators
    layers, experts = getattr(model, "layers", None) or 1, getattr(model, "experts", 1)
    max_tp, heads = x.max_tp or x.fleet.node.accelerators_per_node, getattr(model, "heads", None) or 1
    for tp in only("tp", (t for t in divisors(accelerators) if t <= max_tp)):
        if heads % tp:
            why[f"TP does not divide {heads} head{'s' * (heads != 1)}"] += 1
            continue
        for pp in only("pp", (p for p in divisors(accelerators // tp) if p <= x.max_pp)):
            if pp > layers:
                why[f"PP is more than {layers} layers"] += 1
                continue
            pipelines = tuple(p for p in _pipelines(x, pp, layers) if fixed.get("v_stages", p[1]) == p[1])
            for cp in only("cp", (c for c in divisors(accelerators // tp // pp) if c <= x.max_cp)):
                dp = accelerators // (tp * pp * cp)
                sites = x.fleet.sites
                reasons = {
                    f"DP does not divide the batch of {x.batch_size:,}": x.batch_size % dp,
                    f"CP does not divide {x.seq_len:,} tokens": x.seq_len % cp,
                    f"shards of {x.zero_shard} do not divide DP x CP": x.zero_shard and dp * cp % x.zero_shard,
                    f"{sites} sites do not divide DP": dp % sites,
                    FIXED: fixed.get("dp", dp) != dp,
                }
                reason = next((words for words, holds in reasons.items() if holds), None)
                local, size = x.batch_size // dp, fixed.get("micro_batch")
                eps = only("ep", (e for e in divisors(experts) if e <= x.max_ep and (dp * tp * cp) % e == 0))
                counts = only("microbatch_count", (m for m in divisors(max(local, 1)) if m >= pp or m == local))
                counts = tuple(m for m in counts if size is None or m * size == local)
                # A single replica has nothing to share its state with.
                least = 1 if x.zero_shard else 0
                stages = range(least, x.max_zero_stage + 1) if dp * cp > 1 else (fixed.get("zero_stage", 0),)
                zeros = only("zero_stage", stages)
                if reason is None and not counts and "microbatch_count" in fixed:
                    number = fixed["microbatch_count"]
                    divides = f"do not divide a replica's share of {x.batch_size:,} sequences"
                    reason = f"{number:,} micro-batches {divides if local % number else 'are fewer than the stages'}"
                if reason is None and not (eps and pipelines and counts and zeros):
                    reason = FIXED
                if reason is None:
                    yield Split(tp, pp, cp, dp, local, eps, pipelines, counts, zeros)
                else:
                    why[reason] += 1


def why_none(x: Any) -> str:
    """What keeps every split from dividing, with the nearest batch and number of accelerators that would."""
    total, batch, per_node = x.fleet.total_accelerators, x.batch_size, x.fleet.node.accelerators_per_node
    layers, most = getattr(x.model, "layers", None) or 1, x.max_tp or per_node
    tps = [t for t in divisors(getattr(x.model, "heads", None) or 1) if t <= most]
    stages = min(x.max_pp, layers)
    degrees = sorted({
        total // (tp * pp) for tp in tps if total % tp == 0 for pp in divisors(total // tp) if pp <= stages
    })  # fmt: skip
    sites = x.fleet.sites
    fits = (
        d * t * p
        for d in divisors(batch)
        if d % sites == 0
        for t in tps
        for p in range(1, stages + 1)
        if d * t * p <= total
    )
    fewer = max((n for n in fits if n % (per_node * sites) == 0), default=None)
    least = min((d for d in degrees if d % sites == 0), default=degrees[0])
    near = [n for n in (batch // least * least, -(-batch // least) * least) if n]
    words = f"{total:,} accelerators have data-parallel degrees of {least:,} and more, of which none divides the batch of {batch:,}"
    words += f" over {sites} sites" if sites > 1 else ""
    use = " or ".join(f"{n:,}" for n in dict.fromkeys(near))
    return f"{words}; use a batch of {use}" + (f", or {fewer:,} accelerators." if fewer else ".")


def _pipelines(x: Any, pp: int, layers: int) -> Iterator[tuple[str, int]]:
    """Schedules and virtual stages of so many stages; without a pipeline there is nothing to schedule."""
    if pp == 1:
        yield "1f1b", 1
        return
    own = x.schedule if x.schedule == "all" else schedule_given(x)
    wanted = SCHEDULES if own == "all" else ("1f1b", "interleaved") if own is None else (own,)
    for schedule in wanted:
        if schedule == "dualpipe" and pp % 2:
            continue
        if schedule not in CHUNKED:
            yield schedule, 1
            continue
        # One virtual stage is the schedule without interleaving, which stands beside it unless it was not asked for.
        alone = x.schedule in CHUNKED
        for v in range(1 if alone else 2, min(x.max_v_stages, -(-layers // pp)) + 1):
            # Chunks have as many layers as each other, and only the outer ones may lack some.
            if alike(layers, pp, v):
                yield schedule, v


# --- times and memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankedLayouts:
    """Layouts that fit, best first, as columns; those of none are empty."""

    columns: Mapping[str, tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.columns["mfu"])

    def row(self, place: int) -> dict[str, Any]:
        return {name: column[place] for name, column in self.columns.items()}

    def ties(self) -> int:
        """Layouts that are as good as the first."""
        best = round(self.columns["mfu"][0], _DIGITS)
        return next((i for i, mfu in enumerate(self.columns["mfu"]) if round(mfu, _DIGITS) != best), len(self))

    def near(self) -> tuple[int, dict[str, Any]]:
        """Layouts that predictions cannot tell from the best, and the simplest of them: with fewest ways to split, chunks and recomputation."""
        least = self.columns["mfu"][0] * (1 - SCATTER)
        count = sum(mfu >= least for mfu in self.columns["mfu"])

        def parts(place: int) -> tuple[int, int]:
            how = self.row(place)
            ways = sum(how[name] > 1 for name in ("tp", "pp", "ep", "cp", "v_stages")) + (how["optimizer_offload"] > 0)
            return ways + RECOMPUTE.index(how["recompute"]), place

        return count, self.row(min(range(count), key=parts))

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


class Miss(NamedTuple):
    """The layout that needs least of those that do not fit, and the GB that it needs."""

    config: dict[str, Any]
    needed: float


def evaluate(
    shared: Mapping[str, Any],
    groups: list[Split],
    modes: tuple[str, ...],
    fractions: tuple[float, ...],
    trainer: str | None = None,
    refused: Counter[str] | None = None,
) -> tuple[RankedLayouts, int, Miss | None]:
    """The layouts that fit, how many were looked at, and the nearest miss; ``shared`` are the inputs of wall 14 that all have in common.

    Those that a ``trainer`` does not run are counted as ``refused``.
    """
    rows = [
        (split.tp, split.pp, split.dp, ep, split.cp, v, count, zero, mode, schedule, offload)
        for split in groups
        for schedule, v in split.pipelines
        for count, ep, zero, mode, offload in product(split.counts(schedule), split.eps, split.zeros, modes, fractions)
    ]
    if trainer is not None:
        rules = launcher(trainer)
        why = [rules.refuses(dict(zip(SETTINGS, row, strict=True))) for row in rows]
        if refused is not None:
            refused.update(f"{reason[0]}: not run by {rules.title}" for reason in why if reason is not None)
        rows = [row for row, reason in zip(rows, why, strict=True) if reason is None]
    times, needed = priced(shared, rows, any(fractions))
    least = min((gb, place) for place, gb in enumerate(needed)) if rows else None
    miss = None if least is None else Miss(dict(zip(SETTINGS, rows[least[1]], strict=True)), least[0])
    fitting = [row + time for row, time in zip(rows, times, strict=True) if time is not None]
    names = (*SETTINGS, *_FOUND)
    columns = dict(zip(names, zip(*fitting, strict=True) if fitting else [()] * len(names), strict=True))
    codes = {"recompute": RECOMPUTE.index, "schedule": SCHEDULES.index}
    simpler = (map(codes.get(name, float), columns[name]) for name in _SIMPLER)
    ranks = list(zip((-round(mfu, _DIGITS) for mfu in columns["mfu"]), *simpler, strict=True))
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    ranked = {name: tuple(map(column.__getitem__, order)) for name, column in columns.items()}
    return RankedLayouts(ranked), len(rows), miss


def split_of(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Degrees that say how a fleet is split."""
    return (config["tp"], config["pp"], config["cp"], config["ep"])
