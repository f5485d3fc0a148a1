"""Writes ``data/intervals.toml`` from the residuals of validated tables.

    python -m mlsysim.calibrate.intervals OUT.toml TABLE.csv ...

For each regime, on chips with a profile of their own and on chips of a class, the 5th and 95th percentile of measured over
predicted. Where a regime has few rows the band is widened by the spread that so few rows cannot show (a factor of
1 + 2/rows on its logarithm).
"""

from __future__ import annotations

import math
import re
import sys
import tomllib
from pathlib import Path

from mlsysim.calibrate.leave_out import powered_left_out, trained_left_out
from mlsysim.calibrate.validate import FileReport, grouped, percentile, validate

_FEWEST = 5
Bands = dict[tuple[str, bool], tuple[float, float, int]]


def bands(reports: list[FileReport]) -> Bands:
    """Low and high factor and number of values, by regime and whether the chip was measured."""
    table = {}
    scored = [p for report in reports for p in report.scored if p.measured > 0 and p.predicted > 0]
    for key, group in grouped(scored, lambda p: (p.regime, p.chip_measured)):
        if len(group) >= _FEWEST:
            ordered = sorted(math.log(p.measured / p.predicted) for p in group)
            widen = 1 + 2 / len(group)
            low, high = percentile(ordered, 0.05) * widen, percentile(ordered, 0.95) * widen
            table[key] = (math.exp(min(low, -0.005)), math.exp(max(high, 0.005)), len(group))
    return table


def render(table: Bands) -> str:
    """The bands as TOML."""
    lines = [
        "# Error bars by regime: 5th and 95th percentile of measured over predicted on the published rows of that kind.",
        "# Written by mlsysim.calibrate.intervals.",
    ]
    for (regime, measured), (low, high, rows) in sorted(table.items()):
        key = re.sub(r"\W+", "_", regime) + ("" if measured else "_class")
        lines += ["", f"[{key}]", f'regime = "{regime}"', f"chip_measured = {str(measured).lower()}"]
        lines += [f"low = {low:.4f}", f"high = {high:.4f}", f"rows = {rows}"]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Validate the tables and write their bands."""
    out, *tables = arguments
    path = Path(out)
    kept: Bands = {}
    if path.exists():
        # Bands of chips left out of a fit are not in the tables; they stay.
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).values():
            kept[entry["regime"], entry["chip_measured"]] = (entry["low"], entry["high"], entry["rows"])
    reports = validate(*tables)
    left_out = {"training": trained_left_out, "energy": powered_left_out}
    reports += [left_out[report.table](report) for report in reports if report.table in left_out]
    path.write_text(render(kept | bands(reports)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
