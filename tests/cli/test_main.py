"""The command line: one sentence and exit code 1 for bad input, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mlsysim", *arguments], capture_output=True, text=True, timeout=60)


def test_help_lists_the_commands() -> None:
    answer = run("--help")
    assert answer.returncode == 0 and "validate" in answer.stdout


@pytest.mark.parametrize("arguments", [("nonsense",), ("validate", "no_such_file.csv"), ("validate",), ("--nope",)])
def test_bad_input_is_one_sentence(arguments: tuple[str, ...]) -> None:
    answer = run(*arguments)
    assert answer.returncode == 1
    assert answer.stdout == "" and len(answer.stderr.strip().splitlines()) == 1
    assert answer.stderr.startswith("mlsysim: ") and "Traceback" not in answer.stderr
