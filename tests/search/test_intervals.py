"""Pairs of a box enclose the value at every point in it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.search.expression import Expression, Pair, enclose, unknown

TEXTS = [
    "a + b <= c",
    "a - b > c",
    "a * b < c * c",
    "a / b >= c",
    "a // b == c",
    "a % b == 0",
    "a % b != c",
    "not (a < b) and c >= a or b == c",
    "min(a, b) < max(b, c)",
    "abs(a - b) <= c",
    "log2(a) > b",
    "-a < b < c",
    "a == b",
]
ENDS = st.lists(st.integers(-6, 6), min_size=1, max_size=4)


@given(st.sampled_from(TEXTS), ENDS, ENDS, ENDS)
def test_what_is_sure_holds_everywhere_and_what_holds_is_possible(text, a, b, c):
    expression = Expression(text)
    axes = {"a": np.array(a, dtype=float), "b": np.array(b, dtype=float), "c": np.array(c, dtype=float)}
    pairs = {name: Pair(values.min().reshape(1), values.max().reshape(1)) for name, values in axes.items()}
    found = enclose(expression, pairs.__getitem__)
    surely, possibly = bool(np.all(found.low)), bool(np.all(found.high))
    for point in itertools.product(*axes.values()):
        held = bool(expression(dict(zip(axes, point, strict=True)).__getitem__))
        assert possibly or not held
        assert held or not surely


@given(st.sampled_from(TEXTS), st.integers(-6, 6), st.integers(-6, 6), st.integers(1, 6))
def test_a_single_point_is_decided_where_it_can_be(text, a, b, c):
    expression = Expression(text)
    values = {"a": float(a), "b": float(b), "c": float(c)}
    found = enclose(expression, lambda name: Pair(np.array([values[name]]), np.array([values[name]])))
    if "/" not in text and "%" not in text and "log2" not in text:
        assert bool(np.all(found.low)) == bool(np.all(found.high)) == bool(expression(values.__getitem__))


def test_text_is_known_or_not():
    one, several = np.array(["fp8"], dtype=object), np.array([None], dtype=object)
    expression = Expression("precision == 'fp8'")
    assert enclose(expression, lambda _: Pair(one, one)) == (True, True)
    assert enclose(Expression("precision != 'fp8'"), lambda _: Pair(one, one)) == (False, False)
    assert enclose(expression, lambda _: Pair(several, several)) == (False, True)


def test_nothing_known_is_always_possible():
    found = enclose(Expression("x * x <= -1"), lambda _: unknown(3))
    assert found.low.tolist() == [False] * 3 and found.high.tolist() == [True] * 3


@pytest.mark.parametrize("text", ["a / b > 0", "a // b > 0", "a % b > 0"])
def test_division_by_what_may_be_zero_is_undecided(text):
    pairs = {"a": Pair(np.array([1.0]), np.array([1.0])), "b": Pair(np.array([-1.0]), np.array([1.0]))}
    found = enclose(Expression(text), pairs.__getitem__)
    assert not found.low.all() and found.high.all()
