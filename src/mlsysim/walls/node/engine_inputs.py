"""Inputs that the serving walls share, and those that describe how clients ask and how an engine is set."""

from __future__ import annotations

from mlsysim.timing.engines import DEFAULT_ENGINE, ENGINES
from mlsysim.walls.inputs import Input

ENGINE = Input.of("serving engine, for efficiency='calibrated'", ENGINES, DEFAULT_ENGINE)
CONCURRENCY = Input.of("clients in a closed loop, for efficiency='calibrated'", "whole [1, 1e6]", None, example="64")
MEMORY_FRACTION = Input.of(
    "fraction of the memory for weights and caches: all of it, or what the engine takes with efficiency='calibrated'",
    "(0, 1]",
    None,
    example="0.9",
)

LOAD = {
    "arrivals": Input.of(
        "'rounds': each client sends its next request when it has its answer; 'random': as many, one by one at random",
        ("rounds", "random"),
        None,
        example="random",
    ),
    "requests": Input.of("requests that the clients send in all, ten each unless given", "[1, 1e9]", None),
    "range_ratio": Input.of(
        "lengths are spread evenly from this share of the stated ones up to all of them", "[0, 1]", None
    ),
    "max_num_seqs": Input.of("most requests that a replica answers at a time", "whole [1, 1e6]", None),
    "poll_steps": Input.of("steps between two looks for new requests", "whole [1, 10000]", None),
    "wait_steps": Input.of("steps that the engine waits for prompts to gather", "[0, 10000]", None),
    "mtp_tokens": Input.of("tokens drafted by the model's own heads at each step", "whole [1, 64]", None),
    "warm_up": Input.of("the engine was warmed up before it is measured", "flag", None),
    "offline": Input.of("the engine itself is asked, without a server in front", "flag", None),
    "redundant_experts": Input.of(
        "experts of a mixture that are held twice, so that ep_size divides their number", "whole [1, 100000]", None
    ),
    "decode_tp_size": Input.of("tensor-parallel devices of a decode replica", "whole [1, 10000]", None),
    "decode_ep_size": Input.of("expert-parallel devices of a decode replica", "whole [1, 10000]", None),
    "decode_replicas": Input.of("decode replicas, beside num_replicas for prefill", "whole [1, 1e7]", None),
}
"""Of clients in a closed loop on a calibrated engine; None is the engine's or the benchmark's habit."""
