"""What the serving engines share: number formats, requests in flight, draft models, and the frame of a serve script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch.flags import Parsed, data_table, put, table
from mlsysim.launch.model_names import checkpoint_of, model_named, precision_in_name
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import completed, header, not_expressed
from mlsysim.launch.scripts import Setting, array, comment, details_of
from mlsysim.launch.shell import Script, read_script
from mlsysim.plans.answer import Answer
from mlsysim.plans.fleet_text import parse_fleet
from mlsysim.plans.plan import Plan

FIELDS = (
    "workload.model", "workload.precision", "parallelism.tp", "parallelism.pp", "parallelism.ep", "serving.concurrency", "serving.replicas",
    "serving.engine", "serving.cache_precision", "serving.chunk_tokens", "serving.draft_model", "serving.draft_tokens",
    "serving.memory_fraction",
)  # fmt: skip
"""Fields of a plan that serve commands express."""
_NOTES = {
    "serving.prompt_tokens": "traffic, not a setting",
    "serving.output_tokens": "traffic, not a setting",
    "serving.ttft": "a limit on what comes out",
    "serving.tpot": "a limit on what comes out",
    "serving.latency": "a limit on what comes out",
    "serving.acceptance": "a property of the draft model",
    "serving.cached_prefix": "a property of the traffic; engines share prefixes by themselves",
    "serving.decode_on": "start prefill and decode servers with a connector of the engine",
    "serving.network": "a property of the cluster",
}
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp32": "fp32",
}
DTYPE_OF = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def find_command(text: str, after: Callable[[list[str]], int | None], what: str) -> tuple[list[str], Script]:
    """The words after the command that a target claims."""
    script = read_script(text)
    for command in reversed(script.commands):
        start = after(command)
        if start is not None:
            return command[start:], script
    raise InputError(f"The text has no command of {what}.")


def weight_format(
    dtype: str | None,
    quantisation: str | None,
    model: str,
    key: str | None,
    formats: Mapping[str, str],
    warnings: list[str],
) -> str | None:
    """The number format of weights and arithmetic that flags and the checkpoint's name give."""
    if quantisation is not None and quantisation.lower() not in ("none", "null"):
        found = formats.get(quantisation.lower().replace("-", "_"))
        if found is not None:
            return found
        warnings.append(
            f"The quantisation {quantisation[:40]!r} does not say its number format; it was taken from the model's name."
        )
    named = precision_in_name(model)
    if named is not None:
        return named
    if dtype is None or dtype == "auto":
        return data_table("native_formats").get(key or "")
    if dtype.lower() not in _DTYPES:
        raise InputError(
            f"The format of weights is one of {', '.join(_DTYPES)}, got {dtype[:40]!r}.", field="precision"
        )
    return _DTYPES[dtype.lower()]


def cell_format(text: str | None, warnings: list[str]) -> str | None:
    """The number format of caches."""
    if text is None or text == "auto":
        return None
    plain = text.lower()
    if plain.startswith("fp8") or plain == "mxfp8":
        return "fp8"
    if plain in _DTYPES:
        return _DTYPES[plain]
    if plain in ("int8", "nvfp4", "mxfp4", "int4", "fp4"):
        return plain
    warnings.append(f"The format of caches {text[:40]!r} was not read.")
    return None


def put_formats(
    document: dict[str, Any],
    parsed: Parsed,
    flags: tuple[str, str, str],
    name: str | None,
    formats: Mapping[str, str],
    warnings: list[str],
) -> None:
    """Number formats of weights and caches, of the flags for format, quantisation and caches, or of the checkpoint's name."""
    dtype, quantisation, caches = (parsed.text(flag) for flag in flags)
    precision = weight_format(dtype, quantisation, name or "", document["workload"].get("model"), formats, warnings)
    if precision is not None:
        put(document, "workload.precision", precision)
    cells = cell_format(caches, warnings)
    if cells is not None:
        put(document, "serving.cache_precision", cells)


def put_draft(document: dict[str, Any], model: str, tokens: int | None, warnings: list[str]) -> None:
    """The draft model of speculative decoding, and how many tokens it proposes."""
    try:
        put(document, "serving.draft_model", model_named(model))
    except InputError as error:
        warnings.append(str(error))
        return
    if tokens is not None:
        put(document, "serving.draft_tokens", tokens)


def begin(parsed: Parsed, model: str | None, engine: str, script: Script) -> tuple[dict[str, Any], list[str]]:
    """The document of a plan with what flags set as they stand, and the model."""
    document = parsed.document()
    document["task"] = "serving"
    document.setdefault("parallelism", {})
    warnings = [*script.warnings, *parsed.warnings]
    put(document, "serving.engine", engine)
    note = script.notes.get("model")
    if model is not None:
        try:
            put(document, "workload.model", model_named(model))
        except InputError as error:
            if note is None:
                warnings.append(str(error))
    if note is not None:
        put(document, "workload.model", note)
    document.setdefault("workload", {})
    return document, warnings


def format_settings(
    plan: Plan, why: Mapping[str, str], quantised: Mapping[str, str], caches: Mapping[str, str], has: str
) -> tuple[list[Setting], list[str]]:
    """The flags of number formats as vLLM and SGLang both name them, and what they cannot say; ``has`` says which caches there are."""
    out, gaps = [], []
    precision = plan.workload.precision or "bf16"
    if precision in DTYPE_OF:
        out.append(Setting("--dtype", DTYPE_OF[precision], why["workload.precision"]))
    elif precision in quantised:
        note = "" if precision == "fp8" else "; the checkpoint must be quantised so"
        out.append(Setting("--quantization", quantised[precision], why["workload.precision"] + note))
    else:
        gaps.append(f"workload.precision = {precision} (serve a checkpoint in it)")
    cells = plan.serving.cache_precision if plan.serving is not None else None
    if cells is not None and cells in caches:
        out.append(Setting("--kv-cache-dtype", caches[cells], why["serving.cache_precision"]))
    elif cells is not None:
        gaps.append(f"serving.cache_precision = {cells} ({has})")
    return out, gaps


def without_details(target: str, settings: list[Setting], details: Mapping[str, Any] | None) -> list[Setting]:
    """Settings less those that a file said itself: what it said of a flag that no field has goes before what is derived."""
    flags, said = table(target).flags, details or {}
    return [setting for setting in settings if not (flags[setting.flag].is_detail and setting.flag in said)]


def cap_of(plan: Plan) -> int | None:
    """Requests of a replica that run at once: the load over the replicas, rounded up."""
    traffic = plan.serving
    if traffic is None or traffic.concurrency is None:
        return None
    return -(-traffic.concurrency // (traffic.replicas or 1))


def one_server(plan: Plan) -> list[str]:
    """What a command that serves one replica cannot say of several."""
    traffic = plan.serving
    if traffic is None or (traffic.replicas or 1) == 1:
        return []
    out = [f"serving.replicas = {traffic.replicas} (start as many of these behind a load balancer)"]
    if traffic.concurrency is not None:
        out.append(f"serving.concurrency = {traffic.concurrency} ({cap_of(plan)} a server)")
    return out


def finish(
    target: str,
    document: dict[str, Any],
    parsed: Parsed,
    warnings: Iterable[str],
    script: Script,
    own: Mapping[str, str],
    on: str | None,
    model: str | None,
) -> Reading:
    """The reading of a serve command."""
    split, traffic = document["parallelism"], document.get("serving", {})
    width = (split.get("tp") or 1) * (split.get("pp") or 1) * max(1, (split.get("ep") or 1) // (split.get("tp") or 1))
    flags = {flag.field: flag.name for flag in table(target).flags.values() if flag.field}
    found = Reading(
        target=target,
        document=document,
        accelerators=width * (traffic.get("replicas") or 1),
        unread=tuple(parsed.unread),
        warnings=tuple(warnings),
        details=parsed.details(),
        flags={**flags, **own},
    )
    fleet = on or script.notes.get("fleet")
    placed = found.placed(fleet, model)
    if fleet is None or found.accelerators is None:
        return placed
    count = parse_fleet(placed.document["hardware"]["on"]).accelerators
    more = found.accelerators < count
    note = f"The command serves on {found.accelerators:,} of the fleet's {count:,} accelerators."
    kept = tuple(w for w in placed.warnings if "the fleet is used" not in w) if more else placed.warnings
    return placed.model_copy(update={"warnings": (*kept, *((note,) if more else ()))})


def gaps_of(
    plan: Plan, engine: str, notes: Mapping[str, str] | None = None, fields: Iterable[str] = FIELDS
) -> list[str]:
    """What a serving plan says that the command cannot."""
    out = not_expressed(plan, fields, {**_NOTES, **(notes or {})})
    given = plan.serving.engine if plan.serving is not None else None
    if given is not None and given != engine:
        out.append(f"serving.engine = {given} (the answer's times are that engine's, not those of {engine})")
    cap, traffic = cap_of(plan), plan.serving
    if cap is not None and traffic is not None and cap * (traffic.replicas or 1) != traffic.concurrency:
        out.append(f"serving.concurrency = {traffic.concurrency} (rounded up to {cap} a replica)")
    return out


def script_of(
    plan: Plan,
    answer: Answer,
    what: str,
    command: str,
    settings: list[Setting],
    gaps: list[str],
    details: Mapping[str, Any] | None,
    before: Iterable[str] = (),
) -> str:
    """A script with one serve command."""
    every = [*settings, *details_of(details, (s.flag for s in settings))]
    lines = ["#!/bin/bash", *comment(header(plan, answer, what, gaps)), "", *before, *array("ARGS", every), ""]
    return "\n".join([*lines, f'{command} "${{ARGS[@]}}"']) + "\n"


def checkpoint(plan: Plan) -> tuple[str, list[str]]:
    """The checkpoint to serve, and what to say where the zoo knows none."""
    name, known = checkpoint_of(plan.workload.model, plan.workload.precision)
    if known:
        return name, []
    return name, [f"the path of the weights (put it in place of {name})"]


def final_plan(plan: Plan, answer: Answer) -> Plan:
    """The completed plan; raises where it does not serve."""
    if answer.task != "serving":
        raise InputError(
            f"This target serves, and the plan is one of {answer.task}; give it serving traffic.", field="task"
        )
    return completed(plan, answer)
