"""A chip of a file, where a name of the zoo may stand."""

from __future__ import annotations

import pytest

from mlsysim.errors import InputError
from mlsysim.hardware.registry import Hardware
from mlsysim.plans.evaluate import evaluate_plainly
from mlsysim.plans.least_fleet import least_fleet
from mlsysim.plans.plan import Plan
from mlsysim.systems.fleet_text import find_system, parse_fleet
from mlsysim.zoo.writing import without_files

FLAT = """name = "Mine"
tdp = "600 W"
[compute]
peak_flops = "500 TFLOPs/s"
[memory]
capacity = "64 GB"
bandwidth = "2 TB/s"
"""
ENTRY = """[Mine]
namespace = "Cloud"
[Mine.compute]
bf16 = "500 TFLOPs/s"
fp8 = "1000 TFLOPs/s"
headline = "bf16"
[Mine.memory]
capacity = "64 GB"
bandwidth = "2 TB/s"
"""


@pytest.mark.parametrize(("text", "headline"), [(FLAT, "fp16"), (ENTRY, "bf16")])
def test_a_file_stands_for_its_chip(tmp_path, text, headline):
    file = tmp_path / "chip.toml"
    file.write_text(text)
    kind, chip = find_system(str(file))
    assert (kind, chip.name, chip.compute.headline) == ("chip", "Mine", headline)
    assert chip.compute.peak(headline).to("TFLOPs/s").magnitude == 500
    fleet = parse_fleet(f"16x{file}").one
    assert fleet.total_accelerators == 16 and fleet.node.accelerator == chip
    file.write_text(text.replace("64 GB", "128 GB"))
    assert Hardware.get(str(file)).memory.capacity.to("GB").magnitude == 128, "read anew when it changes"


def test_a_chip_with_one_peak_is_sized(tmp_path):
    """Its floor was the largest of no peaks."""
    file = tmp_path / "chip.toml"
    file.write_text(FLAT)
    asked = {"task": "training", "model": "GPT2", "tokens": 1e9, "deadline": "30 day", "on": f"1x{file}"}
    (found,) = least_fleet(Plan.model_validate(asked), [str(file)], evaluate_plainly)
    assert found.answer is not None and found.answer.feasible


def test_a_face_without_files_opens_none(tmp_path):
    file = tmp_path / "chip.toml"
    file.write_text(FLAT)
    with without_files(), pytest.raises(InputError, match="Paths are not read here; give the name of a chip"):
        find_system(str(file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[workload]\nmodel = 'GPT2'\n", "it is a plan"),
        ("a = 1\n", "expected one chip with [compute] and [memory], and it has none"),
        (ENTRY + ENTRY.replace("Mine", "Other"), "it has 2: Mine, Other"),
        (FLAT.replace("2 TB/s", "0 TB/s"), "The 'bandwidth' field got 0 TB/s, which is zero"),
        (FLAT.replace("tdp", "tpd"), "'tpd'"),
        ("a = ", "Invalid value"),
    ],
)
def test_a_file_that_is_no_chip(tmp_path, text, words):
    file = tmp_path / "chip.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        find_system(str(file))
    assert words in str(caught.value) and "'chip.toml' is not a chip that can be read" in str(caught.value)
