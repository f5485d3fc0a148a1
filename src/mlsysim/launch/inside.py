"""The command inside a Slurm script or a Kubernetes manifest: which engine or trainer, its lines, and how it is read back."""

from __future__ import annotations

from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.launch import megatron, torchtitan
from mlsysim.launch.engines import VLLM, SGLang, TensorRTLLM
from mlsysim.launch.flags import parse, table, tables_with
from mlsysim.launch.reading import Reading
from mlsysim.launch.serving import Server, ranks_of
from mlsysim.launch.shell import Script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

_OWN: dict[str, type[Server]] = {"vllm": VLLM, "sglang": SGLang, "tensorrt_llm": TensorRTLLM}
SERVERS: dict[str, Server] = {name: _OWN.get(name, Server)(name) for name in tables_with("command")}
TRAINERS: dict[str, Any] = {"megatron": megatron, "torchtitan": torchtitan}
EVERY = tuple(dict.fromkeys((*megatron.FIELDS, *(field for server in SERVERS.values() for field in server.FIELDS))))
"""Fields of a plan that one of the commands expresses."""


def chosen(plan: Plan, answer: Answer, command: str | None) -> str:
    """The target of the command inside: the one that is asked for, else the plan's engine, else vLLM or Megatron."""
    if answer.task == "inference":
        raise InputError(
            "A plan of one pass has nothing to launch; give it serving traffic or a training task.", field="task"
        )
    known: tuple[str, ...] = tuple(TRAINERS) if answer.task == "training" else tuple(SERVERS)
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


def width_of(plan: Plan, per_node: int, because: str) -> int:
    """Accelerators of a replica, which a node must have."""
    width = ranks_of(plan.parallelism.tp, plan.parallelism.pp, plan.parallelism.ep)
    if width > per_node:
        raise InputError(
            f"A replica takes {width} accelerators and a node has {per_node}; {because}, so choose a smaller replica.",
            field="tp",
        )
    return width


def chip_named(word: str | None) -> str | None:
    """The zoo's key for a chip that a directive or a label names."""
    return Hardware.key_of(word) if word is not None and word in Hardware else None


def spread(found: Reading, copies: int, each: int | None) -> tuple[dict[str, Any], int | None]:
    """The document and the accelerators of a command that runs on so many nodes, or in so many pods, of so many accelerators."""
    document, count = dict(found.document), found.accelerators
    if document.get("task") == "serving":
        traffic = document["serving"] = dict(document["serving"])
        traffic["replicas"] = (traffic.get("replicas") or 1) * copies
        if traffic.get("concurrency"):
            traffic["concurrency"] *= copies
        return document, (each or count or 1) * copies
    return document, count if count is not None or each is None else each * copies


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
