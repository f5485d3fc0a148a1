"""The command line: one sentence and exit code 1 for bad input, never a traceback."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest

from mlsysim.cli.main import _keep_garbage, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mlsysim", *arguments], capture_output=True, text=True, timeout=600)


def test_help_lists_the_commands() -> None:
    answer = run("--help")
    assert answer.returncode == 0 and "validate" in answer.stdout


@pytest.mark.parametrize("arguments", [("nonsense",), ("validate", "no_such_file.csv"), ("validate",), ("--nope",)])
def test_bad_input_is_one_sentence(arguments: tuple[str, ...]) -> None:
    answer = run(*arguments)
    assert answer.returncode == 1
    assert answer.stdout == "" and len(answer.stderr.strip().splitlines()) == 1
    assert answer.stderr.startswith("mlsysim: ") and "Traceback" not in answer.stderr


def test_a_command_ends_without_looking_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's last collections took 0.1 to 0.2 s of a command's second."""
    registered: list[object] = []
    monkeypatch.setattr("mlsysim.cli.main.atexit", SimpleNamespace(register=registered.append))
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["mlsysim", "walls", "1"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert registered == [_keep_garbage]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sent: signal.Signals
) -> None:
    def stopped(*_: object, **__: object) -> None:
        signal.raise_signal(sent)

    monkeypatch.setattr("mlsysim.cli.main.atexit", SimpleNamespace(register=lambda _: None))
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("mlsysim.simulate.serving._simulate", stopped)
    words = "serve Llama3_8B --on H100 --qps 5 --isl 500 --osl 100 --slo ttft_p99=1s --requests 100"
    monkeypatch.setattr(sys, "argv", ["mlsysim", *words.split()])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 130
    assert "with 0 of about 100 requests handed out; nothing of it is kept" in capsys.readouterr().err
