"""Scores ``data/power.toml`` on ``energy.csv``, and refits what these rows show of it.

Power of serving and of image diffusion at the given throughput, median / p90 / bias in per cent: with the shipped constants, with those
of the rows of a chip, with one model left out, and with another chip's shares of TDP. Rows of one kind cannot tell the floor from the bytes:
the shipped constants also rest on loads of one H200 and on speeds under limits, and are kept unless all are refitted together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.cells import format_of
from mlsysim.calibrate.fitting import Columns, fit, line, report, table_of
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.residuals import Kept, Residual
from mlsysim.calibrate.tables.energy import IMAGES, SERVING, imaged, served
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.power import limited_power
from mlsysim.timing.diffusion_time import diffusion_activity
from mlsysim.timing.power import (
    Activity,
    chip_power,
    energy_per_item,
    equivalent,
    expands,
    power_constants,
    power_of,
    serving_activity,
    wide_peak,
)
from mlsysim.units.registry import to_si

_NAMES = ("operations", "moved", "busy", "eager", "expanding", "prepared", "chip", "model", "share", "shipped", "about")
_MEASURED = ("H100", "B200")


def token_row(row: dict[str, str]) -> tuple[Any, ...]:
    """What a chip does that serves, and its power over TDP; with the shipped constants too."""
    model, task, chip, notes = served(row)
    tables, known, precision = power_constants(), chip_power(chip), format_of(notes["prec"])
    devices, rate = int(row["n_chips"]), float(notes["tput"])
    sizes = float(notes["avg_batch"]), rate, precision, tables["prompt_tokens"][task], float(notes["avg_out"])
    prepared = task in tables["prepared_on_host"]["tasks"]
    busy = known.prepared if prepared else 1.0
    done = serving_activity(model, known, equivalent(chip, precision), devices, *sizes, busy)
    flags = 0.0, float(expands(model, precision)), float(prepared)
    return _row(row, chip, done, flags, energy_per_item(1.0, devices, rate))


def image_row(row: dict[str, str]) -> tuple[Any, ...]:
    """The same for images."""
    model, chip, devices, batch, steps, seconds = imaged(row)
    done = diffusion_activity(model, chip, devices, batch, steps, seconds)
    return _row(row, chip, done, (1.0, 0.0, 0.0), energy_per_item(1.0, devices, batch / seconds))


def _row(row: dict[str, str], chip: Any, done: Activity, flags: tuple[float, ...], joules: Any) -> tuple[Any, ...]:
    tdp = to_si(chip.tdp, "W")
    rates = float(done.operations) / wide_peak(chip), float(done.moved) / to_si(chip.memory.bandwidth, "byte/s")
    watts = float(row["value"]) / float(joules)
    name, key = row["workload"].split(" | ")[0], chip.metadata.key
    regime = "energy per image" if flags[0] else "energy per token"
    about = ("energy", row.get("id", ""), row["metric"], regime, "", name, key)
    return *rates, float(done.busy), *flags, key, name, watts / tdp, float(power_of(chip, done)) / tdp, about


def power(c: Columns, **v: float) -> Any:
    """Power over TDP: rates over peak and bandwidth, constants over TDP."""
    busy = np.where(c.prepared > 0, v["prepared"], c.busy)
    vector = v["vector"] * (c.eager + v["converting"] * c.expanding)
    running = busy * (v["floor"] + vector) + v["arithmetic"] * c.operations + v["memory"] * c.moved
    return limited_power(c.wait + running, power_constants()["limit"]["mean"])


def write(folder: Path, out: Path | None = None) -> list[Residual]:
    """Score, fit and print."""
    table, kept = table_rows(published(folder) / "energy.csv"), Kept()
    found = [token_row(row) for row in table if row["metric"] == SERVING]
    found += [image_row(row) for row in table if row["metric"] == IMAGES]
    rows = Columns.of(found, *_NAMES)
    waiting = {key: chip_power(Hardware.get(key)).wait / to_si(Hardware.get(key).tdp, "W") for key in _MEASURED}
    rows.wait = np.array([waiting[key] for key in rows.chip.tolist()])

    def constants(c: Columns) -> dict[str, float]:
        return fit(lambda **v: power(c, **v), table_of("chip_power"), c.share).values

    def errors(c: Columns, values: dict[str, float]) -> Any:
        return power(c, **values) / c.share - 1

    for key in _MEASURED:
        for kind, eager in (("serving", 0.0), ("images", 1.0)):
            own = rows.where((rows.chip == key) & (rows.eager == eager))
            print(f"{key}, {kind}: shipped      ", line(own.shipped / own.share - 1))
        values, _, _ = report(f"{key}, both", rows.where(rows.chip == key), constants, errors, "model", keep=kept)
        print({name: round(value, 3) for name, value in values.items()})
    report("both chips", rows, constants, errors, "chip", keep=kept)
    return kept
