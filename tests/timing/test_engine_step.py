"""Steps of serving engines: limits, signs, and the effects that decide them."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlsysim.cases.algebra import ledger_of
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.passes import Pass, Sharding
from mlsysim.models.registry import Models
from mlsysim.models.template import Core
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import ENGINES, architecture, engine, engine_names
from mlsysim.timing.power import Clock
from mlsysim.timing.profile import profile
from mlsysim.timing.stacks import stack


def step_of(model: str = "Llama3_70B", chip: str = "H100", name: str = "vLLM", **options: object) -> EngineStep:
    options = {"precision": "fp8", "cache_precision": "fp8", "tp": 4} | options
    return engine_step(Models.get(model), Hardware.get(chip), engine(name), **options)  # type: ignore[arg-type]


def test_every_engine_reads_and_has_a_source():
    assert tuple(sorted(ENGINES)) == tuple(sorted(engine_names()))
    for name in ENGINES:
        assert engine(name).source
        assert 2023 < engine(name).year < 2030


def test_an_unknown_engine_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="serving engine"):
        engine("vLLN")


def test_aliases():
    assert engine("trtllm") == engine("TensorRT_LLM")
    assert engine("llama.cpp").name == "llama_cpp"


def test_a_step_is_never_faster_than_its_weights():
    step = step_of()
    floor = step.device_weights / (3.35e12)
    assert step.time(1, 100).total > floor


def test_a_step_is_more_than_its_attention_and_experts():
    step = step_of("DeepSeek_R1", "B200", "TensorRT_LLM", tp=1, attention_dp=8, moe_tp=1, moe_ep=8)
    t = step.time(16, 2000)
    assert 0 < t.attention + t.experts < t.device < t.total
    assert t.total - t.device == pytest.approx(step.factors[1] * (step.engine.step + 16 * step.engine.per_sequence))


def test_tokens_that_are_drafted_cost_the_host_time_where_nothing_is_scheduled_ahead():
    step = step_of("DeepSeek_R1", "B200", "SGLang", tp=8)
    t, runner = step.time(64, 2000, drafted=2), step.engine
    own = runner.step + 64 * (runner.per_sequence + 2 * runner.drafted_token)
    assert t.total - t.device == pytest.approx(step.factors[1] * own)


def test_a_step_of_plain_numbers_is_timed_once_at_each_clock():
    step = step_of()
    assert step.time(8, 1000) is step.time(8.0, 1000.0)
    slow = step.at((Clock(0.7, 1.5, 1.2), Clock(0.7, 1.5, 1.2)))
    assert slow.time(8, 1000).total > step.time(8, 1000).total
    assert step.time(8, 1000, tag=lambda *line, **amounts: line[-1]) == step.time(8, 1000)


@given(st.integers(1, 400), st.integers(1, 30000))
def test_more_sequences_and_longer_contexts_never_take_less(sequences, context):
    step = step_of()
    base = step.time(sequences, context).total
    assert step.time(sequences + 1, context).total >= base
    assert step.time(sequences, context + 100).total >= base


_DEPLOYED = {
    "dense": ("Llama3_70B", "H100", "vLLM", {"tp": 4}),
    "experts": ("GPT_OSS_120B", "H100", "vLLM", {"tp": 2}),
    "ranks": ("DeepSeek_R1", "H200", "SGLang", {"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}),
}


@given(
    st.sampled_from(sorted(_DEPLOYED)),
    *(st.floats(0.5, 2.0) for _ in range(3)),
    *(st.integers(0, 300) for _ in range(2)),
    st.integers(1, 8),
    st.integers(1, 4000),
    st.integers(1, 4000),
)
@example("dense", 1.3, 0.8, 2.0, 0, 100, 1, 64, 64)
@example("experts", 0.7, 1.2, 0.6, 100, 0, 1, 1, 4000)
def test_a_step_is_never_shorter_with_more_of_either_kind(
    name, of_prompts, of_answers, launches, n, more, prompts, tokens, further
):
    """Whatever was measured of the model: answers beside prompts, or longer prompts beside answers, never shorten a step."""
    model, chip, engine, layout = _DEPLOYED[name]
    step = copy(step_of(model, chip, engine, **layout))
    step.factors = of_prompts, of_answers, launches

    def taken(sequences: float, read: float) -> float:
        return step.time(sequences, 2000.0, float(prompts), read, tag=lambda *line, **amounts: line[-1]).total

    base = taken(float(n), float(tokens))
    assert taken(float(n + more), float(tokens)) >= base * (1 - 1e-9)
    assert taken(float(n), float(tokens + further)) >= base * (1 - 1e-9)


def test_factors_of_a_model_are_of_time_and_not_of_work():
    """Kernels that take longer compute and move as much as before."""
    step, found = copy(step_of()), []
    for factors in ((1.0, 1.0, 1.0), (1.4, 0.8, 2.0), (0.8, 1.4, 0.5)):
        step.factors = factors
        ledger = ledger_of(lambda a: step.time(32.0, 1000.0, 1.0, 512.0, tag=a.tag).total)
        found.append((sum(part.flop for part in ledger.parts), sum(part.moved for part in ledger.parts)))
    assert found[1:] == [pytest.approx(found[0])] * 2


def test_what_a_model_launches_binds_its_short_prompts_alone():
    """A factor of launches is no factor of products: prompts of thousands of tokens take what their kernels take."""
    step = copy(step_of())
    prompts, answers, launches = step.factors

    def slower(tokens: float) -> float:
        found = []
        for factor in (launches, 2 * launches):
            step.factors = (prompts, answers, factor)
            work = {"sequences": 0.0, "context": 0.0, "prompts": 1.0, "prompt_tokens": tokens}
            found.append(step.time(**work, tag=lambda *line, **amounts: line[-1]).total)
        return found[1] / found[0]

    assert slower(32.0) > 1.5 > 1.1 > slower(16384.0) >= 1.0


def test_ranks_of_a_host_gather_their_prompts_and_sum_them_again():
    """SGLang's attention ranks on one host: two all-reduces of the tokens of all for each layer of experts; one beside answers alone."""
    layout = {"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}
    step = step_of("DeepSeek_R1", "B200", "SGLang", **layout)
    once = step.network.all_reduce(8 * 4096.0 * step.hidden * step.element, step.network.group(8))
    for prompted, times in ((True, 2), (False, 1)):
        _, exchanged = step._communication(4096.0, 8 * 4096.0, prompted, lambda *line, **amounts: line[-1])
        assert exchanged == pytest.approx(step.blocks.routed * times * once)
    wide = step_of("DeepSeek_R1", "B200", "SGLang", tp=1, attention_dp=32, moe_tp=1, moe_ep=32)
    assert wide.deployment.moe_ep > wide.network.hosted


def test_only_the_experts_hit_are_read():
    step = step_of("DeepSeek_R1", "H200", "SGLang", tp=8, moe_tp=8)
    one, many = step.time(1, 1000).experts, step.time(512, 1000).experts
    assert one < many / 5


def test_experts_count_the_tokens_of_all_attention_ranks():
    alone = step_of("DeepSeek_R1", "B200", "SGLang", tp=8, moe_tp=1, moe_ep=8)
    ranks = step_of("DeepSeek_R1", "B200", "SGLang", tp=1, attention_dp=8, moe_tp=1, moe_ep=8)
    assert ranks.time(4, 1000).experts == pytest.approx(alone.time(32, 1000).experts)


def test_a_latent_cache_is_not_split_by_tensors():
    narrow = step_of("DeepSeek_R1", "H200", "SGLang", tp=1, moe_tp=1)
    wide = step_of("DeepSeek_R1", "H200", "SGLang", tp=8, moe_tp=8)
    assert narrow.sequence_bytes(1000) == pytest.approx(wide.sequence_bytes(1000))
    dense = step_of(tp=1), step_of(tp=4)
    assert dense[0].sequence_bytes(1000) == pytest.approx(4 * dense[1].sequence_bytes(1000))


def test_a_prompt_step_waits_for_the_host():
    step = step_of("DeepSeek_R1", "B200", "SGLang", tp=8, moe_tp=8)
    short, shorter = step.time(0, 0, 1, 64), step.time(0, 0, 1, 16)
    assert short.total > short.device
    # The longer of the device's and the host's time has a soft corner.
    assert shorter.total < short.total < 1.001 * shorter.total


def test_operators_of_transformers_are_started_as_slowly_as_in_its_training_steps():
    starts = profile(Hardware.get("H200")).memory_bound.times[2]
    assert engine("Hugging Face").answer_operator == stack("transformers").host * starts
    small, large = (
        step_of(name, "H200", "transformers", tp=1).time(1.0, 1000.0) for name in ("Llama3_2_1B", "Llama3_8B")
    )
    assert large.total / small.total == pytest.approx(2.0, rel=0.03)  # 32 layers and 16: the host takes all of it


def test_steps_without_graphs_are_launched_by_the_host():
    """They take longer, those of few sequences most; of many, what the device takes; never less than the launches."""
    pairs = [(step_of(name=name), step_of(name=f"{name}_eager")) for name in ("vLLM", "SGLang")]
    for captured, eager in pairs:
        longer = [eager.time(n, 2000.0).total / captured.time(n, 2000.0).total for n in (1.0, 16.0, 256.0, 4096.0)]
        assert longer == sorted(longer, reverse=True) and longer[0] > 2 and 1 < longer[-1] < 1.05
        assert eager.time(1.0, 1.0).total > eager.launched(0.0, 0.0) * engine("torch_loop").host_operator
        assert eager.time(4.0, 900.0).device == captured.time(4.0, 900.0).device
    vllm, sglang = pairs
    # What vLLM compiles for prompts it does not compile so; SGLang's are eager as they are.
    assert vllm[1].time(0, 0, 1, 64).total > vllm[0].time(0, 0, 1, 64).total
    assert sglang[1].time(0, 0, 1, 64) == sglang[0].time(0, 0, 1, 64)


def test_what_others_saw_of_steps_without_graphs_is_in_the_interval():
    """Milliseconds a token of one request; see the entries of the engines."""
    for model, chip, name, seen in (
        ("Llama3_8B", "H100", "SGLang_eager", 9.28),
        ("Llama3_8B", "H100", "SGLang_eager", 8.23),
        ("GPT2", "H200", "SGLang_eager", 1e3 / 205.1),
        ("GPT2", "H200", "vLLM_eager", 1e3 / 207.7),
    ):
        step = step_of(model, chip, name, precision="bf16", cache_precision="bf16", tp=1)
        assert 1 / 1.35 < 1e3 * step.time(1.0, 130.0).total / seen < 1.35


def test_short_prompts_pick_no_keys():
    """An indexer's queries and scores are launched where a prompt has more keys than it picks; then queries attend to the latent, 1,088 wide for 512."""
    step = step_of("GLM_5", "H200", "SGLang", tp=8, moe_tp=8)
    layers, keys = step.stack.layers, 2048
    assert step.launched(1.0, 0.0, keys + 1) - step.launched(1.0, 0.0, keys) == 14 * layers
    assert step.launched(1.0, 0.0) == step.launched(1.0, 0.0, keys + 1)
    short, long = (step.time(0.0, 0.0, 1.0, 8.0, before).total for before in (keys - 8.0, keys - 7.0))
    assert long - short > 0.9 * 14 * layers * step.engine.host_operator * step.factors[2]
    core = next(kind for _, kind in step.blocks.mixing["prompt"] if isinstance(kind, Core) and kind.picked)
    seen, more = (
        core.operators(Pass.of("prefill", 1, n, 0, "fp8", Sharding()), None)[-1].flops for n in (keys, 2 * keys)
    )
    assert seen == pytest.approx(2 * core.heads * keys**2 / 2 * (core.qk + core.v), rel=1e-3)
    assert more == pytest.approx(2 * core.heads * 1.5 * keys**2 * (2 * 512 + 64), rel=1e-3)


def test_heads_of_picked_keys_fill_a_tile():
    """Eight heads of a device are computed as 64 on Hopper, and as 128 of prompts on Blackwell; 64 as they are on Hopper. vLLM picks keys of short prompts too."""
    for chip, tp, fewer in (("H200", 8, 8.0), ("B200", 8, 16.0), ("H200", 1, 1.0), ("B200", 1, 2.0)):
        step = step_of("GLM_5", chip, "SGLang", tp=tp, moe_tp=tp)
        core = next(kind for _, kind in step.blocks.mixing["prompt"] if isinstance(kind, Core) and kind.picked)
        asked = [Pass.of("prefill", 1, n, 0, "fp8", Sharding(tp=tp)) for n in (2048, 2049)]
        assert [step._filled_tiles(core, p) for p in asked] == [1.0, fewer]
        own = next(kind for _, kind in step.blocks.mixing["decode"] if isinstance(kind, Core) and kind.picked)
        assert step._filled_tiles(own, Pass.of("decode", 1, 1, 9, "fp8", Sharding(tp=tp))) == tp
    own, other = (step_of("GLM_5", "H200", name, tp=8, moe_tp=8) for name in ("vLLM", "SGLang"))
    assert own.launched(1.0, 0.0, 100.0) == own.launched(1.0, 0.0) > other.launched(1.0, 0.0, 100.0)
    short, long = (own.prompts_attended(1.0, n, 0.0) for n in (2048.0, 2049.0))
    assert long == pytest.approx(short, rel=2e-3)


def test_an_indexer_of_answers_starts_kernels_of_its_own():
    """Twelve small ones one after another in a layer, beside products and the starts of both attentions."""
    step = step_of("GLM_5", "B200", "SGLang", tp=8, moe_tp=8)
    small, start = step.kernels.memory_bound.times[0], step.kernels.attention.times[1]
    starts = step.stack.layers * (12 * small + 2 * start) * step.factors[1]
    assert starts < step.answers_attended(1.0, 0.0) < 1.02 * starts
    dense = step_of("DeepSeek_R1", "B200", "SGLang", tp=8, moe_tp=8)
    starts = dense.stack.layers * start * dense.factors[1]
    assert starts < dense.answers_attended(1.0, 0.0) < 1.02 * starts


def test_sparse_attention_caps_the_context():
    step = step_of("GLM_5", "B200", "SGLang", tp=8, moe_tp=8)
    dense = step_of("DeepSeek_R1", "B200", "SGLang", tp=8, moe_tp=8)
    growth = step.time(64, 64000).attention / step.time(64, 4000).attention
    assert growth < dense.time(64, 64000).attention / dense.time(64, 4000).attention


def test_a_hybrid_reads_states_not_caches():
    step = step_of("Nemotron_Nano_9B_v2", "H100", "vLLM_2025", precision="bf16", cache_precision="bf16", tp=1)
    full = step_of("Qwen3_8B", "H100", "vLLM_2025", precision="bf16", cache_precision="bf16", tp=1)
    assert step.sequence_bytes(32000) < full.sequence_bytes(32000) / 5


def test_four_bit_mixtures_keep_wide_attention():
    four = step_of("DeepSeek_R1", "B200", "TensorRT_LLM", precision="nvfp4", tp=8, moe_tp=8)
    assert not any(p.narrow for p in four.blocks.products if p.k == 1536)
    dense = step_of("Llama3_70B", "B200", "TensorRT_LLM", precision="nvfp4")
    assert any(p.narrow for p in dense.blocks.products)


def test_experts_over_several_hosts_have_kernels_of_their_own():
    """A host of a rack has four chips, one with links of its own eight."""
    over = {"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}
    rack, node = (step_of("DeepSeek_R1", chip, "SGLang", **over) for chip in ("GB300", "B300"))
    assert rack.expert_constants == rack.kernels.experts["fp8_wide"]
    assert node.expert_constants == node.kernels.experts["fp8"]


def test_experts_that_attention_ranks_feed_have_the_kernels_of_their_recipes():
    """DeepGEMM, which reads its weights as fast and computes more slowly: prompts take longer, no other layout changes."""
    over = {"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}
    ranks = step_of("DeepSeek_R1", "B200", "TensorRT_LLM", **over)
    group = step_of("DeepSeek_R1", "B200", "TensorRT_LLM", tp=8, attention_dp=1, moe_tp=1, moe_ep=8)
    hopper = step_of("DeepSeek_R1", "H200", "TensorRT_LLM", **over)
    assert ranks.expert_constants == ranks.kernels.experts["fp8_ranks"]
    assert group.expert_constants == group.kernels.experts["fp8"]
    assert hopper.expert_constants == hopper.kernels.experts["fp8"]
    four = step_of("DeepSeek_R1", "B200", "TensorRT_LLM", precision="nvfp4", **over)
    assert four.expert_constants == four.kernels.experts["nvfp4"]


def test_experts_that_do_not_match_their_devices_are_refused():
    with pytest.raises(InputError, match="do not match"):
        step_of("DeepSeek_R1", "B200", "SGLang", tp=8, moe_tp=2, moe_ep=2)


def test_a_chip_without_serving_tables_takes_its_profile():
    found, chip = step_of("Llama3_8B", "MI300X", "vLLM"), Hardware.get("MI300X")
    assert found.family == "other"
    assert found.kernels.gemm == profile(chip).gemm


def test_weights_of_a_mixture_take_what_their_format_says():
    """Plain four bits are of every weight; experts alone have those of gpt-oss, and mixers stay where a checkpoint computes in four."""
    model = Models.get("Qwen3_30B_A3B")

    def held(precision: str, chip: str = "B200") -> float:
        return step_of("Qwen3_30B_A3B", chip, precision=precision, tp=1).device_weights

    # Head, embeddings and the router are in 16 bits.
    tables = 2 * model.vocab_size * model.hidden_dim
    assert held("int4") == pytest.approx(0.5 * (model.parameter_count - tables) + 2 * tables, rel=3e-3)
    assert held("int4") < held("awq") < held("nvfp4") and held("int4") < held("mxfp4")


def test_what_is_known_of_a_model_is_of_its_format_or_else_of_the_model():
    """A checkpoint in FP8 with scales by block is what published runs call FP8; in 16 bits a model that ran in 8 is not measured, and has the model's factors."""
    own, model = engine("SGLang"), Models.get("DeepSeek_V3")
    assert own.measured(model, "fp8_block") and own.seen(model, "fp8_block") == own.seen(model, "fp8")
    assert not own.measured(model, "bf16")
    assert own.seen(model, "bf16").name == architecture(model) != own.seen(model, "fp8").name
    assert own.seen(Models.get("Mistral_7B"), "bf16") is None
