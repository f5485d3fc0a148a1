"""Names and paths of a plan to the things that they mean, and what every task chooses where a plan says nothing."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlsysim.cases.assumptions import CHECKPOINT, INFERRED, Assumptions
from mlsysim.errors import InputError, UnknownNameError, either
from mlsysim.hardware.arithmetic import run_format, usual_format, wide_note
from mlsysim.hardware.types import HardwareNode
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import GridProfile
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import is_narrow, precision_name
from mlsysim.plans.ops_part import OpsPart
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import ChipPart, HardwarePart, WorkloadPart
from mlsysim.plans.schema import tasks_text
from mlsysim.systems.fleet_text import Groups, find_system, parse_fleet
from mlsysim.systems.types import Fleet
from mlsysim.units.text import listed
from mlsysim.vocabulary import meant_for
from mlsysim.zoo.checkpoints import format_named, towered
from mlsysim.zoo.writing import files_allowed

_ENDINGS = (".json", ".safetensors", ".onnx", ".toml", ".yaml", ".yml", ".pt2", ".gguf", ".pt", ".pth")
_HUB = "hf://"


def looks_like_path(name: str) -> bool:
    """Whether a name is meant as a file or folder: it has the form of a path, or something is there."""
    if "/" in name or os.sep in name or name.lower().endswith(_ENDINGS):
        return True
    return _is_there(name)


def _is_there(name: str) -> bool:
    try:
        return files_allowed() and os.path.exists(name)
    except ValueError:
        return False


def find_model(name: str) -> Workload:
    """A model of the zoo by name, of a file by its path, or of the zoo by what a checkpoint is called."""
    if not Models.has(name) and looks_like_path(name) and _is_there(name):
        from mlsysim.importers.model import read_model

        return read_model(Path(name)).workload
    try:
        return Models.get(name)
    except UnknownNameError as unknown:
        if name.startswith(_HUB):
            text = f"{name[:100]!r} would have to be downloaded, and nothing here uses the network"
            raise InputError(f"{text}; download the model's config.json and give its path.", field="model") from None
        several = [each.strip() for each in name.split(",")]
        if len(several) > 1 and all(map(Models.has, several)):
            asked = " ".join(f"{each}@H100" for each in several[:2])
            words = "A plan has one model; ask for each, or for two side by side"
            raise InputError(f"{words}: `mlsysim compare {asked}`.", field="model") from None
        # ORG/NAME of the Hub is a name, unless there is such a folder or a file is meant.
        hub = re.fullmatch(r"[\w-]+/(?!.*\.(json|safetensors|onnx|pt2|toml)$)[\w.-]+", name)
        if not looks_like_path(name) or (hub and not _is_there(name.partition("/")[0])):
            if hub and files_allowed():
                text = f"{unknown.message} Of another, download its config.json and give the path."
                raise UnknownNameError(text, **unknown.details) from None
            raise
        if not files_allowed():
            raise InputError("Paths are not read here; give the name of a model of the zoo.", field="model") from None
        from mlsysim.importers.model import read_model

        return read_model(Path(name)).workload


def workload_of(work: WorkloadPart) -> Workload:
    """The model of a plan, with the plan's own dimensions in place of the zoo's; one that has no name there from them alone."""
    if work.dimensions is not None:
        own = ((name, getattr(work.dimensions, name)) for name in type(work.dimensions).model_fields)
        return _with_dimensions(work.model, tuple((name, value) for name, value in own if value is not None))
    found = find_model(work.model)
    if work.steps is not None:
        found = _in_steps(found, work.steps)
    if work.image_size is None:
        return found
    from mlsysim.models.counted import at_image_size

    return at_image_size(found, work.image_size)


@lru_cache(maxsize=256)
def served_of(model: Workload) -> Workload:
    """What is served of a model: all of it, or the decoder of one that sees."""
    return getattr(model, "decoder", None) or model


@lru_cache(maxsize=256)
def _in_steps(model: Workload, steps: int) -> Workload:
    """A denoiser with another number of steps."""
    if not model.denoises:
        raise InputError(f"{model.name} is no denoiser, so it has no steps.", field="steps")
    return type(model)(**{**_stated(model), "denoising_steps": steps})


def _stated(model: Workload, *without: str) -> dict[str, Any]:
    """The fields that a model was built from."""
    return {name: getattr(model, name) for name in model.model_fields_set if name not in without}


@lru_cache(maxsize=256)
def _with_dimensions(model: str, dimensions: tuple[tuple[str, Any], ...]) -> Workload:
    given = dict(dimensions)
    known = Models.get(model, None)
    if known is None:
        return TransformerWorkload(name=model, **given)
    if not isinstance(known, TransformerWorkload):
        raise InputError(f"{known.name} is not a transformer, so it has no such dimensions.", field="dimensions")
    # The width of the feed-forward network follows from a number of parameters.
    without = ("ffn_dim",) if "parameters" in given else ()
    return type(known)(**{**_stated(known, "parameters", "active_parameters", "metadata", *without), **given})


def refuse_foreign(plan: Plan, task: str, also: tuple[str, ...] = ()) -> None:
    """Raise for what another task has alone, but for keys that begin with ``also``: nothing of it would show in the answer."""
    for key, leaf in Plan.leaves().items():
        if task in leaf.tasks or key.startswith(also):
            continue
        held: Any = plan
        for name in key.split("."):
            held = getattr(held, name, None)
        if held is not None:
            own = meant_for(leaf.flat, task)
            use = "has no use for it" if own is None else f"has {own} instead"
            words = f"{leaf.flat} belongs to {tasks_text(*leaf.tasks)}; {tasks_text(task)} {use}"
            # Nobody asked for the task that was found, so that it may be the wrong one.
            words += "." if plan.task or own else f": name the task, such as {either(leaf.tasks)}."
            raise InputError(words, field=leaf.flat)


def find_fleets(part: HardwarePart) -> Groups:
    """The fleets of a plan's hardware, with the plan's own figures of the chip in place of the zoo's."""
    groups = _named_fleets(part)
    network = {name: getattr(part, name) for name in NETWORKED}
    if any(value is not None for value in network.values()):
        if len(groups.fleets) > 1 and (part.sites or 1) > 1:
            raise InputError("Several sites take one kind of accelerator; give one group.", field="sites")
        fleets = tuple(fleet.networked(**network) for fleet in groups.fleets)
        groups = Groups(fleets, {**groups.assumed, **_sites(fleets[0])})
    if part.chip is None:
        return groups
    fleets = tuple(_altered(fleet, part.chip) for fleet in groups.fleets)
    own = {name: value for name in ChipPart.model_fields if (value := getattr(part.chip, name)) is not None}
    changed = ", ".join(f"{name.replace('_', ' ')} {value:~P}" for name, value in own.items())
    kind = "hypothetical" if part.chip.hypothetical else "as given"
    return Groups(fleets, {**groups.assumed, "chip": f"{kind}: {changed}"})


NETWORKED = ("oversubscription", "rails", "sites", "wan_bandwidth", "wan_round_trip")
"""Keys of the hardware that are of the fleet's network."""


def _sites(fleet: Fleet) -> dict[str, str]:
    if fleet.sites == 1:
        return {}
    each = fleet.total_accelerators // fleet.sites
    way = f"over {fleet.wan_bandwidth:~P} that {each:,} accelerators share, {fleet.wan_round_trip:~P} there and back"
    return {"sites": f"{fleet.sites}: gradients and what ZeRO shares cross {way}; a replica stays at one site"}


def _altered(fleet: Fleet, chip: ChipPart) -> Fleet:
    """A fleet of chips with other figures. A new peak scales all formats alike, as the ratio of its headline."""

    def given(**fields: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if value is not None}

    old, link = fleet.node.accelerator, chip.link_bandwidth
    new = given(tdp=chip.tdp, unit_cost=chip.price)
    if chip.peak_flops is not None:
        peak = old.compute.peak_flops
        ratio = float((chip.peak_flops / peak).to("").magnitude)
        formats = {name: rate * ratio for name, rate in old.compute.precision_flops.items()}
        new["compute"] = old.compute.model_copy(update={"peak_flops": peak * ratio, "precision_flops": formats})
    memory = given(bandwidth=chip.memory_bandwidth, capacity=chip.memory_capacity)
    if memory:
        new["memory"] = old.memory.model_copy(update=memory)
    if link is not None and old.link is not None:
        both = {"bandwidth_total": link, "bandwidth_per_direction": link / 2}
        new["link"] = old.link.model_copy(update=both)
    priced = {"unit_cost": None} if chip.price is not None else {}
    update = {"accelerator": old.model_copy(update=new), **given(intra_node_bw=link), **priced}
    fabric = fleet.fabric.model_copy(update=given(bandwidth=chip.fabric_bandwidth))
    return fleet.model_copy(update={"node": fleet.node.model_copy(update=update), "fabric": fabric})


def _named_fleets(part: HardwarePart) -> Groups:
    if part.on is not None:
        return parse_fleet(part.on, part.fabric)
    name = part.name or ""
    kind, entry = find_system(name)
    if kind not in ("cluster", "node"):
        return parse_fleet(f"{part.nodes or part.accelerators or 1}x{name}", part.fabric)
    if part.accelerators is None:
        if kind == "node":
            return parse_fleet(f"{part.nodes or 1}x{name}", part.fabric)
        groups = parse_fleet(name, part.fabric)
        return groups if part.nodes is None else Groups((groups.one.model_copy(update={"count": part.nodes}),))
    several = f"{-(-part.accelerators // entry.accelerators_per_node)}x" if kind == "node" else ""
    groups = parse_fleet(f"{several}{name}", part.fabric)
    return Groups((groups.one.sized(part.accelerators),), groups.assumed)


def find_region(ops: OpsPart, fleet: Any) -> GridProfile | Any | None:
    """The grid of a plan, else that of the fleet."""
    if ops.region is not None:
        return Grids.get(ops.region)
    return fleet.datacenter or fleet.region


def say_model(plan: Plan, assumed: Assumptions, model: Workload) -> None:
    """Say which generation is taken where a name says none, and that a model which sees or hears is taken for its text decoder."""
    name = plan.workload.model
    known = Models.generations(name) if name != model.metadata.key else []
    if newer := known[: known.index(model)] if model in known else []:
        words = f"published under this very name; newer: {listed(each.name for each in newer)}"
        assumed["model"] = f"{model.name}, {words}"
    elif model in known and len(known) > 1:
        words = (
            f"the newest of its size, as its name says no generation; others: {listed(each.name for each in known[1:])}"
        )
        assumed["model"] = f"{model.name}, {words}"
    whole = workload_of(plan.workload)
    held = model is not whole and model != whole  # one of a file is read anew
    if isinstance(model, TransformerWorkload) and (held or towered(plan.workload.model)):
        what = (
            "its parameters are held, its pass is left out"
            if held
            else f"left out: {model.name} stands for the text decoder"
        )
        assumed["tower"] = f"{what}, and images or sounds are tokens of the prompt"


# --- number format and fidelity ------------------------------------------------------------------------------------------

FIRST_ORDER = 0.5
"""Fraction of the peak where nothing is said and there are no layers to sum over."""


def precision_of(plan: Plan, assumed: Assumptions, chip: HardwareNode, model: Workload) -> str:
    """The plan's precision; where none is given that of the checkpoint, else a 16-bit format, or what the chip is made for.

    A model is trained in 16 bits whatever its checkpoint was published in, unless the plan says so; microcontrollers are made for
    8 bits also where they have 16.
    """
    if plan.workload.precision is not None:
        if note := wide_note(chip, plan.workload.precision):
            assumed["arithmetic"] = note
        return plan.workload.precision
    own, trains = model.native_format, plan.kind == "training"
    named = format_named(plan.workload.model)
    if named is not None and not trains and not (own or "").startswith(named):
        own = precision_name(named)
    narrow = own is not None and is_narrow(own)
    chosen = words = usual_format(chip, own) if trains else run_format(chip, model, own)
    if narrow and trains:
        words = f"{chosen}, what training computes in; the checkpoint is published in {own}"
    elif narrow:
        words = f"{own}, that of the checkpoint" + (" by its name" if named else "")
    assumed.say("precision", chosen, CHECKPOINT if chosen == own and not trains else INFERRED, words)
    return chosen


def fidelity_of(
    plan: Plan, model: Workload, assumed: Assumptions, known: bool | None = None, chip: HardwareNode | None = None
) -> float | str:
    """The plan's efficiency; where none is given calibrated, if the model is ``known`` by the layers that times sum over; a model that writes keeps
    16 bits between its layers, which not every ``chip`` has."""
    given = plan.hardware.efficiency
    if given is not None:
        return given
    why = f"{model.name} states no layers to sum over"
    if model.has_layers if known is None else known:
        writes = not model.fixed_shape and getattr(model, "structure", "") != "encoder"
        if chip is None or chip.family == "mcu" or not writes or any(map(chip.compute.supports, _WIDE)):
            return "calibrated"
        why = f"{chip.name} multiplies in {chip.compute.headline} alone, and calibrated times of models that write have 16 bits"
    assumed["fidelity"] = f"first order at efficiency {FIRST_ORDER}: {why}"
    return FIRST_ORDER


_WIDE = ("bf16", "fp16", "tf32", "fp32")
