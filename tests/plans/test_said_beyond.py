"""What a plan says beyond what its chips, its model or its load have is refused, or said to change nothing."""

import pytest

import mlsysim
from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.optimizing import best_placement
from mlsysim.plans.plan import Plan


def test_a_network_of_fixed_shape_trains_on_samples():
    found = mlsysim.train("ResNet50", on="8xA100", tokens="90M")
    assert "90 million samples take" in " ".join(found.verdict)
    assert "90 million tokens take" in " ".join(mlsysim.train("Llama3_8B", on="8xH100", tokens="90M").verdict)


@pytest.mark.parametrize(("ask", "given"), [(mlsysim.serve, {}), (mlsysim.train, {"batch": 64})])
def test_a_power_limit_above_the_chip_is_said_to_change_nothing(ask, given):
    on = "8xH100"
    above, alone = ask("Llama3_8B", on=on, power_cap="10 kW", **given), ask("Llama3_8B", on=on, **given)
    assert above.warnings == (
        "A power limit of 10 kW is above the 700 W of NVIDIA H100 SXM5 80GB: it changes nothing.",
    )
    assert above.value("tokens_per_second") == alone.value("tokens_per_second")
    assert alone.warnings == ask("Llama3_8B", on=on, power_cap="600 W", **given).warnings == ()


@pytest.mark.parametrize(("key", "value"), [("scheduler", "prefill_first"), ("router", "prefix"), ("burst", 2)])
def test_what_is_played_needs_a_load(key, value):
    with pytest.raises(InputError, match=f"beside {key} give qps, concurrency or a trace"):
        mlsysim.serve("Llama3_8B", on="H100", **{key: value})


@pytest.mark.parametrize(("key", "value"), [("scheduler", "fifo"), ("router", "random")])
def test_a_policy_that_nobody_knows_is_refused_whatever_the_load(key, value):
    for load in ({}, {"qps": 1e6}, {"concurrency": 8}):
        with pytest.raises(InputError, match=f"no {key} named '{value}'"):
            mlsysim.serve("Llama3_8B", on="H100", **{key: value}, **load)


def test_a_text_longer_than_the_model_is_made_for_is_said():
    found = mlsysim.serve("Llama3_8B", on="H100", isl=131_000, osl=500)
    assert found.warnings == ("Llama-3.1-8B is made for 131,072 tokens at most; it is asked for 131,500.",)
    assert mlsysim.serve("Llama3_8B", on="H100", isl=130_000, osl=500).warnings == ()


def test_a_disk_that_nobody_needs_is_said_to_change_nothing():
    asked = {"qps": 0.1, "turns": 3, "requests": 300, "offload_disk": "500 GB", "storage_bandwidth": "5 GB/s"}
    idle = mlsysim.serve("Llama3_8B", "1xH100", **asked).assumptions
    assert idle["offload_disk"] == "no effect: no token of the simulated prompts was found on disk"
    assert idle["prefixes"].endswith("0% on disk") and "host" not in idle["prefixes"]


MONEY = {
    "price": "3 USD/h",
    "budget": "10 USD",
    "electricity": "0.5 USD/kWh",
    "cost_scope": "accelerators",
    "duration": "3 day",
    "mtbf": "10 h",
}


@pytest.mark.parametrize(("key", "value"), MONEY.items())
def test_one_pass_has_no_use_for_what_a_run_pays_or_lasts(key, value):
    with pytest.raises(InputError, match=f"{key} belongs to training.*; one pass has no use for it"):
        evaluate(
            {"task": "inference", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "H100"}, "ops": {key: value}}
        )


def test_what_does_not_choose_a_place_is_said_to_have_no_effect():
    plan = {"workload": {"model": "Llama3_8B"}, "hardware": {"on": "64xH100"}, "task": "training"}
    plain = best_placement(Plan.model_validate(plan), regions=["Quebec", "Poland"])
    paid = best_placement(
        Plan.model_validate(plan | {"ops": {"price": 3, "budget": "10 USD"}}), regions=["Quebec", "Poland"]
    )
    assert paid.best_config == plain.best_config
    for name in ("price", "budget"):
        assert paid.assumptions[name].startswith("no effect: ") and name not in plain.assumptions


def test_weights_are_stored_in_what_the_chip_multiplies():
    old = evaluate({"task": "inference", "workload": {"model": "ESM2_15B"}, "hardware": {"on": "P40"}})
    assert "store the weights in int8" in old.headline and "fp8" not in old.headline
    new = evaluate({"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "H100"}})
    assert "store the weights in fp8" in new.headline


def test_sequences_that_are_not_split_leave_the_rest_to_be_searched():
    given = {"on": "64xH100", "batch": 128, "seq": 8192}
    free, kept = (
        mlsysim.train("Llama3_70B", **given, **more).layout for more in ({"mode": "auto", "cp": 1}, {"cp": 1})
    )
    assert kept == free and kept["tp"] * kept["pp"] > 1
    assert mlsysim.train("Llama3_8B", **given, tp=1, cp=1).layout["dp"] == 64


def test_an_engine_on_accelerators_that_it_is_not_made_for_is_noted():
    strange = mlsysim.serve("Llama3_8B", on="MI300X", engine="TensorRT-LLM", concurrency=4)
    assert strange.warnings == (
        "TensorRT_LLM runs on accelerators of NVIDIA alone: on AMD Instinct MI300X 192GB its times are what its steps would take there.",
    )
    assert mlsysim.serve("Llama3_8B", on="H100", engine="TensorRT-LLM", concurrency=4).warnings == ()
    assert mlsysim.serve("Llama3_8B", on="MI300X", engine="vLLM", concurrency=4).warnings == ()
