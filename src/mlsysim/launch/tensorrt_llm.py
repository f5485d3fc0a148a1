"""TensorRT-LLM: ``trtllm-serve`` and its file of further options.

The options stand in the script as a here-document, so that one file has both. A server is one replica. Attention split by requests
(``enable_attention_dp``) makes every rank its own attention group: it is written where the plan has TP 1 and experts over more ranks.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from mlsysim.errors import InputError
from mlsysim.launch import serving
from mlsysim.launch.flags import parse, parse_tables, table
from mlsysim.launch.model_names import checkpoint_of
from mlsysim.launch.reading import Reading
from mlsysim.launch.reasons import reasons
from mlsysim.launch.scripts import Setting
from mlsysim.launch.shell import Script
from mlsysim.launch.yaml_text import Why, read_yaml, write_yaml
from mlsysim.plans.answer import Answer
from mlsysim.plans.plan import Plan

NAME, ENGINE, COMMAND = "tensorrt_llm", "TensorRT_LLM", "trtllm-serve"
OPTIONS = "extra_llm_api_options.yaml"
FIELDS = tuple(field for field in serving.FIELDS if field != "serving.memory_fraction")
"""Fields of a plan that command and options express."""
_NOTES = {"serving.memory_fraction": "TensorRT-LLM's fraction is of what the weights leave"}
_FORMATS = {"fp8": "fp8", "fp8_block_scales": "fp8", "nvfp4": "nvfp4", "w4a16_awq": "int4", "w4a16_gptq": "int4", "w4a8_awq": "int4", "w8a8_sq_per_channel": "int8",
            "int8": "int8", "mixed_precision": "fp8"}  # fmt: skip
_QUANTISED = {"fp8": "FP8", "nvfp4": "NVFP4", "int4": "W4A16_AWQ", "int8": "W8A8_SQ_PER_CHANNEL"}
_SAME = {
    "tensor_parallel_size": "--tp_size",
    "pipeline_parallel_size": "--pp_size",
    "moe_expert_parallel_size": "--ep_size",
    "max_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
}
"""Keys of the file that overwrite flags."""


def after(words: list[str]) -> int | None:
    """Where the arguments begin, of a command of TensorRT-LLM."""
    for i, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "trtllm-serve":
            return i + 1 + (words[i + 1 : i + 2] == ["serve"])
    return None


def read(text: str, *, on: str | None = None, model: str | None = None) -> Reading:
    """What a command and its here-document say."""
    words, script = serving.find_command(text, after, "TensorRT-LLM: no 'trtllm-serve MODEL'")
    return read_command(words, script, on, model)


def read_command(words: list[str], script: Script, on: str | None = None, model: str | None = None) -> Reading:
    """What the arguments of one command, and the options of the script's here-document, say."""
    parsed = parse(words, table(NAME))
    name = parsed.positional[0] if parsed.positional else None
    file = parsed.text("--config")
    if file is not None:
        body = script.files.get(file.rsplit("/", 1)[-1])
        if body is None:
            parsed.warnings.append(f"The options of {file[:80]!r} are not in the file and were not read.")
        else:
            _options(body, parsed)
    document, warnings = serving.begin(parsed, name, ENGINE, script)
    split, traffic = document["parallelism"], document["serving"]
    ranks = parsed.whole("--tp_size") or 1
    split.setdefault("pp", 1)
    if parsed.on("enable_attention_dp"):
        split["tp"], split["ep"] = 1, max(ranks, split.get("ep") or 1)
    else:
        split["tp"] = ranks
    keys = ("dtype", "quant_config.quant_algo", "kv_cache_config.dtype")
    serving.put_formats(document, parsed, keys, name, _FORMATS, warnings)
    cap = parsed.whole("--max_batch_size")
    traffic["replicas"] = 1
    if cap is not None:
        traffic["concurrency"] = cap * (ranks if parsed.on("enable_attention_dp") else 1)
    _draft(parsed, document, warnings)
    own = {
        "parallelism.tp": "--tp_size",
        "serving.replicas": "number of servers",
        "workload.precision": "the checkpoint",
        "serving.cache_precision": "kv_cache_config.dtype",
        "serving.concurrency": "--max_batch_size",
    }
    return serving.finish(NAME, document, parsed, warnings, script, own, on, model)


def _options(body: str, parsed: Any) -> None:
    documents = read_yaml(body, "The file of further options")
    if not documents:
        return
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("The file of further options is one table of keys.")
    more = parse_tables(documents[0], table(NAME))
    for key, value in more.values.items():
        parsed.values[_SAME.get(key, key)] = value
    parsed.unread += more.unread
    parsed.warnings += more.warnings


def _draft(parsed: Any, document: dict[str, Any], warnings: list[str]) -> None:
    method, model = (
        parsed.text("speculative_config.decoding_type"),
        parsed.text("speculative_config.speculative_model_dir"),
    )
    if method is None:
        return
    if method.replace("_", "").lower() != "drafttarget" or model is None:
        warnings.append(f"Speculative decoding by {method[:40]} is not part of a plan; times are those without it.")
        return
    serving.put_draft(document, model, parsed.whole("speculative_config.max_draft_len"), warnings)


def arguments(plan: Plan, answer: Answer) -> tuple[list[Setting], dict[str, Any], list[str]]:
    """The arguments after the model, the file of further options, and what neither can say."""
    split, traffic, why = plan.parallelism, plan.serving, reasons(plan, answer)
    assert traffic is not None
    tp, ep, gaps = split.tp or 1, split.ep or 1, []
    options: dict[str, Any] = {}
    ranks = tp
    if ep > tp:
        if tp == 1:
            ranks = ep
            options["enable_attention_dp"] = Why(True, f"attention of a replica split by requests over {ep} ranks")
        else:
            gaps.append(f"parallelism.ep = {ep} over TP {tp} (TensorRT-LLM has attention over all ranks or one)")
    out = [
        Setting("--tp_size", str(ranks), why["parallelism.tp"]),
        Setting("--pp_size", str(split.pp or 1), why["parallelism.pp"]),
    ]
    if ep > 1:
        out.append(Setting("--ep_size", str(min(ep, ranks)), why["parallelism.ep"]))
    gaps += serving.one_server(plan)
    cap = serving.cap_of(plan)
    if cap is not None:
        if "enable_attention_dp" in options:
            cap = -(-cap // ranks)
        out.append(Setting("--max_batch_size", str(cap), why["serving.concurrency"]))
    if traffic.chunk_tokens is not None:
        out.append(Setting("--max_num_tokens", str(traffic.chunk_tokens), why["serving.chunk_tokens"]))
        options["enable_chunked_prefill"] = Why(True, why["serving.chunk_tokens"])
    precision = plan.workload.precision or "bf16"
    if precision in serving.DTYPE_OF:
        options["dtype"] = Why(serving.DTYPE_OF[precision], why["workload.precision"])
    elif precision in _QUANTISED:
        options["quant_config"] = {
            "quant_algo": Why(
                _QUANTISED[precision], why["workload.precision"] + "; the checkpoint must be quantised so"
            )
        }
    else:
        gaps.append(f"workload.precision = {precision} (serve a checkpoint in it)")
    if traffic.cache_precision in ("fp8", "nvfp4", "bf16", "fp16"):
        value = {"bf16": "bfloat16", "fp16": "float16"}.get(traffic.cache_precision, traffic.cache_precision)
        options["kv_cache_config"] = {"dtype": Why(value, why["serving.cache_precision"])}
    elif traffic.cache_precision is not None:
        gaps.append(
            f"serving.cache_precision = {traffic.cache_precision} (TensorRT-LLM has caches in 16 bits, FP8 and NVFP4)"
        )
    if traffic.draft_model is not None:
        options["speculative_config"] = {
            "decoding_type": Why("DraftTarget", why["serving.draft_model"]),
            "speculative_model_dir": checkpoint_of(traffic.draft_model)[0],
            **({} if traffic.draft_tokens is None else {"max_draft_len": traffic.draft_tokens}),
        }
    if traffic.prompt_tokens and traffic.output_tokens:
        out.append(Setting("--max_seq_len", str(traffic.prompt_tokens + traffic.output_tokens), why["lengths"]))
    if options:
        out.append(Setting("--config", OPTIONS))
    return out, options, gaps


def here_document(options: dict[str, Any]) -> list[str]:
    """Lines that write the file of further options."""
    return [f"cat > {OPTIONS} <<'EOF'", *write_yaml(options), "EOF", ""]


def write(plan: Plan, answer: Answer, details: Mapping[str, Any] | None = None) -> str:
    """A script that writes the options and serves one replica."""
    final = serving.final_plan(plan, answer)
    name, unknown = serving.checkpoint(final)
    settings, options, gaps = arguments(final, answer)
    settings = serving.without_details(NAME, settings, details)
    for path, value in (details or {}).items():
        section, _, key = path.rpartition(".")
        if not path.startswith("-") and path in table(NAME).flags:
            place = options.setdefault(section, {}) if section else options
            place.setdefault(key, Why(value, "kept from the file that was read"))
    before = here_document(options) if options else []
    gaps = [*serving.gaps_of(final, ENGINE, _NOTES, FIELDS), *gaps, *unknown]
    return serving.script_of(
        final, answer, "TensorRT-LLM", f"{COMMAND} {shlex.quote(name)}", settings, gaps, details, before
    )
