"""Slurm: an ``sbatch`` script around the command of a trainer or an engine.

Training starts one ``torchrun`` on each node. Serving starts one server on each node, with as many replicas as the node has room for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, UnknownNameError
from mlsysim.hardware.registry import Hardware
from mlsysim.launch.flags import Parsed, parse, table
from mlsysim.launch.inside import EVERY, SERVERS, chosen, read_inside, train_lines, width_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, reasons
from mlsysim.launch.scripts import Setting, comment
from mlsysim.launch.shell import read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets

NAME = "slurm"
FIELDS = EVERY
"""Fields of a plan that a script and its command express."""


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a script and its command say."""
    script = read_script(text)
    parsed = parse([word for line in script.directives for word in line.split()], table(NAME))
    found = read_inside(script, "The Slurm script")
    nodes, each, chip = _resources(parsed)
    count = nodes * each if each is not None else None
    document, accelerators = dict(found.document), found.accelerators
    if document.get("task") == "serving":
        traffic = {**document["serving"], "replicas": (document["serving"].get("replicas") or 1) * nodes}
        if traffic.get("concurrency"):
            traffic["concurrency"] *= nodes
        document["serving"] = traffic
        accelerators = count or (accelerators or 1) * nodes
    elif accelerators is None:
        accelerators = count
    found = found.model_copy(
        update={
            "target": NAME,
            "document": document,
            "accelerators": accelerators,
            "details": {**parsed.details(), **found.details},
            "unread": (*(f"#SBATCH {flag}" for flag in parsed.unread), *found.unread),
        }
    )
    fleet = (
        on or script.notes.get("fleet") or (None if chip is None or accelerators is None else f"{accelerators}x{chip}")
    )
    return found.placed(fleet, model)


def _resources(parsed: Parsed) -> tuple[int, int | None, str | None]:
    """Nodes, accelerators of a node, and the chip where a directive names one that the zoo has."""
    nodes = parsed.text("--nodes")
    if nodes is not None and not nodes.isdigit():
        raise InputError(f"--nodes is a number of nodes here, got {nodes[:40]!r}.", field="nodes")
    given = parsed.text("--gpus-per-node") or parsed.text("--gres") or ""
    match = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)", given.split(",")[0])
    if match is None:
        return int(nodes or 1), None, None
    chip = None
    if match[1] is not None:
        try:
            chip = Hardware.key_of(match[1])
        except UnknownNameError:
            chip = None
    return int(nodes or 1), int(match[2]), chip


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None, command: str | None = None) -> str:
    """A script for ``sbatch``; ``command`` is megatron or torchtitan, vllm, sglang or tensorrt_llm."""
    name = chosen(plan, answer, command)
    final = completed(plan, answer)
    fleet = find_fleets(final.hardware).one
    per_node = fleet.node.accelerators_per_node
    why = reasons(final, answer)
    ours = {key: value for key, value in (details or {}).items() if key in table(NAME).flags}
    rest = {key: value for key, value in (details or {}).items() if key not in ours}
    nodes = fleet.count
    if answer.task == "training":
        launcher = [
            Setting("--nproc-per-node", str(per_node), why["accelerators"]),
            Setting("--nnodes", str(nodes), why["parallelism.dp"]),
            Setting("--rdzv-backend", "c10d"),
            Setting("--rdzv-endpoint", "$MASTER_ADDR:29500"),
            Setting("--rdzv-id", "$SLURM_JOB_ID"),
        ]
        lines, gaps = train_lines(name, final, answer, rest, launcher, "srun ")
        lines = ['MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "", *lines]
    else:
        lines, gaps, nodes = _serve(name, final, answer, rest, per_node)
    top = [
        "#!/bin/bash",
        *comment(header(final, answer, f"Slurm script with {name}", gaps)),
        f"#SBATCH --job-name={_job(final.name)}",
        f"# {why['accelerators']}",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --gpus-per-node={per_node}",
        "# one launcher on each node",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
    ]
    written = ("--job-name", "--exclusive")
    top += [
        f"#SBATCH {key}" + ("" if value is True else f"={value}") for key, value in ours.items() if key not in written
    ]
    return "\n".join([*top, "", *lines]) + "\n"


def _job(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)[:60] or "plan"


def _serve(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any], per_node: int
) -> tuple[list[str], list[str], int]:
    """Lines, gaps and nodes: every node serves the replicas that it has room for."""
    traffic = plan.serving
    assert traffic is not None
    width, replicas = width_of(plan), traffic.replicas or 1
    if width > per_node:
        raise InputError(
            f"A replica takes {width} accelerators and a node has {per_node}; this script starts a server on each node, so choose a smaller replica.",
            field="tp",
        )
    here = min(replicas, max(1, per_node // width))
    nodes = -(-replicas // here)
    if replicas % here:
        raise InputError(
            f"{replicas} replicas are no whole number of nodes of {here}; choose {nodes * here}.", field="replicas"
        )
    if here > 1 and (name == "tensorrt_llm" or (plan.parallelism.ep or 1) > 1):
        raise InputError(
            f"A node has room for {here} replicas and this command serves one; choose a replica of {per_node} accelerators.",
            field="tp",
        )
    load = None if traffic.concurrency is None else -(-traffic.concurrency // nodes)
    local = plan.replacing(serving={"replicas": here, "concurrency": load})
    lines, gaps = SERVERS[name].lines(local, answer, details, True, "srun ")
    if load is not None and load * nodes != traffic.concurrency:
        gaps.append(f"serving.concurrency = {traffic.concurrency} (rounded up to {load} a node)")
    return lines, gaps, nodes
