"""Answers of one token, and fleets that are overloaded."""

from __future__ import annotations

import pytest
from equation_arithmetic import wrong_by

import mlsysim
from mlsysim.cases import closed_loop
from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.units.registry import to_si
from mlsysim.units.text import plainly


def one_token(**load):
    serving = {"prompt_tokens": 1000, "output_tokens": 1, **load}
    return {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "H100"},
        "serving": serving,
    }


@pytest.mark.parametrize("load", [{}, {"concurrency": 4}, {"qps": 5.0}, {"qps": 5.0, "slo": "ttft_p99=500ms"}])
def test_an_answer_of_one_token_has_no_further_one(load):
    answer = evaluate(one_token(**load), change=False)
    assert "then one every" not in answer.headline
    assert not {"tpot", "user_rate"} & set(answer.held)
    assert to_si(answer.value("latency"), "s") == pytest.approx(to_si(answer.value("ttft"), "s"))


def test_a_limit_on_further_tokens_of_which_there_are_none_is_refused():
    with pytest.raises(InputError, match="an answer of 1 token has none"):
        evaluate(one_token(qps=5.0, slo="tpot=30ms"))


def test_rates_of_an_overloaded_server_have_their_equation():
    answer = evaluate(one_token(qps=500.0), change=False)
    assert answer.overloaded
    assert answer.explain("requests_per_second")[0].value == answer.metric("requests_per_second").text


def test_a_mixed_fleet_that_is_overloaded_says_so():
    answer = evaluate(one_token(output_tokens=100, qps=500.0) | {"hardware": {"on": "H100+A100"}})
    assert not answer.feasible and answer.headline.startswith("Overloaded on 1 x NVIDIA H100")


def test_limits_of_a_mixed_fleet_hold_where_its_worst_group_keeps_them() -> None:
    """Limits on percentiles were not looked at, so that a missed one was no failure; a trace was played on every group, whole."""
    asked = {"model": "Llama3_8B", "on": "H100+A100", "qps": 4.0, "isl": 500, "osl": 20, "requests": 300}
    loose, tight = (mlsysim.serve(**asked, slo={"ttft_p99": limit}) for limit in ("9 s", "1 ms"))
    alone = [mlsysim.serve(**asked | {"on": chip, "qps": 2.0}, slo={"ttft_p99": "9 s"}) for chip in ("H100", "A100")]
    assert loose.passed and not tight.passed
    assert loose.value("ttft_p99") > min(each.value("ttft_p99") for each in alone)
    assert "the default of None" not in " ".join(loose.assumptions.values())
    with pytest.raises(InputError, match="accelerators of one kind: ask for each group"):
        mlsysim.serve("Llama3_8B", on="H100+A100", trace="azure-code")


def test_an_idle_server_has_less_than_a_request_in_flight() -> None:
    """Little's law: a request every thousand seconds that takes half a second is not one in flight."""
    answer = mlsysim.serve("Llama3_8B", on="1xH100", qps=0.001, prompt_tokens=512, output_tokens=64)
    mean = 0.001 * answer.metric("latency").value.to("s").magnitude
    assert answer.verdict[0].startswith(f"{plainly(mean, 2)} requests in flight")


def test_first_tokens_alone_are_made_of_their_parts() -> None:
    """At first order what all wait for together was no part of the time to the first token."""
    work = {"task": "serving", "model": "GPT2", "on": "H20", "isl": 32, "osl": 1, "concurrency": 32, "efficiency": 0.3}
    answer = evaluate(work, change=False)
    (equation,) = [each for each in answer.equations if each.gives == "ttft"]
    assert wrong_by(equation, answer.metric("ttft")) is None


def test_what_holds_no_request_is_answered_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest fleet for 405B was said after a minute of walking clients who find no room."""
    monkeypatch.setattr(closed_loop, "waves_of", None)
    assert not evaluate(
        {"task": "serving", "model": "Llama3_405B", "on": "L4", "concurrency": 4}, change=False
    ).feasible


def test_a_first_token_of_several_nodes_has_an_interval():
    """What nodes say to each other widens it; there is no further token for it to be a share of."""
    answer = evaluate({"task": "serving", "model": "Llama3_70B", "on": "16xH100", "tp": 16, "osl": 1})
    ttft = answer.metric("ttft")
    assert ttft.low < ttft.value < ttft.high
