"""Questions to a zoo as text."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.units.registry import Q_
from mlsysim.zoo.query import condition, field_of, in_order


def test_quantities_compare_with_units():
    large = condition("memory.capacity>=80GB")
    assert [large(Hardware.get(name)) for name in ("H100", "V100")] == [True, False]
    assert condition("memory.capacity<0.08 TB")(Hardware.V100)


def test_text_ignores_case_and_numbers_are_numbers():
    assert condition("vendor=nvidia")(Hardware.H100)
    assert condition("vendor!=amd")(Hardware.H100)
    assert condition("release_year>=2022")(Hardware.H100) and not condition("release_year>2022")(Hardware.H100)


def test_a_part_is_found_by_its_unit_and_counts_are_written_as_people_do():
    assert condition("memory>=80GB")(Hardware.H100) and not condition("memory>=80GB")(Hardware.V100)
    assert condition("memory>3TB/s")(Hardware.H100) and not condition("memory>4TB/s")(Hardware.H100)
    assert condition("parameters>100B")(Models.GPT3_175B) and not condition("parameters>100B")(Models.Llama3_70B)
    with pytest.raises(InputError, match="parameters is a number such as 70B, got 'big'"):
        condition("parameters>big")(Models.Llama3_70B)


def test_what_is_not_known_matches_nothing():
    without = next(chip for chip in Hardware if chip.link is None)
    assert not condition("link.bandwidth_total>0 GB/s")(without)


@pytest.mark.parametrize(
    "text", ["vendor", "", "a b=c", "x" * 300, "tdp<5 GB", "release_year=soon", "__class__=a", "model_dump=a", "nope=1"]
)
def test_bad_questions_are_one_sentence(text):
    with pytest.raises(InputError) as error:
        condition(text)(Hardware.H100)
    assert "\n" not in str(error.value)


def test_order_is_largest_first_and_unknown_last():
    chips = in_order(Hardware, "unit_cost")
    known = [chip.unit_cost.to("USD").magnitude for chip in chips if chip.unit_cost is not None]
    assert known == sorted(known, reverse=True) and 0 < len(known) < len(chips)
    assert all(chip.unit_cost is None for chip in chips[len(known) :])
    with pytest.raises(InputError, match="no number or text"):
        in_order(Hardware, "memory")


def test_a_path_follows_fields_alone():
    assert field_of(Hardware.H100, "memory.bandwidth") == Hardware.H100.memory.bandwidth
    assert field_of(Hardware.H100, "memory.bandwidth").is_compatible_with(Q_("1 B/s"))
    with pytest.raises(InputError):
        field_of(Hardware.H100, "memory.bandwidth._REGISTRY")
