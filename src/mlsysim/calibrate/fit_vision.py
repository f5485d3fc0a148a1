"""Refits ``data/software/vision.toml`` from a folder of measurement tables (``vision.csv``), and prints how well it fits.

    python -m mlsysim.calibrate.fit_vision FOLDER [OUT.toml]

For each part the error in sample, then with one chip and (where it means something) one half of the models left out:
median / 90th percentile / bias in per cent.
"""

from __future__ import annotations

import csv
import sys
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.additive import errors_of, evaluate_sum, fit_sum, line
from mlsysim.calibrate.tables.vision import runtime_of_row, settings_of
from mlsysim.hardware.registry import Hardware
from mlsysim.models.counted import counted_sizes, timm_network
from mlsysim.models.inventory import Inventory
from mlsysim.models.registry import Models
from mlsysim.timing.diffusion_time import DEVICE_TERMS, HOST_TERMS, denoiser, diffusion_features
from mlsysim.timing.runtimes import runtime
from mlsysim.timing.vision_time import CPU_TERMS, TERMS, cpu_features, gpu_features

INTENSITIES = (0.0, 2.0, 4.0, 6.0, 8.0, 9.0, 10.0, 11.0, 12.0, 14.0)
GPU_START = {
    "conv_operations": 1.33,
    "dense_operations": 1.33,
    "attention_operations": 1.67,
    "grouped_operations": 2.0,
    "depthwise_operations": 16.7,
    "conv_bytes": 1.2,
    "pointwise_bytes": 1.2,
    "gemm_bytes": 1.2,
    "attention_bytes": 1.0,
    "softmax_bytes": 0.7,
    "depthwise_bytes": 1.5,
    "grouped_bytes": 2.0,
    "batch_norm_bytes": 0.8,
    "relu_bytes": 0.8,
    "activation_bytes": 0.8,
    "elementwise_bytes": 1.2,
    "layer_norm_bytes": 2.0,
    "group_norm_bytes": 2.0,
    "copy_bytes": 1.5,
    "reduction_bytes": 1.0,
    "weights": 2.0,
    "kernels": 1.0,
}
TRAINING_SCALE = 3.5
CPU_START = (2.0, 2.0, 2.5, 3.3, 3.3, 25.0, 2.5, 1.0, 1.0, 0.5, 1.0, 1.0, 15.0, 15.0, 5.0, 5.0)
DIFFUSION_START = (1.0, 0.19, 67.0, 134.0, 67.0, 1.0, 0.7, 200.0, 2.0, 20.0, 200.0)
SHARPNESS = 2.0


def _stack_start(stack: str) -> list[float]:
    scale = TRAINING_SCALE if stack.startswith("train") else 1.0
    fixed = {"weights": 3.0, "kernels": 5.0} if stack.startswith("train") else {}
    return [fixed.get(name, GPU_START[name] * scale) for name in TERMS]


def _counted(row: dict[str, str]) -> Inventory | None:
    """The operators of a row's network, None where they were not counted."""
    name, size = row["model"].split(".")[0], int(row["img_size"])
    return timm_network(name, size).inventory if size in counted_sizes().get(name, ()) else None


def _fold(model: str) -> int:
    return zlib.crc32(model.encode()) % 2


def _toml(name: str, values: dict[str, float], note: str) -> str:
    lines = [f"[{name}]", f"# {note}"] + [f"{key} = {value:.4g}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def fit_gpu(rows: list[dict[str, str]]) -> tuple[str, float]:
    """Coefficients of each stack, and the vector operations for each byte of elementwise kernels."""
    data: dict[str, list[tuple[dict[str, str], Any]]] = defaultdict(list)
    for row in rows:
        inventory = _counted(row)
        if Hardware.get(row["device"]).family == "gpu" and inventory is not None:
            software = runtime(runtime_of_row(row))
            data[(software.training if row["task"] == "train" else software.inference) or ""].append((row, inventory))

    def matrix(stack: str, intensity: float) -> Any:
        found = [
            gpu_features(i, Hardware.get(r["device"]), float(r["batch"]), r["precision"], intensity)
            for r, i in data[stack]
        ]
        return np.array([[f[name] for name in TERMS] for f in found])

    def measured(stack: str) -> Any:
        return np.array([1 / float(r["value"]) for r, _ in data[stack]])

    inference = sorted(s for s in data if not s.startswith("train"))
    losses = []
    for intensity in INTENSITIES:
        total = 0.0
        for stack in inference:
            x, y = matrix(stack, intensity), measured(stack)
            total += float(np.abs(np.log(evaluate_sum(x, fit_sum(x, y, _stack_start(stack))) / y)).sum())
        losses.append(total)
        print(
            f"  intensity {intensity:4.1f} flop/byte: mean |log error| {total / sum(len(data[s]) for s in inference):.4f}"
        )
    intensity = INTENSITIES[int(np.argmin(losses))]
    text = [
        f"[elementwise]\n# vector operations for each byte of elementwise kernels (flop/byte)\nintensity = {intensity:g}\n"
    ]
    every: dict[str, list[Any]] = defaultdict(list)
    for stack in sorted(data):
        x, y, start = matrix(stack, intensity), measured(stack), _stack_start(stack)
        names = [r["device"] for r, _ in data[stack]]
        folds = np.array([_fold(r["model"]) for r, _ in data[stack]])
        coefficients = fit_sum(x, y, start)
        errors = errors_of(evaluate_sum(x, coefficients), y)
        print(f"{stack:12s} in sample        {line(errors)}")
        half = np.concatenate(
            [
                errors_of(evaluate_sum(x[folds == f], fit_sum(x[folds != f], y[folds != f], start)), y[folds == f])
                for f in (0, 1)
            ]
        )
        print(f"{'':12s} other models     {line(half)}")
        for chip in sorted(set(names)):
            inside = np.array([n == chip for n in names])
            if inside.all():
                continue
            out = errors_of(evaluate_sum(x[inside], fit_sum(x[~inside], y[~inside], start)), y[inside])
            print(f"{'':12s} without {chip:9s} {line(out)}")
            every["chip"].append(out)
        every["train" if stack.startswith("train") else "infer"].append(errors)
        values = dict(zip(TERMS, coefficients.tolist(), strict=True))
        text.append(_toml(f"stacks.{stack}", values, f"fit error, median / p90 / bias in %: {line(errors).strip()}"))
    for name, errors in every.items():
        print(f"{name:12s} all              {line(np.concatenate(errors))}")
    return "\n".join(text), intensity


def fit_cpu(rows: list[dict[str, str]]) -> str:
    """One set of coefficients, and for each CPU three factors: arithmetic, memory, latency."""
    kept = []
    for row in rows:
        chip = Hardware.get(row["device"])
        inventory = _counted(row)
        if chip.family == "cpu" and inventory is not None:
            kept.append((row, chip, inventory))
    x = np.array([[f[name] for name in CPU_TERMS] for f in (cpu_features(i, c, float(r["batch"])) for r, c, i in kept)])
    y = np.array([1 / float(r["value"]) for r, _, _ in kept])
    keys = [c.metadata.key for _, c, _ in kept]
    kinds = np.array([2 if t.endswith("_calls") else 0 if t.endswith("_operations") else 1 for t in CPU_TERMS])
    chips = sorted(set(keys))
    scales = {chip: np.ones(3) for chip in chips}
    coefficients = np.array(CPU_START)
    for _ in range(12):
        scaled = np.array([scales[k][kinds] for k in keys]) * x
        coefficients = fit_sum(scaled, y, CPU_START)
        for chip in chips:
            inside = np.array([k == chip for k in keys])
            parts = coefficients * x[inside]
            grouped = np.stack([parts[:, kinds == g].sum(axis=1) for g in range(3)], axis=1)
            scales[chip] = fit_sum(grouped, y[inside], [1.0, 1.0, 1.0])
        middle = np.exp(np.mean([np.log(s) for s in scales.values()], axis=0))
        scales = {chip: s / middle for chip, s in scales.items()}
    predicted = evaluate_sum(np.array([scales[k][kinds] for k in keys]) * x, coefficients)
    errors = errors_of(predicted, y)
    print(f"{'cpu':12s} in sample        {line(errors)}")
    for chip in chips:
        inside = np.array([k == chip for k in keys])
        print(f"{'':12s} {chip:16s} {line(errors[inside])}")
        own = fit_sum(x[~inside], y[~inside], CPU_START)
        print(f"{'':12s} without it       {line(errors_of(evaluate_sum(x[inside], own), y[inside]))}")
    values = dict(zip(CPU_TERMS, coefficients.tolist(), strict=True))
    text = [_toml("cpu", values, f"fit error, median / p90 / bias in %: {line(errors).strip()}")]
    for chip in chips:
        factors = dict(zip(("arithmetic", "memory", "latency"), scales[chip].tolist(), strict=True))
        text.append(_toml(f"cpu.classes.{chip}", factors, "factors on the coefficients above"))
    text.append(
        _toml("cpu.classes.default", {"arithmetic": 1.0, "memory": 1.0, "latency": 1.0}, "between the measured chips")
    )
    return "\n".join(text)


def diffusion_rows(rows: list[dict[str, str]]) -> list[tuple[dict[str, str], dict[str, float]]]:
    """Measured batches of images with their features."""
    found = []
    for row in rows:
        if row["task"] != "diffusion-infer":
            continue
        model, chip = Models.get(row["model"]), Hardware.get(row["device"])
        steps, ulysses, ring = settings_of(row, "steps", "ulysses", "ring")
        passes = steps * model.guidance_passes
        found.append(
            (row, diffusion_features(denoiser(model), chip, float(row["batch"]), passes, steps, ulysses, ring))
        )
    return found


def fit_diffusion(rows: list[dict[str, str]]) -> str:
    """Constants of eager diffusion code on one node."""
    kept = diffusion_rows(rows)
    names = (*DEVICE_TERMS, *HOST_TERMS)
    groups = [0] * len(DEVICE_TERMS) + [1] * len(HOST_TERMS)
    x = np.array([[f[name] for name in names] for _, f in kept])
    y = np.array([float(r["value"]) for r, _ in kept])

    def fitted(mask: Any) -> Any:
        return fit_sum(x[mask], y[mask], DIFFUSION_START, 0.3, groups, SHARPNESS)

    coefficients = fitted(np.ones(len(y), dtype=bool))
    errors = errors_of(evaluate_sum(x, coefficients, groups, SHARPNESS), y)
    print(f"{'diffusion':12s} in sample        {line(errors)}")
    for column in ("device", "model"):
        out = []
        for name in sorted({r[column] for r, _ in kept}):
            inside = np.array([r[column] == name for r, _ in kept])
            left = errors_of(evaluate_sum(x[inside], fitted(~inside), groups, SHARPNESS), y[inside])
            print(f"{'':12s} without {name[:24]:24s} {line(left)}")
            out.append(left)
        print(f"{'':12s} one {column} out     {line(np.concatenate(out))}")
    values = dict(zip(names, coefficients.tolist(), strict=True)) | {"sharpness": SHARPNESS}
    return _toml("diffusion", values, f"fit error, median / p90 / bias in %: {line(errors).strip()}")


def main(arguments: list[str]) -> None:
    """Fit, print, and write the tables where an output is named."""
    folder = Path(arguments[0])
    with (folder / "vision.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    timm = [r for r in rows if r["source"].startswith("timm-")]
    gpu, _ = fit_gpu(timm)
    cpu, diffusion = fit_cpu(timm), fit_diffusion(rows)
    if len(arguments) > 1:
        head = (
            "# Coefficients of vision networks by software stack, on CPUs, and of image diffusion, fitted to published measurements\n"
            "# (timm benchmark results, https://github.com/huggingface/pytorch-image-models/tree/main/results; ML.ENERGY leaderboard,\n"
            "# https://ml.energy/leaderboard). Written by mlsysim.calibrate.fit_vision. Operation terms are seconds for each second at the\n"
            "# peak, byte terms for each second of minimal bytes, calls and launches in microseconds.\n\n"
        )
        Path(arguments[1]).write_text(head + "\n".join((gpu, cpu, diffusion)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
