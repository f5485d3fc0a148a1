"""The loss law: its optimum, and models of equal loss."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.cases.losslaw import LAWS, LossLaw, equal_loss_optimum, extrapolations, loss_law


def test_the_published_coefficients():
    old, new = loss_law("hoffmann2022"), loss_law("besiroglu2024")
    assert (old.irreducible, old.parameter_coefficient, old.token_coefficient) == (1.69, 406.4, 410.7)
    assert (old.parameter_exponent, old.token_exponent) == (0.34, 0.28)
    assert (new.irreducible, new.parameter_coefficient, new.token_coefficient) == (1.8172, 482.01, 2085.43)
    assert (new.parameter_exponent, new.token_exponent) == (0.3478, 0.3658)


def test_the_exponent_of_the_refit_is_that_of_its_paper():
    law = loss_law("besiroglu2024")
    growth = math.log(law.optimum(1e25)[0] / law.optimum(1e23)[0]) / math.log(100)
    assert growth == pytest.approx(0.5126, abs=1e-4)


def test_the_refit_agrees_with_twenty_tokens_and_the_rounded_coefficients_do_not():
    pairs = 70e9 * 1.4e12
    parameters, tokens = loss_law("besiroglu2024").optimum(pairs)
    assert tokens / parameters == pytest.approx(18.4, abs=0.1)
    parameters, tokens = loss_law("hoffmann2022").optimum(pairs)
    assert tokens / parameters == pytest.approx(92.8, abs=0.1)


@pytest.mark.parametrize("name", LAWS)
def test_the_optimum_is_a_minimum(name):
    law = loss_law(name)
    parameters, tokens = law.optimum(1e23)
    best = law.loss(parameters, tokens)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert law.loss(parameters * factor, tokens / factor) > best


def test_the_published_example_of_inference_aware_training():
    # Sardana et al. 2024, figure 1: a 13 B model with 2 T tokens of inference; 7 B saves 1.7e22 operations, 17 %.
    law = LossLaw(1.69, 406.4, 410.7, 0.336, 0.283, "coefficients of that paper")
    pairs = 13e9 * 576.4855667e9
    parameters, tokens = law.optimum(pairs)
    assert parameters == pytest.approx(13e9, rel=1e-6)
    small, longer = equal_loss_optimum(law, law.loss(parameters, tokens), parameters, 6.0, 2.0, 2e12)
    before = parameters * (6 * tokens + 2 * 2e12)
    after = small * (6 * longer + 2 * 2e12)
    assert small == pytest.approx(7e9, rel=0.01)
    assert before - after == pytest.approx(1.7e22, rel=0.01)
    assert 1 - after / before == pytest.approx(0.17, abs=0.005)


@pytest.mark.parametrize("name", LAWS)
def test_without_inference_the_lifetime_optimum_is_the_training_optimum(name):
    law = loss_law(name)
    parameters, tokens = law.optimum(1e23)
    small, longer = equal_loss_optimum(law, law.loss(parameters, tokens), parameters, 6.0, 2.0, 0.0)
    assert small == pytest.approx(parameters, rel=1e-4)
    assert longer == pytest.approx(tokens, rel=1e-4)


@given(st.floats(1e9, 1e14), st.floats(1e9, 1e14), st.sampled_from(LAWS))
def test_more_inference_makes_the_best_model_smaller_at_the_same_loss(a, b, name):
    law = loss_law(name)
    parameters, tokens = law.optimum(1e23)
    loss = law.loss(parameters, tokens)
    few, many = sorted((a, b))
    large, shorter = equal_loss_optimum(law, loss, parameters, 6.0, 2.0, few)
    small, longer = equal_loss_optimum(law, loss, parameters, 6.0, 2.0, many)
    assert small <= large * (1 + 1e-6)
    assert law.loss(small, longer) == pytest.approx(loss)
    assert law.loss(large, shorter) == pytest.approx(loss)


@given(st.floats(1e8, 1e12), st.floats(1e9, 1e13), st.floats(1.01, 100), st.sampled_from(LAWS))
def test_more_parameters_and_more_tokens_lower_the_loss(parameters, tokens, factor, name):
    law = loss_law(name)
    loss = law.loss(parameters, tokens)
    assert law.irreducible < law.loss(parameters * factor, tokens) < loss
    assert law.loss(parameters, tokens * factor) < loss


def test_what_lies_outside_the_fitted_runs_is_named():
    assert extrapolations(1e21, 3e9, 55e9) == ()
    outside = extrapolations(5.88e23, 70e9, 1.4e12)
    assert len(outside) == 3
    assert "196 times above the fitted range" in outside[0]
    assert "times below" in extrapolations(1e18, 3e9, 55e9)[0]
