"""How reports on traces and on emissions are printed: words first, then a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlsysim.cli.output import Line, print_lines, print_result, print_table
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.importers.codecarbon import EmissionsReport
    from mlsysim.importers.trace import TraceReport

_TOP = 10


def sizes_of(texts: list[str] | None) -> dict[str, int] | None:
    """Sizes of open dimensions from ``NAME=N``."""
    found = {}
    for text in texts or ():
        name, equals, number = text.rpartition("=")
        if not equals or not name or not number.isdigit() or len(number) > 9:
            raise InputError(
                f"--size takes a name and a number, such as sequence=128, got {text[:60]!r}.", field="size"
            )
        found[name] = int(number)
    return found or None


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.4g}"


def print_trace(report: TraceReport, form: str, on: str | None, batch: float | None) -> None:
    """A trace, and the what-if where another chip or batch is asked for."""
    from mlsysim.importers.trace_what_if import what_if

    change = what_if(report, on, 1.0 if batch is None else batch) if on is not None or batch is not None else None
    lines = report.text.split("\n")
    words: list[Line] = [(lines[0], "bold"), *(lines[1:2] if report.communication else []), *report.warnings]
    headers = ["kind", "ms a step", "share", "calls", "efficiency", "of"]
    rows = [
        [
            k.kind,
            _ms(k.time),
            f"{k.share:.0%}",
            f"{k.count / report.steps:,.0f}",
            _optional(k.eta, ".0%"),
            k.of,
        ]
        for k in report.kinds
    ]
    document: dict[str, Any] = report.to_dict() | ({} if change is None else {"what_if": change.to_dict()})
    print_result(form, document, headers, rows, right=(1, 2, 3, 4), before=words)
    if form != "text":
        return
    kernels = [[k.name, k.kind, _ms(k.time / report.steps)] for k in report.kernels[:_TOP]]
    print_table(form, ["longest kernels", "kind", "ms a step"], kernels, right=(2,))
    if change is not None:
        first, *others = change.text.split("\n")
        print_lines([(first, "bold"), *others])
        times = [[kind, *map(_ms, both.values())] for kind, both in change.kinds.items()]
        print_table(form, ["kind", "ms measured", "ms predicted"], times, right=(1, 2))


def print_emissions(report: EmissionsReport, form: str) -> None:
    """Measured beside predicted, a row a run."""
    flags = [
        (f"{row.project or 'a run'} ({row.timestamp or 'no time'}): {flag}", "yellow")
        for row in report.rows
        for flag in row.flags
    ]
    headers = ["run", "GPUs", "hours", "kWh", "GPU kWh", "predicted", "kg", "g/kWh", "zoo g/kWh"]
    rows = []
    for row in report.rows:
        spread = f"{row.predicted_gpu_energy_low or 0:.3g}-{row.predicted_gpu_energy_high or 0:.3g}"
        cells = [
            row.project,
            f"{row.gpus}x{row.chip}" if row.chip else (row.gpus or ""),
            f"{row.duration / 3600:,.3g}",
            f"{row.measured_energy:.4g}",
            _optional(row.measured_gpu_energy),
            "" if row.predicted_gpu_energy is None else f"{row.predicted_gpu_energy:.3g} ({spread})",
            f"{row.measured_carbon:.4g}",
            _optional(row.measured_intensity),
            _optional(row.grid_intensity),
        ]
        rows.append(cells)
    notes = [
        f"Predicted: energy of the GPUs at {report.utilisation:g} of their peak (idle to peak in brackets); "
        "the zoo's grid is the average of the place."
    ]
    notes += ["Columns that were not read: " + ", ".join(report.unread) + "."] if report.unread else []
    dim = [(note, "dim") for note in notes]
    print_result(form, report.to_dict, headers, rows, right=range(2, 9), before=flags, after=dim)


def _optional(value: float | None, form: str = ".4g") -> str:
    return "" if value is None else f"{value:{form}}"
