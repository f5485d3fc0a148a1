"""Pipeline schedules: exact points, limits, causality."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlsysim.physics.pipeline import CHUNKED, SCHEDULES, Shares, held, makespan
from mlsysim.units.registry import Q_
from mlsysim.vocabulary import VALUES

POINTS = Path(__file__).with_name("pipelines.csv")
PATHS = {"zb_h2": 0.01, "zb_v": 0.03, "dualpipe": 0.03, "dualpipe_v": 0.04}
"""How far the known paths may be off with uneven ends and two micro-batches a device; the other schedules have forms for them."""


def points():
    lines = [line for line in POINTS.read_text().splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        name, _, group = row["schedule"].partition("_n")
        numbers = {key: float(value) for key, value in row.items() if key != "schedule"}
        yield VALUES.get(name, name), int(group) if group else None, numbers


def off(name, group, row):
    """How far a form may be off at a point: nothing where it is said to be exact."""
    uneven, c, p, m = row["first_extra"] or row["last_extra"], row["t_send"], row["p"], row["m"]
    if name == "interleaved":
        forward, backward = row["t_f"] / row["v"], (row["t_b"] + row["t_w"]) / row["v"]
        size = group or m // max(1, m // p)
        inside = 2 * c <= forward + backward and p * (max(forward, backward) + c) <= size * (forward + backward)
        inside = inside and row["first_extra"] <= row["last_extra"]
        return (0.02 if c or uneven else 1e-8) if inside or not (c or uneven) else 0.16
    if name not in PATHS:
        return 1e-8
    if uneven:
        return PATHS[name] if m >= 2 * p else 0.12
    few = name not in ("zb_h2", "dualpipe") and m < 2 * p and c
    return 0.045 if few or (name == "dualpipe" and m % 2) or (name == "zb_v" and p < m < 2 * p - 1) else 1e-8


@pytest.mark.parametrize(("name", "group", "row"), list(points()))
def test_simulated_orders(name, group, row):
    t = row["t_f"] + row["t_b"] + row["t_w"]
    shares = Shares(row["t_f"] / t, row["t_b"] / t, row["t_w"] / t)
    first, last = (t * (1 + row[key]) for key in ("first_extra", "last_extra"))
    found = makespan(name, row["p"], row["m"], t, shares, row["t_send"], first, last, row["v"], group)
    assert found == pytest.approx(row["makespan"], rel=off(name, group, row))
    if row["p"] > 1:
        assert held(name, row["p"], row["m"], row["v"], group) == pytest.approx(row["peak_in_flight_max"], rel=1e-8)


def test_the_points_are_nearly_all_exact():
    """What the limits of single points above hide: the mean over each schedule."""
    off = {}
    for name, group, row in points():
        t = row["t_f"] + row["t_b"] + row["t_w"]
        shares = Shares(row["t_f"] / t, row["t_b"] / t, row["t_w"] / t)
        first, last = (t * (1 + row[key]) for key in ("first_extra", "last_extra"))
        found = makespan(name, row["p"], row["m"], t, shares, row["t_send"], first, last, row["v"], group)
        off.setdefault(name, []).append(abs(found / row["makespan"] - 1))
    assert {name for name, each in off.items() if np.mean(each) > 0.015} == set()
    assert set(off) == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_micro_batch_crosses_all_layers_in_turn(name):
    """No schedule beats it; a weight gradient that nobody waits for may be done while others work."""
    v = 4 if name in CHUNKED else 1
    for p in (2, 4, 16):
        alone = makespan(name, p, 1, 3.0, v=v)
        path = 3.0 * p if name in ("gpipe", "1f1b", *CHUNKED) else 2.0 * p + 0.5
        assert alone >= path - 1e-9
    assert makespan(name, 1, 5, 3.0, v=v) == 15.0


def test_known_bubbles():
    """Sixteen stages: interleaved 4 of 1, 4 and 8 micro-batches, zero-bubble and DualPipe of 8; exact, in micro-batch times."""
    for name, m, v, share in [
        ("interleaved", 1, 4, 0.9375),
        ("interleaved", 4, 4, 0.761),
        ("interleaved", 8, 4, 0.549),
        ("interleaved", 8, 2, 0.590),
        ("zero_bubble", 8, 1, 0.489),
        ("dualpipe", 8, 1, 0.547),
        ("dualpipe", 16, 1, 0.304),
    ]:
        assert 1 - m / makespan(name, 16, m, 1.0, v=v) == pytest.approx(share, abs=5e-4)


times = st.tuples(*[st.floats(0.1, 3.0)] * 3)


@given(
    name=st.sampled_from(SCHEDULES),
    p=st.integers(2, 24),
    m=st.integers(1, 80),
    v=st.integers(1, 6),
    parts=times,
    send=st.floats(0, 0.3),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_causality_and_conservation(name, p, m, v, parts, send, ends):
    assume(name != "dualpipe" or p % 2 == 0)
    v = v if name in CHUNKED else 1
    t = sum(parts)
    shares, c = Shares(*(part / t for part in parts)), send * parts[0]
    first, last = t * (1 + ends[0]), t * (1 + ends[1])
    found = makespan(name, p, m, t, shares, c, first, last, v)
    folded = name in ("zb_v", "dualpipe_v")
    busiest = m * (first + last - t) if folded else m * max(first, last) if name != "dualpipe" else m * t
    assert found >= busiest * (1 - 1e-12)
    assert found >= (parts[0] + parts[1]) * p * (1 - 1e-12)
    assert makespan(name, p, m, 2 * t, shares, 2 * c, 2 * first, 2 * last, v) == pytest.approx(2 * found)
    assert makespan(name, p, m, t, shares, c + 0.01, first, last, v) >= found - 1e-9
    assert 1 / v <= held(name, p, m, v) <= m


@pytest.mark.parametrize("name", SCHEDULES)
def test_arrays_and_quantities(name):
    stages, counts, v = np.array([2, 4, 8, 1]), np.array([3, 32, 5, 7]), 2 if name in CHUNKED else 1
    shares = Shares(0.3, 0.4, 0.3)
    found = makespan(name, stages, counts, 2.0, shares, 0.1, 2.5, 2.2, v)
    alone = [makespan(name, int(p), int(m), 2.0, shares, 0.1, 2.5, 2.2, v) for p, m in zip(stages, counts, strict=True)]
    assert found == pytest.approx(alone, rel=1e-12)
    times = makespan(name, 4, 32, Q_(2.0, "s"), shares, Q_(0.1, "s"), Q_(2.5, "s"), Q_(2.2, "s"), v)
    assert times.to("s").magnitude == pytest.approx(alone[1], rel=1e-12)


@given(
    name=st.sampled_from(["1f1b", "interleaved"]),
    p=st.integers(1, 24),
    m=st.integers(1, 80),
    v=st.integers(1, 6),
    parts=times,
    send=st.floats(0, 0.3),
    end=st.floats(-0.4, 1),
    group=st.one_of(st.none(), st.integers(1, 40)),
)
def test_the_short_form_is_the_long_one_where_the_first_device_is_as_long(name, p, m, v, parts, send, end, group):
    v = v if name == "interleaved" else 1
    t = sum(parts)
    shares, c, last = Shares(*(part / t for part in parts)), send * parts[0], t * (1 + end)
    for delay in (None, c):
        short = makespan(name, p, m, t, shares, delay, None, last, v, group)
        assert short == pytest.approx(makespan(name, p, m, t, shares, delay, t, last, v, group), rel=1e-12)
        even = makespan(name, p, m, t, shares, delay, None, None, v, group)
        assert even == pytest.approx(makespan(name, p, m, t, shares, delay, t, t, v, group), rel=1e-12)


def test_an_end_that_is_shorter_never_costs():
    """Last stage with fewer layers: crossed once by GPipe; 1F1B waits for it at the first and at the last micro-batch (and a test simulates both)."""
    even = makespan("1f1b", 8, 32, 1.0)
    assert makespan("1f1b", 8, 32, 1.0, last=0.75) == pytest.approx(even - 0.5)
    assert makespan("1f1b", 8, 1, 1.0, last=0.75) == pytest.approx(7.75)
    assert makespan("gpipe", 8, 32, 1.0, last=0.75) == pytest.approx(even - 0.25)
