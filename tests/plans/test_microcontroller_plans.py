"""Plans for microcontrollers: the scenarios, the runtime, flash beside memory, and what a change of figures does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.plans.evaluate import evaluate
from mlsysim.plans.files import load_plan

SCENARIOS = Path(__file__).parents[2] / "src" / "mlsysim" / "examples" / "scenarios"


def keyword(**hardware):
    return {
        "task": "inference",
        "workload": {"model": "DS_CNN", "precision": "int8"},
        "hardware": {"on": "STM32_L4R5", "efficiency": "calibrated", **hardware},
    }


def number(answer, name, unit):
    return answer.value(name).to(unit).magnitude


def test_keyword_scenario_holds_a_published_result_of_its_board():
    """MLPerf Tiny 1.2, Bosch on the Nucleo-L4R5ZI: 16.623 inferences a second."""
    answer = evaluate(load_plan(SCENARIOS / "keyword-spotting-microcontroller.toml"), change=False)
    assert answer.feasible and answer.fidelity == "calibrated" and answer.exit_code == 0
    metric = next(m for m in answer.metrics if m.name == "latency")
    assert metric.low.to("ms").magnitude <= 1e3 / 16.623 <= metric.high.to("ms").magnitude
    assert "MLPerf Tiny" in answer.interval and "extrapolating" not in answer.interval.lower()


def test_doorbell_scenario_is_near_the_makers_figure():
    answer = evaluate(load_plan(SCENARIOS / "person-detection-doorbell.toml"), change=False)
    assert number(answer, "latency", "ms") == pytest.approx(54, rel=0.1)


def test_flash_stands_beside_memory():
    answer = evaluate(keyword(), change=False)
    assert number(answer, "flash", "byte") == pytest.approx(23756)
    assert number(answer, "flash_capacity", "KiB") == pytest.approx(2048)
    assert [part.label for part in answer.memory.parts] == ["activations"]
    assert number(answer, "memory", "byte") == pytest.approx(answer.memory.parts[0].value)
    heavy = evaluate({**keyword(), "workload": {"model": "ResNet50", "precision": "int8"}}, change=False)
    assert not heavy.feasible and "MB of flash" in heavy.headline
    assert [part.label for part in heavy.memory.parts] == ["weights"]


def test_the_stack_of_a_microcontroller_is_its_runtime():
    usual, named = evaluate(keyword(), change=False), evaluate(keyword(stack="STM32Cube.AI 9"), change=False)
    assert number(usual, "latency", "s") / number(named, "latency", "s") == pytest.approx(1.253)
    with pytest.raises(InputError, match="runtime"):
        evaluate(keyword(stack="STM32Cube"), change=False)
    with pytest.raises(InputError, match="runtime"):
        evaluate(keyword(efficiency=0.5, stack="STM32Cube.AI 9"), change=False)


def test_only_the_clock_moves_the_time():
    found = evaluate(keyword(), change=False).sensitivities
    assert found["peak_flops"] == pytest.approx((1 / 0.9 - 1, 1 / 1.1 - 1))
    assert found["memory_bandwidth"] == (0.0, 0.0)
