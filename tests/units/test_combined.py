"""What depends on few columns is worked out once for each combination of theirs, and is what each point would have given."""

from __future__ import annotations

import numpy as np
import pytest

from mlsysim.cases.job import Overlap
from mlsysim.units.combined import Combined, once_each


@pytest.mark.parametrize("scale", [1.0, 0.5, -1.0, 100_000.0])
def test_combinations_of_counts_are_computed_once(scale):
    """Where numbers are not whole, negative or far apart, all of them are computed."""
    dice = np.random.default_rng(0)
    a, b = scale * (1 + dice.integers(0, 5, 4000)), 1.0 * dice.integers(1, 8, 4000)
    sizes = []

    def function(a, b, c):
        sizes.append(np.size(a))
        return a * b + c, b - c

    found = once_each(function, a, b, 3)
    assert [each.tolist() for each in found] == [(a * b + 3).tolist(), (b - 3).tolist()]
    assert sizes == ([35] if scale == 1 else [4000])
    assert once_each(function, 2.0, 3.0, 1) == (7.0, 2.0)


def test_columns_that_have_too_many_combinations_are_numbered_anew():
    """Three of 200 values each have 8 million combinations, of which 40 occur; records and what all share are taken along."""
    dice = np.random.default_rng(1)
    a, b, c = (1.0 * dice.integers(0, 200, 40)[np.arange(4000) % 40] for _ in range(3))
    sizes = []

    def function(record, c, shared):
        sizes.append(np.size(record.tensor))
        return {"not": "taken"} if c is None else (record, (record.tensor - record.data) * c + shared)

    records, found = Combined().once(("a", (a, b), c), function, Overlap(tensor=a, data=b), c, 2.0)
    assert sizes == [40]
    assert (found == (a - b) * c + 2.0).all()
    assert (records.tensor == a).all() and records.context == Overlap().context


def test_more_combinations_than_half_of_the_points_are_computed_everywhere():
    column = 1.0 * np.arange(4000)
    assert (once_each(lambda each: 2 * each, column) == 2 * column).all()
    assert Combined().once((column,), lambda: column) is column, "nothing is taken"
