"""torchtitan: the TOML of its JobConfig, which releases up to 0.2 read (0.3 is configured in Python).

FSDP that reshards after the forward pass is ZeRO 3; with parameters kept gathered it is ZeRO 2; DDP is ZeRO 0. There is no ZeRO 1. With a pipeline a rank's local batch holds all its micro-batches; without one, it is a micro-batch and gradients accumulate.
Tensor parallelism splits norms and dropouts too, always, and gradient reduction always overlaps the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, nearest
from mlsysim.importers.markup import read_toml
from mlsysim.launch.flags import Parsed, data_table, parse_tables, put, table
from mlsysim.launch.megatron import launcher
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import TRAINING, check_offered, completed, header, not_expressed, reasons
from mlsysim.launch.settings import Details, Rows, Setting, Written, comment, kept, settings, write_toml
from mlsysim.launch.shell import bounded, read_notes
from mlsysim.physics.pipeline import CHUNKED
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, find_model, workload_of
from mlsysim.plans.training_layout import check_launcher

NAME = "torchtitan"
FIELDS = TRAINING
_SCHEDULES = {
    **{"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "breadth_first": "LoopedBFS"},
    **{"zb_v": "ZBVZeroBubble", "dualpipe_v": "DualPipeV"},
}
_PRECISIONS = {"bf16": "bfloat16", "fp8": "bfloat16", "fp32": "float32"}
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW"}
_FLOAT8 = "quantize.linear.float8"
_LESS, _ENDS = "parallelism.pipeline_parallel_", ("first", "last")
_CONFIG = "torchtitan.toml"
_COMPILE, _ASYNC = "compile.enable", "parallelism.enable_async_tensor_parallel"
_STACKS = {"titan": (False, None), "titanc": (True, None), "titan-async": (True, True)}
"""Its software as it was measured, and what of it the file switches on."""
FASTER = {"titan": "titanc"}
"""Of a stack the one that computes the same, faster."""


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a configuration says."""
    parsed = parse_tables(read_toml(bounded(text), "The launch file"), table(NAME))
    document, warnings = parsed.document(task="training"), parsed.warnings
    split = document.setdefault("parallelism", {})
    key, size = parsed.text("model.name"), parsed.text("model.flavor")
    if key is not None:
        put(document, "workload.model", _model(key, size))
    replicated = parsed.whole("parallelism.data_parallel_replicate_degree") or 1
    given = parsed.whole("parallelism.data_parallel_shard_degree")
    sharded, pp = -1 if given is None else given, split.get("pp") or 1
    split["zero"] = _zero(parsed.text("parallelism.fsdp_reshard_after_forward") or "", sharded, pp)
    if replicated > 1 and sharded != 1:
        warnings.append(
            f"The model is sharded inside {replicated} replicas (HSDP); it was read as sharded over all of them."
        )
    local, whole = (parsed.whole(f"training.{name}_batch_size") for name in ("local", "global"))
    if whole is not None and whole > 0:
        put(document, "workload.batch_size", whole)
    split["micro_batch"] = local if pp == 1 else parsed.whole("parallelism.pipeline_parallel_microbatch_size") or 1
    if pp > 1:
        _pipeline(parsed, document, warnings)
    mode = parsed.text("activation_checkpoint.mode") or ""
    if mode == "memory_budget":
        warnings.append("Activation checkpointing by memory budget was read as selective.")
        mode = "selective"
    if mode not in ("none", "selective", "full"):
        raise InputError(
            f"activation_checkpoint.mode is none, selective or full, got {mode[:40]!r}.", field="recompute"
        )
    split["recompute"] = mode
    split["overlap"] = True
    if (split.get("tp") or 1) > 1:
        split["sequence_parallel"] = True
    converters = parsed.values.get("model.converters") or []
    converters = [converters] if isinstance(converters, str) else converters
    precision = "fp32" if parsed.text("training.mixed_precision_param") == "float32" else "bf16"
    if any(str(name) in (_FLOAT8, "float8") for name in converters):
        precision = "fp8"
    put(document, "workload.precision", precision)
    if (software := _software(parsed)) is not None:
        put(document, "hardware.stack", software)
    if parsed.text("optimizer.name") is not None:
        put(document, "workload.optimizer", str(parsed.text("optimizer.name")).lower())
    micro = "training.local_batch_size" if pp == 1 else "parallelism.pipeline_parallel_microbatch_size"
    ranks = replicated * sharded * pp * (split.get("tp") or 1) * (split.get("cp") or 1)
    more = {
        "accelerators": None if sharded < 1 else ranks,
        "rank_batch": local,
        "steps": parsed.whole("training.steps"),
    }
    found = Reading.of(parsed, document, warnings, flags={"parallelism.micro_batch": micro}, **more)
    return found.placed(on or read_notes(text).get("fleet"), model)


def _software(parsed: Parsed) -> str | None:
    """The stack that the switches of the file choose, where it has them; what runs beside products needs the compiler."""
    compiled, beside = (parsed.values.get(name) for name in (_COMPILE, _ASYNC))
    if compiled is None:
        return None
    return "titan" if not compiled else "titan-async" if beside else "titanc"


def _model(name: str, flavor: str | None) -> str:
    known = data_table("torchtitan_models")
    wanted = f"{name} {flavor}"
    if wanted not in known:
        close = nearest(wanted, known) or list(known)[:3]
        raise InputError(
            f"torchtitan's model {wanted[:80]!r} is not known here; the nearest are {', '.join(close)} (say which with --model).",
            field="model",
        )
    return known[wanted]


def _zero(reshard: str, sharded: int, pp: int) -> int:
    if sharded == 1:
        return 0
    if reshard not in ("default", "always", "never"):
        raise InputError(f"fsdp_reshard_after_forward is default, always or never, got {reshard[:40]!r}.", field="zero")
    # By default parameters stay gathered where a pipeline would gather them for every micro-batch.
    if reshard == "default":
        return 2 if pp > 1 else 3
    return 3 if reshard == "always" else 2


def _pipeline(parsed: Parsed, document: dict[str, Any], warnings: list[str]) -> None:
    split = document["parallelism"]
    given = parsed.text("parallelism.pipeline_parallel_schedule") or ""
    known = {name.lower(): ours for ours, name in _SCHEDULES.items()}
    if given.lower() not in known:
        warnings.append(f"The schedule {given[:40]!r} was read as 1F1B, the nearest that is planned.")
    split["schedule"] = known.get(given.lower(), "1f1b")
    per_stage = parsed.whole("parallelism.pipeline_parallel_layers_per_stage")
    if split["schedule"] in CHUNKED:
        model = document.get("workload", {}).get("model")
        layers = getattr(find_model(model), "layers", None) if model else None
        if per_stage is None or layers is None:
            split["virtual_stages"] = 2
            return
        # The table of tokens and the head stand for layers of the first and the last stage.
        held = layers + sum(parsed.whole(f"{_LESS}{end}_stage_less_layers") or 0 for end in _ENDS)
        stages = -(-held // per_stage)
        split["virtual_stages"] = max(1, round(stages / split["pp"]))
        if stages % split["pp"]:
            words = f"{per_stage} layers a stage make {stages} stages of {held} (the ends count as layers)"
            warnings.append(
                f"torchtitan does not start: {words}, which is no multiple of the {split['pp']} ranks of the pipeline."
            )


def write(plan: Plan, answer: Answer, details: Details = None) -> str:
    """A configuration; ``torchrun -m torchtitan.train --job.config_file FILE`` reads it."""
    final = completed(plan, answer)
    fleet = find_fleets(final.hardware).one
    lines, gaps = body(final, answer, details)
    run = f"torchrun --nproc-per-node {fleet.node.accelerators_per_node} --nnodes {fleet.count} -m torchtitan.train --job.config_file FILE"
    top = header(final, answer, "torchtitan configuration (releases up to 0.2)", gaps, f"Run on every node: {run}")
    return "\n".join([*comment(top), "", *lines]) + "\n"


def body(plan: Plan, answer: Answer, details: Details = None) -> Written:
    """Lines of the configuration of a completed plan, and what they cannot say."""
    made = arguments(plan, answer)
    return write_toml([*made, *kept(details, made, table(NAME).flags)]), not_expressed(plan, FIELDS) + _gaps(plan)


def lines(plan: Plan, answer: Answer, details: Details, others: Mapping[str, str], before: str = "") -> Written:
    """Lines of a script that train a completed plan on every node, and what they cannot say."""
    top = launcher(plan, reasons(plan, answer), others)
    made, gaps = body(plan, answer, details)
    run = f'{before}torchrun "${{LAUNCH_ARGS[@]}}" -m torchtitan.train --job.config_file {_CONFIG}'
    return [*top, f"cat > {_CONFIG} <<'EOF'", *made, "EOF", "", run], gaps


def arguments(plan: Plan, answer: Answer) -> list[Setting]:
    """The keys of a completed plan, with their reasons."""
    split, work, known = plan.parallelism, plan.workload, data_table("torchtitan_models")
    model = workload_of(work).metadata.key
    if model not in known.values():
        raise InputError(
            f"torchtitan has no configuration of {work.model}; it has {', '.join(known.values())}.", field="model"
        )
    check_launcher(NAME, answer.layout)
    trains = f"torchtitan trains in {', '.join(_PRECISIONS)}; it has no key"
    check_offered(work, _PRECISIONS, _OPTIMIZERS, trains, "torchtitan's optimizers are Adam and AdamW")
    name, flavor = next(key for key, entry in known.items() if entry == model).split()
    pp, dp, zero, cp, ep = split.pp or 1, split.dp or 1, split.zero or 0, split.cp or 1, split.ep or 1
    micro, batch = split.micro_batch or 1, work.batch_size or 1
    step, virtual = batch * (work.seq_len or 0), split.virtual_stages or 1
    steps = max(1, round(work.tokens / step)) if work.tokens is not None and step else None
    schedule = (split.schedule or ("interleaved" if virtual > 1 else "1f1b")) if pp > 1 else ""
    layers = getattr(workload_of(work), "layers", None) or 1
    per_stage, less = _stages(layers, pp * virtual) if schedule in CHUNKED else (None, 0 if pp > 1 else None)
    why = reasons(plan, answer)
    rows: Rows = {
        "model.name": (name, workload_of(work).name),
        "model.flavor": (flavor, ""),
        "model.converters": ([_FLOAT8] if work.precision == "fp8" else None, "workload.precision"),
        "training.seq_len": (work.seq_len, "workload.seq_len"),
        "training.global_batch_size": (batch, "workload.batch_size"),
        "training.local_batch_size": (max(1, batch // dp) if pp > 1 else micro, "parallelism.micro_batch"),
        "training.mixed_precision_param": (_PRECISIONS[work.precision or "bf16"], "workload.precision"),
        "training.steps": (steps, f"{why.get('workload.tokens')} in steps of {step:,}, to the nearest step"),
        "parallelism.data_parallel_replicate_degree": (1 if zero else dp, "parallelism.dp"),
        "parallelism.data_parallel_shard_degree": (dp if zero else 1, "parallelism.zero"),
        "parallelism.fsdp_reshard_after_forward": (
            ("always" if zero == 3 else "never") if zero and dp > 1 else None,
            "ZeRO 3" if zero == 3 else "parameters stay gathered, as ZeRO 2",
        ),
        "parallelism.tensor_parallel_degree": (split.tp or 1, "parallelism.tp"),
        "parallelism.pipeline_parallel_degree": (pp, "parallelism.pp"),
        "parallelism.pipeline_parallel_schedule": (_SCHEDULES.get(schedule), "parallelism.schedule"),
        "parallelism.pipeline_parallel_microbatch_size": (micro if pp > 1 else None, "parallelism.micro_batch"),
        "parallelism.pipeline_parallel_layers_per_stage": (
            per_stage,
            "parallelism.virtual_stages",
        ),
        **{f"{_LESS}{end}_stage_less_layers": (less, "stages of as many layers") for end in _ENDS},
        "parallelism.context_parallel_degree": (cp, "parallelism.cp" if cp > 1 else ""),
        "parallelism.expert_parallel_degree": (ep, "parallelism.ep" if ep > 1 else ""),
        "activation_checkpoint.mode": (split.recompute or "none", "parallelism.recompute"),
        "optimizer.name": (_OPTIMIZERS.get((work.optimizer or "").lower()), "workload.optimizer"),
    }
    switches = zip((_COMPILE, _ASYNC), _STACKS.get(plan.hardware.stack or "", (None, None)), strict=True)
    rows |= {name: (on, "hardware.stack") for name, on in switches}
    return settings(rows, why)


def _stages(layers: int, stages: int) -> tuple[int, int | None]:
    """The layers of a (virtual) stage of which torchtitan makes so many stages, and how many the ends count as less: 0, or nothing where its own 1 does."""
    for ends in sorted((0, 1), key=lambda end: (layers + 2 * end) % stages > 0):
        each = -(-(layers + 2 * ends) // stages)
        if -(-(layers + 2 * ends) // each) == stages:
            return each, None if ends else 0
    words = f"torchtitan makes no {stages} stages of {layers} layers, as all but the last have the same number"
    raise InputError(f"{words}; use other virtual stages.", field="virtual_stages")


def _gaps(plan: Plan) -> list[str]:
    split, out = plan.parallelism, []
    pp, layers = split.pp or 1, getattr(workload_of(plan.workload), "layers", None) or 1
    if split.zero and (split.dp or 1) == 1:
        out.append(f"parallelism.zero = {split.zero} (one replica has nothing to shard over)")
    if split.sequence_parallel is False:
        out.append("parallelism.sequence_parallel = false (torchtitan's tensor parallelism always splits norms)")
    if split.overlap is False:
        out.append("parallelism.overlap = false (gradient reduction always overlaps the backward pass)")
    stages = pp * (split.virtual_stages or 1)
    if pp > 1 and layers % stages:
        out.append(
            f"{layers} layers over {stages} stages, which do not divide them (torchtitan's stages may be other ones)"
        )
    return out
