"""What commands print: words first, then a table; or JSON, Markdown, CSV.

Text goes through rich, which drops colour in pipes and under NO_COLOR and wraps at the terminal's width. JSON is one
document and nothing else.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from mlsysim.plans.answer import Answer

__all__ = ["console", "print_answer", "print_json", "print_table", "print_text"]

_LEVELS = {"feasibility": "Does it fit", "performance": "How fast", "macro": "What it costs"}


def console(stderr: bool = False) -> Console:
    """A console that neither guesses colours nor reads markup in names."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_json(document: Any) -> None:
    """One JSON document; what is not a number becomes null."""
    sys.stdout.write(json.dumps(_finite(document), indent=2, ensure_ascii=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def print_text(text: str, style: str | None = None) -> None:
    """A paragraph, wrapped at the terminal's width."""
    console().print(text, style=style)


def print_table(
    form: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    right: Sequence[int] = (),
    title: str | None = None,
) -> None:
    """A table in any form but JSON; columns in ``right`` are aligned right."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if form == "csv":
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(headers)
        writer.writerows(cells)
        sys.stdout.write(stream.getvalue())
        return
    if form == "markdown":
        if title:
            sys.stdout.write(f"### {title}\n\n")
        marks = ["---:" if i in right else "---" for i in range(len(headers))]
        for line in (headers, marks, *cells):
            sys.stdout.write("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n")
        sys.stdout.write("\n")
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False, show_edge=False
    )
    for i, header in enumerate(headers):
        table.add_column(header, justify="right" if i in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console().print(table)


def print_answer(answer: Answer, form: str) -> None:
    """An answer in a form."""
    if form == "json":
        print_json(answer.to_dict())
    elif form == "csv":
        rows = [
            [m.path, m.label, _number(m.value), _unit(m.value), _number(m.low), _number(m.high), m.wall]
            for m in answer.metrics
        ]
        print_table("csv", ["metric", "label", "value", "unit", "low", "high", "wall"], rows)
    elif form == "markdown":
        _markdown(answer)
    else:
        _text(answer)


def sentences(answer: Answer) -> list[tuple[str, str | None]]:
    """The words of an answer, each with the style in which a terminal shows it."""
    good = answer.feasible and answer.passed
    lines: list[tuple[str, str | None]] = [(answer.headline, "bold green" if good else "bold red")]
    lines += [(line, None) for line in answer.verdict]
    if answer.feasible:
        lines.append((answer.binding.sentence, "yellow"))
    if answer.next_wall is not None and answer.feasible and answer.next_wall.sentence not in answer.binding.sentence:
        lines.append((f"The next wall: {answer.next_wall.sentence}", None))
    if answer.change is not None:
        lines.append((answer.change.sentence, "cyan"))
    if answer.interval:
        lines.append((f"How sure: {answer.interval}", "dim"))
    lines += [
        (f"{'ok' if check.passed else 'FAILED'}: {check.sentence}", None if check.passed else "bold red")
        for check in answer.checks
    ]
    return lines


def _text(answer: Answer) -> None:
    out = console()
    out.print(answer.subject, style="bold")
    for line, style in sentences(answer):
        out.print(line, style=style)
    out.print()
    for level, title in _LEVELS.items():
        rows = [[m.label, m.text, m.interval_text, f"{m.wall}"] for m in answer.metrics if m.level == level]
        if rows:
            print_table("text", [title, "", "90 % interval", "wall"], rows, right=(1, 2, 3))
    shown = {k: v for k, v in answer.assumptions.items() if k in _SHOWN}
    if shown:
        out.print("Assumed: " + "; ".join(f"{k.replace('_', ' ')} {v}" for k, v in shown.items()), style="dim")


_SHOWN = ("node", "fabric", "precision", "seq_len", "batch_size", "layout", "micro_batch", "duration", "concurrency", "prompt_tokens",
          "output_tokens", "engine", "stack", "chip", "idle_devices", "groups")  # fmt: skip
"""Assumptions that a terminal shows; the others are in the JSON."""


def _markdown(answer: Answer) -> None:
    sys.stdout.write(f"## {answer.subject}\n\n")
    for line, style in sentences(answer):
        sys.stdout.write(f"**{line}**\n\n" if style and "bold" in style else f"- {line}\n")
    sys.stdout.write("\n")
    rows = [[m.label, m.text, m.interval_text, m.wall] for m in answer.metrics]
    print_table("markdown", ["metric", "value", "90 % interval", "wall"], rows, right=(1, 2, 3))


def _number(value: Any) -> Any:
    return getattr(value, "magnitude", value)


def _unit(value: Any) -> str:
    from mlsysim.units.registry import Quantity, format_unit

    return format_unit(value.units) if isinstance(value, Quantity) else ""
