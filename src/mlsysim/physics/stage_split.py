"""Which layers the devices of a pipeline have, and what it costs that chunks differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.physics.pipeline import CHUNKED, USUAL, Shares, longest, short_ends, there_and_back
from mlsysim.units.ops import ceil, floor, maximum, minimum, where


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
    part is read off simulated orders. Exact for gpipe and breadth_first.
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
    if not ends:
        found = found + short_ends(schedule, m, most, shares, 1.0 * split.first, 1.0 * split.last, v)
    return where(p > 1, found / most, 0.0)
