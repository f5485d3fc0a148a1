"""``mlsysim import`` on traces, emissions and graphs: words, JSON, and what-ifs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.cli.traces import sizes_of
from mlsysim.errors import InputError


def run(*words):
    done = CliRunner().invoke(app, ["import", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture
def trace(tmp_path):
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": {"External id": 1, **shapes}},
        {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "pid": 0, "tid": 7, "ts": 10, "dur": 400, "args": {"External id": 1}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 8, "ts": 410, "dur": 100},
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}))
    return path


def test_a_trace_in_words_and_as_a_table(trace):
    said = " ".join(run(trace, "--on", "B200", "--batch", "2").split())
    assert "1 step on H100, 1 ms each: 0.5 ms busy" in said and "0.1 ms are not hidden" in said
    assert "What if on B200 with 2 times the batch" in said
    assert run(trace, "-o", "csv").splitlines()[0] == "kind,ms a step,share,calls,efficiency,of"


def test_a_trace_as_json(trace):
    document = json.loads(run(trace, "--json", "--on", "A100"))
    assert document["type"] == "trace" and document["chip"] == "H100" and document["steps"] == 1
    assert document["busy"] == pytest.approx(5e-4) and document["what_if"]["other"] == "A100"
    assert "what_if" not in json.loads(run(trace, "--json"))


def test_emissions_in_words_and_as_json(tmp_path):
    path = tmp_path / "emissions.csv"
    path.write_text(
        "project_name,duration,emissions,energy_consumed,gpu_energy,gpu_model,country_iso_code\n"
        "run,3600,770,2000,1900,4 x NVIDIA H100 80GB HBM3,USA\n"
    )
    assert "watts were taken for kilowatts" in " ".join(run(path).split())
    (row,) = json.loads(run(path, "--json"))["rows"]
    assert row["chip"] == "H100" and row["predicted_gpu_energy_high"] == pytest.approx(2.8)


def test_what_does_not_go_together_is_one_sentence(trace, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                                  "intermediate_size": 128, "vocab_size": 100}))  # fmt: skip
    assert json.loads(run(config, "--json"))["type"] == "TransformerWorkload"
    for words in (
        [config, "--on", "H100"],
        [config, "--batch", "2"],
        [config, "--size", "a=2"],
        [trace, "--save", "X"],
    ):
        with pytest.raises(InputError):
            run(*words)


@pytest.mark.parametrize("bad", ["sequence", "=3", "a=", "a=-1", "a=1.5", "a=99999999999"])
def test_sizes_are_names_and_numbers(bad):
    assert sizes_of(["past+1=3", "n=4"]) == {"past+1": 3, "n": 4} and sizes_of(None) is None
    with pytest.raises(InputError):
        sizes_of([bad])
