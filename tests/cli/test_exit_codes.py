"""Exit codes as docs/cli.md has them, for every command: 0 answered, 1 bad input, 2 does not fit, 3 a limit does not hold."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from mlsysim.cli.main import app

OVER = "--layout tp=8 -b 8 -s 2048"
CODES: dict[str, dict[str, int]] = {
    "eval": {"ResNet50 A100": 0, "ResNet50": 1, "Llama3_70B H100": 2, "ResNet50 A100 --assert 'latency <= 1 ns'": 3},
    "train": {"Llama3_8B --on 8xH100 --tp 1 --zero 1 -b 8 -s 2048": 0, "Llama3_8B": 1, f"Llama3_405B --on 8xH100 {OVER}": 2, "Llama3_8B --on 8xH100 --tp 1 --zero 1 --tokens 1T --deadline 1d": 3},
    "serve": {"Llama3_8B H100": 0, "Llama3_8B": 1, "Llama3_70B H100": 2, "Llama3_8B H100 --slo tpot=1us": 3},
    "rl": {"Llama3_8B --on 16xH100 --prompts 16 --samples 4 --response 300 --tp 2": 0, "Llama3_8B --on 8xH100 --prompts 16 --response 300": 1, "Llama3_405B --on 8xH100 --prompts 16 --samples 4 --response 300 --layout tp=8": 2, "Llama3_8B --on 16xH100 --prompts 16 --samples 4 --response 300 --tp 2 --assert 'latency <= 1 ns'": 3},
    "plan": {"Llama3_8B --deadline soon": 1, "Llama3_405B --deadline 1h --tokens 100T --on K80": 2},
    "audit": {"scenario:keyword-spotting-microcontroller": 0, "nothing.toml": 1},
    "compare": {"ResNet50@A100 ResNet50@H100": 0, "ResNet50 ResNet50@H100": 1, "Llama3_70B@H200 Llama3_70B@H100": 2, "ResNet50@A100 ResNet50@H100 --assert 'latency <= 1 ns'": 3},
    "sensitivity": {"ResNet50@A100": 0, "ResNet50": 1, "Llama3_70B@H100": 2, "ResNet50@A100 --assert 'latency <= 1 ns'": 3},
    "explain": {"latency --of scenario:keyword-spotting-microcontroller": 0, "latency --of nothing.toml": 1},
    "report": {"ResNet50@A100 -o FOLDER/a.md": 0, "ResNet50@A100 -o FOLDER/a.pdf": 1, "Llama3_70B@H100 -o FOLDER/b.md": 2},
    "plot": {"ResNet50@A100 memory -o FOLDER/a.svg": 0, "ResNet50@A100 memry -o FOLDER/a.svg": 1, "Llama3_70B@H100 memory -o FOLDER/b.svg": 2},
    "export": {"vllm Llama3_8B@H100": 0, "vlm Llama3_8B@H100": 1, "vllm Llama3_70B@H100": 2},
    "review": {"FOLDER/serve.sh --on H100": 0, "FOLDER/nothing.sh": 1, "FOLDER/large.sh --on H100": 2},
    "synthesize": {"Llama3_70B --latency '50 ms'": 0, "Llama3_70B --latency '50 kg'": 1},
    "zoo": {"H100": 0, "H1000": 1, "check": 0},
    "walls": {"2": 0, "99": 1},
    "import": {"FOLDER/serve.sh": 0, "FOLDER/nothing.json": 1},
    "scenarios": {"": 0, "more": 1},
    "collectives": {"--on 8xH100 --size 1MB": 0, "all_gather --on 8xH100 --size 1MB": 0, "--on H100": 1},
    "schema": {"": 0, "--type nothing": 1},
    "doctor": {"": 0, "more": 1},
    "validate": {"FOLDER/nothing.csv": 1, "FOLDER/read.csv": 0, "FOLDER/unread.csv": 1},
    "calibrate": {"FOLDER/nothing.csv --chip H100": 1},
    "verify": {"NoSuchModel": 1},
    "sweep": {"FOLDER/space.toml": 0, "FOLDER/nothing.toml": 1, "FOLDER/full.toml": 2},
    "api": {"--port 99999": 1},
    "mcp": {"--nothing": 1},
    "optimize parallelism": {"Llama3_8B@8xH100 -b 64 -s 2048": 0, "Llama3_8B": 1},
    "optimize batching": {"Llama3_8B@H100 --sla-ms 20000": 0, "Llama3_8B": 1, "Llama3_70B@H100": 2, "Llama3_8B@H100 --sla-ms 1": 3},
    "optimize placement": {"Llama3_8B@8xH100 --regions Quebec,Poland": 0, "Llama3_8B@8xH100 --regions Atlantis": 1},
    "labs list": {"": 0, "more": 1},
    "labs show": {"nothing": 1},
    "labs check": {"FOLDER/nothing.toml": 1},
    "labs answer": {"nothing a=b": 1},
    "labs grade": {"FOLDER/nothing.csv": 1, "AAAA-BBBB": 2},
    "labs class": {"FOLDER/nothing.csv": 1},
    "labs build": {"FOLDER/serve.sh": 1},
    "labs open": {"--port nothing": 1},
}  # fmt: skip
SPACE = 'kind = "node"\n[fixed]\nmodel = "Llama3_70B"\nphase = "decode"\nprecision = "fp8"\n[axes]\nhardware = ["H100"]\nbatch_size = [SIZE]\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 1\n")
    (tmp_path / "large.sh").write_text("vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 1\n")
    (tmp_path / "read.csv").write_text(
        "model,gpu,batch_size,latency_ms\nresnet50,A100,128,30\nresnet5000,A100,128,30\n"
    )
    (tmp_path / "unread.csv").write_text("model,gpu,batch_size,latency_ms\nresnet5000,A100,128,30\n")
    (tmp_path / "space.toml").write_text(SPACE.replace("SIZE", "1"))
    (tmp_path / "full.toml").write_text(SPACE.replace("SIZE", "4096"))
    return tmp_path


def test_every_command_is_here() -> None:
    command = typer.main.get_command(app)
    found = set()
    for name, child in command.commands.items():  # type: ignore[attr-defined]
        found |= {f"{name} {inner}" for inner in getattr(child, "commands", ())} or {name}
    assert found == set(CODES)


@pytest.mark.parametrize(
    ("words", "code"), [(f"{name} {args}".strip(), code) for name, asked in CODES.items() for args, code in asked.items()]
)  # fmt: skip
def test_exit_code(words: str, code: int, files: Path, fuzz: ModuleType) -> None:
    found, out, err = fuzz.run_command(shlex.split(words.replace("FOLDER", str(files))))
    assert found == code, (out[-300:], err)
    assert "Traceback" not in out + err
    if code == 1:
        assert len(err.strip().splitlines()) == 1 and err.startswith("mlsysim: "), err


@pytest.mark.filterwarnings("ignore::mlsysim.errors.DataWarning")
def test_an_entry_that_breaks_physics_ends_the_check_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fuzz: ModuleType
) -> None:
    (tmp_path / "hardware.toml").write_text('[Mine]\nname = "Mine"\n')
    monkeypatch.setenv("MLSYSIM_ZOO", str(tmp_path))
    code, out, _ = fuzz.run_command(["zoo", "check", "--json"])
    assert code == 1 and json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("eval ResNet50 A100 --json", 0), ("eval ResNet50", 1), ("eval Llama3_70B H100", 2), ("--version", 0)],
)
def test_a_process_ends_with_its_code_all_of_its_output_and_what_was_registered(arguments, code):
    begun = "import atexit, sys\natexit.register(print, 'ended')\nfrom mlsysim.cli.main import run\n"
    command = [sys.executable, "-c", f"{begun}sys.argv = ['mlsysim', *{shlex.split(arguments)}]\nrun()"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    said, mark, rest = done.stdout.rpartition("ended\n")
    assert (done.returncode, mark, rest) == (code, "ended\n", "")
    if "--json" in arguments:
        assert json.loads(said)["feasible"]
    assert bool(done.stderr) == (code == 1) and "Traceback" not in done.stderr


def test_a_reader_that_has_enough_gets_no_traceback():
    asked = f"{shlex.quote(sys.executable)} -m mlsysim zoo models | head -1"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=600)
    assert done.stdout and not done.stderr
