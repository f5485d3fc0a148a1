"""The mistakes that are tested for the command line, made in requests and in Python: one sentence, in the words of who asks, and never a fault."""

from __future__ import annotations

import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import mlsysim
from mlsysim.api.service import call
from mlsysim.errors import MLSysError

_PATH = Path(__file__).parents[1] / "cli" / "test_natural_mistakes.py"
_SPEC = spec_from_file_location("natural_mistakes", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
TABLE = module_from_spec(_SPEC)
_SPEC.loader.exec_module(TABLE)
SHORT = {"-p": "precision", "-b": "batch_size", "-s": "seq_len", "-e": "efficiency"}
OWN = ("--output", "-o", "--json", "--help", "--write", "--over")


def asked(command: str) -> tuple[str, dict[str, object]] | None:
    """A command that answers a plan as an operation and its document; None where it is about the command line itself."""
    name, *words = shlex.split(command)
    if name not in ("train", "serve", "rl", "plan") or any(word.startswith(OWN) for word in words):
        return None
    document: dict[str, object] = {}
    while words:
        word = words.pop(0)
        if word.startswith("-") and len(word) > 1:
            flag, mark, value = word.partition("=")
            key = SHORT.get(flag, flag.lstrip("-").replace("-", "_"))
            if not mark and (not words or (words[0].startswith("--"))):
                return None
            if key == "layout":
                return None
            document[key] = value if mark else words.pop(0)
            if key == "assert":
                document[key] = [document[key]]
        elif "model" not in document:
            document["model"] = word
        elif "on" not in document and "--on" not in words:
            document["on"] = word
        else:
            return None
    return name, document


ASKED = {command: found for command in TABLE.MISTAKES if (found := asked(command)) is not None}
# Said of options alone: files of the machine, and words of the command line.
OF_OPTIONS = re.compile(
    r"no option|Missing argument|Settings are options|On which hardware|after the model or in --on|The model comes first|one word here|cannot be read|no such file|is an address|--help"
)


def test_most_of_the_table_can_be_asked():
    assert len(ASKED) > 200


@pytest.mark.parametrize("command", ASKED)
def test_a_mistake_in_a_request_gets_its_sentence(command):
    name, document = ASKED[command]
    reply = call(name, document)
    if reply.kind is None:
        # What a key of a request may be, where an option may not: a number as text, a key that is left empty.
        assert command in ANSWERED, reply.document.get("headline")
        return
    told = reply.document["error"]["sentence"]
    assert reply.kind not in ("internal", "malformed") and not TABLE.LEAKS.search(told), told
    assert "\n" not in told and not re.search(r"(?<![\w`-])--[a-z]", told), told
    if "which was not given" in told:
        assert {"model", "on"} - document.keys()
    elif OF_OPTIONS.search(" ".join(TABLE.MISTAKES[command])):
        return
    else:
        assert_said(command, told)


def assert_said(command: str, told: str) -> None:
    """Something that the command line is told is told here too."""
    said = plainly(told)
    for words in map(plainly, TABLE.MISTAKES[command]):
        # The first word may be the option, under another of its names.
        rest = words.partition(" ")[2]
        if words in said or (rest and rest in said):
            return
    pytest.fail(f"{told} has none of {TABLE.MISTAKES[command]}")


def plainly(text: str) -> str:
    """Words without what differs between faces: quotes, dashes of options, and how a setting is written."""
    text = re.sub(r"--([a-z][\w-]*)", lambda found: found[1].replace("-", "_"), text.removeprefix("mlsysim: "))
    return re.sub(
        r"The '?([\w.]+)'? field", r"\1", text.replace(" = ", " ").replace(": ", " ").replace(",", "")
    ).translate({ord(mark): None for mark in "'\"`"})


ANSWERED = (
    "train Llama3_70B 512xH100",
    "train Llama3_70B --gpus 96xB200",
    "train Llama3_70B --num-gpus 512 --gpu B200",
    "train Llama3_8B --gpus=64 --gpu=H100",
    "serve Llama3_70B --on 8xH200 -tp 8",
    "serve Llama3_70B --on 8xH200 -tp=8",
    "plan Llama3_70B --gpus H100 --deadline 30d",
    "train Llama3_70B --on 512xH100 --dtype fp8",
    "serve Llama3_70B --on 8xH200 --quantization awq",
    "plan Llama3_8B --tokens 1T --days 30 --on H100",
    "plan Llama3_8B --tokens 1T --deadline 30d --chips H100,B200",
)
"""What is no mistake in a request: a fleet has a key of its own, not a place, and programs may call it and the format otherwise."""


@pytest.mark.parametrize(
    "command", [c for c, (name, document) in ASKED.items() if {"model", "on"} <= document.keys()][::4]
)
def test_a_mistake_in_python_gets_a_sentence(command):
    name, document = ASKED[command]
    try:
        getattr(mlsysim, name)(document.pop("model"), document.pop("on"), **document)
    except MLSysError as error:
        told = str(error)
        assert "\n" not in told and not TABLE.LEAKS.search(told), told
    except TypeError as error:
        pytest.fail(f"{command}: {error}")


def plan(**more: object) -> dict[str, object]:
    return {"plan": {"model": "Llama3_8B", "on": "H100", "task": "inference", **more}}


FLEET = {"model": "Llama3_8B", "on": "8xH100"}


@pytest.mark.parametrize(
    ("name", "document", "said"),
    [
        ("evaluate", plan(batch_size=0), "The 'workload.batch_size' field got 0; expected at least 1."),
        ("evaluate", plan(seq_len="x"), "The 'workload.seq_len' field got 'x'; expected a whole number such as 4096."),
        ("evaluate", plan(precision="fp12"), "There is no precision named 'fp12'; did you mean 'fp32', 'fp16' or 'fp8'?"),
        ("evaluate", plan(efficiency=2), "Efficiency is above 0 and at most 1, or 'calibrated', got '2'."),
        ("evaluate", plan(model="H100", on="Llama3_8B"), "'Llama3_8B' is a model, and a chip, node or cluster is expected here."),
        ("evaluate", plan(on="8xH100"), "One pass runs on one accelerator, and 8 are given; say \"task\": \"training\" or \"task\": \"serving\"."),
        ("evaluate", plan(on="chip.toml"), "Paths are not read here; give the name of a chip, node or cluster of the zoo."),
        ("compare", {"first": plan(task="trainig")["plan"], "second": plan()["plan"]}, "The 'task' field got 'trainig'; expected 'training', 'serving', 'inference' or 'rl'."),
        ("train", {"plan": FLEET}, "'plan' is not a key of a plan; write its keys themselves, such as model, on and tokens."),
        ("train", {"model": "Llama3_8B"}, "train needs the 'on' field, which was not given: such as 8xH100 or 512xH100."),
        ("train", {**FLEET, "tp": "8x"}, "The 'tp' field got '8x'; expected a whole number such as 2."),
        ("train", {**FLEET, "region": "Mars"}, "There is no grid named 'Mars'; did you mean 'MAR', 'Paris' or 'MA'?"),
        ("serve", {**FLEET, "messages": [{"role": "user"}]}, "'messages' is not a key of a plan; write 'isl' = 2000, as the tokens of a prompt count and its words do not."),
        ("serve", {**FLEET, "temperature": 0.7}, "'temperature' is not a key of a plan; leave it out, as how a token is drawn takes no time of its own."),
        ("serve", {**FLEET, "qps": "ten"}, "The 'qps' field got 'ten'; expected a number such as 0.5."),
        ("serve", {**FLEET, "slo": "p99<200ms"}, "'p99' is not a time of a request; use ttft, tpot, itl, e2e or queue."),
        ("serve", {"model": "Llama3_8B,Llama3_70B", "on": "8xH100"}, "A plan has one model; ask for each, or for two side by side: `mlsysim compare Llama3_8B@H100 Llama3_70B@H100`."),
        ("serv", FLEET, "There is no operation named 'serv'; did you mean 'serve'?"),
        ("sweep", {"plan": FLEET, "axes": {"tp": []}}, "A sweep of a plan needs keys at one value or more, such as staleness=1,2,4."),
        ("compare", {"first": FLEET, "second": "B200"}, "compare needs the 'second.model' field, which was not given: such as Llama3_70B."),
        ("plan", {"model": "Llama3_8B", "deadline": "yesterday"}, "The 'deadline' field got 'yesterday'; expected a time such as '30 d'."),
        ("collectives", {"on": "64xH100", "op": "reduce_everything"}, "There is no collective named 'reduce_everything'; did you mean 'reduce_scatter'?"),
        ("zoo", {"name": "H101"}, "There is no part or entry of the zoo named 'H101'; did you mean 'H100', 'H20' or 'A10'?"),
        ("walls", {"number": "memmory"}, "There is no wall named 'memmory'; did you mean 'Memory'?"),
        ("walls", {"number": 23}, "There is no wall 23; they are numbered 1 to 22."),
        ("collectives", {"on": "64xH100@NDR", "size": "big"}, "'size' is a size of 1 byte or more, such as 64MB, got 'big'."),
        ("train", {**FLEET, "on": None}, "No hardware is given; 'on' says which, such as '512xH100'."),
        ("train", {**FLEET, "assert": [{"mfu": 0.5}]}, "An assertion is such as 'mfu >= 0.4', got \"{'mfu': 0.5}\"."),
        ("train", {**FLEET, "assertions": "mfu > 50"}, "Model FLOP utilisation (mfu) is a share of at most 1, got a limit of 50; 50 per cent is '50%'."),
        ("train", {**FLEET, "price": {"usd": 2}}, "The 'price' field got a mapping that is not {'magnitude': number, 'unit': string}; expected a quantity in USD/h such as '2.5 USD/h'."),
        ("serve", {**FLEET, "isl": {"mean": 2000}}, "The 'prompt_tokens' field got {'mean': 2000}; expected a whole number such as 2000."),
        ("serve", {**FLEET, "trace": "/etc/passwd"}, "There is no shipped trace named '/etc/passwd'."),
        ("plan", {"model": "Llama3_8B", "deadline": "14d", "on": ["H100", 8]}, "'on' takes names of chips, such as \"H100,B200\", got ['H100', 8]."),
        ("review", {"launch": "", "on": "8xH100"}, "review: the 'launch' field got ''; expected a text that is not empty."),
        ("compare", {"plans": ["Llama3_8B@H100"]}, "'plans' has 1; compare takes two, and sweep any number."),
        ("export", {"to": "vlm", **plan()}, "There is no launch target named 'vlm'; did you mean 'vllm', 'verl' or 'slurm'?"),
    ],
)  # fmt: skip
def test_other_operations_say_what_is_wrong_without_names_of_classes(name, document, said):
    reply = call(name, document)
    assert reply.kind in ("input", "unknown_name") and reply.document["error"]["sentence"] == said


@pytest.mark.parametrize(
    ("name", "document", "found"),
    [
        ("zoo", {"name": "H100"}, ("zoo", "hardware")),
        ("zoo", {"name": "Llama3_8B"}, ("zoo", "models")),
        ("walls", {"number": "memory"}, ("name", "Memory")),
        ("walls", {"number": 2}, ("name", "Memory")),
        ("schema", {"type": "train"}, ("title", "Plan")),
        ("serve", {"model": "Llama3_8B", "on": "1xH100", "max_latency_ms": 5000}, ("task", "serving")),
    ],
)
def test_a_name_is_enough(name, document, found):
    """As on the command line: ``zoo H100``, ``walls memory``."""
    assert call(name, document).document[found[0]] == found[1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mlsysim.train("Llama3_8B"), "On which hardware? Give on, such as on='8xH100'."),
        (lambda: mlsysim.train("Llama3_8B", on=8), "'on' is a fleet such as '8xH100'"),
        (lambda: mlsysim.train(["Llama3_8B"], on="8xH100"), "A model is a name of the zoo, a file or a Workload, got list."),
        (lambda: mlsysim.train("Llama3_8B", on="8xH100", tokens="one trillion"), "a positive number such as 15e12 or 15T"),
        (lambda: mlsysim.serve("Llama3_8B", on="8xH100", slo={"ttft": 0.2}), "The limit on ttft is a time such as 500ms"),
        (lambda: mlsysim.serve("Llama3_8B", on="8xH100", slo=[1, 2]), "expected text, once; a sweep takes several"),
        (lambda: mlsysim.serve("Llama3_8B", on="8xH100", dtype="float8"), "write 'precision', such as 'fp8'"),
        (lambda: mlsysim.serve("Llama3_8B", on="8xH100", isl="long"), "expected a whole number such as 2000"),
        (lambda: mlsysim.sweep("Llama3_8B", on="8xH100", tp=[1, 2]), "as in sweep('Llama3_8B', on='8xH100', over={'tp': [1, 2]})"),
        (lambda: mlsysim.compare("H100", "A100"), "takes two plans such as 'Llama3_8B@8xH100', two answers to plans, or two results of a resolver, got str and str"),
        (lambda: mlsysim.compare(mlsysim.serve("Llama3_8B", on="1xH100")), "two results of a resolver, got one; for one model on two chips, compare("),
        (lambda: mlsysim.sweep({"task": "serving", "model": "Llama3_8B", "on": "1xH100"}), "Say over which values of which keys to go, such as over={'tp'"),
        (lambda: mlsysim.sweep("Llama3_8B", on="1xH100", over={"concurrency": 4}), "over needs several values of concurrency in a list"),
        (lambda: mlsysim.sweep("Llama3_8B", over={"on": "1xH100"}), "over needs several values of on in a list"),
        (lambda: mlsysim.sweep("Llama3_8B", on="1xH100", over=["tp"]), "Say over which values of which keys to go"),
        (lambda: mlsysim.sweep(8), "sweep() takes a space (a file, a table or a Space), or a plan, an answer or a model with keys"),
        (lambda: mlsysim.sweep(None, over={"tp": [1]}), "with keys to go over; got NoneType."),
        (lambda: mlsysim.plan("Llama3_8B", on=8, deadline="14d"), "'on' is a fleet such as '8xH100', a chip, a node or a cluster of the zoo, got int."),
        (lambda: mlsysim.plan("Llama3_8B", on="H100", deadline="1 min").explain("mfu"), "No fleet of H100 trains on"),
        (lambda: mlsysim.train("Llama3_8B", on="8xH100", tokens=mlsysim.Q_("2 TB")), "got '2 terabyte'; expected a positive number such as 15e12 or 15T"),
        (lambda: mlsysim.compare("Llama3_8B@H100", "Llama3_8B@H10O"), "no chip, node or cluster named 'H10O'"),
        (lambda: mlsysim.plan("Llama3_8B", tokens="1T", deadline=20), "which has no unit; write its unit too, such as '20 d'"),
        (lambda: mlsysim.Hardware.H1000, "did you mean 'H100'"),
    ],
)  # fmt: skip
def test_a_mistaken_call_in_python_gets_a_sentence(call, said):
    with pytest.raises(MLSysError, match=re.escape(said)):
        call()
