"""DeepSpeed: the JSON configuration.

JSON has no comments, so the reasons stand under ``_comments``, a key that DeepSpeed does not read. The file says neither the model nor the sequence
length nor, outside of a PipelineModule, whether activations are recomputed: those belong to the training script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import load_json
from mlsysim.launch.flags import Parsed, parse_tables, put, table
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, not_expressed, reasons
from mlsysim.launch.settings import KEPT, kept, settings
from mlsysim.launch.shell import bounded
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

NAME = "deepspeed"
FIELDS = (
    "workload.batch_size", "workload.precision", "workload.optimizer", "parallelism.tp", "parallelism.pp", "parallelism.dp",
    "parallelism.micro_batch", "parallelism.zero", "parallelism.overlap",
)  # fmt: skip
"""Fields of a plan that the keys express."""
_COMMENTS = "_comments"
_NOTES = {"fleet": str, "model": str, "seq_len": int}
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "lamb": "Lamb", "sgd": "SGD", "lion": "Lion", "adafactor": "Adafactor"}


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a configuration says."""
    tables = load_json(bounded(text), 16, name="the DeepSpeed configuration")
    if not isinstance(tables, dict):
        raise InputError(f"A DeepSpeed configuration is a JSON object, got {type(tables).__name__}.")
    comments = tables.get(_COMMENTS)
    said = comments if isinstance(comments, dict) else {}
    # Only notes of the kind that we write are used.
    notes: dict[str, Any] = {key: value for key, value in said.items() if type(value) is _NOTES.get(key)}
    parsed = parse_tables(tables, table(NAME), (_COMMENTS,))
    document, warnings = parsed.document(task="training"), parsed.warnings
    split = document.setdefault("parallelism", {})
    precision = "bf16" if parsed.on("bf16.enabled") else "fp16" if parsed.on("fp16.enabled") else "fp32"
    if "bf16.enabled" not in parsed.unresolved:
        put(document, "workload.precision", precision)
    if parsed.text("optimizer.type") is not None:
        put(document, "workload.optimizer", str(parsed.text("optimizer.type")).lower())
    if split.get("tp") == 0:
        split["tp"] = 1
    if parsed.whole("pipeline.activation_checkpoint_interval"):
        split["recompute"] = "full"
    zero = split.setdefault("zero", 0)
    split.setdefault("overlap", zero == 3)
    count = _accelerators(parsed, document)
    if "zero_optimization.offload_optimizer" in parsed.values or "zero_optimization.offload_param" in parsed.values:
        warnings.append("Offloading to the host is not part of a plan; memory and time are those without it.")
    found = Reading.of(parsed, document, warnings, accelerators=count)
    lengths = {"seq_len": notes.get("seq_len")}
    return found.placed(on or notes.get("fleet"), model or notes.get("model"), workload=lengths)


def _accelerators(parsed: Parsed, document: dict[str, Any]) -> int | None:
    """The number of accelerators that batch, micro-batch and accumulation give."""
    split, work = document["parallelism"], document.setdefault("workload", {})
    steps, micro, batch = parsed.whole("gradient_accumulation_steps"), split.get("micro_batch"), work.get("batch_size")
    if not (steps and micro and batch):
        return None
    if batch % (steps * micro):
        raise InputError(
            f"train_batch_size {batch} is no multiple of micro-batch {micro} x {steps} accumulation steps.",
            field="batch_size",
        )
    return int(batch // steps // micro * (split.get("tp") or 1) * (split.get("pp") or 1))


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
    """A configuration, with the reasons under ``_comments``."""
    final = completed(plan, answer)
    split, work, why = final.parallelism, final.workload, reasons(final, answer)
    if work.precision not in ("bf16", "fp16", "fp32"):
        raise InputError(
            f"DeepSpeed's configuration has bf16, fp16 and fp32; it has no key for {work.precision}.", field="precision"
        )
    if work.optimizer is not None and work.optimizer.lower() not in _OPTIMIZERS:
        raise InputError(
            f"DeepSpeed has {', '.join(_OPTIMIZERS.values())}; it has none for {work.optimizer!r}.", field="optimizer"
        )
    dp, micro, batch = split.dp or 1, split.micro_batch or 1, work.batch_size or 1
    tp, pp = split.tp or 1, split.pp or 1
    rows: dict[str, tuple[Any, str]] = {
        "train_batch_size": (batch, "workload.batch_size"),
        "train_micro_batch_size_per_gpu": (micro, "parallelism.micro_batch"),
        "gradient_accumulation_steps": (max(1, batch // dp // micro), f"{batch:,} / DP {dp} / {micro}"),
        "zero_optimization.stage": (split.zero or 0, "parallelism.zero"),
        "zero_optimization.overlap_comm": (bool(split.overlap), "parallelism.overlap"),
        "bf16.enabled": (work.precision == "bf16", "workload.precision"),
        "fp16.enabled": (True if work.precision == "fp16" else None, "workload.precision"),
        "tensor_parallel.autotp_size": (tp if tp > 1 else None, "parallelism.tp"),
        "pipeline.stages": (pp if pp > 1 else None, "parallelism.pp"),
        "optimizer.type": (_OPTIMIZERS.get((work.optimizer or "").lower()), "workload.optimizer"),
    }
    made = settings(rows, why)
    others = kept(details, made, table(NAME).flags)
    gaps = not_expressed(final, (*FIELDS, "workload.model"), table(NAME).notes)
    *about, fleet, named = header(final, answer, "DeepSpeed configuration", gaps)
    notes: dict[str, Any] = {"about": about, "fleet": fleet.partition(": ")[2], "model": named.partition(": ")[2]}
    notes |= {} if work.seq_len is None else {"seq_len": work.seq_len}
    notes |= {setting.flag: setting.reason for setting in made}
    notes |= {"kept": f"{KEPT}: " + ", ".join(setting.flag for setting in others)} if others else {}
    out: dict[str, Any] = {_COMMENTS: notes}
    for setting in (*made, *others):
        put(out, setting.flag, setting.value)
    return json.dumps(out, indent=2) + "\n"
