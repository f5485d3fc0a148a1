"""Which outputs rise or fall with which inputs, for each kind of space.

``MONOTONE[kind][output][input]`` is 1 where the output never falls when the input grows and all else stays, -1 where it never
rises, 0 where it does not depend on it; an input that is not listed may do anything. This holds up to rounding, and in the sense that
branch and bound needs: the end of an axis that is better for the output is no worse than any *feasible* point along it,
whether or not that end is feasible itself. Tests draw random spaces and check every entry against the evaluator.

Derivations. A roofline's time is a maximum of sums of work over rate, plus dispatch: it falls with every rate and rises with
the batch and the length, which add work, bytes and cache. Capacity decides what streams from the host, so more of it never
slows a feasible point. A calibrated chip with a lower power limit has a lower clock. Energy is TDP (idle T + (1 - idle) F / P): it falls with what shortens T. MFU is F / (T P): with P it
falls, since T P does not fall. A training step adds up times that each fall with efficiency and overlap and rise with
congestion and stragglers; cost and energy for a token are a bill over tokens, and both move one way with the step. The steps of
serving fall with the shares of peak and of bandwidth that are reached, and its bill is that of training.
"""

from __future__ import annotations

from collections.abc import Mapping

_RATES = ("efficiency", "bandwidth_efficiency")
_CHIP_TIME = {**dict.fromkeys(("peak", "bandwidth", "capacity", "host_bandwidth", *_RATES), -1), "dispatch_tax": 1}
_WORK = {"batch_size": 1, "seq_len": 1}
_NO_CHIP = dict.fromkeys(_CHIP_TIME, 0)
_NO_MONEY = {"price": 0, "amortization_years": 0}


def _turned(signs: Mapping[str, int]) -> dict[str, int]:
    return {name: -sign for name, sign in signs.items()}


_TIME = {**_CHIP_TIME, **_NO_MONEY, **_WORK}
_RATE = {**_turned(_CHIP_TIME), **_NO_MONEY}
_USE = {**_RATE, "peak": -1}
_USD = {**_CHIP_TIME, "price": 1, "amortization_years": -1}

_NODE: dict[str, dict[str, int]] = {
    "feasible": {**_NO_CHIP, **_NO_MONEY, "capacity": 1, "batch_size": -1, "seq_len": -1},
    "latency_s": _TIME,
    "latency_compute_s": {**_NO_CHIP, **_NO_MONEY, "peak": -1, "efficiency": -1},
    "latency_memory_s": {**_CHIP_TIME, **_NO_MONEY, "peak": 0, "efficiency": 0, "dispatch_tax": 0},
    **dict.fromkeys(("throughput_per_s", "tokens_per_second"), _RATE),
    **dict.fromkeys(("mfu", "hfu"), _USE),
    "memory_bytes": {**_NO_CHIP, **_NO_MONEY, **_WORK},
    "energy_j": {**_TIME, "tdp": 1},
    "price_usd": {**_NO_CHIP, **_NO_MONEY, "price": 1, "batch_size": 0, "seq_len": 0},
    "throughput_per_usd": {**_turned(_USD), "amortization_years": 0},
    "usd_per_mtoken": _USD,
}

_HIDING = ("efficiency", "overlap_efficiency", "overlap_tp", "overlap_ep", "overlap_cp", "overlap_pp")
_SLOWING = ("congestion_factor", "straggler_factor", "moe_routing_imbalance_factor")
_FAILURES = ("checkpoint_time_s", "avg_recovery_time_s")
_PRICES = ("kwh_price", "unit_cost", "infrastructure_multiplier", "maintenance_fraction")
_NO_STEP = dict.fromkeys((*_HIDING, *_SLOWING), 0)
_NO_FAILURES = dict.fromkeys(_FAILURES, 0)
_NO_PRICES = {**dict.fromkeys(_PRICES, 0), "amortization_years": 0}
_NO_ROOM = {"memory_headroom": 0}
_STEP = {**dict.fromkeys(_HIDING, -1), **dict.fromkeys(_SLOWING, 1)}
_STEP_ALONE = {**_STEP, **_NO_FAILURES, **_NO_PRICES, **_NO_ROOM}
_LOST = dict.fromkeys(_FAILURES, 1)
_PER_TOKEN = {**_STEP, **_LOST, **_NO_PRICES, **_NO_ROOM}

_TRAINING: dict[str, dict[str, int]] = {
    "feasible": {**_NO_STEP, **_turned(_LOST), **_NO_PRICES, "memory_headroom": -1},
    "step_time_s": _STEP_ALONE,
    **dict.fromkeys(("mfu", "tokens_per_second"), _turned(_STEP_ALONE)),
    "memory_bytes": {**_NO_STEP, **_NO_FAILURES, **_NO_PRICES, "memory_headroom": 1},
    "goodput_ratio": {**_NO_STEP, **_turned(_LOST), **_NO_PRICES, **_NO_ROOM},
    "usd_per_mtoken": {**_PER_TOKEN, **dict.fromkeys(_PRICES, 1), "amortization_years": -1},
    **dict.fromkeys(("kwh_per_mtoken", "kgco2e_per_mtoken"), _PER_TOKEN),
}

_ANSWER = {**dict.fromkeys(_RATES, -1), **_NO_PRICES}
_BILL = {**_ANSWER, **dict.fromkeys(_PRICES, 1), "amortization_years": -1}
_NO_ANSWER = {**dict.fromkeys(_RATES, 0), **_NO_PRICES}

_SERVING: dict[str, dict[str, int]] = {
    **dict.fromkeys(("feasible", "devices", "memory_bytes"), _NO_ANSWER),
    **dict.fromkeys(("ttft_s", "itl_s", "tpot_s", "e2e_s", "kwh_per_mtoken", "kgco2e_per_mtoken"), _ANSWER),
    **dict.fromkeys(("tokens_per_second", "requests_per_second", "mfu"), _turned(_ANSWER)),
    **dict.fromkeys(("tokens_per_second_per_user", "tokens_per_second_per_device"), _turned(_ANSWER)),
    "usd_per_mtoken": _BILL,
}

MONOTONE: dict[str, dict[str, dict[str, int]]] = {"node": _NODE, "serving": _SERVING, "training": _TRAINING}
"""Directions by kind, output and input."""


def direction(kind: str, output: str, name: str) -> int | None:
    """1, -1 or 0 as above; None where nothing is declared."""
    return MONOTONE.get(kind, {}).get(output, {}).get(name)
