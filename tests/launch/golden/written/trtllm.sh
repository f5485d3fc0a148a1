#!/bin/bash
# TensorRT-LLM: serving Llama-3.1-70B on 8 x NVIDIA H200 SXM5 141GB.
# Fits: 20.47 GB of 141 GB with 2 replicas of TP4; the first token after 91.97 ms, then one every 14.57 ms.
# Wall 4 (Serving) binds: 64.1% of the request, most of it prompts of others while it answers (set by arithmetic).
# How sure: First order: what binds, ratios and bounds; not calibrated on measurements.
# Not expressed here: serving.output_tokens = 300 (traffic, not a setting).
# Not expressed here: serving.prompt_tokens = 2000 (traffic, not a setting).
# Not expressed here: serving.replicas = 2 (start as many of these behind a load balancer).
# Not expressed here: serving.concurrency = 64 (32 a server).
# fleet: 8xH200
# model: Llama3_70B

cat > extra_llm_api_options.yaml <<'EOF'
# a prefill chunk of 8,192 tokens
enable_chunked_prefill: true
quant_config:
  # fp8, peak 1,979 TFLOP/s; the checkpoint must be quantised so
  quant_algo: FP8
kv_cache_config:
  # caches of a replica take 11.27 GB
  dtype: fp8
EOF

ARGS=(
    # TP 4: inside a node of 8; memory 20.5 of 141.0 GB; first token 91.97 ms, then 14.57 ms each
    --tp_size 4
    # PP 1: pipeline stages of a replica
    --pp_size 1
    # 64 in flight over 2 replicas; 1,400 fit in a replica's memory
    --max_batch_size 32
    # a prefill chunk of 8,192 tokens
    --max_num_tokens 8192
    # prompts of 2,000 and answers of 300 tokens are the plan's; raise it for longer requests
    --max_seq_len 2300
    --config extra_llm_api_options.yaml
)

trtllm-serve meta-llama/Llama-3.1-70B "${ARGS[@]}"
