"""Refits the constants of power from ``energy.csv`` and the loads of our own H200: ``data/power_constants.toml``.

Power of serving and of image diffusion at the given throughput, and of products, passes, streams and vector kernels at their own clock. Rows of one
kind cannot tell the floor from the bytes: those of Hopper are fitted together, with physical priors (:mod:`mlsysim.calibrate.posterior`); Blackwell has
rows of ``energy.csv`` alone. Left out in turn: every model, our own loads, and a fourth of the rows; another chip's shares of TDP show what a chip without
rows errs by. Any other chip has the geometric mean of both. What is not fitted stands in ``data/power.toml``: waiting without a program, clock and voltage,
formats, shares of vector work, nodes and networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlsysim.calibrate.cells import format_of
from mlsysim.calibrate.fitting import line, loose, stated, table_of
from mlsysim.calibrate.measurements import own, published, table_rows
from mlsysim.calibrate.posterior import Posterior, Prior, Row, posterior, together
from mlsysim.calibrate.residuals import Residual
from mlsysim.calibrate.tables.energy import IMAGES, SERVING, imaged, served
from mlsysim.cases.pools import Pool
from mlsysim.cases.traffic import Traffic
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.power import limited_power, running_power, voltage, waiting_power
from mlsysim.timing.diffusion_time import XDIT, diffusion_activity
from mlsysim.timing.power import (
    Activity,
    chip_power,
    energy_per_item,
    equivalent,
    expands,
    power_constants,
    wide_peak,
)
from mlsysim.units.registry import to_si

SHIPPED = Path(str(files("mlsysim.data"))) / "power_constants.toml"
_MEASURED = ("H100", "B200")
_OWN, _PARTS, _SPREAD = "our loads", 4, 0.1


class Measured(NamedTuple):
    """A power that was measured, over TDP, and what the chip did: rates over its peak and bandwidth, ``deep`` what it draws at rest over TDP."""

    operations: float
    moved: float
    busy: float
    eager: float
    expanding: float
    prepared: float
    chip: str
    model: str
    share: float
    clock: float
    about: tuple[str, ...]
    deep: float


def token_row(row: dict[str, str]) -> Measured:
    """What a chip does that serves, and its power over TDP; with the shipped constants too."""
    model, task, chip, notes = served(row)
    tables, known, precision = power_constants(), chip_power(chip), format_of(notes["prec"])
    devices, rate = int(row["n_chips"]), float(notes["tput"])
    asked = Traffic(tables["prompt_tokens"][task], float(notes["avg_out"]), float(notes["avg_batch"]))
    prepared = task in tables["prepared_on_host"]["tasks"]
    busy = known.prepared if prepared else 1.0
    answered = rate / asked.mean_answer
    done = Pool(1, devices).activity(model, known, equivalent(chip, precision), precision, asked, answered, busy)
    flags = 0.0, float(expands(model, precision)), float(prepared)
    return _row(row, chip, done, flags, energy_per_item(1.0, devices, rate))


def image_row(row: dict[str, str]) -> Measured:
    """The same for images."""
    model, chip, devices, batch, steps, seconds = imaged(row)
    done = diffusion_activity(model, chip, devices, batch, steps, seconds, XDIT)
    return _row(row, chip, done, (1.0, 0.0, 0.0), energy_per_item(1.0, devices, batch / seconds))


def _row(row: dict[str, str], chip: Any, done: Activity, flags: tuple[float, float, float], joules: Any) -> Measured:
    tdp = to_si(chip.tdp, "W")
    rates = float(done.operations) / wide_peak(chip), float(done.moved) / to_si(chip.memory.bandwidth, "byte/s")
    watts = float(row["value"]) / float(joules)
    name, key = row["workload"].split(" | ")[0], chip.metadata.key
    regime = "energy per image" if flags[0] else "energy per token"
    about = ("energy", row.get("id", ""), row["metric"], regime, "", name, key)
    return Measured(
        *rates, float(done.busy), *flags, key, name, watts / tdp, math.nan, about, chip_power(chip).deep / tdp
    )


def load_rows() -> Iterator[Measured]:
    """The same of the loads of our own H200, at their clocks, as Hopper's."""
    tables, chip = table_of("power_loads"), Hardware.get(_MEASURED[0])
    kinds = {load: kind for kind, loads in tables.items() if kind != "clock" for load in loads}
    found: dict[str, dict[str, float]] = {}
    for row in (row for table in ("llm", "extra") for row in own(table) if row.section == "power"):
        found.setdefault(row.config["load"], {})[row.metric] = row.median
    tdp, peak, bandwidth = to_si(chip.tdp, "W"), wide_peak(chip), to_si(chip.memory.bandwidth, "byte/s")
    for load, kind in kinds.items():
        told = found[load]
        rate = told.get("flops_rate", 0.0) * equivalent(chip, "fp8" if "fp8" in load else "bf16") / peak
        moved, clock = told.get("byte_rate", 0.0) / bandwidth, told.get("sm_clock", tables["clock"]) / tables["clock"]
        busy, vector = float(kind != "waiting"), float(kind == "vector")
        about = ("energy", load, "power", "power of loads", "", _OWN, "H200")
        done = rate, moved, busy, vector, 0.0, 0.0
        yield Measured(*done, _MEASURED[0], _OWN, told["mean_power"] / tdp, clock, about, chip_power(chip).deep / tdp)


def power(c: Any, v: Mapping[str, Any]) -> Any:
    """Power over TDP of a row: rates over peak and bandwidth, constants over TDP; at its clock where that is known, else under the limit."""
    limit = power_constants()["limit"]
    busy = np.minimum(v["prepared"], 1.0) if c.prepared > 0 else c.busy
    floor = v["floor"] + v["vector"] * (c.eager + v["converting"] * c.expanding)
    clock = c.clock if math.isfinite(c.clock) else 1.0
    volts = voltage(clock, limit["slope"], limit["least"])
    waits = waiting_power(c.deep, v["wait"], clock, volts)
    wanted = running_power(waits, floor, busy, v["per_flop"], c.operations, v["per_byte"], c.moved, clock, volts)
    return wanted if math.isfinite(c.clock) else limited_power(wanted, limit["mean"])


def rows_of(folder: Path) -> dict[str, list[Measured]]:
    """What was measured, by the chip that it is of."""
    table = table_rows(published(folder) / "energy.csv")
    found = [token_row(row) for row in table if row["metric"] == SERVING]
    found += [image_row(row) for row in table if row["metric"] == IMAGES]
    return {key: [row for row in (*found, *load_rows()) if row.chip == key] for key in _MEASURED}


def fit(rows: Sequence[Measured], left: Mapping[str, Any]) -> Posterior:
    """The constants of a chip, over its TDP; a model has the votes of 30 rows at most."""

    def row(own: Measured) -> Row:
        return Row(own.model, (own.share,), (_SPREAD,), lambda v, _: [power(own, v)])

    priors = {name: Prior(*values[:2]) for name, values in table_of("chip_power").items()}
    # Powers of a model at other batches and rates are other points of the chip: each counts.
    return posterior([row(own) for own in rows], priors, (), list(left.values()), effective=math.inf)


def errors(rows: Sequence[Measured], found: Posterior) -> Any:
    """Logarithms of predicted over measured power with the constants of all rows of another chip."""
    values = dict(zip(found.names, np.exp(found.constants[0]).tolist(), strict=True))
    return np.log([float(power(row, values)) / row.share for row in rows])


_HEAD = """# Fitted constants of the power of chips, laid over power.toml; written by `python -m mlsysim.calibrate FOLDER --only power`. What each means is said there.
# error: the standard error as a factor; least, most: over the fits that leave a model, our own loads or a fourth of the rows out; loose: those that move
# by more than half over them.
# Of another chip they are shares of its TDP, "per_flop" of TDP over the dense 16-bit peak, "per_byte" of TDP over the bandwidth: the geometric mean of
# the measured chips, and their range."""


def text(fits: Mapping[str, Posterior], told: Mapping[str, str]) -> str:
    """The file."""
    lines = [_HEAD]
    shares: dict[str, list[float]] = {name: [] for name in table_of("chip_power")}
    for key, found in fits.items():
        chip = Hardware.get(key)
        tdp, peak, bandwidth = to_si(chip.tdp, "W"), wide_peak(chip), to_si(chip.memory.bandwidth, "byte/s")
        units = dict.fromkeys(("wait", "floor", "vector"), (tdp, "W"))
        units |= {"per_flop": (1e12 * tdp / peak, "J/TFLOP"), "per_byte": (1e12 * tdp / bandwidth, "J/TB")}
        free = [name for name, each in found.table().items() if loose(each["value"], (each["least"], each["most"]))]
        lines += ["", f"# {told[key]}; loose: {', '.join(free) or 'none'}", f"[chip.{key}]"]
        for name, each in found.table().items():
            most = (*table_of("chip_power")[name][3:], math.inf)[0]
            (scale, unit), value = units.get(name, (1.0, "")), min(each["value"], most)
            ends = [min(each[end], most) * scale for end in ("least", "most")]
            lines.append(f"{name} = {stated(value * scale, each['error'], ends, unit)}")
            shares[name].append(value)
    lines += ["", "[chip.default]"]
    for name, values in shares.items():
        middle = math.exp(sum(map(math.log, values)) / len(values))
        lines.append(f"{name} = {stated(middle, max(values) / middle, values)}")
    return "\n".join(lines) + "\n"


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit, print and write."""
    rows, fits, told, kept = rows_of(folder), {}, {}, []
    for key, own_rows in rows.items():
        left = together(own_rows, ("model",), _PARTS)
        fits[key] = found = fit(own_rows, left)
        loads = np.array([row.model == _OWN for row in own_rows])
        eager = np.array([row.eager > 0 for row in own_rows]) & ~loads
        outside = found.outside(left, "model")
        parts = {"serving": ~eager & ~loads, "images": eager, _OWN: loads}
        said = [
            f"{name} {line(np.expm1(found.errors[own, 0])).strip()} (left out {line(np.expm1(outside[own])).strip()})"
            for name, own in parts.items()
            if own.any()
        ]
        told[key] = f"Error of power at given rates, median / p90 / bias in %: {'; '.join(said)}"
        print(key, told[key])
        kept += [
            Residual._make((*row.about, "model", float(error)))
            for row, error in zip(own_rows, outside, strict=True)
            if row.model != _OWN
        ]
    for key, other in zip(_MEASURED, reversed(_MEASURED), strict=True):
        strange = [row for row in rows[key] if row.model != _OWN]
        found_errors = errors(strange, fits[other])
        print(f"{key} with the shares of {other}: {line(np.expm1(found_errors))}")
        kept += [Residual._make((*row.about, "chip", float(e))) for row, e in zip(strange, found_errors, strict=True)]
    if out is not None:
        out.write_text(text(fits, told), encoding="utf-8")
    return kept
