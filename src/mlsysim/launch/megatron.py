"""Megatron-LM: the arguments of ``pretrain_gpt.py`` under ``torchrun``.

ZeRO 1 is the distributed optimizer; ZeRO 2 and 3 are Megatron-FSDP with gradients, and parameters, sharded too. The data-parallel degree is
what the number of processes leaves. Schedules other than 1F1B and its interleaved form have no flag, nor has LoRA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.dimensions import dimension_flags, model_of
from mlsysim.launch.flags import Parsed, parse, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import TRAINING, completed, header, not_expressed, reasons
from mlsysim.launch.scripts import Setting, array, comment, details_of
from mlsysim.launch.shell import Script, read_script
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of

NAME = "megatron"
FIELDS = TRAINING
PRECISIONS = ("bf16", "fp16", "fp8", "fp32")
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
_STAGES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_SCRIPTS = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_hybrid.py", "pretrain_llama.py", "train_gpt.py")
_MARKS = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "--pipeline-model-parallel-size")


def claims(words: list[str]) -> bool:
    """Whether a command is Megatron's."""
    return any(word.endswith(_SCRIPTS) for word in words) or sum(word.split("=")[0] in _MARKS for word in words) >= 2


def world(words: list[str]) -> tuple[int | None, int]:
    """Processes of a launcher, and the index of the first word after the launcher and its script."""
    start = next((i for i, word in enumerate(words) if word.endswith((".py",))), None)
    if start is None:
        start = next((i for i, word in enumerate(words) if word in ("torchtitan.train",)), -1)
    before = words[: max(start, 0)]
    launcher = next(
        (
            i
            for i, word in enumerate(before)
            if word.rsplit("/", 1)[-1] == "torchrun" or word.endswith("torch.distributed.run")
        ),
        None,
    )
    if launcher is None:
        return None, start + 1
    parsed = parse(before[launcher + 1 :], table("torchrun"))
    nodes, each = parsed.text("--nnodes"), parsed.text("--nproc-per-node")
    if each is None or not each.isdigit() or (nodes is not None and not nodes.isdigit()):
        return None, start + 1
    return int(each) * int(nodes or 1), start + 1


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a script or a list of arguments says."""
    script = read_script(text)
    words = next((command for command in reversed(script.commands) if claims(command)), None)
    if words is None:
        words = next((w for w in script.arrays.values() if claims(w)), None)
    if words is None:
        raise InputError("The text has no command of Megatron-LM: no pretrain_gpt.py and none of its arguments.")
    return read_command(words, script).placed(on or script.notes.get("fleet"), model)


def read_command(words: list[str], script: Script) -> Reading:
    """What one command says."""
    processes, start = world(words)
    parsed = parse(words[start:], table(NAME))
    document = parsed.document()
    document["task"] = "training"
    warnings = [*script.warnings, *parsed.warnings]
    split = document.setdefault("parallelism", {})
    named = _named(parsed, script)
    key, made, notes = model_of(parsed, named)
    warnings += notes
    if key is not None:
        put(document, "workload.model", key)
    layers = parsed.whole("--num-layers")
    per_stage = parsed.whole("--num-layers-per-virtual-pipeline-stage")
    pp = split.get("pp") or 1
    if per_stage and layers:
        if layers % (pp * per_stage):
            raise InputError(
                f"{layers} layers do not divide into {pp} stages of virtual stages of {per_stage} layers.",
                field="virtual_stages",
            )
        split["virtual_stages"] = layers // pp // per_stage
    if pp > 1:
        split["schedule"] = "interleaved" if split.get("virtual_stages", 1) > 1 else "1f1b"
    split["zero"] = _zero(parsed)
    split["recompute"] = _recompute(parsed)
    split.setdefault("overlap", False)
    if (split.get("tp") or 1) > 1:
        split.setdefault("sequence_parallel", False)
    elif split.pop("sequence_parallel", False):
        warnings.append("--sequence-parallel does nothing without tensor parallelism.")
    put(document, "workload.precision", _precision(parsed))
    if parsed.text("--optimizer") is not None:
        put(document, "workload.optimizer", parsed.text("--optimizer"))
    steps = _tokens(parsed, document, warnings)
    more = {"accelerators": processes, "warnings": tuple(warnings), "workload": made, "steps": steps}
    return Reading.of(parsed, document, **more)


def _named(parsed: Parsed, script: Script) -> str | None:
    """The model that a note or the tokenizer names, where the zoo has it."""
    note = script.notes.get("model")
    if note is not None and note in Models:
        return Models.key_of(note)
    try:
        return model_named(parsed.text("--tokenizer-model") or "")
    except InputError:
        return None


def _zero(parsed: Parsed) -> int:
    if parsed.on("--use-megatron-fsdp"):
        strategy = parsed.text("--data-parallel-sharding-strategy") or "no_shard"
        if strategy not in _STAGES:
            raise InputError(
                f"--data-parallel-sharding-strategy is one of {', '.join(_STAGES)}, got {strategy[:40]!r}.",
                field="zero",
            )
        return _STAGES[strategy]
    return 1 if parsed.on("--use-distributed-optimizer") else 0


def _recompute(parsed: Parsed) -> str:
    granularity = parsed.text("--recompute-granularity")
    if granularity in ("full", "selective"):
        return granularity
    if granularity is not None:
        raise InputError(f"--recompute-granularity is full or selective, got {granularity[:40]!r}.", field="recompute")
    return "selective" if parsed.on("--recompute-activations") else "none"


def _precision(parsed: Parsed) -> str:
    if parsed.text("--fp8-format") is not None:
        return "fp8"
    return "bf16" if parsed.on("--bf16") else "fp16" if parsed.on("--fp16") else "fp32"


def _tokens(parsed: Parsed, document: dict[str, Any], warnings: list[str]) -> int | None:
    """Enter the tokens of --train-samples; gives the steps of --train-iters."""
    work = document.setdefault("workload", {})
    samples, steps = parsed.whole("--train-samples"), parsed.whole("--train-iters")
    if samples is not None:
        if work.get("seq_len"):
            work["tokens"] = float(samples * work["seq_len"])
        return None
    if steps is not None and "--rampup-batch-size" in parsed.values:
        warnings.append("The batch grows at first, so the steps of --train-iters have fewer tokens than were counted.")
    return steps


def arguments(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> list[Setting]:
    """The arguments of a completed plan, with their reasons."""
    split, work, why = plan.parallelism, plan.workload, reasons(plan, answer)
    if work.precision not in PRECISIONS:
        raise InputError(
            f"Megatron-LM trains in {', '.join(PRECISIONS)}; it has no flag for {work.precision}.", field="precision"
        )
    model = workload_of(work)
    out = [Setting("--use-mcore-models")]
    for i, (flag, value) in enumerate(dimension_flags(model)):
        out.append(Setting(flag, value, f"dimensions of {model.name}" if i == 0 else ""))

    def add(flag: str, value: Any, reason: str = "") -> None:
        out.append(Setting(flag, None if value is None else str(value), reason))

    add("--seq-length", work.seq_len, why.get("workload.seq_len", ""))
    if not getattr(model, "position_embeddings", 0):
        add("--max-position-embeddings", work.seq_len)
    add("--tensor-model-parallel-size", split.tp or 1, why["parallelism.tp"])
    if (split.tp or 1) > 1 and split.sequence_parallel:
        add("--sequence-parallel", None, why["parallelism.sequence_parallel"])
    add("--pipeline-model-parallel-size", split.pp or 1, why["parallelism.pp"])
    if (split.virtual_stages or 1) > 1:
        add("--num-virtual-stages-per-pipeline-rank", split.virtual_stages, why["parallelism.virtual_stages"])
    if (split.cp or 1) > 1:
        add("--context-parallel-size", split.cp, why["parallelism.cp"])
    if hasattr(model, "experts"):
        add("--expert-model-parallel-size", split.ep or 1, why["parallelism.ep"])
    add("--micro-batch-size", split.micro_batch or 1, why["parallelism.micro_batch"])
    add("--global-batch-size", work.batch_size, why["workload.batch_size"])
    zero = split.zero or 0
    if zero:
        add("--use-distributed-optimizer", None, why["parallelism.zero"])
    if zero > 1:
        add("--use-megatron-fsdp", None)
        add("--data-parallel-sharding-strategy", _SHARDING[zero])
        add("--no-gradient-accumulation-fusion", None, "Megatron-FSDP needs it")
    if split.overlap:
        add("--overlap-grad-reduce", None, why["parallelism.overlap"])
        if zero:
            add("--overlap-param-gather", None)
    if split.recompute in ("selective", "full"):
        add("--recompute-granularity", split.recompute, why["parallelism.recompute"])
        if split.recompute == "full":
            add("--recompute-method", "uniform")
            add("--recompute-num-layers", 1)
    if work.precision in ("bf16", "fp8"):
        add("--bf16", None, why["workload.precision"])
    elif work.precision == "fp16":
        add("--fp16", None, why["workload.precision"])
    if work.precision == "fp8":
        add("--fp8-format", "hybrid", "matrix products in FP8: E4M3 forward, E5M2 backward")
    if work.optimizer is not None:
        add("--optimizer", _optimizer(work.optimizer), why["workload.optimizer"])
    if work.tokens is not None and work.seq_len:
        samples = max(1, round(work.tokens / work.seq_len))
        add(
            "--train-samples",
            samples,
            f"{why['workload.tokens']} in sequences of {work.seq_len:,}, to the nearest sequence",
        )
    if not any(name in (details or {}) for name in ("--tokenizer-type", "--tokenizer-model")):
        name, known = checkpoint_of(work.model)
        if known:
            add("--tokenizer-type", "HuggingFaceTokenizer", "the tokenizer that the model was published with")
            add("--tokenizer-model", name)
    return [*out, *details_of(details, (s.flag for s in out))]


def _optimizer(name: str) -> str:
    plain = name.lower()
    if plain in ("adam", "adamw"):
        return "adam"
    if plain == "sgd":
        return "sgd"
    raise InputError(f"Megatron-LM's --optimizer is adam or sgd; it has none for {name[:40]!r}.", field="optimizer")


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
    """A script that starts the plan on every node; set MASTER_ADDR and NODE_RANK on each."""
    final = completed(plan, answer)
    fleet = find_fleets(final.hardware).one
    why = reasons(final, answer)
    how = "Run it on every node with MASTER_ADDR and NODE_RANK set; add data, learning rate and checkpoints."
    lines = ["#!/bin/bash", *comment(header(final, answer, "Megatron-LM arguments", gaps_of(final), how)), ""]
    lines += ["export CUDA_DEVICE_MAX_CONNECTIONS=1", ""]
    launcher = [
        Setting("--nproc-per-node", str(fleet.node.accelerators_per_node), why["accelerators"]),
        Setting("--nnodes", str(fleet.count), why["parallelism.dp"]),
        Setting("--node-rank", "$NODE_RANK"),
        Setting("--master-addr", "$MASTER_ADDR"),
        Setting("--master-port", "6000"),
    ]
    lines += [*array("LAUNCH_ARGS", launcher), "", *array("TRAINING_ARGS", arguments(final, answer, details)), ""]
    lines.append('torchrun "${LAUNCH_ARGS[@]}" pretrain_gpt.py "${TRAINING_ARGS[@]}"')
    return "\n".join(lines) + "\n"


def gaps_of(plan: Plan) -> list[str]:
    """What a plan says that the flags cannot."""
    split = plan.parallelism
    stages = (split.pp or 1) * (split.virtual_stages or 1)
    layers = getattr(workload_of(plan.workload), "layers", None) or stages
    out = not_expressed(plan, FIELDS, {"workload.lora_rank": "pretrain_gpt.py trains all weights"})
    if (split.pp or 1) > 1 and split.schedule not in (None, "1f1b", "interleaved"):
        out.append(f"parallelism.schedule = {split.schedule} (Megatron-LM runs 1F1B and interleaved 1F1B)")
    if layers % stages:
        out.append(
            f"{layers} layers over {stages} stages, which do not divide them (say how with --pipeline-model-parallel-layout)"
        )
    return out
