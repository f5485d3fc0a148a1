"""What makes a message of a step faster: links where it stays among them, the fabric where it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.plan import Plan

MESSAGES = {"link", "fabric"}


@pytest.mark.parametrize("efficiency", [0.4, "calibrated"])
@pytest.mark.parametrize(
    ("work", "split", "on", "needed"),
    [
        ("Llama3_8B", {"dp": 8}, "8xH100", {"link"}),
        ("Llama3_8B", {"tp": 2, "pp": 4}, "8xH100", {"link"}),
        ("Llama3_8B", {"tp": 4, "cp": 2, "dp": 1}, "8xH100", {"link"}),
        ("Mixtral_8x7B", {"pp": 1, "ep": 8, "dp": 8, "zero": 3}, "8xB200", {"link"}),
        ("ResNet50", {}, "8xA100", {"link"}),
        ("Llama3_8B", {"dp": 64}, "64xH100", {"fabric"}),
        ("Llama3_8B", {"tp": 8, "dp": 8}, "64xH100", MESSAGES),
        ("Llama3_8B", {"dp": 64, "zero": 3}, "64xGB200", {"link"}),
    ],
)
def test_a_fleet_within_one_domain_has_no_use_for_a_fabric(
    work: str, split: dict[str, int], on: str, needed: set[str], efficiency: Any
) -> None:
    plan = {"task": "training", "workload": {"model": work, "batch_size": 512}, "parallelism": split}
    answer = evaluate_plainly(Plan.model_validate(plan | {"hardware": {"on": on, "efficiency": efficiency}}))
    found = MESSAGES & {part.resource for part in answer.ledger.parts}
    assert needed <= found <= (MESSAGES if "fabric" in needed else {"link"})
