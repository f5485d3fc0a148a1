"""The searched layout honours every key of a plan: its answer is that of a plan which states the layout."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError, MLSysError
from mlsysim.launch.targets import export
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.optimizing import best_parallelism
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import parse_fleet

STATED = ("tp", "pp", "cp", "ep", "micro_batches", "virtual_stages", "schedule", "zero", "recompute")
KEYS: dict[str, list[Any]] = {
    "model": ["Llama3_8B", "Mixtral_8x7B"],
    "on": ["H100", "16xH100", "64xA100"],
    "precision": ["bf16", "fp32"],
    "efficiency": ["calibrated", 0.5],
    "stack": [None, "titan", "megatron21", "fsdp23"],
    "power_cap": [None, "300 W"],
    "lora_rank": [None, 16],
    "optimizer": [None, "sgd", "muon"],
    "offload": [None, 0.5],
    "offload_activations": [None, 0.5],
    "gradient_precision": [None, "fp32", "bf16"],
    "activation_precision": [None, "fp8"],
    "reshard": [None, True, False],
    "zero_shard": [None, 8],
    "sequence_parallel": [None, False],
    "recomputed": [None, "light", "half"],
    "recompute": [None, "selective"],
    "tp": [None, 2],
    "zero": [None, 3],
}


def plan_of(keys: dict[str, Any], **more: Any) -> Plan:
    fixed = {"task": "training", "batch_size": 128, "seq_len": 2048}
    return Plan.model_validate({**fixed, **{k: v for k, v in {**keys, **more}.items() if v is not None}})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in KEYS.items()}))
def test_the_answer_is_that_of_a_plan_which_states_the_layout(keys: dict[str, Any]) -> None:
    try:
        searched = evaluate_plainly(plan_of(keys, mode="auto"))
    except MLSysError:
        return
    stated = {name: searched.layout[name] for name in STATED}
    again = evaluate_plainly(plan_of(keys, mode="given", **stated))
    assert again.feasible == searched.feasible
    for metric in ("latency", "memory", "mfu", "model_state", "activations"):
        assert again.value(metric) == searched.value(metric), metric


def test_adapters_of_an_8b_model_fit_one_card() -> None:
    """LoRA keeps 16-bit weights and adapters: 16 GB of an 80 GB card (Hu et al. 2021)."""
    assert evaluate_plainly(plan_of({"model": "Llama3_8B", "on": "A100", "lora_rank": 16})).feasible
    whole = evaluate_plainly(plan_of({"model": "Llama3_8B", "on": "A100"}))
    assert not whole.feasible and "GB too much" in whole.headline


def test_gpt3_fits_on_1024_a100_under_the_software_of_its_paper() -> None:
    """Narayanan et al., SC'21, table 1: 175 B on 1,024 A100 with TP 8, PP 8; layers are recomputed whole or not at all."""
    keys = {"model": "GPT3_175B", "on": "1024xA100", "stack": "megatron21", "batch_size": 1536}
    assert evaluate_plainly(plan_of(keys, tp=8, pp=8, micro_batch=1)).feasible
    found = best_parallelism(plan_of(keys))
    assert found.feasible and found.best_config["recompute"] != "selective"
    assert any("megatron21" in reason for reason in found.rejected)


def test_what_does_not_fit_says_by_how_much_and_the_least_fleet() -> None:
    answer = evaluate_plainly(plan_of({"model": "Llama3_70B", "on": "8xH100"}))
    assert not answer.feasible and answer.binding.limit == "memory"
    assert answer.binding.sentence.endswith("every other layout that was searched needs more."), (
        "no other split is hoped for"
    )
    needed, there = answer.metric("memory"), answer.metric("memory_capacity")
    assert f"needs {needed.text} of {there.text}, " in answer.headline and answer.headline.endswith("GB too much.")
    assert answer.verdict[0].startswith("The smallest fleet that would hold it is 16 x NVIDIA H100 SXM5 80GB, as TP")
    assert answer.memory is not None
    assert sum(part.value for part in answer.memory.parts) == pytest.approx(needed.value.to("byte").magnitude)
    assert {name: answer.layout[name] for name in ("tp", "pp", "dp", "zero", "recompute")} == {
        "tp": 8, "pp": 1, "dp": 1, "zero": 0, "recompute": "full",
    }  # fmt: skip
    assert evaluate_plainly(plan_of({"model": "Llama3_70B", "on": "16xH100"})).feasible


def test_a_given_split_that_does_not_fit_names_the_least_fleet_with_it() -> None:
    answer = evaluate_plainly(plan_of({"model": "Llama3_405B", "on": "8xH100"}, tp=8, pp=1))
    assert "another split, more accelerators" in answer.headline
    assert answer.verdict == (
        "The smallest fleet that would hold it with TP 8, PP 1 is 128 x NVIDIA H100 SXM5 80GB, as TP8 PP1 DP16 with ZeRO 3, recompute full.",
    )
    more = plan_of({"model": "Llama3_405B", "on": "128xH100"}, tp=8, pp=1, zero=3, recompute="full", micro_batch=1)
    assert evaluate_plainly(more.replacing(workload={"batch_size": answer.layout["batch_size"]})).feasible


def test_the_change_of_what_does_not_fit_is_as_many_as_would_do() -> None:
    answer = evaluate({"task": "training", "model": "DeepSeek_V3", "on": "8xH100"})
    count = re.search(r"The smallest fleet that would hold it is ([\d,]+) x", answer.verdict[0])
    assert answer.change is not None and count is not None and int(count[1]) > 64
    price = re.fullmatch(
        r"Cheapest change: (\d+) x H100 instead of 8 .*; then it fits, at \$([\d.]+) for a million tokens\.",
        answer.change.sentence,
    )
    assert price and int(price[1]) in (int(count[1]), 256)
    assert float(price[2]) == pytest.approx(
        evaluate_plainly(answer.change.plan).value("usd_per_mtoken").magnitude, rel=1e-2
    )


@pytest.mark.parametrize("on", ["1xH100", "8xH100"])
def test_the_smallest_fleet_is_looked_for_between_doublings(on: str) -> None:
    """405B with eight sequences a step: thirteen stages of one node each hold it, and eight or twelve nodes do not; a part of a node grows into whole ones."""
    keys = {"task": "training", "model": "Llama3_405B", "batch_size": 8}
    verdict = evaluate({**keys, "on": on}).verdict[0]
    assert "The smallest fleet that would hold it is 104 x NVIDIA H100" in verdict and "TP8 PP13" in verdict
    assert evaluate({**keys, "on": "104xH100"}, change=False).feasible
    assert not evaluate({**keys, "on": "96xH100"}, change=False).feasible


@pytest.mark.parametrize(("model", "pp", "chunks"), [("Llama2_13B", 4, {2, 5}), ("Llama3_70B", 2, {2, 4, 5, 8})])
def test_every_number_of_chunks_that_layers_share_is_searched(model: str, pp: int, chunks: set[int]) -> None:
    """40 layers over 4 stages in five chunks of two, 80 over 2 in five of eight: no number that divides is left out."""
    settings = {"tp": 8, "pp": pp, "micro_batches": 2 * pp, "zero": 1, "recompute": "full"}
    keys = {"model": model, "on": "64xH100"} | settings
    alone = {v: evaluate_plainly(plan_of(keys, mode="given", virtual_stages=v, schedule="interleaved")) for v in chunks}
    best = evaluate_plainly(plan_of(keys, mode="auto"))
    least = min(float(answer.value("latency").m_as("s")) for answer in alone.values() if answer.feasible)
    assert float(best.value("latency").m_as("s")) <= least * (1 + 1e-9)


def test_a_search_without_a_plan_refuses_with_what_is_missing() -> None:
    with pytest.raises(InputError, match=r"too much\. The smallest fleet that would hold it is 16 x") as raised:
        best_parallelism(plan_of({"model": "Llama3_70B", "on": "8xH100"}))
    # A command ends with the code of what does not fit.
    assert raised.value.details["fits"] is False


def test_what_does_not_divide_is_named_with_a_batch_that_would() -> None:
    with pytest.raises(MLSysError, match=r"none divides the batch of 16,384; use a batch of"):
        evaluate_plainly(plan_of({"model": "Llama3_405B", "on": "Mega_100K"}, batch_size=16384))


def test_the_search_keeps_the_degrees_of_the_plan_and_its_software() -> None:
    found = best_parallelism(plan_of({"model": "Llama3_8B", "on": "64xH100", "tp": 4, "zero": 1, "recompute": "full"}))
    assert {each["tp"] for each in found.top_candidates} == {4}
    assert {(each["zero_stage"], each["recompute"]) for each in found.top_candidates} == {(1, "full")}
    capped, free = (
        best_parallelism(plan_of({"model": "Llama3_8B", "on": "64xH100", "power_cap": cap})).best_mfu
        for cap in ("300 W", None)
    )
    assert capped < 0.9 * free


def test_a_batch_that_no_larger_fleet_divides_is_made_one_that_it_does() -> None:
    """977 is prime: no number of replicas but one and itself divides it."""
    answer = evaluate({"task": "training", "model": "Llama3_405B", "on": "1xH100", "batch_size": 977})
    said = re.search(r"is (\d+) x .* and a batch of ([\d,]+) \(977 does not divide\)", answer.verdict[0])
    assert said is not None and int(said[1]) % 8 == 0
    batch = int(said[2].replace(",", ""))
    assert abs(batch - 977) < 50 and batch % int(said[1]) == 0
    assert answer.change is not None and answer.change.plan.workload.batch_size == batch
    assert evaluate_plainly(answer.change.plan).feasible


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"zero": 3, "zero_shard": 8}, {"zero": 3}),
        ({"zero": 3}, {"zero": 3}),
        ({"recompute": "full"}, {"recompute": "full"}),
        ({"recomputed": "norm"}, {"recompute": "selective"}),
        ({"schedule": "zb_v"}, {}),
        ({"micro_batch": 1}, {}),
        ({"micro_batches": 60}, {"micro_batches": 60}),
        ({"virtual_stages": 2}, {"virtual_stages": 2}),
    ],
)
def test_a_layout_without_a_degree_is_searched_with_what_is_given(given: dict[str, Any], held: dict[str, Any]) -> None:
    """A stage, a shard or a mode says nothing of how work is split: Mixtral on 64 H100 fits with any of them."""
    plan = plan_of({"model": "Mixtral_8x7B", "on": "64xH100", "batch_size": 960, "seq_len": 4096, **given})
    assert plan.parallelism.automatic
    found = evaluate_plainly(plan)
    assert found.feasible and {name: found.layout[name] for name in held} == held
    same = evaluate_plainly(plan.replacing(parallelism={"mode": "auto"}))
    assert found.layout == same.layout and found.value("latency") == same.value("latency")


def test_a_shard_alone_means_that_something_is_sharded() -> None:
    assert evaluate_plainly(plan_of({"model": "Llama3_8B", "on": "64xH100", "zero_shard": 8})).layout["zero"] >= 1
    with pytest.raises(MLSysError, match=r"shards of 3 do not divide DP x CP"):
        evaluate_plainly(plan_of({"model": "Llama3_8B", "on": "8xH100", "zero_shard": 3}))


RULES = {
    "megatron": lambda at: at["pp"] == 1 or at["virtual_stages"] == 1 or at["micro_batches"] >= at["pp"],
    "torchtitan": lambda at: at["zero"] != 1 and (at["pp"] == 1 or at["schedule"] in ("1f1b", "interleaved")),
    "deepspeed": lambda at: at["virtual_stages"] == 1 and (at["pp"] == 1 or at["zero"] < 2),
    "fsdp": lambda at: at["pp"] == 1 and at["zero"] >= 2 and at["recompute"] != "selective",
}


@pytest.mark.parametrize("launcher", RULES)
@pytest.mark.parametrize("batch", [512, 96])
def test_a_searched_layout_is_one_that_its_launcher_runs_and_writes(launcher: str, batch: int) -> None:
    """DeepSpeed's pipelines have no virtual stages, FSDP no pipelines, torchtitan no ZeRO 1; Megatron waits for short groups."""
    keys = {"model": "Llama3_70B", "on": "128xH100", "batch_size": batch, "seq_len": 4096}
    free, bound = (evaluate_plainly(plan_of(keys, **more)) for more in ({}, {"launcher": launcher}))
    assert bound.feasible and RULES[launcher](bound.layout)
    assert bound.value("mfu") <= free.value("mfu") * (1 + 1e-9)
    if not RULES[launcher](free.layout):
        assert "not run by" in bound.assumptions["layout"]
    assert export(launcher, plan_of(keys))


def test_a_named_software_is_searched_by_what_it_runs() -> None:
    found = best_parallelism(plan_of({"model": "Llama3_70B", "on": "128xH100", "stack": "fsdp23"}, batch_size=256))
    assert found.best_config["pp"] == 1 and found.rejected["a pipeline: not run by FSDP"] > 0


def test_what_a_launcher_does_not_run_is_refused_in_a_sentence() -> None:
    given = {"model": "Llama3_70B", "on": "128xH100", "tp": 8, "pp": 4, "virtual_stages": 2, "micro_batch": 1}
    with pytest.raises(MLSysError, match='DeepSpeed does not run schedule interleaved; use schedule = "1f1b"'):
        evaluate_plainly(plan_of(given, launcher="deepspeed"))
    with pytest.raises(MLSysError, match=r"FSDP runs none of the .* layouts of this plan: .* a pipeline"):
        evaluate_plainly(plan_of({"model": "Llama3_8B", "on": "16xH100", "pp": 2}, launcher="fsdp", mode="auto"))
    with pytest.raises(MLSysError, match="megatron"):
        evaluate_plainly(plan_of(given, launcher="megatorn"))


@pytest.mark.parametrize(("stack", "rings"), [("megatron22", False), ("fsdp23", False), ("bridge", True), (None, True)])
def test_software_from_before_rings_has_no_context_parallelism_unless_it_is_told(stack, rings) -> None:
    """Gopher of 2021 was answered with eight devices to a sequence, and keys that go around were published in 2023; what a plan says is timed."""
    keys = {"model": "Llama3_8B", "on": "64xA100", "stack": stack, "batch_size": 16, "seq_len": 65536}
    assert (evaluate_plainly(plan_of(keys)).layout["cp"] > 1) == rings
    assert evaluate_plainly(plan_of(keys, cp=4)).layout["cp"] == 4


@pytest.mark.parametrize("accelerators", [3, 5, 6, 7])
def test_a_part_of_a_node_that_is_too_small_is_told_of_a_fleet_that_can_be_asked(accelerators: int) -> None:
    """Seven were refused with a sentence about twenty-one, which nobody had asked for."""
    answer = evaluate(plan_of({"model": "Llama3_70B", "on": f"{accelerators}xH100"}, batch_size=accelerators * 8))
    least = re.search(r"The smallest fleet that would hold it is ([\d,]+) x", answer.verdict[0])
    assert not answer.feasible and least
    assert parse_fleet(f"{least[1]}xH100").one.total_accelerators == int(least[1])
