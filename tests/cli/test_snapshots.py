"""What the main commands print at 80 columns, line by line. ``MLSYSIM_REFRESH=1 pytest tests/cli/test_snapshots.py`` rewrites."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent / "snapshots"
SCENARIOS = Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "scenarios"

COMMANDS = {
    "eval": ["eval", "ResNet50", "A100"],
    "eval-does-not-fit": ["eval", "Llama3_70B", "H100"],
    "train": [
        "train",
        "Llama3_8B",
        "--on",
        "16xH100",
        "--layout",
        "tp=2,zero=1",
        "-b",
        "256",
        "-s",
        "4096",
        "--tokens",
        "1T",
        "--region",
        "Quebec",
    ],
    "serve": ["serve", "Llama3_8B", "--on", "H100", "--isl", "1000", "--osl", "200", "--concurrency", "16"],
    "audit": ["audit"],
    "compare": ["compare", "ResNet50@A100", "ResNet50@H100", "--task", "inference"],
    "sensitivity": ["sensitivity", "Llama3_8B@H100", "--task", "inference"],
    "synthesize": ["synthesize", "Llama3_70B", "--latency", "50 ms", "--on", "H100"],
    "optimize-placement": ["optimize", "placement", "Llama3_70B@512xH100", "--days", "30"],
    "zoo": ["zoo", "hardware", "--filter", "generation=Blackwell"],
    "wall-1": ["walls", "1"],
    "mixed": ["eval", str(SCENARIOS / "mixed-generations-serving.toml")],
    "microcontroller": ["eval", str(SCENARIOS / "keyword-spotting-microcontroller.toml")],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_output(name: str, fuzz: ModuleType) -> None:
    _, out, err = fuzz.run_command(COMMANDS[name])
    assert err == ""
    lines = [line.rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= 80
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MLSYSIM_REFRESH"):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == path.read_text(encoding="utf-8").splitlines()
