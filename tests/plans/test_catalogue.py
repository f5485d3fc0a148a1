"""What is asked of the zoo and of sweeps by names and words that they do not take."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.plans import varied
from mlsysim.plans.catalogue import kind_of_entry
from mlsysim.plans.plan import Plan


@pytest.mark.parametrize(
    ("name", "option"), [("vllm", "serve --engine"), ("engines", "serve --engine"), ("stacks", "train --stack")]
)
def test_software_is_named_by_an_option(name: str, option: str) -> None:
    with pytest.raises(InputError, match=f"`mlsysim {option}` takes "):
        kind_of_entry(name)


def test_a_word_among_numbers_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "evaluate_plainly", lambda plan: pytest.fail("a point was answered"))
    plan = Plan(task="training", model="Llama3_8B", on="8xH100")
    with pytest.raises(InputError, match="tp got 'two'; expected a whole number such as 2"):
        varied.varied(plan, {"tp": ["1", "two"]})
