"""Which layers the devices of a pipeline have, and what it costs that chunks differ."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from mlsysim.physics.interleaving import groups_of, longest
from mlsysim.physics.pipeline import CHUNKED, FOLDED, USUAL, Shares, held, makespan, there_and_back
from mlsysim.units.combined import once_each
from mlsysim.units.ops import ceil, either, floor, maximum, minimum, where


class Split(NamedTuple):
    """Layers of the first device, of those between, and of the last."""

    first: Any
    most: Any
    last: Any


def alike(layers: Any, p: Any, v: Any = 1) -> Any:
    """Whether chunks have as many layers as each other, or all but the outer ones: these lack two between them, or the last less than a chunk."""
    chunk = ceil(layers / (p * v))
    lacks = chunk * p * v - layers
    return (lacks < chunk) | (lacks <= 2)


def stage_layers(layers: Any, p: Any, v: Any = 1) -> Split:
    """How p devices of v chunks split the layers.

    Chunks have as many layers as each other. Where they lack one or two of that, the head and the embedding stand for a layer (126 layers are 7, 8, ..., 8, 7
    over 16 devices: Llama 3, Megatron's ``account_for_loss_in_pipeline_split``); where they lack less than a chunk, the last has fewer, for it has the
    head and what predicts further tokens (61 layers in 16 chunks of four: Megatron-Bridge's DeepSeek-V3). Else the first chunks have one layer
    more than the others (torchtitan), and devices differ by one at most.
    """
    v = where(p > 1, v, 1)
    chunk = ceil(layers / (p * v))
    lacks = chunk * p * v - layers
    same, both = alike(layers, p, v), where(lacks == 2, 1, 0)
    most = where(same, chunk * v, ceil(layers / p))
    first, last = most - both, where(same, chunk * v - lacks + both, floor(layers / p))
    return Split(first, where(p == 2, maximum(first, last), most), last)


def chunk_layers(layers: int, p: int, v: int = 1) -> list[int]:
    """Layers of every chunk, in the order of the model (:func:`stage_layers`)."""
    short, more = divmod(layers, p * v)
    if not more or not alike(layers, p, v):
        return [short + (place < more) for place in range(p * v)]
    lacks = p * v - more
    first = lacks == 2
    return [short + 1 - first, *[short + 1] * (p * v - 2), short + 1 - lacks + first]


def held_layers(schedule: str, layers: Any, p: Any, m: Any, v: Any = 1, group: Any = None) -> Split:
    """Layers times the micro-batches that wait in them, at most: on the first device, the fullest of those between, and the last.

    It follows from the order. 1F1B holds min(p - s, m) micro-batches on device s; GPipe, breadth first and zero-bubble schedules as many on every
    device; the first device of a V and the outer ones of DualPipe begin alone and hold (m + 1) / 2 or m / 2 + 1 where m is small. Interleaving holds
    T_s = min((v - 1) N + 2 (p - s) - 1, m v) chunks. Where the first J chunks of a device have a layer more, backward passes of short ones are done
    beside forward passes of long ones, until J N + min(J N', (v - J - 1) N + 2 (p - s) - 1) of these wait, with N' in the second group, and more where that
    lets a third begin (exact but for a layer at one of 300 points, of unequal groups). Of a first chunk that is shorter max(N, 2 p - 1) wait at least.
    """
    return once_each(partial(_held_layers, schedule), layers, p, m, v, group)


def _held_layers(schedule: str, layers: Any, p: Any, m: Any, v: Any, group: Any) -> Split:
    split, many = stage_layers(layers, p, v), 1.0 * m
    all_of = held(schedule, p, m, v, group)
    if schedule in FOLDED:
        first = minimum(all_of, 0.5 * (m + 1))
        return Split(
            where(p > 1, split.first + split.last - split.most, layers) * first,
            split.most * all_of,
            split.most * all_of,
        )
    if schedule == "dualpipe":
        # Device d from an end has p - d micro-batches in stage d and d + 1 in the stage as far from the other end, of m / 2 each.
        half, short = where(p > 1, 0.5 * m, 1.0), floor(layers / p)
        more = layers - p * short
        outer = split.first * minimum(1.0 * p, half) + where(p > 1, split.last, 0)
        deep = minimum(maximum(p - half, 0.0), maximum(more - 1.0, 0.0))
        near = minimum(p - deep, half)
        inner = maximum(split.most * near + short * minimum(deep + 1, half), short * all_of)
        inner = where(alike(layers, p) | (more > p / 2), split.most * all_of, inner)
        return Split(outer, where(p > 2, inner, outer), outer)
    if schedule not in USUAL:
        return Split(*(own * all_of for own in split))
    plain = Split(
        split.first * minimum(1.0 * p, many), split.most * minimum(maximum(p - 1.0, 1.0), many), 1.0 * split.last
    )
    if isinstance(v, int) and v == 1:
        return plain
    ahead, _ = groups_of(p, m, group)
    groups = maximum(1.0, floor(m / p)) if group is None else ceil(m / group)
    behind = minimum(ahead, ceil((m - ahead) / maximum(groups - 1, 1.0)))
    chunk, short = ceil(layers / (p * v)), floor(layers / (p * v))
    more, same = layers - short * p * v, alike(layers, p, v)

    def chunks(begun: Any, long: Any) -> Any:
        """Layers that wait on a device that begins so many chunks beside those of the first group, of which so many are long."""
        waits = minimum((v - 1) * ahead + begun, many * v)
        beyond = (v - long - 1) * ahead + begun
        third = minimum(long * maximum(m - ahead - behind, 0.0), maximum(beyond - v * behind, 0.0))
        longer = long * ahead + minimum(long * behind, beyond) + third
        return where(same, chunk * waits, short * waits + minimum(longer, waits))

    lacking = where(p > 1, chunk * v - split.first, 0) * minimum(maximum(ahead, 2.0 * p - 1), many)
    begun, long = 2.0 * p - 1, ceil(more / p)
    found = (
        chunks(begun, long) - where(same, lacking, 0.0),
        chunks(begun - 2, ceil((more - 1) / p) * where(more > 0, 1, 0)),
        chunks(1.0, floor(more / p)),
    )
    return Split(*(where(v > 1, several, one) for several, one in zip(found, plain, strict=True)))


def uneven_chunks(
    schedule: str, layers: Any, p: Any, m: Any, shares: Shares, v: Any = 1, group: Any = None, ends: bool = True
) -> Any:
    """What a step takes longer (or shorter) than one of devices that are all as long as the longest, in times of a device; with ``ends`` the first
    and the last are not counted, for they have times of their own.

    Filling and draining cross every device once: what those between lack is not waited for, and by 1F1B, whose devices wait for the next one both
    at the first and at the last micro-batch, twice. With k layers or k + 1 in a chunk, the longer first, they cross the longer ones: (min(m, p) - 1)
    (k + 1 - most / v) layers more. In an interleaved step groups wait for one another too: a path that changes devices with the chunks meets one
    layer more at each of p micro-batches and loses k + 2 at each turn, of which there is one more for each micro-batch that groups have
    beyond p and for each of the q devices that lack a layer: (p - (k + 2)(1 + N - p + q))+ layers for each group from the third on. That
    part is read off simulated orders. Exact for gpipe and breadth_first, and for interleaving where chunks are :func:`alike`; else it is 2 % off on
    average and up to 9 too long.
    """
    if schedule not in (*CHUNKED, "gpipe", "1f1b"):
        return 0.0
    v = where(p > 1, v, 1)
    short, split = floor(layers / (p * v)), stage_layers(layers, p, v)
    most, more = 1.0 * split.most, layers - short * p * v
    lacking = split.first + (p - 2) * most + split.last - layers
    longer = where(more > 0, short + 1 - most / v, 0.0)
    found = (minimum(1.0 * m, 1.0 * p) - 1) * longer - lacking
    if schedule in USUAL:
        twice = -there_and_back(most, most - 1, 2, shares)
        pace = longest(shares.forward * most, (shares.inputs + shares.weights) * most, most - 1)
        few = twice - 1 - lacking + (m - 1) * (pace - most)
        alone = where(lacking > 0, maximum(-lacking * twice, few), 0.0)
        count = maximum(1.0, floor(m / p)) if group is None else ceil(m / group)
        turns = 1 + maximum(m / count - p, 0.0) + p * ceil(more / p) - more
        waits = maximum(count - 2, 0.0) * maximum(p - (short + 2) * turns, 0.0)
        found = where(v > 1, found + where(longer > 0, waits, 0.0), alone)
    outer: tuple[Any, Any] = 1.0 * split.first, 1.0 * split.last

    def apart(p: Any, m: Any, most: Any, shares: Shares, outer: Any, v: Any, group: Any) -> Any:
        """What the ends take longer."""
        uneven = makespan(schedule, p, m, most, shares, None, outer[0], outer[1], v, group)
        return uneven - makespan(schedule, p, m, most, shares, v=v, group=group)

    def inner(p: Any, m: Any, most: Any, shares: Shares, outer: Any, v: Any, group: Any) -> Any:
        """What they do where it is an inner chunk that an end lacks, which is crossed once, too."""
        crossed = sum(outer) - 2 * most
        return crossed - apart(p, m, most, shares, outer, v, group) if ends else crossed

    if schedule == "interleaved":
        known = alike(layers, p, v) | (v == 1)
        even = (lambda p, m, most, *_: 0.0 * most) if ends else apart
        found = found + either(known, even, inner, p, m, most, shares, outer, v, group)
    elif not ends:
        found = found + apart(p, m, most, shares, outer, v, group)
    return where(p > 1, found / most, 0.0)
