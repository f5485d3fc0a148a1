r"""Pipeline schedules: how long a step of p devices and m micro-batches takes, and what is held meanwhile.

A device has v chunks of layers. One micro-batch takes t on all layers of a device: forward f, gradient of inputs b (with what is
recomputed), gradient of weights w. A send c delays the neighbour and keeps no device busy. The first and the last device may
take longer or shorter by x_0 and x_1. The makespan T is the longest path through the published order of each schedule, and every
form below is the maximum of such paths:

    gpipe          T = (p + m - 1) t + 2 (p - 1) c                       all forward, then all backward (Huang et al. 2019)
    1f1b           T = (p + m - 1) t + 2 c (p - 1 + m - 1 - ceil((m-1)/p))                   (Narayanan et al., SC'21)
    interleaved    T = m t + (p - 1)(F + G + 2c) + (v-1) [(p (F+c) - N_1 F)+ + (p (G+c) - N_2 G)+],  F = f/v, G = (b+w)/v
    breadth_first  all micro-batches through one chunk after the other                       (Lamy-Poirier 2022)
    zero_bubble    ZB-H1: weight gradients fill the wait; bubble (p-1) max(f, b, f+b-w)      (Qi et al. 2024)
    zb_h2, zb_v    more in flight; two chunks in a V                                         (Qi et al. 2024)
    dualpipe       from both ends at once, p even; bubble max(2q f, (q-1) f + q b) + q (b-w)+, q = p/2 - 1    (DeepSeek-V3, 2024)
    dualpipe_v     the same cut in half: 2p stages in a V, one copy of the weights

Interleaving runs micro-batches through the chunks in groups: of N where N is said (N = p depth first, N = m breadth first), else as
equal as possible and of at least p, as PyTorch does it. With fewer micro-batches than devices it waits for its own wrap: at m = 1
it takes p t like every other schedule, since one micro-batch crosses all layers in turn.

In 1F1B sends stay on the path for the whole step (the pace is t + 2 c (p-1)/p). A pair of DualPipe waits for both neighbours, so
a send that is not hidden is paid at every pair. "Zero bubble" speaks of a device's own first to last operation; where the optimizer waits
for all devices, T counts, and it is the same for ZB-H2 as for ZB-H1 at f = b = w.

Exact for gpipe, 1f1b, breadth_first and zero_bubble with equal devices, any m and c; for interleaving while 2c <= F + G and
p (max(F, G) + c) <= N (F + G), and never too long and at most a tenth short beyond, exact with groups of p > 2 (two devices up to a fifth short); zb_h2 while 2c <= f + b; zb_v from m >= 2p - 1 on with c <= f/4; DualPipe at c = 0, and from m >= 2p on. With
x_0, x_1 gpipe and breadth_first stay exact, 1f1b within 5 % (nearly always exact), and interleaving nearly
always (:mod:`mlsysim.physics.interleaving`). zero_bubble with a shorter end, zb_h2, zb_v and DualPipe are the longest of the paths of
:mod:`mlsysim.physics.pipeline_paths`: zero_bubble two parts in ten thousand short on average and 4 % at most, others with m >= 2p nearly always
exact and within 4 %, a part in a thousand on average (half a part in a hundred with sends of DualPipe), as is zb_h2 with fewer; zb_v and DualPipe with
fewer, which the authors of DualPipe refuse, half a part in a hundred short on average and 15 at most, never too long. Left out: links that queue, devices that are busy sending, pairs of DualPipe that
run faster together than apart.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from mlsysim.physics.interleaving import groups_of, interleaved_step, longest
from mlsysim.physics.pipeline_paths import few_micro_batches, longest_path, shorter_end, turning_inside
from mlsysim.units.ops import ceil, either, floor, maximum, minimum, where

SCHEDULES = (
    *("gpipe", "1f1b", "interleaved", "breadth_first"),
    *("zero_bubble", "zb_h2", "zb_v", "dualpipe", "dualpipe_v"),
)
CHUNKED = ("interleaved", "breadth_first")
"""Schedules whose devices have as many chunks of layers as one likes."""
FOLDED = ("zb_v", "dualpipe_v")
"""Schedules of two chunks in a V: a device has both ends of the model."""


class Shares(NamedTuple):
    """Of a micro-batch's time on a device: forward, gradient of inputs (with what is recomputed), gradient of weights."""

    forward: Any = 1 / 3
    inputs: Any = 1 / 3
    weights: Any = 1 / 3


def makespan(
    schedule: str,
    p: Any,
    m: Any,
    t: Any,
    shares: Shares = Shares(),  # noqa: B008 - three numbers
    c: Any = None,
    first: Any = None,
    last: Any = None,
    v: Any = 1,
    group: Any = None,
) -> Any:
    """T: from the first operation of any device to the last of any device.

    ``first`` and ``last`` are the times of a micro-batch on these devices, where they differ from ``t``.
    """
    if first is None and schedule in USUAL:
        v = v if schedule == "interleaved" else 1
        found = _usual(p, m, t, shares, last, v, group)
        if c is not None:
            found = found + _usual_sends(p, m, t, shares, c, last, v, group)
        return found if last is None else where(p > 1, found, m * last)
    c = where(p > 1, 1.0, 0.0) * c if c is not None else None
    first, last = t if first is None else first, t if last is None else last
    alone = m * (first + last - t)
    if schedule == "interleaved":
        # With one chunk this order would run further ahead; 1F1B is what is meant.
        one = partial(makespan, "1f1b")
        if _alone(v):
            return one(p, m, t, shares, c, first, last)
        return either((v > 1) & (p > 1), _interleaved, one, p, m, t, shares, c, first, last, v, group)
    c = 0.0 * t if c is None else c
    # Two devices are the ends, and nothing is between them; those of DualPipe have both.
    if schedule == "dualpipe":
        first, last = (where(p == 2, 0.5 * (first + last), end) for end in (first, last))
        t = where(p == 2, first, t)
    elif schedule not in FOLDED:
        t = where(p == 2, minimum(t, maximum(first, last)), t)
    # Each micro-batch waits for an end that is longer; one that is shorter is crossed once, in filling and draining.
    ends = first, last
    spared = short_ends(schedule, m, t, shares, first, last, v)
    first, last = maximum(first, t), maximum(last, t)
    if schedule == "gpipe":
        found = first + last + (p - 2) * t + (m - 1) * maximum(first, last) + 2 * (p - 1) * c
    elif schedule == "breadth_first":
        found = _breadth_first(p, m, t, shares, c, first, last, v)
    elif schedule == "1f1b":
        found = _one_forward_one_backward(p, m, t, shares, c, *ends) - spared
    elif schedule == "zero_bubble":
        longer = (ends[0] >= t) & (ends[1] >= t)
        found = where(longer, _zero_bubble(p, m, t, shares, c, first, last), shorter_end(p, m, t, shares, c, *ends))
        found = found - spared
    else:
        return where(p > 1, _both_ends(schedule, p, m, t, shares, c, *ends), alone)
    # No device is through before its own work is done.
    return where(p > 1, maximum(found + spared, m * maximum(first, last)), alone)


def sends_waited(
    schedule: str, p: Any, m: Any, t: Any, shares: Shares, c: Any, last: Any = None, v: Any = 1, group: Any = None
) -> Any:
    """What messages make a step longer: T with them less T without."""
    if schedule in USUAL:
        return _usual_sends(p, m, t, shares, c, last, v if schedule == "interleaved" else 1, group)
    with_them, without = (makespan(schedule, p, m, t, shares, each, None, last, v, group) for each in (c, None))
    return with_them - without


USUAL = ("1f1b", "interleaved")


def _alone(v: Any) -> bool:
    return isinstance(v, int) and v == 1


def _spared(t: Any, end: Any, v: Any) -> Any:
    """What a shorter end saves of filling and draining: at most its one chunk there."""
    return maximum(minimum(end - t, 0.0 * t), -1.0 / v * t)


def short_ends(schedule: str, m: Any, t: Any, shares: Shares, first: Any, last: Any, v: Any) -> Any:
    """What ends that are shorter than other devices save, of which longer ones save nothing."""
    v = v if schedule in CHUNKED else 1
    return _spared(t, last, v) + _spared(t, first, v)


def there_and_back(t: Any, end: Any, m: Any, shares: Shares, c: Any = None) -> Any:
    """What a shorter last device saves 1F1B: the one before waits for it at the first micro-batch, while it has another's forward pass to do, and at
    the last, beside another's backward pass: max(f, x) + max(b + w, x) - 2 t, once and not twice where there is one micro-batch. With messages ``c`` of
    whoever goes there, x + 2 c."""
    there, backward = 0.0 * t if c is None else 2 * c, shares.inputs + shares.weights
    both = maximum(shares.forward * t, end + there) + maximum(backward * t, end + there) - 2 * (t + there)
    return minimum(where(m > 1, both, end - t), 0.0 * t)


def _turning(p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any) -> Any:
    """What shorter ends save the 1F1B path that goes there and back between the ends all the time and is paid every send: it turns on them
    ceil((m - 1) / p) times, or one device before, after p - 1 devices (p - 2 of both) and so more often, and each turn has a send there and back less."""
    few, some = minimum(first - t, 0.0 * t), minimum(last - t, 0.0 * t)
    turns, one = ceil((m - 1) / p), where(m > 1, 1.0, 0.0)

    def after(devices: Any, others: Any) -> Any:
        """Turns after so many devices, with so many micro-batches that are not at an end."""
        return maximum(ceil(others / maximum(devices, 1.0)), one)

    before, behind, between = after(p - 1, m - 2), after(p - 1, m - 1), after(p - 2, m - 2)
    back = there_and_back(t, last, m, shares, c)
    found = longest(
        few * (1 + turns) + some * (1 + maximum(floor((m - 1) / p), one)),
        2 * (turns - before) * c + few * (2 + floor((m - 2) / maximum(p - 1, 1.0))) + back,
        2 * (turns - behind) * c + few + some * (1 + behind),
    )
    both = 2 * (turns - between) * c + few + back
    return maximum(found, where(p > 2, both, found))


def _usual(p: Any, m: Any, t: Any, shares: Shares, last: Any, v: Any, group: Any) -> Any:
    """1F1B (v = 1) and interleaving without messages, where no device but the last is longer: other paths are shorter."""
    if _alone(v):
        return _usual_alone(p, m, t, shares, last)
    if last is not None:
        return either(v > 1, _usual_chunks, _usual_alone, p, m, t, shares, last, v, group)
    if group is None:
        return m * t + (p - 1 + (v - 1) * maximum(p - m, 0.0)) / v * t
    ahead, behind = (maximum(p - size, 0.0) for size in groups_of(p, m, group))
    wraps = shares.forward * ahead + (shares.inputs + shares.weights) * behind
    return m * t + (p - 1 + (v - 1) * wraps) / v * t


def _usual_alone(p: Any, m: Any, t: Any, shares: Shares, last: Any, *_: Any) -> Any:
    """Of one chunk a device."""
    busy = m * t if last is None else m * maximum(last, t) + there_and_back(t, last, m, shares)
    return busy + (p - 1) * t


def _usual_chunks(p: Any, m: Any, t: Any, shares: Shares, last: Any, v: Any, group: Any) -> Any:
    """Of several, with a last device of its own."""
    return _interleaved(p, m, t, shares, None, None, last, v, group)


def _usual_sends(p: Any, m: Any, t: Any, shares: Shares, c: Any, last: Any, v: Any, group: Any) -> Any:
    """What messages add to it: nothing on one device, which has nobody to send to."""
    c = where(p > 1, 1.0, 0.0) * c
    if _alone(v):
        return _sends_alone(p, m, t, shares, c, last)
    return either((v > 1) & (p > 1), _sends_of_chunks, _sends_alone, p, m, t, shares, c, last, v, group)


def _sends_alone(p: Any, m: Any, t: Any, shares: Shares, c: Any, last: Any, *_: Any) -> Any:
    """Of one chunk a device."""
    both, before = 2 * c, m - 1
    rounds = before - ceil(before / p)
    once = (p - 1) * both + rounds * both
    if last is None:
        return once
    # A path that stays on a longer last device has fewer messages, as has one that turns before a shorter one.
    without = there_and_back(t, last, m, shares)
    turning = _turning(p, m, t, shares, c, t, last) - rounds * maximum(last - t, 0.0 * t)
    return maximum(there_and_back(t, last, m, shares, c) + (p - 1) * both, once + turning) - without


def _sends_of_chunks(p: Any, m: Any, t: Any, shares: Shares, c: Any, last: Any, v: Any, group: Any) -> Any:
    """Of several, with a last device of its own."""
    late, none = (_interleaved(p, m, t, shares, each, None, last, v, group) for each in (c, None))
    return late - none


def held(schedule: str, p: Any, m: Any, v: Any = 1, group: Any = None) -> Any:
    """Most micro-batches whose activations a device holds at once, in those of all its layers.

    It follows from the order alone, whatever the times; a device alone takes one after the other under any name.
    """
    if schedule in ("gpipe", "breadth_first"):
        return where(p > 1, 1.0 * m, 1.0)
    if schedule == "interleaved":
        begun = (v - 1) * groups_of(p, m, group)[0] + 2.0 * p - 1
        return where(v > 1, minimum(begun, 1.0 * m * v) / v, minimum(1.0 * p, 1.0 * m))
    ahead = {"zb_h2": 2.0 * p - 1, "dualpipe": p + 1.0, "dualpipe_v": p + 0.5}.get(schedule, 1.0 * p)
    return minimum(where(p > 1, ahead, 1.0), 1.0 * m)


def _one_forward_one_backward(p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any) -> Any:
    turns, back = ceil((m - 1) / p), floor((m - 1) / p)
    turning = _turning(p, m, t, shares, c, first, last)
    spared = there_and_back(t, last, m, shares, c) + _spared(t, first, 1)
    shorter = _spared(t, first, 1) + _spared(t, last, 1)
    first, last = maximum(first, t), maximum(last, t)
    once = first + last + (p - 2) * t + 2 * (p - 1) * c
    early = maximum(m - p, 0.0) + (minimum(1.0 * m, 1.0 * p) - 1) * (shares.inputs + shares.weights)
    there = once + (m - 1 - turns - back) * t + turns * last + back * first + 2 * (m - 1 - turns) * c
    staying = longest(
        once + (m - 1) * last,  # the last device never waits
        m * first,  # the first device never waits
        once + early * first,
    )
    twice = 2 * (once + shorter) + (m - p - 1) * first  # there and back at both ends
    return longest(staying + spared, there + turning, where(m > p, twice, 0.0 * t))


def _breadth_first(p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any, v: Any) -> Any:
    found = m * t + (p - 1) * (t / v + 2 * c)
    for share in (shares.forward, shares.inputs + shares.weights):
        chunk = share / v * t
        around = p * (chunk + c)
        found = found + (v - 1) * maximum(around - m * chunk, 0.0 * t)
        # What the ends take longer: at each wrap, or all the time.
        more, most = share * (first - t), share * (last - t)
        ends = longest(more + m * most, m * (chunk + more) - maximum(m * chunk, around) + m * most, m * more + most)
        found = found + where(v > 1, ends, m * maximum(more, most) + minimum(more, most))
    return maximum(found, m * maximum(first, last))


def _interleaved(p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any, v: Any, group: Any) -> Any:
    """Several chunks a device; ``first`` and ``last`` are times of these devices, which differ in their outer chunk."""
    chunk = t / v
    chunks = shares.forward * chunk, (shares.inputs + shares.weights) * chunk
    more, most = (None if end is None else maximum((end - t) / chunk, -1.0) for end in (first, last))
    return interleaved_step(p, m, chunks, c, more, most, v, group)


def _zero_bubble(p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any) -> Any:
    """ZB-H1."""
    f, b, w = (share * t for share in shares)
    ahead, behind, settled = shares
    turns, filled, late = ceil((m - 1) / p), minimum(1.0 * m, 1.0 * p), maximum(m - p, 0.0)
    paced = where(
        m > p,
        maximum(2 * (p - 1) * c + (m - p) * w, 2 * (m - 1 - turns) * c + turns * w),
        2 * maximum(m - 2.0, 0.0) * c,
    )
    there = (p - 1) * (f + c) + m * (f + b) + paced
    even = longest(
        there + (p - 1) * (b + c) + w,
        there + (p - filled) * (b + c) + filled * w,
        maximum(1.0 * m, 1.0 * p) * f + (m + p - 1) * b + m * w + 2 * (p - 1) * c,
    )
    more, most = first - t, last - t
    end = (p - 1) * (f + c) + ahead * more + (m * (ahead + behind) + late * settled) * last
    return longest(
        even + (ahead + behind) * (more + most) + settled * more,
        end + (p - 1) * (b + c) + behind * more + settled * first,
        end + (p - filled) * (b + c) + filled * w,
        end + filled * settled * last,
        (p - 1) * (f + b) + f + ahead * (more + most) + behind * most + 2 * (p - 1) * c
        + (m * (behind + settled) + late * ahead) * first,
        m * first,
        where(
            m > p,
            2 * (ahead + behind) * (p * t + more + most) + 4 * (p - 1) * c + (m - p - 1 + 2 * settled) * first,
            0.0 * t,
        ),
    )  # fmt: skip


def _zb_v(p: Any, m: Any, f: Any, b: Any, w: Any, c: Any) -> Any:
    """With m < 2p - 1 micro-batches."""
    whole = m * (f + b + w)
    f, b, w, r = f / 2, b / 2, w / 2, p - 1
    few = maximum(2 * (p - m) * f + 2 * r * b, (2 * p - 1 - m) * (f + b)) + 4 * r * c
    some = longest(2 * r * b - 2 * (m - p) * w, (2 * p - 1 - m) * (f + b), r * f, r * b) + 4 * r * c
    return whole + where(m <= p, few, some)


def _dual(p: Any, m: Any, f: Any, b: Any, w: Any, c: Any, few: Any, hop: Any, near: float) -> Any:
    """The wait of p devices from an entry to the turn, with m micro-batches in each direction; of fewer than two a device, ``slow`` pairs less hide a
    send, and a path that goes around what weight gradients fill is paid one for each device less."""
    q = p - 1
    slow = minimum(maximum(2.0 * p - m, 0.0), 1.0 * q)
    late = maximum(2 * q * f, (q - 1) * f + q * b + near * q * c) + slow * (b + w + c)
    around = where(slow > 0, (slow - q - 1) * c, 0.0 * c)
    late = late + maximum((q - slow) * (b - w + c), around) + hop * c
    early = longest(
        2 * (p - m) * f + 2 * q * b + q * w, (2 * p - 1 - m) * (f + b) + q * w, 2 * q * f + (p - m) * (2 * b + w)
    )
    return where(m > p, late, early + few * c)


def _dualpipe(p: Any, m: Any, f: Any, b: Any, w: Any, c: Any) -> Any:
    half = ceil(m / 2)
    few, hop = 2 * (p - 1) + maximum(2 * half - 3, 0.0), 2 * half - ceil((2 * half - 2) / p) + p - 2
    return 2 * half * (f + b + w) + _dual(p / 2, half, f, b, w, c, few, hop, 1.0)


def _dualpipe_v(p: Any, m: Any, f: Any, b: Any, w: Any, c: Any) -> Any:
    few, hop = 4 * (p - 1) + 2 * maximum(m - 2.0, 0.0), 2 * (m - ceil((m - 1) / p)) + p - 3
    return m * (f + b + w) + _dual(p, m, f / 2, b / 2, w / 2, c, few, hop, 2.0)


def _both_ends(schedule: str, p: Any, m: Any, t: Any, shares: Shares, c: Any, first: Any, last: Any) -> Any:
    """The longest of the paths that are known, and with few micro-batches not less than with equal devices where no end is shorter."""
    dual, folded = schedule.startswith("dualpipe"), schedule in FOLDED
    f, b, w = (share * t for share in shares)
    more, most = ([share * (end - t) for share in shares] for end in (first, last))
    if schedule == "zb_h2":
        found = longest_path(schedule, p, m, (f, b, w), more, most, c, (p > 2) & (m > 4))
        return where(m >= 2 * p - 1, found, maximum(found, turning_inside(p, m, (f, b, w), more, most, c)))
    form = {"zb_v": _zb_v, "dualpipe": _dualpipe, "dualpipe_v": _dualpipe_v}[schedule]
    turn, each = (p / 2, ceil(m / 2)) if schedule == "dualpipe" else (p, m)
    passes = [part / 2 for part in (f, b, w)] if folded else (f, b, w)
    crossed = sum(more) + most[0] + most[1]
    even, still = (form(p, m, f, b, w, send) for send in (c, 0.0 * c))
    # Longer ends make no step shorter; one micro-batch crosses them once.
    longer = (first >= t) & (last >= t)
    sent = even if schedule == "dualpipe" else still
    least = where(each > 1, where(longer, where(each > turn, sent, still) + crossed, 0.0 * t), even + crossed)
    if dual:
        given = (turn > 1) & (each >= 2 * turn), each <= turn
        many = longest_path("dualpipe", turn, each, passes, more, most, c, *given)
        found, enough = maximum(many + (p - 1) * c, even + crossed), each >= 2 * turn
    else:
        enough = m >= 2 * p - 1
        found = many = longest_path(schedule, p, m, passes, more, most, c, enough)
    few = few_micro_batches("dualpipe_v" if dual else schedule, turn, each, passes, more, most, c)
    if schedule == "dualpipe":
        few = maximum(few, few_micro_batches(schedule, turn, each, passes, more, most, c))
    return where(enough, found, longest(many, few, least))
