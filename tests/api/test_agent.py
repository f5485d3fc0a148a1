"""Ten questions as people ask them, each with the first call that a reader of the tool descriptions makes: answered in words that hold the numbers of
the Python API, over the protocol and a server process."""

from __future__ import annotations

import os
import sys

import pytest

mcp = pytest.importorskip("mcp")
anyio = pytest.importorskip("anyio")

from jsonschema import Draft202012Validator  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

import mlsysim  # noqa: E402
from mlsysim.api.service import call  # noqa: E402
from mlsysim.plans.optimizing import best_placement  # noqa: E402
from mlsysim.plans.plan import Plan  # noqa: E402
from mlsysim.units.text import figure  # noqa: E402

TRAINING = {"task": "training", "model": "Llama 3 8B", "on": "256 H100", "tokens": "2T"}
LAUNCH = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --max-model-len 8192"


def fits():
    answer = mlsysim.serve("Llama3_70B", on="2xH100", prompt_tokens=8000)
    return [answer.headline.split(";")[0], answer.metric("memory").text, answer.metric("longest_context").text]


def how_many():
    settings = {"qps": 50, "prompt_tokens": 1000, "output_tokens": 200, "slo": "ttft_p99=500ms", "days": 30}
    found = mlsysim.plan("Llama3_8B", on="H100", **settings)
    return [found.sentence, found.best.paid.text, "in 30 days", found.best.metric("ttft_p99").text]


def how_long():
    answer = mlsysim.train("Llama3_8B", on="256xH100", tokens="2T", price=2.5)
    return [answer.metric("run_time").text, answer.metric("rent").text, "$2.50 a GPU-hour"]


def which_chip():
    one, two = (mlsysim.serve("Mixtral_8x7B", on=f"4x{chip}") for chip in ("H100", "MI300X"))
    found = mlsysim.compare(one, two)
    return [*found.sentences, *(answer.metric("tokens_per_second").text for answer in (one, two))]


def what_binds():
    return [mlsysim.train("Llama3_70B", on="512xH100").binding.sentence, "binds"]


def why():
    answer = mlsysim.train("Llama3_70B", on="512xH100")
    return ["MFU = F / (N T P)", answer.metric("mfu").text, answer.metric("step_time").text, answer.binding.sentence]


def where():
    found = best_placement(Plan.model_validate(TRAINING), objective="carbon")
    return [f"Best: {found.best_region_name}", f"{figure(found.carbon_footprint.magnitude)} kg CO2e"]


def reviewed():
    from mlsysim.launch.review import review
    from mlsysim.launch.targets import read_launch

    found = review(read_launch(LAUNCH, on="8xH100"))
    return [found.headline, found.answer.binding.sentence]


def split():
    settings = {"prompts": 64, "samples": 32, "response": 3200, "max_response": 4096, "split": "auto"}
    answer = mlsysim.rl("Qwen3_32B", on="64xH100", **settings)
    return [answer.headline, answer.metric("latency").text, answer.binding.sentence]


def swept():
    answers = [mlsysim.train("Llama3_70B", on="512xH100", tp=degree, zero=1) for degree in (4, 8)]
    told = [answer.headline.split(";")[0].split(" it fits")[0] for answer in answers]
    return ["2 combinations of tp", *(f"tp {degree}: {text}" for degree, text in zip((4, 8), told, strict=True))]


def fleets():
    told = {
        on: mlsysim.train("Llama3_8B", on=on).headline.split(";")[0].split(" it fits")[0]
        for on in ("8xH100", "16xH100")
    }
    return ["2 combinations of on", *(f"on {on}: {text}" for on, text in told.items())]


SIMULATED = ("plan", "rl")
"""Operations whose answers take seconds: their words are compared with the Python API, their documents are those of every operation."""
GRPO = {"model": "Qwen3 32B", "on": "64 H100", "algorithm": "grpo", "prompts": 64, "samples": 32, "response": 3200}
QUESTIONS = {
    "Will Llama 3 70B fit on 2 H100 for serving at 8k context?": (
        "serve", {"model": "Llama 3 70B", "on": "2 H100", "prompt_tokens": "8k"}, fits),
    "How many H100 to serve 50 requests a second of 1000/200 tokens with p99 TTFT under 500 ms, and what does it cost a month?": (
        "plan", {"model": "Llama3_8B", "on": "H100", "qps": 50, "prompt_tokens": 1000, "output_tokens": 200, "slo": "ttft_p99=500ms", "duration_days": 30}, how_many),
    "How long and what does it cost to train 8B on 2T tokens on 256 H100?": (
        "train", {"model": "Llama 3 8B", "on": "256 H100", "tokens": "2T", "price": "$2.50"}, how_long),
    "H100 or MI300X for Mixtral?": (
        "compare", {"task": "serving", "model": "Mixtral-8x7B", "first": {"on": "4xH100"}, "second": {"on": "4xMI300X"}}, which_chip),
    "What binds when I train Llama 3 70B on 512 H100?": ("train", {"model": "Llama-3-70B", "on": "512xH100"}, what_binds),
    "Why is the MFU what it is?": ("explain", {"task": "training", "model": "Llama3_70B", "on": "512xH100", "metric": "MFU"}, why),
    "Which region emits least?": ("optimize", {"what": "placement", "objective": "carbon", **TRAINING}, where),
    "Review this launch command": ("review", {"launch": LAUNCH, "on": "8 H100"}, reviewed),
    "How to split 64 GPUs for GRPO of a 32B model?": ("rl", {**GRPO, "max_response": 4096, "split": "auto"}, split),
    "Which fleet": ("sweep", {"task": "training", "model": "Llama3_8B", "over": {"on": ["8xH100", "16xH100"]}}, fleets),
    "Sweep TP": ("sweep", {"task": "training", "model": "Llama3_70B", "on": "512 H100", "zero": 1, "over": {"tp": [4, 8]}}, swept),
}  # fmt: skip


def conversation(steps):
    """Run steps with a client of one server process."""

    async def main():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "mlsysim", "mcp", "--workers", "1", "--timeout", "600"],
            env={**os.environ},
        )
        with anyio.fail_after(1800):
            async with mcp.Client(stdio_client(server)) as client:
                await steps(client)

    anyio.run(main)


def test_ten_questions_are_answered_at_the_first_call():
    async def steps(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for question, (name, arguments, expected) in QUESTIONS.items():
            Draft202012Validator(tools[name].input_schema).validate(arguments)
            told = await client.call_tool(name, arguments)
            text = told.content[0].text
            assert not told.is_error, (question, text)
            assert [words for words in expected() if str(words) not in text] == [], (question, text)
            assert "Traceback" not in text and "NaN" not in text and "e+" not in text
            assert len(text) < 6000, (question, len(text))
            if name in SIMULATED:
                continue
            beside = call(
                name,
                {**arguments, **({"detail": "summary"} if "detail" in tools[name].input_schema["properties"] else {})},
            )
            assert told.structured_content == beside.document, question

    conversation(steps)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("rl", {"model": "Qwen3_32B", "on": "64xH100"}, "mean tokens of a response; give such as"),
        ("plan", {"model": "Llama3_8B", "on": "H100"}, '"qps": 5'),
        ("serve", {"model": "Mixtral", "on": "4xH100"}, "did you mean 'Mixtral_8x7B'"),
        ("train", {"model": "Llama3_8B", "on": "256 H1000"}, "'H100'"),
        ("explain", {"task": "training", "model": "Llama3_8B", "on": "8xH100", "metric": "thruput"}, "it has memory"),
        ("review", {"launch": "vllm serve meta-llama/Llama-3.1-8B"}, 'such as "on": "1xH100"'),
        ("sweep", {"model": "Llama3_8B", "on": "8xH100"}, "'over'"),
        ("compare", {"model": "Llama3_8B", "first": {"on": "H100"}}, "compare needs the 'second' field"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_for_the_next_call(name, arguments, words):
    reply = call(name, arguments)
    assert reply.kind is not None and words in reply.document["error"]["sentence"], reply.document


def test_text_of_numbers_and_money_means_what_it_means_elsewhere():
    written = {
        "model": "Llama 3 8B",
        "on": "256 H100",
        "tokens": "2T",
        "budget": "$1M",
        "price": "$2.5",
        "change": False,
    }
    plainly = {**written, "model": "Llama3_8B", "on": "256xH100", "tokens": 2e12, "budget": 1e6, "price": 2.5}
    one, two = (call("train", each) for each in (written, plainly))
    assert one.kind is None and one.document["metrics"] == two.document["metrics"]
    assert one.document["checks"][0]["passed"] and one.words.count("within") >= 1
