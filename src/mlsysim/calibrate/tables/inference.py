"""Published inference measurements: saturated and static-batch throughput, first tokens, batch-1 decode, steady state, MLPerf.

Each is asked as a serving plan:

    saturated, static batch   all requests are sent at once to the engine itself (``offline``, ``requests`` = ``concurrency``)
    online at a rate          ``qps`` with so many ``requests``, or all at once where the rate is infinite
    steady state              the measured average batch as ``concurrency``

Rules for what a row does not say (each use is listed in ``Prediction.inferred``, and those behind a star widen its interval):

    engine              of the row's text; of what has no constants the one whose way of running is nearest*; without a name vLLM of
                        its year*; MLPerf is TensorRT-LLM on NVIDIA and vLLM elsewhere
    weights             the format of the checkpoint's name, what the model is published in, or 16 bits*; MLPerf: the narrowest that the
                        chip multiplies in*
    cache format        16 bit, unless given; 8 bit beside weights of 8 or 4 bits where the software quantises both (TensorRT-LLM, Gaudi; MLPerf)
    layout              as in DEP8, TEP4 or TP4PP2 among the row's words; else tensor parallelism over its accelerators*; of llama.cpp layers
                        one after the other
    attention layout    ML.ENERGY's rows of mixtures say tp 1, ep n: attention runs on n tensor-parallel devices; TensorRT-LLM's own of
                        mixtures from 1.0 on say tp n, and their options enable_attention_dp: each rank has its own requests' attention
    most requests       TensorRT-LLM's tables: what its benchmark builds an engine for (:mod:`mlsysim.calibrate.tables.built`); else 2,048
    lengths             ML.ENERGY: the task's mean; MLPerf: the dataset's mean; else what the benchmark's name implies*
    requests            those of the row's words; a batch where there is no more than a batch; answers of ShareGPT are spread
    places, tokens      those of the engine on the chip
    median ITL          is the gap between two tokens that as many are shorter than as longer
    percentiles         those of the simulated requests
"""

from __future__ import annotations

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
    format_of,
    half_digit,
    key_of,
    metric_named,
    milliseconds_in,
    model_of,
    number,
    served_format,
    served_plan,
    whole,
)
from mlsysim.calibrate.cells import measured as value_of
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Row, Skipped
from mlsysim.calibrate.tables.built import built, stored_cache
from mlsysim.calibrate.tables.mlperf import MOST_SEQUENCES, QUEUE, submission, tokens_in
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.physics.precision import bytes_per_element
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import chip_class, serving_table
from mlsysim.timing.engines import engine as engine_named
from mlsysim.zoo.layouts import mapping

COLUMNS = (
    *("model", "gpu", "precision_weights", "precision_kv", "isl", "osl", "batch_or_concurrency", "scenario", "metric"),
)

_WORDS = settings("rows")["inference"]
_ONLINE_REQUESTS = 500
_FIRST = re.compile(r"(?:qps|rps|request rate|^)\s*[=:]?\s*(inf\b|(?<!^)[\d.]+)", re.IGNORECASE)
_SLOTS = re.compile(r"max[-_ ](?:num[-_ ]seqs|running[-_ ]requests)\D{0,3}(\d+)", re.IGNORECASE)
"""Most requests at a time, as engines' options say."""
_GROUPS = re.compile(r"--?dp(?:-size)?[ =](\d+)")
"""Groups of attention ranks in SGLang's options; its --enable-dp-attention alone leaves them at one."""
_BOTH = re.compile(r"\b(?:input|prompt)s? (?:and|\+|plus) (?:output|answer)s?\b", re.IGNORECASE)
"""What a rate counts, where that is more than answers."""
_BENCH = re.compile(r"(pp|tg)(\d+)(?: ?@ ?d(\d+))?", re.IGNORECASE)
"""Metrics of llama-bench: a rate of prompts, or of answers, of so many tokens, behind so many that were read before."""
_TEST = re.compile(r"\b(?:pp|tg)\d{2,}\b", re.IGNORECASE)
"""Tests of llama-bench among words, which are no layouts."""
_LEVEL = re.compile(r"(?:(p9[059])_(.+?)|(.+?)_(p9[059]))(?:_ms|_s)?")
"""A percentile in the name of a metric: p99_ttft_ms, TPOT P90."""
_UNLOADED = "how many requests there are at a time is not said: give them in a column concurrency or batch, or those sent at once in num_prompts"
UNTOLD = "how long prompts are is not said: give their tokens in a column isl, and those of answers in osl"
_SERVED = re.compile(r"clos(?:ed|ing) loop|server|serve\b|serving|online|clients")
"""Words of runs whose requests come through a server."""
_LAYOUT = re.compile(r"\b(?:(?:DEP|TEP|TP|PP|EP|DP)-?\d+[ x,_-]?)+(?!\w)", re.IGNORECASE)
_MASKED = re.compile(r"(?:trt|tensorrt)[-_ ]?llm[-_ ]*v?0\.([5-9])\b", re.IGNORECASE)
"""Releases of TensorRT-LLM whose kernel for groups of queries is off by default (TRTLLM_ENABLE_XQA in their performance.md)."""
_GROUPED = "7"
"""The first of them that has one."""
_RANKS = re.compile(r"(?:trt|tensorrt)[-_ ]?llm[-_ ]*v?[1-9]\d*\.", re.IGNORECASE)
"""TensorRT-LLM's own tables from 1.0 on."""
_ALONE = ("decode_tokens_per_s", "output_throughput", "user_rate", "itl_mean", "itl_median")
"""Metrics that the length of a prompt hardly changes where there is one client."""
_WRITTEN = ("decode_tokens_per_s", "output_throughput", "user_rate", "itl_mean", "itl_median")
"""Metrics of answers, which have more than one token."""
_GUESSED = ("weights in", "layout", "lengths", "stands in")
"""How settings begin that make an answer less certain."""


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    row, measured = _tested(row), value_of(row)
    if measured <= 0:
        raise Excluded("no measured value")
    inferred: list[str] = []
    chip, model = chip_of(row["gpu"]), model_of(row["model"])
    benchmark = any(cell(row, name).lower().startswith("mlperf") for name in ("scenario", "source"))
    plan, regime = (submission if benchmark else _run)(row, chip, model, inferred)
    asked, unit, factor = _asked(row, plan, model, benchmark)
    inverse = factor < 0
    if inverse:
        # A rate of prompts is the time of the first token in other words.
        measured, factor = -factor / measured, 1.0
    guessed = sum(text.startswith(_GUESSED) for text in inferred)
    if level := percentile(row["metric"]):
        plan, regime = plan.replacing(serving={"burst": 1.0}), f"simulated {level.replace('_', ' ')}"
    known = chip_class(chip) != "other"
    digit = 0.0 if inverse else half_digit(cell(row, "value"))
    about = regime, known, tuple(inferred), guessed, digit
    return [Question(row["metric"], measured, plan, asked, unit, factor, *about)]


def _tested(row: Mapping[str, str]) -> Mapping[str, str]:
    """The row with the test of llama-bench as its metric, where that is a rate (t/s) and its words name one test."""
    tests = _TEST.findall(cell(row, "scenario"))
    rate = metric_named(row["metric"], _WORDS["metrics"]) == "output_throughput"
    return Row(row, metric=tests[0]) if rate and len(tests) == 1 else row


def percentile(metric: str) -> str | None:
    """The percentile of the answer that a metric names; None where it is none.

    >>> percentile("P99 TTFT (ms)"), percentile("e2el_p90"), percentile("Mean TTFT (ms)")
    ('ttft_p99', 'e2e_p90', None)
    """
    found = _LEVEL.fullmatch(metric_named(metric, {}))
    of = found and _WORDS["percentiles"].get(found[2] or found[3])
    return f"{of}_{found[1] or found[4]}" if found and of else None


def _metric(row: Mapping[str, str]) -> str:
    """What was measured; a rate of generation where answers alone were timed is that of decoding."""
    found = metric_named(row["metric"], _WORDS["metrics"])
    alone = row["metric"].lower().startswith("generation") and "decod" in row["scenario"].lower()
    if found in ("output_throughput", "throughput") and _BOTH.search(cell(row, "notes")):
        return "total_throughput"
    return "decode_tokens_per_s" if alone else found


def _asked(row: Mapping[str, str], plan: Plan, model: TransformerWorkload, benchmark: bool) -> tuple[str, str, float]:
    """Metric of the answer, its unit, and the factor to the row's unit; negative where the row has its inverse."""
    unit, serving = row.get("unit", "").lower(), plan.serving
    metric = _metric(row)
    if bench := _BENCH.fullmatch(row["metric"]):
        metric = "prefill_rate" if bench[1].lower() == "pp" else "decode_tokens_per_s"
    assert serving is not None
    if benchmark and metric in ("mlperf_metric", "output_throughput"):
        metric = "request_throughput" if unit.startswith("sample") else "output_throughput"
    elif metric == "output_throughput" and unit.startswith(("req", "quer", "sample", "prompt")):
        metric = "request_throughput"
    if metric == "prefill_rate":
        read_now = (serving.prompt_tokens or 1) - (serving.cached_prefix or 0)
        return "ttft", "ms", -1e3 * read_now * (serving.concurrency or 1)
    if level := percentile(row["metric"]):
        return level, "ms", milliseconds_in(unit)
    if metric == "output_throughput" and serving.output_tokens == 1:
        metric = "input_throughput"  # of a run that writes nothing its prompts are counted
    if metric not in _WORDS["asked"]:
        raise Skipped(f"the metric {row['metric']!r} is not known")
    asked, ours = _WORDS["asked"][metric]
    if ours == "ms":
        return asked, ours, milliseconds_in(unit)
    factor = 60.0 if "/min" in unit else 1.0
    if metric in ("total_throughput", "input_throughput"):
        factor *= (metric == "total_throughput") + (serving.prompt_tokens or 0) / (serving.output_tokens or 1)
    if asked == "tokens_per_second":
        if "/user" in unit:
            return "user_rate", ours, factor
        each = re.search("/ ?(gpu|chip|device|accelerator)(?:$|/)", unit) or metric_named(row["metric"], {}).endswith(
            "_per_gpu"
        )
        return asked + ("_per_device" if each else ""), ours, factor
    if metric == "decode_tokens_per_s":
        return asked, ours, factor * float(serving.concurrency or 1)
    if metric == "achieved_weight_bandwidth_per_gpu":
        return asked, ours, _weights_read(model, plan) / 1e9
    return asked, ours, factor


def _weights_read(model: TransformerWorkload, plan: Plan) -> float:
    """Bytes of weights that one token reads on a device, as gpt-fast counts them: active parameters without embedding,
    the output head in 16 bit."""
    size: Any = getattr(model, "active_parameters", None) or model.parameters
    parameters, head = float(size.to("param").magnitude), float(model.vocab_size or 0) * float(model.hidden_dim or 0)
    element = bytes_per_element(plan.workload.precision or "bf16")
    return ((parameters - 2 * head) * element + 2 * head) / (plan.parallelism.tp or 1)


def _run(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, inferred: list[str]
) -> tuple[Plan, str]:
    """A run with a layout of its own, and the kind of work that it is."""
    steady = "steady state" in row["scenario"].lower()
    engine = engine_of(row, inferred)
    masked = _MASKED.match(row["source"]) if (model.kv_heads or model.heads) != model.heads else None
    if engine == "TensorRT_LLM_Cpp" and masked and (masked[1] < _GROUPED or key_of(model) not in _WORDS["grouped"]):
        inferred.append("attention of a query head by itself, as that release has it unless it is told otherwise")
        engine = "TensorRT_LLM_Cpp_masked"
    mixture, (tp, ep, pp) = experts_of(model) > 1, _degrees(row, engine, inferred)
    if steady and ep > 1 and tp == 1 and not re.search(r"dp=(?!1\b)\d+", row.get("notes", "")):
        inferred.append(f"attention on {ep} tensor-parallel devices")
        tp = ep
    precision = served_format(row, "precision_weights", chip, inferred)
    cache = row.get("precision_kv") or stored_cache(row["model"], precision, engine, chip)
    if not cell(row, "precision_kv"):
        inferred.append(f"{cache} cache, that of the checkpoint" if cache else "16-bit cache")
    if mixture and tp > 1 and ep in (1, tp) and cell(row, "tp").isdigit() and _RANKS.match(row.get("source", "")):
        inferred.append(f"attention of its own requests on each of {tp} ranks")
        tp, ep = 1, tp
    serving: dict[str, Any] = {
        "engine": engine,
        "cache_precision": format_of(cache) if cache else "bf16",
        "replicas": (copies := whole(row, "dp", 1)),
    }
    split = {"tp": tp, "ep": ep if mixture else 1, "pp": pp}
    # TensorRT-LLM counts the most requests of each rank where every rank has its own requests' attention.
    ranks = ep if mixture and tp == 1 else 1
    own = engine_named(engine).on(chip)
    regime, load = _load(row, steady, ranks, own.max_num_seqs, inferred)
    if (
        own.offline_budget
        and load.get("offline")
        and _SERVED.search(f"{row['scenario']}; {cell(row, 'notes')}".lower())
    ):
        load["chunk_tokens"] = own.token_budget
    if regime == "saturated throughput" and "max_num_seqs" not in cell(row, "notes"):
        formats, lengths = (precision, serving["cache_precision"]), (load["prompt_tokens"], load["output_tokens"])
        if (requests := built(row, model, chip, split, formats, lengths)) is not None:
            inferred.append(f"an engine for {requests} requests at a time")
            load |= {"max_num_seqs": requests * ranks}
    devices = max(tp, split["ep"]) * pp * copies
    precision = fitting_format(precision, model, devices, chip, inferred)
    return served_plan(model, devices, key_of(chip), split, serving | load, precision=precision), regime


def _degrees(row: Mapping[str, str], engine: str, inferred: list[str]) -> tuple[int, int, int]:
    """TP, EP and PP: of the columns, of a layout among the row's words, or tensor parallelism over all accelerators; llama.cpp gives each some
    of the layers (its ``--split-mode layer``, the default)."""
    said: dict[str, int] = {}
    for text in (cell(row, "tp"), cell(row, "ep"), *(_TEST.sub("", cell(row, name)) for name in ("scenario", "notes"))):
        if not said and not text.isdigit() and (found := _LAYOUT.search(text)):
            said = mapping(found[0]) or {}
    if not cell(row, "tp").isdigit() and not said:
        devices = max(1, (whole(row, "n_gpus", 0) or devices_of(row["gpu"]) or 1) // whole(row, "dp", 1))
        degree = "pp" if engine == "llama_cpp" else "tp"
        if devices > 1:
            inferred.append(f"layout {degree.upper()} {devices}")
        said = {degree: devices}
    columns = {name: int(cell(row, name)) for name in ("tp", "ep", "pp") if cell(row, name).isdigit()}
    found_all = {"tp": 1, "ep": 1, "pp": 1} | columns | said
    options = f"{cell(row, 'scenario')} {cell(row, 'notes')}"
    if groups := _GROUPS.search(options) if "enable-dp-attention" in options else None:
        inferred.append(f"attention in {groups[1]} groups, experts on all devices")
        found_all |= {"tp": max(1, found_all["tp"] // int(groups[1])), "ep": found_all["tp"]}
    return found_all["tp"], found_all["ep"], found_all["pp"]


def _load(
    row: Mapping[str, str], steady: bool, ranks: int, most: int | None, inferred: list[str]
) -> tuple[str, dict[str, Any]]:
    """Kind of work, and how requests come; ``most`` of a rank that the engine answers at a time."""
    metric, load = _metric(row), row["batch_or_concurrency"]
    if steady:
        prompt = _task_prompt(row, inferred)
        lengths: dict[str, Any] = {"prompt_tokens": prompt, "output_tokens": max(1, round(number(row, "osl")))}
        return f"steady state {metric}", {**lengths, "concurrency": max(1, round(number(row, "batch_or_concurrency")))}
    prompt, answer, spread = _lengths(row, inferred)
    lengths = {"prompt_tokens": prompt, "output_tokens": answer, "length_cv": spread}
    slots = _SLOTS.search(f"{row['scenario']}; {cell(row, 'notes')}")
    each = (int(slots[1]) if slots else most or MOST_SEQUENCES) * ranks
    online = _FIRST.search(load or row["scenario"])
    if online:
        endless = online[1].lower() == "inf"
        sent = _sent(row) or _ONLINE_REQUESTS
        rate: dict[str, Any] = {"concurrency": sent} if endless else {"qps": float(online[1])}
        return f"online {metric}", lengths | rate | {"requests": sent, "max_num_seqs": each}
    scenario = row["scenario"].lower()
    if (
        load.lower().startswith(("max", "saturated"))
        or "max-throughput" in scenario
        or (not load and ("throughput" in scenario or _sent(row)))
    ):
        sent = _sent(row) or serving_table("trtllm_bench")["requests"].get(f"{prompt}_{answer}")
        if sent is not None:
            inferred.append(f"{sent} requests")
        queue = sent or QUEUE * each
        full = {"concurrency": queue, "requests": sent, "max_num_seqs": each, "offline": True}
        return "saturated throughput", lengths | full
    kind = str(_WORDS["kinds"].get(metric, "static batch"))
    if bench := _BENCH.fullmatch(row["metric"]):
        kind = "prefill" if bench[1].lower() == "pp" else "batch-1 decode"
        lengths |= {"cached_prefix": int(bench[3])} if bench[3] and kind == "prefill" else {}
    single = 1.0 if kind == "batch-1 decode" or bench or "batch 1" in row["scenario"].lower() else None
    given = re.search(r"\d[\d,]*(?:\.\d+)?", load)
    if not given and single is None and not cell(row, "batch_or_concurrency"):
        raise Skipped(_UNLOADED)
    batch = max(1, round(float(given[0].replace(",", "")) if given else number(row, "batch_or_concurrency", single)))
    # Clients that ask again when they are answered; others are a batch.
    again = max(batch, _sent(row) or 0)
    beyond = not (again > batch and _SERVED.search(scenario))
    if most is None:
        lengths["max_num_seqs"] = batch
    return kind, lengths | {"concurrency": batch, "requests": again, "offline": beyond}


def _sent(row: Mapping[str, str]) -> int | None:
    """Requests of a run, as its words say: 1000 prompts, --num-prompts 200."""
    words = f"{row['scenario']}; {cell(row, 'notes')}; {row['batch_or_concurrency']}".lower()
    found = re.search(r"\b(\d[\d,]*) (?:prompts|requests)\b|num[-_ ]prompts?\D{0,3}(\d[\d,]*)", words)
    return int((found[1] or found[2]).replace(",", "")) if found else None


def _lengths(row: Mapping[str, str], inferred: list[str]) -> tuple[int, int, float | None]:
    """Prompt and answer: of the columns, of a pair such as 1k/1k among the row's words, or what the benchmark's name implies; and how
    answers of conversations spread."""
    prompt, answer = tokens_in(cell(row, "isl")), tokens_in(cell(row, "osl"))
    if bench := _BENCH.fullmatch(row["metric"]):
        # Answers of llama-bench begin with nothing, or with its depth.
        depth, tokens = int(bench[3] or 0), int(bench[2])
        return (depth + tokens, 1, None) if bench[1].lower() == "pp" else (max(depth, 1), tokens, None)
    text = " ".join(cell(row, name) for name in ("isl", "osl", "scenario", "notes", "source")).lower()
    if prompt is None and (pair := re.search(r"\b(\d+k?) ?[/x:] ?(\d+k?)\b", text)):
        prompt, answer = tokens_in(pair[1]), answer or tokens_in(pair[2])
    if prompt is None:
        word = next((word for word in _WORDS["lengths"] if word in text), None)
        if (
            word is None
            and _metric(row) in _ALONE
            and re.fullmatch("1(\\.0*)?", cell(row, "batch_or_concurrency") or "1")
        ):
            alone = _WORDS["alone"]
            inferred.append(f"lengths of a question: {alone['prompt']} tokens")
            return int(alone["prompt"]), answer or int(alone["answer"]), None
        if word is None:
            raise Skipped(f"the prompt length {cell(row, 'isl')!r} is not known" if cell(row, "isl") else UNTOLD)
        usual = _WORDS["lengths"][word]
        prompt, answer = int(usual[0]), answer or int(usual[1])
        inferred.append(f"lengths of {word}: {prompt} and {answer} tokens")
    if answer is None and _metric(row) in _WRITTEN:
        answer = int(_WORDS["alone"]["answer"])
        inferred.append(f"lengths of answers: {answer} tokens")
    spread = next((_WORDS["spread"][word] for word in _WORDS["spread"] if word in text), None)
    return max(1, prompt), max(1, answer or 1), spread


def _task_prompt(row: Mapping[str, str], inferred: list[str]) -> int:
    """ML.ENERGY's rows name a task where others give a length."""
    if (given := tokens_in(row["isl"])) is not None:
        return max(1, given)
    task, prompts = row["isl"].replace("-", "_"), serving_table("ml_energy")["prompt"]
    if task not in prompts:
        raise Skipped(f"the prompt length of {row['isl']!r} is not known")
    inferred.append(f"prompts of {prompts[task]:g} tokens")
    return int(prompts[task])
