from __future__ import annotations

import pytest

from mlsysim import Hardware
from mlsysim.hardware import checks
from mlsysim.hardware.types import ComputeCore, HardwareNode, MemoryHierarchy
from mlsysim.zoo.registry import has_sources, run_checks


def planted(compute=None, memory=None, **fields):
    core = {"peak_flops": "100 TFLOPs/s", **(compute or {})}
    ram = {"capacity": "16 GiB", "bandwidth": "1 TB/s", **(memory or {})}
    return HardwareNode(
        **{"name": "bad", "family": "gpu", "compute": ComputeCore(**core), "memory": MemoryHierarchy(**ram), **fields}
    )


def test_nothing_is_wrong_with_any_chip():
    assert [str(problem) for problem in run_checks(Hardware, checks.CHECKS)] == []


def test_a_good_entry_passes_everything_but_its_missing_source():
    assert [check.__name__ for check in checks.CHECKS if check(planted())] == ["has_sources"]


@pytest.mark.parametrize(
    ("check", "chip", "sentence"),
    [
        (has_sources, planted(), "has no source"),
        (
            checks.dense_peaks_are_not_sparse,
            planted(compute={"sparse_flops": {"fp16": "50 TFLOPs/s"}}),
            "dense fp16 peak 100 TFLOPs/s exceeds the sparse peak 50 TFLOPs/s",
        ),
        (
            checks.narrower_is_not_slower,
            planted(compute={"precision_flops": {"fp8": "50 TFLOPs/s"}}),
            "fp8 peak is below fp16 peak",
        ),
        (
            checks.within_limits_of_its_class,
            planted(memory={"bandwidth": "40 TB/s"}),
            "bandwidth 40 TB/s is outside 20 GB/s to 30 TB/s for a gpu",
        ),
        (
            checks.within_limits_of_its_class,
            planted(memory={"capacity": "80 MiB"}),
            "capacity 80 MiB is outside 2 GiB to 600 GiB for a gpu",
        ),
        (checks.within_limits_of_its_class, planted(tdp="700 kW"), "tdp 700 kW is outside 5 W to 2500 W for a gpu"),
        (
            checks.within_limits_of_its_class,
            planted(compute={"peak_flops": "989 PFLOPs/s"}),
            "peak 989 PFLOPs/s is outside 0.1 TFLOPs/s to 20 PFLOPs/s for a gpu",
        ),
        (
            checks.within_limits_of_its_class,
            planted(family="fpga"),
            "family 'fpga' is not one of gpu, tpu, npu, wafer, cpu, soc, mcu",
        ),
        (
            checks.ridge_point_is_sane,
            planted(memory={"bandwidth": "1 GB/s"}),
            "ridge point 1e+05 flop/byte is outside 0.2 to 5000.0",
        ),
        (
            checks.bandwidth_is_width_times_rate,
            planted(memory={"bus_width_bits": 4096, "data_rate": "4 Gbps"}),
            "bandwidth is 0.488 of bus width times data rate",
        ),
        (checks.unknown_is_absent_not_zero, planted(unit_cost="0 USD"), "has a value of zero"),
        (checks.unknown_is_absent_not_zero, planted(embodied_carbon_kg=0), "has a value of zero"),
        (checks.unknown_is_absent_not_zero, planted(memory={"sram_capacity": "0 MiB"}), "has a value of zero"),
    ],
)
def test_each_check_catches_a_planted_mistake(check, chip, sentence):
    assert check in checks.CHECKS
    assert check(chip) == sentence


def test_every_check_has_a_planted_mistake():
    marks = test_each_check_catches_a_planted_mistake.pytestmark
    planted_for = {case[0] for mark in marks for case in mark.args[1]}
    assert planted_for == set(checks.CHECKS)
