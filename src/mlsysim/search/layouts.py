"""Layouts of a training job: every split of a fleet in which everything divides, and what may be chosen beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.physics.pipeline import CHUNKED, SCHEDULES

__all__ = ["RECOMPUTE", "Split", "offload_fractions", "recompute_modes", "splits"]

RECOMPUTE = ("none", "selective", "full")
"""Recomputation modes, mildest first."""

_VIRTUAL = (1, 2, 3, 4, 6, 8, 12, 16)


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


FIXABLE = ("tp", "pp", "dp", "ep", "cp", "v_stages", "microbatch_count", "micro_batch", "zero_stage")
"""Settings that a search may hold at one value; a micro-batch is the samples of one."""


def fixed_settings(given: Any) -> dict[str, int]:
    """Settings that every layout must have, checked."""
    found = dict(given) if isinstance(given, dict) else {}
    if found != (given or {}) or not all(name in FIXABLE and isinstance(n, int) for name, n in found.items()):
        text = f"'fixed' is a table of whole numbers for {', '.join(FIXABLE)}, such as {{'tp': 8}}."
        raise InputError(text, field="fixed")
    return found


def holding(split: Split, fixed: dict[str, int]) -> Split | None:
    """What of a split has the fixed settings; None where nothing has."""
    if any(getattr(split, name) != fixed[name] for name in ("tp", "pp", "dp", "cp") if name in fixed):
        return None
    size, stages = fixed.get("micro_batch"), fixed.get("v_stages")
    counts = _only(split.micro_batches, fixed, "microbatch_count")
    kept = replace(
        split,
        eps=_only(split.eps, fixed, "ep"),
        pipelines=tuple(each for each in split.pipelines if stages in (None, each[1])),
        micro_batches=tuple(m for m in counts if size is None or m * size == split.local),
        zeros=_only(split.zeros, fixed, "zero_stage"),
    )
    return kept if kept.eps and kept.pipelines and kept.micro_batches and kept.zeros else None


def _only(values: tuple[int, ...], fixed: dict[str, int], name: str) -> tuple[int, ...]:
    return tuple(value for value in values if fixed.get(name, value) == value)


def splits(x: Any) -> Iterator[Split]:
    """Every split of the fleet in which everything divides and that has the fixed settings."""
    fixed = fixed_settings(x.fixed)
    return (kept for split in _divided(x) if (kept := holding(split, fixed)) is not None)


def _divided(x: Any) -> Iterator[Split]:
    model, accelerators = x.model, x.fleet.total_accelerators
    heads = getattr(model, "heads", None) or 1
    layers = getattr(model, "layers", None) or 1
    experts = getattr(model, "experts", 1)
    max_tp = x.max_tp or x.fleet.node.accelerators_per_node
    for tp in (t for t in divisors(heads) if t <= max_tp and accelerators % t == 0):
        for pp in (p for p in divisors(accelerators // tp) if p <= min(x.max_pp, layers)):
            pipelines = tuple(_pipelines(x, pp, layers))
            if not pipelines:
                continue
            for cp in (c for c in divisors(accelerators // tp // pp) if c <= x.max_cp and x.seq_len % c == 0):
                dp = accelerators // (tp * pp * cp)
                if x.batch_size % dp:
                    continue
                local = x.batch_size // dp
                yield Split(
                    tp,
                    pp,
                    cp,
                    dp,
                    local,
                    eps=tuple(e for e in divisors(experts) if e <= x.max_ep and (dp * tp * cp) % e == 0),
                    pipelines=pipelines,
                    micro_batches=tuple(m for m in divisors(local) if m >= pp or m == local),
                    # A single replica has nothing to share its state with.
                    zeros=tuple(range(x.max_zero_stage + 1)) if dp * cp > 1 else (0,),
                )


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
