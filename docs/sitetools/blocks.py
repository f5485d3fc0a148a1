"""Fenced blocks of a page: found, run, and compared with what the page says they print.

Python blocks of a page share one namespace. A ``text`` block that directly follows a ``python`` or ``sh`` block is what that
block prints, character by character; a line of three dots stands for any lines. An HTML comment ``<!-- not run: why -->``
above a block keeps it from being run.
"""

from __future__ import annotations

import contextlib
import io
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsysim.errors import DataWarning

from .commands import CommandError, run_commands

__all__ = ["FENCE", "Block", "Outcome", "agree", "blocks", "namespace_of", "outcomes", "problems", "rewritten"]

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
_NOT_RUN = re.compile(r"<!--\s*not run: (?P<why>[^>]+?)\s*-->\s*\Z")
ANY = "..."


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text and line, what is printed below it and where, and why it is not run."""

    language: str
    body: str
    line: int
    printed: str | None = None
    span: tuple[int, int] | None = None
    not_run: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a block that was run printed, or what went wrong."""

    block: Block
    output: str
    error: str | None


def blocks(text: str) -> list[Block]:
    """Fenced blocks of a page."""
    found = list(FENCE.finditer(text))
    out = []
    for index, match in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else None
        shows = following is not None and following["language"] == "text"
        if shows and following is not None and text[match.end() : following.start()].strip():
            shows = False
        note = _NOT_RUN.search(text[: match.start()])
        out.append(
            Block(
                match["language"],
                match["body"],
                text.count("\n", 0, match.start()) + 1,
                following["body"] if shows and following is not None else None,
                following.span("body") if shows and following is not None else None,
                note["why"] if note else None,
            )
        )
    return out


def outcomes(text: str, name: str, folder: Path) -> Iterator[Outcome]:
    """Run a page's blocks in their order, in ``folder``."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        if block.language == "python" and block.not_run is None:
            yield _python(block, name, namespace, folder)
        elif block.language == "sh":
            yield _shell(block, folder)


def namespace_of(text: str, name: str, folder: Path) -> dict[str, Any]:
    """What a page's Python blocks leave behind, run in ``folder``."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        if block.language == "python" and block.not_run is None:
            outcome = _python(block, name, namespace, folder)
            if outcome.error is not None:
                raise ValueError(f"{name}:{block.line}: {outcome.error}")
    return namespace


def _python(block: Block, name: str, namespace: dict[str, Any], folder: Path) -> Outcome:
    output = io.StringIO()
    try:
        # Line numbers of the page in the traceback.
        code = compile("\n" * block.line + block.body, name, "exec", dont_inherit=True)
        with contextlib.chdir(folder), contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            exec(code, namespace)
    except Exception:
        return Outcome(block, output.getvalue(), f"the block raised\n{traceback.format_exc(limit=2)}")
    return Outcome(block, output.getvalue(), None)


def _shell(block: Block, folder: Path) -> Outcome:
    try:
        output = run_commands(block.body, folder, only_read=block.not_run is not None)
    except CommandError as error:
        return Outcome(block, error.output, str(error))
    return Outcome(block, output, None)


def agree(printed: str, output: str) -> bool:
    """Whether an output is what a page says; spaces at the ends of lines do not count, and ``...`` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ANY else re.escape(line.rstrip()) + r"\n" for line in printed.splitlines()
    )
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in output.splitlines())) is not None


def problems(text: str, name: str, folder: Path) -> list[str]:
    """What is wrong with a page's blocks, in sentences."""
    found = []
    for outcome in outcomes(text, name, folder):
        block = outcome.block
        if outcome.error is not None:
            found.append(f"{name}:{block.line}: {outcome.error}")
        elif block.printed is not None and block.not_run is None and not agree(block.printed, outcome.output):
            found.append(f"{name}:{block.line}: printed\n{outcome.output}\nbut the page says\n{block.printed}")
    return found


def rewritten(text: str, name: str, folder: Path) -> tuple[str, list[str]]:
    """The page with what its blocks print today, and what could not be run or has ``...`` and is left to a person."""
    changes: list[tuple[tuple[int, int], str]] = []
    left = []
    for outcome in outcomes(text, name, folder):
        block = outcome.block
        if outcome.error is not None:
            left.append(f"{name}:{block.line}: {outcome.error}")
        elif block.printed is not None and block.span is not None and block.not_run is None:
            if agree(block.printed, outcome.output):
                continue
            if any(line.strip() == ANY for line in block.printed.splitlines()):
                left.append(f"{name}:{block.line}: shortened by hand; it prints\n{outcome.output}")
                continue
            shown = "".join(line.rstrip() + "\n" for line in outcome.output.splitlines())
            changes.append((block.span, shown))
    for (start, end), shown in reversed(changes):
        text = text[:start] + shown + text[end:]
    return text, left
