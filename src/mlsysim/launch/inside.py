"""The command inside a Slurm script or a Kubernetes manifest: which engine or trainer, its lines, and how it is read back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.launch import megatron, serving, sglang, tensorrt_llm, torchtitan, vllm
from mlsysim.launch.flags import parse, table
from mlsysim.launch.plain_server import servers
from mlsysim.launch.reading import Reading
from mlsysim.launch.scripts import Setting, array, details_of
from mlsysim.launch.shell import Script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

SERVERS: dict[str, Any] = {"vllm": vllm, "sglang": sglang, "tensorrt_llm": tensorrt_llm, **servers()}
TRAINERS = ("megatron", "torchtitan")
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
    for name, server in servers().items():
        if server.ENGINE.lower() == engine:
            return name
    return "sglang" if engine.startswith("sglang") else "tensorrt_llm" if engine.startswith("t") else "vllm"


def width_of(plan: Plan) -> int:
    """Accelerators of a replica."""
    split = plan.parallelism
    tp = split.tp or 1
    return tp * (split.pp or 1) * max(1, (split.ep or 1) // tp)


def serve_lines(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any] | None, replicas: bool, before: str = ""
) -> tuple[list[str], list[str]]:
    """Lines that serve (one replica, or with ``replicas`` those of the plan), and what they cannot say."""
    module = SERVERS[name]
    model, unknown = serving.checkpoint(plan)
    lines: list[str] = []
    if name == "tensorrt_llm":
        settings, options, gaps = tensorrt_llm.arguments(plan, answer)
        if options:
            lines += tensorrt_llm.here_document(options)
    else:
        settings, gaps = module.arguments(plan, answer, replicas)
    command = module.COMMAND if name == "sglang" else f"{module.COMMAND} {shlex.quote(model)}"
    every = [*settings, *details_of(details, (s.flag for s in settings))]
    lines += [*array("ARGS", every), "", f'{before}{command} "${{ARGS[@]}}"']
    return lines, [*serving.gaps_of(plan, module.ENGINE, None, module.FIELDS), *gaps, *unknown]


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
                found: Reading = module.read_command(words[start:], bare)
                return found.model_copy(update={"inner": name})
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
