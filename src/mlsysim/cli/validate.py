"""``mlsysim validate FILE.csv ...``: how far our predictions are from published measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mlsysim.cli.output import print_table, print_text


def validate(
    files: Annotated[list[Path], typer.Argument(help="CSV tables of measurements, recognised by their header")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document and nothing else")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="write every prediction with its interval to this CSV")
    ] = None,
) -> None:
    """Predict every row of measurement tables and report the errors, per file and per source."""
    from mlsysim.calibrate.validate import validate as run
    from mlsysim.calibrate.validate import write_predictions

    reports = run(*files)
    if out is not None:
        write_predictions(reports, out)
    if as_json:
        print(json.dumps([report.to_dict() for report in reports], indent=1))
        return
    for report in reports:
        show(report.to_dict())


def show(report: dict[str, Any]) -> None:
    """One file's report as a table."""
    print_text("")
    print_text(
        f"{Path(report['file']).name} ({report['table']}): {report['rows']} rows, "
        f"{report['predicted']} predicted ({report['coverage']:.1%}), {report['skipped']} skipped, {report['excluded']} excluded",
        "bold",
    )
    for reason, count in list(report["skipped_reasons"].items())[:8]:
        print_text(f"  skipped {count}: {reason}", "dim")
    groups = [("all", report)]
    groups += [(f"metric {name}", part) for name, part in report["by_metric"].items()]
    groups += [(name, part) for name, part in report["by_source"].items()]
    rows = [[name, *figures(part)] for name, part in groups if part.get("values")]
    headers = ["", "values", "median", "mean", "p90", "in 10 %", "in 25 %", "bias", "in interval"]
    print_table("text", headers, rows, right=range(1, len(headers)))


def figures(part: dict[str, Any]) -> list[str]:
    """The cells of one line."""
    return [
        f"{part['values']:,}",
        f"{part['median_ape']:.1f} %",
        f"{part['mape']:.1f} %",
        f"{part['p90_ape']:.1f} %",
        f"{part['within_10']:.0f} %",
        f"{part['within_25']:.0f} %",
        f"{part['bias']:+.1f} %",
        "" if part["interval_coverage"] is None else f"{part['interval_coverage']:.0f} %",
    ]
