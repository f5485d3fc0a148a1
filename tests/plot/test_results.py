"""Charts made of results show the numbers of the results."""

from __future__ import annotations

import re

import pytest

from mlsysim import (
    DistributedModel,
    Hardware,
    Models,
    NetworkRooflineModel,
    Scenarios,
    SensitivitySolver,
    ServingModel,
    SingleNodeModel,
    TrainingMemoryModel,
    plot,
)
from mlsysim.errors import InputError
from mlsysim.plot.charts.bars import step_parts
from mlsysim.plot.charts.memory_bar import memory_parts
from mlsysim.plot.charts.pareto import front


@pytest.fixture(scope="module")
def step():
    return DistributedModel().solve(
        "Llama3_405B",
        "Meta_16K",
        2048,
        "bf16",
        tp_size=8,
        pp_size=16,
        v_stages=8,
        zero_stage=2,
        overlap_comm=True,
        seq_len=8192,
    )


@pytest.mark.parametrize("efficiency", [0.5, "calibrated"])
def test_parts_of_a_step_add_up_to_it(efficiency):
    result = DistributedModel().solve(
        "Llama3_70B", "Meta_16K", 16384, "bf16", efficiency=efficiency, tp_size=8, pp_size=4
    )
    total = sum(value.to("s").magnitude for _, value in step_parts(result))
    assert total == pytest.approx(result.step_latency_total.to("s").magnitude)


def test_waterfall_of_a_step(check, step):
    figure = check(plot.waterfall(step))
    assert "arithmetic 5.25 s" in figure.alt and "uneven stages 83.4 ms" in figure.alt and "Step 6.92 s" in figure.alt
    assert step.binding.sentence.split(";")[0].split(":")[0] in figure.svg()


def test_waterfall_of_a_pass(check):
    profile = SingleNodeModel().solve("Llama3_8B", "H100")
    check(plot.waterfall(profile))
    assert sum(v.to("s").magnitude for _, v in step_parts(profile)) == pytest.approx(profile.latency.to("s").magnitude)
    with pytest.raises(InputError, match="waterfall"):
        step_parts(3)


def test_memory_bars_of_results_add_up(check, step):
    served = ServingModel().solve("Llama3_70B", "H100", tp_size=4, batch_size=16, seq_len=2048)
    trained = TrainingMemoryModel().solve("Llama3_8B", "H100", 1)
    whole = SingleNodeModel().solve("Llama3_70B", "H100")
    expected = (step.memory_per_accelerator, served.memory_per_device, trained.total_memory, whole.memory_footprint)
    for result, total in zip((step, served, trained, whole), expected, strict=True):
        parts, _ = memory_parts(result)
        assert sum(v.to("byte").magnitude for _, v in parts) == pytest.approx(total.to("byte").magnitude)
        check(plot.memory_bar(result))
    assert "GB over" in plot.memory_bar(whole).alt
    check(plot.memory_bar([("A", step), ("B", served)]))


def test_tornado_of_a_sensitivity_has_the_strongest_first(check):
    figure = check(plot.tornado(SensitivitySolver().solve("Llama3_8B", "H100")))
    order = re.findall(r"(memory bandwidth|dispatch tax|peak flops):", figure.alt)
    assert order == ["memory bandwidth", "dispatch tax", "peak flops"]


def test_roofline_of_a_chip_has_its_ridge_and_points_below_the_roof(check):
    profile = SingleNodeModel().solve("Llama3_8B", "H100", batch_size=8)
    figure = check(
        plot.plot_roofline("H100", ["Llama3_8B", ("Llama3_8B", {"batch_size": 64, "seq_len": 512}), ("mine", profile)])
    )
    assert "ridge at 295 FLOP/B" in figure.alt
    assert "Llama-3.1-8B, decode: 3.34 TFLOP/s at 1 FLOP/B, under the slope" in figure.alt
    assert "prefill, batch 64" in figure.alt and "mine: " in figure.alt
    check(plot.roofline([Hardware.H100, "A100"], Models.Llama3_8B, precision="bf16"))


def test_distributed_roofline_has_the_engines_network(check):
    profile = NetworkRooflineModel().solve("Llama3_405B", "Meta_16K", batch_size=1, seq_len=128)
    figure = check(plot.plot_distributed_roofline("Meta_16K", [("short", profile), "Llama3_8B"]))
    slope = float(re.search(r"accelerators: 989 TFLOP/s, (\S+) GB/s", figure.alt)[1])
    assert profile.bottleneck == "Network"
    assert slope == pytest.approx(profile.peak_bw_actual.to("GB/s").magnitude, rel=0.02)


def test_scorecard_marks_the_wall_that_binds(check):
    for scenario in Scenarios:
        evaluation = scenario.evaluate()
        figure = check(plot.plot_evaluation_scorecard(evaluation))
        said = re.search(r"\bWall (\d+)", evaluation.performance.summary + evaluation.feasibility.summary)
        if said:
            assert "(binds)" in figure.alt


def test_front():
    assert front([(1, 1), (1, 1), (2, 0)]) == [0, 2]
    assert front([(1, 1), (2, 2)], ("low", "high")) == [0, 1]
    assert front([(1, 1), (2, 2)], ("high", "high")) == [1]


def test_a_point_hidden_by_others_is_named_below_the_chart():
    crowd = [(f"design number {k} with a long name", "1 s", 1.0) for k in range(60)]
    svg = plot.pareto(crowd, x_title="x", y_title="y", chosen=[label for label, _, _ in crowd]).svg()
    assert "Also chosen: " in svg
