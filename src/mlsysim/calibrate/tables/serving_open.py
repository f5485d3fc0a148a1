"""Runs of serving engines under open load: TTFT, TPOT and time of a request at a rate, each asked as a serving plan with ``qps``; means of the
steady state, percentiles of a simulation with as many requests as were sent, at random.

Rules for what a row does not say (each use is listed in ``Prediction.inferred``):

    engine             the one of that name of the year nearest to the version
    prefix cache       prompts that are cached but for ``computed_prefill_tokens_est`` tokens; where the cache is evicting none is. That is a mean:
                       where a run began with the first of each prompt, as many are computed whole, and percentiles are asked of those
    lengths            all equal; percentiles of runs with ShareGPT's conversations are those of lengths that spread as its answers do

Left out: bursts without a rate, rows that contradict themselves or lost requests, runs that are overloaded or too short to be steady.
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
    key_of,
    model_of,
    number,
    served_format,
    served_plan,
    whole,
)
from mlsysim.calibrate.cells import measured as value_of
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Question, Skipped
from mlsysim.simulate.traffic import Load
from mlsysim.timing.engines import chip_class

COLUMNS = ("arrival", "rate_rps", "prefix_state", "computed_prefill_tokens_est", "regime", "quality", "ttft_ms_mean")

_SPREAD: Mapping[str, float] = settings("rows")["inference"]["spread"]
_MEASURED = {"ttft_ms_mean": "ttft", "tpot_ms_mean": "tpot", "e2e_ms_mean": "latency"}


def read(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row."""
    if row["arrival"] == "burst" or not row["rate_rps"]:
        raise Excluded("no rate")
    if (row["quality"] or "ok") != "ok" or (row["regime"] or "steady") != "steady":
        raise Excluded(f"{row['regime']}, {row['quality']}")
    new, prompt = row["computed_prefill_tokens_est"], round(number(row, "input_tokens_mean"))
    inferred: list[str] = []
    chip, runner = chip_of(row["chip"]), engine_of(row, inferred)
    guessed = sum(text.startswith("stands in") for text in inferred)
    if not new and row["prefix_caching"] == "on" and row["prefix_state"] != "cold":
        if "evicting" not in row["prefix_state"]:
            raise Skipped("what the prefix cache holds is not known")
        inferred.append("prompts are out of the cache when they come again")
        guessed += 1
    serving: dict[str, Any] = {
        "prompt_tokens": prompt,
        "output_tokens": round(number(row, "output_tokens_mean")),
        "qps": number(row, "rate_rps"),
        "engine": runner,
        "cached_prefix": max(0, prompt - max(1, round(float(new)))) if new else None,
        "chunk_tokens": whole(row, "max_num_batched_tokens", 0) or None,
        "max_num_seqs": whole(row, "max_num_seqs", 0) or None,
        "cache_precision": row["kv_precision"] or None,
        "replicas": whole(row, "dp", 1),
    }
    pp, others = whole(row, "pp", 1), whole(row, "pp", 1) * whole(row, "dp", 1)
    devices = whole(row, "gpus", devices_of(row["chip"]) or whole(row, "tp", 1) * others)
    split = {"tp": whole(row, "tp", max(1, devices // others)), "pp": pp, "ep": whole(row, "ep", 1)}
    run, work = (
        (model_of(row["model"]), devices, key_of(chip), split),
        served_format(row, "precision", chip, inferred),
    )
    plan = served_plan(*run, serving, precision=work)
    sent = whole(row, "requests", 0)
    told = " ".join(cell(row, f"{of}_tokens_cv_or_dist") for of in ("input", "output")).lower()
    spread = next((cv for name, cv in _SPREAD.items() if name in told), None)
    requests = {"burst": 1.0, "requests": sent or None, "length_cv": spread, **_first_of_each(row, prompt, sent)}
    played = served_plan(*run, serving | requests, precision=work)
    measured = chip_class(chip) != "other"
    # Where nobody says that the load was steady, means are those of the requests that were sent.
    asked = [
        (column, name, f"open {name}", plan if row["regime"] or not sent else played)
        for column, name in _MEASURED.items()
    ]
    asked += [
        (f"{kind}_ms_{level}", f"{kind}_{level}", f"simulated {kind} {level}", played)
        for kind in ("ttft", "tpot", "e2e")
        for level in ("p50", "p90", "p99")
    ]
    return [
        Question(column, value_of(row, column), each, name, "ms", 1.0, regime, measured, tuple(inferred), guessed)
        for column, name, regime, each in asked
        if row.get(column)
    ]


def _first_of_each(row: Mapping[str, str], prompt: int, sent: int) -> dict[str, Any]:
    """Prompts of which the first of each was computed whole, and of the others what a last block leaves; nothing where none was."""
    cold = re.match(r"cold for the first (\d+) requests, then warm", row["prefix_state"])
    if cold is None or sent <= int(cold[1]):
        return {}
    found = prompt - min(prompt, Load.block_tokens // 2)
    return {"cached_prefix": None, "prefix_hits": found / prompt, "prefix_tokens": int(cold[1]) * found}
