"""``mlsysim sweep SPACE.toml``: every design of a space, the best ones, the trade-offs and what rejected the rest.

``--out DIR`` leaves ``result.json``, every point under ``points/`` and the finished parts under ``parts/``. Exit codes: 0, 1 for
bad input, 2 where no design is feasible, 130 after an interrupt (what was finished is kept, the best so far is printed).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mlsysim.errors import InputError, MLSysError

_INTERRUPTED = 130
_NOTHING_FITS = 2
_NO_POINTS = "none"
_MANY = 10_000_000


def sweep(
    paths: Annotated[list[str], typer.Argument(metavar="SPACE.toml", help="a space file; or: merge DIR ...")],
    workers: Annotated[int, typer.Option(help="processes (0: one for each core)")] = 1,
    dask: Annotated[
        str | None, typer.Option(help="address of a Dask scheduler, or 'local' for a cluster of --workers processes")
    ] = None,
    shard: Annotated[str | None, typer.Option(help="i/n: this job's share of the parts, from 1/n to n/n")] = None,
    resume: Annotated[str | None, typer.Option(help="checkpoint folder; continued, or started where absent")] = None,
    out: Annotated[str | None, typer.Option(help="folder for result.json, every point and the parts")] = None,
    points: Annotated[
        str | None,
        typer.Option(help="with --out: parquet, npz or none; parquet where DuckDB is installed, else npz"),
    ] = None,
    top: Annotated[int | None, typer.Option(help="how many of the best to keep")] = None,
    pareto: Annotated[str | None, typer.Option(help="2 to 6 outputs for a Pareto front: a,b,c")] = None,
    minimize: Annotated[str | None, typer.Option(help="rank by this output, less is better")] = None,
    maximize: Annotated[str | None, typer.Option(help="rank by this output, more is better")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON document and nothing else on stdout")] = False,
) -> None:
    """Evaluate every design of a space, or merge what the jobs of an array left."""
    from mlsysim.search.sweep import merge

    notes = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    merging = paths[0] == "merge"
    try:
        if merging:
            result, space = merge(paths[1:]), _merged_space(paths[1])
        else:
            if len(paths) > 1:
                raise InputError(f"sweep takes one space file, got {len(paths)}.")
            space = _space(paths[0], minimize=minimize, maximize=maximize, pareto=pareto, top=top)
            result = _run(space, notes, workers, dask, shard, resume, out, points)
    except KeyboardInterrupt:
        notes.print("mlsysim: interrupted before the sweep started.")
        raise typer.Exit(_INTERRUPTED) from None
    document = result.to_dict() | {"explanation": _explained(space, result.best)}
    if out is not None:
        from mlsysim.search.folder import write_json

        Path(out).mkdir(parents=True, exist_ok=True)
        write_json(Path(out) / "result.json", document)
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        show(Console(), document)
    if not result.complete and not merging:
        kept = resume or (out and str(Path(out) / "parts"))
        notes.print(
            f"Interrupted: the finished parts are in {kept!r}, and the same command goes on from there."
            if kept
            else "Interrupted: nothing was kept, because neither --resume DIR nor --out DIR was given."
        )
        raise typer.Exit(_INTERRUPTED)
    if not result.feasible:
        raise typer.Exit(_NOTHING_FITS)


def _space(path: str, **goals: Any) -> Any:
    from mlsysim.search.space import Space

    return Space.from_toml(path).with_goals(**goals)


def _merged_space(folder: str) -> Any:
    from mlsysim.search.folder import Checkpoint

    return Checkpoint.existing(folder).space


def _run(
    space: Any,
    notes: Console,
    workers: int,
    dask: str | None,
    shard: str | None,
    resume: str | None,
    out: str | None,
    points: str | None,
) -> Any:
    """The sweep that the options describe."""
    from mlsysim.search.forecast import check_size, check_storage
    from mlsysim.search.store import chosen_format
    from mlsysim.search.sweep import sweep as run

    portion = None if shard is None else _portion(shard)
    if out is None:
        if points is not None:
            raise InputError("--points needs a folder: --out DIR.")
        if portion is not None and resume is None:
            raise InputError("--shard needs a folder for its parts: --out DIR or --resume DIR.")
    count = (os.cpu_count() or 1) if workers == 0 else workers
    folder = resume if out is None or resume is not None else str(Path(out) / "parts")
    store = form = None
    if out is not None and points != _NO_POINTS:
        store, form = str(Path(out) / "points"), chosen_format(points)
        if portion is None:
            check_size(space, max(count, 1))
        if space.size > _MANY:
            notes.print(check_storage(space, form, store, 1.0 if portion is None else 1 / max(portion[1], 1)))
    with Pace(space.name, notes) as pace:
        return run(
            space,
            workers=count,
            dask=dask,
            checkpoint=folder,
            portion=portion,
            points=store,
            points_format=points if store else None,
            progress=pace,
        )


class Pace:
    """A bar on a terminal's stderr with points, rate and time left; silent elsewhere."""

    def __init__(self, name: str, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self.name = name
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(name, total=None)
        self.start: tuple[float, int, int] | None = None

    def __enter__(self) -> Pace:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, parts: int, total: Any) -> None:
        """Take in how far the sweep is."""
        now = time.perf_counter()
        if self.start is None:
            # What was there before does not count towards the rate.
            self.start = (now, done, total.points)
        text = self.text(now, done, parts, total.points)
        self.bar.update(self.task, completed=done, total=parts, description=text)

    def text(self, now: float, done: int, parts: int, points: int) -> str:
        """Points, rate and time left in words."""
        from mlsysim.search.forecast import duration

        began, first, before = self.start or (now, done, points)
        text = f"{self.name}: {points:,} points"
        if done == first or now <= began:
            return text
        left = (parts - done) * (now - began) / (done - first)
        return f"{text}, {(points - before) / (now - began):,.0f} a second, {duration(left)} left"


def _portion(text: str) -> tuple[int, int]:
    first, slash, last = text.partition("/")
    if not slash or not first.strip().isdigit() or not last.strip().isdigit():
        raise InputError(f"--shard must be i/n such as 3/16, got {text[:40]!r}.")
    return int(first), int(last)


def _explained(space: Any, best: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What solve() says of the best design; a sweep is not lost because its best cannot be explained."""
    from mlsysim.search.answers import explanation

    if not best or space.uncertain is not None:
        return None
    try:
        return explanation(space, best[0]["inputs"])
    except MLSysError as error:
        return {"sentences": [f"The best design could not be explained: {error}"]}


def show(console: Console, result: dict[str, Any]) -> None:
    """Counts, the best designs with what binds the first, and what rejected the rest."""
    from mlsysim.walls.catalog import wall as card

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    state = "" if result["complete"] else " (not complete)"
    line(
        f"{result['name']}: {result['points']:,} of {result['size']:,} designs after constraints, "
        f"{result['feasible']:,} feasible{state}, {result['seconds']:.3g} s, {result['points_per_second']:,.0f} a second"
    )
    if result["invalid"]:
        line(f"  no design (layouts that do not divide): {result['invalid']:,}")
    for wall, count in result["infeasible_by_wall"].items():
        name = f"wall {wall} ({card(int(wall)).name})" if wall.isdigit() else wall
        line(f"  rejected by {name}: {count:,}")
    objective, varied = result["objective"], result.get("uncertain")
    if varied is not None:
        listed = "; ".join(f"{name} = {text}" for name, text in varied["inputs"].items())
        line(f"uncertain, {varied['samples']:,} draws (seed {varied['seed']}): {listed}")
    if result["best"]:
        ties = f", {result['ties']:,} designs equal the best" if result["ties"] > 1 else ""
        ranked = "" if varied is None else f" at p{varied['rank_by']:g}"
        line(f"{result['direction']} {objective}{ranked}{ties}:")
    for place, point in enumerate(result["best"], 1):
        inputs = "  ".join(f"{name} {_text(value)}" for name, value in point["inputs"].items())
        line(f"{place:3d}. {_text(point['outputs'][objective]):>12}   {inputs}")
        if varied is not None:
            line(f"     {_over_draws(point, objective)}")
        if place == 1:
            for sentence in (result.get("explanation") or {}).get("sentences", ()):
                line(f"     {sentence}")
    if result["pareto"]:
        line(f"{len(result['pareto']):,} designs on the Pareto front (all of them with --json or --out)")


def _over_draws(point: dict[str, Any], objective: str) -> str:
    """Where a design's objective lies, how often it is feasible, and what binds or rejects it how often."""
    from mlsysim.walls.catalog import wall as card

    def named(shares: dict[str, float]) -> str:
        return ", ".join(
            f"{f'wall {name} ({card(int(name)).name})' if name.isdigit() else name} {share:.1%}"
            for name, share in shares.items()
        )

    spread = point["percentiles"][objective]
    parts = [f"p5 {_text(spread['p5'])}, p50 {_text(spread['p50'])}, p95 {_text(spread['p95'])}"]
    parts.append(f"feasible in {point['feasible_probability']:.1%} of draws")
    for title, key in (("binds", "binding_probability"), ("rejected by", "rejection_probability")):
        if point.get(key):
            parts.append(f"{title}: {named(point[key])}")
    return "; ".join(parts)


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
