from __future__ import annotations

import warnings

import pytest

from mlsysim import Q_, DataWarning, Hardware, InputError, UnknownNameError
from mlsysim.hardware import types as hardware_types
from mlsysim.hardware.types import (
    ChipLink,
    ComputeCore,
    HardwareNode,
    IOInterconnect,
    MemoryHierarchy,
    StorageHierarchy,
)


def chip(**fields):
    core = ComputeCore(peak_flops="100 TFLOPs/s", precision_flops={"fp8": "200 TFLOPs/s"})
    memory = MemoryHierarchy(capacity="16 GiB", bandwidth="1 TB/s")
    return HardwareNode(**{"name": "mine", "compute": core, "memory": memory, **fields})


LISTING_2 = """
from mlsysim.hardware.types import *
from mlsysim.core.constants import Q_
node = HardwareNode(
    name="Custom Accelerator",
    release_year=2025,
    compute=ComputeCore(
        peak_flops=Q_("500 TFLOPs/s"),
        precision_flops={"fp8": Q_("1000 TFLOPs/s")
    }
    ),
    memory=MemoryHierarchy(
        capacity=Q_("96 GiB"),
        bandwidth=Q_("4 TB/s"),
        tdp=Q_("500 W")))
"""


def test_listing_2_of_the_paper_runs_and_adopts_the_stray_power():
    scope: dict[str, object] = {}
    with pytest.warns(DataWarning, match="MemoryHierarchy got 'tdp', which belongs to HardwareNode") as caught:
        exec(LISTING_2, scope)
    assert len(caught) == 1
    node = scope["node"]
    assert node.tdp.to("W").magnitude == 500
    assert node.ridge_point().to("flop/byte").magnitude == 125
    assert f"{node.ridge_point():.0f~P}" == "125 flop/B"
    assert node.ridge_point("fp8").to("flop/byte").magnitude == 250


def test_a_power_in_its_own_place_wins_over_a_stray_one():
    with pytest.warns(DataWarning):
        memory = MemoryHierarchy(capacity="96 GiB", bandwidth="4 TB/s", tdp="500 W")
    assert chip(memory=memory, tdp="450 W").tdp.to("W").magnitude == 450
    with pytest.raises(InputError, match="The 'tdp' field got 500 GB"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        MemoryHierarchy(capacity="96 GiB", bandwidth="4 TB/s", tdp="500 GB")


def test_star_import_brings_the_types_of_the_paper():
    assert {"HardwareNode", "ComputeCore", "MemoryHierarchy", "StorageHierarchy", "IOInterconnect"} <= set(
        hardware_types.__all__
    )


def test_what_is_not_given_is_unknown():
    node = chip()
    for field in (
        "release_year",
        "storage",
        "interconnect",
        "link",
        "tdp",
        "battery_capacity",
        "unit_cost",
        "embodied_carbon_kg",
        "reliability",
    ):
        assert getattr(node, field) is None
    assert node.dispatch_tax.to("ms").magnitude == pytest.approx(0.01)
    assert node.metadata.sources == ()
    assert node.embodied_carbon is None


def test_flat_names():
    node = chip(tdp="250 W")
    assert node.peak_flops == Q_("100 TFLOPs/s")
    assert node.memory_bw == Q_("1 TB/s")
    assert node.memory_capacity == node.ram == Q_("16 GiB")
    assert node.power_budget == Q_("250 W")
    assert chip(embodied_carbon_kg=164).embodied_carbon == Q_("164 kgCO2e")


def test_all_parts_take_strings():
    node = chip(
        storage=StorageHierarchy(capacity="2 TB", bandwidth="7 GB/s", latency="100 us"),
        interconnect=IOInterconnect(name="PCIe", bandwidth="64 GB/s"),
        link=ChipLink(name="NVLink", bandwidth_total="900 GB/s", bandwidth_per_direction="450 GB/s"),
        battery_capacity="12.7 Wh",
        unit_cost="30000 USD",
    )
    assert node.storage.latency.to("s").magnitude == pytest.approx(1e-4)
    assert node.battery_capacity.to("J").magnitude == pytest.approx(12.7 * 3600)


def test_peaks_by_precision():
    core = chip().compute
    assert core.peak("fp16") == Q_("100 TFLOPs/s")
    assert core.peak("float8") == core.peak("e4m3") == Q_("200 TFLOPs/s")
    assert core.supports("fp8")
    assert not core.supports("fp4")
    assert Hardware.B200.compute.peak("nvfp4") == Hardware.B200.compute.peak("fp4")


def test_arithmetic_that_a_chip_lacks_is_refused_with_what_it_has():
    with pytest.raises(
        UnknownNameError, match=r"no fp4 arithmetic on this chip.*'fp4'; its peaks are given for fp16, fp8\.$"
    ):
        chip().compute.peak("fp4")
    with pytest.raises(UnknownNameError, match="There is no precision named 'fp7'"):
        chip().compute.peak("fp7")
    with pytest.raises(InputError, match="There is no precision named 'fp99'"):
        ComputeCore(peak_flops="1 TFLOPs/s", precision_flops={"fp99": "1 TFLOPs/s"})


def test_a_rate_of_zero_is_refused():
    with pytest.raises(
        InputError, match=r"^MemoryHierarchy: The 'bandwidth' field got 0 GB/s, which is zero; expected"
    ):
        MemoryHierarchy(capacity="1 GiB", bandwidth="0 GB/s")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"capacity": 80, "bandwidth": "1 TB/s"},
            r"The 'capacity' field got 80, which has no unit; write its unit too, such as '80 GiB'\.",
        ),
        (
            {"capacity": "80 GiB", "bandwidth": "1 TB"},
            r"The 'bandwidth' field got 1 TB, which is no bandwidth; expected a bandwidth",
        ),
        ({"capacity": "80 GiB"}, r"^MemoryHierarchy needs the 'bandwidth' field, which was not given\.$"),
        ({"capacity": "80 GiB", "bandwith": "1 TB/s"}, r"MemoryHierarchy"),
    ],
)
def test_bad_fields_are_refused_in_one_sentence(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        MemoryHierarchy(**fields)


@pytest.mark.parametrize("key", Hardware.keys())
def test_every_chip_survives_json(key):
    entry = Hardware[key]
    assert HardwareNode.model_validate_json(entry.model_dump_json()) == entry
