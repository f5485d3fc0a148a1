"""Runs of serving engines at a concurrency: TTFT and TPOT, aggregated and disaggregated.

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

from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.cases.closed_loop import Clients, Loop, closed_loop, disaggregated_loop
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import precision_name
from mlsysim.timing.engine_step import EngineStep, engine_step
from mlsysim.timing.engines import Engine, chip_class, engine

__all__ = ["COLUMNS", "build", "loop", "predict"]

COLUMNS = ("engine", "mode", "isl", "osl", "concurrency", "decode_slots", "mtp_tokens", "ttft_ms", "tpot_ms")

_ROUNDS = 10
_GATHER_STEPS = 20.0
_WARMED = "2026-01-21"
"""From this day on the benchmark's client warms the engine up."""


def predict(row: Mapping[str, str]) -> list[Prediction]:
    """TPOT and TTFT of a run."""
    if row.get("duplicate_of"):
        raise Excluded(f"the same run as {row['duplicate_of']}")
    if row.get("unusable"):
        raise Excluded(row["unusable"])
    inferred: list[str] = []
    try:
        outcome = loop(row, inferred)
        measured = chip_class(_chip(row["gpu"])) in ("Hopper", "Blackwell", "Ampere")
    except MLSysError as error:
        raise Skipped(str(error)) from None
    kind = "serving disaggregated" if row["mode"] == "disagg" else "serving"
    notes = {"active": outcome.active, "waiting": outcome.waiting, "ttft_steady_ms": outcome.ttft_steady * 1e3}
    found = []
    for metric, value in (("tpot_ms", outcome.tpot), ("ttft_ms", outcome.ttft)):
        if row.get(metric):
            regime = f"{kind} {metric[:4]}"
            found.append(Prediction(metric, float(row[metric]), value * 1e3, regime, measured, tuple(inferred), notes))
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


def build(row: Mapping[str, str], runner: Engine, prefix: str) -> EngineStep:
    """The steps of a pool of workers ("prefill_", "decode_"), or of a service in one piece ("")."""
    return engine_step(
        _model(row["model"]),
        _chip(row["gpu"]),
        runner,
        precision=_format(row),
        cache_precision=row.get("kv_dtype") or "bf16",
        tp=_whole(row, f"{prefix}tp"),
        attention_dp=_whole(row, f"{prefix}attention_dp", 1),
        moe_tp=_whole(row, f"{prefix}moe_tp", 1),
        moe_ep=_whole(row, f"{prefix}moe_ep", 1),
    )


def loop(row: Mapping[str, str], inferred: list[str], with_engine: Engine | None = None) -> Loop:
    """The closed loop that a row describes."""
    runner = with_engine or engine(row["engine"])
    shortest = row.get("length_min_fraction") or ""
    if not shortest:
        inferred.append("lengths all equal")
    clients = Clients(float(row["concurrency"]), float(row["isl"]), float(row["osl"]), float(shortest or 1.0), _ROUNDS)
    if not row.get("mtp_tokens"):
        inferred.append("no draft tokens")
    drafted = _whole(row, "mtp_tokens", 0)

    if row["mode"] == "disagg":
        inferred.append("prompts of up to 8192 tokens share a prefill step")
        return disaggregated_loop(
            build(row, runner, "prefill_"),
            _whole(row, "prefill_workers"),
            build(row, runner, "decode_"),
            _whole(row, "decode_workers"),
            clients,
            slots=_whole(row, "decode_slots", 0) or None,
            drafted=drafted,
        )
    step = build(row, runner, "")
    if not row.get("token_budget"):
        inferred.append(f"token budget {runner.token_budget}")
    wait = 0.0
    dense = not step.mixture
    if (
        runner.name.startswith("TensorRT_LLM")
        and dense
        and clients.prompt == clients.answer == 1024
        and step.deployment.tp < 8
    ):
        inferred.append("20 steps until prompts have gathered")
        wait = _GATHER_STEPS
    return closed_loop(
        step,
        clients,
        token_budget=float(row["token_budget"]) if row.get("token_budget") else None,
        poll_steps=float(row.get("poll_steps") or 1),
        wait_steps=wait,
        drafted=drafted,
        warm=(row.get("measured") or _WARMED) >= _WARMED,
    )
