"""What others ran: the score that widens intervals, whom it is asked of, and that it holds for houses that were left out."""

from __future__ import annotations

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.others import ROWS, SHIPPED, bands, render
from mlsysim.calibrate.questions import house, ran_by_others
from mlsysim.calibrate.residuals import Group
from mlsysim.calibrate.tables import TABLES
from mlsysim.zoo.intervals import OTHERS, houses, interval

FILE = tomllib.loads(SHIPPED.read_text())


def test_the_shipped_bands_hold_for_houses_that_were_left_out() -> None:
    """First tokens of fitted software come from few houses, and hold more."""
    for regime, kinds in ((name, own) for name, own in FILE.items() if name != "houses"):
        for kind, (factor, rows, groups, coverage) in kinds.items():
            assert kind in OTHERS and factor >= 1 and rows >= 30 and groups >= 5
            assert 88 <= coverage <= (98 if (regime, kind) == ("serving_ttft", "elsewhere") else 92)


def test_none_of_the_rows_is_of_a_house_that_constants_were_fitted_on() -> None:
    rows = [row for path in sorted(ROWS.glob("*.csv")) for row in table_rows(path)]
    assert len(rows) > 700 and len({house(row["source"]) for row in rows}) > 40
    known = {row["source"] for row in rows if house(row["source"]) in houses()}
    assert all(name.startswith("mlperf-inference-6") for name in known)  # by software of later rounds


@pytest.mark.parametrize(
    ("source", "said"),
    [("trtllm-0.14", "trtllm"), ("maxtext-readme-v5e", "maxtext-readme"), ("GPUStack lab", "gpustack lab")],
)
def test_a_house_is_what_a_source_is_called_before_its_number(source: str, said: str) -> None:
    assert house(source) == said


@given(st.lists(st.floats(0.0, 2.0), min_size=20, max_size=60))
def test_nine_tenths_of_the_scores_are_at_most_what_is_added(sizes: list[float]) -> None:
    """Of n scores the ceil(0.9 (n + 1))-th: rows whose error is inside of their own interval count as zero."""
    made = [Group("others", "training", "elsewhere", f"{i}", 1, (size,)) for i, size in enumerate(sizes)]
    own = bands(made)["training"]["elsewhere"]
    assert sum(size <= math.log(own.factor) + 1e-9 for size in sizes) >= 0.9 * len(sizes)
    assert "elsewhere = [" in render({"training": {"elsewhere": own}}, set())


def test_a_row_of_another_house_is_less_certain_and_the_answer_is_the_same() -> None:
    row = next(row for row in table_rows(ROWS / "serving_runs.csv") if row["source"] == "vultr-cookbook-b200")
    ours, theirs = (
        TABLES["serving_runs"].predict({**row, "source": name}) for name in (sorted(houses())[0], row["source"])
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.predicted == other.predicted and mine.low and other.low and other.high and mine.high
        assert other.low < mine.low and other.high > mine.high
    question = TABLES["serving_runs"].questions(row)[0]
    assert ran_by_others(question, "vllm-9") == ("serving", "elsewhere")
    assert ran_by_others(question, "trtllm-1.0") is None


def test_an_engine_with_estimates_has_the_interval_of_unfitted_software() -> None:
    known, wide = interval("serving tpot llama_cpp"), interval("serving tpot llama_cpp", "unfitted")
    added = math.log(FILE["serving"]["unfitted"][0]) ** 2
    assert math.log(wide.high) ** 2 == pytest.approx(math.log(known.high) ** 2 + added)
