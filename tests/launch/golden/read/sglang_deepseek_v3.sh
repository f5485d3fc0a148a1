# Flags as in https://docs.sglang.ai/basic_usage/deepseek_v3.html
python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3-0324 --tp 16 --dp 16 --enable-dp-attention \
    --dist-init-addr 10.0.0.1:5000 --nnodes 2 --node-rank 0 --trust-remote-code \
    --chunked-prefill-size 4096 --mem-fraction-static=0.85 --speculative-algorithm EAGLE --speculative-num-steps 3
