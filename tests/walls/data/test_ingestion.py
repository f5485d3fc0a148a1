"""Wall 8: demand for data against the narrowest path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, Hardware, HardwareNode, InputError, UnitError
from mlsysim.show import format_value
from mlsysim.walls.data.ingestion import DataModel

H100 = Hardware.Cloud.H100
RATES = st.floats(1e3, 1e12)


def solve(rate="8 MB/s", hardware=H100, **inputs):
    return DataModel().solve(rate, hardware, **inputs)


def bare(**parts):
    return HardwareNode(
        name="bare",
        compute={"peak_flops": "1 TFLOPs/s"},
        memory={"capacity": "1 GB", "bandwidth": "10 GB/s"},
        **parts,
    )


def test_the_tutorial_as_printed():
    result = DataModel().solve(workload_data_rate=Q_("8 MB/s"), hardware=H100)
    assert format_value(result.demand_bw) == "8.00e-03 GB/s"
    assert format_value(result.supply_bw) == "7 GB/s"
    assert f"{result.utilization:.1%}" == "0.1%"
    assert result.utilization == pytest.approx(0.008 / 7)
    assert result.is_stalled is False
    assert result.bottleneck == "Storage"
    assert result.margin.to("GB/s").magnitude == pytest.approx(6.992)
    assert result.feasible


def test_the_paper_s_resnet_saturates_one_drive_when_eight_gpus_share_it():
    # 42,700 images/s of about 110 kB are 4.7 GB/s: below one drive of 7 GB/s, above one shared with a second node.
    per_gpu = Q_(42_700 * 110e3 / 8, "byte/s")
    assert not solve(per_gpu, accelerators=8).is_stalled
    assert solve(per_gpu, accelerators=16).is_stalled


def test_a_stall_is_infeasible_and_slows_the_step_by_its_utilization():
    result = solve("14 GB/s")
    assert result.is_stalled and not result.feasible
    assert result.utilization == pytest.approx(2.0)
    assert result.slowdown_factor == pytest.approx(2.0)
    assert result.binding.wall == 8
    assert "binds" in result.binding.sentence


def test_exactly_full_is_no_stall():
    assert solve("7 GB/s").is_stalled is False


def test_only_misses_reach_storage():
    assert solve(cache_hit_ratio=0.5).supply_bw.magnitude == pytest.approx(14.0)
    full = solve("20 GB/s", cache_hit_ratio=1.0)
    assert full.bottleneck == "Interconnect"
    assert full.supply_bw.magnitude == pytest.approx(64.0)


def test_amplification_and_sharing_divide_storage_but_not_the_host_link():
    result = solve(read_amplification=2.0, accelerators=4)
    assert result.supply_bw.magnitude == pytest.approx(7 / 8)
    assert result.limits["Interconnect"].magnitude == pytest.approx(64.0)


def test_remote_storage_is_limited_by_the_network():
    result = solve(storage_bandwidth="1 TB/s", nic_bandwidth="400 Gbps", accelerators=8)
    assert result.bottleneck == "Network"
    assert result.supply_bw.magnitude == pytest.approx(50 / 8)


def test_storage_can_be_given_and_then_the_host_link_binds():
    result = solve(storage_bandwidth="100 GB/s")
    assert result.bottleneck == "Interconnect"
    assert "storage_bandwidth" not in result.assumptions


def test_the_chip_s_own_storage_is_echoed():
    assert solve().assumptions["storage_bandwidth"].startswith("7 GB/s")


def test_an_unknown_supply_stays_unknown():
    result = solve(hardware=bare())
    assert result.bottleneck == "Unknown"
    assert result.supply_bw is None and result.utilization is None and result.is_stalled is None
    assert result.margin is None
    assert "give 'storage_bandwidth'" in result.binding.sentence
    assert '"supply_bw": null' in result.to_json()
    assert result.explain()


def test_a_full_cache_on_a_chip_without_host_link_is_unknown_too():
    chip = bare(storage={"bandwidth": "1 GB/s"})
    assert solve(hardware=chip).bottleneck == "Storage"
    assert solve(hardware=chip, cache_hit_ratio=1.0).bottleneck == "Unknown"


def test_no_demand_uses_nothing():
    result = solve("0 MB/s")
    assert result.utilization == 0 and not result.is_stalled


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"rate": "-1 GB/s"}, "negative"),
        ({"cache_hit_ratio": 1.5}, "at most 1"),
        ({"read_amplification": 0.5}, "at least 1"),
        ({"accelerators": 1.5}, "whole number"),
        ({"storage_bandwidth": "0 GB/s"}, "above 0"),
    ],
)
def test_out_of_range_is_one_sentence(inputs, words):
    with pytest.raises(InputError, match=words):
        solve(**inputs)


@pytest.mark.parametrize("rate", [8e6, "8 MB", "8 TFLOPs/s"])
def test_a_rate_needs_its_unit(rate):
    with pytest.raises(UnitError):
        solve(rate)


@given(RATES, RATES, RATES)
def test_more_storage_bandwidth_never_raises_utilization(rate, a, b):
    low, high = sorted((a, b))
    slow = solve(Q_(rate, "byte/s"), storage_bandwidth=Q_(low, "byte/s"))
    fast = solve(Q_(rate, "byte/s"), storage_bandwidth=Q_(high, "byte/s"))
    assert fast.utilization <= slow.utilization


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 64))
def test_more_hits_never_lower_the_supply(a, b, sharers):
    low, high = sorted((a, b))
    assert (
        solve(cache_hit_ratio=low, accelerators=sharers).supply_bw
        <= solve(cache_hit_ratio=high, accelerators=sharers).supply_bw
    )
