"""Slurm: an ``sbatch`` script around the command of a trainer or an engine.

Training starts one ``torchrun`` on each node. Serving starts one server on each node, with as many replicas as the node has room for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, parse, table
from mlsysim.launch.inside import EVERY, SERVERS, TRAINERS, chip_named, chosen, read_inside, spread, width_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, reasons
from mlsysim.launch.serving import rounded, traffic_of
from mlsysim.launch.settings import comment
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
    document, accelerators = spread(found, nodes, each)
    update = {
        "target": NAME,
        "document": document,
        "accelerators": accelerators,
        "details": {**parsed.details(), **found.details},
        "unread": (*(f"#SBATCH {flag}" for flag in parsed.unread), *found.unread),
    }
    seen = None if chip is None or accelerators is None else f"{accelerators}x{chip}"
    return found.model_copy(update=update).placed(on or script.notes.get("fleet") or seen, model)


def _resources(parsed: Parsed) -> tuple[int, int | None, str | None]:
    """Nodes, accelerators of a node, and the chip where a directive names one that the zoo has."""
    nodes = parsed.text("--nodes")
    if nodes is not None and not nodes.isdigit():
        raise InputError(f"--nodes is a number of nodes here, got {nodes[:40]!r}.", field="nodes")
    given = parsed.text("--gpus-per-node") or parsed.text("--gres") or ""
    match = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)", given.split(",")[0])
    if match is None:
        return int(nodes or 1), None, None
    return int(nodes or 1), int(match[2]), chip_named(match[1])


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None, command: str | None = None) -> str:
    """A script for ``sbatch``; ``command`` is megatron or torchtitan, vllm, sglang or tensorrt_llm."""
    name = chosen(plan, answer, command)
    final = completed(plan, answer)
    fleet = find_fleets(final.hardware).one
    per_node, nodes, why = fleet.node.accelerators_per_node, fleet.count, reasons(final, answer)
    ours = {key: value for key, value in (details or {}).items() if key in table(NAME).flags}
    rest = {key: value for key, value in (details or {}).items() if key not in ours}
    if answer.task == "training":
        others = {"--rdzv-backend": "c10d", "--rdzv-endpoint": "$MASTER_ADDR:29500", "--rdzv-id": "$SLURM_JOB_ID"}
        lines, gaps = TRAINERS[name].lines(final, answer, rest, others, "srun ")
        lines = ['MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "", *lines]
    else:
        lines, gaps, nodes = _serve(name, final, answer, rest, per_node)
    job = re.sub(r"[^\w.-]+", "-", final.name)[:60] or "plan"
    top = [
        "#!/bin/bash",
        *comment(header(final, answer, f"Slurm script with {name}", gaps)),
        f"#SBATCH --job-name={job}",
        f"# {why['accelerators']}",
        f"#SBATCH --nodes={nodes}",
        f"#SBATCH --gpus-per-node={per_node}",
        "# one launcher on each node",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
    ]
    for key, value in ours.items():
        if key not in ("--job-name", "--exclusive"):
            top.append(f"#SBATCH {key}" + ("" if value is True else f"={value}"))
    return "\n".join([*top, "", *lines]) + "\n"


def _serve(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any], per_node: int
) -> tuple[list[str], list[str], int]:
    """Lines, gaps and nodes: every node serves the replicas that it has room for."""
    traffic = traffic_of(plan)
    width = width_of(plan, per_node, "this script starts a server on each node")
    replicas = traffic.replicas or 1
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
    return lines, [*gaps, *rounded(plan, load, nodes, "node")], nodes
