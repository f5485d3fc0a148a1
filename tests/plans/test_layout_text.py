"""A layout in one text means the same in every face."""

from typing import Any

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.plan import Plan

BASE = {"task": "training", "model": "Llama3_70B", "on": "64xH100"}


@pytest.mark.parametrize("layout", ["tp=8,pp=4,zero=1", "tp_size=8, pp=4, zero=1", {"tp": 8, "pp": 4, "zero": 1}])
def test_pairs_are_the_settings(layout: Any) -> None:
    assert Plan.model_validate({**BASE, "layout": layout}) == Plan.model_validate({**BASE, "tp": 8, "pp": 4, "zero": 1})


def test_a_layout_as_people_write_it() -> None:
    assert Plan.model_validate({**BASE, "layout": "TP8 PP4"}) == Plan.model_validate({**BASE, "tp": 8, "pp": 4})
    searched = Plan.model_validate({**BASE, "parallelism": "auto", "tp": 8}).parallelism
    assert (searched.mode, searched.tp) == ("auto", 8)


def test_a_text_beside_other_settings() -> None:
    plan = Plan.model_validate({**BASE, "layout": "tp=8", "zero": 1})
    assert (plan.parallelism.tp, plan.parallelism.zero) == (8, 1)
    changed = Plan.model_validate({**BASE, "tp": 8}).with_settings({"layout": "pp=4"})
    assert (changed.parallelism.tp, changed.parallelism.pp) == (8, 4)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layout": "TPX8"}, "The 'layout' field takes pairs such as tp=8,pp=4, got 'TPX8'."),
        ({"layout": "tpp=8"}, "did you mean 'tp'?"),
        ({"layout": "tp=8", "tp": 4}, "The 'parallelism.tp' field is given twice."),
        ({"layout": "tp=eight"}, "'parallelism.tp'"),
    ],
)
def test_a_mistake_is_named(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        Plan.model_validate({**BASE, **settings})
    assert sentence in str(refused.value)
