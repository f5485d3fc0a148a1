"""Configuration files of libraries that shard: DeepSpeed's JSON, and the YAML of FSDP through Hugging Face Accelerate (Trainer's JSON is read too).

DeepSpeed: JSON has no comments, so the reasons stand under ``_comments``, a key that DeepSpeed does not read. The file says neither the model nor the
sequence length nor, outside of a PipelineModule, whether activations are recomputed: those belong to the training script.

FSDP2 that reshards after the forward pass is ZeRO 3, without it ZeRO 2; ZeRO 0 and 1 are not FSDP. Batch, lengths and optimizer belong to the
training script; checkpointing of activations here is full recomputation.
"""

from __future__ import annotations

import json
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import load_json
from mlsysim.launch.flags import Parsed, parse_tables, put, table
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import check_offered, completed, header, not_expressed, reasons
from mlsysim.launch.settings import (
    KEPT,
    Details,
    Rows,
    Setting,
    Why,
    comment,
    kept,
    read_documents,
    settings,
    write_yaml,
)
from mlsysim.launch.shell import bounded, read_notes
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan
from mlsysim.plans.resolve import find_fleets
from mlsysim.plans.training_layout import check_launcher

_COMMENTS = "_comments"
_NOTES = {"fleet": str, "model": str, "seq_len": int}
_OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "lamb": "Lamb", "sgd": "SGD", "lion": "Lion", "adafactor": "Adafactor"}
_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2,
               "1": 3, "2": 2, "3": 0, "4": 3, "5": 2}  # fmt: skip
_OFFLOADED = ("parallelism.offload", "parallelism.offload_weights", "parallelism.host_update")
_HOST = {"device": "cpu", "pin_memory": True}
_FSDP, _PARALLEL = "fsdp_config.", "parallelism_config.parallelism_config_"


class DeepSpeed:
    """DeepSpeed's configuration."""

    NAME = "deepspeed"
    FIELDS = (
        "workload.batch_size", "workload.precision", "workload.optimizer", "parallelism.tp", "parallelism.pp", "parallelism.dp",
        "parallelism.micro_batch", "parallelism.zero", "parallelism.overlap", "parallelism.schedule", *_OFFLOADED,
    )  # fmt: skip

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a configuration says."""
        tables = load_json(bounded(text), 16, name="the DeepSpeed configuration")
        if not isinstance(tables, dict):
            raise InputError(f"A DeepSpeed configuration is a JSON object, got {type(tables).__name__}.")
        comments = tables.get(_COMMENTS)
        said = comments if isinstance(comments, dict) else {}
        # Only notes of the kind that we write are used.
        notes: dict[str, Any] = {key: value for key, value in said.items() if type(value) is _NOTES.get(key)}
        parsed = parse_tables(tables, table(self.NAME), (_COMMENTS,))
        document, warnings = parsed.document(task="training"), parsed.warnings
        split = document.setdefault("parallelism", {})
        precision = "bf16" if parsed.on("bf16.enabled") else "fp16" if parsed.on("fp16.enabled") else "fp32"
        if "bf16.enabled" not in parsed.unresolved:
            put(document, "workload.precision", precision)
        if parsed.text("optimizer.type") is not None:
            put(document, "workload.optimizer", str(parsed.text("optimizer.type")).lower())
        if split.get("tp") == 0:
            split["tp"] = 1
        if (split.get("pp") or 1) > 1:
            split["schedule"] = "1f1b"
        if parsed.whole("pipeline.activation_checkpoint_interval"):
            split["recompute"] = "full"
        zero = split.setdefault("zero", 0)
        split.setdefault("overlap", zero == 3)
        count = _ranks(parsed, document)
        for flag, key in (("offload_optimizer", "offload"), ("offload_param", "offload_weights")):
            where = parsed.values.get(f"zero_optimization.{flag}")
            device = where.get("device", "none") if isinstance(where, dict) else "none"
            if device != "none":
                split[key] = 1.0
            if device not in ("none", "cpu"):
                warnings.append(f"{flag} on {str(device)[:20]} is read as in the host's memory, which is faster.")
        if "offload" in split:
            split["host_update"] = True
        # Without a batch a step is what each rank accumulates, once where nothing is said.
        rank = (parsed.whole("train_micro_batch_size_per_gpu") or 0) * (
            parsed.whole("gradient_accumulation_steps") or 1
        )
        found = Reading.of(parsed, document, warnings, accelerators=count, rank_batch=rank or None)
        lengths = {"seq_len": notes.get("seq_len")}
        return found.placed(on or notes.get("fleet"), model or notes.get("model"), workload=lengths)

    def arguments(self, plan: Plan, answer: Answer) -> list[Setting]:
        """The keys of a completed plan, with their reasons."""
        split, work = plan.parallelism, plan.workload
        check_launcher(self.NAME, answer.layout)
        trains = "DeepSpeed's configuration has bf16, fp16 and fp32; it has no key"
        names = ", ".join(_OPTIMIZERS.values())
        check_offered(work, ("bf16", "fp16", "fp32"), _OPTIMIZERS, trains, f"DeepSpeed has {names}")
        dp, micro, batch = split.dp or 1, split.micro_batch or 1, work.batch_size or 1
        tp, pp = split.tp or 1, split.pp or 1
        rows: Rows = {
            "train_batch_size": (batch, "workload.batch_size"),
            "train_micro_batch_size_per_gpu": (micro, "parallelism.micro_batch"),
            "gradient_accumulation_steps": (max(1, batch // dp // micro), f"{batch:,} / DP {dp} / {micro}"),
            "zero_optimization.stage": (split.zero or 0, "parallelism.zero"),
            "zero_optimization.overlap_comm": (bool(split.overlap), "parallelism.overlap"),
            "zero_optimization.offload_optimizer": (_HOST if split.offload else None, "parallelism.offload"),
            "zero_optimization.offload_param": (
                _HOST if split.offload_weights else None,
                "parallelism.offload_weights",
            ),
            "bf16.enabled": (work.precision == "bf16", "workload.precision"),
            "fp16.enabled": (True if work.precision == "fp16" else None, "workload.precision"),
            "tensor_parallel.autotp_size": (tp if tp > 1 else None, "parallelism.tp"),
            "pipeline.stages": (pp if pp > 1 else None, "parallelism.pp"),
            "optimizer.type": (_OPTIMIZERS.get((work.optimizer or "").lower()), "workload.optimizer"),
        }
        return settings(rows, reasons(plan, answer))

    def write(self, plan: Plan, answer: Answer, details: Details = None) -> str:
        """A configuration, with the reasons under ``_comments``."""
        final = completed(plan, answer)
        work, made = final.workload, self.arguments(final, answer)
        others = kept(details, made, table(self.NAME).flags)
        gaps = not_expressed(final, (*self.FIELDS, "workload.model"), table(self.NAME).notes)
        *about, fleet, named = header(final, answer, "DeepSpeed configuration", gaps)
        notes: dict[str, Any] = {"about": about, "fleet": fleet.partition(": ")[2], "model": named.partition(": ")[2]}
        notes |= {} if work.seq_len is None else {"seq_len": work.seq_len}
        notes |= {setting.flag: setting.reason for setting in made}
        notes |= {"kept": f"{KEPT}: " + ", ".join(setting.flag for setting in others)} if others else {}
        out: dict[str, Any] = {_COMMENTS: notes}
        for setting in (*made, *others):
            put(out, setting.flag, setting.value)
        return json.dumps(out, indent=2) + "\n"


def _ranks(parsed: Parsed, document: dict[str, Any]) -> int | None:
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


class FSDP:
    """Accelerate's configuration."""

    NAME = "fsdp"
    FIELDS = (
        "workload.precision", "parallelism.tp", "parallelism.cp", "parallelism.dp", "parallelism.zero", "parallelism.recompute",
        "parallelism.overlap", "parallelism.zero_shard", *_OFFLOADED,
    )  # fmt: skip

    def read(self, text: str, *, on: str | None = None, model: str | None = None) -> Reading:
        """What a configuration of Accelerate, or of Trainer, says."""
        documents = read_documents(text, "The FSDP configuration")
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise InputError("An FSDP configuration is one table of keys, such as distributed_type and fsdp_config.")
        notes = read_notes(text)
        parsed = parse_tables(_named(documents[0]), table(self.NAME))
        document: dict[str, Any] = {"task": "training", **parsed.document()}
        split = document.setdefault("parallelism", {})
        split["zero"] = _zero(parsed)
        full = parsed.on(_FSDP + "fsdp_activation_checkpointing") or parsed.on("gradient_checkpointing")
        split["recompute"] = "full" if full else "none"
        split["overlap"] = (parsed.text(_FSDP + "fsdp_backward_prefetch") or "").upper() != "NO_PREFETCH"
        mixed = (parsed.text("mixed_precision") or "no").lower()
        mixed = "bf16" if parsed.on("bf16") else "fp16" if parsed.on("fp16") else mixed
        # YAML reads an unquoted `no` as false, which is what it means.
        put(document, "workload.precision", {"no": "fp32", "false": "fp32"}.get(mixed, mixed))
        micro = parsed.whole("per_device_train_batch_size")
        if micro is not None:
            split["micro_batch"] = micro
        count = parsed.whole("num_processes")
        _shards(parsed, split, count)
        if micro and count:
            ranks = count // ((split.get("tp") or 1) * (split.get("cp") or 1))
            put(document, "workload.batch_size", micro * (parsed.whole("gradient_accumulation_steps") or 1) * ranks)
        found = Reading.of(parsed, document, parsed.warnings, accelerators=count)
        return found.placed(on or notes.get("fleet"), model or notes.get("model"))

    def arguments(self, plan: Plan, answer: Answer) -> list[Setting]:
        """The keys of a completed plan, with their reasons."""
        split, work, zero = plan.parallelism, plan.workload, plan.parallelism.zero or 0
        if work.precision not in ("bf16", "fp16", "fp8", "fp32"):
            raise InputError(
                f"Accelerate has bf16, fp16, fp8 and no; it has no value for {work.precision}.", field="precision"
            )
        check_launcher(self.NAME, answer.layout)
        fleet = find_fleets(plan.hardware).one
        tp, cp = split.tp or 1, split.cp or 1
        copies = (split.dp or 1) // min(split.zero_shard or split.dp or 1, split.dp or 1)
        wide = tp > 1 or cp > 1 or copies > 1
        rows: Rows = {
            "compute_environment": ("LOCAL_MACHINE", ""),
            "distributed_type": ("FSDP", ""),
            "mixed_precision": ("no" if work.precision == "fp32" else work.precision, "workload.precision"),
            "num_machines": (fleet.count, "accelerators"),
            "num_processes": (fleet.total_accelerators, "parallelism.dp"),
            _FSDP + "fsdp_version": (2, "fully_shard of PyTorch"),
            _FSDP + "fsdp_reshard_after_forward": (zero == 3, "parallelism.zero"),
            _FSDP + "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "a layer is a unit of sharding"),
            _FSDP + "fsdp_activation_checkpointing": (split.recompute == "full", "parallelism.recompute"),
            _FSDP + "fsdp_offload_params": (True if split.offload_weights else None, "parallelism.offload_weights"),
            _PARALLEL + "dp_shard_size": (split.zero_shard or split.dp or 1 if wide else None, "parallelism.dp"),
            _PARALLEL + "dp_replicate_size": (copies if copies > 1 else None, "parallelism.zero_shard"),
            _PARALLEL + "tp_size": (tp if wide else None, "parallelism.tp"),
            _PARALLEL + "cp_size": (cp if wide else None, "parallelism.cp"),
        }
        return settings(rows, reasons(plan, answer))

    def write(self, plan: Plan, answer: Answer, details: Details = None) -> str:
        """A configuration for ``accelerate launch --config_file FILE train.py``."""
        final = completed(plan, answer)
        split, made = final.parallelism, self.arguments(final, answer)
        gaps = not_expressed(final, (*self.FIELDS, "workload.model"), table(self.NAME).notes)
        if split.overlap is False:
            gaps.append("parallelism.overlap = false (FSDP2 always gathers ahead)")
        micro = split.micro_batch or 1
        steps = max(1, (final.workload.batch_size or 1) // (split.dp or 1) // micro)
        how = f"Run: accelerate launch --config_file FILE train.py; per_device_train_batch_size {micro}, gradient_accumulation_steps {steps}"
        out: dict[str, Any] = {}
        for flag, value, reason in (*made, *kept(details, made, table(self.NAME).flags)):
            put(out, flag, Why(value, reason))
        top = comment(header(final, answer, "Accelerate configuration for FSDP", gaps, how))
        return "\n".join([*top, *write_yaml(out)]) + "\n"


def _named(tables: dict[str, Any]) -> dict[str, Any]:
    """Keys of ``fsdp_config`` with the prefix that Trainer leaves out."""
    out = dict(tables)
    inner = out.get("fsdp_config")
    if isinstance(inner, dict):
        known = {"transformer_layer_cls_to_wrap", "backward_prefetch", "forward_prefetch", "reshard_after_forward", "use_orig_params",
                 "activation_checkpointing", "cpu_ram_efficient_loading", "sync_module_states", "state_dict_type", "version"}  # fmt: skip
        out["fsdp_config"] = {f"fsdp_{key}" if key in known else key: value for key, value in inner.items()}
    return out


def _shards(parsed: Parsed, split: dict[str, Any], count: int | None) -> None:
    """What is with the host, and the ranks that share a model where replicas do (HSDP: those of a node where nothing is said)."""
    if parsed.values.get(_FSDP + "fsdp_offload_params") is True or "offload" in (parsed.text("fsdp") or ""):
        split |= {"offload": 1.0, "offload_weights": 1.0}
    own, copies = (parsed.whole(_PARALLEL + f"dp_{name}_size") for name in ("shard", "replicate"))
    named = (parsed.text(_FSDP + "fsdp_sharding_strategy") or parsed.text("fsdp") or "").upper()
    ranks = (count or 0) // ((split.get("tp") or 1) * (split.get("cp") or 1))
    if (copies or 1) > 1:
        split["zero_shard"] = own or ranks // (copies or 1) or None
    elif "HYBRID" in named or named in ("4", "5"):
        split["zero_shard"] = ranks // (parsed.whole("num_machines") or 1) or None
    if split.get("zero_shard", 1) is None:
        del split["zero_shard"]
        parsed.warnings.append("The model is sharded inside replicas (HSDP) of a size that the file does not say.")


def _zero(parsed: Parsed) -> int:
    words = (parsed.text("fsdp") or "").replace(",", " ").split()
    trainer = next((w.upper() for w in words if w.upper() in _STRATEGIES), None)
    strategy = parsed.text(_FSDP + "fsdp_sharding_strategy") or trainer
    reshard = parsed.values.get(_FSDP + "fsdp_reshard_after_forward")
    text = str(reshard).upper() if reshard is not None else strategy or "FULL_SHARD"
    stages = _STRATEGIES if reshard is None else {**_STRATEGIES, "TRUE": 3, "FALSE": 2}
    if text.upper() not in stages:
        raise InputError(
            f"The sharding strategy is one of {', '.join(list(_STRATEGIES)[:5])}, got {text[:40]!r}.", field="zero"
        )
    return stages[text.upper()]
