"""verl: Hydra overrides of its PPO trainer, colocated (``verl.trainer.main_ppo``) or with pools of their own (its fully asynchronous trainer).

Trainers are FSDP2 (ZeRO 3, or 2 with parameters kept gathered; context parallelism is Ulysses') or Megatron (ZeRO 1 is its distributed optimizer). A mini-batch
counts prompts. The asynchronous trainer takes a step's prompts as mini-batches until it sends weights; its threshold is the share of samples that may be old.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, parse_tables, put, table
from mlsysim.launch.megatron import modules, parts_named
from mlsysim.launch.post_training import PostTrainer, Step, enter_model
from mlsysim.launch.reading import Reading
from mlsysim.launch.settings import Details, Rows, Setting, array, comment
from mlsysim.launch.shell import read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

_TOGETHER, _APART = "verl.trainer.main_ppo", "verl.experimental.fully_async_policy.fully_async_main"
_MEGATRON = {_TOGETHER: "ppo_megatron_trainer.yaml", _APART: "fully_async_ppo_megatron_trainer.yaml"}
_ROLLOUT, _ACTOR, _MODEL = (f"actor_rollout_ref.{part}" for part in ("rollout", "actor", "model"))
_DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size", "ep": "expert_model_parallel_size",
}  # fmt: skip


def claims(words: list[str]) -> bool:
    """Whether a command is verl's."""
    return any(word.startswith("verl.") and "main" in word for word in words) or any(
        word.lstrip("+").startswith("actor_rollout_ref.") for word in words
    )


class Verl(PostTrainer):
    """verl's overrides."""

    NAME, TITLE = "verl", "verl"
    ENGINES: ClassVar[Mapping[str, str]] = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm", "tensorrt-llm": "trtllm", "trtllm": "trtllm"}  # fmt: skip
    ALGORITHMS: ClassVar[Mapping[str, str]] = {"grpo": "grpo", "dapo": "grpo", "rloo": "rloo", "ppo": "gae"}

    def rows(self, step: Step) -> Rows:
        part, split, apart = step.plan.rl, step.layout, step.pools.generators
        assert part is not None
        name = part.algorithm or "grpo"
        if step.batch % step.samples:
            words = (
                f"verl's mini-batch counts prompts, and {step.batch:,} sequences are no whole number of {step.samples}"
            )
            raise InputError(f"{words}; give another batch_size.", field="batch_size")
        if split["generator_pp"] > 1:
            raise InputError("verl's generators have no pipeline; give generator_pp 1.", field="generator_pp")
        mini, updates = step.batch // step.samples, step.prompts * step.samples // step.batch
        tp, ep = split["generator_tp"], split["generator_ep"]
        reads = step.passes > 0
        rows: Rows = {
            "algorithm.adv_estimator": (self.ALGORITHMS[name], f"algorithm {name}"),
            "data.train_batch_size": (0 if apart else step.prompts, "rl.prompts"),
            "data.gen_batch_size": (1 if apart else None, "prompts come one by one"),
            "data.max_prompt_length": (step.prompt, "serving.prompt_tokens"),
            "data.max_response_length": (step.longest, "rl.max_response"),
            f"{_MODEL}.path": (step.model, "workload.model"),
            f"{_MODEL}.use_remove_padding": (True, "sequences are packed"),
            f"{_MODEL}.enable_gradient_checkpointing": (split["recompute"] != "none", "parallelism.recompute"),
            "actor_rollout_ref.hybrid_engine": (False if apart else None, "rl.split"),
            f"{_ACTOR}.ppo_mini_batch_size": (mini, "workload.batch_size"),
            f"{_ACTOR}.use_dynamic_bsz": (True, ""),
            f"{_ACTOR}.ppo_max_token_len_per_gpu": (-(-step.pack // split["cp"]), "parallelism.micro_batch"),
            f"{_ACTOR}.use_kl_loss": (step.reference, "rl.logprob_passes"),
            f"{_ACTOR}.clip_ratio_high": (0.28 if name == "dapo" else None, "DAPO's higher clip"),
            **self._trainer(_ACTOR, step),
            **(self._critic(step, mini) if name == "ppo" else {}),
            f"{_ROLLOUT}.name": (step.engine, "serving.engine"),
            f"{_ROLLOUT}.n": (step.samples, "rl.samples"),
            f"{_ROLLOUT}.tensor_model_parallel_size": (tp, "rl.generator_tp"),
            f"{_ROLLOUT}.data_parallel_size": (ep // tp if ep > tp else None, ""),
            f"{_ROLLOUT}.expert_parallel_size": (ep if ep > 1 else None, "rl.generator_ep"),
            f"{_ROLLOUT}.gpu_memory_utilization": (step.memory, "serving.memory_fraction"),
            f"{_ROLLOUT}.max_num_seqs": (step.slots, "serving.max_num_seqs"),
            f"{_ROLLOUT}.quantization": ("fp8" if (part.generator_precision or "").startswith("fp8") else None, ""),
            f"{_ROLLOUT}.calculate_log_probs": (True if apart or not reads else None, "old samples are weighed by them"),
            "algorithm.rollout_correction.bypass_mode": (not reads if apart or not reads else None, "rl.logprob_passes"),
            "trainer.nnodes": (step.pools.trainers[0], "trainers"),
            "trainer.n_gpus_per_node": (step.pools.trainers[1], ""),
        }  # fmt: skip
        if ep > 1 and ep % tp:
            raise InputError(
                f"Experts of a generator of verl are spread over whole tensor groups of {tp}.", field="generator_ep"
            )
        if apart is not None:
            rows |= {
                "rollout.nnodes": (apart[0], "rl.split"),
                "rollout.n_gpus_per_node": (apart[1], ""),
                "async_training.staleness_threshold": (float(step.staleness or 0.0), "rl.staleness"),
                "async_training.trigger_parameter_sync_step": (updates, f"updates of a step: {updates}"),
                "async_training.require_batches": (1, ""),
                "async_training.partial_rollout": (bool(part.partial), "rl.partial"),
            }
        return rows

    def _trainer(self, at: str, step: Step) -> Rows:
        """The layout of a trainer: FSDP2 where parameters or gradients are sharded, else Megatron."""
        split, sleeps = step.layout, step.pools.generators is None
        if split["zero"] > 1:
            return {
                f"{at}.strategy": ("fsdp2", "parallelism.zero"),
                f"{at}.fsdp_config.reshard_after_forward": (split["zero"] == 3, ""),
                f"{at}.fsdp_config.ulysses_sequence_parallel_size": (split["cp"], "parallelism.cp"),
                f"{at}.fsdp_config.param_offload": (sleeps, "state of a sleeping trainer is in the host"),
                f"{at}.fsdp_config.optimizer_offload": (sleeps, ""),
            }
        more, full = f"{at}.megatron.override_transformer_config", split["recompute"] == "full"
        return {
            f"{at}.strategy": ("megatron", "parallelism.zero"),
            **{f"{at}.megatron.{key}": (split[ours], f"parallelism.{ours}") for ours, key in _DEGREES.items()},
            f"{at}.megatron.virtual_pipeline_model_parallel_size": (
                split["virtual_stages"] if split["virtual_stages"] > 1 else None,
                "parallelism.virtual_stages",
            ),
            f"{at}.megatron.use_distributed_optimizer": (split["zero"] == 1, "parallelism.zero"),
            f"{more}.recompute_granularity": (
                None if split["recompute"] == "none" else split["recompute"],
                "parallelism.recompute",
            ),
            f"{more}.recompute_modules": (
                f"[{','.join(chosen)}]" if (chosen := modules(split.get("recomputed"))) else None,
                "",
            ),
            f"{more}.recompute_method": ("uniform" if full else None, ""),
            f"{more}.recompute_num_layers": (1 if full else None, ""),
            f"+{more}.num_layers_in_last_pipeline_stage": (step.uneven, "the other stages have a layer more"),
            f"{at}.megatron.param_offload": (sleeps, "state of a sleeping trainer is in the host"),
            f"{at}.megatron.grad_offload": (sleeps, ""),
            f"{at}.megatron.optimizer_offload": (sleeps, ""),
        }

    def _critic(self, step: Step, mini: int) -> Rows:
        """A critic of the policy's size, laid out as it."""
        return {
            "critic.model.path": (step.model, "a critic as large as the policy"),
            "critic.ppo_mini_batch_size": (mini, ""),
            "critic.use_dynamic_bsz": (True, ""),
            "critic.ppo_max_token_len_per_gpu": (-(-step.pack // step.layout["cp"]), ""),
            **{key: (value, "") for key, (value, _) in self._trainer("critic", step).items()},
        }

    def gaps(self, step: Step) -> list[str]:
        found = super().gaps(step)
        if (step.plan.rl and step.plan.rl.algorithm) == "ppo":
            found.append("the reward model (say which with reward.reward_model)")
        return found

    def write(self, plan: Plan, answer: Answer, details: Details = None) -> str:
        """A script that starts the plan where a Ray cluster is up."""
        how = "Run it where Ray has all nodes; add data.train_files, data.val_files, the reward and the learning rate."
        step, made, top = self.made(plan, answer, details, how)
        main = _TOGETHER if step.pools.generators is None else _APART
        config = f" --config-path=config --config-name={_MEGATRON[main]}" if step.layout["zero"] < 2 else ""
        words = [Setting(f"{key}={value}", True, reason) for key, value, reason in made]
        run = f'python3 -m {main}{config} "${{OVERRIDES[@]}}"'
        return "\n".join(["#!/bin/bash", *comment(top), "", *array("OVERRIDES", words), "", run]) + "\n"

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a script's overrides say."""
        script = read_script(text)
        words = next((words for words in [*reversed(script.commands), *script.arrays.values()] if claims(words)), None)
        if words is None:
            raise InputError("The text has no command of verl: no verl.trainer.main_ppo and none of its keys.")
        given = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word and not word.startswith("-"))
        parsed = parse_tables(given, table(self.NAME))
        document, warnings = parsed.document(), [*script.warnings, *parsed.warnings]
        part = document.setdefault("rl", {})
        samples = parsed.whole(f"{_ROLLOUT}.n") or 1
        mini = parsed.whole(f"{_ACTOR}.ppo_mini_batch_size") or 1
        pools = [
            (parsed.whole(f"{who}.nnodes") or 1) * (parsed.whole(f"{who}.n_gpus_per_node") or 8)
            for who in ("trainer", "rollout")
        ]
        apart = parsed.whole("rollout.nnodes") is not None
        if apart:
            times = (
                parsed.whole(f"async_training.{key}") or 1 for key in ("trigger_parameter_sync_step", "require_batches")
            )
            part |= {"prompts": mini * next(times) * next(times), "split": str(pools[1])}
            put(document, "rl.staleness", float(parsed.text("async_training.staleness_threshold") or 0.0))
            if _true(parsed.values.get("async_training.partial_rollout")):
                part["partial"] = True
        else:
            part |= {"prompts": parsed.whole("data.train_batch_size") or mini, "split": "none"}
        put(document, "workload.batch_size", mini * samples)
        named = {theirs: ours for ours, theirs in reversed(list(self.ALGORITHMS.items()))}
        name = parsed.text("algorithm.adv_estimator") or "gae"
        if name not in named:
            warnings.append(f"The estimator {name[:40]!r} was read as GRPO's.")
        part["algorithm"] = named.get(name, "grpo")
        if part["algorithm"] != "ppo":
            bypassed = _true(parsed.values.get("algorithm.rollout_correction.bypass_mode"))
            part["logprob_passes"] = int(not bypassed) + int(_true(parsed.values.get(f"{_ACTOR}.use_kl_loss")))
        part["generator_pp"] = 1
        part.setdefault("generator_ep", 1)
        self._layout(parsed, document)
        tokens = parsed.whole(f"{_ACTOR}.ppo_max_token_len_per_gpu")
        self.packed(document, tokens and tokens * document["parallelism"]["cp"], script.notes)
        engine = parsed.text(f"{_ROLLOUT}.name")
        if engine is not None and engine.lower() in self.ENGINES:
            put(document, "serving.engine", {"vllm": "vLLM", "sglang": "SGLang"}.get(engine.lower(), "TensorRT_LLM"))
        if (parsed.text(f"{_ROLLOUT}.quantization") or "") == "fp8":
            part["generator_precision"] = "fp8"
        enter_model(document, parsed.text(f"{_MODEL}.path"), script.notes, model)
        found = self.reading(parsed, document, script.notes, warnings)
        count = sum(pools) if apart else pools[0]
        return found.model_copy(update={"accelerators": count}).placed(on or script.notes.get("fleet"))

    def _layout(self, parsed: Parsed, document: dict[str, Any]) -> None:
        split, at = document.setdefault("parallelism", {}), f"{_ACTOR}.megatron"
        if parsed.text(f"{_ACTOR}.strategy") == "megatron" or parsed.whole(f"{at}.{_DEGREES['tp']}"):
            split |= {ours: parsed.whole(f"{at}.{key}") or 1 for ours, key in _DEGREES.items()}
            split["zero"] = int(_true(parsed.values.get(f"{at}.use_distributed_optimizer", True)))
            config = f"{at}.override_transformer_config"
            split["recompute"] = parsed.text(f"{config}.recompute_granularity") or "none"
            if split["recompute"] == "selective":
                listed = (parsed.text(f"{config}.recompute_modules") or "").strip("[]")
                split["recomputed"] = parts_named(listed.replace(",", " "))
            virtual = parsed.whole(f"{at}.virtual_pipeline_model_parallel_size")
            split |= {"virtual_stages": virtual} if virtual else {}
            return
        config = f"{_ACTOR}.fsdp_config"
        split |= {"tp": 1, "pp": 1, "ep": 1}
        split["cp"] = parsed.whole(f"{config}.ulysses_sequence_parallel_size") or 1
        split["zero"] = 3 if _true(parsed.values.get(f"{config}.reshard_after_forward", True)) else 2
        split["recompute"] = (
            "full" if _true(parsed.values.get(f"{_MODEL}.enable_gradient_checkpointing", True)) else "none"
        )


def _true(value: object) -> bool:
    return str(value).lower() == "true"
