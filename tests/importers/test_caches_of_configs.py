"""Caches of 131,072 tokens in 16 bits, counted by hand from what configurations say: windows, few heads, latents, states, what is heard."""

from __future__ import annotations

import pytest

from mlsysim.importers.hf import import_config

TOKENS, HALF = 131_072, 2
COMMON = {"tie_word_embeddings": False, "torch_dtype": "bfloat16", "max_position_embeddings": TOKENS}
GEMMA3 = COMMON | {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
    "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262208, "sliding_window": 1024, "sliding_window_pattern": 6,
}  # fmt: skip
GPT_OSS = COMMON | {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201088,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip
QWEN3_NEXT = COMMON | {
    "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "vocab_size": 151936, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "decoder_sparse_step": 1,
    "shared_expert_intermediate_size": 512, "mlp_only_layers": [], "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
}  # fmt: skip
DEEPSEEK_V32 = COMMON | {
    "model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 129280, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048,
}  # fmt: skip
MINIMAX = COMMON | {
    "model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "vocab_size": 200064, "shared_intermediate_size": 0,
}  # fmt: skip
MAMBA2 = COMMON | {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50288, "state_size": 128, "expand": 2, "head_dim": 64,
    "num_heads": 80, "n_groups": 1, "conv_kernel": 4, "tie_word_embeddings": True,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128, "vocab_size": 51866, "max_source_positions": 1500,
    "max_target_positions": 448, "torch_dtype": "float16", "is_encoder_decoder": True,
}  # fmt: skip

COUNTED = {
    "ten of 62 layers look at everything": (GEMMA3, (10 * TOKENS + 52 * 1024) * 2 * 16 * 128),
    "every other layer": (GPT_OSS, 18 * (TOKENS + 128) * 2 * 8 * 64),
    "one layer of four, and a state": (QWEN3_NEXT, 12 * TOKENS * 2 * 2 * 256 + 36 * (32 * 128 * 128 + 3 * 8192)),
    "a latent and the keys of the indexer": (DEEPSEEK_V32, 61 * TOKENS * (512 + 64 + 128)),
    "one layer of eight, and a state": (MINIMAX, 10 * TOKENS * 2 * 8 * 128 + 70 * 64 * 128 * 128),
    "a state alone": (MAMBA2, 64 * (5120 * 128 + 4 * (5120 + 2 * 128))),
    "what is said and what was heard": (WHISPER, 32 * 2 * 1280 * (TOKENS + 1500)),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_the_cache_by_hand(kind):
    config, elements = COUNTED[kind]
    found = import_config(config).get_kv_cache_size(TOKENS, 1, "fp16").to("byte").magnitude
    assert found == pytest.approx(HALF * elements, rel=1e-3)
