"""What a deployment refuses."""

from __future__ import annotations

import pytest

from mlsysim.cases.deployment import check_degrees
from mlsysim.errors import InputError
from mlsysim.models.registry import Models


def test_a_dense_model_has_no_experts_to_hold_twice() -> None:
    with pytest.raises(InputError, match="has no experts to hold twice"):
        check_degrees(Models.get("Llama3_8B"), tp=1, pp=1, ep=1, redundant=4)
    check_degrees(Models.get("DeepSeekV3"), tp=1, pp=1, ep=96, redundant=32)
