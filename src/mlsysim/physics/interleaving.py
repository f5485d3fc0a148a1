r"""How long an interleaved step takes whose first and last chunk are longer or shorter than the others.

p devices have v chunks each, of F forward and G backward; m micro-batches pass in groups, of N in the first and M in the last. A send takes c. The
outer chunks take x_0 and x_1 longer (or shorter) than others, in chunks. Between two chunks of a group the first device waits for what goes around,

    w_F = (p (F + c) - N F)+        w_G = (p (G + c) - M G)+        L = m v (F + G) + (v - 1)(w_F + w_G)

The step is the longest path through the order. The paths that are ever the longest:

    last    L + x + (p-1)(F+G+2c) + m x_1 (F+G)                      the last device never waits
    skip    L + x + (p-2)(F+G+2c)                                    the device before the last never waits
    touch   L + x + (p-1)(F+G+2c) - 2 min(F, G) + x_1 (F+G)          it waits for its neighbour at the first or at the last micro-batch
    first   L + m x_0 (F+G)                                          the first device never waits
    busy    L - w_F + 2(p-1)c + (p-1)(G-F) + x_0 (r F + m G) + x_1 (F+G),  r = m - (2p-N-1)+      it waits once, as long as the
            pipeline fills; or with (m-N) F of x_0 and N of x_1; or without the last device
    turn    L - w_F + p(F+c) - N F + (2p-2-N) G + x_0 ((m-N) F + m G) + x_1 N (F+G)              it waits for a group of the last device
            and twice so; of N = p also without the last device

Where a send outlasts a chunk, a group of p waits for what goes around at every wrap and not the first and the last alone. With k = m/p groups

    waits   (pv + kp - 1) F + (mv + p - 1) G + ((k+1) pv - (k-1) p - 2) c + x_0 (F+G) + min(m, p+1) x_1 (F+G)
            with m of x_1; or, of k > 1, with (2 + (k-2)(p-1)) F + (1 + (k-2) p) G of x_0 and p + 1 of x_1
    shuns   with 2c for F + G as often as floor(k (p-1)/2), of one group floor(p/2) - 1: it turns before the ends, as 1F1B does, and has no more of
            shorter ones

and with F and G exchanged. Groups of any size have that of one turn after the other. Device s is 2 (p - 1 - s) forward chunks ahead of the last and takes
each backward chunk in the same turn, so that d devices up and down again are 2d + 1 turns of the last device, and cost 2c for F + G d times

    back    L + (p-1)(F+G+2c) + (r (p-1) + d) (2c - F - G),  S = m v - (v-1) N turns of the last device
            r = floor((S-1) / (2p-1)),  d = floor((S - 2 - r (2p-1)) / 2)+

with x the outer chunk of the first device: x_0 F or, where that is longer, a whole group on it instead of once around, N F (1 + x_0) - max(N F, p (F+c)),
and so backward. "busy" and "turn" hold with F and G exchanged too. These are paths of the order, so that nothing here is too long; they were found by
following the longest path back through simulated orders (:mod:`mlsysim.plot.orders`) with random times, and read as above.

Exact with groups of p or no more micro-batches than devices and ends that are shorter, or a last one that is longer, while 2c <= F + G and
p (max(F, G) + c) <= N (F + G). With a first chunk that is longer a part in ten thousand short on average, with sends, unequal groups or fewer micro-batches
than devices ten, and at most four in a hundred. Two devices with unequal groups, which Megatron refuses, are half a part in a hundred short, and up to
a half where both outer chunks are shorter. With
sends that outlast a chunk and equal outer chunks groups of p are exact and others at most a tenth short, a part in a hundred on average; with a longer outer
chunk an eighth, with shorter ones a third; two devices a fifth, and a half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mlsysim.units.ops import ceil, either, floor, maximum, minimum, where


def longest(*times: Any) -> Any:
    """The longest of several paths."""
    found = times[0]
    for time in times[1:]:
        found = maximum(found, time)
    return found


def groups_of(p: Any, m: Any, group: Any) -> tuple[Any, Any]:
    """Micro-batches of the first and the last group."""
    if group is None:
        count = maximum(1.0, floor(m / p))
        return ceil(m / count), floor(m / count)
    return minimum(1.0 * group, 1.0 * m), m - group * floor((m - 1) / group)


class Order(NamedTuple):
    """What paths of an interleaved step are made of."""

    p: Any
    m: Any
    chunks: tuple[Any, Any]
    c: Any
    sizes: tuple[Any, Any]
    """Micro-batches of the first and of the last group."""
    around: tuple[Any, Any]
    """Once around all devices, forward and backward."""
    waits: tuple[Any, Any]
    whole: Any
    """L: all work of a device and the waits between its chunks."""

    both: Any
    """A chunk, forward and backward."""
    crossed: Any
    """L, and all devices once there and back."""

    v: Any


def interleaved_step(
    p: Any, m: Any, chunks: tuple[Any, Any], c: Any, first: Any, last: Any, v: Any, group: Any = None
) -> Any:
    """The step: ``chunks`` are times of one, forward and backward, ``c`` that of a send; ``first`` and ``last`` what the outer ones take longer, in chunks; all
    of ``c``, ``first`` and ``last`` may be None."""
    sizes, none = groups_of(p, m, group), 0.0 * chunks[0]
    equal, longs = sizes[0] == sizes[1], (False, False)
    if c is not None:
        # Only groups of all devices, and not with short sends: (F - c) p (k - 1)(v - 1) is more than ends make up for.
        longs = (p > 2) & equal & (sizes[0] == p) & (3 * c > minimum(*chunks)), 2 * c > chunks[0] + chunks[1]
    c = none if c is None else c
    around = p * (chunks[0] + c), p * (chunks[1] + c)
    waits = tuple(maximum(around[way] - sizes[way] * chunks[way], none) for way in (0, 1))
    both = chunks[0] + chunks[1]
    whole = m * v * both + (v - 1) * (waits[0] + waits[1])
    order = Order(p, m, chunks, c, sizes, around, waits, whole, both, whole + (p - 1) * (both + 2 * c), v)
    if last is None:
        return _with_sends(longs, order, 0.0, 0.0, order.crossed)
    fewest = minimum(2.0, m - 1.0)
    # Of a shorter last chunk smaller groups at the end cross one less.
    ends = m * last * both + where(sizes[0] > sizes[1], 1.0, 0.0) * maximum(-last, 0.0) * chunks[1]
    skip, touch = order.crossed - both - 2 * c, order.crossed - fewest * minimum(*chunks) + last * both
    # Of two devices the first is the neighbour of the last; it waits between groups, at their end only where they are equal.
    behind = where(m > sizes[0], 1.0, 0.0)
    beside = [order.crossed - fewest * chunks[way] + last * both - behind * waits[way] for way in (0, 1)]
    if first is None:
        found = longest(order.crossed + ends, skip, where(p > 2, touch, _either(equal, beside)))
        return _with_sends(longs, order, 0.0, last, found)
    fill = sum(
        maximum(first * each, size * each * (1 + first) - maximum(size * each, once))
        for each, size, once in zip(chunks, sizes, around, strict=True)
    )
    beside = [path + first * ((m - 1) * both + chunks[1 - way]) for way, path in enumerate(beside)]
    near = _either(equal, beside) + minimum(first, 0.0) * both
    stays = whole + m * first * both
    found = maximum(order.crossed + ends + fill, where(p > 2, maximum(skip, touch) + fill, maximum(near, stays)))
    found = _with_sends(longs, order, first, last, found)
    found = either((p == 2) & (sizes[0] == 2) & equal, _two, _stays, order, first, last, found)
    found = either((m <= p) & (p > 2), _few, found, order, first, last, found)
    return either(m > sizes[0], _busy, found, order, first, last, found)


def _with_sends(longs: tuple[Any, Any], order: Order, first: Any, last: Any, found: Any) -> Any:
    """What is found, or a path of messages that outlast a chunk."""
    wraps, long = longs
    found = either(long, _there_and_back, found, order, first, last, found)
    return either(wraps, _waits_again, found, order, first, last, found)


def _there_and_back(order: Order, first: Any, last: Any, found: Any) -> Any:
    """Between its first and its last backward chunk the last device goes to another and back, and is paid every message."""
    ahead = order.m * order.v - (order.v - 1) * order.sizes[0] - 1
    turns = floor(ahead / (2 * order.p - 1))
    near = maximum(floor((ahead - turns * (2 * order.p - 1) - 1) / 2), 0.0)
    waited = (turns * (order.p - 1) + near) * (2 * order.c - order.both)
    spared = (1 + turns) * minimum(first, 0.0 * turns) + order.m * minimum(last, 0.0 * turns)
    return maximum(found, order.crossed + waited + spared * order.both)


def _waits_again(order: Order, first: Any, last: Any, found: Any) -> Any:
    """Groups of all devices wait at every wrap for messages that outlast a chunk."""
    p, m, c, both, none = order.p, order.m, order.c, order.both, 0.0 * order.c
    v, k, x, y = order.v, order.m / order.p, first, last
    sends = ((k + 1) * p * v - (k - 1) * p - 2) * c
    turns = where(k > 1, floor((m - k) / 2), floor(p / 2) - 1)
    shunned = turns * (2 * c - both) + (2 * minimum(x, 0.0 * x) + minimum(m, p + 1.0) * minimum(y, 0.0 * y)) * both
    for one, other in (order.chunks, order.chunks[::-1]):
        time = (p * v + m - 1) * one + (m * v + p - 1) * other + sends
        late = time + x * both + maximum(minimum(m, p + 1.0) * y, m * y) * both
        back = (2 + (k - 2) * (p - 1)) * one + (1 + (k - 2) * p) * other
        early = where(k > 1, time + x * back + (p + 1) * y * both, none)
        # The only device between two shorter ends cannot turn before both.
        found = longest(found, late, early, where((p > 3) | (x >= 0) | (y >= 0), time + shunned, none))
    return found


def _stays(order: Order, first: Any, last: Any, found: Any) -> Any:
    """The first device never waits."""
    return maximum(found, order.whole + order.m * first * order.both)


def _either(equal: Any, ways: Any) -> Any:
    """The longer way, or the first where groups are not equal."""
    return where(equal, maximum(*ways), ways[0])


def _few(order: Order, first: Any, last: Any, found: Any) -> Any:
    """Paths of no more micro-batches than devices, which come by the first device up to three times."""
    p, m, chunks, c, both = order.p, order.m, order.chunks, order.c, order.both
    times, fewest = minimum(3.0, 1.0 * m), minimum(2.0, m - 1.0)
    found = maximum(found, order.crossed - both - 2 * c + times * first * both)
    for one, other in (chunks, chunks[::-1]):
        touch = order.crossed - fewest * one + first * (one + times * other) + last * both
        found = longest(found, touch, order.crossed - (p - 1) * one - p * c + (m * first + last) * both)
    return found


def _two(order: Order, first: Any, last: Any, found: Any) -> Any:
    """Paths of two devices and pairs of micro-batches, both of whose outer chunks are shorter: between pairs they change devices, where that leaves
    out outer chunks, or stay."""
    whole, both, there, pairs = order.whole, order.both, 2 * order.c, order.m / 2 - 1
    x, y = first * both, last * both
    several, alone = maximum(whole + x + 2 * pairs * x, whole + x + there + 2 * pairs * y), whole + x
    for one, other in (order.chunks, order.chunks[::-1]):
        less = there - 2 * one
        alone = maximum(alone, whole + one + x + y + maximum(x, there))
        several = longest(
            several,
            whole + x + pairs * (x + less),
            whole + one + first * one + y + pairs * (x + less),
            whole + other + 2 * y + there + pairs * (x + less),
            whole + one + x + first * one + pairs * (y + less),
            whole + other + x + y + there + pairs * (y + less),
            whole + one + x + y + there + 2 * pairs * y,
            whole - one + other + first * other + y + there + 2 * pairs * x,
        )
    return maximum(found, where(order.m > 2, several, alone))


def _busy(order: Order, first: Any, last: Any, found: Any) -> Any:
    """Paths of several groups that stay on a first device with a longer chunk and leave it once or twice."""
    p, m, both, c = order.p, order.m, order.both, order.c
    size, none = order.sizes[0], 0.0 * order.whole
    equal, deep = size == order.sizes[1], 2.0 * p - 2 - size
    rest, run = first * (m - size), first * maximum(m - maximum(deep + 1, 0.0), 0.0)
    there = last * size * both
    past = equal & (size == p) & (p > 3)  # turns that do without the last device
    # The device before the last never waits, but for three micro-batches of the first.
    thrice = order.crossed - both - 2 * c + 3 * first * both
    turned, found = order.whole + rest * both, maximum(found, where(equal & (size == p) & (p > 2), thrice, none))
    for way, (one, other) in enumerate((order.chunks, order.chunks[::-1])):
        base, cross = order.whole - order.waits[way] + first * m * other, other - one + 2 * c
        filled = base + (p - 1) * cross
        busy = longest(filled + run * one + last * both, filled + rest * one + there)
        busy = maximum(busy, where(p > 2, filled + run * one - cross, none))
        turn = base + order.around[way] - size * one + rest * one
        twice = filled - first * m * other + rest * both + (p - 2) * one + 2 * there
        turned = turned + order.around[way] - size * one - order.waits[way]
        found = longest(
            found,
            busy if not way else where(equal, busy, none),
            where(equal & (deep >= 0), turn + deep * other + there, none),
            where(equal & (size == p), twice, none),
            where(past, turn + (p - 4) * other, none),
        )
    return longest(
        found,
        where(equal & (deep >= 0), turned + deep * both + 2 * there, none),
        where(past, turned + (p - 4) * both, none),
    )
