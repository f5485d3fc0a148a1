"""One pass on one device: its ledger, its memory, its limits, and the forms that are scored."""

from __future__ import annotations

import math

import pytest

from mlsysim.calibrate.tables import vision as vision_rows
from mlsysim.cases.algebra import PLAIN
from mlsysim.cases.assumptions import Assumptions
from mlsysim.cases.one_pass import Device, Pass, device_of, first_order, roofline, work_of
from mlsysim.engine.engine import Engine
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.inventory import inventory_of
from mlsysim.models.registry import Models
from mlsysim.plans.parts import time_parts
from mlsysim.timing.diffusion_time import diffusion_time
from mlsysim.timing.engine_rates import engine_latency, engine_time
from mlsysim.timing.runtimes import runtime
from mlsysim.timing.vision_time import constants, inventory_time
from mlsysim.walls.analysis.sensitivity import scaled
from mlsysim.walls.node.compute_memory import SingleNodeModel
from mlsysim.zoo.intervals import interval

NODE = SingleNodeModel()
MODELS = [
    "Llama3_8B",
    "Llama3_70B",
    "Mixtral_8x7B",
    "DeepSeek_V3",
    "GPT2",
    "BERT_Large",
    "Gemma2_9B",
    "Qwen3_0_6B",
    "Mamba_2_8B",
    "ResNet50",
    "MobileNetV3_Large",
    "EfficientNet_B0",
    "ViT_B_16",
    "ConvNeXt_T",
    "Swin_T",
    "YOLOv8m",
    "StableDiffusion_XL",
    "DiT_XL_2",
    "CLIP_B_32",
    "DLRM_MLPerf",
]
CHIPS = [
    "H100",
    "H200",
    "A100",
    "V100_32GB",
    "B200",
    "MI300X",
    "TPU_v5p",
    "RTX_4090",
    "M2_Ultra",
    "Jetson_AGX_Orin_64GB",
]


def known(names, registry):
    return [name for name in names if name in registry]


MODELS, CHIPS = known(MODELS, Models), known(CHIPS, Hardware)


def seconds(quantity):
    return quantity.to("s").magnitude


def solve(model, chip, efficiency, **options):
    chip = Hardware.get(chip) if isinstance(chip, str) else chip
    precision = next(p for p in ("bf16", "fp16", "fp32") if chip.compute.supports(p))
    return NODE.solve(model, chip, **{"precision": precision, **options}, efficiency=efficiency)


def test_there_are_enough_of_them():
    assert len(MODELS) >= 18 and len(CHIPS) == 10


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_parts_add_up_and_name_what_binds(chip, efficiency):
    for model in MODELS:
        for training in (False, True):
            if training and model in ("StableDiffusion_XL", "DeepSeek_V3", "Llama3_70B"):
                continue
            found = solve(model, chip, efficiency, batch_size=4, is_training=training)
            ledger = found.ledger
            latency = seconds(found.latency)
            assert sum(part.exposed for part in ledger.parts) == pytest.approx(latency, rel=1e-9), model
            assert sum(part.elastic for part in ledger.parts) == pytest.approx(latency, rel=1e-9), model
            assert all(part.exposed >= 0 and part.hidden >= -1e-12 * latency for part in ledger.parts), model
            assert ledger.seconds == latency
            footprint, capacity = (q.to("byte").magnitude for q in (found.memory_footprint, found.memory_capacity))
            assert ledger.memory == pytest.approx(footprint) and ledger.capacity == capacity
            assert bool(ledger.fits) == found.feasible
            if found.feasible:
                assert found.binding.wall == ledger.binding_wall, model
            walls = ledger.walls("exposed")
            if efficiency == "calibrated":
                assert seconds(found.latency_compute) == pytest.approx(walls.get(1, 0.0))
                assert seconds(found.latency_memory) == pytest.approx(walls.get(2, 0.0))


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
@pytest.mark.parametrize("resource", ["peak_flops", "memory_bandwidth"])
def test_more_of_a_resource_is_never_slower_and_the_ledger_foretells_it(resource, efficiency):
    name = {"peak_flops": "peak", "memory_bandwidth": "bandwidth"}[resource]
    for model in ("Llama3_8B", "ResNet50", "ViT_B_16"):
        for batch in (1, 64):
            chip = Hardware.get("H100")
            before = solve(model, chip, efficiency, batch_size=batch)
            after = solve(model, scaled(chip, {resource: 1.01}), efficiency, batch_size=batch)
            gain = 1 - seconds(after.latency) / seconds(before.latency)
            assert gain >= 0
            share = before.ledger.resources().get(name, 0.0) / before.ledger.seconds
            # The clock under a power limit moves with the vector rate, which the parts of a step do not say.
            assert gain == pytest.approx(share * 0.01 / 1.01, abs=0.004), (model, batch)


def test_with_infinite_bandwidth_only_arithmetic_and_dispatch_are_left():
    question = Pass(Models.get("Llama3_8B"), "decode", 8, 1, 2048)
    work = work_of(question)
    chip = device_of(Hardware.get("H100"), "fp16", 1.0, Assumptions())
    fast = Device(chip.peak, math.inf, chip.capacity, chip.host_link, chip.dispatch)
    times = roofline(work, fast, 0.5)
    assert times.seconds == pytest.approx(work.hardware_flops / (chip.peak * 0.5) + chip.dispatch)
    assert first_order(PLAIN, work, times) == times.seconds


def test_what_spills_is_a_part_of_the_memory_wall():
    found = NODE.solve("Llama3_70B", "H100", 4)
    spilled = next(part for part in found.ledger.parts if part.resource == "host link")
    assert spilled.wall == 2 and spilled.exposed > 0.9 * seconds(found.latency)
    link = Hardware.get("H100").interconnect.bandwidth.to("byte/s").magnitude
    assert spilled.exposed == pytest.approx(found.offload_spill_bytes.to("byte").magnitude / link)
    assert sum(part.exposed for part in found.ledger.parts) == pytest.approx(seconds(found.latency))


def test_the_hero_example():
    found = Engine.solve(Models.ResNet50, Hardware.A100, batch_size=1, precision="fp16")
    assert found.bottleneck == "Memory"
    memory = found.ledger.gross("memory traffic")
    assert seconds(found.latency) == pytest.approx(memory + 1e-5)


def test_memory_holds_what_flows():
    """ResNet-50 at 256 images: 25.6 M weights, and 3.2 M elements of 64 x 112 x 112 twice in 2 bytes for each image."""
    found = NODE.solve("ResNet50", "H100", 256)
    held = {each.name: each.bytes for each in found.ledger.held}
    assert held["weights"] == pytest.approx(51.1e6, rel=0.01)
    assert held["activations"] == Models.get("ResNet50").working_bytes(256) > 0.8e9
    assert found.memory_footprint.to("byte").magnitude == pytest.approx(sum(held.values()))


def test_all_tokens_of_an_encoder_flow_at_once():
    """ModernBERT-base gates 2 x 1,152 elements a token to 1,152: 6,912 bytes of 16 bits each, 232 GB of 4,096 sequences of 8,192 tokens."""
    found = NODE.solve("ModernBERT_Base", "H200", 4096, seq_len=8192, efficiency=0.5)
    held = {each.name: each.bytes for each in found.ledger.held}
    assert held["activations"] == 4096 * 8192 * (2 * 1152 + 1152) * 2 and not found.feasible
    few = int(found.remedies[0].split()[1].replace(",", ""))
    assert NODE.solve("ModernBERT_Base", "H200", few, seq_len=8192, efficiency=0.5).feasible
    assert not NODE.solve("ModernBERT_Base", "H200", few + 1, seq_len=8192, efficiency=0.5).feasible
    short, long = (NODE.solve("BERT_Large", "H100", 8, seq_len=tokens).ledger.held[1].bytes for tokens in (128, 512))
    assert long == 4 * short == 8 * 512 * 2 * 4096 * 2


def test_a_network_has_one_width_under_both_of_its_names():
    """By its layers in the zoo and by its count in timm; where only the count is known, the answer says that it is a lower bound."""
    for own, other in (("Swin_T", "swin_tiny_patch4_window7_224"), ("ResNet50", "resnet50"), ("VGG16", "vgg16")):
        mine, theirs = (NODE.solve(name, "H100", 64) for name in (own, f"timm/{other}"))
        assert mine.ledger.held == theirs.ledger.held and "activations" not in theirs.assumptions
    alone = NODE.solve("timm/resnet26", "H100", 64)
    assert alone.assumptions["activations"].startswith("at least") and alone.ledger.held[1].bytes > 0


# --- what is asked is what is scored ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["compiled", "eager", "eager_nhwc", "graph", "eager_16bit", "graph_16bit", "dle_pytorch", "dle_mxnet"]
)
def test_a_network_is_timed_by_the_form_that_is_scored(name):
    model, chip = Models.get("ResNet50"), Hardware.get("H100")
    stack = runtime(name).inference
    scored = inventory_time(inventory_of(model), chip, 256, "fp16", stack)
    asked = NODE.solve(model, chip, 256, "fp16", efficiency="calibrated", runtime=name)
    assert seconds(asked.latency) == pytest.approx(scored, rel=1e-12)


def test_training_diffusion_and_engines_are_timed_by_the_forms_that_are_scored():
    chip = Hardware.get("H100")
    network, flux = Models.get("ResNet50"), Models.get("FLUX_1_dev")
    asked = {"is_training": True, "runtime": "eager_nhwc", "optimizer": "momentum"}
    step = NODE.solve(network, chip, 128, "fp16", efficiency="calibrated", **asked)
    assert seconds(step.latency) == pytest.approx(inventory_time(inventory_of(network), chip, 128, "amp", "train_nhwc"))
    images = NODE.solve(flux, chip, 8, "bf16", efficiency="calibrated", phase="generate")
    assert seconds(images.latency) == pytest.approx(diffusion_time(flux, chip, 8))
    query = NODE.solve(network, chip, 8, "int8", efficiency="calibrated", runtime="TensorRT")
    assert seconds(query.latency) == pytest.approx(engine_latency(inventory_of(network), chip, 8))
    many = NODE.solve(network, chip, 4096, "int8", efficiency="calibrated", runtime="TensorRT")
    assert seconds(many.latency) / 4096 == pytest.approx(engine_time(inventory_of(network), chip), rel=0.01)
    bert = NODE.solve("BERT_Large", chip, 8, "int8", efficiency="calibrated", runtime="tensorrt", seq_len=178)
    inventory, _ = vision_rows.task_inventory("bert-99")
    assert seconds(bert.latency) == pytest.approx(engine_latency(inventory, chip, 8))


def test_the_sentence_of_the_interval_is_true():
    def words(chip, **options):
        return NODE.solve("ResNet50", chip, 64, efficiency="calibrated", **options).assumptions["interval"]

    assert words("RTX_4090") == (
        "90 % of 3,068 passes measured with this software (vision compiled on RTX_4090) fell within the interval"
    )
    for chip in ("H100", "A100"):
        assert words(chip).startswith(
            "extrapolating: passes with this software were fitted on NVIDIA H200 SXM5 141GB and"
        )
    assert "extrapolating" not in words("H200")
    assert "none on this chip" in words("H100", runtime="eager")


def test_another_kind_of_chip_gets_the_band_of_what_was_never_validated():
    for chip, precision in (("TPU_v5e", "bf16"), ("Jetson_AGX_Orin_64GB", "fp16"), ("Xeon_8480", "fp32")):
        found = NODE.solve("ResNet50", chip, 64, precision, efficiency="calibrated")
        low, high = (seconds(side) / seconds(found.latency) for side in found.interval)
        measured = interval("vision compiled on RTX_4090")
        assert low < measured.low and high > measured.high, chip


def test_parts_of_an_answer_have_names_of_their_own_and_add_up():
    for model, efficiency in (("ResNet50", "calibrated"), ("Llama3_8B", "calibrated"), ("ResNet50", 0.5)):
        found = NODE.solve(model, "H100", 64, efficiency=efficiency)
        parts = time_parts(found.ledger)
        assert len({part.label for part in parts}) == len(parts)
        assert sum(part.value for part in parts) == pytest.approx(seconds(found.latency), rel=1e-9)


def test_the_default_runtime_is_said_and_unknown_ones_are_refused():
    found = NODE.solve("ResNet50", "H100", efficiency="calibrated")
    assert found.assumptions["runtime"].startswith("compiled: ")
    record = next(each for each in found.assumed if each.name == "runtime")
    assert record.value == "compiled" and record.origin == "default"
    assert "runtime" not in NODE.solve("ResNet50", "H100", efficiency="calibrated", runtime="eager").assumptions
    for options, match in (
        ({"runtime": "magic"}, "known are compiled, eager"),
        ({"runtime": "graph", "is_training": True}, "No training was measured with graph"),
        ({"runtime": "diffusers"}, "runs denoisers"),
        ({"runtime": "tensorrt"}, "8-bit"),
    ):
        with pytest.raises(InputError, match=match):
            NODE.solve("ResNet50", "H100", efficiency="calibrated", **options)
    with pytest.raises(InputError, match="leave it out"):
        NODE.solve("Llama3_8B", "H100", efficiency="calibrated", runtime="eager")
    with pytest.raises(InputError, match="leave it out"):
        NODE.solve("Llama3_8B", "H100", efficiency=0.5, is_training=True, runtime="eager")


def test_every_runtime_has_words():
    assert all(runtime(name).title for name in constants()["runtimes"])
