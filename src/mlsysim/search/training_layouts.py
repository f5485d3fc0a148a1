"""Layouts at many points: which divide, into how many replicas and micro-batches, and what their schedule waits and holds.

A point divides where :func:`mlsysim.cases.layout.plan_layout` gives a layout for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlsysim.cases.layout import choose_micro_batches
from mlsysim.cases.memory import in_flight
from mlsysim.physics.pipeline import idle_slots
from mlsysim.units.ops import where

__all__ = ["divided", "waiting_and_held"]


def divided(model: Any, x: Any, size: int) -> tuple[Any, Any, Any, np.ndarray]:
    """Data-parallel degree, samples and micro-batches of each replica, and which layouts divide."""
    tp, pp, cp, ep = x.tp_size, x.pp_size, x.cp_size, x.ep_size
    dp = x.accelerators / (tp * pp * cp)
    local = x.batch_size / dp
    checks = [_whole(x.nodes), _whole(dp), _whole(local)]
    if x.dp is not None:
        checks.append(dp == x.dp)
    heads, layers = getattr(model, "heads", None), getattr(model, "layers", None)
    if heads:
        checks.append(_whole(heads / tp))
    if layers:
        checks += [pp <= layers, pp * (x.v_stages - 1) < layers]
    if isinstance(ep, np.ndarray) or ep > 1:
        spread = _whole(getattr(model, "experts", 1) / ep) & _whole(dp * tp * cp / ep)
        checks.append(spread | (ep <= 1))
    if isinstance(cp, np.ndarray) or cp > 1:
        checks.append(_whole((1 if model.fixed_shape else x.seq_len) / cp))
    if x.schedule == "dualpipe":
        checks.append(pp % 2 == 0)
    if x.schedule not in (None, "interleaved"):
        checks.append(x.v_stages <= 1)
    if x.micro_batch is not None:
        parts = local / x.micro_batch
        checks.append(_whole(parts))
    elif x.microbatch_count is not None:
        parts = x.microbatch_count
        checks.append(_whole(local / parts))
    else:
        parts = None
    valid = np.ones(size, dtype=bool)
    for check in checks:
        valid &= check
    if parts is None:
        parts = _chosen(local, pp, valid)
    return dp, local, parts, valid


def waiting_and_held(schedule: str | None, layout: Any) -> tuple[Any, Any]:
    """The pipeline's wait and the micro-batches in flight. Without virtual stages the default is 1F1B."""
    if schedule is not None:
        lone = layout.pp == 1
        idle = where(lone, 0.0, idle_slots(schedule, layout.pp, layout.virtual_stages))
        return idle, where(lone, in_flight("1f1b", layout), in_flight(schedule, layout))
    idle = idle_slots("interleaved", layout.pp, layout.virtual_stages)
    held = where(layout.virtual_stages > 1, in_flight("interleaved", layout), in_flight("1f1b", layout))
    return idle, held


def _whole(value: Any) -> Any:
    return value == np.floor(value)


def _chosen(local: Any, pp: Any, valid: np.ndarray) -> np.ndarray:
    """Micro-batches where none are given, chosen as for one layout; each pair of samples and stages once."""
    parts = np.ones(valid.shape)
    pairs = np.stack(np.broadcast_arrays(local, pp, parts)[:2])[:, valid]
    if pairs.size:
        unique, which = np.unique(pairs, axis=1, return_inverse=True)
        counts = [choose_micro_batches(int(samples), int(stages)) for samples, stages in unique.T]
        parts[valid] = np.array(counts, dtype=float)[which.ravel()]
    return parts
