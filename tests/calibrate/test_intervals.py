"""Bands hold where constants had not seen the question: nested coverage of the shipped residuals, and how widths add."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.calibrate.intervals import Bands, Covered, covered, half_width, nested, width
from mlsysim.calibrate.report import left_out, render
from mlsysim.calibrate.residuals import MOST, Group, Residual, read_summary, summary, together
from mlsysim.zoo.intervals import UNSEEN, interval, paths

GROUPS = read_summary()


def test_nine_tenths_of_a_further_sample_stay_inside() -> None:
    """Of 99 values the 90th: (n + 1) 0.9; of few the largest."""
    assert half_width(range(1, 100)) == 90 and half_width([3.0, -4.0]) == 4.0
    assert covered([[float(v)] for v in range(1, 100)]) == pytest.approx(0.9, abs=0.011)


@given(st.sampled_from(sorted({(g.regime, g.left_out) for g in GROUPS if g.left_out in UNSEEN})))
def test_the_band_of_an_answer_is_that_of_the_residuals(key: tuple[str, str]) -> None:
    found = interval(*key)
    assert math.log(found.high) == pytest.approx(width(Bands(GROUPS).without(""), *key), abs=2e-4)
    assert found.low == pytest.approx(1 / found.high) and found.wider >= 1


@given(st.sampled_from(sorted({g.regime for g in GROUPS})), st.sets(st.sampled_from(UNSEEN)))
def test_what_is_not_seen_never_narrows_a_band(regime: str, unseen: set[str]) -> None:
    kinds = sorted(unseen)
    known, wide = interval(regime), interval(regime, *kinds)
    assert wide.high >= known.high * (1 - 1e-12)
    added = sum(math.log(interval(regime, kind).high) ** 2 - math.log(known.high) ** 2 for kind in kinds)
    assert math.log(wide.high) ** 2 == pytest.approx(math.log(known.high) ** 2 + added)


def test_a_path_ends_at_all_rows() -> None:
    assert paths("serving tpot vLLM") == ["serving tpot vLLM", "serving tpot", "serving", "any"]
    assert interval("nothing of the kind").extrapolating and interval("nothing of the kind").rows > 1000


def test_a_group_counts_for_no_more_than_thirty() -> None:
    def row(i: int, model: str, kind: str = "model") -> Residual:
        return Residual("made", f"{i}", "time", "made here", "", model, "H100", kind, i / 1000)

    many = [row(i, "large") for i in range(1000)] + [row(i, "small") for i in range(3)]
    answered = row(1, "large", "part")
    large, small, alone = summary(together([many, [answered], [answered._replace(log_error=0.5)]]))
    assert (large.rows, len(large.errors)) == (1000, MOST) and large.errors[0] == 0.016 and large.errors[-1] == 0.983
    assert (small.rows, small.errors) == (3, (0.0, 0.001, 0.002))
    assert alone.errors == (0.5,)  # the same value, left out by a later fit


def test_few_models_take_the_wider_band_of_their_kind() -> None:
    def group(regime: str, name: str, size: float) -> Group:
        return Group("made", regime, "model", name, 30, (size,) * 30)

    few = [group("serving tpot one", f"a{i}", 0.1) for i in range(3)]
    many = [group("serving tpot two", f"b{i}", 0.4) for i in range(6)]
    table = Bands(few + many).table()
    assert (
        table["serving tpot one"]["model"].factor
        == table["serving tpot"]["model"].factor
        == pytest.approx(math.exp(0.4))
    )


FIELDS = ("table", "regime", "left_out")


@cache
def coverage_of_all() -> dict[tuple[str, ...], Covered]:
    """By all fields, of which any are sums."""
    return nested(GROUPS, FIELDS)


def held(*by: str) -> dict[tuple[str, ...], float]:
    """Nested coverage of each key with 30 values or more of 5 groups or more; of fewer it says nothing."""
    names: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for group in GROUPS:
        names[tuple(getattr(group, field) for field in by)].add(group.name)
    found = pooled(*by)
    return {key: c.share for key, c in found.items() if c.values >= 30 and len(names[key]) >= 5 and key[-1] != "source"}


def pooled(*by: str) -> dict[tuple[str, ...], Covered]:
    """Nested coverage by some fields."""
    found: dict[tuple[str, ...], Covered] = defaultdict(Covered)
    for own, more in coverage_of_all().items():
        key = tuple(value for field, value in zip(FIELDS, own, strict=True) if field in by)
        found[key] = Covered(found[key].groups + more.groups)
    return found


def test_nested_coverage_by_what_was_left_out() -> None:
    shares = held("left_out")
    assert all(round(share, 2) >= 0.88 for share in shares.values())
    assert not {key: share for key, share in shares.items() if round(share, 2) > 0.92 and key not in MISSED}


_WIDER = "does not hold without one of its few models: the wider band of its kind is taken, and holds more"
_FEW = "most keys have fewer than 5 groups: the wider band of their kind is taken, and holds more"
MISSED = {
    ("kernels",): _FEW,
    ("settings",): _FEW,
    ("training_mlperf_other", "part"): "three kinds of 26 to 85 rows: the conformal place of few rows rounds up",
    ("training_mlperf", "kernels"): "the wider band of dense stacks is taken, and holds more",
    (
        "serving rate TensorRT_LLM_2025",
        "chip",
    ): "does not hold without one of its five chips: the wider band of its kind is taken, and holds more",
    ("serving rate TensorRT_LLM_Cpp_2025", "chip"): _FEW,
    ("prefill graph", "part"): "does not hold by itself: the wider band of its kind is taken, and holds more",
    ("serving rate TensorRT_LLM_Cpp_2025", "model"): _WIDER,
    ("serving ttft TensorRT_LLM_Cpp", "model"): _WIDER,
    (
        "simulated ttft p99",
        "part",
    ): "84.4 %: Mixtral's first stages, where a hundredth of the requests waited for kernels to be compiled, are 2 to 12 times as long",
    (
        "torch decode graph",
        "part",
    ): "does not hold by itself: the wider band of PyTorch's passes is taken, and holds more",
    ("training adapters bridge-nemo", "kernels"): "31 of 32 rows",
    ("training encoder captured", "kernels"): "30 of 31 rows",
    ("training_mlperf_other", "kernels"): "55 of 57 rows",
    ("serving tpot vLLM open", "model"): "58 of 61 rows",
    ("serving ttft TensorRT_LLM_Cpp", "part"): "111 of 114 rows",
}
"""Keys that do not hold 85 to 95 %, and why."""


@pytest.mark.parametrize("by", ["table", "regime"])
def test_nested_coverage_of_every_key(by: str) -> None:
    shares = held(by, "left_out")
    assert len(shares) > 20
    assert not {key: share for key, share in shares.items() if not 0.85 <= share <= 0.95 and key not in MISSED}


@pytest.mark.parametrize("by", ["table", "regime"])
def test_shares_are_nine_tenths_but_for_chance(by: str) -> None:
    """Keys of few groups show little: of thirty values of one group alone a share between 88 and 92 % is 27, which an exact band gives a quarter of the time.
    Within two standard errors, which groups that are drawn whole have, are nine in ten of them, and their mean share is nine tenths."""
    told = [own for own in pooled(by, "left_out").values() if own.values >= 30 and len(own.groups) > 1]
    assert sum(own.holds for own in told) >= 0.9 * len(told) > 35
    assert sum(own.share for own in told) / len(told) == pytest.approx(0.91, abs=0.01)


def test_the_error_of_a_share_is_that_of_its_groups() -> None:
    """Of ten groups of which each is inside or outside whole, one in ten: as of ten values; of values by themselves, their binomial."""
    whole = Covered(((30, 0), *((30, 30),) * 9))
    assert whole.share == pytest.approx(0.9) and whole.error == pytest.approx(0.1) and whole.holds
    each = Covered(((30, 27),) * 10)
    assert each.error == pytest.approx(math.sqrt(0.09 / 300)) and each.holds
    assert not Covered(((30, 15),) * 10).holds and Covered(((30, 27),)).error == pytest.approx(math.sqrt(0.09 / 30))


def test_the_page_leads_with_what_was_left_out() -> None:
    """Weighted by rows: of 950 rows at 10 % and 50 at 100 % median and p90 are 10."""
    made = [Group("made", "made here", "part", "a", 950, (math.log(1.1),) * 30)]
    made += [Group("made", "made here", "part", "b", 50, (math.log(2.0),) * 30)]
    told = left_out(made)
    assert "| made | 10.0 / 10 |" in told
    assert any(
        line.startswith("| made | part | 1,000 | 10.0 | 10.0 |") for line in told[told.index("| made | 10.0 / 10 |") :]
    )
    lines = render([]).splitlines()
    assert lines.index("Left out, median / p90 (a `part` of all: `mlsysim.calibrate.residuals`):") < lines.index(
        "As answered, with constants that may have seen the row:"
    )
    assert lines.count('<details markdown="1">') == lines.count("</details>") == 1


def test_few_chips_take_the_wider_band_of_their_kind_and_not_that_of_all_rows() -> None:
    def group(regime: str, name: str, size: float) -> Group:
        return Group("made", regime, "chip", name, 30, (size,) * 30)

    few = [group("serving tpot one", f"a{i}", 0.1) for i in range(3)]
    many = [group("serving tpot two", f"b{i}", 0.2) for i in range(6)]
    others = [group("energy", f"c{i}", 0.9) for i in range(30)]
    table = Bands(few + many + others).table()
    assert table["serving tpot one"]["chip"].factor == pytest.approx(math.exp(0.2))
    assert table["energy"]["chip"].factor == pytest.approx(math.exp(0.9))


def test_a_chip_without_measured_kernels_is_as_uncertain_as_kernels_of_another_generation() -> None:
    """Where no run on such a chip is in the regime, squares of logarithms add: those of the regime, and what measured kernels err more by."""
    known, wide = interval("serving tpot vLLM"), interval("serving tpot vLLM", "kernels")
    kernel, strange = interval("kernel"), interval("kernel", "chip")
    added = math.log(strange.high) ** 2 - math.log(kernel.high) ** 2
    assert math.log(wide.high) ** 2 == pytest.approx(math.log(known.high) ** 2 + added)
    assert wide.extrapolating and wide.high > 1.5


def test_processors_are_at_least_as_uncertain_as_published_rates_on_them() -> None:
    rows = [error for group in GROUPS if group.left_out == "cpu" for error in group.errors]
    assert len(rows) >= 10 and max(rows) > 1
    assert math.log(interval("serving tpot vLLM", "cpu").high) >= half_width(rows) - 1e-3
