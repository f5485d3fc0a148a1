"""Left-out residuals: how far predictions were off where constants had not seen the row, and what else they had not seen.

One line for each value: ``table, row, metric, regime, software, model, chip, left_out, log_error``. ``regime`` is the kind of work that a band is looked
up by (:mod:`mlsysim.zoo.intervals`), ``log_error`` the logarithm of predicted over measured. ``left_out`` says what the constants had not seen:

    part       other settings of the same model, chip and software were seen; of vision, energy, collectives, kernels and passes, whose rows are many
               for each constant, the row itself may have been
    model      no row of this architecture
    chip       no row of this chip
    kernels    no kernel of this chip's generation: its constants are those of another
    cpu        no run on a processor that is no accelerator
    software   no row of this engine, stack or runtime
    format     no row of this kind of this stack in this format; bits of products stand for the chip
    settings   everything was seen, but a setting that matters had to be inferred

or several of these, with spaces between them.

``summary`` keeps of each group of rows that share what was left out at most :data:`MOST` values, evenly spaced in their order; groups of fewer than
:data:`RARE` rows are one, but for formats, whose names say what was seen. That is the declared
weighting: a model, a chip or a source counts as its rows, and never for more than so many. ``calibrate/data/residuals.csv`` ships these, and
bands, their nested coverage and the left-out tables of ``docs/accuracy.md`` are read off them.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from mlsysim.calibrate.questions import Prediction
from mlsysim.calibrate.validate import FileReport
from mlsysim.hardware.registry import Hardware
from mlsysim.timing.engines import strangeness
from mlsysim.zoo.intervals import COLD, STRANGE

SHIPPED = Path(str(files("mlsysim.calibrate"))) / "data" / "residuals.csv"
MOST, RARE = 30, 3
PART, FORMAT, OTHERS = "part", "format", "others of"


class Residual(NamedTuple):
    """One value that was predicted without it."""

    table: str
    row: str
    metric: str
    regime: str
    software: str
    model: str
    chip: str
    left_out: str
    log_error: float

    @property
    def group(self) -> str:
        """What a row shares with those that are left out with it; where all of it was seen, rows of a model on a chip are alike."""
        own = {
            **dict.fromkeys(STRANGE, self.chip),
            FORMAT: f"{self.software} {self.chip}",
            "model": self.model,
            "software": self.software,
        }
        return own.get(self.left_out.split(" ")[0], f"{self.model} {self.chip}")


class Group(NamedTuple):
    """Rows of a table that were left out together: how many, and logarithms of predicted over measured in order."""

    table: str
    regime: str
    left_out: str
    name: str
    rows: int
    errors: tuple[float, ...]


def residuals_of(report: FileReport, left_out: str = PART) -> list[Residual]:
    """Residuals of a validated table, whose rows took no part in a fit, or are many for each constant."""
    found = []
    for p in report.scored:
        # What has no stated interval, as memory, needs no band.
        if p.measured > 0 and p.predicted > 0 and p.low is not None:
            own = _of_plan(p)
            kind = left_out if p.chip_measured or left_out in STRANGE else "chip"
            if kind == "chip" and report.table in ("inference", "serving_runs", "serving_open"):
                kind = strangeness(Hardware.get(own[-1]))
            error = math.log(p.predicted / p.measured)
            found.append(_normal(Residual(report.table, p.row, p.metric, p.regime, *own, kind, error)))
    return found


_SERVING = ("serving", "open", "online", "saturated", "static", "steady", "batch-1", "mlperf", "prefill")
_METRICS = (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "tpot"), ("latency", "request"))


def _normal(row: Residual) -> Residual:
    """A residual under the regime that its answer's band is looked up by: with the software where it is an engine or a stack, and not with what had to
    be inferred, which is what it lacks."""
    regime, _, inferred = row.regime.partition(", ")
    kind = "settings" if inferred and row.left_out == PART else {"stack": "software"}.get(row.left_out, row.left_out)
    first = regime.split(" ")[0]
    if row.software and first == "training" and regime != "training memory":
        regime = f"{regime.removesuffix(' ' + row.software)} {row.software}"
    elif row.software and first in _SERVING and row.table != "silicon":
        pools = "".join(f"{word} " for word in (COLD, "disaggregated") if word in regime.split(" "))
        of = next((name for part, name in _METRICS if part in row.metric), "rate")
        regime = f"serving {pools}{of} {row.software}{' open' if 'open' in (first, regime.split(' ')[-1]) else ''}"
    return row._replace(regime=regime, left_out=kind)


def _of_plan(p: Prediction) -> tuple[str, str, str]:
    """Software, model and chip; the source stands for what a row without a plan does not say."""

    def said(name: str) -> str:
        found = re.search(rf'^{name} = "(?:\d+x)?([^"]*)"', p.plan, re.MULTILINE)
        return found[1] if found else ""

    software = said("engine") or said("stack") or said("runtime")
    model = family(said("model")) if p.regime.startswith("vision") else said("model")
    return (software, model, said("on")) if p.plan else ("", p.source or p.metric, p.source)


def family(network: str) -> str:
    """What a network of images goes with: names that begin alike are one model."""
    return network[:1].lower()


class Kept(list[Residual]):
    """Residuals that fits hand over (``keep`` of :func:`mlsysim.calibrate.fitting.report`): rows have a column ``about``, the fields of a residual up to
    the chip, and groups leave by model unless the column is one of chips."""

    def __call__(self, rows: Any, column: str, errors: Any) -> None:
        kind = "model" if column == "half" else column if column in (PART, "model", "source", "software") else "chip"
        for about, error in zip(rows.about.tolist(), errors.tolist(), strict=True):
            self.append(Residual._make((*about, kind, math.log1p(error))))


def together(found: Sequence[Sequence[Residual]]) -> list[Residual]:
    """Residuals of several fits. A value that a fit left out with a part of the rows stands for the same value as it was answered."""
    named = [[_normal(row) for row in rows] for rows in found]
    fitted = [{(r.table, r.row, r.metric) for r in rows if r.left_out == PART} for rows in named]
    kept = []
    for number, rows in enumerate(named):
        later = set().union(*fitted[number + 1 :])
        kept += [r for r in rows if r.left_out != PART or (r.table, r.row, r.metric) not in later]
    return kept


def summary(rows: Iterable[Residual]) -> list[Group]:
    """At most :data:`MOST` values of each group, evenly spaced in their order."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    every = list(rows)
    names = [[(row.table, row.regime, row.left_out, name) for name in (row.group, row.model)] for row in every]
    counts = Counter(name for each in names for name in set(each))
    for row, each in zip(every, names, strict=True):
        others = (*each[0][:3], f"{OTHERS} {row.regime}")
        fewest = 1 if row.left_out == FORMAT else RARE
        found[next((name for name in each if counts[name] >= fewest), others)].append(row.log_error)
    return [Group._make((*key, len(errors), spaced(sorted(errors)))) for key, errors in sorted(found.items())]


def spaced(ordered: list[float]) -> tuple[float, ...]:
    """At most :data:`MOST` of ordered values."""
    kept = min(len(ordered), MOST)
    return tuple(round(ordered[int((i + 0.5) * len(ordered) / kept)], 3) for i in range(kept))


def write_summary(groups: Iterable[Group], path: Path = SHIPPED) -> None:
    """The groups as CSV, errors in thousandths with spaces between them."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(Group._fields)
        writer.writerows((*group[:-1], " ".join(f"{1000 * e:.0f}" for e in group.errors)) for group in groups)


def read_summary(path: Path = SHIPPED) -> list[Group]:
    """The groups of a summary."""
    with path.open(newline="", encoding="utf-8") as stream:
        lines = list(csv.reader(stream))[1:]
    return [Group._make((*line[:4], int(line[4]), tuple(int(e) / 1000 for e in line[5].split()))) for line in lines]
