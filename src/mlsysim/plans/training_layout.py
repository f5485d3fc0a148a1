"""How a training plan is laid out: its batch, the inputs of its step, and the degrees of parallelism.

Degrees that the plan gives are kept; with mode auto they are the best of
:class:`mlsysim.search.parallelism.ParallelismOptimizer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mlsysim.cases.assumptions import SEARCHED, Assumptions
from mlsysim.cases.layout import divisors
from mlsysim.errors import InputError
from mlsysim.models.base import Workload
from mlsysim.models.training_shape import splits
from mlsysim.plans.plan import Plan
from mlsysim.plans.plan_parts import FREE, ParallelismPart, WorkloadPart
from mlsysim.plans.resolve import fidelity_of, find_fleets, precision_of, say_model, workload_of
from mlsysim.search.parallelism import ParallelismOptimizer, ParallelismResult
from mlsysim.systems.types import Fleet
from mlsysim.timing.launchers import launcher
from mlsysim.timing.runtimes import trained_by_runtime
from mlsysim.timing.stacks import default_stack, stack, stack_names
from mlsysim.units.text import many
from mlsysim.vocabulary import python_name, worded
from mlsysim.walls.fleet.communication import DistributedModel, DistributedResult
from mlsysim.walls.fleet.step_inputs import FIRST_ORDER, USUAL_LENGTH, usual_length

_TOKENS_A_STEP = 4e6
_IMAGES, _LOOK_UPS = 128, 8192
"""Samples of an accelerator, of networks and of recommenders."""
_ADAPTED = 16
"""Sequences of a step where adapters are trained: QLoRA's (Dettmers et al. 2023, arXiv 2305.14314, table 9) and torchtune's (llama3/8B_lora_single_device)."""
_SHARING = 64
"""Accelerators that share a sequence at most, where the batch is ours to choose."""

_CHOSEN = ("recompute", "schedule", "zero", "virtual_stages", "micro_batch", "micro_batches")
BESIDE = tuple(name for name in FREE if name not in ("mode", *_CHOSEN))
"""Fields of a plan's parallelism that a search leaves as they are."""


def _options_of(part: ParallelismPart | WorkloadPart, names: Iterable[str]) -> dict[str, Any]:
    """What these fields of a part say as inputs of DistributedModel, where it has one under the resolver's name."""
    named = {python_name(f"{part.part_of[1]}{name}"): getattr(part, name) for name in names}
    return {name: value for name, value in named.items() if value is not None and name in DistributedModel.inputs}


_FIXED = {
    **{name: name for name in ("tp", "pp", "dp", "ep", "cp", "micro_batch")},
    **{"v_stages": "virtual_stages", "microbatch_count": "micro_batches", "zero_stage": "zero"},
}
"""Settings that a search holds where the plan gives them, and the plan's names of them."""


class Missed(NamedTuple):
    """Of a search in which nothing fits: what the nearest layout lacks, and the least fleet that would do."""

    lacks: str = ""
    least: tuple[str, ...] = ()


def training_batch(plan: Plan, fleet: Fleet, model: Workload, assumed: Assumptions) -> tuple[int, int]:
    """Sequences of a step and tokens of a sequence; four to sixteen million tokens a step where nothing is said,
    and few sequences where adapters are trained."""
    seq_len = plan.workload.seq_len
    if model.fixed_shape and seq_len is not None:
        raise InputError(f"{model.name} has a fixed shape and takes no 'seq_len'.", field="seq_len")
    if seq_len is None:
        seq_len = usual_length(model)
        if not model.fixed_shape:
            words = ", the longest that the model takes" if seq_len < USUAL_LENGTH else ""
            assumed["seq_len"] = f"{seq_len:,} tokens{words}"
    batch = plan.workload.batch_size
    if batch is None:
        accelerators = fleet.total_accelerators
        wanted = max(1, round(_TOKENS_A_STEP / seq_len))
        # Of a thousand sequences a number that micro-batches divide: 976, not 977.
        wanted -= wanted % 8 if wanted > 256 else 0
        if plan.workload.seq_len is None and seq_len < USUAL_LENGTH:
            # Of short sequences a number that micro-batches divide.
            wanted = 2 ** round(math.log2(wanted))
        if model.fixed_shape:
            wanted = (_LOOK_UPS if model.looks_up else _IMAGES) * accelerators
        elif plan.workload.lora_rank is not None:
            wanted = _ADAPTED
        batch = max(accelerators, wanted // accelerators * accelerators)
        if batch > 4 * wanted and plan.parallelism.automatic:
            # Tensor and pipeline parallelism share a sequence: fewer sequences than accelerators will do.
            shared = [k for k in divisors(accelerators) if k <= _SHARING]
            batch = accelerators // next((k for k in shared if accelerators // k <= 4 * wanted), shared[-1])
        usual = ", as recipes of adapters have" if plan.workload.lora_rank is not None and batch == _ADAPTED else ""
        assumed["batch_size"] = f"{batch:,} {'samples' if model.fixed_shape else 'sequences'} a step{usual}"
    return batch, seq_len


def _shared_options(
    plan: Plan, model: Workload, fleet: Fleet, batch: int, seq_len: int, assumed: Assumptions
) -> dict[str, Any]:
    """Those keyword arguments of DistributedModel for a plan that are no part of its layout."""
    work, hard = plan.workload, plan.hardware
    known = (
        getattr(model, "has_dimensions", False) or trained_by_runtime(model, fleet.node.accelerator) or model.looks_up
    )
    say_model(plan, assumed, model)
    options: dict[str, Any] = {
        "batch_size": batch,
        "seq_len": seq_len,
        "precision": precision_of(plan, assumed, fleet.node.accelerator, model),
        "efficiency": fidelity_of(plan, model, assumed, known),
    }
    # A stack says itself what it hides.
    more: dict[str, Any] = {} if isinstance(options["efficiency"], str) else dict(FIRST_ORDER)
    more |= _options_of(work, (name for name in type(work).model_fields if name not in {"model", *options}))
    more["is_lora"] = work.lora_rank is not None or None
    more |= {"stack": hard.stack, "power_cap": hard.power_cap}
    more |= {"congestion_factor": hard.congestion, "straggler_factor": hard.straggler}
    return options | {name: value for name, value in more.items() if value is not None}


def step_options(
    plan: Plan, model: Workload, fleet: Fleet, batch: int, seq_len: int, assumed: Assumptions
) -> tuple[dict[str, Any], Missed]:
    """Keyword arguments of DistributedModel for a plan; and where no layout fits, what is said of it."""
    hard, split, missed = plan.hardware, plan.parallelism, Missed()
    options = _shared_options(plan, model, fleet, batch, seq_len, assumed)
    divided = any((getattr(split, name) or 1) > 1 for name in ("tp", "pp", "cp"))
    if not split.automatic and splits(model) and isinstance(options["efficiency"], str):
        divided = divided or (hard.stack is None and _by_layers(model, fleet, options))
    if divided and splits(model) and isinstance(options["efficiency"], str):
        # Runtimes of images know data parallelism alone.
        options.setdefault("stack", default_stack(fleet.node.accelerator, fleet.total_accelerators))
    if (
        split.automatic
        and isinstance(options["efficiency"], str)
        and model.fixed_shape
        and hard.stack not in stack_names()
    ):
        if hard.stack is None and splits(model) and _by_layers(model, fleet, options):
            options["stack"] = default_stack(fleet.node.accelerator, fleet.total_accelerators)
            split, missed = _best_layout(plan, model, fleet, options, assumed)
        elif not model.looks_up:
            assumed["layout"] = "data parallel: networks of fixed shape are calibrated so"
            if hard.launcher is not None and (least := min(launcher(hard.launcher).zero)):
                options["zero_stage"] = least
    elif split.automatic:
        split, missed = _best_layout(plan, model, fleet, options, assumed)
    options |= _options_of(split, type(split).model_fields)
    if split.recomputed is not None:
        options.setdefault("activation_recomputation", "selective")
    total, others = fleet.total_accelerators, (split.tp or 1) * (split.pp or 1) * (split.cp or 1)
    if split.dp is not None and others * split.dp != total:
        text = f"TP x PP x CP x DP is {others * split.dp:,}, but the fleet has {total:,} accelerators."
        raise InputError(text, field="dp")
    if split.micro_batch is not None:
        local = batch / (split.dp or max(1, total // others))
        if local % split.micro_batch:
            raise InputError(
                f"A replica has {local:g} sequences of the batch, which micro-batches of {split.micro_batch} do not divide.",
                field="micro_batch",
            )
        options["microbatch_count"] = int(local // split.micro_batch)
    return options, missed


def _by_layers(model: Workload, fleet: Fleet, options: dict[str, Any]) -> bool:
    """Whether a vision transformer is trained as language models are, with its layers split where need be: on TPUs, whose software is JAX
    (runtimes of images are PyTorch's), and where copies of it do not fit."""
    if fleet.total_accelerators == 1:
        return False
    return fleet.node.accelerator.family == "tpu" or not fitting_step(model, fleet, options, Assumptions()).feasible


def search_layout(plan: Plan, model: Workload, fleet: Fleet, options: dict[str, Any]) -> ParallelismResult:
    """The search over what a plan leaves open, with ``options`` of its step; degrees and settings that it gives are kept."""
    split = plan.parallelism
    if split.micro_batch_group is not None:
        raise InputError(
            "a size of groups belongs to a layout that is given; give tp, pp and micro_batches too.",
            field="micro_batch_group",
        )
    options |= _options_of(split, (name for name in BESIDE if name != "offload"))
    # Sequences are divided where they are long, or fewer than the accelerators.
    divided = options["seq_len"] >= 32768 or options["batch_size"] < fleet.total_accelerators
    if isinstance(options["efficiency"], str):
        name = options.get("stack") or default_stack(fleet.node.accelerator, fleet.total_accelerators)
        divided = divided and (name not in stack_names() or stack(name).rings)
    limits: dict[str, Any] = {"max_cp": split.cp or (16 if divided else 1)}
    limits |= {f"max_{name}": value for name in ("tp", "pp", "ep") if (value := getattr(split, name)) is not None}
    limits |= {name: value for name in ("recompute", "schedule") if (value := getattr(split, name)) is not None}
    if split.recomputed is not None:
        limits.setdefault("recompute", "selective")
    fixed = {name: value for name, key in _FIXED.items() if (value := getattr(split, key)) is not None}
    if fixed:
        limits["fixed"] = fixed
    if split.offload is not None:
        limits["optimizer_offload"] = split.offload
    runs = plan.hardware.launcher
    if runs is None and split.schedule is None and plan.hardware.stack in stack_names():
        runs = stack(plan.hardware.stack).launcher or None
    if runs is not None:
        limits["launcher"] = launcher(runs).name
    return ParallelismOptimizer().solve(model=model, fleet=fleet, **options, **limits)


def least_fleet(plan: Plan) -> dict[str, Any]:
    """Of a plan that does not fit as it is split, the accelerators and the batch that would do with the degrees that it gives (``fleet``), and
    in words (``least``); empty where other settings do on its own fleet."""
    given = {name: getattr(plan.parallelism, name) for name in ("tp", "pp", "cp", "ep", *BESIDE)}
    free = dict.fromkeys(type(plan.parallelism).model_fields) | given | {"mode": "auto"}
    try:
        best_layouts(plan.replacing(parallelism=free))
    except InputError as error:
        return {name: error.details.get(name) for name in ("fleet", "least")}
    return {}


def best_layouts(plan: Plan) -> ParallelismResult:
    """What the search over the layouts of a plan finds, with every key of the plan."""
    model, fleet, assumed = workload_of(plan.workload), find_fleets(plan.hardware).one, Assumptions()
    batch, seq_len = training_batch(plan, fleet, model, assumed)
    found = search_layout(plan, model, fleet, _shared_options(plan, model, fleet, batch, seq_len, assumed))
    return found.assuming(assumed.records)


def _best_layout(
    plan: Plan, model: Workload, fleet: Fleet, options: dict[str, Any], assumed: Assumptions
) -> tuple[ParallelismPart, Missed]:
    """The best layout that fits, with what the plan has fixed kept; where none does, the one that lacks least, and what is said of it."""
    missed = Missed()
    try:
        found = search_layout(plan, model, fleet, options)
    except InputError as error:
        if "nearest" not in error.details:
            raise
        best, missed = error.details["nearest"], Missed(error.details["lacks"], (error.details["least"],))
        assumed["layout"] = "none fits; this one lacks the least memory"
    else:
        best = found.best_config
        rest = [_rejection(words, n) for words, n in found.rejected.items() if n]
        refused = f"; rejected: {', '.join(rest)}" if rest else ""
        words = f"the best of {found.total_searched:,} searched{found.undecided()}{refused}"
        assumed.say("layout", None, SEARCHED, words)
    micro = max(1, options["batch_size"] // best["dp"] // best["microbatch_count"])
    chosen = {name: best[name] for name in ("tp", "pp", "ep", "cp", "recompute")} | {
        "virtual_stages": best["v_stages"],
        "zero": best["zero_stage"],
        "micro_batch": micro,
        "schedule": best.get("schedule") if best["pp"] > 1 or plan.parallelism.schedule else None,
    }
    kept = {name: value for name in BESIDE if (value := getattr(plan.parallelism, name)) is not None}
    return ParallelismPart(**chosen, **kept), missed


def _rejection(cause: str, count: int) -> str:
    """How many layouts, or splits of the accelerators, a cause rejected."""
    if cause.endswith(_SPLITS):
        return f"{many(count, 'split')} where {cause.removesuffix(_SPLITS)}"
    return f"{count:,} {'by' if cause.startswith('Wall ') else 'with'} {cause}"


_SPLITS = " (splits)"


def check_launcher(name: str, layout: Mapping[str, Any]) -> None:
    """Refuse the layout of an answer that a trainer does not run."""
    ours = {"microbatch_count": "micro_batches", "v_stages": "virtual_stages", "zero_stage": "zero"}
    row = {**layout, **{own: layout[key] for own, key in ours.items()}, "schedule": layout["schedule"] or "1f1b"}
    rules = launcher(name)
    if (found := rules.refuses(row)) is not None:
        raise InputError(worded(f"{rules.title} does not run {found[0]}; use ", found[2], "."), field=found[1])


def fitting_step(model: Workload, fleet: Fleet, options: dict[str, Any], assumed: Assumptions) -> DistributedResult:
    """The step; where it does not fit, with the largest micro-batch that does or the smallest, and with what its software computes again where it
    must, of those that the plan leaves open."""
    step = DistributedModel().solve(model, fleet, **options)
    if step.feasible:
        return step
    smaller, local = step, options["batch_size"] // step.parallelism["dp"]
    counts = [] if "microbatch_count" in options else [n for n in divisors(local) if n > step.microbatch_count]
    for count in counts:
        smaller = DistributedModel().solve(model, fleet, **options, microbatch_count=count)
        if smaller.feasible:
            options["microbatch_count"] = count
            assumed["micro_batch"] = f"{local // count}: the largest that fits"
            return smaller
    if _computes_again_to_fit(fleet, options):
        more = {"activation_recomputation": "selective"} | ({"microbatch_count": counts[-1]} if counts else {})
        again = DistributedModel().solve(model, fleet, **options, **more)
        if again.feasible:
            options |= more
            assumed["recompute"] = "selective: it does not fit with all activations kept"
            return again
    return smaller


def _computes_again_to_fit(fleet: Fleet, options: dict[str, Any]) -> bool:
    """Whether the software of a step chooses what is computed again by what fits, and may."""
    name = options.get("stack") or default_stack(fleet.node.accelerator, fleet.total_accelerators)
    chosen = "activation_recomputation" in options or not isinstance(options["efficiency"], str)
    return not chosen and name in stack_names() and stack(name).recompute == "fit"
