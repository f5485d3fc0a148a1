"""Inputs that the serving walls share, how clients ask and how an engine is set, and the deployment and traffic that they mean."""

from __future__ import annotations

import math
from typing import Any

from mlsysim.cases.assumptions import DEFAULT, Assumptions
from mlsysim.cases.deployment import Deployment, language_model
from mlsysim.cases.phases import MAX_CHUNKS
from mlsysim.cases.traffic import CLIENT_ROUNDS, Habits, Traffic
from mlsysim.cases.turns import head_acceptance
from mlsysim.errors import InputError
from mlsysim.timing.engines import default_engine, engine, serving_table
from mlsysim.vocabulary import Setting, worded
from mlsysim.walls.inputs import CALIBRATED, Inputs, declared
from mlsysim.zoo.constants import constant

LOAD = """
    arrival_rate? | (0, 1e9] 1/s, plain | requests a second that come at random, instead of clients that wait for their answers
    length_cv? | [0, 10] | coefficient of variation of the lengths of prompts and answers, whose means are the stated ones
    requests? | [1, 1e9] | requests that the clients send in all, ten each unless given
    range_ratio? | [0, 1] | lengths are spread evenly from this share of the stated ones up to all of them
    max_num_seqs? | whole [1, 1e6] | most requests that a replica answers at a time
    poll_steps? | whole [1, 10000] | steps between two looks for new requests
    wait_steps? | [0, 10000] | steps that the engine waits for prompts to gather
    mtp_tokens? | whole [1, 64] | tokens drafted by the model's own heads at each step
    warm_up? | flag | the engine was warmed up before it is measured
    offline? | flag | the engine itself is asked, without a server in front
    redundant_experts? | whole [1, 100000] | experts of a mixture that are held twice, so that ep_size divides their number
    decode_tp_size? | whole [1, 10000] | tensor-parallel devices of a decode replica
    decode_ep_size? | whole [1, 10000] | expert-parallel devices of a decode replica
    decode_replicas? | whole [1, 1e7] | decode replicas, beside num_replicas for prefill
"""
"""Of clients in a closed loop on a calibrated engine; None is the engine's or the benchmark's habit."""

ADAPTER_RANK = 16
"""Of adapters where it is not said, as of training."""

_DECODE_LAYOUT = ("decode_tp_size", "decode_ep_size", "decode_replicas")
_CALIBRATED_ONLY = tuple(
    name for name in declared(LOAD) if name not in (*_DECODE_LAYOUT, "redundant_experts", "mtp_tokens")
)


def chunks_of(x: Inputs, new: int) -> int:
    """Passes of a prefill."""
    return math.ceil(new / min(x.prefill_chunk_tokens or new, new))


def check_serving(x: Inputs, assumed: Assumptions) -> None:
    """Refuse what does not go together; forget what has no effect."""
    calibrated = x.efficiency == CALIBRATED
    for name in _DECODE_LAYOUT:
        if x.decode_hardware is None and getattr(x, name) is not None:
            raise InputError(f"{name} is for disaggregated serving; give decode_hardware.", field=name)
    for name in () if calibrated else _CALIBRATED_ONLY:
        if getattr(x, name) is not None:
            words = worded(Setting(name), " needs calibrated steps: ", Setting("efficiency", CALIBRATED), ".")
            raise InputError(words, field=name)
    if x.mtp_tokens and x.draft_model is not None:
        raise _both("mtp_tokens", "draft_model", field="mtp_tokens")
    if x.cached_prefix_len > x.seq_len:
        given = Setting("cached_prefix_len", x.cached_prefix_len)
        raise InputError(worded(given, f" exceeds the prompt of {x.seq_len} tokens."), field="cached_prefix_len")
    if x.cached_prefix_len == x.seq_len:
        assumed["prefill"] = "the last token of a wholly cached prompt is computed again, for its logits"
    chunks = chunks_of(x, max(x.seq_len - x.cached_prefix_len, 1))
    if chunks > MAX_CHUNKS:
        least = f"at most {MAX_CHUNKS:,} are evaluated, so use at least {math.ceil(x.seq_len / MAX_CHUNKS)}"
        given = Setting("prefill_chunk_tokens", x.prefill_chunk_tokens)
        words = worded(given, f" would cut the prompt into {chunks:,} passes; {least}.")
        raise InputError(words, field="prefill_chunk_tokens")
    if x.draft_model is None:
        assumed.pop("draft_acceptance_rate", None)
        assumed.pop("num_speculative_tokens", None)
    if x.mtp_tokens and "draft_acceptance_rate" not in assumed.given:
        assumed["draft_acceptance_rate"] = f"{head_acceptance():g}, as measured of heads of a model's own"
    if calibrated:
        assumed["parts"] = "compute, memory and communication are bounds at the datasheet's rates"
    else:
        assumed.pop("engine", None)
        if not x.model.has_dimensions:
            assumed["cache"] = f"left out: {x.model.name} states no layers, hidden_dim and heads"
    if x.output_len is None:
        assumed["output_len"] = "not given: ITL is that of the first token after the prompt"
    if x.prefix_hit_rate is not None and x.cached_prefix_len:
        raise _both("prefix_hit_rate", "cached_prefix_len", field="prefix_hit_rate")
    if not x.adapters and x.adapter_rank is not None:
        assumed.idle("adapter_rank", "requests have no adapters", x.adapter_rank)
    if x.adapters:
        rank = f"rank {x.adapter_rank or ADAPTER_RANK} on the attention projections, in 16 bits"
        assumed["adapters"] = (
            f"{rank}, all as likely; those of all {x.adapters:,} are on each replica"
            if x.adapters > 1
            else f"{rank}, on each replica"
        )
    for name in ("prefix_tokens", "offload_memory"):
        if getattr(x, name) is not None and x.prefix_hit_rate is None:
            assumed.idle(name, "no share of the prompts is found in a cache of prefixes", getattr(x, name))
    if x.length_cv is not None and x.range_ratio is not None:
        raise _both("length_cv", "range_ratio", field="length_cv")
    if x.concurrency is not None and x.arrival_rate is not None:
        raise _both("concurrency", "arrival_rate", field="arrival_rate")
    name = "arrival_rate" if x.concurrency is None else "concurrency"
    if getattr(x, name) is None:
        return
    if x.output_len is None:
        raise InputError(f"{name} needs 'output_len': requests are for whole answers.", field="output_len")
    if not x.model.has_dimensions:
        raise InputError(f"{name} needs the size of the cache of {x.model.name}.", field=name)
    if calibrated and x.prefill_batch_size is not None:
        raise _both(name, "prefill_batch_size", field="prefill_batch_size")


def _both(one: str, other: str, field: str) -> InputError:
    return InputError(worded(Setting(one), " and ", Setting(other), " cannot be given together."), field=field)


def deployment_of(x: Inputs, assumed: Assumptions | None = None) -> Deployment:
    """The deployment that the inputs of a serving wall describe; the engine that is taken where none is given is noted."""
    draft = getattr(x, "draft_model", None)
    model, draft = language_model(x.model), None if draft is None else language_model(draft)
    chosen, efficiency = None, x.efficiency
    if x.efficiency == CALIBRATED:
        chosen, efficiency = x.engine or default_engine(x.hardware), 1.0
        if x.engine is None and assumed is not None:
            assumed.say("engine", chosen, DEFAULT, engine(chosen).spoken)
    split = x.precision, x.cache_precision, x.tp_size, x.pp_size, x.ep_size
    rates = chosen, efficiency, x.bandwidth_efficiency, x.memory_fraction
    apart = getattr(x, "decode_tp_size", None), getattr(x, "decode_ep_size", None)
    pools = getattr(x, "decode_hardware", None), draft, x.fabric
    twice = getattr(x, "redundant_experts", None) or 0
    adapters = getattr(x, "adapters", None) or 0
    more = adapters, (getattr(x, "adapter_rank", None) or ADAPTER_RANK) if adapters else 0
    set_to = bool(getattr(x, "offline", None)), getattr(x, "prefix_hit_rate", None) != 0
    return Deployment(
        model, x.hardware, *split, *pools, *rates, twice, *apart, x.attention_dp, *more, x.cp_size, *set_to
    )


def traffic_of(x: Inputs, assumed: Assumptions) -> Traffic:
    """What the inputs of wall 4 ask for."""
    if x.decode_hardware is not None and x.network_bandwidth is None:
        rate = x.fabric.bandwidth if x.fabric is not None else constant("infiniband_ndr_bandwidth").quantity
        if x.efficiency == CALIBRATED:
            rate = (serving_table("cache_transfer")["share"] * rate).to("GB/s")
        assumed["network_bandwidth"] = f"{rate:g~P} for each device between the prefill and the decode replica"
    return traffic_with(x, _habits(x, assumed))


def traffic_with(x: Inputs, habits: Habits) -> Traffic:
    """The same of numbers or arrays, with these habits."""
    return Traffic(
        prompt=x.seq_len,
        answer=1 if x.output_len is None else x.output_len,
        batch=1.0 if x.batch_size is None else x.batch_size,
        together=x.prefill_batch_size,
        cached=x.cached_prefix_len,
        chunk=x.prefill_chunk_tokens,
        drafted=x.num_speculative_tokens,
        acceptance=x.draft_acceptance_rate,
        replicas=x.num_replicas if x.decode_replicas is None else x.decode_replicas,
        prefill_replicas=x.num_replicas,
        network=x.network_bandwidth,
        habits=habits,
    )


def drafting_habits(x: Inputs, stated: bool) -> dict[str, Any]:
    """What heads of the model's own draft, and what is accepted of it where that is stated."""
    return {
        "drafted": 0 if x.mtp_tokens is None else x.mtp_tokens,
        "acceptance": x.draft_acceptance_rate if stated else None,
    }


def _habits(x: Inputs, assumed: Assumptions) -> Habits:
    """How clients ask, as given or as benchmarks do."""
    heads = drafting_habits(x, "draft_acceptance_rate" in assumed.given)
    if x.efficiency != CALIBRATED:
        return Habits(**heads)
    found = Habits(
        shortest=1.0 if x.range_ratio is None else float(x.range_ratio),
        rounds=CLIENT_ROUNDS
        if x.requests is None or x.arrival_rate is not None
        else max(1, round(x.requests / (x.concurrency or 1))),
        length_cv=None if x.length_cv is None else float(x.length_cv),
        sent=x.requests if x.arrival_rate is not None else None,
        slots=x.max_num_seqs,
        poll_steps=float(x.poll_steps or 1),
        wait_steps=float(x.wait_steps or 0.0),
        **heads,
        warm=x.warm_up is not False,
        server=not x.offline,
    )
    if x.concurrency is not None or x.arrival_rate is not None:
        short, rounds, lengths = found.shortest, found.rounds, "all of the stated length"
        if short != 1:
            lengths = f"between {short:g} times the stated length and all of it"
        if found.length_cv:
            lengths = f"spread by {found.length_cv:.3g} times the stated length"
        how = f"{rounds} {'requests' if rounds > 1 else 'request'} each"
        if x.arrival_rate is not None:
            how = "one by one at random times"
        assumed["clients"] = f"{how}, prompts and answers {lengths}"
    return found
