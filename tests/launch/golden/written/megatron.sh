#!/bin/bash
# Megatron-LM arguments: training Llama-3.1-70B on 512 x NVIDIA H100 SXM5 80GB.
# Fits: 25.04 GB of 85.90 GB on each of 512 accelerators with TP8 PP4 DP16; a step takes 4.48 s at 40.6% MFU.
# Wall 1 (Compute) binds: 82.3% of the step.
# How sure: First order: what binds, ratios and bounds; not calibrated on measurements.
# Run it on every node with MASTER_ADDR and NODE_RANK set; add data, learning rate and checkpoints.
# fleet: 512xH100
# model: Llama3_70B

export CUDA_DEVICE_MAX_CONNECTIONS=1

LAUNCH_ARGS=(
    # 64 node(s) of 8 NVIDIA H100 SXM5 80GB
    --nproc-per-node 8
    # DP 16: 0.6% of the step is gradient synchronisation that shows
    --nnodes 64
    --node-rank "$NODE_RANK"
    --master-addr "$MASTER_ADDR"
    --master-port 6000
)

TRAINING_ARGS=(
    --use-mcore-models
    # dimensions of Llama-3.1-70B
    --num-layers 80
    --hidden-size 8192
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --ffn-hidden-size 28672
    --swiglu
    --normalization RMSNorm
    --position-embedding-type rope
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --vocab-size 128256
    # 4,096 tokens a sequence
    --seq-length 4096
    --max-position-embeddings 4096
    # TP 8: inside a node of 8; 15.3% of the step; memory 25.0 of 85.9 GB
    --tensor-model-parallel-size 8
    # norms and dropouts over the tensor group too: their activations shrink by TP
    --sequence-parallel
    # PP 4: bubble 1.8% of the step; memory 25.0 of 85.9 GB
    --pipeline-model-parallel-size 4
    # 5 virtual stages a device: bubble 1.8% of the step
    --num-virtual-stages-per-pipeline-rank 5
    # 32 micro-batches of 1 a replica; activations 12.9 GB on each accelerator
    --micro-batch-size 1
    # 512 x 4,096 = 2,097,152 tokens a step
    --global-batch-size 512
    # ZeRO 1: optimizer state 1.7 GB on each accelerator, gradients 4.4 GB on each accelerator
    --use-distributed-optimizer
    # gradients travel during the backward pass; 0.6% of the step still shows
    --overlap-grad-reduce
    --overlap-param-gather
    # recompute selective: activations 12.9 GB on each accelerator, memory 25.0 of 85.9 GB
    --recompute-granularity selective
    # bf16 (assumed), peak 989 TFLOP/s
    --bf16
    # optimizer state 1.7 GB on each accelerator
    --optimizer adam
    # 2 trillion tokens in sequences of 4,096, to the nearest sequence
    --train-samples 488281250
    # the tokenizer that the model was published with
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model meta-llama/Llama-3.1-70B
)

torchrun "${LAUNCH_ARGS[@]}" pretrain_gpt.py "${TRAINING_ARGS[@]}"
