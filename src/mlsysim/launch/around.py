"""Slurm scripts and Kubernetes manifests around the command of a trainer or an engine.

Slurm: training starts one ``torchrun`` on each node; serving starts one server on each node, with as many replicas as the node has room for.

Kubernetes: a Deployment of servers, or an indexed Job of trainers with the Service by which its pods find one another. A pod of a Deployment is one
replica, so a replica must fit on a node. Images, volumes and which nodes to use are the cluster's; the manifest names the accelerators only as a resource.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.hardware.registry import Hardware
from mlsysim.launch import megatron, torchtitan
from mlsysim.launch.engines import VLLM, SGLang, TensorRTLLM
from mlsysim.launch.flags import Parsed, parse, table, tables_with
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, reasons
from mlsysim.launch.serving import Server, cap_of, degrees_of, rounded, traffic_of
from mlsysim.launch.settings import Details, Why, comment, read_documents, write_yaml
from mlsysim.launch.shell import Script, read_notes, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.timing.engines import engine as engine_of
from mlsysim.timing.engines import is_engine

_OWN: dict[str, type[Server]] = {"vllm": VLLM, "sglang": SGLang, "tensorrt_llm": TensorRTLLM}
SERVERS: dict[str, Server] = {name: _OWN.get(name, Server)(name) for name in tables_with("command")}
TRAINERS: dict[str, Any] = {"megatron": megatron, "torchtitan": torchtitan}
EVERY = tuple(dict.fromkeys((*megatron.FIELDS, *(field for server in SERVERS.values() for field in server.FIELDS))))
"""Fields of a plan that one of the commands expresses."""
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu", "intel": "habana.ai/gaudi"}
_IMAGES = {"megatron": "nvcr.io/nvidia/pytorch:latest", "torchtitan": "pytorch/pytorch:latest"}
_COPIED = ("Deployment", "StatefulSet", "ReplicaSet")


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
    if is_engine(engine):
        runner = engine_of(engine)
        engine = (runner.like or runner.name).lower()
    for name, server in SERVERS.items():
        if server.ENGINE.lower() == engine:
            return name
    return "sglang" if engine.startswith("sglang") else "tensorrt_llm" if engine.startswith("tensorrt") else "vllm"


def width_of(plan: Plan, per_node: int, because: str) -> int:
    """Accelerators of a replica, which a node must have."""
    width = degrees_of(plan.parallelism).devices
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


class Slurm:
    """An ``sbatch`` script."""

    NAME, FIELDS = "slurm", EVERY

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a script and its command say."""
        script = read_script(text)
        parsed = parse([word for line in script.directives for word in line.split()], table(self.NAME))
        found = read_inside(script, "The Slurm script")
        nodes, each, chip = _resources(parsed)
        document, accelerators = spread(found, nodes, each)
        update = {
            "target": self.NAME,
            "document": document,
            "accelerators": accelerators,
            "details": {**parsed.details(), **found.details},
            "unread": (*(f"#SBATCH {flag}" for flag in parsed.unread), *found.unread),
        }
        seen = None if chip is None or accelerators is None else f"{accelerators}x{chip}"
        return found.model_copy(update=update).placed(on or script.notes.get("fleet") or seen, model)

    def write(self, plan: Plan, answer: Answer, details: Details = None, command: str | None = None) -> str:
        """A script for ``sbatch``; ``command`` is megatron or torchtitan, vllm, sglang or tensorrt_llm."""
        name = chosen(plan, answer, command)
        final = completed(plan, answer)
        fleet = find_fleets(final.hardware).one
        per_node, nodes, why = fleet.node.accelerators_per_node, fleet.count, reasons(final, answer)
        ours = {key: value for key, value in (details or {}).items() if key in table(self.NAME).flags}
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


class Kubernetes:
    """A manifest."""

    NAME, FIELDS = "kubernetes", EVERY

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a manifest and its command say."""
        documents = [d for d in read_documents(text, "The manifest") if isinstance(d, dict) and d.get("kind")]
        notes = read_notes(text)
        for document in documents:
            spec = _table(document.get("spec"))
            pod = spec if document.get("kind") == "Pod" else _table(_table(spec.get("template")).get("spec"))
            containers = _list(pod.get("containers"))
            for container in containers:
                script, gpus = _script(container), _accelerators(container)
                script.notes.update(notes)
                if script.commands and (gpus is not None or len(containers) == 1):
                    found = _reading(str(document["kind"]), spec, _table(pod.get("nodeSelector")), script, gpus)
                    return found.placed(on or notes.get("fleet"), model)
        raise InputError("The manifest has no Deployment, Job or Pod whose container has a command.")

    def write(self, plan: Plan, answer: Answer, details: Details = None, command: str | None = None) -> str:
        """A manifest; ``command`` is megatron or torchtitan, vllm, sglang or tensorrt_llm."""
        name = chosen(plan, answer, command)
        final = completed(plan, answer)
        fleet = find_fleets(final.hardware).one
        vendor = (fleet.node.accelerator.vendor or "").lower()
        resource = next((key for word, key in _RESOURCES.items() if word in vendor), None)
        if resource is None:
            raise InputError(
                f"Kubernetes has no known resource for accelerators of {fleet.node.accelerator.vendor or 'an unnamed maker'}.",
                field="on",
            )
        kept = {key: value for key, value in (details or {}).items() if key.startswith("-")}
        make = _job if answer.task == "training" else _deployment
        documents, gaps = make(name, final, answer, kept, fleet, resource)
        how = "Set the image, and select nodes of " + fleet.node.accelerator.name
        lines = comment(header(final, answer, f"Kubernetes manifest with {name}", gaps, how))
        texts = ["\n".join(write_yaml(document)) for document in documents]
        return "\n".join([*lines, "\n---\n".join(texts)]) + "\n"


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _script(container: dict[str, Any]) -> Script:
    """The container's command; of ``bash -c TEXT`` the text."""
    given = [word for part in ("command", "args") for word in (container.get(part) or [])]
    words = [str(word) for word in given if isinstance(word, (str, int, float))]
    image = str(container.get("image") or "")
    if image.split(":")[0].endswith("vllm/vllm-openai") and words[:1] and words[0].startswith("-"):
        # That image's own command is the server.
        words = [image, *words]
    shell = words[:1] and words[0].rsplit("/", 1)[-1] in ("bash", "sh")
    spoken = shell and any(word.startswith("-") and word.endswith("c") for word in words[1:-1])
    text = words[-1] if spoken else shlex.join(words)
    for entry in reversed(_list(container.get("env"))):
        name, value = entry.get("name"), entry.get("value")
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name) and isinstance(value, (str, int, float)):
            text = f"{name}={shlex.quote(str(value))}\n{text}"
    return read_script(text)


def _accelerators(container: dict[str, Any]) -> int | None:
    resources = _table(container.get("resources"))
    for part in ("limits", "requests"):
        for key in _RESOURCES.values():
            value = _table(resources.get(part)).get(key)
            if value is not None and str(value).isdigit():
                return int(value)
    return None


def _reading(kind: str, spec: dict[str, Any], selector: dict[str, Any], script: Script, gpus: int | None) -> Reading:
    found = read_inside(script, "The manifest")
    pods = spec.get("replicas" if kind in _COPIED else "parallelism")
    plan, count = spread(found, pods if isinstance(pods, int) and pods > 0 else 1, gpus)
    chip = _chip(selector)
    if chip is not None and count is not None:
        plan["hardware"] = {"on": f"{count}x{chip}"}
    known = {key.split(".")[-1] for key in table("kubernetes").flags if key.startswith("spec.")}
    warnings = list(found.warnings)
    needed = (found.accelerators or 0) if plan.get("task") == "serving" else 0
    if gpus is not None and needed > gpus:
        warnings.append(f"The command uses {needed} accelerators and the container asks for {gpus}.")
    update = {
        "target": "kubernetes",
        "document": plan,
        "flags": {**found.flags, "serving.replicas": "spec.replicas"},
        "accelerators": count,
        "warnings": tuple(warnings),
        "unread": (*(f"spec.{key}" for key in spec if key not in known), *found.unread),
    }
    return found.model_copy(update=update)


def _chip(selector: dict[str, Any]) -> str | None:
    """The chip of a node label such as NVIDIA-H100-80GB-HBM3."""
    endings = ("gpu.product", "gke-accelerator", "gpu.product-name")
    label = next((str(value) for key, value in selector.items() if str(key).endswith(endings)), "")
    words = [word for word in re.split(r"[-_ ]", label) if re.search(r"\d", word) and not word.lower().endswith("gb")]
    return next((chip_named(word) for word in words if chip_named(word) is not None), None)


def _label(plan: Plan) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", plan.name.lower()).strip("-")[:50] or "plan"


def _container(name: str, script: list[str], resource: str, count: int, why: str) -> dict[str, Any]:
    return {
        "name": name.replace("_", "-"),
        "image": Why(_IMAGES.get(name) or SERVERS[name].IMAGE, "pin the release that you tested"),
        "command": ["/bin/bash", "-c"],
        "args": ["\n".join(script) + "\n"],
        "resources": {"limits": {resource: Why(count, why)}},
    }


def _deployment(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any], fleet: Any, resource: str
) -> tuple[list[Any], list[str]]:
    why, cap, replicas = reasons(plan, answer), cap_of(plan), traffic_of(plan).replicas or 1
    width = width_of(plan, fleet.node.accelerators_per_node, "a pod of a Deployment runs on one node")
    one = plan.replacing(serving={"replicas": 1, "concurrency": cap})
    script, gaps = SERVERS[name].lines(one, answer, details, False)
    gaps += rounded(plan, cap, replicas, "replica")
    label = {"app": _label(plan)}
    pod = {"containers": [_container(name, script, resource, width, f"a replica: {why['parallelism.tp']}")]}
    spec = {
        "replicas": Why(replicas, why["serving.replicas"]),
        "selector": {"matchLabels": label},
        "template": {"metadata": {"labels": label}, "spec": pod},
    }
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": _label(plan)}, "spec": spec}], gaps


def _job(
    name: str, plan: Plan, answer: Answer, details: Mapping[str, Any], fleet: Any, resource: str
) -> tuple[list[Any], list[str]]:
    why = reasons(plan, answer)
    label, nodes, per_node = _label(plan), fleet.count, fleet.node.accelerators_per_node
    others = {"--node-rank": "$JOB_COMPLETION_INDEX", "--master-addr": f"{label}-0.{label}", "--master-port": "29500"}
    script, gaps = TRAINERS[name].lines(plan, answer, details, others)
    pod = {
        "subdomain": Why(label, "pods are found as NAME-INDEX.NAME"),
        "restartPolicy": "Never",
        "containers": [_container(name, script, resource, per_node, why["accelerators"])],
    }
    spec = {
        "completionMode": Why("Indexed", "a pod's number is its node rank"),
        "completions": Why(nodes, why["accelerators"]),
        "parallelism": Why(nodes, "all nodes at once"),
        "template": {"metadata": {"labels": {"app": label}}, "spec": pod},
    }
    service = {"clusterIP": "None", "selector": {"app": label}}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": label}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": label}, "spec": spec},
    ], gaps
