"""A wafer is no GPU: the token rates that its maker published lie in the intervals of what is answered."""

from __future__ import annotations

import pytest

import mlsysim


@pytest.mark.parametrize(
    ("model", "fleet", "published"),
    [
        ("Llama3_8B", {"on": "Cerebras_CS3"}, 1800),
        ("Llama3_70B", {"on": "4xCerebras_CS3", "pp": 4}, 450),
    ],
)
def test_one_user_of_a_wafer_gets_about_the_published_rate(model: str, fleet: dict[str, object], published: int):
    found = mlsysim.serve(model, concurrency=1, **fleet).metric("tpot")
    assert found.low.to("s").magnitude <= 1 / published <= found.high.to("s").magnitude
