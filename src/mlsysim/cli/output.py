"""What commands print: words first, then a table; or JSON, Markdown, CSV.

Text is wrapped at the terminal's width (:mod:`mlsysim.cli.terminal`). JSON is one document and nothing else.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from mlsysim.cases.assumptions import IDLE, Assumption
from mlsysim.cli.terminal import width, write, write_columns

if TYPE_CHECKING:
    from mlsysim.plans.answer import Answer

Line = str | tuple[str, str | None]
"""A line of text, with the style in which a terminal shows it."""
Lines = Iterable[Line]
Rows = Sequence[Sequence[Any]]
Row = tuple[list[str], str | None]
"""Cells of a table, with their style."""
Places = Sequence[int]


_BAR = 20


@contextmanager
def playing(say: Callable[[str], None], note: Callable[[int, int], None] | None = None) -> Iterator[None]:
    """Within it a spinner says how far a simulation is, and ``note`` hears it; an answer takes several, of designs and of ends of intervals."""
    if not sys.stderr.isatty() and note is None:
        yield
        return
    from mlsysim.simulate.settings import watched

    plays = 0

    def tell(done: int, expected: int) -> None:
        nonlocal plays
        plays += not done
        if note is not None:
            note(done, expected)
        share = min(done / max(expected, 1), 1.0)
        full = round(_BAR * share)
        say(f"play {plays}  {'━' * full}{'╌' * (_BAR - full)} {share:4.0%} of {expected:,} requests")

    with watched(tell):
        yield


def print_json(document: Any) -> None:
    """One JSON document; what is not a number becomes null."""
    from mlsysim.walls.document import finite

    sys.stdout.write(json.dumps(finite(document), indent=2, ensure_ascii=False) + "\n")


def print_text(text: str, style: str | None = None) -> None:
    """A paragraph, wrapped at the terminal's width."""
    write(text, style)


def print_line(text: str, style: str | None = None) -> None:
    """A line, however long."""
    write(text, style, wrap=False)


def print_lines(lines: Lines) -> None:
    """Paragraphs with their styles."""
    for line in lines:
        print_text(*((line,) if isinstance(line, str) else line))


def end(code: int) -> None:
    """End with an exit code, unless all is well."""
    if code:
        raise typer.Exit(code)


def print_result(
    form: str, document: Any, headers: Sequence[str], rows: Rows, before: Lines = (), after: Lines = (), **look: Any
) -> None:
    """A result: JSON of the document (or what it gives); or the table, which a terminal shows between lines of words."""
    if form == "json":
        print_json(document() if callable(document) else document)
        return
    print_lines(before if form == "text" else ())
    print_table(form, headers, rows, **look)
    print_lines(after if form == "text" else ())


def print_table(
    form: str,
    headers: Sequence[str],
    rows: Rows,
    right: Places = (),
    title: str | None = None,
    drop: Places = (),
    whole: Places = (),
    full: str = "-o csv",
) -> None:
    """A table in any form but JSON; columns in ``right`` are aligned right, those in ``whole`` are not folded.

    On a terminal a table without rows or title is nothing. Where a terminal is too narrow, columns are left out in the order of ``drop``, which the
    option ``full`` has, and then lines are folded.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([headers, *cells])
        return
    if form == "markdown":
        if title:
            sys.stdout.write(f"### {title}\n\n")
        marks = ["---:" if i in right else "---" for i in range(len(headers))]
        for line in (headers, marks, *cells):
            sys.stdout.write("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n")
        sys.stdout.write("\n")
        return
    if not cells and title is None:
        return
    used = [i for i in range(len(headers)) if any(row[i] for row in cells) or not cells]
    widths = {i: max(map(len, (headers[i], *(row[i] for row in cells)))) + 2 for i in used}
    left_out = []
    for i in drop:
        if sum(widths[k] for k in used) <= width() + 2:
            break
        if i in used:
            used.remove(i)
            left_out.append(headers[i])
    if title:
        write(title, "bold")
    lines = [([headers[i] for i in used], "bold"), *(([row[i] for i in used], None) for row in cells)]
    places = dict(enumerate(used))
    ends, kept = ([k for k, i in places.items() if i in chosen] for chosen in (right, whole))
    write_columns(lines, ends, kept, gap=2, ruled=True)
    if left_out:
        write(f"Left out for lack of width: {', '.join(left_out)} ({full} has all).", "dim")


def print_answer(answer: Answer, form: str) -> None:
    """An answer in a form."""
    if form == "json":
        print_json(answer.to_dict())
    elif form == "csv":
        rows = [
            [m.path, m.label, *_cells(m.value), *(_cells(v)[0] for v in (m.low, m.high)), m.wall]
            for m in answer.metrics
        ]
        print_table("csv", ["metric", "label", "value", "unit", "low", "high", "wall"], rows)
    elif form == "markdown":
        sys.stdout.write(f"## {answer.subject}\n\n")
        for line, style in sentences(answer):
            sys.stdout.write(f"**{line}**\n\n" if style and "bold" in style else f"- {line}\n")
        sys.stdout.write("\n")
        rows = [[m.label, m.text, m.interval, m.wall] for m in answer.metrics]
        print_table("markdown", ["metric", "value", "90 % interval", "wall"], rows, right=(1, 2, 3))
    else:
        print_lines([(answer.subject, "bold"), *sentences(answer), ""])
        _print_metrics(answer)
        if answer.percentiles:
            write("")
            _print_percentiles(answer)
        if answer.run_parts and answer.percentiles:
            write("")
            _print_run(answer)
        print_lines(assumed_lines(answer.assumed))


def assumed_lines(assumed: Iterable[Assumption]) -> list[Line]:
    """What was assumed as far as a terminal shows it. What was given and has no effect is never left out."""
    told = (each for each in assumed if each.name in _SHOWN or each.origin == IDLE)
    shown = [f"{each.name.replace('_', ' ')}: {each.text}" for each in told]
    return ["", ("Assumed: " + "; ".join(shown), "dim")] if shown else []


def _cells(value: Any) -> tuple[Any, str]:
    """A number and its unit."""
    from mlsysim.units.registry import Quantity, format_unit

    return (value.magnitude, format_unit(value.units)) if isinstance(value, Quantity) else (value, "")


def sentences(answer: Answer) -> list[tuple[str, str | None]]:
    """The words of an answer, settings as options, each with the style in which a terminal shows it."""
    from mlsysim.cli.plan_options import as_an_option

    answer = answer.in_words(as_an_option)
    good = answer.feasible and answer.passed
    # What lies too close to a limit to call is neither green nor red.
    open_ = answer.feasible and all(check.passed or not check.certain for check in answer.checks)
    sure = all(check.certain for check in answer.checks)
    styles = _STYLES | {"headline": "bold green" if good and sure else "bold yellow" if open_ else "bold red"}
    return [(text, styles.get(kind)) for text, kind in answer.sentences()]


_STYLES = {
    "binding": "yellow",
    "change": "cyan",
    "sure": "dim",
    "failed": "bold red",
    "open": "yellow",
    "note": "yellow",
}

_NARROW = 64
"""Columns below which a terminal gets metrics without intervals and walls."""


def _print_metrics(answer: Answer) -> None:
    """All metrics in one table, a section for each question."""
    wide = width() >= _NARROW
    banded = wide and any(metric.interval for metric in answer.metrics)
    rows: list[Row] = [(["", "", *["90 % interval"] * banded, "wall"], "dim")] if wide else []
    for level, title in answer.questions.items():
        held = [metric for metric in answer.metrics if metric.level == level and metric.listed]
        rows += [([title], "bold")] if held else []
        for metric in held:
            more = [metric.interval] * banded + [str(metric.wall)] * wide
            rows.append(([f"  {metric.label}", metric.text, *more], None))
    write_columns(rows, right=(1, 2, 3))


def _print_percentiles(answer: Answer) -> None:
    """Percentiles of simulated requests or runs, with their sampling error."""
    from mlsysim.plans.sheet import percentile_label, percentile_texts
    from mlsysim.plans.targets import levels_of

    levels = levels_of(next(iter(answer.percentiles.values())))
    rows: list[Row] = [(["Simulated", *levels], "dim")]
    for kind, held in answer.percentiles.items():
        rows.append(([f"  {percentile_label(kind)}", *percentile_texts(kind, held)], None))
    write_columns(rows, right=range(1, len(levels) + 1))


def _print_run(answer: Answer) -> None:
    """What the time of a simulated run went on."""
    from mlsysim.units.text import compact_time

    whole = sum(part.value for part in answer.run_parts)
    rows: list[Row] = [(["The run in the middle", "time", "share"], "dim")]
    for part in answer.run_parts:
        rows.append(([f"  {part.label}", compact_time(part.value), f"{part.value / whole:.2%}"], None))
    write_columns(rows, right=(1, 2))


_SHOWN = ("model", "algorithm", "framework", "max_response", "response_cv", "logprob_passes", "staleness", "memory_fraction", "rollout", "split", "teacher", "node", "simulated", "scheduler", "router", "autoscale", "spare", "failures", "prefixes", "backlog", "fabric", "tower", "precision", "arithmetic", "cache_precision", "phase", "context", "seq_len", "batch_size", "layout", "micro_batch", "recompute", "recomputed", "duration", "concurrency",
          "prompt_tokens", "output_tokens", "length_cv", "qps", "e2e_p99", "unpublished_prices", "engine", "max_num_seqs", "stack", "vocabulary", "recipe", "runtime", "chip", "own_profile", "idle_devices", "groups",
          "kwh_price", "pue", "around the accelerators", "interval_of_energy", "checkpoint_time", "mtbf", "interval_of_goodput", "restart_time", "run", "hours")  # fmt: skip
"""Assumptions that a terminal shows; the others are in the JSON."""
