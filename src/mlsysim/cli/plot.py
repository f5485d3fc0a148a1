"""``mlsysim plot FILE|MODEL@FLEET KIND -o chart.svg``: a chart of an answer, or a map of what binds over two of its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from mlsysim.cli.options import AsJson
from mlsysim.cli.output import end, print_json, print_line
from mlsysim.cli.plan_options import named_plan
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError


def plot(
    context: Context,
    scenario: Annotated[str, Argument(metavar="FILE|MODEL@FLEET", help="a plan file, or such as Llama3_70B@512xH100")],
    kind: Annotated[
        str, Argument(help="time, memory, roofline, scorecard, schedule, percentiles, traffic, run, regimes, ...")
    ] = "time",
    over: Annotated[
        list[str] | None,
        Argument(
            metavar="KEY=VALUES ...", help="two keys of a map of regimes: batch_size=64,128,256 seq_len=2048,8192"
        ),
    ] = None,
    output: Annotated[Path, Option("-o", "--output", help="the .svg to write")] = Path("chart.svg"),
    width: Annotated[int, Option(help="pixels that the chart is laid out for")] = 720,
    as_json: AsJson = False,
) -> None:
    """Write a chart of a plan's answer, or a map of what binds over two of its keys.

    mlsysim plot scenario:llama3-70b-512-h100 memory -o memory.svg
    mlsysim plot Llama3_8B@H100 regimes concurrency=1,8,64 prompt_tokens=500,4000 --task serving --osl 200 -o map.svg
    """
    from mlsysim.plans.evaluate import evaluate
    from mlsysim.plans.varied import axes_of
    from mlsysim.plot.kinds import charted

    if output.suffix.lower() != ".svg":
        raise InputError(f"A chart is written to a file that ends in .svg, got {output.name[-60:]!r}.", field="output")
    if "@" in kind or kind.startswith("scenario:"):
        raise InputError(f"The plan comes first: mlsysim plot {kind[:60]} {scenario[:60]}.", field="scenario")
    plan = named_plan(context, scenario)
    with busy("evaluating ..."):
        answer = evaluate(plan)
        figure = charted(answer, kind, over=axes_of(over) if over else None, width=width)
    written = figure.save(output)
    if as_json:
        print_json({"file": str(written), "kind": kind, "title": figure.title, "alt": figure.alt})
    else:
        print_line(f"{written}: {figure.alt}")
    end(answer.exit_code)
