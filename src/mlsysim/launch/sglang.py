"""SGLang: ``python -m sglang.launch_server``.

A replica whose experts span more ranks than its attention's tensor group is written with DP attention: ``--tp-size`` is then the number of all
ranks of the replica and ``--dp-size`` the number of attention groups. Otherwise ``--dp-size`` makes replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch import serving
from mlsysim.launch.flags import parse, table
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import reasons
from mlsysim.launch.scripts import Setting
from mlsysim.launch.serving import FIELDS
from mlsysim.launch.shell import Script
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

__all__ = ["FIELDS", "NAME", "after", "arguments", "read", "read_command", "write"]

NAME, ENGINE, COMMAND = "sglang", "SGLang", "python -m sglang.launch_server"
_FORMATS = {
    "fp8": "fp8", "modelopt": "fp8", "modelopt_fp8": "fp8", "w8a8_fp8": "fp8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4",
    "moe_wna16": "int4", "w4afp8": "int4", "modelopt_fp4": "nvfp4", "nvfp4_online": "nvfp4", "petit_nvfp4": "nvfp4", "mxfp4": "mxfp4",
    "quark_mxfp4": "mxfp4", "w8a8_int8": "int8", "auto_round_int8": "int8",
}  # fmt: skip
_QUANTISED = {"fp8": "fp8", "int4": "awq", "nvfp4": "modelopt_fp4", "mxfp4": "mxfp4", "int8": "w8a8_int8"}
_CACHES = {"fp8": "fp8_e4m3", "bf16": "bf16"}


def after(words: list[str]) -> int | None:
    """Where the arguments begin, of a command of SGLang."""
    for i, word in enumerate(words):
        if word in ("sglang.launch_server", "sglang::launch_server"):
            return i + 1
        if word.rsplit("/", 1)[-1] == "sglang" and words[i + 1 : i + 2] == ["serve"]:
            return i + 2
    return None


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a command says."""
    words, script = serving.find_command(text, after, "SGLang: no 'python -m sglang.launch_server'")
    return read_command(words, script, on, model)


def read_command(words: list[str], script: Script, on: str | None = None, model: str | None = None) -> Reading:
    """What the arguments of one command say."""
    parsed = parse(words, table(NAME))
    name = parsed.text("--model-path") or (parsed.positional[0] if parsed.positional else None)
    document, warnings = serving.begin(parsed, name, ENGINE, script)
    split, traffic = document["parallelism"], document["serving"]
    ranks, dp = parsed.whole("--tp-size") or 1, parsed.whole("--dp-size") or 1
    grouped = parsed.on("--enable-dp-attention")
    split.setdefault("pp", 1)
    if grouped:
        if ranks % dp:
            raise InputError(f"With DP attention --tp-size {ranks} must be a multiple of --dp-size {dp}.", field="tp")
        split["tp"] = ranks // dp
        split["ep"] = max(split.get("ep") or 1, ranks)
        traffic["replicas"] = 1
    else:
        split["tp"] = ranks
        traffic["replicas"] = dp
    flags = ("--dtype", "--quantization", "--kv-cache-dtype")
    serving.put_formats(document, parsed, flags, name, _FORMATS, warnings)
    cap = parsed.whole("--max-running-requests")
    if cap is not None:
        traffic["concurrency"] = cap * (1 if grouped else dp)
    if (traffic.get("chunk_tokens") or 0) < 0:
        # -1 switches chunks off.
        del traffic["chunk_tokens"]
    _draft(parsed, document, warnings)
    own = {
        "parallelism.tp": "--tp-size",
        "serving.replicas": "--dp-size",
        "workload.precision": "--quantization / --dtype",
        "serving.cache_precision": "--kv-cache-dtype",
        "serving.concurrency": "--max-running-requests",
    }
    return serving.finish(NAME, document, parsed, warnings, script, own, on, model)


def _draft(parsed: Any, document: dict[str, Any], warnings: list[str]) -> None:
    method, model = parsed.text("--speculative-algorithm"), parsed.text("--speculative-draft-model-path")
    if method is None and model is None:
        return
    if method != "STANDALONE" or model is None:
        warnings.append(
            f"Speculative decoding by {str(method)[:40]} is not part of a plan; times are those without it."
        )
        return
    serving.put_draft(document, model, parsed.whole("--speculative-num-steps"), warnings)


def arguments(plan: Plan, answer: Answer, replicas: bool = True) -> tuple[list[Setting], list[str]]:
    """The arguments of a completed plan, and what they cannot say; without ``replicas``, of one replica."""
    split, traffic, why = plan.parallelism, plan.serving, reasons(plan, answer)
    assert traffic is not None
    tp, ep, gaps = split.tp or 1, split.ep or 1, []
    out = [Setting("--model-path", serving.checkpoint(plan)[0], why["workload.model"])]
    copies = traffic.replicas or 1
    if ep > tp:
        groups = max(1, ep // tp)
        out.append(Setting("--tp-size", str(groups * tp), f"all ranks of a replica; {why['parallelism.tp']}"))
        out.append(Setting("--dp-size", str(groups), f"groups of attention of TP {tp}"))
        out.append(Setting("--enable-dp-attention"))
        if ep % tp:
            gaps.append(f"parallelism.ep = {ep} (with DP attention it is a multiple of TP {tp})")
        if copies > 1 and replicas:
            gaps += serving.one_server(plan)
    else:
        out.append(Setting("--tp-size", str(tp), why["parallelism.tp"]))
        if replicas:
            out.append(Setting("--dp-size", str(copies), why["serving.replicas"]))
    out.append(Setting("--pp-size", str(split.pp or 1), why["parallelism.pp"]))
    if ep > 1:
        out.append(Setting("--ep-size", str(ep), why["parallelism.ep"]))
    formats, missing = serving.format_settings(plan, why, _QUANTISED, _CACHES, "SGLang has caches in BF16 and FP8")
    out += formats
    gaps += missing
    cap = serving.cap_of(plan)
    if cap is not None:
        out.append(Setting("--max-running-requests", str(cap), why["serving.concurrency"]))
    if traffic.chunk_tokens is not None:
        out.append(Setting("--chunked-prefill-size", str(traffic.chunk_tokens), why["serving.chunk_tokens"]))
    if traffic.memory_fraction is not None:
        out.append(Setting("--mem-fraction-static", repr(traffic.memory_fraction), why["serving.memory_fraction"]))
    if traffic.draft_model is not None:
        out.append(Setting("--speculative-algorithm", "STANDALONE", why["serving.draft_model"]))
        out.append(Setting("--speculative-draft-model-path", checkpoint_of(traffic.draft_model)[0]))
        if traffic.draft_tokens is not None:
            out.append(Setting("--speculative-num-steps", str(traffic.draft_tokens), why["serving.draft_tokens"]))
            out.append(Setting("--speculative-eagle-topk", "1"))
            out.append(Setting("--speculative-num-draft-tokens", str(traffic.draft_tokens + 1)))
    if traffic.prompt_tokens and traffic.output_tokens:
        out.append(Setting("--context-length", str(traffic.prompt_tokens + traffic.output_tokens), why["lengths"]))
    return out, gaps


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
    """A script that serves the plan."""
    final = serving.final_plan(plan, answer)
    settings, gaps = arguments(final, answer)
    settings = serving.without_details(NAME, settings, details)
    gaps = [*serving.gaps_of(final, ENGINE), *gaps, *serving.checkpoint(final)[1]]
    return serving.script_of(final, answer, "SGLang", COMMAND, settings, gaps, details)
