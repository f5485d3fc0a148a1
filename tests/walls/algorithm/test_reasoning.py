"""Wall 12: time, energy and cost of a query that thinks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.units.registry import Q_
from mlsysim.walls.algorithm.reasoning import InferenceScalingModel
from mlsysim.walls.node.serving import ServingModel

PER_TOKEN = 131_072
WEIGHTS = 8.03e9 * 2
BANDWIDTH = 3.35e12


def think(model="Llama3_8B", hardware="H100", **given_):
    return InferenceScalingModel().solve(model, hardware, **given_)


def itl(sequences, context):
    return (WEIGHTS + sequences * context * PER_TOKEN) / BANDWIDTH + 1e-5


def test_defaults_are_the_papers():
    answer = think()
    assert (answer.reasoning_steps, answer.tokens_generated) == (8, 8 * 128)
    assert answer.assumptions["tokens_per_step"] == "128"
    assert answer.strategy == "chain_of_thought"


def test_chain_of_thought_grows_its_cache():
    answer = think(context_length=2048)
    exact = math.fsum(itl(1, 2048 + i) for i in range(1024))
    assert answer.total_reasoning_time.to("s").magnitude == pytest.approx(answer.ttft.to("s").magnitude + exact)
    assert answer.itl.to("s").magnitude == pytest.approx(exact / 1024)
    assert answer.time_per_step.to("s").magnitude == pytest.approx(exact / 8)
    assert answer.final_context == 3072
    total = answer.ttft + answer.tokens_generated * answer.itl
    assert total.to("s").magnitude == pytest.approx(answer.total_reasoning_time.to("s").magnitude)


def test_case_s1_multiplier():
    # The paper prints 7.6; its own text (128 tokens a step) with a prompt of 2,048 tokens gives 7.3.
    answer = think("GPT4", tp_size=4, pp_size=12)
    assert answer.feasible
    assert answer.latency_multiplier == pytest.approx(7.3, abs=0.05)
    assert not think("GPT4").feasible


def test_multiplier_tends_to_the_steps_without_a_prompt():
    assert think(context_length=1).latency_multiplier == pytest.approx(8, rel=0.005)
    assert think(reasoning_steps=1).latency_multiplier == pytest.approx(1)
    assert think(reasoning_steps=1).compute_multiplier == pytest.approx(1)


def test_best_of_n_runs_side_by_side():
    answer = think(strategy="best_of_n", reasoning_steps=16, context_length=2048)
    exact = math.fsum(itl(16, 2048 + i) for i in range(128))
    assert answer.total_reasoning_time.to("s").magnitude == pytest.approx(answer.ttft.to("s").magnitude + exact)
    assert (answer.parallel_sequences, answer.tokens_generated, answer.final_context) == (16, 2048, 2176)
    assert answer.latency_multiplier < 2
    assert answer.ttft == ServingModel().solve("Llama3_8B", "H100", 2048).ttft


def test_tree_search_is_wide_and_deep():
    answer = think(strategy="tree_search", reasoning_steps=10, branching=3, tokens_per_step=50, context_length=1000)
    exact = math.fsum(itl(3, 1000 + i) for i in range(500))
    assert answer.total_reasoning_time.to("s").magnitude == pytest.approx(answer.ttft.to("s").magnitude + exact)
    assert answer.tokens_generated == 10 * 3 * 50
    assert think(strategy="tree_search").assumptions["branching"] == "4"
    assert "branching" not in think().assumptions


def test_many_samples_may_not_fit():
    answer = think(strategy="best_of_n", reasoning_steps=1000, context_length=4096)
    assert not answer.feasible
    assert answer.binding.wall == 2
    assert answer.total_reasoning_time.magnitude > 0


def test_energy_is_the_paper_form():
    answer = think(context_length=2048)
    time = answer.total_reasoning_time.to("s").magnitude
    energy = 700 * (0.3 + 0.7 * answer.mfu) * time
    assert answer.energy_per_query.to("J").magnitude == pytest.approx(energy)
    operations = 2 * 8.03e9 * (2048 + 1024)
    attention = 512 * 32 * 32 * (2048 * 2049 / 2 + sum(2048 + i for i in range(1024)))
    assert answer.mfu == pytest.approx((operations + attention) / (time * 989e12), rel=1e-3)


def test_queries_share_the_accelerator():
    one, eight = think(), think(batch_size=8)
    assert eight.energy_per_query < one.energy_per_query / 4
    assert eight.cost_per_query_usd < one.cost_per_query_usd / 4
    assert eight.total_reasoning_time > one.total_reasoning_time


def test_cost_by_price_or_by_purchase():
    priced = think(price_per_accelerator_hour="3.60 USD/h")
    time = priced.total_reasoning_time.to("s").magnitude
    assert priced.cost_per_query_usd == pytest.approx(0.001 * time)
    assert think(price_per_accelerator_hour=3.6).cost_per_query_usd == pytest.approx(priced.cost_per_query_usd)
    bought = think()
    assert bought.cost_per_query_usd == pytest.approx(30_000 / (3 * 365 * 86_400) * time)
    assert "30,000 USD over 3 yr" in bought.assumptions["price_per_accelerator_hour"]
    longer = think(amortization_years=6)
    assert longer.cost_per_query_usd == pytest.approx(bought.cost_per_query_usd / 2)


def test_unknown_stays_unknown():
    chip = Hardware.get("H100").model_copy(update={"unit_cost": None, "tdp": None})
    answer = think(hardware=chip)
    assert answer.cost_per_query_usd is None and answer.energy_per_query is None
    assert "price_per_accelerator_hour" in answer.assumptions["cost"]


def test_load_gives_accelerators_and_annual_cost():
    answer = think("Llama3_70B", tp_size=4, queries_per_second=100, price_per_accelerator_hour="2 USD/h")
    replicas = math.ceil(100 * answer.total_reasoning_time.to("s").magnitude)
    assert answer.accelerators_needed == 4 * replicas
    assert answer.annual_cost_usd == pytest.approx(4 * replicas * 2 * 8760)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 500),
    st.integers(1, 20_000),
    st.sampled_from(["chain_of_thought", "best_of_n", "tree_search"]),
)
def test_more_thought_never_costs_less(steps, tokens, context, strategy):
    less = think(reasoning_steps=steps, tokens_per_step=tokens, context_length=context, strategy=strategy)
    more = think(reasoning_steps=steps + 1, tokens_per_step=tokens, context_length=context, strategy=strategy)
    assert more.total_reasoning_time >= less.total_reasoning_time * (1 - 1e-12)
    assert more.energy_per_query > less.energy_per_query
    assert more.tokens_generated > less.tokens_generated
    assert less.latency_multiplier >= 1 - 1e-12


def test_detail_and_explanation():
    answer = think(tp_size=2)
    assert answer.serving_detail.itl.magnitude == pytest.approx(answer.itl.magnitude)
    assert answer.to_dict()["serving_detail"]["devices"] == 2
    assert "TTFT + d t ITL" in answer.explain()
    assert answer.energy_per_query > Q_("1 J")


def test_sentences():
    with pytest.raises(InputError, match=r"'reasoning_steps'.*at least 1"):
        think(reasoning_steps=0)
    with pytest.raises(UnknownNameError, match="tree_search"):
        think(strategy="tree_serch")
    with pytest.raises(InputError, match="does not write token after token"):
        think("ResNet50")
