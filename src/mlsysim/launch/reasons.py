"""Why each value of a launch file is what it is: sentences made from the answer, so that they hold its numbers and no others."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import WorkloadPart
from mlsysim.plans.resolve import find_fleets
from mlsysim.units.text import count_text, many
from mlsysim.zoo.files import shipped

TRAINING = (
    "workload.model", "workload.batch_size", "workload.seq_len", "workload.precision", "workload.tokens", "workload.optimizer",
    "parallelism.tp", "parallelism.pp", "parallelism.dp", "parallelism.cp", "parallelism.ep", "parallelism.virtual_stages",
    "parallelism.schedule", "parallelism.micro_batch", "parallelism.zero", "parallelism.recompute", "parallelism.sequence_parallel",
    "parallelism.overlap",
)  # fmt: skip
"""Fields of a training plan that a trainer's flags can express."""
_SILENT = ("name", "description", "task", "parallelism.mode", "workload.batch_size")
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys([f"parallelism.{name}" for name in ("tp", "pp", "cp", "ep", "attention_dp", "virtual_stages")], 1),
    "parallelism.zero": 0, "parallelism.recompute": "none", "parallelism.overlap": True, "serving.replicas": 1,
    "parallelism.offload": 0.0, "parallelism.offload_weights": 0.0,
}  # fmt: skip
"""What saying nothing of a field means."""
HALVES = "exchange"
"""The assumption of a replica whose exchange of experts goes behind the other half of its batch."""


def completed(plan: Plan, answer: Answer) -> Plan:
    """The plan with everything that was chosen or assumed written down, as a launch needs it."""
    final = settled(answer.model_copy(update={"plan": plan}))
    update: dict[str, Any] = {}
    if final.workload.precision is None:
        update["workload"] = {"precision": answer.precision}
    if answer.task == "training":
        split = final.parallelism
        # Stacks split norms and dropouts over the tensor group unless the plan says otherwise.
        norms = split.sequence_parallel is not False if (split.tp or 1) > 1 else None
        update["parallelism"] = {"sequence_parallel": norms, "overlap": split.overlap is not False}
    elif answer.task == "serving" and final.serving is not None:
        traffic, load = final.serving, answer.layout["concurrency"]
        most = next((int(each.value) for each in answer.assumed if each.name == "max_num_seqs"), traffic.max_num_seqs)
        if traffic.qps is not None:
            # Requests that come by themselves are at times more than their mean, so that a cap is what memory holds and not the mean.
            held = most or int(answer.value("max_batch"))
            update["serving"] = {"qps": None, "concurrency": load, "max_num_seqs": held}
        elif most is not None and load > most * (traffic.replicas or 1):
            update["serving"] = {"max_num_seqs": most}
    return final.replacing(**update)


def check_offered(
    work: WorkloadPart, precisions: Container[str | None], optimizers: Container[str], *says: str
) -> None:
    """Refuse a number format or an optimizer that a trainer has no word for; ``says`` what it has of each."""
    if work.precision not in precisions:
        raise InputError(f"{says[0]} for {work.precision}.", field="precision")
    if work.optimizer is not None and work.optimizer.lower() not in optimizers:
        raise InputError(f"{says[1]}; it has none for {work.optimizer[:40]!r}.", field="optimizer")


def fleet_text(plan: Plan) -> str:
    """The fleet in one string."""
    on, fabric = plan.hardware.on, plan.hardware.fabric
    if on is not None:
        return f"{on}@{fabric}" if fabric and "@" not in on else on
    fleet = find_fleets(plan.hardware).one
    return f"{fleet.total_accelerators}x{fleet.node.accelerator.metadata.key or plan.hardware.name}"


def header(plan: Plan, answer: Answer, what: str, gaps: Iterable[str], how: str = "") -> list[str]:
    """Lines at the top of a launch file: what it is, what to expect, what it cannot say. Without comment signs."""
    lines = [f"{what}: {answer.subject}.", answer.headline]
    lines += [answer.binding.sentence] if answer.feasible else []
    lines += [f"How sure: {answer.interval}"] if answer.interval else []
    lines += [how] if how else []
    lines += [f"Not expressed here: {gap}." for gap in gaps]
    return [*lines, f"fleet: {fleet_text(plan)}", f"model: {plan.workload.model}"]


def leaves(plan: Plan) -> dict[str, Any]:
    """Every field that a plan sets, by its dotted name."""
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", plan.document())]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((f"{path}.{key}".lstrip("."), item) for key, item in value.items())
        else:
            found[path] = value
    return found


def not_expressed(plan: Plan, fields: Iterable[str], notes: Mapping[str, str] | None = None) -> list[str]:
    """What a plan says that a target's flags cannot, each as words; ``notes`` says what to do instead."""
    known = {*fields, *_SILENT}
    out = []
    for path, value in sorted(leaves(plan).items()):
        if path in known or path.startswith(("hardware.", "constraints.", "ops.")) or value == NEUTRAL.get(path, ...):
            continue
        note = (notes or {}).get(path)
        shown = count_text(value) if isinstance(value, float) and value >= 1e6 else value
        out.append(f"{path} = {shown}" + (f" ({note})" if note else ""))
    return out


def reasons(plan: Plan, answer: Answer) -> dict[str, str]:
    """A sentence for each field of a completed plan, by the templates of ``reasons.toml``."""
    values = {"training": _training, "rl": _rl}.get(answer.task, _serving)(plan, answer)
    fleet, (used, capacity) = find_fleets(plan.hardware).one, _memory(answer)
    searched = answer.assumptions.get("layout")
    values |= {"used": used, "capacity": capacity, "chosen": f"; {searched}" if searched else ""}
    values |= {"nodes": fleet.count, "per_node": fleet.node.accelerators_per_node, "chip": fleet.node.accelerator.name}
    values |= {"accelerators": fleet.total_accelerators, "precision": _precision(plan, answer)}
    templates = shipped("mlsysim.launch", "reasons.toml")[
        answer.task if answer.task in ("training", "rl") else "serving"
    ]
    found = {name: template.format_map(values) for name, template in templates.items()}
    if answer.task == "serving" and HALVES in answer.assumptions:
        found["halves"] = f"exchange of experts {answer.assumed_value(HALVES)}"
    return {name: text for name, text in found.items() if text}


class _By:
    """What a template asks for by name."""

    def __init__(self, say: Callable[[str], str]) -> None:
        self.say = say

    def __getitem__(self, name: str) -> str:
        return self.say(name)


def _inside(plan: Plan, spread: str = "across nodes of {}") -> str:
    """Where the tensor group of a plan is."""
    tp, per_node = plan.parallelism.tp or 1, find_fleets(plan.hardware).one.node.accelerators_per_node
    return f"inside a node of {per_node}" if tp <= per_node else spread.format(per_node, -(-tp // per_node))


def _training(plan: Plan, answer: Answer) -> dict[str, Any]:
    split, work, ledger = plan.parallelism, plan.workload, answer.ledger
    memory = {} if answer.memory is None else {part.label: part.value for part in answer.memory.parts}

    def share(label: str) -> str:
        return f"{0.0 if ledger is None else ledger.exposed(label) / ledger.seconds:.1%} of the step"

    def held(label: str) -> str:
        return f"{memory.get(label, 0.0) / 1e9:.1f} GB on each accelerator"

    micro, batch, length = split.micro_batch or 1, work.batch_size or 1, work.seq_len or 0
    found: dict[str, Any] = {name: getattr(split, name) or 1 for name in ("tp", "pp", "dp", "cp", "ep")}
    found |= {"virtual": split.virtual_stages or 1, "schedule": split.schedule or "1f1b", "zero": split.zero or 0}
    found |= {
        "recompute": split.recompute or "none",
        "stack": plan.hardware.stack,
        "share": _By(share),
        "held": _By(held),
    }
    found |= {"micro": micro, "batch": batch, "length": length, "count": max(1, batch // found["dp"] // micro)}
    found |= {"step": batch * length, "where": _inside(plan, "across {1} nodes of {0}")}
    found["assumed"] = " (assumed)" if "seq_len" in answer.assumptions else ""
    return found | {"tokens": "" if work.tokens is None else f"{count_text(work.tokens)} tokens"}


def _rl(plan: Plan, answer: Answer) -> dict[str, Any]:
    """Of a step: what it is asked for, the layouts of both sides, and what their parts take."""
    part, layout = plan.rl, answer.layout
    assert part is not None
    texts = {metric.name: metric.text for metric in answer.metrics}
    names = {"trains": "training_time", "writes": "rollout_time", "step": "latency"}
    found = {"generator_tp": None, "generator_ep": None, "generator_replicas": 0} | layout
    found |= {name: texts.get(metric, "?") for name, metric in names.items()} | {"part": part}
    found |= {"tail": texts.get("tail_time", "none"), "reads": texts.get("logprob_time", "none")}
    found |= {"samples": (part.prompts or 1) * (part.samples or 1), "flying": 1 + layout["staleness"]}
    found["micro"] = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
    apart = f"{layout['trainers']:,} train, {layout['generators']:,} generate"
    return found | {"split": apart if layout["generators"] else "all take turns"}


def _memory(answer: Answer) -> tuple[str, str]:
    if answer.memory is None:
        return "unknown", "unknown"
    return f"{answer.memory.used / 1e9:.1f}", f"{answer.memory.capacity / 1e9:.1f} GB"


def _precision(plan: Plan, answer: Answer) -> str:
    rate = answer.roofline[0]["peak_flops"] / 1e12 if answer.roofline else None
    peak = "" if rate is None else f", peak {rate:,.0f} TFLOP/s"
    assumed = " (assumed)" if "precision" in answer.assumptions else ""
    return f"{plan.workload.precision}{assumed}{peak}"


def _serving(plan: Plan, answer: Answer) -> dict[str, Any]:
    split, traffic = plan.parallelism, plan.serving
    assert traffic is not None
    texts = {metric.name: metric.text for metric in answer.metrics}
    replicas, every = traffic.replicas or 1, answer.layout.get("replicas", traffic.replicas or 1)
    share = traffic.prefix_hits or (traffic.cached_prefix or 0) / (traffic.prompt_tokens or 1)
    counts = ("chunk_tokens", "draft_tokens", "adapters", "adapter_rank", "prompt_tokens", "output_tokens")
    asked = {"rate": "tokens_per_second", "fit": "max_batch", "caches": "kv_cache"}
    found: dict[str, Any] = {name: getattr(split, name) or 1 for name in ("tp", "pp", "ep")}
    found |= {name: getattr(traffic, name) or 0 for name in counts} | {"traffic": traffic, "where": _inside(plan)}
    found |= {name: texts.get(metric, "?") for name, metric in asked.items()}
    found |= {"groups": split.attention_dp or 1, "model": plan.workload.model}
    found["speed"] = f"first token {texts.get('ttft', '?')}, then {texts.get('tpot', '?')} each"
    found["in_flight"] = traffic.concurrency or answer.layout.get("concurrency", 0)
    found["here"] = f"{replicas} of {every} replicas" if every != replicas else many(replicas, "replica")
    shared = f"{share:.3g} of a prompt is found in caches of others"
    return found | {"prefixes": shared if share else "prompts share no caches in the plan"}
