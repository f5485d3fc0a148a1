"""Our own H200 measurements: kernels, prefill, decode, training steps, memory and power of one chip.

A row is one measured value of one configuration (``section``, ``config`` as JSON, ``metric``, ``median``). Rates, bandwidths,
throughputs and utilisations are the time of the same configuration turned over, so only times, bytes and watts are scored. Passes and steps are
plans; kernels and power are in :mod:`mlsysim.calibrate.tables.silicon_kernels`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mlsysim.calibrate.measurements import OWN_TABLES, own_rows, table_rows
from mlsysim.calibrate.questions import FILE, WITHOUT, Excluded, Prediction, Question, Skipped, calibrated_plan
from mlsysim.calibrate.tables.silicon_kernels import CHIP, KERNELS, WORDS, Config, watts
from mlsysim.cases.ledger import CONTEXT, RESERVE
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.plans.plan import Plan
from mlsysim.timing.profile import profile
from mlsysim.timing.runtimes import DIFFUSION, regime_of, runtime
from mlsysim.timing.vision_time import THROUGHOUT

COLUMNS = ("section", "config", "metric", "median", "unit", "reps")
_MEMORY = ("mem", "peak")


def read(row: Mapping[str, str]) -> list[Question | Prediction]:
    """The time, the bytes or the power of the row's configuration: a plan for whole passes and steps, the chip's constants for kernels."""
    metric, section, shares = row["metric"], row["section"], profile(Hardware.get(CHIP))
    if metric in WORDS["derived"]:
        raise Excluded(f"{metric} follows from the time of the same configuration")
    if metric in WORDS["observed"]:
        raise Excluded(f"{metric} is an observation, not a quantity to predict")
    if metric in WORDS["moments"]:
        raise Excluded(f"{metric} is a moment of a step that is not its fullest, which is all that an answer holds")
    if section in WORDS["not_run"]:
        raise Excluded(WORDS["not_run"][section])
    try:
        config = Config(json.loads(row["config"]))
        measured = float(row["median"])
    except ValueError:
        raise Skipped("the configuration or the value cannot be read") from None
    own, name = shares.measured and shares.name == CHIP, f"{section} {metric}"
    if section == "power":
        return _power(row, config["load"], measured, own)
    if section in _RUNS:
        plan, asked, regime = _RUNS[section](config, metric)
        return [Question(name, measured, plan, asked, "byte" if metric.startswith(_MEMORY) else "s", 1.0, regime, own)]
    if section not in KERNELS:
        raise Skipped(f"{section} rows have no prediction")
    kernel, regime = KERNELS[section]
    return [Prediction(name, measured, float(kernel(config, shares)), regime, own)]


def _power(row: Mapping[str, str], load: str, measured: float, own: bool) -> list[Question | Prediction]:
    """Watts at the rates that stand beside the row; of training steps, whose bytes were not counted, those of the answer."""
    if load.startswith("train_"):
        model, mode, batch, length, again = load.removeprefix("train_").split("_")
        layers = int(model.partition("-")[2].removesuffix("L") or 0) or None
        sizes = {"mb": int(batch.removeprefix("mb")), "seq": int(length.removeprefix("S")), "L": layers}
        config = Config(sizes, model=model, mode=mode, compile=False, recompute=again.removeprefix("rc"))
        return [
            Question(
                "power mean_power", measured, _step(config, "time_step")[0], "accelerator_power", "W", 1.0, _LOADS, own
            )
        ]
    if load.startswith("resnet50"):
        raise Excluded("the bytes that convolutions moved were not counted, without which their power is not known")
    told = _beside(row.get(FILE, "")).get(load, {})
    return [Prediction("power mean_power", measured, float(watts(load, told)), _LOADS, own)]


_LOADS = "power of loads"


@cache
def _beside(file: str) -> dict[str, dict[str, float]]:
    """What was measured of each load, of a file or of all tables that ship."""
    rows = table_rows(Path(file)) if file else [row for table in OWN_TABLES for row in own_rows(table)]
    found: dict[str, dict[str, float]] = {}
    for row in (row for row in rows if row["section"] == "power"):
        found.setdefault(json.loads(row["config"])["load"], {})[row["metric"]] = float(row["median"])
    return found


def _served(c: Config, metric: str) -> tuple[Plan, str, str]:
    name, weights = WORDS["served"].get(c["model"]), WORDS["weights"].get(c["wdtype"])
    mode = WORDS["software"].get(c["mode"])
    if name is None or weights is None or mode is None:
        raise Skipped(f"the model {c['model']!r}, the format {c['wdtype']!r} or the mode {c['mode']!r} is not known")
    phase, length = ("decode", c["ctx"]) if "ctx" in c else ("prefill", c["S"])
    mode += {"flash": "_fa2"}.get(c.get("attn", ""), "")
    regime = f"{'torch ' * c['mode'].endswith('torch')}{phase} {c['mode'].partition('_')[0]}"
    work = {"seq_len": length, "phase": phase, "batch_size": c["B"], "precision": weights}
    return _plan("inference", name, mode, c["L"], **work), "latency", regime


def _bert(c: Config, metric: str) -> tuple[Plan, str, str]:
    work = {"seq_len": c["N"], "batch_size": c["B"], "precision": "fp16"}
    return (
        _plan("inference", "BERT_Large", WORDS["software"][c["mode"]], **work),
        "latency",
        f"torch encoder {c['mode']}",
    )


def _network(c: Config, metric: str) -> tuple[Plan, str, str]:
    name, training = WORDS["vision"].get(c["model"]), "amp" in c["mode"]
    if name is None:
        raise Skipped(f"the network {c['model']!r} is not known")
    stack = "graph" if c["mode"] == "graph" else "eager_nhwc" if c.get("channels_last", True) else "eager"
    stack += "" if training else THROUGHOUT
    work = {"batch_size": c["B"], "precision": "bf16" if training else "fp16"}
    plan = _plan("training" if training else "inference", name, stack, **work)
    if metric.startswith(_MEMORY):
        return plan, *_ASKED["mem_peak"]
    fitted = runtime(stack).training if training else runtime(stack).inference
    return plan, "latency", regime_of(fitted or stack, Hardware.get(CHIP))


def _laid_out(mode: str) -> Callable[[Config, str], tuple[Plan, str, str]]:
    return lambda c, metric: _network(Config(c, mode=mode, model=c["net"], B=c["batch"]), metric)


def _denoiser(c: Config, metric: str) -> tuple[Plan, str, str]:
    """A pass of DiT-XL/2 over 256 or 1,024 patches."""
    name, stack = {256: "DiT_XL_2", 1024: "DiT_XL_2_512"}.get(c["N"]), WORDS["runtimes"].get(c["mode"])
    if name is None or stack is None:
        raise Skipped(f"{c['N']} patches in {c['mode']!r} mode are not known")
    work = {"batch_size": c["B"], "precision": "bf16"}
    return _plan("inference", name, stack.removesuffix("_nhwc"), **work), "latency", DIFFUSION


_STACKS = {("amp", False): "plain", ("bf16", False): "plain-16bit", ("amp", True): "plain-compiled"}
"""Software of our training runs, by mode and whether blocks were compiled."""
_BUT_STATE = f"{WITHOUT}gradients, activations, {CONTEXT}, {RESERVE}"
_STATE = dict.fromkeys(("mem_before", "mem_after_zero", "mem_model_opt"), (_BUT_STATE, "memory training"))
_ASKED = {
    **_STATE,
    "mem_model": (f"{_BUT_STATE}, optimizer state", "memory training"),
    "mem_peak_bwd": (f"{WITHOUT}{CONTEXT}, {RESERVE}", "memory training"),
    "time_step": ("latency", "training dense"),
    "time_opt": ("part: optimizer update", "training part opt"),
    "mem_reserved": (f"{WITHOUT}{CONTEXT}", "memory training"),
    "mem_peak": (f"{WITHOUT}{CONTEXT}, {RESERVE}", "memory training"),
}
"""What is asked of an answer. The allocator took all of its memory but that of the driver; tensors take that without the reserve."""


def _step(c: Config, metric: str) -> tuple[Plan, str, str]:
    """A step of one accelerator. Forward and backward are no parts of an answer, whose parts are kinds of work."""
    stack = _STACKS.get((c["mode"], bool(c["compile"])))
    if stack is None:
        raise Skipped(f"no stack is {c['mode']} and compiled")
    if metric in ("time_fwd", "time_bwd"):
        raise Excluded("parts of an answer are kinds of work, forward and backward together, which add up to the step")
    if metric not in _ASKED:
        raise Skipped(f"{metric} is no part of an answer")
    if c["model"] not in WORDS["trained"]:
        raise Skipped(f"the model {c['model']!r} is not known")
    work = {"batch_size": c["mb"], "seq_len": c["seq"], "precision": "bf16"}
    plan = _plan("training", WORDS["trained"][c["model"]], stack, c["L"], c["recompute"], **work)
    return plan, *_ASKED[metric]


def _held(c: Config, metric: str) -> tuple[Plan, str, str]:
    """What a model and its optimizer take, whatever the step."""
    layers = int(c["model"].partition("-")[2].removesuffix("L") or 0) or None
    return _step(Config(c, compile=False, mb=1, seq=128, L=layers, recompute="none"), metric)


def _plan(task: str, model: str, stack: str, layers: int | None = None, again: str | None = None, **work: Any) -> Plan:
    own = None if layers in (None, getattr(Models.get(model), "layers", None)) else {"layers": layers}
    split = {"tp": 1, "micro_batches": 1, "recompute": again} if task == "training" else {}
    return calibrated_plan(task, model, f"1x{CHIP}", stack=stack, parallelism=split, dimensions=own, **work)


_RUNS: dict[str, Callable[[Config, str], tuple[Plan, str, str]]] = {
    **dict.fromkeys(("e2e_decode", "e2e_prefill"), _served),
    "train": _step,
    "train_mem": _held,
    "net_infer_eager": _laid_out("eager"),
    "net_train_amp": _laid_out("amp"),
    "dit_xl2": _denoiser,
    **dict.fromkeys(("vision_inf", "vision_train"), _network),
    "bert_large": _bert,
}
"""Sections of whole passes and steps: the plan, what is asked of its answer, and the kind of work."""
