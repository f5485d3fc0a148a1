"""Wall 14: known answers derived by hand, limits, signs, placement, memory and refusals."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim import Q_, DistributedModel, Hardware, Models, Systems
from mlsysim.cases.job import OF_OPERATORS, Job
from mlsysim.errors import InputError
from mlsysim.systems.types import Fleet, NetworkFabric, Node

H100 = Hardware.Cloud.H100
LLAMA = Models.Llama3_70B


def fleet(nodes: int = 64, **node: object) -> Fleet:
    server = Node(name="DGX H100", accelerator=H100, accelerators_per_node=8, intra_node_bw="900 GB/s", **node)
    fabric = NetworkFabric(name="NDR", bandwidth="400 Gbps", latency="5 us")
    return Fleet(name="f", node=server, count=nodes, fabric=fabric)


def solve(**changes: object):
    call = {"model": LLAMA, "fleet": fleet(), "batch_size": 2048, "tp_size": 8, "seq_len": 2048}
    return DistributedModel().solve(**{**call, **changes})


def test_tensor_parallel_communication_by_hand() -> None:
    """4 all-reduces a layer of 32 x 2048 tokens x 8192 x 2 bytes over 8 ranks at 450 GB/s each way."""
    message = 32 * 2048 * 8192 * 2
    ring = 2 * 7 / 8 * message / 450e9 + 2 * 7 * 0.5e-6
    assert solve().tp_communication_latency.to("s").magnitude == pytest.approx(80 * 4 * ring, rel=1e-12)


def test_data_parallel_communication_by_hand() -> None:
    """One rank of each node: a flat ring of 64 over its own 400 Gbit/s adapter."""
    message = 70.6e9 * 2 / 8
    ring = 2 * 63 / 64 * message / 50e9 + 2 * 63 * 5e-6
    assert solve().dp_communication_latency.to("s").magnitude == pytest.approx(ring, rel=1e-12)


def test_compute_by_hand() -> None:
    """6 P D and the causal attention of 2048 sequences: 3 x 4 x 8192 x S (S + 1) / 2 for each of 80 layers."""
    tokens = 2048 * 2048
    flops = 6 * 70.6e9 * tokens + 3 * 80 * 4 * 8192 * 2048 * (2048 * 2049 / 2)
    assert solve().compute_latency.to("s").magnitude == pytest.approx(flops / (512 * 989e12 * 0.5), rel=1e-12)


def test_step_adds_up_and_mfu_follows() -> None:
    answer = solve(overlap_comm=True)
    exposed = 0.15 * answer.dp_communication_latency
    total = answer.compute_latency + answer.tp_communication_latency + exposed
    assert answer.step_latency_total.to("s").magnitude == pytest.approx(total.to("s").magnitude, rel=1e-12)
    assert answer.scaling_efficiency == pytest.approx(
        (answer.compute_latency / answer.step_latency_total).to("").magnitude, rel=1e-12
    )
    assert answer.mfu == pytest.approx(0.5 * answer.scaling_efficiency, rel=1e-9)
    assert answer.hfu == pytest.approx(answer.mfu)


def test_one_accelerator_has_nothing_to_say_to_others() -> None:
    one = Node(name="one", accelerator=H100, accelerators_per_node=1, intra_node_bw="900 GB/s")
    alone = Fleet(name="1", node=one, count=1, fabric=NetworkFabric(name="x", bandwidth="400 Gbps"))
    answer = solve(model=Models.Llama3_2_1B, fleet=alone, batch_size=1, tp_size=1)
    assert answer.communication_latency.magnitude == 0
    assert answer.scaling_efficiency == pytest.approx(1.0)
    assert answer.parallelism == {"dp": 1, "tp": 1, "pp": 1, "ep": 1, "cp": 1}


def test_infinite_links_leave_only_compute() -> None:
    fast = Node(name="n", accelerator=H100, accelerators_per_node=8, intra_node_bw="1e9 TB/s")
    fabric = NetworkFabric(name="f", bandwidth="1e9 TB/s", latency="0 s")
    ideal = Fleet(name="f", node=fast, count=64, fabric=fabric)
    # The start-up times inside the node remain: 320 sums of 14 steps of half a microsecond.
    answer = solve(fleet=ideal)
    assert answer.communication_latency.to("s").magnitude == pytest.approx(320 * 14 * 0.5e-6, rel=1e-3)
    assert answer.scaling_efficiency > 0.999


@pytest.mark.parametrize("nodes", [(8, 16), (16, 64), (64, 256)])
def test_more_gpus_at_a_fixed_batch_never_raise_efficiency(nodes: tuple[int, int]) -> None:
    few, many = (solve(fleet=fleet(n), overlap_comm=True) for n in nodes)
    assert many.scaling_efficiency <= few.scaling_efficiency + 1e-12
    assert many.step_latency_total < few.step_latency_total


def test_stated_adapters_are_shared() -> None:
    """One adapter for eight accelerators: each has an eighth."""
    default, one, eight = solve(), solve(fleet=fleet(nics_per_node=1)), solve(fleet=fleet(nics_per_node=8))
    assert default.dp_communication_latency == eight.dp_communication_latency
    ratio = (one.dp_communication_latency / eight.dp_communication_latency).to("").magnitude
    assert ratio == pytest.approx(8, rel=0.01)


def test_zero_stages() -> None:
    """Stage 1 moves what an all-reduce moves; stage 3 half as much again."""
    zero, one, three = (solve(zero_stage=z).dp_communication_latency.magnitude for z in (0, 1, 3))
    assert one == pytest.approx(zero, rel=1e-3)
    assert three == pytest.approx(1.5 * zero, rel=1e-3)


def test_zero_memory_is_shared() -> None:
    state = {z: solve(zero_stage=z).memory_breakdown for z in (0, 1, 2, 3)}
    gb = {z: {k: v.to("GB").magnitude for k, v in s.items()} for z, s in state.items()}
    assert gb[0]["weights"] == pytest.approx(70.6 * 2 / 8) and gb[0]["optimizer_state"] == pytest.approx(70.6 * 12 / 8)
    assert gb[1]["optimizer_state"] == pytest.approx(gb[0]["optimizer_state"] / 64)
    assert gb[2]["gradients"] == pytest.approx(gb[0]["gradients"] / 64)
    assert gb[3]["weights"] == pytest.approx(gb[0]["weights"] / 64)


def test_the_tutorials_layout_does_not_fit_and_says_what_would() -> None:
    answer = solve()
    assert not answer.feasible and answer.binding.wall == 2
    assert "zero_stage=1" in answer.remedies[0] and "microbatch_count" in answer.remedies[0]
    assert "as if it fitted" in answer.binding.sentence
    count = int(answer.remedies[0].split("microbatch_count=")[1])
    assert solve(zero_stage=1, microbatch_count=count).feasible


def test_bubble_of_each_schedule() -> None:
    """405 B over 16 stages: phi is 15, 15/v, 5 and 14/3 micro-batch times, and 7 where DualPipe has half of the 2p that fill it."""
    meta = Systems.Clusters.Meta_16K
    call = {"model": "Llama3_405B", "fleet": meta, "batch_size": 2048, "seq_len": 8192, "tp_size": 8, "pp_size": 16}
    idle = {
        "1f1b": 15 / 31,
        "zero_bubble": 5 / 21,
        "dualpipe": 7 / 23,
    }
    for schedule, fraction in idle.items():
        answer = DistributedModel().solve(**call, schedule=schedule, microbatch_count=16)
        assert answer.bubble_fraction == pytest.approx(fraction)
    answer = DistributedModel().solve(**{**call, "batch_size": 4096}, schedule="dualpipe", microbatch_count=32)
    assert answer.bubble_fraction == pytest.approx((14 / 3) / (32 + 14 / 3))
    answer = DistributedModel().solve(**call, v_stages=4, microbatch_count=16)
    assert answer.bubble_fraction == pytest.approx((15 / 4) / (16 + 15 / 4))


def test_uneven_stages_are_paced_by_the_longest() -> None:
    """126 layers over 16 stages: eight in the longest where 7.875 would be even."""
    meta = Systems.Clusters.Meta_16K
    answer = DistributedModel().solve(
        "Llama3_405B", meta, 2048, seq_len=8192, tp_size=8, pp_size=16, microbatch_count=16
    )
    ideal = answer.scaling_efficiency * answer.step_latency_total
    assert (answer.compute_latency / ideal).to("").magnitude == pytest.approx(8 / 7.875)


def test_micro_batches_by_default() -> None:
    """One without a pipeline; with one, the largest divisor of the local batch up to four per stage, echoed."""
    assert solve().microbatch_count == 1
    answer = DistributedModel().solve(LLAMA, fleet(), 2048, tp_size=8, pp_size=4)
    assert answer.microbatch_count == 16 and "16 micro-batches" in answer.assumptions["microbatch_count"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tp_size": 7}, "does not divide 512"),
        ({"tp_size": 128}, "64 attention heads"),
        ({"batch_size": 100}, "use 64 or 128"),
        ({"microbatch_count": 64}, "more than the 32 samples"),
        ({"microbatch_count": 5}, "do not divide into 5"),
        ({"pp_size": 128, "tp_size": 1, "batch_size": 512}, "has 80 layers"),
        ({"seq_len": 2047, "cp_size": 2}, "do not divide over CP 2"),
        (
            {"model": "ResNet50", "cp_size": 2, "tp_size": 1, "pp_size": 1},
            "which ResNet-50 does not take; leave CP out",
        ),
        ({"pp_size": 2, "schedule": "1f1b", "v_stages": 2}, "interleaved"),
        ({"fleet": fleet(3), "pp_size": 3, "schedule": "dualpipe", "batch_size": 3, "tp_size": 8}, "even number"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_nearest(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        solve(**changes)
    assert "\n" not in str(caught.value)


def test_experts_live_on_the_data_ranks() -> None:
    mixture = {"model": "Mixtral_8x7B", "batch_size": 512, "tp_size": 1, "zero_stage": 1, "microbatch_count": 1}
    without, spread = solve(**mixture), solve(**mixture, ep_size=8)
    assert without.parallelism["dp"] == spread.parallelism["dp"] == 512
    assert without.ep_communication_latency.magnitude == 0 < spread.ep_communication_latency.magnitude
    assert spread.memory_breakdown["weights"] < without.memory_breakdown["weights"]
    with pytest.raises(InputError, match="8 experts"):
        solve(**mixture, ep_size=3)


def test_accumulation_synchronises_once() -> None:
    once, four = solve(), solve(gradient_accumulation_steps=4)
    assert four.dp_communication_latency == once.dp_communication_latency
    assert four.compute_latency.magnitude == pytest.approx(4 * once.compute_latency.magnitude)
    assert four.effective_throughput > once.effective_throughput


def test_recomputation_costs_operations_and_saves_memory() -> None:
    none, full = solve(), solve(activation_recomputation="full")
    assert full.mfu < none.mfu and full.hfu > full.mfu
    assert full.memory_breakdown["activations"] < none.memory_breakdown["activations"]
    assert full.hfu / full.mfu == pytest.approx(4 / 3)


def test_lora_needs_less_of_everything() -> None:
    whole, adapters = solve(zero_stage=0), solve(is_lora=True)
    assert adapters.memory_per_accelerator < whole.memory_per_accelerator
    # Two of three passes of what has weights, and all three of scores.
    assert 2 / 3 < adapters.compute_latency / whole.compute_latency < 0.69


def test_the_topology_counts() -> None:
    """A torus of 512 nodes is 8 long: half of the bandwidth crosses its bisection."""
    tree, torus = (solve(fleet=fleet(512), topology_override=t) for t in ("fat_tree", "torus_3d"))
    assert torus.dp_communication_latency > 1.9 * tree.dp_communication_latency
    assert "topology" in torus.assumptions


def test_node_profile_is_the_device_alone() -> None:
    answer = solve(zero_stage=1, microbatch_count=32)
    profile = answer.node_profile
    assert profile.latency == answer.compute_latency
    assert profile.bottleneck == "Compute" and profile.mfu == pytest.approx(0.5)


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    zero=st.integers(0, 3),
    overlap=st.booleans(),
    mode=st.sampled_from(["none", "selective", "full"]),
)
def test_conservation(tp: int, pp: int, zero: int, overlap: bool, mode: str) -> None:
    answer = solve(tp_size=tp, pp_size=pp, zero_stage=zero, overlap_comm=overlap, activation_recomputation=mode)
    assert 0 < answer.mfu <= answer.hfu <= 0.5 + 1e-9
    assert 0 < answer.scaling_efficiency <= 1 + 1e-12
    assert answer.step_latency_total >= answer.compute_latency
    parts = sum(v.magnitude for v in answer.memory_breakdown.values())
    assert answer.memory_per_accelerator.magnitude == pytest.approx(parts)
    assert math.isfinite(answer.step_latency_total.magnitude)


def test_parallel_links_are_quantities() -> None:
    answer = solve()
    assert answer.tokens_per_second.to("1/s").magnitude == pytest.approx(
        2048 * 2048 / answer.step_latency_total.to("s").magnitude
    )
    assert answer.effective_throughput.to("1/s").magnitude * 2048 == pytest.approx(answer.tokens_per_second.magnitude)
    assert answer.memory_capacity == Q_("80 GiB").to("byte")


def test_the_equation_of_a_pipelined_step_gives_the_step() -> None:
    answer = solve(pp_size=4, tp_size=8, batch_size=512, microbatch_count=16, v_stages=2, overlap_pp=0.0)
    shown = answer._facts.context
    m, inside = shown["micro_batches"], answer.compute_latency.magnitude + shown["inside"]
    found = (m + shown["idle"]) * inside / m + shown["sends_waited"] + answer.dp_exposed_latency.magnitude
    assert shown["sends_waited"] > 0
    assert found == pytest.approx(answer.step_latency_total.magnitude, rel=1e-12)


@pytest.mark.parametrize(
    "given",
    [
        *(
            {},
            {"zero_stage": 1},
            {"zero_stage": 2},
            {"zero_stage": 3, "microbatch_count": 4},
            {"tp_size": 4, "pp_size": 2},
        ),
        *({"is_lora": True}, {"is_lora": True, "zero_stage": 3}),
    ],
)
def test_the_equation_of_the_gradients_gives_their_time(given):
    """Rings of n accelerators in a node, then of each one's share over k nodes, with the numbers that are printed."""
    found = DistributedModel().solve("Llama3_8B", "Research_256", 1024, "bf16", 0.5, **given)
    shown = found._facts.context
    n, k, volume, times = (shown[f"ring_{name}"] for name in ("inside", "nodes", "bytes", "times"))
    rates = (n - 1) / n / shown["intra_bandwidth"] + (k - 1) / (k * n) / shown["inter_bandwidth"]
    starts = (n - 1) * shown["intra_latency"] + (k - 1) * shown["inter_latency"]
    assert shown["one_ring"] and not shown["other_rings"]
    assert rates * volume + times * starts == pytest.approx(found.dp_communication_latency.magnitude, rel=1e-9)


def test_weights_that_a_device_reads_follow_expert_parallelism():
    """Mixtral's experts are 96.6 % of its weights: with eight ways a device reads an eighth of them."""

    def read(ep):
        found = DistributedModel().solve("Mixtral_8x7B", "Research_256", 1024, "bf16", 0.5, ep_size=ep)
        return next(part.moved for part in found.ledger.parts if part.name == "memory traffic")

    model = Models["Mixtral_8x7B"]
    experts = 32 * 8 * 3 * 4096 * 14336
    every = model.demand("training", batch_size=4, seq_len=2048, precision="bf16").weight_bytes
    assert read(1) - read(8) == pytest.approx(every * experts / model.parameter_count * 7 / 8, rel=1e-6)
    assert read(1) > read(2) > read(4) > read(8)


@pytest.mark.parametrize("name", [each.name for each in fields(Job) if each.metadata == OF_OPERATORS])
def test_what_speaks_of_single_operators_is_refused_at_first_order(name: str) -> None:
    """A field of a job says so itself: no fidelity ignores it in silence, and nobody keeps a second list."""
    with pytest.raises(InputError, match=f"{name} needs efficiency='calibrated'"):
        solve(**{name: True if DistributedModel.inputs[name].default is False else 1})


def test_two_fields_speak_of_single_operators() -> None:
    assert {each.name for each in fields(Job) if each.metadata} == {"fp8_attention", "predicted_tokens"}
