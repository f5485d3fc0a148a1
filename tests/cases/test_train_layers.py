"""The calibrated training step: known answers, limits, signs, arrays, and its place in DistributedModel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.cases.algebra import PLAIN, ledger_of
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.train import Step
from mlsysim.cases.train_layers import calibrated
from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.recompute import again
from mlsysim.models.registry import Models
from mlsysim.models.training_shape import training_regime, training_shape
from mlsysim.physics.collectives import distinct_domains, ring_time
from mlsysim.physics.operators import overlapped
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.systems.registry import Clusters
from mlsysim.timing.stacks import nearest_stack, recipe, stack, stack_names, stack_of_source
from mlsysim.timing.training_chip import chip_in_fleet, constants, training_chip
from mlsysim.walls.fleet.communication import DistributedModel

H100 = training_chip(Hardware.get("H100"), "bf16")
LLAMA, QWEN = Models.get("Llama3_70B"), Models.get("Qwen3_30B_A3B")
LAYOUT = {"tp": 8, "pp": 4, "dp": 8, "cp": 1, "ep": 1, "micro_batches": 16}


def split(**degrees) -> Layout:
    """A layout of micro-batches of one sequence."""
    found = {**LAYOUT, **degrees}
    return Layout(local_batch=found["micro_batches"], **found)


def step(model=LLAMA, chip=H100, software="bridge", a=PLAIN, layout=None, mode="none", **job) -> Step:
    hides = 1 - stack(software).kappa
    overlap = Overlap(
        tensor=1 - stack(software).tensor_exposed,
        expert=1 - stack(software).exchange_exposed,
        context=hides,
        pipeline=1.0,
        data=hides,
        data_room=hides,
        gathers=hides,
    )
    settled = Job(
        **{"model": model, "precision": "bf16", "seq_len": 4096, "zero": 1, "overlap": overlap, "recompute": mode} | job
    )
    layout = layout or split()
    return calibrated(settled, layout, training_shape(model), chip, stack(software), constants(), a=a)


def seconds(**changes) -> float:
    return step(**changes).seconds


def test_ring_of_one_takes_no_time_and_a_ring_across_nodes_has_an_adapter_for_each_rank_in_a_node():
    assert ring_time(1e9, 1, 1, 3e11, 4e10, 2e-5, 6e-6) == 0
    assert ring_time(8e9, 8, 8, 4e11, 4e10, 0, 0) == pytest.approx(7 / 8 * 8e9 / 4e11)
    one = ring_time(8e9, 16, 1, 4e11, 4e10, 0, 0)
    eight = ring_time(8e9, 16, 8, 4e11, 4e10, 0, 0)
    assert one == pytest.approx(8 * eight)


def test_a_token_with_one_expert_visits_the_share_of_other_domains():
    assert distinct_domains(4, 1) == pytest.approx(3 / 4)
    assert distinct_domains(1, 8) == 0
    assert distinct_domains(8, 1000) == pytest.approx(7)


def test_overlap_hides_all_or_nothing():
    assert overlapped(3.0, 2.0, 0.0) == 3.0
    assert overlapped(3.0, 2.0, 1.0) == 5.0


def test_a_pipeline_of_one_stage_has_no_bubble():
    assert step(layout=split(pp=1, dp=32)).bubble == 0
    four = step(layout=split(pp=4))
    assert four.bubble == pytest.approx(3 * (four.ideal / 16), rel=0.2)


def test_the_embedding_lengthens_the_first_stage():
    """14 bytes for each element of the width: a row read and written, its gradient read and added; forward alone of frozen weights."""
    for layout in (split(pp=1, dp=32), split(pp=4)):
        for frozen, each in ((None, 14), (8, 4)):
            ledger = ledger_of(lambda a, x=layout, r=frozen: step(layout=x, lora_rank=r, a=a).seconds)
            (part,) = (part for part in ledger.parts if part.name == "embedding")
            tokens = layout.micro_batch * layout.micro_batches * 4096
            assert part.moved == pytest.approx(each * tokens * 8192 / layout.pp)
            assert 0 < part.exposed < 0.01 * ledger.seconds
    images = ledger_of(lambda a: step(Models.get("ViT_L_16"), layout=split(tp=1, pp=1, dp=8), a=a).seconds)
    assert not any(part.name == "embedding" and part.exposed for part in images.parts)


def test_no_calibrated_step_beats_the_datasheet():
    tokens = 8 * 16 * 4096
    ideal = training_shape(LLAMA).operations_per_token(4096, causal=True) * tokens / (256 * 989e12)
    assert seconds() > ideal


def test_operations_are_those_of_the_megatron_formula():
    """72 B s l h^2 (1 + s/6h + V/12lh), and 96 (1 + s/6h + V/16lh) with everything recomputed."""
    shape = training_shape(Models.get("Megatron_22B"))
    layers, h, s, v = 48, 6144, 2048, shape.vocab
    assert shape.operations_per_token(s) == pytest.approx(
        72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    )
    assert shape.operations_per_token(s, recompute="full") == pytest.approx(
        96 * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    )


def test_parameters_of_a_shape_are_those_of_the_model():
    for name in ("Llama3_70B", "DeepSeek_V3", "Qwen3_235B_A22B"):
        shape = training_shape(Models.get(name))
        counted = shape.dense_parameters + shape.expert_parameters + shape.embedding
        assert counted == pytest.approx(Models.get(name).parameter_count, rel=0.01)


@pytest.mark.parametrize(
    "name", ["Llama3_8B", "Qwen3_30B_A3B", "Nemotron3_Nano_30B_A3B", "DeepSeek_V4_Flash", "NeMo_T5_3B"]
)
def test_every_kind_of_network_has_a_finite_step_of_positive_parts(name):
    layout = split(tp=1, pp=1, dp=64, ep=8)
    ledger = ledger_of(lambda a: step(Models.get(name), layout=layout, a=a).seconds)
    assert ledger.seconds == pytest.approx(seconds(model=Models.get(name), layout=layout), rel=1e-12)
    assert ledger.total("exposed") == pytest.approx(ledger.seconds, rel=1e-12)
    assert all(np.isfinite(part.exposed) and part.exposed >= 0 <= part.hidden for part in ledger.parts)
    assert ledger.exposed("optimizer update") > 0


def test_arrays_give_what_single_numbers_give():
    """ZeRO stages and recomputation are numbers too."""
    rng = np.random.default_rng(3)
    size = 60
    tp, pp, ep, cp = (rng.choice(values, size) for values in ([1, 2, 4, 8], [1, 2, 4], [1, 2, 8], [1, 2]))
    columns = {
        "tp": tp,
        "pp": pp,
        "ep": ep,
        "cp": cp,
        "dp": 256 // (tp * pp),
        "micro_batches": rng.choice([4, 8, 32], size),
    }
    zero, modes = rng.integers(0, 4, size), rng.choice(["none", "selective", "full"], size)
    for model in (LLAMA, QWEN):
        whole = step(model, layout=split(**columns), zero=zero, recompute=modes).seconds
        for i in range(size):
            layout = split(**{name: int(column[i]) for name, column in columns.items()})
            assert seconds(model=model, layout=layout, zero=int(zero[i]), mode=str(modes[i])) == pytest.approx(
                whole[i], rel=1e-12
            )


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    faster=st.sampled_from(["bandwidth", "product_rate", "attention_rate", "half_rate", "link", "fabric"]),
    name=st.sampled_from(["Llama3_70B", "Qwen3_30B_A3B"]),
    zero=st.integers(0, 3),
    cp=st.sampled_from([1, 4]),
)
def test_a_better_chip_is_never_slower(tp, pp, faster, name, zero, cp):
    layout = split(tp=tp, pp=pp, cp=cp, dp=256 // (tp * pp), ep=8)
    if hasattr(H100, faster):
        better = replace(H100, **{faster: 1.5 * getattr(H100, faster)})
    else:
        better = replace(H100, network=replace(H100.network, **{faster: 1.5 * getattr(H100.network, faster)}))
    model = Models.get(name)
    before = seconds(model=model, layout=layout, zero=zero)
    assert seconds(model=model, chip=better, layout=layout, zero=zero) <= before * (1 + 1e-12)


def test_recomputation_costs_and_parts_add_up():
    none, selective, full = (seconds(mode=mode) for mode in ("none", "selective", "full"))
    assert none < selective < full
    assert seconds(mode="attention") == pytest.approx(selective)
    with pytest.raises(UnknownNameError, match="part of a layer"):
        again("everything")


def test_frozen_weights_need_no_gradient_products_nor_optimizer():
    def found(rank, **degrees):
        return ledger_of(lambda a: step(lora_rank=rank, a=a, layout=split(**degrees)).seconds)

    alone, whole, ledger = found(16, dp=1), found(None, dp=1), found(16)
    assert alone.exposed("products") == pytest.approx(2 / 3 * whole.exposed("products"), rel=0.01)
    # Thin products, their dropout, scales and sums wait for memory: adapters beside four of seven matrices are not for nothing.
    assert 0.03 < ledger.exposed("adapters") / seconds() < 0.25
    assert ledger.exposed("optimizer update") == ledger.exposed("gradient synchronisation") == 0


def test_only_trained_weights_of_mixed_precision_are_cast():
    """Frozen weights rest in 16 bit and have no gradient; arithmetic in fp32 reads parameters as they are."""
    alone = split(tp=1, pp=1, dp=1, micro_batches=1)

    def cast(chip=H100, **job):
        ledger = ledger_of(lambda a: step(chip=chip, software="plain", layout=alone, a=a, **job).seconds)
        return ledger.exposed("casts of parameters")

    assert cast() > 0
    assert cast(lora_rank=16) == 0
    assert cast(chip=training_chip(Hardware.get("H100"), "fp32")) == 0


def test_an_optimizer_moves_its_own_states():
    """Adam moves 38 bytes a parameter: 14 beside its 12 bytes of state, read and written; momentum has 8, plain SGD 4."""
    adam, momentum, sgd = (
        ledger_of(lambda a, name=name: step(optimizer=name, a=a).seconds).exposed("optimizer update")
        for name in ("adam", "momentum", "sgd")
    )
    assert momentum / adam == pytest.approx(30 / 38) and sgd / adam == pytest.approx(22 / 38)


def test_a_host_that_launches_one_by_one_bounds_small_expert_layers():
    layout = split(tp=1, pp=1, dp=8, ep=8, micro_batches=8)
    assert seconds(model=QWEN, layout=layout) > 1.5 * seconds(model=QWEN, software="bridge-graph", layout=layout)


def test_context_parallelism_is_a_part_of_its_own():
    long = {"layout": split(tp=8, pp=1, cp=4, dp=8), "seq_len": 32768}
    ledger = ledger_of(lambda a: step(a=a, **long).seconds)
    assert ledger.gross("context parallelism") > 0 and ledger.walls()[14] >= ledger.exposed("context parallelism") > 0


def test_one_rank_pays_no_overhead_of_many():
    alone = split(tp=1, pp=1, dp=1, micro_batches=1)
    ledger = ledger_of(lambda a: step(Models.get("GPT2"), layout=alone, a=a).seconds)
    assert ledger.walls().get(14, 0.0) == 0 and ledger.exposed("step overhead") == 0


@settings(max_examples=60, deadline=None)
@given(
    straggler=st.floats(1.0, 2.0),
    schedule=st.sampled_from([None, "1f1b", "zero_bubble", "dualpipe"]),
    pipeline=st.floats(0, 1),
)
def test_what_the_caller_says_counts(straggler, schedule, pipeline):
    call = {**CALL, "v_stages": 1, "efficiency": "calibrated", "microbatch_count": 16}
    plain = DistributedModel().solve(**call)
    slow = DistributedModel().solve(**call, straggler_factor=straggler)
    busy = plain.ledger
    grown = busy.seconds - busy.exposed("optimizer update", "gradient synchronisation", "step overhead")
    assert slow.step_latency_total.magnitude <= busy.seconds + (straggler - 1) * grown * 1.1 + 1e-12
    assert slow.step_latency_total >= plain.step_latency_total
    shown = DistributedModel().solve(**call, overlap_pp=pipeline)
    hidden = DistributedModel().solve(**call, overlap_pp=1.0).step_latency_total.magnitude
    # Whatever is not hidden delays the next stage: a step grows with it in proportion, by at most all sends of a stage and jitter.
    assert shown.step_latency_total.magnitude == pytest.approx(
        pipeline * hidden + (1 - pipeline) * busy.seconds, rel=1e-9
    )
    assert hidden <= busy.seconds <= hidden + 1.1 * plain.pp_communication_latency.magnitude
    other = DistributedModel().solve(**call, schedule=schedule)
    assert other.step_latency_total <= plain.step_latency_total


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_a_power_cap_slows_arithmetic_by_the_clock(efficiency):
    """At either fidelity: lower is never faster, never above the cap, and saves energy down to a sweet spot."""
    found = [DistributedModel().solve(**CALL, efficiency=efficiency)]
    found += [
        DistributedModel().solve(**CALL, efficiency=efficiency, power_cap=f"{cap} W")
        for cap in (600, 500, 400, 300, 150)
    ]
    times = [each.step_latency_total.magnitude for each in found]
    watts = [each.accelerator_power.magnitude for each in found]
    energies = [time * power for time, power in zip(times, watts, strict=True)]
    assert times == sorted(times) and watts == sorted(watts, reverse=True)
    assert all(power <= cap + 1e-9 for power, cap in zip(watts[1:], (600, 500, 400, 300, 150), strict=True))
    assert energies[:4] == sorted(energies[:4], reverse=True) and energies[5] > energies[4]
    for each, time, power in zip(found, times, watts, strict=True):
        assert each.ledger.seconds == pytest.approx(time, rel=1e-12)
        assert each.ledger.total("joules") == pytest.approx(time * power, rel=1e-12)
        # Operations are the same; only the time of arithmetic grows.
        assert each.ledger.total("flop") == pytest.approx(found[0].ledger.total("flop"), rel=1e-12)


def test_a_chip_without_the_arithmetic_is_refused():
    with pytest.raises(InputError, match="no fp8 arithmetic"):
        training_chip(Hardware.get("A100"), "fp8")


def test_stacks_are_data_with_a_year_and_a_source():
    for name in stack_names():
        entry = stack(name)
        assert 2019 <= entry.year <= 2027 and entry.source and entry.title
    assert stack_of_source("megatron-bridge-26.04").name == "bridge"
    assert stack_of_source("something else") is None
    assert nearest_stack(2021).name == "megatron21"
    assert nearest_stack(2023, sharded=True).name == "fsdp23"
    with pytest.raises(UnknownNameError):
        stack("megatron99")


def test_recipes_follow_the_release():
    assert recipe("bridge", "Qwen3_30B_A3B", "GB300", 26.04).stack == "bridge-part"
    assert recipe("bridge", "Qwen3_30B_A3B", "GB300", 26.06).stack == "bridge-graph"
    assert recipe("bridge", "Mixtral_8x7B", "GB300", 26.06) is None


CALL = {
    "model": "Llama3_70B",
    "fleet": "Research_256",
    "batch_size": 2048,
    "precision": "bf16",
    "tp_size": 8,
    "pp_size": 4,
    "v_stages": 5,
    "seq_len": 4096,
    "activation_recomputation": "full",
}


def test_distributed_model_takes_the_word_and_says_which_stack():
    result = DistributedModel().solve(**CALL, efficiency="calibrated")
    assert result.assumptions["stack"].startswith("bridge")
    assert "stack bridge" in result.assumptions["zero_stage"]
    assert 0.3 < result.mfu < 0.5
    assert "optimizer update = " in result.explain()
    older = DistributedModel().solve(**CALL, efficiency="calibrated", stack="megatron21")
    assert older.mfu < result.mfu
    capped = DistributedModel().solve(**CALL, efficiency="calibrated", power_cap="450 W")
    assert capped.step_latency_total > result.step_latency_total


def test_first_order_does_not_mention_stacks():
    assert "stack" not in DistributedModel().solve(**CALL).assumptions


def test_accumulation_repeats_micro_batches_and_synchronises_once():
    once = DistributedModel().solve(**CALL, efficiency="calibrated")
    twice = DistributedModel().solve(**CALL, efficiency="calibrated", gradient_accumulation_steps=2)
    ratio = (twice.step_latency_total / once.step_latency_total).to("").magnitude
    assert 1.8 < ratio < 2.0
    assert twice.tokens_per_second > once.tokens_per_second


def test_a_network_without_layers_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="needs them"):
        DistributedModel().solve(model="LLaVA_1_5_7B", fleet="Research_256", batch_size=2560, efficiency="calibrated")


def test_a_chip_is_that_of_its_fleet():
    fleet = Clusters.get("Meta_16K")
    faster = fleet.node.accelerator.memory.model_copy(update={"bandwidth": 2 * fleet.node.accelerator.memory.bandwidth})
    chip = fleet.node.accelerator.model_copy(update={"memory": faster})
    other = fleet.model_copy(update={"node": fleet.node.model_copy(update={"accelerator": chip})})
    here = chip_in_fleet(fleet, "bf16", 50e9)
    assert chip_in_fleet(other, "bf16", 50e9).bandwidth == pytest.approx(2 * here.bandwidth)
    assert chip_in_fleet(fleet, "bf16", 25e9).network.fabric == pytest.approx(here.network.fabric / 2)
    with pytest.raises(InputError, match="knows bf16"):
        chip_in_fleet(fleet, "w4a4", 50e9)


def test_speech_is_heard_in_frames() -> None:
    """Whisper's encoder reads 1,500 frames whatever is written, and its decoder makes keys of all of them in every layer."""
    shape = training_shape(Models.get("Whisper_Large_V3"))
    heard = [kind for kind in shape.kinds if kind.positions]
    written = [kind for kind in shape.kinds if not kind.positions]
    assert {kind.positions for kind in heard} == {1500} == {kind.source for kind in written}
    step = DistributedModel().solve("Whisper_Large_V3", "Research_256", 2048, "bf16", "calibrated", seq_len=448)
    assert 0.3 < step.mfu < 0.55
    graph = Models.get("Whisper_Large_V3").lower("training", batch_size=1, seq_len=448)
    flops = 448 * shape.operations_per_token(448)
    assert flops == pytest.approx(graph.flops, rel=0.1)


def test_an_encoder_looks_for_masked_tokens_alone() -> None:
    """BERT-Large's head is a tenth of its products where every token is looked for, and 1.5 % with 15 % of them."""
    shape = training_shape(Models.get("BERT_Large"))
    assert shape.head_tokens == 0.15
    assert training_regime(shape, False) == "training encoder"
    assert training_regime(training_shape(Models.get("T5_3B")), False) == "training encoder-decoder"


def test_routing_to_few_nodes_by_hand_and_by_drawing() -> None:
    """DeepSeek-V3 (arXiv 2412.19437, 2.1.2): at most 4 nodes a token, 8 experts of 4 of 8 groups, a group of 32 experts a node at EP 64."""
    rng = np.random.default_rng(1)
    for domains in (8, 16, 4):
        seen = []
        for _ in range(4000):
            groups = rng.choice(8, 4, replace=False)
            experts = rng.choice(np.concatenate([np.arange(g * 32, g * 32 + 32) for g in groups]), 8, replace=False)
            visited = set((experts * domains // 256).tolist())
            seen.append(len(visited) - (rng.integers(domains) in visited))
        assert distinct_domains(domains, 8, 8, 4) == pytest.approx(np.mean(seen), rel=0.05)
    assert distinct_domains(8, 8, 8, 4) == pytest.approx(7 / 8 * 4 * (1 - 0.75**8))
    assert distinct_domains(8, 8, 8, 8) == pytest.approx(distinct_domains(8, 8))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 16), st.integers(1, 16))
def test_a_limit_never_sends_more_and_less_is_never_more(domains: int, choices: int, groups: int, chosen: int) -> None:
    chosen = min(chosen, groups)
    limited, free = distinct_domains(domains, choices, groups, chosen), distinct_domains(domains, choices)
    assert 0 <= limited <= free * (1 + 1e-9) and limited <= choices
    assert limited <= distinct_domains(domains, choices, groups, min(chosen + 1, groups)) * (1 + 1e-9)


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_a_model_that_limits_routing_exchanges_less_over_the_fabric(efficiency: object) -> None:
    limited = Models.get("DeepSeek_V3")
    free = limited.model_copy(update={"expert_groups": 1, "groups_per_token": 1})
    call = {
        "fleet": parse_fleet("256xH800").one,
        "batch_size": 2048,
        "seq_len": 4096,
        "precision": "bf16",
        "ep_size": 64,
    }
    call |= {"pp_size": 4, "efficiency": efficiency, "deduplicated_exchange": True, "overlap_ep": 0.0}
    less, more = (
        DistributedModel().solve(model, **call).ledger.exposed("expert parallelism") for model in (limited, free)
    )
    assert 0.6 < less / more < 0.95


def test_a_host_starts_again_what_is_computed_again_and_what_adapters_add():
    """Tokens so few that the host's launches bind: a third more with layers computed again, 12 operators for each adapted product (17 then)."""
    few = {
        "layout": split(tp=1, pp=1, dp=1, micro_batches=1),
        "seq_len": 16,
        "software": "titan",
        "model": Models.get("Llama3_2_1B"),
    }
    (kind,) = training_shape(few["model"]).kinds
    launch = H100.kernels.memory_bound.times[2] * kind.count
    adapted = sum(product.layer == "attention" for product in kind.products)

    def launched(**more) -> float:
        parts = ledger_of(lambda a: step(a=a, **few, **more).seconds).parts
        return sum(part.exposed for part in parts if part.name == "host launches") / launch

    assert launched() == pytest.approx(constants().dense_operations)
    assert launched(mode="full") == pytest.approx(4 / 3 * constants().dense_operations)
    gone = len(kind.products)
    assert launched(lora_rank=8) - launched() == pytest.approx(12 * adapted - gone)
    assert launched(lora_rank=8, mode="full") - launched(mode="full") == pytest.approx(17 * adapted - gone)
