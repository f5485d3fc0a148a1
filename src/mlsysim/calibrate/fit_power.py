"""Refits ``data/power.toml`` from ``energy.csv``, and prints how well it fits.

    python -m mlsysim.calibrate.fit_power FOLDER

Power of serving and of image diffusion at the given throughput: in sample with constants of each chip, with shared constants, with the
chip left out and (within a chip) with the model left out: median / p90 / bias in per cent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, fit, line, report, table_of
from mlsysim.calibrate.measurements import table_rows
from mlsysim.calibrate.tables.energy import IMAGES, PRECISIONS, SERVING, imaged, served
from mlsysim.hardware.types import HardwareNode
from mlsysim.physics.power import running_power
from mlsysim.timing.diffusion_time import diffusion_activity
from mlsysim.timing.power import Activity, energy_per_item, power_constants, serving_activity
from mlsysim.units.registry import to_si

IDLE, CAP = 0.18, 0.975
_DONE = ("memory", "arithmetic", "busy", "converting")

Of = Callable[[dict[str, str]], tuple[HardwareNode, Activity, float]]
Form = Callable[..., Any]


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


def columns(rows: list[dict[str, str]], activity: Of) -> Columns:
    """What the chips of rows do, and their power over TDP."""
    found = []
    for row in rows:
        chip, done, joules = activity(row)
        did = [float(getattr(done, name)) for name in _DONE]
        share = float(row["value"]) / (to_si(chip.tdp, "W") * joules)
        found.append((*did, chip.metadata.key, row["workload"].split(" | ")[0], "video" in row["workload"], share))
    return Columns.of(found, *_DONE, "chip", "model", "video", "share")


def serving(c: Columns, **v: float) -> Any:
    """Power of serving over TDP; ``waiting`` is the busy share where inputs are prepared on the host."""
    busy = np.where(c.video, v["waiting"], 1.0)
    floor = v["floor"] + v["converting"] * c.converting
    return running_power(1.0, IDLE, floor, busy, 1.0, v["memory"], c.memory, v["arithmetic"], c.arithmetic, CAP)


def diffusion(c: Columns, **v: float) -> Any:
    """Power of image diffusion over TDP."""
    return running_power(1.0, IDLE, v["floor"], c.busy, v["exponent"], 0.0, 0.0, v["arithmetic"], c.arithmetic, CAP)


def fit_form(name: str, rows: Columns, form: Form) -> None:
    """Fit a form with constants that all chips share, and with those of each."""

    def constants(c: Columns) -> dict[str, float]:
        return fit(lambda **v: form(c, **v), table_of(f"{name}_power"), c.share).values

    def errors(c: Columns, values: dict[str, float]) -> Any:
        return form(c, **values) / c.share - 1

    values, _, _ = report(f"{name}, default", rows, constants, errors, "chip")
    print({k: round(v, 3) for k, v in values.items()})
    own: list[Any] = []
    models: list[Any] = []
    for chip in sorted(set(rows.chip.tolist())):
        values, found, out = report(f"{name}, {chip}", rows.where(rows.chip == chip), constants, errors, "model")
        print({k: round(v, 3) for k, v in values.items()})
        own.append(found)
        models += out.values()
    print(f"{name}: constants by chip ", line(np.concatenate(own)))
    print(f"{name}: one model out     ", line(np.concatenate(models)))


def main(arguments: list[str]) -> None:
    """Fit and print."""
    table = table_rows(Path(arguments[0]) / "energy.csv")
    tokens, images = ([r for r in table if r["metric"] == metric] for metric in (SERVING, IMAGES))
    fit_form("serving", columns(tokens, token_activity), serving)
    fit_form("diffusion", columns(images, image_activity), diffusion)


if __name__ == "__main__":
    main(sys.argv[1:])
