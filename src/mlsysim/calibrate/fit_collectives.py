"""Refits the constants of collectives inside a link domain from ``collectives.csv``, and prints how well they fit.

The start-up time of each machine is measured once: the smallest all-gather of two ranks. Everything else is shared by all
machines: in sample, then with one machine left out (machines of one generation leave together), median / p90 / bias in per cent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, fit, line, report, table_of
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.residuals import Kept, Residual
from mlsysim.calibrate.tables.collectives import KINDS
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.operators import link_time
from mlsysim.timing.collectives import SWITCHED_RANKS, wire_and_steps
from mlsysim.units.registry import to_si

RING, EXCHANGE = table_of("ring"), table_of("exchange")
SOURCES = "aiconfigurator-nccl-"
_PROTOCOL = ("copy_share", "efficiency", "eager_share", "rendezvous")


def columns(rows: list[dict[str, str]]) -> Columns:
    """The measured collectives."""
    table = []
    for row in rows:
        chip, kind, ranks = Hardware.get(row["gpu"]), KINDS[row["collective"]], float(row["n_gpus"])
        link, seconds = to_si(chip.link.bandwidth_per_direction, "byte/s"), float(row["value"]) * 1e-6
        machine = (chip.metadata.key, chip.generation, link, 0.0)
        about = ("collectives", row["id"], row["metric"], "collective link domain", "", kind, chip.metadata.key)
        table.append((kind, ranks, float(row["message_bytes"]), seconds, *machine, *wire_and_steps(kind, ranks), about))
    names = ("kind", "ranks", "message", "time", "key", "generation", "link", "start", "wire", "steps", "about")
    found = Columns.of(table, *names)
    for key in set(found.key.tolist()):
        first = found.where((found.key == key) & (found.kind == "all_gather") & (found.ranks == 2))
        found.start[found.key == key] = first.time[first.message == first.message.min()].min()
    found.switched = (found.kind == "all_reduce") & (found.ranks >= SWITCHED_RANKS) & (found.generation != "Ampere")
    found.swap = found.kind == "all_to_all"
    return found


def ring(c: Columns, v: dict[str, float]) -> Any:
    """Times of rings and trees by the faster of the protocols."""
    protocol = (v["step_share"], *(v[name] for name in _PROTOCOL))
    by_ring = link_time(c.message, c.ranks, c.wire, c.steps, c.link, c.start, *protocol)
    by_switch = c.start * (1 + v["in_switch_start"]) + c.message / (v["in_switch_share"] * c.link)
    return np.where(c.switched, np.minimum(by_ring, by_switch), by_ring)


def exchange(c: Columns, v: dict[str, float]) -> Any:
    """Times of all-to-all exchanges."""
    protocol = (v["step_share"], *(v[f"exchange_{name}"] for name in _PROTOCOL))
    return link_time(c.message, c.ranks, c.wire, 1 + v["exchange_steps"], c.link, c.start, *protocol)


def constants(c: Columns) -> dict[str, float]:
    """Constants from these rows."""
    rings, swaps = c.where(~c.swap), c.where(c.swap)
    found = fit(lambda **v: ring(rings, v), RING, rings.time).values
    return found | fit(lambda **v: exchange(swaps, found | v), EXCHANGE, swaps.time).values


def errors(c: Columns, values: dict[str, float]) -> Any:
    """Signed relative errors of the rows."""
    return np.where(c.swap, exchange(c, values), ring(c, values)) / c.time - 1


def write(folder: Path, out: Path | None = None) -> list[Residual]:
    """Fit and print."""
    table, kept = table_rows(published(folder) / "collectives.csv"), Kept()
    rows = columns([r for r in table if r["source"].startswith(SOURCES) and Hardware.get(r["gpu"]).link is not None])
    values, found, _ = report("collectives", rows, constants, errors, "generation", keep=kept)
    for kind in sorted(set(rows.kind.tolist())):
        print(f"  {kind:18s}", line(found[rows.kind == kind]))
    for key in sorted(set(rows.key.tolist())):
        inside = rows.key == key
        print(f'start of {key}: "{rows.start[inside][0] * 1e6:.2f} us"   {line(found[inside])}')
    for name, value in values.items():
        print(f"{name} = {value:.4g}")
    return kept
