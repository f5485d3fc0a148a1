"""Refits the constants of collectives inside a link domain from ``collectives.csv``: ``data/collective_constants.toml``.

The start-up time of each machine is measured once: the smallest all-gather of two ranks. Everything else is shared by all
machines: in sample, then with one machine left out (machines of one generation leave together), median / p90 / bias in per cent.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.calibrate.fitting import Columns, fit, line, loose, report, stated, table_of
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.residuals import Kept, Residual
from mlsysim.calibrate.tables.collectives import kind_of
from mlsysim.hardware.registry import Hardware
from mlsysim.physics.operators import link_time
from mlsysim.timing.collectives import SWITCHED_RANKS, wire_and_steps
from mlsysim.units.registry import to_si

RING, EXCHANGE = table_of("ring"), table_of("exchange")
SOURCES = "aiconfigurator-nccl-"
SHIPPED = Path(str(files("mlsysim.data"))) / "collective_constants.toml"
_PROTOCOL = ("copy_share", "efficiency", "eager_share", "rendezvous")


def columns(rows: list[dict[str, str]]) -> Columns:
    """The measured collectives."""
    table = []
    for row in rows:
        chip, kind, ranks = Hardware.get(row["gpu"]), kind_of(row["collective"]), float(row["n_gpus"])
        link, seconds = to_si(chip.link.bandwidth_per_direction, "byte/s"), float(row["value"]) * 1e-6
        machine = (chip.metadata.key, chip.generation, link, 0.0)
        about = ("collectives", row["id"], row["metric"], "collective link domain", "", kind, chip.metadata.key)
        table.append((kind, ranks, float(row["message_bytes"]), seconds, *machine, *wire_and_steps(kind, ranks), about))
    names = ("kind", "ranks", "message", "time", "key", "generation", "link", "start", "wire", "steps", "about")
    found = Columns.of(table, *names)
    for key in set(found.key.tolist()):
        first = found.where((found.key == key) & (found.kind == "all_gather") & (found.ranks == 2))
        found.start[found.key == key] = first.time[first.message == first.message.min()].min()
    switched = (found.kind == "all_reduce") & (found.ranks >= SWITCHED_RANKS) & (found.generation != "Ampere")
    return Columns(**vars(found), switched=switched, swap=found.kind == "all_to_all")


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


def constants(c: Columns) -> tuple[dict[str, float], dict[str, float]]:
    """Constants from these rows, and their standard errors."""
    rings, swaps = c.where(~c.swap), c.where(c.swap)
    found = fit(lambda **v: ring(rings, v), RING, rings.time)
    other = fit(lambda **v: exchange(swaps, found.values | v), EXCHANGE, swaps.time)
    return found.values | other.values, found.deviations | other.deviations


def errors(c: Columns, found: tuple[dict[str, float], dict[str, float]]) -> Any:
    """Signed relative errors of the rows."""
    values = found[0]
    return np.where(c.swap, exchange(c, values), ring(c, values)) / c.time - 1


_HEAD = """# Fitted constants of collectives, laid over collectives.toml; written by `python -m mlsysim.calibrate FOLDER --only collectives`.
# error: the standard error as a factor, of rows that err independently; least, most: over the fits that leave a generation out.
# Fit error, median / p90 / bias in %: {}; with the machine's generation left out {}.
# loose, by more than half over these fits: {}."""
_START = """# Time of the smallest all-gather of two ranks, which is measured and not fitted; of a generation the mean of its machines. It belongs to the
# machine and its software, not to the link.
[start]"""


def text(rows: Columns, fits: list[Any], inside: Any, outside: Any) -> str:
    """The file: constants of the first fit, their ranges over the others, and start-up times."""
    (values, deviations), *others = fits
    free = [name for name, value in values.items() if loose(value, [each[name] for each, _ in others])]
    lines, starts = [_HEAD.format(line(inside).strip(), line(outside).strip(), ", ".join(free))], {}
    for table in ("ring", "exchange", "in_switch"):
        own = [n for n in values if n.startswith(table) or (table == "ring" and not n.startswith(("exchange", "in_")))]
        lines += ["", f"[{table}]"]
        for name in own:
            entry = stated(values[name], deviations[name], [each[name] for each, _ in others])
            lines.append(f"{name.removeprefix(f'{table}_')} = {entry}")
    for column in (rows.key, rows.generation):
        for each in sorted(set(column.tolist())):
            machines = {
                k: s
                for k, s, g in zip(rows.key.tolist(), rows.start.tolist(), column.tolist(), strict=True)
                if g == each
            }
            starts[each] = sum(machines.values()) / len(machines)
    lines += ["", _START, *(f'{name.replace(" ", "_")} = "{start * 1e6:.2f} us"' for name, start in starts.items())]
    return "\n".join(lines) + "\n"


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Fit, print and write."""
    fits: list[Any] = []

    def fitted(c: Columns) -> Any:
        fits.append(constants(c))
        return fits[-1]

    table, kept = table_rows(published(folder) / "collectives.csv"), Kept()
    rows = columns([r for r in table if r["source"].startswith(SOURCES) and Hardware.get(r["gpu"]).link is not None])
    _, found, left = report("collectives", rows, fitted, errors, "generation", keep=kept)
    for kind in sorted(set(rows.kind.tolist())):
        print(f"  {kind:18s}", line(found[rows.kind == kind]))
    for key in sorted(set(rows.key.tolist())):
        print(f"  {key:18s}", line(found[rows.key == key]))
    if out is not None:
        out.write_text(text(rows, fits, found, left["generation"]), encoding="utf-8")
    return kept
