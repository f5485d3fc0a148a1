"""Writes ``data/others.toml``: how much further runs that others published lie from predictions than left-out rows of the fits.

``calibrate/data/others`` holds rows of houses of which no constant saw one: each as it was found, whether or not it is predicted well. Their settings are
told in part, and their software is of other releases or of nobody's fit. A row's own interval, with all that it lacks, has a half-width w on the side
of its error e, both logarithms. The score is e^2 - w^2, and of n scores the ceil(0.9 (n + 1))-th, at least zero, is what is added to the square of the
half-width of a further row (split conformal prediction with that score: Vovk et al. 2005): it lies inside with 90 %, if its house is one of those that might
have been asked. A house counts for no more than thirty rows, and the nested coverage leaves whole houses out; where these differ so much that it stays below
88 %, the place is that of the first higher level (0.91, 0.92 ...) at which it does not.

    elsewhere   software that was fitted, on rows of other houses
    unfitted    software without fitted runs: an engine stands in for it, or has estimates

First tokens, which wait for settings that nobody tells, are a regime of their own; times per token and rates are one. ``houses`` are those of the fitted
tables; what they publish has the interval of their left-out rows.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from mlsysim.calibrate.fit_serving import FILES
from mlsysim.calibrate.intervals import HOLDS, LEVEL, Key, Table, covered, half_width
from mlsysim.calibrate.leave_out import lacking
from mlsysim.calibrate.measurements import published, table_rows
from mlsysim.calibrate.questions import Excluded, Question, Skipped, forget_answers, house, predicted, ran_by_others
from mlsysim.calibrate.residuals import Group, Residual, spaced
from mlsysim.calibrate.validate import table_of
from mlsysim.zoo.intervals import entry_name, interval, of_others

SHIPPED = Path(str(files("mlsysim.data"))) / "others.toml"
ROWS = Path(str(files("mlsysim.calibrate"))) / "data" / "others"
_TRAINED = "training*.csv"
_LEVELS = [LEVEL + each / 100 for each in range(10)]


def excesses(folder: Path = ROWS) -> Iterator[tuple[str, str, str, float]]:
    """Regime, what is lacked, house, and the root of the score of every value, which is zero inside of its interval."""
    for path in sorted(folder.glob("*.csv")):
        rows = table_rows(path)
        table = table_of(rows[0], path.name)
        for row in rows:
            with suppress(Skipped, Excluded):
                for question in table.questions(row):
                    yield from _excess(question, row["source"])


def _excess(question: Question, source: str) -> Iterator[tuple[str, str, str, float]]:
    how = ran_by_others(question, source)
    with suppress(Skipped):
        p = predicted(question)
        if how is not None and p.low and p.high and p.measured > 0:
            error, end = math.log(p.measured / p.predicted), p.high if p.measured > p.predicted else p.low
            yield *how, house(source), math.sqrt(max(error**2 - math.log(end / p.predicted) ** 2, 0.0))


def groups(folder: Path = ROWS) -> list[Group]:
    """Excesses by regime, by what is lacked and by house."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for *key, size in excesses(folder):
        found[tuple(key)].append(size)
    return [Group._make((ROWS.name, *key, len(sizes), spaced(sorted(sizes)))) for key, sizes in sorted(found.items())]


def bands(every: list[Group]) -> Table:
    """What is added, by regime and by what is lacked."""
    found: Table = defaultdict(dict)
    pooled: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in every:
        pooled[group.regime, group.left_out].append(group)
    for (regime, kind), own in sorted(pooled.items()):
        sizes = [group.errors for group in own]
        level = next((each for each in _LEVELS if covered(sizes, each) >= HOLDS), _LEVELS[-1])
        factor = math.exp(half_width((size for errors in sizes for size in errors), level))
        found[regime][kind] = Key(factor, sum(group.rows for group in own), len(own), covered(sizes, level))
    return found


def render(table: Table, known: set[str]) -> str:
    """The file."""
    lines = [
        "# What it adds to an interval that others ran something: a factor either way whose logarithm's square is added, rows and houses behind it,",
        "# and the coverage in per cent where the factor comes from the other houses. houses: those whose rows constants were fitted on.",
        "# Written by `python -m mlsysim.calibrate FOLDER --only others` from calibrate/data/others.",
        f"houses = {json.dumps(sorted(known))}",
    ]
    for regime, own in table.items():
        lines += ["", f"[{entry_name(regime)}]"]
        lines += [f"{kind} = [{k.factor:.4f}, {k.rows}, {k.groups}, {100 * k.coverage:.1f}]" for kind, k in own.items()]
    return "\n".join(lines) + "\n"


def write(folder: Path, out: Path | None = SHIPPED) -> list[Residual]:
    """Ask for every row that others published, print the nested coverage of each key, and write what is added."""
    tables = [*(published(folder) / name for name in FILES), *sorted(published(folder).glob(_TRAINED))]
    known = {house(row["source"]) for path in tables if path.exists() for row in table_rows(path)}
    own = of_others()
    # Intervals are those without what is sought.
    with lacking(own, list(own)):
        own["houses"] = sorted(known)
        interval.cache_clear()
        forget_answers()
        table = bands(groups())
    interval.cache_clear()
    forget_answers()
    for regime, keys in table.items():
        for kind, k in keys.items():
            print(f"{regime:16s} {kind:10s} {k.coverage:6.1%} of {k.rows} rows, {k.groups} houses, x/ {k.factor:.2f}")
    if out is not None:
        out.write_text(render(table, known), encoding="utf-8")
    return []
