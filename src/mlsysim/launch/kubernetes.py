"""Kubernetes: a Deployment of servers, or an indexed Job of trainers with the Service by which its pods find one another.

A pod of a Deployment is one replica, so a replica must fit on a node. Images, volumes and which nodes to use are the cluster's; the manifest
names the accelerators only as a resource.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import table
from mlsysim.launch.inside import EVERY, SERVERS, TRAINERS, chip_named, chosen, read_inside, spread, width_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, reasons
from mlsysim.launch.serving import cap_of, rounded, traffic_of
from mlsysim.launch.settings import Why, comment, read_yaml, write_yaml
from mlsysim.launch.shell import Script, read_notes, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets

NAME = "kubernetes"
FIELDS = EVERY
"""Fields of a plan that a manifest and its command express."""
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu", "intel": "habana.ai/gaudi"}
_IMAGES = {"megatron": "nvcr.io/nvidia/pytorch:latest", "torchtitan": "pytorch/pytorch:latest"}
_COPIED = ("Deployment", "StatefulSet", "ReplicaSet")


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a manifest and its command say."""
    documents = [d for d in read_yaml(text, "The manifest") if isinstance(d, dict) and d.get("kind")]
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
    known = {key.split(".")[-1] for key in table(NAME).flags if key.startswith("spec.")}
    warnings = list(found.warnings)
    needed = (found.accelerators or 0) if plan.get("task") == "serving" else 0
    if gpus is not None and needed > gpus:
        warnings.append(f"The command uses {needed} accelerators and the container asks for {gpus}.")
    update = {
        "target": NAME,
        "document": plan,
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


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None, command: str | None = None) -> str:
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
