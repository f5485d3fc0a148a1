"""Chips that people have answer every question, and say what their interval rests on."""

import pytest

from mlsysim.hardware.registry import Hardware
from mlsysim.plans.evaluate import evaluate
from mlsysim.systems.registry import Nodes
from mlsysim.units.registry import to_si

CHIPS = (
    "A800", "H800", "H20", "A10G", "L4", "L20", "L2", "RTX_PRO_6000", "RTX_PRO_6000_Workstation", "RTX_5090", "TPU_v5e",
    "TPU_v5p", "TPU_v6e", "TPU7x", "MI325X", "MI355X", "Gaudi3", "Trainium2", "Trainium3", "Ascend_910B", "Ascend_910C",
)  # fmt: skip
TRAINED = ("TPU_v5e", "TPU_v6e", "MI325X", "MI355X")
"""Of these, published training runs with the default stack."""


@pytest.mark.parametrize("task", ["training", "serving", "inference"])
@pytest.mark.parametrize("chip", CHIPS)
def test_every_question_has_an_answer(chip, task):
    on = chip if task == "inference" else f"8x{chip}"
    model = "Llama3_2_3B" if chip == "TPU_v5e" else "Llama3_8B"  # 16 GiB
    workload = {"model": model, "batch_size": 8}
    answer = evaluate({"task": task, "workload": workload, "hardware": {"on": on}}, change=False)
    assert answer.feasible, answer.headline
    latency = answer.metric("tpot" if task == "serving" else "latency")
    assert to_si(latency.value, "s") > 0 and latency.interval
    assert answer.interval_key
    words = answer.interval.lower()
    if task == "training" and chip in TRAINED:
        assert words.startswith("90 % of"), answer.interval
        return
    assert words.startswith("extrapolating") or "on this chip" in words, answer.interval


@pytest.mark.parametrize("chip", ["H100", "H200", "B200"])
def test_a_chip_that_was_measured_says_so(chip):
    answer = evaluate({"task": "serving", "workload": {"model": "Llama3_8B"}, "hardware": {"on": chip}}, change=False)
    assert "measured serving runs" in answer.interval and "extrapolating" not in answer.interval.lower()


@pytest.mark.parametrize(
    ("chip", "precision", "tflops", "link"),
    [
        ("A800", "bf16", 312, 400),
        ("H800", "bf16", 989, 400),
        ("H20", "bf16", 148, 900),
        ("A10G", "fp16", 70, None),
        ("RTX_PRO_4500", "fp4", 879, None),
        ("RTX_2060", "int8", 103.2, None),
        ("GTX_1080Ti", "fp32", 11.34, None),
        ("L20", "fp16", 119.5, None),
        ("TPU_v6e", "bf16", 918, 800),
        ("TPU7x", "fp8", 4614, 1200),
        ("Trainium2", "bf16", 667, 1280),
        ("Ascend_910C", "bf16", 752, 784),
    ],
)
def test_dense_peaks_and_links_of_the_sheets(chip, precision, tflops, link):
    found = Hardware.get(chip)
    assert found.compute.peak(precision).to("TFLOPs/s").magnitude == pytest.approx(tflops)
    assert (None if found.link is None else found.link.bandwidth_total.to("GB/s").magnitude) == link


@pytest.mark.parametrize(
    "chip", ["GH200_96GB", *(c for c in CHIPS if c not in ("L2", "RTX_5090", "RTX_PRO_6000_Workstation"))]
)
def test_chips_of_servers_have_their_node(chip):
    name = Hardware.get(chip).name
    assert any(node.accelerator.name == name for node in Nodes)


@pytest.mark.parametrize("task", ["inference", "serving"])
def test_a_language_model_on_a_chip_of_integers_is_answered_at_first_order(task):
    """A Coral multiplies in int8 alone: whether 135 million weights fit its 8 MB needs no calibrated time."""
    answer = evaluate({"task": task, "model": "SmolLM2_135M", "on": "1xCoral"})
    assert not answer.feasible and answer.fidelity == "first order" and "has 8 MB" in answer.headline
    assert "int8 alone" in answer.assumptions["fidelity"]


@pytest.mark.parametrize("task", ["inference", "serving"])
def test_a_chip_without_links_is_not_told_to_share_a_model(task):
    headline = evaluate({"task": task, "model": "Llama3_405B", "on": "1xJetson_AGX_Orin"}).headline
    assert "use a smaller model or a chip with 12 times as much memory" in headline
    assert "devices" in evaluate({"task": task, "model": "Llama3_405B", "on": "1xH100"}).headline


TENSORRT = {"task": "inference", "workload": {"precision": "int8", "batch_size": 64}, "hardware": {"stack": "tensorrt"}}
DIFFUSERS = {"task": "inference", "workload": {"precision": "fp16", "steps": 50}}
ONE_CHAT = {"task": "serving", "serving": {"prompt_tokens": 1, "output_tokens": 128, "concurrency": 1}}
LLAMA_CPP = ONE_CHAT | {"serving": ONE_CHAT["serving"] | {"engine": "llama_cpp"}}


@pytest.mark.parametrize(
    ("plan", "on", "work", "metric", "published"),
    [
        # MLPerf Inference 3.1, offline, as NVIDIA's page of Jetson benchmarks has them (recalled); questions of BERT have 177 tokens on average.
        (TENSORRT, "Jetson_AGX_Orin_64GB", {"model": "ResNet50"}, "throughput", 6423.6),
        (TENSORRT, "Jetson_Orin_NX_16GB", {"model": "ResNet50"}, "throughput", 2640.5),
        (TENSORRT, "Jetson_AGX_Orin_64GB", {"model": "BERT_Large", "seq_len": 177}, "throughput", 553.7),
        # fal-ai/stable-diffusion-benchmarks: diffusers, torch 2.1, SDPA: 1.604 s.
        (DIFFUSERS, "A100", {"model": "StableDiffusion_1_5"}, "throughput", 1 / 1.604),
        # llama.cpp, discussion 4167, and XiongjieDai/GPU-Benchmarks-on-LLM-Inference (recalled).
        (LLAMA_CPP, "Apple_M1_Max", {"model": "Llama2_7B", "precision": "q4_0"}, "user_rate", 61.2),
        (LLAMA_CPP, "Apple_M4_Max", {"model": "Llama2_7B", "precision": "q4_0"}, "user_rate", 83.1),
        (LLAMA_CPP, "RTX_3090", {"model": "Llama3_8B", "precision": "q4_k_m"}, "user_rate", 111.7),
        # NVIDIA, Jetson Orin Nano Super, 4 bits (recalled).
        (ONE_CHAT, "Jetson_Orin_Nano", {"model": "Llama3_8B", "precision": "int4"}, "user_rate", 19.1),
    ],
)
def test_published_rates_that_nothing_was_fitted_on(plan, on, work, metric, published):
    asked = {
        **plan,
        "workload": plan.get("workload", {}) | work,
        "hardware": plan.get("hardware", {}) | {"on": on},
    }
    found = evaluate(asked, change=False).metric(metric)
    assert to_si(found.value, "1/s") == pytest.approx(published, rel=0.25)
    assert to_si(found.low, "1/s") <= published <= to_si(found.high, "1/s")
