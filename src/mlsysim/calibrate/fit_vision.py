"""Refits ``data/software/vision.toml`` from a folder of measurement tables (``vision.csv``) and our own H200 passes, and prints how well it fits.

GPUs are in :mod:`mlsysim.calibrate.fit_networks`; here CPUs and image diffusion, then TensorRT's shares by GPU generation (MLPerf offline results) and the microcontroller tables (MLPerf Tiny) of
``data/software/runtimes.toml``, which are only printed. For each part the error in sample, then with one chip, one board and (where it means
something) one half of the models left out: median / 90th percentile / bias in per cent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fit_networks import fit_gpu
from mlsysim.calibrate.fitting import Columns, Keep, fit_sum, forgotten, left_out, line, report, sums, table_of
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.questions import Skipped
from mlsysim.calibrate.residuals import Kept, Residual, family
from mlsysim.calibrate.tables.vision import board_of, runtime_of, settings_of, task_inventory
from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.models.counted import timm_network
from mlsysim.models.inventory import Inventory
from mlsysim.models.registry import Models
from mlsysim.models.timm_counts import counted_sizes
from mlsysim.timing.diffusion_time import DEVICE_TERMS, EAGER, HOST_TERMS, XDIT, denoiser, diffusion_features
from mlsysim.timing.engine_rates import engine_features
from mlsysim.timing.microcontroller import shape_of
from mlsysim.timing.runtimes import DIFFUSION, regime_of
from mlsysim.timing.vision_time import CPU_TERMS, clock_of, cpu_features

SHIPPED = Path(str(files("mlsysim.data"))) / "software" / "vision.toml"
DENOISERS = Path(str(files("mlsysim.calibrate"))) / "data" / "h200_denoisers.csv"
SHARPNESS = 5.0
"""Launches hide behind a device that is busy for longer; with 2 instead, rows of chips left out are missed by 9.9 % and not 9.2."""


def _counted(rows: list[dict[str, str]]) -> list[tuple[dict[str, str], HardwareNode, Inventory]]:
    """Rows on CPUs whose networks' operators were counted, with chip and operators."""
    found = []
    for row in rows:
        name, size, chip = row["model"].split(".")[0], int(row["img_size"]), Hardware.get(row["device"])
        if chip.family == "cpu" and size in counted_sizes().get(name, ()):
            found.append((row, chip, timm_network(name, size).inventory))
    return found


def _toml(name: str, values: dict[str, float], note: str) -> str:
    lines = [f"[{name}]", f"# {note}"] + [f"{key} = {value:.4g}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _fitted(name: str, terms: Sequence[str], coefficients: Any, errors: Any) -> str:
    values = dict(zip(terms, coefficients.tolist(), strict=True))
    return _toml(name, values, f"fit error, median / p90 / bias in %: {line(errors).strip()}")


def _about(row: dict[str, str], regime: str, chip: HardwareNode) -> tuple[str, ...]:
    """What a residual says of a row."""
    return ("vision", row["id"], row["metric"], regime, "", family(row["model"]), chip.metadata.key or chip.name)


def fit_cpu(rows: list[dict[str, str]], keep: Keep = forgotten) -> str:
    """One set of coefficients, and for each CPU three factors: arithmetic, memory, latency."""
    found = []
    for row, node, inventory in _counted(rows):
        features = cpu_features(inventory, node, float(row["batch"]))
        terms, about = [features[name] for name in CPU_TERMS], _about(row, regime_of("cpu", node), node)
        found.append((terms, 1 / float(row["value"]), node.metadata.key, about))
    table = Columns.of(found, "terms", "measured", "chip", "about")
    x, y, keys = table.terms, table.measured, table.chip
    kinds = np.array([2 if t.endswith("_calls") else 0 if t.endswith("_operations") else 1 for t in CPU_TERMS])
    chips, start = sorted(set(keys.tolist())), list(table_of("vision_cpu").values())
    scales = {chip: np.ones(3) for chip in chips}
    fitted, relative = sums(start)

    def scaled() -> Columns:
        return Columns(terms=np.array([scales[k][kinds] for k in keys]) * x, measured=y)

    for _ in range(12):
        coefficients = fitted(scaled())
        for chip in chips:
            inside = keys == chip
            parts = coefficients * x[inside]
            grouped = np.stack([parts[:, kinds == g].sum(axis=1) for g in range(3)], axis=1)
            scales[chip] = fit_sum(grouped, y[inside], [1.0, 1.0, 1.0])
        middle = np.exp(np.mean([np.log(s) for s in scales.values()], axis=0))
        scales = {chip: s / middle for chip, s in scales.items()}
    errors = relative(scaled(), coefficients)
    print(f"{'cpu':12s} in sample        {line(errors)}")
    for chip, without in left_out(table, "chip", fitted, relative):
        print(f"{'':12s} {chip:16s} {line(errors[keys == chip])}")
        keep(table.where(keys == chip), "chip", without)
        print(f"{'':12s} without it       {line(without)}")
    text = [_fitted("cpu", CPU_TERMS, coefficients, errors)]
    for chip, scale in [*scales.items(), ("default", np.ones(3))]:
        factors = dict(zip(("arithmetic", "memory", "latency"), scale.tolist(), strict=True))
        note = "between the measured chips" if chip == "default" else "factors on the coefficients above"
        text.append(_toml(f"cpu.classes.{chip}", factors, note))
    return "\n".join(text)


def fit_diffusion(rows: list[dict[str, str]], keep: Keep = forgotten) -> str:
    """Constants of denoisers: ML.ENERGY's images under xDiT on one node, and passes of diffusers' networks on our own H200."""
    names, kept = (*DEVICE_TERMS, *HOST_TERMS), []

    def add(found: dict[str, float], seconds: float, device: str, name: str, about: tuple[str, ...]) -> None:
        kept.append(([found.get(term, 0.0) for term in names], seconds, device, name, about))

    for row in (row for row in rows if row["task"] == "diffusion-infer"):
        model, chip = Models.get(row["model"]), Hardware.get(row["device"])
        steps, ulysses, ring = settings_of(row, "steps", "ulysses", "ring")
        passes, batch = steps * model.guidance_passes, float(row["batch"])
        found = diffusion_features(denoiser(model), chip, batch, passes, steps, ulysses, ring, stack=XDIT)
        add(found, float(row["value"]), row["device"], row["model"], _about(row, DIFFUSION, chip))
    chip = Hardware.get("H200")
    for at, row in enumerate(table_rows(DENOISERS)):
        stack = EAGER if row["mode"] == "eager" else f"{EAGER}_{row['mode']}"
        work, batch = denoiser(Models.get(row["model"])), float(row["batch"])
        found = diffusion_features(work, chip, batch, 1, 1, images_decoded=0.0, stack=stack)
        asked = {"id": f"HD{at:03d}", "metric": "pass_latency", "model": row["model"]}
        add(found, float(row["seconds"]), f"{row['mode']} on H200", row["model"], _about(asked, DIFFUSION, chip))
    groups = [0] * len(DEVICE_TERMS) + [1] * len(HOST_TERMS)
    table = Columns.of(kept, "terms", "measured", "device", "model", "about")
    start = table_of("diffusion")
    how = sums([start[name] for name in names], 0.1, groups, SHARPNESS)
    values, errors, _ = report("diffusion", table, *how, "device", "model", keep=keep)
    return _fitted("diffusion", (*names, "sharpness"), np.append(values, SHARPNESS), errors)


TASKS = ("resnet50", "retinanet", "bert-99", "stable-diffusion-xl")
ENGINE_TERMS = ("conv", "gemm", "attention", "bytes")
ENGINE_START = (2.5, 1.25, 4.0, 0.5)
PULL = (0.5, 1e4, 0.5, 0.5)
ROUNDS = 60


def fit_tensorrt(rows: list[dict[str, str]], keep: Keep = forgotten) -> None:
    """Shares of each generation from the tasks whose operations are counted."""
    data: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        counted = row["metric"] == "offline_samples_per_s" and row["model"] in TASKS and row["n_devices"]
        if not counted or "TensorRT" not in row["notes"]:
            continue
        chip = Hardware.get(row["device"])
        inventory, passes = task_inventory(row["model"])
        features = engine_features(inventory, chip)
        cost = [passes * features[name] / clock_of(chip) for name in ENGINE_TERMS]
        seconds, about = float(row["n_devices"]) / float(row["value"]), _about(row, "vision engine offline", chip)
        data[chip.generation or ""].append((chip.name, cost, seconds, about))
    for generation, found in sorted(data.items()):
        table = Columns.of(found, "chip", "terms", "measured", "about")
        values, _, _ = report(f"tensorrt {generation}", table, *sums(ENGINE_START, PULL), "chip", keep=keep)
        print({n: round(float(v if n == "bytes" else 1 / v), 3) for n, v in zip(ENGINE_TERMS, values, strict=True)})


def rates(rows: Columns) -> tuple[dict[str, float], ...]:
    """Logarithms of core, shape and runtime by repeated medians; the shape "depthwise" and the runtime "default" are one."""
    tables: tuple[dict[str, float], ...] = tuple(defaultdict(float) for _ in range(3))
    labels = (rows.core.tolist(), rows.shape.tolist(), rows.runtime.tolist())
    for _ in range(ROUNDS):
        for i, table in enumerate(tables):
            left = rows.rate - sum(np.array([tables[j][key] for key in labels[j]]) for j in range(3) if j != i)
            for key in sorted(set(labels[i])):
                table[key] = float(np.median(left[np.array(labels[i]) == key]))
        for table, anchor in ((tables[1], "depthwise"), (tables[2], "default")):
            shift = table.get(anchor, 0.0)
            for key in table:
                table[key] -= shift
            for key in tables[0]:
                tables[0][key] += shift
    return tables


def errors(rows: Columns, tables: tuple[dict[str, float], ...]) -> Any:
    """Of the rows whose core is known."""
    known = rows.where(np.array([core in tables[0] for core in rows.core.tolist()]))
    labels = zip(tables, (known.core, known.shape, known.runtime), strict=True)
    found = [[table.get(key, 0.0) for key in column.tolist()] for table, column in labels]
    return np.expm1(np.sum(found, axis=0) - known.rate)


def fit_microcontrollers(rows: list[dict[str, str]], keep: Keep = forgotten) -> None:
    """Multiply-adds a cycle by core, shape and runtime."""
    found = []
    for row in rows:
        if row["metric"] != "inferences_per_s" or "_float" in row["device"]:
            continue
        with suppress(Skipped, MLSysError):
            (target, _), model = board_of(row), Models.get(row["model"])
            rate = model.flops_per_sample / 2 * float(row["value"]) / target.clock
            about = ("vision", row["id"], row["metric"], "microcontroller time", "", row["model"], target.name)
            found.append(
                (target.name, target.core, shape_of(model), runtime_of(row, target), float(np.log(rate)), about)
            )
    table = Columns.of(found, "board", "core", "shape", "runtime", "rate", "about")
    tables, _, _ = report("microcontrollers", table, rates, errors, "board", keep=keep)
    for label, values in zip(("cores", "shapes", "runtimes"), tables, strict=True):
        print(f"  {label}", {key: round(float(np.exp(value)), 3) for key, value in values.items()})


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit, print, and write the tables."""
    rows, keep = table_rows(published(folder) / "vision.csv"), Kept()
    timm = [r for r in rows if r["source"].startswith("timm-")]
    text = "\n".join((fit_gpu(rows, keep), fit_cpu(timm, keep), fit_diffusion(rows, keep)))
    fit_tensorrt([r for r in rows if r["source"].startswith("mlperf-inference")], keep)
    fit_microcontrollers([r for r in rows if r["task"] == "infer-mcu"], keep)
    if out is not None:
        head = (
            "# Coefficients of vision networks by software stack, on CPUs, and of image diffusion, fitted to measurements\n"
            "# (timm benchmark results, https://github.com/huggingface/pytorch-image-models/tree/main/results; NVIDIA DeepLearningExamples,\n"
            "# https://github.com/NVIDIA/DeepLearningExamples; calibrate/data/h200_vision.csv.gz; ML.ENERGY leaderboard,\n"
            "# https://ml.energy/leaderboard). Written by `python -m mlsysim.calibrate FOLDER --only vision`. Operation terms are seconds for each second at the\n"
            "# peak, byte terms for each second of minimal bytes, calls and launches in microseconds.\n\n"
        )
        out.write_text(head + text, encoding="utf-8")
    return keep
