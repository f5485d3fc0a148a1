"""Percentiles as benchmarks have them, in bins where there are many."""

from __future__ import annotations

import math
import random

import pytest

from mlsysim.simulate.record import BATCHES, EXACT, FOLDED, Record, Times
from mlsysim.simulate.requests import Request


def _told(record: Record, values: list[float]) -> Record:
    done = record.teller()
    for at, value in enumerate(values):
        done((Request(float(at), 10, 3), at + value / 2, at + value, at + 3 * value))
        record.settle()
    return record


def _by_hand(values: list[float], level: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(level / 100 * len(ordered)))]


def test_percentiles_are_those_of_benchmarks() -> None:
    draw = random.Random(1)
    values = [draw.lognormvariate(-3, 1) for _ in range(1000)]
    found = _told(Record(1000), values).percentiles("ttft")
    assert found.mean == pytest.approx(sum(values) / 1000, rel=1e-9)
    for level in (50, 90, 95, 99):
        assert found.values[f"p{level}"] == pytest.approx(_by_hand(values, level), rel=1e-9)


def test_many_values_are_counted_in_bins_within_two_thousandths() -> None:
    draw = random.Random(2)
    values = [draw.lognormvariate(-3, 1) for _ in range(5000)]
    few = _told(Record(5000, exact=600), values)
    for kind, scale in (("ttft", 1.0), ("e2e", 3.0), ("tpot", 1.0), ("queue", 0.5)):
        found = few.percentiles(kind)
        assert found.mean == pytest.approx(scale * sum(values) / 5000, rel=1e-6)
        for level in (50, 90, 95, 99):
            assert found.values[f"p{level}"] == pytest.approx(scale * _by_hand(values, level), rel=2e-3)
    assert sum(len(times.values) for times in few.all.values()) <= 4 * 600
    assert EXACT > 600


def test_of_more_than_are_kept_none_are_kept_long() -> None:
    long, short = (_told(Record(expected), [0.1] * (FOLDED + 1)) for expected in (EXACT + 1, EXACT))
    assert [len(times.values) for times in long.all.values()] == [0] * 4
    assert [len(times.values) for times in short.all.values()] == [FOLDED + 1] * 4


def test_replicas_are_joined_batch_by_batch() -> None:
    draw = random.Random(3)
    one, two = ([draw.expovariate(10) for _ in range(400)] for _ in range(2))
    both = _told(Record(400), one)
    both.join(_told(Record(400), two))
    found = both.percentiles("ttft")
    assert both.count == 800 and found.p90 == pytest.approx(_by_hand(one + two, 90), rel=1e-9)
    each = 400 // BATCHES
    halves = [(one[b * each : (b + 1) * each], two[b * each : (b + 1) * each]) for b in range(BATCHES)]
    for bag, (a, b) in zip(both.all["ttft"].batches(), halves, strict=True):
        assert sorted(bag) == pytest.approx(sorted(a + b), rel=1e-9)


def test_waits_of_nothing_stay_nothing_in_bins() -> None:
    record = Record(100, exact=10)
    for at in range(100):
        record.teller()((Request(float(at), 1, 1), float(at), at + 0.25, at + 0.25))
        record.settle()
    assert record.percentiles("queue").p99 == 0.0
    assert record.percentiles("ttft").p99 == pytest.approx(0.25, rel=2e-3)


def test_gaps_count_by_tokens() -> None:
    record = Record(1)
    record.gaps.add(0.010, 98)
    record.gaps.add(0.200, 2)
    found = record.percentiles("itl")
    assert found.mean == pytest.approx((0.98 + 0.4) / 100) and found.values["p50"] == pytest.approx(0.01, rel=2e-3)
    assert found.p99 == pytest.approx(0.2, rel=2e-3) and math.isnan(found.error[0])


def test_a_mean_is_that_of_the_exact_sum() -> None:
    """Python adds floats up one way or another by its release; rounded once, a sum is the same everywhere."""
    times = Times()
    times.extend([0.1] * 10)
    assert times.mean == 0.1 and times.percentiles({"p50": 50.0}).mean == pytest.approx(0.1, rel=1e-15)
