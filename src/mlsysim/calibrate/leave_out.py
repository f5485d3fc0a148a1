"""Leave one chip out: measured kernels and passes, predicted with the constants of another chip.

A chip without measurements gets the constants of its class, which come from another chip. How wrong that is shows when a
measured chip is treated the same way. A folder holds ``operators.csv``; our own H200 measurements ship with the
package. ``trained_left_out`` gives the intervals of training on a chip, or with a stack on a chip, that no published run was on,
``powered_left_out`` those of energy on a chip whose power nobody measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlsysim.calibrate.measurements import OWN_TABLES, operators, own_rows, published
from mlsysim.calibrate.questions import Excluded, Prediction, Skipped, forget_answers
from mlsysim.calibrate.residuals import PART, SHIPPED, Residual, residuals_of, summary, together, write_summary
from mlsysim.calibrate.samples import with_layers
from mlsysim.calibrate.tables import TABLES
from mlsysim.calibrate.tables import operators as public
from mlsysim.calibrate.user import user_profile
from mlsysim.calibrate.validate import FileReport, validate_file
from mlsysim.calibrate.verify import RUNTIMES, Pass, predict
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.device_time import regime_of
from mlsysim.timing.power import power_constants
from mlsysim.timing.profile import profile, standing_in
from mlsysim.timing.stacks import software

STAND_INS = {"A100": ("H100",), "H100": ("A100", "B200"), "B200": ("H100",), "H200": ("H100", "A100")}
"""Chips, and those whose constants stand in for their own. H100 for H200 is the same generation; the others are not."""


def left_out(folder: Path | None) -> Iterator[tuple[str, str, Prediction]]:
    """Chip, stand-in and prediction for every row that can be predicted."""
    for row in operators(folder):
        chip = Hardware.key_of(row["gpu"])
        for other in STAND_INS[chip]:
            shares = profile(Hardware.get(other)).model_copy(update={"basis": "generation"})
            with suppress(Skipped, Excluded):
                yield from ((chip, other, p) for p in public.predict_with(row, Hardware.get(chip), shares))
    for other in STAND_INS["H200"]:
        # A user's profile takes the place of the shipped one, so that public answers are those of the stand-in.
        with user_profile(f'[H200]\nlike = "{other}"\nbasis = "generation"\n'):
            for row in (row for table in OWN_TABLES for row in own_rows(table)):
                with suppress(Skipped, Excluded):
                    yield from (("H200", other, p) for p in TABLES["silicon"].predict(row))


TRAINED = {"A100": "H100", "A100_40GB": "H100", "H100": "A100", "H100_96GB_HBM2e": "A100", "B200": "H100"}
TRAINED |= {"B300": "H100", "GB200": "H100", "GB300": "H100"}
"""Chips of published runs, and those of another generation whose shares of peak and bandwidth stand in for theirs."""


def trained_left_out(report: FileReport) -> FileReport:
    """A report of training runs with times predicted by another generation's constants, as those of chips without runs are."""
    forget_answers()
    with standing_in(**{chip: Hardware.get(other) for chip, other in TRAINED.items()}):
        found = validate_file(Path(report.file))
    forget_answers()
    return replace(found, scored=[p for p in _moved(report, found) if "memory" not in p.regime])


def _moved(report: FileReport, found: FileReport) -> list[Prediction]:
    """What is predicted otherwise than in a report, as of chips that nobody measured."""
    before = {(p.row, p.metric): p.predicted for p in report.scored}
    return [replace(p, chip_measured=False) for p in found.scored if before.get((p.row, p.metric)) != p.predicted]


@contextmanager
def lacking(table: dict[str, Any], names: Sequence[str]) -> Iterator[None]:
    """Within it a table has no entries of these names."""
    kept = {name: table.pop(name) for name in names}
    try:
        yield
    finally:
        table.update(kept)


def powered_left_out(report: FileReport) -> FileReport:
    """A report of energies with those of Blackwell predicted by shares of its TDP, as those of chips without measurements are."""
    forget_answers()
    dies, chips = power_constants()["die"], power_constants()["chip"]
    with lacking(chips, ["B200"]), lacking(dies, [name for name, die in dies.items() if die["of"] == "B200"]):
        found = validate_file(Path(report.file))
    forget_answers()
    return replace(found, scored=[p for p in _moved(report, found) if p.regime.startswith("energy ")])


def stood_in(folder: Path) -> Iterator[Residual]:
    """Kernels and passes of measured chips under the constants of others."""
    for number, (chip, other, p) in enumerate(left_out(folder)):
        table = "operators" if p.regime.startswith("kernel") else "silicon"
        about = (table, f"{number}", p.metric, p.regime, "", p.metric, f"{chip} by {other}", "chip")
        yield Residual(*about, math.log(p.predicted / p.measured))


def verified() -> Iterator[Residual]:
    """Forward passes of language models that were run to be held against their prediction, to which no constant was fitted."""
    for number, row in enumerate(own_rows("verify")):
        model = Models.get(row["model"])
        if row["phase"] == "train" or model.fixed_shape:
            continue
        graph, fuse = row["graph"] == "1", row["compiled"] == "1"
        work = Pass(
            with_layers(model, int(row["layers"])),
            row["phase"],
            int(row["batch"]),
            int(row["seq_len"]),
            row["precision"],
            fuse,
        )
        predicted = predict(work, Hardware.get("H200"), graph)["predicted_s"]
        regime = regime_of(model, row["phase"], software(RUNTIMES[fuse][graph]))
        about = ("silicon", f"verified {number}", "time", regime, "", row["model"], "H200", PART)
        yield Residual(*about, math.log(predicted / float(row["seconds"])))


def residuals(folder: Path) -> list[Residual]:
    """Every table of a folder as answered, and with the constants of other chips."""
    kept = list(stood_in(folder))
    own = FileReport("", "silicon")
    for number, row in enumerate(row for table in OWN_TABLES for row in own_rows(table)):
        with suppress(Skipped, Excluded):
            own.scored += [replace(p, row=f"{number}", source=p.metric) for p in TABLES["silicon"].predict(row)]
    kept += [*residuals_of(own), *verified()]
    for path in sorted(published(folder).glob("*.csv")):
        try:
            report = validate_file(path)
        except InputError as reason:
            print(f"{path.name}: {reason}")
            continue
        if report.table == "rl":
            # Its few rows are those of its constants; what was left out of them is in the intervals of frameworks (rl_constants.toml).
            continue
        kept += _named(residuals_of(report), path)
        if report.table == "training":
            kept += _named(residuals_of(trained_left_out(report), "kernels"), path)
        elif report.table == "energy":
            kept += residuals_of(powered_left_out(report), "chip")
    return kept


def _named(found: list[Residual], path: Path) -> list[Residual]:
    """Residuals of one of several tables of training under the name that its fit gives them."""
    return [row._replace(table=path.stem) if row.table == "training" else row for row in found]


def write(folder: Path, out: Path | None = SHIPPED, fits: Sequence[Sequence[Residual]] = ()) -> list[Residual]:
    """Write the summary of all residuals: of tables as answered, and of what ``fits`` left out."""
    found = together([residuals(folder), *fits])
    if out is not None:
        write_summary(summary(found), out)
    return found
