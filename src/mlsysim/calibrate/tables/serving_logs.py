"""Runs of serving engines whose requests are logged one by one: percentiles of TTFT, TPOT and the time of a request, each asked as a serving
plan that plays the log's own arrivals and lengths.

A table of runs has the log beside it: ``runs.csv`` and ``requests.csv.gz``, or ``NAME_runs.csv`` and ``NAME.csv.gz`` (``.csv`` as well). Percentile
p of n sorted values is the one at index int(p n), in the log as in the answer.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    chip, engine       of a table without these columns: an H200, and the bare loop that was measured there, without a server in front
    prefix cache       prompts share nothing, unless the log has hashes of their blocks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlsysim.calibrate.cells import chip_of, engine_of, key_of, model_of, served_format, served_plan, whole
from mlsysim.calibrate.questions import FILE, Question, Skipped
from mlsysim.simulate.traces import read_trace
from mlsysim.timing.engines import chip_class

BARE = ("run", "model", "budget", "max_seqs", "policy", "max_context", "ttft_p50", "tpot_p50", "e2e_p50")
SERVER = ("run", "model", "chip", "gpus", "engine", "max_num_seqs", "max_num_batched_tokens", "makespan_s")

_LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_KINDS = ("ttft", "tpot", "e2e")
_SCHEDULERS = {"chunked": "chunked", "prefill": "whole_prompts_first", "decode": "decode_first", "static": "static"}


def read_bare(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a run of the bare loop."""
    if row["policy"] not in _SCHEDULERS:
        raise Skipped(f"the policy {row['policy']} is not modelled")
    serving = {
        "engine": "torch_loop",
        "offline": True,
        "chunk_tokens": whole(row, "budget"),
        "max_num_seqs": whole(row, "max_seqs"),
        "scheduler": _SCHEDULERS[row["policy"]],
    }
    return list(_questions(row, "H200", 1, serving, {"precision": "bf16"}, {}, ["chip H200", "engine torch_loop"]))


def read_server(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a run of a server."""
    inferred: list[str] = []
    chip, runner = chip_of(row["chip"]), engine_of(row, inferred)
    # Copies that share experts are the attention groups of one replica, each with slots of its own.
    copies, apart = whole(row, "dp", 1), whole(row, "ep", 1) == 1
    slots = whole(row, "max_num_seqs", 0) * (1 if apart else copies)
    serving = {
        "engine": runner,
        "chunk_tokens": whole(row, "max_num_batched_tokens", 0) or None,
        "max_num_seqs": slots or None,
        "cache_precision": row.get("kv_precision") or None,
        "replicas": copies if apart else 1,
        "memory_fraction": float(row["gpu_memory_utilization"]) if row.get("gpu_memory_utilization") else None,
    }
    split = {name: whole(row, name, 1) for name in ("tp", "pp", "ep")}
    work = {"precision": served_format(row, "precision", chip, inferred)}
    return list(_questions(row, key_of(chip), whole(row, "gpus"), serving, work, split, inferred))


def _questions(
    row: Mapping[str, str], chip: str, gpus: int, serving: dict[str, Any], work: dict[str, Any], split: dict[str, int], inferred: list[str],
) -> Iterator[Question]:  # fmt: skip
    log = f"{_log(row)}#{row['run']}"
    trace = read_trace(log)
    if trace.summary.shared is None:
        inferred.append("prompts share nothing")
    plan = served_plan(model_of(row["model"]), gpus, chip, split, serving | {"trace": log}, **work)
    seen = [measured for _, measured in trace.measured()]
    known = chip_class(chip_of(chip)) != "other"
    for kind in _KINDS:
        values = sorted(value for each in seen if (value := getattr(each, kind)) is not None)
        for level, share in _LEVELS.items():
            if values:
                at = values[min(len(values) - 1, int(share * len(values)))]
                name = f"{kind}_{level}"
                yield Question(name, at, plan, name, "s", 1.0, f"simulated {kind} {level}", known, tuple(inferred))


def _log(row: Mapping[str, str]) -> Path:
    """The log of requests beside the table that a row is of."""
    table = Path(row.get(FILE, ""))
    name = "requests" if table.stem == "runs" else table.stem.removesuffix("_runs")
    for suffix in (".csv.gz", ".csv"):
        if name != table.stem and (found := table.with_name(name + suffix)).is_file():
            return found
    raise Skipped(f"there is no {name}.csv.gz beside the table of runs")
