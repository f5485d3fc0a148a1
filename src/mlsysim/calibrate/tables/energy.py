"""Rows of ``energy.csv``: energy for each token and image at the measured throughput, and energy and emissions of training runs.

Inferred: prompt lengths of the ML.ENERGY tasks (``data/power.toml``). A vision-language model is taken as its language model, whose
inputs the host prepares. Emissions that a model card computed from GPU-hours and TDP are no measurements.

Rows of ``training_energy.csv``: mean power of nodes in training runs, at the side of the meter that the row names.

A row gives model, accelerators and watts of a node or of an accelerator; what was run are the settings of the benchmark's other submitters at that size
(``data/rows.toml``), else those that the planner takes, which is inferred. A plan is asked for the power of a node on the mains; behind the supplies (DC) it is less by their losses. The
power of a run is that of its steps: short runs, whose timed region holds start, evaluation and waiting, draw less, and are scored all the same.
Energy that was computed from accelerator-hours and TDP is no measurement, and energy of many runs together no run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mlsysim.calibrate.cells import (
    cell,
    chip_of,
    experts_of,
    format_of,
    key_of,
    language_model,
    measured,
    metric_named,
    number,
    served_plan,
)
from mlsysim.calibrate.measurements import settings
from mlsysim.calibrate.questions import Excluded, Prediction, Question, Row, Skipped, calibrated_plan, whole_nodes
from mlsysim.calibrate.tables.vision import denoising_plan
from mlsysim.cases.footprint import carbon_mass, computing_energy, facility_energy
from mlsysim.cases.pass_times import ENERGY
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.base import Workload
from mlsysim.models.registry import Models
from mlsysim.timing.power import energy_per_item, power_constants

COLUMNS = ("workload", "hardware", "n_chips", "avg_power_w_per_chip", "grid_kgco2_per_kwh", "metric", "value")
SERVING, IMAGES = "energy_per_output_token", "energy_per_image"
TRAINING = ("id", "source", "run", "model", "gpu", "n_gpus", "n_nodes", "mean_node_w", "includes", "measured")
TRAINED = "energy of training"
_RUNS: dict[str, Any] = settings("rows")["training_energy"]
_METRICS: dict[str, str] = settings("rows")["energy"]["metrics"]
_SETTINGS: dict[str, str] = settings("rows")["energy"]["settings"]
_LARGE: dict[str, float] = settings("rows")["energy"]["units"]
_STATE = "GPT3_6_7B"
_IMAGES = 256
_ADAPTERS = 16
"""Where a row does not say them: images of a device, and the rank of adapters."""
_PARALLEL = ("tp", "pp", "cp", "virtual_stages", "micro_batch", "micro_batches", "zero")


def read(row: Mapping[str, str]) -> list[Question | Prediction]:
    """What to ask for a row; energy and emissions of training runs are arithmetic on the row's own power."""
    row = Row(row, metric=metric_named(row["metric"], _METRICS))
    if row["metric"] == SERVING:
        return [_tokens(row)]
    if row["metric"] == IMAGES:
        return [_image(row)]
    if row["source"] == "llama-model-cards":
        raise Excluded("the model card computed it from GPU-hours and TDP: no measurement")
    if row["metric"] in ("energy", "gross_emissions", "net_emissions"):
        return [_training(row)]
    if row["metric"] in ("measured_tflops_per_chip", "total_compute"):
        raise Excluded(f"{row['metric']!r} is arithmetic done, not energy")
    raise Skipped(f"the metric {row['metric']!r} is not modelled")


def _tokens(row: Mapping[str, str]) -> Question:
    """Serving rows ask a plan for the power of an accelerator at the measured rate; the rest of the row is arithmetic on it."""
    model, task, chip, notes = served(row)
    devices, rate = int(row["n_chips"]), float(notes["tput"])
    tp, ep, ranks = (int(notes.get(name, "1")) for name in ("tp", "ep", "dp"))
    if ep > 1 and tp == 1 and ranks == 1:
        tp = ep  # as in the tables of inference: attention on as many tensor-parallel devices
    serving = {
        "prompt_tokens": round(float(notes.get("isl", 0))) or power_constants()["prompt_tokens"][task],
        "output_tokens": max(1, round(float(notes["avg_out"]))),
        "concurrency": max(1, round(float(notes["avg_batch"]))),
        "replicas": 1,
        "engine": "vLLM_2025",
        "output_rate": rate,
        "host_bound": True if task in power_constants()["prepared_on_host"]["tasks"] else None,
    }
    split = {"tp": tp, "ep": ep if experts_of(model) > 1 else 1}
    plan = served_plan(
        model, devices, key_of(chip), split, serving, precision=format_of(notes["prec"], row["workload"])
    )
    asked = ("accelerator_power", "W", float(energy_per_item(1.0, devices, rate)), "energy per token")
    return Question(SERVING, measured(row), plan, *asked, _measured(chip), ("prompt length",))


def _image(row: Mapping[str, str]) -> Question:
    """Images ask for their energy at the measured rate."""
    model, chip, devices, batch, steps, seconds = imaged(row)
    plan = denoising_plan(key_of(model), chip, devices, batch, steps, stack="xdit", measured_rate=batch / seconds)
    return Question(IMAGES, measured(row), plan, "energy_per_sample", "J", 1.0, ENERGY, _measured(chip))


def _measured(chip: HardwareNode) -> bool:
    return chip.metadata.key in power_constants()["provenance"]["measured"]


def _notes(row: Mapping[str, str]) -> dict[str, str]:
    """Settings in a row's notes: tput=1500 (tokens/s), avg_batch=64; under the names of other tables too."""
    said = re.findall(r"([\w-]+) ?= ?([\w.]+)", row["notes"])
    return {_SETTINGS.get(name.lower(), name): value for name, value in said}


def served(row: Mapping[str, str]) -> tuple[Any, str, HardwareNode, dict[str, str]]:
    """Model, task, chip and settings of a row of serving."""
    name, _, task = row["workload"].partition(" | ")
    notes, model, chip = _notes(row), language_model(name), chip_of(row["hardware"])
    if task not in power_constants()["prompt_tokens"] and "isl" not in notes:
        raise Skipped(f"the prompt length of the task {task!r} is not known")
    if not {"tput", "prec", "avg_batch", "avg_out"} <= set(notes):
        raise Skipped(
            "the row's notes give no throughput, precision, batch or answer length: tput=, prec=, avg_batch=, avg_out="
        )
    return model, task, chip, notes


def imaged(row: Mapping[str, str]) -> tuple[Any, HardwareNode, int, int, int, float]:
    """Model, chip, devices, batch, steps and seconds of a row of images."""
    notes = _notes(row)
    if not {"batch", "latency_s", "steps"} <= set(notes):
        raise Skipped("the row gives no batch, latency or steps")
    model, chip = language_model(row["workload"].split(" | ")[0]), chip_of(row["hardware"])
    return model, chip, int(row["n_chips"]), int(notes["batch"]), int(notes["steps"]), float(notes["latency_s"])


def _training(row: Mapping[str, str]) -> Prediction | Question:
    if row["metric"] == "energy" and row["days"] and row["n_chips"] and not row["avg_power_w_per_chip"]:
        return _drawn(row)
    if not row["avg_power_w_per_chip"] or not row["days"] or not row["pue"]:
        raise Skipped("the row gives no measured power, duration or PUE")
    fleet = int(row["n_chips"]) * float(row["avg_power_w_per_chip"]) / 1e3
    energy = facility_energy(computing_energy(fleet, float(row["days"]) * 24), float(row["pue"]))
    value = energy / 1e3 if row["metric"] == "energy" else carbon_mass(energy, float(row["grid_kgco2_per_kwh"])) / 1e3
    return Prediction(row["metric"], _large(row), float(value), "training energy", True)


def _drawn(row: Mapping[str, str]) -> Question:
    """The energy of accelerators over the days of a run, at the power that the planner's run of the model draws; of models without layers one of their size does not matter."""
    chip, model = chip_of(row["hardware"]), Models.get(row["workload"], None)
    inferred = ("settings of the run",) if model is not None else ("settings of the run", "model")
    model = model or Models.get(_STATE)
    on, count = whole_nodes(int(row["n_chips"]), key_of(chip)), int(row["n_chips"])
    plan = calibrated_plan("training", key_of(model), on, precision=_half(chip))
    megawatt_hours = count * number(row, "days") * 24 * number(row, "pue", 1.0) / 1e6
    told = ("accelerator_power", "W", megawatt_hours, TRAINED, _measured(chip), inferred, 1)
    return Question(row["metric"], _large(row), plan, *told)


def _large(row: Mapping[str, str]) -> float:
    """What was measured of a run, in MWh or in t."""
    return measured(row) * _LARGE.get(cell(row, "unit").removesuffix("CO2e").removesuffix("CO2eq"), 1.0)


def _half(chip: HardwareNode) -> str:
    return "bf16" if chip.compute.supports("bf16") else "fp16"


def read_training(row: Mapping[str, str]) -> list[Question]:
    """What to ask for a row of training."""
    if not cell(row, "measured").startswith("yes"):
        raise Excluded("computed from accelerator-hours and TDP: no measurement")
    node, each = (number(row, name, 0.0) for name in ("mean_node_w", "mean_w_per_gpu"))
    hours, energy = number(row, "gpu_hours", 0.0), number(row, "energy_mwh", 0.0)
    if not node and not each and hours and cell(row, "includes").startswith("GPU"):
        each = energy * 1e6 / hours
    if not cell(row, "n_gpus") or not (each or (node and cell(row, "n_nodes"))):
        raise Excluded("the row is of many runs together, and gives no power of a node")
    model, chip = Models.get(row["model"]), chip_of(row["gpu"])
    known, inferred = _RUNS.get(key_of(model), {}).get(row["n_gpus"]), ["settings of other submitters"]
    if known is None:
        known, inferred = _usual(row, model, chip), ["settings of the run"]
    # The tables of that cluster are of one that is immersed.
    immersed = "immers" in " ".join(row.values()).lower() or re.search(r"\bsmc\b", cell(row, "source")) is not None
    inferred.append(f"{'liquid' if immersed else 'usual'} cooling")
    split = {name: known[name] for name in _PARALLEL if name in known}
    work = {name: value for name, value in known.items() if name not in (*_PARALLEL, "stack")}
    run = {"stack": known.get("stack"), "parallelism": split, "hardware": {"cooling": "liquid" if immersed else None}}
    plan = calibrated_plan("training", key_of(model), whole_nodes(int(row["n_gpus"]), key_of(chip)), **run, **work)
    guessed = int(inferred[0] == "settings of the run")
    if not node:
        told = ("accelerator_power", "W", 1.0, TRAINED, _measured(chip), tuple(inferred), guessed)
        return [Question("mean_w_per_gpu", each, plan, *told)]
    # Supplies lose a share of what the mains give.
    factor = 1 / power_constants()["node"]["liquid"]["factor"] if "mean W is DC" in row["includes"] else 1.0
    asked, share = ("power", 1 / int(row["n_nodes"])) if "network" in row["includes"] else ("node_power", 1.0)
    return [
        Question(
            "mean_node_w", node, plan, asked, "W", factor * share, TRAINED, _measured(chip), tuple(inferred), guessed
        )
    ]


def _usual(row: Mapping[str, str], model: Workload, chip: HardwareNode) -> dict[str, Any]:
    """A run of which only the model is said: the planner's layout of it, in 16 bits, as busy as its chip allows."""
    precision = _half(chip)
    if model.fixed_shape:
        batch = _IMAGES * int(row["n_gpus"])
        return {"stack": "mlperf", "precision": precision, "batch_size": batch, "tp": 1, "micro_batches": 1}
    tuned = "lora" in f"{row['run']} {cell(row, 'notes')}".lower()
    return {"precision": precision, "lora_rank": _ADAPTERS if tuned else None}
