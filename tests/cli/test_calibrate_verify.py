"""``mlsysim calibrate`` and ``mlsysim verify`` on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from mlsysim.calibrate.samples import sample_of
from mlsysim.calibrate.user import shipped_profile
from mlsysim.cli.main import app
from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def own(tmp_path):
    """Products on an H100 that is a fifth slower than ours."""
    chip = Hardware.get("H100")
    lines = ["op,m,n,k,dtype,seconds"]
    for m in (1, 64, 1024, 8192):
        row = {"op": "gemm", "m": str(m), "n": "8192", "k": "8192", "dtype": "bf16", "seconds": "1"}
        seconds = 1.25 * sample_of(row).predict(chip, shipped_profile(chip))
        lines.append(f"gemm,{m},8192,8192,bf16,{seconds!r}")
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_calibrate_a_file(own, tmp_path):
    zoo = tmp_path / "zoo"
    answer = run("calibrate", str(own), "--chip", "H100", "--name", "Slow_H100", "--zoo", str(zoo), "--json")
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert report["before"]["median_ape"] == pytest.approx(20, abs=0.1)
    assert report["after_leave_one_out"]["median_ape"] < 12
    assert (zoo / "profiles" / "Slow_H100.toml").is_file()
    assert report["written"][0].endswith("Slow_H100.toml")
    shown = run("calibrate", str(own), "--chip", "H100", "--zoo", str(zoo))
    assert shown.exit_code == 0
    assert "each row predicted from the others" in " ".join(shown.stdout.split())
    assert "My_H100.toml" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "needs a CSV file of measurements, or --measure"),
        (("FILE",), "say which chip was measured with --chip"),
        (("FILE", "--chip", "H101"), "There is no hardware named 'H101'"),
        (("FILE", "--measure"), "not both"),
        (("FILE", "--chip", "H100", "--zoo", "FILE"), "is not a folder"),
    ],
)
def test_calibrate_says_what_is_missing(own, tmp_path, arguments, sentence):
    given = [str(own) if argument == "FILE" else argument for argument in arguments]
    zoo = [] if "--zoo" in given else ["--zoo", str(tmp_path / "zoo")]
    answer = run("calibrate", *given, *zoo)
    assert answer.exit_code != 0
    assert isinstance(answer.exception, InputError)
    assert sentence in str(answer.exception)


def test_measure_and_verify_here(tmp_path):
    torch = pytest.importorskip("torch", reason="measuring needs PyTorch, which is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cpu = ("--device", "cpu", "--chip", "Xeon_8480_Plus")
        answer = run("calibrate", "--measure", "--tiny", "--seconds", "5", *cpu, "--zoo", str(tmp_path), "--json")
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["rows"] >= 3
        assert (tmp_path / "measurements" / "Xeon_8480_Plus.csv").is_file()
        sizes = ("--layers", "1", "--seq-len", "8")
        answer = run("verify", "GPT2", "--phase", "decode", *sizes, *cpu, "--json")
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["measured_s"] > 0
        shown = run("verify", "GPT2", *sizes, *cpu)
        assert "measured" in shown.stdout and "predicted" in shown.stdout and "error" in shown.stdout
    finally:
        torch.set_num_threads(before)
