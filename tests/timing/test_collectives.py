"""Calibrated collectives: published points, limits and signs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.timing.collectives import (
    across_nodes,
    bridged_pairs,
    inside_domain,
    start_of,
    wire_and_steps,
)

LARGE = 512 * 2**20


@pytest.mark.parametrize(
    ("chip", "ranks", "bus"),
    [("A100", 2, 193e9), ("A100", 4, 217e9), ("H100", 4, 350e9), ("H100", 8, 445e9), ("B200", 8, 704e9)],
)
def test_bus_bandwidth_of_large_all_reduces(chip, ranks, bus):
    wire, _ = wire_and_steps("all_reduce", ranks)
    found = wire * LARGE / inside_domain("all_reduce", LARGE, ranks, Hardware.get(chip))
    assert found == pytest.approx(bus, rel=0.15)


def test_small_messages_cost_the_start_of_the_machine():
    chip = Hardware.get("H100")
    assert inside_domain("all_gather", 512, 2, chip) == pytest.approx(start_of(chip), rel=0.02)
    assert inside_domain("all_gather", 512, 2, chip, start=1e-5) == pytest.approx(1e-5, rel=0.02)
    assert inside_domain("all_reduce", 512, 8, chip) > 2 * start_of(chip)


def test_a_chip_of_the_generation_borrows_its_start():
    assert start_of(Hardware.get("H200")) == start_of(Hardware.get("H100"))
    assert start_of(Hardware.get("TPU_v4")) == pytest.approx(8.5e-6)


@given(st.floats(512, 1e9), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]))
def test_a_larger_message_never_takes_less(message, kind):
    chip = Hardware.get("B200")
    assert inside_domain(kind, message, 8, chip) <= inside_domain(kind, 1.5 * message, 8, chip)
    assert inside_domain(kind, message, 8, chip) >= inside_domain(kind, message, 8, chip, link=2e12)


def test_the_slowest_hop_sets_the_ring():
    chip = Hardware.get("A100")
    pair, four = (bridged_pairs("all_reduce", LARGE, n, chip, 300e9, 32e9) for n in (2, 4))
    assert four > 8 * pair


def test_between_nodes_the_adapter_decides():
    """nccl-tests issue 232: two nodes of one H100, 32 MiB in 812 us."""
    chip = Hardware.get("H100")
    assert across_nodes("all_reduce", 32 * 2**20, 2, 1, chip, 50e9) == pytest.approx(812e-6, rel=0.1)
    assert across_nodes("all_reduce", LARGE, 4, 8, chip, 50e9) < across_nodes("all_reduce", LARGE, 4, 1, chip, 50e9)
    assert across_nodes("send", LARGE, 2, 1, chip, 50e9) == pytest.approx(LARGE / 46.5e9, rel=0.01)


def test_unknown_collectives_and_missing_links_raise():
    with pytest.raises(MLSysError, match="collective"):
        inside_domain("broadcast", 1e6, 2, Hardware.get("H100"))
    with pytest.raises(MLSysError, match="link"):
        inside_domain("all_reduce", 1e6, 2, Hardware.get("RTX_4090"))
    with pytest.raises(MLSysError, match="across nodes"):
        across_nodes("all_to_all", 1e6, 2, 8, Hardware.get("H100"), 50e9)
