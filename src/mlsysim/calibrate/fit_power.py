"""Refits ``data/power.toml`` from ``energy.csv``, and prints how well it fits.

    python -m mlsysim.calibrate.fit_power FOLDER

Power of serving and of image diffusion at the given throughput: in sample with constants of each chip, with shared constants, with the
chip left out and (within a chip) with the model left out: median / p90 / bias in per cent.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.additive import line
from mlsysim.calibrate.fitting import Parameter, fit
from mlsysim.calibrate.tables.energy import IMAGES, PRECISIONS, SERVING, imaged, served
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import running_power
from mlsysim.timing.diffusion_time import diffusion_activity
from mlsysim.timing.power import Activity, energy_per_item, power_constants, serving_activity
from mlsysim.units.registry import to_si

IDLE, CAP = 0.18, 0.975
SERVING_PARAMETERS = (
    Parameter("floor", 0.42, 0.05, 0.8),
    Parameter("memory", 0.2, 0.001, 1.5),
    Parameter("arithmetic", 1.0, 0.01, 3.0),
    Parameter("waiting", 0.65, 0.1, 1.0),
    Parameter("converting", 0.15, 0.001, 0.6),
)
DIFFUSION_PARAMETERS = (
    Parameter("floor", 0.6, 0.05, 0.9),
    Parameter("exponent", 0.6, 0.05, 2.0),
    Parameter("arithmetic", 0.7, 0.001, 3.0),
)


def token_activity(row: dict[str, str]) -> tuple[HardwareNode, Activity, float]:
    """The chip, what it does, and joules for each token for each watt of a device."""
    model, task, chip, notes = served(row)
    prompt = power_constants()["prompt_tokens"][task]
    devices, rate = int(row["n_chips"]), float(notes["tput"])
    batch, answer = float(notes["avg_batch"]), float(notes["avg_out"])
    activity = serving_activity(model, chip, devices, batch, rate, PRECISIONS[notes["prec"]], prompt, answer)
    return chip, activity, float(energy_per_item(1.0, devices, rate))


def image_activity(row: dict[str, str]) -> tuple[HardwareNode, Activity, float]:
    """The same for each image."""
    model, chip, devices, batch, steps, seconds = imaged(row)
    activity = diffusion_activity(model, chip, devices, batch, steps, seconds)
    return chip, activity, float(energy_per_item(1.0, devices, batch / seconds))


class Rows:
    """Columns of the measured rows as arrays."""

    def __init__(self, rows: list[dict[str, str]], images: bool) -> None:
        found = [(image_activity if images else token_activity)(r) for r in rows]
        self.memory = np.array([float(a.memory) for _, a, _ in found])
        self.arithmetic = np.array([float(a.arithmetic) for _, a, _ in found])
        self.busy = np.array([float(a.busy) for _, a, _ in found])
        self.converting = np.array([float(a.converting) for _, a, _ in found])
        self.chip = np.array([c.metadata.key for c, _, _ in found])
        self.model = np.array([r["workload"].split(" | ")[0] for r in rows])
        self.video = np.array(["video" in r["workload"] for r in rows])
        tdp = np.array([to_si(c.tdp, "W") for c, _, _ in found])
        joules = np.array([scale for _, _, scale in found])
        self.share = np.array([float(r["value"]) for r in rows]) / (tdp * joules)


def serving(rows: Rows, at: Any, **v: float) -> Any:
    """Power of serving over TDP; ``waiting`` is the busy share where inputs are prepared on the host."""
    busy = np.where(rows.video[at], v["waiting"], 1.0)
    floor = v["floor"] + v["converting"] * rows.converting[at]
    return running_power(
        1.0, IDLE, floor, busy, 1.0, v["memory"], rows.memory[at], v["arithmetic"], rows.arithmetic[at], CAP
    )


def diffusion(rows: Rows, at: Any, **v: float) -> Any:
    """Power of image diffusion over TDP."""
    return running_power(
        1.0, IDLE, v["floor"], rows.busy[at], v["exponent"], 0.0, 0.0, v["arithmetic"], rows.arithmetic[at], CAP
    )


def report(name: str, rows: Rows, form: Any, parameters: tuple[Parameter, ...]) -> None:
    """Fit a form and print its errors and constants."""

    def constants(chosen: Any) -> dict[str, float]:
        return fit(lambda **v: form(rows, chosen, **v), parameters, rows.share[chosen]).values

    def errors(chosen: Any, values: dict[str, float]) -> Any:
        return form(rows, chosen, **values) / rows.share[chosen] - 1

    everything = np.ones(len(rows.share), dtype=bool)
    shared = constants(everything)
    print(f"{name}: shared constants  ", line(errors(everything, shared)))
    print("  default", {k: round(v, 3) for k, v in shared.items()})
    own, chips, models = [], [], []
    for chip in sorted(set(rows.chip.tolist())):
        inside = rows.chip == chip
        values = constants(inside)
        own.append(errors(inside, values))
        chips.append(errors(inside, constants(~inside)))
        print(f"  {chip}", {k: round(v, 3) for k, v in values.items()}, line(own[-1]))
        for model in sorted(set(rows.model[inside].tolist())):
            left = inside & (rows.model == model)
            models.append(errors(left, constants(inside & ~left)))
    print(f"{name}: constants by chip ", line(np.concatenate(own)))
    print(f"{name}: one chip out      ", line(np.concatenate(chips)))
    print(f"{name}: one model out     ", line(np.concatenate(models)))


def main(arguments: list[str]) -> None:
    """Fit and print."""
    with (Path(arguments[0]) / "energy.csv").open(newline="", encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    tokens = [r for r in table if r["metric"] == SERVING and Hardware.get(r["hardware"])]
    report("serving", Rows(tokens, images=False), serving, SERVING_PARAMETERS)
    images = [r for r in table if r["metric"] == IMAGES]
    report("diffusion", Rows(images, images=True), diffusion, DIFFUSION_PARAMETERS)


if __name__ == "__main__":
    main(sys.argv[1:])
