# Options as in https://nvidia.github.io/TensorRT-LLM/deployment-guide/quick-start-recipe-for-llama3.3-70b-on-trtllm.html
cat <<EOF > /tmp/config.yml
enable_attention_dp: false
cuda_graph_config:
  enable_padding: true
  max_batch_size: 1024
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.9
guided_decoding_backend: xgrammar
EOF
trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 --host 0.0.0.0 --port 8000 --tp_size 2 --ep_size 1 \
    --max_batch_size 1024 --max_num_tokens 8192 --max_seq_len 2048 --trust_remote_code --config /tmp/config.yml
