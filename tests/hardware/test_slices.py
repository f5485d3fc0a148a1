"""Slices of a GPU are chips of their own: as people write them, and with the share of the whole that NVIDIA's table of profiles gives."""

from __future__ import annotations

import pytest

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.models.registry import Models
from mlsysim.timing.engine_step import engine_step
from mlsysim.timing.engines import engine


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("A100 MIG 3g.40gb", "A100-MIG-3g.40gb"),
        ("A100-SXM4-40GB MIG 2g.10gb", "A100_40GB-MIG-2g.10gb"),
        ("A100 MIG 1g.5gb", "A100_40GB-MIG-1g.5gb"),
        ("1g.10gb (A100)", "A100-MIG-1g.10gb"),
        ("H100-80GB-MIG-1g.10gb", "H100-MIG-1g.10gb"),
        ("NVIDIA H100 1g.20gb", "H100-MIG-1g.20gb"),
        ("H200 MIG 3g.71gb", "H200-MIG-3g.71gb"),
        ("A30 MIG 2g.12gb", "A30-MIG-2g.12gb"),
    ],
)
def test_labels_of_slices(label: str, key: str) -> None:
    found = Hardware.get(label)
    assert found.metadata.key == key and Hardware.get(key) == found


def test_a_slice_has_its_share() -> None:
    """Three of seven compute slices and four of eight of the memory, of an A100; all of an H100."""
    whole, part = Hardware.get("A100"), Hardware.get("A100 MIG 3g.40gb")
    assert part.peak_flops / whole.peak_flops == pytest.approx(3 * 14 / 108)
    assert part.compute.peak("int8") / whole.compute.peak("int8") == pytest.approx(3 * 14 / 108)
    assert part.memory_bw / whole.memory_bw == part.memory_capacity / whole.memory_capacity == pytest.approx(0.5)
    assert part.tdp is part.unit_cost is part.link is None
    most = Hardware.get("H100 MIG 7g.80gb")
    assert (
        most.memory_bw == Hardware.get("H100").memory_bw and 0.8 < most.peak_flops / Hardware.get("H100").peak_flops < 1
    )


@pytest.mark.parametrize("label", ["A100 MIG 5g.40gb", "A100 MIG 3g.80gb", "MIG 1g.10gb", "T4 MIG 1g.2gb"])
def test_what_is_no_slice(label: str) -> None:
    with pytest.raises(MLSysError, match=r"hardware|say which|memory"):
        Hardware.get(label)


def test_reading_weights_takes_as_long_as_its_share_of_the_bandwidth() -> None:
    """Half of the memory has half of the bandwidth, beside kernel starts that are the same."""
    steps = (
        engine_step(Models.get("Llama3_8B"), Hardware.get(chip), engine("vLLM"), cache_precision="bf16")
        for chip in ("A100", "A100 MIG 3g.40gb")
    )
    whole, half = (step.time(1.0, 100.0).total for step in steps)
    assert 1.6 < half / whole < 2.0
