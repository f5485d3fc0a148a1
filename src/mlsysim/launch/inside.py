"""The command inside a Slurm script or a Kubernetes manifest: which engine or trainer, its lines, and how it is read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.launch import megatron, torchtitan
from mlsysim.launch.flags import parse, table, tables_with
from mlsysim.launch.reading import Reading
from mlsysim.launch.scripts import Setting, array
from mlsysim.launch.serving import Server
from mlsysim.launch.sglang import SGLang
from mlsysim.launch.shell import Script
from mlsysim.launch.tensorrt_llm import TensorRTLLM
from mlsysim.launch.vllm import VLLM
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

_OWN: dict[str, type[Server]] = {"vllm": VLLM, "sglang": SGLang, "tensorrt_llm": TensorRTLLM}
SERVERS: dict[str, Server] = {name: _OWN.get(name, Server)(name) for name in tables_with("command")}
TRAINERS = ("megatron", "torchtitan")
EVERY = tuple(dict.fromkeys((*megatron.FIELDS, *(field for server in SERVERS.values() for field in server.FIELDS))))
"""Fields of a plan that one of the commands expresses."""
_CONFIG = "torchtitan.toml"


def chosen(plan: Plan, answer: Answer, command: str | None) -> str:
    """The target of the command inside: the one that is asked for, else the plan's engine, else vLLM or Megatron."""
    if answer.task == "inference":
        raise InputError(
            "A plan of one pass has nothing to launch; give it serving traffic or a training task.", field="task"
        )
    known: tuple[str, ...] = TRAINERS if answer.task == "training" else tuple(SERVERS)
    if command is not None:
        name = {"trtllm": "tensorrt_llm"}.get(command, command)
        if name not in known:
            raise unknown_name(f"command for {answer.task}", command, known, "use one of " + ", ".join(known) + ".")
        return name
    if answer.task == "training":
        return "megatron"
    engine = (plan.serving.engine or "").lower() if plan.serving is not None else ""
    for name, server in SERVERS.items():
        if server.ENGINE.lower() == engine:
            return name
    return "sglang" if engine.startswith("sglang") else "tensorrt_llm" if engine.startswith("t") else "vllm"


def width_of(plan: Plan) -> int:
    """Accelerators of a replica."""
    split = plan.parallelism
    tp = split.tp or 1
    return tp * (split.pp or 1) * max(1, (split.ep or 1) // tp)


def train_lines(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any] | None, launcher: list[Setting], before: str = ""
) -> tuple[list[str], list[str]]:
    """Lines that train on every node, and what they cannot say."""
    lines = [*array("LAUNCH_ARGS", launcher), ""]
    start = f'{before}torchrun "${{LAUNCH_ARGS[@]}}"'
    if name == "megatron":
        lines = ["export CUDA_DEVICE_MAX_CONNECTIONS=1", "", *lines]
        lines += [*array("TRAINING_ARGS", megatron.arguments(plan, answer, details)), ""]
        lines.append(f'{start} pretrain_gpt.py "${{TRAINING_ARGS[@]}}"')
        return lines, megatron.gaps_of(plan)
    body, gaps = torchtitan.body(plan, answer, details)
    lines += [f"cat > {_CONFIG} <<'EOF'", *body, "EOF", "", f"{start} -m torchtitan.train --job.config_file {_CONFIG}"]
    return lines, gaps


def read_inside(script: Script, what: str) -> Reading:
    """The reading of the last command of a script that a target claims; fleet and model are not placed yet."""
    bare = Script(
        files=script.files, notes={k: v for k, v in script.notes.items() if k != "fleet"}, warnings=script.warnings
    )
    for words in reversed(script.commands):
        for name, module in SERVERS.items():
            start = module.after(words)
            if start is not None:
                return module.read_command(words[start:], bare).model_copy(update={"inner": name})
        if "torchtitan.train" in words:
            return _titan(words, script)
        if megatron.claims(words):
            return megatron.read_command(words, bare).model_copy(update={"inner": "megatron"})
    raise InputError(f"{what} has no command of Megatron-LM, torchtitan, vLLM, SGLang or TensorRT-LLM.")


def _titan(words: list[str], script: Script) -> Reading:
    processes, start = megatron.world(words)
    file = parse(words[start:], table("torchrun")).text("--job.config-file")
    body = script.files.get((file or "").rsplit("/", 1)[-1])
    if body is None:
        raise InputError(
            f"torchtitan's configuration {str(file)[:80]!r} is not in the script; review that file itself."
        )
    found = torchtitan.read(body)
    return found.model_copy(update={"inner": "torchtitan", "accelerators": processes or found.accelerators})
