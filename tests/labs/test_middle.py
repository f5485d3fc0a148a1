"""The explorer's sentence, gauges, time bar and origins: each says what the answer says, for every scenario that is shipped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mlsysim.labs import bridge
from mlsysim.labs.explorer import answer_of
from mlsysim.labs.further import explore
from mlsysim.labs.gauges import time_bar
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan, plan_from_text
from mlsysim.plans.plan import Plan
from mlsysim.units.text import number

SCENARIOS = sorted(Path("examples/scenarios").glob("*.toml"))
NOTHING = {
    "task": "training",
    "workload": {"model": "Llama3_70B", "batch_size": 8, "seq_len": 2048},
    "hardware": {"on": "8xH100"},
    "parallelism": {"tp": 8, "zero": 1, "micro_batch": 1},
}
STREAMED = {"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "1xH100"}}
OVERLOADED = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 500.0},
}
SERVED = {**OVERLOADED, "serving": {"prompt_tokens": 2000, "output_tokens": 300, "qps": 4.0, "replicas": 1}}


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda path: path.stem)
def shown(request):
    document = plan_from_text(request.param.read_text(), "toml").document()
    return answer_of(document), explore(document)


def limited(**limits):
    """A small service with limits; its first token takes some 70 ms."""
    return explore({**SERVED, "serving": SERVED["serving"] | limits})["gauges"][1]


def test_a_sentence_names_the_plan_and_its_handles(shown):
    answer, found = shown
    text = "".join(piece["text"] for piece in found["sentence"])
    assert text.endswith(".") and not re.search(r"None|nan|_|\b1 tokens| {2}", text), text
    handles = {piece["control"]: piece["text"] for piece in found["sentence"] if "control" in piece}
    assert {"workload.model", "hardware.on"} <= set(handles)
    part = answer.plan.serving
    if answer.task == "serving" and part.qps is not None:
        assert float(handles["serving.qps"].replace(",", "")) == pytest.approx(part.qps)
    if answer.task in ("training", "rl") and "accelerators" in handles:
        assert handles["accelerators"] == f"{found['chosen']['accelerators']:,}"


def test_gauges_have_the_numbers_of_the_answer(shown):
    answer, found = shown
    metrics = {metric.path: metric for metric in answer.metrics}
    fits, fast, worth = found["gauges"]
    assert (fits["state"] == "holds") == answer.feasible
    assert answer.held["memory"].text in fits["title"]
    assert sum(part["share"] for part in fits["bar"]["parts"]) <= 1 + 1e-9
    for row in (*fast["rows"], *worth["rows"]):
        assert row["text"] == metrics[row["path"]].text and row["interval"] == metrics[row["path"]].interval
        assert 0 <= row["at"] <= 1 and (row["band"] is None or 0 <= row["band"][0] <= row["at"] <= row["band"][1] <= 1)
    if answer.paid is not None:
        assert answer.paid.text in worth["title"] and answer.period in worth["title"]
        assert sum(part["share"] for part in worth["bar"]["parts"]) == pytest.approx(1)
    for check in answer.checks:
        rows = [row for gauge in (fast, worth) for row in gauge["rows"] if row["path"] == check.metric]
        assert rows and rows[0]["state"] == check.state


def test_operators_add_up_to_their_part_and_parts_to_the_time(shown):
    answer, found = shown
    bar = found["time_bar"]
    assert bar["text"] == answer.held["latency"].text
    for part in bar["parts"]:
        assert sum(line["seconds"] for line in part["operators"]) == pytest.approx(part["seconds"])
        assert all(line["label"] and "e-" not in line["text"] for line in part["operators"])
    assert sum(part["seconds"] for part in bar["parts"]) == pytest.approx(bar["seconds"])
    assert sum(part["share"] for part in bar["parts"]) == pytest.approx(1)
    if answer.ledger is not None:
        assert bar["seconds"] == pytest.approx(answer.ledger.seconds, rel=1e-4)
        walls = answer.ledger.walls("exposed")
        assert {part["wall"]: part["seconds"] for part in bar["parts"]} == pytest.approx(
            {wall: seconds for wall, seconds in walls.items() if seconds > 1e-6 * answer.ledger.seconds}, rel=1e-3
        )


def test_origins_tell_what_was_given_and_what_was_not(shown):
    answer, found = shown
    chips = found["origins"]
    assert {chip["name"] for chip in chips if chip["origin"] == "given"} >= {"model"}
    assert {chip["name"] for chip in chips if chip["first"]} >= {"model", "interval"} & {chip["name"] for chip in chips}
    others = [chip for chip in chips if chip["origin"] != "given"]
    assert {chip["name"] for chip in others} == {each.name.replace("_", " ") for each in answer.assumed}
    assert all(chip["text"] for chip in chips)


def test_a_format_that_the_checkpoint_has_comes_from_it():
    plan = {"task": "serving", "workload": {"model": "DeepSeek_V3_671B"}, "hardware": {"on": "16xH100"}}
    found = explore(plan)
    assert {"text": "fp8_block", "control": "workload.precision"} in found["sentence"]
    of = {chip["name"]: chip for chip in found["origins"]}["precision"]
    assert of["origin"] == "checkpoint" and of["text"] == "fp8_block, that of the checkpoint" and of["first"]
    other = {**plan, "workload": {"model": "Llama3_8B"}, "hardware": {"on": "1xH100"}}
    assert {chip["name"]: chip for chip in explore(other)["origins"]}["precision"]["origin"] == "inferred"


def test_where_a_value_comes_from_is_data():
    """A layout that was searched, of training and of serving, and what was given without effect, are told as such."""
    trained = {
        "task": "training",
        "model": "Llama3_8B",
        "on": "64xH100",
        "batch_size": 512,
        "exchange_precision": "fp8",
    }
    served = {"task": "serving", "model": "Llama3_8B", "on": "8xH100", "efficiency": 0.5, "engine": "vLLM"}
    for plan, idle in ((trained, "exchange precision"), (served, "engine")):
        of = {chip["name"]: chip["origin"] for chip in explore(Plan.model_validate(plan).document())["origins"]}
        assert of["layout"] == "searched", plan
        assert "no effect" in [
            chip["origin"] for chip in explore(Plan.model_validate(plan).document())["origins"] if chip["name"] == idle
        ]
    chosen = explore(Plan.model_validate(served).document())["chosen"]
    assert (chosen["serving.prompt_tokens"], chosen["serving.output_tokens"]) == (1024, 256)


def test_a_limit_is_in_one_of_three_states():
    holds, fails, doubt = limited(ttft="5 s"), limited(ttft="1 ms"), limited(ttft="72 ms")
    assert [gauge["state"] for gauge in (holds, fails, doubt)] == ["holds", "fails", "open"]
    assert holds["rows"][0]["word"] == "holds" and fails["rows"][0]["word"] == "does not hold"
    assert re.fullmatch(r"too close to call: holds with odds of \d+%", doubt["rows"][0]["word"])
    row = doubt["rows"][0]
    assert row["band"][0] < row["limit"]["at"] < row["band"][1] and row["limit"]["text"] == "at most 72 ms"
    assert limited()["state"] == "holds"  # requests are answered as fast as they come


def test_what_does_not_fit_says_so_and_has_neither_speed_nor_time():
    found = explore(NOTHING)
    fits, fast, _ = found["gauges"]
    assert fits["state"] == "fails" and fits["word"] == "does not fit" and "too much" in fits["bar"]["rest"]
    assert fits["bar"]["end"] < 1 and sum(part["share"] for part in fits["bar"]["parts"]) == pytest.approx(1)
    assert fast["rows"] == [] and fast["state"] == "fails" and found["time_bar"] is None


def test_what_is_streamed_has_a_speed_and_does_not_fit():
    fits, fast, _ = explore(STREAMED)["gauges"]
    assert fits["state"] == "fails" and fast["state"] == "fails" and "streamed" in fast["word"] and fast["rows"]


def test_an_overloaded_server_fits_and_is_not_fast_enough():
    fits, fast, _ = explore(OVERLOADED)["gauges"]
    assert fits["state"] == "holds" and fast["state"] == "fails" and fast["word"] == "overloaded"


def test_everything_goes_through_json(shown):
    _, found = shown
    told = json.loads(bridge.call("explore", json.dumps({"plan": {**SERVED}})))
    assert told["ok"] and json.loads(json.dumps(found["gauges"], allow_nan=False)) == found["gauges"]


def test_limits_are_told_in_words():
    serving = {"qps": 2, "prompt_tokens": 100, "output_tokens": 20, "slo": "ttft_p99=1s, tpot=30ms", "requests": 100}
    plan = {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}, "serving": serving}
    told = {piece.get("control"): piece["text"] for piece in explore(plan)["sentence"]}
    assert told["serving.slo"] == "99 % of first tokens within 1 s and the mean further token within 30 ms"


def test_an_operator_shows_its_amount_over_its_rate():
    answer = evaluate(load_plan("scenario:llama3-70b-512-h100"), change=False)
    lines = {(part["wall"], each["label"]): each for part in time_bar(answer)["parts"] for each in part["operators"]}
    (products,) = [each for each in answer.ledger.parts if each.label == "matrix products" and each.wall == 1]
    rate = number(float(products.flop) / float(products.exposed + products.hidden), "flop/s")
    assert lines[1, "matrix products"]["equation"] == f"t = F / R = {number(float(products.flop), 'flop')} / {rate}"
    assert all(each["equation"].startswith("t = ") for each in lines.values() if each["flop"] or each["moved"])


def test_a_part_that_is_nothing_has_no_slice():
    bar = time_bar(answer_of(STREAMED))
    assert bar is not None
    assert all(part["share"] > 1e-6 for part in bar["parts"]) and sum(part["share"] for part in bar["parts"]) > 1 - 1e-6
    assert not any("e-" in part["text"] for part in bar["parts"])


@pytest.mark.parametrize(
    ("serving", "words"),
    [
        ({}, "for 16 requests at a time, 1,024 tokens in"),
        ({"concurrency": 1}, "for 1 request at a time, 1,024 tokens in"),
        ({"ttft": "1 s"}, "for as many requests as its limits allow, 1,024 tokens in"),
    ],
)
def test_a_sentence_has_the_load_that_was_taken(serving, words):
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "2xH100"},
        "serving": serving,
    }
    assert words in "".join(piece["text"] for piece in explore(plan)["sentence"])


def test_a_sentence_names_the_trace_and_not_where_it_lies(tmp_path):
    path = tmp_path / "busy.csv"
    path.write_text("arrival,prompt_tokens,output_tokens\n" + "".join(f"{k},100,10\n" for k in range(10)))
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_8B"},
        "hardware": {"on": "1xH100"},
        "serving": {"trace": str(path)},
    }
    found = explore(plan)
    assert "for the requests of busy.csv." in "".join(piece["text"] for piece in found["sentence"])
    assert str(tmp_path) not in str(found["origins"])
    assert "clients" not in [chip["name"] for chip in found["origins"]], "the trace says when requests come"
