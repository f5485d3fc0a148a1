"""Real configurations against the parameter counts that their makers or the Hugging Face hub publish.

``configs.json`` keeps, for each model, the keys of its config.json that decide its size, the published count and where it is from.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from mlsysim.importers.hf import read_config
from mlsysim.models.registry import Models

FACTS = json.loads(Path(__file__).with_name("configs.json").read_text(encoding="utf-8"))
TOLERANCE = 0.005


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact["name"])
def test_the_count_is_the_published_one(fact):
    report = read_config(fact["config"], fact["name"])
    assert report.parameters == pytest.approx(fact["parameters"], rel=TOLERANCE)
    assert 0 < report.active_parameters <= report.parameters


def test_there_are_enough_facts_of_enough_kinds():
    kinds = Counter(type(read_config(fact["config"]).workload).__name__ for fact in FACTS)
    assert len(FACTS) >= 100 and len({fact["name"] for fact in FACTS}) == len(FACTS)
    assert len({fact["config"].get("model_type") for fact in FACTS}) >= 50
    assert set(kinds) == {
        "TransformerWorkload",
        "SparseTransformerWorkload",
        "HybridWorkload",
        "SSMWorkload",
        "SpeechWorkload",
        "VisionTransformerWorkload",
        "VisionLanguageWorkload",
        "CNNWorkload",
    }
    assert all(fact["source"] for fact in FACTS)


def test_most_counts_are_exact():
    """Where the published count is to the digit, most agree to the digit."""
    precise = [fact for fact in FACTS if fact["parameters"] % 100_000]
    equal = sum(read_config(fact["config"]).parameters == fact["parameters"] for fact in precise)
    assert len(precise) > 80 and equal >= 0.9 * len(precise)


# The shipped zoo was written from the same configurations by hand, so that the two check each other. Left out are entries of the
# language model alone, where the configuration describes a vision-language model.
_SAME = [fact for fact in FACTS if fact["name"] in Models and "vision_config" not in fact["config"]]


@pytest.mark.parametrize("fact", _SAME, ids=lambda fact: fact["name"])
def test_an_import_agrees_with_the_shipped_entry(fact):
    imported, shipped = read_config(fact["config"]).workload, Models.get(fact["name"])
    # Whisper's entries leave out the encoder's fixed positions, which its checkpoints keep.
    assert imported.parameter_count == pytest.approx(
        shipped.parameter_count, rel=0.02 if "whisper" in fact["name"] else TOLERANCE
    )
    if getattr(shipped, "structure", "") == "decoder" and shipped.has_dimensions:
        assert imported.get_kv_cache_size(50_000).magnitude == pytest.approx(
            shipped.get_kv_cache_size(50_000).magnitude, rel=0.002
        )


def test_there_is_overlap_with_the_zoo():
    assert len(_SAME) >= 30
