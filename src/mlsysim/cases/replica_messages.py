"""What replicas of a model say to each other in a step of training: gradients that are summed, weights that are gathered.

Gradients (P/(TP PP) elements a rank) are summed over the DP x CP ranks that hold the same weights once a step; ZeRO 1 replaces
the all-reduce by a reduce-scatter of gradients and an all-gather of weights (the same volume); ZeRO 2 scatters gradients for
every micro-batch, since it keeps no whole ones; ZeRO 3 also gathers the weights for every forward and backward pass: 1.5 times
the volume for each micro-batch. Software that keeps them whole for the step (``Job.regathers``) sends either once, and memory counts them
whole. With a shard of z ranks (HSDP) all of it stays among z neighbours, and copies of a share sum 1/z of the gradients once a step.
Frozen weights have no gradients and are gathered only where they are not kept; gradients of adapters (a hundredth) are left out.

:func:`said` is that list once; what a message costs (seconds of a network, bytes of a rank) is asked of ``part``, for a scatter or gather, and of
``whole``, for a sum that all know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mlsysim.cases.algebra import Algebra
from mlsysim.cases.job import Job
from mlsysim.cases.layout import Groups, Layout
from mlsysim.cases.schedule import sharing
from mlsysim.timing.network import Group, Hierarchical, resource_of
from mlsysim.units.ops import where

BETWEEN_SITES = "wide-area link"
"""The part of a step that replicas at several sites add to what they say to each other: (S - 1) (M / n (1 / W - 1 / B) + latency)."""


class Shared(NamedTuple):
    """Bytes of gradients and of weights that a group sums, the shard of it that shares state, and copies of a share.

    What is scattered or gathered goes in ``pieces``; ``there`` is nought where an array's point has no such group.
    """

    gradients: Any
    weights: Any
    group: Group
    shard: Group
    copies: Group | None
    pieces: Any = 1.0
    there: Any = 1.0


class Said(NamedTuple):
    """What a device says beside its layers for every micro-batch, and once a step after them."""

    beside: Any
    after: Any


def said(
    job: Job,
    layout: Layout,
    shared: list[Shared],
    part: Callable[[Any, Group], Any],
    whole: Callable[[Any, Group], Any],
) -> Said:
    """Messages of all groups. What is shared and not kept whole is said for every micro-batch."""
    zero, often = job.zero, sharing(job, layout)
    inner = (zero >= 2) & (often.whole_weights < 1)
    turns = where(zero >= 2, often.scatters, 1.0)
    beside: Any = 0.0
    after: Any = 0.0
    for x in shared:
        weights = x.there * x.pieces * part(x.weights / x.pieces, x.shard)
        none = 0.0 * weights
        if job.frozen:
            beside, after = beside + where(inner & (zero >= 3), 2 * weights, none), after + none
            continue
        gradients = x.there * x.pieces * part(x.gradients / x.pieces, x.shard)
        spread = where(inner, where(zero >= 3, none, weights), turns * gradients + weights)
        if x.copies is not None:
            spread = spread + x.there * whole(x.gradients / x.shard.ranks, x.copies)
        beside = beside + where(inner, gradients + where(zero >= 3, 2 * weights, none), none)
        after = after + where(zero >= 1, spread, x.there * whole(x.gradients, x.group))
    return Said(beside, after)


def messages(
    a: Algebra,
    job: Job,
    layout: Layout,
    net: Any,
    g: Groups,
    of: Callable[[Groups], list[Shared]],
    equation: str,
    stages: Any = None,
) -> Said:
    """Seconds of what replicas say, over the groups that ``of`` gives.

    Where a micro-batch is one on the layers of so many ``stages``, what is said beside them is a part of its own; else all is said after them.
    """
    micro = layout.micro_batches * job.accumulation

    def told(found: Said) -> Said:
        """As the phase has it."""
        if stages is None:
            return Said(0.0, found.after + micro * found.beside)
        return Said(stages * found.beside, found.after)

    def amount(place: int) -> Callable[[], Any]:
        """Bytes that a device sends of either."""
        once, twice = (lambda size, at, k=k: sent(k, size, at.ranks) for k in (1.0, 2.0))
        return lambda: told(said(job, layout, of(g), once, twice))[place]

    near: Said | tuple[None, None] = (None, None)
    if net.sites > 1:
        near = told(said(job, layout, of(g.at_one_site()), net.gather, net.all_reduce))
    beside, after = told(said(job, layout, of(g), net.gather, net.all_reduce))
    over = resource_of(sum(x.there * (x.group.domains > 1) for x in of(g)) == 0)
    if stages is not None:
        beside = _between_sites(a, "sharded state", over, equation, beside, near[0], amount(0))
    return Said(beside, _between_sites(a, "gradient synchronisation", over, equation, after, near[1], amount(1)))


def rings(job: Job, layout: Layout, x: Shared, net: Hierarchical) -> dict[str, Any]:
    """What the messages of a step are as rings: bytes and messages of one over n ranks in each of k nodes, seconds that several sites add, and the same of
    copies of a shard. ``ring_seconds`` are those of all rings; ``ring_layers`` and ``ring_copies`` take a tree where that is faster."""
    micro, group = layout.micro_batches * job.accumulation, x.shard if job.zero else x.group

    def told(part: Callable[[Any, Group], Any], whole: Callable[[Any, Group], Any], of: Shared) -> Any:
        found = said(job, layout, [of], part, whole)
        return found.after + micro * found.beside

    def both(part: Callable[[Any, Group], Any], of: Shared) -> Any:
        """With sums as a scatter and a gather."""
        return told(part, lambda size, at: 2 * part(size, at), of)

    alone, layers = x._replace(copies=None), told(net.gather, net.all_reduce, x._replace(copies=None))
    found = {"ring_inside": group.inside, "ring_nodes": group.domains, "ring_layers": layers}
    found |= {"ring_bytes": both(lambda size, at: size, alone), "ring_times": both(lambda size, at: 1.0, alone)}
    found |= {"ring_seconds": both(net.gather, x), "ring_sites": both(net.across, x)}
    found["ring_copies"] = told(net.gather, net.all_reduce, x) - layers
    if job.zero and x.copies is not None:
        inside, nodes = x.copies.inside, x.copies.domains
        found |= {"copies_inside": inside, "copies_nodes": nodes, "copies_bytes": x.gradients / x.shard.ranks}
    return found


def _between_sites(
    a: Algebra, name: str, over: str, equation: str, all_of_it: Any, near: Any, amount: Callable[[], Any]
) -> Any:
    """What replicas say to each other: as ``near`` as one site, and what several sites add; None where all are at one."""
    told = a.tag(name, 14, over, equation, all_of_it if near is None else near, sent=amount)
    return told if near is None else told + a.tag(BETWEEN_SITES, 14, "wide area", "wide area", all_of_it - near)


def sent(times: Any, message: Any, ranks: Any) -> Any:
    """Bytes that one rank sends in rings: of each message all but its own share."""
    return times * (ranks - 1) / ranks * message
