"""vLLM: ``vllm serve``.

Expert parallelism spans all TP x DP ranks: with it, ``--data-parallel-size`` makes groups of attention that share the experts of one replica, and
further replicas are further servers. Without it, it makes replicas.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.importers.limits import load_json
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

NAME, ENGINE, COMMAND = "vllm", "vLLM", "vllm serve"
_FORMATS = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "fp8_per_tensor": "fp8", "fp8_per_block": "fp8", "fp8_per_channel": "fp8", "deepseek_v4_fp8": "fp8",
    "awq": "int4", "auto_awq": "int4", "awq_marlin": "int4", "gptq": "int4", "auto_gptq": "int4", "gptq_marlin": "int4", "moe_wna16": "int4",
    "modelopt_fp4": "nvfp4", "nvfp4_per_token": "nvfp4", "mxfp4": "mxfp4", "gpt_oss_mxfp4": "mxfp4", "experts_int8": "int8",
    "int8_per_channel_weight_only": "int8",
}  # fmt: skip
_QUANTISED = {"fp8": "fp8", "int4": "awq", "nvfp4": "modelopt_fp4", "mxfp4": "mxfp4"}
_CACHES = {"fp8": "fp8", "bf16": "bfloat16", "fp16": "float16"}


def after(words: list[str]) -> int | None:
    """Where the arguments begin, of a command of vLLM."""
    for i, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "vllm" and words[i + 1 : i + 2] == ["serve"]:
            return i + 2
        if word == "vllm.entrypoints.openai.api_server" or word.endswith("/vllm/entrypoints/openai/api_server.py"):
            return i + 1
        if word.split(":")[0].endswith("vllm/vllm-openai"):
            return i + 1
    return None


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a command says."""
    words, script = serving.find_command(text, after, "vLLM: no 'vllm serve MODEL'")
    return read_command(words, script, on, model)


def read_command(words: list[str], script: Script, on: str | None = None, model: str | None = None) -> Reading:
    """What the arguments of one command say."""
    parsed = parse(words, table(NAME))
    name = parsed.text("--model") or (parsed.positional[0] if parsed.positional else None)
    document, warnings = serving.begin(parsed, name, ENGINE, script)
    split, traffic = document["parallelism"], document["serving"]
    tp, dp = split.setdefault("tp", 1), parsed.whole("--data-parallel-size") or 1
    split.setdefault("pp", 1)
    if parsed.on("--enable-expert-parallel"):
        split["ep"], traffic["replicas"] = tp * dp, 1
    else:
        traffic["replicas"] = dp
    flags = ("--dtype", "--quantization", "--kv-cache-dtype")
    serving.put_formats(document, parsed, flags, name, _FORMATS, warnings)
    cap = parsed.whole("--max-num-seqs")
    if cap is not None:
        traffic["concurrency"] = cap * (dp if not parsed.on("--enable-expert-parallel") else 1)
    draft = parsed.text("--speculative-config")
    if draft is not None:
        _draft(draft, document, warnings)
    own = {
        "serving.replicas": "--data-parallel-size",
        "parallelism.ep": "--enable-expert-parallel",
        "workload.precision": "--quantization / --dtype",
        "serving.cache_precision": "--kv-cache-dtype",
        "serving.concurrency": "--max-num-seqs",
    }
    return serving.finish(NAME, document, parsed, warnings, script, own, on, model)


def _draft(text: str, document: dict[str, Any], warnings: list[str]) -> None:
    given = load_json(text, 8, name="--speculative-config")
    if not isinstance(given, dict):
        raise InputError('--speculative-config is a JSON object, such as {"model": ..., "num_speculative_tokens": 3}.')
    method, model, tokens = given.get("method"), given.get("model"), given.get("num_speculative_tokens")
    if not isinstance(model, str) or method not in (None, "draft_model"):
        warnings.append(
            f"Speculative decoding by {str(method)[:40]!r} is not part of a plan; times are those without it."
        )
        return
    whole = isinstance(tokens, int) and not isinstance(tokens, bool)
    serving.put_draft(document, model, tokens if whole else None, warnings)


def arguments(plan: Plan, answer: Answer, replicas: bool = True) -> tuple[list[Setting], list[str]]:
    """The arguments of a completed plan after the model, and what they cannot say; without ``replicas``, of one replica."""
    split, traffic, why = plan.parallelism, plan.serving, reasons(plan, answer)
    assert traffic is not None
    tp, ep, gaps = split.tp or 1, split.ep or 1, []
    out = [
        Setting("--tensor-parallel-size", str(tp), why["parallelism.tp"]),
        Setting("--pipeline-parallel-size", str(split.pp or 1), why["parallelism.pp"]),
    ]
    copies = traffic.replicas or 1
    if ep > 1:
        if ep % tp:
            gaps.append(f"parallelism.ep = {ep} (vLLM spreads experts over all TP x DP ranks)")
        out.append(
            Setting(
                "--data-parallel-size",
                str(max(1, ep // tp)),
                f"groups of attention that share the experts: EP {ep} over TP {tp}",
            )
        )
        out.append(Setting("--enable-expert-parallel", None, why["parallelism.ep"]))
        if copies > 1 and replicas:
            gaps += serving.one_server(plan)
    elif replicas:
        out.append(Setting("--data-parallel-size", str(copies), why["serving.replicas"]))
    formats, missing = serving.format_settings(plan, why, _QUANTISED, _CACHES, "vLLM has caches in 16 bits and FP8")
    out += formats
    gaps += missing
    cap = serving.cap_of(plan)
    if cap is not None:
        out.append(Setting("--max-num-seqs", str(cap), why["serving.concurrency"]))
    if traffic.chunk_tokens is not None:
        out.append(Setting("--max-num-batched-tokens", str(traffic.chunk_tokens), why["serving.chunk_tokens"]))
        out.append(Setting("--enable-chunked-prefill"))
    if traffic.memory_fraction is not None:
        out.append(Setting("--gpu-memory-utilization", repr(traffic.memory_fraction), why["serving.memory_fraction"]))
    if traffic.draft_model is not None:
        draft: dict[str, Any] = {"model": checkpoint_of(traffic.draft_model)[0], "method": "draft_model"}
        if traffic.draft_tokens is not None:
            draft["num_speculative_tokens"] = traffic.draft_tokens
        out.append(Setting("--speculative-config", json.dumps(draft), why["serving.draft_model"]))
    if traffic.prompt_tokens and traffic.output_tokens:
        out.append(Setting("--max-model-len", str(traffic.prompt_tokens + traffic.output_tokens), why["lengths"]))
    return out, gaps


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
    """A script that serves the plan."""
    final = serving.final_plan(plan, answer)
    name, unknown = serving.checkpoint(final)
    settings, gaps = arguments(final, answer)
    settings = serving.without_details(NAME, settings, details)
    gaps = [*serving.gaps_of(final, ENGINE), *gaps, *unknown]
    return serving.script_of(final, answer, "vLLM", f"{COMMAND} {shlex.quote(name)}", settings, gaps, details)
