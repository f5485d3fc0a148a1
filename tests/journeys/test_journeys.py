"""Six people with the commands of their pages, from a built wheel in a fresh environment outside the checkout: exit codes and figures."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from sitetools.blocks import blocks
from sitetools.commands import ONLY_READ

ROOT = Path(__file__).parents[2]
PEOPLE = ("students", "instructors", "engineers", "services", "chips", "researchers")
PAGES = {"readme": ROOT / "README.md"} | {name: ROOT / "docs" / "start" / f"{name}.md" for name in PEOPLE}
FIGURES = {
    "mlsysim eval Llama3_8B H100": ["Fits", "Wall 2 (Memory) binds"],
    "mlsysim eval Llama3_70B H100": ["Does not fit", "85.90 GB"],
    "mlsysim eval Llama3_70B H100 -p fp8": ["Fits", "of 192 GB"],
    "mlsysim explain latency": ["T ="],
    "mlsysim walls memory": ["Memory", "bandwidth"],
    "mlsysim labs list": ["roofline"],
    "mlsysim labs show roofline --student ann": ["2.039 TB/s", "Mistral-7B"],
    "mlsysim train Llama3_70B --on 512xH100": ["on each of 512 accelerators", "MFU", "Wall 1 (Compute) binds"],
    "mlsysim plan Llama3_70B --deadline": ["is the cheapest fleet", "B200", "H100"],
    "mlsysim plan Llama3_8B --qps": ["is the cheapest service", "x TP1"],
    "mlsysim compare Llama3_70B@512xH100": ["times as fast", "B / A"],
    "mlsysim export megatron": ["--tensor-model-parallel-size"],
    "mlsysim export megatron Llama3_70B@512xH100 -o": ["train.sh"],
    "mlsysim eval scenario:chatbot-llama70b-h200": ["8 x NVIDIA H200", "ok:"],
    "mlsysim serve Llama3_8B --on 1xH100": ["requests in flight", "A million output tokens cost"],
    "mlsysim serve Llama3_8B --on 2xH100 --isl": ["20 requests a second", "within the limit"],
    "mlsysim serve Llama3_8B --on 2xH100 --tp 1 --trace": ["2 replicas of TP1", "first token"],
    "mlsysim export vllm": ["serve.sh"],
    "mlsysim zoo hardware": ["B200", "8 TB/s"],
    "mlsysim synthesize Llama3_70B": ["At least 2 x NVIDIA H100", "2.82 TB/s", "141.2 GB"],
    "mlsysim sensitivity Llama3_70B@8xH100": ["Memory bandwidth", "10 % more"],
    "mlsysim serve Llama3_70B --on 8xH100": ["16 requests in flight", "Wall"],
}
"""What the output of a command that begins so must hold."""


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that has the wheel and what it needs, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("fresh")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    made = subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, ROOT], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no wheel can be built here: {made.stderr.strip()[-200:]}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    commands = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = folder.glob("mlsysim-*.whl")
    got = subprocess.run([*pip, "--python", commands / "python", "install", wheel], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"what the wheel needs cannot be had here: {got.stderr.strip()[-200:]}")
    home = subprocess.run(
        [commands / "python", "-I", "-c", "import mlsysim; print(mlsysim.__file__)"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert Path(home.stdout.strip()).is_relative_to(folder), home
    return commands


def test_tables_of_the_wheel_are_those_of_the_files_beside_them(fresh: Path) -> None:
    code = """
import json, tomllib
from importlib.resources import files
place = files("mlsysim").joinpath("data")
made = [(folder, path) for folder in (place, place.joinpath("software")) for path in folder.iterdir() if path.name.endswith(".json")]
for folder, path in made:
    assert json.loads(path.read_text()) == tomllib.loads(folder.joinpath(path.name[:-4] + "toml").read_text()), path
print(len(made))
"""
    ran = subprocess.run([fresh / "python", "-I", "-c", code], capture_output=True, text=True)
    assert not ran.returncode, ran.stderr
    data = ROOT / "src" / "mlsysim" / "data"
    assert int(ran.stdout) == len([*data.glob("*.toml"), *data.glob("software/*.toml")])


def asked(page: Path) -> list[tuple[str, int]]:
    """The commands of a page that run anywhere, and the exit code that it states for each."""
    found = []
    skipped = tuple(f"mlsysim {start}" for start in ONLY_READ)
    for block in blocks(page.read_text(encoding="utf-8")):
        for line in block.body.splitlines() if block.language == "sh" and not block.not_run else ():
            command, _, comment = line.partition("#")
            stated = re.search(r"exits with (\d)", comment)
            if command.startswith("mlsysim ") and not command.startswith(skipped) and not re.search(r" [>|] ", command):
                found.append((command.strip(), int(stated[1]) if stated else 0))
    return found


@pytest.mark.parametrize("who", PAGES)
def test_a_journey(who: str, fresh: Path, tmp_path: Path) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MLSYSIM"))}
    own = {
        "PATH": f"{fresh}{os.pathsep}{clean.get('PATH', '')}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONSAFEPATH": "1",
    }
    own |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=clean | own, capture_output=True, text=True, timeout=600)

    told = [
        block.body
        for block in blocks(PAGES[who].read_text(encoding="utf-8"))
        if block.language == "python" and not block.not_run
    ]
    if told:
        ran = run(fresh / "python", "-c", "\n".join(told))
        assert ran.returncode == 0 and ran.stdout, ran.stderr[-400:]
    for command, code in asked(PAGES[who]):
        words = shlex.split(command)
        if any(re.search(r"\.(json|sh|toml|csv)$", word) and not (tmp_path / word).exists() and before != "-o"
               for before, word in pairwise(words)):  # fmt: skip
            continue  # the reader's own file
        ran = run(fresh / "mlsysim", *words[1:])
        assert ran.returncode == code and "Traceback" not in ran.stderr, (command, ran.returncode, ran.stderr[-400:])
        begins = max((start for start in FIGURES if command.startswith(start)), key=len, default="")
        text = " ".join((ran.stdout + ran.stderr).split())
        missing = [figure for figure in FIGURES.get(begins, ()) if figure not in text]
        assert missing == [], (command, missing, text[:600])


def test_every_page_has_commands_with_figures() -> None:
    for who in PEOPLE[:-1]:  # researchers ask in Python
        assert any(command.startswith(tuple(FIGURES)) for command, _ in asked(PAGES[who])), who
