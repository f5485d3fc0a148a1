"""Generated command lines, most of them wrong, through ``main()``: exit codes 0 to 3 and one sentence, never a traceback."""

from __future__ import annotations

from types import ModuleType

SEED, COUNT = 3, 250


def test_command_lines(fuzz: ModuleType) -> None:
    found = {index: problem for index in range(COUNT) if (problem := fuzz.attempt("command", SEED, index))}
    assert not found, "\n".join(f"--kinds command --seed {SEED} --first {i}: {p}" for i, p in list(found.items())[:5])
