"""Numbers and money as people write them, understood in every face: options, files, requests, Python, spaces, resolvers."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.api.service import call
from mlsysim.cli.main import app
from mlsysim.cli.plan_options import plan_of
from mlsysim.errors import InputError, UnitError
from mlsysim.plans.files import plan_from_text
from mlsysim.plans.plan import Plan
from mlsysim.search.space import Space
from mlsysim.units.registry import number_from, parse_quantity, to_si
from mlsysim.walls.fleet.communication import DistributedModel

WRITTEN: dict[str, Any] = {
    "model": "Llama3_8B", "on": "16 H100", "batch_size": "2k", "seq_len": "8Ki", "tokens": "2T", "offload": "40%",
    "budget": "$1M", "cloud_price": "$2.50", "electricity": "$0.1/kWh",
}  # fmt: skip
MEANT: dict[str, Any] = {
    "model": "Llama3_8B", "on": "16 H100", "batch_size": 2000, "seq_len": 8192, "tokens": 2e12, "offload": 0.4,
    "budget": "1000000 USD", "cloud_price": "2.5 USD/h", "electricity": "0.1 USD/kWh",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"),
    [("8k", 8000), ("8K", 8000), ("8Ki", 8192), ("1.5m", 1.5e6), ("70B", 70e9), ("1.24T", 1.24e12), ("1_000", 1000),
     ("2,048", 2048), ("40%", 0.4), ("12.5 %", 0.125), ("3e5", 3e5), ("1.5", 1.5), ("-2", -2)],
)  # fmt: skip
def test_numbers(text: str, number: float) -> None:
    assert number_from(text) == number


@pytest.mark.parametrize("text", ["", "k", "%", "8q", "8 GB", "1 2", "$5", "1e999", "8k%", "0x10", "nan", "inf", "--3"])
def test_what_is_no_number(text: str) -> None:
    assert number_from(text) is None


@given(st.integers(0, 10**12))
def test_a_whole_number_is_itself(number: int) -> None:
    assert number_from(str(number)) == number_from(f"{number:_}") == number
    assert number_from(f"{number}k") == number * 1000


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [("$1M", "USD", 1e6), ("1M USD", "USD", 1e6), ("$2.5/h", "USD/h", 2.5), ("US$3k", "USD", 3000), ("0.12 USD/kWh", "USD/kWh", 0.12)],
)  # fmt: skip
def test_money(text: str, unit: str, number: float) -> None:
    assert to_si(parse_quantity(text), unit) == pytest.approx(number)


@pytest.mark.parametrize("text", ["$", "$M", "$1Q", "1M", "$1 GB"])
def test_what_is_no_money(text: str) -> None:
    with pytest.raises(UnitError):
        parse_quantity(text)


def test_a_plan_in_python_and_as_a_request() -> None:
    assert Plan.model_validate(WRITTEN) == Plan.model_validate(MEANT)
    replies = [call("evaluate", {"plan": {**keys, "task": "training"}}) for keys in (WRITTEN, MEANT)]
    assert replies[0].kind is None and replies[0].document == replies[1].document


def test_options() -> None:
    command = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    words = [word for key, value in WRITTEN.items() if key not in ("model", "on") for word in (f"--{key}", value)]
    context = command.make_context("train", ["Llama3_8B", "--on", "16 H100", *words])
    assert plan_of(context, model="Llama3_8B", on="16 H100") == Plan.model_validate(MEANT)
    context = command.make_context("train", ["Llama3_8B", "--on", "H100", "--tp", "8q"])
    with pytest.raises(InputError, match="--tp got '8q'"):
        plan_of(context, model="Llama3_8B", on="H100")


def test_a_file() -> None:
    text = "".join(f"{key} = {value!r}\n" for key, value in WRITTEN.items())
    assert plan_from_text(text) == Plan.model_validate(MEANT)


def test_a_space_and_a_resolver() -> None:
    table = {
        "kind": "serving",
        "fixed": {"model": "Llama3_8B", "hardware": "H100", "isl": "2k", "osl": "1Ki", "cloud_price": "$2.5"},
    }
    space = Space.from_dict(
        {**table, "axes": {"clients": ["8", "1k"], "chunk": {"powers_of": 2, "from": "1k", "to": "4Ki"}}}
    )
    assert (space.fixed["isl"], space.fixed["osl"], space.fixed["cloud_price"]) == (2000, 1024, 2.5)
    assert space.values("clients") == (8, 1000) and space.values("chunk") == (1024, 2048, 4096)
    step = DistributedModel().solve("Llama3_8B", "8xH100", batch_size="1k", seq_len="4Ki", efficiency="40%")
    same = DistributedModel().solve("Llama3_8B", "8xH100", batch_size=1000, seq_len=4096, efficiency=0.4)
    assert step.step_latency_total == same.step_latency_total
