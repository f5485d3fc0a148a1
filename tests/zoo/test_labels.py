"""What people write, read as the zoo's names: a table of labels, and what is refused with a reason."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError, MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.physics.precision import precision_name
from mlsysim.systems.fleet_text import parse_fleet
from mlsysim.zoo.checkpoints import format_named
from mlsysim.zoo.labels import chip_label, machine
from mlsysim.zoo.layouts import mapping

CHIPS = """
A100: A100 | a100-sxm | NVIDIA A100 80GB | NVIDIA-A100-SXM4-80GB | A100-SXM-80G | A100SXM4 | Tesla A100 SXM4 80 GB | A100 (80GB)
A100_40GB: A100 40GB | A100-SXM4-40GB | NVIDIA A100-SXM-40GB | a100_40g
A100_PCIe_40GB: A100 PCIe 40GB | NVIDIA A100-PCIE-40GB | A100-40GB-PCIe
A100_PCIe_80GB: A100 80GB PCIe | NVIDIA A100 - PCIe - 80 GB | a100-pci-e-80gb | NVIDIA A100 80GB PCIe
H100: H100 | H100 SXM | H100-SXM5-80GB | NVIDIA H100 80GB HBM3 | NVIDIA-H100-80GB-HBM3 | H100SXM5 | NVIDIA H100 Tensor Core GPU | H100-700W
H100: nvidia h100 sxm | H100_SXM5_80GB | H100 (SXM) | H100 80 GiB
RTX_4090: 4090 | 4090 24GB | NVIDIA 4090 | GeForce 4090
RTX_4070Ti_Super: 4070 Ti Super | 4070 Ti SUPER 16GB
RTX_PRO_6000_Server: RTX 6000 Pro Blackwell Server Edition
Radeon_RX_7900_XT: AMD 7900 XT | RX 7900 XT 20GB
Apple_M3_Pro: M3 Pro (18CU)
Ryzen_AI_Max_395: Radeon 8060S (Framework Desktop, Ryzen AI Max+ 395) | AMD Ryzen AI MAX+ (Strix Halo)
DGX_Spark: GB10 (Nvidia Spark) | NVIDIA Spark | NVIDIA GB10
Tenstorrent_Wormhole_n300: n300 | n300s
Tenstorrent_Blackhole_p150: p150 | p150a
MI350X: AMD Instinct MI350X VF
H100_PCIe: H100 PCIe | NVIDIA H100 PCIe 80GB HBM2e | H100PCIe | H100-PCI-E-80GB | H100 80GB HBM2e
H100_NVL: H100 NVL | H100-NVL-94GB | NVIDIA H100 NVL 94GB HBM3 | H100 94GB | H100NVL
H100_96GB_HBM2e: H100 96GB | H100 96GB HBM2e
H200: H200 | H200 SXM5 | NVIDIA H200-SXM-141GB-CTS | H200 141GB HBM3e | h200-141g | NVIDIA H200 Tensor Core GPU
H200_NVL: H200 NVL | NVIDIA H200 NVL 141GB
H20: H20 96GB | NVIDIA H20 | H20-SXM
H800: H800 SXM5 80GB | NVIDIA H800
GH200_96GB: GH200 | NVIDIA GH200 Grace Hopper Superchip 96GB | GH200 96GB HBM3 | GH200-480GB
GH200_144GB: GH200 144GB | NVIDIA GH200 Grace Hopper Superchip 144GB HBM3e
B200: B200 | B200-SXM-180GB | B200 192GB | NVIDIA B200 SXM6 | NVIDIA Blackwell B200 | b200_sxm
B300: B300 | NVIDIA B300 SXM6 AC | B300-SXM-270GB | NVIDIA B300 288GB HBM3e
GB200: NVIDIA GB200 186GB | GB200 | NVIDIA GB200 Grace Blackwell Superchip
GB300: NVIDIA GB300 | GB300-279GB
V100_16GB: V100 | Tesla V100-SXM2-16GB | V100 16 GB
V100_32GB: V100-32GB | Tesla V100-SXM3-32GB | NVIDIA V100 SXM2 32GB
V100_PCIe_16GB: Tesla V100-PCIE-16GB
T4: Tesla T4 | NVIDIA Tesla T4 16GB | T4-PCIe
L4: L4 24GB | NVIDIA L4 | nvidia-l4
L40S: L40S-48GB | NVIDIA L40S PCIe 48GB GDDR6
A10: A10 24GB | NVIDIA A10 PCIe
A10G: NVIDIA A10G | A10G-24GB
RTX_4090: RTX 4090 24GB | GeForce RTX 4090 | NVIDIA GeForce RTX 4090 24GB GDDR6X | rtx4090
RTX_3090: RTX 3090 24G | NVIDIA RTX 3090
RTX_3080Ti: GeForce RTX 3080 Ti 12GB
RTX_A6000: RTX A6000 48GB | NVIDIA RTX A6000
RTX_6000_Ada: RTX 6000 Ada Generation | NVIDIA RTX 6000 Ada 48GB
RTX_PRO_6000_Server: RTX PRO 6000 Blackwell Server Edition 96GB | NVIDIA-RTX-PRO-6000-Blackwell-SE | RTX PRO 6000 SE
RTX_PRO_6000_Workstation: RTX PRO 6000 Blackwell Workstation Edition | RTX PRO 6000 WS
MI300X: MI300X-192GB | AMD Instinct MI300X OAM | AMD MI300X | AMD Instinct MI300X 192GB HBM3 | MI300X-NPS1-SPX-192GB-750W
MI325X: AMD Instinct MI325X 256GB HBM3E | MI325X OAM
MI355X: AMD Instinct MI355X 288GB HBM3e | mi355x
MI210: Instinct MI210 64GB PCIe
Gaudi3: Gaudi 3 | Intel(R) Gaudi(R) 3 | Intel Gaudi3 OAM 128GB | gaudi-3 | Intel® Gaudi® 3 AI Accelerator | Habana Gaudi3
TPU_v4: TPU v4 | Cloud TPU v4 | TPUv4 | Google Cloud TPU v4
TPU_v5e: v5e | TPU-v5e | Google TPU v5e | v5litepod
TPU_v5p: v5p | Cloud TPU v5p
TPU_v6e: Trillium | TPU v6e | v6e
Trainium2: Trn2 | AWS Trainium2 | trainium-2
Apple_M2_Ultra: Apple M2 Ultra | Apple M2 Ultra (76-core GPU) | M2 Ultra 60 GPU cores | M2 Ultra 192GB | m2-ultra | M2 Ultra 76‑Core GPU 192GB
Jetson_AGX_Orin_64GB: Jetson AGX Orin 64GB | NVIDIA Jetson AGX Orin
Xeon_8480_Plus: INTEL(R) XEON(R) Platinum 8480+ | Xeon 8480+ | Xeon Platinum 8480+
GH200_96GB: GH200-GraceHopper-Superchip-96GB
Cerebras_CS3: Cerebras WSE-3 | CS-3
Apple_M4_Max: MacBook Pro M4 Max | Mac Studio M4 Max 128GB
EPYC_9654: AMD EPYC 9654 96-Core Processor
H20_141GB: H20 141GB | NVIDIA H20-3e | H20-141G | NVIDIA H20 SXM 141GB HBM3e
P40: Tesla P40 | NVIDIA Tesla P40 24GB | P40 GDDR5
A2: NVIDIA A2 | A2 16GB | A2 PCIe
A16: NVIDIA A16 | A16-16GB
RTX_5080: GeForce RTX 5080 | NVIDIA GeForce RTX 5080 16GB GDDR7 | rtx5080
RTX_5070Ti: RTX 5070 Ti | NVIDIA GeForce RTX 5070 Ti 16GB
RTX_4080_Super: RTX 4080 SUPER | GeForce RTX 4080 SUPER 16GB | rtx-4080-super
RTX_3090Ti: RTX 3090 Ti | NVIDIA GeForce RTX 3090 Ti 24GB
RTX_A5000: RTX A5000 24GB | NVIDIA RTX A5000 | A5000
RTX_A4000: RTX A4000 | NVIDIA RTX A4000 16GB GDDR6
Quadro_RTX_8000: Quadro RTX 8000 | NVIDIA Quadro RTX 8000 48GB
Titan_RTX: TITAN RTX | NVIDIA TITAN RTX 24GB
MI250: AMD Instinct MI250 | MI250 128GB | AMD Instinct MI250 OAM
Radeon_PRO_W7900: Radeon PRO W7900 | AMD Radeon PRO W7900 48GB | W7900
Radeon_RX_9070_XT: RX 9070 XT | AMD Radeon RX 9070 XT 16GB
Ryzen_AI_Max_395: Ryzen AI Max+ 395 | AMD Ryzen AI Max+ 395 128GB | Strix Halo
Arc_A770: Intel Arc A770 | Arc A770 16GB
Xeon_8380: Intel(R) Xeon(R) Platinum 8380 | Xeon 8380
Jetson_Xavier_NX: Jetson Xavier NX | NVIDIA Jetson Xavier NX 8GB
TPU_v6e: TPU v6e (Trillium) | Cloud TPU v6e (Trillium)
TPU_v7: TPU7x (Ironwood)
GH200_144GB: NVIDIA GH200-GraceHopper-Superchip_GH200-144GB_aarch64
Jetson_AGX_Xavier: Jetson AGX Xavier | NVIDIA Jetson AGX Xavier 32GB
"""
MODELS = """
Llama3_8B: meta-llama/Meta-Llama-3.1-8B | meta-llama/Llama-3.1-8B-Instruct | Meta-Llama-3-8B-Instruct.Q5_K_M.gguf=q5_k_m | unsloth/llama-3-8b-bnb-4bit=nf4
Llama3_8B: hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4=awq | Llama 3.1 8B Instruct | llama3.1-8b | llama-3.1-8b-instruct-f16.gguf=fp16
Llama3_70B: meta-llama/Meta-Llama-3.1-70B-Instruct-FP8=fp8 | Llama-3.1-70B-Instruct-FP8-KV=fp8 | Llama 3 70B | llama-3.1-70b-instruct | Llama 3.0 70B
Llama3_405B: neuralmagic/Meta-Llama-3.1-405B-Instruct-FP8-dynamic=fp8 | nvidia/Llama-3.1-405B-Instruct-NVFP4=nvfp4
Llama3_3_70B: RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8=int8 | Llama-3.3-70B-Instruct-quantized.w4a16=gptq
Llama2_70B: TheBloke/Llama-2-70B-Chat-GPTQ=gptq | meta-llama/Llama-2-70b-chat-hf | llama2-70b-99.9 | llama2-70b-99 | Llama2-70B Fine Tuning (LoRA)
TinyLlama_1_1B: tinyllama-1.1b-1t-openorca.Q4_K_M.gguf=q4_k_m
Llama2_13B: llama-2-13b.Q4_K_M.gguf=q4_k_m | llama-2-13b-chat.Q8_0.gguf=q8_0
Mixtral_8x7B: mixtral 8x7b | mistralai/Mixtral-8x7B-Instruct-v0.1 | TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ=gptq
DeepSeek_R1: nvidia/DeepSeek-R1-0528-FP4=nvfp4 | nvidia/DeepSeek-R1-0528-FP4-v2=nvfp4 | deepseek-ai/DeepSeek-R1-0528 | deepseek-r1
DeepSeek_V3: deepseek-ai/DeepSeek-V3-0324 | nvidia/DeepSeek-V3-0324-NVFP4=nvfp4
Qwen2_5_72B: Qwen/Qwen2.5-72B-Instruct-AWQ=awq | Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4=gptq | Qwen2.5-72B-Instruct-GPTQ-Int8=w8a16
Qwen3_32B: Qwen/Qwen3-32B-FP8=fp8 | qwen3-32b | Qwen3-32B-MLX-4bit=int4
Gemma3_27B: google/gemma-3-27b-it-qat-q4_0-gguf=q4_0 | gemma-3-27b-it
GPT_OSS_120B: openai/gpt-oss-120b | gpt-oss-120b (mxfp4)=mxfp4
GPT_J_6B: GPT-J-6B | gptj-6b | EleutherAI/gpt-j-6b
Mistral_Large_123B: Mistral-Large-Instruct-2411-AWQ=awq
GLM_4_6: zai-org/GLM-4.6-FP8=fp8 | GLM-4.6
Mistral_Small_3_1_24B: mistralai/Devstral-Small-2505 | Magistral-Small-2506 | Mistral-Small-3.2-24B-Instruct-2506 | Mistral-Small-3.1-24B-Instruct-2503
Granite3_1_8B: ibm-granite/granite-3.1-8b-instruct | granite-3.3-8b-instruct
Mistral_7B: HuggingFaceH4/zephyr-7b-beta | openchat-3.5-0106
Llama3_70B: Llama-3.1-Nemotron-70B-Instruct | NousResearch/Hermes-3-Llama-3.1-70B-FP8=fp8
Llama2_70B: WizardLM-70B-V1.0 | Llama 2 70B LoRA | Llama-2-70B-chat-exl2-4.0bpw=4bpw
DeepSeek_V2_Lite: deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct
Qwen2_5_72B: Qwen/Qwen2.5-VL-72B-Instruct-AWQ=awq | OpenGVLab/InternVL3-78B
Qwen3_235B_A22B_2507: Qwen/Qwen3-VL-235B-A22B-Instruct-FP8=fp8
Qwen3_8B: Qwen/Qwen3-Embedding-8B | Qwen3-VL-8B-Instruct | unsloth/Qwen3-8B-UD-Q4_K_M.gguf=q4_k_m | Qwen3-8B-IQ4_XS.gguf=iq4_xs
BLOOM_7B1: bigscience/bloomz-7b1
GLM_4_5_Air: zai-org/GLM-4.5-Air-FP8=fp8
Kimi_K2: moonshotai/Kimi-K2-Instruct-0905
InternLM2_20B: internlm2-chat-20b
InternLM_20B: internlm-chat-20b
Ministral_3_8B: mistralai/Ministral-3-8B-Reasoning-2512
Llama3_70B: meta-llama/Llama-3.2-90B-Vision-Instruct
Llama3_8B: Llama-3.2-11B-Vision-Instruct
OLMo2_13B: OLMo-2-1124-13B | allenai/OLMo-2-1124-13B-Instruct
Falcon_40B: tiiuae/falcon-40b-instruct
BLOOM_176B: bigscience/bloom
DeepSeek_Coder_33B: deepseek-ai/deepseek-coder-33b-instruct | TheBloke/deepseek-coder-33B-instruct-GPTQ=gptq
DeepSeek_Coder_6_7B: deepseek-ai/deepseek-coder-6.7b-base
DeepSeek_Coder_1_3B: deepseek-ai/deepseek-coder-1.3b-instruct
DeepSeek_MoE_16B: deepseek-ai/deepseek-moe-16b-base
DeepSeek_V2: deepseek-ai/DeepSeek-Coder-V2-Instruct
Qwen_1_8B: Qwen/Qwen-1_8B
Qwen_7B: Qwen/Qwen-7B-Chat
Qwen_14B: Qwen/Qwen-14B
Qwen_72B: Qwen/Qwen-72B-Chat
Qwen1_5_0_5B: Qwen/Qwen1.5-0.5B
Qwen1_5_1_8B: Qwen/Qwen1.5-1.8B-Chat
Qwen1_5_4B: Qwen/Qwen1.5-4B
Qwen1_5_7B: Qwen/Qwen1.5-7B-Chat | Qwen1.5-7B-Chat-AWQ=awq
Qwen1_5_14B: Qwen/Qwen1.5-14B-Chat
Qwen1_5_32B: Qwen/Qwen1.5-32B-Chat
Qwen1_5_72B: Qwen/Qwen1.5-72B-Chat-GPTQ-Int4=gptq
Qwen1_5_110B: Qwen/Qwen1.5-110B-Chat
Qwen1_5_MoE_A2_7B: Qwen/Qwen1.5-MoE-A2.7B-Chat
CodeQwen1_5_7B: Qwen/CodeQwen1.5-7B-Chat
Qwen2_5_7B: Qwen/Qwen2.5-VL-7B-Instruct
ChatGLM3_6B: THUDM/chatglm3-6b | THUDM/chatglm2-6b
EXAONE_3_5_2_4B: LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct
EXAONE_3_5_32B: LGAI-EXAONE/EXAONE-3.5-32B-Instruct-AWQ=awq
Falcon3_1B: tiiuae/Falcon3-1B-Instruct
Falcon3_3B: tiiuae/Falcon3-3B-Base
Falcon3_7B: tiiuae/Falcon3-7B-Instruct
Falcon3_10B: tiiuae/Falcon3-10B-Instruct
Seed_OSS_36B: ByteDance-Seed/Seed-OSS-36B-Instruct
MiniCPM_2B: openbmb/MiniCPM-2B-sft-bf16=bf16
InternLM3_8B: internlm/internlm3-8b-instruct
Dots_LLM1: rednote-hilab/dots.llm1.inst
Grok_2: xai-org/grok-2
Yi_9B: 01-ai/Yi-9B | 01-ai/Yi-1.5-9B-Chat
StableLM2_12B: stabilityai/stablelm-2-12b-chat
StableLM2_1_6B: stabilityai/stablelm-2-1_6b
Hunyuan_Large: tencent/Tencent-Hunyuan-Large
ModernBERT_Base: answerdotai/ModernBERT-base
ModernBERT_Large: answerdotai/ModernBERT-large
XLM_RoBERTa_Base: FacebookAI/xlm-roberta-base
XLM_RoBERTa_Large: intfloat/multilingual-e5-large
BGE_M3: BAAI/bge-m3
BERT_Large: intfloat/e5-large-v2 | BAAI/bge-large-en-v1.5
T5_v1_1_Base: google/flan-t5-base
T5_v1_1_Large: google/flan-t5-large
T5_v1_1_XL: google/flan-t5-xl
T5_v1_1_XXL: google/flan-t5-xxl | google/t5-v1_1-xxl
ESM2_650M: facebook/esm2_t33_650M_UR50D
ESM2_3B: facebook/esm2_t36_3B_UR50D
ESM2_15B: facebook/esm2_t48_15B_UR50D
ViT_22B: ViT-22B
StarCoder2_3B: bigcode/starcoder2-3b
StarCoder2_7B: bigcode/starcoder2-7b
Granite_Code_3B: ibm-granite/granite-3b-code-base-2k
Granite_Code_8B: ibm-granite/granite-8b-code-instruct
Granite_Code_20B: ibm-granite/granite-20b-code-instruct-8k
Granite_Code_34B: ibm-granite/granite-34b-code-base
Granite3_0_2B: ibm-granite/granite-3.0-2b-instruct
GPT_Neo_125M: EleutherAI/gpt-neo-125m
GPT_Neo_1_3B: EleutherAI/gpt-neo-1.3B
GPT_Neo_2_7B: EleutherAI/gpt-neo-2.7B
RedPajama_3B: togethercomputer/RedPajama-INCITE-Base-3B-v1
XGen_7B: Salesforce/xgen-7b-8k-base
Persimmon_8B: adept/persimmon-8b-chat
Orion_14B: OrionStarAI/Orion-14B-Chat
Baichuan2_7B: baichuan-inc/Baichuan2-7B-Chat
InternLM_7B: internlm/internlm-chat-7b
Moonlight_16B_A3B: moonshotai/Moonlight-16B-A3B-Instruct
Pythia_12B: databricks/dolly-v2-12b
Mistral_7B: intfloat/e5-mistral-7b-instruct
Llama2_70B: codellama/CodeLlama-70b-hf
Cerebras_GPT_1_3B: cerebras/Cerebras-GPT-1.3B
Cerebras_GPT_2_7B: cerebras/Cerebras-GPT-2.7B
Cerebras_GPT_6_7B: cerebras/Cerebras-GPT-6.7B
RedPajama_7B: togethercomputer/RedPajama-INCITE-7B-Chat
CodeGen_16B: Salesforce/codegen-16B-mono
ResNet50: resnet-50 | ResNet50
DeepSeek_R1: DeepSeek R1 671B | deepseek-r1:671b | DeepSeek-R1-671B-FP8=fp8
GPT_OSS_120B: gpt-oss-120b (high) | gpt-oss-120b (low reasoning)
Qwen3_30B_A3B: qwen3moe 30B.A3B Q4_K - Medium=q4_k_m | qwen3-30b-a3b
Llama3_8B: llama3.1:8b | llama3.1:8b-instruct-q4_K_M=q4_k_m | llama 8B Q4_K - Medium=q4_k_m
Llama3_3_70B: bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M=q4_k_m | hf.co/bartowski/Llama-3.3-70B-Instruct-GGUF:Q6_K=q6_k
Phi4: phi4:14b
Qwen2_5_7B: Qwen/Qwen2.5-Omni-7B
Nemotron_Nano_12B_v2: Nemotron-Nano-12B-v2-VL
FLUX_1_dev: FLUX.1 [dev]
BERT_Large: BERT-Large (SQuAD)
Qwen3_30B_A3B: Qwen3-30B-A3B-UD-Q4_K_XL.gguf=q4_k_xl
"""


def _cases(table: str) -> list[tuple[str, str]]:
    rows = [line.partition(": ") for line in table.strip().splitlines()]
    return [(label, key) for key, _, labels in rows for label in labels.split(" | ")]


@pytest.mark.parametrize(("label", "key"), _cases(CHIPS))
def test_chips(label: str, key: str) -> None:
    assert Hardware.get(label).metadata.key == key


@pytest.mark.parametrize(("label", "key"), _cases(MODELS))
def test_models_and_formats_of_checkpoints(label: str, key: str) -> None:
    name, _, held = label.partition("=")
    assert Models.get(name).metadata.key == key
    assert (format_named(name) or "") == held
    assert not held or precision_name(held) == {"q4_k_xl": "q4_k_m"}.get(held, held)


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("LLaMA V2 7B", "Llama2_7B"),
        ("LLaMA v3.1 70B", "Llama3_70B"),
        ("Mixtral v0.1 8x7B", "Mixtral_8x7B"),
        ("Qwen3-Coder-480B", "Qwen3_Coder_480B_A35B"),
        ("Qwen3-235B-Instruct-FP8", "Qwen3_235B_A22B"),
        ("Foo v3 8B", None),
        ("Llama v9 70B", None),
    ],
)
def test_versions_in_the_middle_and_mixtures_without_their_active_size(label: str, key: str | None) -> None:
    assert (Models.key_of(label) if label in Models else None) == key


@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("A100 PCIe", "A100_PCIe_40GB or A100_PCIe_80GB"),  # two chips are called so
        ("B200 PCIe", "other memory or another form"),
        ("H100 NVL 80GB", "other memory or another form"),
        ("H20 80GB", "other memory or another form"),
        ("RTX 3080 12GB", "other memory or another form"),
        ("H100-80GB-500W", "power_cap"),
        ("p5.48xlarge", "8 x H100"),
        ("8x H100 SXM", "8 x H100"),
        ("v5p-256", "128 x TPU_v5p"),
        ("GB200 NVL72", "72 x GB200"),
        ("NVIDIA GB300-NVL72", "72 x GB300"),
        ("MI250X (GCD)", "did you mean"),
        ("GeForce RTX 4050", "did you mean"),
        ("XPU9", "no hardware named"),
    ],
)
def test_what_is_not_one_chip_of_the_zoo_is_refused_with_a_reason(label: str, part: str) -> None:
    assert label not in Hardware
    with pytest.raises(MLSysError, match=part.replace("?", r"\?")):
        Hardware.get(label)


@pytest.mark.parametrize("before", ["", "hf://", "https://huggingface.co/", "hf.co/"])
def test_hub_ids_mean_entries_with_the_hubs_address_too(before: str) -> None:
    for name, key in (("meta-llama/Llama-3.1-8B", "Llama3_8B"), ("Qwen/QwQ-32B", "Qwen2_5_32B")):
        assert Models.key_of(before + name) == key


@pytest.mark.parametrize("name", ["llama-3-nonsense", "./llama-2-7b", "/data/Qwen3-32B", "hf://meta-llama/Llama-9-7b", "a/b/Llama-2-7b"])  # fmt: skip
def test_paths_and_addresses_are_no_names_of_models(name: str) -> None:
    assert name not in Models


@pytest.mark.parametrize(
    ("text", "count", "chip"),
    [
        ("p4d.24xlarge", 8, "A100_40GB"),
        ("p4de.24xlarge", 8, "A100"),
        ("p5.48xlarge", 8, "H100"),
        ("p5e.48xlarge", 8, "H200"),
        ("g6e.12xlarge", 4, "L40S"),
        ("g6e.xlarge", 1, "L40S"),
        ("g5.16xlarge", 1, "A10G"),
        ("trn1.32xlarge", 16, "Trainium1"),
        ("inf2.48xlarge", 12, "Inferentia2"),
        ("a2-ultragpu-4g", 4, "A100"),
        ("a3-highgpu-8g", 8, "H100"),
        ("a3-ultragpu-8g", 8, "H200"),
        ("ND_H100_v5", 8, "H100"),
        ("Standard_ND96isr_H200_v5", 8, "H200"),
        ("Standard_ND96amsr_A100_v4", 8, "A100"),
        ("Standard_NC40ads_H100_v5", 1, "H100_NVL"),
        ("BM.GPU.MI300X.8", 8, "MI300X"),
        ("v5litepod-256", 256, "TPU_v5e"),
        ("Google Cloud TPU v5p-256", 128, "TPU_v5p"),
        ("v4-128", 64, "TPU_v4"),
        ("v6e-8", 8, "TPU_v6e"),
        ("tpu7x-128", 64, "TPU_v7"),
        ("a4x-maxgpu-4g-metal", 4, "GB300"),
        ("g4-standard-384", 8, "RTX_PRO_6000_Server"),
        ("Standard_ND128isr_NDR_GB200_v6", 4, "GB200"),
        ("BM.GPU.MI355X-v1.8", 8, "MI355X"),
        ("p2.16xlarge", 16, "K80"),
        ("NVIDIA DGX B200", 8, "B200"),
        ("dgx a100", 8, "A100"),
        ("HGX H100 8-GPU", 8, "H100"),
        ("DGX A100 320GB", 8, "A100_40GB"),
        ("GB200 NVL4", 4, "GB200"),
        ("DGX GB200 NVL72", 72, "GB200"),
        ("HGX H100 4-GPU", 4, "H100"),
        ("ml.p5.48xlarge", 8, "H100"),
        ("ND H100 v5", 8, "H100"),
    ],
)
def test_machines_of_clouds_and_slices(text: str, count: int, chip: str) -> None:
    assert machine(text) == (count, chip)
    assert chip in Hardware.keys()  # noqa: SIM118


@pytest.mark.parametrize(
    ("text", "count", "chip"),
    [
        ("8x H100 SXM", 8, "H100"),
        ("512 H100", 512, "H100"),
        ("512H100", 512, "H100"),
        ("H100 x8", 8, "H100"),
        ("H200x8", 8, "H200"),
        ("AMD Instinct MI300X 192GB HBM3 (x32)", 32, "MI300X"),
        ("2xp5.48xlarge", 16, "H100"),
        ("a3-highgpu-8g", 8, "H100"),
        ("v5p-256", 128, "TPU_v5p"),
        ("64xDGX_H100", 512, "H100"),
        ("2x DGX H100", 16, "H100"),
        ("HGX B200", 8, "B200"),
        ("HGX A100", 8, "A100"),
        ("8-GPU H100", 8, "H100"),
        ("H100 (8 GPUs)", 8, "H100"),
        ("dual RTX 3090", 2, "RTX_3090"),
        ("1024 TPU v4 chips", 1024, "TPU_v4"),
        ("Dell XE9680 (8x H100-SXM-80GB)", 8, "H100"),
        ("gpu_8x_a100_80gb_sxm4", 8, "A100"),
        ("2x Xeon 8480+", 2, "Xeon_8480_Plus"),
        ("TPU_v4_Pod", 4096, "TPU_v4"),
        ("GB200 NVL72", 72, "GB200"),
        ("1x GB200 NVL72", 72, "GB200"),
        ("2x GB300_NVL72", 144, "GB300"),
        ("DGX GB200", 72, "GB200"),
        ("ASUS ESC N8 (8x H200-SXM-141GB, TensorRT)", 8, "H200"),
        ("32 nodes (256 H100)", 256, "H100"),
        ("4 nodes of 8xH100", 32, "H100"),
        ("2x8 H100", 16, "H100"),
        ("v5p 4x4x8", 128, "TPU_v5p"),
        ("64 H100s", 64, "H100"),
        ("8x L40S", 8, "L40S"),
    ],
)
def test_fleets(text: str, count: int, chip: str) -> None:
    fleet = parse_fleet(text).one
    assert fleet.total_accelerators == count
    assert fleet.node.accelerator.metadata.key == chip


def test_a_fleet_of_an_ambiguous_chip_is_refused() -> None:
    with pytest.raises(InputError, match="say which"):
        parse_fleet("8xA100 PCIe")


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        ("TP8", {"tp": 8}),
        ("TP4PP2", {"tp": 4, "pp": 2}),
        ("tp8-ep8", {"tp": 8, "ep": 8}),
        ("TP 8 x PP 2", {"tp": 8, "pp": 2}),
        ("tp=4,cp=2", {"tp": 4, "cp": 2}),
        ("DEP8", {"tp": 1, "ep": 8}),
        ("TEP4", {"tp": 4, "ep": 4}),
        ("8-way TP", {"tp": 8}),
        ("8-way tensor parallelism", {"tp": 8}),
        ("--tensor-parallel-size 8", {"tp": 8}),
        ("WideEP32", {"ep": 32}),
        ("TPxPPxDP = 8x4x16", {"tp": 8, "pp": 4, "dp": 16}),
        ("TP/PP/DP 8/4/16", {"tp": 8, "pp": 4, "dp": 16}),
        ("2xTP4", {"tp": 4, "dp": 2}),
        ("TP4 x2", {"tp": 4, "dp": 2}),
        ("TP16 (2 nodes)", {"tp": 16}),
        ("FSDP", {"zero": 3}),
        ("FSDP2", {"zero": 3}),
        ("FSDP64", {"zero": 3, "dp": 64}),
        ("TP8 + SP", {"tp": 8, "sequence_parallel": 1}),
        ("TP8 + DPA", {"tp": 1, "ep": 8, "attention_dp": 8}),
        ("TP8 DPA8", {"tp": 1, "ep": 8, "attention_dp": 8}),
        ("--tp-size 16 --dp-size 8 --enable-dp-attention", {"tp": 2, "ep": 16, "attention_dp": 8}),
        ("DPA", None),  # over how many
        ("1P1D", None),  # two pools
        ("TPxPPxDP = 8x4", None),
        ("SP8", None),
        ("DEP4 + DEP16", None),  # two layouts
        ("fast", None),
        ("8", None),
        ("H100", None),
    ],
)
def test_layouts(text: str, degrees: dict[str, int] | None) -> None:
    assert mapping(text) == degrees


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("FP16/FP32", "fp16"), ("bf16/fp8 mixed", "fp8"), ("NVFP4 + FP8 KV", "nvfp4"), ("4-bit", "int4"), ("bnb-4bit", "nf4"), ("A8W8", "int8"), ("W4A8KV4", "w4a8")),
        *(("SmoothQuant INT8", "int8"), ("IQ4_XS", "iq4_xs"), ("Q4_1", "q4_1"), ("MXFP4 (MoE)", "mxfp4"), ("NVFP4A16", "nvfp4_weight"), ("BF16 GGUF", "bf16")),
        *(("exl2 4.65bpw", "4.65bpw"), ("4.0bpw", "4bpw"), ("MXFP6 (E3M2)", "mxfp6"), ("hqq-int4", "hqq"), ("UD-Q4_K_XL", "q4_k_m"), ("Q4_K - Medium", "q4_k_m"), ("IQ1_S", "iq1_s")),
        *(("Block FP8", "fp8_block"), ("FP8 weights, FP8 KV", "fp8"), ("W8A8KV8", "int8"), ("FP4 (NVFP4)", "nvfp4"), ("torch.bfloat16", "bf16"), ("ptpc-fp8", "fp8_row")),
        *(("MXFP4 MoE", "mxfp4_moe"), ("BFP8", "fp8"), ("bfloat8_b", "fp8"), ("GPTQ-Int8", "w8a16"), ("int4 (AutoRound)", "gptq"), ("AutoRound INT4", "gptq")),
        ("amp_bf16", "bf16"), ("BF16-mixed", "bf16"), ("FP8-CS", "fp8"), ("fp8 (E4M3)", "fp8"), ("INT4 AWQ", "awq"), ("INT8 (AQT)", "int8"), ("Q4_K_M", "q4_k_m"),
        ("fp8 (W8A8)", "fp8"), ("INT8 (w8a16)", "w8a16"), ("bf16 (no quantization)", "bf16"),
    ],
)  # fmt: skip
def test_number_formats(text: str, name: str) -> None:
    assert precision_name(text) == name


@pytest.mark.parametrize("text", ["FP8/FP4", "bf16/fp16", "kv", "auto", "/", "exl2", "40bpw", "0bpw", "1.58-bit"])
def test_what_is_no_one_format_is_refused(text: str) -> None:
    with pytest.raises(MLSysError, match="no precision named"):
        precision_name(text)


@pytest.mark.parametrize("key", Hardware.keys())
def test_every_name_of_the_zoo_reads_as_itself_with_its_memory_and_vendor(key: str) -> None:
    """A label that says what the entry says means the entry, or is refused where another entry is as near."""
    chip = Hardware.get(key)
    label = f"{chip.vendor or ''} {key} {chip.memory.capacity.to('byte').magnitude / 2**30:g} GiB"
    if chip_label(key).memory is None and chip.memory.capacity.to("byte").magnitude > 2**30:
        found = Hardware.get(label, None)
        assert found is None or found.metadata.key == key
