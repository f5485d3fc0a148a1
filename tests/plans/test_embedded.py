"""Plan files that bring a model along."""

from __future__ import annotations

import json

import pytest

from mlsysim.errors import InputError
from mlsysim.models.registry import Models
from mlsysim.plans.files import plan_from_text, plan_to_toml

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_attention_heads": 16, "num_hidden_layers": 8, "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip
DOCUMENT = {"workload": {"model": "Embedded_tiny"}, "hardware": {"on": "1xH100"}, "task": "inference"}


def test_a_plan_with_its_model_is_written_and_read_again():
    whole = DOCUMENT | {"models": {"Embedded_tiny": {"config": json.dumps(CONFIG)}}}
    plan = plan_from_text(json.dumps(whole), "json")
    assert Models.get("Embedded_tiny").layers == 8 and "models" not in plan.document()
    text = plan_to_toml(plan, {"Embedded_tiny": json.dumps(CONFIG)})
    assert plan_from_text(text) == plan


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ({"Llama3_70B": {"config": json.dumps(CONFIG)}}, "is another model already"),
        ({"Other": {"config": 3}}, "one key, config"),
        ({"Other": {"config": "{}"}}, "the plan, models.Other"),
        (["Other"], "a table of at most"),
    ],
)
def test_what_is_no_model_is_one_sentence(models, says):
    with pytest.raises(InputError, match=says):
        plan_from_text(json.dumps(DOCUMENT | {"models": models}), "json")
