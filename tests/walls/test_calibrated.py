"""The calibrated fidelity over the zoo: an answer for every chip and every kind of model, within physical bounds."""

from __future__ import annotations

import math

import pytest

from mlsysim import ContinuousBatchingModel, DistributedModel, Hardware, Models, ServingModel, SingleNodeModel
from mlsysim.errors import InputError

CHIPS = [chip.metadata.key for chip in Hardware if chip.family != "mcu"]
KINDS = (
    "Llama3_8B",
    "BERT_Base",
    "T5_Base",
    "Mixtral_8x7B",
    "DeepSeek_V3",
    "Mamba_1_4B",
    "ResNet50",
    "ViT_B_16",
    "DLRM_MLPerf",
)


def kinds() -> list[str]:
    return [name for name in KINDS if name in Models]


@pytest.mark.parametrize("key", CHIPS)
def test_every_chip_answers(key: str) -> None:
    chip = Hardware.get(key)
    precision = next((p for p in ("fp16", "bf16", "fp32", "int8") if chip.compute.supports(p)), None)
    assert precision is not None
    answer = SingleNodeModel().solve("ResNet50", chip, 4, precision, efficiency="calibrated")
    assert 0 < answer.mfu <= 1 and math.isfinite(answer.latency.magnitude)
    assert "fidelity" in answer.assumptions
    first = SingleNodeModel().solve("ResNet50", chip, 4, precision, efficiency=1.0)
    # No calibrated time may beat the datasheet's own roofline.
    assert answer.latency.magnitude >= first.latency_compute.magnitude * 0.999


@pytest.mark.parametrize("name", kinds())
def test_every_kind_of_model_answers(name: str) -> None:
    answer = SingleNodeModel().solve(name, "H200", 8, "bf16", efficiency="calibrated")
    assert 0 < answer.mfu <= 1 and answer.latency.magnitude > 0
    if not answer.feasible:
        assert answer.interval is None  # no pass of a model that does not fit was measured
        return
    low, high = answer.interval
    assert low < answer.latency < high


def test_decode_as_measured_on_an_h200() -> None:
    """Llama 3.1 8B in a serving engine's kernels, batch and context as measured, in milliseconds."""
    measured = {
        (1, 512): 4.53,
        (1, 8192): 4.91,
        (16, 2048): 5.74,
        (64, 2048): 8.86,
        (64, 8192): 20.28,
        (256, 2048): 22.12,
    }
    for (batch, context), milliseconds in measured.items():
        asked = {"phase": "decode", "seq_len": context, "efficiency": "calibrated", "runtime": "engine"}
        answer = SingleNodeModel().solve("Llama3_8B", "H200", batch, "bf16", **asked)
        assert answer.latency.to("ms").magnitude == pytest.approx(milliseconds, rel=0.08)


def test_resolvers_that_take_it() -> None:
    serving = ServingModel().solve("Llama3_8B", "H100", seq_len=1024, batch_size=8, efficiency="calibrated")
    assert serving.ttft.magnitude > 0 and serving.itl.magnitude > 0
    batching = ContinuousBatchingModel().solve(
        "Llama3_8B", "H100", seq_len=2048, max_batch_size=32, efficiency="calibrated"
    )
    assert batching.throughput_tokens_per_sec.magnitude > 0
    call = {"batch_size": 256, "tp_size": 8, "zero_stage": 1, "microbatch_count": 8, "precision": "bf16"}
    step = DistributedModel().solve("Llama3_70B", "Research_256", **call, efficiency="calibrated")
    assert 0.2 < step.mfu < 0.6


def test_an_unknown_fidelity_is_refused() -> None:
    with pytest.raises(InputError, match="efficiency"):
        SingleNodeModel().solve("Llama3_8B", "H100", efficiency="calibrate")
