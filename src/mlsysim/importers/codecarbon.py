"""codecarbon's ``emissions.csv``: what it measured beside what wall 18 predicts for the same hardware, time and place.

    measured      duration (s), energy of CPU, GPU and RAM (kWh), emissions (kg), as the columns give them
    predicted     energy of the GPUs at 0, at ``utilisation`` and at 1 of their peak: N TDP (i + (1 - i) u) t  (SustainabilityModel),
                  and the carbon of the *measured* energy at the intensity that the zoo has for the place

codecarbon multiplies no PUE in unless a column ``pue`` says so, so none is applied here either. Its older versions mixed watts and
kilowatts, and counters that a machine does not have silently read zero; a row is flagged where the power that it implies
is beyond what its hardware can draw, where its parts do not add up, where a GPU took nothing, and where its carbon fits no grid. Units
are those of codecarbon 2 and 3; columns that are not known are listed.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.hardware.types import HardwareNode
from mlsysim.importers import named
from mlsysim.importers.boards import board_named
from mlsysim.importers.limits import existing, read_text
from mlsysim.infra.registry import Grids
from mlsysim.infra.types import GridProfile
from mlsysim.systems.types import Fleet, NetworkFabric, Node
from mlsysim.units.fields import Record
from mlsysim.units.registry import Q_, to_si
from mlsysim.walls.document import Document
from mlsysim.walls.operations.sustainability import SustainabilityModel

_LARGEST = 50_000_000
_MOST_ROWS = 100_000
_SECONDS_PER_HOUR = 3600.0
_NEEDED = ("duration", "emissions", "energy_consumed")
_PARTS = ("cpu", "gpu", "ram")
_MEASURED_GRIDS = {"USA": "US_2024", "POL": "Poland_2024"}
"""Countries whose plain name means a figure of the documents rather than the measured average."""

_OVER = 1.25
"""Boards draw above their TDP for moments and meters err; beyond this the figure is not theirs."""
_HOST_WATTS = 4000.0
"""No host of one row draws more: two sockets of 500 W, memory, fans and power supplies stay below 2 kW."""
_INTENSITY = (0.5, 2000.0)
"""Grams for a kWh: below a wind farm's, above the dirtiest lignite's."""


class EmissionsRow(Record):
    """One run. Energy in kWh, power in W, carbon in kg; None where the file or the zoo does not tell."""

    project: str
    timestamp: str
    duration: float
    chip: str | None
    gpus: int
    grid: str | None
    measured_energy: float
    measured_gpu_energy: float | None
    measured_power_per_gpu: float | None
    measured_carbon: float
    measured_intensity: float | None
    predicted_gpu_energy: float | None
    predicted_gpu_energy_low: float | None
    predicted_gpu_energy_high: float | None
    predicted_carbon: float | None
    grid_intensity: float | None
    flags: tuple[str, ...] = ()


class EmissionsReport(Document, Record):
    """All runs of a file."""

    beside: ClassVar = ("type",)
    type: ClassVar = "emissions"

    name: str
    rows: tuple[EmissionsRow, ...]
    utilisation: float
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence for each run, what is wrong with it below it."""
        lines = []
        for row in self.rows:
            gpu = carbon = ""
            if row.measured_gpu_energy is not None and row.predicted_gpu_energy is not None:
                gpu = (
                    f"; {row.gpus}x{row.chip} took {row.measured_gpu_energy:.4g} kWh, predicted {row.predicted_gpu_energy:.4g} kWh "
                    f"({row.predicted_gpu_energy_low:.4g} idle to {row.predicted_gpu_energy_high:.4g} at peak)"
                )
            if row.predicted_carbon is not None:
                carbon = f"; on the zoo's {row.grid} the same energy emits {row.predicted_carbon:.4g} kg"
            lines.append(
                f"{row.project or 'a run'}, {row.duration:,.0f} s: {row.measured_energy:.4g} kWh, {row.measured_carbon:.4g} kg{gpu}{carbon}."
            )
            lines += [f"  {flag}" for flag in row.flags]
        return "\n".join([*lines, *self.warnings])


def is_emissions(header: str) -> bool:
    """Whether the first line of a CSV file is that of codecarbon."""
    return set(_NEEDED) <= {cell.strip().strip('"').lower() for cell in header.split(",")}


def read_emissions(
    path: str | os.PathLike[str], chip: str | None = None, utilisation: float = 0.5, grid: str | None = None
) -> EmissionsReport:
    """The report on an ``emissions.csv``; ``chip`` and ``grid`` stand in for those that the file does not name."""
    if isinstance(utilisation, bool) or not isinstance(utilisation, (int, float)) or not 0 <= utilisation <= 1:
        raise InputError(f"'utilisation' is a fraction between 0 and 1, got {str(utilisation)[:40]!r}.")
    place = existing(path)
    name, text = place.name[:200], read_text(place, _LARGEST)
    if "\x00" in text:
        raise InputError(f"{name!r} is not a table of text.")
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        columns = reader.fieldnames = [column.strip() for column in reader.fieldnames or ()]
        missing = [column for column in _NEEDED if column not in columns]
        if missing:
            raise InputError(f"{name!r} is no emissions.csv of codecarbon: it lacks {', '.join(missing)}.")
        table = list(itertools.islice(reader, _MOST_ROWS + 1))
    except csv.Error as error:
        raise InputError(f"{name!r} is not CSV: {str(error).lower()}.") from None
    if not table:
        raise InputError(f"{name!r} has no rows.")
    if len(table) > _MOST_ROWS:
        raise InputError(f"{name!r} has more than {_MOST_ROWS:,} rows.")
    lines = (_Line(row, f"Line {number} of {place.name[:80]!r}") for number, row in enumerate(table, 2))
    rows = tuple(_row(line, chip, float(utilisation), grid) for line in lines)
    flagged = sum(bool(row.flags) for row in rows)
    unread = tuple(column for column in columns if column and column not in named("codecarbon", "columns"))
    warnings = (f"{flagged} of {len(rows)} rows have something that cannot be right.",) if flagged else ()
    return EmissionsReport(name=place.name, rows=rows, utilisation=float(utilisation), unread=unread, warnings=warnings)


class _Line:
    """A row of the file; ``where`` is how a sentence names it."""

    def __init__(self, cells: dict[str, Any], where: str) -> None:
        self.cells, self.where = cells, where

    def number(self, column: str) -> float | None:
        text = self.cells.get(column)
        if not isinstance(text, str) or text.strip().lower() in ("", "nan", "none", "null", "n/a"):
            return None
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"{self.where} has {text[:40]!r} for {column!r}, which is no number.") from None
        if not math.isfinite(value) or abs(value) > 1e15:
            raise InputError(f"{self.where} has {text[:40]!r} for {column!r}, which is out of range.")
        return value

    def needed(self, column: str) -> float:
        value = self.number(column)
        if value is None:
            raise InputError(f"{self.where} has no {column!r}.")
        if value < 0:
            raise InputError(f"{self.where} has {value:g} for {column!r}, which cannot be negative.")
        return value

    def text(self, column: str) -> str:
        value = self.cells.get(column)
        return value.strip()[:120] if isinstance(value, str) else ""


def _gpus(line: _Line) -> tuple[str, int]:
    """The model and the number of GPUs; codecarbon writes "4 x Tesla V100-SXM2-16GB", and a count beside it."""
    text, counted = line.text("gpu_model"), line.number("gpu_count")
    match = re.fullmatch(r"(\d{1,6})\s*x\s*(.+)", text)
    name, count = (match[2].strip(), int(match[1])) if match else (text, 1 if text else 0)
    if name.lower() in ("none", "nan", "null"):
        return "", 0
    return name, int(counted) if counted is not None and 0 < counted < 1e6 and not match else count


def _grid(line: _Line, default: str | None) -> GridProfile | None:
    """The zoo's grid for the place: the state or province where it has one, else the country."""
    found: GridProfile | None
    if default is not None:
        found = Grids.get(default)
        return found
    iso, region = line.text("country_iso_code"), line.text("region")
    if iso in ("USA", "CAN") and region:
        found = Grids.get(region.title().replace(" ", "_"), None)
        if found is not None and found.country == iso[:2]:
            return found
    names = (_MEASURED_GRIDS.get(iso, iso), line.text("country_name"))
    return next((Grids.get(name) for name in names if name and name in Grids), None)


def _row(line: _Line, chip: str | None, utilisation: float, grid_name: str | None) -> EmissionsRow:
    duration, carbon, energy = (line.needed(column) for column in _NEEDED)
    parts = {name: line.number(f"{name}_energy") for name in _PARTS}
    model, gpus = _gpus(line)
    node: HardwareNode | None = Hardware.get(chip) if chip is not None else board_named(model)
    grid = _grid(line, grid_name)
    hours, gpu = duration / _SECONDS_PER_HOUR, parts["gpu"]
    idle, likely, peak = _predicted(node, gpus, hours, utilisation)
    row = EmissionsRow(
        project=line.text("project_name"),
        timestamp=line.text("timestamp"),
        duration=duration,
        chip=None if node is None else node.metadata.key or node.name,
        gpus=gpus,
        grid=None if grid is None else grid.name,
        measured_energy=energy,
        measured_gpu_energy=gpu,
        measured_power_per_gpu=gpu / hours / gpus * 1000 if gpu is not None and hours > 0 and gpus else None,
        measured_carbon=carbon,
        measured_intensity=carbon / energy * 1000 if energy > 0 else None,
        predicted_gpu_energy=likely,
        predicted_gpu_energy_low=idle,
        predicted_gpu_energy_high=peak,
        predicted_carbon=None if grid is None else energy * grid.carbon_intensity_g_kwh / 1000,
        grid_intensity=None if grid is None else float(grid.carbon_intensity_g_kwh),
    )
    return row.model_copy(update={"flags": tuple(_flags(line, row, node, model, parts))})


def _predicted(node: HardwareNode | None, gpus: int, hours: float, utilisation: float) -> list[float] | list[None]:
    """Energy of the GPUs in kWh when they idle, at the utilisation, and at their peak."""
    if node is None or node.tdp is None or not gpus or hours <= 0:
        return [None] * 3
    rate = node.memory.bandwidth  # the links between the GPUs do not matter for their energy
    machine = Node(name="the machine", accelerator=node, accelerators_per_node=gpus, intra_node_bw=rate)
    fleet = Fleet(name="the run", node=machine, count=1, fabric=NetworkFabric(name="none", bandwidth=Q_("1 GB/s")))
    levels = (0.0, utilisation, 1.0)
    found = [SustainabilityModel().solve(fleet=fleet, duration_days=hours / 24, mfu=level) for level in levels]
    return [float(result.it_energy_kwh.to("kWh").magnitude) for result in found]


def _flags(
    line: _Line, row: EmissionsRow, node: HardwareNode | None, model: str, parts: dict[str, float | None]
) -> Iterator[str]:
    """What cannot be right about a row, in sentences."""
    hours, energy, per_gpu = row.duration / _SECONDS_PER_HOUR, row.measured_energy, row.measured_power_per_gpu
    if hours <= 0:
        yield "The run has no duration, so its power cannot be checked."
        return
    if per_gpu is not None and node is not None and node.tdp is not None:
        limit = to_si(node.tdp, "W")
        times = per_gpu / limit
        if per_gpu > _OVER * limit:
            unit = "; watts were taken for kilowatts" if 100 <= times <= 1e4 else ""
            yield f"The GPU energy means {per_gpu:,.0f} W a GPU, {times:,.3g} times the {limit:,.0f} W of {node.name}{unit}."
    if row.gpus and parts["gpu"] == 0 and hours > 1 / 60:
        yield f"{row.gpus}x {model or 'GPU'} took 0 kWh: the counter could not be read, so the total leaves the GPUs out."
    watts = {name: part / hours * 1000 for name, part in parts.items() if part is not None}
    for name in ("cpu", "ram"):
        if watts.get(name, 0.0) > _HOST_WATTS:
            yield f"The {name.upper()} energy means {watts[name]:,.0f} W, more than any host draws."
    for name in _PARTS:
        drawn, stated = watts.get(name), line.number(f"{name}_power")
        if drawn and stated and not 1 / 30 < stated / drawn < 30:
            times = max(stated / drawn, 1 / (stated / drawn))
            yield f"{name}_power says {stated:,.4g} W and {name}_energy means {drawn:,.4g} W, {times:,.2g} times apart: a unit is wrong."
    total = sum(part for part in parts.values() if part is not None)
    if len(watts) == 3 and energy > 0 and abs(total - energy) > 0.05 * energy:
        yield f"CPU, GPU and RAM add up to {total:.4g} kWh, not to the {energy:.4g} kWh of the total."
    intensity = row.measured_intensity
    if intensity is not None and not _INTENSITY[0] <= intensity <= _INTENSITY[1]:
        yield f"The carbon means {intensity:,.4g} g/kWh, which no grid has."
