"""``mlsysim report``: a plan's answer as one HTML file or as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlsysim.cli.options import AsJson
from mlsysim.cli.output import print_json, print_text


def report(
    context: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100; the audited run without"
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write, .html or .md")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a report: verdict, walls, charts, cost, sensitivities, assumptions with sources, equations.

    mlsysim report examples/scenarios/llama3-70b-512-h100.toml -o report.html
    mlsysim report Llama3_70B@512xH100 --task training -o report.md
    """
    from mlsysim.cli.last import remember
    from mlsysim.cli.plan_options import changed, named_plan
    from mlsysim.plans.audit import AUDITED
    from mlsysim.report.build import build_report
    from mlsysim.report.write import format_of, write_report

    form = format_of(output)
    plan = changed(context, AUDITED) if scenario is None else named_plan(context, scenario)
    made = build_report(plan)
    written = write_report(made, output)
    remember(plan)
    answer = made.answer
    if as_json:
        print_json(
            {
                "file": str(written),
                "format": form,
                "bytes": written.stat().st_size,
                "subject": answer.subject,
                "headline": answer.headline,
                "feasible": answer.feasible,
                "passed": answer.passed,
            }
        )
    else:
        print_text(answer.headline)
        print_text(f"Written to {written}.")
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)
