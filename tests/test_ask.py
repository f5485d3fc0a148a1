"""The functions of Python: the same answers as the commands, with keywords, objects and notebooks."""

from __future__ import annotations

import json
import pickle
import xml.etree.ElementTree as ET

import pytest

import mlsysim
from mlsysim import Hardware, InputError, Models, Systems, UnknownNameError
from mlsysim.plans.compare import compare_plans
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.plan import Plan

LOAD = {"isl": 500, "osl": 100, "concurrency": 4}


@pytest.fixture(scope="module")
def served():
    return mlsysim.serve("Llama3_8B", on="H100", **LOAD)


@pytest.fixture(scope="module")
def trained():
    return mlsysim.train(Models.Llama3_8B, on="8xH100", tp=2, zero=1, region="Quebec")


def test_keywords_are_keys_of_a_plan_under_any_of_their_names(served, trained):
    plan = {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}}
    plan["serving"] = {"prompt_tokens": 500, "output_tokens": 100, "concurrency": 4}
    assert served.metrics == evaluate(plan, change=False).metrics
    assert trained.plan.parallelism.tp == 2 and trained.task == "training"
    assert "carbon_footprint" in trained.held


@pytest.mark.parametrize(
    ("model", "on", "same"),
    [
        (Models.Llama3_8B, Hardware.H100, ("Llama3_8B", "H100")),
        ("meta-llama/Llama-3.1-8B", Systems.Nodes.DGX_H100, ("Llama3_8B", "DGX_H100")),
    ],
)
def test_objects_of_the_zoo_are_their_names(model, on, same):
    assert mlsysim.serve(model, on, **LOAD).metrics == mlsysim.serve(*same, **LOAD).metrics


def test_a_model_of_ones_own_is_answered_and_not_mistaken_for_another():
    half = Models.Llama3_8B.model_copy(update={"name": "Half of it", "layers": 16, "parameters": None})
    third = half.model_copy(update={"layers": 10})
    answers = [mlsysim.serve(model, on="H100", **LOAD) for model in (half, third, half)]
    assert answers[0].metrics == answers[2].metrics != answers[1].metrics
    assert "Half of it" in answers[0].subject


def test_what_is_wrong_is_said_in_one_sentence():
    with pytest.raises(UnknownNameError, match="Llama3_8B"):
        mlsysim.train("Lama3_8B", on="8xH100")
    with pytest.raises(InputError, match="'tpp' is not a key of a plan; did you mean 'tp'"):
        mlsysim.train("Llama3_8B", on="8xH100", tpp=2)
    with pytest.raises(InputError, match="'on' is a fleet such as '8xH100'"):
        mlsysim.train("Llama3_8B", on=8)
    with pytest.raises(InputError, match="two answers to plans"):
        mlsysim.compare(1, 2)


def test_remedies_are_keywords(served):
    assert "region='Quebec'" in str(served)


def test_an_answer_prints_its_words_and_a_notebook_draws_it(served):
    text, page = str(served), served._repr_html_()
    assert served.headline in text and served.binding.sentence in text and "How sure" in text
    assert repr(served).startswith("<Answer: serving Llama-3.1-8B") and len(repr(served)) < 400
    charts = page.split("<svg")[1:]
    assert len(charts) == 2
    for chart in charts:
        ET.fromstring("<svg" + chart)
    assert served.metric("tpot").text in page
    json.dumps(served.to_dict())


def test_an_explanation_prints_itself(served):
    found = served.explain("tpot")
    assert str(found).startswith(f"{served.metric('tpot').label}: {served.metric('tpot').text}")
    assert "reading weights" in found._repr_html_()


def test_answers_compare(served):
    other = mlsysim.serve("Llama3_8B", on="H200", **LOAD)
    found = mlsysim.compare(served, other)
    assert "times as fast" in str(found) and other.metric("tpot").text in found._repr_html_()
    results = [mlsysim.SingleNodeModel().solve(Models.ResNet50, chip) for chip in (Hardware.A100, Hardware.H100)]
    assert "latency" in mlsysim.compare(*results).changes


def test_sweeps_take_a_file_a_table_or_a_space(tmp_path):
    from mlsysim.search.space import Space

    table = {"kind": "node", "minimize": "latency_s", "axes": {"model": ["ResNet50"], "hardware": ["A100", "H100"]}}
    file = tmp_path / "space.toml"
    file.write_text(
        'kind = "node"\nminimize = "latency_s"\n[axes]\nmodel = ["ResNet50"]\nhardware = ["A100", "H100"]\n'
    )
    found = [mlsysim.sweep(space) for space in (table, file, str(file), Space.from_toml(file))]
    assert all(each.best == found[0].best and each.points == 2 for each in found)
    one = found[0]
    assert [row["hardware"] for row in one.rows()] == ["H100", "A100"]
    target = tmp_path / "best.csv"
    text = one.to_csv(target)
    assert target.read_text() == text and text.splitlines()[0].startswith("model,hardware,") and "latency_s" in text
    assert "<svg" in one.plot().svg() and "2 of 2 designs fit" in one._repr_html_()
    assert json.loads(json.dumps(one.to_dict()))["points"] == 2


def test_a_model_is_swept_over_keys_of_its_plan(tmp_path):
    found = mlsysim.sweep("Llama3_8B", on="8xH100", task="training", batch_size=64, over={"tp": [1, 2, 3]})
    rows = found.rows()
    assert [row["tp"] for row in rows] == [1, 2, 3] and [row["fits"] for row in rows] == [True, True, False]
    assert rows[0]["latency [s]"] == found.points[0].value("latency") and rows[2]["latency [s]"] is None
    file = tmp_path / "all.csv"
    assert found.to_csv(file) == file.read_text() and len(file.read_text().splitlines()) == 4
    assert (
        str(found).startswith("tp  ")
        and found.points[2].sentence in str(found)
        and "<th>tp</th>" in found._repr_html_()
    )


def test_a_plan_is_swept_as_a_plan_a_table_or_an_answer_over_keys_or_axes():
    keys = {"concurrency": [1, 4]}
    table = {"task": "serving", "model": "Llama3_8B", "on": "1xH100"}
    one = mlsysim.sweep(table, over=keys).to_csv()
    plan = mlsysim.serve("Llama3_8B", on="1xH100").plan
    assert one == mlsysim.sweep(table, axes=keys).to_csv() == mlsysim.sweep(plan, axes=keys).to_csv()
    assert one == mlsysim.sweep("Llama3_8B", on="1xH100", task="serving", over=keys).to_csv()


def test_a_sweep_of_steps_has_their_time_and_mfu():
    """A run of so many tokens is asked how long it takes, one without them what a step does."""
    asked = {"on": "8xH100", "task": "training", "efficiency": 0.5, "over": {"batch_size": [64, 128]}}
    steps, runs = mlsysim.sweep("Llama3_8B", **asked), mlsysim.sweep("Llama3_8B", tokens="1B", **asked)
    assert {"Time of a step", "Model FLOP utilisation", "Tokens a second"} <= {*steps.table()[0]}
    assert "Time of the run" in runs.table()[0] and "Time of a step" not in runs.table()[0]


def test_what_does_not_fit_in_a_sweep_has_its_memory_and_no_times():
    found = mlsysim.sweep("Llama3_70B", task="training", over={"on": ["8xH100", "16xH100"]})
    small, large = found.rows()
    assert not small["fits"] and small["memory [byte]"] > small["memory_capacity [byte]"]
    assert small["latency [s]"] is None and large["latency [s]"] > 0
    again = mlsysim.sweep(found.points[1].answer, over={"on": ["16xH100"]}, batch_size=1024)
    assert again.points[0].answer.layout["batch_size"] == 1024
    metrics = found.to_dict()["points"][0]["metrics"]
    assert metrics and all(path.startswith("feasibility.") for path in metrics)
    assert [point.feasible for point in found.ranked("memory", larger=True).points] == [True, False]


def test_a_sweep_without_a_library_of_data_frames_says_so(monkeypatch):
    table = {"kind": "node", "minimize": "latency_s", "axes": {"model": ["ResNet50"], "hardware": ["A100", "H100"]}}
    found = mlsysim.sweep(table)

    class Pandas:
        DataFrame = staticmethod(lambda rows: rows)

    monkeypatch.setattr("mlsysim.plans.rows.import_module", lambda name: Pandas)
    assert found.to_dataframe() == found.rows()

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("mlsysim.plans.rows.import_module", missing)
    with pytest.raises(InputError, match="pandas or polars"):
        found.to_dataframe()


@pytest.mark.parametrize(
    "entry", [Hardware.H100, Models.DeepSeek_V3, Systems.Clusters.Frontier_8K, Systems.Nodes.DGX_H100]
)
def test_entries_of_the_zoo_print_as_cards(entry):
    card, page = str(entry), entry._repr_html_()
    assert card.startswith(entry.name) and "source" in card
    assert not any(word in card + page for word in ("None", "()", "Quantity", "e+"))
    assert len(repr(entry)) < 120 and "<table>" in page


def test_a_plan_for_a_service_is_a_table_whose_best_is_an_answer():
    load = {"qps": 5, "isl": 500, "osl": 50, "slo": "tpot=50ms"}
    found = mlsysim.plan("Llama3_8B", on=["H100", Hardware.L40S], **load)
    assert found.good and found.best is not None and found.best.passed
    assert {row[0] for row in found.rows} == {"H100", "L40S"}
    assert found.sentence in str(found) and found.rows[0][2] in found._repr_html_()
    json.dumps(found.to_dict())


def test_a_plan_for_a_run_meets_its_deadline():
    found = mlsysim.plan("GPT2", on="A100", deadline="2 day", tokens=1e9)
    assert found.best is not None and found.best.value("run_time").to("day").magnitude <= 2
    with pytest.raises(InputError, match="The smallest fleet for what"):
        mlsysim.plan("GPT2", on="A100")


def test_what_no_number_of_a_chip_does_is_a_mistake_and_not_a_fleet():
    asked = {"deadline": "30 day", "tokens": 1e9}
    with pytest.raises(InputError, match="name the chip alone, A100 instead of '8 A100'"):
        mlsysim.plan("GPT2", on="8 A100", **asked)
    with pytest.raises(InputError, match="no grid named 'Atlantis'"):
        mlsysim.plan("GPT2", on="A100,H100", region="Atlantis", **asked)
    with pytest.raises(InputError, match="no fp4 arithmetic"):
        mlsysim.plan("GPT2", on="A100", precision="nvfp4", **asked)


def test_chips_that_do_not_do_are_named_with_their_reasons_in_the_words_of_who_asks():
    found = mlsysim.plan("GPT2", on="A100,H100", precision="nvfp4", deadline="30 day", tokens=1e9)
    assert not found.good and found.best is None and found.rows == ()
    assert len(found.notes) == 2 and all(note.endswith("train in precision='bf16'.") for note in found.notes)
    assert [each["reason"] for each in found.to_dict()["candidates"]] != [None, None]


def test_a_fleet_that_is_over_the_budget_says_so_first():
    found = mlsysim.plan("GPT2", on="A100", deadline="2 day", tokens=1e9, budget="$1")
    assert found.best is not None and not found.good and "over the budget of $1.00" in found.sentence


def test_how_soon_a_run_could_end_does_not_go_by_the_deadline():
    soon, sooner = (mlsysim.plan("GPT2", on="A100", deadline=each, tokens=1e10).notes for each in ("20 s", "0.1 s"))
    assert soon == sooner and "the fastest, " in soon[0] and " with an assumed batch of " in soon[0]


def test_hardware_has_its_other_names_and_is_asked_for_where_it_is_missing(served):
    for name, machine in (("hardware", "H100"), ("chip", Hardware.H100), ("hardware", {"on": "H100"})):
        assert mlsysim.serve("Llama3_8B", **{name: machine}, **LOAD).headline == served.headline
    with pytest.raises(InputError, match="On which hardware"):
        mlsysim.serve("Llama3_8B")


def test_limits_may_stand_in_a_table():
    told = mlsysim.serve("Llama3_8B", on="H100", slo={"ttft": "500ms", "tpot": "30ms"}, **LOAD)
    assert told.plan.serving.slo == "ttft=500ms,tpot=30ms" and len(told.checks) == 2
    with pytest.raises(InputError, match="'tftt' is not a time"):
        mlsysim.serve("Llama3_8B", on="H100", slo={"tftt": "500ms"})


def test_plans_as_text_are_compared_and_bare_names_are_not():
    asked = [mlsysim.serve("Llama3_8B", on=f"8x{chip}") for chip in ("H100", "H200")]
    assert str(mlsysim.compare("Llama3_8B@8xH100", "Llama3_8B@8xH200")) == str(mlsysim.compare(*asked))
    with pytest.raises(InputError, match=r"two plans such as 'Llama3_8B@8xH100'.* got str and str"):
        mlsysim.compare("H100", "H200")


def test_plans_are_compared_as_the_commands_compare_them():
    pair = ("Llama3_70B@4xH100", "Llama3_70B@8xH100")
    found = mlsysim.compare(*pair)
    assert found.headline.startswith("Neither plan says its traffic, so both have ")
    assert (
        found.rows
        == compare_plans(
            *(Plan.model_validate(dict(zip(("model", "on"), x.split("@"), strict=True))) for x in pair)
        ).rows
    )
    told = mlsysim.compare(*pair, isl=2000, concurrency=16)
    assert {side.layout["concurrency"] for side in (told.first, told.second)} == {16}
    assert told.rows == mlsysim.compare(told.first.plan, told.second.plan).rows
    assert told.first.plan.serving.prompt_tokens == 2000 and told.plot("time").svg().startswith("<svg")


def test_a_sweep_of_a_plan_without_a_task_finds_it_as_a_comparison_does():
    found = mlsysim.sweep("Llama3_8B@8xH100", over={"batch_size": [64, 128]})
    assert [point.answer.task for point in found.points] == ["serving", "serving"]
    assert found.to_csv() == mlsysim.sweep("Llama3_8B", on="8xH100", over={"batch_size": [64, 128]}).to_csv()
    runs = mlsysim.sweep("Llama3_8B@8xH100", over={"tokens": ["1B", "2B"]})
    assert {point.answer.task for point in runs.points} == {"training"}


def test_what_plan_returns_answers_as_its_best_does():
    found = mlsysim.plan("Llama3_8B", on=Hardware.H100, deadline="14d")
    assert found.best is not None and found.headline == found.sentence and found.plan == found.best.plan
    assert str(found.explain("mfu")) == str(found.best.explain("mfu"))


def test_a_metric_is_an_attribute_of_its_answer():
    answer = mlsysim.serve("Llama3_8B", on="1xH100", qps=5)
    assert answer.ttft == answer.metric("ttft") and "ttft" in dir(answer) and not hasattr(answer, "nothing")
    assert pickle.loads(pickle.dumps(answer)).tpot.text == answer.tpot.text
    with pytest.raises(AttributeError, match="no metric of this answer named 'tft'; did you mean 'ttft'"):
        answer.tft
    with pytest.raises(AttributeError, match=r"its task is serving, which gives memory, .*ttft, tpot"):
        answer.mfu
    with pytest.raises(AttributeError, match=r"What does not fit has no model FLOP utilisation \(mfu\)"):
        mlsysim.train("Llama3_70B", on="8xH100", tokens="1T").mfu


def test_no_host_starts_the_kernels_of_a_wafer():
    answer = mlsysim.train("Llama3_8B", on="4xCerebras_CS3", tokens="1B")
    assert answer.binding.wall == 1 and not [part for part in answer.time_parts if "launches" in part.label]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: mlsysim.train(None, on="8xH100"), "A model is a name of the zoo, a file or a Workload, got NoneType."),
        (lambda: mlsysim.sweep("Llama3_8B", {"tp": [1, 2]}), "sweep('Llama3_8B', over, on='8xH100')"),
        (lambda: mlsysim.train("Llama3_8B", on="8xH100", pue=1.2), "write 'region', such as 'Quebec'."),
        (lambda: mlsysim.serve("Llama3_8B", on="1xH100", max_batch_size=8), "write 'max_num_seqs', such as '8'."),
        (lambda: mlsysim.train("Llama3_8B", on="8xH100", batchsize=64), "'batch_size', 'micro_batch_size' or"),
        (lambda: mlsysim.serve("Llama3_8B", on="1xH100", slo={"ttft_p99": 500}), "a time such as 500ms, got '500'"),
        (lambda: mlsysim.rl("Llama3_8B", on="8xH100"), "give such as prompts = 512, samples = 16, response = 2000."),
    ],
)
def test_mistakes_of_python_get_one_sentence(asked, said):
    with pytest.raises(InputError) as error:
        asked()
    assert said in str(error.value) and "\n" not in str(error.value)
