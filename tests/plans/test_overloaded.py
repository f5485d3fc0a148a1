"""A service that more requests come to than it answers, and demands on what there is none of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlsysim
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.evaluate import evaluate
from mlsysim.units.text import plainly


@pytest.fixture(scope="module", params=[{}, {"efficiency": 0.5}], ids=["calibrated", "first order"])
def overloaded(request: pytest.FixtureRequest) -> Answer:
    asked = {"qps": 2000, "tp": 1, "pp": 4, "slo": "ttft=1s", "budget": "100 USD"}
    return mlsysim.serve("Llama3_8B", "8xH100", **asked, **request.param)


def test_a_queue_without_end_has_no_first_token(overloaded: Answer) -> None:
    assert overloaded.overloaded and not {"ttft", "latency"} & set(overloaded.held)
    assert "tpot" in overloaded.held


def test_a_figure_is_never_worth_more_than_itself(overloaded: Answer) -> None:
    ledger = overloaded.ledger
    assert ledger.total("elastic") == pytest.approx(ledger.seconds) == ledger.total("exposed")
    less = [least for least, _ in overloaded.sensitivities.values()]
    assert sum(less) <= 1 / 0.9 - 1 + 1e-9, "10 % less of everything takes a ninth longer"


def test_a_simulated_time_is_as_elastic_as_it_is_long() -> None:
    answer = mlsysim.serve("Llama3_8B", "1xH100", qps=20, slo="tpot_p99=60ms")
    ledger = answer.ledger
    assert answer.main == "latency" and ledger.total("elastic") == pytest.approx(ledger.seconds)


def test_two_rates_of_an_overloaded_service_are_told_apart() -> None:
    """5.032 stood beside "at most 5.059" without a word."""
    answer = mlsysim.serve("Llama3_70B", "4xH100", qps=10, isl=2000, osl=300)
    most, full = (float(answer.value(name).m) for name in ("most_requests_per_second", "requests_per_second"))
    told = [line for line in answer.verdict if line.startswith("Overloaded, it answers only")]
    assert full < most and len(told) == 1 and f"only {plainly(full)} a second" in told[0]


def test_caches_that_go_to_the_host_are_not_read_again() -> None:
    asked = {"qps": 10, "isl": 500, "osl": 2000}
    for preemption, words, not_said in (
        ("swap", "back from the host", "read again"),
        (None, "read again", "the host"),
    ):
        (line,) = [
            each
            for each in mlsysim.serve("Llama3_8B", "1xH100", preemption=preemption, **asked).verdict
            if each.startswith("Overloaded, it answers")
        ]
        assert words in line and not_said not in line


def test_limits_on_times_that_there_are_none_of_are_listed(overloaded: Answer) -> None:
    first = next(check for check in overloaded.checks if check.limit == "ttft")
    assert not first.passed and first.sentence.startswith("An overloaded service has no time to the first token")


def test_what_does_not_fit_lists_all_that_was_asked() -> None:
    small = mlsysim.serve("Llama3_70B", "1xH100", qps=3, slo="ttft_p99=1s", budget="100 USD")
    assert {check.limit for check in small.checks} == {"budget", "ttft_p99", "qps"}
    assert not any(check.passed for check in small.checks) and all("fit" in check.sentence for check in small.checks)
    split = {"tp": 8, "pp": 1, "mode": "given"}
    plan = {"workload": {"model": "Llama3_70B", "tokens": 1e12}, "hardware": {"on": "8xH100"}, "parallelism": split}
    run = evaluate(plan | {"ops": {"deadline": "20 day", "budget": "1 MUSD"}, "task": "training"}, change=False)
    assert not run.feasible and {check.limit for check in run.checks} == {"deadline", "budget"}


def test_a_limit_on_the_cost_of_what_has_no_price_is_a_sentence() -> None:
    asked = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "2xTPU_v5e"}, "serving": {"qps": 1}}
    limit = {"constraints": {"assert": [{"metric": "macro.usd_per_mtoken", "max": 1.0}]}}
    with pytest.raises(
        mlsysim.InputError, match="The price of 2 x Google TPU v5e is not known, so that it has no cost of a million"
    ):
        evaluate(asked | limit, change=False)
    answer = evaluate(asked | {"ops": {"budget": "100 USD"}}, change=False)
    assert answer.warnings == (
        "The price of 2 x Google TPU v5e is not known, so that the budget of $100 is not checked; give a price.",
    )


def test_a_least_service_leaves_out_chips_whose_limited_cost_is_not_known() -> None:
    asked = {"qps": 1, "on": "TPU_v5e,L4", "assert": ["usd_per_mtoken <= 5"]}
    found = mlsysim.plan("Llama3_8B", **asked)
    assert "1 x L4" in found.sentence and "cheapest" in found.sentence
    assert any(note.startswith("TPU_v5e: The price of") for note in found.notes)
    assert "2 x TPU_v5e (1 x TP2) is the smallest service" in mlsysim.plan("Llama3_8B", qps=1, on="TPU_v5e").sentence


def test_a_budget_that_too_many_accelerators_miss_is_kept_by_fewer() -> None:
    answer = mlsysim.serve("Llama3_8B", "8xH100", qps=20, budget="100 USD")
    assert not answer.passed and answer.change is not None and answer.change.words.startswith("1 x H100")
    assert answer.change.effects.startswith("then everything asked for holds")
    assert evaluate(answer.change.plan, change=False).passed


def test_a_high_rate_is_written_in_digits() -> None:
    answer = mlsysim.serve("Llama3_8B", "1xH100", qps=100_000)
    assert "and 100,000 arrive" in answer.headline and answer.checks[-1].sentence.endswith("and 100,000 arrive.")


def test_a_state_of_one_size_keeps_conversations_of_any_length() -> None:
    answer = mlsysim.serve("Mamba2_2_7B", "1xH100", qps=0.2, isl=100, osl=4, turns=3)
    assert answer.feasible and answer.fidelity == "simulated"


def test_a_plan_written_down_keeps_its_decode_pool() -> None:
    asked = {"concurrency": 1, "isl": 100, "osl": 2, "decode_on": "H100"}
    answer = mlsysim.serve("GPT_OSS_20B", "64xGB200", **asked)
    again = evaluate(settled(answer), change=False)
    assert again.layout == answer.layout and again.memory == answer.memory


def test_the_queue_of_an_overloaded_service_grows_by_what_is_not_answered() -> None:
    answer = mlsysim.serve("Llama3_8B", "1xH100", qps=40, isl=1024, osl=256)
    told = next(each for each in answer.verdict if each.startswith("The queue grows"))
    full = float(answer.value("requests_per_second").m)
    waits = re.fullmatch(r"The queue grows by ([\d.]+) .* an hour ([\d,]+) wait, .* waits for ([\d.]+) min\.", told)
    assert waits is not None and float(waits[1]) == pytest.approx(40 - full, rel=1e-3)
    assert float(waits[2].replace(",", "")) == pytest.approx(3600 * (40 - full), rel=0.01)
    assert float(waits[3]) == pytest.approx(60 * (40 / full - 1), rel=0.01)


def test_a_layout_that_is_given_and_overloaded_is_told_so() -> None:
    """No stages were left for its replicas, and of those it was told (`4 accelerators do not hold 4 replicas of TP1 PP2`)."""
    answer = mlsysim.serve("Llama3_8B", "4xH100", tp=1, replicas=4, qps=100, isl=1024, osl=256)
    assert answer.overloaded and "4 replicas" in answer.headline


def said(answer: Answer, name: str) -> str:
    return next(each.text for each in answer.assumed if each.name == name)


@pytest.mark.parametrize(
    ("asked", "words", "thrashes"),
    [
        ({"isl": 8000, "osl": 2, "tp": 1, "replicas": 4}, "as prompts are read no faster", False),
        ({"isl": 1000, "osl": 200, "max_num_seqs": 4}, "as many as are let in", False),
        ({"isl": 500, "osl": 2000, "tp": 1, "replicas": 4}, "as many as there is room for", True),
    ],
)
def test_what_keeps_requests_out_of_a_full_service_is_named(asked: dict[str, int], words: str, thrashes: bool) -> None:
    """Room was named for all of them, and caches of eight short requests were said to be full where 224 had room."""
    answer = mlsysim.serve("Llama3_8B", "4xH100", qps=600, **asked)
    assert words in said(answer, "concurrency")
    assert thrashes == any("caches are full" in line for line in answer.verdict)


def test_requests_that_a_trace_says_failed_are_told(tmp_path: Path) -> None:
    rows = [f"{second},ChatGPT,100,{0 if second % 10 == 3 else 20},120,log" for second in range(40)]
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    (tmp_path / "burst.csv").write_text("\n".join([head, *rows]))
    answer = mlsysim.serve("Llama3_8B", "1xH100", trace=str(tmp_path / "burst.csv"))
    assert said(answer, "simulated").startswith("36 requests of burst.csv (4 that failed left out), ")
