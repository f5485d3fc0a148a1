"""Percentiles as benchmarks have them, in bins where there are many, and their sampling error."""

from __future__ import annotations

import math
import random

import pytest

from mlsysim.simulate.record import BATCHES, EXACT, Record, Times


def _told(record: Record, values: list[float]) -> Record:
    for at, value in enumerate(values):
        record.done(float(at), float(at) + value / 2, at + value, at + 3 * value, 10, 3)
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
    assert sum(len(times.values) for times in few.all.values()) < 4 * 600
    assert EXACT > 600


def test_replicas_are_joined_batch_by_batch() -> None:
    draw = random.Random(3)
    one, two = ([draw.expovariate(10) for _ in range(400)] for _ in range(2))
    both = _told(Record(400), one)
    both.join(_told(Record(400), two))
    found = both.percentiles("ttft")
    assert both.count == 800 and found.p90 == pytest.approx(_by_hand(one + two, 90), rel=1e-9)
    each = 400 // BATCHES
    means = [
        sum((one + two)[i] for k in (0, 400) for i in range(k + b * each, k + (b + 1) * each)) / (2 * each)
        for b in range(BATCHES)
    ]
    # Neighbours are alike by chance here (correlation 0.2), so that three batches are one.
    larger = [sum(means[b : b + 3]) / 3 for b in range(0, BATCHES - 2, 3)]
    middle = sum(larger) / 6
    spread = math.sqrt(sum((m - middle) ** 2 for m in larger) / 5)
    low = max(found.mean - middle, 0.0) / (math.sqrt(6) - 1)
    assert found.error[0] == pytest.approx(2.015 * spread / math.sqrt(6) + low, rel=1e-3)


def test_the_sampling_error_covers_what_other_samples_give() -> None:
    inside = 0
    for seed in range(60):
        draw = random.Random(seed)
        found = _told(Record(2000), [draw.expovariate(1.0) for _ in range(2000)]).percentiles("ttft")
        inside += abs(found.mean - 1.0) <= found.error[0]
    assert 46 <= inside <= 60


def _waits(count: int, seed: int, load: float) -> Record:
    """Waits of an M/M/1 queue whose services take 1 s on average, by Lindley's recursion; neighbours are alike."""
    record, draws, wait = Record(count), random.Random(seed), 0.0
    for number in range(count + 200):
        wait = max(0.0, wait + draws.expovariate(1.0) - draws.expovariate(load))
        if number >= 200:
            record.done(0.0, 0.0, wait, wait, 1, 1)
    return record


def test_most_samples_of_a_queue_have_the_true_p99_in_their_interval() -> None:
    """Known: P(W > t) = rho e^(-(1 - rho) t). Of 60 samples 54 +- 2.3 should; twenty batches, whatever the percentile, had 28."""
    true = math.log(0.6 / 0.01) / 0.4
    found = [_waits(2000, seed, 0.6).percentiles("ttft") for seed in range(60)]
    assert 48 <= sum(abs(each.p99 - true) <= each.error[-1] for each in found) <= 59


def test_near_saturation_batches_are_longer() -> None:
    """Of 40 samples at a load of 0.9 about 34 have the true mean, 30 the p95; of twenty batches, whatever the load, 31 and 17 had."""
    found = [_waits(10_000, seed, 0.9).percentiles("ttft") for seed in range(40)]
    for place, name, true, least in ((0, "mean", 9.0, 31), (3, "p95", math.log(0.9 / 0.05) / 0.1, 25)):
        assert least <= sum(abs(each.values[name] - true) <= each.error[place] for each in found) <= 39


def test_a_few_hundred_requests_have_no_error_of_their_p99() -> None:
    found = _waits(900, 0, 0.6).percentiles("ttft")
    assert math.isnan(found.error[-1]) and all(error > 0 for error in found.error[:4])


def test_gaps_count_by_tokens() -> None:
    record = Record(1)
    record.gap(0.010, 98)
    record.gap(0.200, 2)
    found = record.percentiles("itl")
    assert found.mean == pytest.approx((0.98 + 0.4) / 100) and found.values["p50"] == pytest.approx(0.01, rel=2e-3)
    assert found.p99 == pytest.approx(0.2, rel=2e-3) and math.isnan(found.error[0])


def test_two_batches_that_are_alike_by_chance_are_no_less_unsure_than_independent_requests():
    times = Times(each=500)
    half = [0.1 + 0.9 * k / 499 for k in range(500)]
    for value in half * 2:
        times.values.append(value)
    found = times.percentiles({"p90": 90.0})
    # Both halves have the same p90; ranks 900 -+ 1.645 sqrt(1000 0.9 0.1) of values that lie 0.9 / 1000 apart.
    assert found.error[1] == pytest.approx(1.645 * math.sqrt(90) * 0.9 / 1000, rel=0.1)
