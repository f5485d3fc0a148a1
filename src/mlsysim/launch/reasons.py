"""Why each value of a launch file is what it is: sentences made from the answer, so that they hold its numbers and no others."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.plans.answer import Answer
from mlsysim.plans.changes import settled
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import WorkloadPart
from mlsysim.plans.resolve import find_fleets
from mlsysim.units.text import count_text

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
    elif answer.task == "serving" and final.serving is not None and final.serving.qps is not None:
        # Requests that come by themselves are at times more than their mean, so that a cap is what memory holds and not the mean.
        held = final.serving.max_num_seqs or int(answer.value("max_batch"))
        update["serving"] = {"qps": None, "concurrency": answer.layout["concurrency"], "max_num_seqs": held}
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
    """A sentence for each field of a completed plan."""
    return {"training": _training, "rl": _rl}.get(answer.task, _serving)(plan, answer)


def _training(plan: Plan, answer: Answer) -> dict[str, str]:
    split, work = plan.parallelism, plan.workload
    fleet = find_fleets(plan.hardware).one
    per_node = fleet.node.accelerators_per_node
    ledger = answer.ledger
    memory = {} if answer.memory is None else {part.label: part.value for part in answer.memory.parts}
    used, capacity = _memory(answer)
    tp, pp, dp = split.tp or 1, split.pp or 1, split.dp or 1
    where = f"inside a node of {per_node}" if tp <= per_node else f"across {-(-tp // per_node)} nodes of {per_node}"
    chosen = _chosen(answer)

    def share(label: str) -> str:
        return f"{0.0 if ledger is None else ledger.exposed(label) / ledger.seconds:.1%} of the step"

    def held(label: str) -> str:
        return f"{memory.get(label, 0.0) / 1e9:.1f} GB on each accelerator"

    micro, batch, length = split.micro_batch or 1, work.batch_size or 1, work.seq_len or 0
    count = max(1, batch // dp // micro)
    found = {
        "parallelism.tp": f"TP {tp}: {where}; {share('tensor parallelism')}; memory {used} of {capacity}{chosen}",
        "parallelism.pp": f"PP {pp}: bubble {share('pipeline bubble')}; memory {used} of {capacity}",
        "parallelism.dp": f"DP {dp}: {share('gradient synchronisation')} is gradient synchronisation that shows",
        "parallelism.cp": f"CP {split.cp or 1}: {share('context parallelism')}",
        "parallelism.ep": f"EP {split.ep or 1}: {share('expert parallelism')}",
        "parallelism.virtual_stages": f"{split.virtual_stages or 1} virtual stages a device: bubble {share('pipeline bubble')}",
        "parallelism.schedule": f"schedule {split.schedule or '1f1b'}: bubble {share('pipeline bubble')}",
        "parallelism.micro_batch": f"{count} micro-batches of {micro} a replica; activations {held('activations')}",
        "parallelism.zero": f"ZeRO {split.zero or 0}: optimizer state {held('optimizer state')}, gradients {held('gradients')}",
        "parallelism.recompute": f"recompute {split.recompute or 'none'}: activations {held('activations')}, memory {used} of {capacity}",
        "parallelism.sequence_parallel": "norms and dropouts over the tensor group too: their activations shrink by TP",
        "parallelism.overlap": f"gradients travel during the backward pass; {share('gradient synchronisation')} still shows",
        "hardware.stack": f"the software that the times are of: {plan.hardware.stack}",
        "parallelism.offload": "the optimizer's state in the host's memory; the host updates the weights",
        "parallelism.offload_weights": "the weights in the host's memory",
        "workload.batch_size": f"{batch:,} x {length:,} = {batch * length:,} tokens a step",
        "workload.seq_len": f"{length:,} tokens a sequence{' (assumed)' if 'seq_len' in answer.assumptions else ''}",
        "workload.precision": _precision(plan, answer),
        "workload.optimizer": f"optimizer state {held('optimizer state')}",
        "workload.tokens": "" if work.tokens is None else f"{count_text(work.tokens)} tokens",
        "accelerators": f"{fleet.count:,} node(s) of {per_node} {fleet.node.accelerator.name}",
    }
    return {name: text for name, text in found.items() if text}


def _rl(plan: Plan, answer: Answer) -> dict[str, str]:
    """Of a step: what it is asked for, the layouts of both sides, and what their parts take."""
    part, layout = plan.rl, answer.layout
    assert part is not None
    used, capacity = _memory(answer)
    texts = {metric.name: metric.text for metric in answer.metrics}
    trains, writes = (texts.get(name, "?") for name in ("training_time", "rollout_time"))
    fleet = find_fleets(plan.hardware).one
    all_of = (part.prompts or 1) * (part.samples or 1)
    micro = max(1, layout["batch_size"] // layout["dp"] // layout["micro_batches"])
    passes = f"forward passes beside training: {texts.get('logprob_time', 'none')}"
    found = {
        **{f"parallelism.{name}": f"{name.upper()} {layout[name]}" for name in ("pp", "cp", "ep", "dp")},
        "parallelism.tp": f"TP {layout['tp']}: training {trains}; memory {used} of {capacity}{_chosen(answer)}",
        "parallelism.zero": f"ZeRO {layout['zero']}",
        "parallelism.virtual_stages": f"{layout['virtual_stages']} virtual stages a device",
        "parallelism.recompute": f"recompute {layout['recompute']}: memory {used} of {capacity}",
        "parallelism.micro_batch": f"tokens of a packed micro-batch: {micro} of {layout['seq_len']:,} tokens, or the longest",
        "workload.batch_size": f"updates of {layout['batch_size']:,} of {all_of:,} samples a step",
        "workload.model": f"a step takes {texts.get('latency', '?')}",
        "workload.precision": _precision(plan, answer),
        "serving.prompt_tokens": "tokens of a prompt in the plan; raise it for longer ones",
        "serving.engine": f"rollout {writes}",
        "serving.memory_fraction": "a generator's share of the memory in the plan",
        "serving.max_num_seqs": f"samples of a generator at a time; {layout.get('generator_replicas', 0)} generators",
        "rl.prompts": f"{part.prompts:,} prompts a step",
        "rl.samples": f"{part.samples:,} samples of each",
        "rl.max_response": f"most tokens of a response; {part.response:,} on average",
        "rl.split": f"{layout['trainers']:,} train, {layout['generators']:,} generate" if layout["generators"] else "all take turns",
        "rl.staleness": f"{1 + layout['staleness']:g} batches in flight",
        "rl.partial": "whether responses go on over an update",
        "rl.logprob_passes": passes,
        "rl.generator_tp": f"TP {layout.get('generator_tp')}: rollout {writes}, of which {texts.get('tail_time', 'none')} long tail",
        "rl.generator_ep": f"EP {layout.get('generator_ep')}: experts over the ranks of a generator",
        "trainers": f"{layout['trainers']:,} of {fleet.total_accelerators:,} accelerators train",
        "accelerators": f"{fleet.count:,} node(s) of {fleet.node.accelerators_per_node} {fleet.node.accelerator.name}",
    }  # fmt: skip
    return found


def _chosen(answer: Answer) -> str:
    searched = answer.assumptions.get("layout")
    return f"; {searched}" if searched else ""


def _memory(answer: Answer) -> tuple[str, str]:
    if answer.memory is None:
        return "unknown", "unknown"
    return f"{answer.memory.used / 1e9:.1f}", f"{answer.memory.capacity / 1e9:.1f} GB"


def _precision(plan: Plan, answer: Answer) -> str:
    rate = answer.roofline[0]["peak_flops"] / 1e12 if answer.roofline else None
    peak = "" if rate is None else f", peak {rate:,.0f} TFLOP/s"
    assumed = " (assumed)" if "precision" in answer.assumptions else ""
    return f"{plan.workload.precision}{assumed}{peak}"


def _serving(plan: Plan, answer: Answer) -> dict[str, str]:
    split, traffic = plan.parallelism, plan.serving
    assert traffic is not None
    used, capacity = _memory(answer)
    texts = {metric.name: metric.text for metric in answer.metrics}
    replicas = traffic.replicas or 1
    fleet = find_fleets(plan.hardware).one
    per_node = fleet.node.accelerators_per_node
    tp = split.tp or 1
    where = f"inside a node of {per_node}" if tp <= per_node else f"across nodes of {per_node}"
    share = traffic.prefix_hits or (traffic.cached_prefix or 0) / (traffic.prompt_tokens or 1)
    speed = f"first token {texts.get('ttft', '?')}, then {texts.get('tpot', '?')} each"
    in_flight = traffic.concurrency or answer.layout.get("concurrency", 0)
    every = answer.layout.get("replicas", replicas)
    here = f"{replicas} of {every} replicas" if every != replicas else f"{replicas} replica(s)"
    halves = (
        {"halves": f"exchange of experts {answer.assumptions[HALVES].partition(':')[0]}"}
        if HALVES in answer.assumptions
        else {}
    )
    return halves | {
        "parallelism.tp": f"TP {tp}: {where}; memory {used} of {capacity}; {speed}{_chosen(answer)}",
        "parallelism.pp": f"PP {split.pp or 1} stages a replica",
        "parallelism.ep": f"EP {split.ep or 1}: experts over the ranks of a replica",
        "parallelism.attention_dp": f"{split.attention_dp or 1} groups of attention share the experts of a replica",
        "serving.replicas": f"{here} on {fleet.total_accelerators:,} accelerators: {texts.get('tokens_per_second', '?')} output tokens a second in all",
        "serving.concurrency": f"{in_flight:,} in flight over {here}; {texts.get('max_batch', '?')} fit in a replica's memory",
        "serving.cache_precision": f"caches of a replica take {texts.get('kv_cache', '?')}",
        "serving.offload_memory": f"{traffic.offload_memory} of the host for each accelerator keep caches of prefixes",
        "prefixes": f"{share:.3g} of a prompt is found in caches of others"
        if share
        else "prompts share no caches in the plan",
        "serving.chunk_tokens": f"a prefill chunk of {traffic.chunk_tokens or 0:,} tokens",
        "serving.memory_fraction": f"the plan's share; weights and caches need {used} of {capacity}",
        "serving.draft_model": f"drafts for {plan.workload.model}; {speed}",
        "serving.draft_tokens": f"{traffic.draft_tokens or 0} tokens drafted in a row",
        "serving.adapters": f"{traffic.adapters or 0:,} adapters that requests choose among; memory {used} of {capacity}",
        "serving.adapter_rank": f"adapters of rank {traffic.adapter_rank or 0}",
        "lengths": f"prompts of {traffic.prompt_tokens or 0:,} and answers of {traffic.output_tokens or 0:,} tokens are the plan's; raise it for longer requests",
        "workload.precision": _precision(plan, answer),
        "workload.model": f"weights and caches: {used} of {capacity} on each accelerator",
        "accelerators": f"{fleet.total_accelerators:,} x {fleet.node.accelerator.name}",
    }
