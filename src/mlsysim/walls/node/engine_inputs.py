"""Inputs that the serving walls share, and those that describe how clients ask and how an engine is set."""

from __future__ import annotations

from mlsysim.timing.engines import ENGINES
from mlsysim.walls.inputs import Input

__all__ = ["CONCURRENCY", "ENGINE", "LOAD", "MEMORY_FRACTION"]

ENGINE = Input("serving engine, for efficiency='calibrated'", kind="choice", choices=ENGINES, default="vLLM")
CONCURRENCY = Input(
    "clients in a closed loop, for efficiency='calibrated'", low=1, high=1e6, whole=True, default=None, example="64"
)
MEMORY_FRACTION = Input(
    "fraction of the memory for weights and caches: all of it, or what the engine takes with efficiency='calibrated'",
    low=0,
    low_open=True,
    high=1,
    default=None,
    example="0.9",
)

LOAD = {
    "arrivals": Input(
        "'rounds': each client sends its next request when it has its answer; 'random': as many, one by one at random",
        kind="choice",
        choices=("rounds", "random"),
        default=None,
        example="random",
    ),
    "requests": Input("requests that the clients send in all, ten each unless given", low=1, high=1e9, default=None),
    "range_ratio": Input(
        "lengths are spread evenly from this share of the stated ones up to all of them", low=0, high=1, default=None
    ),
    "max_num_seqs": Input("most requests that a replica answers at a time", low=1, high=1e6, whole=True, default=None),
    "poll_steps": Input("steps between two looks for new requests", low=1, high=1e4, whole=True, default=None),
    "wait_steps": Input("steps that the engine waits for prompts to gather", low=0, high=1e4, default=None),
    "mtp_tokens": Input(
        "tokens drafted by the model's own heads at each step", low=1, high=64, whole=True, default=None
    ),
    "warm_up": Input("the engine was warmed up before it is measured", kind="flag", default=None),
    "offline": Input("the engine itself is asked, without a server in front", kind="flag", default=None),
    "redundant_experts": Input(
        "experts of a mixture that are held twice, so that ep_size divides their number",
        low=1,
        high=1e5,
        whole=True,
        default=None,
    ),
    "decode_tp_size": Input("tensor-parallel devices of a decode replica", low=1, high=1e4, whole=True, default=None),
    "decode_ep_size": Input("expert-parallel devices of a decode replica", low=1, high=1e4, whole=True, default=None),
    "decode_replicas": Input(
        "decode replicas, beside num_replicas for prefill", low=1, high=1e7, whole=True, default=None
    ),
}
"""Of clients in a closed loop on a calibrated engine; None is the engine's or the benchmark's habit."""
