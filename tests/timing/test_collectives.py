"""The network of measured libraries: published points, limits and signs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim.errors import MLSysError
from mlsysim.hardware.registry import Hardware
from mlsysim.timing.collectives import measured_network, start_of, wire_and_steps
from mlsysim.timing.network import Group
from mlsysim.units.registry import to_si

LARGE = 512 * 2**20
ADAPTER = 0.93 * 50e9


def inside(chip, ranks, **more):
    return measured_network(Hardware.get(chip), ranks, **more)


@pytest.mark.parametrize(
    ("chip", "ranks", "bus"),
    [("A100", 2, 193e9), ("A100", 4, 217e9), ("H100", 4, 350e9), ("H100", 8, 445e9), ("B200", 8, 704e9)],
)
def test_bus_bandwidth_of_large_all_reduces(chip, ranks, bus):
    wire, _ = wire_and_steps("all_reduce", ranks)
    found = wire * LARGE / inside(chip, ranks).all_reduce(LARGE, Group(ranks, ranks))
    assert found == pytest.approx(bus, rel=0.15)


@pytest.mark.parametrize("chip", ["RTX_PRO_6000_Server", "RTX_5090", "L40S"])
def test_nothing_is_summed_on_the_bus_of_a_host(chip):
    """A card without links of its own has no switch that adds: rings alone, and no more than the bus."""
    host = to_si(Hardware.get(chip).interconnect.bandwidth, "byte/s")
    wire, _ = wire_and_steps("all_reduce", 8)
    time, how = inside(chip, 8, link=host).ways("all_reduce", LARGE, Group(8, 8))
    assert how == "ring"
    assert wire * LARGE / time < host


@pytest.mark.parametrize(("ranks", "bus"), [(4, 363.3e9), (5, 414.2e9), (6, 435.6e9), (7, 460e9), (8, 473.1e9)])
def test_a_switch_sums_for_five_and_more(ranks, bus):
    """H200, 8 GiB (stas00/ml-engineering); rings alone stay at 363 to 366 GB/s."""
    wire, _ = wire_and_steps("all_reduce", ranks)
    found = wire * 2**33 / inside("H200", 8).all_reduce(float(2**33), Group(ranks, ranks))
    assert found == pytest.approx(bus, rel=0.15)


def test_small_messages_cost_the_start_of_the_machine():
    start, pair = start_of(Hardware.get("H100")), Group(2, 2)
    net = inside("H100", 8)
    assert net.gather(512, pair) == pytest.approx(start, rel=0.02)
    assert replace(net, link_latency=1e-5).gather(512, pair) == pytest.approx(1e-5, rel=0.02)
    assert net.all_reduce(512, Group(8, 8)) > 2 * start


def test_a_chip_of_the_generation_borrows_its_start():
    assert start_of(Hardware.get("H200")) == start_of(Hardware.get("H100"))
    assert start_of(Hardware.get("TPU_v4")) == pytest.approx(8.5e-6)


KINDS = {
    "all_reduce": lambda net, message: net.all_reduce(message, Group(8, 8)),
    "all_gather": lambda net, message: net.gather(message, Group(8, 8)),
    "all_to_all": lambda net, message: net.exchange(message, 1.0, Group(8, 8), False),
    "exchange": lambda net, message: net.exchange(message / 4, 4, Group(16, 8), True),
    "send": lambda net, message: net.send(message, True),
}


@given(st.floats(512, 1e9), st.sampled_from(sorted(KINDS)))
def test_a_larger_message_never_takes_less(message, kind):
    net, time = inside("B200", 8, fabric=ADAPTER), KINDS[kind]
    assert time(net, message) <= time(net, 1.5 * message)
    assert time(net, message) >= time(replace(net, link=2e12), message)


def test_a_group_of_one_says_nothing():
    net = inside("H100", 8, fabric=ADAPTER, hop=6e-6)
    alone = Group(1, 1)
    assert net.all_reduce(1e6, alone) == net.gather(1e6, alone) == net.exchange(1e6, 2, alone, False) == 0


def test_large_messages_are_a_start_and_seconds_a_byte():
    """The slower protocol for short messages is not used, so that pieces of a message cost their starts more."""
    net = inside("H100", 8, fabric=ADAPTER, hop=6e-6)
    for group in (Group(8, 8), Group(64, 8), Group(16, 1)):
        once, twice, thrice = (net.gather(size, group) for size in (1e9, 2e9, 3e9))
        assert thrice - twice == pytest.approx(twice - once, rel=1e-9)
        assert 4 * net.gather(1e9, group) > net.gather(4e9, group)


def test_arrays_of_groups_are_the_groups_one_by_one():
    net = inside("H100", 8, fabric=ADAPTER, hop=6e-6)
    ranks = np.array([1.0, 2.0, 8.0, 16.0, 512.0])
    for call in (net.all_reduce, net.gather):
        assert call(1e8, net.group(ranks)) == pytest.approx([call(1e8, net.group(float(n))) for n in ranks], rel=1e-12)


def test_the_slowest_hop_sets_the_ring():
    pair, four = (inside("A100", n, link=w).all_reduce(LARGE, Group(n, n)) for n, w in ((2, 300e9), (4, 32e9)))
    assert four > 8 * pair


def test_between_nodes_the_adapter_decides():
    """nccl-tests issue 232: two nodes of one H100, 32 MiB in 812 us."""
    net = inside("H100", 8, fabric=ADAPTER)
    assert net.all_reduce(32 * 2**20, Group(2, 1)) == pytest.approx(812e-6, rel=0.1)
    assert net.all_reduce(LARGE, Group(32, 8)) < net.all_reduce(LARGE, Group(4, 1))
    assert net.send(LARGE, False) == pytest.approx(LARGE / ADAPTER, rel=0.01)


@pytest.mark.parametrize(("local", "seconds"), [(1, 43e-6), (8, 65e-6)])
def test_small_sums_between_nodes_wait_for_no_rendezvous(local, seconds):
    """Two kilobytes on two DGX A100 (Vidur's profile); with the protocol of large messages eight ranks a node would take a third longer."""
    net = inside("A100", local, fabric=0.93 * 25e9, hop=6e-6)
    assert net.all_reduce(2048.0, Group(2 * local, local)) == pytest.approx(seconds, rel=0.12)


def test_many_nodes_sum_in_a_tree():
    """A ring over 1,024 nodes pays 2,046 start-ups, a tree 20."""
    net = inside("H100", 8, fabric=ADAPTER, hop=6e-6)
    begun = start_of(Hardware.get("H100")) * (1 + net.ring.rendezvous)
    assert net.all_reduce(1e4, Group(1024, 1)) == pytest.approx(begun + 20 * (2e4 / ADAPTER + 25e-6), rel=1e-9)


@pytest.mark.parametrize(
    ("chip", "nodes", "message", "seconds"),
    [
        ("H100", 2, 2**30, 4607.6e-6),
        ("H100", 2, 2**34, 66.132e-3),
        ("H200", 16, 2**34, 2 * 127 / 128 * 2**34 / 369.86e9),
        ("B200", 4, 2**30, 5747e-6),
        ("B200", 4, 2**34, 2 * 31 / 32 * 2**34 / 381.8e9),
    ],
)
def test_large_sums_over_nodes_that_no_constant_has_seen(chip, nodes, message, seconds):
    """AWS p5 and p5en (awsome-distributed-training, micro-benchmarks/nccl-tests) and p6-b200 (stas00/ml-engineering), 400 Gbit/s an adapter.

    Two nodes send each half of the message once and are as fast as their switches; a ring alone would take 1.4 times as long."""
    net = inside(chip, 8, fabric=ADAPTER, hop=6e-6)
    assert net.all_reduce(float(message), Group(8 * nodes, 8)) == pytest.approx(seconds, rel=0.1)


def test_a_sum_over_a_large_fleet_has_the_rate_of_the_adapters():
    """Pieces follow each other through the trees: the number of nodes costs start-up, not rate."""
    net, message = inside("H100", 8, fabric=ADAPTER, hop=6e-6), 8e9
    few, many = (2 * message / net.all_reduce(message, Group(8 * nodes, 8)) for nodes in (64, 2048))
    assert 0.75 * few < many < few < 8 * ADAPTER


@given(nodes=st.integers(2, 4096), message=st.floats(1, 1e11))
def test_an_exchange_between_nodes_starts_a_message_to_every_rank_elsewhere(nodes, message):
    net = inside("H100", 8, fabric=ADAPTER, hop=6e-6)
    alone, sent_once = (net.exchange(message, 1.0, Group(8 * nodes, 8), how) for how in (False, True))
    assert alone >= 25e-6 + 8 * (nodes - 1) * 1e-6
    assert sent_once <= alone
    assert net.exchange(message, 1.0, Group(8 * nodes + 8, 8), False) > alone


def test_a_missing_link_raises():
    with pytest.raises(MLSysError, match="link"):
        inside("RTX_4090", 2)
