#!/bin/bash
# SGLang: serving Llama-3.1-70B on 8 x NVIDIA H200 SXM5 141GB.
# Fits: 20.47 GB of 141 GB with 2 replicas of TP4; the first token after 91.97 ms, then one every 14.57 ms.
# Wall 4 (Serving) binds: 64.1% of the request, most of it prompts of others while it answers (set by arithmetic).
# How sure: First order: what binds, ratios and bounds; not calibrated on measurements.
# Not expressed here: serving.output_tokens = 300 (traffic, not a setting).
# Not expressed here: serving.prompt_tokens = 2000 (traffic, not a setting).
# fleet: 8xH200
# model: Llama3_70B

ARGS=(
    # weights and caches: 20.5 of 141.0 GB on each accelerator
    --model-path meta-llama/Llama-3.1-70B
    # TP 4: inside a node of 8; memory 20.5 of 141.0 GB; first token 91.97 ms, then 14.57 ms each
    --tp-size 4
    # 2 replicas on 8 accelerators: 4,317 output tokens a second in all
    --dp-size 2
    # PP 1: pipeline stages of a replica
    --pp-size 1
    # fp8, peak 1,979 TFLOP/s
    --quantization fp8
    # caches of a replica take 11.27 GB
    --kv-cache-dtype fp8_e4m3
    # 64 in flight over 2 replicas; 1,400 fit in a replica's memory
    --max-running-requests 32
    # a prefill chunk of 8,192 tokens
    --chunked-prefill-size 8192
    # prompts of 2,000 and answers of 300 tokens are the plan's; raise it for longer requests
    --context-length 2300
)

python -m sglang.launch_server "${ARGS[@]}"
