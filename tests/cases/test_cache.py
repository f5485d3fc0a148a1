"""One memory: what fits adds up to at most what there is, and the number that fits is the largest for which it does."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mlsysim.cases.cache import (
    ACTIVATIONS,
    CACHES,
    CONTEXT,
    DeviceMemory,
    engine_memory,
    replica_memory,
    sequences_that_fit,
)
from mlsysim.cases.deployment import Deployment
from mlsysim.cases.ledger import RESERVE, Ledger
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine
from mlsysim.units.registry import to_si
from mlsysim.walls.node.serving import ServingModel

GB = 1e9


def some_memory(rng: random.Random) -> DeviceMemory:
    return DeviceMemory(
        capacity=rng.uniform(8, 300) * GB,
        weights=rng.uniform(1, 200) * GB,
        each=rng.choice([0.1, 1.0, 3.0, rng.uniform(0.01, 5)]) * GB,
        groups=rng.choice([1, 1, 2, 8]),
        context=rng.choice([0.0, GB]),
        activations=rng.choice([0.0, 2 * GB]),
        reserve=rng.uniform(0, 10) * GB,
        draft=rng.choice([0.0, 2 * GB]),
        longest=rng.choice([0.0, 0.01 * GB]),
        row=rng.choice([0.0, 0.005 * GB, 0.3 * GB]),
        rows=rng.choice([1, 8, 256]),
    )


def test_the_most_that_fit_fit_and_one_more_does_not():
    rng = random.Random(1)
    for _ in range(2000):
        memory = some_memory(rng)
        most = int(memory.sequences)
        assert most % memory.groups == 0
        if most:
            assert memory.fits(most)
        assert not memory.fits(most + 1)


@pytest.mark.parametrize("each", [0.1 * GB, 0.3 * GB, GB / 3])
def test_to_the_last_byte(each):
    """Where 7 sequences fill the memory exactly, 7 fit, whatever the quotient is rounded to."""
    fixed = 16.06 * GB
    assert sequences_that_fit(fixed + each * 7.0, fixed, each, 1, each) == 7


def test_parts_add_up_to_what_is_used_and_fits_is_their_sum():
    rng = random.Random(2)
    for _ in range(500):
        memory, batch = some_memory(rng), rng.randint(1, 64)
        ledger = Ledger(0.0, ()).holding(memory.held(batch), memory.capacity)
        assert ledger.memory == memory.used(batch)
        assert ledger.fits == memory.fits(batch)


def test_arrays_are_the_numbers():
    rng = random.Random(3)
    many = [some_memory(rng) for _ in range(200)]
    arrays = {name: np.array([getattr(m, name) for m in many]) for name in DeviceMemory.__slots__}
    together = DeviceMemory(**arrays)
    assert together.sequences.tolist() == [m.sequences for m in many]
    assert together.fits(4.0).tolist() == [m.fits(4.0) for m in many]


def test_first_order_is_all_of_the_memory():
    """80 GiB, 16.06 GB of weights, 2 x 32 x 8 x 128 x 2 bytes a token."""
    replica = Deployment(Models.get("Llama3_8B"), Hardware.get("H100"), "bf16").replica({})
    memory = replica_memory(replica, 9216)
    assert memory.reserve == 0.0
    assert memory.sequences == (80 * 2**30 - 16.06e9) // (131_072 * 9216)


def test_engines_take_a_share_of_all_or_of_what_is_free():
    """vLLM: 0.9 of the driver's 85.5 GB holds all. SGLang: caches get 0.9 of what weights and workspace leave of them."""
    usable = 85.5e9
    for name, rule in (("vLLM", "all"), ("SGLang", "free")):
        step = engine_step(Models.get("Llama3_8B"), Hardware.get("H100"), engine(name))
        memory = engine_memory(step, 9216)
        workspace = 0.73e9 + step.engine.token_budget * (2 * 4096 + 28672) * 2
        left = usable - memory.weights - workspace
        left = left - 0.1 * usable if rule == "all" else 0.9 * left
        assert memory.capacity - memory.fixed == pytest.approx(left)
        assert memory.row == 128_256 * 38
        assert memory.sequences == left // (memory.each + memory.row)
        assert {line.name for line in memory.held(1)} >= {"weights", CACHES, CONTEXT, ACTIVATIONS, RESERVE}


# Published vLLM 0.15.1 on H100 with 128 sequences at most (serving_open.csv): blocks of 16 tokens that it printed.
BLOCKS = {
    ("Llama2_7B", 1, 2048): 7463,
    ("Llama3_70B", 4, 8192): 30251,
    ("Mistral_Nemo_12B", 2, 1024): 48009,
    ("Mistral_Nemo_12B", 1, 2048): 19251,
}


@pytest.mark.parametrize(("case", "published"), BLOCKS.items())
def test_blocks_that_vllm_prints(case, published):
    """No constant was solved from them, but their overheads were known when the form was chosen."""
    model, tp, budget = case
    step = engine_step(Models.get(model), Hardware.get("H100"), engine("vLLM"), tp=tp)
    memory = engine_memory(step, 16, budget=budget)
    blocks = (memory.capacity - memory.fixed - memory.sampled(128)) // memory.each
    assert blocks == pytest.approx(published, rel=0.015)


@pytest.mark.parametrize(("model", "chip", "precision", "engine_name"), [
    ("GPT_OSS_20B", "RTX_4080", "mxfp4", "vLLM"),  # OpenAI: runs within 16 GB
    ("GPT_OSS_20B", "RTX_4080", "mxfp4", "llama_cpp"),
    ("Llama3_8B", "RTX_4090", "fp16", "vLLM"),  # 24 GB
    ("Llama3_70B", "L40S", "int4", "vLLM"),  # 48 GB
    ("Gemma_2B", "Jetson_Orin_Nano", "fp16", "llama_cpp"),  # 8 GB
])  # fmt: skip
def test_what_people_run_fits(model, chip, precision, engine_name):
    step = engine_step(Models.get(model), Hardware.get(chip), engine(engine_name), precision=precision)
    assert engine_memory(step, 1280).fits(1)


def test_llama_cpp_has_the_buffers_that_it_prints():
    """ "CUDA0 compute buffer size" of Llama 3 8B: 258.5 MiB; it has logits of 512 tokens in 32 bits, and reuses the rest."""
    step = engine_step(Models.get("Llama3_8B"), Hardware.get("RTX_4090"), engine("llama_cpp"))
    assert step.activation_bytes() == pytest.approx(258.5 * 2**20, rel=0.15)
    assert step.sampling[0] == 0.0


@pytest.mark.parametrize("model", ["Llama3_8B", "Llama3_70B", "Mixtral_8x7B", "DeepSeek_V3", "Gemma3_27B"])
@pytest.mark.parametrize("name", ["vLLM", "SGLang", "TensorRT_LLM", "llama_cpp"])
def test_the_workspace_follows_budget_and_split(model, name):
    """More tokens of a step never take less, a wider group never more; in proportion to the tokens, without a start."""
    chip, own = Hardware.get("H200"), engine(name)
    steps = [engine_step(Models.get(model), chip, own, tp=tp) for tp in (1, 2, 4, 8)]
    for step in steps:
        assert 0 < step.activation_bytes(512) < step.activation_bytes(2048)
        assert step.activation_bytes(2048) == pytest.approx(4 * step.activation_bytes(512))
        assert step.activation_bytes() == step.activation_bytes(own.token_budget)
    sizes = [step.activation_bytes(2048) for step in steps]
    assert sizes == sorted(sizes, reverse=True)
    assert steps[0].context_bytes < steps[1].context_bytes == steps[3].context_bytes


def test_the_workspace_of_the_largest_is_3_gb():
    """405B on 8 devices with 256 sequences: what engines took 3 GB for; a small one takes a third of it."""

    def own(model, tp, sequences):
        memory = engine_memory(engine_step(Models.get(model), Hardware.get("H100"), engine("vLLM"), tp=tp), 2048)
        return memory.workspace + memory.sampled(sequences)

    assert own("Llama3_405B", 8, 256) == pytest.approx(3e9, rel=0.1)
    assert own("Llama3_8B", 1, 1) < 1.5e9


def test_a_chip_with_more_memory_holds_more():
    """What the driver offers follows the chip's memory, also that of a chip that somebody changed."""
    chip = Hardware.get("H100")
    larger = chip.model_copy(update={"memory": chip.memory.model_copy(update={"capacity": chip.memory.capacity * 2})})
    both = [engine_memory(engine_step(Models.get("Llama3_8B"), c, engine("vLLM")), 2048) for c in (chip, larger)]
    assert both[1].capacity == pytest.approx(2 * both[0].capacity)
    assert both[1].sequences > 2 * both[0].sequences


SAMPLE = [
    (model, chip, fidelity, tp)
    for model in ("Llama3_8B", "Llama3_70B", "Mixtral_8x7B", "DeepSeek_V3", "Gemma3_27B")
    for chip in ("H100", "H200", "A100", "TPUv5e", "MI300X")
    for fidelity in ("first order", "vLLM", "SGLang")
    for tp in (1, 8)
]


@pytest.mark.parametrize("model, chip, fidelity, tp", random.Random(4).sample(SAMPLE, 40))
def test_one_number_in_every_field(model, chip, fidelity, tp):
    """Metric, parts, feasibility and the most that fit are one memory, at each fidelity."""
    given = {"tp_size": tp, "precision": "fp8", "output_len": 256, "seq_len": 1024}
    given |= {} if fidelity == "first order" else {"efficiency": "calibrated", "engine": fidelity}
    if Models.get(model).heads % tp:
        pytest.skip("does not divide")
    for batch in (1, 64):
        found = ServingModel().solve(model, chip, batch_size=batch, **given)
        parts = [to_si(size, "byte") for size in found.memory_breakdown.values()]
        used, capacity = to_si(found.memory_per_device, "byte"), to_si(found.memory_available, "byte")
        assert sum(parts) == used
        assert found.feasible is (used <= capacity) is (batch <= found.max_batch_size)
        kept = to_si(found.memory_breakdown["reserve"], "byte")
        assert kept == 0 if fidelity == "first order" else kept >= 0
    most = found.max_batch_size
    if most:
        assert ServingModel().solve(model, chip, batch_size=most, **given).feasible
    assert not ServingModel().solve(model, chip, batch_size=most + 1, **given).feasible


@pytest.mark.parametrize("fidelity", [0.5, "calibrated"])
@pytest.mark.parametrize(
    "model, chip, tp", [("Llama3_8B", "L4", 1), ("Llama3_70B", "H100", 2), ("Gemma2_9B", "H100", 1)]
)
def test_the_longest_context_fits_and_one_token_more_does_not(model, chip, tp, fidelity):
    """Unless the model itself ends there."""
    given = {"tp_size": tp, "precision": "fp8" if chip == "H100" else "bf16", "efficiency": fidelity}
    longest = ServingModel().solve(model, chip, 1024, **given).longest_context
    if longest:
        assert ServingModel().solve(model, chip, longest, **given).feasible
    if longest < Models.get(model).max_context:
        assert not ServingModel().solve(model, chip, longest + 1, **given).feasible


@pytest.mark.parametrize("fidelity", [0.5, "calibrated"])
def test_redundant_experts_are_held(fidelity):
    """32 of 256 experts twice: an eighth more of what a device holds of experts."""
    given = {"ep_size": 32, "precision": "fp8", "efficiency": fidelity}
    plain = ServingModel().solve("DeepSeek_V3", "H200", 1024, **given)
    twice = ServingModel().solve("DeepSeek_V3", "H200", 1024, **given, redundant_experts=32)
    more = to_si(twice.memory_breakdown["weights"], "byte") - to_si(plain.memory_breakdown["weights"], "byte")
    # 58 layers of one expert (of 256) a device: three matrices of 7168 x 2048 in 8 bits.
    assert more == pytest.approx(58 * 3 * 7168 * 2048, rel=0.01)
    assert twice.max_batch_size < plain.max_batch_size
    assert twice.itl == plain.itl


def test_readers_hold_the_prompts_that_they_read_together():
    """An engine of a prefill pool reads as many prompts as its budget of tokens has, where as many clients ask."""
    given = {"tp_size": 4, "precision": "fp8", "output_len": 64, "efficiency": "calibrated", "decode_hardware": "H200"}
    budget = engine("vLLM").prefill_budget
    one, many = (
        ServingModel().solve("Llama3_70B", "A100", budget // 8, concurrency=clients, **{**given, "precision": "bf16"})
        for clients in (1, 64)
    )
    assert to_si(many.memory_breakdown[CACHES], "byte") == pytest.approx(
        8 * to_si(one.memory_breakdown[CACHES], "byte")
    )


@pytest.mark.parametrize(
    ("model", "slots", "logged", "within"),
    [
        # Runtime buffers and decoder, GiB, as TensorRT-LLM logs them; the last is "3 and almost 5 GB", of neither of the two that the constants are of.
        ("Qwen2_5_0_5B", 2048, 2.66 + 5.76, 0.01),
        ("Llama2_7B", 4096, 1.14 + 4.35, 0.01),
        ("Llama3_8B", 2048, 8.0, 0.1),
    ],
)
def test_buffers_of_a_compiled_engine_are_as_large_as_logged(model, slots, logged, within):
    step = engine_step(Models.get(model), Hardware.H100, engine("TensorRT_LLM_Cpp"))
    assert step.slot_bytes(slots) / 2**30 == pytest.approx(logged, rel=within)


@pytest.mark.parametrize("name", ["TensorRT_LLM_Cpp", "TensorRT_LLM_Cpp_2025", "TensorRT_LLM", "vLLM"])
def test_an_engine_for_more_requests_never_has_more_room(name):
    step = engine_step(Models.get("Llama3_8B"), Hardware.H100, engine(name))
    found = [engine_memory(step, 2000, slots=slots) for slots in (1, 64, 2048, 8192)]
    fitting = [each.most for each in found]
    assert fitting == sorted(fitting, reverse=True)
    assert (fitting[0] > fitting[-1]) == ("Cpp" in name)
    for each in found:
        assert each.used(each.most) <= each.capacity < each.used(each.most + 1)
    default = engine_memory(step, 2000)
    assert default.most == found[2].most
