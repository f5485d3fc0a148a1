"""Runs of serving engines at a concurrency: TTFT and TPOT, aggregated and disaggregated, each asked as a serving plan.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    speculative decoding  no draft tokens where the column is empty
    token budget          the engine's default
    TensorRT-LLM          Llama with prompts of 1,024 and answers of 1,024 tokens on fewer than 8 devices waits 20 steps for
                          prompts to gather
    prefill workers       prompts of the engine's default share a step
    fp4                   MXFP4 for models that are published in it (gpt-oss), else NVFP4
    warm-up               none before 2026-01-21 by the client of that source, where kernels are compiled at the first full step (NVIDIA's)
    layout                tensor parallelism over as many chips as the label names, or one
    cache                 that of the checkpoint where the engine takes it from there, else 16 bits
    rounds                the requests that a client's words say, over its concurrency; else 10

Where the recipe of a run says otherwise than a column, the recipe holds (https://github.com/SemiAnalysisAI/InferenceX, benchmarks and
their lists of configurations; the columns were filled in by rules of their own):

    GLM-5 on SGLang       looks for requests at every step in 8 bits, at every tenth in 4 bits; on H200 its default budget of 8,192 tokens, and 5
                          requests a client
    DeepSeek, 4 bits      on SGLang and one node, 16,384 tokens a step
    pools of 4 devices    on SGLang, several that write: tensor-parallel. Lists before 2026-04-22 have attention ranks as a placeholder, the one of
                          that day the degrees of the same pools
    TensorRT-LLM's pools  on H200, before 2026-04-22: lists have it the other way round than the one of that day, for runs of the same times, which
                          reads prompts of 1,024 tokens with attention ranks, 8,192 tokens a step, and those of 8,192 with tensor parallelism
    SGLang's pools        prompt tokens of a step (https://github.com/ishandhanani/srt-slurm, recipes): chunked-prefill-size over the attention ranks, at
                          most max-total-tokens. GB200 and GB300 16,384 a rank; of a tensor-parallel pool 8,192 for prompts of 1,024 tokens, 24,576 for
                          those of 8,192, 131,072 in 4 bits beside many that write. B200 32,768 of a worker, 65,536 where many read long ones
    no client named       of that source, runs of its own tool (https://github.com/ai-dynamo/aiconfigurator, generator/rule_plugin/benchmark): I + 1,500
                          prompt tokens a step, on TensorRT-LLM and those of the clients' answers; on SGLang prompts join steps of answers
                          (enable_mixed_chunk); 50 requests a client, after warming up
    genai-perf            measures windows until they are alike (https://github.com/triton-inference-server/perf_analyzer, docs/measurements_metrics.md):
                          clients that began together ask one by one by then, as those of 50 requests each whose lengths differ by a tenth
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import (
    cell,
    chip_of,
    devices_of,
    engine_of,
    experts_of,
    fitting_format,
    key_of,
    model_of,
    served_format,
    served_plan,
    whole,
)
from mlsysim.calibrate.cells import measured as value_of
from mlsysim.calibrate.questions import Excluded, Question, Row, Skipped, whole_nodes
from mlsysim.calibrate.tables.built import stored_cache
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import chip_class, engine
from mlsysim.zoo.intervals import COLD

COLUMNS = ("engine", "mode", "isl", "osl", "concurrency", "decode_slots", "mtp_tokens", "ttft_ms", "tpot_ms")

_ENGINES = {
    "sglang": r"sgl(?:ang)?(?:[ -]v?\d.*)?$",
    "vllm": r"vllm(?:[ -]openai)?(?:[ -]v?[1-9].*)?$",
    "trtllm": "t(?:enso)?rt[-_ ]?llm$",
}
_GATHER_STEPS = 20
_WARMED = "2026-01-21"
"""From this day on the client of :data:`_UNCACHED` warms the engine up."""
_ROOM = 1500
"""Prompt tokens of a step beside one prompt, in runs of the table's own tool."""
_STEADY, _APART = "genai-perf", 0.1
"""The client that measures a steady state, and the spread of lengths that keeps its rounds apart."""
_TOOL = "aiconfigurator"
"""The source whose own tool ran what names no client."""
_UNCACHED = (_TOOL, "inferencex")
"""Sources whose runs are of one client, without a cache of prefixes (--disable-radix-cache)."""
_EVEN = re.compile(r"sglang\.bench(?:mark)?[._]serving.*\brandom\b")
"""A client whose lengths are spread from one token to those it is given, unless its --random-range-ratio says otherwise."""
_SHORT = 2048
"""Prompt tokens up to which recipes of pools are those of short prompts."""
_LISTED = "2026-04-22"
"""The day from which lists have the degrees of small pools."""


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if row.get("duplicate_of"):
        raise Excluded(f"the same run as {row['duplicate_of']}")
    if row.get("unusable"):
        raise Excluded(row["unusable"])
    row = _spelled(row)
    inferred: list[str] = []
    plan = plan_of(row, inferred)
    measured = chip_class(chip_of(row["gpu"])) in ("Hopper", "Blackwell", "Ampere")
    kind = "serving disaggregated" if row["mode"] == "disagg" else "serving"
    first = f"{COLD} ttft" if plan.serving is not None and plan.serving.warm_up is False else "ttft"
    guessed = sum(text.startswith("stands in") for text in inferred)
    values = {name: value_of(row, f"{name}_ms") for name in ("tpot", "ttft") if cell(row, f"{name}_ms")}
    if not values:
        raise Excluded("no measured value")
    return [
        Question(f"{name}_ms", value, plan, name, "ms", 1.0, f"{kind} {about}", measured, tuple(inferred), guessed)
        for name, about in (("tpot", "tpot"), ("ttft", first))
        if (value := values.get(name)) is not None
    ]


def _spelled(row: Mapping[str, str]) -> Row:
    """The row with engine, chip and kind of service as recipes are told by: sglang, h200, agg."""
    word = next(
        (word for word, rule in _ENGINES.items() if re.match(rule, row["engine"], re.IGNORECASE)), row["engine"]
    )
    mode = "disagg" if re.match(r"disagg|p/?d\b|separate", row["mode"], re.IGNORECASE) else "agg"
    bits = "fp4" if row["precision"].lower() == "nvfp4" else row["precision"].lower()
    return Row(row, engine=word, mode=mode, precision=bits)


def _layout(row: Mapping[str, str], pool: str) -> tuple[int, int, int]:
    """TP, EP and devices of a worker of a pool ("prefill_", "decode_"), or of a service in one piece ("")."""
    ranks, experts = whole(row, f"{pool}attention_dp", 1), whole(row, f"{pool}moe_ep", 1)
    # A table that tells how experts are split tells how attention is.
    told = cell(row, f"{pool}moe_tp") or cell(row, f"{pool}moe_ep")
    tp = whole(row, f"{pool}tp", devices_of(row["gpu"]) or (None if told else 1))
    mixed = whole(row, f"{pool}moe_tp", 1) * experts
    if ranks > 1 and experts != tp * ranks:
        raise Skipped(f"attention in {ranks} copies beside experts on {experts} of {mixed} devices is not modelled")
    return tp, experts, tp * ranks


def _as_launched(row: Mapping[str, str]) -> dict[str, str]:
    """The row with what its recipe says of columns that were filled in by rules."""
    found, chip = Row(row), key_of(chip_of(row["gpu"])).lower()
    own = row.get("client") == "" and cell(row, "source").startswith(_TOOL)
    if own and row["engine"] in ("sglang", "trtllm"):
        budget = whole(row, "isl") + _ROOM + (whole(row, "concurrency") if row["engine"] == "trtllm" else 0)
        found |= {"token_budget": str(budget), "rounds": "50"}
        if row["engine"] == "sglang" and row["mode"] == "agg":
            found["runner"] = "SGLang_mixed"
    found["client"] = row.get("client") or ""
    if found["client"] == _STEADY:
        found["rounds"] = row.get("rounds") or "50"
    if sent := re.search(r"\b(\d+) (?:prompts|requests)\b(?! per)", found["client"]):
        found["rounds"] = str(math.ceil(int(sent[1]) / max(whole(row, "concurrency"), 1)))
    if _EVEN.search(found["client"]) and not row.get("length_min_fraction"):
        found["length_min_fraction"] = "0"
    if row["engine"] == "trtllm" and row["mode"] == "disagg" and chip.startswith("h200"):
        wide, ranks = ("8", "1") if whole(row, "isl") > _SHORT else ("1", "8")
        found |= {"prefill_tp": wide, "prefill_attention_dp": ranks} if row["prefill_moe_ep"] == "8" else {}
        found |= {} if whole(row, "isl") > _SHORT else {"token_budget": "8192"}
    if row["engine"] != "sglang":
        return found
    if row["model"].endswith("GLM-5"):
        found |= {"poll_steps": "10" if row["precision"] == "fp4" else ""}
        found |= {"token_budget": "8192", "rounds": "5"} if chip.startswith("h200") else {}
    elif "DeepSeek" in row["model"] and row["precision"] == "fp4" and row["mode"] == "agg":
        found |= {"token_budget": "16384"}
    several = row["mode"] == "disagg" and whole(row, "decode_workers") > 1 and row["decode_moe_ep"] == "4"
    if several and (row.get("measured") or _LISTED) < _LISTED:
        for pool in ("prefill_", "decode_"):
            if row[f"{pool}tp"] == "1" and row[f"{pool}attention_dp"] == row[f"{pool}moe_ep"] == "4":
                found |= {f"{pool}tp": "4", f"{pool}attention_dp": "1", f"{pool}moe_tp": "4", f"{pool}moe_ep": "1"}
    return found | ({"token_budget": _read_together(found, chip)} if row["mode"] == "disagg" else {})


def _read_together(row: Mapping[str, str], chip: str) -> str:
    """Prompt tokens that a step of an attention rank of SGLang's pools takes; empty where no recipe says it."""
    ranks, long = whole(row, "prefill_attention_dp", 1), whole(row, "isl") > _SHORT
    if chip.startswith("gb"):
        wide = row["precision"] == "fp4" and whole(row, "decode_attention_dp", 1) > 8
        return "16384" if ranks > 1 else "8192" if not long else "131072" if wide else "24576"
    if chip.startswith("b"):
        return str((65536 if long and (ranks == 8 or whole(row, "prefill_workers") > 4) else 32768) // ranks)
    return ""


def plan_of(row: Mapping[str, str], inferred: list[str]) -> Plan:
    """The serving plan that a row describes."""
    row = _as_launched(row)
    model, chip, runner = (
        model_of(row["model"]),
        chip_of(row["gpu"]),
        engine(row.get("runner") or engine_of(row, inferred)).on(chip_of(row["gpu"])),
    )
    precision = served_format(row, "precision", chip, inferred)
    ratio = row.get("length_min_fraction") or ""
    if not ratio:
        inferred.append("lengths all equal")
    if not row.get("mtp_tokens"):
        inferred.append("no draft tokens")
    serving: dict[str, Any] = {
        "prompt_tokens": whole(row, "isl"),
        "output_tokens": whole(row, "osl"),
        "concurrency": whole(row, "concurrency"),
        "engine": runner.name,
        "cache_precision": row.get("kv_dtype") or stored_cache(row["model"], precision, runner.name, chip) or "bf16",
        "range_ratio": float(ratio) if ratio and float(ratio) != 1 else None,
        "length_cv": _APART if row["client"] == _STEADY and ratio in ("", "1.0", "1") else None,
        "draft_tokens": whole(row, "mtp_tokens", 0) or None,
    }
    name = key_of(chip)
    searched = not cell(row, "source").startswith(_UNCACHED)
    first = not searched and chip.vendor == "NVIDIA" and (row.get("measured") or _WARMED) < _WARMED
    cold = first and runner.cold_start > 0
    if row["mode"] == "disagg":
        if not row.get("token_budget"):
            inferred.append(f"prompts of up to {runner.prefill_budget} tokens share a prefill step")
        tp, ep, each = _layout(row, "prefill_")
        decode_tp, decode_ep, decode_each = _layout(row, "decode_")
        workers, writers = whole(row, "prefill_workers"), whole(row, "decode_workers")
        slots = whole(row, "decode_slots", 0)
        serving |= {
            "replicas": workers,
            "chunk_tokens": whole(row, "token_budget", 0) or None,
            "decode_on": whole_nodes(writers * decode_each, name),
            "decode_tp": decode_tp,
            "decode_ep": decode_ep,
            "decode_replicas": writers,
            "redundant_experts": -experts_of(model) % decode_ep or None,
            "max_num_seqs": max(1, round(slots / writers)) if slots else None,
        }
        devices = workers * each
    else:
        tp, ep, devices = _layout(row, "")
        if not row.get("token_budget"):
            inferred.append(f"token budget {runner.token_budget}")
        dense, even = experts_of(model) <= 1, whole(row, "isl") == whole(row, "osl") == 1024
        if runner.name.startswith("TensorRT_LLM") and dense and even and tp < 8:
            inferred.append(f"{_GATHER_STEPS} steps until prompts have gathered")
            serving["wait_steps"] = _GATHER_STEPS
        serving |= {
            "replicas": 1,
            "chunk_tokens": whole(row, "token_budget", 0) or None,
            "poll_steps": whole(row, "poll_steps", 0) or None,
            "requests": whole(row, "rounds", 0) * whole(row, "concurrency") or None,
            "prefix_hits": 0.0 if runner.state_ratio and not searched else None,
            "warm_up": False if cold else None,
        }
    precision = fitting_format(precision, model, devices, chip, inferred)
    return served_plan(model, devices, name, {"tp": tp, "ep": ep}, serving, precision=precision)
