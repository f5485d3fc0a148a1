"""Megatron-LM: the arguments of ``pretrain_gpt.py`` under ``torchrun``.

ZeRO 1 is the distributed optimizer; ZeRO 2 and 3 are Megatron-FSDP with gradients, and parameters, sharded too. The data-parallel degree is
what the number of processes leaves. Schedules other than 1F1B and its interleaved form have no flag, nor has LoRA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError, unknown_name
from mlsysim.launch.dimensions import dimension_flags, model_of
from mlsysim.launch.flags import Parsed, parse, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import TRAINING, check_offered, completed, header, not_expressed, reasons
from mlsysim.launch.settings import Details, Rows, Setting, Written, array, comment, kept_flags, settings
from mlsysim.launch.shell import Script, read_script
from mlsysim.models.recompute import parts_of
from mlsysim.models.registry import Models
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets, workload_of
from mlsysim.plans.training_layout import check_launcher
from mlsysim.units.text import many

NAME = "megatron"
FIELDS = (
    *TRAINING, "parallelism.micro_batch_group", "parallelism.recomputed", "parallelism.offload", "workload.predicted_tokens",
    "parallelism.deduplicated_exchange",
)  # fmt: skip
_PRECISIONS = ("bf16", "fp16", "fp8", "fp8_block", "mxfp8", "nvfp4", "fp32")
_RECIPES = {"delayed": "fp8", "tensorwise": "fp8", "blockwise": "fp8_block", "mxfp8": "mxfp8"}
_MODULES = {
    "core_attn": "attention",
    "layernorm": "norm",
    "mla_up_proj": "up",
    "mlp": "mlp",
    "shared_experts": "shared",
    "moe": "moe",
    "moe_act": "moe_act",
}
_SHARDING = ("no_shard", "optim", "optim_grads", "optim_grads_params")
_OPTIMIZERS = {"adam": "adam", "adamw": "adam", "sgd": "sgd"}
_SCRIPTS = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_hybrid.py", "pretrain_llama.py", "train_gpt.py")
_MARKS = ("--tensor-model-parallel-size", "--num-layers", "--micro-batch-size", "--pipeline-model-parallel-size")


def claims(words: list[str]) -> bool:
    """Whether a command is Megatron's."""
    return any(word.endswith(_SCRIPTS) for word in words) or sum(word.split("=")[0] in _MARKS for word in words) >= 2


def world(words: list[str]) -> tuple[int | None, int]:
    """Processes of a launcher, and the index of the first word after the launcher and its script."""
    ends = [i for i, word in enumerate(words) if word.endswith(".py")]
    start = (ends or [i for i, word in enumerate(words) if word == "torchtitan.train"] or [-1])[0]
    for i, word in enumerate(words[: max(start, 0)]):
        if word.rsplit("/", 1)[-1] == "torchrun" or word.endswith("torch.distributed.run"):
            parsed = parse(words[i + 1 : start], table("torchrun"))
            nodes, each = parsed.text("--nnodes") or "1", parsed.text("--nproc-per-node") or ""
            return int(each) * int(nodes) if each.isdigit() and nodes.isdigit() else None, start + 1
    return None, start + 1


def launcher(plan: Plan, why: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """The array of torchrun's arguments."""
    fleet = find_fleets(plan.hardware).one
    rows: Rows = {
        "--nproc-per-node": (fleet.node.accelerators_per_node, "accelerators"),
        "--nnodes": (fleet.count, "parallelism.dp"),
        **{flag: (value, "") for flag, value in others.items()},
    }
    return [*array("LAUNCH_ARGS", settings(rows, why)), ""]


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a script or a list of arguments says."""
    script = read_script(text)
    words = next((words for words in [*reversed(script.commands), *script.arrays.values()] if claims(words)), None)
    if words is None:
        raise InputError("The text has no command of Megatron-LM: no pretrain_gpt.py and none of its arguments.")
    return read_command(words, script).placed(on or script.notes.get("fleet"), model)


def read_command(words: list[str], script: Script) -> Reading:
    """What one command says."""
    processes, start = world(words)
    parsed = parse(words[start:], table(NAME))
    document = parsed.document(task="training")
    split = document.setdefault("parallelism", {})
    key, made, notes = model_of(parsed, _named(parsed, script))
    warnings = [*script.warnings, *parsed.warnings, *notes]
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
    split["recompute"], split["recomputed"] = _recompute(parsed)
    if split["recomputed"] is None:
        del split["recomputed"]
    if (each := parsed.whole("--recompute-num-layers")) and parsed.text("--recompute-method") == "block":
        warnings.append(
            f"Of each stage {many(each, 'layer')} {'is' if each == 1 else 'are'} computed again; the plan computes all of them again."
        )
    if parsed.on("--optimizer-cpu-offload"):
        split.setdefault("offload", 1.0)
    split.setdefault("overlap", False)
    if (split.get("tp") or 1) > 1:
        split.setdefault("sequence_parallel", False)
    elif split.pop("sequence_parallel", False):
        warnings.append("--sequence-parallel does nothing without tensor parallelism.")
    plain = "bf16" if parsed.on("--bf16") else "fp16" if parsed.on("--fp16") else "fp32"
    put(document, "workload.precision", _narrow(parsed) or plain)
    if parsed.text("--optimizer") is not None:
        put(document, "workload.optimizer", parsed.text("--optimizer"))
    steps = _tokens(parsed, document, warnings)
    # Without --global-batch-size a step is one micro-batch of each replica.
    more = {"rank_batch": parsed.whole("--micro-batch-size"), "steps": steps}
    return Reading.of(parsed, document, warnings, accelerators=processes, workload=made, **more)


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
    if not parsed.on("--use-megatron-fsdp"):
        return int(parsed.on("--use-distributed-optimizer"))
    strategy = parsed.text("--data-parallel-sharding-strategy") or "no_shard"
    if strategy not in _SHARDING:
        known = ", ".join(_SHARDING)
        raise InputError(f"--data-parallel-sharding-strategy is one of {known}, got {strategy[:40]!r}.", field="zero")
    return _SHARDING.index(strategy)


def _narrow(parsed: Parsed) -> str | None:
    """The format of products that are narrower than 16 bits."""
    if parsed.text("--fp4-format") is not None:
        return "nvfp4"
    if parsed.text("--fp8-format") is None:
        return None
    recipe = parsed.text("--fp8-recipe") or "delayed"
    if recipe not in _RECIPES:
        raise InputError(f"--fp8-recipe is one of {', '.join(_RECIPES)}, got {recipe[:40]!r}.", field="precision")
    return _RECIPES[recipe]


def _recompute(parsed: Parsed) -> tuple[str, str | None]:
    """What is computed again, and the parts of a layer that a list names."""
    granularity = parsed.text("--recompute-granularity")
    if granularity not in (None, "full", "selective"):
        raise InputError(f"--recompute-granularity is full or selective, got {granularity[:40]!r}.", field="recompute")
    mode = granularity or ("selective" if parsed.on("--recompute-activations") else "none")
    return mode, parts_named(parsed.text("--recompute-modules")) if mode == "selective" else None


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


def arguments(plan: Plan, answer: Answer, details: Details = None) -> list[Setting]:
    """The arguments of a completed plan, with their reasons."""
    split, work, why = plan.parallelism, plan.workload, reasons(plan, answer)
    check_launcher(NAME, answer.layout)
    trains = f"Megatron-LM trains in {', '.join(_PRECISIONS)}; it has no flag"
    check_offered(work, _PRECISIONS, _OPTIMIZERS, trains, "Megatron-LM's --optimizer is adam or sgd")
    model = workload_of(work)
    sized = {flag: value for flag, value in dimension_flags(model).items() if value not in (None, False)}
    tp, virtual, cp, zero = split.tp or 1, split.virtual_stages or 1, split.cp or 1, split.zero or 0
    recompute = split.recompute if split.recompute in ("selective", "full") else None
    recipe = next((name for name, narrow in _RECIPES.items() if narrow == work.precision != "fp8"), None)
    samples = max(1, round(work.tokens / work.seq_len)) if work.tokens is not None and work.seq_len else None
    counted = f"{why.get('workload.tokens')} in sequences of {work.seq_len or 0:,}, to the nearest sequence"
    rows: Rows = {
        "--use-mcore-models": (True, ""),
        **{flag: (value, "" if i else f"dimensions of {model.name}") for i, (flag, value) in enumerate(sized.items())},
        "--seq-length": (work.seq_len, "workload.seq_len"),
        "--max-position-embeddings": (sized.get("--max-position-embeddings", work.seq_len), ""),
        "--tensor-model-parallel-size": (tp, "parallelism.tp"),
        "--sequence-parallel": (tp > 1 and bool(split.sequence_parallel), "parallelism.sequence_parallel"),
        "--pipeline-model-parallel-size": (split.pp or 1, "parallelism.pp"),
        "--num-virtual-stages-per-pipeline-rank": (virtual if virtual > 1 else None, "parallelism.virtual_stages"),
        "--microbatch-group-size-per-virtual-pipeline-stage": (_group(plan), "groups of micro-batches that are no shorter than the stages"),
        "--context-parallel-size": (cp if cp > 1 else None, "parallelism.cp"),
        "--expert-model-parallel-size": (split.ep or 1 if hasattr(model, "experts") else None, "parallelism.ep"),
        "--micro-batch-size": (split.micro_batch or 1, "parallelism.micro_batch"),
        "--global-batch-size": (work.batch_size, "workload.batch_size"),
        "--use-distributed-optimizer": (zero > 0, "parallelism.zero"),
        "--use-megatron-fsdp": (zero > 1, ""),
        "--data-parallel-sharding-strategy": (_SHARDING[zero] if zero > 1 else None, ""),
        "--no-gradient-accumulation-fusion": (zero > 1, "Megatron-FSDP needs it"),
        "--overlap-grad-reduce": (bool(split.overlap), "parallelism.overlap"),
        "--overlap-param-gather": (bool(split.overlap) and zero > 0, ""),
        "--recompute-granularity": (recompute, "parallelism.recompute"),
        "--recompute-modules": (modules(split.recomputed) or None if recompute == "selective" else None, ""),
        "--recompute-method": ("uniform" if recompute == "full" else None, ""),
        "--recompute-num-layers": (1 if recompute == "full" else None, ""),
        "--bf16": (work.precision not in ("fp16", "fp32"), "workload.precision"),
        "--fp16": (work.precision == "fp16", "workload.precision"),
        "--fp8-format": ("hybrid" if work.precision == "fp8" else "e4m3" if recipe else None, "matrix products in FP8" + (": E4M3 forward, E5M2 backward" if not recipe else "")),
        "--fp8-recipe": (recipe, ""),
        "--fp4-format": ("e2m1" if work.precision == "nvfp4" else None, "matrix products in NVFP4"),
        "--mtp-num-layers": (work.predicted_tokens or None, "workload.predicted_tokens"),
        "--moe-enable-deepep": (bool(split.deduplicated_exchange), "a token goes once to each node"),
        "--optimizer-cpu-offload": (bool(split.offload), "the optimizer's state in the host's memory"),
        "--optimizer-offload-fraction": (split.offload or None, ""),
        "--optimizer": (_OPTIMIZERS.get((work.optimizer or "").lower()), "workload.optimizer"),
        "--train-samples": (samples, counted),
    }  # fmt: skip
    name, known = checkpoint_of(work.model)
    if known and not {"--tokenizer-type", "--tokenizer-model"} & set(details or {}):
        rows["--tokenizer-type"] = ("HuggingFaceTokenizer", "the tokenizer that the model was published with")
        rows["--tokenizer-model"] = (name, "")
    out = settings(rows, why)
    return [*out, *kept_flags(details, out)]


def modules(parts: str | None) -> list[str]:
    """Megatron's names of the parts of a layer, none for the core of attention alone, which is what it takes where nothing is said; where it has
    none for a part, so says a sentence."""
    names = {part: name for name, part in _MODULES.items()}
    wanted = parts_of(parts or "")
    for part in wanted:
        if part not in names:
            text = f"Megatron-LM has no name for {part} to compute again; it has names for {', '.join(names)}."
            raise InputError(text, field="recomputed")
    return [] if wanted == ("attention",) else [names[part] for part in wanted]


def parts_named(given: str | None) -> str:
    """Parts of a layer by Megatron's names."""
    for name in (words := (given or "core_attn").split()):
        if name not in _MODULES:
            raise unknown_name("module to recompute", name, _MODULES)
    return "+".join(_MODULES[name] for name in words)


def _group(plan: Plan) -> int | None:
    """Micro-batches that go through a chunk before the next, where it is not one a stage.

    A group that is shorter than the stages waits for itself: with the flag left out, so would the last one of a number that the
    stages do not divide.
    """
    split, work = plan.parallelism, plan.workload
    pp, virtual = split.pp or 1, split.virtual_stages or 1
    if pp == 1 or virtual == 1:
        return None
    count = (work.batch_size or 1) // (split.dp or 1) // (split.micro_batch or 1)
    group = split.micro_batch_group or (pp if count % pp == 0 else -(-count // (count // pp)))
    return None if group == pp else group


def lines(plan: Plan, answer: Answer, details: Details, others: Mapping[str, str], before: str = "") -> Written:
    """Lines that train a completed plan on every node, and what they cannot say."""
    out = ["export CUDA_DEVICE_MAX_CONNECTIONS=1", "", *launcher(plan, reasons(plan, answer), others)]
    out += [*array("TRAINING_ARGS", arguments(plan, answer, details)), ""]
    out.append(f'{before}torchrun "${{LAUNCH_ARGS[@]}}" pretrain_gpt.py "${{TRAINING_ARGS[@]}}"')
    return out, gaps_of(plan)


def write(plan: Plan, answer: Answer, details: Details = None) -> str:
    """A script that starts the plan on every node; set MASTER_ADDR and NODE_RANK on each."""
    final = completed(plan, answer)
    how = "Run it on every node with MASTER_ADDR and NODE_RANK set; add data, learning rate and checkpoints."
    others = {"--node-rank": "$NODE_RANK", "--master-addr": "$MASTER_ADDR", "--master-port": "6000"}
    body, gaps = lines(final, answer, details, others)
    top = comment(header(final, answer, "Megatron-LM arguments", gaps, how))
    return "\n".join(["#!/bin/bash", *top, "", *body]) + "\n"


def gaps_of(plan: Plan) -> list[str]:
    """What a plan says that the flags cannot."""
    split = plan.parallelism
    stages = (split.pp or 1) * (split.virtual_stages or 1)
    layers = getattr(workload_of(plan.workload), "layers", None) or stages
    out = not_expressed(
        plan, (*FIELDS, "parallelism.micro_batch_group"), {"workload.lora_rank": "pretrain_gpt.py trains all weights"}
    )
    if layers % stages:
        out.append(
            f"{layers} layers over {stages} stages, which do not divide them (say how with --pipeline-model-parallel-layout)"
        )
    return out
