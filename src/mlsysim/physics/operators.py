"""Operator times: closed forms for the kernels that a network is made of, with constants that were fitted to silicon.

Every form has a start-up time t0 (launch, ramp, drain), which decides small operators, and achieved instead of peak rates.

    GEMM               t0 + ||F/R, B/(e W)|_c, L k^g|_4 + Q/(q W)    R achieved rate, e share of memory bandwidth, Q bytes quantised
    attention          t0 + |F (1 + S0/S) / A, B/(e W)|_c   short sequences do not fill the chip; the shortest only move bytes
    decode attention   t0 + ||K/(e W), F/A|_4, r n|_2, L s^g|_4      keys and values read once; latent attention may be compute bound
    memory bound       t0 + B / (e W)
    host               max(device time, n x cost per operator)   when operators are launched one by one
    overlap            max(a, b) + kappa min(a, b)               kappa 0: hidden for free; 1: nothing is gained
    collective         start + steps + bytes over the share of the link, two protocols, in-switch reduction

|a, b|_c is the c-norm: the larger of the two, with a soft corner where both matter (c = 1 is their sum: no overlap; without an end the longer alone, as in training). L k^g
is the chain of one tile: a product with few output tiles leaves most of the chip idle, and its time is that of walking the
reduction k, however small m and n are; g below 1 is split-k at work. In decode r n are the n rows (sequence and key head)
that cost r each however short they are, and L s^g is the walk along s cached tokens. Each form is written once on the times of
its parts (``product_time``, ``experts_time``, ``attention_time``, ``cache_attention_time``), which a ledger can name; the
others put operations, bytes and rates into it. Derivations, fits and what was found not
worth a term (wave quantisation, tile padding) are in ``docs/accuracy.md``.
"""

from __future__ import annotations

import math
from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import maximum, minimum, power, sqrt

_SHARP = 4.0
_ROUND = 2.0
HARD = float("inf")
"""The corner of the longer of two."""


def soft_maximum(a: Any, b: Any, corner: Any = _SHARP) -> Any:
    """The norm of two times: the larger, and up to 19 % more (with a corner of 4) where both are equal."""
    if isinstance(b, float) and b == 0.0:
        return a
    if corner is _SHARP and type(a) is float and type(b) is float:
        share = b / a if a > b else a / b
        return (a if a > b else b) * math.sqrt(math.sqrt(1 + share * share * (share * share)))
    if corner is HARD:
        return maximum(a, b)
    if not (isinstance(a, float) and isinstance(b, float)):
        own = getattr(a, "__norm__", None) or getattr(b, "__norm__", None)
        if own is not None:
            return own(a, b, corner)
    longer, shorter = maximum(a, b), minimum(a, b)
    if isinstance(corner, float) and corner == _SHARP:
        # Fourth powers and roots by squares: on arrays ten times as fast as a general power.
        squared = (shorter / longer) * (shorter / longer)
        return longer * sqrt(sqrt(1 + squared * squared))
    return longer * power(1 + power(shorter / longer, corner), 1 / corner)


@kernel("""
    arithmetic: s [1e-7, 0.01], memory: s [1e-7, 0.01], conversion: s [1e-7, 0.01], walk: s [1e-7, 0.01],
    start: s [1e-7, 1e-4], corner [1, 12] -> time: s
""")
def product_time(arithmetic: Any, memory: Any, conversion: Any, walk: Any, start: Any, corner: Any = _SHARP) -> Any:
    """A matrix product: arithmetic against memory, the walk of one tile, and the conversion of its input."""
    return start + soft_maximum(soft_maximum(arithmetic, memory, corner), walk) + conversion


@kernel("""
    arithmetic: s [1e-7, 0.01], memory: s [1e-7, 0.01], activations: s [1e-7, 0.01],
    start: s [1e-7, 1e-4], corner [1, 12] -> time: s
""")
def experts_time(arithmetic: Any, memory: Any, activations: Any, start: Any, corner: Any = _ROUND) -> Any:
    """Products of many experts at once: arithmetic against the weights of those hit, and their routed activations."""
    return start + (soft_maximum(arithmetic, memory, corner) + activations)


@kernel("arithmetic: s [1e-7, 0.01], streaming: s [1e-7, 0.01], start: s [1e-7, 1e-4], corner [1, 12] -> time: s")
def attention_time(arithmetic: Any, streaming: Any, start: Any, corner: Any = _ROUND) -> Any:
    """Fused attention over a sequence: arithmetic against queries, keys, values and results through memory."""
    return start + soft_maximum(arithmetic, streaming, corner)


@kernel("""
    arithmetic: s [1e-7, 0.01], reading: s [1e-7, 0.01], rows: s [1e-7, 0.01], walk: s [1e-7, 0.01],
    start: s [1e-7, 1e-4] -> time: s
""")
def cache_attention_time(arithmetic: Any, reading: Any, rows: Any, walk: Any, start: Any) -> Any:
    """One query a sequence against its cache: reading it, the fixed cost of its rows, the walk along the cached tokens."""
    return start + soft_maximum(soft_maximum(soft_maximum(arithmetic, reading), rows, _ROUND), walk)


@kernel("moved: byte [1e3, 1e12], bandwidth: byte/s [1e10, 1e13], share [0.05, 1] -> time: s")
def stream_time(moved: Any, bandwidth: Any, share: Any) -> Any:
    """Bytes at a share of the memory bandwidth."""
    return moved / (share * bandwidth)


@kernel("moving: s [1e-7, 0.01], start: s [1e-7, 1e-4] -> time: s")
def moving_time(moving: Any, start: Any) -> Any:
    """Norms, activations, copies, embeddings: bytes through memory, after the start."""
    return start + moving


@kernel("""
    operations: flop [1e6, 1e15], moved: byte [1e3, 1e12], quantised: byte [1e3, 1e12], rate: flop/s [1e12, 1e16],
    bandwidth: byte/s [1e10, 1e13], memory_share [0.05, 1], quantise_share [0.05, 1], start: s [1e-7, 1e-4],
    reduction [0.01, 16], chain: s [1e-7, 1e-4], growth [0.1, 1.5], corner [1, 12] -> time: s
""")
def gemm_time(
    operations: Any,
    moved: Any,
    quantised: Any,
    rate: Any,
    bandwidth: Any,
    memory_share: Any,
    quantise_share: Any,
    start: Any,
    reduction: Any = 1.0,
    chain: Any = 0.0,
    growth: Any = 1.0,
    corner: Any = _SHARP,
) -> Any:
    """A matrix product: arithmetic against memory, the walk along ``reduction`` (in units of the length at which ``chain`` is
    given), and the conversion of its input to a narrower format."""
    return product_time(
        operations / rate,
        moved / (memory_share * bandwidth),
        quantised / (quantise_share * bandwidth),
        chain * power(reduction, growth),
        start,
        corner,
    )


@kernel("""
    operations: flop [1e6, 1e15], tokens [16, 1e5], rate: flop/s [1e12, 1e16], ramp [10, 3000], start: s [1e-7, 1e-4],
    streaming: s [1e-6, 0.01], corner [1, 12] -> time: s
""")
def attention_prefill_time(
    operations: Any, tokens: Any, rate: Any, ramp: Any, start: Any, streaming: Any = 0.0, corner: Any = _ROUND
) -> Any:
    """Fused attention over a sequence; ``ramp`` is the length at which half of the rate is reached, ``streaming`` the time
    that queries, keys, values and results take through memory."""
    return attention_time(operations * (1 + ramp / tokens) / rate, streaming, start, corner)


@kernel("""
    cached: byte [1e3, 1e12], operations: flop [1e6, 1e15], rate: flop/s [1e12, 1e16], bandwidth: byte/s [1e10, 1e13],
    memory_share [0.05, 1], start: s [1e-7, 1e-4], rows [1, 1e5], row_time: s [1e-9, 1e-7], reach [0.01, 16],
    chain: s [1e-7, 1e-4], growth [0.1, 1.5] -> time: s
""")
def attention_decode_time(
    cached: Any,
    operations: Any,
    rate: Any,
    bandwidth: Any,
    memory_share: Any,
    start: Any,
    rows: Any = 0.0,
    row_time: Any = 0.0,
    reach: Any = 1.0,
    chain: Any = 0.0,
    growth: Any = 1.0,
) -> Any:
    """One query per sequence against its cache: reading it, a fixed cost for each of the ``rows``, the walk along ``reach``
    (cached tokens in units of the length at which ``chain`` is given)."""
    return cache_attention_time(
        operations / rate, cached / (memory_share * bandwidth), rows * row_time, chain * power(reach, growth), start
    )


@kernel("""
    moved: byte [1e3, 1e12], bandwidth: byte/s [1e10, 1e13], memory_share [0.05, 1], start: s [1e-7, 1e-4] -> time: s
""")
def memory_bound_time(moved: Any, bandwidth: Any, memory_share: Any, start: Any) -> Any:
    """Norms, activations, copies, embeddings: bytes at the achieved share of the bandwidth."""
    return moving_time(moved / (memory_share * bandwidth), start)


@kernel("device: s [1e-5, 1], operators [1, 1e4], cost: s [1e-7, 1e-4] -> time: s")
def host_bound_time(device: Any, operators: Any, cost: Any) -> Any:
    """A pass whose operators the host launches one by one: it cannot be faster than the launches."""
    return maximum(device, operators * cost)


@kernel("a: s [1e-5, 10], b: s [1e-5, 10], kappa [0.01, 1] -> time: s")
def overlapped(a: Any, b: Any, kappa: Any) -> Any:
    """Two activities at the same time, each of which slows the other: the longer, and a part of the shorter."""
    return maximum(a, b) + kappa * minimum(a, b)


@kernel("""
    message: byte [512, 1e9], ranks whole [2, 72], wire [0.5, 2], steps [1, 142], link: byte/s [1e10, 1e13],
    start: s [1e-7, 1e-4], step_share [0.05, 0.5], copy [0.1, 1], efficiency [0.05, 1], eager_share [0.05, 1],
    rendezvous [0.5, 5] -> time: s
""")
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


@kernel("kinds [0, 1e4], draws [0, 1e5] -> distinct")
def distinct_kinds(kinds: Any, draws: Any) -> Any:
    """How many of A kinds, all as likely, are among n draws on average: A (1 - (1 - 1/A)^n), n of few draws and A of many."""
    return kinds * (1 - power(1 - 1 / maximum(kinds, 1.0), draws))
