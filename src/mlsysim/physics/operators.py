"""Operator times: closed forms for the kernels that a network is made of, with constants that were fitted to silicon.

Every form has a start-up time t0 (launch, ramp, drain), which decides small operators, and achieved instead of peak rates.

    GEMM               t0 + |F/R, B/(e W)|_4 + Q/(q W)      R achieved rate, e share of memory bandwidth, Q bytes quantised
    attention          t0 + F (1 + S0/S) / A                short sequences do not fill the chip
    decode attention   t0 + |K/(e W), F/A|_4                keys and values read once; latent attention may be compute bound
    memory bound       t0 + B / (e W)
    host               max(device time, n x cost per operator)   when operators are launched one by one
    collective         start + steps + bytes over the share of the link, two protocols, in-switch reduction

|a, b|_4 is the 4-norm: the larger of the two, with a soft corner where both matter. Derivations, fits and what was found
not worth a term (wave quantisation, tile padding) are in ``docs/accuracy.md``.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import Arg, kernel
from mlsysim.units.ops import maximum, minimum

__all__ = [
    "attention_decode_time",
    "attention_prefill_time",
    "gemm_time",
    "grouped_gemm_time",
    "host_bound_time",
    "link_time",
    "memory_bound_time",
    "soft_maximum",
]

_FLOPS = Arg("flop", 1e6, 1e15)
_BYTES = Arg("byte", 1e3, 1e12)
_RATE = Arg("flop/s", 1e12, 1e16)
_BANDWIDTH = Arg("byte/s", 1e10, 1e13)
_START = Arg("s", 1e-7, 1e-4)
_SHARE = Arg("", 0.05, 1.0)
_CORNER = 4


def soft_maximum(a: Any, b: Any) -> Any:
    """The 4-norm of two times: the larger, and up to 19 % more where both are equal."""
    longer, shorter = maximum(a, b), minimum(a, b)
    return longer * (1 + (shorter / longer) ** _CORNER) ** (1 / _CORNER)


@kernel(
    inputs={
        "operations": _FLOPS,
        "moved": _BYTES,
        "quantised": _BYTES,
        "rate": _RATE,
        "bandwidth": _BANDWIDTH,
        "memory_share": _SHARE,
        "quantise_share": _SHARE,
        "start": _START,
    },
    outputs={"time": "s"},
)
def gemm_time(
    operations: Any,
    moved: Any,
    quantised: Any,
    rate: Any,
    bandwidth: Any,
    memory_share: Any,
    quantise_share: Any,
    start: Any,
) -> Any:
    """A matrix product: arithmetic against memory, and the conversion of its input to a narrower format."""
    product = soft_maximum(operations / rate, moved / (memory_share * bandwidth))
    return start + product + quantised / (quantise_share * bandwidth)


@kernel(
    inputs={
        "operations": _FLOPS,
        "weights": _BYTES,
        "activations": _BYTES,
        "rate": _RATE,
        "bandwidth": _BANDWIDTH,
        "memory_share": _SHARE,
        "activation_share": _SHARE,
        "start": _START,
        "imbalance": Arg("", 1.0, 4.0),
    },
    outputs={"time": "s"},
)
def grouped_gemm_time(
    operations: Any,
    weights: Any,
    activations: Any,
    rate: Any,
    bandwidth: Any,
    memory_share: Any,
    activation_share: Any,
    start: Any,
    imbalance: Any,
) -> Any:
    """Products of many experts at once: weights of the experts hit, routed activations, and the busiest device."""
    arithmetic, memory = operations / rate, weights / (memory_share * bandwidth)
    longer, shorter = maximum(arithmetic, memory), minimum(arithmetic, memory)
    product = longer * (1 + (shorter / longer) ** 2) ** 0.5
    return start + imbalance * (product + activations / (activation_share * bandwidth))


@kernel(
    inputs={
        "operations": _FLOPS,
        "tokens": Arg("", 16, 1e5),
        "rate": _RATE,
        "ramp": Arg("", 10, 3000),
        "start": _START,
    },
    outputs={"time": "s"},
)
def attention_prefill_time(operations: Any, tokens: Any, rate: Any, ramp: Any, start: Any) -> Any:
    """Fused attention over a sequence; ``ramp`` is the length at which half of the rate is reached."""
    return start + operations * (1 + ramp / tokens) / rate


@kernel(
    inputs={
        "cached": _BYTES,
        "operations": _FLOPS,
        "rate": _RATE,
        "bandwidth": _BANDWIDTH,
        "memory_share": _SHARE,
        "start": _START,
    },
    outputs={"time": "s"},
)
def attention_decode_time(
    cached: Any, operations: Any, rate: Any, bandwidth: Any, memory_share: Any, start: Any
) -> Any:
    """One query per sequence against its cache."""
    return start + soft_maximum(operations / rate, cached / (memory_share * bandwidth))


@kernel(
    inputs={"moved": _BYTES, "bandwidth": _BANDWIDTH, "memory_share": _SHARE, "start": _START}, outputs={"time": "s"}
)
def memory_bound_time(moved: Any, bandwidth: Any, memory_share: Any, start: Any) -> Any:
    """Norms, activations, copies, embeddings: bytes at the achieved share of the bandwidth."""
    return start + moved / (memory_share * bandwidth)


@kernel(
    inputs={"device": Arg("s", 1e-5, 1.0), "operators": Arg("", 1, 1e4), "cost": Arg("s", 1e-7, 1e-4)},
    outputs={"time": "s"},
)
def host_bound_time(device: Any, operators: Any, cost: Any) -> Any:
    """A pass whose operators the host launches one by one: it cannot be faster than the launches."""
    return maximum(device, operators * cost)


@kernel(
    inputs={
        "message": Arg("byte", 512, 1e9),
        "ranks": Arg("", 2, 72, whole=True),
        "wire": Arg("", 0.5, 2.0),
        "steps": Arg("", 1, 142),
        "link": _BANDWIDTH,
        "start": _START,
        "step_share": Arg("", 0.05, 0.5),
        "copy": Arg("", 0.1, 1.0),
        "efficiency": _SHARE,
        "eager_share": _SHARE,
        "rendezvous": Arg("", 0.5, 5.0),
    },
    outputs={"time": "s"},
)
def link_time(
    message: Any,
    ranks: Any,
    wire: Any,
    steps: Any,
    link: Any,
    start: Any,
    step_share: Any,
    copy: Any,
    efficiency: Any,
    eager_share: Any,
    rendezvous: Any,
) -> Any:
    """A collective inside a link domain, by the faster of two protocols.

    ``wire`` is how often the message crosses a link (2 (n-1)/n for an all-reduce), ``steps`` the ring's steps; each costs
    ``step_share`` of the start-up time. The local copy adds ``copy`` / n of the message. Small messages go at
    ``eager_share`` of the bandwidth; large ones pay ``rendezvous`` start-up times more and get all of it.
    """
    base = start * (1 + step_share * (steps - 1))
    crossing = (wire + copy / ranks) * message / (efficiency * link)
    return minimum(base + crossing / eager_share, base + rendezvous * start + crossing)
