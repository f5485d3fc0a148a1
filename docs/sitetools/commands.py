"""``mlsysim`` commands of shell blocks, run inside this process in a folder of their own.

A command is expected to exit with 0, or with what its comment says
(``# exits with 2``). ``>`` writes a file; of a pipe only the first part is run and nothing is compared. Other programs are not run.

Commands that would serve for ever, need a GPU or take minutes are only read: their names and options are checked, nothing
happens. The same holds where a file that they would read is the reader's own.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

__all__ = ["ONLY_READ", "WIDTH", "CommandError", "folder_for_commands", "run_commands"]

WIDTH = 100
"""Columns of the terminal that commands print on."""

ONLY_READ = {
    "labs open": "serves until it is stopped",
    "labs check": "answers every question for every student",
    "labs build": "fetches the browser's Python when it runs first",
    "api": "serves until it is stopped",
    "mcp": "serves until it is stopped",
    "report": "evaluates many designs around a plan; the tests of reports do so too",
    "calibrate": "measures a device or fits for a minute",
    "verify": "runs a model in PyTorch",
    "validate": "takes minutes on large tables",
    "sweep space:gpt3-175b-4096-a100": "millions of points",
    "sweep space:llama3-405b-16k": "millions of points",
    "sweep space:carbon-cost-pareto": "millions of points",
    "sweep space:llama70b-serving-slo": "millions of points",
    "sweep space:chip-design": "millions of points",
}
"""Starts of commands that are not run, and why."""
_EXIT = re.compile(r"#.*\bexits? (?:with )?(?:code )?(\d)\b")
_FILE = re.compile(
    r"[\w./-]+\.(?:toml|json|ya?ml|csv|onnx|safetensors|pt|sh|sbatch|html|jsonl|txt|py|gz)\Z|[\w.-]+/[\w./-]*\Z"
)


class CommandError(Exception):
    """A command did something else than its page says."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def folder_for_commands(parent: Path) -> Path:
    """A folder in which the commands of a page run."""
    folder = parent / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zoo").mkdir(exist_ok=True)
    return folder


def run_commands(body: str, folder: Path, only_read: bool = False) -> str:
    """Run the ``mlsysim`` commands of a block; what they printed on stdout and stderr."""
    output = ""
    for line in _lines(body):
        expected = int(match[1]) if (match := _EXIT.search(line)) else 0
        for words, target in _commands(line):
            if words[:1] != ["mlsysim"]:
                continue
            if only_read or _reason_not_to_run(words[1:], folder):
                _read(words[1:])
                continue
            code, printed = _run(words[1:], folder)
            if code != expected:
                raise CommandError(
                    f"{shlex.join(words)} exits with {code}, not {expected}:\n{printed}", output + printed
                )
            if target is None:
                output += printed
            elif target != "|":
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                (folder / target).write_text(printed, encoding="utf-8")
    return output


def _lines(body: str) -> Iterator[str]:
    for line in re.sub(r"\\\n\s*", " ", body).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def _commands(line: str) -> Iterator[tuple[list[str], str | None]]:
    """The commands of a line, each with the file that its output goes to, or "|" where another program reads it."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
    reader.whitespace_split = True
    words: list[str] = []
    target: str | None = None
    tokens = list(reader)
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token in ("&&", ";"):
            yield words, target
            words, target = [], None
        elif token == ">" and at < len(tokens):
            target = tokens[at]
            at += 1
        elif token == "|":
            yield words, "|"
            words, target = ["|"], None
        else:
            words.append(token)
    yield words, target


def _reason_not_to_run(args: list[str], folder: Path) -> str | None:
    text = " ".join(args)
    for start, reason in ONLY_READ.items():
        if text == start or text.startswith(start + " "):
            return None if "--help" in args else reason
    for before, word in zip(["", *args], args, strict=False):
        if _FILE.match(word) and not before.startswith("-") and not (folder / word).exists():
            return f"{word} is the reader's own"
    return None


def _read(args: list[str]) -> None:
    """Check names and options of a command without running it."""
    import typer
    import typer.main

    from mlsysim.cli.main import app

    command = typer.main.get_command(app)
    path = ["mlsysim"]
    context = command.make_context("mlsysim", [], resilient_parsing=True)
    rest = list(args)
    while rest and (find := getattr(command, "get_command", None)) is not None:
        path.append(rest[0])
        command = find(context, rest.pop(0))
        if command is None:
            raise CommandError(f"there is no command {' '.join(path)}")
        try:
            is_group = hasattr(command, "get_command")
            context = command.make_context(
                path[-1], [] if is_group else rest, parent=context, resilient_parsing=is_group
            )
        except typer.Exit:
            return
        except Exception as error:
            message = getattr(error, "format_message", lambda error=error: str(error))()
            raise CommandError(f"{' '.join(path)} {shlex.join(rest)}: {message}") from None


def _run(args: list[str], folder: Path) -> tuple[int, str]:
    from mlsysim import Hardware, Models
    from mlsysim.cli.main import main

    surroundings = {
        "COLUMNS": str(WIDTH),
        "NO_COLOR": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "MLSYSIM_ZOO": str(folder / "zoo"),
    }
    output = io.StringIO()
    code = 0
    with patch.dict(os.environ, surroundings), patch.object(sys, "argv", ["mlsysim", *args]), contextlib.chdir(folder):
        # What an earlier command saved is found, as it is by a new process.
        for zoo in (Models, Hardware):
            zoo.reload()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return code, output.getvalue()
