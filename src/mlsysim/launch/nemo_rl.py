"""NeMo-RL: the YAML of ``examples/run_grpo.py`` over its own ``grpo_math_1B.yaml``.

Trainers are DTensor (FSDP2, which is ZeRO 3, with tensor and context parallelism) or Megatron Core (ZeRO 1 is its distributed optimizer). Split pools with staleness 0
are its non-colocated synchronous mode, with 1 or more its asynchronous GRPO, whose age of samples is a whole number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, parse_tables, put, table
from mlsysim.launch.post_training import PostTrainer, Step, enter_model
from mlsysim.launch.reading import Reading
from mlsysim.launch.settings import Details, Rows, Why, comment, read_documents, write_yaml
from mlsysim.launch.shell import read_notes
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets

_BASE = "grpo_math_1B.yaml"
_VLLM, _APART, _AGE = "policy.generation.vllm_cfg", "policy.generation.colocated", "grpo.async_grpo"
_TENSOR = {"tp": "tensor_parallel_size", "cp": "context_parallel_size"}
_CORE = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "cp": "context_parallel_size", "ep": "expert_model_parallel_size",
}  # fmt: skip


class NeMoRL(PostTrainer):
    """NeMo-RL's configuration."""

    NAME, TITLE = "nemo_rl", "NeMo-RL"
    ENGINES: ClassVar[Mapping[str, str]] = {"vllm": "vllm"}
    ALGORITHMS: ClassVar[Mapping[str, str]] = {"grpo": "grpo", "dapo": "grpo", "rloo": "grpo"}

    def rows(self, step: Step) -> Rows:
        part, split, apart, age = step.plan.rl, step.layout, step.pools.generators, step.staleness
        assert part is not None
        name, total = part.algorithm or "grpo", step.prompt + step.longest
        if age and age != int(age):
            raise InputError(f"Samples of NeMo-RL are whole steps old, not {age:g}.", field="staleness")
        if step.passes < 1:
            raise InputError(
                "NeMo-RL reads log-probabilities of its samples in every step; logprob_passes is 1 or more.",
                field="logprob_passes",
            )
        tp, ep = split["generator_tp"], split["generator_ep"]
        if ep > 1 and ep % tp:
            raise InputError(
                f"Experts of a generator of NeMo-RL are spread over whole tensor groups of {tp}.", field="generator_ep"
            )
        far, fleet = bool(age), find_fleets(step.plan.hardware).one
        return {
            "defaults": (_BASE, "NeMo-RL's own settings, over which these are laid"),
            "grpo.num_prompts_per_step": (step.prompts, "rl.prompts"),
            "grpo.num_generations_per_prompt": (step.samples, "rl.samples"),
            "grpo.use_leave_one_out_baseline": (name == "rloo", f"algorithm {name}"),
            "grpo.use_dynamic_sampling": (True if name == "dapo" else None, "groups that all succeed or fail are sampled again"),
            "grpo.skip_reference_policy_logprobs_calculation": (None if step.reference else True, "rl.logprob_passes"),
            f"{_AGE}.enabled": (far, "rl.staleness" if far else "rl.split"),
            f"{_AGE}.max_trajectory_age_steps": (int(age or 1) if far else None, "rl.staleness"),
            f"{_AGE}.in_flight_weight_updates": (bool(part.partial) if far else None, "rl.partial"),
            "loss_fn.reference_policy_kl_penalty": (None if step.reference else 0.0, "no KL term, so no reference model"),
            "loss_fn.ratio_clip_max": (0.28 if name == "dapo" else None, "DAPO's higher clip"),
            "loss_fn.use_importance_sampling_correction": (True if far else None, "samples are of older weights"),
            "policy.model_name": (step.model, "workload.model"),
            "policy.precision": ("bfloat16", "workload.precision"),
            "policy.train_global_batch_size": (step.batch, "workload.batch_size"),
            "policy.train_micro_batch_size": (1, ""),
            "policy.max_total_sequence_length": (total, "rl.max_response"),
            "policy.sequence_packing.enabled": (True, "sequences are packed"),
            "policy.sequence_packing.train_mb_tokens": (step.pack, "parallelism.micro_batch"),
            "policy.sequence_packing.logprob_mb_tokens": (step.pack, ""),
            **self._trainer(step),
            "policy.generation.backend": (step.engine, "serving.engine"),
            "policy.generation.max_new_tokens": (step.longest, "rl.max_response"),
            f"{_VLLM}.async_engine": (True if far else None, "asynchronous GRPO needs it"),
            f"{_VLLM}.precision": ("fp8" if (part.generator_precision or "").startswith("fp8") else None, ""),
            f"{_VLLM}.tensor_parallel_size": (tp, "rl.generator_tp"),
            f"{_VLLM}.pipeline_parallel_size": (split["generator_pp"], ""),
            f"{_VLLM}.expert_parallel_size": (ep if ep > 1 else None, "rl.generator_ep"),
            f"{_VLLM}.gpu_memory_utilization": (step.memory, "serving.memory_fraction"),
            "policy.generation.vllm_kwargs.max_num_seqs": (step.slots, "serving.max_num_seqs"),
            f"{_APART}.enabled": (apart is None, "rl.split"),
            f"{_APART}.resources.num_nodes": (apart and apart[0], ""),
            f"{_APART}.resources.gpus_per_node": (apart and apart[1], ""),
            "data.max_input_seq_length": (step.prompt, "serving.prompt_tokens"),
            "cluster.num_nodes": (fleet.count, "accelerators"),
            "cluster.gpus_per_node": (fleet.node.accelerators_per_node, ""),
        }  # fmt: skip

    def _trainer(self, step: Step) -> Rows:
        split, again = step.layout, step.layout["recompute"] == "full"
        if split["zero"] == 3:
            at = "policy.dtensor_cfg"
            if split["pp"] > 1 or split["ep"] > 1:
                raise InputError(
                    "NeMo-RL's DTensor trainer has no pipeline and no expert parallelism; give zero 1.", field="zero"
                )
            return {
                f"{at}.enabled": (True, "parallelism.zero"),
                "policy.megatron_cfg.enabled": (False, ""),
                **{f"{at}.{key}": (split[ours], f"parallelism.{ours}") for ours, key in _TENSOR.items()},
                f"{at}.activation_checkpointing": (again, "parallelism.recompute"),
            }  # fmt: skip
        at = "policy.megatron_cfg"
        if split["virtual_stages"] > 1:
            raise InputError(
                "NeMo-RL's configuration has no virtual stages; give virtual_stages 1.", field="virtual_stages"
            )
        return {
            "policy.dtensor_cfg.enabled": (False, ""),
            f"{at}.enabled": (True, "parallelism.zero"),
            **{f"{at}.{key}": (split[ours], f"parallelism.{ours}") for ours, key in _CORE.items()},
            f"{at}.num_layers_in_last_pipeline_stage": (step.uneven, "the other stages have a layer more"),
            f"{at}.sequence_parallel": (split["tp"] > 1, "norms and dropouts over the tensor group too"),
            f"{at}.activation_checkpointing": (again, "parallelism.recompute"),
            f"{at}.optimizer.use_distributed_optimizer": (split["zero"] == 1, ""),
        }

    def write(self, plan: Plan, answer: Answer, details: Details = None) -> str:
        """A configuration; ``uv run examples/run_grpo.py --config FILE`` reads it."""
        how = "Put it into NeMo-RL's examples/configs: uv run examples/run_grpo.py --config examples/configs/FILE; add data, environment, learning rate."
        _, made, top = self.made(plan, answer, details, how)
        document: dict[str, Any] = {}
        for key, value, reason in made:
            put(document, key, Why(value, reason))
        return "\n".join([*comment(top), "", *write_yaml(document)]) + "\n"

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a configuration says."""
        documents = read_documents(text, "The launch file")
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InputError("A configuration of NeMo-RL is one table of keys.")
        parsed, notes = parse_tables(documents[0], table(self.NAME)), read_notes(text)
        document, warnings = parsed.document(), list(parsed.warnings)
        part = document.setdefault("rl", {})
        total = parsed.whole("policy.max_total_sequence_length")
        longest, prompt = parsed.whole("policy.generation.max_new_tokens"), parsed.whole("data.max_input_seq_length")
        if total and (longest is None or longest >= total):
            longest = total - (prompt if prompt and prompt < total else 0)
        if longest:
            part["max_response"] = longest
        if prompt and prompt != total:
            put(document, "serving.prompt_tokens", prompt)
        per_node, nodes = parsed.whole("cluster.gpus_per_node") or 1, parsed.whole("cluster.num_nodes") or 1
        part["split"] = "none"
        if parsed.values.get(f"{_APART}.enabled") is False:
            each = parsed.whole(f"{_APART}.resources.gpus_per_node") or per_node
            part["split"] = str(each * (parsed.whole(f"{_APART}.resources.num_nodes") or 1))
            far = parsed.values.get(f"{_AGE}.enabled") is True
            part["staleness"] = float(parsed.whole(f"{_AGE}.max_trajectory_age_steps") or 1) if far else 0.0
            if parsed.values.get(f"{_AGE}.in_flight_weight_updates") is True:
                part["partial"] = True
        part["algorithm"] = "dapo" if parsed.on("grpo.use_dynamic_sampling") else "grpo"
        part["logprob_passes"] = 1 if parsed.on("grpo.skip_reference_policy_logprobs_calculation") else 2
        if parsed.text(f"{_VLLM}.precision") == "fp8":
            part["generator_precision"] = "fp8"
        self._layout(parsed, document)
        self.packed(document, parsed.whole("policy.sequence_packing.train_mb_tokens"), notes)
        enter_model(document, parsed.text("policy.model_name"), notes, model)
        put(document, "serving.engine", "vLLM")
        found = self.reading(parsed, document, notes, warnings)
        return found.model_copy(update={"accelerators": nodes * per_node}).placed(on or notes.get("fleet"))

    def _layout(self, parsed: Parsed, document: dict[str, Any]) -> None:
        split = document.setdefault("parallelism", {})
        core = parsed.on("policy.megatron_cfg.enabled")
        at, keys = ("policy.megatron_cfg", _CORE) if core else ("policy.dtensor_cfg", _TENSOR)
        split |= {ours: parsed.whole(f"{at}.{key}") or 1 for ours, key in keys.items()}
        split["recompute"] = "full" if parsed.on(f"{at}.activation_checkpointing") else "none"
        if core:
            split["zero"] = int(parsed.values.get(f"{at}.optimizer.use_distributed_optimizer", True) is True)
        else:
            split |= {"pp": 1, "ep": 1, "zero": 3}
