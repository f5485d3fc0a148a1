"""Runs of serving engines at a concurrency: TTFT and TPOT, aggregated and disaggregated, each asked as a serving plan.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    speculative decoding  no draft tokens where the column is empty
    token budget          the engine's default
    TensorRT-LLM          Llama with prompts of 1,024 and answers of 1,024 tokens on fewer than 8 devices waits 20 steps for
                          prompts to gather
    prefill workers       prompts of up to 8,192 tokens share a step
    fp4                   MXFP4 for models that are published in it (gpt-oss), else NVFP4
    warm-up               none before 2026-01-21
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.prediction import Excluded, Skipped
from mlsysim.calibrate.questions import Question, whole_nodes, without_none
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import precision_name
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import chip_class, engine

COLUMNS = ("engine", "mode", "isl", "osl", "concurrency", "decode_slots", "mtp_tokens", "ttft_ms", "tpot_ms")

_GATHER_STEPS = 20
_WARMED = "2026-01-21"
"""From this day on the benchmark's client warms the engine up."""


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if row.get("duplicate_of"):
        raise Excluded(f"the same run as {row['duplicate_of']}")
    if row.get("unusable"):
        raise Excluded(row["unusable"])
    inferred: list[str] = []
    plan = plan_of(row, inferred)
    measured = chip_class(_chip(row["gpu"])) in ("Hopper", "Blackwell", "Ampere")
    kind = "serving disaggregated" if row["mode"] == "disagg" else "serving"
    found = [
        Question(
            f"{name}_ms", float(row[f"{name}_ms"]), plan, name, "ms", 1.0, f"{kind} {name}", measured, tuple(inferred)
        )
        for name in ("tpot", "ttft")
        if row.get(f"{name}_ms")
    ]
    if not found:
        raise Excluded("no measured value")
    return found


def _chip(name: str) -> HardwareNode:
    try:
        return Hardware.get(name)
    except MLSysError as error:
        raise Skipped(f"unknown chip: {error}") from None


def _model(name: str) -> TransformerWorkload:
    try:
        model = Models.get(name)
    except MLSysError as error:
        raise Skipped(f"unknown model: {error}") from None
    if not isinstance(model, TransformerWorkload) or not model.has_dimensions:
        raise Skipped(f"{name} has no public configuration")
    return model


def _whole(row: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = row.get(name) or ""
    if not text:
        if default is None:
            raise Skipped(f"{name} is not given")
        return default
    return int(float(text))


def _format(row: Mapping[str, str]) -> str:
    """The number format of the weights; "fp4" is what the model is published in."""
    name = row["precision"].lower()
    if name == "fp4":
        return "mxfp4" if "gpt-oss" in row["model"].lower() else "nvfp4"
    try:
        return precision_name(name)
    except MLSysError:
        raise Skipped(f"unknown precision: {row['precision']}") from None


def _layout(row: Mapping[str, str], pool: str) -> tuple[int, int, int]:
    """TP, EP and devices of a worker of a pool ("prefill_", "decode_"), or of a service in one piece ("")."""
    tp, ranks = _whole(row, f"{pool}tp"), _whole(row, f"{pool}attention_dp", 1)
    experts = _whole(row, f"{pool}moe_ep", 1)
    mixed = _whole(row, f"{pool}moe_tp", 1) * experts
    if ranks > 1 and experts != tp * ranks:
        raise Skipped(f"attention in {ranks} copies beside experts on {experts} of {mixed} devices is not modelled")
    return tp, experts, tp * ranks


def plan_of(row: Mapping[str, str], inferred: list[str]) -> Plan:
    """The serving plan that a row describes."""
    model, chip, runner = _model(row["model"]), _chip(row["gpu"]), engine(row["engine"])
    ratio = row.get("length_min_fraction") or ""
    if not ratio:
        inferred.append("lengths all equal")
    if not row.get("mtp_tokens"):
        inferred.append("no draft tokens")
    serving: dict[str, Any] = {
        "prompt_tokens": _whole(row, "isl"),
        "output_tokens": _whole(row, "osl"),
        "concurrency": _whole(row, "concurrency"),
        "engine": runner.name,
        "cache_precision": row.get("kv_dtype") or "bf16",
        "range_ratio": float(ratio) if ratio and float(ratio) != 1 else None,
        "draft_tokens": _whole(row, "mtp_tokens", 0) or None,
    }
    name = chip.metadata.key or chip.name
    if row["mode"] == "disagg":
        inferred.append("prompts of up to 8192 tokens share a prefill step")
        tp, ep, each = _layout(row, "prefill_")
        decode_tp, decode_ep, decode_each = _layout(row, "decode_")
        workers, writers = _whole(row, "prefill_workers"), _whole(row, "decode_workers")
        slots = _whole(row, "decode_slots", 0)
        serving |= {
            "replicas": workers,
            "decode_on": whole_nodes(writers * decode_each, name),
            "decode_tp": decode_tp,
            "decode_ep": decode_ep,
            "decode_replicas": writers,
            "redundant_experts": -getattr(model, "experts", 1) % decode_ep or None,
            "max_num_seqs": max(1, round(slots / writers)) if slots else None,
        }
        devices = workers * each
    else:
        tp, ep, devices = _layout(row, "")
        if not row.get("token_budget"):
            inferred.append(f"token budget {runner.token_budget}")
        if _waits(row, model, runner.name, tp):
            inferred.append(f"{_GATHER_STEPS} steps until prompts have gathered")
            serving["wait_steps"] = _GATHER_STEPS
        serving |= {
            "replicas": 1,
            "chunk_tokens": _whole(row, "token_budget", 0) or None,
            "poll_steps": _whole(row, "poll_steps", 0) or None,
            "warm_up": None if (row.get("measured") or _WARMED) >= _WARMED else False,
        }
    document = without_none(
        task="serving",
        workload={"model": model.metadata.key or row["model"], "precision": _format(row)},
        hardware={"on": whole_nodes(devices, name), "efficiency": "calibrated"},
        parallelism={"tp": tp, "ep": ep if ep > 1 else None},
        serving=serving,
    )
    try:
        return Plan.model_validate(document)
    except MLSysError as error:
        raise Skipped(str(error)) from None


def _waits(row: Mapping[str, str], model: TransformerWorkload, runner: str, tp: int) -> bool:
    dense = getattr(model, "experts", 1) <= 1
    return runner.startswith("TensorRT_LLM") and dense and row["isl"] == row["osl"] == "1024" and tp < 8
