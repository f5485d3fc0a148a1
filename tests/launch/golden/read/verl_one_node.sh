#!/bin/bash
# PPO on one node, in the manner of verl's quickstart; the batch and lengths are the script's variables.
max_prompt=512
max_response=$((1024 * 2))
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=gae \
    data.train_files=$HOME/data/train.parquet \
    data.train_batch_size=256 \
    data.max_prompt_length=${max_prompt} \
    data.max_response_length=${max_response} \
    actor_rollout_ref.model.path=Qwen/Qwen3-8B \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
    +some.key.of.another=1 \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1
