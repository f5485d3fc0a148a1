"""Wall 4: known answers, limits, signs, sentences."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.phases import speculative_tokens, sum_over_steps
from mlsysim.errors import InputError, UnitError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.units.registry import Q_
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.walls.node.serving import ServingModel

H100 = Hardware.get("H100")
LLAMA = Models.get("Llama3_70B")


def serve(model="Llama3_70B", hardware="H100", seq_len=512, **given):
    return ServingModel().solve(model, hardware, seq_len, **given)


def ms(value):
    return value.to("ms").magnitude


def faster(chip, **scale):
    """A chip with some rates multiplied."""
    memory = chip.memory.model_copy(update={"bandwidth": chip.memory.bandwidth * scale.get("bandwidth", 1)})
    compute = chip.compute.model_copy(
        update={
            "peak_flops": chip.compute.peak_flops * scale.get("peak", 1),
            "precision_flops": {k: v * scale.get("peak", 1) for k, v in chip.compute.precision_flops.items()},
        }
    )
    rates = ("bandwidth_total", "bandwidth_per_direction")
    link = chip.link.model_copy(update={name: getattr(chip.link, name) * scale.get("link", 1) for name in rates})
    return chip.model_copy(update={"memory": memory, "compute": compute, "link": link})


# --- the paper's numbers --------------------------------------------------------------------------------------


def test_the_papers_70b_on_two_h100():
    # 2 x 70e9 x 512 / (2 x 989e12 x 0.5) = 72.48 ms; 140e9 / (2 x 3.35e12) = 20.90 ms; (512 / 72.48) / (1 / 20.90) = 147.6.
    model = TransformerWorkload(name="70B", parameters=70e9, layers=80)
    answer = serve(model, tp_size=2)
    assert ms(answer.prefill_compute) == pytest.approx(72.478, abs=1e-3)
    assert ms(answer.decode_weights) == pytest.approx(20.896, abs=1e-3)
    assert ms(answer.ttft) == pytest.approx(72.478 + 0.01, abs=1e-3)
    assert ms(answer.itl) == pytest.approx(20.896 + 0.01, abs=1e-3)
    gap = 512 / answer.prefill_compute.to("s").magnitude * answer.decode_weights.to("s").magnitude
    assert round(gap) == 148
    assert (answer.prefill_bottleneck, answer.decode_bottleneck) == ("Compute", "Memory")
    assert "states no hidden_dim" in answer.assumptions["communication"]


def test_llama_on_two_h100_term_by_term():
    answer = serve(tp_size=2)
    weights = 70.6e9 * 2 / 2 / 3.35e12
    cache = 2 * 80 * 8 * 128 * 512 * 2 / 2 / 3.35e12
    reduction = 2 * (1 / 2) * 8192 * 2 / 450e9 + 2 * 0.5e-6
    assert answer.decode_weights.to("s").magnitude == pytest.approx(weights)
    assert answer.decode_memory.to("s").magnitude == pytest.approx(weights + cache)
    assert answer.decode_communication.to("s").magnitude == pytest.approx(160 * reduction)
    assert answer.itl.to("s").magnitude == pytest.approx(weights + cache + 160 * reduction + 1e-5)
    assert 20.9 < ms(answer.itl) < 21.3
    # Attention adds 0.5 % to 2 P S: 2 (128 + 128) x 64 heads x 80 layers for each of S (S + 1) / 2 pairs.
    operations = 2 * 70.6e9 * 512 + 512 * 64 * 80 * 512 * 513 / 2
    assert answer.prefill_compute.to("s").magnitude == pytest.approx(operations / (2 * 989e12 * 0.5))


def test_one_device_gets_times_and_what_is_missing():
    answer = serve(seq_len=512)
    assert not answer.feasible
    assert answer.binding.wall == 2
    assert "55.47 GB are missing" in answer.binding.sentence
    assert any("tp_size=2" in remedy for remedy in answer.remedies)
    assert ms(answer.ttft) > 140 and ms(answer.itl) > 42
    assert answer.memory_missing.to("GB").magnitude == pytest.approx(141.2 + 0.168 - 85.9, abs=0.1)


def test_the_math_pages_70b_does_not_fit_80_gb():
    # 140 GB of weights, not 35; with a batch of 32 at 4,096 tokens 43 GB of cache come on top: three devices or more.
    answer = serve(seq_len=4096, batch_size=32)
    assert answer.kv_cache_size.to("GB").magnitude == pytest.approx(42.9, abs=0.1)
    assert not answer.feasible
    assert serve(seq_len=4096, batch_size=32, tp_size=4).feasible


def test_the_papers_50_ms_target_needs_more_than_two_devices():
    assert ms(serve(tp_size=2).ttft) > 50 > ms(serve(tp_size=4).ttft)


# --- batches, caches, splits ----------------------------------------------------------------------------------


def test_decode_becomes_compute_bound_at_large_batches():
    assert serve("Llama3_8B", seq_len=1, batch_size=1).decode_bottleneck == "Memory"
    assert serve("Llama3_8B", seq_len=1, batch_size=1024).decode_bottleneck == "Compute"


def test_itl_with_output_is_the_mean_over_the_answer():
    whole = serve("Llama3_8B", seq_len=1000, output_len=500, batch_size=8)
    each = [serve("Llama3_8B", seq_len=1000 + i, batch_size=8).itl.to("s").magnitude for i in range(0, 500)]
    assert whole.itl.to("s").magnitude == pytest.approx(sum(each) / 500, rel=1e-12)
    ends = whole.ttft.to("s").magnitude + 499 * whole.itl.to("s").magnitude
    assert whole.request_latency.to("s").magnitude == pytest.approx(ends)


def test_sums_over_kinks_are_exact():
    def time(context):
        return max(3.0, 0.01 * min(context, 777), 0.002 * context + 1)

    exact = math.fsum(time(5 + i) for i in range(4321))

    def total(first, steps, stride=1):
        return sum_over_steps(lambda *_: time, None, None, first, steps, stride)

    assert total(5, 4321) == pytest.approx(exact, rel=1e-12)
    assert total(5, 100, 16) == pytest.approx(math.fsum(time(5 + 16 * i) for i in range(100)), rel=1e-12)
    assert total(5, 0) == 0
    assert total(5, 1) == 3


def test_caches_are_not_split_beyond_the_key_value_heads():
    eight, sixteen = serve(seq_len=8192, tp_size=8), serve(seq_len=8192, tp_size=16)
    one_head = LLAMA.get_kv_cache_size(8192).to("byte").magnitude / 8
    for answer, devices in ((eight, 8), (sixteen, 16)):
        held = answer.memory_per_device.to("byte").magnitude - 141.2e9 / devices
        assert held == pytest.approx(one_head)
    assert "400 Gbps" in sixteen.assumptions["fabric"]


def test_latent_caches_are_held_whole():
    one = serve("DeepSeek_V3", "H200", 4096, precision="fp8")
    eight = serve("DeepSeek_V3", "H200", 4096, precision="fp8", tp_size=8)
    cache = one.kv_cache_size.to("byte").magnitude
    weights = eight.model_weights_size.to("byte").magnitude / 8
    assert eight.memory_per_device.to("byte").magnitude - weights == pytest.approx(cache, rel=1e-6)


def test_windows_bound_the_cache():
    model = Models.get("Llama3_8B").model_copy(update={"window": 1024})
    long, longer = serve(model, seq_len=50_000), serve(model, seq_len=60_000)
    assert long.itl == longer.itl


def test_pipelines_divide_memory_and_not_latency():
    one, four = serve(seq_len=512), serve(seq_len=512, pp_size=4)
    # A stage has a quarter of the layers and of their caches; the first and the last one of the two tables of tokens beside them.
    table = 128_256 * 8_192 * 2 / 1e9
    whole = one.memory_per_device.to("GB").magnitude
    assert four.memory_per_device.to("GB").magnitude == pytest.approx((whole - 2 * table) / 4 + table)
    assert four.itl > one.itl
    assert four.itl.to("s").magnitude == pytest.approx(one.itl.to("s").magnitude, rel=0.001)
    assert four.ttft.to("s").magnitude == pytest.approx(one.ttft.to("s").magnitude, rel=0.001)


def test_stages_take_turns_on_a_batch():
    # Four groups of one: each waits for all stages, so four tokens come in the time of one.
    one, four = serve(pp_size=4), serve(pp_size=4, batch_size=4)
    assert four.itl == one.itl
    assert four.throughput_tokens_per_sec.magnitude == pytest.approx(4 * one.throughput_tokens_per_sec.magnitude)
    # The last of four prompts leaves three stages later.
    assert four.ttft.to("s").magnitude == pytest.approx(one.ttft.to("s").magnitude * 7 / 4)


def test_uneven_stages_are_paced_by_the_longest():
    one, whole = serve(pp_size=16, batch_size=1), serve(pp_size=16, batch_size=16)
    assert whole.itl == one.itl  # 80 layers divide by 16
    odd = serve(pp_size=12, batch_size=12)
    assert odd.itl.to("s").magnitude == pytest.approx(serve(pp_size=12).itl.to("s").magnitude * 12 * 7 / 80)


def test_a_mixture_reads_the_experts_it_hits():
    model = Models.get("Mixtral_8x7B")
    one, many = serve(model, "H200", 128), serve(model, "H200", 128, batch_size=64)
    active = model.active_parameter_count * 2 / 4.8e12
    assert one.decode_weights.to("s").magnitude == pytest.approx(active, rel=0.01)
    assert many.decode_weights.to("s").magnitude == pytest.approx(model.parameter_count * 2 / 4.8e12, rel=0.01)


def test_expert_parallelism_divides_experts_and_exchanges_tokens():
    model = Models.get("Mixtral_8x7B")
    one, eight = serve(model, seq_len=128, batch_size=64), serve(model, seq_len=128, batch_size=64, ep_size=8)
    assert eight.devices == 8 and eight.memory_per_device < one.memory_per_device / 5
    assert eight.itl < one.itl
    # 8 tokens on a device, 2 experts each: there and back in 32 layers.
    each = 7 / 8 * 8 * 2 * 4096 * 2 / 450e9 + 0.5e-6
    assert eight.decode_communication.to("s").magnitude == pytest.approx(2 * 32 * each)


def test_replicas_multiply_throughput_only():
    one, ten = serve(tp_size=2), serve(tp_size=2, num_replicas=10)
    assert ten.throughput_tokens_per_sec.magnitude == pytest.approx(10 * one.throughput_tokens_per_sec.magnitude)
    assert (ten.itl, ten.devices) == (one.itl, 20)


def test_cache_precision_and_largest_batch():
    plain, small = (serve("Llama3_8B", seq_len=4096, cache_precision=p) for p in ("fp16", "fp8"))
    assert small.kv_cache_size == plain.kv_cache_size / 2
    assert plain.max_batch_size == math.floor((85.899e9 - 8.03e9 * 2) / (131072 * 4096))
    assert serve("Llama3_8B", seq_len=4096, batch_size=plain.max_batch_size).feasible
    full = serve("Llama3_8B", seq_len=4096, batch_size=plain.max_batch_size + 1)
    assert not full.feasible
    assert full.remedies[0] == f"serve {plain.max_batch_size} sequences at once instead of {plain.max_batch_size + 1}"


# --- prefix caching, chunks, drafts, disaggregation -----------------------------------------------------------


def test_prefix_caching_skips_prefill_but_attends():
    cold, warm = serve(seq_len=4096, tp_size=4), serve(seq_len=4096, tp_size=4, cached_prefix_len=3072)
    assert warm.prompt_cache_hit_ratio == 0.75
    assert ms(cold.ttft) / 4 < ms(warm.ttft) < ms(cold.ttft) / 3
    assert warm.itl == cold.itl
    wholly = serve(seq_len=4096, tp_size=4, cached_prefix_len=4096)
    assert "last token" in wholly.assumptions["prefill"]
    assert ms(wholly.ttft) < 15


def test_chunked_prefill_bounds_the_stall():
    whole, chunked = serve(seq_len=4096, tp_size=4), serve(seq_len=4096, tp_size=4, prefill_chunk_tokens=500)
    assert (whole.prefill_chunks, chunked.prefill_chunks) == (1, 9)
    assert whole.decode_stall_bound == whole.ttft
    assert chunked.decode_stall_bound == chunked.prefill_chunk_time < whole.ttft / 7
    assert chunked.ttft > whole.ttft
    # The same work: 2 P S and the same causal pairs.
    assert chunked.prefill_compute.to("s").magnitude == pytest.approx(whole.prefill_compute.to("s").magnitude)


def test_speculative_tokens():
    assert speculative_tokens(0.7, 4) == pytest.approx(1 + 0.7 + 0.49 + 0.343 + 0.2401)
    assert speculative_tokens(0.0, 4) == 1
    assert speculative_tokens(1.0, 4) == 5


def test_speculative_decoding_counts_draft_time_and_memory():
    plain = serve(seq_len=2048, tp_size=4)
    draft = serve(seq_len=2048, tp_size=4, draft_model="Llama3_8B")
    eight = serve("Llama3_8B", seq_len=2048, tp_size=4)
    assert draft.draft_time.to("s").magnitude == pytest.approx(4 * eight.itl.to("s").magnitude)
    cycle = draft.draft_time + draft.decode_memory + draft.decode_communication + Q_("0.01 ms")
    assert draft.itl.to("s").magnitude == pytest.approx(cycle.to("s").magnitude / draft.tokens_per_cycle)
    assert draft.itl < plain.itl
    extra = draft.total_memory_required - plain.total_memory_required
    assert extra.to("GB").magnitude == pytest.approx(8.03 * 2 + 0.268, abs=0.01)
    assert draft.memory_per_device > plain.memory_per_device
    assert {"num_speculative_tokens", "draft_acceptance_rate"} <= set(draft.assumptions)
    assert "draft_acceptance_rate" not in plain.assumptions


def test_speculation_does_not_pay_when_compute_binds():
    plain = serve("Llama3_70B", seq_len=128, tp_size=8, batch_size=1024)
    draft = serve("Llama3_70B", seq_len=128, tp_size=8, batch_size=1024, draft_model="Llama3_8B")
    assert plain.decode_bottleneck == "Compute" or draft.decode_bottleneck == "Compute"
    assert draft.itl > plain.itl


def test_rejected_drafts_only_cost_time():
    plain, never = serve(tp_size=4), serve(tp_size=4, draft_model="Llama3_8B", draft_acceptance_rate=0)
    assert never.itl > plain.itl


def test_disaggregation_moves_the_cache():
    answer = serve(seq_len=4096, tp_size=4, decode_hardware="H200", network_bandwidth="100 GB/s")
    together = serve(seq_len=4096, tp_size=4)
    cache = LLAMA.get_kv_cache_size(4096).to("byte").magnitude
    moved = cache / 100e9 + 5e-6  # and the start of a message
    assert answer.kv_transfer_time.to("s").magnitude == pytest.approx(moved)
    assert answer.ttft.to("s").magnitude == pytest.approx(together.ttft.to("s").magnitude + moved)
    assert answer.itl < together.itl
    assert answer.decode_stall_bound.magnitude == 0
    assert answer.devices == 8
    assumed = serve(seq_len=4096, tp_size=4, decode_hardware="H200").assumptions["network_bandwidth"]
    assert assumed.startswith("400 Gbps")


# --- signs and limits -----------------------------------------------------------------------------------------

SETTINGS = settings(max_examples=40, deadline=None)


@SETTINGS
@given(
    batch=st.integers(1, 300),
    length=st.integers(1, 40_000),
    tp=st.sampled_from([1, 2, 4, 8]),
    name=st.sampled_from(["bandwidth", "peak", "link"]),
    factor=st.floats(1.0, 100.0),
)
def test_more_of_anything_is_never_slower(batch, length, tp, name, factor):
    base = serve(seq_len=length, batch_size=batch, tp_size=tp)
    better = serve(seq_len=length, batch_size=batch, tp_size=tp, hardware=faster(H100, **{name: factor}))
    assert better.ttft <= base.ttft * (1 + 1e-12)
    assert better.itl <= base.itl * (1 + 1e-12)


@SETTINGS
@given(batch=st.integers(1, 200), length=st.integers(1, 20_000), more=st.integers(1, 5000))
def test_more_work_is_never_faster(batch, length, more):
    base = serve("Llama3_8B", seq_len=length, batch_size=batch)
    assert serve("Llama3_8B", seq_len=length + more, batch_size=batch).itl >= base.itl
    assert serve("Llama3_8B", seq_len=length + more, batch_size=batch).ttft >= base.ttft
    assert serve("Llama3_8B", seq_len=length, batch_size=batch + more).itl >= base.itl


def test_infinite_bandwidth_leaves_compute_and_dispatch():
    answer = serve("Llama3_8B", hardware=faster(H100, bandwidth=1e12))
    assert answer.itl.to("s").magnitude == pytest.approx(answer.decode_compute.to("s").magnitude + 1e-5)


def test_throughput_saturates_with_the_batch():
    rates = [serve("Llama3_8B", seq_len=2048, batch_size=b).throughput_tokens_per_sec.magnitude for b in (1, 64, 4096)]
    assert rates[0] < rates[1] < rates[2]
    # Caches alone: 131,072 bytes x 2,048 tokens for each token written.
    assert rates[2] < 3.35e12 / (131072 * 2048)


# --- sentences ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "error", "text"),
    [
        ({"tp_size": 3}, InputError, "tp_size=3 does not divide the 64 attention heads"),
        ({"tp_size": 3}, InputError, "the nearest that do are 2 and 4"),
        ({"pp_size": 81}, InputError, "leaves stages of Llama-3.1-70B without any of its 80 layers"),
        ({"ep_size": 2}, InputError, "splits experts, and Llama-3.1-70B has none"),
        ({"cached_prefix_len": 513}, InputError, "exceeds the prompt of 512 tokens"),
        ({"batch_size": 0}, InputError, "must be a whole number of at least 1"),
        ({"draft_acceptance_rate": 1.2}, InputError, "at most 1"),
        ({"network_bandwidth": "5 GB", "decode_hardware": "H200"}, UnitError, "network_bandwidth"),
        ({"precision": "fp17"}, UnknownNameError, "fp17"),
        ({"batch_sise": 3}, UnknownNameError, "batch_size"),
        ({"seq_len": 100_001, "prefill_chunk_tokens": 1}, InputError, "use at least 11"),
    ],
)
def test_sentences(given_, error, text):
    with pytest.raises(error) as caught:
        serve(**given_)
    assert text in str(caught.value)


def test_only_decoders_are_served():
    for name in ("ResNet50", "BERT_Base"):
        with pytest.raises(InputError, match="write token after token"):
            serve(name)


def test_expert_degrees():
    with pytest.raises(InputError, match="ep_size=3 does not divide the 8 experts"):
        serve("Mixtral_8x7B", ep_size=3)


def test_a_chip_without_a_link_uses_the_host_link_and_says_so():
    answer = serve("Llama3_8B", "L4", tp_size=2)
    assert "PCIe" in answer.assumptions["link"]
    lonely = Hardware.get("L4").model_copy(update={"interconnect": None})
    with pytest.raises(InputError, match="no link to other chips"):
        serve("Llama3_8B", lonely, tp_size=2)


def test_explanation_and_json():
    answer = serve(tp_size=2, output_len=64)
    assert "TTFT = max(T_compute, T_memory)" in answer.explain()
    assert "NaN" not in answer.to_json()
    draft = serve(tp_size=2, draft_model="Llama3_8B")
    assert "T_verify" in draft.explain() and r"\frac" in draft.explain("latex")


@pytest.mark.parametrize("chip", ["H100", "A100"])
def test_scores_are_at_the_peak_of_16_bits(chip):
    """Serving a prompt in fp8 at first order computes what a pass of one device in fp8 computes (A100 has no fp8 and one peak)."""
    asked = {"precision": "fp8", "efficiency": 0.5, "batch_size": 1, "seq_len": 32768}
    served = ServingModel().solve("Llama3_8B", chip, **asked)
    alone = SingleNodeModel().solve("Llama3_8B", chip, phase="prefill", **asked)
    assert served.prefill_compute.to("s").magnitude == pytest.approx(alone.latency_compute.to("s").magnitude)
    wide = ServingModel().solve("Llama3_8B", chip, **{**asked, "precision": "bf16"})
    ratio = (wide.prefill_compute / served.prefill_compute).to("").magnitude
    assert 1 < ratio < 1.9 if chip == "H100" else ratio == pytest.approx(1)
