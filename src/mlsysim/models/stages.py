"""What the devices of a pipeline have of a model: layers, tables of tokens, and how much of it waits for the backward pass.

The table of tokens is with the first layers and the head with the last: a device at either end has one of them beside its layers, one of a V or of
DualPipe both. With two stages or more a tied table is on both. Left out: which layers differ from others (the first ones of a mixture of experts).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mlsysim.models.base import Workload
from mlsysim.models.storage import routed_parameters, table_parameters, tables
from mlsysim.physics.pipeline import FOLDED
from mlsysim.physics.stage_split import Split, held_layers, stage_layers
from mlsysim.units.ops import maximum, minimum, some, where


class Stage(NamedTuple):
    """A device's share of the layers, its tables of tokens, whether it makes logits (1 or 0), and its layers times the micro-batches it holds."""

    layers: Any
    tables: Any
    head: Any
    held: Any = 0.0


def stages_of(
    model: Workload,
    pp: Any,
    chunks: Any = 1,
    schedule: str = "1f1b",
    micro_batches: Any = None,
    group: Any = None,
    count: Any = None,
    placed: bool = True,
) -> tuple[Stage, ...]:
    """The first device of a pipeline, those between and the last; one where there is no pipeline. Where tables are not
    ``placed`` it is the longest stage, with its share of all parameters and the most that waits on any device. Nothing waits
    where ``micro_batches`` are not said."""
    layers, both = getattr(model, "layers", None) or 1, 1.0 * tables(model)
    held = Split(0.0, 0.0, 0.0)
    if micro_batches is not None:
        held = held_layers(schedule, layers if count is None else count, pp, micro_batches, chunks, group)
    if isinstance(pp, int) and pp == 1:
        return (Stage(1.0, both, 1.0, held.first),)
    split = stage_layers(layers, pp, chunks)
    if not placed:
        longest = split.most / layers
        return (
            Stage(
                longest, longest * both, where(pp == 1, 1.0, 0.0), maximum(held.first, maximum(held.most, held.last))
            ),
        )
    ends = Split(where(pp > 1, 1.0, both), where(pp > 1, 0.0, both), where(pp > 1, 1.0, both))
    heads = Split(where(pp > 1, 0.0, 1.0), where(pp > 1, 0.0, 1.0), 1.0)
    if schedule in FOLDED:
        split = Split(split.first + split.last - split.most, split.most, split.most)
        ends, heads = ends._replace(first=both, last=ends.most), heads._replace(first=1.0, last=heads.most)
    elif schedule == "dualpipe":
        # Of each of two copies half: a pair of devices has the first stage and the last.
        mean, each = 0.5 * (split.first + split.last), where(pp > 1, 0.5, 1.0) * both
        split, ends, heads = Split(mean, split.most, mean), Split(each, ends.most, each), heads._replace(first=1.0)
    parts = zip(split, ends, heads, held, strict=True)
    return tuple(Stage(own / layers, table, head, kept) for own, table, head, kept in parts)


def shared_parameters(model: Workload, dp: Any, tp: Any, ep: Any, cp: Any, stage: Stage) -> Iterator[tuple[Any, Any]]:
    """Parameters on a device of a stage, and how many ranks hold the same: those of all tokens, and of routed experts."""
    dense, experts = stage_parameters(model, tp, ep, stage)
    if getattr(model, "experts", 1) > 1 and some(ep > 1):
        apart = where(ep > 1, experts, 0.0)
        yield dense + experts - apart, dp * cp
        yield apart, where(ep > 1, maximum(dp * cp * tp / maximum(ep, tp), 1.0), dp * cp)
    else:
        yield dense + experts, dp * cp


def stage_parameters(model: Workload, tp: Any, ep: Any, stage: Stage) -> tuple[Any, Any]:
    """Parameters on a device of a stage that every token uses, and those of routed experts; tables of features apart."""
    pool = 0.0
    if getattr(model, "experts", 1) > 1:
        pool = routed_parameters(model) or model.parameter_count
    rest = model.parameter_count - model.table_parameters - pool
    ends = minimum(table_parameters(model), rest)
    dense = ((rest - ends) * stage.layers + stage.tables / tables(model) * ends) / tp
    # Experts are split over the larger of the expert and the tensor group; the rest over tensors alone.
    return dense, pool / where(ep > 1, maximum(ep, tp), tp) * stage.layers


def fullest_parameters(
    model: Workload, tp: Any, pp: Any, ep: Any, chunks: Any = 1, placed: bool = True
) -> tuple[Any, Any]:
    """Parameters on the fullest device of either kind (:func:`stage_parameters`)."""
    found = [stage_parameters(model, tp, ep, stage) for stage in stages_of(model, pp, chunks, placed=placed)]
    dense, experts = found[0]
    for other, others in found[1:]:
        dense, experts = maximum(dense, other), maximum(experts, others)
    return dense, experts
