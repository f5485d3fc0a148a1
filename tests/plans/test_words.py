"""What answers print: one way of writing numbers, in sentences, tables, equations and reports, for every scenario."""

from __future__ import annotations

import re

import pytest
from scenario_answers import SCENARIOS, scenario_answer

import mlsysim
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.metrics import metric as metric_of
from mlsysim.plans.varied import axes_of
from mlsysim.units.text import count_text, money_text, number, plainly

EXPONENT = re.compile(r"\d[eE][+-]?\d")
ONE_OF_MANY = re.compile(
    r"(?<![\d.,])1 (accelerators|replicas|requests|nodes|chips|micro-batches|tokens|days|GPUs|samples|failures)\b"
)
TWO_PREFIXES = re.compile(r"\b[kMGT](kg|kW|MW|GB|MB|TB|kB|ms)\b|\b\d{5,}\b")


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda path: path.stem)
def answer(request):
    return scenario_answer(request.param)


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 15


def test_no_sentence_table_or_equation_prints_an_exponent_or_one_of_many(answer):
    scores = [f"{score.value}; {score.note}" for score in answer.scorecard]
    cells = [text for metric in answer.metrics for text in (metric.text, metric.interval)]
    lines = [*str(answer).splitlines(), *scores, *cells, *answer.assumptions.values(), *answer.explain().lines()]
    wrong = [line for line in lines if EXPONENT.search(line) or ONE_OF_MANY.search(line)]
    assert wrong == []
    assert [line for line in str(answer).splitlines() if TWO_PREFIXES.search(line)] == []


def test_a_value_reads_the_same_in_words_tables_and_equations(answer):
    printed = str(answer.explain())
    for metric in answer.metrics:
        assert f"gives {metric.text}" in printed, metric.name


@pytest.mark.parametrize("value", [1e-9, 3.1e-5, 0.02, 1, 999.96, 1e4, 123456, 7.89e8, 3.2e9, 4.7e13, 8.8e17])
@pytest.mark.parametrize("unit", ["", "s", "byte", "flop", "flop/s", "USD", "J/flop", "kWh"])
def test_no_size_prints_an_exponent(value, unit):
    for text in (number(value, unit), plainly(value), count_text(value), money_text(value)):
        assert not EXPONENT.search(text), text


def test_a_large_service_prints_no_exponent() -> None:
    answer = mlsysim.serve("Llama3_8B", on="20000xH100", qps=1_000_000, prompt_tokens=500, output_tokens=100)
    assert not [line for line in str(answer).splitlines() if EXPONENT.search(line)]


def test_what_comes_and_what_is_answered_are_told_apart() -> None:
    """However close to its rate a service is overloaded, the two do not read alike."""
    asked = {"isl": 1000, "osl": 200}
    most = mlsysim.serve("Llama3_8B", on="1xH100", qps=1000, **asked).value("most_requests_per_second").magnitude
    for above in (1.0001, 1.001, 1.1):
        said = mlsysim.serve("Llama3_8B", on="1xH100", qps=round(most * above, 3), **asked).headline
        answered, come = re.search(r"at most ([\d.,]+) requests a second and ([\d.,]+) arrive", said).groups()
        assert answered != come


def test_a_run_and_what_it_costs_have_one_period() -> None:
    short = mlsysim.train("ResNet50", on="8xA100", tokens="115M", batch_size=2048)
    hours = short.metric("run_time").text
    assert hours.endswith(" h") and f" take {hours}," in str(short) and f"to own for {hours} (" in str(short)
    assert short.questions["macro"] == f"What it costs in {hours}"


def test_caches_are_told_in_a_format_that_the_chip_has() -> None:
    assumed = {each.name: each.text for each in evaluate({"model": "gpt2", "on": "T4"}, change=False).assumed}
    assert (assumed["precision"], assumed["cache_precision"]) == ("fp16", "fp16")


def test_no_step_is_shorter_than_its_operations_at_the_peak() -> None:
    step = mlsysim.train("Llama3_8B", on="256xTPUv5p", batch_size=768)
    latency, used = step.metric("latency"), step.metric("mfu")
    assert used.high == pytest.approx(1.0)
    assert (latency.value / latency.low).to("").magnitude * used.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("llama-70b", "Llama-3.3-70B, the newest of its size, as its name says no generation; others: Llama-3.1-70B and Llama-2-70B"),
        ("mistral-7b", "Mistral-7B-v0.1, published under this very name; newer: Mistral-7B-v0.3 and Mistral-7B-v0.2"),
        ("Llama3_70B", None),
        ("falcon-180b", None),
    ],
)  # fmt: skip
def test_which_generation_is_taken_is_said_where_a_name_says_none(asked, said) -> None:
    assert mlsysim.train(asked, on="512xH100").assumptions.get("model") == said
    assert mlsysim.serve(asked, on="8xH200").assumptions.get("model") == said


@pytest.mark.parametrize(
    ("chip", "engine"),
    [("Apple_M3_Max", "llama.cpp"), ("Snapdragon_8_Gen_2", "llama.cpp"), ("Pixel_8", "llama.cpp"), ("RaspberryPi_5", "llama.cpp"),
     ("H100", "vLLM"), ("DGX_Spark", "vLLM"), ("Ryzen_AI_Max_395", "llama.cpp"), ("TPU_v5e", "vLLM"), ("EPYC_9654", "vLLM")],
)  # fmt: skip
def test_the_engine_that_is_assumed_runs_on_the_chip(chip, engine) -> None:
    served = mlsysim.serve("Llama3_2_1B", on=chip)
    assert served.assumptions["engine"] == engine
    alone = mlsysim.SingleNodeModel().solve(
        "Llama3_2_1B", chip, precision=served.assumptions["precision"], efficiency="calibrated"
    )
    assert alone.assumptions["runtime"] == engine
    assert served.to_dict()["metrics"] == mlsysim.serve("Llama3_2_1B", on=chip, engine=engine).to_dict()["metrics"]


def test_values_of_a_sweep_share_the_unit_of_the_last() -> None:
    assert axes_of(["memory_bandwidth=3,4,5TB/s"]) == {"memory_bandwidth": ["3 TB/s", "4 TB/s", "5TB/s"]}
    assert axes_of(["isl=1,2,4k", "on=8xH100,16xH100"]) == {"isl": ["1", "2", "4k"], "on": ["8xH100", "16xH100"]}


def test_explanations_speak_of_money_times_and_meanings_as_people_do():
    answer = evaluate({"task": "serving", "model": "Llama3_8B", "on": "1xH100", "concurrency": 8}, change=False)
    told = str(answer.explain("tco"))
    assert "purchase = $49,200" in told and "t        = 1 day " in told and "L        = 3 years" in told
    assert " USD " not in told.replace("USD/kWh", "") and "capex" not in told and "opex" not in told
    one = evaluate({"model": "Llama3_70B", "on": "H100"}, change=False)
    assert "0.0118 ns" not in str(one.explain("latency"))


@pytest.mark.parametrize(
    ("seconds", "text"), [(58_240, "16.18 h"), (1_500, "25 min"), (303.4, "303.4 s"), (0.0034, "3.40 ms")]
)
def test_a_time_has_the_unit_that_suits_it(seconds, text):
    assert metric_of("restart_time", seconds, "training").text == text
    assert metric_of("mtbf", 3692.2, "training").text == "153.8 d"


def test_a_figure_has_no_more_digits_than_it_warrants():
    assert metric_of("energy_per_sample", 1957.6, "inference").text == "1.96 kJ"
    assert metric_of("arithmetic_intensity", 1471.2, "inference").text == "1,471 flop/B"
