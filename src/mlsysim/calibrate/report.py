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
        f"| {part['within_10']:.0f} | {part['within_25']:.0f} | {part['bias']:+z.1f} | {coverage} |"
    )


_LEFT = "| table | left out | values | median | p90 | in the band of the others |\n|---|---|---|---|---|---|"
_FEWEST = 30
"""Values of which something is said."""


def folded(summary: str, lines: list[str]) -> list[str]:
    """Lines that open when they are asked for."""
    return ["", '<details markdown="1">', f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def left_out(groups: list[Group]) -> list[str]:
    """Errors by table and by what was left out, a group counting as its rows, and nested coverage; nothing is said of fewer than 30 values.
    A row for each table first, then all of it in a fold."""
    covered = nested(groups, ("table", "left_out"))
    found: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for group in groups:
        each = group.rows / len(group.errors)
        found[group.table, group.left_out] += [(100 * abs(math.expm1(error)), each) for error in group.errors]
    said = sorted(key for key in found if covered[key].values >= _FEWEST)
    errors = {key: [_weighted(sorted(found[key]), share) for share in (0.5, 0.9)] for key in said}
    what = sorted({key[1] for key in said})
    lines = ["Left out, median / p90 (a `part` of all: `mlsysim.calibrate.residuals`):", ""]
    lines += [f"| table | {' | '.join(what)} |", "|---" * (len(what) + 1) + "|"]
    for table in dict.fromkeys(key[0] for key in said):
        cells = ["{:.1f} / {:.0f}".format(*errors[table, one]) if (table, one) in errors else "" for one in what]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    rows = [_LEFT]
    for key in said:
        middle, tail = errors[key]
        count = f"{sum(weight for _, weight in found[key]):,.0f}"
        inside = f"{100 * covered[key].share:.0f} ± {100 * covered[key].error:.0f}"
        rows.append(f"| {key[0]} | {key[1]} | {count} | {middle:.1f} | {tail:.1f} | {inside} |")
    several = [covered[key] for key in said if len(covered[key].groups) > 1]
    rows.append(
        f"\n{sum(own.holds for own in several)} of {len(several)} shares of more than one group are 90 % but for chance."
    )
    return [*lines, *folded("How many values, and how many lie in the band of the others", rows)]


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
        rows = []
        if report.skipped_reasons:
            most = [f"{n} x {reason.rstrip('.')}" for reason, n in report.skipped_reasons.most_common(8)]
            rows += [f"Not predicted: {'; '.join(most)}.", ""]
        rows += [_HEADER.format("regime"), _RULE]
        rows += [line(regime, values) for regime, values in grouped(report.scored, _regime)]
        sources = grouped(report.scored, lambda p: p.source)
        if 1 < len(sources) <= 30:
            rows += ["", _HEADER.format("source"), _RULE]
            rows += [line(source, values) for source, values in sources]
            lines += folded("By regime and by source", rows)
        else:
            lines += folded("By regime", rows)
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
