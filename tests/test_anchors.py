"""Published runs, each predicted without an efficiency fitted to it.

What may be held is what ANOTHER published run shows (an efficiency, a bandwidth efficiency); what is then predicted is a
run that had no part in it. Tolerances are stated with their reason. Where first order cannot be near, a bound or a
direction is asserted, and the docstring says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from mlsysim import (
    Q_,
    CheckpointModel,
    DistributedModel,
    Fleet,
    Hardware,
    InputError,
    Models,
    NetworkFabric,
    Node,
    ParallelismOptimizer,
    ReliabilityModel,
    ScalingModel,
    ServingModel,
    SingleNodeModel,
    SustainabilityModel,
    Systems,
)
from mlsysim.core.formulas import calc_training_time_days, calc_transformer_training_flops
from mlsysim.infra.types import GridProfile
from mlsysim.zoo.provenance import Source

ANCHORS: dict[str, dict[str, Any]] = tomllib.loads(
    files("mlsysim.data").joinpath("anchors.toml").read_text(encoding="utf-8")
)


def held(metric: Callable[[float], float], published: float) -> float:
    """The efficiency at which a published run comes out of the model (metrics here rise with efficiency)."""
    low, high = 0.01, 1.0
    if not metric(low) < published < metric(high):
        raise AssertionError(f"{published} lies outside {metric(low)} .. {metric(high)}: no efficiency gives it")
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if metric(middle) < published else (low, middle)
    return (low + high) / 2


def error(predicted: float, published: float) -> float:
    return predicted / published - 1


def part_of(cluster: str, accelerators: int) -> Fleet:
    """The first nodes of a cluster in the zoo."""
    whole = getattr(Systems.Clusters, cluster)
    assert accelerators % whole.node.accelerators_per_node == 0
    return whole.model_copy(update={"count": accelerators // whole.node.accelerators_per_node})


@pytest.mark.parametrize("name", ANCHORS)
def test_every_anchor_names_its_source_and_what_the_zoo_knows(name: str) -> None:
    anchor = ANCHORS[name]
    source = Source(**anchor["source"])
    assert source.url and source.title
    rows = [anchor, *anchor.get("run", ())]
    for row in rows:
        if "model" in row:
            assert getattr(Models, row["model"])
        if "cluster" in row:
            assert getattr(Systems.Clusters, row["cluster"])


def test_the_holder_refuses_what_no_efficiency_gives() -> None:
    assert held(lambda eta: 10 * eta, 5) == pytest.approx(0.5)
    with pytest.raises(AssertionError, match="no efficiency"):
        held(lambda eta: 10 * eta, 11)


# --- ResNet-50 on a DGX A100 --------------------------------------------------------------------------------------------


def dgx_a100(gpus: int) -> Fleet:
    node = Node(name="DGX A100", accelerator=Hardware.A100, accelerators_per_node=gpus, intra_node_bw="600 GB/s")
    return Fleet(name=f"{gpus} A100", node=node, count=1, fabric=NetworkFabric(name="HDR", bandwidth="200 Gbps"))


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        # Gradients of 51 MB in 60 ms: communication is small, and MXNet's data pipeline keeps up (7.82 x of 8).
        ("resnet50_dgx_a100_mxnet", 0.03),
        # Here the pipeline of eight processes on one host costs a tenth that wall 14 does not know.
        ("resnet50_dgx_a100_tensorflow", 0.12),
    ],
)
def test_resnet50_eight_gpus_from_one(name: str, tolerance: float) -> None:
    """The efficiency of one GPU, held, predicts eight; the model knows nothing of the host, so it may only be above."""
    anchor = ANCHORS[name]
    model, batch = getattr(Models, anchor["model"]), anchor["batch_per_gpu"]
    single = SingleNodeModel()

    def one(eta: float) -> float:
        return float(
            single.solve(model, "A100", batch_size=batch, is_training=True, efficiency=eta).throughput.magnitude
        )

    eta = held(one, anchor["images_per_second"]["1"])
    assert 0.1 < eta < 0.4, "small convolutions reach far less than half of the peak"
    for gpus in (int(count) for count in anchor["images_per_second"] if count != "1"):
        eight = DistributedModel().solve(model, dgx_a100(gpus), batch_size=batch * gpus, efficiency=eta)
        found = error(eight.effective_throughput.magnitude, anchor["images_per_second"][str(gpus)])
        assert 0 < found < tolerance


def test_the_papers_resnet50_figure_is_above_what_nvidia_published() -> None:
    """38,200 images/s (the paper's anchor 1) is 1.4 times the best of NVIDIA's own figures for the machine."""
    best = ANCHORS["resnet50_dgx_a100_mxnet"]["images_per_second"]["8"]
    assert ANCHORS["resnet50_dgx_a100_paper"]["images_per_second"]["8"] / best > 1.4
    # The paper's efficiency of 0.19 on twice the operations (a multiply and an add are two) gives half of its figure.
    result = DistributedModel().solve("ResNet50", dgx_a100(8), batch_size=2048, efficiency=0.19)
    assert result.effective_throughput.magnitude == pytest.approx(19_270, rel=0.01)


# --- Decode at batch 1 --------------------------------------------------------------------------------------------------


def inter_token(anchor: dict[str, Any], devices: int, **options: Any) -> float:
    result = ServingModel().solve(
        getattr(Models, anchor["model"]),
        anchor["hardware"],
        seq_len=anchor["prompt"],
        output_len=anchor["new_tokens"],
        precision="bf16",
        tp_size=devices,
        **options,
    )
    return float(result.itl.to("s").magnitude)


@pytest.mark.parametrize(
    ("devices", "tolerance"),
    # Two devices: 5 %. With more the collectives' launches and the narrower matrices count, which first order leaves out;
    # the prediction is then too fast, by a sixth at eight.
    [(2, 0.06), (4, 0.08), (8, 0.20)],
)
def test_llama2_70b_decode_from_7b(devices: int, tolerance: float) -> None:
    """The share of the bandwidth that Llama-2-7B reached on one A100, held, predicts 70B on two, four and eight."""
    small, large = ANCHORS["llama2_7b_decode_a100"], ANCHORS["llama2_70b_decode_a100"]
    measured = small["tokens_per_second"]["1"]
    reached = held(lambda share: 1 / inter_token(small, 1, bandwidth_efficiency=share), measured)
    assert 0.6 < reached < 0.8
    predicted = inter_token(large, devices, bandwidth_efficiency=reached)
    assert abs(error(predicted, 1 / large["tokens_per_second"][str(devices)])) < tolerance
    floor = inter_token(large, devices)
    assert floor < 1 / large["tokens_per_second"][str(devices)], "no measurement may beat the bandwidth"


def test_llama2_70b_on_two_h100_lies_above_the_floor() -> None:
    """The paper doubles and halves to reach 43 ms. The floor of the bandwidth is 20.8 ms; the range it quotes is above.

    First order cannot be near: 43 ms is twice the floor, where gpt-fast on the slower A100 took 46.9 ms, 1.4 times its
    own floor. Only the bound is asserted.
    """
    anchor = ANCHORS["llama2_70b_decode_h100"]
    result = ServingModel().solve("Llama2_70B", "H100", seq_len=512, tp_size=anchor["accelerators"])
    floor = result.itl.to("ms").magnitude
    assert floor == pytest.approx(20.8, rel=0.01)
    low, high = (Q_(text).to("ms").magnitude for text in anchor["inter_token_latency"])
    assert floor < low < high


# --- Llama 3 405B -------------------------------------------------------------------------------------------------------


def llama3(row: dict[str, Any], eta: float) -> Any:
    """A row of table 4: interleaved, FSDP that keeps the weights (ZeRO 2), one sequence a micro-batch.

    Virtual stages are not published. Four chunks of two layers on each of 16 stages are the finest even split of 126.
    """
    anchor = ANCHORS["llama3_405b_training"]
    return DistributedModel().solve(
        anchor["model"],
        part_of(anchor["cluster"], row["accelerators"]),
        precision=anchor["precision"],
        efficiency=eta,
        batch_size=row["sequences"],
        seq_len=row["seq_len"],
        tp_size=row["tp"],
        pp_size=row["pp"],
        cp_size=row["cp"],
        v_stages=4,
        microbatch_count=row["sequences"] // row["dp"],
        zero_stage=2,
        overlap_comm=True,
    )


def test_llama3_405b_at_16384_from_8192() -> None:
    """The efficiency of 8,192 GPUs, held, predicts 16,384 GPUs, and 16,384 at a context of 131,072.

    Within 10 %: virtual stages and the overlap of FSDP are not published, and each moves the answer by a few per cent.
    """
    first, second, third = ANCHORS["llama3_405b_training"]["run"]
    eta = held(lambda eta: llama3(first, eta).mfu, first["mfu"])
    assert 0.45 < eta < 0.65
    predicted = [llama3(row, eta) for row in (second, third)]
    for outcome, row in zip(predicted, (second, third), strict=True):
        assert outcome.parallelism["dp"] == row["dp"]
        assert abs(error(outcome.mfu, row["mfu"])) < 0.10
    assert predicted[0].mfu < first["mfu"], "twice the GPUs at the same batch lose efficiency, as published"


def test_llama3_405b_default_efficiency_is_not_far() -> None:
    """With the default efficiency of 0.5, which is fitted to nothing: every published row within 16 %, and below it."""
    for row in ANCHORS["llama3_405b_training"]["run"]:
        assert -0.16 < error(llama3(row, 0.5).mfu, row["mfu"]) < 0.05


def test_llama3_405b_published_layout_is_near_the_best() -> None:
    """Searched as the run was: ZeRO up to 2, no or selective recomputation. TP8 PP16 DP128 within 5 % of the best split."""
    row = ANCHORS["llama3_405b_training"]["run"][1]
    result = ParallelismOptimizer().solve(
        "Llama3_405B",
        "Meta_16K",
        batch_size=row["sequences"],
        seq_len=row["seq_len"],
        precision="bf16",
        max_zero_stage=2,
        recompute=("none", "selective"),
        compare_to={"tp": row["tp"], "pp": row["pp"], "dp": row["dp"]},
    )
    assert result.compared is not None
    assert result.compared["behind_best_fraction"] < 0.05
    assert result.compared["rank_of_split"] <= 3
    assert result.rejected["Wall 2 (Memory)"] > result.search_space_size / 2, "memory decides this one"
    # The paper's TP8 PP4 DP512 does not fit: 25 GB of weights and as much of gradients leave too little for activations.
    other = DistributedModel().solve(
        "Llama3_405B",
        "Meta_16K",
        batch_size=row["sequences"],
        seq_len=row["seq_len"],
        precision="bf16",
        tp_size=8,
        pp_size=4,
        zero_stage=1,
    )
    assert not other.feasible


def test_llama3_interruptions() -> None:
    """Failures of parts, from default rates: 619 against 419 unexpected (466 with the planned) in 54 days.

    On the safe side by half: the defaults count every adapter and power supply as fatal. So only the order is asserted.
    With checkpoints as the storage takes them in (2 TB/s as published, wall 19) goodput comes out above the published 90 %.
    """
    anchor = ANCHORS["llama3_405b_interruptions"]
    hours = anchor["days"] * 24
    write = CheckpointModel().solve("Llama3_405B", "H100", n_writers=16384, filesystem_limit_gbs=anchor["storage_gbs"])
    result = ReliabilityModel().solve(
        anchor["cluster"], job_duration_hours=hours, checkpoint_time_s=write.write_time_seconds.to("s").magnitude
    )
    assert 1.0 < result.expected_failures / anchor["unexpected"] < 1.5
    assert hours / anchor["unexpected"] == pytest.approx(3.09, rel=0.01)
    assert anchor["effective_training_time"] < result.goodput_ratio < 0.97


# --- PaLM, Chinchilla, GPT-3 --------------------------------------------------------------------------------------------


def test_palm_540b() -> None:
    """The efficiency of Llama 3 on 8,192 H100, held, predicts PaLM on 6,144 TPU v4: another chip, network and stack.

    HFU within 15 %. PaLM recomputed part of its activations: HFU/MFU is 1.25, between selective (1.00) and full (4/3)
    recomputation, so the MFU under full recomputation is a lower bound.
    """
    palm, llama = ANCHORS["palm_540b_training"], ANCHORS["llama3_405b_training"]["run"][0]
    eta = held(lambda eta: llama3(llama, eta).mfu, llama["mfu"])
    results = {
        mode: DistributedModel().solve(
            palm["model"],
            palm["cluster"],
            precision=palm["precision"],
            efficiency=eta,
            tp_size=palm["tp"],
            batch_size=palm["sequences"],
            seq_len=palm["seq_len"],
            zero_stage=3,
            overlap_comm=True,
            activation_recomputation=mode,
        )
        for mode in ("selective", "full")
    }
    assert results["full"].parallelism["dp"] == palm["dp"]
    assert abs(error(results["full"].hfu, palm["hfu"])) < 0.15
    assert results["full"].mfu < palm["mfu"] < results["selective"].mfu
    ratios = [results[mode].hfu / results[mode].mfu for mode in ("selective", "full")]
    assert ratios[0] < palm["hfu"] / palm["mfu"] < ratios[1] == pytest.approx(4 / 3)


def test_palm_540b_mfu_from_its_tokens_per_second() -> None:
    """Operations a token are ours: the published rate of tokens gives the published MFU, without attention and with it.

    PaLM counts attention in full, we count the half that a causal mask leaves: 46.2 % is above ours by that half.
    """
    palm = ANCHORS["palm_540b_training"]
    peak = palm["accelerators"] * Hardware.TPUv4.compute.peak_flops.to("flop/s").magnitude
    bare = 6 * Models.PaLM_540B.parameter_count * palm["tokens_per_second"] / peak
    assert bare == pytest.approx(palm["mfu_without_attention"], abs=0.001)
    step = Models.PaLM_540B.demand("training", batch_size=1, seq_len=palm["seq_len"], precision="bf16")
    causal = step.flops / palm["seq_len"] * palm["tokens_per_second"] / peak
    assert bare < causal < palm["mfu"]
    assert bare + 2 * (causal - bare) == pytest.approx(palm["mfu"], abs=0.002)


def test_palm_540b_total_operations() -> None:
    """6 P D against the published total: exact by definition, so 1 % for the rounding of P and D."""
    palm = ANCHORS["palm_540b_training"]
    predicted = calc_transformer_training_flops(Models.PaLM_540B.parameter_count, palm["training_tokens"])
    assert predicted.to("flop").magnitude == pytest.approx(Q_(palm["total_flops"]).to("flop").magnitude, rel=0.01)


def test_chinchilla() -> None:
    """The budget of Gopher gives Chinchilla's size and tokens within 2 %.

    Twenty tokens a parameter is a reading of the same paper, so this checks the arithmetic and not the law.
    """
    anchor = ANCHORS["chinchilla"]
    result = ScalingModel().solve(anchor["compute_budget"])
    assert abs(error(result.optimal_parameters.magnitude, anchor["parameters"])) < 0.02
    assert abs(error(result.optimal_tokens.magnitude, anchor["tokens"])) < 0.02


def gpt3_site() -> GridProfile:
    anchor = ANCHORS["gpt3_energy"]
    intensity = Q_(anchor["carbon_intensity"]).to("g/kWh").magnitude
    return GridProfile(
        name="GPT-3", carbon_intensity_g_kwh=intensity, pue=anchor["pue"], wue=None, primary_source="grid mix"
    )


def gpt3_energy(**options: Any) -> Any:
    anchor = ANCHORS["gpt3_energy"]
    return SustainabilityModel().solve(
        anchor["cluster"], duration_days=anchor["days"], datacenter=gpt3_site(), **options
    )


def test_gpt3_energy_from_measured_power() -> None:
    """With the published power this is arithmetic: 0.5 %, the rounding of days and watts. The paper's 34 days give 1,198 MWh."""
    anchor = ANCHORS["gpt3_energy"]
    result = gpt3_energy(average_power=anchor["average_power"])
    assert result.total_energy_kwh.to("MWh").magnitude == pytest.approx(
        Q_(anchor["energy"]).to("MWh").magnitude, rel=0.005
    )
    assert result.carbon_footprint_kg / 1e3 == pytest.approx(Q_(anchor["carbon"]).to("t").magnitude, rel=0.005)


def test_gpt3_energy_without_measured_power() -> None:
    """From TDP and MFU alone: a lower bound, 0.4 of it, because first order leaves out hosts and the shape of power.

    With what the chips do (a quarter of the bandwidth in use) and what stands around them it is within 20 %.
    """
    anchor = ANCHORS["gpt3_energy"]
    published = Q_(anchor["energy"]).to("MWh").magnitude
    mfu = anchor["tflops"] / Hardware.V100.compute.peak_flops.to("TFLOPs/s").magnitude
    chips = gpt3_energy(mfu=mfu).total_energy_kwh.to("MWh").magnitude
    nodes = gpt3_energy(mfu=mfu, memory_utilisation=0.25, include_host=True).total_energy_kwh.to("MWh").magnitude
    assert 0.3 * published < chips < nodes
    assert abs(error(nodes, published)) < 0.20


def test_gpt3_duration_and_operations() -> None:
    """6 P D is the published 314 ZFLOP, and at the published rate it takes the published 14.8 days."""
    anchor = ANCHORS["gpt3_energy"]
    operations = calc_transformer_training_flops(Models.GPT3_175B.parameter_count, anchor["training_tokens"])
    assert operations.to("flop").magnitude == pytest.approx(Q_(anchor["total_flops"]).to("flop").magnitude, rel=0.01)
    days = calc_training_time_days(operations, anchor["accelerators"], f"{anchor['tflops']} TFLOPs/s", 1.0)
    assert float(getattr(days, "magnitude", days)) == pytest.approx(anchor["days"], rel=0.01)


# --- Megatron -----------------------------------------------------------------------------------------------------------


def megatron(row: dict[str, Any], mode: str, eta: float) -> Any:
    anchor = ANCHORS["megatron_iteration"]
    return DistributedModel().solve(
        row["model"],
        part_of("Selene", row["accelerators"]),
        batch_size=row["sequences"],
        seq_len=row.get("seq_len", anchor["seq_len"]),
        tp_size=row["tp"],
        pp_size=row["pp"],
        v_stages=row["v_stages"],
        microbatch_count=row["sequences"] * row["tp"] * row["pp"] // row["accelerators"],
        efficiency=eta,
        activation_recomputation=mode,
        sequence_parallel=mode != "full",
    )


def eta_of_175b() -> float:
    row = ANCHORS["megatron_iteration"]["run"][0]
    return held(
        lambda eta: 1 / megatron(row, "full", eta).step_latency_total.magnitude, 1 / Q_(row["full"]).to("s").magnitude
    )


@pytest.mark.parametrize(
    ("index", "mode", "tolerance"),
    [
        (0, "selective", 0.05),
        (1, "full", 0.12),
        (1, "selective", 0.07),
        # Larger matrices reach more of the peak: one efficiency makes the largest model too slow, by 12 to 15 %.
        (2, "full", 0.16),
        (2, "selective", 0.14),
    ],
)
def test_megatron_iterations_from_175b_with_full_recomputation(index: int, mode: str, tolerance: float) -> None:
    """The efficiency of GPT-3 175B with full recomputation, held, predicts the other five rows of the table."""
    row = ANCHORS["megatron_iteration"]["run"][index]
    predicted = megatron(row, mode, eta_of_175b()).step_latency_total.to("s").magnitude
    assert abs(error(predicted, Q_(row[mode]).to("s").magnitude)) < tolerance


@pytest.mark.parametrize(("mode", "tolerance"), [("selective", 0.05), ("full", 0.08)])
def test_megatron_530b_on_2240_gpus_from_175b_on_64(mode: str, tolerance: float) -> None:
    anchor = ANCHORS["megatron_530b_mfu"]
    predicted = megatron(anchor, mode, eta_of_175b()).mfu
    assert abs(error(predicted, anchor["mfu"][mode])) < tolerance


@pytest.mark.parametrize("index", [1, 2])
def test_mt_nlg_from_its_smallest_run(index: int) -> None:
    """The efficiency of 280 servers, held, predicts 350 and 420 within 5 %: fewer micro-batches, a longer bubble."""
    anchor = ANCHORS["mt_nlg_530b"]
    shape = {
        "model": anchor["model"],
        "tp": anchor["tp"],
        "pp": anchor["pp"],
        "v_stages": 1,
        "sequences": anchor["sequences"],
    }

    def seconds(row: dict[str, Any], eta: float) -> float:
        return float(megatron({**shape, **row}, "full", eta).step_latency_total.to("s").magnitude)

    first, row = anchor["run"][0], anchor["run"][index]
    eta = held(lambda eta: 1 / seconds(first, eta), 1 / Q_(first["iteration"]).to("s").magnitude)
    found = error(seconds(row, eta), Q_(row["iteration"]).to("s").magnitude)
    assert -0.05 < found < 0.0, (
        "what grows with the fleet beyond the bubble is not in the model, so it may only be early"
    )


def test_megatrons_34_days_count_the_recomputed_pass() -> None:
    """34 days is a projection: 8 P D at 140 TFLOP/s. The math page reads it as a scaling efficiency of 60 %."""
    anchor = ANCHORS["megatron_gpt3_days"]
    operations = calc_transformer_training_flops(Models.GPT3_175B.parameter_count, anchor["training_tokens"])
    rate = anchor["tflops"] * 1e12 * anchor["accelerators"]
    days = operations.to("flop").magnitude * 4 / 3 / rate / 86400
    assert days == pytest.approx(anchor["days"], rel=0.01)
    # Eight operations a parameter and token is what full recomputation counts.
    step = DistributedModel().solve(
        "GPT3_175B", part_of("Selene", 1024), batch_size=1536, tp_size=8, pp_size=8, activation_recomputation="full"
    )
    assert step.hfu / step.mfu == pytest.approx(4 / 3)


def test_a_layout_that_does_not_divide_is_refused_and_not_rounded() -> None:
    """The published layouts divide; a nearby one that does not is an error, so that no anchor passes by rounding."""
    with pytest.raises(InputError, match="divide"):
        DistributedModel().solve("Llama3_405B", "Meta_16K", batch_size=2048, tp_size=8, pp_size=12)
