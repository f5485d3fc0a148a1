from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, UnitError
from mlsysim.walls.operations.safety import ResponsibleEngineeringModel, enlarged_slowdown, gaussian_noise


def solve(**changes):
    return ResponsibleEngineeringModel().solve(**{"base_training_time": "10 day", **changes})


@pytest.mark.parametrize(("epsilon", "factor"), [(1.0, 3.0), (0.1, 21.0), (2.0, 2.0), (10.0, 1.2)])
def test_the_papers_form(epsilon, factor):
    # about 3x at epsilon 1, more than 10x at 0.1
    result = solve(epsilon=epsilon)
    assert result.dp_slowdown_factor == pytest.approx(factor)
    assert result.privacy_cost_ratio == result.dp_slowdown_factor
    assert result.effective_training_time.to("day").magnitude == pytest.approx(10 * factor)


def test_the_multiplier_is_a_range():
    # measured steps: 2.6 to 8 times with per-sample gradients, about half with efficient clipping
    low, high = solve().dp_slowdown_range
    assert (low, high) == (1.3, 8.0)
    days = [time.to("day").magnitude for time in solve().effective_training_time_range]
    assert days == pytest.approx([13, 80])
    assert solve(epsilon=0.1).dp_slowdown_range == pytest.approx((1.3, 80))
    assert solve(epsilon=100).dp_slowdown_range == (1.3, 8.0)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 6.0])
def test_the_point_lies_in_the_range_for_usual_budgets(epsilon):
    result = solve(epsilon=epsilon)
    low, high = result.dp_slowdown_range
    assert low <= result.dp_slowdown_factor <= high
    assert "range" not in result.assumptions


def test_a_point_outside_the_range_is_said():
    assert "trust the range" in solve(epsilon=50).assumptions["range"]


def test_noise_grows_as_the_budget_shrinks():
    # sqrt(2 ln(1.25e5)) = 4.845
    assert solve().noise_multiplier == pytest.approx(4.845, abs=1e-3)
    assert solve(epsilon=0.5).noise_multiplier == pytest.approx(2 * 4.845, abs=2e-3)
    assert solve(epsilon=2).noise_multiplier is None
    assert "up to 1" in solve(epsilon=2).assumptions["noise_multiplier"]
    assert gaussian_noise(1.0, 1.25) == 0.0


def test_rare_groups_ask_for_data():
    result = solve(min_subgroup_prevalence=0.01)
    assert result.fairness_data_ratio == pytest.approx(100)
    assert result.additional_data_requirement == pytest.approx(99)
    assert solve(min_subgroup_prevalence=1).additional_data_requirement == 0


def test_defaults_and_inputs_are_echoed():
    result = solve()
    assert (result.epsilon, result.delta, result.min_subgroup_prevalence) == (1.0, 1e-5, 0.01)
    assert result.assumptions["epsilon"] == "1"
    assert "1.3 to 8" in result.assumptions["slowdown"]
    assert "Rodriguez Beltran" in result.explain()


def test_no_privacy_costs_nothing_in_the_limit():
    assert solve(epsilon=1000).dp_slowdown_factor == pytest.approx(1.002)
    assert enlarged_slowdown(math.inf, 8.0) == 8.0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"epsilon": 0}, InputError, "above 0"),
        ({"delta": 0.5}, InputError, "at most 0.1"),
        ({"min_subgroup_prevalence": 0}, InputError, "above 0"),
        ({"min_subgroup_prevalence": 2}, InputError, "at most 1"),
        ({"base_training_time": 10}, UnitError, "base_training_time"),
    ],
)
def test_bad_input_is_one_sentence(changes, error, words):
    with pytest.raises(error, match=words):
        solve(**changes)


@given(epsilon=st.floats(0.01, 500), prevalence=st.floats(1e-6, 0.5))
def test_signs(epsilon, prevalence):
    base = solve(epsilon=epsilon, min_subgroup_prevalence=prevalence)
    looser = solve(epsilon=epsilon * 2, min_subgroup_prevalence=prevalence * 2)
    assert looser.dp_slowdown_factor < base.dp_slowdown_factor
    assert looser.dp_slowdown_range[1] <= base.dp_slowdown_range[1]
    assert looser.fairness_data_ratio < base.fairness_data_ratio
    assert base.dp_slowdown_range[0] < base.dp_slowdown_range[1]
