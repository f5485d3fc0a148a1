"""What the model types of decoders do not write into their configurations: norms, biases, gates and tied embeddings.

A row is the difference from Llama (gated feed-forward layers, two RMS norms in each layer, no biases, embeddings not tied).
The rows follow the public definitions in Hugging Face transformers and the models' own papers. Where a configuration says
something itself (``tie_word_embeddings``, ``attention_bias``), that holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """Defaults of a model type. ``qk_norm``: norms of queries and keys over a head or over all heads together."""

    label: str
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norms: int = 2
    tied: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    qk_norm: Literal["", "head", "full"] = ""
    head_dim: int | None = None
    ffn_ratio: int | None = None
    embedding_norm: bool = False
    full_every: int = 0
    bias_key_covers_output: bool = True
    shared_gate: bool = False
    sinks: bool = False
    router_bias: bool = False
    needs_window_flag: bool = False


_GPT = {"gated": False, "norm": "layernorm", "ffn_ratio": 4}
_ALL_BIASED = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}


def _f(label: str, **fields: object) -> Family:
    return Family(label, **fields)  # type: ignore[arg-type]


FAMILIES: dict[str, Family] = {
    # Llama and those that keep its shape
    "llama": _f("Llama"),
    "mllama_text_model": _f("Llama"),
    "llama4": _f("Llama 4", full_every=4),
    "llama4_text": _f("Llama 4", full_every=4),
    "mistral": _f("Mistral"),
    "ministral": _f("Mistral"),
    "ministral3": _f("Mistral"),
    "mixtral": _f("Mixtral"),
    "baichuan": _f("Baichuan"),
    "internlm": _f("InternLM"),
    "internlm2": _f("InternLM"),
    "internlm3": _f("InternLM"),
    "yi": _f("Yi"),
    "orion": _f("Orion", norm="layernorm"),
    "aquila": _f("Aquila"),
    "exaone": _f("EXAONE"),
    "exaone4": _f("EXAONE", qk_norm="head"),
    "smollm3": _f("SmolLM3", tied=True),
    "seed_oss": _f("Seed-OSS", qkv_bias=True, bias_key_covers_output=False),
    "ernie4_5": _f("ERNIE", tied=True),
    "ernie4_5_moe": _f("ERNIE", tied=True),
    "hunyuan_v1_dense": _f("Hunyuan", qk_norm="head"),
    "hunyuan_v1_moe": _f("Hunyuan", qk_norm="head"),
    "hunyuan": _f("Hunyuan", qk_norm="head"),
    "granite": _f("Granite"),
    "granitemoe": _f("Granite"),
    "granitemoeshared": _f("Granite"),
    "granitemoehybrid": _f("Granite"),
    "bamba": _f("Bamba"),
    "jamba": _f("Jamba"),
    "falcon_h1": _f("Falcon-H1"),
    "minimax_m2": _f("MiniMax", qk_norm="full"),
    "minimax_m3": _f("MiniMax", qk_norm="head"),
    "minimax_m3_vl": _f("MiniMax", qk_norm="head"),
    "step3p7": _f("Step", qk_norm="head"),
    "mimo": _f("MiMo", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "mimo_v2_flash": _f("MiMo"),
    "grok-1": _f("Grok", norms=4, tied=True),
    "arcee": _f("Arcee", gated=False),
    "apertus": _f("Apertus", gated=False, qk_norm="head"),
    # Qwen
    "qwen2": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "qwen2_vl": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "qwen2_vl_text": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "qwen2_5_vl": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "qwen2_5_vl_text": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True),
    "qwen2_moe": _f("Qwen2", qkv_bias=True, bias_key_covers_output=False, needs_window_flag=True, shared_gate=True),
    "qwen3": _f("Qwen3", qk_norm="head", needs_window_flag=True),
    "qwen3_moe": _f("Qwen3", qk_norm="head", needs_window_flag=True),
    "qwen3_vl": _f("Qwen3", qk_norm="head"),
    "qwen3_vl_text": _f("Qwen3", qk_norm="head"),
    "qwen3_vl_moe": _f("Qwen3", qk_norm="head"),
    "qwen3_vl_moe_text": _f("Qwen3", qk_norm="head"),
    "qwen3_next": _f("Qwen3", qk_norm="head", shared_gate=True),
    "qwen3_5": _f("Qwen3.5", qk_norm="head"),
    "qwen3_5_text": _f("Qwen3.5", qk_norm="head"),
    "qwen3_5_moe": _f("Qwen3.5", qk_norm="head", shared_gate=True),
    "qwen3_5_moe_text": _f("Qwen3.5", qk_norm="head", shared_gate=True),
    "qwen": _f("Qwen", qkv_bias=True),
    # Gemma
    "gemma": _f("Gemma", tied=True, head_dim=256),
    "gemma2": _f("Gemma 2", tied=True, norms=4, head_dim=256, full_every=2),
    "gemma3": _f("Gemma 3", tied=True, norms=4, head_dim=256, qk_norm="head", full_every=6),
    "gemma3_text": _f("Gemma 3", tied=True, norms=4, head_dim=256, qk_norm="head", full_every=6),
    "gemma4": _f("Gemma 4", tied=True, norms=4, head_dim=256, qk_norm="head", full_every=6),
    "gemma4_text": _f("Gemma 4", tied=True, norms=4, head_dim=256, qk_norm="head", full_every=6),
    # Phi
    "phi": _f("Phi", **_GPT, **_ALL_BIASED, norms=1, head_bias=True),
    "phi-msft": _f("Phi", **_GPT, **_ALL_BIASED, norms=1, head_bias=True),
    "phi3": _f("Phi-3"),
    "phi3_v": _f("Phi-3"),
    "phimoe": _f("Phi-3.5-MoE", qkv_bias=True, output_bias=True, norm="layernorm", head_bias=True),
    # GPT and its time
    "gpt2": _f("GPT-2", **_GPT, **_ALL_BIASED, tied=True, learned_positions=True),
    "gpt_bigcode": _f("StarCoder", **_GPT, **_ALL_BIASED, tied=True, learned_positions=True),
    "starcoder2": _f("StarCoder2", **_GPT, **_ALL_BIASED, tied=True),
    "gpt_neo": _f("GPT-Neo", **_GPT, output_bias=True, mlp_bias=True, tied=True, learned_positions=True),
    "gptj": _f("GPT-J", **_GPT, mlp_bias=True, norms=1, head_bias=True),
    "codegen": _f("CodeGen", **_GPT, mlp_bias=True, norms=1, head_bias=True),
    "gpt_neox": _f("GPT-NeoX", **_GPT, **_ALL_BIASED),
    "opt": _f("OPT", **_GPT, **_ALL_BIASED, tied=True, learned_positions=True, position_offset=2),
    "bloom": _f("BLOOM", **_GPT, **_ALL_BIASED, tied=True, embedding_norm=True),
    "mpt": _f("MPT", gated=False, ffn_ratio=4, tied=True),
    "falcon": _f("Falcon", **_GPT, tied=True),
    "RefinedWeb": _f("Falcon", **_GPT, tied=True),
    "RefinedWebModel": _f("Falcon", **_GPT, tied=True),
    "stablelm": _f("StableLM", norm="layernorm"),
    "stablelm_epoch": _f("StableLM", norm="layernorm"),
    "persimmon": _f("Persimmon", **_GPT, **_ALL_BIASED),
    "nemotron": _f("Nemotron", gated=False, norm="layernorm"),
    "dbrx": _f("DBRX"),
    # Cohere, OLMo, GLM
    "cohere": _f("Command R", norms=1, tied=True),
    "cohere2": _f("Command R", norms=1, tied=True, full_every=4),
    "olmo": _f("OLMo", norms=0),
    "olmo2": _f("OLMo 2", qk_norm="full"),
    "olmo3": _f("OLMo 3", qk_norm="full", full_every=4),
    "olmoe": _f("OLMoE", qk_norm="full"),
    "chatglm": _f("GLM", qkv_bias=True, bias_key_covers_output=False),
    "glm": _f("GLM", qkv_bias=True, bias_key_covers_output=False),
    "glm4": _f("GLM", qkv_bias=True, bias_key_covers_output=False, norms=4),
    "glm4_moe": _f("GLM", bias_key_covers_output=False),
    # Latent attention
    "deepseek": _f("DeepSeek"),
    "deepseek_v2": _f("DeepSeek"),
    "deepseek_v3": _f("DeepSeek"),
    "deepseek_v32": _f("DeepSeek"),
    "kimi_k2": _f("Kimi"),
    "kimi_k25": _f("Kimi"),
    "glm_moe_dsa": _f("GLM"),
    "glm4_moe_lite": _f("GLM"),
    "minicpm": _f("MiniCPM", tied=True),
    "minicpm3": _f("MiniCPM", tied=True),
    "deepseek_v4": _f("DeepSeek"),
    "deepseek_ref": _f("DeepSeek"),
    # OpenAI
    "gpt_oss": _f("gpt-oss", **_ALL_BIASED, full_every=2, sinks=True, router_bias=True),
}


DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
    "mistral": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
    },
    "gemma3_text": {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
    },
    "clip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 32,
    },
    "siglip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 16,
    },
    "pixtral": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 16},
}
"""What the parts of a nested configuration leave out: they are written as differences from these values of their classes."""
