"""Rows of ``vision.csv``: throughput, latency and energy of vision networks, image diffusion and microcontrollers.

Settings that a row lacks: training of NVIDIA's DeepLearningExamples is taken at 128 images a device; MLPerf tasks have the lengths,
windows and steps of ``data/vision_engines.toml``. A time to train includes convergence, which no model of a system predicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from mlsysim.calibrate.prediction import Excluded, Prediction, Skipped
from mlsysim.calibrate.timm import timm_inventory
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.inventory import Inventory, inventory_of, totals
from mlsysim.models.registry import Models
from mlsysim.timing.diffusion_time import diffusion_time
from mlsysim.timing.engine_rates import engine_latency, engine_time
from mlsysim.timing.microcontroller import Board, board, inference_energy, inference_time
from mlsysim.timing.runtimes import regime_of
from mlsysim.timing.vision_time import constants, inventory_time, stack_of

__all__ = ["COLUMNS", "board_of", "predict", "runtime_of", "task_of"]

COLUMNS = ("model", "task", "device", "img_size", "gmacs", "macts", "metric", "value")

MEASURED = {
    "RTX_3090",
    "RTX_4090",
    "Core_i7_12700H",
    "Core_i9_10940X",
    "H100",
    "B200",
    "H200",
    "A100",
    "V100_16GB",
    "V100_32GB",
    "T4",
}
"""Chips whose rows took part in a fit or a check of the constants."""

_TIMM_NAMES = {
    "resnet50v1.5": ("resnet50", 224),
    "resnet50v1.5-mxnet": ("resnet50", 224),
    "resnet50v1.5-tf": ("resnet50", 224),
    "resnext101-32x4d": ("resnext101_32x4d", 224),
    "se-resnext101-32x4d": ("seresnext101_32x4d", 224),
    "efficientnet efficientnet-b0": ("efficientnet_b0", 224),
    "efficientnet efficientnet-widese-b0": ("efficientnet_b0", 224),
    "efficientnet efficientnet-b4": ("tf_efficientnet_b4", 380),
    "efficientnet efficientnet-widese-b4": ("tf_efficientnet_b4", 380),
    "resnet": ("resnet50", 224),
}
_BATCH = 128


def predict(row: Mapping[str, str]) -> list[Prediction]:
    """The predicted value of a row, in the row's unit."""
    try:
        return [_predict(row)]
    except MLSysError as error:
        raise Skipped(str(error)) from None


def _predict(row: Mapping[str, str]) -> Prediction:
    metric, task = row["metric"], row["task"]
    if "NOT CONFIRMED" in row["notes"]:
        raise Excluded("the source of this figure could not be confirmed")
    if metric == "time_to_train":
        raise Skipped("a time to train includes convergence, which is not a property of the system")
    if task == "infer-mcu":
        return _microcontroller(row)
    if task == "diffusion-infer":
        return _diffusion(row)
    source = row["source"]
    if source.startswith("mlperf-inference"):
        return _engine(row)
    if metric != "samples_per_s":
        raise Skipped(f"the metric {metric!r} is not modelled")
    return _framework(row)


def _chip(row: Mapping[str, str]) -> HardwareNode:
    if row["device"] in ("", "N/A"):
        raise Skipped("the row does not name its processor")
    chip: HardwareNode = Hardware.get(row["device"])
    return chip


def _number(row: Mapping[str, str], name: str) -> float:
    try:
        return float(row[name])
    except ValueError:
        raise Skipped(f"the row gives no {name}") from None


def _prediction(
    row: Mapping[str, str], value: float, regime: str, measured: bool, inferred: tuple[str, ...]
) -> Prediction:
    return Prediction(row["metric"], _number(row, "value"), value, regime, measured, inferred)


# --- frameworks: timm, DeepLearningExamples, MLPerf training --------------------------------------------------------


def _inventory(row: Mapping[str, str]) -> tuple[Inventory, tuple[str, ...]]:
    name, size = _TIMM_NAMES.get(row["model"], (row["model"], int(row["img_size"] or 0)))
    found = timm_inventory(name, size)
    if found is not None:
        return found, ()
    if row["gmacs"] and row["macts"]:
        operations, activations = 2e9 * float(row["gmacs"]), 1e6 * float(row["macts"])
        return totals(name, operations, activations, 1e6 * float(row["mparams"] or 0)), ("operators from totals",)
    return _zoo_inventory(row["model"]), ("operators from the zoo's layers",)


@cache
def _zoo_inventory(name: str) -> Inventory:
    model = Models.get(name)
    if not getattr(model, "fixed_shape", False):
        raise Skipped(f"{model.name} is not a network of fixed shape")
    return inventory_of(model)


def _framework(row: Mapping[str, str]) -> Prediction:
    chip = _chip(row)
    inventory, inferred = _inventory(row)
    training, devices = row["task"] == "train", float(row["n_devices"] or 1)
    batch = float(row["batch"]) if row["batch"] else float(_BATCH)
    if not row["batch"]:
        inferred += (f"batch {_BATCH}",)
    precision = row["precision"]
    if row["source"].startswith("timm-"):
        stack = stack_of(row["compiler"], row["layout"], training)
        regime = regime_of(stack, chip)
        if inventory.aggregate:
            regime += " from totals"
    elif row["source"].startswith("mlperf-training"):
        if row["model"].startswith("dlrm"):
            raise Skipped("training of recommendation models with sharded embedding tables is not modelled here")
        stack, regime, precision = "dle_mxnet_train", "vision mlperf training", "mixed"
        batch = max(1.0, batch / devices)
        inferred += ("mixed precision",)
    else:
        stack = _example_stack(row["model"], training)
        regime = regime_of(stack, chip)
    if not precision:
        raise Skipped("the row gives no precision")
    seconds = inventory_time(inventory, chip, batch, precision, stack).total
    scaling = constants()["data_parallel"]["share"] if devices > 1 else 1.0
    if row["source"].startswith("mlperf-training") and row["model"] == "ssd":
        # These logs print the throughput of one device: times the devices it agrees with the time to train, alone it does not.
        devices, inferred = 1.0, (*inferred, "throughput of one device")
    return _prediction(row, scaling * devices * batch / seconds, regime, chip.metadata.key in MEASURED, inferred)


def _example_stack(model: str, training: bool) -> str:
    framework = "mxnet" if model.endswith("-mxnet") else "tensorflow" if model.endswith("-tf") else "pytorch"
    if framework == "tensorflow" and not training:
        raise Skipped("no constants for inference in TensorFlow")
    return f"dle_{framework}{'_train' if training else ''}"


# --- inference engines: MLPerf ------------------------------------------------------------------------------------------


@cache
def task_of(model: str) -> tuple[Inventory, dict[str, Any]]:
    """The network of an MLPerf task and its facts; the accuracy target makes no difference here."""
    name = re.sub(r"-99(\.9)?$", "", model)
    facts = constants()["mlperf"]["tasks"].get(name)
    if facts is None:
        raise Skipped(f"what a sample of the MLPerf task {name!r} evaluates is not published")
    network = Models.get(facts["model"])
    if "tokens" in facts:
        return inventory_of(network, seq_len=facts["tokens"]), facts
    return inventory_of(network), facts


def _in_engine_fit(chip: HardwareNode) -> bool:
    return (chip.generation or "").replace(" ", "_") in constants()["tensorrt"]


def _engine(row: Mapping[str, str]) -> Prediction:
    chip = _chip(row)
    inventory, facts = task_of(row["model"])
    passes = facts.get("passes", 1)
    regime = "vision engine offline"
    metric = row["metric"]
    if metric in ("singlestream_p90_latency", "multistream_p99_latency"):
        samples = 8 if metric.startswith("multi") else 1
        seconds = engine_latency(inventory, chip, samples, passes)
        return _prediction(row, seconds * 1e3, "vision engine latency", _in_engine_fit(chip), ("TensorRT",))
    rate = _number(row, "n_devices") / engine_time(inventory, chip, passes)
    if metric == "server_completed_samples_per_s":
        rate, regime = rate * constants()["mlperf"]["server_share"], "vision engine server"
    elif metric != "offline_samples_per_s":
        raise Skipped(f"the metric {metric!r} is not modelled")
    return _prediction(row, rate, regime, _in_engine_fit(chip), ("8-bit arithmetic",))


# --- diffusion ------------------------------------------------------------------------------------------------------------


def _setting(row: Mapping[str, str], name: str) -> int:
    found = re.search(rf"\b{name}=(\d+)", row["notes"])
    if found is None:
        raise Skipped(f"the row gives no {name}")
    return int(found[1])


def _diffusion(row: Mapping[str, str]) -> Prediction:
    chip = _chip(row)
    model = Models.get(row["model"])
    steps, ulysses, ring = (_setting(row, name) for name in ("steps", "ulysses", "ring"))
    seconds = diffusion_time(model, chip, _number(row, "batch"), steps, ulysses, ring)
    return _prediction(row, seconds, "diffusion", chip.metadata.key in MEASURED, ())


# --- microcontrollers -----------------------------------------------------------------------------------------------------


def board_of(row: Mapping[str, str]) -> Board:
    """The board of a row."""
    name = re.sub(r"_(int8|float)(_max_performance|_min_ram)?$", "", row["device"])
    special = {
        "AndesCore_d25_tflite_micro_framework": "Andes_D25F",
        "AndesCore_d45_tflite_micro_framework": "Andes_D45",
        "syntiant_9120_0v9_30mhz": "Syntiant_NDP120_low",
        "syntiant_9120_1v1_98mhz": "Syntiant_NDP120",
    }
    if name in special:
        return board(special[name])
    if name in Hardware and Hardware.get(name).metadata.key in constants()["mcu"]["boards"]:
        return board(Hardware.get(name).metadata.key)
    return _described_board(row)


def _described_board(row: Mapping[str, str]) -> Board:
    """A board that is known only by the core and the clock that its row states."""
    if re.search(r"acc=\s*\S", row["notes"]):
        raise Skipped(f"the accelerator of {row['device']!r} is not known")
    core = re.search(r"Cortex\W*-?(M\d+\+?)", row["notes"])
    clock = re.search(r"@ *([\d.]+) *([MG])Hz", row["notes"], re.IGNORECASE)
    if core is None or clock is None or f"Cortex-{core[1]}" not in constants()["mcu"]["cores"]:
        raise Skipped(f"the core or the clock of {row['device']!r} is not known")
    hertz = float(clock[1]) * (1e6 if clock[2].upper() == "M" else 1e9)
    return Board(row["device"], f"Cortex-{core[1]}", hertz, None)


def runtime_of(row: Mapping[str, str], target: Board) -> str:
    """The runtime that a row's submitter used."""
    submitter = re.search(r"(?:closed|open) (\w+)", row["notes"])
    who = submitter[1].lower() if submitter else ""
    late = row["source"].endswith(("v1.2", "v1.3"))
    if who == "stmicroelectronics":
        return "STM32Cube.AI 9" if late else "STM32Cube.AI 7"
    if who == "renesas" and target.core == "Cortex-M33":
        return "Renesas 2021"
    return "plumerai" if who == "plumerai" else "default"


def _microcontroller(row: Mapping[str, str]) -> Prediction:
    model, target = Models.get(row["model"]), board_of(row)
    runtime = runtime_of(row, target)
    arithmetic = "float" if "_float" in row["device"] else "int8"
    known = target.name in constants()["mcu"]["boards"]
    seconds = inference_time(model, target, runtime, arithmetic)
    if row["metric"] == "inferences_per_s":
        return _prediction(row, 1 / seconds, "microcontroller time", known, ("runtime",))
    if row["metric"] == "energy_per_inference":
        joules = inference_energy(model, target, runtime)
        if joules is None:
            raise Skipped(f"no active power is known for {target.name}")
        return _prediction(row, joules * 1e6, "microcontroller energy", known, ("runtime",))
    raise Skipped(f"the metric {row['metric']!r} is not modelled")
