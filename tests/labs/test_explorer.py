"""What the explorer asks of the engine: the same answers as the commands', and something for every control to show."""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.labs import bridge, catalogue, explorer, further
from mlsysim.labs.further import sensitivity_chart
from mlsysim.models.registry import Models
from mlsysim.plans.audit import AUDITED
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.sensitivities import sensitivities

TRAINING = AUDITED.document()
SERVING = {
    "task": "serving",
    "workload": {"model": "Llama3_70B", "precision": "fp8"},
    "hardware": {"on": "8xH200"},
    "serving": {"prompt_tokens": 2000, "output_tokens": 300, "ttft": "500 ms", "tpot": "30 ms"},
    "ops": {"region": "Quebec"},
}
INFERENCE = {"task": "inference", "workload": {"model": "ResNet50"}, "hardware": {"on": "1xA100"}}
SEVERAL = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xB200 + 8xH100"}}
PLAYED = {
    "task": "serving",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "1xH100"},
    "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0, "requests": 300, "seed": 0},
}
POOLS = {
    "task": "rl",
    "workload": {"model": "Llama3_8B"},
    "hardware": {"on": "8xH100"},
    "rl": {"prompts": 32, "samples": 8, "response": 800, "max_response": 2048, "split": "auto"},
    "serving": {"prompt_tokens": 512},
}
PLANS = {"training": TRAINING, "serving": SERVING, "inference": INFERENCE, "several chips": SEVERAL}

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}


def ask(name, /, **args):
    told = json.loads(bridge.call(name, json.dumps(args)))
    assert told["ok"], told
    return told["value"]


def refused(name, /, **args):
    told = json.loads(bridge.call(name, json.dumps(args)))
    assert not told["ok"] and told["kind"] == "input", told
    return told["error"]


@pytest.fixture
def imported():
    return ask("take_model", text=json.dumps(CONFIG), name="config.json")


@pytest.mark.parametrize("document", PLANS.values(), ids=PLANS)
def test_the_quick_answer_is_the_answer(document):
    answer = evaluate(Plan.model_validate(document), change=False)
    found = ask("explore", plan=document, width=500, wide=900)
    assert found["headline"] == answer.headline and found["binding"] == answer.binding.sentence
    assert {m["path"]: (m["text"], m["interval"], m["wall"]) for m in found["metrics"]} == {
        m.path: (m.text, m.interval, m.wall) for m in answer.metrics
    }
    assert found["feasible"] is answer.feasible and found["passed"] is answer.passed
    assert [check["sentence"] for check in found["checks"]] == [check.sentence for check in answer.checks]


def test_a_plan_as_people_write_it_comes_back_as_controls_read_it():
    said = {"workload": {"model": "Llama3_8B", "tokens": "15T", "seq_len": "8k"}, "hardware": {"on": "64xH100"}}
    plan = ask("at_once", plan=said)["plan"]
    assert plan["task"] == "training" and plan["hardware"] == {"on": "64xH100"}
    assert plan["workload"] == {"model": "Llama3_8B", "tokens": 15e12, "seq_len": 8000}
    assert ask("at_once", plan=plan)["plan"] == plan


@pytest.mark.parametrize("document", PLANS.values(), ids=PLANS)
def test_charts_are_drawn_for_the_width_that_is_asked(document):
    charts = ask("explore", plan=document, width=320, wide=910)["charts"]
    shown = ask("further", plan=document, width=320, wide=910, folded=False)["charts"]
    assert set(charts) - set(shown) == {"memory", "scorecard"} and shown.items() <= charts.items()
    for name, svg in charts.items():
        drawn = ET.fromstring(svg)
        assert drawn.get("viewBox").split()[2] == ("910" if name in ("memory", "scorecard") else "320")
        assert drawn.get("role") == "img" and drawn[1].text


def test_a_minute_of_traffic_has_percentiles_and_their_charts():
    found = ask("explore", plan=PLAYED, width=320, wide=910)
    texts = {metric["path"]: metric["text"] for metric in found["metrics"]}
    assert {f"performance.{kind}_p99" for kind in ("ttft", "tpot", "itl", "e2e", "queue")} <= set(texts)
    assert texts["performance.ttft_p99"] == evaluate(Plan.model_validate(PLAYED), change=False).metric("ttft_p99").text
    assert {"percentiles", "traffic"} <= set(found["charts"])
    steady = {**PLAYED, "serving": {"prompt_tokens": 500, "output_tokens": 100, "qps": 5.0}}
    assert not {"percentiles", "traffic"} & set(ask("explore", plan=steady)["charts"])


def test_a_server_that_is_overloaded_is_an_answer_without_a_bar_of_time():
    load = {"prompt_tokens": 500, "output_tokens": 100, "qps": 500}
    plan = {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}, "serving": load}
    for limits in ({}, {"slo": "ttft_p99=500ms"}):
        found = further.explore(plan | {"serving": load | limits})
        assert found["overloaded"] and found["headline"].startswith("Overloaded")
        assert found["time_bar"] is None and "memory" in found["charts"]


def test_the_controls_of_a_simulated_answer_are_calibrated():
    plan = {"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}}
    found = further.explore(plan | {"serving": {"qps": 2, "slo": "ttft_p99=500ms", "requests": 100}})
    assert found["fidelity"] == "simulated" and found["chosen"]["hardware.efficiency"] == "calibrated"


def test_the_binding_wall_is_framed_in_the_scorecard():
    svg = ask("explore", plan=TRAINING)["charts"]["scorecard"]
    assert svg.count('class="mark"') == 2  # the wall's frame, and the key's
    assert "Binds." in svg


def test_controls_are_told_what_was_chosen():
    chosen = ask("explore", plan=TRAINING)["chosen"]
    assert {chosen[f"parallelism.{name}"] for name in ("tp", "dp")} == {8, 64}
    assert chosen["system"] == "H100" and chosen["system_kind"] == "chip" and chosen["accelerators"] == 512
    assert chosen["ops.days"] == 30 and chosen["hardware.efficiency"] == "calibrated"
    served = ask("explore", plan=SERVING)["chosen"]
    assert (served["serving.ttft"], served["serving.tpot"]) == (500, 30)
    assert served["serving.concurrency"] > 1 and served["parallelism.tp"] >= 1
    assert ask("explore", plan=SEVERAL)["chosen"]["system_kind"] == "several"


@pytest.mark.parametrize(
    ("on", "system", "kind", "count"),
    [
        ("512xH100", "H100", "chip", 512),
        ("64 x h100-sxm", "H100", "chip", 64),
        ("4xDGX_H100@NDR", "DGX_H100", "node", 32),
        ("Research_256", "Research_256", "cluster", 256),
    ],
)
def test_a_fleet_in_one_string_is_taken_apart(on, system, kind, count):
    plan = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": on}, "parallelism": {"tp": 8}}
    chosen = ask("explore", plan=plan)["chosen"]
    assert (chosen["system"], chosen["system_kind"], chosen["accelerators"]) == (system, kind, count)


def test_figures_of_a_chip_are_the_zoos_and_the_plans():
    plan = {**TRAINING, "hardware": {"on": "512xH100", "chip": {"memory_bandwidth": "6700 GB/s"}}}
    figures = ask("explore", plan=plan)["figures"]
    assert figures["memory_bandwidth"] == {"zoo": 3.35, "now": 6.7, "unit": "TB/s"}
    assert figures["peak_flops"] == {"zoo": 989, "now": 989, "unit": "TFLOPs/s"}
    assert set(ask("explore", plan=INFERENCE)["figures"]) == {
        "peak_flops",
        "memory_bandwidth",
        "memory_capacity",
        "tdp",
        "price",
    }
    assert ask("explore", plan=SEVERAL)["figures"] == {}


@pytest.mark.parametrize("document", [TRAINING, SERVING, INFERENCE], ids=["training", "serving", "inference"])
def test_the_slow_parts_are_those_of_the_engine(document):
    answer = evaluate(Plan.model_validate(document))
    found = ask("sensitivity", plan=document, width=400)
    assert found["changes"] == {name: list(sides) for name, sides in answer.sensitivities.items()}
    assert ET.fromstring(found["chart"]).get("viewBox").split()[2] == "400"
    change = ask("cheapest", plan=document)
    assert change == json.loads(json.dumps(answer.to_dict()["change"]))
    if change:
        assert ask("explore", plan=change["plan"])["feasible"]


def test_a_side_that_no_longer_fits_is_said():
    answer = evaluate_plainly(AUDITED)
    found = {**sensitivities(answer), "memory_capacity": (None, 0.0)}
    assert "no longer fits" in sensitivity_chart(answer, found, 700)
    assert sensitivity_chart(answer, {}, 700) is None


def test_a_searched_layout_is_written_down_and_leaves_the_fleet_free():
    found = ask("search_layout", plan={**TRAINING, "parallelism": {"tp": 1, "overlap": False}})
    assert "dp" not in found["parallelism"] and found["parallelism"]["overlap"] is False
    searched = evaluate_plainly(Plan.model_validate({**TRAINING, "parallelism": {"mode": "auto", "overlap": False}}))
    again = evaluate_plainly(Plan.model_validate(found))
    assert again.headline == searched.headline
    twice = {**found, "hardware": {"on": "1024xH100"}}
    assert ask("explore", plan=twice)["chosen"]["parallelism.dp"] == 2 * searched.layout["dp"]


def test_searching_a_serving_layout_frees_it():
    plan = {**SERVING, "parallelism": {"tp": 8}, "serving": {**SERVING["serving"], "replicas": 1}}
    found = ask("search_layout", plan=plan)
    assert "parallelism" not in found and "replicas" not in found["serving"]


def test_pools_that_were_found_are_written_down_and_searched_again():
    layout, chosen = explorer.answer_of(POOLS).layout, ask("at_once", plan=POOLS)["chosen"]
    assert [int(chosen["rl.split"]), chosen["rl.generator_tp"]] == [layout["generators"], layout["generator_tp"]]
    assert "workload.batch_size" not in POOLS["workload"] and chosen["parallelism.micro_batch"] >= 1
    names = ("tp", "pp", "cp", "ep", "zero", "recompute", "micro_batch")
    split = {name: chosen[f"parallelism.{name}"] for name in names}
    pools = {name: chosen[f"rl.{name}"] for name in ("generator_tp", "generator_pp", "generator_ep")}
    held = {**POOLS, "parallelism": split, "rl": {**POOLS["rl"], "split": str(chosen["rl.split"]), **pools}}
    assert ask("at_once", plan=held)["headline"] == ask("at_once", plan=POOLS)["headline"]
    change = ask("cheapest", plan=POOLS, held=held)
    assert change == ask("cheapest", plan=POOLS), "what was found is not searched for again, and is the same"
    moved = {**held, "parallelism": {"tp": 8}, "rl": {**held["rl"], "split": "1", "generator_tp": 1}}
    again = further.search_layout(moved)
    assert (again["rl"]["split"], again["rl"]["generator_tp"]) == (held["rl"]["split"], pools["generator_tp"])
    assert again["parallelism"]["tp"] == layout["tp"]


def test_why_has_equations_with_values_and_sources():
    found = ask("why", plan=TRAINING, metric="performance.latency")
    step = found["equations"][0]
    assert step["gives"] == "latency" and step["inputs"] and step["value"].endswith(" s")
    assert found["wall_name"] == "Compute" and found["sources"]["hardware"] and found["assumptions"]
    assert "did you mean" in refused("why", plan=TRAINING, metric="performance.latncy")


def test_a_comparison_has_factors_and_charts_of_both():
    other = {**TRAINING, "hardware": {"on": "256xH100"}}
    found = ask("compare", first=TRAINING, second=other, width=400)
    rows = {row["path"]: row for row in found["rows"]}
    assert rows["macro.purchase"]["factor"] == "0.5 x"
    assert found["sentences"][0].startswith("The pinned design is ") and found["subjects"][0].startswith("training ")
    assert set(found["charts"]) == {"roofline", "memory"}
    assert found["pinned"]["time_bar"]["text"] == rows["performance.latency"]["first"]
    assert found["pinned"]["chosen"]["accelerators"] == 512
    assert "(pinned)" in found["charts"]["roofline"] and "(now)" in found["charts"]["roofline"]
    assert "one task" in refused("compare", first=TRAINING, second=SERVING)


def test_an_edited_chip_has_a_roof_of_its_own():
    edited = {**TRAINING, "hardware": {"on": "512xH100", "chip": {"peak_flops": "2 PFLOPs/s"}}}
    svg = ask("compare", first=TRAINING, second=edited)["charts"]["roofline"]
    assert "fp16, edited" in svg
    assert "edited" not in ask("compare", first=TRAINING, second=TRAINING)["charts"]["roofline"]


@pytest.mark.parametrize("document", PLANS.values(), ids=PLANS)
def test_a_saved_scenario_gives_the_same_answer_in_the_terminal(document, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(ask("scenario", plan=document))
    assert Plan.model_validate(tomllib.loads(path.read_text())) == Plan.model_validate(document)
    done = CliRunner().invoke(app, ["eval", str(path), "--json"])
    printed = json.loads(done.stdout)["metrics"]
    assert {m["path"]: m["text"] for m in ask("explore", plan=document)["metrics"]} == {
        path: metric["text"] for path, metric in printed.items()
    }
    assert ask("read_plan", text=path.read_text())["workload"] == document["workload"]


def test_the_whole_answer_is_what_the_engine_says():
    whole = ask("evaluate", plan=INFERENCE)
    assert whole == json.loads(json.dumps(evaluate(Plan.model_validate(INFERENCE), change=False).to_dict()))


def test_a_model_of_images_has_no_length_of_a_sequence_to_set():
    shapes = [ask("at_once", plan=plan)["chosen"]["fixed_shape"] for plan in (INFERENCE, TRAINING, SERVING)]
    assert shapes == [True, False, False]


def test_a_wrong_key_gets_the_nearest_one():
    wrong = {**TRAINING, "parallelism": {"tpp": 8}}
    assert "did you mean 'tp'" in refused("explore", plan=wrong)
    assert "table" in refused("explore", plan=[])


# --- menus --------------------------------------------------------------------------------------------------------


def test_every_entry_of_the_zoo_is_in_a_menu():
    models = catalogue.every_list()["models"]
    assert {item["key"] for item in models} == set(Models.keys())
    assert all(item["name"] and item["group"] and item["note"] for item in models)
    groups = [item["group"] for item in models]
    assert [group for k, group in enumerate(groups) if k == 0 or group != groups[k - 1]] == list(dict.fromkeys(groups))
    llamas = {item["key"] for item in models if item["group"] == "Llama"}
    assert {"Llama3_8B", "Llama3_70B", "Llama2_70B"} <= llamas


def test_chips_come_by_maker_then_clusters():
    chips = catalogue.chips()
    groups = list(dict.fromkeys(item["group"] for item in chips))
    assert groups[0] == "NVIDIA" and groups[-1] == "Clusters"
    assert next(item for item in chips if item["key"] == "H100")["per_node"] == 8
    years = [item["key"] for item in chips if item["group"] == "NVIDIA"]
    assert years.index("B200") < years.index("H100") < years.index("A100") < years.index("P100")


def test_short_lists_have_what_a_plan_takes():
    short = catalogue.every_list()
    for precision in short["precisions"]:
        Plan.model_validate({**TRAINING, "workload": {"model": "x", "precision": precision["key"]}})
    assert {"Quebec", "Poland"} <= {item["key"] for item in short["regions"]}
    assert "vLLM" in {item["key"] for item in short["engines"]}
    assert "InfiniBand_NDR" in {item["key"] for item in short["fabrics"]} and short["stacks"]


# --- import -------------------------------------------------------------------------------------------------------


def test_a_configuration_becomes_a_model_of_the_session(imported):
    assert imported["note"] == "1.24 B parameters" and imported["group"] == "Imported"
    plan = {"task": "inference", "workload": {"model": imported["key"]}, "hardware": {"on": "1xH100"}}
    assert ask("explore", plan=plan)["feasible"]


def test_an_imported_model_is_in_the_menu_under_its_key(imported):
    assert imported["key"] in {item["key"] for item in catalogue.models()}


def test_the_same_configuration_has_the_same_key_and_another_has_another(imported):
    again = ask("take_model", text=json.dumps(CONFIG))
    assert again["key"] == imported["key"]
    other = ask("take_model", text=json.dumps({**CONFIG, "num_hidden_layers": 8}))
    assert other["key"] != imported["key"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "JSON"), ('{"model_type": "rwkv"}', "no workload type"), (" " * 1_000_001, "no model's configuration")],
)
def test_what_is_no_configuration_is_refused(text, sentence):
    assert sentence in refused("take_model", text=text)


def test_documents_are_kept_so_that_why_does_not_compute_again():
    explorer.forget()
    ask("explore", plan=INFERENCE)
    ask("why", plan=INFERENCE, metric="performance.latency")
    assert len(explorer._answers) == 2  # without equations and with


@pytest.mark.parametrize("plan", [5, [], "auto", {"parallelism": 7}, {"workload": 3}])
def test_a_search_of_what_is_no_plan_gets_a_sentence(plan):
    with pytest.raises(InputError):
        further.search_layout(plan)
