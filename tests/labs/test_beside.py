"""What stands beside the answer: files that are dropped, a design over time, other machines, tables."""

from __future__ import annotations

import csv
import io
import json

import pytest

from mlsysim.errors import InputError
from mlsysim.labs.dropped import take_file, take_model
from mlsysim.labs.explorer import evaluate, scenario
from mlsysim.labs.exports import numbers_csv
from mlsysim.labs.gallery import address
from mlsysim.labs.live import live
from mlsysim.labs.machines import machine, machines
from mlsysim.plans.files import load_plan, plan_from_text, plan_to_toml

from .test_explorer import CONFIG

TRAINING = load_plan("scenario:llama3-70b-512-h100").document()
SERVING = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0},
}
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 5},500,100\n" for k in range(100))


def test_a_plan_a_model_a_trace_and_a_launch_file_are_told_apart():
    plan = take_file("run.toml", plan_to_toml(load_plan("scenario:llama3-70b-512-h100")), SERVING)
    assert plan["plan"] == TRAINING and "taken for a plan, 'Llama 3 70B on 512 H100'" in plan["says"]
    assert take_file("config.json", json.dumps(CONFIG), SERVING) == {"kind": "model"}
    trace = take_file("busy hour.csv", TRACE, SERVING)
    assert "100 requests in 19.8 s, 5 a second, 500 tokens of prompt" in trace["says"]
    assert "qps" not in trace["plan"]["serving"] and evaluate(trace["plan"])["fidelity"] == "simulated"
    launch = take_file(
        "serve.sh", "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8 --oddity 3", SERVING
    )
    assert launch["plan"]["workload"]["model"] == "Llama3_70B" and launch["plan"]["hardware"]["on"] == "8xH100"
    assert "does not name the chip, which stays as here. Not read: --oddity 3." in launch["says"]


@pytest.mark.parametrize(
    ("name", "text", "plan", "says"),
    [
        ("note.txt", "hello", SERVING, "note.txt was not taken: it is none of"),
        ("l.json", "[1, 2]", SERVING, "cannot be read as one: it is JSON of no known kind"),
        (
            "t.csv",
            "a,b\n1,2\n",
            SERVING,
            "t.csv was taken for a trace, and cannot be read as one: line 1 has no column",
        ),
        ("e.json", " \n", SERVING, "e.json is empty"),
        ("b.json", '{"a": 1,}', SERVING, "b.json is not valid JSON: .* at line 1, column"),
        ("c.json", '{"a": "b', SERVING, "unterminated string starting at line 1, column 7"),
        ("d.json", "[" * 3000, SERVING, "nested more than 32 deep"),
        ("t.csv", TRACE, TRAINING, "switch the task to serving"),
        ("p.toml", "[workload]\nmodle = 3", SERVING, "did you mean"),
        ("big.json", " " * 1_000_001, SERVING, "1,000,001 characters"),
    ],
)
def test_what_cannot_be_taken_is_one_sentence(name, text, plan, says):
    with pytest.raises(InputError, match=says):
        take_file(name, text, plan)


def test_a_scenario_of_an_imported_model_can_be_read_back():
    text = json.dumps(CONFIG)
    key = take_model(text)["key"]
    plan = {**TRAINING, "workload": {**TRAINING["workload"], "model": key}}
    written = scenario(plan, {key: text, "Imported_unused": "{}"})
    assert f"[models.{key}]" in written and "unused" not in written
    assert plan_from_text(written).document() == plan
    assert take_file("mine.toml", written, SERVING)["models"] == {key: text}


def test_traffic_and_runs_are_played():
    played = live(SERVING)
    assert played["kind"] == "traffic" and len(played["charts"]) == 2 and played["plan"]["serving"]["requests"] == 300
    assert live(played["plan"])["charts"] == []  # they stand with its answer
    times = played["over_time"]["times"]
    assert {len(values) for name, values in played["over_time"].items() if values} == {len(times)} and times[-1] > 30
    clients = live({**SERVING, "serving": {"prompt_tokens": 500, "output_tokens": 100, "concurrency": 4}})
    assert "80% of the most that it can answer" in clients["says"][0]
    run = live(TRAINING)
    assert run["kind"] == "run" and "50 simulated runs" in run["says"][0] and len(run["charts"]) >= 2
    assert live({"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "1xH100"}}) is None


def test_rows_of_machines_carry_the_plan_that_they_show():
    asked = machines(SERVING)
    assert asked["chips"][0] == "H100" and "Not tried" in asked["left_out"]
    row = machine(SERVING, "H200")
    answer = evaluate(row["plan"])["metrics"]
    assert row["price"]["text"] == answer["macro.usd_per_mtoken"]["text"] and row["word"] in ("holds", "close")
    assert machine({**SERVING, "workload": {"model": "Llama3_405B"}}, "L40S")["count"] >= 0


def test_the_table_has_every_number_of_the_answer():
    rows = list(csv.DictReader(io.StringIO(numbers_csv(SERVING))))
    metrics = evaluate(SERVING)["metrics"]
    assert [row["metric"] for row in rows] == list(metrics)
    first = next(row for row in rows if row["metric"] == "performance.ttft")
    assert float(first["value"]) == metrics["performance.ttft"]["value"]["magnitude"] and float(first["low"]) < float(
        first["value"]
    )


def test_an_address_keeps_texts_that_look_like_numbers():
    assert address({"name": "12", "workload": {"batch_size": 12}}) == "#name=%2212%22&workload.batch_size=12"
