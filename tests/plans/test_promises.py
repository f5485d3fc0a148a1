"""A change is promised as the command that it is pasted into answers: to the digit, with the layout that is chosen there, and no demand less certain."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from typing import Any
from unittest import mock

import pytest

from mlsysim.cli.main import main

TRAIN, SERVE = "train Llama3_70B --on 512xH100", "serve Llama3_8B --on 6xH100 --qps 60 --isl 2000 --osl 300"
LONG = "serve Llama3_8B --on 8xH100 --concurrency 256 --isl 4000 --osl 200"
PASTED = {
    "compute in fp8": "-p fp8",
    "weights and arithmetic in fp8": "-p fp8",
    "caches in fp8": "--kv-precision fp8",
    "steps captured in CUDA graphs": "--engine SGLang",
    "a batch twice as large": "-b {batch}",
    "prefill and decode apart": "--decode-on auto",
    "prefill chunks": "--chunk {chunk}",
    "let the layout be searched": "--tp",
    "let the layout be chosen": "--tp",
    "B200 instead": "--on 64xB200",
    "256 x H100 instead of 512 with the same batch of 512": "--on 256xH100 -b 512",
    "1 x H100 (TP1) instead of 8": "--on 1xH100",
}
"""What a reader types for a change: the flag in place of what the command has of it, or behind it; a flag without a value is taken away."""
COMMANDS = [
    TRAIN,
    f"{TRAIN} --tp 8",
    f"{TRAIN} --tokens 1T --deadline 60d",
    "train Mixtral_8x7B --on 64xH100",
    "train Llama3_8B --on 64xH100 --tokens 1T --simulate --seeds 8",
    SERVE,
    f"{SERVE} --slo ttft_p99=500ms",
    "serve Llama3_70B --on 8xH100 --concurrency 64",
    "serve Llama3_8B --on 1xH100 --engine SGLang_eager --concurrency 16",
    "serve Llama3_8B --on 8xH100 --qps 4 --slo ttft=500ms,tpot=50ms",
    "serve Llama3_8B --on 2xH100 --tp 1 --trace azure-code --requests 500",
    LONG,
]


def _asked(command: str) -> dict[str, Any]:
    out, given = io.StringIO(), ["mlsysim", *shlex.split(command), "-o", "json"]
    with mock.patch("sys.argv", given), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main()
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def _with(command: str, flags: str) -> str:
    words, more = shlex.split(command), shlex.split(flags)
    for flag in more[::2]:
        if flag in words:
            at = words.index(flag)
            words[at : at + 2] = []
    return shlex.join([*words, *(more if len(more) > 1 else ())])


def _value(answer: dict[str, Any], name: str) -> float:
    (value,) = (each["value"] for each in answer["metrics"].values() if each["name"] == name)
    return float(value["magnitude"] if isinstance(value, dict) else value)


def _certain(answer: dict[str, Any]) -> set[str]:
    """Limits that are kept, and not too close to call."""
    return {each["limit"] for each in answer["checks"] if each["passed"] and "too close" not in each["sentence"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_promise_is_what_the_pasted_command_gives(command: str) -> None:
    before = _asked(command)
    assert before["changes"], before["headline"]
    for change in before["changes"]:
        words = change["words"]
        flags = next(flags for start, flags in PASTED.items() if start in words)
        batch = 2 * before["layout"].get("batch_size", 0)
        number = re.search(r"chunks of ([\d,]+)", words)
        after = _asked(_with(command, flags.format(batch=batch, chunk=number and number[1].replace(",", ""))))
        names = {each["name"]: each["text"] for each in after["metrics"].values()}
        for metric in re.findall(r"(?:after|every|takes) ([\d.]+ \w+) instead", change["effects"]):
            assert metric in names.values(), (change["sentence"], names)
        ratio = _value(after, before["main"]) / _value(before, before["main"])
        assert ratio == pytest.approx(change["factor"], rel=1e-9), change["sentence"]
        if change["cost_factor"] is not None and "usd_per_mtoken" in names:
            cost = _value(after, "usd_per_mtoken") / _value(before, "usd_per_mtoken")
            assert cost == pytest.approx(change["cost_factor"], rel=1e-9), change["sentence"]
        split = re.search(r", as ((?:[A-Z]+\d+ ?)+)$", words)
        if split is not None:
            for name, degree in re.findall(r"([A-Z]+)(\d+)", split[1]):
                assert after["layout"][name.lower()] == int(degree), (words, after["layout"])
        assert _certain(before) <= _certain(after), words
