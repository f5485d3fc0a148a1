"""Key numbers of the paper's case studies, derived here and found by the scripts in examples/."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "src" / "mlsysim" / "examples"
SCRIPTS = (
    "s1_chain_of_thought_cost",
    "s2_cpu_pipeline",
    "i1_batch_sweep",
    "i2_iowa_against_quebec",
    "r1_gpu_against_wafer",
    "r2_procurement_audit",
    "r3_training_audit",
    "r4_parallelism_search",
)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_answers_with_a_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(name).main()
    printed = capsys.readouterr().out
    assert name.split("_")[0].upper() in printed
    assert "paper" in printed.lower() and "─" in printed


# S1


def test_s1_eight_steps_take_7_3_times_as_long() -> None:
    """(TTFT + 8 x 128 ITL) / (TTFT + 128 ITL), from the two times themselves; 7.6 would need a prompt half as long."""
    script = load("s1_chain_of_thought_cost")
    one, eight = script.think(script.dense(), 1), script.think(script.dense(), 8)
    assert eight.feasible
    assert eight.tokens_generated == 1024
    first, between = one.ttft.to("s").magnitude, one.itl.to("s").magnitude
    # The cache grows while it thinks: below 0.1 % of the weights here.
    by_hand = (first + 8 * 128 * between) / (first + 128 * between)
    assert eight.latency_multiplier == pytest.approx(by_hand, rel=1e-3)
    assert f"{eight.latency_multiplier:.1f}" == "7.3"
    # Weights of a stage are read by eight GPUs; all of them once for each token.
    assert between == pytest.approx(3.6e12 / (8 * 3.35e12), rel=0.03)
    assert between > 3.6e12 / (8 * 3.35e12)


def test_s1_the_cost_of_a_year_follows_latency() -> None:
    script = load("s1_chain_of_thought_cost")
    one, eight = script.think(script.dense(), 1), script.think(script.dense(), 8)
    ratio = script.annual_cost(eight).tco_usd / script.annual_cost(one).tco_usd
    assert ratio == pytest.approx(eight.latency_multiplier, rel=2e-3)
    assert eight.accelerators_needed == 48 * math.ceil(100 * eight.total_reasoning_time.to("s").magnitude)


# S2


def test_s2_step_and_headroom() -> None:
    script = load("s2_cpu_pipeline")
    small = script.prepare(2048)
    compute = 3 * 2 * 4.089e9 * 256 / (312e12 * 0.42)
    assert small.accelerator_step_time.to("s").magnitude == pytest.approx(compute, rel=1e-3)
    assert round(small.accelerator_step_time.to("ms").magnitude) == 48
    assert small.demand_rate.to("1/s").magnitude == pytest.approx(2048 / compute, rel=1e-3)
    assert small.cpu_throughput.magnitude == 64 * 850
    assert f"{small.headroom_ratio:.2f}" == "1.27"
    assert not small.is_bottleneck
    assert script.prepare(2048, "1200 sample/s").cpu_throughput.magnitude == 76_800


def test_s2_a_larger_batch_does_not_raise_demand_but_faster_kernels_do() -> None:
    script = load("s2_cpu_pipeline")
    small, large = script.prepare(2048), script.prepare(4096)
    assert large.accelerator_step_time / small.accelerator_step_time == pytest.approx(2, rel=1e-3)
    assert large.demand_rate / small.demand_rate == pytest.approx(1, rel=1e-3)
    assert not large.is_bottleneck
    # Demand is proportional to eta and meets 54,400 images/s at 0.535.
    assert not script.prepare(2048, efficiency=0.53).is_bottleneck
    assert script.prepare(2048, efficiency=0.54).is_bottleneck


# I1


@pytest.mark.parametrize(
    ("batch", "bound", "mfu"),
    [(1, "Memory", 0.0034), (8, "Memory", 0.027), (32, "Memory", 0.108), (128, "Memory", 0.43), (256, "Compute", 0.63)],
)
def test_i1_table(batch: int, bound: str, mfu: float) -> None:
    ours = load("i1_batch_sweep").decode(batch)
    assert ours.bottleneck == bound
    assert ours.arithmetic_intensity.magnitude == pytest.approx(batch)
    assert float(f"{ours.mfu:.2g}") == pytest.approx(mfu, rel=0.02)
    # MFU = min(B / ridge, eta), less the dispatch of 0.01 ms.
    ideal = min(batch * 3.35 / 989, 0.63)
    assert ours.mfu == pytest.approx(ideal, rel=3e-3)
    assert ours.mfu < ideal


def test_i1_crossover_is_eta_times_the_ridge_point() -> None:
    assert load("i1_batch_sweep").crossover() == math.ceil(0.63 * 989 / 3.35 - 1e-9) == 186


# I2


def test_i2_carbon() -> None:
    script = load("i2_iowa_against_quebec")
    from mlsysim import Grids, Systems

    assert Systems.Clusters.get(script.FLEET).total_accelerators == 256
    iowa = script.run(script.at_pue(Grids.Iowa, 1.1))
    energy = 256 * 0.7 * 720 * 1.1
    assert iowa.total_energy_kwh.to("kWh").magnitude == pytest.approx(energy)
    assert iowa.carbon_footprint_kg == pytest.approx(energy * 0.680)
    assert f"{iowa.carbon_footprint_kg / 1e3:.1f}" == "96.5"
    quebec = script.run(script.at_pue(script.papers_quebec(), 1.1))
    assert quebec.carbon_footprint_kg == pytest.approx(energy * 0.017)
    assert iowa.carbon_footprint_kg / quebec.carbon_footprint_kg == pytest.approx(40)
    # The printed 412 t are 4.3 times what full power can emit.
    assert 412e3 / iowa.carbon_footprint_kg == pytest.approx(4.27, abs=0.01)
    busy = script.run(script.at_pue(Grids.Iowa, 1.1), mfu=0.4)
    assert busy.carbon_footprint_kg == pytest.approx(iowa.carbon_footprint_kg * (0.3 + 0.7 * 0.4))


def test_i2_water_follows_cooling_not_carbon() -> None:
    script = load("i2_iowa_against_quebec")
    from mlsysim import Grids

    dirty = Grids.Iowa.model_copy(update={"carbon_intensity_g_kwh": 6800.0})
    before, after = script.run(Grids.Iowa), script.run(dirty)
    assert after.carbon_footprint_kg == pytest.approx(10 * before.carbon_footprint_kg)
    assert after.water_usage_liters == before.water_usage_liters
    assert before.water_usage_liters == pytest.approx(256 * 0.7 * 720 * 1.8)
    assert script.run(script.papers_quebec()).water_usage_liters == 0


# R1


def test_r1_the_papers_arithmetic() -> None:
    script = load("r1_gpu_against_wafer")
    gpus, wafer = script.gpus(), script.wafer()
    assert gpus.feasible and gpus.devices == 5
    assert gpus.decode_weights.to("ms").magnitude == pytest.approx(360 / (5 * 3.35))
    assert gpus.itl.to("ms").magnitude == pytest.approx(21.5, abs=1.0)
    assert gpus.itl.to("ms").magnitude > 21.5
    assert wafer.pass_time.to("ms").magnitude == pytest.approx(300)
    assert wafer.bottleneck == "Injection"
    assert wafer.optimal_batch_size == math.ceil(2 * 125e15 * 0.4 / (2 * 1.2e12)) == 41_667
    # Without attention B* sequences take 300 ms: 139,000 tokens/s.
    assert wafer.optimal_tokens / 0.3 == pytest.approx(139e3, rel=2e-3)


def test_r1_the_batch_does_not_fit() -> None:
    script = load("r1_gpu_against_wafer")
    best = script.wafer(41_667)
    token = 2 * 80 * 8 * 64 * 2
    assert token == 160 * 1024
    assert best.cache_size.to("byte").magnitude == pytest.approx(token * 2048 * 41_667)
    assert best.cache_size.to("TB").magnitude == pytest.approx(14, abs=0.05)
    assert not best.feasible and best.binding.wall == 2
    largest = script.wafer().max_batch_size
    # 44 GB less a tenth, by caches alone 118; activations take one more.
    assert largest == pytest.approx(44e9 * 0.9 / (token * 2048), abs=2)
    assert script.wafer(largest).feasible and not script.wafer(largest + 1).feasible


def test_r1_each_at_the_batch_that_it_can_hold() -> None:
    """The conclusion turns round: 390 tokens a second on the wafer, thousands on five GPUs."""
    script = load("r1_gpu_against_wafer")
    wafer = script.wafer(script.wafer().max_batch_size)
    assert wafer.throughput_tokens_per_sec.magnitude == pytest.approx(script.wafer().max_batch_size / 0.3)
    gpus = script.gpus(script.gpus().max_batch_size)
    assert gpus.feasible
    assert gpus.throughput_tokens_per_sec.magnitude > 10 * wafer.throughput_tokens_per_sec.magnitude


# R2


def test_r2_sensitivities() -> None:
    script = load("r2_procurement_audit")
    fits, spills = script.sensitivity("int4"), script.sensitivity("fp16")
    assert fits.feasible and fits.binding_constraint == "memory_bandwidth"
    assert fits.sensitivities["memory_bandwidth"] == pytest.approx(-1, abs=1e-3)
    assert fits.sensitivities["peak_flops"] == 0
    assert not spills.feasible and spills.binding_constraint == "memory_capacity"


def test_r2_synthesis() -> None:
    needed = load("r2_procurement_audit").synthesis()
    assert needed.required_bw.to("GB/s").magnitude == pytest.approx(2800)
    assert needed.accelerators_by_wall["memory_bandwidth"] == 2
    assert needed.accelerators_by_wall["memory_capacity"] == 2


# R3


def test_r3_step_and_communication() -> None:
    found = load("r3_training_audit").audit()
    assert found.dense_step == pytest.approx(6 * 70e9 * 4e6 / (512 * 989e12 * 0.4))
    assert f"{found.dense_step:.2f}" == "8.29"
    step = found.step
    assert step.feasible
    data = 2 * 63 / 64 * 17.5e9 / 50e9 + 126 * 5e-6
    assert step.dp_communication_latency.to("s").magnitude == pytest.approx(data)
    assert data == pytest.approx(0.689, abs=1e-3)
    attention = 3 * 80 * 4 * 8192 * 2501 / 2 * 4e6 / (512 * 989e12 * 0.4)
    tensor = 25 * 80 * 4 * 14 * (2500 * 8192 * 2 / 8 / 450e9 + 0.5e-6)
    compute = found.dense_step + attention
    # 25 micro-batches: before the last one has gone through the layers there is nothing to sum.
    exposed = data - compute / 25
    assert exposed > 0.15 * data
    assert step.dp_exposed_latency.to("s").magnitude == pytest.approx(exposed)
    assert step.scaling_efficiency == pytest.approx(compute / (compute + tensor + exposed))
    # What computes is what a faster chip would shorten, but for the last micro-batch, beside which less would be summed.
    assert found.sensitivity.sensitivities["peak_flops"] == pytest.approx(-24 / 25 * step.scaling_efficiency, abs=1e-4)


def test_r3_reliability_cost_and_climate() -> None:
    found = load("r3_training_audit").audit()
    assert found.reliability.fleet_mtbf.to("h").magnitude == pytest.approx(83.7, abs=0.05)
    # 1.7 % for writes and rework, 0.1 % for restarts: far from ten times the communication.
    tau = math.sqrt(2 * 45 * found.reliability.fleet_mtbf.to("s").magnitude)
    assert found.reliability.total_overhead_fraction == pytest.approx(2 * 45 / tau + 300 / (83.705 * 3600), rel=1e-3)
    assert found.reliability.total_overhead_fraction < 1 - found.step.scaling_efficiency
    assert found.scaling.optimal_parameters.magnitude == pytest.approx(math.sqrt(2e24 / 120))
    energy = 512 * 0.7 * 720 * 1.1
    assert found.sustainability.total_energy_kwh.to("kWh").magnitude == pytest.approx(energy)
    assert found.sustainability.carbon_footprint_kg == pytest.approx(energy * 0.017)
    assert f"{found.sustainability.carbon_footprint_kg / 1e3:.2f}" == "4.83"
    assert found.economics.tco_usd == pytest.approx(512 * 30_000 * 30 / 1095 + energy * 0.06)
    assert f"{found.economics.tco_usd / 1e6:.2f}" == "0.44"


def test_r3_fourteen_days_need_1098_gpus() -> None:
    found = load("r3_training_audit").audit()
    assert 512 * 30 / 14 == 1097.142857142857
    assert found.synthesis.accelerators_by_wall["compute"] == math.ceil(512 * 30 / 14)


# R4


def test_r4_the_papers_layout_is_near_the_best_of_its_space() -> None:
    """Four times the stages have a quarter of the gradients left to sum when the last micro-batch is through, for as long a bubble."""
    script = load("r4_parallelism_search")
    assert script.least_stages() == pytest.approx(4.86, abs=0.005)
    found = script.search(max_zero_stage=0, max_v_stages=1)
    best = found.best_config
    assert (best["tp"], best["pp"], best["dp"]) == (8, 32, 8)
    assert 0.01 < found.compared["behind_best_fraction"] < 0.012 and found.compared["rank_of_split"] == 3
    paper = found.compared["config"]
    assert paper["zero_stage"] == 0
    assert 16 * 174.6e9 / 64 / 1e9 < paper["memory_gb"] < 72
    assert found.rejected["Wall 2 (Memory)"] > 0
    # Half the stages do not hold the state, whatever else is chosen.
    shallow = script.ParallelismOptimizer().solve(
        script.Models.GPT3,
        script.fleet(),
        batch_size=2048,
        seq_len=2048,
        max_zero_stage=0,
        max_v_stages=1,
        compare_to={"tp": 8, "pp": 4},
    )
    assert shallow.compared["rank"] is None


def test_r4_with_virtual_stages_another_split_is_a_few_per_cent_better() -> None:
    script = load("r4_parallelism_search")
    found = script.search(max_zero_stage=0)
    best, asked = found.best_config, found.compared
    assert (best["tp"], best["pp"], best["dp"]) == (4, 16, 32)
    assert best["v_stages"] > 1
    # The exact sends of each wrap put one more interleaved split before it.
    assert asked["rank_of_split"] == 4
    assert 0.04 < asked["behind_best_fraction"] < 0.07


def test_r4_zero_makes_room_for_fewer_stages() -> None:
    found = load("r4_parallelism_search").search()
    assert found.best_config["zero_stage"] >= 1
    assert found.best_config["pp"] < 8
    assert found.compared["behind_best_fraction"] < 0.10
