"""``mlsysim sweep SPACE.toml``: every design of a space, the best ones, the trade-offs and what rejected the rest. With a plan in place of a space,
``mlsysim sweep PLAN KEY=VALUES ...`` (:mod:`mlsysim.cli.plan_sweep`).

``-o FILE`` writes every point as CSV or Parquet, ``--plot FILE`` a chart, ``--out DIR`` leaves ``result.json``, every point under ``points/`` and the
finished parts under ``parts/``. Exit codes: 0, 1 for
bad input, 2 where no design is feasible, 130 after an interrupt (what was finished is kept, the best so far is printed).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Exit, Option

from mlsysim.cli.options import chosen_form
from mlsysim.cli.output import end, print_line, print_table, print_text
from mlsysim.cli.plan_sweep import is_of_a_plan, refuse_of_spaces, sweep_plan
from mlsysim.errors import InputError
from mlsysim.zoo.writing import written

if TYPE_CHECKING:
    from rich.console import Console

Word = str | None
_INTERRUPTED = 130
_NOTHING_FITS = 2
_NO_POINTS = "none"
_MANY = 10_000_000


def sweep(
    context: Context,
    paths: Annotated[
        list[str],
        Argument(
            metavar="SPACE.toml|PLAN KEY=VALUES",
            help="a space file; a plan file, or a model with --on, and its keys at several values; or: merge DIR ...",
        ),
    ],
    workers: Annotated[int, Option(help="processes (0: one for each core)")] = 1,
    dask: Annotated[
        str | None, Option(help="address of a Dask scheduler, or 'local' for a cluster of --workers processes")
    ] = None,
    shard: Annotated[str | None, Option(help="i/n: this job's share of the parts, from 1/n to n/n")] = None,
    resume: Annotated[str | None, Option(help="checkpoint folder; continued if it exists")] = None,
    out: Annotated[str | None, Option(help="folder for result.json, every point and the parts")] = None,
    points: Annotated[
        str | None, Option(help="with --out: parquet, npz or none (default: parquet if DuckDB is installed)")
    ] = None,
    output: Annotated[
        str | None, Option("-o", "--output", help="write every point to this file: .csv, or .parquet with DuckDB")
    ] = None,
    plot: Annotated[
        str | None,
        Option(help="write a chart to this .svg: the Pareto front, the best along an axis, or a metric by a key"),
    ] = None,
    top: Annotated[int | None, Option(help="how many of the best to keep")] = None,
    pareto: Annotated[str | None, Option(help="2 to 6 outputs for a Pareto front: a,b,c")] = None,
    minimize: Annotated[str | None, Option(help="rank by this output, less is better")] = None,
    maximize: Annotated[str | None, Option(help="rank by this output, more is better")] = None,
    as_json: Annotated[bool, Option("--json", help="one JSON document and nothing else on stdout")] = False,
) -> None:
    """Evaluate every design of a space, or a plan at several values of its keys; or merge the results of array jobs.

    mlsysim sweep space:compression-pareto --top 3
    mlsysim sweep chips.toml -o points.csv --plot front.svg
    mlsysim sweep scenario:llama3-405b-16k-h100 spares=0,16,64 --simulate --seeds 20
    mlsysim sweep Qwen3_32B --on 64xH100 --prompts 64 --samples 32 --response 3200 split=16,32,48 staleness=1,2
    """
    if plot is not None and not plot.lower().endswith(".svg"):
        raise InputError(f"--plot writes a file that ends in .svg, got {plot[-60:]!r}.", field="plot")
    if is_of_a_plan(context, paths):
        several = workers if workers != 1 else None
        spaces = {"workers": several, "dask": dask, "shard": shard, "resume": resume, "out": out, "points": points}
        refuse_of_spaces(spaces | {"pareto": pareto})
        if minimize is not None and maximize is not None:
            raise InputError("A sweep has one objective: --minimize or --maximize, not both.")
        wanted = minimize or maximize
        goal = None if wanted is None else (wanted, maximize is not None)
        file = output if output is not None and Path(output).suffix else None
        form = chosen_form(context, None if file else output, as_json)
        return sweep_plan(context, paths, goal, top, form, file, plot)
    from rich.console import Console

    from mlsysim.search.answers import explained
    from mlsysim.search.folder import Checkpoint, write_json
    from mlsysim.search.space import Space
    from mlsysim.search.sweep import merge
    from mlsysim.search.tabled import ending_of, write_points

    notes = Console(stderr=True, highlight=False, markup=False, emoji=False)
    merging = paths[0] == "merge"
    if output is not None and (merging or (ending_of(output) == ".parquet" and points == "npz")):
        raise InputError(
            "-o writes the points of a sweep; a .parquet needs --points parquet, and merge has none.", field="output"
        )
    kept_in: Any = None
    try:
        if merging:
            result, space = merge(paths[1:]), Checkpoint.existing(paths[1]).space
        else:
            if len(paths) > 1:
                if "@" in paths[0] and paths[1].isidentifier():
                    raise InputError(f"{paths[1][:60]!r} has no values; write {paths[1][:60]}=1,2,4.", field=paths[1])
                raise InputError(f"sweep takes one space file, got {len(paths)}.")
            goals = {"minimize": minimize, "maximize": maximize, "pareto": pareto, "top": top}
            space = Space.from_toml(paths[0]).with_goals(**goals)  # type: ignore[arg-type]
            if output is not None and (out is None or points == _NO_POINTS):
                with written(output):
                    kept_in = TemporaryDirectory(prefix=".mlsysim-", dir=Path(output).resolve().parent)
            folder = kept_in.name if kept_in else None
            if output is not None:
                points = "parquet" if ending_of(output) == ".parquet" else points
            result = _run(space, notes, workers, dask, shard, resume, out, points, folder)
            if output is not None and result.complete:
                stored = folder or str(Path(out or "") / "points")
                count = write_points(space, stored, output)
                notes.print(f"{count:,} points written to {output}.", soft_wrap=True)
    except KeyboardInterrupt:
        notes.print("mlsysim: interrupted before the sweep started.", soft_wrap=True)
        raise Exit(_INTERRUPTED) from None
    except InputError as error:
        # Points on their way to the file stand beside it for a while, in a folder that nobody knows of.
        inside, _, why = str(error).partition(" cannot be written: ")
        if kept_in is None or kept_in.name not in inside:
            raise
        raise InputError(f"{output!r} cannot be written: {why}", **error.details) from None
    finally:
        if kept_in is not None:
            kept_in.cleanup()
    if plot is not None:
        from mlsysim.plot.sweeps import chart_of

        chart_of(space, result).save(plot)
        notes.print(f"Chart written to {plot}.", soft_wrap=True)
    document = result.to_dict() | {"explanation": explained(space, result.best)}
    if out is not None:
        with written(out):
            Path(out).mkdir(parents=True, exist_ok=True)
        write_json(Path(out) / "result.json", document)
    if as_json:
        print(json.dumps(document, indent=1))
    else:
        _show(document, space)
    if not result.complete and not merging:
        kept = resume or (out and str(Path(out) / "parts"))
        sentence = "Interrupted: nothing was kept, because neither --resume DIR nor --out DIR was given."
        if kept:
            sentence = f"Interrupted: the finished parts are in {kept!r}, and the same command goes on from there."
        notes.print(sentence, soft_wrap=True)
        end(_INTERRUPTED)
    end(0 if result.feasible else _NOTHING_FITS)


def _run(
    space: Any,
    notes: Console,
    workers: int,
    dask: Word,
    shard: Word,
    resume: Word,
    out: Word,
    points: Word,
    beside: Word,
) -> Any:
    """The sweep that the options describe."""
    from mlsysim.search.forecast import check_size, check_storage
    from mlsysim.search.store import chosen_format
    from mlsysim.search.sweep import sweep as run

    portion = None if shard is None else _portion(shard)
    if out is None:
        if points is not None and beside is None:
            raise InputError("--points needs a folder: --out DIR.")
        if portion is not None and resume is None:
            raise InputError("--shard needs a folder for its parts: --out DIR or --resume DIR.")
    count = (os.cpu_count() or 1) if workers == 0 else workers
    folder = resume if out is None or resume is not None else str(Path(out) / "parts")
    store = form = None
    if beside is not None or (out is not None and points != _NO_POINTS):
        points = None if points == _NO_POINTS else points
        store, form = beside or str(Path(out or "") / "points"), chosen_format(points)
        if portion is None:
            check_size(space, max(count, 1))
        if space.size > _MANY:
            share = 1.0 if portion is None else 1 / max(portion[1], 1)
            notes.print(check_storage(space, form, store, share), soft_wrap=True)
    with Pace(space.name, notes) as pace:
        kept: dict[str, Any] = {"checkpoint": folder, "points": store, "points_format": points if store else None}
        return run(space, workers=count, dask=dask, portion=portion, progress=pace, **kept)


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


def _show(result: dict[str, Any], space: Any) -> None:
    """Counts, the best designs with what binds the first, and what rejected the rest."""
    from mlsysim.search.tabled import header_of, value_text

    state = "" if result["complete"] else " (not complete)"
    print_text(
        f"{result['name']}: {result['points']:,} of {result['size']:,} designs after constraints, "
        f"{result['feasible']:,} feasible{state}, {result['seconds']:.3g} s, {result['points_per_second']:,.0f} a second"
    )
    if result["invalid"]:
        print_line(f"  no design (layouts that do not divide): {result['invalid']:,}")
    for wall, count in result["infeasible_by_wall"].items():
        print_line(f"  rejected by {_named(wall)}: {count:,}")
    objective, varied = result["objective"], result.get("uncertain")
    if varied is not None:
        listed = "; ".join(f"{name} = {text}" for name, text in varied["inputs"].items())
        print_text(f"uncertain, {varied['samples']:,} draws (seed {varied['seed']}): {listed}")
    if result["best"]:
        ties = f", {result['ties']:,} designs equal the best" if result["ties"] > 1 else ""
        ranked = "" if varied is None else f" at p{varied['rank_by']:g}"
        print_line(f"{result['direction']} {objective}{ranked}{ties}:")
    best = result["best"]
    names = [*best[0]["inputs"]] if best else []
    same = [name for name in names if len(best) > 1 and len({str(each["inputs"][name]) for each in best}) == 1]
    shown = [name for name in names if name not in same]
    rows = [
        [str(k), value_text(space, objective, each["outputs"][objective]), *(value_text(space, name, each["inputs"][name]) for name in shown)]
        for k, each in enumerate(best, 1)
    ]  # fmt: skip
    headers = [
        "",
        objective,
        *(header_of(space, name) for name in shown),
    ]
    if best:
        places = range(len(headers))
        print_table("text", headers, rows, right=places, whole=places, drop=tuple(reversed(places[2:])))
    if same:
        listed = ", ".join(
            f"{header_of(space, name)} {value_text(space, name, best[0]['inputs'][name])}" for name in same
        )
        print_text(f"All of them: {listed}.")
    said = (result.get("explanation") or {}).get("sentences", ())
    if said:
        print_text(f"Of the best: {' '.join(said)}")
    for place, point in enumerate(best if varied is not None else (), 1):
        print_text(f"{place:3d}. {_over_draws(point, objective)}")
    if result["pareto"]:
        print_line(f"{len(result['pareto']):,} designs on the Pareto front (all of them with --json or --out)")


def _over_draws(point: dict[str, Any], objective: str) -> str:
    """Where a design's objective lies, how often it is feasible, and what binds or rejects it how often."""
    spread = point["percentiles"][objective]
    parts = [f"p5 {_text(spread['p5'])}, p50 {_text(spread['p50'])}, p95 {_text(spread['p95'])}"]
    parts.append(f"feasible in {point['feasible_probability']:.1%} of draws")
    for title, key in (("binds", "binding_probability"), ("rejected by", "rejection_probability")):
        if point.get(key):
            shares = ", ".join(f"{_named(wall)} {share:.1%}" for wall, share in point[key].items())
            parts.append(f"{title}: {shares}")
    return "; ".join(parts)


def _named(wall: str) -> str:
    from mlsysim.walls.catalog import wall as card

    return f"wall {wall} ({card(int(wall)).name})" if wall.isdigit() else wall


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
