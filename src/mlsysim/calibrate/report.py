"""Writes the tables of ``docs/accuracy.md`` from validated measurement tables.

    python -m mlsysim.calibrate.report docs/accuracy.md TABLE.csv ...

The page has text of its own; what stands between the two marks is replaced.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlsysim.calibrate.questions import Prediction
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


def _regime(p: Prediction) -> str:
    return f"{p.metric}: {p.regime}{'' if p.chip_measured else ', chip known by class'}"


def render(reports: list[FileReport]) -> str:
    """All tables of the page."""
    lines = ["All figures in per cent.", "", _HEADER.format("table"), _RULE]
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
