"""Collective operations in the alpha-beta model: start-up time of a message plus bytes over bandwidth.

``bandwidth`` is what one rank sends while it receives as much (one direction of a link). A ring all-reduce of M bytes
over N ranks is a reduce-scatter and an all-gather of N - 1 steps each, moving M/N a step:

    T = 2 (N - 1) / N x M / B + 2 (N - 1) alpha                          (Patarasuk and Yuan, JPDC 69(2), 2009)

A tree sends the whole message up and down log2 N levels; it wins for small messages. Two trees of which each has half of the message, and whose
inner ranks are leaves of the other, keep every rank's port busy; cut into pieces that follow each other they have the rate of a ring and the start-up of a tree. With fast links inside nodes of G
ranks and slow ones between K nodes, the hierarchical all-reduce scatters inside the node, reduces 1/G of the message
across nodes (each rank on its own adapter), and gathers inside the node. A pipelined ring runs through all ranks in chunks, so
that its start-up is paid once. With one rank everything takes no time.
"""

from __future__ import annotations

from typing import Any

from mlsysim.units.kernel import kernel
from mlsysim.units.ops import log2, maximum, minimum, sqrt

_OF_RANKS = (
    "message: byte [1, 1e12], ranks whole [1, 1e5], bandwidth: byte/s [1e8, 1e13], latency: s [1e-7, 1e-4] -> time: s"
)


@kernel(_OF_RANKS)
def ring_all_reduce(message: Any, ranks: Any, bandwidth: Any, latency: Any) -> Any:
    """Sum of ``message`` bytes over all ranks, known to all."""
    return 2 * (ranks - 1) / ranks * message / bandwidth + 2 * (ranks - 1) * latency


@kernel(_OF_RANKS)
def all_gather(message: Any, ranks: Any, bandwidth: Any, latency: Any) -> Any:
    """Each rank ends with the whole ``message`` of which it held 1/N; a reduce-scatter takes as long."""
    return (ranks - 1) / ranks * message / bandwidth + (ranks - 1) * latency


@kernel(_OF_RANKS)
def all_to_all(message: Any, ranks: Any, bandwidth: Any, latency: Any) -> Any:
    """Each rank sends 1/N of its ``message`` to every other rank."""
    return (ranks - 1) / ranks * message / bandwidth + (ranks - 1) * latency


@kernel(_OF_RANKS)
def tree_all_reduce(message: Any, ranks: Any, bandwidth: Any, latency: Any) -> Any:
    """The whole message up and down a binary tree."""
    levels = log2(ranks)
    return 2 * levels * (message / bandwidth + latency)


@kernel("""
    message: byte [1, 1e12], ranks whole [2, 1e5], bandwidth: byte/s [1e8, 1e13], inside: s [0, 10], latency: s [1e-7, 1e-4] -> time: s
""")
def two_tree_all_reduce(message: Any, ranks: Any, bandwidth: Any, inside: Any, latency: Any) -> Any:
    """Sum over all ranks by two trees in pieces (Sanders, Speck and Traeff, Parallel Computing 35(12), 2009), which libraries use since NCCL 2.4.

    A rank sends its half up in both trees and, where it is inner, a half down to each of two children: 2 M in all, of two ranks
    M and of three 3 M / 2. What ranks that stand for nodes do ``inside`` them meanwhile sets the pace where it takes longer. In k pieces, over
    D = 2 log2 N steps up and down,

        T = (D - 1 + k) (alpha + s / k),    s = max(min(2, N / 2) M / B, inside),    k = max(1, sqrt((D - 1) s / alpha))

    of which k is the best: T = s + (D - 1) alpha + 2 sqrt((D - 1) alpha s) for large messages.
    """
    late = 2 * log2(ranks) - 1
    sent = maximum(minimum(2.0, ranks / 2) * message / bandwidth, inside)
    pieces = maximum(sqrt(late * sent / latency), 1.0)
    return (late + pieces) * (latency + sent / pieces)


@kernel("""
    message: byte [1, 1e12], nodes whole [1, 1e4], ranks_per_node whole [1, 72], intra_bandwidth: byte/s [1e8, 1e13],
    intra_latency: s [1e-7, 1e-4], inter_bandwidth: byte/s [1e8, 1e13], inter_latency: s [1e-7, 1e-4] -> time: s
""")
def hierarchical_all_reduce(
    message: Any,
    nodes: Any,
    ranks_per_node: Any,
    intra_bandwidth: Any,
    intra_latency: Any,
    inter_bandwidth: Any,
    inter_latency: Any,
) -> Any:
    """Reduce-scatter inside the node, all-reduce of each rank's share between nodes, all-gather inside the node."""
    inside = 2 * all_gather(message, ranks_per_node, intra_bandwidth, intra_latency)
    between = ring_all_reduce(message / ranks_per_node, nodes, inter_bandwidth, inter_latency)
    return inside + between


@kernel("message: byte [1, 1e12], bandwidth: byte/s [1e8, 1e13], latency: s [1e-7, 1e-4] -> time: s")
def send(message: Any, bandwidth: Any, latency: Any) -> Any:
    """One message from one rank to another."""
    return message / bandwidth + latency


@kernel("""
    message: byte [1, 1e12], ranks whole [1, 1e4], inside whole [1, 72], link: byte/s [1e8, 1e13],
    adapter: byte/s [1e8, 1e13], start: s [1e-7, 1e-4], hop: s [1e-7, 1e-4] -> time: s
""")
def ring_time(message: Any, ranks: Any, inside: Any, link: Any, adapter: Any, start: Any, hop: Any) -> Any:
    """An all-gather (or reduce-scatter) of a message over a ring of ``ranks``, ``inside`` of which share a domain.

    The ring leaves a domain over as many adapters as it has ranks there. One rank alone takes no time.
    """
    domains = maximum(ranks / inside, 1.0)
    across = minimum(domains - 1, 1.0)
    crossing = (1 / link) * (1 - across) + maximum(1 / link, 1 / (inside * adapter)) * across
    some = minimum(ranks - 1, 1.0)
    return some * (start + across * domains * hop) + (ranks - 1) / ranks * message * crossing


@kernel("domains [1, 100], choices [1, 64], groups [1, 64], chosen [1, 64] -> others")
def distinct_domains(domains: Any, choices: Any, groups: Any = 1.0, chosen: Any = 1.0) -> Any:
    """Expected number of other link domains that a token with ``choices`` uniform experts must visit.

    Routing may be limited to ``chosen`` of ``groups`` equal groups of neighbouring experts (DeepSeek-V3: 4 of 8, a group a node). Of D domains

        c = D [ 1 - (1 - M/G)^max(G/D, 1) ]        have an expert of the chosen groups, and the token visits  c [ 1 - (1 - 1/c)^k ]

    of them, its own with probability 1/D. Exact for D >= G and without a limit (c = D); of fewer domains the groups are taken as drawn
    independently (3.0 of 4 domains instead of 3.14 for M = 4, G = 8).
    """
    missed = maximum(1 - chosen / groups, 0.0) ** maximum(groups / domains, 1.0)
    reached = maximum(domains * (1 - missed), 1.0)
    return (1 - 1 / domains) * reached * (1 - (1 - 1 / reached) ** choices)
