"""banner, info and table print as the documents print them, character for character."""

from __future__ import annotations

import pytest

from mlsysim.show import banner, format_value, info, table
from mlsysim.units.registry import Q_


@pytest.fixture
def printed(capsys):
    return lambda: capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Q_("7 GB/s"), "7 GB/s"),
        (Q_(7.0, "GB/s"), "7 GB/s"),
        (Q_("15360000 USD"), "15,360,000 USD"),
        (Q_(525002.3, "EFLOP"), "525,002.3 EFLOP"),
        (Q_(100.04, "ms"), "100.0 ms"),
        (Q_(99.994, "ms"), "99.99 ms"),
        (Q_(83.71, "h"), "83.71 h"),
        (Q_(1.41, "TFLOPs/s"), "1.41 TFLOPs/s"),
        (Q_(0.706, "TB/s"), "0.706 TB/s"),
        (Q_(0.01, "s"), "0.010 s"),
        (Q_(0.0099, "s"), "9.90e-03 s"),
        (Q_("8 MB/s").to("GB/s"), "8.00e-03 GB/s"),
        (Q_(0, "GB"), "0 GB"),
        (Q_(-12.5, "GB"), "-12.50 GB"),
        (Q_(-2000, "GB"), "-2,000 GB"),
        (Q_(3.5), "3.50"),
        (Q_(1e30, "flop"), f"{int(1e30):,} flop"),
        (Q_(float("inf"), "s"), "inf s"),
        (Q_(float("nan"), "s"), "nan s"),
        (1.06, "1.06"),
        (0.5, "0.5000"),
        (0.0, "0.0000"),
        (123.456, "123.5"),
        (1234.5, "1,234.5"),
        (12345678.9, "12,345,679"),
        (-1.5, "-1.50"),
        (False, "False"),
        (8, "8"),
        ("Memory", "Memory"),
        (None, "None"),
    ],
    ids=str,
)
def test_values(value, text):
    assert format_value(value) == text


def test_banner(printed):
    banner("Domain: Node (Walls 1-3)")
    assert printed() == "\n=== Domain: Node (Walls 1-3) ===\n"


def test_info_header_is_44_columns_wide(printed):
    info("Fleet Configuration")
    assert printed() == "── Fleet Configuration ─────────────────────\n"
    info("T" * 60)
    assert printed() == "── " + "T" * 60 + " \n"
    info()
    assert printed() == ""


def test_fleet_configuration(printed):
    info(
        "Fleet Configuration",
        Model=f"Llama-3.1-70B ({Q_(70.6e9, 'param').to('Bparam'):.1f~})",
        Fleet="64 nodes x 8 GPUs = 512 GPUs",
        Intra_node=f"NVLink 4.0 ({Q_('900 GB/s').to('GB/s'):.0f~})",
        Inter_node=f"IB NDR ({Q_('400 Gbps').to('Gbps'):.0f~})",
        Region="Quebec (Hydro)",
    )
    assert printed() == (
        "── Fleet Configuration ─────────────────────\n"
        "Model:       Llama-3.1-70B (70.6 Bparam)\n"
        "Fleet:       64 nodes x 8 GPUs = 512 GPUs\n"
        "Intra node:  NVLink 4.0 (900 GB / s)\n"
        "Inter node:  IB NDR (400 Gbps)\n"
        "Region:      Quebec (Hydro)\n"
    )


def test_node_domain(printed):
    banner("Domain: Node (Walls 1-3)")
    info(
        Bottleneck="Memory",
        Per_GPU_latency=Q_(2.2143, "s").to("ms"),
        Throughput=f"{Q_(1.8, '1/second'):.0f} samples/s",
    )
    assert printed() == (
        "\n=== Domain: Node (Walls 1-3) ===\n"
        "Bottleneck:       Memory\n"
        "Per GPU latency:  2,214.3 ms\n"
        "Throughput:       2 / second samples/s\n"
    )


def test_data_domain(printed):
    banner("Domain: Data (Walls 8-10)")
    info(
        Data_demand=Q_("8 MB/s").to("GB/s"),
        Data_supply=Q_("7 GB/s"),
        Utilization=f"{8 / 7000:.1%}",
        Stalled=False,
        Bottleneck="Storage",
    )
    assert printed() == (
        "\n=== Domain: Data (Walls 8-10) ===\n"
        "Data demand:  8.00e-03 GB/s\n"
        "Data supply:  7 GB/s\n"
        "Utilization:  0.1%\n"
        "Stalled:      False\n"
        "Bottleneck:   Storage\n"
    )


def test_algorithm_domain(printed):
    budget = Q_(512 * 989e12 * 30 * 86400 * 0.4, "flop")
    tokens = budget.to("flop").magnitude / (6 * 70.6e9)
    banner("Domain: Algorithm (Walls 11-13)")
    info(
        Compute_budget=budget.to("EFLOP"),
        Optimal_tokens=f"{tokens:.2e}",
        Tokens_per_parameter=f"{tokens / 70.6e9:.1f}",
        Chinchilla_ratio="UNDER-trained",
    )
    assert printed() == (
        "\n=== Domain: Algorithm (Walls 11-13) ===\n"
        "Compute budget:        525,002.3 EFLOP\n"
        "Optimal tokens:        1.24e+12\n"
        "Tokens per parameter:  17.6\n"
        "Chinchilla ratio:      UNDER-trained\n"
    )


def test_fleet_domain(printed):
    info(
        Scaling_efficiency="98.19%",
        Step_latency=Q_(6.7653, "s").to("ms"),
        DP_comm_latency=Q_(0.6865, "s").to("ms"),
        TP_comm_latency=Q_(0.01961, "s").to("ms"),
        Bubble_fraction="0.00%",
    )
    info(
        Fleet_MTBF=Q_(83.71 * 3600, "s").to("hour"),
        Failure_probability="99.98%",
        Expected_failures="8.6",
        Optimal_ckpt_interval=Q_(141.74 * 60, "s").to("minute"),
    )
    assert printed() == (
        "Scaling efficiency:  98.19%\n"
        "Step latency:        6,765.3 ms\n"
        "DP comm latency:     686.5 ms\n"
        "TP comm latency:     19.61 ms\n"
        "Bubble fraction:     0.00%\n"
        "Fleet MTBF:             83.71 h\n"
        "Failure probability:    99.98%\n"
        "Expected failures:      8.6\n"
        "Optimal ckpt interval:  141.7 min\n"
    )


def test_operations_domain(printed):
    info(CapEx="$15,360,000", OpEx_energy="$19,038", OpEx_maintenance="$63,123", Total_TCO="$15,442,161")
    info(
        IT_Energy=Q_(149692, "kWh").to("MWh"),
        Total_Energy_PUE=Q_(158_632, "kWh").to("MWh"),
        Carbon_footprint="3173 kg CO2",
        Water_usage="0 liters",
        PUE=1.06,
        Region="Quebec (Hydro)",
    )
    assert printed() == (
        "CapEx:             $15,360,000\n"
        "OpEx energy:       $19,038\n"
        "OpEx maintenance:  $63,123\n"
        "Total TCO:         $15,442,161\n"
        "IT Energy:         149.7 MWh\n"
        "Total Energy PUE:  158.6 MWh\n"
        "Carbon footprint:  3173 kg CO2\n"
        "Water usage:       0 liters\n"
        "PUE:               1.06\n"
        "Region:            Quebec (Hydro)\n"
    )


def test_analysis_domain(printed):
    info(Binding_constraint="peak_flops")
    table(
        ["Parameter", "Sensitivity"],
        [[name, f"{0.0:+.4f}"] for name in ("peak_flops", "memory_bandwidth", "memory_capacity")],
    )
    info(
        "Synthesis (200ms per-GPU training step target)",
        Required_BW=Q_(706e9, "byte/s").to("TB/s"),
        Required_FLOPS=Q_(1.412e12, "flop/s").to("TFLOPs/s"),
        Required_memory=Q_(141.2e9, "byte").to("GB"),
    )
    assert printed() == (
        "Binding constraint:  peak_flops\n"
        "Parameter         Sensitivity\n"
        "─────────────────────────────\n"
        "peak_flops            +0.0000\n"
        "memory_bandwidth      +0.0000\n"
        "memory_capacity       +0.0000\n"
        "── Synthesis (200ms per-GPU training step target) \n"
        "Required BW:      0.706 TB/s\n"
        "Required FLOPS:   1.41 TFLOPs/s\n"
        "Required memory:  141.2 GB\n"
    )


def test_summary_table(printed):
    rows = [
        ["Node", "SingleNodeModel", "Bottleneck: Memory", "Wall 1: Compute"],
        ["Data", "DataModel", "Util: 0%", "Not binding"],
        ["Algorithm", "ScalingModel", "Tok/param: 18", "Wall 11"],
        ["Fleet", "DistributedModel", "Efficiency: 98%", "Wall 14: Comm"],
        ["Fleet", "ReliabilityModel", "MTBF: 84h", "Wall 19: Ckpt"],
        ["Ops", "EconomicsModel", "TCO: $15,442,161", "Wall 17: Cost"],
        ["Ops", "SustainabilityModel", "CO2: 3173 kg", "Wall 18: Energy"],
        ["Analysis", "SensitivitySolver", "Binding: peak_flops", "Wall 21"],
    ]
    table(["Domain", "Solver", "Key Metric", "Binding Wall"], rows, "<<>>")
    assert printed() == (
        "Domain     Solver                        Key Metric     Binding Wall\n"
        "────────────────────────────────────────────────────────────────────\n"
        "Node       SingleNodeModel       Bottleneck: Memory  Wall 1: Compute\n"
        "Data       DataModel                       Util: 0%      Not binding\n"
        "Algorithm  ScalingModel               Tok/param: 18          Wall 11\n"
        "Fleet      DistributedModel         Efficiency: 98%    Wall 14: Comm\n"
        "Fleet      ReliabilityModel               MTBF: 84h    Wall 19: Ckpt\n"
        "Ops        EconomicsModel          TCO: $15,442,161    Wall 17: Cost\n"
        "Ops        SustainabilityModel         CO2: 3173 kg  Wall 18: Energy\n"
        "Analysis   SensitivitySolver    Binding: peak_flops          Wall 21\n"
    )


def test_alignment_is_padded_and_an_empty_table_has_a_head(printed):
    table(["A", "B", "C"], [[1, 22, 333]], "<<")
    assert printed() == "A  B     C\n──────────\n1  22  333\n"
    table(["A", "Bee"], [])
    assert printed() == "A  Bee\n──────\n"
    table(["Name", "Rate"], [["x", Q_("8 MB/s").to("GB/s")]])
    assert printed() == "Name           Rate\n───────────────────\nx     8.00e-03 GB/s\n"


@pytest.mark.parametrize("rows", [[["a"]], [["a", 1, 2]]])
def test_ragged_rows_are_refused(rows):
    with pytest.raises(ValueError, match=r"row 1 has [13] cells, but the table has 2 columns"):
        table(["A", "B"], rows)
