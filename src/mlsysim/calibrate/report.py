"""Writes the tables of ``docs/accuracy.md`` from validated measurement tables.

    python -m mlsysim.calibrate.report docs/accuracy.md TABLE.csv ...

The page has text of its own; what stands between the two marks is replaced.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path

from mlsysim.calibrate.intervals import nested
from mlsysim.calibrate.questions import Prediction
from mlsysim.calibrate.residuals import Group, read_summary
from mlsysim.calibrate.validate import FileReport, grouped, score, validate

BEGIN = "<!-- figures: written by mlsysim.calibrate.report -->"
END = "<!-- end of figures -->"

_HEADER = "| {} | values | median | mean | p90 | within 10 % | within 25 % | bias | in interval |"
_RULE = "|---|---|---|---|---|---|---|---|---|"


def line(name: str, scored: list[Prediction]) -> str:
    """One row of a table."""
    part = score(scored)
    coverage = "" if part["interval_coverage"] is None else f"{part['interval_coverage']:.0f}"
    return (
        f"| {name} | {part['values']:,} | {part['median_ape']:.1f} | {part['mape']:.1f} | {part['p90_ape']:.1f} "
        f"| {part['within_10']:.0f} | {part['within_25']:.0f} | {part['bias']:+.1f} | {coverage} |"
    )


_LEFT = "| table | left out | values | median | p90 | in the band of the others |\n|---|---|---|---|---|---|"


def left_out(groups: list[Group]) -> list[str]:
    """Errors by table and by what was left out, a group counting as its rows, and nested coverage; nothing is said of fewer than 30 values."""
    covered = nested(groups, ("table", "left_out"))
    found: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for group in groups:
        each = group.rows / len(group.errors)
        found[group.table, group.left_out] += [(100 * abs(math.expm1(error)), each) for error in group.errors]
    lines = ["Left out, from the shipped residuals (`part`: see `mlsysim.calibrate.residuals`):", "", _LEFT]
    for key, errors in sorted(found.items()):
        if covered[key].values >= 30:
            middle, tail = (_weighted(sorted(errors), share) for share in (0.5, 0.9))
            rows = f"{sum(weight for _, weight in errors):,.0f}"
            lines.append(
                f"| {key[0]} | {key[1]} | {rows} | {middle:.1f} | {tail:.1f} | {100 * covered[key].share:.0f} |"
            )
    return lines


def _weighted(ordered: list[tuple[float, float]], share: float) -> float:
    left = share * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]


def _regime(p: Prediction) -> str:
    return f"{p.metric}: {p.regime}{'' if p.chip_measured else ', chip known by class'}"


def render(reports: list[FileReport]) -> str:
    """All tables of the page."""
    lines = ["All figures in per cent.", "", *left_out(read_summary()), ""]
    lines += ["As answered, with constants that may have seen the row:", "", _HEADER.format("table"), _RULE]
    lines += [line(f"`{Path(r.file).name}`", r.scored) for r in reports if r.scored]
    for report in reports:
        lines += ["", f"### {Path(report.file).name}", ""]
        lines.append(
            f"{report.rows:,} rows to be scored ({report.excluded:,} more are duplicates or marked unusable), "
            f"{report.predicted:,} predicted: {report.coverage:.1%}."
        )
        if report.skipped_reasons:
            most = [f"{n} x {reason.rstrip('.')}" for reason, n in report.skipped_reasons.most_common(8)]
            lines.append(f"Not predicted: {'; '.join(most)}.")
        lines += ["", _HEADER.format("regime"), _RULE]
        lines += [line(regime, values) for regime, values in grouped(report.scored, _regime)]
        sources = grouped(report.scored, lambda p: p.source)
        if 1 < len(sources) <= 30:
            lines += ["", _HEADER.format("source"), _RULE]
            lines += [line(source, values) for source, values in sources]
    return "\n".join(lines) + "\n"


def replace(page: str, figures: str) -> str:
    """The page with new figures between its marks."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{figures}\n{END}{after}"


def main(arguments: list[str]) -> None:
    """Validate the tables and rewrite the page."""
    page, *tables = arguments
    path = Path(page)
    path.write_text(replace(path.read_text(encoding="utf-8"), render(validate(*tables))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
