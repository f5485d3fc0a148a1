from __future__ import annotations

import pytest
from pydantic import BaseModel

from mlsysim import (
    Q_,
    CNNWorkload,
    Models,
    SparseTransformerWorkload,
    TransformerWorkload,
    UnknownNameError,
    VisionTransformerWorkload,
    Workload,
)
from mlsysim.models import checks
from mlsysim.models.registry import build
from mlsysim.zoo.provenance import Metadata, Source
from mlsysim.zoo.registry import has_sources, run_checks

REQUIRED = {
    "Language": """
        GPT2 GPT2_Medium GPT2_Large GPT2_XL
        GPT3_125M GPT3_350M GPT3_760M GPT3_1_3B GPT3_2_7B GPT3_6_7B GPT3_13B GPT3_175B
        GPT_J_6B GPT_NeoX_20B OPT_125M OPT_1_3B OPT_6_7B OPT_13B OPT_30B OPT_66B OPT_175B
        BLOOM_560M BLOOM_7B1 BLOOM_176B PaLM_8B PaLM_62B PaLM_540B Gopher_280B Chinchilla_70B MT_NLG_530B
        Pythia_70M Pythia_160M Pythia_410M Pythia_1B Pythia_1_4B Pythia_2_8B Pythia_6_9B Pythia_12B
        MPT_125M MPT_350M MPT_760M MPT_1B MPT_3B MPT_7B MPT_13B MPT_30B MPT_70B Falcon_7B Falcon_40B Falcon_180B
        Llama1_7B Llama1_13B Llama1_33B Llama1_65B Llama2_7B Llama2_13B Llama2_70B Llama3_8B Llama3_70B Llama3_405B
        Llama3_2_1B Llama3_2_3B Llama3_3_70B Llama4_Scout Llama4_Maverick
        Mistral_7B Mixtral_8x7B Mixtral_8x22B
        Qwen2_7B Qwen2_72B Qwen2_57B_A14B Qwen2_5_7B Qwen2_5_32B Qwen2_5_72B Qwen3_8B Qwen3_32B Qwen3_30B_A3B
        Qwen3_235B_A22B Qwen3_5_27B Qwen3_5_35B_A3B Qwen3_5_397B_A17B
        DeepSeek_V2 DeepSeek_V3 DeepSeek_R1 Kimi_K2 GLM_4_5 GLM_5 MiniMax_M2_5 GPT_OSS_20B GPT_OSS_120B
        Gemma2_2B Gemma2_9B Gemma2_27B Gemma3_1B Gemma3_4B Gemma3_12B Gemma3_27B Phi_2 Phi3_Mini Phi4
        Nemotron4_340B NemotronH_8B Nemotron3_Nano_30B_A3B Command_R_35B Command_R_Plus_104B
        BERT_Base BERT_Large RoBERTa_Base RoBERTa_Large T5_Small T5_Base T5_Large T5_3B T5_11B
        mT5_Small mT5_Base mT5_Large mT5_XL mT5_XXL
        Mamba_130M Mamba_370M Mamba_790M Mamba_1_4B Mamba_2_8B Mamba2_130M Mamba2_1_3B Mamba2_2_7B Jamba_v0_1
    """,
    "Vision": """
        ResNet18 ResNet34 ResNet50 ResNet101 ResNet152 ResNeXt50_32x4d ResNeXt101_32x8d VGG16 VGG19 AlexNet
        MobileNetV1 MobileNetV2 MobileNetV3_Large EfficientNet_B0 EfficientNet_B4 ConvNeXt_T ConvNeXt_B
        YOLOv3 YOLOv5s YOLOv8n ViT_Ti_16 ViT_S_16 ViT_B_16 ViT_B_32 ViT_L_16 ViT_H_14
    """,
    "Multimodal": "CLIP_L_14 CLIP_B_32 LLaVA_1_5_7B",
    "Speech": "Whisper_Tiny Whisper_Base Whisper_Small Whisper_Medium Whisper_Large_V3",
    "Diffusion": """
        StableDiffusion_1_5 StableDiffusion_2_1 StableDiffusion_XL StableDiffusion_3_Medium DiT_XL_2 FLUX_1_dev
    """,
    "Recommendation": "DLRM_MLPerf DLRM_DCNv2",
    "Tiny": "DS_CNN WakeVision Autoencoder MobileNetV1_025_96 ResNet8",
}
NAMES = [(space, name) for space, names in REQUIRED.items() for name in names.split()]


def test_there_are_enough():
    assert len(Models) >= 150
    assert sum(len(getattr(Models, space)) for space in REQUIRED) == len(Models)


@pytest.mark.parametrize(("space", "name"), NAMES)
def test_required_models_are_there_in_their_namespace_and_flat(space, name):
    entry = getattr(getattr(Models, space), name)
    assert isinstance(entry, Workload)
    assert getattr(Models, name) is entry
    assert entry.metadata.key == name


@pytest.mark.parametrize(
    ("spelling", "key"),
    [
        ("meta-llama/Llama-3.1-70B", "Llama3_70B"),
        ("llama3.1-70b", "Llama3_70B"),
        ("llama2-70b", "Llama2_70B"),
        ("gpt3-175b", "GPT3_175B"),
        ("deepseek-ai/DeepSeek-V3", "DeepSeek_V3"),
        ("resnet50", "ResNet50"),
        ("ResNet-50", "ResNet50"),
    ],
)
def test_other_spellings(spelling, key):
    assert Models[spelling] is Models[key]


def test_numbers_stay_apart_in_names():
    assert Models["gpt3-1.3b"].parameter_count == pytest.approx(1.3e9, rel=0.05)
    assert Models["gpt3-13b"].parameter_count == pytest.approx(13e9, rel=0.05)


def test_unknown_models_name_the_nearest():
    with pytest.raises(UnknownNameError, match=r"^There is no model named 'Llama3_71B'; did you mean .*'Llama3_70B'"):
        Models.Llama3_71B
    with pytest.raises(UnknownNameError):
        Models.Vision.Llama3_70B


def test_nothing_is_wrong_with_any_entry():
    assert [str(problem) for problem in run_checks(Models, checks.CHECKS)] == []


@pytest.mark.filterwarnings("ignore::mlsysim.errors.DataWarning")
@pytest.mark.parametrize(
    ("check", "entry", "sentence"),
    [
        (has_sources, TransformerWorkload(name="x", parameters=1), "has no source"),
        (
            checks.parameters_follow_from_dimensions,
            Models.Llama3_70B.model_copy(update={"layers": 81}),
            "dimensions give 7.1409e+10 parameters, +1.15% from the stated 7.06e+10",
        ),
        (
            checks.parameters_follow_from_dimensions,
            TransformerWorkload(name="x", parameters=1e9),
            "has no dimensions to derive its parameters from",
        ),
        (
            checks.active_is_at_most_all,
            BaseModel.model_copy(Models.Mixtral_8x7B, update={"active_parameters": Q_(50, "Bparam")}),
            "has more active than total parameters",
        ),
        (
            checks.stated_operations_follow_from_rows,
            CNNWorkload(name="x", rows=["linear 10->10"], inference_flops="100 flop"),
            "rows give 200 flop, +100.00% from the stated 100",
        ),
    ],
)
def test_each_check_catches_a_planted_mistake(check, entry, sentence):
    assert check in checks.CHECKS
    assert check(entry) == sentence


def test_a_source_without_an_address_is_caught():
    source = Source(title="somewhere", url="library", checked="2026-01-01", kind="paper")
    entry = TransformerWorkload(name="x", parameters=1, metadata=Metadata.of("x", (source,)))
    assert has_sources(entry) == "source 'somewhere' has no URL"


def test_check_reports_name_the_entry():
    Models.add(Models.Llama3_70B.model_copy(update={"layers": 90}), key="Planted_Model")
    (problem,) = run_checks(Models, checks.CHECKS, ["Planted_Model"])
    assert str(problem).startswith("Models Planted_Model: dimensions give")
    assert str(problem).endswith("(parameters_follow_from_dimensions)")


def test_an_unknown_kind_of_model_is_refused():
    source = {"title": "t", "url": "https://example.org", "checked": "2026-01-01", "kind": "paper"}
    with pytest.raises(
        UnknownNameError, match="There is no kind of model named 'transfromer'; did you mean 'transformer'"
    ):
        build("X", {"name": "x", "kind": "transfromer", "source": source})


def test_kinds_of_workload():
    assert isinstance(Models.ViT_B_16, VisionTransformerWorkload)
    assert isinstance(Models.DeepSeek_V3, SparseTransformerWorkload)
    assert Models.DeepSeek_V3.active_parameter_count == pytest.approx(37e9)
    assert Models.list(architecture="cnn")[0].architecture == "cnn"
