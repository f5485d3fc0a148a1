"""Requests a second that come, are answered and could be: their intervals, and whether the rate is kept.

A server whose steps are s times as long at a rate r is this one at r s, on a clock that runs s times as slow: it answers r while
the most that it answers is r s or more, else that over s.
"""

import pytest

from mlsysim.labs.gauges import gauges
from mlsysim.plans.evaluate import evaluate
from mlsysim.units.registry import to_si


def asked(**serving):
    plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}, "serving": serving}
    return evaluate(plan, change=False)


def rate(answer, name="most_requests_per_second"):
    metric = answer.metric(name)
    return tuple(side and to_si(side, "1/s") for side in (metric.low, metric.value, metric.high))


@pytest.mark.parametrize("more", [{}, {"seed": 1}])
def test_an_idle_server_answers_what_comes_however_sure_its_times_are(more):
    answer = asked(qps=0.5, **more)
    assert rate(answer, "requests_per_second") == (None, 0.5, None)
    low, most, high = rate(answer)
    assert 0.5 < low < most < high
    (check,) = answer.checks
    assert check.state == "holds" and check.odds > 0.95 and check.bound == 0.5
    # What a token costs is as uncertain as the electricity alone.
    cost, owned = (answer.metric(name).factors for name in ("usd_per_mtoken", "tco"))
    assert cost == pytest.approx(owned)


def test_the_slow_end_of_a_rate_is_the_most_that_slow_steps_answer():
    low, most, _ = rate(asked(qps=0.5))
    near = asked(qps=0.99 * most)
    ends = rate(near, "requests_per_second")
    assert ends[0] == pytest.approx(low, rel=0.01) and ends[1:] == pytest.approx((0.99 * most, 0.99 * most))
    (check,) = near.checks
    assert check.state == "open" and 0.5 < check.odds < 0.95 and "too close to call" in check.sentence
    assert near.ruling.state == "open" and any("Near saturation" in line for line in near.verdict)


def test_a_little_more_than_is_answered_is_too_close_to_call_and_much_more_is_not():
    _, most, high = rate(asked(qps=0.5))
    little, much = asked(qps=(most * high) ** 0.5), asked(qps=2 * high)
    for answer, state in ((little, "open"), (much, "fails")):
        assert answer.overloaded and answer.exit_code == 3
        assert answer.checks[0].state == answer.ruling.state == gauges(answer)[1]["state"] == state
    assert little.checks[0].odds < 0.5


def test_a_number_of_requests_that_come_slower_than_they_could_be_answered_keeps_its_rate():
    answer = asked(qps=5, requests=50)
    # The last is answered after it came, and no queue grows.
    assert rate(answer, "requests_per_second")[1] < 5 and answer.passed


def test_simulated_and_closed_ends_of_a_rate_agree():
    _, most, _ = rate(asked(qps=0.5))
    closed, played = (asked(qps=0.98 * most, **more) for more in ({}, {"seed": 1}))
    assert played.fidelity == "simulated"
    ours, theirs = (rate(answer, "requests_per_second") for answer in (closed, played))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert closed.checks[0].state == played.checks[0].state == "open"


def test_the_most_that_is_answered_is_explained():
    equation = asked(qps=5).explain("most_requests_per_second")[0]
    assert equation.text.startswith("r = c / T")
