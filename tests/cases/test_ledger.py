"""The ledger: parts add up, none is negative, and a tape gives what plain numbers give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.algebra import PLAIN, Tape, ledger_of
from mlsysim.cases.ledger import Held, Ledger, Part
from mlsysim.physics.operators import overlapped
from mlsysim.units.ops import maximum, minimum, where

TIMES = st.floats(1e-6, 1e3)
SHARES = st.floats(0.0, 1.0)


def step(a, t, shares, m):
    """A step with every operation that cases use."""
    arithmetic, memory, link, fabric, host, update = t
    hide, kappa, idle, jitter, exposed = shares
    work = a.roofline("pass", "roofline", arithmetic, memory, flop=1.0, moved=2.0)
    launched = maximum(work, a.tag("launches", 3, "host", "launches", host))
    inside = launched + a.shown(a.tag("tensor", 14, "link", "ring", link), exposed)
    gathered = overlapped(inside, a.tag("gathers", 14, "fabric", "ring", fabric), kappa)
    longest = a.longest(gathered, 0.9 * gathered)
    busy = a.grown("uneven", 14, "uneven", m * gathered, m * longest)
    step = busy + a.loss("bubble", 14, "bubble", idle * gathered)
    data = a.tag("gradients", 14, "fabric", "ring", 2 * fabric, sent=5.0)
    step = step + (data - minimum(hide * data, 2 / 3 * busy))
    step = step + where(hide > 0.5, 1.0, 0.0) * a.tag("update", 2, "bandwidth", "update", update)
    step = a.grown("jitter", 14, "jitter", step, (1 + jitter) * step)
    return a.beside(step, lambda: a.tag("sends", 14, "fabric", "send", link))


@given(st.tuples(*[TIMES] * 6), st.tuples(*[SHARES] * 5), st.integers(1, 64))
def test_parts_add_up_and_none_is_negative(t, shares, m):
    plain = step(PLAIN, t, shares, m)
    ledger = ledger_of(lambda a: step(a, t, shares, m))
    assert math.isclose(ledger.seconds, plain, rel_tol=1e-12)
    for column in ("exposed", "elastic"):
        assert math.isclose(ledger.total(column), plain, rel_tol=1e-9), column
    for part in ledger.parts:
        assert part.exposed >= -1e-9 * plain
        assert part.elastic >= -1e-9 * plain
        assert part.hidden >= -1e-9 * plain


@given(st.tuples(*[TIMES] * 6), st.tuples(*[SHARES] * 5), st.integers(1, 64))
def test_elastic_seconds_are_what_a_faster_resource_gains(t, shares, m):
    """Away from corners: all times of one resource a millionth shorter."""
    resources = {"peak": (0,), "bandwidth": (1, 5), "host": (4,)}
    ledger = ledger_of(lambda a: step(a, t, shares, m))
    for resource, places in resources.items():
        faster = tuple(x * (1 - 1e-6) if i in places else x for i, x in enumerate(t))
        slower = tuple(x * (1 + 1e-6) if i in places else x for i, x in enumerate(t))
        down, up = (step(PLAIN, times, shares, m) for times in (faster, slower))
        here = step(PLAIN, t, shares, m)
        if math.isclose(up - here, here - down, rel_tol=1e-3, abs_tol=1e-12 * here):
            gained = (up - down) / 2e-6
            assert math.isclose(gained, ledger.resources()[resource], rel_tol=1e-2, abs_tol=1e-5 * here)


def test_a_tape_runs_on_arrays():
    t = tuple(np.linspace(0.1, 2.0, 7) * k for k in (1.0, 0.8, 0.3, 0.5, 0.2, 0.4))
    shares = (0.4, 0.3, 0.5, 0.1, 0.6)
    ledger = ledger_of(lambda a: step(a, t, shares, 4))
    assert np.allclose(ledger.seconds, step(PLAIN, t, shares, 4), rtol=1e-12)
    assert np.allclose(ledger.total("exposed"), ledger.seconds, rtol=1e-12)


def test_seconds_without_a_name_are_refused():
    a = Tape()
    time = a.tag("pass", 1, "peak", "roofline", 1.0)
    for wrong in (lambda: time + 1.0, lambda: 1.0 + time, lambda: time - 1.0, lambda: maximum(time, 2.0)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        time * time


def test_the_shorter_of_two_at_once_is_hidden_and_an_alternative_is_absent():
    both = ledger_of(lambda a: maximum(a.tag("a", 1, "x", "", 2.0), a.tag("b", 2, "y", "", 1.0)))
    assert [(p.exposed, p.hidden) for p in both.parts] == [(2.0, 0.0), (0.0, 1.0)]
    one = ledger_of(lambda a: a.longest(a.tag("a", 1, "x", "", 2.0), a.tag("b", 2, "y", "", 1.0)))
    assert [(p.exposed, p.hidden) for p in one.parts] == [(2.0, 0.0), (0.0, 0.0)]


def test_ledgers_add_and_multiply():
    one = ledger_of(lambda a: a.tag("a", 1, "x", "", 2.0, flop=4.0))
    two = one + 3 * one
    assert two.seconds == 8.0 and two.total("flop") == 16.0 and len(two.parts) == 1
    assert (one + one.renamed("prompt: {}".format)).exposed("prompt: a") == 2.0


def test_what_binds_is_the_wall_with_most_of_the_critical_path():
    ledger = Ledger(4.0, (Part("a", 1, "x", "", 1.5), Part("b", 14, "y", "", 1.0), Part("c", 14, "", "", 1.5)), ())
    assert ledger.binding_wall == 14 and ledger.largest(14).is_loss


@pytest.mark.parametrize(("seconds", "words"), [((3.0, 1.0, 1.0), "most of it 0"), ((2.0, 1.5, 1.5), "led by 0")])
def test_most_of_a_wall_is_half_of_it(seconds, words):
    ledger = Ledger(sum(seconds), tuple(Part(str(k), 1, "peak", "", each) for k, each in enumerate(seconds)), ())
    assert ledger.led(1) == words and ledger.largest(1).exposed == seconds[0]


def test_memory_fits_where_what_is_held_adds_up_to_at_most_the_capacity():
    held = (Held("weights", 6.0), Held("reserve", 2.0), Held("optimizer", 9.0, "host"))
    assert Ledger(1.0, (), held, 8.0).fits and not Ledger(1.0, (), held, 7.9).fits


def test_parts_of_one_name_are_one_cause() -> None:
    """Products of three and three seconds have more of a wall than four of norms."""
    parts = [
        Part(name, 1, "arithmetic", "roofline", seconds)
        for name, seconds in (("products", 3.0), ("norms", 4.0), ("products", 3.0))
    ]
    assert Ledger(10.0, tuple(parts)).largest(1).name == "products"
