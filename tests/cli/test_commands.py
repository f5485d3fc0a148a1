"""The commands: forms of the contract, exit codes, one JSON document, pipes and narrow terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import mlsysim
from mlsysim.cli.main import app
from mlsysim.walls.catalog import walls

SCENARIOS = Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "scenarios"
TUTORIAL = str(SCENARIOS / "llama3-70b-512-h100.toml")
CHATBOT = str(SCENARIOS / "chatbot-llama70b-h200.toml")

FORMS = [
    ("eval", "ResNet50", "A100"),
    ("eval", "Llama3_8B", "H100", "-b", "8", "-p", "fp8", "-e", "0.5"),
    ("eval", TUTORIAL),
    ("train", "Llama3_8B", "--on", "8xH100", "-b", "64", "-s", "2048"),
    (
        "serve",
        "Llama3_8B",
        "H100",
        "-s",
        "2048",
        "-b",
        "16",
        "-p",
        "fp16",
        "-e",
        "0.5",
        "--prefill-chunk-tokens",
        "512",
    ),
    (
        "serve",
        "Llama3_8B",
        "--on",
        "8xH200",
        "--isl",
        "1000",
        "--osl",
        "100",
        "--qps",
        "2",
        "--slo",
        "ttft=2s,tpot=50ms",
    ),
    ("schema", "--type", "plan"),
    ("schema", "--type", "hardware"),
    ("schema", "--type", "workload"),
    ("schema", "--type", "ServingModel"),
    ("optimize", "parallelism", TUTORIAL),
    ("optimize", "batching", CHATBOT, "--sla-ms", "40000", "--qps", "1"),
    ("optimize", "placement", TUTORIAL, "--carbon-tax", "100"),
    ("audit",),
    ("audit", CHATBOT),
    ("zoo",),
    ("zoo", "hardware"),
    ("zoo", "models", "--filter", "architecture=cnn"),
    ("zoo", "systems"),
    ("zoo", "grids", "--sort", "carbon_intensity_g_kwh"),
    ("zoo", "hardware", "H100"),
    ("zoo", "check"),
    ("walls",),
    ("walls", "14"),
    ("zoo", "Llama3_8B"),
    ("zoo", "mixtral"),
    ("walls", "memory"),
    ("scenarios",),
    ("collectives", "--on", "64xH100@NDR", "--op", "all_reduce"),
    ("eval", "scenario:chatbot-llama70b-h200"),
    ("compare", "Llama3_8B@8xH100", "Llama3_8B@8xB200", "--task", "training"),
    ("sensitivity", "Llama3_8B@8xH100", "--task", "serving"),
    ("plan", "Llama3_8B", "--deadline", "3d", "--tokens", "100B", "--on", "H100"),
    ("explain", "mfu", "--of", TUTORIAL),
    ("synthesize", "Llama3_70B", "--latency", "50 ms", "--on", "H100"),
    ("doctor",),
]


@pytest.mark.parametrize("arguments", FORMS, ids=lambda words: " ".join(Path(w).name for w in words))
def test_every_form_answers_and_gives_one_json_document(arguments: tuple[str, ...], fuzz: ModuleType) -> None:
    code, out, err = fuzz.run_command([*arguments])
    assert code == 0, err
    assert out.strip() and "\x1b" not in out and "Traceback" not in err
    if arguments[0] != "schema":
        assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    spelt: list[list[str]] = [[*arguments, "--json"], ["-o", "json", *arguments], [*arguments, "-o", "json"]]
    # Every command takes all three; of its further forms one each, in turn.
    turn = FORMS.index(arguments)
    first = next(index for index, form in enumerate(FORMS) if form[0] == arguments[0])
    for words in spelt if turn == first else spelt[turn % 3 :][:1]:
        code, text, err = fuzz.run_command(words)
        assert code == 0 and err == ""
        document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))
        assert document is not None


def _quantities(value: Any, path: str = "") -> list[str]:
    """Texts that hold a number and a unit where a quantity belongs."""
    if isinstance(value, dict):
        if set(value) == {"magnitude", "unit"}:
            assert isinstance(value["magnitude"], (int, float)) and isinstance(value["unit"], str)
            return [path]
        return [found for key, item in value.items() for found in _quantities(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for item in value for found in _quantities(item, path)]
    return []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("eval", "ResNet50", "A100"), ".metrics.performance.latency.value"),
        (("synthesize", "Llama3_70B", "--latency", "50 ms"), ".required_bw"),
        (("optimize", "batching", "Llama3_8B@H100", "--sla-ms", "20000"), ".p99_latency"),
        (("optimize", "placement", "Llama3_70B@512xH100"), ".lowest_tco"),
        (("zoo", "hardware", "H100"), ".memory.bandwidth"),
        (("sensitivity", "Llama3_8B@8xH100", "--task", "training"), ".value.value"),
    ],
)
def test_quantities_are_magnitude_and_unit(arguments: tuple[str, ...], field: str, fuzz: ModuleType) -> None:
    code, out, _ = fuzz.run_command([*arguments, "--json"])
    assert code == 0 and field in _quantities(json.loads(out))


def test_the_table_of_walls_has_every_card(fuzz: ModuleType) -> None:
    code, out, _ = fuzz.run_command(["walls", "-o", "csv"])
    rows = out.strip().splitlines()[1:]
    assert code == 0 and [row.split(",")[:2] for row in rows] == [[str(w.number), w.name] for w in walls()]


@pytest.mark.parametrize("form", ["markdown", "csv"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "ResNet50", "A100"),
        ("audit",),
        ("zoo", "grids"),
        ("optimize", "placement", "Llama3_70B@512xH100"),
        ("walls",),
        ("explain", "tco", "--of", TUTORIAL),
    ],
    ids=lambda words: " ".join(Path(w).name for w in words),
)
def test_markdown_and_csv(form: str, arguments: tuple[str, ...], fuzz: ModuleType) -> None:
    code, out, _ = fuzz.run_command([*arguments, "-o", form])
    assert code == 0 and ("|" in out or "," in out)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("eval", "Llama3_70B", "H100"), 2),
        (("train", "Llama3_405B", "--on", "8xH100", "--layout", "tp=8", "-b", "8", "-s", "2048"), 2),
        (("train", "Llama3_8B", "--on", "8xH100", "--tokens", "1T", "--deadline", "1 day"), 3),
        (("serve", "Llama3_8B", "H100", "--qps", "100000"), 3),
        (("plan", "Llama3_405B", "--deadline", "1h", "--tokens", "100T", "--on", "K80"), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, fuzz: ModuleType) -> None:
    found, out, _ = fuzz.run_command([*arguments, "--json"])
    assert found == code and json.loads(out)
    assert fuzz.run_command([*arguments])[0] == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eval", "ResNet500", "A100"), "did you mean 'ResNet50'"),
        (("eval", "ResNet50", "A1000"), "did you mean"),
        (("eval", "ResNet50"), "give a chip"),
        (("eval", "hf://org/model", "H100"), "config.json"),
        (("eval", "gone.yaml"), "cannot be read"),
        (("eval", "ResNet50", "A100", "-p", "fp17"), "fp17"),
        (("eval", "ResNet50", "A100", "-e", "fast"), "'calibrated'"),
        (("eval", "ResNet50", "A100", "-o", "html"), "report"),
        (("eval", "ResNet50", "A100", "-o", "xml"), "use one of"),
        (("eval", "ResNet50", "A100", "-b", "x"), "whole number"),
        (("train", "Llama3_8B"), "--on"),
        (("train", "Llama3_8B", "--on", "8xH100", "--layout", "tpp=2"), "did you mean 'tp'"),
        (("serve", "Llama3_8B"), "--on 8xH100"),
        (("serve", "Llama3_8B", "H100", "--slo", "ttf=3ms"), "did you mean 'ttft'"),
        (("serve", "ResNet50", "H100"), "inference"),
        (("walls", "99"), "1 to 2"),
        (("zoo", "zzzzzzzz"), "hardware"),
        (("zoo", "Lama3_8B"), "did you mean 'Llama3_8B'"),
        (("walls", "memry"), "did you mean 'Memory'"),
        (("eval", "scenario:llama3-70b"), "did you mean 'llama3-70b-512-h100'"),
        (("report", "elsewhere/chatbot-llama70b-h200.toml"), "scenario:chatbot-llama70b-h200 comes with"),
        (("sweep", "space:chips"), "There is no space named 'chips'"),
        (("zoo", "hardware", "--sort", "memory.bandwith"), "bandwidth"),
        (("zoo", "hardware", "--filter", "memory.capacity>=80kg"), "kg"),
        (("schema", "--type", "plann"), "did you mean 'plan'"),
        (("compare", "Llama3_8B", "Llama3_8B@H100"), "Llama3_8B@8xH100"),
        (("optimize", "parallelism", "Llama3_8B"), "Llama3_8B@8xH100"),
        (("audit", "x.toml", "-w", "Llama3_8B"), "one of them"),
        (("explain",), "no last answer"),
        (("nonsense",), "nonsense"),
        (("eval", "ResNet50", "A100", "--nope"), "--nope"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr(arguments: tuple[str, ...], said: str, fuzz: ModuleType) -> None:
    for words in ([*arguments], [*arguments, "--json"]):
        if "-o" in words and "--json" in words:
            continue
        code, out, err = fuzz.run_command(words)
        assert code == 1 and out == ""
        assert len(err.strip().splitlines()) == 1 and err.startswith("mlsysim: ") and said in err


def test_explain_speaks_of_the_last_answer(fuzz: ModuleType) -> None:
    code, said, _ = fuzz.run_command(["eval", "ResNet50", "A100", "--json"])
    assert code == 0
    code, out, _ = fuzz.run_command(["explain", "latency"])
    assert code == 0 and json.loads(said)["metrics"]["performance.latency"]["text"] in out and "Sources:" in out


def _helps() -> list[tuple[str, ...]]:
    command = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, child in sorted(command.commands.items()):  # type: ignore[attr-defined]
        grandchildren = getattr(child, "commands", None)
        found += [(name, inner) for inner in sorted(grandchildren)] if grandchildren else [(name,)]
    return found


OWN = {
    "eval",
    "train",
    "serve",
    "plan",
    "audit",
    "compare",
    "sensitivity",
    "plot",
    "explain",
    "optimize",
    "synthesize",
    "zoo",
    "walls",
    "import",
    "schema",
    "doctor",
    "scenarios",
    "collectives",
}


@pytest.mark.parametrize("words", [w for w in _helps() if w[0] in OWN], ids=" ".join)
def test_help_has_examples(words: tuple[str, ...], fuzz: ModuleType) -> None:
    code, out, _ = fuzz.run_command([*words, "--help"])
    assert code == 0 and re.search(rf"^ mlsysim {' '.join(words)}\b", out, re.MULTILINE), out[:600]


def test_the_version(fuzz: ModuleType) -> None:
    assert fuzz.run_command(["--version"]) == (0, f"mlsysim {mlsysim.__version__}\n", "")


def test_without_a_command_the_help_is_shown(fuzz: ModuleType) -> None:
    code, out, err = fuzz.run_command([])
    assert code == 0 and "train" in out and err == ""


def test_what_was_given_and_has_no_effect_is_shown(fuzz: ModuleType) -> None:
    split = ["--tp", "2", "--pp", "2", "--micro-batch", "1", "-b", "64", "-s", "2048"]
    _, held, _ = fuzz.run_command(["train", "Llama3_8B", "--on", "8xH100", *split, "--zero", "3"])
    _, plain, _ = fuzz.run_command(["train", "Llama3_8B", "--on", "8xH100", *split, "--zero", "1"])
    assert "no effect beyond ZeRO 1" in " ".join(held.split()) and "no effect" not in " ".join(plain.split())
    _, placed, _ = fuzz.run_command(["optimize", "placement", "Llama3_8B@64xH100", "--price", "3"])
    assert "price: no effect: a rent is the same on every grid" in " ".join(placed.split())


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlsysim", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )


def test_a_narrow_terminal_gets_narrow_lines() -> None:
    done = run("eval", "ResNet50", "A100", COLUMNS="40")
    assert done.returncode == 0 and max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 40


def test_colour_only_where_it_is_wanted() -> None:
    forced = run("eval", "ResNet50", "A100", FORCE_COLOR="1", NO_COLOR="")
    plain = run("eval", "ResNet50", "A100", NO_COLOR="1", FORCE_COLOR="1")
    assert "\x1b[" in forced.stdout and "\x1b[3" not in plain.stdout


def test_completion_completes() -> None:
    done = run(
        _MLSYSIM_COMPLETE="complete_bash",
        COMP_WORDS="mlsysim ev",
        COMP_CWORD="1",
    )
    assert "eval" in done.stdout.split() and "train" not in done.stdout.split()


def test_a_closed_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m mlsysim zoo models | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=600,
        env=dict(os.environ),
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr and "Broken" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mlsysim", "schema", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == (
        "mlsysim: The output cannot be written: no space left on device; free some, or write to another disk.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        "train Llama3_8B {} --tokens 1B",
        "serve Llama3_8B {}",
        "rl Llama3_8B {} --prompts 8 --samples 4 --response 500",
    ],
)
def test_hardware_may_follow_the_model(command: str, fuzz: ModuleType) -> None:
    texts = command, command, command.replace(" {}", "@{}")
    after, named, joined = (
        fuzz.run_command([*text.format(on).split(), "--json"])
        for text, on in zip(texts, ("8xH100", "--on 8xH100", "8xH100"), strict=True)
    )
    assert after[0] == 0 and after[1] == named[1] == joined[1]


def test_a_pass_takes_the_model_and_its_chip_in_one_word(fuzz: ModuleType) -> None:
    assert fuzz.run_command(["eval", "ResNet50@A100", "--json"]) == fuzz.run_command(
        ["eval", "ResNet50", "A100", "--json"]
    )
    code, _, said = fuzz.run_command(["serve", "Llama3_8B@H100", "--on", "8xH100"])
    assert code == 1 and "here it does in both, 'H100' and '8xH100'" in said


def test_a_plan_file_may_stand_where_the_model_does(fuzz: ModuleType) -> None:
    words = ["scenario:llama3-70b-512-h100", "--tp", "4", "--json"]
    assert fuzz.run_command(["train", *words]) == fuzz.run_command(["eval", *words])


def test_a_plan_in_two_words_is_the_plan_in_one(fuzz: ModuleType) -> None:
    apart, joined = (
        fuzz.run_command(["sensitivity", *words, "--task", "training"])
        for words in (["Llama3_8B", "64xH100"], ["Llama3_8B@64xH100"])
    )
    assert apart == joined and apart[0] == 0 and "-0.0%" not in apart[1] and "Peak FLOP/s" in apart[1]


def test_a_column_has_one_number_of_decimals() -> None:
    from mlsysim.cli.optimizers import _same_digits

    assert [_same_digits(column, ".3g") for column in ([50.9, 51.04], [0.00964, 0.0089], [None, 0.0])] == [
        ".1f",
        ".5f",
        ".2f",
    ]
    assert _same_digits(["none"], "") == "" and _same_digits([0.5], ".1%") == ".1%"
