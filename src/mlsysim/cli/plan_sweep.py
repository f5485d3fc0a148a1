"""``mlsysim sweep PLAN KEY=VALUES ...``: a plan with some of its keys at several values, each an answer of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from mlsysim.cli.options import is_plan_file
from mlsysim.cli.output import end, print_result
from mlsysim.cli.plan_options import as_an_option, named_plan, plan_of, settings_of
from mlsysim.cli.terminal import busy
from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.plans.varied import Varied

_NOTHING_FITS = 2


def is_of_a_plan(context: Context, paths: list[str]) -> bool:
    """Whether a sweep is asked of a plan: keys with values, or options of a plan, are given."""
    return any("=" in path for path in paths[1:]) or bool(settings_of(context))


def sweep_plan(
    context: Context,
    paths: list[str],
    goal: tuple[str, bool] | None,
    top: int | None,
    form: str,
    file: str | None,
    plot: str | None,
) -> None:
    """A table of the combinations, and all of them in a file and a chart where these are named; ends with 2 where none of them fits."""
    ending = None if file is None else Path(file).suffix.lower()
    if ending not in (None, ".csv", ".parquet"):
        words = f"-o writes the combinations of a plan's keys to a .csv or a .parquet, got {str(file)[-60:]!r}"
        raise InputError(f"{words}; -o json prints them as JSON.", field="output")
    if ending == ".parquet":
        from mlsysim.search.store import chosen_format, parquet_of_text

        chosen_format("parquet")
    found = _found(context, paths)
    if goal is not None:
        found = found.ranked(*goal)
    if file is not None:
        if ending == ".parquet":
            parquet_of_text(found.to_csv(), Path(file))
        else:
            found.to_csv(file)
        print(f"{len(found.points):,} points written to {file}.", file=sys.stderr)
    if plot is not None:
        from mlsysim.plot.keys import chart_of_keys

        chart_of_keys(found, None if goal is None else goal[0]).save(plot)
        print(f"Chart written to {plot}.", file=sys.stderr)
    fits, shown = found.feasible, found._replace(points=found.points[:top])
    if form == "csv":
        # Other programs read numbers, with units in their headers.
        sys.stdout.write(shown.to_csv())
        return end(0 if fits else _NOTHING_FITS)
    headers, rows = shown.table()
    why = [(line, "dim") for line in dict.fromkeys(point.sentence for point in shown.points if not point.feasible)]
    numbers = range(len(found.axes), len(headers) - 1)
    print_result(form, shown.to_dict, headers, rows, right=numbers, whole=range(len(found.axes)), after=why)
    end(0 if fits else _NOTHING_FITS)


def _found(context: Context, paths: list[str]) -> Varied:
    from mlsysim.plans.varied import axes_of, varied

    target, *texts = paths
    listed = next(
        (
            (k, v)
            for k, v in settings_of(context).items()
            if isinstance(v, str) and re.fullmatch(r"[\w.]+(,[\w.]+)+", v)
        ),
        None,
    )
    if listed is not None:
        raise InputError(
            f"Values to go over stand behind the model: {listed[0]}={listed[1][:60]}, without dashes.", field=listed[0]
        )
    if not texts:
        words = "needs keys at several values, such as spares=0,16,64; a space takes none of its options"
        raise InputError(f"Options of a plan are given: the sweep of one {words}.")
    inline = not is_plan_file(target) and "@" not in target
    axes, more = axes_of(texts), {}
    if inline and not {"on", "hardware_name"} & set(settings_of(context)):
        if "on" not in axes:
            raise InputError(f"{target[:60]!r} needs a fleet to run on: --on, such as --on 8xH100.", field="on")
        more["on"] = axes["on"][0]
    plan = plan_of(context, model=target, **more) if inline else named_plan(context, target)
    with busy("evaluating ..."):
        return varied(plan, axes).in_words(as_an_option)


def refuse_of_spaces(given: dict[str, Any]) -> None:
    """Options that only a space has."""
    named = next((name for name, value in given.items() if value), None)
    if named is not None:
        words = "the combinations of a plan's keys are answered one after another"
        raise InputError(f"--{named} belongs to a space file; {words}.", field=named)
