"""The paper's Listings 1 to 4, as printed (lines that the page wrapped are joined again), and what is right about them."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from mlsysim import DistributedModel, Hardware, Models, SensitivitySolver, SingleNodeModel, SynthesisSolver, Systems
from mlsysim.core.formulas import calc_training_time_days
from mlsysim.errors import DataWarning
from mlsysim.units.registry import DimensionalityError

LISTING_1 = """\
from mlsysim.core.constants import Q_
rate = Q_("989 TFLOPs/s") # Compute throughput
bw = Q_("3.35 TB/s") # Memory bandwidth
rate + bw # -> DimensionalityError
(rate / bw).to("flop/byte") # -> 295 flop/byte (ridge point)
"""

LISTING_2 = """\
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
       tdp=Q_("500 W"))
print(node.ridge_point()) # -> 125 flop/byte
"""

LISTING_3 = """\
import mlsysim
from mlsysim import ScalingModel, DistributedModel, EconomicsModel

# 1. Algorithm: Find optimal parameters for a fixed compute budget
budget = mlsysim.Q_("4e24 FLOP") # ~100K H100-days at 50% MFU
optimal = ScalingModel().solve(compute_budget=budget)

# Instantiate the demand (Layer A: Workload)
model = mlsysim.TransformerWorkload(
    name="Frontier-Model",
    parameters=optimal.optimal_parameters,
    layers=80, hidden_dim=8192, heads=64
)

# 2. Fleet: Evaluate on a massive 8K GPU cluster (Layer D: Supply/Topology)
fleet = mlsysim.Systems.Clusters.Frontier_8K
perf = DistributedModel().solve(
    model, fleet,
    batch_size=4096, tp_size=8, pp_size=4
)

# 3. The Capital: Calculate TCO for the resulting training time
duration_days = perf.step_latency_total * optimal.optimal_tokens / 4096
tco = EconomicsModel().solve(fleet, duration_days=duration_days.to('day').magnitude)

print(f"Scaling Efficiency: {perf.scaling_efficiency:.1%}")
print(f"Total Job Cost: ${tco.tco_usd:,.2f}")
"""

LISTING_4 = """\
import mlsysim
solver = mlsysim.SensitivitySolver()
res = solver.solve(model=Models.Llama2_70B,
                  hardware=Hardware.Cloud.A100)
print(res.sensitivities)
# {'peak_flops': -0.06, 'memory_bandwidth': -0.88,
#   'memory_capacity': 0.00}
print(f"Binding: {res.binding_constraint}")
# Output: memory_bandwidth
"""


def execute(code: str, **names: Any) -> tuple[str, dict[str, Any], list[str]]:
    """What a listing prints, its variables, and the warnings that it causes."""
    names["__name__"] = "listing"
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        exec(compile(code, "listing", "exec"), names)
    return printed.getvalue(), names, [str(w.message) for w in caught if issubclass(w.category, DataWarning)]


# Listing 1


def test_listing_1_refuses_to_add_flops_and_bytes() -> None:
    with pytest.raises(DimensionalityError, match=r"\[operation\].*\[information\]"):
        execute(LISTING_1)


def test_listing_1_gives_the_ridge_point() -> None:
    without_the_sum = "\n".join(line for line in LISTING_1.splitlines() if "rate + bw" not in line)
    _, names, _ = execute(without_the_sum.replace("(rate", "ridge = (rate"))
    assert names["ridge"].magnitude == pytest.approx(989 / 3.35)
    assert f"{names['ridge']:.0f~P}" == "295 flop/B"


@pytest.mark.parametrize("other", ["1 W", "1", "1 USD/s", "1 gCO2e/s", "1 Hz"])
def test_nothing_but_a_rate_of_operations_adds_to_one(other: str) -> None:
    from mlsysim.core.constants import Q_

    with pytest.raises(DimensionalityError):
        Q_("989 TFLOPs/s") + Q_(other)


# Listing 2


CLOSED_AT_THE_END = LISTING_2.replace('"500 W"))', '"500 W")))')
AS_MEANT = LISTING_2.replace('"4 TB/s"),', '"4 TB/s")),')


def test_listing_2_lacks_a_parenthesis() -> None:
    """It closes the memory nowhere else than after the power, and the node not at all."""
    assert LISTING_2.count("(") == LISTING_2.count(")") + 1
    with pytest.raises(SyntaxError):
        execute(LISTING_2)


def test_listing_2_closed_at_its_end_hands_the_misplaced_tdp_on() -> None:
    """The power then lands in the memory; it is handed on to the node, with a warning."""
    printed, names, warned = execute(CLOSED_AT_THE_END)
    assert printed.startswith("125")
    node = names["node"]
    assert node.ridge_point().to("flop/byte").magnitude == pytest.approx(125)
    assert node.tdp.to("W").magnitude == 500
    assert len(warned) == 1 and "'tdp'" in warned[0] and "HardwareNode" in warned[0]


def test_listing_2_as_it_was_meant_needs_no_warning() -> None:
    printed, names, warned = execute(AS_MEANT)
    _, misplaced, _ = execute(CLOSED_AT_THE_END)
    assert not warned and printed.startswith("125")
    assert names["node"].model_dump() == misplaced["node"].model_dump()


def test_the_node_of_listing_2_is_a_full_member_of_the_zoo() -> None:
    """At fp8 it computes twice as fast, and its 4 TB/s read 70 B parameters of 1 byte in 17.5 ms."""
    _, names, _ = execute(AS_MEANT)
    answer = SingleNodeModel().solve("Llama3_70B", names["node"], precision="fp8")
    assert answer.latency_compute.to("s").magnitude == pytest.approx(2 * 70.6e9 / (1000e12 * 0.5))
    assert answer.latency_memory.to("ms").magnitude == pytest.approx(70.6e9 / 4e12 * 1e3, rel=1e-4)


# Listing 3


@pytest.fixture(scope="module")
def listing_3() -> tuple[str, dict[str, Any], list[str]]:
    return execute(LISTING_3)


def test_listing_3_runs(listing_3: tuple[str, dict[str, Any], list[str]]) -> None:
    printed, names, _ = listing_3
    assert [line.split(":")[0] for line in printed.splitlines()] == ["Scaling Efficiency", "Total Job Cost"]
    assert names["budget"].to("flop").magnitude == 4e24
    parameters = math.sqrt(4e24 / 120)
    assert names["optimal"].optimal_parameters.magnitude == pytest.approx(parameters)
    assert names["optimal"].optimal_tokens.magnitude == pytest.approx(20 * parameters)
    assert names["perf"].parallelism == {"dp": 256, "tp": 8, "pp": 4, "ep": 1, "cp": 1}
    assert names["duration_days"].check("[time]")


def test_listing_3_step_from_first_principles(listing_3: tuple[str, dict[str, Any], list[str]]) -> None:
    """4,096 sequences of 2,048 tokens on 8,192 GPUs: 16 micro-batches for each of 256 replicas, four stages."""
    perf = listing_3[1]["perf"]
    parameters, layers, hidden, sequence = math.sqrt(4e24 / 120), 80, 8192, 2048
    flops = 6 * parameters * 4096 * sequence + 3 * layers * 4 * hidden * 4096 * sequence * (sequence + 1) / 2
    compute = flops / (8192 * 989e12 * 0.5)
    micro_batches, stages = 16, 4
    message = sequence * hidden * 2
    all_reduce = 2 * 7 * (message / 8 / 450e9 + 0.5e-6)
    tensor = micro_batches * layers / stages * 4 * all_reduce
    gradients = parameters * 2 / 32
    data = 2 * 255 * (gradients / 256 / 50e9 + 5e-6)
    sends = micro_batches * 2 * (message / 8 / 50e9 + 5e-6)
    # Of the 2 x 16 sends of a stage 2 (3 + 15 - ceil(15 / 4)) are on the longest path of 1F1B.
    waited = 0.15 * sends * (3 + 15 - 4) / 16
    step = (compute + tensor) * (1 + (stages - 1) / micro_batches) + waited + data
    assert perf.compute_latency.to("s").magnitude == pytest.approx(compute, rel=1e-9)
    assert perf.tp_communication_latency.to("s").magnitude == pytest.approx(tensor, rel=1e-9)
    assert perf.dp_communication_latency.to("s").magnitude == pytest.approx(data, rel=1e-9)
    assert perf.bubble_fraction == pytest.approx(3 / 19)
    assert perf.step_latency_total.to("s").magnitude == pytest.approx(step, rel=1e-9)
    assert perf.scaling_efficiency == pytest.approx(compute / step, rel=1e-9)


def test_listing_3_layout_does_not_fit_and_says_what_would(listing_3: tuple[str, dict[str, Any], list[str]]) -> None:
    perf = listing_3[1]["perf"]
    assert perf.memory_breakdown["optimizer_state"].to("byte").magnitude == pytest.approx(
        12 * math.sqrt(4e24 / 120) / 32
    )
    assert not perf.feasible and perf.binding.wall == 2
    assert perf.remedies == ("it fits with zero_stage=1",)
    names = listing_3[1]
    assert (
        DistributedModel()
        .solve(names["model"], names["fleet"], batch_size=4096, tp_size=8, pp_size=4, zero_stage=1)
        .feasible
    )


def test_listing_3_charges_every_step_with_one_token_a_sequence(
    listing_3: tuple[str, dict[str, Any], list[str]],
) -> None:
    """tokens / 4096 counts sequences as tokens: the run seems 2,048 times too long, and the cost with it."""
    _, names, warned = listing_3
    perf, tokens = names["perf"], names["optimal"].optimal_tokens.magnitude
    step = perf.step_latency_total.to("s").magnitude
    claimed = names["duration_days"].to("day").magnitude
    right = step * tokens / (4096 * 2048) / 86400
    assert claimed == pytest.approx(2048 * right, rel=1e-12)
    assert claimed > 30_000 and 15 < right < 20
    assert any("longer than the 3 years" in sentence for sentence in warned)
    # The purchase is charged once, however long the run: 8,192 x 30,000 USD.
    assert names["tco"].capex_usd == names["tco"].purchase_price_usd == 8192 * 30_000
    run = names["EconomicsModel"]().solve(names["fleet"], duration_days=right)
    assert run.capex_usd == pytest.approx(8192 * 30_000 * right / (3 * 365))
    assert run.tco_usd < 0.01 * names["tco"].tco_usd


def test_a_full_run_of_4e24_flop_is_11_days_of_pure_compute() -> None:
    """On 8,192 H100 at half their peak; the listing's comment of 100,000 H100-days at 50 % is 93,600."""
    days = calc_training_time_days("4e24 FLOP", 8192, "989 TFLOPs/s", 0.5)
    assert days == pytest.approx(4e24 / (8192 * 989e12 * 0.5) / 86400)
    assert f"{days:.1f}" == "11.4"
    assert days * 8192 == pytest.approx(93_600, rel=1e-3)
    synthesis = SynthesisSolver().solve(
        model="Llama3_70B", deadline=f"{days} day", training_tokens=4e24 / (6 * 70.6e9), hardware="H100", seq_len=1
    )
    assert synthesis.accelerators_by_wall["compute"] == pytest.approx(8192, abs=1)


def test_the_run_of_listing_3_takes_longer_than_pure_compute_by_its_efficiency(
    listing_3: tuple[str, dict[str, Any], list[str]],
) -> None:
    """11.4 days, 0.8 % more for attention, over the scaling efficiency."""
    perf, tokens = listing_3[1]["perf"], listing_3[1]["optimal"].optimal_tokens.magnitude
    parameters = math.sqrt(4e24 / 120)
    days = perf.step_latency_total.to("day").magnitude * tokens / (4096 * 2048)
    attention = 3 * 80 * 4 * 8192 * 2049 / 2 / (6 * parameters)
    pure = calc_training_time_days("4e24 FLOP", 8192, "989 TFLOPs/s", 0.5)
    assert days == pytest.approx(pure * (1 + attention) / perf.scaling_efficiency, rel=1e-9)


# Listing 4


def test_listing_4_runs_with_the_imports_that_it_leaves_out() -> None:
    _, names, _ = execute("from mlsysim import Models, Hardware\n" + LISTING_4)
    assert set(names["res"].sensitivities) == {"peak_flops", "memory_bandwidth", "memory_capacity"}
    assert names["Models"].Llama2_70B is names["Models"].Language.Llama2_70B


def test_listing_4_one_a100_does_not_hold_the_model_so_capacity_binds() -> None:
    """138 GB on 80 GiB: 52 GB cross PCIe in 1.6 s, beside 42 ms of memory; the two derivatives follow."""
    printed, names, _ = execute("from mlsysim import Models, Hardware\n" + LISTING_4)
    assert printed.splitlines()[-1] == "Binding: memory_capacity"
    result = names["res"]
    assert not result.feasible
    chip, weights = Hardware.Cloud.A100, 2 * Models.Llama2_70B.parameter_count
    capacity, bandwidth = 80 * 2**30, chip.memory.bandwidth.to("byte/s").magnitude
    link = chip.interconnect.bandwidth.to("byte/s").magnitude
    total = capacity / bandwidth + (weights - capacity) / link + 1e-5
    assert result.sensitivities["peak_flops"] == 0
    assert result.sensitivities["memory_bandwidth"] == pytest.approx(-capacity / bandwidth / total, abs=5e-5)
    assert result.sensitivities["memory_capacity"] == pytest.approx(
        -capacity * (1 / link - 1 / bandwidth) / total, abs=5e-4
    )


def test_listing_4_where_the_model_fits_bandwidth_has_elasticity_one_and_flops_none() -> None:
    """A maximum of two times cannot give -0.88 and -0.06 at once; what is missing to -1 is the dispatch."""
    result = SensitivitySolver().solve(model=Models.Llama2_70B, hardware=Hardware.Cloud.A100, precision="int4")
    assert result.feasible and result.binding_constraint == "memory_bandwidth"
    assert result.sensitivities["peak_flops"] == 0 == result.sensitivities["memory_capacity"]
    memory = Models.Llama2_70B.parameter_count / 2 / Hardware.Cloud.A100.memory.bandwidth.to("byte/s").magnitude
    assert result.sensitivities["memory_bandwidth"] == pytest.approx(-memory / (memory + 1e-5), abs=2e-5)
    # Ten per cent more bandwidth: 1/1.1 of the memory time.
    assert result.response["memory_bandwidth"] == pytest.approx(-memory * (1 - 1 / 1.1) / (memory + 1e-5), rel=1e-3)


def test_the_fleet_of_listing_3_is_what_its_name_says() -> None:
    fleet = Systems.Clusters.Frontier_8K
    assert fleet.total_accelerators == 8192
    assert fleet.node.accelerator.compute.peak_flops.to("TFLOPs/s").magnitude == 989


def squeezed(text: str) -> str:
    """Without line numbers and white space, since the page numbers and wraps its lines."""
    return re.sub(r"\s+", "", re.sub(r"^\d+( |$)", "", text, flags=re.MULTILINE))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_listing_is_that_of_the_paper(number: int) -> None:
    folder = os.environ.get("MLSYSIM_SEEDS")
    if not folder or not (Path(folder) / "paper.txt").is_file():
        pytest.skip("MLSYSIM_SEEDS names no folder with paper.txt: the listings were not compared with it")
    paper = (Path(folder) / "paper.txt").read_text(encoding="utf-8")
    blocks = [squeezed(block) for block in re.findall(r"^```\n(.*?)^```", paper, flags=re.MULTILINE | re.DOTALL)]
    assert squeezed((LISTING_1, LISTING_2, LISTING_3, LISTING_4)[number - 1]) in blocks
