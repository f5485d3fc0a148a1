"""``efficiency="calibrated"`` in :class:`ServingModel` and :class:`ContinuousBatchingModel`: from their inputs to engine steps.

The first-order parts stay what they are, bounds at the datasheet's rates; the times are those of an engine's steps
(:mod:`mlsysim.timing.engine_step`), alone and, where a concurrency is given, of clients in a closed loop
(:mod:`mlsysim.cases.closed_loop`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.closed_loop import Clients, Loop, accepted_tokens, closed_loop, disaggregated_loop, draft_cost
from mlsysim.cases.phases import MAX_CHUNKS, speculative_tokens, sum_over_steps
from mlsysim.errors import InputError
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import engine
from mlsysim.units.registry import quantity
from mlsysim.zoo.intervals import Interval, interval

__all__ = ["BatchStep", "Calibrated", "batch_step", "serve", "serving_step"]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Times of a batch, and of a closed loop where one was asked for; seconds."""

    prefill: float
    itl: float
    longest_chunk: float
    draft_step: float
    loop: Loop | None
    itl_band: Interval
    ttft_band: Interval


def serving_step(model: TransformerWorkload, chip: Any, x: Any, assumed: dict[str, str]) -> EngineStep:
    """The engine steps that the inputs describe."""
    if not model.has_dimensions:
        raise InputError(
            f"efficiency='calibrated' sums operators, and {model.name} states no layers, hidden_dim and heads.",
            field="model",
        )
    cache = x.cache_precision
    if cache is None:
        cache = "bf16"
        assumed["cache_precision"] = "bf16"
    ranks = max(x.ep_size // x.tp_size, 1)
    mixture = getattr(model, "experts", 1) > 1
    named = engine(x.engine)
    step = engine_step(
        model,
        chip,
        named if x.memory_fraction is None else replace(named, memory_utilisation=x.memory_fraction),
        precision=x.precision,
        cache_precision=cache,
        tp=x.tp_size,
        attention_dp=ranks,
        moe_tp=x.tp_size * ranks // x.ep_size if mixture else 1,
        moe_ep=x.ep_size if mixture else 1,
        pp=x.pp_size,
    )
    basis = "of its class" if step.kernels.family != "other" else "of its profile and class defaults"
    assumed["fidelity"] = f"calibrated: steps of {step.engine.name} ({step.engine.year}), kernels {basis}"
    assumed.pop("bandwidth_efficiency", None)
    return step


def serve(
    reader: EngineStep, writer: EngineStep, draft: EngineStep | None, x: Any, new: int, assumed: dict[str, str]
) -> Calibrated:
    """A batch of prompts and its answers."""
    ranks, writing_ranks = reader.deployment.attention_dp, writer.deployment.attention_dp
    cached = x.seq_len - new
    size = min(x.prefill_chunk_tokens or new, new)
    chunks = math.ceil(new / size)
    if chunks > MAX_CHUNKS:
        raise InputError(
            f"prefill_chunk_tokens={size} would cut the prompt into {chunks:,} passes.", field="prefill_chunk_tokens"
        )
    each = x.batch_size / ranks
    times = [
        float(reader.time(0.0, 0.0, each, min(size, new - i * size), cached + i * size).total) for i in range(chunks)
    ]
    drafted = x.num_speculative_tokens if draft is not None else 0
    gain = speculative_tokens(x.draft_acceptance_rate, drafted)
    cost = 1.0
    if x.mtp_tokens:
        if draft is not None:
            raise InputError("mtp_tokens and draft_model cannot be given together.", field="mtp_tokens")
        drafted = x.mtp_tokens
        gain, cost = accepted_tokens(drafted, _acceptance(x, assumed)), draft_cost(drafted)
    share = x.batch_size / writing_ranks

    def cycle(context: float) -> float:
        verify = float(writer.time(share, context, drafted=drafted).total) * cost
        drafting = float(draft.time(x.batch_size, context).total) * drafted if draft is not None else 0.0
        return (verify + drafting) / gain

    answer = x.output_len or 1
    itl = sum_over_steps(cycle, x.seq_len, answer) / answer
    draft_step = float(draft.time(x.batch_size, x.seq_len).total) if draft is not None else 0.0
    loop = None
    if x.concurrency is not None:
        loop = _loop(reader, writer, x, assumed)
    # Pools of one layout on one chip are the same steps, and still two pools.
    apart = x.decode_hardware is not None
    kind = "serving disaggregated" if apart else "serving"
    measured = writer.kernels.family != "other"
    itl_band, ttft_band = interval(f"{kind} tpot", measured), interval(f"{kind} ttft", measured)
    assumed["interval"] = (
        f"90 % of the times per token of {itl_band.rows} measured {'disaggregated ' if apart else ''}serving runs"
        if not itl_band.extrapolating
        else "extrapolating: serving was not validated on such a chip"
    )
    return Calibrated(math.fsum(times), itl, max(times), draft_step, loop, itl_band, ttft_band)


def _acceptance(x: Any, assumed: dict[str, str]) -> float | None:
    """Share of the own heads' draft tokens that are accepted, where somebody said it."""
    said = isinstance(assumed, Assumptions) and "draft_acceptance_rate" in assumed.given
    return float(x.draft_acceptance_rate) if said else None


def _loop(reader: EngineStep, writer: EngineStep, x: Any, assumed: dict[str, str]) -> Loop:
    if x.output_len is None:
        raise InputError("concurrency needs 'output_len': clients wait for whole answers.", field="output_len")
    if x.draft_model is not None:
        raise InputError("concurrency and draft_model cannot be given together.", field="draft_model")
    rounds = 10 if x.requests is None else max(1, round(x.requests / x.concurrency))
    ratio = 1.0 if x.range_ratio is None else float(x.range_ratio)
    apart = x.decode_hardware is not None
    each = float(x.concurrency) if apart else max(x.concurrency / x.num_replicas, 1.0)
    clients = Clients(each, float(x.seq_len), float(x.output_len), ratio, rounds, x.arrivals == "random")
    lengths = "all of the stated length" if ratio == 1 else f"between {ratio:g} times the stated length and all of it"
    how = "at random times" if clients.random else f"{rounds} {'requests' if rounds > 1 else 'request'} each"
    assumed["clients"] = f"{how}, prompts and answers {lengths}"
    common: dict[str, Any] = {
        "drafted": x.mtp_tokens or 0,
        "acceptance": _acceptance(x, assumed),
        "server": not x.offline,
    }
    if apart:
        workers = x.decode_replicas or x.num_replicas
        slots = None if x.max_num_seqs is None else float(x.max_num_seqs) * workers
        return disaggregated_loop(
            reader, x.num_replicas, writer, workers, clients, slots=slots, token_budget=x.prefill_chunk_tokens, **common
        )
    return closed_loop(
        reader,
        clients,
        token_budget=x.prefill_chunk_tokens,
        poll_steps=float(x.poll_steps or 1),
        wait_steps=float(x.wait_steps or 0.0),
        slots=x.max_num_seqs,
        warm=x.warm_up is not False,
        **common,
    )


@dataclass(frozen=True, slots=True)
class BatchStep:
    """Steps of a batch that holds ``tokens`` each: decode of so many sequences, the prompt of one, a closed loop."""

    step: EngineStep
    tokens: int
    first: float
    loop: Loop | None

    def decode(self, sequences: float) -> float:
        ranks = self.step.deployment.attention_dp
        return float(self.step.time(sequences / ranks, self.tokens).total)

    @property
    def loop_fields(self) -> dict[str, Any]:
        """Result fields of the closed loop, where one was asked for."""
        if self.loop is None:
            return {}
        return {
            "tpot": quantity(self.loop.tpot, "s"),
            "ttft_at_concurrency": quantity(self.loop.ttft, "s"),
            "output_tokens_per_sec": quantity(self.loop.output_rate, "1/second"),
        }


def batch_step(step: EngineStep, x: Any, assumed: dict[str, str]) -> BatchStep:
    """The steps of continuous batching."""
    loop = None
    if x.concurrency is not None:
        if x.output_len is None:
            raise InputError("concurrency needs 'output_len': clients wait for whole answers.", field="output_len")
        clients = Clients(float(x.concurrency), float(x.seq_len), float(x.output_len))
        assumed["clients"] = f"{clients.rounds} requests each, prompts of seq_len tokens"
        loop = closed_loop(step, clients)
    return BatchStep(step, x.seq_len, float(step.time(0.0, 0.0, 1.0, x.seq_len).total), loop)
