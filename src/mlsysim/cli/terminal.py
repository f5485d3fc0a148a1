"""What a terminal shows: paragraphs wrapped at its width, columns side by side, a few styles, and a spinner.

Styles are left out in pipes, on dumb terminals and under NO_COLOR, and FORCE_COLOR keeps them. Nothing is imported for it, since
libraries that draw in terminals take as long to load as a short answer to compute.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from unicodedata import combining, east_asian_width

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_USUAL = 80
_WORD = re.compile(r"\s*\S+\s*")


def width() -> int:
    """Columns of the terminal, COLUMNS first; 80 where there is none."""
    if (said := os.environ.get("COLUMNS", "")).isdigit() and int(said) > 0:
        return int(said)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            return os.get_terminal_size(stream.fileno()).columns or _USUAL  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            continue
    return _USUAL


def write(text: str, style: str | None = None, wrap: bool = True) -> None:
    """A paragraph, wrapped unless said otherwise."""
    lines = wrapped(text, width()) if wrap else text.split("\n")
    sys.stdout.write("".join(f"{_styled(line, style)}\n" for line in lines))


def write_columns(
    rows: Sequence[tuple[Sequence[str], str | None]],
    right: Collection[int] = (),
    whole: Collection[int] = (),
    gap: int = 3,
    ruled: bool = False,
) -> None:
    """Rows with their styles, in columns; those in ``whole`` are folded last where the terminal is too narrow. A rule follows the first row."""
    count = max((len(cells) for cells, _ in rows), default=0)
    if not count:
        return
    table = [([*cells, *[""] * (count - len(cells))], style) for cells, style in rows]
    sizes = [max(max(map(columns, cells[i].split("\n"))) for cells, _ in table) for i in range(count)]
    # Less space between columns keeps lines whole.
    gap = next((some for some in range(gap, 0, -1) if sum(sizes) + some * (count - 1) <= width()), gap)
    over = sum(sizes) + gap * (count - 1) - width()
    for _ in range(max(over, 0)):
        left = [i for i in range(count) if i not in whole and sizes[i] > 1] or range(count)
        sizes[max(left, key=lambda i: (sizes[i], i))] -= 1
    for number, (cells, style) in enumerate(table):
        held = [list(wrapped(cell, max(size, 1))) for cell, size in zip(cells, sizes, strict=True)]
        for k in range(max(map(len, held))):
            parts = [_padded(lines[k] if k < len(lines) else "", sizes[i], i in right) for i, lines in enumerate(held)]
            sys.stdout.write(_styled((" " * gap).join(parts).rstrip(), style) + "\n")
        if ruled and not number:
            sys.stdout.write("─" * (sum(sizes) + gap * (count - 1)) + "\n")


def wrapped(text: str, size: int) -> Iterator[str]:
    """Lines of a text that are no longer than so many columns; a word that is longer is cut."""
    for paragraph in text.split("\n"):
        line = ""
        for word in _WORD.findall(paragraph):
            if columns(line) + columns(word.rstrip()) <= size:
                line += word
                continue
            if line.strip():
                yield line.rstrip()
            line = word
            while columns(line.rstrip()) > size:
                kept = next(k for k in range(len(line), 0, -1) if k == 1 or columns(line[:k]) <= size)
                yield line[:kept]
                line = line[kept:]
        yield line.rstrip()


def columns(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _padded(text: str, size: int, right: bool) -> str:
    space = " " * (size - columns(text))
    return space + text if right else text + space


def _styled(text: str, style: str | None) -> str:
    if not style or not text or not _coloured():
        return text
    return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"


def _coloured() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    drawn = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    # Consoles of Windows that know no styles print them as they are.
    return bool(os.environ.get("FORCE_COLOR")) or (drawn and (os.name != "nt" or "WT_SESSION" in os.environ))


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr while something takes longer, and what changes its words; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    said, done = [what], threading.Event()
    turning = threading.Thread(target=_turn, args=(said, done), daemon=True)
    turning.start()
    try:
        yield lambda text: said.__setitem__(0, text)
    finally:
        done.set()
        turning.join()


def _turn(said: list[str], done: threading.Event) -> None:
    drawn = 0
    while not done.wait(0.1):
        line = f"{'⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏'[drawn % 10]} {said[0]}"[: width() - 1]
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
        drawn += 1
    if drawn:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
