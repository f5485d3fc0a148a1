"""The tutorial's code, run as it stands, and every line that it prints.

Lines marked STABLE are the tutorial's own, character by character. The others were wrong there; they are derived here from
first principles with plain arithmetic, so that an error in the package cannot repeat itself in the expectation.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

CODE = (Path(__file__).parent / "tutorial_code.txt").read_text(encoding="utf-8")

STABLE = """\
── Fleet Configuration ─────────────────────
Model:       Llama-3.1-70B (70.6 Bparam)
Fleet:       64 nodes x 8 GPUs = 512 GPUs
Intra node:  NVLink 4.0 (900 GB / s)
Inter node:  IB NDR (400 Gbps)
Region:      Quebec (Hydro)

=== Domain: Node (Walls 1-3) ===
Bottleneck:       Memory
Per GPU latency:  {latency}
Throughput:       {throughput}

=== Domain: Data (Walls 8-10) ===
Data demand:  8.00e-03 GB/s
Data supply:  7 GB/s
Utilization:  0.1%
Stalled:      False
Bottleneck:   Storage

=== Domain: Algorithm (Walls 11-13) ===
Compute budget:        525,002.3 EFLOP
Optimal tokens:        1.24e+12
Tokens per parameter:  17.6
Chinchilla ratio:      UNDER-trained

=== Domain: Fleet (Walls 14-16) ===
Scaling efficiency:  {efficiency}
Step latency:        {step}
DP comm latency:     {dp}
TP comm latency:     {tp}
Bubble fraction:     0.00%
Fleet MTBF:             83.71 h
Failure probability:    99.98%
Expected failures:      8.6
Optimal ckpt interval:  141.7 min

=== Domain: Ops (Walls 17-20) ===
CapEx:             {capex}
OpEx energy:       $19,038
OpEx maintenance:  $63,123
Total TCO:         {tco}
IT Energy:         149.7 MWh
Total Energy PUE:  158.6 MWh
Carbon footprint:  3173 kg CO2
Water usage:       0 liters
PUE:               1.06
Region:            Quebec (Hydro)

=== Domain: Analysis (Walls 21-22) ===
Binding constraint:  {binding}
Parameter         Sensitivity
─────────────────────────────
peak_flops            {to_flops}
memory_bandwidth      {to_bandwidth}
memory_capacity       {to_capacity}
── Synthesis (200ms per-GPU training step target) {end}
Required BW:      0.706 TB/s
Required FLOPS:   1.41 TFLOPs/s
Required memory:  141.2 GB
Domain     Solver                             Key Metric     Binding Wall
─────────────────────────────────────────────────────────────────────────
Node       SingleNodeModel            Bottleneck: Memory  Wall 1: Compute
Data       DataModel                            Util: 0%      Not binding
Algorithm  ScalingModel                    Tok/param: 18          Wall 11
Fleet      DistributedModel              {efficiency_row}    Wall 14: Comm
Fleet      ReliabilityModel                    MTBF: 84h    Wall 19: Ckpt
Ops        EconomicsModel                  {tco_row}    Wall 17: Cost
Ops        SustainabilityModel              CO2: 3173 kg  Wall 18: Energy
Analysis   SensitivitySolver    {binding_row}          Wall 21
"""

# What the tutorial states of its model and machines; nothing here comes from the package.
PARAMETERS, LAYERS, HIDDEN, BYTES = 70.6e9, 80, 8192, 2
PEAK, ETA = 989e12, 0.5
CAPACITY, BANDWIDTH, HOST_LINK, DISPATCH = 80 * 2**30, 3.35e12, 64e9, 1e-5
GPUS, TP, DP, BATCH, SEQUENCE = 512, 8, 64, 2048, 2048
NVLINK_ONE_WAY, NVLINK_START = 450e9, 0.5e-6
FABRIC, FABRIC_START = 50e9, 5e-6
PRICE, LIFE_DAYS, RUN_DAYS = 30_000, 3 * 365, 30


def spilled_pass() -> dict[str, float]:
    """One decode token on a GPU that holds 85.9 of the 141.2 GB: the rest crosses the host link."""
    weights = PARAMETERS * BYTES
    resident = CAPACITY / BANDWIDTH
    streamed = (weights - CAPACITY) / HOST_LINK
    total = resident + streamed + DISPATCH
    return {
        "latency": total,
        # d ln T / d ln BW: only the resident part feels the memory's bandwidth.
        "to_bandwidth": -resident / total,
        # d ln T / d ln C: a byte more on the chip is read at BANDWIDTH in place of HOST_LINK.
        "to_capacity": -CAPACITY * (1 / HOST_LINK - 1 / BANDWIDTH) / total,
        "compute": 4 * 2 * PARAMETERS / (PEAK * ETA),
    }


def ring(message: float, ranks: int, bandwidth: float, start: float) -> float:
    """Reduce-scatter and all-gather: N - 1 steps each, a message of M/N in every step."""
    return 2 * (ranks - 1) * (message / ranks / bandwidth + start)


def training_step() -> dict[str, float]:
    """TP 8 inside the node, DP 64 between nodes, one micro-batch of 32 sequences for each replica."""
    tokens = BATCH * SEQUENCE
    dense = 6 * PARAMETERS * tokens
    # Scores and values: 2 x 2 h operations a pair of tokens and layer, S (S + 1) / 2 pairs under the causal mask; three
    # times as many for training.
    attention = 3 * LAYERS * 4 * HIDDEN * BATCH * SEQUENCE * (SEQUENCE + 1) / 2
    compute = (dense + attention) / (GPUS * PEAK * ETA)
    activations = BATCH / DP * SEQUENCE * HIDDEN * BYTES
    # Two all-reduces forward and two backward in every layer.
    tensor = LAYERS * 4 * ring(activations, TP, NVLINK_ONE_WAY, NVLINK_START)
    gradients = PARAMETERS * BYTES / TP
    data = ring(gradients, DP, FABRIC, FABRIC_START)
    step = compute + tensor + (1 - 0.85) * data
    return {"compute": compute, "tp": tensor, "dp": data, "step": step, "efficiency": compute / step}


def cost() -> dict[str, float]:
    """Three years linear; 5 % maintenance a year; electricity at 0.12 USD/kWh behind a PUE of 1.06."""
    purchase = GPUS * PRICE
    capex = purchase * RUN_DAYS / LIFE_DAYS
    maintenance = 0.05 * purchase * RUN_DAYS / 365
    energy = GPUS * 0.7 * (0.3 + 0.7 * 0.4) * RUN_DAYS * 24 * 1.06 * 0.12
    return {
        "capex": capex,
        "tco": capex + maintenance + energy,
        "purchase": purchase,
        "maintenance": maintenance,
        "energy": energy,
    }


def expected() -> list[str]:
    single, fleet, money = spilled_pass(), training_step(), cost()
    efficiency, tco, binding = fleet["efficiency"], money["tco"], "memory_capacity"
    text = STABLE.format(
        latency=f"{single['latency'] * 1e3:.1f} ms",
        throughput=f"{4 / single['latency']:.0f} / second samples/s",
        efficiency=f"{efficiency:.2%}",
        step=f"{fleet['step'] * 1e3:,.1f} ms",
        dp=f"{fleet['dp'] * 1e3:,.1f} ms",
        tp=f"{fleet['tp'] * 1e3:,.1f} ms",
        capex=f"${money['capex']:,.0f}",
        tco=f"${tco:,.0f}",
        binding=binding,
        to_flops=f"{0.0:+.4f}",
        to_bandwidth=f"{single['to_bandwidth']:+.4f}",
        to_capacity=f"{single['to_capacity']:+.4f}",
        end="",
        efficiency_row=f"Efficiency: {efficiency:.0%}",
        tco_row=f"TCO: ${tco:,.0f}",
        binding_row=f"Binding: {binding}",
    )
    return text.splitlines()


@pytest.fixture(scope="module")
def run() -> tuple[list[str], dict[str, Any]]:
    """The lines that the code prints, and its variables."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(CODE, "tutorial_code.txt", "exec"), names)
    return printed.getvalue().splitlines(), names


@pytest.mark.parametrize("number", range(len(STABLE.splitlines())), ids=lambda n: f"line {n + 1}")
def test_line(run: tuple[list[str], dict[str, Any]], number: int) -> None:
    assert run[0][number] == expected()[number]


def test_nothing_else_is_printed(run: tuple[list[str], dict[str, Any]]) -> None:
    assert len(run[0]) == len(expected())


def test_the_derivations_give_the_published_corrections() -> None:
    """The figures that the documentation of departures names."""
    single, fleet, money = spilled_pass(), training_step(), cost()
    assert f"{single['latency'] * 1e3:.1f}" == "889.7"
    assert f"{fleet['step'] * 1e3:,.1f}" == "8,593.7"
    assert f"{fleet['efficiency']:.2%}" == "83.21%"
    assert f"{fleet['dp'] * 1e3:.1f}" == "695.6"
    assert f"{fleet['tp'] * 1e3:,.1f}" == "1,338.5"
    assert f"{money['capex']:,.0f}" == "420,822"
    assert f"{money['tco']:,.0f}" == "502,983"
    assert money["purchase"] == 15_360_000
    assert f"{single['to_bandwidth']:.4f} {single['to_capacity']:.4f}" == "-0.0288 -1.4797"


def test_numbers_behind_the_lines_agree_with_the_derivations(run: tuple[list[str], dict[str, Any]]) -> None:
    """To more digits than are printed. A decode token also writes its keys and values: 1e-5 of the bytes."""
    names = run[1]
    single, fleet, money = spilled_pass(), training_step(), cost()
    assert names["node_result"].latency.to("s").magnitude == pytest.approx(single["latency"], rel=5e-5)
    assert names["node_result"].latency_compute.to("s").magnitude == pytest.approx(single["compute"], rel=1e-12)
    step = names["dist_result"]
    assert step.compute_latency.to("s").magnitude == pytest.approx(fleet["compute"], rel=1e-12)
    assert step.tp_communication_latency.to("s").magnitude == pytest.approx(fleet["tp"], rel=1e-12)
    assert step.dp_communication_latency.to("s").magnitude == pytest.approx(fleet["dp"], rel=1e-12)
    assert step.step_latency_total.to("s").magnitude == pytest.approx(fleet["step"], rel=1e-12)
    assert step.scaling_efficiency == pytest.approx(fleet["efficiency"], rel=1e-12)
    economics = names["econ_result"]
    assert economics.capex_usd == pytest.approx(money["capex"], rel=1e-12)
    assert economics.purchase_price_usd == pytest.approx(money["purchase"], rel=1e-12)
    assert economics.opex_maintenance_usd == pytest.approx(money["maintenance"], rel=1e-12)
    assert economics.opex_energy_usd == pytest.approx(money["energy"], rel=1e-12)
    assert economics.tco_usd == pytest.approx(money["tco"], rel=1e-12)
    sensitivities = names["sens_result"].sensitivities
    assert sensitivities["peak_flops"] == 0
    assert sensitivities["memory_bandwidth"] == pytest.approx(single["to_bandwidth"], abs=2e-5)
    assert sensitivities["memory_capacity"] == pytest.approx(single["to_capacity"], abs=5e-5)


def test_stable_values_follow_from_what_the_tutorial_states(run: tuple[list[str], dict[str, Any]]) -> None:
    names = run[1]
    mtbf = 1 / (8 / 50_000 + 1 / 150_000 + 2 / 100_000) / 64
    reliability = names["rel_result"]
    assert reliability.fleet_mtbf.to("hour").magnitude == pytest.approx(mtbf, rel=1e-12)
    assert reliability.failure_probability == pytest.approx(1 - math.exp(-720 / mtbf), rel=1e-12)
    assert reliability.expected_failures == pytest.approx(720 / mtbf, rel=1e-12)
    interval = math.sqrt(2 * 120 * mtbf * 3600)
    assert reliability.optimal_checkpoint_interval.to("s").magnitude == pytest.approx(interval, rel=1e-12)
    budget = GPUS * PEAK * 30 * 86400 * 0.4
    scaling = names["scaling_result"]
    assert scaling.optimal_tokens.magnitude == pytest.approx(budget / (6 * PARAMETERS), rel=1e-12)
    energy = GPUS * 0.7 * (0.3 + 0.7 * 0.4) * 720
    sustainability = names["sust_result"]
    assert sustainability.it_energy_kwh.to("kWh").magnitude == pytest.approx(energy, rel=1e-12)
    assert sustainability.carbon_footprint_kg == pytest.approx(energy * 1.06 * 0.020, rel=1e-12)
    synthesis = names["synth_result"]
    assert synthesis.required_bw.to("byte/s").magnitude == pytest.approx(PARAMETERS * BYTES / 0.2, rel=1e-12)
    assert synthesis.required_flops.to("flop/s").magnitude == pytest.approx(2 * PARAMETERS / (0.2 * ETA), rel=1e-12)
    assert synthesis.required_memory.to("byte").magnitude == pytest.approx(PARAMETERS * BYTES, rel=1e-12)


def test_what_the_tutorial_does_not_say_is_said(run: tuple[list[str], dict[str, Any]]) -> None:
    """One GPU does not hold the model, and neither do 512 without ZeRO; both answers name the wall and a remedy."""
    names = run[1]
    assert not names["node_result"].feasible
    assert names["node_result"].binding.wall == 2
    assert not names["sens_result"].feasible
    step = names["dist_result"]
    assert not step.feasible and step.binding.wall == 2
    state = PARAMETERS * 16 / TP
    parts = step.memory_breakdown
    held = sum(parts[name].to("byte").magnitude for name in ("weights", "gradients", "optimizer_state"))
    assert held == pytest.approx(state, rel=1e-12)
    assert "zero_stage" in step.remedies[0]


def test_the_run_in_poland(run: tuple[list[str], dict[str, Any]]) -> None:
    """Exercise 1: at one price of electricity, the costs differ by 1.9 % and carbon by 61 times (41 by intensity alone)."""
    names = run[1]
    grids = names["Grids"]
    money = names["EconomicsModel"]().solve(fleet=names["fleet"], duration_days=30, grid=grids.Poland, mfu=0.4)
    air = names["SustainabilityModel"]().solve(fleet=names["fleet"], duration_days=30, datacenter="Poland", mfu=0.4)
    extra = money.tco_usd / names["econ_result"].tco_usd - 1
    assert extra == pytest.approx(cost()["energy"] * (1.58 / 1.06 - 1) / cost()["tco"], rel=1e-9)
    assert f"{extra:.1%}" == "1.9%"
    times = air.carbon_footprint_kg / names["sust_result"].carbon_footprint_kg
    assert times == pytest.approx(820 * 1.58 / (20 * 1.06), rel=1e-9)
    assert round(times) == 61


def test_the_self_check() -> None:
    """MTBF 4 h, 2 min a write: an interval of 1,859 s, of which writes are 6.5 %, and as much again is done twice."""
    from mlsysim import Hardware
    from mlsysim.core.formulas import calc_young_daly_interval
    from mlsysim.systems.types import Fleet, NetworkFabric, Node

    interval = calc_young_daly_interval("2 min", "4 h").to("s").magnitude
    assert interval == pytest.approx(math.sqrt(2 * 120 * 14_400))
    assert round(interval) == 1859
    from mlsysim import ReliabilityModel

    node = Node(name="n", accelerator=Hardware.H100, accelerators_per_node=8, intra_node_bw="900 GB/s")
    fleet = Fleet(name="f", node=node, count=8, fabric=NetworkFabric(name="x", bandwidth="400 Gbps"), mtbf_hours=4)
    answer = ReliabilityModel().solve(fleet=fleet, job_duration_hours=100, checkpoint_time_s=120)
    assert f"{answer.checkpoint_overhead_fraction:.1%} {answer.rework_overhead_fraction:.1%}" == "6.5% 6.5%"


def document() -> list[str]:
    folder = os.environ.get("MLSYSIM_SEEDS")
    if not folder:
        pytest.skip("MLSYSIM_SEEDS does not name a folder with the documents: code and printed values not compared")
    path = Path(folder) / "full-stack-audit-tutorial.txt"
    if not path.is_file():
        pytest.skip(f"{path} does not exist: code and printed values not compared")
    return [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]


LOOKS_LIKE_CODE = re.compile(r"^\s*(import \w|from mlsysim|[a-z_]\w* = |(info|table|banner)\(|# )|^ {4,}\S")


def test_the_code_is_that_of_the_document() -> None:
    """Every line of it, in order, and nothing that looks like code is left over."""
    lines = document()
    code = [line.rstrip() for line in CODE.splitlines() if line.strip()]
    position, rest = 0, []
    for line in lines:
        if position < len(code) and line == code[position]:
            position += 1
        else:
            rest.append(line)
    assert position == len(code), f"not in the document at its place: {code[position]!r}"
    assert [line for line in rest if LOOKS_LIKE_CODE.match(line)] == []


def test_stable_lines_are_those_of_the_document() -> None:
    lines = set(document())
    before_the_last_table = STABLE.split("Domain     Solver")[0].splitlines()
    stable = [line.rstrip() for line in before_the_last_table if line and "{" not in line]
    assert [line for line in stable if line not in lines] == []
