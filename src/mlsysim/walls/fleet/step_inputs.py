"""From the inputs of :class:`DistributedModel` to the case of a training step, for one layout or an array of them.

At calibrated fidelity what the caller leaves open (ZeRO stage, sequence parallelism, what overlaps) is the stack's, and is said
with that origin; what the caller gives holds at either fidelity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from mlsysim.cases import offload
from mlsysim.cases.assumptions import CHIP, IDLE, INFERRED, SOFTWARE, Assumptions, shown
from mlsysim.cases.job import Job, Overlap
from mlsysim.cases.layout import Layout
from mlsysim.cases.train_lookup import LookupSoftware
from mlsysim.cases.train_network import NetworkSoftware
from mlsysim.cases.train_whole import Device
from mlsysim.cases.trainer import Software, Trained, Trainer, say_stack
from mlsysim.errors import InputError
from mlsysim.hardware.arithmetic import arithmetic_peak
from mlsysim.models.keeping import TEXTBOOK
from mlsysim.models.recompute import parts_in
from mlsysim.models.storage import check_trained
from mlsysim.models.training_shape import splits, training_shape
from mlsysim.physics.precision import bytes_per_element, precision_name, recipe_of
from mlsysim.physics.stage_split import stage_layers
from mlsysim.systems.types import Fleet
from mlsysim.timing.engines import device_memory
from mlsysim.timing.network import Hierarchical, datasheet_network
from mlsysim.timing.power import wide_peak
from mlsysim.timing.runtimes import trained_by_runtime
from mlsysim.timing.stacks import Stack, default_stack, stack, stack_names
from mlsysim.timing.training_chip import chip_in_fleet, constants, rated
from mlsysim.units.registry import to_si
from mlsysim.walls.data.locality import topology_share
from mlsysim.walls.inputs import CALIBRATED

FIRST_ORDER = {"overlap_comm": True, "update_step": True}
"""What first-order steps of plans and points of spaces have unless they say otherwise, and the paper's step has not: gradients hide
behind the backward pass, and the optimizer works."""
USUAL_LENGTH = 4096
"""Tokens of a sequence where a plan or a space gives none, and the model takes so many."""
_OF_OPERATORS = {each.name: each.default for each in fields(Job) if each.metadata} | {"target_share": 1.0}
"""Inputs that speak of single operators, and what leaves them alone."""
_OF_JOB = tuple(field.name for field in fields(Job))
"""What a job has; an input of that name is it."""


def usual_length(model: Any) -> int:
    """Tokens of a sequence where a plan or a space gives none."""
    return 1 if model.fixed_shape else min(USUAL_LENGTH, getattr(model, "max_context", None) or USUAL_LENGTH)


def trainer_of(x: Any, assumed: Assumptions) -> Trainer:
    """The fleet and its software. The efficiency may be an array, congestion is that of the job's points."""
    fleet, chip = x.fleet, x.fleet.node.accelerator
    check_trained(x.precision, x.is_lora, chip.compute, chip.name)
    peak, note = arithmetic_peak(chip, x.precision)
    if note:
        assumed.say("arithmetic", note, CHIP)
    net = datasheet_network(fleet, topology_share(fleet, x.topology_override, assumed), assumed)
    software: Trained | None = None
    calibrated = isinstance(x.efficiency, str) and x.efficiency == CALIBRATED
    if calibrated and trained_by_runtime(x.model, chip) and not (splits(x.model) and x.stack in stack_names()):
        software = _of_network(x, net, assumed)
    elif calibrated and x.model.looks_up:
        software = _of_tables(x, net, assumed)
    elif calibrated:
        chosen = stack(stack_name(x))
        found = chip_in_fleet(fleet, x.precision, net.fabric, chosen.name)
        software = Software(training_shape(x.model, x.target_share), found, chosen)
        say_stack(chosen, chip, found, software.shape, assumed)
    else:
        assumed.pop("stack", None)
        if "stack" in assumed.given and x.stack is not None:
            assumed.say(
                "stack", x.stack, IDLE, f"{x.stack}: no effect, a first-order step is one operator at one efficiency"
            )
        for name, plain in _OF_OPERATORS.items():
            assumed.pop(name, None)
            if getattr(x, name) != plain:
                why = "a first-order step is one operator"
                raise InputError(f"{name} needs efficiency='calibrated': {why}.", field=name)
    efficiency, bandwidth = x.efficiency if software is None else 1.0, to_si(chip.memory.bandwidth, "byte/s")
    device = Device(peak, efficiency, bandwidth, min(peak, wide_peak(chip)) if recipe_of(x.precision).narrow else None)
    shares = (x.optimizer_offload, x.weights_offload, x.activations_offload)
    resident = all(isinstance(share, (int, float)) and not share for share in shares)
    if x.host_update and resident:
        assumed.say("host_update", True, IDLE, "yes: no effect, no state rests with the host (optimizer_offload)")
    powered, limit = rated(chip) if isinstance(software, Software) else (chip, None)
    limits = [watts for watts in (limit, x.power_cap) if watts is not None]
    trainer = Trainer(device, net, device_memory(chip, calibrated), None, software, powered, min(limits, default=None))
    return trainer if resident else with_its_host(trainer, fleet, x.host_update)


def with_its_host(trainer: Trainer, fleet: Fleet, updates: bool) -> Trainer:
    """The trainer with the link to the host, and with the host's memory where it updates."""
    memory = offload.host_memory(fleet.node, constants().host_update_share) if updates else None
    return replace(trainer, host_link=offload.host_link(fleet.node.accelerator), host_memory=memory)


def _of_network(x: Any, net: Hierarchical, assumed: Assumptions) -> NetworkSoftware:
    """A network of fixed shape, under the runtime that is its stack."""
    _refuse_of_layers(x, _OF_OPERATORS, assumed)
    found = chip_in_fleet(x.fleet, "bf16", net.fabric)
    software = NetworkSoftware.of(x.model, x.fleet.node.accelerator, x.stack, found)
    assumed.say("stack", software.runtime.name, SOFTWARE, f"{software.runtime.name}: {software.runtime.title}")
    return software


def _of_tables(x: Any, net: Hierarchical, assumed: Assumptions) -> LookupSoftware:
    """A recommender, by its operators."""
    _refuse_of_layers(x, _OF_OPERATORS | {"stack": None}, assumed)
    assumed.say("layout", "tables spread", SOFTWARE, "tables spread over all accelerators, layers copied on each")
    return LookupSoftware(x.fleet.node.accelerator, chip_in_fleet(x.fleet, "bf16", net.fabric).network)


def _refuse_of_layers(x: Any, names: Mapping[str, Any], assumed: Assumptions) -> None:
    for name, plain in names.items():
        if getattr(x, name) != plain:
            raise InputError(f"{name} has no effect on {x.model.name}, whose operators are not layers.", field=name)
        assumed.pop(name, None)


def say_idle_inputs(x: Any, layout: Layout, trainer: Trainer, assumed: Assumptions) -> None:
    """What was given and can have no effect in this layout, with the reason; what was not given and has none is not assumed."""
    zero = assumed.value("zero_stage", x.zero_stage)
    reasons = {
        "tensors are not split": (layout.tp == 1, ("sequence_parallel", "overlap_tp")),
        "there is no pipeline": (layout.pp == 1, ("schedule", "overlap_pp")),
        "the sequence is not split": (layout.cp == 1, ("overlap_cp",)),
        "experts are not split": (layout.ep == 1, ("overlap_ep", "deduplicated_exchange")),
        "all experts share a link domain": (1 < layout.ep <= trainer.domain, ("deduplicated_exchange",)),
        "nothing is synchronised": (
            layout.dp * layout.cp == 1 and not x.overlap_comm,
            ("overlap_comm", "overlap_efficiency"),
        ),
        "ZeRO shards neither gradients nor weights": (zero < 2, ("reshard",)),
        "ZeRO shards nothing": (zero == 0, ("zero_shard",)),
        "no tokens are sent to experts": (layout.ep == 1, ("exchange_precision",)),
        "adapters have few gradients": (bool(x.is_lora), ("gradient_precision",)),
        "no adapters are trained": (not x.is_lora, ("lora_rank", "lora_targets")),
        f"{x.precision} has no recipe of narrow products": (not recipe_of(x.precision).narrow, ("wide_layers",)),
        "recomputation is not selective": (x.activation_recomputation != "selective", ("recomputed",)),
        f"{x.model.name} has no encoder": (getattr(x.model, "encoder_stack", None) is None, ("target_share",)),
    }
    for why, (holds, names) in reasons.items():
        for name in names:
            if holds and name in assumed.given and (value := getattr(x, name)) is not None:
                assumed.say(name, value, IDLE, f"{shown(value)}: no effect, {why}")
            elif holds:
                assumed.pop(name, None)


def say_sharing(job: Job, layout: Layout, assumed: Assumptions) -> None:
    """What ZeRO 2 and 3 hold whole because they do not send it for every micro-batch."""
    if job.zero < 2 or job.regathers(layout.pp) or layout.dp * layout.cp == 1:
        return
    origin, words = IDLE, "weights and gradients are whole and sent once; no effect beyond ZeRO 1"
    if layout.virtual_stages > 1:
        words = f"gradients are scattered group by group, those of one of {layout.virtual_stages} chunks are whole"
        origin = INFERRED
    words = f"{job.zero}: weights are not resharded before the step is over, as in pipelines: {words}"
    assumed.say("zero_stage", job.zero, origin, words)


def say_split(model: Any, layout: Layout, assumed: Assumptions, first_order: bool) -> None:
    """Which layers stages and their chunks have, where these do not divide them."""
    layers, p, v = getattr(model, "layers", None) or 0, layout.pp, layout.virtual_stages
    if p == 1 or layers % (p * v) == 0:
        return
    split, chunk = stage_layers(layers, p, v), layers // (p * v)
    words = f"{layers} layers are {int(split.first)} in the first stage, {int(split.most)} in those between and {int(split.last)} in the last"
    if v > 1 and split.most < (chunk + 1) * v:
        words = f"{layers} layers do not divide into {p * v} chunks: {chunk + 1} in the first {layers % (p * v)}, {chunk} in the others, and waits for the longer"
    name, value = ("v_stages", v) if v > 1 else ("pp_size", p)
    words += ", all timed as the longest" if first_order else ""
    assumed.say(name, value, INFERRED, f"{value}: {words}")


def stack_name(x: Any) -> str:
    """The software that was asked for, or the default of the chip for so many accelerators."""
    return str(x.stack or default_stack(x.fleet.node.accelerator, x.fleet.total_accelerators))


def schedule_given(x: Any) -> str | None:
    """The schedule that was asked for, else the stack's own; None for 1F1B, interleaved with virtual stages."""
    if x.schedule is not None or not isinstance(x.efficiency, str) or x.model.fixed_shape:
        return x.schedule
    return stack(stack_name(x)).schedule


def job_of(x: Any, trainer: Trainer, assumed: Assumptions) -> Job:
    """What is trained, and under which rules: the caller's, and the stack's where the caller says nothing."""
    software = trainer.software.stack if isinstance(trainer.software, Software) else None
    own = {} if software is None else _habits(software)
    for name, value in own.items():
        if name in assumed.given:
            own[name] = getattr(x, name)
        elif software is not None:
            assumed.say(name, value, SOFTWARE, f"{shown(value)} (stack {software.name})")
    x = x.but(**own)
    synchronised = x.overlap_comm or isinstance(trainer.software, NetworkSoftware | LookupSoftware)
    overlap = Overlap(
        tensor=x.overlap_tp,
        expert=x.overlap_ep,
        context=x.overlap_cp,
        pipeline=x.overlap_pp,
        data=x.overlap_efficiency if synchronised else 0.0,
    )
    if software is not None:
        off = "overlap_comm" in assumed.given and not x.overlap_comm
        overlap = replace(
            overlap,
            context_room=x.overlap_cp,
            data_room=1.0 if "overlap_efficiency" in assumed.given else 1 - software.kappa,
            gathers=0.0 if off else x.overlap_efficiency,
        )
    keeps = TEXTBOOK if trainer.software is None else trainer.software.keeps
    if x.gradient_precision is not None:
        keeps = replace(keeps, gradient=bytes_per_element(x.gradient_precision))
    if x.activation_precision is not None:
        keeps = replace(keeps, activation=precision_name(x.activation_precision))
    recipe = recipe_of(x.precision, "" if software is None else software.name)
    if recipe.moments is not None:
        keeps = replace(keeps, moments=bytes_per_element(recipe.moments))
    if recipe.activations is not None and x.activation_precision is None:
        keeps = replace(keeps, activation=recipe.activations)
    own = {
        "recipe": recipe,
        "dispatched": bytes_per_element(x.exchange_precision or recipe.dispatched),
        "seq_len": (getattr(x.model, "tokens_per_sample", None) or 1) if x.model.fixed_shape else x.seq_len,
        "recompute": x.activation_recomputation,
        "selective": x.recomputed or ("attention" if software is None else parts_in(software.selective, x.model)),
        "zero": x.zero_stage,
        "accumulation": x.gradient_accumulation_steps,
        "updates": software is not None or x.update_step,
        "reshards": x.reshard,
        "offload": x.optimizer_offload,
        "lora_rank": x.lora_rank if x.is_lora else None,
        "overlap": overlap,
        "straggler": x.straggler_factor,
        "imbalance": x.moe_routing_imbalance_factor,
        "headroom": x.memory_headroom,
        "keeps": keeps,
        "deduplicated": bool(x.deduplicated_exchange),
    }
    job = Job(**{name: value for name, value in vars(x).items() if name in _OF_JOB} | own)
    if x.recomputed is None and isinstance(job.recompute, str) and job.recompute == "selective":
        whose = "" if software is None else f" (stack {software.name})"
        assumed.say("recomputed", job.selective, SOFTWARE if whose else INFERRED, f"{job.selective}{whose}")
    if recipe.narrow and isinstance(job.wide_share, (int, float)):
        wide = job.wide_share * (getattr(x.model, "layers", None) or 1)
        assumed.say("recipe", recipe.name, SOFTWARE, f"{recipe.name}: {recipe.says(wide)}")
    return job


def _habits(software: Stack) -> dict[str, Any]:
    """A stack's own settings. Two activities at once slow each other: a share kappa of the shorter is not hidden."""
    hides = 1 - software.kappa
    mode = {"none": "none", "fit": "none", "full": "full"}.get(software.recompute, "selective")
    return {
        "zero_stage": software.zero,
        "activation_recomputation": mode,
        "sequence_parallel": software.sequence_parallel,
        "overlap_comm": software.data_overlap,
        "overlap_efficiency": hides,
        "overlap_tp": 1 - software.tensor_exposed,
        "overlap_ep": 1 - software.exchange_exposed,
        "overlap_cp": hides,
        "overlap_pp": 1 - software.send_exposed,
        "deduplicated_exchange": True,
    } | ({} if software.keeps.reserve is None else {"memory_headroom": software.keeps.reserve})
