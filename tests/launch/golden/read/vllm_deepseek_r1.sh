# Flags as in https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment.html
VLLM_ALL2ALL_BACKEND=deepep_low_latency vllm serve deepseek-ai/DeepSeek-R1-0528 \
    --tensor-parallel-size 1 `# attention is not split` \
    --data-parallel-size 8 \
    --enable-expert-parallel \
    --max-num-seqs 128 --max-model-len 16384 --kv-cache-dtype fp8 \
    --trust-remote-code --enable-eplb --host 0.0.0.0 --port 8000 &
