"""What commands print: words first, then a table; or JSON, Markdown, CSV.

Text goes through rich, which drops colour in pipes and under NO_COLOR and wraps at the terminal's width. JSON is one
document and nothing else.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from mlsysim.plans.answer import Answer

Line = str | tuple[str, str | None]
"""A line of text, with the style in which a terminal shows it."""
Lines = Iterable[Line]
Rows = Sequence[Sequence[Any]]
Places = Sequence[int]


def console(stderr: bool = False) -> Console:
    """A console that neither guesses colours nor reads markup in names."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while something takes longer; gives a function that says what is being done.

    Nothing is shown where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with console(stderr=True).status(what) as status:
        yield lambda text: status.update(text)


_BAR = 20


@contextmanager
def playing(say: Callable[[str], None]) -> Iterator[None]:
    """Within it a spinner says how far a simulation is; an answer takes several, of designs and of ends of intervals."""
    if not sys.stderr.isatty():
        yield
        return
    from mlsysim.simulate.settings import watched

    plays = 0

    def tell(done: int, expected: int) -> None:
        nonlocal plays
        plays += not done
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
    console().print(text, style=style)


def print_line(text: str, style: str | None = None) -> None:
    """A line, however long."""
    console().print(text, style=style, soft_wrap=True)


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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out = console()
    look: dict[str, Any] = {"title": title, "title_justify": "left", "title_style": "bold", "padding": (0, 1, 0, 0)}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, **look)
    used = [i for i in range(len(headers)) if any(row[i] for row in cells) or not cells]
    widths = {i: max(map(len, (headers[i], *(row[i] for row in cells)))) + 2 for i in used}
    left_out = []
    for i in drop:
        if sum(widths[k] for k in used) <= out.width + 2:
            break
        if i in used:
            used.remove(i)
            left_out.append(headers[i])
    for i in used:
        table.add_column(headers[i], justify="right" if i in right else "left", overflow="fold", no_wrap=i in whole)
    for row in cells:
        table.add_row(*(row[i] for i in used))
    out.print(table)
    if left_out:
        out.print(f"Left out for lack of width: {', '.join(left_out)} ({full} has all).", style="dim")


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
        out = console()
        out.print(_metrics_table(answer, out.width))
        if answer.percentiles:
            out.print("")
            out.print(_percentiles_table(answer))
        if answer.run_parts and answer.percentiles:
            out.print("")
            out.print(_run_table(answer))
        told = answer.assumptions
        shown = [f"{k.replace('_', ' ')}: {v}" for k, v in told.items() if k in _SHOWN or k in idle(told)]
        if shown:
            print_lines(["", ("Assumed: " + "; ".join(shown), "dim")])


def idle(assumed: Mapping[str, str]) -> dict[str, str]:
    """What was given and has no effect, with the reason: a terminal never leaves it out."""
    return {name: text for name, text in assumed.items() if "no effect" in text}


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


def _metrics_table(answer: Answer, width: int) -> Any:
    """All metrics in one table, a section for each question."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    wide = width >= _NARROW
    banded = wide and any(metric.interval for metric in answer.metrics)
    table.show_header = wide
    table.add_column("", overflow="fold")
    for header, shown in (("", True), ("90 % interval", banded), ("wall", wide)):
        if shown:
            table.add_column(header, justify="right", overflow="fold" if header != "wall" else "ellipsis")
    for level, title in answer.questions.items():
        held = [metric for metric in answer.metrics if metric.level == level and metric.listed]
        if held:
            table.add_row(title, style="bold")
        for metric in held:
            more = [metric.interval] * banded + [str(metric.wall)] * wide
            table.add_row(f"  {metric.label}", metric.text, *more)
    return table


def _percentiles_table(answer: Answer) -> Any:
    """Percentiles of simulated requests or runs, with their sampling error."""
    from rich.table import Table

    from mlsysim.plans.sheet import percentile_label, percentile_texts
    from mlsysim.plans.targets import levels_of

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    table.add_column("Simulated")
    for level in levels_of(next(iter(answer.percentiles.values()))):
        table.add_column(level, justify="right")
    for kind, held in answer.percentiles.items():
        table.add_row(f"  {percentile_label(kind)}", *percentile_texts(kind, held))
    return table


def _run_table(answer: Answer) -> Any:
    """What the time of a simulated run went on."""
    from rich.table import Table

    from mlsysim.units.text import compact_time

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    for column, justify in (("The run in the middle", "left"), ("time", "right"), ("share", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    whole = sum(part.value for part in answer.run_parts)
    for part in answer.run_parts:
        table.add_row(f"  {part.label}", compact_time(part.value), f"{part.value / whole:.2%}")
    return table


_SHOWN = ("algorithm", "framework", "max_response", "response_cv", "logprob_passes", "staleness", "memory_fraction", "rollout", "split", "teacher", "node", "simulated", "scheduler", "router", "autoscale", "spare", "failures", "prefixes", "backlog", "fabric", "tower", "precision", "arithmetic", "cache_precision", "seq_len", "batch_size", "layout", "micro_batch", "duration", "concurrency",
          "prompt_tokens", "output_tokens", "engine", "stack", "recipe", "runtime", "chip", "own_profile", "idle_devices", "groups",
          "kwh_price", "pue", "around the accelerators", "interval_of_energy", "checkpoint_time", "mtbf", "interval_of_goodput", "restart_time", "run", "hours")  # fmt: skip
"""Assumptions that a terminal shows; the others are in the JSON."""
