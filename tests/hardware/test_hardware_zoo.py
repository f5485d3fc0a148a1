from __future__ import annotations

import pytest

from mlsysim import Q_, Hardware, HardwareNode, InputError, UnknownNameError
from mlsysim.hardware.registry import build

REQUIRED = {
    "Cloud": """
        K80 P100 V100_16GB V100_32GB V100_PCIe_16GB V100_PCIe_32GB T4 A10 A30 A40
        A100 A100_40GB A100_PCIe_40GB A100_PCIe_80GB H100 H100_PCIe H100_NVL H800 H20 H200 H200_NVL
        GH200_96GB GH200_144GB B200 B300 GB200 GB300 L4 L40S
        MI100 MI250X MI300X MI325X MI355X TPU_v1 TPU_v2 TPU_v3 TPU_v4 TPU_v5e TPU_v5p TPU_v6e TPU_v7
        Trainium1 Trainium2 Trainium3 Inferentia2 Gaudi2 Gaudi3 Max_1550
        Cerebras_CS2 Cerebras_CS3 Groq_LPU Graphcore_GC200 SambaNova_SN40L Tenstorrent_Wormhole_n300 dMatrix_Corsair
        Xeon_6787P Xeon_6980P EPYC_9654 Grace_CPU
    """,
    "Workstation": """
        RTX_2080Ti RTX_3070 RTX_3080 RTX_3080Ti RTX_3090 RTX_4070Ti RTX_4080 RTX_4090 RTX_5090 RTX_A6000
        RTX_4000_Ada RTX_5000_Ada RTX_6000_Ada RTX_PRO_6000_Server RTX_PRO_6000_MaxQ DGX_Spark
        Radeon_RX_7900_XTX Arc_Pro_B60 Arc_B580 Core_i7_12700H Core_i9_10940X
        Apple_M1 Apple_M1_Pro Apple_M1_Max Apple_M1_Ultra Apple_M2 Apple_M2_Pro Apple_M2_Max Apple_M2_Ultra
        Apple_M3 Apple_M3_Pro Apple_M3_Max Apple_M3_Ultra Apple_M4 Apple_M4_Pro Apple_M4_Max
    """,
    "Mobile": "iPhone_15_Pro iPhone_16_Pro Pixel_8 Snapdragon_8_Gen_3 Snapdragon_8_Elite",
    "Edge": "Jetson_Orin_Nano Jetson_Orin_NX_16GB Jetson_AGX_Orin_64GB Jetson_AGX_Thor Coral RaspberryPi_5",
    "Tiny": """
        ESP32_S3 nRF52840 STM32_L4R5 STM32_H7A3 STM32_U575 STM32_F746 Himax_WE_I_Plus Syntiant_NDP120 RP2040
    """,
}


def peak(chip, precision):
    return Hardware[chip].compute.peak(precision).to("TFLOPs/s").magnitude


def test_there_are_enough():
    assert len(Hardware) >= 110
    assert sum(len(getattr(Hardware, space)) for space in REQUIRED) == len(Hardware)


@pytest.mark.parametrize(("space", "name"), [(s, n) for s, names in REQUIRED.items() for n in names.split()])
def test_required_chips_are_there_in_their_namespace_and_flat(space, name):
    entry = getattr(getattr(Hardware, space), name)
    assert isinstance(entry, HardwareNode)
    assert getattr(Hardware, name) is entry
    assert name in dir(getattr(Hardware, space))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CerebrasCS3", "Cerebras_CS3"),
        ("CerebrasCS2", "Cerebras_CS2"),
        ("A100_80GB", "A100"),
        ("H100_SXM", "H100"),
        ("V100", "V100_16GB"),
        ("Jetson_AGX_Orin", "Jetson_AGX_Orin_64GB"),
        ("Jetson_Orin_NX", "Jetson_Orin_NX_16GB"),
        ("TPUv4", "TPU_v4"),
        ("GH200", "GH200_96GB"),
        ("ESP32-S3", "ESP32_S3"),
        ("RTX 4090", "RTX_4090"),
        ("iPhone15Pro", "iPhone_15_Pro"),
    ],
)
def test_both_spellings(one, other):
    assert Hardware[one] is Hardware[other]


def test_both_spellings_as_attributes_of_a_namespace():
    assert Hardware.Cloud.CerebrasCS3 is Hardware.Cloud.Cerebras_CS3
    assert Hardware.Cloud.CerebrasCS3.memory.capacity == Q_("44 GB")
    assert Hardware.Tiny.ESP32_S3.memory.capacity == Q_("512 KiB")


def test_a_chip_of_another_namespace_is_not_found():
    with pytest.raises(UnknownNameError, match="There is no hardware named 'H100'"):
        Hardware.Tiny.H100


def test_h100_has_what_the_documents_need():
    h100 = Hardware.Cloud.H100
    assert h100.memory.capacity == Q_("80 GiB")
    assert h100.memory.bandwidth == Q_("3.35 TB/s")
    assert h100.compute.peak_flops == Q_("989 TFLOPs/s")
    assert h100.storage.bandwidth == Q_("7 GB/s")
    assert h100.interconnect.bandwidth == Q_("64 GB/s")
    assert h100.tdp == Q_("700 W")
    assert h100.unit_cost == Q_("30000 USD")
    assert h100.ridge_point().to("flop/byte").magnitude == pytest.approx(295.2, abs=0.05)
    assert h100.metadata.source_of("unit_cost").kind == "seed"


def test_prices_that_the_documents_use():
    assert Hardware.A100.unit_cost == Q_("15000 USD")
    assert Hardware.B200.unit_cost == Q_("40000 USD")


def test_h200_and_b200_memory_as_sold():
    assert Hardware.H200.memory.capacity == Q_("141 GB")
    assert Hardware.B200.memory.capacity == Q_("180 GB")


def test_gaudi_3_is_as_fast_in_8_bits_as_in_16():
    assert peak("Gaudi3", "fp8") == peak("Gaudi3", "bf16") == 1835


def test_trainium_2():
    assert peak("Trainium2", "bf16") == 667


def test_dgx_spark_memory_bandwidth():
    assert Hardware.DGX_Spark.memory.bandwidth == Q_("273 GB/s")


def test_gb200_is_dense():
    assert peak("GB200", "bf16") == 2500
    assert 72 * peak("GB200", "bf16") == 180_000


@pytest.mark.parametrize("name", ["iPhone_15_Pro", "iPhone_16_Pro"])
def test_the_neural_engine_of_an_iphone_is_rated_in_8_bit_operations(name):
    assert Hardware[name].compute.headline == "int8"
    assert peak(name, "int8") == 35
    assert not Hardware[name].compute.supports("fp16") or peak(name, "fp16") < 5


@pytest.mark.parametrize(
    ("name", "precision", "dense", "sparse"),
    [
        ("Jetson_AGX_Orin_64GB", "int8", 137.5, 275),
        ("Jetson_Orin_NX_16GB", "int8", 50, 100),
        ("Jetson_Orin_Nano", "int8", 33.5, 67),
        ("Jetson_AGX_Thor", "fp4", 1035, 2070),
    ],
)
def test_jetson_peaks_are_dense(name, precision, dense, sparse):
    assert peak(name, precision) == dense
    assert Hardware[name].compute.sparse_flops[precision].to("TFLOPs/s").magnitude == sparse


def test_nrf52840_ram_is_not_its_flash():
    memory = Hardware.nRF52840.memory
    assert memory.capacity == Q_("256 KiB")
    assert memory.flash_capacity == Q_("1 MiB")


@pytest.mark.parametrize(
    ("name", "precision", "dense"),
    [
        ("A100", "fp16", 312),
        ("H100", "fp8", 1979),
        ("B200", "fp4", 9000),
        ("MI300X", "fp16", 1307.4),
        ("TPU_v4", "bf16", 275),
        ("TPU_v5p", "bf16", 459),
        ("RTX_4090", "fp16", 165.2),
        ("L40S", "fp16", 362.05),
        ("V100_16GB", "fp16", 125),
    ],
)
def test_dense_peaks_of_datasheets(name, precision, dense):
    assert peak(name, precision) == pytest.approx(dense, rel=1e-3)


@pytest.mark.parametrize("name", ["A100", "H100", "H200", "B200"])
def test_sparse_peaks_are_kept_apart(name):
    core = Hardware[name].compute
    assert core.sparse_flops["fp16"].magnitude == pytest.approx(2 * core.peak("fp16").magnitude, rel=0.01)


def test_sorting_compares_quantities_and_not_numbers():
    order = Hardware.list(sort_by="memory.bandwidth")
    rates = [chip.memory.bandwidth.to("byte/s").magnitude for chip in order]
    assert rates == sorted(rates)
    assert order[-1] is Hardware.Cerebras_CS3


def test_entries_say_where_they_come_from():
    for chip in Hardware:
        assert chip.metadata.source_url.startswith("http")
        assert len(chip.metadata.last_verified) == 10


def test_a_headline_without_a_peak_is_refused():
    source = {"title": "t", "url": "https://example.org", "checked": "2026-01-01", "kind": "datasheet"}
    table = {"name": "x", "compute": {"fp32": "1 TFLOPs/s"}, "memory": {"capacity": "1 GiB", "bandwidth": "1 GB/s"}}
    with pytest.raises(InputError, match=r"^the headline precision 'fp16' has no peak\.$"):
        build("X", {**table, "source": source})
    with pytest.raises(InputError, match=r"^entry 'X' has no 'source'\.$"):
        build("X", table)
