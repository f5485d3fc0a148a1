"""The targets by name, which of them a text is, and the two ways through them: ``read_launch`` and ``export``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.importers.limits import read_text
from mlsysim.launch import megatron, torchtitan, verl
from mlsysim.launch.around import SERVERS, Kubernetes, Slurm
from mlsysim.launch.nemo_rl import NeMoRL
from mlsysim.launch.reading import Reading
from mlsysim.launch.sharding import FSDP, DeepSpeed
from mlsysim.launch.shell import LARGEST, bounded, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.timing.launchers import launcher
from mlsysim.timing.stacks import default_stack, stack

_TRAINS: dict[str, Any] = {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": DeepSpeed(), "fsdp": FSDP()}
_SERVES = {"trtllm" if name == "tensorrt_llm" else name: server for name, server in SERVERS.items()}
_TUNES: dict[str, Any] = {"verl": verl.Verl(), "nemo_rl": NeMoRL()}
TARGETS: dict[str, Any] = {**_TRAINS, **_SERVES, **_TUNES, "kubernetes": Kubernetes(), "slurm": Slurm()}
TRAINS, SERVES, TUNES = tuple(_TRAINS), tuple(_SERVES), tuple(_TUNES)
"""Targets that train, that serve, and that do post-training."""
AROUND = ("kubernetes", "slurm")
"""Targets with the command of another inside."""
_ALIASES = {
    "tensorrt_llm": "trtllm", "tensorrtllm": "trtllm", "megatron_lm": "megatron", "k8s": "kubernetes",
    "accelerate": "fsdp", "sbatch": "slurm", "nemorl": "nemo_rl",
}  # fmt: skip
_DEEPSPEED = {*("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu")} | {
    *("gradient_accumulation_steps", "bf16")
}


_CLAIMS = {"verl": verl.claims, "megatron": megatron.claims}


def target_named(name: str) -> str:
    """The target that a name means."""
    plain = name.strip().lower().replace("-", "_")
    found = _ALIASES.get(plain, plain)
    if found not in TARGETS:
        raise unknown_name("launch target", name, TARGETS, "use one of " + ", ".join(TARGETS) + ".")
    return found


def _target_or_none(text: str) -> str | None:
    if re.search(r"^#SBATCH\b", text, re.M):
        return "slurm"
    head = text.lstrip()[:1]
    if head == "{":
        try:
            keys = set(json.loads(text))
        except (ValueError, RecursionError, TypeError):
            keys = set()
        if keys & _DEEPSPEED:
            return "fsdp" if keys & {"fsdp", "fsdp_config"} else "deepspeed"
        return "fsdp" if keys & {"fsdp", "fsdp_config", "distributed_type"} else None
    if re.search(r"^apiVersion:", text, re.M) and re.search(r"^kind:", text, re.M):
        return "kubernetes"
    if re.search(r"^(distributed_type|fsdp_config)\s*:", text, re.M):
        return "fsdp"
    if re.search(r"^policy\s*:", text, re.M) and re.search(
        r"^\s+(num_prompts_per_step|vllm_cfg|megatron_cfg)\s*:", text, re.M
    ):
        return "nemo_rl"
    section = re.search(r"^\[(parallelism|training|activation_checkpoint)\]\s*$", text, re.M)
    if section and not re.search(r"^\s*(torchrun|srun)\b", text, re.M):
        return "torchtitan"
    script = read_script(text)
    for words in reversed(script.commands):
        for name in SERVES:
            if TARGETS[name].after(words) is not None:
                return name
        for name, claims in _CLAIMS.items():
            if claims(words):
                return name
    return next((name for name, claims in _CLAIMS.items() if any(map(claims, script.arrays.values()))), None)


def is_launch_text(text: str) -> bool:
    """Whether a text is a launch file of a known target."""
    try:
        return _target_or_none(text) is not None
    except InputError:
        return False


def target_of(text: str) -> str:
    """The target that a text is for."""
    found = _target_or_none(bounded(text))
    inside = re.search(r"--(?:deepspeed(?:_config)?|config_file)[=\s]+['\"]?([\w./-]+\.(?:json|ya?ml))", text)
    if found is None and inside is not None:
        # Libraries that shard are told what to do in a file of their own.
        words = f"The settings of this command are in {inside[1][-60:]}"
        raise InputError(
            f"{words}; review that, with the model and the length of its sequences beside it.", field="file"
        )
    if found is None:
        raise InputError(f"The text is no launch file of {', '.join(TARGETS)}.", field="file")
    return found


def read_launch(text: str, target: str | None = None, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a launch file says, of a target that is named or found."""
    name = target_of(text) if target is None else target_named(target)
    return TARGETS[name].read(text, on=on, model=model)


def read_launch_file(
    path: str | Path, target: str | None = None, *, on: str | None = None, model: str | None = None
) -> Reading:
    """The same for a file."""
    return read_launch(read_text(path, LARGEST), target, on=on, model=model)


def task_of(target: str, command: str | None = None) -> str | None:
    """What a target runs, by itself or with a command in it; None where both training and serving can run there."""
    if target in TRAINS or command in TRAINS:
        return "training"
    return "rl" if target in TUNES else "serving" if target in SERVES or command in SERVES else None


def timed_as(trainer: str, plan: Plan) -> Plan:
    """A training plan with the stack whose published runs are a trainer's, where it names none: what Megatron's lineage takes on its chip is
    none of torchtitan's, DeepSpeed's or FSDP's time. One efficiency, networks of fixed shape and TPUs have no such stacks."""
    own, hard = launcher(trainer).stack, plan.hardware
    if not own or hard.stack is not None or hard.efficiency is not None or workload_of(plan.workload).fixed_shape:
        return plan
    fleet = find_fleets(hard).fleets[0]
    usual = stack(default_stack(fleet.node.accelerator, fleet.total_accelerators))
    return plan.replacing(hardware={"stack": own}) if usual.launcher == "megatron" else plan


def launched(target: str, plan: Plan, command: str | None = None) -> Plan:
    """The plan with the software that has to run it, so that a searched layout is one that it runs, and its times are those of it.
    A plan that names no task has that of the target."""
    name = target_named(target)
    if plan.task is None and (task := task_of(name, command)) is not None:
        plan = plan.replacing(task=task)
    if name in TUNES and plan.kind == "rl":
        framework = plan.rl and plan.rl.framework
        return plan.replacing(hardware={"launcher": name}, rl={"framework": framework or TARGETS[name].TITLE})
    server = command if name in AROUND else name
    if server in SERVES and plan.kind == "serving" and (plan.serving is None or plan.serving.engine is None):
        return plan.replacing(serving={"engine": TARGETS[str(server)].ENGINE})
    trainer = (command or "megatron") if name in AROUND else name
    if trainer not in TRAINS or plan.kind != "training":
        return plan
    return timed_as(trainer, plan).replacing(hardware={"launcher": trainer})


def written(target: str, answer: Answer, details: dict[str, Any] | None = None, command: str | None = None) -> str:
    """The launch file of an answer."""
    name = target_named(target)
    if len(find_fleets(answer.plan.hardware).fleets) != 1:
        raise InputError("A launch file is for one kind of accelerator; give one group instead of several.", field="on")
    wanted = "training" if name in TRAINS else "rl" if name in TUNES else "serving"
    if name not in AROUND and answer.task != wanted:
        raise InputError(
            f"{name} takes {'an' if wanted == 'rl' else 'a'} {wanted} plan, and this is one of {answer.task}; say --task, or choose another target.",
            field="task",
        )
    if command is not None and name not in AROUND:
        raise InputError(
            f"--command chooses what runs inside {' or '.join(AROUND)}; {name} is a command itself.", field="command"
        )
    extra = {"command": command} if name in AROUND else {}
    return TARGETS[name].write(answer.plan, answer, details, **extra)


def export(target: str, plan: Plan, command: str | None = None) -> str:
    """The launch file of a plan, whose layout is searched where it is left open."""
    return written(target, evaluate_plainly(launched(target, plan, command)), command=command)
