"""Options made from a plan: every key is one, every name of it is taken, and what is wrong is said in options."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
import typer

from mlsysim.cli.main import app
from mlsysim.cli.plan_options import option, settings_of
from mlsysim.plans.plan import Plan

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def context(command: str, *words: str) -> Any:
    return COMMANDS[command].make_context(command, list(words))


@pytest.mark.parametrize(
    "command", ["eval", "compare", "export", "review", "audit", "report", "plot", "sensitivity", "explain"]
)
def test_every_key_of_a_plan_is_an_option(command: str) -> None:
    found = COMMANDS[command].get_params(typer.Context(COMMANDS[command]))
    have = {opt for param in found for opt in param.opts}
    assert {option(key) for key in Plan.leaves()} <= have


@pytest.mark.parametrize(("command", "task"), [("train", "training"), ("serve", "serving")])
def test_a_command_for_a_task_has_the_keys_that_matter_to_it(command: str, task: str) -> None:
    have = {opt for param in COMMANDS[command].get_params(typer.Context(COMMANDS[command])) for opt in param.opts}
    said = {"task", "workload.model", "hardware.name", "hardware.nodes", "hardware.accelerators"}
    for key, leaf in Plan.leaves().items():
        assert (option(key) in have) == (task in leaf.tasks and key not in said), key


def test_plan_has_the_keys_of_training_and_of_serving() -> None:
    have = {opt for param in COMMANDS["plan"].get_params(typer.Context(COMMANDS["plan"])) for opt in param.opts}
    assert {option(key) for key in Plan.leaves() if key != "workload.model"} <= have


@pytest.mark.parametrize("key", [key for key, leaf in Plan.leaves().items() if len(leaf.names) > 1])
def test_an_option_is_taken_by_every_name(key: str) -> None:
    leaf = Plan.leaves()[key]
    value = {int: "1", float: "0.5"}.get(leaf.type or str, "x")
    words = [] if leaf.type is bool else [value]
    wanted = settings_of(context("eval", "x", option(key), *words))
    spelled = [f"--{name}" for name in (*leaf.names, key)] + [f"--{name.replace('_', '-')}" for name in leaf.names]
    for name in spelled:
        if name in ("--seq_len", "--seq-len"):
            continue
        assert settings_of(context("eval", "x", name, *words)) == wanted
        if words:
            assert settings_of(context("eval", "x", f"{name}={value}")) == wanted


def test_a_length_of_what_is_served_is_the_prompt() -> None:
    for name in ("-s", "--seq-len", "--isl", "--prompt-tokens"):
        assert settings_of(context("serve", "x", "H100", name, "5")) == {"prompt_tokens": "5"}


def test_pairs_say_what_options_say() -> None:
    pairs = settings_of(context("train", "x", "--on", "H100", "--layout", "tp_size=8,zero=1,recomputation=full"))
    assert Plan.in_parts(pairs)["parallelism"] == {"tp": "8", "zero": "1", "recompute": "full"}
    assert settings_of(context("serve", "x", "H100", "--slo", "ttft=500ms")) == {"slo": "ttft=500ms"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tpp", "2"), "--tp"),
        (("--zero", "7"), "--zero got 7"),
        (("--deadline", "5"), "--deadline got 5"),
        (("--deadline", "5 GB"), "such as '30 d'"),
        (("--efficiency", "fast"), "or 'calibrated', got 'fast'"),
        (("--tokens", "many"), "got 'many'; expected a positive number such as 15e12 or 15T"),
        (("--layout", "zreo=3"), "did you mean 'zero'"),
        (("--layout", "tp=2", "--tp", "4"), "--tp is given twice"),
        (("--assert", "mfu"), "such as 'mfu >= 0.4'"),
    ],
)
def test_what_is_wrong_is_said_in_options(arguments: tuple[str, ...], said: str, fuzz: ModuleType) -> None:
    code, out, err = fuzz.run_command(["train", "Llama3_8B", "--on", "8xH100", *arguments])
    assert code == 1 and out == "" and said in err and "Plan" not in err and len(err.splitlines()) == 1


def test_options_change_the_plan_of_a_file(tmp_path: Any, fuzz: ModuleType) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('[workload]\nmodel = "ResNet50"\n[hardware]\nname = "A100"\n')
    code, out, _ = fuzz.run_command(
        ["eval", str(path), "--on", "H100", "--batch", "4", "--assert", "latency <= 1 s", "--json"]
    )
    plan = json.loads(out)["plan"]
    assert code == 0 and plan["hardware"] == {"on": "H100"} and plan["workload"]["batch_size"] == 4
    assert plan["constraints"]["assert"] == [{"metric": "latency", "max": "1 s"}]
