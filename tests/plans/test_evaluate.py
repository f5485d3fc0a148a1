"""Answers: known arithmetic, laws between answers, limits, costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate, evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.units.registry import to_si


def answered(**parts: Any) -> Answer:
    return evaluate_plainly(Plan.model_validate(parts))


def trained(on: str = "64xH100", model: str = "Llama3_8B", **workload: Any) -> Answer:
    work = {"model": model, "batch_size": 512, "seq_len": 4096, **workload}
    return answered(task="training", workload=work, hardware={"on": on})


def served(on: str = "8xH100", model: str = "Llama3_8B", precision: str | None = None, **serving: Any) -> Answer:
    work = {"model": model} | ({} if precision is None else {"precision": precision})
    return answered(task="serving", workload=work, hardware={"on": on}, serving={"prompt_tokens": 1000, **serving})


def test_first_order_training_by_hand() -> None:
    """6 N D over peak and efficiency: 6 x 8.03e9 x 8 x 2048 tokens on one H100 at half of 989 TFLOP/s is 1.6 s, attention aside."""
    answer = answered(
        task="training",
        workload={"model": "Llama3_8B", "batch_size": 8, "seq_len": 2048, "precision": "bf16", "lora_rank": 8},
        hardware={"on": "H100", "efficiency": 0.5},
        parallelism={"recompute": "none", "micro_batch": 1},
    )
    # Adapters leave the weights' gradients out: 4 N D instead of 6.
    expected = 4 * 8.03e9 * 8 * 2048 / (0.5 * 989e12)
    assert to_si(answer.value("latency"), "s") == pytest.approx(expected, rel=0.25)


def test_days_are_tokens_over_rate_and_goodput() -> None:
    answer = trained(tokens=1e12)
    rate, goodput = to_si(answer.value("tokens_per_second"), "1/s"), answer.value("goodput")
    assert to_si(answer.value("run_time"), "s") == pytest.approx(1e12 / rate / goodput)
    assert to_si(answer.value("usd_per_mtoken"), "USD") == pytest.approx(to_si(answer.value("tco"), "USD") / 1e6)


def test_twice_the_tokens_take_twice_the_time_and_energy() -> None:
    one, two = trained(tokens=1e11), trained(tokens=2e11)
    for name in ("run_time", "energy", "tco"):
        assert float((two.value(name) / one.value(name)).to("").magnitude) == pytest.approx(2, rel=1e-6)


def test_a_run_that_never_ends_is_a_sentence() -> None:
    work = {"model": "Llama3_8B", "batch_size": 512, "seq_len": 4096}
    answer = answered(task="training", workload=work, hardware={"on": "64xH100"}, ops={"mtbf": "20 s"})
    assert answer.value("goodput") < 1e-6 and answer.binding.limit == "goodput"
    assert "The fleet fails faster than it recovers: no run of this kind ends in ten times its work." in answer.verdict
    assert not {"usd_per_mtoken", "tokens_per_parameter"} & answer.held.keys()


def test_a_batch_below_the_replicas_is_a_sentence() -> None:
    with pytest.raises(InputError):
        answered(
            task="training",
            workload={"model": "Llama3_8B", "batch_size": 4, "seq_len": 2048},
            hardware={"on": "64xH100"},
            parallelism={"tp": 1},
        )


@pytest.mark.parametrize(
    "model",
    ["Llama3_8B", "Mixtral_8x7B", "Mamba2_2_7B", "Jamba_v0_1", "Qwen2_VL_7B", "ResNet50", "GPT4", "DLRM_MLPerf"],
)
def test_every_kind_of_model_trains_or_says_why(model: str, fuzz: Any) -> None:
    try:
        answer = answered(
            task="training", workload={"model": model}, hardware={"on": "64xH100"}, ops={"region": "Quebec"}
        )
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert fuzz.broken(answer) == []


@pytest.mark.parametrize(
    "chip", ["TPU_v1", "Coral", "Groq_LPU", "MTIA_v2", "Hailo_8", "Syntiant_NDP120", "SambaNova_SN40L", "Graviton4"]
)
def test_chips_without_price_power_or_link_still_answer(chip: str, fuzz: Any) -> None:
    answer = answered(task="inference", workload={"model": "ResNet50"}, hardware={"on": chip})
    assert fuzz.broken(answer) == []


def test_rent_alone_where_the_price_is_not_known() -> None:
    parts: dict[str, Any] = {"task": "training", "workload": {"model": "Llama3_8B"}, "hardware": {"on": "8xH800"}}
    without = answered(**parts, ops={"duration": "10 day"})
    assert not {"tco", "rent"} & {m.name for m in without.metrics}
    assert any("price" in line for line in without.verdict)
    rented = answered(**parts, ops={"duration": "10 day", "cloud_price": "2 USD/h"})
    assert to_si(rented.value("rent"), "USD") == pytest.approx(2 * 8 * 240)
    held = evaluate(
        Plan.model_validate({**parts, "ops": {"duration": "10 day", "cloud_price": "2 USD/h", "budget": "1 USD"}}),
        change=False,
    )
    assert held.exit_code == 3


def test_unknown_water_is_not_zero() -> None:
    germany = answered(
        task="training", workload={"model": "Llama3_8B"}, hardware={"on": "8xH100"}, ops={"region": "Germany"}
    )
    quebec = answered(
        task="training", workload={"model": "Llama3_8B"}, hardware={"on": "8xH100"}, ops={"region": "Quebec"}
    )
    assert "water" not in {m.name for m in germany.metrics}
    assert quebec.value("water").magnitude == 0


def test_small_runs_are_in_kilowatt_hours() -> None:
    answer = answered(
        task="training", workload={"model": "Llama3_8B"}, hardware={"on": "8xH100"}, ops={"duration": "1 h"}
    )
    assert f"{answer.value('energy').units:~}" == "kWh"


def test_limits_are_checked_and_named() -> None:
    plan = {
        "task": "training",
        "workload": {"model": "Llama3_8B", "tokens": 1e12},
        "hardware": {"on": "512xH100"},
        "ops": {"deadline": "1 day", "budget": "1 MUSD"},
    }
    answer = evaluate(plan, change=False)
    assert [check.passed for check in answer.checks] == [False, True] and answer.exit_code == 3
    better = evaluate(plan).change
    assert better is not None and "everything asked for holds" in better.sentence
    assert evaluate(better.plan, change=False).exit_code == 0


def test_sensitivities_have_the_sign_of_the_physics() -> None:
    found = evaluate(
        {
            "task": "training",
            "workload": {"model": "Llama3_8B", "batch_size": 128, "seq_len": 4096},
            "hardware": {"on": "16xH100"},
        },
        change=False,
    ).sensitivities
    less, more = found["peak_flops"]
    assert less is not None and more is not None and less < 0 < more


# --- serving ------------------------------------------------------------------------------------------------------


def test_a_rate_is_met_by_the_fewest_clients() -> None:
    answer = served(qps=20.0, output_tokens=200)
    assert to_si(answer.value("requests_per_second"), "1/s") == pytest.approx(20)
    clients = answer.layout["concurrency"]
    fewer = served(concurrency=max(1, clients - max(2, clients // 16)), output_tokens=200)
    assert to_si(fewer.value("requests_per_second"), "1/s") < 20


def test_a_rate_beyond_reach_says_so() -> None:
    plan = {
        "task": "serving",
        "workload": {"model": "Llama3_70B", "precision": "fp8"},
        "hardware": {"on": "2xH100"},
        "serving": {"qps": 1e4},
    }
    answer = evaluate(plan, change=False)
    assert answer.exit_code == 3 and answer.binding.wall == 7 and "replicas are needed" in answer.binding.sentence
    # No steady state: the queue grows, and there is no time to the first token, nor of a request.
    assert not answer.feasible and answer.overloaded and answer.headline.startswith("Overloaded")
    assert not {"ttft", "latency"} & set(answer.held)
    assert 0 < to_si(answer.value("requests_per_second"), "1/s") < 1e3


def test_a_limit_does_not_choose_the_layout_of_a_server_that_is_overloaded() -> None:
    """Two small replicas keep the time of a token with a third of the rate; as nothing holds in the end, the most is what counts."""
    plan = {
        "task": "serving",
        "workload": {"model": "Qwen3_32B"},
        "hardware": {"on": "2xH100"},
        "serving": {"qps": 3.0, "prompt_tokens": 4000, "output_tokens": 500},
    }
    free = evaluate(plan, change=False)
    held = evaluate(plan | {"serving": {**plan["serving"], "tpot": "40 ms"}}, change=False)
    assert free.overloaded and held.overloaded
    assert held.value("requests_per_second") == free.value("requests_per_second")


def test_little_traffic_costs_more_for_each_token() -> None:
    idle, busy = served(qps=0.01), served(qps=5.0)
    assert idle.value("usd_per_mtoken") > 50 * busy.value("usd_per_mtoken")
    assert idle.value("power") < busy.value("power")
    assert to_si(idle.value("requests_per_second"), "1/s") == pytest.approx(0.01)


def test_power_lies_between_idle_and_tdp() -> None:
    answer = served(concurrency=64)
    each = to_si(answer.value("accelerator_power"), "W")
    assert 124 < each <= 0.985 * 700
    # An air-cooled node takes 1.41 kW and 1.21 times what its accelerators do.
    assert to_si(answer.value("power"), "W") == pytest.approx(1410 + 1.21 * 8 * each)


@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.integers(20, 400), st.integers(1, 6))
def test_a_looser_limit_never_carries_less(ttft: int, factor: int) -> None:
    tight = served(ttft=f"{ttft} ms", tpot="30 ms")
    loose = served(ttft=f"{ttft * factor} ms", tpot="30 ms")
    if to_si(tight.value("ttft"), "ms") <= ttft:
        assert to_si(loose.value("tokens_per_second"), "1/s") >= 0.97 * to_si(tight.value("tokens_per_second"), "1/s")


def test_limits_are_kept_where_they_can_be() -> None:
    answer = served(on="8xH200", model="Llama3_70B", precision="fp8", ttft="500 ms", tpot="30 ms")
    assert to_si(answer.value("ttft"), "ms") <= 500 and to_si(answer.value("tpot"), "ms") <= 30


@pytest.mark.parametrize("name", ["vllm", "VLLM", "sglang", "trt-llm", "TRT-LLM", "TensorRT-LLM", "llama.cpp"])
def test_engines_are_named_as_people_write_them(name: str) -> None:
    assert served(engine=name, concurrency=4).feasible


def test_an_unknown_engine_is_answered_with_a_near_one() -> None:
    with pytest.raises(InputError, match="vLLM"):
        served(engine="vlmm", concurrency=4)


def test_caches_stay_wide_unless_told() -> None:
    plain, narrow = (
        served(precision="fp8", concurrency=64),
        served(precision="fp8", concurrency=64, cache_precision="fp8"),
    )
    assert to_si(plain.value("kv_cache"), "byte") == pytest.approx(2 * to_si(narrow.value("kv_cache"), "byte"))
    assert plain.assumptions["cache_precision"] == "bf16"


def test_part_of_the_memory_holds_fewer_requests() -> None:
    whole, part = served(on="H100", concurrency=4), served(on="H100", concurrency=4, memory_fraction=0.5)
    assert part.value("max_batch") < whole.value("max_batch")
    assert part.value("memory_capacity") == whole.value("memory_capacity")
    kept = {p.label: p.value for p in part.memory.parts}["reserve"]  # type: ignore[union-attr]
    assert kept == pytest.approx(part.memory.capacity - 0.5 * 85.5e9)  # type: ignore[union-attr]


def test_a_decode_pool_is_paid_for() -> None:
    """As two nodes of one pool are, with their network; half of a node is half as much, and parts of one node have no network to pay for."""

    def price(**asked: Any) -> float:
        return to_si(served(concurrency=16, **asked).value("purchase"), "USD")

    alone, two = price(on="8xH100"), price(on="16xH100")
    assert price(on="8xH100", decode_on="8xH100") == pytest.approx(two) and two > 2.2 * alone
    assert price(on="8xH100", decode_on="4xH100") == pytest.approx(0.75 * two)
    assert price(on="4xH100", decode_on="4xH100") == pytest.approx(alone)


def test_a_cached_prefix_shortens_the_first_token_only() -> None:
    cold, warm = served(concurrency=1), served(concurrency=1, cached_prefix=900)
    assert warm.value("ttft") < cold.value("ttft")


def test_a_draft_model_and_chunks_are_taken() -> None:
    drafted = served(model="Llama3_70B", precision="fp8", concurrency=4, draft_model="Llama3_2_1B", acceptance=0.8)
    plain = served(model="Llama3_70B", precision="fp8", concurrency=4)
    assert drafted.value("tpot") < plain.value("tpot")
    assert served(concurrency=4, chunk_tokens=256).feasible


def test_weights_and_caches_of_a_device() -> None:
    """Llama 3 8B in 16 bits is 16.06 GB; 64 requests of 1,000 + 256 tokens at 131,072 bytes each, half answered and with half of a block of 16
    empty, are 9.5 GB: engines page, and do not reserve whole answers."""
    answer = served(on="H100", concurrency=64)
    parts = {part.label: part.value for part in answer.memory.parts}  # type: ignore[union-attr]
    assert parts["weights"] == pytest.approx(16.06e9, rel=0.01)
    assert parts["KV caches"] == pytest.approx(64 * (1000 + 128 + 7.5) * 131072, rel=1e-3)
    # vLLM takes 0.9 of the 85.5 GB that the driver offers of 80 GiB.
    assert parts["reserve"] == pytest.approx(80 * 2**30 - 0.9 * 85.5e9)
    assert sum(parts.values()) == pytest.approx(to_si(answer.value("memory"), "byte"), rel=1e-14)


def test_more_clients_than_caches_fit_wait() -> None:
    """A closed loop lets in what fits; the others wait for a place, and that is no failure to fit."""
    answer = served(on="H100", concurrency=4000)
    places = answer.value("max_batch")
    assert answer.feasible and places < 4000
    assert any(
        f"Caches of {places:,} of them fit at once, so {4000 - places:,} wait" in line for line in answer.verdict
    )
    assert answer.memory.used <= answer.memory.capacity < answer.memory.used + 1256 * 131072  # type: ignore[union-attr]


def test_a_model_that_leaves_no_room_for_a_cache_does_not_fit() -> None:
    """Llama 3 8B: 16.06 GB of weights are more than 0.9 of a TPU v5e's 17.2 GB."""
    answer = served(on="1xTPUv5e", concurrency=8)
    assert not answer.feasible and answer.value("max_batch") == 0
    assert answer.metric("memory").text in answer.headline


@pytest.mark.parametrize("load", [{"qps": 1e6}, {"tpot": "10 s"}])
def test_a_load_that_is_looked_for_fits_at_once(load: dict[str, Any]) -> None:
    answer = served(on="H100", **load)
    assert answer.layout["concurrency"] <= answer.value("max_batch") * answer.layout["replicas"]


# --- one pass -----------------------------------------------------------------------------------------------------


def test_a_pass_runs_on_one_accelerator() -> None:
    with pytest.raises(InputError, match="one accelerator"):
        answered(task="inference", workload={"model": "ResNet50"}, hardware={"on": "8xH100"})


def test_what_does_not_fit_says_so_and_what_would() -> None:
    answer = evaluate({"task": "inference", "workload": {"model": "Llama3_70B"}, "hardware": {"on": "H100"}})
    assert answer.exit_code == 2 and answer.headline.startswith("Does not fit")
    assert answer.change is not None and evaluate(answer.change.plan, change=False).feasible


@pytest.mark.parametrize(
    ("model", "on", "count", "split"), [("Llama3_405B", "8xH100", 16, "TP8 PP2"), ("Llama3_70B", "H100", 2, "TP2")]
)
def test_a_service_that_does_not_fit_names_the_least_that_would(model: str, on: str, count: int, split: str) -> None:
    answer = answered(task="serving", workload={"model": model}, hardware={"on": on})
    assert any(
        line.startswith(f"The smallest fleet that would hold it is {count} x") and split in line
        for line in answer.verdict
    )
    fits = answered(task="serving", workload={"model": model}, hardware={"on": f"{count}xH100"})
    assert fits.feasible and fits.exit_code == 0


def test_metrics_say_their_names_to_those_who_misspell_them() -> None:
    answer = answered(task="inference", workload={"model": "ResNet50"}, hardware={"on": "A100"})
    with pytest.raises(InputError, match="latency"):
        answer.metric("latancy")
    assert math.isfinite(answer.value("performance.latency").magnitude)


def test_a_change_keeps_a_given_layout() -> None:
    """Twice the batch is told for the layout that was given."""
    from mlsysim.plans.changes import rounds_of, settled

    split = {"tp": 8, "pp": 4, "micro_batch": 1, "zero": 1, "recompute": "none"}
    work = {"model": "Llama3_70B", "batch_size": 512, "seq_len": 4096}
    answer = answered(task="training", workload=work, hardware={"on": "64xH100"}, parallelism=split)
    tried = [each for group in rounds_of(settled(answer), answer, lambda plan: False) for each in group]
    larger = next(each.plan for each in tried if str(each.words).startswith("a batch twice as large"))
    assert larger.workload.batch_size == 1024
    assert all(getattr(larger.parallelism, name) == value for name, value in split.items())


# --- layouts, pools and prices of serving -----------------------------------------------------------------------------


def _serving(model: str = "Llama3_70B", **settings: Any) -> Answer:
    base = {"task": "serving", "model": model, "precision": "fp8", "prompt_tokens": 1024, "output_tokens": 256}
    return evaluate_plainly(Plan.model_validate(base | settings))


def test_a_mixture_that_no_node_holds_is_spread_over_nodes() -> None:
    """1.34 TB of weights in 16 bits: no tensor group of a node holds them, groups of attention on 16 devices do."""
    answer = _serving("DeepSeek_V3", precision="bf16", on="16xH200")
    assert answer.feasible and answer.layout["ep"] == 16 and answer.layout["attention_dp"] == 16
    assert "attention-DP16" in answer.headline


def test_a_dense_model_that_no_node_holds_is_split_into_stages() -> None:
    answer = _serving("Llama3_405B", precision="bf16", on="16xH100", concurrency=16)
    assert answer.feasible and (answer.layout["tp"], answer.layout["pp"]) == (8, 2)


def test_dp_of_a_serving_plan_is_its_replicas() -> None:
    assert _serving("Llama3_8B", on="8xH100", dp=8).layout["replicas"] == 8
    with pytest.raises(InputError, match="dp 8 are the replicas"):
        _serving("Llama3_8B", on="8xH100", dp=8, replicas=4)
    with pytest.raises(InputError, match="do not hold 16 replicas"):
        _serving("Llama3_8B", on="8xH100", dp=16)


def test_a_rent_is_the_price_of_a_token() -> None:
    answer = _serving("Llama3_8B", on="8xH100", cloud_price="2 USD/h", concurrency=64)
    tokens = answer.value("tokens_per_second").magnitude * 3600
    assert answer.value("usd_per_mtoken").magnitude == pytest.approx(8 * 2 / tokens * 1e6)


def test_a_rate_that_is_not_reached_is_not_what_requests_in_flight_need() -> None:
    reached, missed = (_serving(on="4xH100", qps=qps).assumptions["concurrency"] for qps in (1, 100))
    assert "1 arrives a second" in reached
    assert "comes" not in missed and "need" not in missed, missed


def test_the_least_fleet_for_a_rate_is_no_power_of_two() -> None:
    plan = Plan.model_validate(
        {"task": "serving", "model": "Llama3_70B", "precision": "fp8", "on": "8xH200", "qps": 100,
         "prompt_tokens": 1024, "output_tokens": 256}
    )  # fmt: skip
    change = evaluate(plan).change
    assert change is not None and change.plan.hardware.on == "24xH200"


def test_an_engine_keeps_nothing_back_of_a_cpu() -> None:
    answer = _serving("Llama3_8B", precision="bf16", on="EPYC_9654", concurrency=8)
    assert answer.value("memory").to("GB").magnitude < 30


def test_a_run_has_the_interval_of_its_steps() -> None:
    """Days and money follow the time of a step where the tokens are given; where the days are, only the price of a token does. The
    electricity in it is as uncertain as the power, and failures of so few accelerators as uncertain as their rate: less than a thousandth."""
    run, month = trained(tokens=1e12), trained()
    wide = float(run.held["latency"].high / run.held["latency"].value)
    assert float(run.held["run_time"].high / run.held["run_time"].value) == pytest.approx(wide, rel=1e-3)
    for held in (run.held["tco"], run.held["usd_per_mtoken"], month.held["usd_per_mtoken"]):
        assert wide <= float(held.high / held.value) == pytest.approx(wide, rel=1e-3)
    assert 1 < float(month.held["tco"].high / month.held["tco"].value) < 1.01


def test_stages_are_tried_where_nothing_else_carries_the_rate() -> None:
    """812 GB of weights in 16 bits: no node holds them, two in a row do; attention on its own does not help a dense model."""
    answer = _serving("Llama3_405B", precision="bf16", on="32xH100", qps=4.0)
    assert answer.feasible and answer.layout["pp"] > 1
    assert to_si(answer.value("requests_per_second"), "1/s") >= 3.98


def test_a_hypothetical_chip_is_called_one() -> None:
    plain = evaluate_plainly(Plan.model_validate({"model": "Llama3_8B", "on": "H100"}))
    other = evaluate_plainly(Plan.model_validate({"model": "Llama3_8B", "on": "H100", "memory_bandwidth": "8 TB/s"}))
    assert other.subject == f"{plain.subject} (hypothetical: memory bandwidth 8 TB/s)"
    assert other.interval.startswith("Extrapolating: the chip is hypothetical") and "xtrapolating" not in plain.interval
