"""Launch files: from a plan to what starts it, and from what starts it to a plan. Nothing here is ever executed.

reading.py      what a launch file says: a plan, flags that were not read, flags that a plan has no field for
targets.py      the targets by name; which of them a text is; ``read_launch`` and ``export``
review.py       what a launch file costs beside the best settings for the same fleet, flag by flag
flags.toml      every flag that is read or written, what it means, and where that is documented
settings.py     settings with their reasons, as arrays of a script, TOML or YAML
shell.py        commands, variables, arrays and here-documents of a shell script, tokenised and not run
model_names.py  names of models in commands to entries of the zoo, and back
dimensions.py   dimensions in flags to a model, and back
reasons.py      why each value is what it is, from the answer
megatron.py  torchtitan.py  sharding.py (DeepSpeed, FSDP)           training
serving.py (any engine of one table)  engines.py (vLLM, SGLang, TensorRT-LLM)
post_training.py  verl.py  nemo_rl.py                                   post-training
around.py                                                          Slurm and Kubernetes, where either of them runs
"""
