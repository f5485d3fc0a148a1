"""The bar of ``mlsysim sweep``: on a terminal's stderr, with rate and time left; nothing elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

from rich.console import Console

from mlsysim.cli.sweep import Pace

SPACE = """
kind = "node"
[fixed]
model = "Llama3_8B"
[axes]
peak = {range = [100, 2000], count = 60, unit = "TFLOP/s"}
bandwidth = {range = [1, 4], count = 60, unit = "TB/s"}
capacity = {range = [10, 100], count = 60, unit = "GB"}
"""


def test_rate_and_time_left_leave_out_what_was_there_before():
    pace = Pace("space", Console(file=io.StringIO()))
    pace.start = (100.0, 10, 5_000)
    assert pace.text(100.0, 10, 50, 5_000) == "space: 5,000 points"
    # Four seconds for eight parts with 4,000 points: 32 parts are left.
    assert pace.text(104.0, 18, 50, 9_000) == "space: 9,000 points, 1,000 a second, 16 seconds left"


def test_nothing_is_drawn_where_nobody_looks():
    out = io.StringIO()
    with Pace("space", Console(file=out)) as pace:
        pace(1, 2, SimpleNamespace(points=5))
    assert out.getvalue() == ""


def test_a_terminal_gets_the_bar_and_stdout_one_document(tmp_path):
    file = tmp_path / "space.toml"
    file.write_text(SPACE)
    ours, theirs = pty.openpty()
    program = subprocess.run(
        [sys.executable, "-m", "mlsysim", "sweep", str(file), "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
        timeout=600,
    )
    os.close(theirs)
    drawn = b""
    try:
        while chunk := os.read(ours, 65536):
            drawn += chunk
    except OSError:
        # The other end of a terminal that is closed reads as an error.
        pass
    os.close(ours)
    assert program.returncode == 0 and json.loads(program.stdout)["points"] == 216_000
    assert b"points" in drawn and b"a second" in drawn and b"left" in drawn


def test_points_and_a_chart_from_the_command_line(tmp_path, monkeypatch, fuzz):
    """Eighty columns, a file of every point, a chart with units; nothing else is left behind."""
    monkeypatch.chdir(tmp_path)
    axes = 'peak = {range = [200, 900], step = 100, unit = "TFLOP/s"}\nprice = ["6000 USD", "9000 USD"]\nbatch_size = [1, 2, 4]\n'
    fixed = 'model = "Llama3_8B"\nphase = "decode"\nbandwidth = "3 TB/s"\ncapacity = "80 GB"\n'
    (tmp_path / "chips.toml").write_text(f'kind = "node"\nminimize = "usd_per_mtoken"\n[fixed]\n{fixed}[axes]\n{axes}')
    code, out, err = fuzz.run_command(["sweep", "chips.toml", "-o", "points.csv", "--plot", "best.svg"])
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80 and "Tflop/s" in out and "[USD]" in out
    lines = (tmp_path / "points.csv").read_text().splitlines()
    assert len(lines) == 1 + 8 * 2 * 3 and "peak [flop/s]" in lines[0]
    assert "Cost of a million" in (tmp_path / "best.svg").read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == [
        "best.svg",
        "chips.toml",
        "points.csv",
    ]
    for words in (["-o", "points.xlsx"], ["--plot", "best.png"], ["-o", "p.parquet", "--points", "npz"]):
        code, out, err = fuzz.run_command(["sweep", "chips.toml", *words])
        assert code == 1 and out == "" and len(err.splitlines()) == 1
