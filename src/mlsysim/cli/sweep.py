"""``mlsysim sweep SPACE.toml``: every design of a space, the best ones, the trade-offs and what rejected the rest."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mlsysim.errors import InputError

__all__ = ["sweep"]

_INTERRUPTED = 130
_NOTHING_FITS = 2


def sweep(
    paths: Annotated[list[str], typer.Argument(metavar="SPACE.toml", help="a space file; or: merge DIR ...")],
    workers: Annotated[int, typer.Option(help="processes (0: one for each core)")] = 1,
    shard: Annotated[str | None, typer.Option(help="i/n: this job's share of the parts, from 1/n to n/n")] = None,
    resume: Annotated[str | None, typer.Option(help="checkpoint folder; continued, or started where absent")] = None,
    out: Annotated[str | None, typer.Option(help="folder for result.json (and the parts, with --shard)")] = None,
    top: Annotated[int | None, typer.Option(help="how many of the best to keep")] = None,
    pareto: Annotated[str | None, typer.Option(help="2 to 6 outputs for a Pareto front: a,b,c")] = None,
    minimize: Annotated[str | None, typer.Option(help="rank by this output, less is better")] = None,
    maximize: Annotated[str | None, typer.Option(help="rank by this output, more is better")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document and nothing else")] = False,
) -> None:
    """Evaluate every design of a space, or merge what the jobs of an array left."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mlsysim.search.space import Space
    from mlsysim.search.sweep import merge
    from mlsysim.search.sweep import sweep as run

    if paths[0] == "merge":
        result = merge(paths[1:])
    else:
        if len(paths) > 1:
            raise InputError(f"sweep takes one space file, got {len(paths)}.")
        space = Space.from_toml(paths[0]).with_goals(minimize=minimize, maximize=maximize, pareto=pareto, top=top)
        portion = None if shard is None else _portion(shard)
        folder = resume
        if folder is None and portion is not None:
            if out is None:
                raise InputError("--shard needs a folder for its parts: --out DIR or --resume DIR.")
            folder = str(Path(out) / "parts")
        count = (os.cpu_count() or 1) if workers == 0 else workers
        began = time.perf_counter()
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} parts"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=as_json,
        ) as bar:
            task = bar.add_task(space.name, total=None)

            def progress(done: int, parts: int, total: Any) -> None:
                rate = total.points / (time.perf_counter() - began)
                text = f"{space.name}: {total.points:,} points, {rate:,.0f} a second"
                bar.update(task, completed=done, total=parts, description=text)

            result = run(space, workers=count, checkpoint=folder, portion=portion, progress=progress)
    document = result.to_dict()
    if out is not None:
        target = Path(out)
        target.mkdir(parents=True, exist_ok=True)
        beside = target / ".result.json"
        beside.write_text(json.dumps(document, indent=1), encoding="utf-8")
        beside.replace(target / "result.json")
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        show(Console(), document)
    if not result.complete and paths[0] != "merge":
        raise typer.Exit(_INTERRUPTED)
    if not result.feasible:
        raise typer.Exit(_NOTHING_FITS)


def _portion(text: str) -> tuple[int, int]:
    first, slash, last = text.partition("/")
    if not slash or not first.strip().isdigit() or not last.strip().isdigit():
        raise InputError(f"--shard must be i/n such as 3/16, got {text[:40]!r}.")
    return int(first), int(last)


def show(console: Console, result: dict[str, Any]) -> None:
    """Counts, the best designs and what rejected the rest."""
    from mlsysim.walls.catalog import wall as card

    state = "" if result["complete"] else " (not complete)"
    console.print(
        f"{result['name']}: {result['points']:,} of {result['size']:,} designs after constraints, "
        f"{result['feasible']:,} feasible{state}, {result['seconds']:.3g} s, {result['points_per_second']:,.0f} a second",
        markup=False,
        soft_wrap=True,
    )
    if result["invalid"]:
        console.print(f"  no design (layouts that do not divide): {result['invalid']:,}", markup=False, soft_wrap=True)
    for wall, count in result["infeasible_by_wall"].items():
        name = f"wall {wall} ({card(int(wall)).name})" if wall.isdigit() else wall
        console.print(f"  rejected by {name}: {count:,}", markup=False, soft_wrap=True)
    objective = result["objective"]
    if result["best"]:
        ties = f", {result['ties']:,} designs equal the best" if result["ties"] > 1 else ""
        console.print(f"{result['direction']} {objective}{ties}:", markup=False, soft_wrap=True)
    for place, point in enumerate(result["best"], 1):
        inputs = "  ".join(f"{name} {_text(value)}" for name, value in point["inputs"].items())
        console.print(
            f"{place:3d}. {_text(point['outputs'][objective]):>12}   {inputs}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if result["pareto"]:
        console.print(f"{len(result['pareto']):,} designs on the Pareto front (all of them with --json or --out)")


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
