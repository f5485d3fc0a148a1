"""Submissions to MLPerf Inference as serving plans: the layout is left open; limits on latency, or as many requests as keep the engine full.

Rules for what a submission does not say:

    MLPerf                    the layout is left open; limits on latency, or as many requests as keep the engine full
    MLPerf layout       replicas of as many devices as give the most tokens
    MLPerf limits       three quarters of the rules' limits on the 99th percentile hold for the mean
    MLPerf software     that of 5.1, in later rounds too*
    MLPerf metric       language benchmarks publish tokens a second, also where the unit says queries; samples a second are requests
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import cell, devices_of, format_of, key_of, served_plan, whole, year_of
from mlsysim.calibrate.questions import Skipped
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.registry import Models
from mlsysim.models.transformer import TransformerWorkload
from mlsysim.plans.plan import Plan
from mlsysim.timing.engines import serving_table

MOST_SEQUENCES = 2048
QUEUE = 2
"""Requests for each place of an engine that is to be kept full, where their number is not known."""
_MOST_CLIENTS = 1_000_000
"""Requests at once that a plan may have."""
_SCENARIO = re.compile(r"offline|server|interactive|single-?stream", re.IGNORECASE)
_LATEST = 5.1
"""The last round of MLPerf Inference whose submissions say how fast engines are."""
_NARROW = 2025
"""From this year on submissions to MLPerf Inference have weights of 4 bits where the chip multiplies in them."""


def tokens_in(text: str) -> int | None:
    """A number of tokens: 512, 2k, ~467."""
    found = re.fullmatch(r"[~≈]?\s*([\d.,]+)\s*(k?)(?:\s*tokens)?", text.strip().lower())
    return round(float(found[1].replace(",", "")) * (1024 if found[2] else 1)) if found else None


def submission(
    row: Mapping[str, str], chip: HardwareNode, model: TransformerWorkload, inferred: list[str]
) -> tuple[Plan, str]:
    """The plan of a submission, and what it is scored under."""
    known = {
        name: held for name, held in serving_table("mlperf").items() if isinstance(held, dict) and "prompt" in held
    }
    facts = next((held for name, held in known.items() if Models.key_of(name) == key_of(model)), None)
    if facts is None:
        raise Skipped(f"the lengths of MLPerf's {row['model']} dataset are not known")
    found = _SCENARIO.search(row["scenario"])
    if found is None:
        raise Skipped(f"the scenario {row['scenario']!r} is not known")
    scenario, devices = found[0].lower().replace("-", ""), _devices(row, chip, inferred)
    prompt, answer = int(facts["prompt"]), max(1, tokens_in(cell(row, "osl")) or int(facts["answer"]))
    inferred += [f"prompts of {prompt} tokens", "8-bit cache", "layout with the most tokens"]
    if (release := re.search(r"mlperf-inference-v?(\d+\.\d+)", row.get("source", ""))) and float(release[1]) > _LATEST:
        inferred.append(f"stands in for the software of {release[1]}: that of {_LATEST}")
    serving: dict[str, Any] = {
        "engine": "TensorRT_LLM_Cpp_2025" if chip.vendor == "NVIDIA" else "vLLM",
        "cache_precision": "fp8",
        "prompt_tokens": prompt,
        "output_tokens": answer,
        "max_num_seqs": MOST_SEQUENCES,
    }
    split: dict[str, Any] = {}
    if chip.link is None and chip.family == "cpu":
        # Sockets each run a model of their own.
        split, serving["replicas"] = {"tp": 1}, devices
    if scenario == "offline":
        serving |= {"concurrency": min(QUEUE * MOST_SEQUENCES * devices, _MOST_CLIENTS), "offline": True}
    elif scenario == "singlestream":
        serving |= {"concurrency": 1, "requests": 1, "offline": True}
    elif "latency" in facts:
        serving["latency"] = f"{serving_table('mlperf')['headroom'] * facts['latency']!r} s"
    else:
        limits = facts.get(scenario)
        if limits is None:
            raise Skipped(f"the latency limits of MLPerf's {scenario} scenario are not known")
        headroom = serving_table("mlperf")["headroom"]
        serving |= {name: f"{headroom * limit!r} s" for name, limit in zip(("ttft", "tpot"), limits, strict=True)}
    precision = _submitted(row, chip, inferred)
    return served_plan(model, devices, key_of(chip), split, serving, precision=precision), f"mlperf {scenario}"


def _devices(row: Mapping[str, str], chip: HardwareNode, inferred: list[str]) -> int:
    """Accelerators of a submission; two sockets of a server whose processors compute."""
    devices = whole(row, "n_gpus", 0) or devices_of(row["gpu"]) or 0
    if not devices:
        sockets = re.search(r"(\d)S[-_]", row.get("notes", ""))
        if chip.family != "cpu":
            raise Skipped("the number of devices is not given")
        devices = int(sockets[1]) if sockets else 2
        inferred.append(f"{devices} sockets")
    if "dual" in row["gpu"].lower():
        devices *= 2
        inferred.append(f"two chips a card: {devices}")
    return devices


def _submitted(row: Mapping[str, str], chip: HardwareNode, inferred: list[str]) -> str:
    """The format of a submission's weights: the cell's, else the narrowest that the chip multiplies in and that year's software had."""
    if cell(row, "precision_weights"):
        return format_of(cell(row, "precision_weights"), row["model"])
    year = year_of(row.get("source", ""), row.get("notes", "")) or _NARROW
    formats = (("fp4",) if year >= _NARROW else ()) + ("fp8", "int8", "bf16", "fp16")
    chosen = next((name for name in formats if chip.compute.supports(name)), "fp16")
    inferred.append(f"weights in {chosen}")
    return format_of(chosen, row["model"])
