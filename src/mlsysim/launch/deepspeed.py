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
from mlsysim.launch.flags import parse_tables, put, table
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, not_expressed, reasons
from mlsysim.launch.scripts import KEPT
from mlsysim.launch.shell import LARGEST
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

NAME = "deepspeed"
FIELDS = (
    "workload.batch_size", "workload.precision", "workload.optimizer", "parallelism.tp", "parallelism.pp", "parallelism.dp",
    "parallelism.micro_batch", "parallelism.zero", "parallelism.overlap",
)  # fmt: skip
"""Fields of a plan that the keys express."""
_COMMENTS = "_comments"
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "lamb": "Lamb", "sgd": "SGD", "lion": "Lion", "adafactor": "Adafactor"}


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a configuration says."""
    if len(text) > LARGEST:
        raise InputError(f"The launch file is longer than {LARGEST:,} characters, which no launch file is.")
    tables = load_json(text, 16, name="the DeepSpeed configuration")
    if not isinstance(tables, dict):
        raise InputError(f"A DeepSpeed configuration is a JSON object, got {type(tables).__name__}.")
    comments = tables.get(_COMMENTS)
    notes = comments if isinstance(comments, dict) else {}
    parsed = parse_tables(tables, table(NAME), (_COMMENTS,))
    document = parsed.document()
    document["task"] = "training"
    warnings = list(parsed.warnings)
    split = document.setdefault("parallelism", {})
    precision = "bf16" if parsed.on("bf16.enabled") else "fp16" if parsed.on("fp16.enabled") else "fp32"
    if "bf16.enabled" not in parsed.unresolved:
        put(document, "workload.precision", precision)
    if parsed.text("optimizer.type") is not None:
        put(document, "workload.optimizer", str(parsed.text("optimizer.type")).lower())
    if split.get("tp") == 0:
        split["tp"] = 1
    interval = parsed.whole("pipeline.activation_checkpoint_interval")
    if interval:
        split["recompute"] = "full"
    zero = split.setdefault("zero", 0)
    split.setdefault("overlap", zero == 3)
    count = _accelerators(parsed, document, warnings)
    if "zero_optimization.offload_optimizer" in parsed.values or "zero_optimization.offload_param" in parsed.values:
        warnings.append("Offloading to the host is not part of a plan; memory and time are those without it.")
    more = {"accelerators": count, "warnings": tuple(warnings)}
    found = Reading.of(parsed, document, **more)
    given = {"seq_len": _whole(notes.get("seq_len"))} if notes.get("seq_len") is not None else {}
    return found.placed(on or _text(notes.get("fleet")), model or _text(notes.get("model")), workload=given)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _accelerators(parsed: Any, document: dict[str, Any], warnings: list[str]) -> int | None:
    """The number of accelerators that batch, micro-batch and accumulation give; the batch where it is left out."""
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
    out: dict[str, Any] = {}
    comments: dict[str, Any] = {}

    def add(path: str, value: Any, reason: str = "") -> None:
        put(out, path, value)
        if reason:
            comments[path] = reason

    add("train_batch_size", batch, why["workload.batch_size"])
    add("train_micro_batch_size_per_gpu", micro, why["parallelism.micro_batch"])
    add("gradient_accumulation_steps", max(1, batch // dp // micro), f"{batch:,} / DP {dp} / {micro}")
    add("zero_optimization.stage", split.zero or 0, why["parallelism.zero"])
    add("zero_optimization.overlap_comm", bool(split.overlap), why["parallelism.overlap"])
    add("bf16.enabled", work.precision == "bf16", why["workload.precision"])
    if work.precision == "fp16":
        add("fp16.enabled", True, why["workload.precision"])
    if (split.tp or 1) > 1:
        add("tensor_parallel.autotp_size", split.tp, why["parallelism.tp"])
    if (split.pp or 1) > 1:
        add("pipeline.stages", split.pp, why["parallelism.pp"])
    if work.optimizer is not None:
        add("optimizer.type", _OPTIMIZERS[work.optimizer.lower()], why["workload.optimizer"])
    kept = []
    for path, value in (details or {}).items():
        if path in table(NAME).flags and not _has(out, path):
            put(out, path, value)
            kept.append(path)
    if kept:
        comments["kept"] = f"{KEPT}: " + ", ".join(kept)
    gaps = not_expressed(final, (*FIELDS, "workload.model"), table(NAME).notes)
    lines = header(final, answer, "DeepSpeed configuration", gaps)
    *about, fleet, named = lines
    notes: dict[str, Any] = {"about": about, "fleet": fleet.partition(": ")[2], "model": named.partition(": ")[2]}
    if work.seq_len is not None:
        notes["seq_len"] = work.seq_len
    return json.dumps({_COMMENTS: {**notes, **comments}, **out}, indent=2) + "\n"


def _has(document: Mapping[str, Any], path: str) -> bool:
    for part in path.split("."):
        if not isinstance(document, Mapping) or part not in document:
            return False
        document = document[part]
    return True
