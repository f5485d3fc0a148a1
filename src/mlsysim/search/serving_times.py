"""Times of serving at many points: prompts read in one or more passes, answers written while the cache grows.

First order: passes of :class:`mlsysim.cases.replica.Replica` with arrays in place of numbers. Calibrated: the engine
steps of one deployment with arrays of batches and lengths, alone or for clients in a closed loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlsysim.cases.closed_loop import Clients, Loop, closed_loop, disaggregated_loop
from mlsysim.cases.phases import Decoder, prefill_passes, speculative_tokens
from mlsysim.search.deployments import Deployment, Replicas
from mlsysim.search.series import Time, sum_over_steps
from mlsysim.walls.node.serving import transfer_time

__all__ = ["Times", "calibrated_times", "clients_of", "first_order_times"]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: a prefill of ``prefill_batch`` prompts, its longest pass, the hand-over of their caches, one more token."""

    prefill: Any
    longest_pass: Any
    transfer: Any
    itl: Any


def first_order_times(reader: Replicas, writer: Replicas, draft: Replicas | None, x: Any, size: int) -> Times:
    """What ServingModel gives at each point, from replicas at each point."""
    new = np.maximum(x.seq_len - x.cached, 1)

    def read(tokens: Any) -> Time:
        everywhere = prefill_passes(reader, x.prefill_batch, tokens)

        def time(context: Any, index: Any) -> Any:
            if index is None:
                return everywhere(context)
            return prefill_passes(reader.take(index), _at(x.prefill_batch, index), _at(tokens, index))(context)

        return time

    prefill, longest = _passes(read, new, x.seq_len - new, x.chunk, size)

    def write(context: Any, index: Any) -> Any:
        if index is None:
            return decoder.time_per_token(context)
        batch, drafted, acceptance = (_at(v, index) for v in (x.batch, x.drafted, x.acceptance))
        small = None if draft is None else draft.take(index)
        return Decoder(writer.take(index), batch, small, drafted, acceptance).time_per_token(context)

    decoder = Decoder(writer, x.batch, draft, x.drafted, x.acceptance)
    itl = sum_over_steps(write, x.seq_len, x.output_len, size=size) / x.output_len
    return Times(prefill, longest, _transfer(writer, x), itl)


def calibrated_times(deployment: Deployment, writer: Replicas, x: Any, size: int) -> Times:
    """What ServingModel gives with efficiency="calibrated", for a batch."""
    assert deployment.steps is not None
    first, second, draft = deployment.steps
    each = x.prefill_batch / first.deployment.attention_dp
    share = x.batch / second.deployment.attention_dp
    new = np.maximum(x.seq_len - x.cached, 1)

    def read(tokens: Any) -> Time:
        def time(context: Any, index: Any) -> Any:
            return first.time(0.0, 0.0, _at(each, index), _at(tokens, index), context).total

        return time

    prefill, longest = _passes(read, new, x.seq_len - new, x.chunk, size)
    drafted = x.drafted if draft is not None else 0
    gain = speculative_tokens(x.acceptance, drafted)

    def write(context: Any, index: Any) -> Any:
        ahead = _at(drafted, index)
        time = second.time(_at(share, index), context, drafted=ahead).total
        if draft is not None:
            time = time + draft.time(_at(x.batch, index), context).total * ahead
        return time / _at(gain, index)

    itl = sum_over_steps(write, x.seq_len, x.output_len, size=size) / x.output_len
    return Times(prefill, longest, _transfer(writer, x) if deployment.disaggregated else 0.0, itl)


def clients_of(deployment: Deployment, x: Any) -> tuple[Loop, Any]:
    """What clients in a closed loop see of calibrated engines, and how many loops run side by side."""
    assert deployment.steps is not None
    first, second, _ = deployment.steps
    if deployment.disaggregated:
        clients = Clients(x.concurrency, x.seq_len, x.output_len)
        return disaggregated_loop(first, x.prefill_replicas, second, x.replicas, clients), 1.0
    each = Clients(np.maximum(x.concurrency / x.replicas, 1.0), x.seq_len, x.output_len)
    return closed_loop(first, each, token_budget=x.chunk), x.replicas


def _passes(read: Any, new: Any, cached: Any, chunk: Any, size: int) -> tuple[Any, Any]:
    """Time of a prefill in passes of at most ``chunk`` tokens, and of its longest pass."""
    if chunk is None:
        time = read(new)(cached, None)
        return time, time
    tokens = np.minimum(chunk, new)
    whole = np.floor(new / tokens)
    rest = new - whole * tokens
    full = read(tokens)
    total = sum_over_steps(full, cached, whole, tokens, size=size)
    # A pass takes the longer the more it finds cached, so that the last whole one is the longest of them.
    longest = full(cached + (whole - 1) * tokens, None)
    if np.any(rest > 0):
        last = np.where(rest > 0, read(np.maximum(rest, 1))(cached + whole * tokens, None), 0.0)
        total, longest = total + last, np.maximum(longest, last)
    return total, longest


def _transfer(writer: Replicas, x: Any) -> Any:
    """Time to hand the caches of a prefill over, where another replica writes the answers."""
    return 0.0 if x.network is None else transfer_time(writer.cache(x.seq_len) * x.prefill_batch, x.network)


def _at(value: Any, index: Any) -> Any:
    return value if index is None or not isinstance(value, np.ndarray) else value.take(index)
