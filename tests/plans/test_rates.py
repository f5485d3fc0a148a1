"""Requests a second that come, are answered and could be: their intervals, and whether the rate is kept.

A server whose steps are s times as long at a rate r is this one at r s, on a clock that runs s times as slow: it answers r while
the most that it answers is r s or more, else that over s.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.labs.gauges import gauges
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
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
    # Caches are full then, and what is put back is read again.
    assert 0.9 * low < ends[0] < low and ends[1:] == pytest.approx((0.99 * most, 0.99 * most))
    full = rate(asked(qps=2 * most), "requests_per_second")[1]
    assert ends[0] == pytest.approx(full * low / most, rel=1e-6)
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


def test_few_requests_at_random_have_a_rate_of_their_own():
    """Gaps of n requests at random have a sum with a spread of one over the root of n."""
    few, many = (rate(asked(qps=0.5, requests=n), "requests_per_second") for n in (100, 10_000))
    assert few[2] / few[1] == pytest.approx(1.179, rel=0.01) and few[1] / few[0] == pytest.approx(1.179, rel=0.02)
    assert many[2] / many[1] == pytest.approx(1.0166, rel=0.002)


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


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"engine": "SGLang"},
        {"length_cv": 1.0},
        {"decode_on": "1xH100"},
        {"prompt_tokens": 4000, "output_tokens": 2},
    ],
)
def test_the_most_that_is_answered_does_not_depend_on_what_comes(more):
    found = [rate(asked(qps=qps, **more)) for qps in (0.5, 12, 27, 1000)]
    assert all(each == pytest.approx(found[0]) for each in found)


def test_the_most_that_is_answered_is_of_the_layout_that_is_best_at_a_load():
    """Two devices as one replica answer sooner, as stages more; each layout has its own most, and the answer says that it is of one."""
    plan = {"task": "serving", "model": "Llama3_8B", "on": "2xH100", "isl": 2000, "osl": 300}
    idle, busy = (evaluate(Plan.model_validate(plan | {"qps": qps}), change=False) for qps in (3, 100))
    assert rate(idle)[1] < rate(busy)[1] and idle.layout["tp"] > busy.layout["tp"]
    for answer in (idle, busy):
        assert "can be answered in this layout" in answer.checks[0].sentence
        assert answer.assumptions["layout"].endswith("at this load")
        degrees = {name: answer.layout[name] for name in ("tp", "pp")}
        other = evaluate(Plan.model_validate(plan | degrees | {"qps": 8}), change=False)
        assert rate(other) == pytest.approx(rate(answer)) and "this layout" not in other.checks[0].sentence


def times(answer, name):
    metric = answer.metric(name)
    return tuple(side and to_si(side, "s") for side in (metric.low, metric.value, metric.high))


def test_times_near_saturation_are_as_uncertain_as_the_load_makes_them():
    idle, busy = (times(asked(qps=qps), "tpot") for qps in (0.01, 20))
    # A token on its own is a step; of requests that come, longer steps make more wait for each other.
    assert idle[2] / idle[1] < 1.12 < 1.2 < busy[2] / busy[1]
    low, most, _ = rate(asked(qps=0.5))
    slow, qps = most / low, 0.9 * low
    named, longer = asked(qps=qps), asked(qps=qps * slow)
    assert times(named, "tpot")[2] == pytest.approx(slow * times(longer, "tpot")[1], rel=1e-6)


def test_a_queue_that_may_grow_without_end_gives_times_without_an_upper_end():
    qps = 0.99 * rate(asked(qps=1))[1]
    answer = asked(qps=qps, ttft="10 s")
    for name in ("ttft", "latency"):
        low, value, high = times(answer, name)
        assert high is None and low < value and answer.metric(name).interval.endswith(" or more")
        assert answer.metric(name).factors[1] == float("inf")
    # The batch is full at most, so that a further token has an end: that of a server that is overloaded.
    assert times(answer, "tpot")[2] == pytest.approx(times(asked(qps=100), "tpot")[2], rel=0.01)
    first, come = answer.checks
    # A limit that is far away is kept as surely as no queue grows.
    assert first.state == come.state == "open" and first.odds == come.odds
    assert "too close to call: its interval is" in first.sentence
    # The ruling is of the limit that is in most doubt, and says what becomes of the other.
    assert "The other limit is too close to call." in answer.ruling.because
    near = asked(qps=qps, ttft=f"{1.001 * times(answer, 'ttft')[1]} s")
    assert 0.5 < near.checks[0].odds < first.odds
    again = type(answer).from_json(answer.to_json())
    assert again.metric("ttft") == answer.metric("ttft") and again.metric("ttft").high is None
    row = next(each for each in gauges(answer)[1]["rows"] if each["path"] == "performance.ttft")
    assert row["band"][0] < row["at"] < row["band"][1] == 1.0


def test_closed_and_simulated_ends_of_times_agree():
    closed, played = (times(asked(qps=22, **more), "tpot") for more in ({}, {"seed": 1}))
    assert closed == pytest.approx(played, rel=0.12)


@pytest.mark.parametrize(("qps", "requests"), [(10, 50), (24.5, 200), (24, 5000), (40, 200), (30, 5000), (1000, 64)])
def test_a_number_of_requests_meets_no_more_than_it_is(qps, requests):
    """They fill the server and leave it: the fluid limit beside a simulation of each."""
    closed, *plays = (asked(qps=qps, requests=requests, **more) for more in ({}, {"seed": 1}, {"seed": 2}))
    played = plays[0]
    assert closed.layout["concurrency"] <= requests
    # Near the limit the queue that a play ends with is chance: 5.8 to 8.9 s over four seeds of 5,000 requests.
    for name, within in (("tpot", 0.2), ("ttft", 0.4)):
        theirs = sum(times(answer, name)[1] for answer in plays) / len(plays)
        assert times(closed, name)[1] == pytest.approx(theirs, rel=within), name
    # Requests a second are all of them over the time from the first to the last answer, in both.
    for answer in (closed, played):
        span = to_si(answer.value("until_last_answer"), "s")
        assert rate(answer, "requests_per_second")[1] * span == pytest.approx(requests)
        assert answer.explain("requests_per_second")[0].text.endswith("from the first request to the last answer")
        assert answer.layout["concurrency"] == max(1, round(requests * times(answer, "latency")[1] / span))
        assert any("from the first request to the last answer" in line for line in answer.verdict)
    ours, theirs = (rate(answer, "requests_per_second")[1] for answer in (closed, played))
    assert ours == pytest.approx(theirs, rel=0.15)


def test_many_requests_are_as_those_without_end():
    some, endless = (asked(qps=15, **more) for more in ({"requests": 1_000_000}, {}))
    for name in ("ttft", "tpot"):
        assert times(some, name)[1] == pytest.approx(times(endless, name)[1], rel=2e-3)


@pytest.mark.parametrize("more", [{}, {"seed": 1}])
@pytest.mark.parametrize("output", [1, 2, 16, 256, 2048])
@pytest.mark.parametrize("engine", ["SGLang", "vLLM", "TensorRT_LLM", "TensorRT_LLM_Cpp"])
def test_ends_of_times_in_a_loop_keep_littles_law(engine, output, more):
    """C clients that wait are answered at X = C / (F + n d): no end of one of the three asks of the others what lies outside of theirs."""
    for clients in (1, 64) if more else (1, 8, 64, 500):
        answer = asked(engine=engine, prompt_tokens=2048, output_tokens=output, concurrency=clients, **more)
        first, whole, x = times(answer, "ttft"), times(answer, "latency"), rate(answer, "requests_per_second")
        assert first[0] < first[1] < first[2] and whole[0] < whole[1] < whole[2]
        if not more:
            assert x[1] * whole[1] == pytest.approx(clients, rel=1e-6)
        # Of requests that are played the last are not followed by others.
        answered = x[1] * whole[1]
        assert (x[0] * whole[2], x[2] * whole[0]) == pytest.approx((answered, answered))
        rest = (0.0, 0.0)
        if output > 1:
            further = times(answer, "tpot")
            rest = tuple((whole[1] - first[1]) * further[end] / further[1] for end in (0, 2))
        assert first[0] + rest[1] >= whole[0] * (1 - 1e-9) and first[2] + rest[0] <= whole[2] * (1 + 1e-9)
        if output == 1:
            assert first[2] / first[1] == pytest.approx(x[1] / x[0])


@pytest.mark.parametrize("engine", ["SGLang", "vLLM", "TensorRT_LLM_Cpp"])
@pytest.mark.parametrize("more", [{"concurrency": 500}, {"concurrency": 1000, "requests": 1000, "offline": True}])
def test_the_equation_of_a_rate_gives_it_beyond_the_room_too(engine, more):
    """Clients that wait for a place in a loop, and a batch of more requests than there is room for, of which fewer are in flight on average."""
    answer = asked(engine=engine, prompt_tokens=1024, output_tokens=256, **more)
    assert 0 < answer.value("max_batch") < more["concurrency"]
    told = str(answer.explain("requests_per_second"))
    flying = float(re.search(r"c = ([\d.,]+)", told)[1].replace(",", ""))
    assert flying / times(answer, "latency")[1] == pytest.approx(rate(answer, "requests_per_second")[1], rel=1e-3)
    if "offline" in more:
        assert flying < more["concurrency"]
    else:
        assert flying == more["concurrency"]


@settings(max_examples=30, deadline=None)
@given(
    clients=st.integers(1, 12),
    pools=st.sampled_from([("2xH100", "1xH100"), ("1xH100", "2xH100"), ("4xH100", "auto"), ("3xH100", None)]),
    efficiency=st.sampled_from([0.5, "calibrated"]),
    tokens=st.sampled_from([(1000, 100), (100, 2), (4000, 1)]),
)
def test_clients_are_their_rate_times_their_time(clients, pools, efficiency, tokens):
    """Little's law, also where there are fewer clients than replicas that read prompts."""
    on, decode = pools
    plan = {"task": "serving", "model": "Llama3_8B", "on": on, "tp": 1, "isl": tokens[0], "osl": tokens[1]}
    plan |= {"concurrency": clients, "efficiency": efficiency} | ({} if decode is None else {"decode_on": decode})
    answer = evaluate_plainly(Plan.model_validate(plan))
    rate, time = to_si(answer.value("requests_per_second"), "1/s"), to_si(answer.value("latency"), "s")
    assert rate * time == pytest.approx(clients, rel=0.01)


def test_the_most_that_is_answered_knows_what_is_found_and_not_what_comes():
    """Beginnings that are found leave more room for others, so that more is answered, and the same most is said at any rate; what comes below it is answered."""
    shared = {"prompt_tokens": 1000, "output_tokens": 200, "prefix_hits": 0.9, "prefix_tokens": 50_000}
    plain = rate(asked(prompt_tokens=1000, output_tokens=200, qps=12))[1]
    seen = {qps: asked(qps=qps, **shared) for qps in (12, 0.9 * 48, 200)}
    mosts = [rate(answer)[1] for answer in seen.values()]
    assert mosts == pytest.approx([mosts[0]] * 3, rel=0.002) and mosts[0] > 1.5 * plain
    assert [answer.checks[-1].passed for answer in seen.values()] == [True, True, False]
    low, value, high = rate(seen[0.9 * 48], "requests_per_second")
    assert value == pytest.approx(0.9 * 48) and low is None and high is None
